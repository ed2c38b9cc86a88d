"""Arrays in the files of NumPy."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tokenize import TokenError
from typing import Any

import numpy as np

from ...errors import InputError
from ...untrusted import check_growth

Array = np.ndarray[Any, np.dtype[Any]]
_ABSURD = (
    MemoryError,
    OverflowError,
    SyntaxError,
    TokenError,
    TypeError,
)  # what NumPy raises on headers that nobody wrote


def read_npz(path: Path, keys: Collection[str]) -> dict[str, Array]:
    """The arrays of the file that matter here, and every other key with nothing, so that an error can list them."""
    with reading(path, "no .npz archive: save it again with numpy.savez"), path.open("rb") as stream:
        check_growth(path)
        # Unpickling runs code from the file, so object arrays are refused.
        file = np.load(stream, allow_pickle=False)
        if isinstance(file, np.lib.npyio.NpzFile):
            arrays = {key: file[key] if key in keys else np.empty(0) for key in file.files}
            if all(isinstance(array, np.ndarray) for array in arrays.values()):  # NumPy gives other files as bytes
                return arrays
            raise ValueError("it holds what is no array")
    raise InputError(f"'{path}' holds a single array instead of several: save them with numpy.savez.")


def read_npy(path: Path) -> Array:
    """The single array of a file."""
    with reading(path, "no .npy file: save it again with numpy.save"), path.open("rb") as stream:
        array = np.load(stream, allow_pickle=False)
        if isinstance(array, np.ndarray):
            return array
    raise InputError(f"'{path}' holds several arrays: call it .npz.")


@contextmanager
def reading(path: Path, otherwise: str) -> Iterator[None]:
    """Say in one sentence why NumPy cannot read a file, which is damaged or is `otherwise`."""
    try:
        yield
    except InputError:
        raise
    except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, ValueError, OSError, *_ABSURD) as error:
        reason = f"it is damaged or {otherwise}"
        if "Object arrays" in str(error):
            reason = "it holds Python objects, which are never loaded: save plain numeric arrays with numpy.savez"
        raise InputError(f"'{path}' cannot be read because {reason}.") from error


def missing_array(path: Path, key: str, arrays: Mapping[str, Array]) -> InputError:
    """The error for a file without an array that is needed."""
    found = ", ".join(sorted(arrays)) or "nothing"
    return InputError(f"'{path}' has no array called '{key}': it holds {found}.")
