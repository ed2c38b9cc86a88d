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
from epass.data import (
    Dataset,
    Feed,
    Images,
    ImageSource,
    Lookahead,
    StreamedImages,
    concatenate,
    open_dataset,
)
from epass.data.stream import disk
from epass.data.stream.disk import Files, Mapped, Workers, default_workers
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
    train = open_dataset(str(photos), image_size=SIZE).train
    assert isinstance(train, Images)
    return train


def open_files(photos: Path, memory: Images, workers: int | None = None) -> StreamedImages:
    return StreamedImages.all_of(Files(sorted(photos.rglob("*.png")), SIZE), memory.labels, workers)


@pytest.fixture
def files(photos: Path, memory: Images) -> Iterator[StreamedImages]:
    source = open_files(photos, memory)
    yield source
    source.workers.close()


def make_feed(labeled: ImageSource, unlabeled: ImageSource, kind: type[Feed] = Feed, **more: Any) -> Feed:
    policies = make_policies(padding=1, horizontal_flip=True)
    views = Views(labeled=("weak",), unlabeled=("weak", "strong"))
    return kind(labeled, unlabeled, views, policies, mean=[0.5] * 3, std=[0.2] * 3, seed=3, **BATCHES, **more)


def look_ahead(labeled: ImageSource, unlabeled: ImageSource, ahead: int = 2) -> Feed:
    return make_feed(labeled, unlabeled, Lookahead, ahead=ahead)


def assert_equal(one: Batch, other: Batch) -> None:
    pairs = list(zip(flat(one), flat(other), strict=True))
    assert len(pairs) == 9
    for a, b in pairs:
        assert a.dtype == b.dtype
        assert torch.equal(a, b)


def flat(batch: Batch) -> list[Tensor]:
    return [t for value in batch for t in (value if isinstance(value, tuple) else (value,))]


def reading_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("read")]


@pytest.mark.parametrize("kind", ["files", "mapped"])
def test_it_is_what_lies_in_memory(photos: Path, memory: Images, kind: str) -> None:
    source = open_files(photos, memory)
    if kind == "mapped":
        source = StreamedImages.all_of(Mapped(memory.pixels), memory.labels, workers=2)
    assert len(source) == len(memory) == COUNT
    assert source.shape == memory.shape == (3, SIZE, SIZE)
    assert torch.equal(source.pixels, memory.pixels)
    for index in (torch.tensor([5, 0, 23, 5, 5]), torch.arange(COUNT), torch.empty(0, dtype=torch.int64)):
        found, expected = source.take(index), memory.take(index)
        assert found.dtype == torch.uint8
        assert torch.equal(found, expected)
        assert found.shape == expected.shape
        part, same = source.select(index), memory.select(index)
        assert torch.equal(part.pixels, same.pixels)
        assert torch.equal(part.labels, same.labels)
        assert [chunk.shape for chunk in part.chunks(3)] == [chunk.shape for chunk in same.chunks(3)]
    again = source.select(torch.arange(20, 8, -2)).select(torch.tensor([4, 1])).labeled(torch.tensor([7, 8]))
    assert torch.equal(again.take(torch.tensor([1])), memory.pixels[[18]])
    assert again.labels.tolist() == [7, 8]
    both = concatenate(source.select(torch.tensor([3, 4])), again)
    assert torch.equal(both.pixels, memory.pixels[[3, 4, 12, 18]])
    assert both.labels.tolist() == [*memory.labels[3:5].tolist(), 7, 8]
    source.workers.close()
    assert reading_threads() == []


@pytest.mark.parametrize("workers", [1, 2, pytest.param(3, marks=pytest.mark.slow), None])
@pytest.mark.parametrize("ahead", [0, 1, 5])
def test_batches_depend_neither_on_workers_nor_on_looking_ahead(
    photos: Path, memory: Images, workers: int | None, ahead: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disk, "THREADS_DO", 2)  # three have processes
    expected = make_feed(memory, memory)
    feed = look_ahead(open_files(photos, memory, workers), open_files(photos, memory, workers), ahead)
    for step in range(9):  # more than two passes
        assert_equal(feed(step), expected(step))
    feed.close()
    assert reading_threads() == []


def test_a_resumed_run_and_a_jump_see_the_same_batches(files: StreamedImages, memory: Images) -> None:
    expected, feed = make_feed(memory, memory), look_ahead(files, files)
    for step in (5, 6, 2, 2, 100, 7):
        assert_equal(feed(step), expected(step))
    feed.close()
    assert_equal(feed(8), expected(8))  # the threads start again


def test_labeled_images_in_memory_stay_there(files: StreamedImages, memory: Images) -> None:
    assert_equal(look_ahead(memory, files)(0), make_feed(memory, memory)(0))


class Recorder:
    """Stands in for `decode`, and can hold its threads up."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.started, self.release = threading.Event(), threading.Event()
        self.release.set()

    def __call__(self, path: Path, image_size: int) -> np.ndarray:
        self.seen.append(path.stem)
        self.started.set()
        assert self.release.wait(600)
        return np.full((3, image_size, image_size), int(path.stem), dtype=np.uint8)

    def wait_for(self, count: int) -> None:
        deadline = time.monotonic() + 600
        while len(self.seen) < count and time.monotonic() < deadline:
            time.sleep(0.001)
        assert len(self.seen) == count


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Recorder:
    recorder = Recorder()
    monkeypatch.setattr(disk, "decode", recorder)
    return recorder


@pytest.fixture
def numbered(recorder: Recorder) -> Iterator[StreamedImages]:
    """Files that do not exist, each decoded to its number, by a single thread."""
    rows = Files([Path(f"{number}.png") for number in range(COUNT)], SIZE)
    source = StreamedImages.all_of(rows, torch.zeros(COUNT, dtype=torch.int64), 1)
    yield source
    recorder.release.set()
    source.workers.close()


def test_the_coming_steps_are_read_before_they_are_asked_for(numbered: StreamedImages, recorder: Recorder) -> None:
    memory = Images(torch.zeros(COUNT, 3, SIZE, SIZE, dtype=torch.uint8), numbered.labels)
    feed = look_ahead(memory, numbered)
    feed(0)
    recorder.wait_for(3 * BATCHES["unlabeled_batch"])
    order = [index for step in range(3) for index in feed.rows(step)[1].tolist()]
    assert recorder.seen == [str(number) for number in order]  # the soonest first

    feed(1)
    recorder.wait_for(4 * BATCHES["unlabeled_batch"])  # of four steps, each decoded once


def test_an_image_is_decoded_once_a_batch(numbered: StreamedImages, recorder: Recorder) -> None:
    found = numbered.take(torch.tensor([3, 1, 3, 3]))
    assert found[:, 0, 0, 0].tolist() == [3, 1, 3, 3]
    assert sorted(recorder.seen) == ["1", "3"]


def test_what_nobody_wants_any_more_is_given_up(numbered: StreamedImages, recorder: Recorder) -> None:
    memory = Images(torch.zeros(COUNT, 3, SIZE, SIZE, dtype=torch.uint8), numbered.labels)
    feed = look_ahead(memory, numbered)
    recorder.release.clear()
    assert isinstance(feed, Lookahead)
    feed._prepare(range(3))
    assert recorder.started.wait(600)
    feed._prepare(range(2, 3))  # the first image of step 0 is on its way
    recorder.release.set()
    feed(2)
    wanted = [index for step in range(2, 5) for index in feed.rows(step)[1].tolist()]
    recorder.wait_for(1 + len(wanted))
    assert recorder.seen == [str(number) for number in [int(feed.rows(0)[1][0]), *wanted]]


def test_closing_ends_the_threads_and_gives_up_the_rest(
    numbered: StreamedImages, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorder.release.clear()
    numbered.begin(torch.arange(COUNT))
    assert recorder.started.wait(600)
    assert reading_threads()
    pool = numbered.workers._pool
    assert pool is not None
    shutdown = pool.shutdown

    def release_after_cancelling(wait: bool = True, **how: Any) -> None:
        shutdown(wait=False, **how)
        recorder.release.set()
        shutdown(wait=wait)

    monkeypatch.setattr(pool, "shutdown", release_after_cancelling)
    numbered.workers.close()
    assert recorder.seen == ["0"]
    assert reading_threads() == []


def test_an_error_between_chunks_gives_up_the_coming_ones(numbered: StreamedImages, recorder: Recorder) -> None:
    chunks = numbered.chunks(4)
    next(chunks)
    recorder.wait_for(8)
    chunks.close()
    assert numbered.take(torch.tensor([20]))[0, 0, 0, 0] == 20
    assert len(recorder.seen) == 9


@pytest.mark.parametrize("workers", [1, 4])
def test_a_file_that_cannot_be_read_stops_the_step_that_wants_it(
    photos: Path, memory: Images, tmp_path: Path, refused: Refused, workers: int
) -> None:
    broken = tmp_path / "broken.png"
    broken.write_bytes(b"not a photo")
    paths = sorted(photos.rglob("*.png"))
    feed = make_feed(memory, memory)
    paths[int(feed.select(2).unlabeled_index[3])] = broken
    ahead = look_ahead(memory, StreamedImages.all_of(Files(paths, SIZE), memory.labels, workers), ahead=3)
    for step in (0, 1):  # the damaged file has been looked at by now, but nobody needs it yet
        assert_equal(ahead(step), feed(step))
    with refused(f"The image '{broken}' cannot be read (not an image)"):
        ahead(2)
    assert_equal(ahead(3), feed(3))
    ahead.close()
    assert reading_threads() == []


def test_the_number_of_threads_can_be_set(monkeypatch: pytest.MonkeyPatch, refused: Refused) -> None:
    monkeypatch.setenv("EPASS_WORKERS", "5")
    assert default_workers() == Workers().count == 5
    assert Workers(3).count == 3
    for wrong in ("0", "-1", "many"):
        monkeypatch.setenv("EPASS_WORKERS", wrong)
        with refused(f"EPASS_WORKERS is '{wrong}', but it is a number of workers: use 1 or more."):
            default_workers()
    monkeypatch.delenv("EPASS_WORKERS")
    assert default_workers() >= 1


# Data sets


def assert_same(streamed: Dataset, held: Dataset) -> None:
    assert isinstance(streamed.train, StreamedImages)
    for name in ("name", "classes", "mean", "std", "augment", "train_names", "test_names"):
        assert getattr(streamed, name) == getattr(held, name), name
    for one, other in ((streamed.train, held.train), (streamed.test, held.test)):
        assert (one is None) == (other is None)
        if one is not None and other is not None:
            assert torch.equal(one.labels, other.labels)
            assert torch.equal(one.pixels, other.pixels)


@pytest.fixture
def no_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EPASS_CACHE", "off")


@pytest.fixture
def parts(photos: Path, tmp_path: Path) -> Path:
    """The same images with a test set and some without a label."""
    for part, names in (("labeled", "ab"), ("test", "ab"), ("unlabeled", "c")):
        for name in names:
            folder = tmp_path / "parts" / part / name
            folder.mkdir(parents=True)
            for file in sorted(photos.rglob("*.png"))[ord(name) - ord("a") :: 3]:
                (folder / f"{part}-{file.name}").write_bytes(file.read_bytes())
    return tmp_path / "parts"


@pytest.mark.usefixtures("no_cache")
def test_a_folder_is_the_same_data_set(photos: Path, parts: Path) -> None:
    for folder in (photos, parts):
        streamed = open_dataset(str(folder), image_size=SIZE, streaming=True)
        assert isinstance(streamed.train, StreamedImages)
        assert isinstance(streamed.train.rows, Files)
        assert_same(streamed, open_dataset(str(folder), image_size=SIZE))


@pytest.mark.usefixtures("no_cache")
def test_a_table_is_the_same_data_set(photos: Path) -> None:
    lines = [f"{file.relative_to(photos)},{file.parent.name}" for file in sorted(photos.rglob("*.png"))]
    table = photos / "table.csv"
    table.write_text("\n".join(["path,label", *lines]))
    held = open_dataset(str(table), image_size=SIZE)
    assert_same(open_dataset(str(table), image_size=SIZE, streaming=True), held)


def test_what_was_decoded_earlier_comes_from_the_cache(parts: Path) -> None:
    held, said = open_dataset(str(parts), image_size=SIZE), []
    streamed = open_dataset(str(parts), image_size=SIZE, streaming=True, notice=said.append)
    assert isinstance(streamed.train, StreamedImages)
    assert isinstance(streamed.train.rows, Mapped)
    assert_same(streamed, held)
    assert len(said) == 1


def test_statistics_are_computed_once_for_the_same_files(photos: Path, recorder: Recorder) -> None:
    open_dataset(str(photos), image_size=SIZE, streaming=True)
    assert len(recorder.seen) == COUNT
    known = open_dataset(str(photos), image_size=SIZE, streaming=True)
    assert len(recorder.seen) == COUNT
    values = torch.arange(COUNT).double() / 255
    assert known.mean == pytest.approx([values.mean().item()] * 3)
    open_dataset(str(photos), image_size=SIZE + 1, streaming=True)
    assert len(recorder.seen) == 2 * COUNT
    open_dataset(str(photos), image_size=SIZE, streaming=True)  # every size has an entry of its own
    assert len(recorder.seen) == 2 * COUNT


def test_what_needs_no_statistics_is_not_read(photos: Path, recorder: Recorder) -> None:
    dataset = open_dataset(str(photos), image_size=SIZE, streaming=True, measured=False)
    assert recorder.seen == []
    assert (dataset.mean, dataset.std) == ((), ())


@pytest.mark.usefixtures("no_cache")
@pytest.mark.parametrize(("free", "expected"), [(None, False), (2, True), (2.001, False), (0, True)])
def test_auto_asks_how_much_memory_is_free(
    photos: Path, monkeypatch: pytest.MonkeyPatch, free: float | None, expected: bool
) -> None:
    needed = COUNT * 3 * SIZE**2
    monkeypatch.setattr(disk, "free_memory", lambda: None if free is None else int(free * needed) - 1)
    dataset = open_dataset(str(photos), image_size=SIZE, streaming="auto")
    assert isinstance(dataset.train, StreamedImages) == expected
    monkeypatch.undo()
    assert isinstance(open_dataset(str(photos), image_size=SIZE, streaming="auto").train, Images)


def test_arrays_and_archives_are_refused(photos: Path, tmp_path: Path, refused: Refused) -> None:
    import shutil

    np.savez(tmp_path / "a.npz", train_images=np.zeros((4, 8, 8), np.uint8), train_labels=np.arange(4) % 2)
    for name in ("digits", str(tmp_path / "a.npz")):
        with refused(
            f"'{name}' does not consist of image files, and only these can be streamed: leave data.streaming out."
        ):
            open_dataset(name, streaming=True)
    archive = shutil.make_archive(str(tmp_path / "photos"), "zip", photos)
    with refused(f"'{archive}' is an archive, which is read from its beginning: unpack it to stream it."):
        open_dataset(archive, streaming=True)
    assert isinstance(open_dataset("digits", streaming="auto").train, Images)
    assert isinstance(open_dataset(archive, streaming="auto", image_size=SIZE).train, Images)
