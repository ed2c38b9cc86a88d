"""A small world for every hostile file: a folder to work in, and around it what must stay as it is."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import NamedTuple

from hostile_files import bomb

from epass.untrusted import printable

MEMORY = 3 * 2**29  # bytes that a command may take beside what its imports have


class Answer(NamedTuple):
    code: int | None
    out: str
    err: str


class World:
    """`home` is where commands run and may write; `canary` is what the hostile files try to make."""

    def __init__(self, path: Path, server: subprocess.Popen[str]) -> None:
        self.path, self.home, self.canary, self._server = path, path / "home", path / "canary", server
        self.bomb = bomb(self.canary)
        self.home.mkdir()
        (path / "treasure").mkdir()
        (path / "treasure" / "diary.txt").write_text("dear diary\n")

    def outside(self) -> dict[str, bytes | None]:
        """Everything beside the home, the cache and what we caught of the output."""
        kept = [p for p in self.path.rglob("*") if not p.is_relative_to(self.home) and p.parts[-2:][0] != "cache"]
        return {str(p): p.read_bytes() if p.is_file() else None for p in kept if p.name not in ("out", "err", "cache")}

    def epass(self, *arguments: str | Path, **environment: str) -> Answer:
        """Run a command; whatever comes of it, it ends, runs nothing of the file, and writes nowhere else."""
        before = self.outside()
        out, err = self.path / "out", self.path / "err"
        out.unlink(missing_ok=True)
        err.unlink(missing_ok=True)
        request = {
            "arguments": list(map(str, arguments)),
            "folder": str(self.home),
            "out": str(out),
            "err": str(err),
            "memory": MEMORY,
            "environment": {"EPASS_CACHE": str(self.path / "cache"), **environment},
        }
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        self._server.stdin.write(json.dumps(request) + "\n")
        self._server.stdin.flush()
        code = json.loads(self._server.stdout.readline())["code"]
        answer = Answer(code, out.read_text("utf-8", "replace"), err.read_text("utf-8", "replace"))
        assert code is not None, f"it hangs: {answer}"
        assert "Traceback" not in answer.err, answer.err
        assert not self.canary.exists(), "code of the file was run"
        assert self.outside() == before
        for text in (answer.out, answer.err):
            assert printable(text.replace("\n", "")) == text.replace("\n", ""), f"a terminal would obey: {text!r}"
        return answer

    def refused(self, *arguments: str | Path, words: str = "") -> None:
        """Run a command that must end with one sentence and exit code 2."""
        answer = self.epass(*arguments)
        assert (answer.code, answer.out) == (2, ""), answer
        assert answer.err.startswith("Error: ")
        assert answer.err.count("\n") == 1
        assert len(answer.err) < 4000
        assert re.search(words, answer.err), answer.err
