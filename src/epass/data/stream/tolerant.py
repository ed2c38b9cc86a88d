"""Files that a device decodes, some of which nobody can: those are left out, with the reason."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import closing
from pathlib import Path

import torch
from torch import Tensor

from .device_jpeg import DeviceDecoder
from .disk import Files, StreamedImages


def read_by_device(
    paths: Sequence[Path], image_size: int, device: DeviceDecoder, groups: Sequence[range]
) -> Generator[tuple[list[int], Tensor, dict[int, str]]]:
    """Group by group: the positions that can be read, their images (n, 3, S, S) on the device, and why not others."""
    unreadable: dict[int, str] = {}
    files = Files(paths, image_size, "device", unreadable)
    files.device, files.decided = device, True
    images = StreamedImages.all_of(files, torch.full((len(paths),), -1, device=device.device))
    try:
        with closing(images.groups([torch.tensor(group) for group in groups])) as taken:
            for group, pixels in zip(groups, taken, strict=True):
                reasons = {position: unreadable[position] for position in group if position in unreadable}
                readable = [position for position in group if position not in reasons]
                kept = pixels[[position - group.start for position in readable]] if reasons else pixels
                yield readable, kept, reasons
    finally:
        images.workers.close()
