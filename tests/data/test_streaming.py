from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from epass.augment import make_policies
from epass.data import Feed, Images, ImageSource, open_dataset, streaming
from epass.data.streaming import FileImages, Lookahead
from epass.method import Batch, Views

Refused = Callable[..., AbstractContextManager[None]]

COUNT, SIZE = 24, 8
BATCHES = {"labeled_batch": 4, "unlabeled_batch": 6}


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("photos")
    random = np.random.default_rng(0)
    for number in range(COUNT):
        path = home / "ab"[number % 2] / f"{number:02}.png"
        path.parent.mkdir(exist_ok=True)
        Image.fromarray(random.integers(0, 256, (9 + number, 12, 3), dtype=np.uint8)).save(path)
    return home


@pytest.fixture
def memory(photos: Path) -> Images:
    return open_dataset(str(photos), image_size=SIZE).train


def open_files(photos: Path, memory: Images, workers: int | None = None) -> FileImages:
    return FileImages(sorted(photos.rglob("*.png")), memory.labels, SIZE, workers)


@pytest.fixture
def files(photos: Path, memory: Images) -> Iterator[FileImages]:
    with open_files(photos, memory) as source:
        yield source


def make_feed(labeled: ImageSource, unlabeled: ImageSource) -> Feed:
    policies = make_policies(padding=1, horizontal_flip=True)
    views = Views(labeled=("weak",), unlabeled=("weak", "strong"))
    return Feed(labeled, unlabeled, views, policies, mean=[0.5] * 3, std=[0.2] * 3, seed=3, **BATCHES)


def assert_equal(one: Batch, other: Batch) -> None:
    pairs = list(zip(flat(one), flat(other), strict=True))
    assert len(pairs) == 9
    for a, b in pairs:
        assert a.dtype == b.dtype
        assert torch.equal(a, b)


def flat(batch: Batch) -> list[Tensor]:
    return [t for value in batch for t in (value if isinstance(value, tuple) else (value,))]


def decoding_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("decode")]


def test_it_takes_what_lies_in_memory(files: FileImages, memory: Images) -> None:
    assert len(files) == len(memory) == COUNT
    for index in (torch.tensor([5, 0, 23, 5, 5]), torch.arange(COUNT), torch.empty(0, dtype=torch.int64)):
        found, expected = files.take(index), memory.take(index)
        assert found.dtype == torch.uint8
        assert torch.equal(found, expected)
        assert found.shape == expected.shape


@pytest.mark.parametrize("workers", [1, 2, 7, None])
@pytest.mark.parametrize("steps", [0, 1, 5])
def test_batches_depend_neither_on_threads_nor_on_looking_ahead(
    photos: Path, memory: Images, workers: int | None, steps: int
) -> None:
    expected = make_feed(memory, memory)
    with open_files(photos, memory, workers) as labeled, open_files(photos, memory, workers) as unlabeled:
        feed = Lookahead(make_feed(labeled, unlabeled), steps)
        for step in range(9):  # more than two passes
            assert_equal(feed(step), expected(step))


def test_a_resumed_run_and_a_jump_see_the_same_batches(files: FileImages, memory: Images) -> None:
    expected, feed = make_feed(memory, memory), Lookahead(make_feed(memory, files))
    for step in (5, 6, 2, 2, 100, 7):
        assert_equal(feed(step), expected(step))


def test_labeled_images_in_memory_stay_there(files: FileImages, memory: Images) -> None:
    assert_equal(Lookahead(make_feed(memory, files))(0), make_feed(memory, memory)(0))


class Recorder:
    """Stands in for `decode`, and can hold its threads up."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.started, self.release = threading.Event(), threading.Event()
        self.release.set()

    def __call__(self, path: Path, image_size: int) -> Tensor:
        self.seen.append(path.stem)
        self.started.set()
        assert self.release.wait(30)
        return torch.full((3, image_size, image_size), int(path.stem), dtype=torch.uint8)

    def wait_for(self, count: int) -> None:
        deadline = time.monotonic() + 30
        while len(self.seen) < count and time.monotonic() < deadline:
            time.sleep(0.001)
        assert len(self.seen) == count


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Recorder:
    recorder = Recorder()
    monkeypatch.setattr(streaming, "decode", recorder)
    return recorder


@pytest.fixture
def numbered(recorder: Recorder) -> Iterator[FileImages]:
    """Files that do not exist, each decoded to its number, by a single thread."""
    with FileImages([Path(f"{n}.png") for n in range(COUNT)], torch.zeros(COUNT, dtype=torch.int64), SIZE, 1) as source:
        yield source


def test_the_coming_steps_are_decoded_before_they_are_asked_for(numbered: FileImages, recorder: Recorder) -> None:
    memory = Images(torch.zeros(COUNT, 3, SIZE, SIZE, dtype=torch.uint8), numbered.labels)
    feed = make_feed(memory, numbered)
    Lookahead(feed, steps=2)(0)
    recorder.wait_for(3 * BATCHES["unlabeled_batch"])
    order = [index for step in range(3) for index in feed.select(step).unlabeled_index.tolist()]
    assert recorder.seen == [str(number) for number in order]  # the soonest first

    Lookahead(feed, steps=2)(1)  # whoever asks
    recorder.wait_for(4 * BATCHES["unlabeled_batch"])  # of four steps, each decoded once


def test_an_image_is_decoded_once_a_batch(numbered: FileImages, recorder: Recorder) -> None:
    found = numbered.take(torch.tensor([3, 1, 3, 3]))
    assert found[:, 0, 0, 0].tolist() == [3, 1, 3, 3]
    assert sorted(recorder.seen) == ["1", "3"]


def test_what_nobody_wants_any_more_is_given_up(numbered: FileImages, recorder: Recorder) -> None:
    recorder.release.clear()
    numbered.prepare([torch.tensor([0, 1, 2, 3]), torch.tensor([4, 5])])
    assert recorder.started.wait(30)
    numbered.prepare([torch.tensor([4, 5]), torch.tensor([6])])
    recorder.release.set()
    assert numbered.take(torch.tensor([6]))[0, 0, 0, 0] == 6
    assert recorder.seen == ["0", "4", "5", "6"]


def test_closing_ends_the_threads_and_gives_up_the_rest(
    numbered: FileImages, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutdown = numbered._pool.shutdown

    def release_after_cancelling(wait: bool = True, **how: Any) -> None:
        shutdown(wait=False, **how)
        recorder.release.set()
        shutdown(wait=wait)

    monkeypatch.setattr(numbered._pool, "shutdown", release_after_cancelling)
    recorder.release.clear()
    numbered.prepare([torch.arange(COUNT)])
    assert recorder.started.wait(30)
    assert decoding_threads()

    numbered.close()

    assert recorder.seen == ["0"]
    assert decoding_threads() == []


def test_an_error_in_training_ends_the_threads(photos: Path, memory: Images) -> None:
    def train() -> None:
        with open_files(photos, memory) as source:
            source.prepare([torch.arange(COUNT)])
            assert decoding_threads()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        train()
    assert decoding_threads() == []


@pytest.mark.parametrize("workers", [1, 4])
def test_a_file_that_cannot_be_read_stops_the_step_that_wants_it(
    photos: Path, memory: Images, tmp_path: Path, refused: Refused, workers: int
) -> None:
    broken = tmp_path / "broken.png"
    broken.write_bytes(b"not a photo")
    paths = sorted(photos.rglob("*.png"))
    feed = make_feed(memory, memory)
    victim = int(feed.select(2).unlabeled_index[3])
    paths[victim] = broken
    with FileImages(paths, memory.labels, SIZE, workers) as source:
        ahead = Lookahead(make_feed(memory, source), steps=3)
        for step in (0, 1):  # the damaged file has been looked at by now, but nobody needs it yet
            assert_equal(ahead(step), feed(step))
        with refused(f"The image '{broken}' cannot be read (not an image)"):
            ahead(2)
        assert_equal(ahead(3), feed(3))
    assert decoding_threads() == []
