"""Who decodes the images of a prediction: one decoder for all answers of a table, whoever goes on with it."""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from calling import Answer, Epass, Trained
from PIL import Image
from test_predict_resumed import Model

from device_decoding import stand_in
from epass.app import parts
from epass.app.answering import Asked, check_decoder
from epass.data import open_dataset
from epass.data.read import found
from epass.data.stream import decoder, disk
from epass.data.stream.device_jpeg import DeviceDecoder, find_decoder
from epass.errors import InputError

IMAGES, ROWS, TABLE = 22, 4, Path("predictions.csv")
LINE = ("predict", "run", "new", "--device", "cpu")
BY_GPU = "JPEG files are decoded on the GPU, to pixels that differ a little from those of the CPU"
AS_BEFORE = "Images are decoded by the CPU, as those were that are answered already.\n"
UNUSED = "is not used: the images, the model or the settings are other ones now."


def save_photos(folder: Path, count: int) -> None:
    """Digits as JPEG files; a PNG file, one that is cut off and one that is none are among them."""
    test = open_dataset("digits").test
    assert test is not None
    folder.mkdir()
    for number, pixels in enumerate(test.pixels[:count, 0].numpy()):
        Image.fromarray(pixels).save(folder / f"{number:03d}.{'png' if number == 5 else 'jpg'}", quality=100)
    cut_off = folder / "020.jpg"
    cut_off.write_bytes(cut_off.read_bytes()[:200])
    (folder / "003.jpg").write_text("nothing")


@pytest.fixture(autouse=True)
def _photos(trained: Trained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(parts, "SECONDS", -1.0)
    monkeypatch.setattr(found, "ROWS", ROWS)
    shutil.copytree(trained.folder, tmp_path / "run", ignore=shutil.ignore_patterns("checkpoints"))
    save_photos(tmp_path / "new", IMAGES)


class Gpu:
    """A switch: as if the CPU were a GPU, whose pixels are others."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.monkeypatch = monkeypatch
        monkeypatch.setattr(decoder, "find_decoder", lambda _: "switched off")

    def on(self) -> None:
        self.monkeypatch.setattr(decoder, "find_decoder", stand_in)
        self.monkeypatch.setattr(decoder, "DECODES", "cpu")

    def off(self) -> None:
        self.monkeypatch.setattr(decoder, "find_decoder", lambda _: "switched off")


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> Model:
    return Model(monkeypatch)


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Gpu:
    return Gpu(monkeypatch)


def written(answer: Answer) -> bytes:
    assert answer.code == 1, answer.err
    content = TABLE.read_bytes()
    TABLE.unlink()
    return content


@pytest.fixture
def expected(epass: Epass, gpu: Gpu) -> dict[str, bytes]:
    """The table by either decoder."""
    by_cpu = written(epass(*LINE))
    gpu.on()
    by_device = written(epass(*LINE, "--decoder", "device"))
    gpu.off()
    rows = [list(csv.DictReader(table.decode().splitlines())) for table in (by_cpu, by_device)]
    for one, other in zip(*rows, strict=True):
        assert (one["file"], one["error"]) == (other["file"], other["error"])
        alike = one["error"] or one["file"].endswith(".png")  # which no device decodes
        assert (one == other) == bool(alike)
    assert [row["file"] for row in rows[0] if row["error"]] == ["003.jpg", "020.jpg"]
    return {"cpu": by_cpu, "device": by_device}


def test_a_gpu_decodes_where_there_is_one(epass: Epass, gpu: Gpu, expected: dict[str, bytes]) -> None:
    gpu.on()
    answer = epass(*LINE)
    assert answer.out.startswith(BY_GPU)
    assert written(answer) == expected["device"]
    answer = epass(*LINE, "--json")
    assert json.loads(answer.out)["decoder"] == "device"
    answer = epass(*LINE, "--json", "--decoder", "cpu")
    assert json.loads(answer.out)["decoder"] == "cpu"
    assert written(answer) == expected["cpu"]
    gpu.off()
    answer = epass(*LINE)
    assert answer.out.startswith("Images are decoded by the CPU, since the GPU cannot (switched off).\n")
    assert written(answer) == expected["cpu"]


def test_processes_read_as_threads_do(
    epass: Epass, gpu: Gpu, expected: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    gpu.on()
    monkeypatch.setattr(disk, "THREADS_DO", 0)
    assert written(epass(*LINE)) == expected["device"]


def test_few_images_are_the_cpus(epass: Epass, gpu: Gpu, expected: dict[str, bytes]) -> None:
    gpu.on()
    found.ROWS = IMAGES
    answer = epass(*LINE)
    assert BY_GPU not in answer.out
    assert written(answer) == expected["cpu"]
    assert written(epass(*LINE, "--decoder", "device")) == expected["device"]


def test_a_run_that_was_to_see_the_same_pixels_everywhere_does(
    epass: Epass, gpu: Gpu, expected: dict[str, bytes]
) -> None:
    gpu.on()
    recipe = Path("run", "recipe.toml")
    recipe.write_text(recipe.read_text().replace("[data]\n", '[data]\ndecoder = "cpu"\n'))
    answer = epass(*LINE)
    assert BY_GPU not in answer.out
    assert written(answer) == expected["cpu"]
    assert written(epass(*LINE, "--decoder", "device")) == expected["device"]


def interrupted(epass: Epass, model: Model, *flags: str) -> None:
    model.chunks_left = 2
    assert epass(*LINE, *flags).code == 130
    model.chunks_left = -1
    model.look()


@pytest.mark.parametrize("began", ["cpu", "device"])
def test_a_prediction_goes_on_with_the_decoder_that_it_began_with(
    epass: Epass,
    gpu: Gpu,
    model: Model,
    expected: dict[str, bytes],
    began: str,
) -> None:
    gpu.on()
    interrupted(epass, model, "--decoder", began)
    answer = epass(*LINE)
    assert answer.out.startswith(AS_BEFORE if began == "cpu" else BY_GPU)
    assert "8 of 22 images were answered before: going on." in answer.out
    assert model.look() == IMAGES - 2 - 7
    assert written(answer) == expected[began]


@pytest.mark.parametrize("now", ["cpu", "device"])
def test_no_table_mixes_both(
    epass: Epass,
    gpu: Gpu,
    model: Model,
    expected: dict[str, bytes],
    now: str,
) -> None:
    gpu.on()
    interrupted(epass, model, "--decoder", "device" if now == "cpu" else "cpu")
    answer = epass(*LINE, "--decoder", now)
    assert UNUSED in answer.err
    assert model.look() == IMAGES - 2
    assert written(answer) == expected[now]


def test_without_the_gpu_a_prediction_starts_over(
    epass: Epass,
    gpu: Gpu,
    model: Model,
    expected: dict[str, bytes],
) -> None:
    gpu.on()
    interrupted(epass, model)
    gpu.off()
    answer = epass(*LINE)
    assert UNUSED in answer.err
    assert written(answer) == expected["cpu"]


def test_another_torchvision_decodes_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    digests = {parts.by_device("a" * 32), parts.by_device("b" * 32)}
    monkeypatch.setattr(parts, "version", lambda library: f"another {library}")
    assert len({*digests, parts.by_device("a" * 32)}) == 3


def test_what_no_device_decodes_is_refused(epass: Epass, exported: Path) -> None:
    shutil.make_archive("packed", "zip", "new")
    for line, sentence in (
        (("run", "packed.zip"), "'packed.zip' is an archive, which the CPU decodes: unpack it, or leave out --dec"),
        ((exported / "model.onnx", "new"), "ONNX Runtime takes images that the CPU has decoded: leave out --decoder."),
        (("run", "-"), "'-' is answered line by line, and the CPU decodes single images: leave out --decoder."),
        (("run", "new"), "JPEG files cannot be decoded on this device (it is no CUDA device but 'cpu'): use a machine"),
    ):
        answer = epass("predict", *line, "--device", "cpu", "--decoder", "device")
        assert answer.code == 2
        assert answer.err.startswith(f"Error: {sentence}")
    answer = epass(*LINE, "--decoder", "nobody")
    assert (answer.code, answer.err) == (2, "Error: Unknown decoder 'nobody': choose one of: auto, cpu, device.\n")
    assert not TABLE.exists()
    vectors = Asked("vector", "row", [], [], 1, lambda *_: [])
    with pytest.raises(InputError, match=r"'a.npy' holds vectors, which nobody decodes: leave out --decoder\."):
        check_decoder("device", "a.npy", vectors, SimpleNamespace(place=torch.device("cpu")))  # type: ignore[arg-type]


@pytest.mark.gpu
def test_a_gpu_answers_what_it_decoded(epass: Epass, tmp_path: Path) -> None:
    device = find_decoder(torch.device("cuda"))
    if not isinstance(device, DeviceDecoder):
        pytest.skip(device)
    answer = epass("predict", "run", "new", "--device", "cuda", "--json")
    assert (answer.code, json.loads(answer.out)["decoder"]) == (1, "device")
    tables = {"device": list(csv.DictReader(TABLE.open()))}
    answer = epass("predict", "run", "new", "--device", "cuda", "--decoder", "cpu")
    assert answer.code == 1
    tables["cpu"] = list(csv.DictReader(TABLE.open()))
    for one, other in zip(tables["device"], tables["cpu"], strict=True):
        assert one["error"] == other["error"]
        if not one["error"]:
            assert abs(float(one["confidence"]) - float(other["confidence"])) < 0.1
