from __future__ import annotations

from dataclasses import replace

import pytest

from epass.evaluation.alarms import swallowing_class
from epass.report import group_runs, warnings_of
from epass.report.collapse import lost_coverage


@pytest.mark.parametrize(
    ("coverage", "lost"),
    [
        ([], None),
        ([0.0, 0.0], None),  # it never had any
        ([0.05, 0.09, 0.0], None),
        ([0.05, 0.10, 0.0], (0.10, 0.0)),
        ([0.8, 0.009], (0.8, 0.009)),
        ([0.8, 0.01], None),
        ([0.8, 0.0, 0.5], None),  # it came back
    ],
)
def test_coverage_is_lost_when_there_was_some_and_is_none_at_the_end(coverage, lost):
    assert lost_coverage(coverage) == lost


@pytest.mark.parametrize(
    ("used", "images", "found"),
    [
        ([0.25, 0.25, 0.25, 0.25], None, None),
        ([0, 0, 0, 0], None, None),
        ([0.9, 0.1], None, (0, 0.9)),
        ([0.74, 0.26], None, None),  # of two classes, one took less than half of the other
        ([0.75, 0.25], None, (0, 0.75)),
        ([0, 0.5, 0, 0, 0, 0, 0, 0, 0, 0.4], None, (1, 5 / 9)),
        ([0, 0.5, 0, 0, 0, 0, 0, 0, 0, 0.5], None, None),  # 50 % is less than 10 % and half of the other 90 %
        ([0, 0.11, 0, 0, 0, 0, 0, 0, 0, 0], None, (1, 1.0)),
        ([0, 0.09, 0, 0, 0, 0, 0, 0, 0, 0], None, None),  # it has more images than that: the easiest class comes first
        ([0.9, 0.1], [90, 10], None),  # as many as there are
        ([0.9, 0.1], [10, 90], (0, 0.9)),
        ([1.0, 0], [4, 0], None),  # there is but one
        ([1.0, 0], [0, 0], None),
    ],
)
def test_a_class_swallows_others_when_it_takes_half_of_what_is_theirs(used, images, found):
    assert swallowing_class(used, images) == (None if found is None else (found[0], pytest.approx(found[1])))


def test_a_run_that_never_used_a_pseudo_label_says_so(make_run):
    def run_with(coverage, **changes):
        run = make_run(**changes)
        for row, value in zip(run.metrics, coverage, strict=True):
            row["coverage"] = value
        return run

    steps = len(make_run().metrics)
    (warning,) = warnings_of(group_runs([run_with([0.0] * steps)]))
    assert warning == (
        "SimMatch never used a pseudo-label: none was sure enough in the whole run. A lower threshold, more steps or "
        "more labels may help."
    )
    assert warnings_of(group_runs([run_with([0.0] * (steps - 1) + [0.001])])) == []
    assert warnings_of(group_runs([replace(run_with([0.0] * steps), results=None)])) == []  # more steps may follow
    for least, told in ((199, 0), (200, 1)):
        results = {**make_run().results, "steps": least}
        assert len(warnings_of(group_runs([replace(run_with([0.0] * steps), results=results)]))) == told


def counted(run, used, images):
    run.metrics[-1] |= {"used_by_class": used, "images_by_class": images}
    return run


def test_warnings_name_run_step_and_class(make_run):
    assert warnings_of(group_runs([make_run("supervised"), make_run()])) == []
    run = counted(make_run(), [0.0, 0.9, 0.1], [0.3, 0.3, 0.4])
    (warning,) = warnings_of(group_runs([run]))
    assert warning.startswith(
        "In SimMatch one class swallowed the others: 90 % of the pseudo-labels at step 400 say 'dog'."
    )
    seeds = group_runs([run, counted(make_run(seed=1), [0.0, 0.9, 0.1], [0.3, 0.3, 0.4])])
    assert ["SimMatch (seed 0)" in seeds_warning for seeds_warning in warnings_of(seeds)] == [True, False]


def test_a_class_that_no_run_was_tested_on_is_told_once(make_run):
    runs = [make_run(seed=seed) for seed in (0, 1)]
    for run in runs:
        run.predictions.labels[run.predictions.labels == 1] = 2
    assert warnings_of(group_runs(runs)) == ["No test image is of dog: the test error says nothing about it."]


def test_unknown_classes_count_as_equally_many(make_run):
    assert warnings_of(group_runs([counted(make_run(), [0.0, 0.9, 0.1], [0.0, 0.0, 0.0])])) != []
    assert warnings_of(group_runs([counted(make_run(), [0.0, 0.9, 0.1], [0.0, 0.9, 0.1])])) == []


def test_lost_coverage_is_said_with_its_numbers(make_run):
    run = make_run()
    run.metrics[-1]["coverage"] = 0.004
    (warning,) = warnings_of(group_runs([run]))
    assert warning.startswith(
        "SimMatch stopped using its unlabeled images: 88 % of them had a pseudo-label once, 0.4 % at the end."
    )
