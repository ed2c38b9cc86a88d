"""The server that runs commands, worlds for them, and a run of a stranger."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hostile_files import RECIPE
from hostile_world import World


@pytest.fixture(scope="session")
def server() -> Iterator[subprocess.Popen[str]]:
    environment = os.environ | {"OMP_NUM_THREADS": "1", "MALLOC_ARENA_MAX": "1", "PYTHONWARNINGS": "default"}
    command = [sys.executable, str(Path(__file__).with_name("attack_server.py"))]
    with subprocess.Popen(command, stdin=-1, stdout=-1, text=True, env=environment) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield process
        assert process.stdin is not None
        process.stdin.close()


@pytest.fixture
def world(tmp_path: Path, server: subprocess.Popen[str]) -> World:
    made = World(tmp_path, server)
    (made.home / "tiny.toml").write_text(RECIPE)
    return made


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory, server: subprocess.Popen[str]) -> Path:
    """A finished run; tests copy it."""
    trained = World(tmp_path_factory.mktemp("finished"), server)
    (trained.home / "tiny.toml").write_text(RECIPE)
    answer = trained.epass("train", "--recipe", "tiny.toml", "--out", "run")
    assert answer.code == 0, answer
    return trained.home / "run"


@pytest.fixture
def run(world: World, finished: Path) -> Path:
    """A run of a stranger."""
    return shutil.copytree(finished, world.home / "run")


@pytest.fixture
def change(run: Path) -> Callable[..., None]:
    """`change("model.json", net={"name": "x"})` changes keys of a JSON file of the run."""

    def write(name: str, **changes: Any) -> None:
        content = json.loads((run / name).read_text()) | changes
        (run / name).write_text(json.dumps(content))

    return write
