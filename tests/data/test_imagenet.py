from pathlib import Path
from shutil import rmtree

import pytest
import torch
from originals import ILSVRC, WNIDS, mat, numbers, photo, random_pixels, table, text
from originals import imagenet as write

from epass.data import StreamedImages, open_dataset
from epass.data.read.formats import imagenet, photos

KIT = "ILSVRC2012_devkit_t12/data"
TRUTH = f"{KIT}/ILSVRC2012_validation_ground_truth.txt"


@pytest.fixture
def flat(tmp_path: Path) -> Path:
    write(tmp_path)
    return tmp_path


def test_validation_images_by_the_list_of_their_owner(flat: Path) -> None:
    seen: list[tuple[int, int]] = []
    made = imagenet.read(flat, image_size=16, progress=lambda done, total: seen.append((done, total)))
    assert made.name == "imagenet"
    assert made.classes == tuple(WNIDS)
    assert made.train.pixels.shape == (6, 3, 16, 16)
    assert made.train.labels.tolist() == [0, 0, 1, 1, 2, 2]
    assert made.train.pixels[:, 0, 0, 0].tolist() == [1, 2, 51, 52, 101, 102]
    assert made.test is not None
    assert made.test.labels.tolist() == [0, 2, 1, 2]  # ILSVRC numbers 3, 1, 2, 1
    assert made.test.pixels[:, 0, 0, 0].tolist() == [201, 202, 203, 204]
    assert made.mean == (0.485, 0.456, 0.406)
    assert made.std == (0.229, 0.224, 0.225)
    assert made.augment == {"padding": 1, "horizontal_flip": True}
    assert seen[-1] == (10, 10)


def test_validation_images_in_class_folders(tmp_path: Path, refused) -> None:
    write(tmp_path, flat=False)
    assert imagenet.missing(tmp_path) == []
    test = imagenet.read(tmp_path, image_size=16).test
    assert test is not None
    assert test.labels.tolist() == [0, 1, 2, 2]
    assert test.pixels[:, 0, 0, 0].tolist() == [201, 203, 202, 204]
    rmtree(tmp_path / "val" / WNIDS[0])
    test = imagenet.read(tmp_path, image_size=16).test
    assert test is not None
    assert test.labels.tolist() == [1, 2, 2]
    photo(tmp_path / "val" / "n01440765" / "1.JPEG")
    with refused("Unknown validation class 'n01440765'", "did you mean 'n01440764'?"):
        imagenet.read(tmp_path)


def test_the_crop_moves_as_far_as_224_pixels_in_256() -> None:
    assert [photos.crop_padding(size) for size in (224, 64, 32)] == [16, 4, 2]


def test_images_that_cannot_fit_into_memory(refused) -> None:
    photos._check_memory("imagenet", 1_331_167, 224, None)
    photos._check_memory("imagenet", 1_331_167, 64, 17 * 10**9)
    with refused("1,331,167 images of 'imagenet' need 200 GB", "has 17 GB", "at most 65"):
        photos._check_memory("imagenet", 1_331_167, 224, 17 * 10**9)
    with refused("leave images out"):
        photos._check_memory("imagenet", 1_331_167, 224, 10**8)
    memory = photos._memory()
    assert memory is None or memory > 2**28


def test_memory_is_looked_at_before_anything_is_decoded(flat: Path, refused, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(photos, "_memory", lambda: 10**6)
    with refused("10 images of 'imagenet'", "at most 182"):
        imagenet.read(flat)
    assert imagenet.read(flat, image_size=182).train.pixels.shape[-1] == 182


def test_what_is_missing(flat: Path, refused) -> None:
    assert imagenet.missing(flat) == []
    (flat / TRUTH).rename(flat / "elsewhere.txt")
    assert imagenet.missing(flat) == [TRUTH]
    with refused("not a complete imagenet", f"lacks {TRUTH}"):
        imagenet.read(flat)
    (flat / "val").rename(flat / "valid")
    assert imagenet.missing(flat) == ["val/<wnid>/*.JPEG"]
    assert imagenet.missing(flat / "nowhere") == ["train/<wnid>/*.JPEG", "val/<wnid>/*.JPEG"]


def test_wrong_content(flat: Path, refused) -> None:
    for lines, parts in {
        "3\n1\n2\n": ("ILSVRC2012_val_00000004.JPEG", "none of the 3", "to ILSVRC2012_val_00000003.JPEG"),
        "3\n1\n2\n0\n": ("Line 4", "'0'", "1 to 1001"),
        "3\n1\n\n1\n": ("Line 3", "''"),
        "3\n1\n2\n4\n": ("ILSVRC2012_val_00000004.JPEG", "class number 4", "has no folder"),
        "3\n1\n2\n1001\n": ("class n00001740", "has no folder"),
        "3\n1\n2\n1_0\n": ("'1_0'",),
        "3\n1\n2\n１\n": ("'１'",),
        "3\n1\n2\n" + "9" * 5000: ("Line 4", "'999"),
    }.items():
        (flat / TRUTH).write_text(lines, encoding="utf-8")
        with refused(*parts):
            imagenet.read(flat)
    (flat / TRUTH).write_text("3\n1\n2\n1\n", encoding="utf-8")
    photo(flat / "val" / "photo.JPEG")
    with refused("photo.JPEG", "none of the 4"):
        imagenet.read(flat)
    photo(flat / "train" / "cats" / "1.JPEG")
    with refused("train/cats", "expected n and 8 digits"):
        imagenet.read(flat)


def test_a_wrong_table_of_classes(flat: Path, refused) -> None:
    number, name, zero = numbers("", random_pixels(1, 1)), text(ILSVRC[1]), numbers("", 0 * random_pixels(1, 1))
    for variable, parts in [
        (numbers("other", random_pixels(2, 2)), ("no variable 'synsets'", "holds other")),
        (numbers("synsets", random_pixels(2, 2)), ("is not a table",)),
        (table("synsets", [{"WNID": name}]), ("no ILSVRC2012_ID", "from 1")),
        (table("synsets", [{"WNID": number, "ILSVRC2012_ID": number}]), ("no WNID", "n and 8 digits")),
        (table("synsets", [{"WNID": name, "ILSVRC2012_ID": name}]), ("no ILSVRC2012_ID",)),
        (table("synsets", [{"WNID": text("\x1b[2J"), "ILSVRC2012_ID": number}]), ("no WNID", "n and 8 digits")),
        (table("synsets", [{"WNID": name, "ILSVRC2012_ID": numbers("", random_pixels(1, 2))}]), ("no ILSVRC2012_ID",)),
        (table("synsets", [{"WNID": name, "ILSVRC2012_ID": zero}]), ("no ILSVRC2012_ID",)),
    ]:
        mat(flat / KIT / "meta.mat", variable)
        with refused("meta.mat", *parts):
            imagenet.read(flat)


def test_images_that_stay_on_disk(flat: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    held = open_dataset(str(flat), image_size=16)
    monkeypatch.setattr(photos, "_memory", lambda: 1)  # nothing fits
    monkeypatch.setattr(photos, "decode_all", None)
    streamed = open_dataset(str(flat), image_size=16, streaming=True)
    assert isinstance(streamed.train, StreamedImages)
    assert (streamed.mean, streamed.std, streamed.augment) == (held.mean, held.std, held.augment)
    for one, other in ((streamed.train, held.train), (streamed.test, held.test)):
        assert one is not None
        assert other is not None
        assert torch.equal(one.labels, other.labels)
        assert torch.equal(one.pixels, other.pixels)
    streamed.train.workers.close()
