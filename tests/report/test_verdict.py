from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from epass.report import group_runs, verdict
from epass.report.page import render
from epass.report.verdict import differences
from epass.runs import Predictions, Run

PAIR = {"supervised": 0.5, "simmatch": 0.2}


def say(*runs) -> str:
    return verdict(group_runs([run for several in runs for run in several]))


def answer_wrongly(run, images) -> None:
    """Let a run be wrong on these test images, and right on the others."""
    logits, labels = run.predictions
    answers = labels.copy()
    answers[list(images)] = (labels[list(images)] + 1) % 3
    logits[:] = np.eye(3)[answers]
    vars(run).pop("wrong", None)


def test_it_helped(make_runs):
    said = say(make_runs("supervised", [0.50, 0.52, 0.54]), make_runs("simmatch", [0.20, 0.23, 0.23]))
    assert said == (
        "The unlabeled images helped: SimMatch ends at 22.00 % test error against 52.00 % with labels only, "
        "30.00 points less (95 % interval 27.31 to 32.69 less; seed by seed 29.00 to 31.00 less), more than the "
        "noise of 3 seeds and 60 test images."
    )


def test_it_hurt(make_runs):
    said = say(make_runs("supervised", [0.20, 0.21, 0.22]), make_runs("fixmatch", [0.30, 0.32, 0.32]))
    assert said.startswith("The unlabeled images hurt: FixMatch ends at 31.33 %")
    assert "seed by seed 10.00 to 11.00 more), more than the noise of 3 seeds and 60 test images." in said


def test_within_noise_when_the_seeds_disagree(make_runs):
    said = say(make_runs("supervised", [0.20, 0.21, 0.22]), make_runs("fixmatch", [0.18, 0.22, 0.20]))
    assert said.startswith("The unlabeled images made no clear difference: ")
    assert "seed by seed from 2.00 less to 1.00 more), within the noise of 3 seeds " in said


def test_within_noise_when_the_mean_is_small_for_its_spread(make_runs):
    # every seed is better, but the gaps of 1, 5 and 9 points leave the mean uncertain by more than itself
    said = say(make_runs("supervised", [0.30, 0.30, 0.30]), make_runs("fixmatch", [0.29, 0.25, 0.21]))
    assert "seed by seed 1.00 to 9.00 less), within the noise of 3 seeds " in said


def test_two_seeds_rarely_suffice(make_runs):
    said = say(make_runs("supervised", [0.30, 0.30]), make_runs("fixmatch", [0.26, 0.25]))
    assert "within the noise of 2 seeds" in said


def test_no_difference_at_all(make_runs):
    said = say(make_runs("supervised", [0.3, 0.2]), make_runs("fixmatch", [0.3, 0.2]))
    assert "0.00 points apart" in said
    assert "within the noise" in said


def test_gaps_that_add_up_to_nothing_are_nothing(make_runs):
    theirs, ours = (
        make_runs("supervised", [20 / 355, 29 / 355, 28 / 355]),
        make_runs("vat", [23 / 355, 28 / 355, 26 / 355]),
    )
    assert ", 0.00 points apart (" in say(theirs, ours)
    assert differences(group_runs([*theirs, *ours]))[0].found.points == 0


def test_one_seed_speaks_for_itself_alone_and_says_what_its_interval_covers(make_runs):
    labels_only, simmatch = make_runs("supervised", [0.5]), make_runs("simmatch", [0.2])
    answer_wrongly(labels_only[0], range(30))
    answer_wrongly(simmatch[0], range(12))
    assert say(labels_only, simmatch) == (
        "On this one seed the unlabeled images helped: SimMatch ends at 20.00 % test error against "
        "50.00 % with labels only, 30.00 points less (95 % interval over the 60 test images 18.33 to 41.67 less; the "
        "luck of other labels and weights is not in it)."
    )
    labels_only, simmatch = make_runs("supervised", [0.2]), make_runs("simmatch", [0.5])
    answer_wrongly(labels_only[0], range(12))
    answer_wrongly(simmatch[0], range(30))
    assert say(labels_only, simmatch).startswith("On this one seed the unlabeled images hurt: SimMatch ends at 50.00 %")


def test_one_seed_cannot_tell_what_its_test_images_do_not_show(make_runs):
    labels_only, simmatch = make_runs("supervised", [11 / 60]), make_runs("simmatch", [10 / 60])
    answer_wrongly(labels_only[0], range(11))
    answer_wrongly(simmatch[0], range(5, 15))
    assert say(labels_only, simmatch).startswith("One seed cannot tell whether the unlabeled images helped: SimMatch")


def test_test_images_are_a_source_of_noise_beside_the_seeds(make_runs):
    """Three seeds that agree to the digit, on images that hardly differ."""
    theirs, ours = make_runs("supervised", [6 / 60] * 3), make_runs("simmatch", [4 / 60] * 3)
    for run in theirs:
        answer_wrongly(run, range(6))
    for run in ours:
        answer_wrongly(run, range(4))
    said = say(theirs, ours)
    assert (
        "3.33 points less (95 % interval 0.00 to 8.33 less; seed by seed 3.33 to 3.33 less), within the noise" in said
    )
    for run in ours:
        answer_wrongly(run, ())
        run.results["last"]["error"] = 0.0
    assert say(theirs, ours).startswith("The unlabeled images helped: ")


def test_on_other_test_images_only_seeds_can_tell(make_runs):
    theirs, ours = make_runs("supervised", [0.5, 0.5, 0.5]), make_runs("simmatch", [0.2, 0.2, 0.2])
    ours[1].predictions.labels[:] = 0
    assert say(theirs, ours).endswith("more than the noise of 3 seeds.")


def test_one_test_image_is_never_sure(make_run):
    runs = [make_run(method, seed=seed, error=error) for method, error in PAIR.items() for seed in range(3)]
    one = [replace(run, predictions=Predictions(*(part[:1] for part in run.predictions))) for run in runs]
    assert "within the noise of 3 seeds and 1 test image." in say(one)


def test_seeds_that_both_have_are_paired(make_runs):
    said = say(make_runs("supervised", [0.50, 0.51, 0.60]), make_runs("simmatch", [0.20, 0.22]))
    assert "ends at 21.00 % test error against 53.67 % with labels only; on the 2 seeds that both have, 29.50 " in said
    assert "seed by seed 29.00 to 30.00 less), more than the noise of 2 seeds" in said


def test_other_seeds_are_compared_unpaired(make_run):
    theirs = [make_run("supervised", seed=seed, error=0.50 + 0.01 * seed) for seed in range(3)]
    ours = [make_run("simmatch", seed=seed, error=error) for seed, error in ((2, 0.20), (7, 0.22))]
    said = say(theirs, ours)
    assert "seeds not paired, standard deviations 1.00 and 0.82" in said
    assert "more than the noise of 2 and 3 seeds" in said
    for run, error in zip([*theirs, *ours], [0.2, 0.3, 0.4, 0.25, 0.27], strict=True):
        run.results["last"]["error"] = error
    assert "within the noise of 2 and 3 seeds" in say(theirs, ours)
    assert say(theirs, [make_run("simmatch", seed=9)]).startswith("One seed cannot tell whether the unlabeled images")


@pytest.mark.parametrize(
    ("errors", "others", "answer"),
    [
        # 4.30 standard errors of sqrt(1 / 3 + 1 / 3) points are 3.5 points
        ([0.50, 0.51, 0.52], [0.47, 0.48, 0.49], "within"),
        ([0.50, 0.51, 0.52], [0.46, 0.47, 0.48], "more than"),
        # 5 points are 3.7 standard errors of ten seeds each, but some of these are on the wrong side
        ([0.40 + 0.01 * seed for seed in range(10)], [0.35 + 0.01 * seed for seed in range(10)], "within"),
    ],
)
def test_unpaired_seeds_must_be_apart_by_the_quantile_of_students_t(make_run, errors, others, answer):
    theirs = [make_run("supervised", seed=seed, error=error) for seed, error in enumerate(errors)]
    ours = [make_run("simmatch", seed=seed, error=error) for seed, error in enumerate(others, start=100)]
    assert f"{answer} the noise of {len(others)} and {len(errors)} seeds" in say(theirs, ours)


def test_the_same_seed_twice_is_not_paired(make_runs):
    twice = [*make_runs("simmatch", [0.2, 0.2]), *make_runs("simmatch", [0.21])]
    assert "seeds not paired" in say(make_runs("supervised", [0.5, 0.5, 0.5]), twice)


def test_every_method_against_labels_only_and_epass_against_one_projector(make_runs):
    groups = group_runs(
        [
            *make_runs("supervised", [0.5, 0.5]),
            *make_runs("fixmatch", [0.3, 0.3]),
            *make_runs("simmatch", [0.2, 0.2]),
            *make_runs("simmatch", [0.1, 0.1], size=3),
            *make_runs("simmatch", [0.1, 0.1], size=3, projector__combine="concat"),
            *make_runs("comatch", [0.2, 0.2], size=3),  # there is none with one projector
            *make_runs("uda", [0.2], finished=False),
        ]
    )
    mean, concat = "SimMatch + EPASS (3) · combine = mean", "SimMatch + EPASS (3) · combine = concat"
    assert {(ours.label, theirs.label) for ours, theirs, _ in differences(groups)} == {
        *((name, "labels only") for name in ("FixMatch", "SimMatch", mean, concat, "CoMatch + EPASS (3)")),
        *((name, "SimMatch") for name in (mean, concat)),
    }
    assert "EPASS helped SimMatch: with 3 projectors (combine = concat) it ends at 10.00 %" in verdict(groups)


def test_a_single_seed_does_not_speak_for_those_with_several(make_runs):
    labels_only, fixmatch = make_runs("supervised", [0.5, 0.5, 0.5]), make_runs("fixmatch", [0.3, 0.3, 0.3])
    assert say(labels_only, fixmatch, make_runs("vat", [0.1])).startswith("The unlabeled images helped: FixMatch ends")


def test_the_last_error_decides_not_the_best_on_test(make_runs):
    simmatch = make_runs("simmatch", [0.60, 0.60, 0.60])
    for run in simmatch:
        run.results["best_on_test"]["error"] = 0.01
    assert say(make_runs("supervised", [0.50, 0.50, 0.50]), simmatch).startswith("The unlabeled images hurt")


def test_the_best_of_several_is_named_as_such(make_runs):
    said = say(
        make_runs("supervised", [0.5, 0.5, 0.5]),
        make_runs("fixmatch", [0.3, 0.3, 0.3]),
        make_runs("comatch", [0.2, 0.2, 0.2]),
        make_runs("fully_supervised", [0.01, 0.01, 0.01]),
    )
    assert "CoMatch, the best of 2 configurations, ends at 20.00 %" in said


@pytest.mark.parametrize(
    ("errors", "answer"),
    [
        (
            [0.10, 0.10, 0.10],
            "EPASS helped SimMatch: with 3 projectors it ends at 10.00 % test error against 20.00 % with one",
        ),
        ([0.30, 0.30, 0.30], "EPASS hurt SimMatch"),
        ([0.19, 0.21, 0.19], "EPASS made no clear difference to SimMatch"),
        ([0.10], "On this one seed EPASS helped SimMatch"),
    ],
)
def test_epass_against_one_projector(make_runs, errors, answer):
    said = say(make_runs("simmatch", [0.2, 0.2, 0.2]), make_runs("simmatch", errors, size=3))
    assert answer in said
    assert ("within the noise of 3 seeds" in said) == ("no clear" in answer)


def test_epass_is_compared_with_the_same_method_and_settings_only(make_runs):
    assert "EPASS helped" not in say(make_runs("comatch", [0.2]), make_runs("simmatch", [0.1], size=3))
    others = make_runs("simmatch", [0.2, 0.2], plan__steps=10)
    assert "EPASS made" not in say(others, make_runs("simmatch", [0.1, 0.1], size=3))


def test_nothing_to_compare_is_said(make_runs):
    alone = say(make_runs("simmatch", [0.2]))
    assert "cannot be said without a run with labels only" in alone
    assert "20.00 %, by SimMatch" in alone
    elsewhere = say(make_runs("simmatch", [0.2]), make_runs("supervised", [0.5], data__num_labeled=250))
    assert "labels only on the same data to compare with" in elsewhere
    assert "No run here uses unlabeled images" in say(make_runs("supervised", [0.2]))
    assert "No run has finished" in say(make_runs("simmatch", [0.2], finished=False))


def test_a_start_is_not_judged_as_a_classifier(make_runs, monkeypatch):
    moco, simmatch = make_runs("moco", [0.80]), make_runs("simmatch", [0.20])
    monkeypatch.setattr(Run, "pretraining", property(lambda run: run.recipe["method"]["name"] == "moco"))
    start = (
        "MoCo learned without labels: its test error of 80.00 % is that of naming the class whose labeled images are "
        "nearest in the mean. What a method makes of this start, 'epass train --from' tells."
    )
    assert say(moco) == start
    assert say(moco, simmatch) == f"{say(simmatch)} {start}"
    assert "&#x27;epass train <span>--from</span>&#x27; tells" in render(moco, "a start")
    assert say(simmatch).startswith("Whether the unlabeled images helped cannot be said without a run with labels only")
