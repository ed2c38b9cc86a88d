from __future__ import annotations

import pytest

from epass.report import group_runs, verdict


def say(*runs) -> str:
    return verdict(group_runs([run for several in runs for run in several]))


def test_it_helped(make_runs):
    said = say(make_runs("supervised", [0.50, 0.52, 0.54]), make_runs("simmatch", [0.20, 0.23, 0.23]))
    assert said == (
        "The unlabeled images helped: SimMatch ends at 22.00 % test error against 52.00 % with labels only, "
        "30.00 points less (seed by seed 29.00 to 31.00 less), more than the noise of 3 seeds."
    )


def test_it_hurt(make_runs):
    said = say(make_runs("supervised", [0.20, 0.21, 0.22]), make_runs("fixmatch", [0.30, 0.32, 0.32]))
    assert said.startswith("The unlabeled images hurt: FixMatch ends at 31.33 %")
    assert "10.33 points more (seed by seed 10.00 to 11.00 more), more than the noise of 3 seeds." in said


def test_within_noise_when_the_seeds_disagree(make_runs):
    said = say(make_runs("supervised", [0.20, 0.21, 0.22]), make_runs("fixmatch", [0.18, 0.22, 0.20]))
    assert said.startswith("The unlabeled images made no clear difference: ")
    assert "(seed by seed from 2.00 less to 1.00 more), within the noise of 3 seeds." in said


def test_within_noise_when_the_mean_is_small_for_its_spread(make_runs):
    # every seed is better, but the gaps of 1, 5 and 9 points leave the mean uncertain by more than itself
    said = say(make_runs("supervised", [0.30, 0.30, 0.30]), make_runs("fixmatch", [0.29, 0.25, 0.21]))
    assert "5.00 points less (seed by seed 1.00 to 9.00 less), within the noise of 3 seeds." in said


def test_two_seeds_rarely_suffice(make_runs):
    said = say(make_runs("supervised", [0.30, 0.30]), make_runs("fixmatch", [0.26, 0.25]))
    assert "within the noise of 2 seeds" in said


def test_no_difference_at_all(make_runs):
    said = say(make_runs("supervised", [0.3, 0.2]), make_runs("fixmatch", [0.3, 0.2]))
    assert "0.00 points apart" in said
    assert "within the noise" in said


def test_one_seed_cannot_tell(make_runs):
    said = say(make_runs("supervised", [0.5]), make_runs("simmatch", [0.2]))
    assert said == (
        "One seed cannot tell whether the unlabeled images helped: SimMatch ends at 20.00 % test error against "
        "50.00 % with labels only, 30.00 points less."
    )


def test_different_seeds_are_compared_unpaired(make_runs):
    said = say(make_runs("supervised", [0.50, 0.51, 0.52]), make_runs("simmatch", [0.20, 0.22]))
    assert "seeds not paired, standard deviations 1.00 and 0.82" in said
    assert "more than the noise of 2 and 3 seeds" in said
    overlapping = say(make_runs("supervised", [0.20, 0.30, 0.40]), make_runs("simmatch", [0.25, 0.27]))
    assert "within the noise of 2 and 3 seeds" in overlapping


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
        ([0.10], "One seed cannot tell whether EPASS helped SimMatch"),
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
