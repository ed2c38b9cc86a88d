"""Files that a device decodes, some of which nobody can: those are left out, with the reason."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from pathlib import Path

import torch
from torch import Tensor

from .device_jpeg import DeviceDecoder
from .disk import Files, StreamedImages


def read_by_device(
    paths: Sequence[Path], image_size: int, device: DeviceDecoder, groups: Sequence[range]
) -> Generator[tuple[list[int], Tensor, dict[int, str]]]:
    """Group by group of positions: those that can be read, their images (n, 3, S, S) on the device, and why not others.

    While one group is in use, the next one is read.
    """
    unreadable: dict[int, str] = {}
    files = Files(paths, image_size, "device", unreadable)
    files.device, files.decided = device, True
    images = StreamedImages.all_of(files, torch.full((len(paths),), -1, device=device.device))
    begun = [images.begin(torch.tensor(group)) for group in groups[:1]]
    try:
        for number, group in enumerate(groups):
            begun += [images.begin(torch.tensor(after)) for after in groups[number + 1 : number + 2]]
            pixels = begun.pop(0).result()
            reasons = {position: unreadable[position] for position in group if position in unreadable}
            readable = [position for position in group if position not in reasons]
            if reasons:
                pixels = pixels[[position - group.start for position in readable]]
            yield readable, pixels, reasons
    finally:  # nobody waits for what is left
        for pending in begun:
            pending.cancel()
        images.workers.close()
