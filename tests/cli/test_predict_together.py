"""Several processes answer a share of the images each; the first writes the table that one alone would write."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from calling import Epass, Trained
from PIL import Image
from predicting import ROWS
from test_predict_command import save_digits

from epass.data.read import found
from epass.machine import launch
from epass.machine.launch import LOST
from training_processes import PATIENCE, wait_until

IMAGES = 22  # in six chunks
LINE = ("predict", "RUN", "new", "--device", "cpu", "--probabilities", "all.npy", "--top", "2", "--out")
REASON = "cannot be read (not an image): replace or remove it"

Begin = Callable[..., "subprocess.Popen[str]"]
pytestmark = [pytest.mark.distributed, pytest.mark.slow]


@pytest.fixture(autouse=True)
def photos(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Images of which three cannot be read, one of them not even looked for."""
    monkeypatch.chdir(tmp_path)
    save_digits(tmp_path / "new", IMAGES)
    for name in ("003", "020"):
        (tmp_path / "new" / "0" / f"{name}.png").write_text("nothing")
    (tmp_path / "new" / "1.png").symlink_to("/nowhere.png")


@pytest.fixture
def begin(trained: Trained) -> Iterator[Begin]:
    """`begin("a.csv")` is a process that predicts alone, `begin("a.csv", 1, 3, port)` the second of three."""
    started = []

    def start(
        out: str | Path,
        rank: int = 0,
        world: int = 1,
        port: str = "",
        line: tuple[str, ...] = LINE,
        home: Path | None = None,
        **more: str,
    ) -> subprocess.Popen[str]:
        several = {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(world), "LOCAL_WORLD_SIZE": str(world)}
        several |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        words = [str(trained.folder) if word == "RUN" else word for word in line]
        process = subprocess.Popen(
            [sys.executable, Path(__file__).with_name("predicting.py"), *words, out],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=home,
            env={**os.environ, "OMP_NUM_THREADS": "1", **(several if world > 1 else {}), **more},
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def free_port() -> str:
    with socket.socket() as place:
        place.bind(("127.0.0.1", 0))
        return str(place.getsockname()[1])


def end(*processes: subprocess.Popen[str]) -> list[tuple[int, str, str]]:
    said = [process.communicate(timeout=PATIENCE) for process in processes]
    return [(process.returncode, *texts) for process, texts in zip(processes, said, strict=True)]


def asked(home: Path = Path()) -> list[int]:
    """How many images the models were asked about in each chunk since somebody looked."""
    log = home / "asked.txt"
    sizes = [int(line) for line in log.read_text().splitlines()] if log.exists() else []
    log.unlink(missing_ok=True)
    return sizes


def parts() -> list[Path]:
    return sorted(Path(".table.csv.parts").glob("*-[1-9].npz"))


def content() -> tuple[bytes, bytes]:
    """Both tables, which are there no longer."""
    assert not Path(".table.csv.parts").exists()
    found = Path("table.csv").read_bytes(), Path("all.npy").read_bytes()
    Path("table.csv").unlink()
    Path("all.npy").unlink()
    return found


@pytest.fixture
def alone(epass: Epass, trained: Trained, monkeypatch: pytest.MonkeyPatch) -> tuple[str, tuple[bytes, bytes]]:
    """What one process says and writes."""
    monkeypatch.setattr(found, "ROWS", ROWS)
    answer = epass(*(trained.folder if word == "RUN" else word for word in LINE), "table.csv")
    assert (answer.code, answer.err) == (1, "")
    assert f"3 images without an answer:\n  0/003.png {REASON}\n" in answer.out
    return answer.out, content()


def test_any_number_of_processes_writes_the_same_bytes(
    begin: Begin, tmp_path: Path, alone: tuple[str, tuple[bytes, bytes]]
) -> None:
    summary, wanted = alone
    # The third has copies of its own, as a second machine may have: with other times of change.
    elsewhere = tmp_path / "elsewhere"
    shutil.copytree(tmp_path / "new", elsewhere / "new", symlinks=True)
    table, shares = tmp_path / "table.csv", tmp_path / "all.npy"
    line = tuple(str(shares) if word == "all.npy" else word for word in LINE)
    said = summary.replace("table.csv", str(table)).replace("all.npy", str(shares))
    for homes in ([tmp_path] * 2, [tmp_path, tmp_path, elsewhere]):
        world, port = len(homes), free_port()
        first, *others = end(*(begin(table, rank, world, port, line, home) for rank, home in enumerate(homes)))
        assert first == (1, said, "")
        assert others == [(0, "", "")] * (world - 1), "one process speaks"
        assert content() == wanted
        assert [sum(asked(home)) for home in homes[::2]] == ([20] if world == 2 else [15, 5]), "each is answered once"


@pytest.fixture
def files() -> None:
    """The images as JPEG files, which a device decodes."""
    for path in Path("new").rglob("*.png"):
        if path.stem not in ("003", "020", "1"):
            Image.open(path).save(path.with_suffix(".jpg"), quality=100)
            path.unlink()


def answered(begin: Begin, *gpus: str, out: str = "table.csv") -> tuple[str, bytes]:
    """What is said first, and the table, by as many processes."""
    port = free_port()
    first, *others = end(*(begin(out, rank, len(gpus), port, GPU=gpu) for rank, gpu in enumerate(gpus)))
    assert (first[0], first[2]) == (1, "")
    assert others == [(0, "", "")] * (len(gpus) - 1), "one process speaks"
    return first[1].partition("\n")[0], content()[0]


@pytest.mark.usefixtures("files")
def test_all_processes_decode_in_one_way(begin: Begin) -> None:
    _, by_cpu = answered(begin, "broken")
    said, by_device = answered(begin, "works")
    assert said.startswith("JPEG files are decoded on the GPU, ")
    assert by_device != by_cpu
    assert answered(begin, "works", "works") == (said, by_device)
    for gpus in (("works", "broken"), ("broken", "works")):
        why = "another process cannot" if gpus[0] == "works" else "it is broken"
        told = f"Images are decoded by the CPU, since the GPU cannot ({why})."
        assert answered(begin, *gpus) == (told, by_cpu)

    killed = begin("table.csv", HANGS_AFTER="2", GPU="broken")
    wait_until(killed, lambda: len(parts()) == 2)
    killed.kill()
    end(killed)
    asked()
    told = "Images are decoded by the CPU, as those were that are answered already."
    assert answered(begin, "works", "works") == (told, by_cpu)
    assert sum(asked()) == 20 - 7


@pytest.mark.usefixtures("files")
def test_other_images_are_found_before_a_decoder_is_looked_for(begin: Begin, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    save_digits(tmp_path / "elsewhere" / "new", 2)  # of which a device would decode none
    port, homes = free_port(), (tmp_path, tmp_path / "elsewhere")
    out = tmp_path / "table.csv"
    first, second = (begin(out, rank, 2, port, home=home, GPU="works") for rank, home in enumerate(homes))
    ended = end(first, second)
    assert ended[0] == (LOST, "", "")
    assert ended[1][2].startswith("Error: Process 1 finds other images or another model than the first one does")


def test_after_kill_9_only_the_rest_is_answered(begin: Begin, alone: tuple[str, tuple[bytes, bytes]]) -> None:
    killed = begin("table.csv", HANGS_AFTER="2")
    wait_until(killed, lambda: len(parts()) == 2)
    killed.kill()
    assert end(killed)[0][0] == -signal.SIGKILL
    assert not Path("table.csv").exists()

    # Two processes go on; the second is killed while it answers, and the first ends because of that.
    port = free_port()
    first, second = begin("table.csv", 0, 2, port), begin("table.csv", 1, 2, port, HANGS_AFTER="1")
    wait_until(second, lambda: len(parts()) == 5)  # the first one has answered all of its share
    second.kill()
    (code, said, error), _ = end(first, second)
    assert (code, said, error) == (LOST, f"8 of {IMAGES + 1} images were answered before: going on.\n", "")
    asked()

    ((code, said, error),) = end(begin("table.csv"))
    assert (code, error) == (1, "")
    assert said == f"20 of {IMAGES + 1} images were answered before: going on.\n{alone[0]}"
    assert asked() == [1], "the rest, of which one cannot be read"
    assert content() == alone[1]


def test_all_stop_when_one_is_asked_to(begin: Begin) -> None:
    port = free_port()
    first, second = (begin("table.csv", rank, 2, port, SLOW="1") for rank in range(2))
    wait_until(first, lambda: len(parts()) >= 2)
    second.send_signal(signal.SIGTERM)
    (code, _, error), other = end(first, second)
    assert (code, other[0], other[2]) == (143, 143, "")
    assert error.startswith("Stopped: the answers to ")
    assert error.endswith(f" of {IMAGES + 1} images are kept, and the same command goes on.\n")
    assert not Path("table.csv").exists()


def test_the_one_that_fails_says_why(begin: Begin) -> None:
    port = free_port()
    first, second = begin("table.csv", 0, 2, port), begin("table.csv", 1, 2, port, FAILS_AFTER="1")
    assert end(first, second) == [(LOST, "", ""), (2, "", "Error: It fails.\n")]
    assert not Path("table.csv").exists()


def test_a_mistake_is_said_once(trained: Trained) -> None:
    command = (sys.executable, "-m", "epass", "predict", trained.folder, "gone", "--device", "cpu", "--devices", "2")
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("Error: There is no file or folder 'gone'")
    assert done.stderr.count("\n") == 1


def test_torchrun_starts_it_too(trained: Trained, epass: Epass) -> None:
    flags = ("predict", trained.folder, "new", "--device", "cpu", "--out")
    answer = epass(*flags, "one.csv")
    torchrun = (sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", free_port())
    done = subprocess.run(
        [*torchrun, "-m", "epass", *flags, "two.csv"], capture_output=True, text=True, timeout=PATIENCE
    )
    assert done.returncode == answer.code == 1
    assert done.stdout == answer.out.replace("one.csv", "two.csv")
    assert Path("two.csv").read_bytes() == Path("one.csv").read_bytes()


def test_a_lost_process_is_named(epass: Epass, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "start_processes", lambda count, device: [LOST, -9])
    for line in (("predict", "run", "new"), ("embed", "new")):
        answer = epass(*line, "--devices", "2")
        assert answer == (137, "", "Error: process 1 was ended by SIGKILL; the same command goes on.\n")


def test_lines_are_answered_by_one_process(epass: Epass, trained: Trained, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("epass.app.predict.is_one_of_several", lambda: True)
    answer = epass("predict", trained.folder, "-")
    assert answer == (2, "", "Error: '-' is answered line by line, by one process: leave out --devices.\n")
