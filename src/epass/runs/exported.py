"""A model that was exported: a folder, or a single file, that needs no run."""

from __future__ import annotations

import base64
import io
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import InputError
from ..untrusted import LARGEST_JSON, parse_json, read_limited
from .contents import check_model
from .folder import MODEL, RunFolder

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

ONNX, PROGRAM, KNOWN, CARD = "model.onnx", "model.pt2", "known.npy", "README.md"
FORMAT = 1  # of model.json; to be raised when an older version of the package would misunderstand a newer one
LARGEST_KNOWN = 2**25  # bytes: a run keeps less than half of it


def is_exported(folder: Path) -> bool:
    """Whether a folder holds an exported model: one without the run that it comes from."""
    return (folder / MODEL).is_file() and not RunFolder(folder).exists()


def read_facts(data: bytes, where: str | Path) -> dict[str, Any]:
    """What a model.json says, from wherever it is kept."""
    try:
        facts = parse_json(data)
        if not isinstance(facts, dict):
            raise ValueError("it holds no JSON object")
        check_format(facts, where)
        check_model(facts)
        if "net" not in facts:
            raise ValueError("it describes no network")
    except InputError:
        raise
    except ValueError as problem:
        raise InputError(f"'{where}' is damaged: {problem}.") from None
    return facts


def check_format(facts: dict[str, Any], where: str | Path) -> None:
    """Refuse what a later version wrote, which may mean something else."""
    found = facts.get("format", FORMAT)
    if not isinstance(found, int) or found > FORMAT:
        raise InputError(
            f"'{where}' was written by a newer version of epass (format {found}, and this one knows {FORMAT}): "
            "upgrade with pip install --upgrade epass."
        )


def load_facts(folder: Path) -> dict[str, Any]:
    """What the model.json of an exported folder says."""
    return read_facts(read_limited(folder / MODEL, LARGEST_JSON), folder / MODEL)


def load_known(folder: Path) -> NDArray[np.float16] | None:
    """The features of test images that an exported folder holds, if it does."""
    path = folder / KNOWN
    return unpacked(read_limited(path, LARGEST_KNOWN), path) if path.is_file() else None


def packed(known: NDArray[np.float16]) -> bytes:
    """An array as the content of an .npy file."""
    import numpy as np

    stream = io.BytesIO()
    np.save(stream, known, allow_pickle=False)
    return stream.getvalue()


def unpacked(data: bytes, where: str | Path) -> NDArray[np.float16]:
    """The array in the content of an .npy file."""
    import numpy as np

    try:
        found = np.load(io.BytesIO(data), allow_pickle=False)
        if not isinstance(found, np.ndarray) or found.ndim != 2 or found.dtype != np.float16:
            raise ValueError("they are no rows of features")
        if not np.isfinite(found).all():
            raise ValueError("some are not finite")
    except Exception as problem:  # NumPy raises nearly anything on bytes that nobody wrote
        raise InputError(f"The features in '{where}' are damaged: {problem}.") from None
    return found


def as_text(known: NDArray[np.float16]) -> str:
    """The same as text, for the metadata of an ONNX file."""
    return base64.b64encode(packed(known)).decode()


def from_text(text: str, where: str | Path) -> NDArray[np.float16]:
    """The array in such a text."""
    try:
        data = base64.b64decode(text, validate=True)
    except ValueError:
        raise InputError(f"The features in '{where}' are damaged: they are no base64.") from None
    return unpacked(data, where)
