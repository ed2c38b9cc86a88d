from __future__ import annotations

import json
from pathlib import Path

import messages
import pytest
import torch.distributed as dist
import turns

from epass.engine.timing import noise
from epass.machine import distributed


@pytest.mark.slow
@pytest.mark.distributed
def test_only_one_of_two_sends_messages(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[int] = []
    original = dist.all_reduce
    monkeypatch.setattr(distributed.dist, "all_reduce", lambda *args, **how: sent.append(1) or original(*args, **how))
    timed: list[int] = []
    time_steps = turns.time_steps

    def count(*args: object) -> list[float]:
        sent.clear()
        found = time_steps(*args)
        timed.append(len(sent))
        return found

    monkeypatch.setattr(turns, "time_steps", count)
    monkeypatch.setattr(messages, "images_for", lambda device: noise(images=200, classes=10, image_size=8))
    out = tmp_path / "times.json"
    messages.main([*["--net", "small", "--turns", "2", "--steps", "1", "--device", "cpu", "--out"], str(out)])
    times = json.loads(out.read_text())["turns_ms"]
    assert all(len(each) == 2 and min(each) > 0 for each in times.values())
    assert timed[::2] == [0, 0]  # alone
    assert min(timed[1::2]) > 5  # gradients, and BatchNorm's backward passes
    assert "talking" in capsys.readouterr().out.splitlines()[2]
    assert not dist.is_initialized()
