"""Several processes embed a part of the images each, and read what the others did."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.distributed as dist
from eyes import Eye, extractor, pictures
from torch.multiprocessing.spawn import spawn

from epass.features import drained, embed

pytestmark = [pytest.mark.distributed, pytest.mark.slow]

CPU, IMAGES = torch.device("cpu"), 21


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
    alone = drained(embed(pictures(IMAGES), extractor(), CPU, views=1))
    np.savez(home / f"{own}.npz", found=found, alone=alone, counts=[yielded, passed, again, Eye.seen])
    dist.barrier()
    os._exit(0)


def test_two_processes_share_the_images(tmp_path: Path) -> None:
    spawn(work, (2, tmp_path), nprocs=2)
    with np.load(tmp_path / "0.npz") as first, np.load(tmp_path / "1.npz") as second:
        assert np.array_equal(first["found"], second["found"])
        whole = drained(embed(pictures(IMAGES), extractor(digest="elsewhere"), CPU, views=1))
        np.testing.assert_allclose(first["found"], whole, atol=1e-2)
        np.testing.assert_allclose(second["alone"], whole, atol=1e-2)
        (often, passed, again, all_of_it), (other_often, other_passed, *_) = first["counts"], second["counts"]
    assert often == other_often, "each time they may agree to stop"
    assert passed + other_passed == 2 * IMAGES
    assert min(passed, other_passed) > 0
    assert again == 0
    assert all_of_it == 2 * IMAGES, "where nothing is kept, nothing can be shared"
