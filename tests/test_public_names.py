from __future__ import annotations

import subprocess
import sys
import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest

import epass

PYPROJECT = Path(__file__).parents[1] / "pyproject.toml"
HEAVY = ("torch", "numpy", "matplotlib", "sklearn", "typer", "rich", "PIL", "safetensors")


@pytest.mark.parametrize("name", epass.__all__)
def test_every_public_name_can_be_imported(name: str) -> None:
    assert getattr(epass, name) is not None


def test_the_lists_agree() -> None:
    assert epass.__all__ == sorted(epass.__all__, key=lambda name: (not name.isupper(), name[0].islower(), name))
    assert len(set(epass.__all__)) == len(epass.__all__)
    assert dir(epass) == sorted(epass.__all__)
    assert sorted(name for names in epass._ROOMS.values() for name in names) == sorted(epass.__all__)


def test_a_star_import_brings_them_all() -> None:
    names: dict[str, object] = {}
    exec("from epass import *", names)
    assert set(epass.__all__) <= names.keys()


def test_a_public_name_is_the_thing_itself() -> None:
    from epass.engine.run import run
    from epass.errors import InputError
    from epass.parts.projector import ProjectorEnsemble

    assert (epass.run, epass.InputError, epass.ProjectorEnsemble) == (run, InputError, ProjectorEnsemble)


@pytest.mark.parametrize("name", ["train_model", "Simmatch", "_private", "FORMAT", "__wrapped__"])
def test_an_unknown_name_is_an_attribute_error(name: str) -> None:
    with pytest.raises(AttributeError, match=f"^module 'epass' has no attribute '{name}'$"):
        getattr(epass, name)
    assert not hasattr(epass, name)
    with pytest.raises(ImportError):
        exec(f"from epass import {name}")


@pytest.mark.parametrize(
    ("line", "light"),
    [
        ("import epass", HEAVY),
        ("import epass; dir(epass); epass.__version__; epass.InputError; epass.Recipe; epass.read_recipe", HEAVY),
        ("import epass; epass.load_run", ("torch", "matplotlib", "sklearn", "typer")),
        ("import epass; epass.trust", HEAVY),
        ("import epass.report", ("torch", "matplotlib", "sklearn", "typer")),
        ("import epass; epass.run", ("matplotlib", "sklearn", "typer", "rich")),
    ],
)
def test_an_import_loads_only_what_it_needs(line: str, light: tuple[str, ...]) -> None:
    line += f"; import sys; print(sorted({set(light)} & sys.modules.keys()))"
    done = subprocess.run([sys.executable, "-W", "error", "-c", line], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("[]\n", "")


def test_the_version_is_the_same_everywhere() -> None:
    assert epass.__version__ == tomllib.loads(PYPROJECT.read_text(encoding="utf-8"))["project"]["version"]
    assert epass.__version__ == version("epass")
