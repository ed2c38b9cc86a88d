import numpy as np
import pytest
import torch
from PIL import Image

from epass.data import EnlargedImages, Images, concatenate, from_arrays
from epass.data.dataset import channel_statistics
from epass.data.read.resize import resize


def images(*labels: int) -> Images:
    return Images(torch.arange(len(labels) * 12, dtype=torch.uint8).reshape(-1, 3, 2, 2), torch.tensor(labels))


def test_take_and_select_follow_the_index() -> None:
    three = images(5, 6, 7)
    index = torch.tensor([2, 0, 2])
    assert torch.equal(three.take(index), three.pixels[index])
    chosen = three.select(index)
    assert len(three) == len(chosen) == 3
    assert torch.equal(chosen.pixels, three.pixels[index])
    assert chosen.labels.tolist() == [7, 5, 7]


def test_to_moves_pixels_and_labels() -> None:
    moved = images(1, 2).to("meta")
    assert moved.pixels.device.type == moved.labels.device.type == "meta"


def test_join_keeps_the_order() -> None:
    first, second = images(1, 2), images(3)
    both = concatenate(first, second)
    assert both.labels.tolist() == [1, 2, 3]
    assert torch.equal(both.pixels, torch.cat([first.pixels, second.pixels]))
    empty = first.select(torch.empty(0, dtype=torch.int64))
    assert concatenate(first, empty) is first
    assert concatenate(empty, second) is second


def test_statistics_are_those_of_the_pixels_across_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("epass.data.dataset._CHUNK", 3)
    pixels = torch.randint(0, 256, (10, 3, 5, 4), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    mean, std = channel_statistics(pixels)
    values = pixels.double().transpose(0, 1).flatten(1) / 255
    assert mean == pytest.approx(values.mean(1).tolist(), abs=1e-12)
    assert std == pytest.approx(values.std(1, correction=0).tolist(), abs=1e-12)


def test_statistics_of_constant_images_do_not_divide_by_zero() -> None:
    mean, std = channel_statistics(torch.full((2, 1, 3, 3), 51, dtype=torch.uint8))
    assert mean == pytest.approx([0.2])
    assert std == (1 / 255,)


def test_resize_cuts_the_middle_and_averages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("epass.data.read.resize._CHUNK", 2)
    wide = torch.zeros(5, 1, 16, 32, dtype=torch.uint8)
    wide[..., 8:24] = torch.tensor([10, 20, 30, 40, 50], dtype=torch.uint8)[:, None, None, None]
    small = resize(wide, 8)
    assert small.shape == (5, 1, 8, 8)
    assert small.dtype == torch.uint8
    assert small[:, 0].flatten(1).unique(dim=1).flatten().tolist() == [10, 20, 30, 40, 50]
    assert torch.equal(resize(wide, 16), wide[..., 8:24])


@pytest.mark.parametrize("size", [10, 50])
def test_resize_does_what_pillow_does(size: int) -> None:
    pixels = torch.randint(0, 256, (1, 1, 30, 30), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    ours = resize(pixels, size)[0, 0].numpy().astype(int)
    theirs = Image.fromarray(pixels[0, 0].numpy()).resize((size, size), Image.Resampling.BILINEAR)
    difference = ours - np.asarray(theirs)
    assert abs(difference).max() <= 1
    assert abs(difference.mean()) < 0.1, "levels are rounded, not cut off"


def test_resize_refuses_tiny_sizes(refused) -> None:
    with refused("image size of 7", "use 8 or more"):
        resize(torch.zeros(1, 1, 9, 9, dtype=torch.uint8), 7)


def test_enlarged_images_are_kept_small_and_are_the_same() -> None:
    generator = torch.Generator().manual_seed(0)
    pixels = torch.randint(0, 256, (40, 10, 9), dtype=torch.uint8, generator=generator).numpy()
    dataset = from_arrays(pixels[:30], [0, 1] * 15, pixels[30:], [0, 1] * 5, image_size=32)
    train, whole = dataset.train, resize(torch.from_numpy(pixels[:30])[:, None], 32)
    assert isinstance(train, EnlargedImages)
    assert train.small.pixels.shape == (30, 1, 9, 9)
    assert (len(train), train.shape) == (30, (1, 32, 32))
    assert (dataset.mean, dataset.std) == channel_statistics(whole)
    assert torch.equal(train.pixels, whole)
    assert torch.equal(torch.cat(list(train.chunks(7))), whole)
    index = torch.tensor([3, 29, 3])
    some = train.select(index)
    assert isinstance(some, EnlargedImages)
    for taken in (train.take(index), train.look(index), some.pixels, train.to("cpu").take(index)):
        assert torch.equal(taken, whole[index])
    assert some.labels.tolist() == [1, 1, 1]
    assert train.labeled(train.labels + 5).labels.tolist() == [5, 6] * 15
    both = some.joined(train)
    assert isinstance(both, EnlargedImages)
    assert torch.equal(both.pixels, torch.cat([whole[index], whole]))
    stored = Images(whole, train.labels)
    for joined in (train.joined(stored), stored.joined(train)):
        assert isinstance(joined, Images)
        assert torch.equal(joined.pixels, torch.cat([whole, whole]))
    elsewhere = train.to("meta")
    assert isinstance(elsewhere, Images)
    assert elsewhere.shape == train.shape


def test_images_that_become_smaller_are_stored_so() -> None:
    dataset = from_arrays(np.zeros((4, 12, 12), np.uint8), [0, 1, 0, 1], image_size=8)
    assert isinstance(dataset.train, Images)
    assert dataset.train.shape == (1, 8, 8)
