"""Features on disk: whole, of the right kind, or not there."""

from __future__ import annotations

import io
import os
import time
import warnings
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from epass.features import store as module
from epass.features.store import KEY_BYTES, Store, key_of

SHAPE = (2, 3)


def rows(count: int, seed: int = 0) -> tuple[list[bytes], np.ndarray]:
    random = np.random.default_rng(seed)
    return [random.bytes(KEY_BYTES) for _ in range(count)], random.random((count, *SHAPE)).astype(np.float16)


def kept(keys: list[bytes], features: np.ndarray, digest: str = "one") -> Path:
    """The segment that holds these features."""
    with Store(digest, SHAPE) as store:
        before = set(store.folder.glob("*")) if store.folder.is_dir() else set()
        store.keep(keys, features)
    (path,) = set(store.folder.glob("*")) - before
    return path


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("EPASS_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_what_is_kept_is_found_by_the_next_one(cache: Path) -> None:
    (keys, features), (more, others) = rows(3), rows(2, seed=1)
    kept(keys, features)
    kept(more, others)
    found = Store("one", SHAPE).found
    assert set(found) == {*keys, *more}
    for key, row in zip([*keys, *more], [*features, *others], strict=True):
        assert np.array_equal(found[key], row)
    assert (cache / "features-one").stat().st_mode & 0o077 == 0


def test_nothing_is_written_without_features(cache: Path) -> None:
    with Store("one", SHAPE):
        pass
    assert not cache.exists()


def test_another_digest_is_never_used(cache: Path) -> None:
    kept(*rows(3))
    assert Store("two", SHAPE).found == {}
    assert Store("one", (2, 4)).found == {}  # of another shape


def test_a_writer_that_is_killed_leaves_whole_segments(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keys, features = rows(3)
    first = kept(keys, features)

    def killed(self: Path, target: Path) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", killed)
        with pytest.raises(KeyboardInterrupt):
            kept(*rows(2, seed=1))
    # a process that has no time to tidy up leaves a part
    first.with_name(f".{'a' * 32}.npy.123.part").write_bytes(first.read_bytes()[:50])
    assert set(Store("one", SHAPE).found) == set(keys)


def segment(array: np.ndarray, *, pickled: bool = False) -> bytes:
    body = io.BytesIO()
    np.save(body, array, allow_pickle=pickled)
    return body.getvalue() + zlib.crc32(body.getvalue()).to_bytes(4, "little")


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "another byte": lambda content: content[:-20] + bytes([content[-20] ^ 1]) + content[-19:],
    "cut off": lambda content: content[: len(content) // 2],
    "nothing": lambda content: b"",
    "numbers alone": lambda content: segment(np.zeros((2, 3), np.float16)),
    "a pickle": lambda content: segment(np.array([{}]), pickled=True),
    "no array": lambda content: b"abcd" + zlib.crc32(b"abcd").to_bytes(4, "little"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_segment_is_as_if_it_were_not_there(cache: Path, damage: str) -> None:
    keys, features = rows(3)
    kept(keys, features)
    path = kept(*rows(2, seed=1))
    path.write_bytes(DAMAGES[damage](path.read_bytes()))
    assert set(Store("one", SHAPE).found) == set(keys)


def test_a_folder_that_cannot_be_written_is_said_once(cache: Path) -> None:
    cache.write_text("a file where the folder should be")
    (keys, features), (more, others) = rows(3), rows(2, seed=1)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        with Store("one", SHAPE) as store:
            store.keep(keys, features)
            store.write()
            store.keep(more, others)
    (message,) = (str(warning.message) for warning in said)
    assert message == (
        f"The features cannot be kept in '{cache}' (Not a directory): next time they are computed again, unless "
        "EPASS_CACHE names a better folder."
    )
    assert set(store.found) == {*keys, *more}


def test_a_folder_that_cannot_be_read_is_as_if_it_were_not_there(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept(*rows(3))

    def refused(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    for name in ("stat", "utime"):
        monkeypatch.setattr(os, name, refused)
    assert Store("one", SHAPE).found == {}


def test_the_cache_can_be_turned_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EPASS_CACHE", "off")
    monkeypatch.chdir(tmp_path)
    keys, features = rows(3)
    with Store("one", SHAPE) as store:
        store.keep(keys, features)
    assert set(store.found) == set(keys)
    assert list(tmp_path.iterdir()) == []
    assert Store("one", SHAPE).found == {}


def test_what_takes_long_is_written_on_the_way(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store("one", SHAPE)
    store.keep(*rows(3))
    assert Store("one", SHAPE).found == {}
    monkeypatch.setattr(module, "SEGMENT_SECONDS", 0.0)
    keys, features = rows(2, seed=1)
    store.keep(keys, features)
    assert len(Store("one", SHAPE).found) == 5
    assert store.waiting == {}


def test_stores_that_nobody_uses_are_removed_when_a_new_one_begins(cache: Path) -> None:
    for digest in ("old", "used", "young"):
        kept(*rows(3), digest)
    pixels = cache / "of-images.npy"
    pixels.write_bytes(b"pixels")
    long_ago = time.time() - 31 * 24 * 3600
    for path in (cache / "features-old", cache / "features-used", pixels):
        os.utime(path, (long_ago, long_ago))
    Store("used", SHAPE)
    kept(*rows(3), "new")
    assert {path.name for path in cache.iterdir()} == {"features-used", "features-young", "features-new", pixels.name}


def test_the_key_of_an_image_changes_with_its_pixels_and_its_shape() -> None:
    names = {key_of(bytes(12), (3, 2, 2)), key_of(bytes(12), (3, 1, 4)), key_of(bytes(11) + b"x", (3, 2, 2))}
    assert len(names) == 3
    assert {len(name) for name in names} == {KEY_BYTES}
