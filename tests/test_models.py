from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from epass.engine import models
from epass.engine.build import build, check_recipe
from epass.engine.infer import answering_network, infer, predict, ready
from epass.engine.models import answer_by_nearest_mean, load_model, method_class, pretrained_weights
from epass.engine.run import run
from epass.errors import InputError
from epass.methods import METHODS, PRETRAINING, WRAPPERS
from epass.networks import MLP, Classifier, FromImages, OnFeatures, find_network
from epass.recipe import Recipe, read_recipe
from epass.runs import load_run
from epass.testing import difference
from epass.testing.case import TinyBackbone

CPU = torch.device("cpu")


def small(method: str, **settings: Any) -> Recipe:
    plan = {"plan.steps": 4, "plan.labeled_batch": 4, "plan.unlabeled_ratio": 2, "net.width": 2}
    return read_recipe(f"digits-{method}").with_settings(plan | settings)


@pytest.fixture(scope="module")
def pretrained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "pre"
    settings = {"projector.size": 2, "method.queue_size": 16, "plan.average_momentum": 0.5}
    for _ in run(small("moco", **settings), folder, device="cpu"):
        pass
    return folder


def start(folder: Path, method: str, **settings: Any) -> Recipe:
    return small(method, **{"start.weights": str(folder), "projector.out_dim": 64, "projector.size": 2} | settings)


def test_a_name_that_nobody_knows_is_refused() -> None:
    with pytest.raises(InputError, match="Unknown method 'moko': did you mean 'moco'"):
        method_class("moko")
    assert {method_class(name) for name in METHODS | PRETRAINING} == {*METHODS.values(), *PRETRAINING.values()}


def test_a_pre_training_leaves_backbone_and_heads_of_the_student(pretrained: Path) -> None:
    left = load_file(pretrained / "pretrained.safetensors")
    assert {name.split(".")[0] for name in left} == {"net", "projector"}
    assert not any("head." in name and name.startswith("net") for name in left)
    averaged = load_file(pretrained / "model.safetensors")
    moved = [name for name, value in averaged.items() if name.startswith("backbone.") and value.ndim == 4]
    assert any(not torch.equal(averaged[name], left[f"net.{name}"]) for name in moved)


def test_a_run_starts_from_what_was_learned_without_labels(pretrained: Path) -> None:
    left = load_file(pretrained / "pretrained.safetensors")
    method = build(start(pretrained, "simmatch"), CPU).method
    own = {f"net.{name}": value for name, value in method.net.state_dict().items() if name.startswith("backbone.")}
    own |= {f"projector.{name}": value for name, value in method.projector.state_dict().items()}
    assert difference(own, left) is None
    fresh = build(start(pretrained, "simmatch", **{"start.weights": None}), CPU).method
    first = "backbone.stem.0.weight"
    assert not torch.equal(fresh.net.get_parameter(first), method.net.get_parameter(first))
    # what a method averages starts equal
    assert torch.equal(
        build(start(pretrained, "simmatch"), CPU).average.module.get_parameter(first), left[f"net.{first}"]
    )


def test_teachers_start_from_it_too(pretrained: Path) -> None:
    method = build(start(pretrained, "simmatchv2"), CPU).method
    students = [*method.net.parameters(), *method.projector.parameters()]
    for own, live in zip(method.teacher.module.parameters(), students, strict=True):
        assert torch.equal(own, live)


def test_a_method_without_a_projector_takes_the_backbone_alone(pretrained: Path) -> None:
    recipe = small("fixmatch", **{"start.weights": str(pretrained)})
    first = "backbone.stem.0.weight"
    left = load_file(pretrained / "pretrained.safetensors")
    assert torch.equal(build(recipe, CPU).method.net.get_parameter(first), left[f"net.{first}"])


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"projector.size": 3}, "another projector"),
        ({"net.width": 3}, "another network"),
        ({"start.weights": "nowhere"}, "'nowhere' holds no pre-trained weights: give the folder of a finished"),
    ],
)
def test_weights_of_something_else_are_refused(pretrained: Path, settings: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        build(start(pretrained, "simmatch", **settings), CPU)


def test_a_damaged_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "pretrained.safetensors").write_bytes(b"not what it says")
    with pytest.raises(InputError, match=r"pretrained\.safetensors' is damaged: "):
        pretrained_weights(str(tmp_path))


@pytest.mark.parametrize(
    ("name", "read"), [("pretrained.safetensors", pretrained_weights), ("model.safetensors", load_model)]
)
def test_a_flipped_bit_of_the_weights_is_noticed(pretrained: Path, tmp_path: Path, name: str, read: Any) -> None:
    home = shutil.copytree(pretrained, tmp_path / "run")
    read(str(home))
    content = bytearray((home / name).read_bytes())
    content[-1] ^= 1  # of an exponent: the number stays finite
    (home / name).write_bytes(content)
    with pytest.raises(InputError, match=rf"{name}' is damaged: its checksum does not match\.$"):
        read(str(home))
    save_file(load_file(home / name), home / name)  # whoever writes such numbers on purpose has no checksum to keep
    read(str(home))


def test_a_model_without_spread_is_refused(pretrained: Path, tmp_path: Path) -> None:
    home = shutil.copytree(pretrained, tmp_path / "run")
    model = json.loads((home / "model.json").read_text())
    (home / "model.json").write_text(json.dumps(model | {"std": [0.0] * len(model["std"])}))
    with pytest.raises(InputError, match="std is no list of numbers above 0, one for every channel"):
        load_model(home)


def test_a_start_takes_weights_and_nothing_else() -> None:
    with pytest.raises(InputError, match=r"Unknown setting 'start\.wieghts': did you mean 'start\.weights'"):
        check_recipe(small("simmatch", **{"start.wieghts": "here"}))


def test_the_nearest_mean_is_what_the_classifier_answers() -> None:
    torch.manual_seed(0)
    net = Classifier(TinyBackbone(), 3)
    features, labels = torch.randn(12, net.num_features), torch.arange(12) % 3
    answer_by_nearest_mean(net, features, labels)
    means = [features[labels == label].mean(0) for label in range(3)]
    for feature in torch.randn(50, net.num_features):
        distances = [float((feature - mean).square().sum()) for mean in means]
        assert int(net.head(feature).argmax()) == distances.index(min(distances))


def test_a_pre_training_is_judged_by_nearest_means_and_its_weights_are_left_alone(pretrained: Path) -> None:
    experiment = build(small("moco", **{"projector.size": 2, "method.queue_size": 16}), CPU)
    before = {name: value.clone() for name, value in experiment.progress.tensors().items()}
    judged = answering_network(experiment)
    assert difference(before, experiment.progress.tensors()) is None
    features = infer(judged, experiment.split.labeled, experiment.dataset, CPU).features
    mean = features[experiment.split.labeled.labels == 4].mean(0)
    torch.testing.assert_close(judged.head.weight[4], mean)
    net, _ = load_model(pretrained)
    assert load_run(pretrained).results["last"]["error"] < 0.95
    assert predict(net, experiment.split.test, experiment.dataset, CPU).shape == (len(experiment.split.test), 10)


@pytest.mark.parametrize("feature", ["backbone", "embedding"])
@pytest.mark.parametrize("method", ["fixmatch", "simmatch"])
def test_a_wrapped_run_is_evaluated_and_loaded_with_its_own_head(tmp_path: Path, method: str, feature: str) -> None:
    settings = {"wrapper.name": "abc", "wrapper.feature": feature}
    if method == "fixmatch" and feature == "embedding":
        with pytest.raises(InputError, match="FixMatch has no embedding"):
            build(small(method, **settings), CPU)
        return
    recipe = small(method, **settings)
    for _ in run(recipe, tmp_path / "run", device="cpu"):
        pass
    net, model = load_model(tmp_path / "run")
    assert model["wrapper"] == {"name": "abc", "feature": feature}
    experiment = build(recipe, CPU)
    logits = predict(net, experiment.split.test, experiment.dataset, CPU)
    stored = load_run(tmp_path / "run").predictions
    assert stored is not None
    torch.testing.assert_close(logits, torch.from_numpy(stored.logits))


@pytest.mark.parametrize("name", WRAPPERS)
def test_every_wrapper_trains_from_a_recipe(name: str) -> None:
    method = build(small("comatch", **{"wrapper.name": name}), CPU).method
    assert type(method) is WRAPPERS[name]
    assert type(method.method) is METHODS["comatch"]


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"wrapper.name": "abd"}, "Unknown wrapper 'abd': did you mean 'abc'?"),
        ({"wrapper.threshold": 0.9}, "Unknown wrapper 'None'"),
        (
            {"wrapper.name": "abc", "wrapper.weigth": 1.0},
            "did you mean 'wrapper.weight'",
        ),
        ({"wrapper.name": "abc", "wrapper.feature": "nose"}, "wrapper.feature is one of 'backbone', 'embedding'"),
    ],
)
def test_a_mistake_in_a_wrapper_is_a_sentence(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        check_recipe(small("simmatch", **settings))


def test_adapted_networks_are_the_ones_that_are_averaged_and_loaded(tmp_path: Path) -> None:
    for method in ("multihead", "simmatchv2"):
        recipe = small(method)
        for _ in run(recipe, tmp_path / method, device="cpu"):
            pass
        net, _ = load_model(tmp_path / method)
        experiment = build(recipe, CPU)
        assert type(net) is type(experiment.average.module)
        logits = predict(net, experiment.split.test, experiment.dataset, CPU)
        torch.testing.assert_close(logits, torch.from_numpy(load_run(tmp_path / method).predictions.logits))


def test_no_parameter_of_a_wrapped_method_is_registered_twice() -> None:
    experiment = build(small("simmatch", **{"wrapper.name": "abc"}), CPU)
    places = [value.data_ptr() for value in experiment.method.state_dict().values() if value.numel()]
    assert len(places) == len(set(places))
    grouped = [weight for group in experiment.optimizer.param_groups for weight in group["params"]]
    assert len(grouped) == len(list(experiment.method.parameters()))


def test_what_does_not_fit_its_weights_takes_no_memory(
    pretrained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, made = Path(shutil.copytree(pretrained, tmp_path / "run")), []
    facts = json.loads((folder / "model.json").read_text())
    facts["net"] = {**facts["net"], "width": 16 * facts["net"].get("width", 16)}
    (folder / "model.json").write_text(json.dumps(facts))
    network = models._network
    monkeypatch.setattr(models, "_network", lambda model: (made.append(network(model)), made[-1])[1])
    with pytest.raises(InputError, match=r"is not what model\.json describes"):
        load_model(folder)
    assert [{tensor.device.type for tensor in net.state_dict().values()} for net in made] == [{"meta"}]
    load_model(pretrained)
    assert not any(tensor.is_meta for tensor in made[-1].state_dict().values())


@pytest.mark.parametrize("tuned", [False, True])
def test_a_network_that_only_answers_is_prepared_and_says_the_same(tuned: bool) -> None:
    torch.manual_seed(0)
    backbone = find_network("efficientnet-lite0")(in_channels=3)
    body = MLP(in_channels=backbone.num_features, hidden=8)
    for part in backbone.modules():
        if isinstance(part, torch.nn.BatchNorm2d):  # which does nothing before it has seen anything
            torch.nn.init.uniform_(part.running_var, 0.5, 2.0)
            torch.nn.init.uniform_(part.running_mean, -0.1, 0.1)
    net: torch.nn.Module = Classifier(OnFeatures(backbone, body), 3)
    if not tuned:
        net = FromImages(backbone, [0.0] * 1280, [1.0] * 1280, Classifier(body, 3))
    images = torch.randn(2, 3, 64, 64)
    with torch.no_grad():
        before = net.eval()(images).logits
        answers = ready(net, CPU)
        assert torch.allclose(answers(images).logits, before, rtol=1e-4, atol=1e-5)
    assert not any(isinstance(part, torch.nn.BatchNorm2d) for part in answers.modules())
