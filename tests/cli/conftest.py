from __future__ import annotations

import re
from pathlib import Path

import pytest
from calling import RECIPE, Epass, Trained, call

ALARM = "epass.evaluation.alarms.is_near_chance"


@pytest.fixture(autouse=True)
def _no_alarm(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few steps teach nothing, which is not what these tests are about."""
    monkeypatch.setattr(ALARM, lambda pairs: False)


@pytest.fixture
def epass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Epass:
    """`epass("train", "digits")` in an empty folder with a recipe of six steps in it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tiny.toml").write_text(RECIPE)
    return call


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    """A finished run; tests must not change it."""
    home = tmp_path_factory.mktemp("trained")
    (home / "tiny.toml").write_text(RECIPE)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ALARM, lambda pairs: False)
        answer = call("train", "--recipe", home / "tiny.toml", "--projectors", "3", "--out", home / "run")
    assert answer.code == 0, answer.err
    return Trained(home / "run", home / "tiny.toml", answer)


@pytest.fixture(scope="session")
def exported(trained: Trained, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An exported folder; tests must not change it."""
    folder = tmp_path_factory.mktemp("handed") / "model"
    answer = call("export", trained.folder, "--out", folder)
    assert (answer.code, answer.err) == (0, "")
    assert all(float(found) < 1e-4 for found in re.findall(r"difference to PyTorch +(\S+)", answer.out))
    assert answer.out.count("difference to PyTorch") == 2
    assert "37 images" in answer.out
    return folder
