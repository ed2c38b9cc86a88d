from __future__ import annotations

import json
import math
import os
import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from threading import Barrier, BrokenBarrierError
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from epass.augment.policies import POLICIES, Strong
from epass.data import Dataset, from_vectors, open_dataset
from epass.engine import build as building
from epass.engine import run as running
from epass.engine.build import (
    Experiment,
    build,
    check_recipe,
    policies_for,
)
from epass.engine.infer import predict
from epass.engine.models import load_model, takes_projector
from epass.engine.run import run, train_steps
from epass.engine.timing import seconds_per_step
from epass.errors import ContractError, InputError
from epass.evaluation import score
from epass.machine.device import QUEUES, ask_for_queues, choose_device, choose_precision
from epass.method import Batch, Method, Outcome
from epass.methods import METHODS
from epass.recipe import Recipe, parse_recipe
from epass.runs import RunFolder, load_run
from epass.testing import difference, named
from epass.training.checkpoint import checkpoints, read_checkpoint, restore_newest
from epass.training.window import NotFiniteError

CPU = torch.device("cpu")
TINY = Recipe(
    source="made up for tests",
    data={"name": "digits", "labels": 40},
    net={"name": "small", "width": 4},
    method={"name": "simmatch", "warmup_steps": 2},
    projector={"size": 3, "out_dim": 16},
    plan={
        "steps": 8,
        "labeled_batch": 10,
        "unlabeled_ratio": 2,
        "average_momentum": 0.5,
        "report_every": 2,
        "evaluate_every": 3,
    },
)
FILES = {
    "checkpoints/step-00000003.safetensors",
    "checkpoints/step-00000006.safetensors",
    "checkpoints/step-00000008.safetensors",
    "environment.json",
    "metrics.jsonl",
    "model.json",
    "model.safetensors",
    "predictions.npz",
    "embeddings.safetensors",
    "recipe.toml",
    "results.json",
    "split.json",
}
KEPT = ("model.safetensors", "model.json", "predictions.npz", "results.json")


def plain(method: str) -> Recipe:
    """The tiny recipe with another method."""
    recipe = replace(TINY, method={"name": method})
    return recipe if takes_projector(METHODS[method]) else replace(recipe, projector=None)


@pytest.fixture(scope="module")
def digits() -> Dataset:
    return open_dataset("digits")


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory, digits: Dataset) -> tuple[Experiment, Path]:
    """A finished run; tests must not change it."""
    folder = tmp_path_factory.mktemp("finished") / "run"
    experiment = build(TINY, CPU, digits)
    assert [report.step for report in train_steps(experiment, RunFolder(folder)) if report] == [2, 3, 4, 6, 8]
    return experiment, folder


def copied(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.detach().clone() for name, tensor in tensors.items()}


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def rows(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def timeless(folder: Path) -> list[dict[str, Any]]:
    return [{key: value for key, value in row.items() if key != "seconds"} for row in rows(folder)]


def results(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "results.json").read_text())
    return found


# --- What cannot work -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"method.name": "simatch"}, "Unknown method 'simatch': did you mean 'simmatch'?"),
        ({"method.name": None}, "Unknown method 'None': choose one of: "),
        ({"method.name": 3}, "Unknown method '3': choose one of: adamatch"),
        ({"net.name": "smal"}, "Unknown network 'smal': did you mean 'small'?"),
        ({"net.name": None}, "Unknown network 'None': choose one of: "),
        ({"data.name": None}, "data.name is missing: a text."),
        ({"data.label": 40}, "Unknown setting 'data.label': did you mean 'data.labels'?"),
        ({"data.labels": "all"}, 'data.labels is a whole number or not set, not "all".'),
        ({"method.treshold": 0.9}, "Unknown setting 'method.treshold': did you mean 'method.threshold'?"),
        ({"method.threshold": "high"}, 'method.threshold is a number, not "high".'),
        ({"net.widht": 4}, "Unknown setting 'net.widht': did you mean 'net.width'?"),
        ({"net.in_channels": 3}, "Unknown setting 'net.in_channels': "),
        ({"projector.sise": 4}, "Unknown setting 'projector.sise': did you mean 'projector.size'?"),
        ({"projector.out_dim": 6.4}, "projector.out_dim is a whole number, not 6.4."),
        ({"projector.out_dim": 0}, "projector.out_dim must be at least 1, not 0."),
        ({"projector.size": -1}, "projector.size must be at least 1, not -1."),
        ({"plan.stepz": 4}, "Unknown setting 'plan.stepz': did you mean 'plan.steps'?"),
        ({"plan.steps": None}, "plan.steps is missing: a whole number."),
        ({"plan.steps": 0}, "plan.steps must be at least 1, not 0."),
        ({"plan.report_every": 0}, "plan.report_every must be at least 1, not 0."),
        ({"plan.lr": -0.1}, "plan.lr must be at least 0, not -0.1."),
        ({"net.width": 0}, "net.width must be at least 1, not 0."),
        ({"method.alignment_length": 0}, "method.alignment_length must be at least 1, not 0."),
        ({"method.warmup_steps": -1}, "method.warmup_steps must be at least 0, not -1."),
        ({"method.alignment_steps": -1}, "method.alignment_steps must be at least 0, not -1."),
        ({"augment.padding": -1}, "augment.padding must be at least 0, not -1."),
        ({"data.labels": 0}, "data.labels must be at least 1, not 0."),
        ({"plan.lr": 0}, "plan.lr must be above 0"),
        ({"plan.lr": 1e300}, "plan.lr must be at most 3.4e+38, not 1e+300."),
        ({"plan.weight_decay": 1e39}, "plan.weight_decay must be at most 3.4e+38, not 1e+39."),
        ({"method.unlabeled_weight": 1e39}, "method.unlabeled_weight must be at most 3.4e+38, not 1e+39."),
        ({"plan.steps": 10**20}, "plan.steps must be less than 2^63, which 100000000000000000000 is not."),
        ({"plan.momentum": 1}, "plan.momentum lies in [0, 1), not at 1."),
        ({"plan.precision": "half"}, "plan.precision is one of 'auto', 'float32', 'bfloat16', not \"half\"."),
        ({"augment.colour": 4}, "Unknown setting 'augment.colour': did you mean 'augment.color'?"),
        ({"augment.cutout": "big"}, 'augment.cutout is a number, not "big".'),
        ({"method.warmup_steps": 8}, "method.warmup_steps is 8, but the whole run has 8 steps: use --set"),
        ({"method.warmup_steps": None}, "method.warmup_steps is 1024, but the whole run has 8 steps: use --set"),
        ({"seed": -1}, "seed is a whole number from 0 to 4294967295, not '-1'."),
        ({"seed": 2**32}, "seed is a whole number from 0 to 4294967295, not '4294967296'."),
        ({"seed": 1.0}, "seed is a whole number from 0 to 4294967295, not '1.0'."),
        ({"seed": True}, "seed is a whole number from 0 to 4294967295, not 'True'."),
    ],
    ids=str,
)
def test_what_cannot_work_is_one_sentence_before_anything_is_written(
    settings: dict[str, Any], words: str, tmp_path: Path
) -> None:
    recipe = TINY.with_settings(settings)
    with pytest.raises(InputError) as error:
        check_recipe(recipe)
    assert words in str(error.value)
    assert "\n" not in str(error.value)
    with pytest.raises(InputError):
        next(run(recipe, tmp_path / "run"))
    assert not (tmp_path / "run").exists()


def test_what_can_work_passes() -> None:
    check_recipe(TINY)
    check_recipe(TINY.with_settings({"seed": 2**32 - 1, "method.warmup_steps": 7}))
    check_recipe(TINY.with_settings({"projector.size": None, "projector.out_dim": None}))
    for name in METHODS:
        check_recipe(plain(name).with_settings({"plan.steps": 20000}))


@pytest.mark.parametrize("name", [name for name, method in METHODS.items() if not takes_projector(method)])
def test_a_method_without_an_embedding_takes_no_projector(name: str) -> None:
    with pytest.raises(InputError) as error:
        check_recipe(replace(plain(name), projector={"size": 3}))
    able = "comatch, iomatch, simmatch, simmatchv2"
    assert str(error.value) == f"'{name}' has no embedding and so takes no projector: use one of {able}."


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("gpu", "did you mean 'cuda' (NVIDIA) or 'mps' (Apple)?"),
        ("cdua", "did you mean 'cuda'?"),
        ("tpu", "Unknown device 'tpu'"),
        ("", "Unknown device ''"),
        ("cpu:one", "'cpu:one' is not a device: write cpu, or cpu:0"),
        ("cuda", "There is no CUDA device here: use --device cpu"),
        ("cuda:0", "There is no CUDA device here: use --device cpu"),
        ("mps", "There is no MPS device here: use --device cpu"),
    ],
)
def test_a_device_that_is_not_there_is_one_sentence(name: str, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    with pytest.raises(InputError) as error:
        choose_device(name)
    assert words in str(error.value)
    assert "\n" not in str(error.value)


def test_the_device_is_the_best_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    assert choose_device() == choose_device("cpu") == CPU
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    assert choose_device("auto") == torch.device("cpu")  # untested there, so it has to be asked for
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert choose_device("auto") == torch.device("cuda")
    assert choose_device("cuda:1") == torch.device("cuda:1")
    with pytest.raises(InputError, match="There is no cuda:2 here: the last CUDA device is cuda:1"):
        choose_device("cuda:2")


@pytest.mark.parametrize(
    ("name", "started", "chosen", "expected"),
    [
        ("auto", False, None, "32"),
        ("cuda:0", False, None, "32"),
        ("cuda", False, "4", "4"),  # somebody knows better
        ("cuda", True, None, None),  # CUDA would not look any more
        ("cpu", False, None, None),
    ],
)
def test_cuda_is_asked_for_all_queues_while_it_listens(
    monkeypatch: pytest.MonkeyPatch, name: str, started: bool, chosen: str | None, expected: str | None
) -> None:
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: started)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    seen: list[str | None] = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: (seen.append(os.environ.get(QUEUES)), True)[1])
    with patch.dict(os.environ):
        os.environ.pop(QUEUES, None)
        if chosen is not None:
            os.environ[QUEUES] = chosen
        choose_device(name)
        assert os.environ.get(QUEUES) == expected
        assert ask_for_queues() == (not started)
    assert set(seen) <= {expected}  # before anything that may start CUDA


# --- From a recipe to objects -----------------------------------------------------------------------------------------


def test_a_method_whose_views_share_a_crop_gets_such_views(digits: Dataset) -> None:
    unchanged = {"plan.steps": 20000, "augment.num_operations": 0, "augment.cutout": 0.0, "wrapper.name": "shrink"}
    for name, shared in (("infomatch", True), ("comatch", False)):
        recipe = plain(name).with_settings({**unchanged, "wrapper.threshold": 0.9})
        weak, *strong = build(recipe, CPU, digits).feed(0).unlabeled
        assert [torch.equal(weak, view) for view in strong] == [shared, shared]


@pytest.mark.parametrize("name", METHODS)
def test_the_same_recipe_is_the_same_experiment(name: str, digits: Dataset) -> None:
    recipe = plain(name).with_settings({"plan.steps": 20000})
    first, again = build(recipe, CPU, digits), build(recipe, CPU)
    assert difference(first.progress.tensors(), again.progress.tensors()) is None
    for part in ("labeled", "unlabeled", "test"):
        ours, theirs = getattr(first.split, part), getattr(again.split, part)
        assert torch.equal(ours.pixels, theirs.pixels)
        assert torch.equal(ours.labels, theirs.labels)
    for step in (0, 7):
        ours, theirs = first.feed(step), again.feed(step)
        for one, other in zip(ours, theirs, strict=True):
            for a, b in zip(*([x] if isinstance(x, Tensor) else x for x in (one, other)), strict=True):
                assert torch.equal(a, b)
        assert difference(named(first.method(ours)), named(again.method(theirs))) is None


def test_another_seed_changes_weights_split_and_batches_but_not_the_test(digits: Dataset) -> None:
    first, other = (build(TINY.with_settings({"seed": seed}), CPU, digits) for seed in (0, 1))
    state = first.average.state_dict(), other.average.state_dict()
    assert not torch.equal(state[0]["module.head.weight"], state[1]["module.head.weight"])
    assert not torch.equal(first.split.labeled.pixels, other.split.labeled.pixels)
    assert torch.equal(first.split.test.pixels, other.split.test.pixels)
    assert not torch.equal(first.feed(0).labeled_index, other.feed(0).labeled_index)
    assert not torch.equal(first.feed(0).unlabeled_index, other.feed(0).unlabeled_index)
    assert not torch.equal(first.feed(0).labeled_index, first.feed(1).labeled_index)


@pytest.mark.parametrize("method", [name for name, method in METHODS.items() if takes_projector(method)])
def test_one_and_three_projectors_start_from_the_same_network_and_batches(method: str, digits: Dataset) -> None:
    # so that the comparison of a plain method with EPASS is about the projectors and nothing else
    recipe = plain(method).with_settings({"plan.steps": 20000})
    one, three = (build(recipe.with_settings({"projector.size": size}), CPU, digits) for size in (1, 3))
    assert difference(one.method.net.state_dict(), three.method.net.state_dict()) is None
    assert difference(one.average.state_dict(), three.average.state_dict()) is None
    heads = [sum("heads" in name for name in e.method.state_dict()) for e in (one, three)]
    assert heads[1] == 3 * heads[0] > 0
    assert torch.equal(one.feed(3).unlabeled[1], three.feed(3).unlabeled[1])


def test_methods_start_from_the_same_network(digits: Dataset) -> None:
    unchanged = [name for name, method in METHODS.items() if "adapt" not in vars(method)]
    assert len(unchanged) > len(METHODS) / 2
    states = [
        build(plain(name).with_settings({"plan.steps": 20000}), CPU, digits).method.net.state_dict()
        for name in unchanged
    ]
    assert all(difference(states[0], state) is None for state in states[1:])


def test_the_average_starts_as_the_network_and_is_apart_from_it(digits: Dataset) -> None:
    experiment = build(TINY, CPU, digits)
    net, average = experiment.method.net.state_dict(), experiment.average.module.state_dict()
    assert difference(net, average) is None
    assert not {tensor.data_ptr() for tensor in net.values()} & {tensor.data_ptr() for tensor in average.values()}
    assert experiment.method.training
    assert not experiment.average.module.training


def test_a_padding_larger_than_the_images_is_refused_before_anything_is_drawn(digits: Dataset) -> None:
    sentence = "Reflect padding of 8 pixels needs images larger than that, these are 8 x 8: choose a padding below 8."
    with pytest.raises(InputError) as error:
        build(TINY.with_settings({"augment.padding": 8}), CPU, digits)
    assert str(error.value) == sentence
    policies_for(TINY.with_settings({"augment.padding": 7}), digits)


def test_vectors_take_the_settings_that_some_view_of_them_has(monkeypatch: pytest.MonkeyPatch) -> None:
    vectors = from_vectors(np.random.default_rng(0).normal(size=(40, 8)).astype(np.float32), np.arange(40) % 2)
    recipe = replace(TINY, augment={"noise": 1.0, "dropout": 0.1, "weak": "strong-noise"})
    policies_for(recipe, vectors)
    image_settings = {"padding": 3, "horizontal_flip": False, "color": False, "num_operations": 2, "cutout": 0.2}
    for key, value in image_settings.items():
        with pytest.raises(InputError, match=rf"holds vectors, which have no augment\.{key}: leave it out\.$"):
            policies_for(replace(recipe, augment={**recipe.augment, key: value}), vectors)
    monkeypatch.setitem(POLICIES, "mine", Strong)  # a view of one's own may understand them
    policies_for(replace(recipe, augment={"strong": "mine", **image_settings}), vectors)
    # The whole network may be trained on from pixels afterwards, with the same settings.
    policies_for(replace(recipe, augment=image_settings, features={"net": "efficientnet-lite0"}), vectors)


def test_tables_reach_what_they_configure(digits: Dataset) -> None:
    recipe = TINY.with_settings(
        {
            "method.threshold": 0.123,
            "projector.combine": "concat",
            "augment.padding": 3,
            "augment.cutout": 0.0,
            "plan.average_momentum": 0.25,
            "plan.optimizer": "adamw",
            "plan.lr": 0.5,
            "data.include_labeled": False,
            "data.order": "reference",
        }
    )
    made = build(recipe, CPU, digits)
    method: Any = made.method
    assert method.threshold == 0.123
    assert method.projector.out_dim == 48
    assert made.average.momentum == 0.25
    assert isinstance(made.optimizer, torch.optim.AdamW)
    assert made.optimizer.param_groups[0]["lr"] == 0.5
    assert len(made.split.unlabeled) == 1402
    assert made.feed.labeled_order.order == "reference"
    policies: Any = policies_for(recipe, digits)
    assert (policies["weak"].padding, policies["strong"].weak.padding, policies["strong"].cutout) == (3, 3, 0.0)
    assert policies["weak"].horizontal_flip is False  # of the data set: a mirrored digit is another sign
    assert (made.problem.num_classes, made.problem.num_labeled, made.problem.num_unlabeled) == (10, 40, 1402)
    assert (made.problem.label_counts, made.problem.labeled_batch) == ((4,) * 10, 10)
    assert made.problem.unlabeled_batch == 20
    assert made.feed(0).unlabeled[0].shape == (20, 1, 8, 8)


def test_fully_supervised_uses_every_label(digits: Dataset) -> None:
    few, all_of_them = (build(plain(name), CPU, digits) for name in ("supervised", "fully_supervised"))
    assert (len(few.split.labeled), len(all_of_them.split.labeled)) == (40, 1442)
    assert all_of_them.feed(0).unlabeled == ()
    everything = build(TINY.with_settings({"data.labels": None}), CPU, digits)
    assert len(everything.split.labeled) == 1442


@pytest.mark.parametrize(("shape", "channels"), [((8, 8), 1), ((8, 8, 3), 3)])
def test_gray_and_color_images_of_three_classes_from_a_file(
    tmp_path: Path, shape: tuple[int, ...], channels: int
) -> None:
    rng = np.random.default_rng(0)
    labels = np.arange(60) % 3
    np.savez(
        tmp_path / "three.npz",
        train_images=rng.integers(0, 255, (60, *shape), dtype=np.uint8),
        train_labels=np.where(np.arange(60) < 45, labels, -1),
        test_images=rng.integers(0, 255, (12, *shape), dtype=np.uint8),
        test_labels=labels[:12],
    )
    recipe = TINY.with_settings({"data.name": str(tmp_path / "three.npz"), "data.labels": 9})
    for _ in run(recipe, tmp_path / "run"):
        pass
    found = results(tmp_path / "run")
    assert (found["labels"], found["images"], found["held_out"]) == (9, 60, False)
    assert "top5_error" not in found["last"]
    net, model = load_model(tmp_path / "run")
    assert (model["channels"], model["height"], model["classes"]) == (channels, 8, ["0", "1", "2"])
    assert net(torch.zeros(2, channels, 8, 8)).logits.shape == (2, 3)


@pytest.mark.parametrize("with_test", [False, True])
def test_a_folder_without_test_images_holds_some_out_and_says_so(tmp_path: Path, with_test: bool) -> None:
    rng = np.random.default_rng(0)
    for part, count in (("labeled", 10), ("test", 3)) if with_test else (("labeled", 10),):
        for name in ("cat", "dog"):
            (tmp_path / "photos" / part / name).mkdir(parents=True)
            for number in range(count):
                pixels = rng.integers(0, 255, (8, 8, 3), dtype=np.uint8)
                Image.fromarray(pixels).save(tmp_path / "photos" / part / name / f"{number}.png")
    settings = {"data.name": str(tmp_path / "photos"), "data.labels": 8, "data.image_size": 8, "data.holdout": 0.3}
    for _ in run(TINY.with_settings(settings), tmp_path / "run"):
        pass
    assert results(tmp_path / "run")["held_out"] is not with_test
    assert results(tmp_path / "run")["images"] == (20 if with_test else 14)
    predictions = load_run(tmp_path / "run").predictions
    assert predictions is not None
    assert len(predictions.labels) == 6


def test_building_and_running_leave_the_callers_random_numbers_alone(tmp_path: Path, digits: Dataset) -> None:
    torch.manual_seed(123)
    np.random.seed(123)  # noqa: NPY002  (the old generator is the one that could be disturbed)
    before, old = torch.random.get_rng_state(), np.random.get_state()  # noqa: NPY002
    experiment = build(TINY, CPU, digits)
    assert torch.equal(torch.random.get_rng_state(), before)
    seconds_per_step(experiment, patience=0.1)
    for _ in train_steps(experiment, RunFolder(tmp_path / "run")):
        pass
    assert torch.equal(torch.random.get_rng_state(), before)
    now = np.random.get_state()  # noqa: NPY002
    assert np.array_equal(old[1], now[1])
    assert old[2] == now[2]


def test_the_callers_random_numbers_do_not_reach_the_run(finished: tuple[Experiment, Path], digits: Dataset) -> None:
    torch.manual_seed(987)
    again = build(TINY, CPU, digits)
    torch.manual_seed(654)
    assert difference(again.progress.tensors(), build(TINY, CPU, digits).progress.tensors()) is None


# --- Precision --------------------------------------------------------------------------------------------------------


class Spy(TorchDispatchMode):
    """Notes the type in which every convolution and every matrix product of a linear layer is computed."""

    def __init__(self) -> None:
        super().__init__()
        self.convolutions: list[torch.dtype] = []
        self.products: list[torch.dtype] = []

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = function.overloadpacket._qualified_op_name
        if name == "aten::convolution":
            self.convolutions.append(args[0].dtype)
        elif name in ("aten::addmm", "aten::mm"):
            self.products.append(args[-1].dtype)
        return function(*args, **(kwargs or {}))


def test_threads_that_build_at_the_same_time_get_the_weights_of_one_alone(
    digits: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone, drawn, together = build(TINY, CPU, digits), building.make_method, Barrier(2)

    def make_method(*args: Any, **kwargs: Any) -> Any:
        """It draws when both have set their seed, or when the other one has waited for its turn for long enough."""
        with suppress(BrokenBarrierError):
            together.wait(1.0)
        return drawn(*args, **kwargs)

    monkeypatch.setattr(building, "make_method", make_method)
    with ThreadPoolExecutor(2) as threads:
        built = list(threads.map(lambda _: build(TINY, CPU, digits), range(2)))
    for experiment in built:
        assert difference(experiment.progress.tensors(), alone.progress.tensors()) is None


def test_precision_follows_the_device_and_the_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    assert choose_precision(CPU, "auto") == torch.float32
    assert choose_precision(CPU, "float32") == torch.float32
    assert choose_precision(CPU, "bfloat16") == torch.bfloat16
    cuda = torch.device("cuda")
    for capable in (True, False):
        monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation=True, capable=capable: capable)
        assert choose_precision(cuda, "auto") == (torch.bfloat16 if capable else torch.float32)
        assert choose_precision(cuda, "float32") == torch.float32


@pytest.mark.parametrize(
    ("precision", "dtype"), [("auto", torch.float32), ("float32", torch.float32), ("bfloat16", torch.bfloat16)]
)
def test_the_network_really_computes_in_the_precision_of_the_plan(
    precision: str, dtype: torch.dtype, digits: Dataset
) -> None:
    experiment = build(TINY.with_settings({"plan.precision": precision}), CPU, digits)
    batch = experiment.feed(0)
    with Spy() as spy:
        outcome: Outcome = experiment.method(batch)
        prediction = experiment.method.net(batch.labeled[0])
    assert len(spy.convolutions) == 8  # four layers, twice
    assert set(spy.convolutions) == {dtype}
    assert dtype in spy.products  # the classification layer
    assert torch.float32 in spy.products  # projectors and memories, whatever the network computes in
    assert prediction.logits.dtype == prediction.features.dtype == torch.float32
    for loss in outcome.losses.values():
        assert loss.dtype == torch.float32
        assert loss.isfinite()
    assert {p.dtype for p in experiment.method.parameters()} == {torch.float32}
    with Spy() as spy:  # what is tested and kept is computed as whoever loads it will
        predict(experiment.average, experiment.split.test, digits, CPU)
    assert set(spy.convolutions) == {torch.float32}


def test_a_run_in_bfloat16_learns_and_differs(
    tmp_path: Path, digits: Dataset, finished: tuple[Experiment, Path]
) -> None:
    recipe = TINY.with_settings({"plan.precision": "bfloat16"})
    for report in run(recipe, tmp_path / "run", dataset=digits, device="cpu"):
        assert all(math.isfinite(value) for value in report.values.values())
    low, full = timeless(tmp_path / "run")[0], timeless(finished[1])[0]
    assert low["loss"] != full["loss"]
    assert low["loss"] == pytest.approx(full["loss"], rel=0.05)


# --- Trying a few steps -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("method", "optimizer"), [("simmatch", "sgd"), ("comatch", "adamw"), ("supervised", "sgd")])
def test_trying_a_few_steps_leaves_no_trace(tmp_path: Path, digits: Dataset, method: str, optimizer: str) -> None:
    recipe = plain(method).with_settings({"plan.optimizer": optimizer, "plan.steps": 4})
    if takes_projector(METHODS[method]):
        recipe = recipe.with_settings({"method.warmup_steps": 1})
    experiment = build(recipe, CPU, digits)
    before = copied(experiment.progress.tensors())
    assert 0 < seconds_per_step(experiment, patience=0.2) < 5
    assert difference(before, experiment.progress.tensors()) is None
    for _ in train_steps(experiment, RunFolder(tmp_path / "tried")):
        pass
    for _ in run(recipe, tmp_path / "fresh", dataset=digits, device="cpu"):
        pass
    assert timeless(tmp_path / "tried") == timeless(tmp_path / "fresh")
    for name in ("model.safetensors", "predictions.npz", "checkpoints/step-00000004.safetensors"):
        assert (tmp_path / "tried" / name).read_bytes()[-4096:] == (tmp_path / "fresh" / name).read_bytes()[-4096:]


def test_the_trial_stops_when_patience_ends(digits: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    experiment = build(TINY, CPU, digits)
    asked: list[int] = []
    feed = experiment.feed.__class__.__call__
    monkeypatch.setattr(type(experiment.feed), "__call__", lambda self, step: (asked.append(step), feed(self, step))[1])
    seconds_per_step(experiment, patience=1e-9)
    assert asked == [0]
    monkeypatch.setattr("epass.engine.timing.is_steady", lambda seconds: len(seconds) == 7)
    seconds_per_step(experiment, patience=60)
    assert asked == [0, *range(7)]


# --- A run ------------------------------------------------------------------------------------------------------------


def test_a_run_writes_exactly_its_files(finished: tuple[Experiment, Path]) -> None:
    _, folder = finished
    assert set(files(folder)) == FILES
    assert parse_recipe((folder / "recipe.toml").read_text(), "x") == TINY
    environment = json.loads((folder / "environment.json").read_text())
    assert (environment["seed"], environment["device"]) == (0, "cpu")


def test_every_row_of_the_metrics_is_complete_and_finite(finished: tuple[Experiment, Path]) -> None:
    experiment, folder = finished
    table = rows(folder)
    assert [row["step"] for row in table] == [2, 3, 4, 6, 8]
    always = {"step", "seconds", "lr", "loss", "loss_labeled", "loss_unlabeled", "loss_instance", "coverage"}
    tested = {"test_error", "test_ece", "test_nll", "test_balanced_accuracy"}
    for row in table:
        assert always | {"head_cosine"} <= row.keys()
        assert tested <= row.keys() if row["step"] in (3, 6, 8) else not tested & row.keys()
        assert not {"used_known", "used_right"} & row.keys()
        counts = {name: row.pop(name) for name in list(row) if name.endswith("_by_class")}
        assert bool(counts) == (row["step"] in (3, 6, 8))  # lists are long: at tests only
        if counts:
            assert set(counts) == {f"{name}_by_class" for name in ("used", "known", "right", "images")}
            assert {len(values) for values in counts.values()} == {10}
            assert sum(counts["used_by_class"]) == pytest.approx(row["coverage"], abs=1e-5)
        assert all(isinstance(value, int | float) and math.isfinite(value) for value in row.values())
        parts = [value for name, value in row.items() if name.startswith("loss_")]
        assert row["loss"] == pytest.approx(sum(parts), abs=1e-6)
        assert row["lr"] == pytest.approx(experiment.plan.lr * experiment.plan.lr_factor(row["step"] - 1))
    seconds = [row["seconds"] for row in table]
    assert seconds == sorted(seconds)
    assert results(folder)["seconds"] == seconds[-1]


def test_reports_say_what_the_file_says(tmp_path: Path, digits: Dataset) -> None:
    said = [
        {"step": report.step, **report.values, **report.by_class}
        for report in run(TINY, tmp_path / "run", dataset=digits, device="cpu")
    ]
    assert said == timeless(tmp_path / "run")


def test_results_are_those_of_the_model_that_was_saved(finished: tuple[Experiment, Path], digits: Dataset) -> None:
    experiment, folder = finished
    net, model = load_model(folder)
    assert not net.training
    own = replace(digits, mean=tuple(model["mean"]), std=tuple(model["std"]))
    logits = predict(net, experiment.split.test, own, CPU)
    found = results(folder)
    assert found["last"] == score(logits, experiment.split.test.labels)
    last = rows(folder)[-1]
    assert (last["test_error"], last["test_ece"]) == (found["last"]["error"], found["last"]["ece"])
    predictions = load_run(folder).predictions
    assert predictions is not None
    assert np.array_equal(predictions.logits, logits.numpy())
    assert np.array_equal(predictions.labels, experiment.split.test.labels.numpy())
    assert (found["steps"], found["labels"], found["images"], found["held_out"]) == (8, 40, 1442, False)
    assert (model["net"], model["method"]) == (TINY.net, TINY.method)


def test_the_best_on_test_is_the_lowest_of_the_evaluated_rows(
    tmp_path: Path, digits: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    scripted = iter([0.5, 0.2, 0.2, 0.4, 0.3, 0.6, 0.7, 0.8, 0.8])  # eight tests and the last word
    monkeypatch.setattr(running, "score", lambda *given: {**score(*given), "error": next(scripted)})
    recipe = TINY.with_settings({"plan.evaluate_every": 1})
    for _ in run(recipe, tmp_path / "run", dataset=digits, device="cpu"):
        pass
    assert [row["test_error"] for row in rows(tmp_path / "run")] == [0.5, 0.2, 0.2, 0.4, 0.3, 0.6, 0.7, 0.8]
    assert results(tmp_path / "run")["best_on_test"] == {"step": 2, "error": 0.2}
    assert results(tmp_path / "run")["last"]["error"] == 0.8


def test_the_average_is_what_is_kept_not_the_student(finished: tuple[Experiment, Path]) -> None:
    experiment, folder = finished
    saved = load_file(folder / "model.safetensors")
    assert difference(saved, dict(experiment.average.module.state_dict())) is None
    student = experiment.method.net.state_dict()
    for name, parameter in experiment.method.net.named_parameters():
        assert not torch.equal(saved[name], student[name]), name
        assert parameter.requires_grad


def test_predict_gives_the_same_in_pieces(
    finished: tuple[Experiment, Path], digits: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    experiment, _ = finished
    whole = predict(experiment.average, experiment.split.test, digits, CPU)
    monkeypatch.setattr("epass.engine.answer.NUMBERS", 100 * 8 * 8)  # of images of 8 pixels
    sizes: list[int] = []
    handle = experiment.average.register_forward_pre_hook(lambda _, inputs: sizes.append(len(inputs[0])))
    pieces = predict(experiment.average, experiment.split.test, digits, CPU)
    handle.remove()
    assert max(sizes) == 100, "large images pass the network in smaller batches"
    assert whole.shape == (355, 10)
    assert torch.allclose(whole, pieces, atol=1e-5)
    assert not whole.requires_grad
    pixels = experiment.split.test.pixels[:3].float() / 255
    by_hand = experiment.average((pixels - digits.mean[0]) / digits.std[0]).logits
    assert torch.allclose(whole[:3], by_hand, atol=1e-5)


def test_a_model_that_is_not_finished_cannot_be_loaded(tmp_path: Path, digits: Dataset) -> None:
    reports = run(TINY, tmp_path / "run", dataset=digits, device="cpu")
    next(reports)
    reports.close()
    with pytest.raises(InputError, match="holds no finished model yet: resume the run first"):
        load_model(tmp_path / "run")


# --- Going on ---------------------------------------------------------------------------------------------------------


def test_resuming_a_finished_run_changes_nothing(finished: tuple[Experiment, Path], tmp_path: Path, digits) -> None:
    folder = Path(shutil.copytree(finished[1], tmp_path / "run"))
    before = files(folder)
    assert list(run(TINY, folder, resume=True, dataset=digits, device="cpu")) == []
    assert files(folder) == before


@pytest.mark.parametrize("stop", range(5))
def test_a_run_stopped_anywhere_goes_on_exactly(
    finished: tuple[Experiment, Path], tmp_path: Path, digits: Dataset, stop: int
) -> None:
    reports = run(TINY, tmp_path / "run", dataset=digits, device="cpu")
    for _ in range(stop):
        next(reports)
    reports.close()
    started = (tmp_path / "run" / "environment.json").read_bytes() if stop else b""
    again = run(TINY, tmp_path / "run", resume=True, dataset=digits, device="cpu")
    expected = [[2, 3, 4, 6, 8], [2, 3, 4, 6, 8], [4, 6, 8], [4, 6, 8], [8]][stop]
    # the row of a test is written before its checkpoint; closing the run at a report comes after both
    assert [report.step for report in again] == expected
    assert timeless(tmp_path / "run") == timeless(finished[1])
    for name in ("model.safetensors", "model.json", "predictions.npz"):
        assert (tmp_path / "run" / name).read_bytes() == (finished[1] / name).read_bytes()
    for name in ("last", "best_on_test"):
        assert results(tmp_path / "run")[name] == results(finished[1])[name]
    assert not started or (tmp_path / "run" / "environment.json").read_bytes() == started
    seconds = [row["seconds"] for row in rows(tmp_path / "run")]
    assert seconds == sorted(seconds)  # the time of the first part counts


def test_force_starts_over(finished: tuple[Experiment, Path], tmp_path: Path, digits: Dataset) -> None:
    folder = Path(shutil.copytree(finished[1], tmp_path / "run"))
    (folder / "notes.txt").write_text("mine")
    (folder / "report.html").write_text("of the old run")
    other = TINY.with_settings({"seed": 1, "plan.steps": 2})
    assert [report.step for report in run(other, folder, force=True, dataset=digits, device="cpu")] == [1, 2]
    assert parse_recipe((folder / "recipe.toml").read_text(), "x").seed == 1
    assert (folder / "notes.txt").read_text() == "mine"
    assert not (folder / "report.html").exists()
    assert [row["step"] for row in rows(folder)] == [1, 2]
    assert [path.stem for path in checkpoints(folder / "checkpoints")] == ["step-00000002", "step-00000001"]


def test_a_run_in_the_way_is_refused_and_left_alone(finished: tuple[Experiment, Path], digits: Dataset) -> None:
    _, folder = finished
    before = files(folder)
    with pytest.raises(InputError, match=r"already holds a run; use --resume .*, --force .* --continue"):
        next(run(TINY, folder, dataset=digits))
    assert files(folder) == before


def test_another_recipe_is_refused_and_its_keys_are_named(finished: tuple[Experiment, Path]) -> None:
    _, folder = finished
    before = files(folder)
    other = TINY.with_settings({"seed": 3, "plan.lr": 0.5, "projector.combine": "sum", "method.warmup_steps": 1})
    with pytest.raises(InputError) as error:
        next(run(other, folder, resume=True))
    assert str(error.value) == (
        f"'{folder}' was started with another recipe (method.warmup_steps: 2 -> 1; plan.lr: not set -> 0.5; "
        "projector.combine: not set -> sum; seed: 0 -> 3)."
    )
    assert files(folder) == before


def test_resume_of_nothing_starts(tmp_path: Path, digits: Dataset) -> None:
    recipe = TINY.with_settings({"plan.steps": 3})
    for _ in run(recipe, tmp_path / "run", resume=True, command="typed", dataset=digits, device="cpu"):
        pass
    assert results(tmp_path / "run")["steps"] == 3
    assert json.loads((tmp_path / "run" / "environment.json").read_text())["command"] == "typed"


# --- Numbers that are none --------------------------------------------------------------------------------------------


class Poisoned:
    """A method whose loss `part` is no number from step `at` on, counted from 0."""

    def __init__(self, experiment: Experiment, part: str, at: int, value: float = math.nan) -> None:
        self.forward, self.part, self.at, self.value = experiment.method.forward, part, at, value

    def __call__(self, batch: Any) -> Outcome:
        outcome = self.forward(batch)
        if int(batch.step) >= self.at:
            outcome.losses[self.part] = outcome.losses[self.part] * self.value
        return outcome


def poisoned(digits: Dataset, part: str, at: int, value: float = math.nan) -> Experiment:
    experiment = build(TINY, CPU, digits)
    experiment.method.forward = Poisoned(experiment, part, at, value)  # type: ignore[method-assign]
    return experiment


def train_until_it_stops(folder: Path, experiment: Experiment) -> str:
    with pytest.raises(NotFiniteError) as error:
        for _ in train_steps(experiment, RunFolder(folder)):
            pass
    return str(error.value)


@pytest.mark.parametrize("value", [math.nan, math.inf])
@pytest.mark.parametrize(
    ("part", "at", "kept"),
    [
        ("labeled", 3, [3]),
        ("labeled", 6, [6, 3]),
        ("labeled", 7, [6, 3]),
        ("instance", 3, [3]),
        ("instance", 7, [6, 3]),
        ("unlabeled", 7, [6, 3]),
    ],
)
def test_a_loss_that_is_no_number_stops_the_run_at_its_last_good_checkpoint(
    tmp_path: Path,
    digits: Dataset,
    finished: tuple[Experiment, Path],
    part: str,
    at: int,
    kept: list[int],
    value: float,
) -> None:
    folder = tmp_path / "run"
    sentence = train_until_it_stops(folder, poisoned(digits, part, at, value))
    assert sentence == f"The loss '{part}' was no longer finite at step {at}."
    assert [read_checkpoint(path)[0] for path in checkpoints(folder / "checkpoints")] == kept
    assert not set(KEPT) & set(files(folder))
    assert all(bool(torch.tensor(value).isfinite().all()) for row in rows(folder) for value in row.values())
    fresh = build(TINY, CPU, digits)
    assert restore_newest(folder / "checkpoints", fresh.progress) == kept[0]
    assert all(tensor.isfinite().all() for tensor in fresh.progress.tensors().values())
    for _ in run(TINY, folder, resume=True, dataset=digits, device="cpu"):  # and it goes on from there
        pass
    assert (folder / "model.safetensors").read_bytes() == (finished[1] / "model.safetensors").read_bytes()


def ruined(digits: Dataset, name: str, value: float, at: int = 6) -> Experiment:
    """An experiment whose tensor `name` is no number once `at` steps are done, while every loss so far was fine."""
    experiment = build(TINY, CPU, digits)
    update, calls = experiment.method.update, iter(range(1, 100))

    def ruin(memory: dict[str, Tensor]) -> None:
        update(memory)
        if next(calls) == at:
            experiment.method.state_dict()[name].fill_(value)

    experiment.method.update = ruin  # type: ignore[method-assign]
    return experiment


def test_weights_that_are_no_numbers_stop_the_run_too(tmp_path: Path, digits: Dataset) -> None:
    sentence = train_until_it_stops(tmp_path / "run", ruined(digits, "net.head.weight", math.nan))
    assert sentence == "The weights were no longer finite at step 6."
    assert [read_checkpoint(path)[0] for path in checkpoints(tmp_path / "run" / "checkpoints")] == [3]


# --- Faults that were found and must not come back -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "value"), [("projector.heads.0.0.weight", math.nan), ("net.backbone.stem.1.running_var", math.inf)]
)
def test_no_checkpoint_holds_what_is_no_number(tmp_path: Path, digits: Dataset, name: str, value: float) -> None:
    experiment = ruined(digits, name, value)
    try:
        for _ in train_steps(experiment, RunFolder(tmp_path / "run")):
            pass
    except NotFiniteError:
        pass
    for path in checkpoints(tmp_path / "run" / "checkpoints"):
        for key, tensor in read_checkpoint(path)[1].items():
            assert tensor.isfinite().all(), f"{path.name}: {key}"


def test_the_part_that_went_wrong_first_is_the_one_that_is_named(tmp_path: Path, digits: Dataset) -> None:
    # a report later, every part is NaN: the window of steps 6 and 7 must still name the culprit
    sentence = train_until_it_stops(tmp_path / "run", poisoned(digits, "instance", 6))
    assert sentence == "The loss 'instance' was no longer finite at step 6."


@pytest.mark.parametrize("name", ["method.name", "net.name"])
def test_a_name_that_is_a_list_is_one_sentence(name: str) -> None:
    with pytest.raises(InputError):
        check_recipe(TINY.with_settings({name: ["simmatch"]}))


@pytest.mark.parametrize(
    "left",
    [[], ["environment.json"], [".environment.json.1234.part"], ["environment.json", ".recipe.toml.1234.part"]],
    ids=str,
)
def test_a_run_killed_before_it_was_a_run_can_be_started_again(
    tmp_path: Path, digits: Dataset, left: list[str]
) -> None:
    (tmp_path / "run").mkdir()
    for name in left:
        (tmp_path / "run" / name).write_text("{}")
    assert next(run(TINY, tmp_path / "run", resume=True, dataset=digits, device="cpu")).step == 2


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
@pytest.mark.parametrize("device", ["cuda", torch.device("cuda")])
def test_a_run_on_a_device_that_is_not_there_is_one_sentence(tmp_path: Path, digits: Dataset, device: Any) -> None:
    with pytest.raises(InputError, match="There is no CUDA device here"):
        next(run(TINY, tmp_path / "run", dataset=digits, device=device))
    with pytest.raises(InputError, match="There is no CUDA device here"):
        build(TINY, device, digits)


def test_an_experiment_takes_a_device_by_name(digits: Dataset) -> None:
    assert build(TINY, "cpu", digits).device == CPU


@pytest.mark.parametrize(("step", "kept"), [(0, False), (1, True), (2, True)])
def test_a_run_that_fails_in_its_first_step_leaves_its_folder_to_the_next(
    tmp_path: Path, digits: Dataset, monkeypatch: pytest.MonkeyPatch, step: int, kept: bool
) -> None:
    begun: list[bool] = []

    def forward(method: Method, batch: Batch) -> Outcome:
        begun.append(home.exists())
        outcome = right(method, batch)
        return outcome if batch.step < step else outcome._replace(losses={})

    home, right = RunFolder(tmp_path / "run"), METHODS["simmatch"].forward
    monkeypatch.setattr(METHODS["simmatch"], "forward", forward)
    with pytest.raises(ContractError, match="must return an `Outcome` with losses"):
        list(run(TINY, home.path, dataset=digits, device="cpu"))
    assert begun == [True] * (step + 1)
    assert home.exists() == kept
    monkeypatch.setattr(METHODS["simmatch"], "forward", right)
    assert next(run(TINY, home.path, dataset=digits, device="cpu", resume=kept)).step in (2, 4)


def test_the_recipe_is_written_last_so_that_a_folder_with_one_is_a_run(
    tmp_path: Path, digits: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "environment", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        next(run(TINY, tmp_path / "run", dataset=digits, device="cpu"))
    assert files(tmp_path / "run") == {}


@pytest.mark.filterwarnings("ignore:Initializing zero-element tensors")
@pytest.mark.parametrize("setting", ["net.width", "method.alignment_length"])
def test_a_size_of_nothing_is_one_sentence(digits: Dataset, setting: str, tmp_path: Path) -> None:
    recipe = TINY.with_settings({setting: 0})
    with pytest.raises(InputError):
        next(run(recipe, tmp_path / "run", dataset=digits, device="cpu"))


# --- Stops between two steps -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("at", [1, 2, 3, 4])
def test_a_stop_keeps_the_steps_done_and_the_sums_of_the_next_report(
    tmp_path: Path, digits: Dataset, finished: tuple[Experiment, Path], at: int
) -> None:
    calls = iter(range(100))

    def stop() -> None:
        if next(calls) == at:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        for _ in run(TINY, tmp_path / "run", dataset=digits, device="cpu", stop=stop):
            pass
    assert read_checkpoint(checkpoints(tmp_path / "run" / "checkpoints")[0])[0] == at
    for _ in run(TINY, tmp_path / "run", resume=True, dataset=digits, device="cpu"):
        pass
    assert (tmp_path / "run/model.safetensors").read_bytes() == (finished[1] / "model.safetensors").read_bytes()
    both = [[{**row, "seconds": 0} for row in rows(folder)] for folder in (tmp_path / "run", finished[1])]
    assert both[0] == both[1]


def test_the_time_of_steps_that_no_report_told_counts_too(tmp_path: Path, digits: Dataset) -> None:
    calls = iter(range(100))

    def stop() -> None:
        if next(calls) == 1:  # the first report comes after two steps
            time.sleep(0.5)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        for _ in run(TINY, tmp_path / "run", dataset=digits, device="cpu", stop=stop):
            pass
    reports = run(TINY, tmp_path / "run", resume=True, dataset=digits, device="cpu")
    assert next(reports).step == 2
    reports.close()
    assert rows(tmp_path / "run")[0]["seconds"] >= 0.5


def test_rows_are_on_disk_before_the_checkpoint_that_counts_on_them(
    tmp_path: Path, digits: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[str] = []
    write, sync = running.write_checkpoint, running.RunFolder.sync_metrics
    monkeypatch.setattr(running, "write_checkpoint", lambda *given: order.append("checkpoint") or write(*given))
    monkeypatch.setattr(running.RunFolder, "sync_metrics", lambda home: order.append("rows") or sync(home))
    reports = run(TINY, tmp_path / "run", dataset=digits, device="cpu")
    assert next(reports).step == 2
    assert order == [], "a report alone waits for no disk"
    assert next(reports).step == 3
    reports.close()  # waits for the writer
    assert order == ["rows", "checkpoint"]
