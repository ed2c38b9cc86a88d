"""A trained network as files that other programs run: torch.export and ONNX, and whether these compute the same."""

from __future__ import annotations

import io
import json
import logging
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram

from ..augment import normalize
from ..errors import InputError
from ..evaluation.calibrated import Calibration
from ..files import write_atomically
from ..runs.exported import ONNX, PROGRAM, as_text
from .answer_onnx import FACTS, KNOWN

OUTPUTS = ("logits", "probabilities", "features")
LARGEST_DIFFERENCE = 1e-4  # to PyTorch, of an output, in parts of its largest number or of one
Arrays = Sequence[NDArray[Any]]


class Deployed(nn.Module):
    """Pixels in, answers out: all that lies between an image and its probabilities, as one graph.

    Args:
        net: The trained network.
        model: What model.json says about it.
        raw: Leave normalization and temperature out: what comes in is normalized.
        any_size: Take images of any size, whose central square is scaled to that of the network.
    """

    mean: Tensor
    std: Tensor

    def __init__(self, net: nn.Module, model: Mapping[str, Any], *, raw: bool = False, any_size: bool = False) -> None:
        super().__init__()
        self.net, self.raw = net, raw
        self.side: int | None = model["height"] if any_size else None
        self.temperature = 1.0 if raw else Calibration.from_json(model.get("calibration")).temperature
        self.register_buffer("mean", torch.tensor(model["mean"], dtype=torch.float32))
        self.register_buffer("std", torch.tensor(model["std"], dtype=torch.float32))

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        if self.side is not None:
            images = scaled(images, self.side)
        if not self.raw:
            images = normalize(images, self.mean, self.std)
        logits, features = self.net(images)
        return logits, (logits / self.temperature).softmax(1), features


def scaled(images: Tensor, side: int) -> Tensor:
    """The central squares of uint8 images of any size, scaled to `side` as Pillow does (bilinear, antialiased).

    Torch's own `interpolate` knows nothing of the pixels around the square, and rounds once where Pillow rounds twice:
    the answers of a network then move by several hundredths.
    """
    height, width = images.shape[2], images.shape[3]
    shorter = torch.sym_min(height, width)  # type: ignore[no-untyped-call]
    across = _shares(width, (width - shorter) // 2, shorter, side)
    down = _shares(height, (height - shorter) // 2, shorter, side)
    rows = torch.floor(images.float() @ across.T + 0.5)
    return torch.floor(down @ rows + 0.5)


def _shares(size: int, start: int, length: int, side: int) -> Tensor:
    """(side, size) what each of `size` pixels in a line gives to each of `side` new ones between start and length."""
    scale = torch.full((1,), length, dtype=torch.float64) / side
    centers = torch.full((1,), start, dtype=torch.float64) + (torch.arange(side, dtype=torch.float64) + 0.5) * scale
    places = torch.arange(size, dtype=torch.float64) + 0.5
    near = (1 - (places[None] - centers[:, None]).abs() / scale.clamp(min=1)).clamp(min=0)
    return (near / near.sum(1, keepdim=True)).float()


def write_graphs(
    folder: Path, deployed: Deployed, facts: Mapping[str, Any], known: NDArray[Any] | None, pixels: NDArray[Any]
) -> dict[str, float]:
    """The graphs, and by how much each differs from PyTorch on the images, of which the first also comes alone."""
    given = torch.from_numpy(pixels)
    if deployed.raw:
        given = normalize(given, deployed.mean, deployed.std)
    program = as_program(deployed, given[:2] if len(given) > 1 else torch.cat([given, given]))
    written: dict[str, Callable[[NDArray[Any]], Arrays]] = {}
    if "torch" in facts["export"]["formats"]:
        write_atomically(folder / PROGRAM, program_bytes(program))
        written["torch.export"] = run_program(folder / PROGRAM)
    if "onnx" in facts["export"]["formats"]:
        name = "vectors" if "numbers" in facts else "images"
        write_atomically(folder / ONNX, onnx_bytes(program, name, facts, known))
        written["ONNX"] = run_onnx(folder / ONNX)
    batches = [given[:1].numpy(), given.numpy()]
    wanted = [run_eagerly(deployed, batch) for batch in batches]
    return {
        name: max(largest_difference(said, answer(batch)) for batch, said in zip(batches, wanted, strict=True))
        for name, answer in written.items()
    }


def as_program(deployed: Deployed, images: Tensor) -> ExportedProgram:
    """The graph, with any number of images; `images` are two or more to follow through it."""
    free: dict[int, Any] = {0: Dim("batch", min=1)}
    if deployed.side is not None:
        free |= {2: Dim("height", min=8), 3: Dim("width", min=8)}
    try:
        with _quiet():
            return torch.export.export(deployed.eval(), (images,), dynamic_shapes=(free,))
    except Exception as problem:  # networks of one's own can do anything
        reason = str(problem).strip().partition("\n")[0].rstrip(".")
        raise InputError(
            f"torch.export cannot follow this network ({reason}): export its weights alone, with --formats safetensors."
        ) from None


def program_bytes(program: ExportedProgram) -> bytes:
    """The content of a .pt2 file."""
    stream = io.BytesIO()
    with _quiet():
        torch.export.save(program, stream)
    return stream.getvalue()


def onnx_bytes(program: ExportedProgram, name: str, facts: Mapping[str, Any], known: NDArray[Any] | None) -> bytes:
    """The content of an .onnx file whose input is called `name`, with all that is known of the model inside."""
    with _quiet():
        made = torch.onnx.export(
            program, input_names=[name], output_names=list(OUTPUTS), dynamo=True, external_data=False, verbose=False
        )
    assert made is not None
    model = made.model_proto
    free = {0: "batch", 2: "height", 3: "width"}
    for value in (*model.graph.input, *model.graph.output):
        for axis, size in enumerate(value.type.tensor_type.shape.dim):
            if size.dim_param:
                size.dim_param = free[axis]
    stored = {FACTS: json.dumps(facts, ensure_ascii=False)} | ({} if known is None else {KNOWN: as_text(known)})
    for key, text in stored.items():
        model.metadata_props.add(key=key, value=text)
    return bytes(model.SerializeToString())


@contextmanager
def _quiet() -> Iterator[None]:
    """Exporters tell what they do, and what of themselves is deprecated: nothing that anybody here can change."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(action="ignore"):
            yield
    finally:
        logging.disable(before)


def run_eagerly(deployed: Deployed, images: NDArray[Any]) -> Arrays:
    """What PyTorch itself computes."""
    with torch.no_grad():
        return [output.numpy() for output in deployed(torch.from_numpy(images))]


def run_program(path: Path) -> Callable[[NDArray[Any]], Arrays]:
    """What a .pt2 file computes."""
    with _quiet():
        module = torch.export.load(path).module()

    def answer(images: NDArray[Any]) -> Arrays:
        with torch.no_grad():
            return [output.numpy() for output in module(torch.from_numpy(images))]

    return answer


def run_onnx(path: Path) -> Callable[[NDArray[Any]], Arrays]:
    """What an .onnx file computes."""
    import onnxruntime

    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    (given,) = session.get_inputs()
    return lambda images: session.run(list(OUTPUTS), {given.name: images})


def largest_difference(wanted: Arrays, found: Arrays) -> float:
    """Of any number of the outputs, in parts of the largest of its output, or of one if that is more."""
    pairs = zip(wanted, found, strict=True)
    return max(float(np.abs(one - other).max() / max(1.0, np.abs(one).max())) for one, other in pairs)


def scaling_difference(deployed: Deployed, images: NDArray[np.uint8]) -> float:
    """By how much probabilities differ at most where the graph scales images instead of Pillow.

    The images are made larger for that, one wide and the next one high.
    """
    from PIL import Image

    side, found = images.shape[2], []
    for number, pixels in enumerate(images):
        size = (7 * side // 3, 9 * side // 5)
        large = Image.fromarray(pixels.transpose(1, 2, 0).squeeze()).resize(size[:: -1 if number % 2 else 1])
        shorter = min(large.size)
        left, top = (large.width - shorter) // 2, (large.height - shorter) // 2
        box = (left, top, left + shorter, top + shorter)
        small = large.resize((side, side), Image.Resampling.BILINEAR, box=box)
        arrays = (np.atleast_3d(np.asarray(made)).transpose(2, 0, 1)[None].copy() for made in (large, small))
        ours, pillows = (run_eagerly(deployed, array)[1] for array in arrays)
        found.append(float(np.abs(ours - pillows).max()))
    return max(found)
