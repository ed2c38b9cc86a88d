"""Who decodes the files of streamed images: the CPU or, if these are JPEG files for a CUDA device, that device."""

from __future__ import annotations

import torch

from ...errors import InputError
from ...machine.device import ALL_QUEUES, QUEUES, ask_for_queues
from ...machine.distributed import largest_over_ranks
from ..dataset import Dataset
from ..images import ImageSource
from ..vectors import Vectors
from .device_jpeg import Decoder, DeviceDecoder, find_decoder
from .disk import Files, StreamedImages

CPU, DEVICE = "cpu", "device"  # as a run records it


def decide(images: ImageSource, device: torch.device) -> str:
    """Decide who decodes images that are for `device`, and all others out of the same files; says what to tell of it.

    What was decided before stays, so that no image of a run is decoded in two ways. Of several processes all call this.
    """
    files = _files_of(images)
    if files is None or files.decided or (files.wanted != DEVICE and device.type != "cuda"):
        return ""
    in_time = ask_for_queues()
    found = find_decoder(device) if files.wanted != CPU else ""
    if largest_over_ranks(isinstance(found, str)) and isinstance(found, DeviceDecoder):
        found = "another process cannot"
    if isinstance(found, str) and files.wanted == DEVICE:
        raise InputError(
            f"JPEG files cannot be decoded on this device ({found}): use a machine where they can, or begin a run with "
            "data.decoder=cpu."
        )
    files.decided = True
    if isinstance(found, DeviceDecoder):
        files.device = found
        said = (
            "JPEG files are decoded on the GPU, to pixels that differ a little from those of the CPU "
            "(data.decoder=cpu avoids that)."
        )
        late = f" CUDA had started before, so steps may wait for them: set {QUEUES}={ALL_QUEUES} to avoid that."
        return said if in_time else said + late
    return f"Images are decoded by the CPU, since the GPU cannot ({found})." if found else ""


def ask_for(dataset: Dataset, wanted: Decoder) -> Dataset:
    """The same data set, just opened, whose files are to be decoded so."""
    files = _files_of(dataset.train)
    if files is not None:
        files.wanted = wanted
    elif wanted == DEVICE:
        raise InputError(
            f"The images of '{dataset.name}' are not streamed from their files, and only such are decoded on the "
            "device: add --stream, or leave data.decoder out."
        )
    return dataset


def decoder_of(images: ImageSource) -> str:
    """Who decodes these images, or those that vectors were made of, as far as it is decided."""
    files = _files_of(images)
    return CPU if files is None or files.device is None else DEVICE


def _files_of(images: ImageSource | None) -> Files | None:
    if isinstance(images, Vectors):
        return _files_of(images.pictures)
    return images.rows if isinstance(images, StreamedImages) and isinstance(images.rows, Files) else None
