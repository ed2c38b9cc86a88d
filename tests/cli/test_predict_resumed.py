"""A prediction that was stopped goes on, and takes nothing from another one."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from calling import Answer, Epass, Trained
from safetensors.numpy import load_file, save_file
from test_predict_command import save_digits

from epass.app import parts
from epass.app.answering import Asked, Sheet, collect
from epass.app.answers import Judge
from epass.app.parts import Job, Parts, describe_job, digest_model
from epass.data.read import found
from epass.engine.answer_torch import TorchAnswerer
from epass.errors import InputError, RunError
from epass.evaluation.calibrated import Calibration
from epass.extensions import trust
from epass.machine import distributed

IMAGES, ROWS, FOLDER = 22, 4, Path(".predictions.csv.parts")
FLAGS = ("--device", "cpu", "--probabilities", "all.npy")


@pytest.fixture(autouse=True)
def _small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "SECONDS", -1.0)
    monkeypatch.setattr(found, "ROWS", ROWS)


class Model:
    """How many images a model was asked about since somebody looked; it may be interrupted."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.images, self.chunks_left = 0, -1
        answer = TorchAnswerer.answer

        def watched(answerer: TorchAnswerer, images: Any) -> Any:
            if not self.chunks_left:
                raise KeyboardInterrupt
            self.chunks_left -= 1
            self.images += len(images)
            return answer(answerer, images)

        monkeypatch.setattr(TorchAnswerer, "answer", watched)

    def look(self) -> int:
        images, self.images = self.images, 0
        return images


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> Model:
    return Model(monkeypatch)


@pytest.fixture
def run(trained: Trained, tmp_path: Path) -> Path:
    """A run of one's own, and images of which two cannot be read."""
    shutil.copytree(trained.folder, tmp_path / "run", ignore=shutil.ignore_patterns("checkpoints"))
    save_digits(tmp_path / "new", IMAGES)
    for name in ("003", "020"):
        (tmp_path / "new" / "0" / f"{name}.png").write_text("nothing")
    return Path("run")


def interrupted(epass: Epass, model: Model, run: Path, chunks: int) -> Answer:
    model.chunks_left = chunks
    answer = epass("predict", run, "new", *FLAGS)
    model.chunks_left = -1
    assert not Path("predictions.csv").exists()
    assert answer.code == 130
    return answer


def written() -> tuple[bytes, bytes]:
    """Both tables, which the next prediction will have to write again."""
    tables = [Path(name) for name in ("predictions.csv", "all.npy")]
    content = tuple(table.read_bytes() for table in tables)
    for table in tables:
        table.unlink()
    assert not FOLDER.exists()
    return content  # type: ignore[return-value]


def undisturbed(epass: Epass, model: Model, run: Path) -> tuple[bytes, bytes]:
    assert epass("predict", run, "new", *FLAGS).code == 1
    model.look()
    return written()


def test_the_same_command_goes_on_and_ends_in_the_same_bytes(epass: Epass, run: Path, model: Model) -> None:
    wanted = undisturbed(epass, model, run)

    stopped = interrupted(epass, model, run, chunks=2)
    assert stopped.err == "Stopped: the answers to 8 of 22 images are kept, and the same command goes on.\n"
    assert model.look() == 7
    stopped = interrupted(epass, model, run, chunks=1)
    assert stopped.out == "8 of 22 images were answered before: going on.\n"
    assert stopped.err == "Stopped: the answers to 12 of 22 images are kept, and the same command goes on.\n"
    assert model.look() == 4
    answer = epass("predict", run, "new", *FLAGS)

    assert (answer.code, answer.err) == (1, "")
    assert answer.out.startswith("12 of 22 images were answered before: going on.\n20 images of new, by run\n")
    assert model.look() == 9
    assert written() == wanted


def test_what_is_made_of_the_answers_may_change(epass: Epass, run: Path, model: Model) -> None:
    interrupted(epass, model, run, chunks=3)
    assert epass("predict", run, "new", "--device", "cpu", "--top", "3").code == 1
    assert model.look() == 20
    resumed = Path("predictions.csv").read_bytes()
    assert epass("predict", run, "new", "--device", "cpu", "--top", "3").code == 1
    assert model.look() == 20
    assert Path("predictions.csv").read_bytes() == resumed


def change_an_image(run: Path) -> None:
    shutil.copyfile("new/0/005.png", "new/0/000.png")


def set_back_an_image(run: Path) -> None:
    """With other pixels, the same number of bytes and the old time: as `cp -p` of another one may leave it."""
    from os import utime

    image = Path("new/0/000.png")
    facts, content = image.stat(), Path("new/0/001.png").read_bytes()
    image.write_bytes(content[: facts.st_size].ljust(facts.st_size, b"\0"))
    utime(image, ns=(facts.st_atime_ns, facts.st_mtime_ns))


def add_an_image(run: Path) -> None:
    shutil.copyfile("new/0/005.png", "new/0/0000.png")


def change_the_weights(run: Path) -> None:
    weights = load_file(run / "model.safetensors")
    name = next(name for name, values in weights.items() if values.dtype == np.float32 and values.ndim == 2)
    save_file({**weights, name: weights[name] * 1.5}, run / "model.safetensors")


def change_what_it_was_tested_on(run: Path) -> None:
    tested = load_file(run / "embeddings.safetensors")
    save_file({**tested, "features": tested["features"][::-1].copy()}, run / "embeddings.safetensors")


@pytest.mark.parametrize(
    "change",
    [change_an_image, set_back_an_image, add_an_image, change_the_weights, change_what_it_was_tested_on],
    ids=lambda change: change.__name__,
)
def test_no_answer_of_another_prediction_is_used(epass: Epass, run: Path, model: Model, change: Any) -> None:
    interrupted(epass, model, run, chunks=4)
    model.look()

    change(run)
    answer = epass("predict", run, "new", *FLAGS)

    assert answer.err == (
        "Warning: What an earlier prediction left in '.predictions.csv.parts' is not used: the images, the model or "
        "the settings are other ones now.\n"
    )
    everything = model.look()
    found = written()
    assert found == undisturbed(epass, model, run)
    assert epass("predict", run, "new", *FLAGS).code == 1
    assert everything == model.look()


def test_other_libraries_round_otherwise(
    epass: Epass, run: Path, model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupted(epass, model, run, chunks=4)
    model.look()
    monkeypatch.setattr(parts, "version", lambda library: "another")
    assert "is not used" in epass("predict", run, "new", *FLAGS).err
    assert model.look() == 20


def test_answers_depend_on_all_of_this(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("one", "two"):
        (tmp_path / name).write_bytes(bytes(len(name)))
    names, files = ["a", "b"], [tmp_path / "one", tmp_path / "two"]
    jobs = [
        describe_job(b"model", "torch, cpu", names, files),
        describe_job(b"another", "torch, cpu", names, files),
        describe_job(b"model", "torch, cuda", names, files),
        describe_job(b"model", "torch, cpu", ["a", "c"], files),
        describe_job(b"model", "torch, cpu", ["b", "a"], files[::-1]),
        describe_job(b"model", "torch, cpu", names, [*files[:1], tmp_path / "gone"]),
    ]
    assert len({job.content for job in jobs}) == len({job.view for job in jobs}) == len(jobs)
    assert describe_job(b"model", "torch, cpu", names, files) == jobs[0]
    monkeypatch.setattr("epass.data.read.decode.DECODER", 0)  # other pixels of the same files
    assert describe_job(b"model", "torch, cpu", names, files).content != jobs[0].content


def test_code_of_ones_own_is_part_of_the_model(tmp_path: Path) -> None:
    code = tmp_path / "mine.py"
    code.write_text("gain = 1")
    trust(f"{code}:Net")
    before = digest_model(tmp_path)
    code.write_text("gain = 2")
    assert digest_model(tmp_path) != before


def test_a_damaged_part_is_answered_again(epass: Epass, run: Path, model: Model) -> None:
    wanted = undisturbed(epass, model, run)
    interrupted(epass, model, run, chunks=3)
    model.look()
    first, second, _ = sorted(FOLDER.iterdir())
    first.write_bytes(first.read_bytes()[:-30])
    content = bytearray(second.read_bytes())
    content[len(content) // 2] ^= 1
    second.write_bytes(content)
    (FOLDER / f".{second.name}.77.part").write_bytes(b"half of it")

    answer = epass("predict", run, "new", *FLAGS)

    assert answer.err == "".join(
        f"Warning: '{path}' is damaged: its images are answered again.\n" for path in (first, second)
    )
    assert model.look() == 20 - 4
    assert written() == wanted


@pytest.mark.filterwarnings("default")
def test_a_disk_that_takes_no_parts_is_worth_a_sentence(
    epass: Epass, run: Path, model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(parts, "write_atomically", full)
    answer = epass("predict", run, "new", *FLAGS)
    assert (answer.code, answer.err) == (
        1,
        "Warning: Answers cannot be kept in '.predictions.csv.parts' (No space left on device): a prediction that is "
        "stopped will start over.\n",
    )


def test_what_takes_a_moment_is_not_kept(
    epass: Epass, run: Path, model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parts, "SECONDS", 600.0)
    answer = interrupted(epass, model, run, chunks=3)
    assert answer.err == "Stopped: the same command starts over.\n"
    assert not FOLDER.exists()


def test_what_others_put_beside_the_parts_stays(epass: Epass, run: Path, model: Model) -> None:
    interrupted(epass, model, run, chunks=3)
    (FOLDER / "mine.txt").write_text("mine")
    assert epass("predict", run, "new", *FLAGS).code == 1
    assert [path.name for path in FOLDER.iterdir()] == ["mine.txt"]


class Second:
    """What the second of two processes hears from the first one."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, content: str) -> None:
        heard = iter([content, "f" * 32])
        monkeypatch.setattr(distributed, "rank", lambda: 1)
        monkeypatch.setattr(distributed, "bytes_of_first_rank", lambda data: next(heard).encode())
        monkeypatch.setattr(distributed, "on_first_rank", lambda work: None)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("b" * 32, "Process 1 finds other images or another model than the first one does: give all machines the "),
        ("a" * 32, "Process 1 does not see what the first one writes to '.t.csv.parts': choose a table in a folder "),
    ],
)
def test_processes_that_do_not_fit_together(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, content: str, sentence: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(parts, "PATIENCE", 0.1)
    Second(monkeypatch, content)
    with pytest.raises(InputError) as problem:
        Parts(Path("t.csv"), Job("a" * 32, "c" * 32), 10, needed=True).meet()
    assert str(problem.value).startswith(sentence)


def test_a_part_that_never_arrives_is_missed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(parts, "PATIENCE", 0.1)
    judge = Judge(["a", "b"], Calibration(), None)
    names = [str(number) for number in range(6)]
    asked = Asked("image", "file", names, [tmp_path] * 6, ROWS, lambda numbers, _: [])
    with pytest.raises(RunError) as problem:
        collect(asked, Sheet(judge, names), Parts(tmp_path / "t.csv", Job("a" * 32, "c" * 32), 2, needed=True))
    assert str(problem.value).startswith(f"The answers to about 8 images did not arrive in '{tmp_path}/.t.csv.parts'")
