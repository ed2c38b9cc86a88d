"""The studio as a program of its own, on scans of digits as photos: for tests in a real browser, and for pictures."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np
from PIL import Image

COMMAND = [sys.executable, "-u", "-m", "epass"]
ADDRESS = re.compile(r"http://[^/\s]+/\?token=\S+")
PATIENCE = 300.0  # seconds in which it has to end, on a machine that is busy


class Running(NamedTuple):
    """A studio that answers."""

    process: subprocess.Popen[str]
    address: str  # as it is printed, with the token

    def stop(self) -> str:
        """Press Ctrl-C; what it prints then."""
        self.process.send_signal(signal.SIGINT)
        return self.process.communicate(timeout=PATIENCE)[0]


def save_digits(folder: Path, kinds: Mapping[int, str], each: int, *, side: int = 96) -> dict[str, str]:
    """Save so many scans of each digit side by side, without a class; the class of each by its name."""
    from sklearn.datasets import load_digits

    digits, truth = load_digits(), dict[str, str]()
    folder.mkdir(parents=True)
    left = dict.fromkeys(kinds, each)
    for pixels, digit in zip(digits.images, digits.target.tolist(), strict=True):
        if left.get(digit):
            left[digit] -= 1
            name = f"scan-{len(truth):03d}.png"
            image = Image.fromarray(np.pad(255 - 15 * pixels, 2, constant_values=255).astype(np.uint8))
            image.resize((side, side), Image.Resampling.BICUBIC).convert("RGB").save(folder / name)
            truth[name] = kinds[digit]
    return truth


def printed_address(process: subprocess.Popen[str]) -> str:
    """Where a studio that starts is to be opened, as soon as it says so."""
    assert process.stdout is not None
    printed = ""
    for line in process.stdout:
        printed += line
        if found := ADDRESS.search(line):
            return found[0]
    raise SystemExit(f"The studio did not start:\n{printed}")


@contextmanager
def running_studio(photos: Path, *flags: str) -> Iterator[Running]:
    """`epass studio` on a folder, started beside it, until it is stopped or the block ends."""
    words = ["studio", photos.name, "--no-browser", "--port", "0", *flags]
    with subprocess.Popen(
        [*COMMAND, *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=photos.parent
    ) as process:
        running = Running(process, printed_address(process))
        try:
            yield running
        finally:
            if process.poll() is None:
                running.stop()
