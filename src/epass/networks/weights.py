"""Pre-trained weights of others, from a file into a backbone of ours.

Files of timm, torchvision, MAE and MoCo fit, and those of our own runs. Nothing in a file is executed.
"""

from __future__ import annotations

import re
import warnings
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from pickle import UnpicklingError

import torch
from torch import Tensor, nn

from ..errors import InputError
from ..files import check_seal, from_home
from ..untrusted import check_growth
from .vit import ViT, resize_positions

LARGEST_WEIGHTS = 2**34  # bytes: the largest image networks that are published have half of it
PUBLISHED = "published"  # instead of a file: what the library that a network comes from knows for it

# Where files keep the weights that others keep at the top.
_CONTAINERS = ("state_dict", "model", "model_state_dict")
# What stands behind or beside a backbone in files without a name in front of the backbone's own.
_OTHERS = ("fc", "classifier", "mlp", "head", "projector", "pre_logits", "decoder", "mask_token")
# How torchvision calls the layers of a ViT.
_TORCHVISION_VIT = [
    (r"\bencoder\.layers\.encoder_layer_(\d+)\.", r"blocks.\1."),
    (r"\.ln_([12])\.", r".norm\1."),
    (r"\.self_attention\.in_proj_", r".attn.qkv."),
    (r"\.self_attention\.out_proj\.", r".attn.proj."),
    (r"(\bblocks\.\d+\.mlp)\.(?:0|linear_1)\.", r"\1.fc1."),
    (r"(\bblocks\.\d+\.mlp)\.(?:3|linear_2)\.", r"\1.fc2."),
    (r"\bencoder\.ln\.", r"norm."),
    (r"\bencoder\.pos_embedding$", r"pos_embed"),
    (r"\bclass_token$", r"cls_token"),
    (r"\bconv_proj\.", r"patch_embed.proj."),
]


def start_from(backbone: nn.Module, *, weights: str | None = None) -> None:
    """Copy the weights of a file into a backbone; class heads stay behind, positions of a ViT are interpolated.

    Args:
        backbone: A fresh network.
        weights: A `.safetensors`, `.pth` or `.pt` file; None leaves the network as it is.

    Raises:
        InputError: The file cannot be read, or its weights are those of another network; nothing is changed then.
    """
    if weights is None:
        return
    found = read_tensors(weights)
    if isinstance(backbone, ViT):
        found = {_translate(name): tensor for name, tensor in found.items()}
    wanted = backbone.state_dict()
    found = _without_prefix(found, wanted.keys())
    fitted = {name: _fit(found[name], tensor) for name, tensor in wanted.items() if name in found}
    # What is counted, such as batches seen, says nothing about what was learned, and many files lack it.
    missing = {name for name, tensor in wanted.items() if tensor.is_floating_point()} - found.keys()
    strange = {
        name
        for name, tensor in found.items()
        if name not in wanted and tensor.is_floating_point() and not name.startswith(_OTHERS)
    }
    misshapen = {name for name, tensor in fitted.items() if tensor.shape != wanted[name].shape}
    reasons = [f"{verb} {_some(names)}" for verb, names in {"lacks": missing, "also has": strange}.items() if names]
    if misshapen:
        first = min(misshapen)
        shapes = f"{tuple(fitted[first].shape)} and not {tuple(wanted[first].shape)}"
        reasons.append(f"has {_some(misshapen)} in another shape ({shapes})")
    if reasons:
        raise InputError(
            f"'{weights}' holds the weights of another network, for it {' and '.join(reasons)}: choose the network "
            "that it was made for, see 'epass networks'."
        )
    learned = {name: tensor for name, tensor in fitted.items() if wanted[name].is_floating_point()}
    infinite = {name for name, tensor in learned.items() if not tensor.isfinite().all()}
    if infinite:
        raise InputError(f"'{weights}' holds numbers that are not finite in {_some(infinite)}: get it again.")
    backbone.load_state_dict(learned, strict=False)


def read_tensors(file: str) -> dict[str, Tensor]:
    """The tensors of a file by name. Python objects are never unpickled: they could run code."""
    path = from_home(file)
    kinds = ".safetensors, .pth or .pt"
    if not path.is_file():
        raise InputError(f"There is no file '{file}': net.weights names a {kinds} file.")
    if path.suffix == ".safetensors":
        return read_safetensors(path)
    if path.suffix not in (".pth", ".pt"):
        raise InputError(f"'{file}' is not a weights file: net.weights names a {kinds} file.")
    _check_size(path)
    try:
        check_growth(path, growth=1)  # torch packs without compressing
        with warnings.catch_warnings(action="ignore"):  # about kinds of pickles that it then refuses
            content = torch.load(path, map_location="cpu", weights_only=True)
    except UnpicklingError:
        raise InputError(
            f"'{file}' is damaged or holds Python objects besides tensors, which could run code: save the state_dict "
            "alone, best as .safetensors."
        ) from None
    except InputError:
        raise
    except Exception as problem:  # torch raises whatever it trips over in a damaged file
        raise _damaged(path, problem) from None
    for _ in _CONTAINERS:  # some hold one another
        inner = content if isinstance(content, Mapping) else {}
        content = next((inner[key] for key in _CONTAINERS if isinstance(inner.get(key), Mapping)), content)
    named = content.items() if isinstance(content, Mapping) else ()
    tensors = {str(name): value for name, value in named if isinstance(value, Tensor)}
    if not tensors:
        raise InputError(f"'{file}' holds no weights by name: save a state_dict.")
    for name, tensor in tensors.items():
        if tensor.layout != torch.strided or tensor.nbytes > tensor.untyped_storage().nbytes():
            raise InputError(f"'{file}' is damaged: it does not hold all the numbers of '{name}'.")
    return tensors


def read_safetensors(path: Path) -> dict[str, Tensor]:
    """The tensors of a safetensors file by name."""
    from safetensors.torch import load_file

    _check_size(path)
    try:
        tensors: dict[str, Tensor] = load_file(path)
        with path.open("rb") as file:
            check_seal(file)
    except Exception as problem:  # the library knows what is wrong with the file, torch with its tensors
        raise _damaged(path, problem) from None
    return tensors


def names_of_tensors(path: Path) -> list[str]:
    """The names of the tensors in a safetensors file, of which only the head is read."""
    from safetensors import safe_open

    _check_size(path)
    try:
        with safe_open(path, framework="pt") as file:
            return list(file.keys())
    except Exception as problem:
        raise _damaged(path, problem) from None


def _check_size(path: Path) -> None:
    if not path.is_file() or path.stat().st_size > LARGEST_WEIGHTS:
        raise InputError(f"'{path}' is not a weights file, which has at most {LARGEST_WEIGHTS:,} bytes: do not use it.")


def _damaged(path: Path, problem: Exception) -> InputError:
    return InputError(
        f"'{path}' is damaged: {(str(problem).strip() or type(problem).__name__).partition(chr(10))[0].rstrip('.')}."
    )


def _translate(name: str) -> str:
    for theirs, ours in _TORCHVISION_VIT:
        name = re.sub(theirs, ours, name)
    return name


def _without_prefix(found: Mapping[str, Tensor], wanted: Iterable[str]) -> dict[str, Tensor]:
    """What stands below the name under which most of the wanted tensors are found."""
    known, counts = set(wanted), Counter[str]()
    for name in found:
        starts = [0, *(dot.end() for dot in re.finditer(r"\.", name))]
        counts.update(name[:start] for start in starts if name[start:] in known)
    # Of two equal parts the query encoder of MoCo is meant, else the one with the shortest name.
    best = max(counts, key=lambda prefix: (counts[prefix], "encoder_q." in prefix, -len(prefix)), default="")
    return {name.removeprefix(best): tensor for name, tensor in found.items() if name.startswith(best)}


def _fit(tensor: Tensor, like: Tensor) -> Tensor:
    """A tensor in the shape of its place, where there is a way that keeps its meaning."""
    if tensor.ndim == 3 and len(tensor) == 1 and tensor.shape[2:] == like.shape[2:]:
        sides = [round(max(0, part.shape[1] - 1) ** 0.5) for part in (tensor, like)]
        if [1 + side**2 for side in sides] == [tensor.shape[1], like.shape[1]] and min(sides) > 0:
            return resize_positions(tensor.float(), sides[1], sides[1])
    if tensor.ndim == 4 and tensor.shape[1] == 3 and like.shape == (len(tensor), 1, *tensor.shape[2:]):
        return tensor.sum(1, keepdim=True)  # what it says about a gray image whose three channels are equal
    return tensor


def _some(names: set[str]) -> str:
    shown = sorted(names)[:3]
    more = len(names) - len(shown)
    return ", ".join(f"'{name}'" for name in shown) + (f" and {more} more" if more else "")
