"""Which device computes, and in what precision."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import Literal

import torch

from ..errors import InputError, unknown

QUEUES, ALL_QUEUES = "CUDA_DEVICE_MAX_CONNECTIONS", "32"  # CUDA uses 8 unless the environment says otherwise


def choose_device(name: str | torch.device = "auto") -> torch.device:
    """A device by name; "auto" takes CUDA if it is there, else the CPU. Apple's GPU has to be asked for."""
    name = str(name)
    if name.partition(":")[0] in ("auto", "cuda"):
        ask_for_queues()
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    kind = name.partition(":")[0]
    if kind not in ("cpu", "cuda", "mps"):
        if kind == "gpu":
            raise InputError("Unknown device 'gpu': did you mean 'cuda' (NVIDIA) or 'mps' (Apple)?")
        raise unknown("device", name, ["auto", "cpu", "cuda", "mps"])
    if kind == "cuda" and not torch.cuda.is_available():
        raise InputError("There is no CUDA device here: use --device cpu or leave the choice to 'auto'.")
    if kind == "mps" and not torch.backends.mps.is_available():
        raise InputError("There is no MPS device here: use --device cpu or leave the choice to 'auto'.")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise InputError(f"'{name}' is not a device: write {kind}, or {kind}:0 for the first one.") from None
    if kind == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise InputError(f"There is no {name} here: the last CUDA device is cuda:{torch.cuda.device_count() - 1}.")
    return device


def ask_for_queues() -> bool:
    """Let CUDA use all queues of a GPU, unless somebody chose their number; False if it has started without.

    Streams that share a queue wait for each other's work. nvJPEG decodes on 14 streams, and so on some that waited for
    a whole training step.
    """
    if not torch.cuda.is_initialized():  # type: ignore[no-untyped-call]  # it looks only then
        os.environ.setdefault(QUEUES, ALL_QUEUES)
    return QUEUES in os.environ


def device_name(device: torch.device) -> str:
    """What the maker calls a GPU, or the processor."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    cpu, name = Path("/proc/cpuinfo"), platform.processor()
    lines = cpu.read_text().splitlines() if cpu.exists() else []
    return next((line.partition(": ")[2] for line in lines if "model name" in line), name)


def all_devices(device: torch.device) -> list[torch.device]:
    """Every visible CUDA device where none in particular was chosen, else the chosen one."""
    if device.type == "cuda" and device.index is None and torch.cuda.device_count() > 1:
        return [torch.device("cuda", index) for index in range(torch.cuda.device_count())]
    return [device]


def choose_precision(device: torch.device, wanted: Literal["auto", "float32", "bfloat16"] = "auto") -> torch.dtype:
    """What the network computes in: bfloat16 where the device is made for it, unless told otherwise."""
    if wanted == "auto":
        capable = device.type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False)
        return torch.bfloat16 if capable else torch.float32
    return torch.bfloat16 if wanted == "bfloat16" else torch.float32


def features_precision(device: torch.device) -> torch.dtype:
    """What a frozen network computes in: on a CPU, too, bfloat16 where that is twice as fast."""
    if device.type == "cpu":
        known: dict[str, object] = getattr(torch.cpu, "get_capabilities", dict)()  # which torch has since 2.10
        return torch.bfloat16 if known.get("avx512_bf16") or known.get("amx_bf16") else torch.float32
    return choose_precision(device)
