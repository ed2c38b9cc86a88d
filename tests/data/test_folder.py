import os
import threading
import zipfile
from pathlib import Path, PurePath

import numpy as np
import pytest
import torch
from PIL import Image

from epass.data import Images, open_dataset
from epass.data.read.decode import decode
from epass.data.read.folder import Problems, _list_scored, list_folder
from epass.runs import RunFolder


def write(path: Path, color: object = (200, 100, 50), size: tuple[int, int] = (8, 8), mode: str = "RGB") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new(mode, size, color).save(path)
    return path


def gray(images: Images) -> list[int]:
    """The level of images that are gray all over."""
    assert (images.pixels == images.pixels[:, :1, :1, :1]).all()
    return images.pixels[:, 0, 0, 0].tolist()


@pytest.fixture
def parts(tmp_path: Path) -> Path:
    root = tmp_path / "birds"
    for level, path in enumerate(
        [
            "labeled/crow/b.png",
            "labeled/crow/A.PNG",
            "labeled/crow/deep/er/c.bmp",
            "labeled/wren/x.ppm",
            "unlabeled/2.png",
            "unlabeled/10.png",
            "unlabeled/crow/3.gif",
            "test/wren/t.tif",
            "test/crow/t.tiff",
        ]
    ):
        write(root / path, (level, level, level))
    (root / "labeled/crow/notes.txt").write_text("no image")
    (root / "labeled/README.txt").write_text("no class")
    write(root / "labeled/crow/.hidden.png")
    write(root / ".trash/x.png")
    return root


def test_layout_with_parts(parts: Path) -> None:
    seen: list[tuple[int, int]] = []
    made = open_dataset(str(parts), progress=lambda done, total: seen.append((done, total)))
    assert made.name == "birds"
    assert made.classes == ("crow", "wren")
    assert made.train.pixels.shape == (7, 3, 32, 32)
    assert made.train.labels.tolist() == [0, 0, 0, 1, -1, -1, -1]
    # The order of the paths, whatever the file system says: A.PNG b.png deep/ | x.ppm | 10 2 crow/
    assert gray(made.train) == [1, 0, 2, 3, 5, 4, 6]
    assert made.test is not None
    assert made.test.labels.tolist() == [0, 1]
    assert gray(made.test) == [8, 7]
    assert seen == [(done, 9) for done in range(1, 10)]
    assert made.augment == {"padding": 4, "horizontal_flip": True}


def test_the_test_part_may_lack_classes(parts: Path) -> None:
    (parts / "test/crow/t.tiff").unlink()
    (parts / "test/crow").rmdir()
    made = open_dataset(str(parts))
    assert made.test is not None
    assert made.test.labels.tolist() == [1]


def test_the_name_is_that_of_the_folder(parts: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(parts)
    assert open_dataset(".").name == "birds"


def test_layout_of_classes_only(tmp_path: Path) -> None:
    for level, path in enumerate(["b/1.png", "a/sub/1.webp", "a/2.jpg"]):
        write(tmp_path / path, (level * 80,) * 3)
    made = open_dataset(str(tmp_path), image_size=8)
    assert made.classes == ("a", "b")
    assert made.test is None
    assert made.train.labels.tolist() == [0, 0, 1]
    assert gray(made.train) == [160, 80, 0]
    assert made.train.pixels.shape == (3, 3, 8, 8)


def test_the_order_does_not_depend_on_the_file_system(parts: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = open_dataset(str(parts)).train.pixels
    monkeypatch.setattr(Path, "iterdir", lambda self: (self / name for name in sorted(os.listdir(self), reverse=True)))
    assert torch.equal(open_dataset(str(parts)).train.pixels, expected)


def test_images_are_decoded_by_several_threads(parts: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 4)
    together = threading.Barrier(2, timeout=600)
    first = iter([True, True])

    def wait(path: Path, image_size: int) -> np.ndarray:
        if next(first, False):
            together.wait()
        return decode(path, image_size)

    monkeypatch.setattr("epass.data.read.decode.decode", wait)
    assert gray(open_dataset(str(parts)).train) == [1, 0, 2, 3, 5, 4, 6]


def rows(path: Path, size: int = 8) -> np.ndarray:
    return decode(path, size).transpose(1, 2, 0)


def test_exif_orientation_is_applied(tmp_path: Path) -> None:
    image = Image.new("RGB", (16, 16))
    image.paste((255, 255, 255), (0, 0, 16, 8))  # the upper half is white
    exif = Image.Exif()
    exif[0x0112] = 6  # to be seen, turn it clockwise: the white half is then on the right
    image.save(tmp_path / "turned.png", exif=exif)
    seen = rows(tmp_path / "turned.png")
    assert seen[:, -3:].min() == 255
    assert seen[:, :3].max() == 0


def test_the_middle_is_cut_and_the_shorter_side_fills_the_square(tmp_path: Path) -> None:
    for size, axis in (((48, 16), 0), ((16, 48), 1)):
        image = Image.new("RGB", size, (255, 0, 0))
        middle = (16, 0, 32, 16) if axis == 0 else (0, 16, 16, 32)
        image.paste((0, 0, 200), middle)
        image.save(tmp_path / "long.png")
        seen = rows(tmp_path / "long.png")
        assert (seen[1:-1, 1:-1] == (0, 0, 200)).all()
        assert abs(seen.astype(int) - (0, 0, 200)).max() < 40, "an edge may see a little of what lies beyond it"


def test_scaling_is_antialiased(tmp_path: Path) -> None:
    checkers = ((np.arange(64)[:, None] + np.arange(64)) % 2 * 255).astype(np.uint8)
    Image.fromarray(checkers).save(tmp_path / "checkers.png")
    assert abs(rows(tmp_path / "checkers.png").astype(int) - 128).max() < 12


def test_a_large_photo_keeps_its_colors_when_decoded_coarsely(tmp_path: Path) -> None:
    ramp = np.linspace(0, 255, 1024).astype(np.uint8)
    image = np.broadcast_to(ramp[None, :, None], (1024, 1024, 3))
    Image.fromarray(np.ascontiguousarray(image)).save(tmp_path / "photo.jpg", quality=95)
    expected = (np.arange(8) + 0.5) / 8 * 255
    assert abs(rows(tmp_path / "photo.jpg").mean((0, 2)) - expected)[1:-1].max() < 1.5


def test_a_photo_keeps_its_detail_when_decoded_coarsely(tmp_path: Path) -> None:
    stripes = np.tile((np.arange(128) // 8 % 2 * 255).astype(np.uint8), (128, 1))
    Image.fromarray(stripes).save(tmp_path / "stripes.jpg", quality=95)
    seen = rows(tmp_path / "stripes.jpg", 32)[16, :, 0].astype(int)  # a stripe is two pixels wide
    assert abs(np.diff(seen[1::2])).min() > 150


@pytest.mark.parametrize(
    ("mode", "color", "name", "expected"),
    [
        ("L", 90, "a.jpg", (90, 90, 90)),
        ("1", 1, "a.png", (255, 255, 255)),
        ("LA", (90, 255), "a.png", (90, 90, 90)),
        ("RGBA", (200, 100, 50, 255), "a.png", (200, 100, 50)),
        ("RGBA", (0, 0, 0, 0), "a.png", (255, 255, 255)),  # nothing is drawn: paper, not ink
        ("RGBA", (0, 0, 0, 51), "a.webp", (204, 204, 204)),
        ("CMYK", (0, 255, 255, 0), "a.tif", (255, 0, 0)),
        ("I;16", 0x8080, "a.png", (128, 128, 128)),
        ("I;16", 0xFFFF, "a.tif", (255, 255, 255)),
        ("I;16", 300, "a.png", (1, 1, 1)),
        ("I", 0x4040, "a.pgm", (64, 64, 64)),  # which holds 16 bits
    ],
)
def test_every_mode_becomes_rgb(tmp_path: Path, mode: str, color, name: str, expected: tuple[int, ...]) -> None:
    seen = rows(write(tmp_path / name, color, mode=mode)).reshape(-1, 3)
    assert abs(seen.astype(int) - expected).max() <= 2


@pytest.mark.parametrize(("level", "expected"), [(0, 0), (128, 0), (129, 1), (33024, 128), (33025, 129), (65535, 255)])
def test_16_bit_gray_is_scaled_and_rounded(tmp_path: Path, level: int, expected: int) -> None:
    assert (rows(write(tmp_path / "a.png", level, mode="I;16")) == expected).all()


def test_palette_images(tmp_path: Path) -> None:
    for name, options in {"a.gif": {}, "b.png": {}, "c.png": {"transparency": 1}}.items():
        image = Image.new("P", (8, 8), 1)
        image.putpalette([0, 0, 0, 10, 200, 30, 255, 255, 255])
        image.save(tmp_path / name, **options)
        assert (rows(tmp_path / name) == ((255, 255, 255) if options else (10, 200, 30))).all()


def test_floating_point_images_are_refused(refused, tmp_path: Path) -> None:
    with refused("a.tif", "floating-point", "8 bits"):
        rows(write(tmp_path / "a.tif", 0.5, mode="F"))


def test_unreadable_images_are_named(refused, parts: Path) -> None:
    bad = parts / "unlabeled/bad.jpg"
    bad.write_text("this is no image")
    with refused(str(bad), "not an image", "replace or remove it"):
        open_dataset(str(parts))


def test_errors_of_every_kind_are_caught(refused, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bomb = write(tmp_path / "bomb.png", size=(64, 64))
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100)  # such an error is no OSError
    with refused(str(bomb), "cannot be read", "replace or remove it"):
        rows(bomb)


@pytest.mark.parametrize("name", ["bad.jpg", "bad.png", "bad.gif", "bad.webp", "bad.tif", "bad.bmp"])
def test_truncated_images_are_named(refused, parts: Path, name: str) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8)
    bad = parts / "unlabeled" / name
    Image.fromarray(noise).save(bad)
    bad.write_bytes(bad.read_bytes()[: bad.stat().st_size // 2])
    with refused(str(bad), "cannot be read", "replace or remove it"):
        open_dataset(str(parts))


def test_mistakes_of_layout(refused, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with refused("empty' holds no class", "give every class a folder"):
        open_dataset(str(tmp_path / "empty"))

    one = tmp_path / "one"
    write(one / "cat/1.png")
    with refused("single class 'cat'", "second"):
        open_dataset(str(one))
    (one / "dog/deeper").mkdir(parents=True)
    with refused("class folder", "dog' holds no image"):
        open_dataset(str(one))
    write(one / "dog/deeper/1.png")
    write(one / "stray.png")
    with refused("stray.png' lies outside of the class folders", "move it"):
        open_dataset(str(one))


@pytest.mark.parametrize("layout", ["", "labeled/"], ids=["classes alone", "parts"])
def test_runs_beside_the_classes_are_no_class(refused, tmp_path: Path, layout: str) -> None:
    for name in ("cat/1.png", "dog/2.png"):
        write(tmp_path / layout / name)
    run = RunFolder(tmp_path / layout / "runs/compare/first")
    run.create(force=False)
    run.write_text("recipe.toml", "seed = 0\n")
    with refused("runs' holds no image"):  # whose recipe somebody wrote by hand
        open_dataset(str(tmp_path))
    run.write_json("environment.json", {})
    assert run.exists()
    made = open_dataset(str(tmp_path))
    assert (made.classes, made.unused, made.skipped) == (("cat", "dog"), (f"{layout}runs",), ())
    (run.path / "recipe.toml").unlink()
    with refused("runs' holds no image"):  # an environment of something else
        open_dataset(str(tmp_path))
    run.write_text("recipe.toml", "seed = 0\n")
    write(tmp_path / layout / "runs/figures/3.png")
    write(run.path / "maps/4.png")
    made = open_dataset(str(tmp_path))
    assert (made.classes, len(made.train), made.unused) == (("cat", "dog"), 2, (f"{layout}runs",))
    deeper = tmp_path / layout / "runs/other/deep/er"
    deeper.parent.mkdir(parents=True)
    run.path.rename(deeper)
    assert open_dataset(str(tmp_path)).classes == ("cat", "dog", "runs")  # nothing puts runs there
    deeper.rename(run.path)
    write(tmp_path / layout / "runs/3.png")  # photos lie in class folders, or one level deeper
    assert open_dataset(str(tmp_path)).classes == ("cat", "dog", "runs")


def test_a_run_beside_the_classes_is_no_class_in_an_archive_either(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "photos.zip", "w") as packed:
        for name in ("cat/1.png", "dog/2.png", "first/map.png"):
            write(tmp_path / name)
            packed.write(tmp_path / name, name)
        packed.writestr("first/recipe.toml", "")
        packed.writestr("first/environment.json", "{}")
    made = open_dataset(str(tmp_path / "photos.zip"))
    assert (made.classes, len(made.train), made.unused) == (("cat", "dog"), 2, ("first",))


@pytest.mark.parametrize("inside", ["labeled/cat/1.png labeled/dog/2.png test/cat/3.png", "cat/1.png dog/2.png"])
def test_the_folder_inside_of_another_one_is_named(refused, tmp_path: Path, inside: str) -> None:
    for name in inside.split():
        write(tmp_path / "unpacked" / "photos" / name)
    with refused(
        "single class 'photos', which holds folders itself: give '", "unpacked/photos' if these are the classes"
    ):
        open_dataset(str(tmp_path / "unpacked"))


def test_mistakes_among_the_parts(refused, parts: Path) -> None:
    write(parts / "test/crowe/1.png")
    with refused("Unknown test class 'crowe'", "did you mean 'crow'?"):
        open_dataset(str(parts))
    (parts / "test/crowe/1.png").unlink()
    with refused("crowe' holds no image"):
        open_dataset(str(parts))
    (parts / "test/crowe").rmdir()
    for path in sorted((parts / "labeled/wren").iterdir()):
        path.unlink()
    (parts / "labeled/wren").rmdir()
    with refused("labeled' holds the single class 'crow'"):
        open_dataset(str(parts))


def test_only_links_that_stay_inside_are_followed(refused, parts: Path, tmp_path: Path) -> None:
    outside = write(tmp_path / "outside/secret.png", (99, 99, 99))
    (parts / "unlabeled/again.png").symlink_to(parts / "unlabeled/2.png")
    assert gray(open_dataset(str(parts)).train)[4:] == [5, 4, 4, 6]
    links = {place: outside for place in ("unlabeled/link.png", "labeled/wren/link.png", "labeled/link.png")}
    links |= {place: outside.parent for place in ("labeled/eagle", "unlabeled/more", "zoo")}
    for place, target in links.items():
        link = parts / place
        link.symlink_to(target)
        with refused(str(link), f"leads to '{target}'", "only links to files inside"):
            open_dataset(str(parts))
        made = open_dataset(str(parts), skip_unreadable=True)
        assert (len(made.train), made.classes) == (8, ("crow", "wren"))
        assert [name for name, _ in made.skipped] == [place]
        link.unlink()
    for target in (parts, parts / "gone"):  # a loop, and nothing at all
        (parts / "unlabeled/loop").symlink_to(target)
        with refused("loop", "only links to files inside"):
            open_dataset(str(parts))
        (parts / "unlabeled/loop").unlink()


def test_a_part_that_is_a_link_is_never_left_out(refused, parts: Path) -> None:
    (parts / "unlabeled").rename(parts.parent / "elsewhere")
    (parts / "unlabeled").symlink_to(parts.parent / "elsewhere")
    for skip in (False, True):
        with refused("unlabeled' leads to", "put a folder there"):
            open_dataset(str(parts), skip_unreadable=skip)


def test_a_link_may_be_the_data_folder_itself(parts: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(parts)
    assert len(open_dataset(str(tmp_path / "link")).train) == 7


def test_tiny_image_sizes_are_refused(refused, parts: Path) -> None:
    with refused("image size of 0", "use 8 or more"):
        open_dataset(str(parts), image_size=0)


def test_folders_are_not_searched_for_in_each_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(60):
        write(tmp_path / "many" / f"{number:02}" / "1.png")
    compared = []
    equal = PurePath.__eq__
    monkeypatch.setattr(PurePath, "__eq__", lambda one, other: compared.append(one) or equal(one, other))
    assert len(list_folder(tmp_path / "many").classes) == 60
    assert len(compared) < 60


def test_classes_are_not_searched_for_in_a_list(parts: Path) -> None:
    class Unsearchable(list[str]):
        def index(self, *_: object) -> int:
            raise AssertionError("one search for each image")

        def __contains__(self, _: object) -> bool:
            raise AssertionError("one search for each class")

    files, labels = _list_scored(parts / "test", parts, "test", Unsearchable(["ant", "crow", "wren"]), Problems())
    assert [file.parent.name for file in files] == ["crow", "wren"]
    assert labels == [1, 2]
