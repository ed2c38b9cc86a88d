"""Reading in other processes: Python lets one thread at a time run, and opening images is too much Python for many.

Each process serves one thread of this one over a socket and ends when its requests do, however this process ends. A
request is a line of JSON: an image size, whether files for a GPU are wanted as they are, and paths. If they are, the
answer begins with a length and as many bytes of JSON, which say of each file what `Encoded` does or null, and with the
bytes of those files. For each of the others follow a length and either a message of that many bytes or, if it is 0, the
pixels.
"""

from __future__ import annotations

import json
import os
import socket
import struct
import subprocess
import sys
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO

import numpy as np

from ...errors import InputError
from .jpeg_header import Encoded, Frame, read_encoded

LENGTH = struct.Struct("<I")
BUFFER = 1 << 20  # bytes: an image should fit, so that neither side waits for the other in the middle of it


class DecodingProcess:
    """A process that decodes image files as `decode` does, or reads those for a GPU; it starts with the first file."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None

    def read(
        self,
        paths: Sequence[Path],
        image_size: int,
        memory: Callable[[int], memoryview],
        refuse: Callable[[int, InputError], None],
        *,
        encoded: bool = False,
    ) -> list[Encoded | None]:
        """Fill the memory of each file, by its number, but, if `encoded`, return the bytes of those for a GPU.

        `refuse` is told of files that cannot be read, by their number.
        """
        found: list[Encoded | None] = [None] * len(paths)
        left, failed = [*range(len(paths))], (False, 0)
        while left:
            try:
                answers = self._socket if self._socket is not None else self._start()
                self._ask(answers, [paths[number] for number in left], image_size, encoded)
                if encoded:
                    found, encoded = _receive_encoded(answers), False
                    left = [number for number, one in enumerate(found) if one is None]
                while left:
                    if problem := _receive_pixels(answers, memory, left[0]):
                        refuse(left[0], InputError(problem))
                    left.pop(0)
            except (ConnectionError, EOFError):
                if failed == (encoded, len(left)):
                    names = ", ".join(f"'{paths[number]}'" for number in (left if encoded else left[:1]))
                    raise InputError(f"Decoding {names} ended a process twice: free memory or remove it.") from None
                failed = encoded, len(left)
                self.close()
            except BaseException:
                self.close()  # what it has been asked already would be taken for the answer to what comes next
                raise
        return found

    def _start(self) -> socket.socket:
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "OMP_NUM_THREADS": "1"}
        command = [sys.executable, "-c", f"from {__name__} import serve; serve()"]
        # A pipe would hand over little at a time, and a thread would ask to run again after each part.
        self._socket, other = socket.socketpair()
        other.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BUFFER)  # up to what the system allows
        with other:
            # In a session of its own, so that Ctrl-C reaches only the process that knows what to do about it.
            self._process = subprocess.Popen(
                command, stdin=other.fileno(), stdout=other.fileno(), env=environment, start_new_session=True
            )
        return self._socket

    def _ask(self, requests: socket.socket, paths: Sequence[Path], image_size: int, encoded: bool) -> None:
        requests.sendall(json.dumps([image_size, encoded, [*map(str, paths)]]).encode() + b"\n")

    def close(self) -> None:
        """End the process."""
        process, self._process, answers, self._socket = self._process, None, self._socket, None
        if answers is not None:
            answers.close()
        if process is not None:
            process.kill()
            process.wait()


def _receive_encoded(answers: socket.socket) -> list[Encoded | None]:
    """What was found out about each file of a request, and the bytes of all of them in one piece."""
    facts = json.loads(_receive(answers, LENGTH.unpack(_receive(answers, LENGTH.size))[0]))
    data = np.empty(sum(fact[0] for fact in facts if fact), np.uint8)
    _fill(answers, data.data)
    found: list[Encoded | None] = []
    end = 0
    for fact in facts:
        if fact is None:
            found.append(None)
            continue
        size, frame, turn = fact
        end += size
        found.append(Encoded(data[end - size : end], Frame(*frame), tuple(turn)))
    return found


def _receive_pixels(answers: socket.socket, memory: Callable[[int], memoryview], number: int) -> str:
    """Fill the memory of a file, or say why it cannot be read."""
    if size := LENGTH.unpack(_receive(answers, LENGTH.size))[0]:
        return _receive(answers, size).decode(errors="surrogatepass")  # of names that are no text
    _fill(answers, memory(number))
    return ""


def _receive(answers: socket.socket, size: int) -> bytearray:
    data = bytearray(size)
    _fill(answers, memoryview(data))
    return data


def _fill(answers: socket.socket, memory: memoryview) -> None:
    while len(memory):
        # It waits for all of them at once, without Python; only a signal makes them fewer.
        received = answers.recv_into(memory, len(memory), socket.MSG_WAITALL)
        if not received:
            raise EOFError
        memory = memory[received:]


def serve() -> None:
    """Answer requests until there are no more: the program of the other process."""
    from .decode import decode

    warnings.simplefilter("ignore")  # what Pillow only warns of changes no pixel
    requests, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever prints must not get between the answers
    for line in requests:
        image_size, encoded, paths = json.loads(line)
        if encoded:
            found = [read_encoded(Path(path)) for path in paths]
            _send_encoded(answers, found)
            paths = [path for path, bytes_of in zip(paths, found, strict=True) if bytes_of is None]
            del found  # nobody needs the bytes of earlier files
        for path in paths:
            try:
                pixels = decode(Path(path), image_size).tobytes()
                answers.write(LENGTH.pack(0) + pixels)
            except InputError as problem:
                message = str(problem).encode(errors="surrogatepass")
                answers.write(LENGTH.pack(len(message)) + message)
            answers.flush()


def _send_encoded(answers: IO[bytes], found: Sequence[Encoded | None]) -> None:
    facts = json.dumps([one and (len(one.data), one.frame, one.turn) for one in found]).encode()
    answers.write(LENGTH.pack(len(facts)) + facts)
    for one in found:
        if one is not None:
            answers.write(one.data.data)
    answers.flush()
