"""Backbones of other libraries, by their names there: `timm:NAME` and `hf:NAME_OR_PATH`.

The libraries are imported when a network is asked of them. Their dropout draws from torch's own generator, so a resumed
run is exact only without it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

from torch import Tensor, nn

from ..errors import InputError


def timm_backbone(name: str, published: bool = False, *, in_channels: int = 3) -> nn.Module:
    """A network of timm without its classifier; with `published`, the weights that timm knows for it."""
    try:
        import timm
    except Exception as problem:  # a broken installation raises anything
        raise _missing("timm", "timm", problem) from None
    try:
        model: Any = timm.create_model(name, pretrained=published, num_classes=0, in_chans=in_channels)
    except Exception as problem:
        raise _refused("timm", name, problem) from None
    # Some networks have one more layer between the maps and the classifier; without the latter they return its output.
    model.num_features = int(getattr(model, "head_hidden_size", None) or model.num_features)
    undecayed: Callable[[], set[str]] | None = getattr(model, "no_weight_decay", None)
    own = {parameter for parameter, _ in model.named_parameters()}
    model.undecayed = tuple(sorted(own & undecayed())) if undecayed else ()
    known = getattr(model, "pretrained_cfg", None)
    _remember_scale(model, known, "mean", "std")
    if isinstance(known, Mapping) and known.get("input_size"):
        model.image_size = int(known["input_size"][-1])
    return cast(nn.Module, model)


class HuggingFace(nn.Module):
    """An image model of transformers; its pooled output, or the mean over positions, are the features.

    Args:
        name: Of a model of the hub, or the path of a folder that holds one.
        published: Start from the model's weights instead of random ones.
        in_channels: Of the images.
    """

    def __init__(self, name: str, published: bool = False, *, in_channels: int = 3) -> None:
        super().__init__()
        try:
            from transformers import AutoConfig, AutoModel
        except Exception as problem:  # a broken installation raises anything
            raise _missing("transformers", "hf", problem) from None
        try:
            # neither the code that some models bring along is run, nor are weights unpickled
            config = AutoConfig.from_pretrained(name, num_channels=in_channels, trust_remote_code=False)
            model = (
                AutoModel.from_pretrained(name, config=config, trust_remote_code=False, use_safetensors=True)
                if published
                else AutoModel.from_config(config, trust_remote_code=False)
            )
        except Exception as problem:
            raise _refused("transformers", name, problem) from None
        width = getattr(config, "hidden_size", None) or (getattr(config, "hidden_sizes", None) or [None])[-1]
        if not isinstance(width, int):
            raise InputError(f"transformers does not say how wide the features of '{name}' are: choose an image model.")
        self.model: nn.Module = model
        self.num_features = width
        size = getattr(config, "image_size", None)
        self.image_size: int | None = size if isinstance(size, int) else None
        if published:
            _remember_scale(self, _image_settings(name), "image_mean", "image_std")

    def forward(self, images: Tensor) -> Tensor:
        found = self.model(pixel_values=images)
        pooled: Tensor | None = getattr(found, "pooler_output", None)
        if pooled is not None:
            return pooled.flatten(1)
        last: Tensor = found.last_hidden_state
        return last.mean((2, 3)) if last.ndim == 4 else last.mean(1)


def _image_settings(name: str) -> object:
    """What transformers knows of the images that a model was trained on, if anything."""
    try:
        from transformers import AutoImageProcessor

        return AutoImageProcessor.from_pretrained(name, trust_remote_code=False).to_dict()
    except Exception:  # many a folder of a model lacks it
        return None


def _remember_scale(backbone: nn.Module, known: object, mean: str, std: str) -> None:
    """Let a network say how its images were normalized, for whoever makes features of it; most do as ImageNet does."""
    if isinstance(known, Mapping) and len(known.get(mean) or ()) == len(known.get(std) or ()) == 3:
        backbone.mean, backbone.std = (tuple(float(value) for value in known[key]) for key in (mean, std))  # type: ignore[assignment]


FOREIGN: dict[str, Callable[..., nn.Module]] = {"timm": timm_backbone, "hf": HuggingFace}


def _missing(package: str, prefix: str, problem: Exception) -> InputError:
    return InputError(
        f"Networks that start with '{prefix}:' need the package {package}, which could not be imported "
        f"({_first_line(problem)}): pip install {package}."
    )


def _refused(package: str, name: str, problem: Exception) -> InputError:
    return InputError(f"{package} could not make the network '{name}': {_first_line(problem).rstrip('.')}.")


def _first_line(problem: Exception) -> str:
    return str(problem).strip().partition("\n")[0] or type(problem).__name__
