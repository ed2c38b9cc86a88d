"""A model leaves its run: what is written, that it computes the same, and that others can load it."""

from __future__ import annotations

import csv
import errno
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
from calling import Epass, Trained
from PIL import Image

from epass.app.export import export
from epass.augment import normalize
from epass.data import open_dataset
from epass.data.read.decode import decode, to_gray
from epass.engine.export import Deployed, as_program, onnx_bytes, run_eagerly, run_program, scaling_difference
from epass.engine.models import load_model
from epass.networks import Classifier, EfficientNetLite
from epass.report.loading import how_to_load
from epass.runs.exported import ONNX, PROGRAM


def save_digits(folder: Path, count: int = 37, mode: str = "L") -> np.ndarray:
    """Test images of the digits as files, and as an array."""
    test = open_dataset("digits").test
    assert test is not None
    folder.mkdir()
    pixels = test.pixels[:count].numpy()
    for number, image in enumerate(pixels[:, 0]):
        Image.fromarray(image).convert(mode).save(folder / f"{number:03d}.png")
    return pixels


def python(code: str, *, without: tuple[str, ...], folder: Path) -> str:
    """What a new process prints in which some packages cannot be imported."""
    blocked = "".join(f"sys.modules[{name!r}] = None\n" for name in without)
    command = [sys.executable, "-c", f"import sys\n{blocked}{code}"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, check=False)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return done.stdout


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_the_folder_says_where_the_model_comes_from(exported: Path, trained: Trained) -> None:
    names = {"README.md", "known.npy", "model.json", "model.onnx", "model.pt2", "model.safetensors"}
    assert {path.name for path in exported.iterdir()} == names
    facts, own = (json.loads((folder / "model.json").read_text()) for folder in (exported, trained.folder))
    assert {key: facts[key] for key in own} == own
    assert facts["format"] == 1
    source = facts["provenance"]
    assert (source["run"], source["data"]["name"], source["recipe"]["method"]["name"]) == ("run", "digits", "simmatch")
    assert source["scores"]["error"] == json.loads((trained.folder / "results.json").read_text())["last"]["error"]
    assert source["torch"] == torch.__version__
    session = onnxruntime.InferenceSession(exported / ONNX)
    assert json.loads(session.get_modelmeta().custom_metadata_map["epass"]) == facts
    assert session.get_inputs()[0].shape == ["batch", 1, 8, 8]
    assert (exported / "README.md").read_text(encoding="utf-8").startswith("# run: digits\n")


@pytest.mark.parametrize("count", [1, 37])
def test_both_graphs_compute_what_pytorch_does(exported: Path, trained: Trained, tmp_path: Path, count: int) -> None:
    pixels = save_digits(tmp_path / "new", count)
    net, model = load_model(trained.folder)
    mean, std = torch.tensor(model["mean"]), torch.tensor(model["std"])
    with torch.no_grad():
        wanted = net(normalize(torch.from_numpy(pixels), mean, std))
    session = onnxruntime.InferenceSession(exported / ONNX)
    for found in (session.run(None, {"images": pixels}), run_program(exported / PROGRAM)(pixels)):
        assert np.abs(found[0] - wanted.logits.numpy()).max() < 1e-4
        assert np.abs(found[1] - wanted.logits.softmax(1).numpy()).max() < 1e-4
        assert np.abs(found[2] - wanted.features.numpy()).max() < 1e-4


def test_what_comes_next_can_be_typed_as_it_is(epass: Epass, trained: Trained, tmp_path: Path) -> None:
    answer = epass("export", trained.folder, "--out", tmp_path / "my model", "--formats", "safetensors")
    assert answer.out.endswith(f"\nNext: epass predict '{tmp_path}/my model' PHOTOS\n"), answer


def test_calibration_is_inside_unless_the_graph_is_raw(trained: Trained, tmp_path: Path) -> None:
    net, model = load_model(trained.folder)
    pixels = save_digits(tmp_path / "new", 3)
    logits, shares, _ = run_eagerly(Deployed(net, {**model, "calibration": {"temperature": 2.0}}), pixels)
    assert np.allclose(shares, torch.from_numpy(logits / 2).softmax(1), atol=1e-6)
    given = normalize(torch.from_numpy(pixels), torch.tensor(model["mean"]), torch.tensor(model["std"])).numpy()
    raw = run_eagerly(Deployed(net, {**model, "calibration": {"temperature": 2.0}}, raw=True), given)
    assert np.array_equal(raw[0], logits)
    assert np.allclose(raw[1], torch.from_numpy(logits).softmax(1), atol=1e-6)


@pytest.mark.parametrize("mode", ["L", "RGB"])
def test_every_form_of_a_model_gives_the_same_answers(
    epass: Epass, exported: Path, trained: Trained, tmp_path: Path, mode: str
) -> None:
    save_digits(tmp_path / "new", mode=mode)
    alone = tmp_path / "alone"
    shutil.copytree(exported, alone, ignore=lambda *_: [ONNX, PROGRAM])
    tables = []
    for number, model in enumerate((trained.folder, exported, exported / ONNX, alone)):
        answer = epass("predict", model, "new", "--out", f"{number}.csv", "--top", "2", "--json")
        assert (answer.code, answer.err) == (0, "")
        assert json.loads(answer.out)["unlike"] is not None
        tables.append(rows(tmp_path / f"{number}.csv"))
    for table in tables[1:]:
        assert [row["prediction"] for row in table] == [row["prediction"] for row in tables[0]]
        pairs = zip(table, tables[0], strict=True)
        assert all(abs(float(one["confidence"]) - float(other["confidence"])) < 2e-6 for one, other in pairs)


@pytest.mark.parametrize("model", ["model", "model/model.onnx"])
def test_images_are_named_without_torch(exported: Path, tmp_path: Path, model: str) -> None:
    save_digits(tmp_path / "new", 5)
    code = (
        f"sys.argv = ['epass', 'predict', {str(exported.parent / model)!r}, 'new']\nfrom epass.cli import main\nmain()"
    )
    assert "5 images of new" in python(code, without=("torch",), folder=tmp_path)
    assert len(rows(tmp_path / "predictions.csv")) == 5


def snippet(folder: Path, word: str) -> str:
    """The code of a model card in which a word is."""
    found = re.findall(r"```python\n(.*?)```", (folder / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    (code,) = [code for code in found if word in code]
    return str(code)


def test_the_code_of_the_card_needs_nothing_of_this_package(exported: Path, tmp_path: Path) -> None:
    home = tmp_path / "home"
    shutil.copytree(exported, home)
    pixels = save_digits(tmp_path / "new", 1)
    shutil.copy(tmp_path / "new" / "000.png", home / "photo.jpg")
    wanted = onnxruntime.InferenceSession(exported / ONNX).run(["logits"], {"images": pixels})[0].argmax()
    assert python(snippet(home, "onnxruntime"), without=("epass", "torch"), folder=home) == f"['{wanted}']\n"
    black = onnxruntime.InferenceSession(exported / ONNX).run(["logits"], {"images": 0 * pixels})[0].argmax()
    code = snippet(home, "torch.export")
    assert python(code, without=("epass", "onnxruntime", "PIL"), folder=home).split() == [f"['{black}']"]


@pytest.mark.parametrize("channels", [1, 3])
def test_the_code_of_the_card_reads_images_as_predict_does(channels: int, tmp_path: Path) -> None:
    model = {"export": {"formats": ["onnx"], "input": "raw"}, "channels": channels, "height": 8, "width": 8}
    code = re.search(r"```python\n(.*?)\n\n\nsession", how_to_load(model), re.DOTALL)
    assert code is not None
    made: dict[str, Any] = {}
    exec(code[1].replace("import onnxruntime\n", ""), made)
    colors = Image.fromarray(np.random.default_rng(0).integers(0, 256, (8, 12, 4), np.uint8))
    gray = colors.convert("L")
    gray.save(tmp_path / "level.png", transparency=gray.getpixel((5, 5)))
    for mode in ("RGBA", "LA", "P", "L", "RGB", "1"):
        colors.convert(mode).save(tmp_path / f"{mode}.png")
    colors.convert("CMYK").save(tmp_path / "CMYK.tif")
    for path in sorted(tmp_path.iterdir()):
        wanted = decode(path, 8)[None]
        wanted = to_gray(wanted) if channels == 1 else wanted
        assert np.abs(made["read"](path)[None].astype(int) - wanted).max() <= (2 if channels == 1 else 0), path
    for levels in (np.full((8, 8), 700, np.uint16), np.full((8, 8), 0.5, np.float32)):
        Image.fromarray(levels).save(tmp_path / "deep.tif")
        with pytest.raises(ValueError, match=r"deep.tif' has more than 8 bits per channel: use epass predict$"):
            made["read"](tmp_path / "deep.tif")


def test_a_raw_graph_takes_normalized_images(epass: Epass, exported: Path, trained: Trained, tmp_path: Path) -> None:
    save_digits(tmp_path / "new", 4)
    assert epass("export", trained.folder, "--out", "raw", "--formats", "onnx", "--raw").code == 0
    assert sorted(path.name for path in (tmp_path / "raw").iterdir()) == [
        "README.md",
        "known.npy",
        "model.json",
        "model.onnx",
    ]
    session = onnxruntime.InferenceSession(tmp_path / "raw" / ONNX)
    assert session.get_inputs()[0].type == "tensor(float)"
    for model, table in (("raw", "raw.csv"), (exported, "whole.csv")):
        assert epass("predict", model, "new", "--out", table).code == 0
    found, wanted = ([float(row["confidence"]) for row in rows(tmp_path / f"{name}.csv")] for name in ("raw", "whole"))
    assert np.allclose(found, wanted, atol=2e-6)
    shutil.copy(tmp_path / "new" / "000.png", tmp_path / "raw" / "photo.jpg")
    printed = python(snippet(tmp_path / "raw", "onnxruntime"), without=("epass", "torch"), folder=tmp_path / "raw")
    assert printed == f"['{rows(tmp_path / 'whole.csv')[0]['prediction']}']\n"


def test_vectors_are_exported_and_named_without_torch(epass: Epass, tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    labels = np.arange(40) % 2
    vectors = (random.normal(size=(40, 5)) + 3 * labels[:, None]).astype(np.float32)
    np.savez("v.npz", vectors=vectors, labels=labels)
    settings = ["--steps", "8", "--labels", "4", "--set", "plan.labeled_batch=4", "--set", "net.hidden=6"]
    assert epass("train", "v.npz", *settings, "--out", "run").code == 0
    answer = epass("export", "run", "--json")
    assert (answer.code, answer.err) == (0, "")
    assert max(json.loads(answer.out)["differences"].values()) < 1e-4
    assert epass("predict", "run", "v.npz", "--out", "torch.csv").code == 0
    code = "from epass.cli import main\nsys.argv[1:] = ['predict', 'run-exported', 'v.npz']\nmain()"
    python(code, without=("torch",), folder=tmp_path)
    found, wanted = rows(tmp_path / "predictions.csv"), rows(tmp_path / "torch.csv")
    assert [row["prediction"] for row in found] == [row["prediction"] for row in wanted]
    for word in ("onnxruntime", "torch.export"):
        printed = python(snippet(tmp_path / "run-exported", word), without=("epass",), folder=tmp_path / "run-exported")
        assert printed.strip() in ("['0']", "['1']")


def test_a_run_that_was_tested_on_nothing_is_exported_too(epass: Epass, tmp_path: Path) -> None:
    np.savez("v.npz", vectors=np.arange(80, dtype=np.float32).reshape(40, 2), labels=np.arange(40) % 2)
    settings = ["--steps", "4", "--labels", "4", "--set", "data.holdout=0", "--set", "plan.labeled_batch=4"]
    assert epass("train", "v.npz", *settings, "--out", "run").code == 0
    answer = epass("export", "run", "--formats", "torch")
    assert (answer.code, answer.err) == (0, "")
    assert "tested on nothing" in (tmp_path / "run-exported" / "README.md").read_text()


def photos() -> np.ndarray:
    """37 windows of real photos."""
    from sklearn.datasets import load_sample_images

    images = load_sample_images().images
    places = [(top, left) for top in (0, 150, 300) for left in range(0, 500, 75)]
    windows = [image[top : top + 96, left : left + 96] for image in images for top, left in places]
    return np.ascontiguousarray(np.stack(windows[:37]).transpose(0, 3, 1, 2))


@pytest.mark.slow
def test_a_published_network_is_the_same_in_onnx(tmp_path: Path) -> None:
    torch.manual_seed(0)
    net = Classifier(EfficientNetLite(0, published=True), 6).eval()
    model: dict[str, Any] = {"mean": EfficientNetLite.mean, "std": EfficientNetLite.std, "height": 96}
    deployed, pixels = Deployed(net, model, any_size=True), photos()
    program = as_program(deployed, torch.from_numpy(pixels[:2]))
    (tmp_path / ONNX).write_bytes(onnx_bytes(program, "images", {}, None))
    session = onnxruntime.InferenceSession(tmp_path / ONNX)
    for count in (1, 37):
        wanted, found = run_eagerly(deployed, pixels[:count]), session.run(None, {"images": pixels[:count]})
        assert all(np.abs(one - other).max() < 1e-4 for one, other in zip(wanted, found, strict=True))
    wide = np.ascontiguousarray(pixels[:2, :, :80])
    assert np.abs(session.run(["logits"], {"images": wide})[0] - run_eagerly(deployed, wide)[0]).max() < 1e-4
    assert scaling_difference(deployed, pixels[:6]) < 1e-2


@pytest.mark.parametrize("size", [(8, 8), (13, 9), (9, 21), (40, 33), (5, 30)])
def test_images_of_any_size_are_scaled_as_pillow_does(size: tuple[int, int]) -> None:
    from epass.data.read.decode import to_square
    from epass.engine.export import scaled

    pixels = np.random.default_rng(0).integers(0, 256, (*size[::-1], 3), dtype=np.uint8)
    found = scaled(torch.from_numpy(pixels.transpose(2, 0, 1)[None].copy()), 8)[0].numpy()
    difference = np.abs(found - to_square(Image.fromarray(pixels), 8))
    assert difference.max() <= 1
    if size[0] >= size[1]:  # of high images, Pillow may scale the height first
        assert (difference > 0).mean() < 0.05


def test_a_graph_that_differs_is_not_written(
    epass: Epass, trained: Trained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("epass.engine.export.largest_difference", lambda *_: 0.2)
    before = sorted(path.name for path in tmp_path.iterdir())
    answer = epass("export", trained.folder, "--out", "model", "--formats", "torch")
    assert (answer.code, answer.out) == (1, "")
    assert "torch.export differs from PyTorch by 2.0e-01" in answer.err
    assert sorted(path.name for path in tmp_path.iterdir()) == before


def test_a_full_disk_is_told_of_the_folder_that_is_written(
    epass: Epass, trained: Trained, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(source: Path, target: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", str(source), None, str(target))

    monkeypatch.setattr("epass.app.export.shutil.copyfile", full)
    answer = epass("export", trained.folder, "--out", "model", "--formats", "safetensors")
    assert answer.code == 1
    assert re.fullmatch(r"Error: No space left on device: '\.model\..*/model\.safetensors'\.\n", answer.err)


def test_weights_alone_need_no_images(trained: Trained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("epass.app.export.check_images", None)
    result = export(trained.folder, out=tmp_path / "model", formats="safetensors").result()
    assert sorted(result.files) == ["README.md", "known.npy", "model.json", "model.safetensors"]
    assert load_model(tmp_path / "model")[1]["classes"] == [str(number) for number in range(10)]


def test_a_run_whose_data_are_gone_is_checked_with_others(epass: Epass, trained: Trained, tmp_path: Path) -> None:
    shutil.copytree(trained.folder, tmp_path / "run", ignore=shutil.ignore_patterns("checkpoints"))
    recipe = tmp_path / "run" / "recipe.toml"
    recipe.write_text(recipe.read_text().replace('name = "digits"', 'name = "/gone/photos"'))
    answer = epass("export", "run", "--formats", "torch")
    assert (answer.code, answer.out) == (2, "")
    assert "name some with --images" in answer.err
    save_digits(tmp_path / "new", 1)
    assert epass("export", "run", "--formats", "torch", "--images", "new").code == 0
    facts = json.loads((tmp_path / "run-exported" / "model.json").read_text())
    assert facts["provenance"]["data"]["name"] == "photos"  # nobody is told where they were


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("export", "RUN", "--out", "there"), "'there' is there already: choose another folder with --out."),
        (("export", "RUN", "--out", "none/model"), "name one in a folder that exists"),
        (("export", "RUN", "--out", "/proc/model"), "'/proc/model' cannot be written"),
        (("export", "RUN", "--formats", "onx"), "did you mean 'onnx'?"),
        (("export", "RUN", "--formats", ","), "choose some of safetensors, torch, onnx"),
        (("export", "RUN", "--raw", "--any-size"), "leave out --any-size"),
        (("export", "RUN", "--images", "nowhere"), "There is no file or folder 'nowhere'"),
        (("export", "there"), "'there' is not a run folder"),
        (("predict", "none.onnx", "there"), "There is no file 'none.onnx'"),
        (("predict", "text.onnx", "there"), "'text.onnx' is no ONNX file, or is damaged"),
        (("predict", "note.txt", "there"), "is no model"),
        (("predict", "newer", "there"), "was written by a newer version of epass (format 2, and this one knows 1)"),
        (("predict", "ONNX", "there", "--device", "mps"), "cannot compute on 'mps'"),
        (("predict", "empty-export", "there"), "exported without weights"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else None,
)
def test_a_mistake_is_one_sentence(
    epass: Epass, trained: Trained, exported: Path, tmp_path: Path, arguments: tuple[str, ...], words: str
) -> None:
    save_digits(tmp_path / "there", 1)
    (tmp_path / "text.onnx").write_text("no graph")
    (tmp_path / "note.txt").write_text("no model")
    for name, more in (("newer", {"format": 2}), ("empty-export", {})):
        (tmp_path / name).mkdir()
        facts = json.loads((exported / "model.json").read_text()) | more
        (tmp_path / name / "model.json").write_text(json.dumps(facts))
    names = {"RUN": trained.folder, "ONNX": exported / ONNX}
    before = sorted(tmp_path.rglob("*"))

    answer = epass(*(str(names.get(word, word)) for word in arguments))

    assert (answer.code, answer.out) == (2, "")
    assert answer.err.count("\n") == 1
    assert words in answer.err
    assert sorted(tmp_path.rglob("*")) == before


def test_a_run_of_a_newer_version_is_refused(epass: Epass, trained: Trained, tmp_path: Path) -> None:
    shutil.copytree(trained.folder, tmp_path / "run", ignore=shutil.ignore_patterns("checkpoints"))
    facts = json.loads((tmp_path / "run" / "model.json").read_text())
    (tmp_path / "run" / "model.json").write_text(json.dumps({"format": 3, "other": facts}))
    answer = epass("predict", "run", "run")
    assert answer.code == 2
    assert "newer version of epass (format 3" in answer.err


def test_what_others_wrote_into_an_onnx_file_is_checked(epass: Epass, exported: Path, tmp_path: Path) -> None:
    import onnx

    save_digits(tmp_path / "new", 1)
    model = onnx.load(exported / ONNX)
    stored = {entry.key: entry.value for entry in model.metadata_props}
    facts = json.loads(stored["epass"])
    cases = {
        "does not say which classes it knows": {},
        "is damaged: it lacks 'mean'": stored | {"epass": json.dumps({"classes": ["a"], "net": {}})},
        "does not compute what it says": stored | {"epass": json.dumps(facts | {"classes": ["a"]})},
        "they are no base64": stored | {"epass.known": "?"},
        "The features in": stored | {"epass.known": "AAAA"},
        "its 'export' is not what": stored | {"epass": json.dumps(facts | {"export": 7})},
    }
    for words, metadata in cases.items():
        del model.metadata_props[:]
        for key, value in metadata.items():
            model.metadata_props.add(key=key, value=value)
        onnx.save(model, tmp_path / "changed.onnx")
        answer = epass("predict", "changed.onnx", "new")
        assert (answer.code, answer.err.count("\n")) == (2, 1)
        assert words in answer.err


def test_a_damaged_byte_among_the_facts_of_an_onnx_file_is_one_sentence(
    epass: Epass, exported: Path, tmp_path: Path
) -> None:
    save_digits(tmp_path / "new", 1)
    data = bytearray((exported / ONNX).read_bytes())
    data[data.index(b"classes")] = 0xFF  # which is no text
    (tmp_path / "bad.onnx").write_bytes(data)
    answer = epass("predict", "bad.onnx", "new")
    assert (answer.code, answer.out) == (2, "")
    assert answer.err == "Error: 'bad.onnx' is no ONNX file, or is damaged: copy or export it again.\n"


def test_onnx_needs_its_extra(epass: Epass, trained: Trained, exported: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("epass.app.export.find_spec", lambda name: None if name == "onnxscript" else name)
    answer = epass("export", trained.folder, "--out", "model")
    assert (answer.code, answer.err) == (
        2,
        "Error: Writing ONNX needs onnxscript: pip install epass[onnx], or say --formats safetensors,torch.\n",
    )
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    answer = epass("predict", exported / ONNX, exported)
    assert (answer.code, answer.err.strip().partition("needs")[2]) == (2, " ONNX Runtime: pip install epass[onnx].")
