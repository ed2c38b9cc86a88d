"""Loss traces of twenty steps: nobody changes the numbers of a method without noticing.

A new method gets its trace by

    python tests/methods/test_golden.py

which writes what is missing and never changes what is there. If a change of numbers is intended, delete the trace first
and look at the difference before committing it.
"""

from __future__ import annotations

import inspect
import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from problems import SmallNet, make_problem, train_steps

from epass.method import Method
from epass.methods import METHODS, PRETRAINING
from epass.networks.classifier import Classifier
from epass.parts.projector import ProjectorEnsemble
from epass.testing.case import TinyBackbone

FOLDER = Path(__file__).parent.parent / "golden"
STEPS = 20
LR = 0.02  # low enough that a difference in the last digit of a weight stays one
# So that masks, edges, gates and rings all switch within the trace. A method gets those it has arguments for.
SETTINGS = {
    "threshold": 0.6,
    "edge_threshold": 0.5,
    "warmup_steps": 8,
    "queue_batches": 3,
    "alignment_length": 5,
    "statistics_momentum": 0.8,
    "decay_steps": 4,
    "teacher_momentum": 0.5,
    "share_momentum": 0.8,
}
OWN_SETTINGS = {"moco": {"queue_size": 20, "momentum": 0.9}}  # which mean something else elsewhere
EVERY = METHODS | PRETRAINING


def takes(name: str) -> set[str]:
    return set(inspect.signature(EVERY[name]).parameters)


def cases() -> dict[str, tuple[str, int]]:
    """The traces by file name: a method and, where it has a projector, the number of heads (0 = none)."""
    found = {}
    for name in EVERY:
        for size in (1, 3) if "projector" in takes(name) else (0,):
            found[f"{name}_{size}_heads" if size else name] = (name, size)
    return found


def build(name: str, size: int) -> Method:
    torch.manual_seed(0)
    problem = replace(make_problem(num_labeled=8, labeled_batch=6, unlabeled_batch=9), num_unlabeled=9)
    # Heads are made from a classifier that has a backbone, which the small network has not.
    net = Classifier(TinyBackbone(), problem.num_classes) if name == "multihead" else SmallNet(num_features=16)
    parts = [ProjectorEnsemble(net.num_features, 8, size=size)] if size else []
    settings = {key: value for key, value in SETTINGS.items() if key in takes(name)}
    settings |= OWN_SETTINGS.get(name, {})
    return EVERY[name](EVERY[name].adapt(net), problem, *parts, **settings).train()


def trace(name: str, size: int) -> dict[str, list[float]]:
    steps = train_steps(build(name, size), STEPS, lr=LR)
    return {part: [float(f"{step[part]:.7g}") for step in steps] for part in steps[0]}


@pytest.mark.parametrize("case", cases())
def test_losses_follow_the_golden_trace(case: str) -> None:
    file = FOLDER / f"{case}.json"
    assert file.is_file(), f"{case} has no golden trace yet: run python tests/methods/{Path(__file__).name}"
    golden, now = json.loads(file.read_text()), trace(*cases()[case])
    assert set(now) == set(golden)
    for part, losses in golden.items():
        # Kernels round differently on different machines.
        assert now[part] == pytest.approx(losses, rel=1e-4, abs=1e-6), part


def test_every_golden_trace_belongs_to_a_method() -> None:
    assert {file.stem for file in FOLDER.glob("*.json")} == set(cases())


@pytest.mark.parametrize("case", [case for case, (name, _) in cases().items() if "threshold" in takes(name)])
def test_golden_masks_open_and_close(case: str) -> None:
    method, used = build(*cases()[case]), []
    method.register_forward_hook(lambda _method, _inputs, outcome: used.append(outcome.pseudo.mask.mean().item()))
    train_steps(method, STEPS, lr=LR)
    assert any(0 < share < 1 for share in used)


def test_only_missing_traces_are_written(tmp_path: Path) -> None:
    for file in FOLDER.glob("*.json"):
        (tmp_path / file.name).write_text("as it was")
    (tmp_path / "fixmatch.json").unlink()
    assert write_missing(tmp_path) == ["fixmatch"]
    assert json.loads((tmp_path / "fixmatch.json").read_text()) == trace("fixmatch", 0)
    assert write_missing(tmp_path) == []
    assert (tmp_path / "dash.json").read_text() == "as it was"


def write_missing(folder: Path) -> list[str]:
    """Write the traces that are not there, and say which."""
    missing = {case: made for case, made in cases().items() if not (folder / f"{case}.json").exists()}
    for case, (name, size) in missing.items():
        lines = [f'  "{part}": {json.dumps(losses)}' for part, losses in trace(name, size).items()]
        (folder / f"{case}.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")
    return list(missing)


if __name__ == "__main__":
    torch.set_num_threads(1)  # as in the tests: sums depend on how many there are
    print("\n".join(write_missing(FOLDER)) or "nothing is missing")
