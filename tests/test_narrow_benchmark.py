from __future__ import annotations

import json
from pathlib import Path

import narrow
import pytest
import torch

from epass.networks import operators

pytest.importorskip("triton")
pytestmark = [pytest.mark.gpu] if torch.cuda.is_available() else []


def test_both_sides_compute_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if device.type == "cpu":
        monkeypatch.setattr(operators, "PARTS", 2)
    torch.manual_seed(0)
    for name, (library, ours) in narrow.layers(2, 8, device).items():
        theirs, own = library(1), ours(1)
        if "weights" in name:
            assert isinstance(theirs, tuple)
            wanted = theirs[1].permute(2, 3, 1, 0).float()
            found = own[:27].view(wanted.shape) if "first" in name else own
            if "bias" in name:
                torch.testing.assert_close(own[27], theirs[2].float(), rtol=2e-2, atol=2e-2)
        elif "input" in name:
            assert isinstance(theirs, tuple)
            wanted, found = theirs[0].float(), own[0].float()
        else:
            wanted, found = theirs.float(), (own if "first" in name else own[0]).float()
        distance = (found - wanted).norm() / wanted.norm()
        assert distance < (2e-2 if device.type == "cuda" else 1e-5), name


@pytest.mark.slow
def test_every_computation_is_printed_and_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if not torch.cuda.is_available():
        monkeypatch.setattr(operators, "PARTS", 2)
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", False)
    monkeypatch.setattr(torch.backends.cudnn, "benchmark_limit", 10)
    out = tmp_path / "times.json"
    narrow.main(["--images", "2", "--size", "8", "--repeats", "1", "--device", "auto", "--out", str(out)])
    title, *lines = capsys.readouterr().out.splitlines()
    assert title.startswith("2 maps of 8 x 8 pixels on ")
    assert len(lines) == 8
    assert all("library" in line and "ours" in line for line in lines)
    kept = json.loads(out.read_text())
    assert [min(times) > 0 for times in kept["library_and_ours_us"].values()] == [True] * 8
    assert "commit" in kept["environment"]
