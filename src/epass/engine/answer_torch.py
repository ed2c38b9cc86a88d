"""A model answers by PyTorch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..data import Images, Normalization
from ..machine.device import choose_device
from ..runs import load_embeddings, load_run
from ..runs.exported import is_exported, load_known
from .answer import enough_known
from .infer import infer_here, ready
from .models import load_model


class TorchAnswerer:
    """The network of a run or of an exported folder, on a device."""

    def __init__(self, folder: Path, device: str) -> None:
        self.place = choose_device(device)
        self.way = f"torch, {self.place.type}"
        net, self.model = load_model(folder)
        self.net = ready(net, self.place)
        self.tested: NDArray[np.float32] | None = None
        if is_exported(folder):
            features: Any = load_known(folder)
            self.settings: dict[str, Any] = self.model.get("provenance", {}).get("data", {})
        else:
            run, kept = load_run(folder), load_embeddings(folder)
            features = None if kept is None else kept.features
            self.settings, self.tested = run.recipe["data"], None if run.predictions is None else run.predictions.logits
        self.known = enough_known(features, getattr(net, "num_features", None))

    def answer(self, images: NDArray[Any] | Tensor) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Logits (n, C) and features (n, D) of uint8 images (n, C, H, W), on the device or not, or of vectors."""
        source = Images(torch.as_tensor(images), torch.full((len(images),), -1))
        scale = Normalization(tuple(self.model["mean"]), tuple(self.model["std"]))
        said = infer_here(self.net, source, scale, self.place)
        return said.logits.cpu().numpy(), said.features.cpu().numpy()
