"""Where and how a run was started, so that someone else can start it again."""

from __future__ import annotations

import os
import platform
import subprocess
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

ARCHIVED = "$Format:%H$"  # 'git archive' writes the commit here, as .gitattributes says


def environment(seed: int, command: str, device: str) -> dict[str, Any]:
    """The contents of environment.json. `command` is the line to type again, `device` what the run computes on."""
    return {
        "epass": _version("epass"),
        "commit": checkout_commit(Path(__file__).parents[1]),
        "python": platform.python_version(),
        "torch": _version("torch"),  # asked of the installer: importing torch to learn its version takes a second
        "numpy": _version("numpy"),
        "platform": platform.platform(),
        "cpu_count": os.cpu_count(),
        "device": device,
        "seed": seed,
        "command": command,
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def checkout_commit(package: Path) -> str | None:
    """The commit of the checkout that `package` belongs to, "-dirty" if its files were changed.

    Outside of one that of the archive it came in; None if there is none.
    """
    # an installed package can lie inside somebody else's repository (a .venv there), which does not track it
    if _git(package, "ls-files", "--error-unmatch", "__init__.py") is None:
        return None if "Format" in ARCHIVED else ARCHIVED
    commit = _git(package, "rev-parse", "HEAD")
    changed = _git(package, "status", "--porcelain", "--", ".")
    return f"{commit}-dirty" if commit and changed else commit


def _git(folder: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(["git", "-C", str(folder), *arguments], capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
