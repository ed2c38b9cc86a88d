"""Decoding in other processes: Python lets one thread at a time run, and opening images is too much Python for many.

Each process serves one thread of this one over two pipes and ends when its requests do, however this process ends. A
request is a line of JSON; the answer is a length, then either a message of that many bytes or, if it is 0, the pixels.
"""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
import warnings
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, cast

from ...errors import InputError

LENGTH = struct.Struct("<I")
PIPE = 1 << 20  # bytes: an image should fit, so that neither side waits for the other in the middle of it


class DecodingProcess:
    """A process that decodes image files as `decode` does; it starts with the first of them."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def read(self, images: Sequence[tuple[Path, int, memoryview]]) -> None:
        """Fill the memory of each (path, image size, memory); the first file that cannot be read is an InputError."""
        asked, done, failed = 0, 0, -1
        while done < len(images):
            try:
                process = self._process or self._start()
                while asked < min(done + 2, len(images)):  # one more than it works on, so that it never waits
                    self._ask(process, images[asked])
                    asked += 1
                self._receive(process, *images[done])
            except (BrokenPipeError, EOFError):
                if failed == done:
                    path = images[done][0]
                    raise InputError(f"Decoding '{path}' ended a process twice: free memory or remove it.") from None
                self.close()
                asked, failed = done, done
                continue
            except BaseException:
                self.close()  # what it has been asked already would be taken for the answer to what comes next
                raise
            done += 1

    def _start(self) -> subprocess.Popen[bytes]:
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "OMP_NUM_THREADS": "1"}
        command = [sys.executable, "-c", f"from {__name__} import serve; serve()"]
        # In a session of its own, so that Ctrl-C reaches only the process that knows what to do about it.
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, start_new_session=True
        )
        _enlarge(self._process.stdout)
        return self._process

    def _ask(self, process: subprocess.Popen[bytes], image: tuple[Path, int, memoryview]) -> None:
        requests = cast(IO[bytes], process.stdin)
        requests.write(json.dumps([str(image[0]), image[1]]).encode() + b"\n")
        requests.flush()

    def _receive(self, process: subprocess.Popen[bytes], path: Path, image_size: int, memory: memoryview) -> None:
        answers = cast(IO[bytes], process.stdout)
        length = answers.read(LENGTH.size)
        if len(length) < LENGTH.size:
            raise EOFError
        if size := LENGTH.unpack(length)[0]:
            raise InputError(answers.read(size).decode(errors="replace"))
        if answers.readinto(memory) < len(memory):  # type: ignore[attr-defined]
            raise EOFError

    def close(self) -> None:
        """End the process."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            with suppress(BrokenPipeError):  # what was written and never read
                process.__exit__(None, None, None)


def serve() -> None:
    """Answer requests until there are no more: the program of the other process."""
    from .decode import decode

    warnings.simplefilter("ignore")  # what Pillow only warns of changes no pixel
    requests, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever prints must not get between the answers
    for line in requests:
        path, image_size = json.loads(line)
        try:
            pixels = decode(Path(path), image_size).tobytes()
            answers.write(LENGTH.pack(0) + pixels)
        except InputError as problem:
            message = str(problem).encode(errors="replace")
            answers.write(LENGTH.pack(len(message)) + message)
        answers.flush()


def _enlarge(pipe: IO[bytes] | None) -> None:
    assert pipe is not None
    with suppress(ImportError, AttributeError, OSError):  # Linux only, and up to what the system allows
        import fcntl

        fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, PIPE)
