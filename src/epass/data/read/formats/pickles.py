"""The pickled dictionaries of Python 2 in which some data sets are published, without unpickling.

Python's own unpickler calls whatever the file names. Here a file can make numbers, bytes, lists, dictionaries and
arrays of bytes, and nothing else: no name in it is ever looked up, and nothing from it is called.
"""

from __future__ import annotations

import pickletools
import struct
from dataclasses import dataclass
from typing import Any

import numpy as np

from ....errors import InputError

Array = np.ndarray[Any, np.dtype[np.uint8]]
_RECONSTRUCT, _ARRAY, _TYPE = "numpy.core.multiarray _reconstruct", "numpy ndarray", "numpy dtype"
_BYTES = (3, b"|", None, None, None, -1, -1, 0)  # how NumPy describes numbers of one byte


@dataclass(frozen=True)
class _Name:
    """A name in the file, which is only compared."""

    name: str


@dataclass
class _Call:
    """A call in the file, which does not happen, and the state for its result."""

    name: str
    arguments: tuple[Any, ...]
    state: Any = None


def load_plain(data: bytes, place: str) -> dict[bytes, Any]:
    """The dictionary in `data`, with bytes as its keys and uint8 arrays for those of NumPy; `place` is for errors."""
    try:
        found = _evaluate(data)
        if not isinstance(found, dict):
            raise ValueError("it holds no dictionary")
        return {key: _array(value) if isinstance(value, _Call) else value for key, value in found.items()}
    except (ValueError, TypeError, LookupError, AttributeError, struct.error) as error:
        reason = str(error) if type(error) is ValueError and str(error).startswith("it ") else "it is damaged"
        raise InputError(f"'{place}' cannot be read because {reason}: get it again.") from None


def _evaluate(data: bytes) -> Any:
    stack: list[Any] = []
    marks: list[int] = []
    memory: dict[int, Any] = {}

    def marked() -> list[Any]:
        start = marks.pop()
        items = stack[start:]
        del stack[start:]
        return items

    argument: Any
    for opcode, argument, _ in pickletools.genops(data):
        match opcode.name:
            case "PROTO":
                pass
            case "STOP":
                return stack.pop()
            case "MARK":
                marks.append(len(stack))
            case "NONE" | "NEWTRUE" | "NEWFALSE":
                stack.append({"NONE": None, "NEWTRUE": True, "NEWFALSE": False}[opcode.name])
            case "BININT" | "BININT1" | "BININT2":
                stack.append(argument)
            case "BINSTRING" | "SHORT_BINSTRING":
                stack.append(argument.encode("latin-1"))
            case "EMPTY_DICT" | "EMPTY_LIST" | "EMPTY_TUPLE":
                stack.append({"EMPTY_DICT": dict, "EMPTY_LIST": list, "EMPTY_TUPLE": tuple}[opcode.name]())
            case "TUPLE1" | "TUPLE2" | "TUPLE3":
                count = int(opcode.name[-1])
                stack[-count:] = [tuple(stack[-count:])]
            case "TUPLE":
                stack.append(tuple(marked()))
            case "APPEND" | "APPENDS":
                items = [stack.pop()] if opcode.name == "APPEND" else marked()
                _expect(stack[-1], list).extend(items)
            case "SETITEM" | "SETITEMS":
                value_only = opcode.name == "SETITEM"
                items = [stack.pop(-2), stack.pop()] if value_only else marked()
                pairs = zip(items[::2], items[1::2], strict=True)
                # Only bytes: the hash of tuples inside of tuples can take forever.
                _expect(stack[-1], dict).update({_expect(key, bytes): value for key, value in pairs})
            case "BINPUT" | "LONG_BINPUT":
                memory[argument] = stack[-1]
            case "BINGET" | "LONG_BINGET":
                stack.append(memory[argument])
            case "GLOBAL":
                if argument not in (_RECONSTRUCT, _ARRAY, _TYPE):
                    raise ValueError(f"it asks for '{str(argument)[:60].replace(' ', '.')}', which is never loaded")
                stack.append(_Name(argument))
            case "REDUCE":
                arguments = _expect(stack.pop(), tuple)
                stack.append(_Call(_expect(stack.pop(), _Name).name, arguments))
            case "BUILD":
                state = stack.pop()
                _expect(stack[-1], _Call).state = state
            case other:
                raise ValueError(f"it uses the pickle operation {other}, which plain data does not need")
    raise ValueError("it ends too early")


def _expect(value: Any, kind: type) -> Any:
    if type(value) is not kind:
        raise TypeError
    return value


def _array(call: _Call) -> Array:
    """The array that NumPy would make of a call of `_reconstruct` and its state."""
    version, shape, number, fortran, data = call.state
    if (call.name, version, number.name, number.state) != (_RECONSTRUCT, 1, _TYPE, _BYTES) or len(shape) > 4:
        raise TypeError
    if number.arguments[0] != b"u1" or not all(type(side) is int and side >= 0 for side in shape):
        raise TypeError
    return np.frombuffer(_expect(data, bytes), np.uint8).reshape(shape, order="F" if fortran is True else "C")
