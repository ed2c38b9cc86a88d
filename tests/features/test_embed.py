"""Images to features: each computed once, whatever happens in between, and never mistaken for those of another way."""

from __future__ import annotations

import os
import shutil
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path

import numpy as np
import PIL
import pytest
import torch
from eyes import SIZE, Eye, extractor, pictured, pictures
from PIL import Image
from torch import Tensor, nn

from epass.augment import normalize
from epass.data import EnlargedImages, Images, StreamedImages, Vectors, concatenate, from_arrays
from epass.data.stream.disk import Files
from epass.errors import InputError
from epass.extensions import trust
from epass.features import Extractor, drained, embed, embed_dataset, in_color, make_extractor
from epass.networks import NETWORKS, FromImages

module = sys.modules["epass.features.embed"]  # whose name is that of its function
CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def _small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(module.TOGETHER, "cpu", 2)
    monkeypatch.setattr(module, "features_precision", lambda _: torch.float32)
    monkeypatch.setattr(Eye, "seen", 0)


@pytest.fixture
def named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(NETWORKS, "eye", Eye)


def computed(images: Images, eye: Extractor | None = None, **settings: int) -> tuple[Tensor, int]:
    """The features of images, and how many views passed the network for them."""
    before = Eye.seen
    found = drained(embed(images, eye or extractor(), CPU, **settings))
    return found, Eye.seen - before


# --- What features are -----------------------------------------------------------------------------------------------


def test_the_plain_view_is_what_the_whole_network_computes() -> None:
    images, eye = pictures(7), extractor()
    found, _ = computed(images)
    assert found.shape == (7, 1, 20)
    assert found.dtype == torch.float16
    mean, std = [0.1 * number for number in range(20)], [1.0 + number for number in range(20)]
    whole = FromImages(eye.net, mean, std, Passing())
    with torch.no_grad():
        wanted = whole(normalize(images.pixels, torch.tensor(eye.mean), torch.tensor(eye.std)))
    torch.testing.assert_close((found[:, 0].float() - whole.mean) / whole.std, wanted, rtol=1e-2, atol=1e-2)
    assert found.float().std(0).max() > 0.05


class Passing(nn.Module):
    """A classifier that hands on what it gets."""

    num_features = 20

    def forward(self, features: Tensor) -> Tensor:
        return features


def test_views_are_features_of_the_views_that_are_drawn() -> None:
    images, eye = pictures(3), extractor()
    found, passed = computed(images, views=2, seed=5)
    assert found.shape == (3, 4, 20)
    assert passed == 12
    content = images.pixels[1].numpy()
    drawn = module.make_views(content.transpose(1, 2, 0), module.key_of(content.tobytes(), images.shape), 2, 5)
    pixels = torch.from_numpy(drawn).permute(0, 3, 1, 2)
    with torch.no_grad():
        wanted = eye.net(normalize(pixels, torch.tensor(eye.mean), torch.tensor(eye.std)))
    torch.testing.assert_close(found[1].float(), wanted, rtol=1e-2, atol=1e-2)


def test_nothing_is_no_images() -> None:
    found, passed = computed(pictures(4).select(torch.arange(0)), views=2)
    assert (tuple(found.shape), passed) == ((0, 4, 20), 0)


# --- What is computed ------------------------------------------------------------------------------------------------


def test_features_that_earlier_versions_kept_are_found() -> None:
    # The layers and weights; whatever changes this number has everybody's features computed again.
    assert make_extractor().digest.startswith("034146d91c5db558")


def test_what_was_computed_is_not_computed_again() -> None:
    images = pictures(8)
    first, passed = computed(images, views=1)
    again, nothing = computed(images, views=1)
    assert (passed, nothing) == (16, 0)
    assert torch.equal(first, again)


def test_ten_more_images_are_ten_images() -> None:
    few, more = pictures(8), pictures(10, seed=1)
    first, _ = computed(few)
    both, passed = computed(concatenate(more, few))
    assert passed == 10
    assert torch.equal(both[10:], first)


def test_equal_images_are_computed_once() -> None:
    images = pictures(4)
    found, passed = computed(images.select(torch.tensor([0, 1, 0, 0, 2])))
    assert passed == 3
    assert torch.equal(found[0], found[2])
    assert torch.equal(found[0], found[3])
    assert not torch.equal(found[0], found[1])


def test_progress_counts_images_that_are_known_and_equal_ones_too() -> None:
    images = pictures(6)
    computed(images.select(torch.arange(2)))
    steps = list(embed(images.select(torch.tensor([0, 1, 2, 3, 4, 5, 5])), extractor(), CPU))
    assert steps == [2, 4, 6, 7]


def test_images_that_are_new_among_known_ones_pass_the_network_together(monkeypatch: pytest.MonkeyPatch) -> None:
    images, known, together = pictures(12), torch.tensor([0, 2, 3, 5, 6, 8, 9]), []
    computed(images.select(known))
    forward = Eye.forward
    monkeypatch.setattr(Eye, "forward", lambda self, views: together.append(len(views)) or forward(self, views))
    found, passed = computed(images)
    assert (together, passed) == ([2, 2, 1], 5)
    assert torch.equal(found, computed(images, extractor(digest="alone"))[0])


def test_batches_beside_each_other_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    images = pictures(9).select(torch.tensor([0, 1, 0, 2, 3, 3, 1, 4, 5, 6, 7, 8, 5]))
    whole, total = computed(images, extractor(digest="one by one"))
    monkeypatch.setattr(module, "AHEAD", {"cpu": 2})
    turns, both, alone, forward = count(), threading.Barrier(2), threading.Lock(), Eye.forward

    def beside(self: Eye, views: Tensor) -> Tensor:
        if next(turns) < 2:
            both.wait(60)  # the first one for the second
        with alone:  # it counts
            return forward(self, views)

    monkeypatch.setattr(Eye, "forward", beside)
    found, passed = computed(images)
    assert passed == total
    assert torch.equal(found, whole)
    steps = list(embed(images, extractor(digest="again"), CPU))
    assert steps == sorted(steps)
    assert (steps[0] < 2, steps[-1]) == (True, len(images))
    with pytest.raises(InputError, match="not finite"):
        computed(images, replace(extractor(gain=float("nan")), std=(0.01,) * 3))


@pytest.mark.parametrize("views", [0, 1])
def test_what_is_closed_in_the_middle_loses_nothing(views: int) -> None:
    images = pictures(9)
    whole, total = computed(images, extractor(digest="undisturbed"), views=views)
    passing, before = embed(images, extractor(), CPU, views=views), Eye.seen
    next(passing)
    next(passing)
    passing.close()
    done = Eye.seen - before
    assert 0 < done < total
    found, passed = computed(images, views=views)
    assert done + passed == total
    assert torch.equal(found, whole)


def test_what_is_killed_leaves_what_was_written_so_far(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("epass.features.store.SEGMENT_SECONDS", 0.0)
    images = pictures(9)
    passing = embed(images, extractor(), CPU)
    next(passing)
    next(passing)
    shutil.copytree(os.environ["EPASS_CACHE"], tmp_path / "left")  # what a process that ends here has on disk
    done = Eye.seen
    whole = drained(passing)
    monkeypatch.setenv("EPASS_CACHE", str(tmp_path / "left"))
    found, passed = computed(images)
    assert done + passed == 9
    assert torch.equal(found, whole)


def test_a_damaged_segment_is_computed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("epass.features.store.SEGMENT_SECONDS", 0.0)
    images = pictures(6)
    whole, _ = computed(images)
    first, *_ = sorted(Path(os.environ["EPASS_CACHE"]).glob("features-*/*.npy"))
    first.write_bytes(first.read_bytes()[:-1])
    found, passed = computed(images)
    assert passed == 2
    assert torch.equal(found, whole)


def test_without_a_cache_everything_is_computed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EPASS_CACHE", "off")
    (first, _), (again, passed) = computed(pictures(4)), computed(pictures(4))
    assert passed == 4
    assert torch.equal(first, again)


def test_an_image_on_disk_has_the_features_of_one_in_memory(tmp_path: Path) -> None:
    images = pictures(7)
    for number, pixels in enumerate(images.pixels):
        Image.fromarray(pixels.permute(1, 2, 0).numpy()).save(tmp_path / f"{number}.png")
    streamed = StreamedImages.all_of(Files(sorted(tmp_path.glob("*.png")), SIZE), images.labels, 2)
    try:
        wanted, _ = computed(images, extractor(digest="in memory"), views=1)
        found, passed = computed(streamed, views=1)
    finally:
        streamed.workers.close()
    assert passed == 14
    assert torch.equal(found, wanted)


@pytest.mark.parametrize("views", [0, 1])
def test_an_image_on_disk_is_read_once_and_only_few_are_ahead(tmp_path: Path, views: int) -> None:
    rows = Counted(pictures(300))
    streamed = StreamedImages.all_of(rows, rows.images.labels, 2)
    try:
        passing = embed(streamed, extractor(), CPU, views=views)
        next(passing)
        assert max(rows.read_at) < 200
        found = drained(passing)
    finally:
        streamed.workers.close()
    assert rows.read_at == dict.fromkeys(range(300), 1)
    assert torch.equal(found, computed(rows.images, extractor(digest="in memory"), views=views)[0])


class Counted:
    """Rows that remember how often each was read."""

    def __init__(self, images: Images) -> None:
        self.images, self.shape = images, images.shape
        self.read_at: dict[int, int] = {}

    def read(self, position: int) -> Tensor:
        self.read_at[position] = self.read_at.get(position, 0) + 1
        return self.images.pixels[position]


# --- What features depend on -----------------------------------------------------------------------------------------

SHAPE = (3, SIZE, SIZE)


def digest(eye: Extractor | None = None, *, shape: tuple[int, ...] = SHAPE, views: int = 2, seed: int = 0) -> str:
    return module.digest_of(eye or extractor(), shape, views, seed, torch.float32)


CHANGES: dict[str, Callable[[pytest.MonkeyPatch], str]] = {
    "network": lambda _: digest(extractor(name="other")),
    "weights": lambda _: digest(extractor(digest="other")),
    "mean": lambda _: digest(replace(extractor(), mean=(0.5, 0.4, 0.31))),
    "deviation": lambda _: digest(replace(extractor(), std=(0.2, 0.3, 0.41))),
    "image size": lambda _: digest(shape=(3, SIZE, SIZE + 1)),
    "number of views": lambda _: digest(views=3),
    "no views": lambda _: digest(views=0),
    "seed": lambda _: digest(seed=1),
    "precision": lambda _: module.digest_of(extractor(), SHAPE, 2, 0, torch.bfloat16),
    "Pillow": lambda patch: (patch.setattr(PIL, "__version__", "0.0"), digest())[1],
    "the way views are made": lambda patch: (patch.setattr(module, "VIEWS", module.VIEWS + 1), digest())[1],
}


@pytest.mark.parametrize("change", CHANGES)
def test_the_digest_changes_with(change: str, monkeypatch: pytest.MonkeyPatch) -> None:
    known = digest()
    assert known == digest()
    assert CHANGES[change](monkeypatch) != known


def test_the_plain_view_depends_on_no_draw(monkeypatch: pytest.MonkeyPatch) -> None:
    known = digest(views=0)
    monkeypatch.setattr(PIL, "__version__", "0.0")
    assert digest(views=0, seed=1) == known


@pytest.mark.usefixtures("named")
def test_the_digest_of_a_network_is_that_of_its_layers_and_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = make_extractor(net="eye")
    assert known.digest == make_extractor(net="eye", views=5, seed=3).digest
    state = Eye().state_dict()
    state["body.0.weight"][0, 0, 0, 0] += 1e-6
    torch.save(state, tmp_path / "other.pth")
    assert make_extractor(net="eye", weights=str(tmp_path / "other.pth")).digest != known.digest

    def strided(published: bool = False, *, in_channels: int = 3) -> Eye:
        net = Eye(in_channels=in_channels)
        net.body[0].stride = (2, 2)
        return net

    monkeypatch.setitem(NETWORKS, "eye", strided)
    assert make_extractor(net="eye").digest != known.digest


OWN = """
import torch

class Own(torch.nn.Module):
    num_features = 1

    def __init__(self, published=False, *, in_channels=3):
        super().__init__()

    def forward(self, images):
        return {}
"""


def test_the_digest_of_your_own_network_changes_with_its_code(tmp_path: Path) -> None:
    file, found = tmp_path / "own.py", []
    trust(f"{file}:Own")
    for value in ("images.mean((1, 2, 3))[:, None]", "images.amax((1, 2, 3))[:, None]"):
        file.write_text(OWN.format(value))
        found.append(make_extractor(net=f"{file}:Own"))
        (name,) = (name for name in sys.modules if name.startswith("own_"))
        del sys.modules[name]
    assert found[0].digest != found[1].digest
    assert found[0].mean == module.IMAGENET_MEAN  # which a network without a scale of its own gets
    first, second = (computed_by(eye) for eye in found)
    assert not torch.equal(first, second)


def computed_by(eye: Extractor) -> Tensor:
    return drained(embed(pictures(3), eye, CPU))


# --- What is refused -------------------------------------------------------------------------------------------------


def test_gray_images_are_refused() -> None:
    with pytest.raises(InputError, match=r"^'eye' takes color images, and these have 1 channel\(s\)\.$"):
        computed(pictures(3, channels=1))


@pytest.mark.parametrize("gain", [float("nan"), 3e38], ids=["none", "too large"])
def test_features_that_are_not_finite_are_refused(gain: float) -> None:
    with pytest.raises(InputError, match=r"^'eye' returns numbers that are not finite: use other weights\.$"):
        computed(pictures(3), replace(extractor(gain=gain), std=(0.01,) * 3))
    assert list(Path(os.environ["EPASS_CACHE"]).iterdir()) == []


def test_features_beyond_half_precision_are_cut() -> None:
    found, _ = computed(pictures(3), extractor(gain=1e7))
    assert found.isfinite().all()
    assert found.max() == torch.finfo(torch.float16).max


@pytest.mark.parametrize(
    ("net", "words"),
    [
        ("mlp", r"^'mlp' makes no features of images: use efficientnet-lite0 \(features\.net\)\.$"),
        (
            "small",
            r"^'small' comes without published weights: use efficientnet-lite0, or set features\.weights to a file",
        ),
        ("efficientnet-lite9", r"Unknown network 'efficientnet-lite9': did you mean 'efficientnet-lite"),
    ],
)
def test_a_network_without_features_is_refused(net: str, words: str) -> None:
    with pytest.raises(InputError, match=words):
        make_extractor(net=net)


def test_a_mistake_in_a_network_of_ones_own_is_not_taken_for_missing_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(published: bool = False, *, in_channels: int = 3) -> nn.Module:
        raise TypeError("a mistake")

    monkeypatch.setitem(NETWORKS, "broken", broken)
    with pytest.raises(TypeError, match="a mistake"):
        make_extractor(net="broken")


def test_images_of_a_size_that_the_network_cannot_take_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def check(height: int, width: int) -> None:
        raise InputError(f"Not {height} x {width} pixels.")

    monkeypatch.setattr(Eye, "check_images", staticmethod(check), raising=False)
    with pytest.raises(InputError, match="Not 12 x 12 pixels"):
        computed(pictures(2))


# --- A whole data set ------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("named")
def test_a_data_set_of_images_becomes_one_of_vectors() -> None:
    images = pictured()
    steps, passing = [], embed_dataset(images, {"net": "eye", "views": 2}, CPU)
    found = drained(_noted(passing, steps))
    assert isinstance(found.train, Vectors)
    assert isinstance(found.test, Vectors)
    assert tuple(found.train.views.shape) == (24, 5, 20)
    assert tuple(found.test.views.shape) == (9, 1, 20)
    assert torch.equal(found.train.labels, images.train.labels)
    assert torch.equal(found.train.look(torch.tensor([3, 1])), images.train.pixels[[3, 1]])
    plain = found.train.pixels.double()
    torch.testing.assert_close(torch.tensor(found.mean, dtype=torch.float64), plain.mean(0))
    torch.testing.assert_close(torch.tensor(found.std, dtype=torch.float64), plain.std(0, correction=0))
    assert found.augment["views"] == 2
    assert {total for _, total in steps} == {24 + 9 + 4 * 24}
    done = [count for count, _ in steps]
    assert done == sorted(done)
    assert done[-1] == 24 + 9 + 4 * 24
    assert Eye.seen == 24 + 9 + 4 * 24
    assert drained(embed_dataset(found, {"net": "eye"}, CPU)) is found


def _noted(passing: Iterator[tuple[int, int]], steps: list[tuple[int, int]]) -> Iterator[None]:
    while True:
        try:
            steps.append(next(passing))
        except StopIteration as end:
            return end.value
        yield


@pytest.mark.usefixtures("named")
def test_plain_views_come_first_and_are_not_computed_again() -> None:
    images = pictured(test=None)
    plain = drained(embed_dataset(images, {"net": "eye", "views": 1}, CPU, plain_only=True))
    assert plain.test is None
    assert tuple(plain.train.views.shape) == (24, 1, 20)
    assert Eye.seen == 24
    whole = drained(embed_dataset(images, {"net": "eye", "views": 1}, CPU))
    assert Eye.seen == 24 + 48
    assert torch.equal(whole.train.pixels, plain.train.pixels)
    assert whole.mean == plain.mean
    assert np.isfinite(whole.std).all()


def test_gray_images_that_are_enlarged_stay_small_in_color() -> None:
    dataset = from_arrays(np.arange(4 * 64, dtype=np.uint8).reshape(4, 8, 8), [0, 1, 0, 1], image_size=16)
    train = in_color(dataset).train
    assert isinstance(train, EnlargedImages)
    assert train.shape == (3, 16, 16)
    assert torch.equal(train.pixels, dataset.train.pixels.expand(-1, 3, -1, -1))
