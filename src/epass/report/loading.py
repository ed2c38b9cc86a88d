"""How an exported model is used without this package: what its card says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

ONNX_IMAGE = """import json

import numpy as np
import onnxruntime
from PIL import Image, ImageOps


def read(path, size={height}):
    image = ImageOps.exif_transpose(Image.open(path))
    if image.mode[0] in "IF":
        raise ValueError(f"'{{path}}' has more than 8 bits per channel: use epass predict")
    if image.has_transparency_data:
        image = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
    image = image.convert("RGB"){to_gray}
    side = min(image.size)
    left, top = (image.width - side) // 2, (image.height - side) // 2
    square = image.resize((size, size), Image.Resampling.BILINEAR, box=(left, top, left + side, top + side))
    return np.atleast_3d(np.asarray(square)).transpose(2, 0, 1)


session = onnxruntime.InferenceSession("model.onnx")
facts = json.loads(session.get_modelmeta().custom_metadata_map["epass"])
{given} = np.stack([read("photo.jpg")])  # uint8 (N, {channels}, {height}, {width})
{scale}logits, probabilities, features = session.run(None, {{"{given}": {given}}})
print([facts["classes"][number] for number in probabilities.argmax(1)])"""

ONNX_VECTOR = """import json

import numpy as np
import onnxruntime

session = onnxruntime.InferenceSession("model.onnx")
facts = json.loads(session.get_modelmeta().custom_metadata_map["epass"])
{given} = np.zeros((1, {numbers}), np.float32)  # yours: float32 (N, {numbers})
{scale}logits, probabilities, features = session.run(None, {{"{given}": {given}}})
print([facts["classes"][number] for number in probabilities.argmax(1)])"""

TORCH = """import json
from pathlib import Path

import torch

facts = json.loads(Path("model.json").read_text(encoding="utf-8"))
answer = torch.export.load("model.pt2").module()
{given} = torch.zeros({shape}, dtype=torch.{kind})  # yours: {what}
{scale}logits, probabilities, features = answer({given})
print([facts["classes"][number] for number in probabilities.argmax(1)])"""

FILES = {
    "safetensors": "`model.safetensors`, the weights, which `epass.load_model` reads with `model.json`",
    "torch": "`model.pt2`, the network as a program of `torch.export`: torch reads it, with nothing of this package",
    "onnx": "`model.onnx`, the network and all of `model.json` in one file for ONNX Runtime",
}


def how_to_load(model: Mapping[str, Any]) -> str:
    """The section of the card: what lies there, and how to use it without this package."""
    formats, vectors = model["export"]["formats"], "numbers" in model
    given = "vectors" if vectors else "images"
    shape = [model["numbers"]] if vectors else [model["channels"], model["height"], model["width"]]
    raw = model["export"]["input"] == "normalized"
    size = ", of any size," if model["export"]["input"] == "any size" else ""
    taken = f"uint8 (N, {', '.join(map(str, shape))}), from 0 to 255" if not vectors else f"float32 (N, {shape[0]})"
    words = {**model, "given": given, "to_gray": '.convert("L")' if model.get("channels") == 1 else ""}
    words |= {"shape": ", ".join(map(str, [1, *shape])), "kind": "float32" if vectors else "uint8", "what": taken}
    blocks = []
    if "onnx" in formats:
        block = (ONNX_VECTOR if vectors else ONNX_IMAGE).format(
            **words, scale=_scale(model, "np", given) if raw else ""
        )
        blocks.append(f"With ONNX Runtime, NumPy{'' if vectors else ' and Pillow'}:\n\n```python\n{block}\n```")
    if "torch" in formats:
        block = TORCH.format(**words, scale=_scale(model, "torch", given) if raw else "")
        blocks.append(f"With PyTorch:\n\n```python\n{block}\n```")
    listed = "\n".join(f"- {FILES[name]}" for name in formats)
    inside = "Nothing is done to the input" if raw else f"The input{size} is normalized inside"
    return (
        f"{listed}\n\n{inside}, `logits` are those of the network, and `probabilities` are "
        f"{'their softmax' if raw else 'calibrated, if the model is (`calibration` in `model.json`)'}.\n\n"
        + "\n\n".join(blocks)
    )


def _scale(model: Mapping[str, Any], library: str, given: str) -> str:
    """The lines that normalize, where the graph does not."""
    make, kind = ("np.array", "np.float32") if library == "np" else ("torch.tensor", "torch.float32")
    if "numbers" in model:
        lines = (
            f"mean, std = ({make}(facts[key], dtype={kind}) for key in ('mean', 'std'))",
            f"({given} - mean) / std",
        )
    else:
        lines = (
            f"mean, std = ({make}(facts[key], dtype={kind})[:, None, None] for key in ('mean', 'std'))",
            f"({given} / {make}(255, dtype={kind}) - mean) / std",
        )
    return f"{lines[0]}\n{given} = {lines[1]}\n"
