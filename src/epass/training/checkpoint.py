"""Checkpoints: every tensor a run consists of, in one safetensors file with a checksum. Resume is exact."""

from __future__ import annotations

import hashlib
import json
import re
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from ..errors import InputError
from ..files import write_atomically
from ..method import Method
from ..parts.teacher import Average
from .window import NotFiniteError, Window

KEPT = 3  # the newest files that stay on disk
UNREPORTED = "unreported."
TOTAL, FINITE, SECONDS = (f"{UNREPORTED}{name}" for name in ("total", "finite", "seconds"))
TYPES = {  # in the words of safetensors
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}


@dataclass(frozen=True)
class RunState:
    """The objects whose tensors are a run's state. Everything else is a function of the recipe and the step."""

    method: Method
    average: Average
    optimizer: torch.optim.Optimizer

    def tensors(self) -> dict[str, Tensor]:
        """All state by name; the tensors themselves, so that copying into them restores it."""
        state = {f"method.{name}": tensor for name, tensor in self.method.state_dict().items()}
        state |= {f"average.{name}": tensor for name, tensor in self.average.state_dict().items()}
        for name, parameter in self.method.named_parameters():
            for key, value in self.optimizer.state.get(parameter, {}).items():
                state[f"optimizer.{name}.{key}"] = value
        return state


@dataclass
class Unreported:
    """What happened since the last report: the part of a run's state that only reports see."""

    window: Window
    seconds: float = 0.0  # training time of the whole run, where steps follow the last report

    def tensors(self) -> dict[str, Tensor]:
        if self.window.total is None or self.window.finite is None:
            return {}
        seconds = torch.tensor(self.seconds, dtype=torch.float64)
        return {TOTAL: self.window.total, FINITE: self.window.finite, SECONDS: seconds}

    def restore(self, step: int, tensors: dict[str, Tensor], device: torch.device) -> None:
        """Go on from the tensors of a checkpoint after `step` steps; with none of them, a report came last."""
        self.window.clear(step)
        self.seconds = 0.0
        if tensors:
            self.window.total = tensors[TOTAL].to(device)
            self.window.finite = tensors[FINITE].to(device)
            self.window.count = int(self.window.finite.max())  # all are equal: what is not finite is not saved
            self.window.start = step - self.window.count
            self.seconds = float(tensors[SECONDS])


def save_checkpoint(folder: Path, progress: RunState, step: int, unreported: Unreported | None = None) -> Path:
    """Write the state after `step` steps and forget all but the newest files."""
    state = progress.tensors() | (unreported.tensors() if unreported else {})
    return write_checkpoint(folder, step, {name: tensor.detach().cpu() for name, tensor in state.items()})


def write_checkpoint(folder: Path, step: int, state: Mapping[str, Tensor]) -> Path:
    """Write the tensors of a state, which are on the CPU, and forget all but the newest files."""
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {name: tensor.contiguous() for name, tensor in state.items()}
    for name, tensor in tensors.items():
        # the sums of the losses come first; a metric may be no number, and a report says so
        if not (tensor[: len(tensors[FINITE])] if name == TOTAL else tensor).isfinite().all():
            raise NotFiniteError(f"'{name}' was no longer finite at step {step}.")
    path = folder / f"step-{step:08d}.safetensors"
    write_atomically(path, *packed(tensors, {"checksum": checksum(step, tensors), "step": str(step)}))
    for old in checkpoints(folder)[KEPT:]:
        old.unlink(missing_ok=True)
    return path


def packed(tensors: Mapping[str, Tensor], facts: Mapping[str, str]) -> Iterator[bytes | memoryview]:
    """A safetensors file in pieces: the same bytes every time, and no second copy of the tensors.

    The library's `save` keeps all other threads waiting while it copies, 130 ms for 200 MB where this takes 6. Its
    `save_file` does not, but a full disk has no number there by which it is known, and several facts no order.
    """
    header: dict[str, object] = {"__metadata__": dict(facts)}
    order, end = sorted(tensors, key=lambda name: (-tensors[name].element_size(), name)), 0  # keeps all aligned
    for name in order:
        tensor, start = tensors[name], end
        end += tensor.numel() * tensor.element_size()
        header[name] = {"dtype": TYPES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [start, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    yield len(text).to_bytes(8, "little")
    yield text
    for name in order:
        yield _bytes(tensors[name])


def restore_newest(folder: Path, progress: RunState, unreported: Unreported | None = None) -> int:
    """Copy the newest intact checkpoint into `progress` and return its step; 0 if there is none.

    A damaged file is named in a warning and the one before it is used.
    """
    for path, step, tensors in intact(folder):
        rest = {name: tensors.pop(name) for name in list(tensors) if name.startswith(UNREPORTED)}
        own = progress.tensors()
        if own.keys() != tensors.keys():
            odd = sorted(own.keys() ^ tensors.keys())[0]
            raise InputError(f"{path} belongs to another model: '{odd}' is in only one of them.")
        for name, tensor in own.items():
            if tensor.shape != tensors[name].shape:
                raise InputError(f"{path} belongs to another model: '{name}' has another shape there.")
        with torch.no_grad():
            for name, tensor in own.items():
                tensor.copy_(tensors[name])
        if unreported is not None:
            unreported.restore(step, rest, next(iter(own.values())).device)
        return step
    return 0


def intact(folder: Path) -> Iterator[tuple[Path, int, dict[str, Tensor]]]:
    """The checkpoints of a folder with their steps and tensors, newest first; damaged ones are named and left out."""
    for path in checkpoints(folder):
        try:
            yield path, *read_checkpoint(path)
        except (OSError, SafetensorError, ValueError, KeyError) as problem:
            warnings.warn(f"{path} is damaged ({problem}); going back to the checkpoint before it.", stacklevel=3)


def read_checkpoint(path: Path) -> tuple[int, dict[str, Tensor]]:
    """The step and tensors of a checkpoint, its checksum verified."""
    if not path.is_file():
        raise ValueError("it is no plain file")
    with safe_open(path, framework="pt") as file:
        facts: dict[str, str] = file.metadata() or {}
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  (not a dict)
    step = int(facts["step"])
    if facts["checksum"] != checksum(step, tensors):
        raise ValueError("its checksum does not match")
    return step, tensors


def checkpoints(folder: Path) -> list[Path]:
    """The checkpoint files of a folder, newest first."""
    found = [path for path in folder.glob("step-*.safetensors") if re.fullmatch(r"step-\d{8,18}", path.stem)]
    # By number: from 100,000,000 steps on, names are longer.
    return sorted(found, key=lambda path: int(path.stem.removeprefix("step-")), reverse=True)


def checksum(step: int, tensors: dict[str, Tensor]) -> str:
    """SHA-256 over everything that counts: the step, and every tensor's name, type, shape and bytes."""
    digest = hashlib.sha256(str(step).encode())
    for name in sorted(tensors):
        digest.update(f"{name} {tensors[name].dtype} {tuple(tensors[name].shape)}".encode())
        digest.update(_bytes(tensors[name]))
    return digest.hexdigest()


def _bytes(tensor: Tensor) -> memoryview:
    return tensor.contiguous().flatten().view(torch.uint8).numpy().data
