"""The recipes of the papers' protocols hold the numbers of their tables."""

from __future__ import annotations

import re
from typing import Any

import pytest

from epass.data import long_tailed_counts
from epass.engine.models import make_network
from epass.methods import METHODS
from epass.recipe import arguments, read_recipe
from epass.recipes import recipe_families

FAMILIES = recipe_families()
IN_CLASSIC_TABLE = {
    *("supervised", "pseudo_label", "pi_model", "mean_teacher", "vat", "mixmatch", "remixmatch", "uda", "fixmatch"),
    *("flexmatch", "dash", "comatch", "simmatch", "adamatch", "freematch", "softmatch", "simmatchv2", "shrinkmatch"),
}
IN_TAIL_TABLE = {"comatch", "simmatch", "fixmatch", "flexmatch", "freematch", "softmatch"}
OF_THE_DATA = {"mixmatch", "freematch", "infomatch", "comatch", "shrinkmatch"}  # their settings differ
NEWER = {"infomatch", "refixmatch", "sequencematch"}  # than the table, with the schedule of it
METHODS_OF = {
    "cifar100": IN_CLASSIC_TABLE | NEWER | {"fully_supervised", "multihead", "iomatch"},
    "svhn": IN_CLASSIC_TABLE | NEWER | {"fully_supervised"},
    "svhn_fast": {"simmatch", "rotnet"},  # what was measured here
    "stl10": IN_CLASSIC_TABLE | NEWER,  # most of its images never had a label
    "cifar10lt": IN_TAIL_TABLE | {"supervised", "remixmatch", "uda", "adamatch"},
    "cifar100lt": IN_TAIL_TABLE | {"supervised", "remixmatch", "uda", "adamatch"},
    "cifar10lt_abc": IN_TAIL_TABLE,
    "cifar100lt_abc": IN_TAIL_TABLE,
    "imagenet": IN_TAIL_TABLE | {"supervised", "uda", "moco"},
    "imagenet_1percent": {"simmatch", "simmatchv2", "fixmatch_eman"},
    "imagenet_1percent_shrink": {"simmatch"},
}
# Data, labels, network and weight decay of the published configurations.
CLASSIC = {
    "cifar100": ("cifar-100-python", 400, "wrn-28-8", 1e-3),
    "svhn": ("svhn", 40, "wrn-28-2", 5e-4),
    "stl10": ("stl10_binary", 40, "wrn-37-2", 5e-4),
}
ONE_EACH = {"pseudo_label", "pi_model", "mean_teacher", "vat", "mixmatch", "remixmatch"}  # unlabeled per labeled image
TAILS = {
    "cifar10lt": ("cifar-10-batches-py", "wrn-28-2", 10, 4196, 8397),
    "cifar100lt": ("cifar-100-python", "wrn-28-8", 100, 4741, 9527),
}


def effective(name: str) -> dict[str, Any]:
    """All settings of a recipe, with the defaults of its method."""
    recipe = read_recipe(name)
    schema = arguments(METHODS[recipe.method["name"]])
    return {f"method.{key}": parameter.default for key, parameter in schema.items()} | recipe.flat()


def check(name: str, table: str, /, **expected: object) -> None:
    settings = effective(name)
    assert {key: settings.get(f"{table}.{key}") for key in expected} == expected


@pytest.mark.parametrize("family", METHODS_OF)
def test_a_family_has_the_methods_whose_settings_are_known(family: str) -> None:
    assert {name.partition("-")[2] for name in FAMILIES[family]} == METHODS_OF[family]


@pytest.mark.parametrize("name", [name for family in CLASSIC for name in FAMILIES[family]])
def test_the_classic_suite(name: str) -> None:
    family, _, method = name.partition("-")
    data, labels, net, weight_decay = CLASSIC[family]
    check(name, "data", name=data, labels=labels)
    check(name, "net", name="wrn-28-2" if method == "iomatch" else net)
    assert read_recipe(name).plan == {
        "steps": 2**18 if method == "iomatch" else 2**20,
        "labeled_batch": 64,
        "unlabeled_ratio": 1 if method in ONE_EACH else 7,
        "lr": 0.03,
        "weight_decay": weight_decay,
        "average_momentum": 0.999,
        "report_every": 256,
        "evaluate_every": 1024 if method == "iomatch" else 5120,
    }


@pytest.mark.parametrize("method", sorted((IN_CLASSIC_TABLE | NEWER) - OF_THE_DATA))
@pytest.mark.parametrize("family", CLASSIC)
def test_most_methods_have_the_settings_of_cifar_10(family: str, method: str) -> None:
    here, there = read_recipe(f"{family}-{method}"), read_recipe(f"cifar10-{method}")
    assert (here.method, here.projector, here.augment) == (there.method, there.projector, there.augment)


@pytest.mark.parametrize(
    ("family", "mixmatch_weight", "highest_threshold", "contrast_weight"),
    [("cifar100", 150.0, 1.0, 1.0), ("svhn", 100.0, 0.95, 1.0), ("stl10", 100.0, 1.0, 5.0)],
)
def test_settings_of_the_data(
    family: str, mixmatch_weight: float, highest_threshold: float, contrast_weight: float
) -> None:
    check(f"{family}-mixmatch", "method", unlabeled_weight=mixmatch_weight, ramp=0.4, temperature=0.5, mix_alpha=0.5)
    check(f"{family}-freematch", "method", highest_threshold=highest_threshold, fairness_weight=0.001, quantile=None)
    comatch = {"threshold": 0.95, "edge_threshold": 0.8, "temperature": 0.2, "smoothing": 0.9, "queue_batches": 5}
    check(f"{family}-comatch", "method", **comatch, contrast_weight=contrast_weight, alignment_length=32)
    check(f"{family}-comatch", "projector", out_dim=64)
    check(f"{family}-simmatch", "method", threshold=0.95, temperature=0.1, smoothing=0.9, alignment_length=32)
    check(f"{family}-simmatch", "projector", out_dim=128)


def test_infomatch_has_a_fixed_threshold_on_svhn_only() -> None:
    found = {family: effective(f"{family}-infomatch")["method.fixed_threshold"] for family in ("cifar10", *CLASSIC)}
    assert found == {"cifar10": None, "cifar100": None, "svhn": 0.95, "stl10": None}


def test_shrinkmatch_differs_by_data() -> None:
    check("cifar100-shrinkmatch", "method", target="soft", alignment="queue", alignment_length=32, restart_steps=1024)
    check("svhn-shrinkmatch", "method", target="hard", alignment="none", restart_steps=0, head_norm="all")
    check("stl10-shrinkmatch", "method", target="hard", alignment="average", ranking="logits", restart_steps=0)
    for family in CLASSIC:
        check(f"{family}-shrinkmatch", "method", threshold=0.95, unlabeled_weight=1.0)
    check("stl10-shrinkmatch", "augment", padding=4)
    check("stl10-shrinkmatch", "data", include_labeled=True)  # 105,000 unlabeled images
    check("stl10-fixmatch", "data", include_labeled="twice")  # 105,040


def test_multihead_has_the_published_network() -> None:
    net = read_recipe("cifar100-multihead").net
    heads = METHODS["multihead"].adapt(make_network(in_channels=3, num_classes=100, **net))
    assert sum(parameter.numel() for parameter in heads.parameters()) == 19_958_524
    check("cifar100-multihead", "augment", cutout=0.0)


def test_iomatch_has_its_own_schedule() -> None:
    check("cifar100-iomatch", "method", threshold=0.95, open_threshold=0.5, align=True, alignment_length=128)
    assert "all hundred classes" in read_recipe("cifar100-iomatch").source


@pytest.mark.parametrize("name", [name for family in CLASSIC for name in FAMILIES[family]])
def test_the_source_says_whose_network_it_is(name: str) -> None:
    source = read_recipe(name).source
    published_differs = name.startswith("cifar100-") and name.partition("-")[2] not in (
        *("comatch", "simmatch", "adamatch"),
        *("simmatchv2", "shrinkmatch", "iomatch", "multihead", *NEWER),  # of other papers
    )
    assert ("here the wrn-28-8 of the paper's text" in source) == published_differs


@pytest.mark.parametrize("name", [name for family in TAILS for name in FAMILIES[family] + FAMILIES[f"{family}_abc"]])
def test_the_long_tailed_suite(name: str) -> None:
    family, _, method = name.partition("-")
    data, net, classes, labeled, unlabeled = TAILS[family.removesuffix("_abc")]
    recipe = read_recipe(name)
    assert set(recipe.data) == {"name", "head_labels", "imbalance", "head_unlabeled"}
    assert (recipe.data["name"], recipe.net) == (data, {"name": net})
    assert sum(long_tailed_counts(recipe.data["head_labels"], classes, recipe.data["imbalance"])) == labeled
    assert sum(long_tailed_counts(recipe.data["head_unlabeled"], classes, recipe.data["imbalance"])) == unlabeled
    assert recipe.plan == {
        "steps": 262_144,
        "labeled_batch": 64,
        "unlabeled_ratio": 1 if method == "remixmatch" else 2,
        "lr": 0.03,
        **({"schedule": "constant"} if family.endswith("_abc") else {}),
        "weight_decay": 5e-4,
        "average_momentum": 0.999,
        "report_every": 256,
        "evaluate_every": 1024,
    }
    assert "the paper's text says Adam" in recipe.source
    assert ("which has none for it" in recipe.source) == (method not in ("comatch", "simmatch"))
    if method == "simmatch":
        check(name, "method", threshold=0.95, temperature=0.5, smoothing=0.9, bank_normalization="batch")
        check(name, "method", instance_weight=1.0, alignment_length=32)
    if method == "comatch":
        check(name, "method", threshold=0.95, temperature=0.2, edge_threshold=0.8, contrast_weight=1.0)
        assert effective(name)["method.queue_batches"] * (1 + 2) * 64 == 960


@pytest.mark.parametrize("family", TAILS)
@pytest.mark.parametrize("method", sorted(IN_TAIL_TABLE))
def test_abc_changes_only_the_schedule_and_where_its_head_is(family: str, method: str) -> None:
    plain, wrapped = read_recipe(f"{family}-{method}"), read_recipe(f"{family}_abc-{method}")
    assert (wrapped.data, wrapped.net, wrapped.method, wrapped.plan) == (
        *(plain.data, plain.net, plain.method, plain.plan | {"schedule": "constant"}),
    )
    assert plain.wrapper is None
    assert wrapped.wrapper is not None
    expected: dict[str, object] = {"name": "abc", "threshold": 0.95, "weight": 1.0}
    if method in ("comatch", "simmatch"):  # published: on an embedding that is as wide as the features
        expected["feature"] = "embedding"
        width = make_network(in_channels=3, num_classes=2, **plain.net).num_features
        assert wrapped.projector == {"size": 1, "out_dim": width}
        assert "ABC on the embedding" in wrapped.source
    assert wrapped.wrapper == expected


@pytest.mark.parametrize("name", FAMILIES["imagenet"])
def test_imagenet_with_100_000_labels(name: str) -> None:
    recipe = read_recipe(name)
    assert recipe.data == {
        "name": "imagenet",
        "image_size": 224,
        "label_share": 100_000 / 1_281_167,
        "label_rounding": "down",
    }
    assert recipe.net == {"name": "resnet-50"}
    if name == "imagenet-moco":
        assert recipe.plan["steps"] == 200 * (1_281_167 // 256)
        assert recipe.plan["labeled_batch"] * recipe.plan["unlabeled_ratio"] == 256
        assert (recipe.method["queue_size"], recipe.plan["weight_decay"]) == (65_536, 1e-4)
        chosen = {"schedule": "half-cosine", "nesterov": False, "decayed": "everything"}
        assert recipe.plan.items() >= chosen.items()
        return
    assert (recipe.plan["steps"], recipe.plan["weight_decay"], recipe.plan["evaluate_every"]) == (2**20, 3e-4, 5120)
    assert recipe.plan["unlabeled_ratio"] == 1
    assert recipe.plan["labeled_batch"] == (64 if name == "imagenet-comatch" else 128)


def test_settings_of_imagenet() -> None:
    comatch = {"threshold": 0.7, "edge_threshold": 0.2, "temperature": 0.1, "queue_size": 30_000}
    check("imagenet-comatch", "method", **comatch, alignment_length=128, contrast_weight=1.0, unlabeled_weight=1.0)
    check("imagenet-simmatch", "method", threshold=0.7, temperature=0.1, alignment_length=256, bank_momentum=0.0)
    check("imagenet-simmatch", "method", instance_weight=1.0, unlabeled_weight=1.0, bank_normalization="embedding")
    for method in ("comatch", "simmatch"):
        check(f"imagenet-{method}", "projector", out_dim=128)
    for method in ("fixmatch", "flexmatch"):
        check(f"imagenet-{method}", "method", threshold=0.7, unlabeled_weight=10.0)
    check("imagenet-uda", "method", threshold=0.8, unlabeled_weight=10.0)


@pytest.mark.parametrize("name", FAMILIES["imagenet_1percent"] + FAMILIES["imagenet_1percent_shrink"])
def test_imagenet_with_one_percent_of_the_labels(name: str) -> None:
    recipe = read_recipe(name)
    epoch = (1_281_167 - 13_000) // 320
    schedule: dict[str, object] = {"schedule": "half-cosine"}
    if name.endswith("-fixmatch_eman"):
        schedule = {"schedule": "drops", "drops": [0.6, 0.8], "nesterov": False}
    assert recipe.plan == {
        "steps": (400 if name.endswith("-simmatch") else 300) * epoch,
        "labeled_batch": 64,
        "unlabeled_ratio": 5,
        "lr": 0.03,
        "weight_decay": 1e-4,
        "decayed": "everything",
        **schedule,
        "average_momentum": 0.0,  # the student is tested
        "warmup_steps": 5 * epoch,
        "report_every": 256,
        "evaluate_every": epoch,
    }
    assert recipe.data["include_labeled"] is False
    check(name, "method", threshold=0.7, unlabeled_weight=10.0, teacher_momentum=0.999)
    if name.endswith("-simmatch"):
        check(name, "method", teacher="average", instance_weight=5.0, alignment_length=256, warmup_steps=epoch)
    if name.endswith("-simmatchv2"):
        check(name, "method", edge_weight=10.0, node_edge_weight=10.0, neighbors=128, propagation=0.1)
        assert effective(name)["method.ring_batches"] * 320 == 81_920
    if name.endswith("-fixmatch_eman"):
        check(name, "data", label_share=0.01, label_rounding=None)
    else:
        check(name, "data", labels=13 * 1000)


@pytest.mark.parametrize("name", [name for family in METHODS_OF for name in FAMILIES[family]])
def test_a_source_is_one_line_that_names_a_paper(name: str) -> None:
    source = read_recipe(name).source
    assert source.isprintable()
    assert re.search(r"\((WACV|ICCV|CVPR|AAAI|arXiv) 20[0-9]{2}\)", source)
