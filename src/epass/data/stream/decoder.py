"""Who decodes the files of streamed images: the CPU or, if these are JPEG files for a CUDA device, that device."""

from __future__ import annotations

from collections.abc import Callable

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
DECODES = "cuda"  # the kind of device that does


def decide(images: ImageSource, device: torch.device, kept: Callable[[], int] = lambda: 0) -> str:
    """Decide who decodes images that are for `device`, and all others out of the same files; says what to tell of it.

    What was decided before stays, so that no image of a run is decoded in two ways. Of several processes all call this.

    Args:
        images: Those of a data set.
        device: What they are for.
        kept: Of how many of them there is something that was made of the pixels that they have now. If the CPU's are
            more than the device's, it goes on decoding, unless the device is wanted.
    """
    files = _files_of(images)
    if files is None or files.decided:
        return ""
    found, sentence = choose(files.wanted, device)
    files.decided = device.type == DECODES or found is not None  # elsewhere there was nothing to decide
    if found is None:
        return sentence
    by_cpu = kept() if files.wanted == "auto" else 0
    files.device = found
    if largest_over_ranks(by_cpu) and largest_over_ranks(by_cpu > kept()):
        files.device = None
        return "Images are decoded by the CPU, as those were that are kept (the decoder 'device' begins anew)."
    return sentence


def choose(wanted: Decoder, device: torch.device) -> tuple[DeviceDecoder | None, str]:
    """What decodes JPEG files for `device`, if not the CPU, and what to tell of it; all processes call it."""
    if wanted != DEVICE and device.type != DECODES:
        return None, ""
    in_time = ask_for_queues()
    found = find_decoder(device) if wanted != CPU else ""
    if largest_over_ranks(isinstance(found, str)) and isinstance(found, DeviceDecoder):
        found = "another process cannot"
    if isinstance(found, DeviceDecoder):
        said = (
            "JPEG files are decoded on the GPU, to pixels that differ a little from those of the CPU "
            "(the decoder 'cpu' avoids that)."
        )
        late = f" CUDA had started before, so steps may wait for them: set {QUEUES}={ALL_QUEUES} to avoid that."
        return found, said if in_time else said + late
    if wanted == DEVICE:
        raise InputError(
            f"JPEG files cannot be decoded on this device ({found}): use a machine where they can, or begin with the "
            "decoder 'cpu'."
        )
    return None, f"Images are decoded by the CPU, since the GPU cannot ({found})." if found else ""


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
