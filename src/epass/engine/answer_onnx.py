"""A model answers by ONNX Runtime: nothing of torch is imported."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import InputError
from ..evaluation.calibrated import Calibration
from ..runs.exported import from_text, read_facts
from .answer import enough_known, rows_at_a_time

FACTS, KNOWN = "epass", "epass.known"  # in the metadata of the file


class OnnxAnswerer:
    """An .onnx file that `epass export` wrote."""

    place = None

    def __init__(self, path: Path, device: str) -> None:
        try:
            import onnxruntime
        except ImportError:
            raise InputError(f"'{path}' needs ONNX Runtime: pip install epass[onnx].") from None
        if not path.is_file():
            raise InputError(f"There is no file '{path}'.")
        providers = {"auto": "CPUExecutionProvider", "cpu": "CPUExecutionProvider", "cuda": "CUDAExecutionProvider"}
        provider = providers.get(device, "")
        if provider not in onnxruntime.get_available_providers():
            raise InputError(f"This ONNX Runtime cannot compute on '{device}': use --device cpu.")
        self.way = f"onnxruntime, {provider}"
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4  # what it has to say is raised
        try:
            self.session = onnxruntime.InferenceSession(str(path), options, providers=[provider])
            stored = self.session.get_modelmeta().custom_metadata_map
        except Exception:  # it has its own kinds, which say little
            raise InputError(f"'{path}' is no ONNX file, or is damaged: copy or export it again.") from None
        if FACTS not in stored:
            raise InputError(f"'{path}' does not say which classes it knows: give a file that 'epass export' wrote.")
        self.model = read_facts(stored[FACTS].encode(), path)
        try:
            Calibration.from_json(self.model.get("calibration"))
        except ValueError as problem:
            raise InputError(f"'{path}' is damaged: {problem}.") from None
        self.settings: dict[str, Any] = self.model.get("provenance", {}).get("data", {})
        self.tested: NDArray[np.float32] | None = None
        outputs = {output.name: output.shape for output in self.session.get_outputs()}
        (self.input,) = self.session.get_inputs()
        if not {"logits", "features"} <= outputs.keys() or outputs["logits"][1] != len(self.model["classes"]):
            raise InputError(f"'{path}' does not compute what it says: export it again.")
        known = from_text(stored[KNOWN], path) if KNOWN in stored else None
        self.known = enough_known(known, outputs["features"][1])

    def answer(self, images: NDArray[Any]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Logits (n, C) and features (n, D) of uint8 images (n, C, H, W), or of vectors."""
        rows = rows_at_a_time(images.shape[1:])
        parts = [self._answer(images[start : start + rows]) for start in range(0, max(1, len(images)), rows)]
        logits, features = (np.concatenate(part) for part in zip(*parts, strict=True))
        return logits, features

    def _answer(self, images: NDArray[Any]) -> list[NDArray[np.float32]]:
        if images.ndim == 2:
            images = images.astype(np.float32)
        if self.model.get("export", {}).get("input") == "normalized":
            mean, std = (np.array(self.model[key], np.float32) for key in ("mean", "std"))
            if images.ndim == 4:
                images, mean, std = images.astype(np.float32) / 255, mean[:, None, None], std[:, None, None]
            images = (images - mean) / std
        found: list[NDArray[np.float32]] = self.session.run(["logits", "features"], {self.input.name: images})
        return found
