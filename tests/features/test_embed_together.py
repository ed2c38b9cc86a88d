"""Several processes read and embed a part of the images each, and tell each other what they found."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.distributed as dist
from eyes import SIZE, Eye, extractor, pictures
from PIL import Image
from torch import Tensor
from torch.multiprocessing.spawn import spawn

from device_decoding import stand_in
from epass.data import StreamedImages, decoder_of
from epass.data.stream import decoder
from epass.data.stream.device_jpeg import Decoder
from epass.data.stream.disk import Files
from epass.errors import InputError, PeerError
from epass.features import drained, embed
from epass.machine.distributed import largest_over_ranks

pytestmark = [pytest.mark.distributed, pytest.mark.slow]

CPU, IMAGES = torch.device("cpu"), 21
UNREADABLE = 13  # an image of the second process


def work(own: int, world: int, home: Path) -> None:
    torch.set_num_threads(1)
    os.environ["EPASS_CACHE"] = str(home / "cache")
    meeting = f"file://{home}/meeting"
    dist.init_process_group("gloo", init_method=meeting, rank=own, world_size=world, timeout=timedelta(seconds=600))
    yielded = len(list(embed(pictures(IMAGES), extractor(), CPU, views=1)))
    passed, Eye.seen = Eye.seen, 0
    found = drained(embed(pictures(IMAGES), extractor(), CPU, views=1))
    again, Eye.seen = Eye.seen, 0
    os.environ["EPASS_CACHE"] = "off"
    unkept = drained(embed(pictures(IMAGES), extractor(), CPU, views=1))
    few = drained(embed(pictures(1), extractor(), CPU))
    np.savez(home / f"{own}.npz", found=found, unkept=unkept, few=few, counts=[yielded, passed, again, Eye.seen])
    (home / f"{own}.txt").write_text(what_fails(own))
    dist.barrier()
    os._exit(0)


class Rows:
    """Images on disk, one of which cannot be read."""

    images = pictures(IMAGES)
    shape = images.shape

    def read(self, position: int) -> Tensor:
        if position == UNREADABLE:
            raise InputError(f"Image {position} cannot be read.")
        return self.images.pixels[position]


def what_fails(own: int) -> str:
    """What a process says that embeds them, and asks the others after every turn whether to stop."""
    images = StreamedImages.all_of(Rows(), Rows.images.labels, 1)
    try:
        for _ in embed(images, extractor(), CPU, views=4):
            largest_over_ranks(0)
    except (InputError, PeerError) as problem:
        return f"{type(problem).__name__}: {problem}"
    finally:
        images.workers.close()
    return "nothing"


def test_two_processes_share_the_images(tmp_path: Path) -> None:
    spawn(work, (2, tmp_path), nprocs=2)
    with np.load(tmp_path / "0.npz") as first, np.load(tmp_path / "1.npz") as second:
        assert np.array_equal(first["found"], second["found"])
        whole = drained(embed(pictures(IMAGES), extractor(digest="elsewhere"), CPU, views=1))
        np.testing.assert_allclose(first["found"], whole, atol=1e-2)
        assert np.array_equal(first["unkept"], second["unkept"])
        np.testing.assert_allclose(second["unkept"], whole, atol=1e-2)
        np.testing.assert_allclose(first["few"], drained(embed(pictures(1), extractor(), CPU)), atol=1e-2)
        assert np.array_equal(first["few"], second["few"])
        (often, passed, again, unkept), (other_often, other_passed, _, other_unkept) = first["counts"], second["counts"]
    assert often == other_often, "each time they may agree to stop"
    assert passed + other_passed == 2 * IMAGES
    assert min(passed, other_passed) > 0
    assert again == 0
    assert unkept + other_unkept == 2 * IMAGES + 1, "what is not kept is shared, too"
    said = [(tmp_path / f"{own}.txt").read_text() for own in range(2)]
    assert said == ["PeerError: ", f"InputError: Image {UNREADABLE} cannot be read."], "whoever fails says why"


def with_decoders(own: int, world: int, home: Path) -> None:
    """Photos that all devices could decode; the second process has kept features of the CPU's pixels."""
    torch.set_num_threads(1)
    os.environ["EPASS_CACHE"] = str(home / f"cache-{own}")
    decoder.DECODES, decoder.find_decoder = "cpu", stand_in
    if own:
        drained(embed(photos(home, "cpu"), extractor(), CPU))
    meeting = f"file://{home}/meeting"
    dist.init_process_group("gloo", init_method=meeting, rank=own, world_size=world, timeout=timedelta(seconds=600))
    images = photos(home)
    said = [text for text in embed(images, extractor(), CPU) if isinstance(text, str)]
    if own:
        (home / "b.jpg").write_bytes(b"no photo")
    dist.barrier()
    try:
        drained(embed(photos(home), extractor(), CPU))
    except (InputError, PeerError) as problem:
        said.append(type(problem).__name__)
    (home / f"{own}.txt").write_text("\n".join([decoder_of(images), *said]))
    dist.barrier()
    os._exit(0)


def photos(home: Path, wanted: Decoder = "auto") -> StreamedImages:
    files = Files([home / f"{name}.jpg" for name in "abc"], SIZE, wanted)
    return StreamedImages.all_of(files, torch.zeros(3, dtype=torch.int64), 1)


def test_what_one_process_has_kept_decides_for_all(tmp_path: Path) -> None:
    for name, image in zip("abc", pictures(3).pixels, strict=True):
        Image.fromarray(image.permute(1, 2, 0).numpy()).save(tmp_path / f"{name}.jpg")
    spawn(with_decoders, (2, tmp_path), nprocs=2)
    told = "Images are decoded by the CPU, as those were that are kept (the decoder 'device' begins anew)."
    # Both look for features that are kept, where a photo cannot be read: they say so, and nobody waits for the other.
    assert [(tmp_path / f"{own}.txt").read_text().splitlines() for own in range(2)] == [
        ["cpu", told, "InputError"],
        ["cpu", told, "PeerError"],
    ]
