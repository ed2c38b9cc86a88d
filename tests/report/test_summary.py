from __future__ import annotations

from dataclasses import replace

import pytest

from epass.report import group_runs, summary


def test_labels_and_order(make_run):
    names = ["fully_supervised", "my_method", "comatch", "simmatch", "fixmatch", "supervised"]
    runs = [make_run(name) for name in names] + [make_run("simmatch", 3), make_run("my_method", 2)]
    assert [group.label for group in group_runs(runs)] == [
        "labels only",
        "FixMatch",
        "CoMatch",
        "SimMatch",
        "SimMatch + EPASS (3)",
        "my_method",
        "my_method + EPASS (2)",
        "all labels",
    ]


def test_mean_and_population_deviation_over_seeds(make_run):
    (group,) = group_runs([make_run(seed=seed, error=error) for seed, error in [(2, 0.3), (0, 0.1), (1, 0.2)]])
    assert group.seeds == (0, 1, 2)
    assert group.errors == (0.1, 0.2, 0.3)
    spread = group.spread("last", "error")
    assert spread == pytest.approx((0.2, (0.02 / 3) ** 0.5, 3))
    assert group.spread("best_on_test", "error").mean == pytest.approx(0.19)
    assert group.spread("seconds").mean == pytest.approx(601)
    assert group.spread("last", "auc") is None


def test_an_unfinished_run_counts_as_a_run_but_not_as_a_result(make_run):
    failed = make_run(seed=2)
    failed.results["last"]["error"] = None  # a number that was not finite
    (group,) = group_runs([make_run(seed=0), make_run(seed=1, finished=False), failed])
    assert len(group.runs) == 3
    assert group.seeds == (0,)


def test_runs_on_different_data_are_not_averaged(make_run):
    runs = [make_run(seed=0), make_run(seed=1, data__num_labeled=250), make_run("supervised")]
    assert [group.label for group in group_runs(runs)] == [
        "labels only · num_labeled = 40",
        "SimMatch · num_labeled = 250",
        "SimMatch · num_labeled = 40",
    ]


def test_own_settings_are_compared_within_the_method_only(make_run):
    runs = [
        make_run(method__threshold=0.9),
        make_run(method__threshold=0.95),
        make_run("fixmatch", method__threshold=0.8),
    ]
    assert [group.label for group in group_runs(runs)] == [
        "FixMatch",
        "SimMatch · threshold = 0.9",
        "SimMatch · threshold = 0.95",
    ]


def test_a_setting_that_only_some_runs_of_a_method_say_keeps_them_apart(make_run):
    """A recipe holds what was said: the defaults of all else are not in it."""
    runs = [make_run(seed=0), make_run(seed=1, data__validation=0.2), make_run(seed=2, method__threshold=0.5)]
    assert [(group.label, group.seeds) for group in group_runs(runs)] == [
        ("SimMatch", (0,)),
        ("SimMatch · threshold = 0.5", (2,)),
        ("SimMatch · validation = 0.2", (1,)),
    ]
    others = [make_run(), make_run("fixmatch", plan__momentum=0.5)]  # each has its own recipe
    assert [group.label for group in group_runs(others)] == ["FixMatch", "SimMatch"]


def test_what_does_not_change_training_does_not_split(make_run):
    other = make_run(seed=1, plan__report_every=10)
    other = replace(other, recipe={**other.recipe, "source": "elsewhere"})
    assert len(group_runs([make_run(seed=0), other])) == 1


def test_a_recipe_that_does_not_say_how_projectors_are_combined_means_the_mean(make_runs):
    silent = make_runs("simmatch", [0.1, 0.1], size=3)
    mean = make_runs("simmatch", [0.1], size=3, projector__combine="mean")
    concat = make_runs("simmatch", [0.1], size=3, projector__combine="concat")
    assert [group.label for group in group_runs([*silent, *mean])] == ["SimMatch + EPASS (3)"]
    assert [(group.label, len(group.runs)) for group in group_runs([*silent, *concat])] == [
        ("SimMatch + EPASS (3) · combine = concat", 1),
        ("SimMatch + EPASS (3) · combine = mean", 2),
    ]


def test_many_runs_are_compared_with_what_all_of_them_say_not_with_each_other(make_run, monkeypatch):
    methods = ["simmatch", "fixmatch", "comatch"]
    runs = [
        make_run(methods[seed % 3], seed=seed, method__threshold=seed % 5, data__num_labeled=40 * (1 + seed % 2))
        for seed in range(30)
    ] + [make_run("flexmatch", seed=seed, plan__steps=100) for seed in range(3)]
    named = []
    monkeypatch.setattr(summary, "_name", lambda run, name=summary._name: named.append(run) or name(run))
    groups = group_runs(runs)
    assert len(named) == len(runs)

    def varies(key, others):  # pair by pair
        return any(
            repr(one[key]) != repr(other[key]) for one in others for other in others if key in one and key in other
        )

    settings = [dict(summary._setting(run)) for run in runs]
    slow = {}
    for run, setting in zip(runs, settings, strict=True):
        own = [other for each, other in zip(runs, settings, strict=True) if summary._name(each) == summary._name(run)]
        label = summary._name(run)
        for key, value in setting.items():
            if varies(key, own if key.startswith(("method.", "projector.")) else settings):
                label += f" · {key.rpartition('.')[2]} = {value}"
        slow.setdefault(label, []).append(run)
    assert len(groups) > 10
    assert {group.label: list(group.runs) for group in groups} == slow
