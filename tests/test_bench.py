"""What `epass bench` says: numbers that agree, counts that equal a hand computation, and nothing is changed."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import torch
from torch import Tensor

from epass.app.bench import bench_facts
from epass.cli import main
from epass.engine import timing as bench
from epass.engine.build import Experiment, build
from epass.errors import InputError
from epass.recipe import Recipe
from epass.testing import difference

CPU = torch.device("cpu")
TINY = Recipe(
    source="made up for tests",
    data={"name": "noise", "labels": 12},
    net={"name": "small", "width": 4},
    method={"name": "simmatch"},
    projector={"size": 3, "out_dim": 16},
    plan={"steps": 2000, "labeled_batch": 6, "unlabeled_ratio": 2},
)
SUPERVISED = replace(TINY, method={"name": "supervised"}, projector=None)
WORK = {
    "data": "noise",
    "classes": 3,
    "channels": 1,
    "image_size": 8,
    "images_in_memory": 48,
    "method": "simmatch",
    "projectors": 3,
    "net": "small",
    "labeled_batch": 6,
    "unlabeled_batch": 12,
    "precision": "float32",
    "captured": False,
    "compiled": False,
}
# The layers of the small network of width 4 on one image of 8 x 8: convolutions as (inputs, outputs, side), then the
# numbers that the layers without weights read and write; every convolution is followed by a norm and an activation.
CONVOLUTIONS = [(1, 4, 8), (4, 8, 4), (8, 8, 4), (8, 16, 2)]
ACTIVATED_SIDES = [4, 4, 2, 2]  # the first and the third pool before they activate
POOLS = [4 * 64 + 4 * 16, 8 * 16 + 8 * 4]
FEATURES, CLASSES = 16, 3


def small(recipe: Recipe = TINY, device: torch.device = CPU) -> Experiment:
    return build(recipe, device, bench.noise(images=60, classes=CLASSES, channels=1, image_size=8))


def state(experiment: Experiment) -> dict[str, Tensor]:
    return {name: tensor.detach().clone() for name, tensor in experiment.progress.tensors().items()}


@pytest.fixture(scope="module")
def measured() -> tuple[Experiment, dict[str, Tensor], dict[str, Any]]:
    """An experiment, its state before it was measured, and the numbers."""
    experiment = small()
    return experiment, state(experiment), bench.measure(experiment, steps=3, command="epass bench")


def test_every_number_is_there_and_they_agree(measured: tuple[Experiment, object, dict[str, Any]]) -> None:
    found = measured[2]
    assert {key: found["work"][key] for key in WORK} == WORK
    assert found["work"].keys() - WORK.keys() == {"parameters"}
    assert found.keys() == {
        "work",
        "steps_per_pass",
        "step_ms",
        "pass_ms",
        "pass_spread",
        "images_per_step",
        "images_per_second",
        "peak_memory_bytes",
        "batch_ms",
        "split_ms",
        "flops",
        "bytes",
        "reached",
        "ceilings",
        "shares",
        "environment",
    }
    step = found["step_ms"]
    assert 0 < step["p10"] <= step["median"] <= step["p90"]
    assert found["steps_per_pass"] == 3
    assert found["images_per_step"] == 6 + 2 * 12  # one view of the labeled, two of the unlabeled images
    assert found["images_per_second"] == pytest.approx(30 / (step["median"] / 1000))
    assert set(found["split_ms"]) == {"batch", "forward", "backward", "rest"}
    assert sum(found["split_ms"].values()) == pytest.approx(step["median"])
    assert found["split_ms"]["batch"] == found["batch_ms"] > 0  # on a CPU nothing else is done meanwhile
    for key, amount in (("flops_per_second", found["flops"]), ("bytes_per_second", found["bytes"])):
        assert found["reached"][key] == pytest.approx(1000 * amount / step["median"])
        assert found["shares"][key] == pytest.approx(found["reached"][key] / found["ceilings"][key])
        assert found["ceilings"][key] > 0
    assert found["peak_memory_bytes"] > 2**20
    assert found["environment"]["command"] == "epass bench"
    assert {"torch", "commit", "platform", "device", "device_name", "threads", "load", "seed"} <= set(
        found["environment"]
    )
    assert json.loads(json.dumps(found)) == found


def test_a_batch_made_beside_the_step_is_no_part_of_it(measured: tuple[Experiment, object, dict[str, Any]]) -> None:
    found = measured[2]
    assert bench_facts(found)["split"].startswith("batch ")
    split = {"batch": 0.0, "forward": 2.0, "backward": 4.0, "rest": 2.0}
    on_cuda = {**found, "step_ms": {"median": 8.0, "p10": 8.0, "p90": 8.0}, "split_ms": split, "batch_ms": 0.5}
    wanted = "forward 2 ms (25 %), backward 4 ms (50 %), rest 2 ms (25 %), a batch takes 0.5 ms beside the step before"
    assert bench_facts(on_cuda)["split"] == wanted


def test_measuring_changes_nothing(measured: tuple[Experiment, dict[str, Tensor], object]) -> None:
    experiment, before, _ = measured
    assert difference(before, experiment.progress.tensors()) is None
    assert {group["lr"] for group in experiment.optimizer.param_groups} == {experiment.plan.lr}
    assert all(p.grad is None or not p.grad.any() for p in experiment.method.parameters())
    fresh = small()
    for number in range(3):  # what follows is what would have followed
        ours, theirs = (each.pipeline for each in (experiment, fresh))
        found, expected = ours[0](ours[1](number)), theirs[0](theirs[1](number))
        assert {name: loss.item() for name, loss in found.losses.items()} == {
            name: loss.item() for name, loss in expected.losses.items()
        }


def test_state_is_put_back_after_a_failure() -> None:
    experiment = small()
    before = state(experiment)

    def fail() -> None:
        with bench.state_kept(experiment):
            bench.whole_step(experiment)(0)
            assert difference(before, experiment.progress.tensors()) is not None
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert difference(before, experiment.progress.tensors()) is None


def test_flops_equal_a_hand_computation() -> None:
    rows = 6
    forward = [2 * rows * outputs * side**2 * inputs * 9 for inputs, outputs, side in CONVOLUTIONS]
    head = 2 * rows * FEATURES * CLASSES
    # backward: one product for the weights and one for the input, which the first layer does not need
    assert bench.count_flops(small(SUPERVISED)) == 3 * (sum(forward) + head) - forward[0]


@pytest.mark.parametrize(("recipe", "rows"), [(SUPERVISED, 6), (TINY, 30)])
def test_bytes_equal_a_hand_computation(recipe: Recipe, rows: int) -> None:
    numbers = sum(POOLS) + FEATURES + CLASSES
    parameters = FEATURES * CLASSES + CLASSES
    for (inputs, outputs, side), activated_side in zip(CONVOLUTIONS, ACTIVATED_SIDES, strict=True):
        before, after, activated = inputs * side**2, outputs * side**2, outputs * activated_side**2
        numbers += (before + after) + 2 * after + 2 * activated
        parameters += inputs * outputs * 9 + 2 * outputs
    experiment = small(recipe)
    assert bench.count_bytes(experiment) == 4 * (3 * rows * numbers + parameters)
    assert not any(module._forward_hooks for module in experiment.method.modules())


def test_noise_has_every_class_and_level() -> None:
    dataset = bench.noise(images=10, classes=7, channels=3, image_size=8, seed=3)
    assert dataset.train.pixels.shape == (28, 3, 8, 8)
    assert torch.bincount(dataset.train.labels).tolist() == [4] * 7
    assert torch.equal(dataset.train.pixels, bench.noise(images=10, classes=7, image_size=8, seed=3).train.pixels)
    with pytest.raises(InputError, match="1 classes: use at least 2"):
        bench.noise(images=10, classes=1)
    with pytest.raises(InputError, match="images of 4 pixels: use at least 8"):
        bench.noise(images=10, classes=2, image_size=4)


@pytest.mark.gpu
@pytest.mark.parametrize("compile", ["off", "on"])
def test_measuring_a_captured_step(compile: str) -> None:
    experiment = small(replace(TINY, plan={**TINY.plan, "compile": compile}), torch.device("cuda"))
    before = state(experiment)
    found = bench.measure(experiment, steps=3)
    assert found["work"]["captured"]
    assert found["work"]["compiled"] is (compile == "on")
    assert found["step_ms"]["median"] > 0
    assert found["peak_memory_bytes"] > 0
    assert difference(before, experiment.progress.tensors()) is None


# The command


class Call:
    """`call("digits")` is `epass bench digits`, in this process."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self.capsys = capsys

    def __call__(self, *words: str | Path) -> tuple[int, str, str]:
        code = 0
        with patch.object(sys, "argv", ["epass", "bench", *map(str, words)]):
            try:
                main()
            except SystemExit as end:
                code = end.code if isinstance(end.code, int) else 1
        return code, *self.capsys.readouterr()


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Call:
    monkeypatch.chdir(tmp_path)
    return Call(capsys)


SMALL = (
    "digits",
    "--net",
    "small",
    "--labeled-batch",
    "4",
    "--unlabeled-ratio",
    "2",
    "--steps",
    "1",
    "--device",
    "cpu",
)


def test_the_command_prints_and_writes(call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "warm_up", lambda work, device: 1.0)
    code, out, err = call(*SMALL, "--out", "speed.json")
    assert (code, err) == (0, "")
    found = json.loads((tmp_path / "speed.json").read_text())
    assert found["work"]["data"] == "digits"
    assert found["work"]["projectors"] == 3
    assert found["images_per_step"] == 4 + 2 * 8
    assert found["arguments"]["labeled_batch"] == 4
    assert found["arguments"]["out"] == "speed.json"
    assert found["environment"]["command"].startswith("epass bench digits --net small")
    for words in ("simmatch + EPASS (3 projectors)", "images/s, every view", "two passes", "GFLOP/s", "GB/s", "rest "):
        assert words in out

    code, out, err = call(*SMALL, "--json", "--method", "supervised")
    assert (code, err) == (0, "")
    work = json.loads(out)["work"]
    assert (work["method"], work["projectors"], work["unlabeled_batch"]) == ("supervised", None, 0)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("--method", "simatch"), "did you mean 'simmatch'?"),
        (("--net", "smal"), "did you mean 'small'?"),
        (("--method", "fixmatch", "--projectors", "3"), "'fixmatch' has no embedding"),
        (("--projectors", "0"), "projector.size must be at least 1"),
        (("--labeled-batch", "0"), "plan.labeled_batch must be at least 1"),
        (("--unlabeled-ratio", "0"), "plan.unlabeled_ratio must be at least 1"),
        (("--classes", "1"), "use at least 2"),
        (("--image-size", "2"), "use at least 8"),
        (("--steps", "0"), "At least one step must be timed, not 0."),
        (("--seed", "-1"), "seed is a whole number"),
        (("--device", "cdua"), "did you mean 'cuda'?"),
        (("digts",), "did you mean 'digits'?"),
        (("digits", "--classes", "10"), "'digits' has its own classes"),
        (("--out", "no/such/folder.json"), "'no/such/folder.json' cannot be written"),
        (("--out", "."), "'.' cannot be written"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else None,
)
def test_a_mistake_is_one_sentence(call: Call, words: tuple[str, ...], expected: str) -> None:
    code, out, err = call(*words)
    assert (code, out) == (2, "")
    assert err.startswith("Error: ")
    assert err.count("\n") == 1
    assert expected in err


def test_a_batch_that_does_not_fit_says_what_to_do(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise torch.OutOfMemoryError

    monkeypatch.setattr(bench, "measure", full)
    code, out, err = call(*SMALL)
    assert (code, out) == (2, "")
    assert err == (
        "Error: The batch does not fit into the memory of the device: lower --labeled-batch from 4 to 2 "
        "(--labeled-batch 2).\n"
    )


def test_help_teaches(call: Call) -> None:
    code, out, _ = call("--help")
    assert code == 0
    for words in ("epass bench --method comatch", "--unlabeled-ratio", "wrn-28-2", "the noise"):
        assert words in out
