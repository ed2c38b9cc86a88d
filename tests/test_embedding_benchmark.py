from __future__ import annotations

import json
from pathlib import Path

import embedding
import pytest


@pytest.mark.slow
def test_the_bare_network_and_embedding_are_timed_in_turns(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EPASS_CACHE", "off")  # the script sets it, too, for good
    out = tmp_path / "rates.json"
    small = ["--image-size", "32", "--images", "4", "--seconds", "0.01", "--rounds", "2", "--device", "cpu"]
    assert embedding.main([*small, "--files", "6", "--out", str(out)]) == 0
    found = json.loads(out.read_text())
    for kind in ("plain", "views"):
        rates = found[kind]
        assert len(rates["bare"]) == len(rates["embedded"]) == 2
        assert min(rates["bare"] + rates["embedded"]) > 0
    assert [len(rates) for rates in found["files"].values()] == [2]  # a CPU decodes in one way
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == ["machine", "plain", "files", "views"]
    assert found["environment"]["command"].startswith("python benchmarks/embedding.py --image-size 32")
