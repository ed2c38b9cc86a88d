"""One plain sentence: did it help, and is that more than luck?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..evaluation import SCORES
from ..evaluation.bootstrap import T_QUANTILES, paired_interval
from ..runs import Run
from .summary import ALL_LABELS, WITHOUT_UNLABELED, Group, display_name, number, seed_of


class Comparison(NamedTuple):
    """How much lower or higher the test error of one group is than that of another, in points."""

    points: float  # negative: lower error
    interval: tuple[float, float] | None  # 95 %; None where no seed of one side is a seed of the other
    num_seeds: int  # of the side that has fewer; where runs are paired, the pairs
    num_images: int  # test images that the interval knows about; 0 where the two sides were not tested on the same
    sure: bool  # more than the noise
    link: str  # between the errors of both sides and the difference
    detail: str  # the spread, in words
    noise: str  # of what, in words

    def sentence(self, question: tuple[str, str, str], facts: str) -> str:
        """Pick the answer among (helped, hurt, unclear) and add the numbers."""
        helped, hurt, unclear = question
        amount = f"{facts}{self.link} {_points(self.points)}"
        if self.num_seeds == 1:
            clear = self.num_images > 1 and self.interval is not None and not self.interval[0] <= 0 <= self.interval[1]
            answer = f"On this one seed {helped if self.points < 0 else hurt}"
            return f"{answer if clear else f'One seed cannot tell whether {helped}'}: {amount}{self.detail}."
        answer = (helped if self.points < 0 else hurt) if self.sure else unclear
        noise = "more than" if self.sure else "within"
        return f"{answer[0].upper()}{answer[1:]}: {amount}{self.detail}, {noise} the noise of {self.noise}."


class Difference(NamedTuple):
    """One group against the one that shows what it is worth."""

    ours: Group
    theirs: Group
    found: Comparison


def verdict(groups: Sequence[Group]) -> str:
    """Whether the unlabeled images helped, and whether EPASS did, judged by the error at the last step."""
    return " ".join(sentences(groups))


def sentences(groups: Sequence[Group]) -> list[str]:
    """The verdict, one sentence per comparison."""
    finished = [group for group in groups if group.errors]
    if not finished:
        return ["No run has finished yet, so there is nothing to compare."]
    starts = [group for group in finished if all(run.pretraining for run in group.runs)]
    others = [group for group in finished if group not in starts]
    about_unlabeled = _about_unlabeled(others) if others else []
    return [*about_unlabeled, *_about_epass(finished), *map(_about_start, starts)]


def compare(ours: Group, theirs: Group) -> Comparison:
    """The difference in the error of the last step, over the seeds that both have, or over all if these are too few."""
    pairs = _pairs(ours, theirs)
    return _compare_pairs(pairs, ours, theirs) if pairs else _compare_unpaired(ours, theirs)


def differences(groups: Sequence[Group]) -> list[Difference]:
    """Every method against labels only on the same data, then EPASS against the same method with one projector.

    Where several learned from labels only, the best of them is what the others have to beat.
    """
    finished = [group for group in groups if group.errors]
    against_labels = [
        (ours, theirs)
        for theirs in _labels_only(finished)
        for ours in finished
        if ours.method not in WITHOUT_UNLABELED and same_data(ours, theirs)
    ]
    against_one = [(ours, theirs) for ours in finished for theirs in finished if _only_projectors_differ(ours, theirs)]
    return [Difference(ours, theirs, compare(ours, theirs)) for ours, theirs in [*against_labels, *against_one]]


def _pairs(ours: Group, theirs: Group) -> list[tuple[Run, Run]]:
    """The runs of both with the same seed; none where most would be left out, or a seed is there twice."""
    by_seed = {seed_of(run): run for run in theirs.finished}
    found = [(run, by_seed[seed_of(run)]) for run in ours.finished if seed_of(run) in by_seed]
    sides = len(ours.finished), len(theirs.finished)
    unique = len(set(ours.seeds)), len(set(theirs.seeds))
    return found if sides == unique and len(found) >= min(2, *sides) else []


def _compare_pairs(pairs: Sequence[tuple[Run, Run]], ours: Group, theirs: Group) -> Comparison:
    gaps = np.round([100 * (_error(one) - _error(other)) for one, other in pairs], 9)
    on_images = 100 * _gaps_on_images(pairs)
    points, images = round(float(gaps.mean()), 9) + 0.0, len(on_images)  # gaps that add up to nothing are nothing
    low, high = paired_interval(gaps, on_images)
    sure = len(gaps) > 1 and images != 1 and (low > 0 or high < 0)
    all_seeds = len(pairs) == len(ours.finished) == len(theirs.finished)
    link = "," if all_seeds else f"; on the {_count(len(pairs), 'seed')} that both have,"
    noise = f"{len(pairs)} seeds" + (f" and {_count(images, 'test image')}" if images else "")
    detail = f" (95 % interval {_range(low, high)}; seed by seed {_range(gaps.min(), gaps.max())})"
    if len(gaps) == 1:
        over = f" (95 % interval over the {images:,} test images {_range(low, high)}"
        detail = f"{over}; the luck of other labels and weights is not in it)" if images > 1 else ""
    return Comparison(points, (low, high), len(pairs), images, sure, link, detail, noise)


def _compare_unpaired(ours: Group, theirs: Group) -> Comparison:
    """By seeds alone: two standard errors would call luck "more than noise" in 18 of 100 cases with three seeds."""
    sides = [100 * np.array(group.errors) for group in (ours, theirs)]
    points, fewest = float(sides[0].mean() - sides[1].mean()), min(map(len, sides))
    if fewest == 1:
        return Comparison(points, None, 1, 0, False, ",", "", "")
    error = np.sqrt(sum(side.var(ddof=1) / len(side) for side in sides))
    apart = bool(sides[0].max() < sides[1].min() or sides[0].min() > sides[1].max())
    sure = apart and abs(points) > T_QUANTILES[min(fewest - 1, len(T_QUANTILES)) - 1] * error
    detail = f" (seeds not paired, standard deviations {sides[0].std():.2f} and {sides[1].std():.2f})"
    return Comparison(points, None, fewest, 0, sure, ",", detail, f"{len(sides[0])} and {len(sides[1])} seeds")


def _gaps_on_images(pairs: Sequence[tuple[Run, Run]]) -> NDArray[np.float64]:
    """(N,) how much more often an image is mistaken; empty unless every run was tested on the same images."""
    tested = [run.predictions for pair in pairs for run in pair]
    first = tested[0]
    if first is None or any(other is None or not np.array_equal(other.labels, first.labels) for other in tested):
        return np.zeros(0)
    wrong = np.array([[run.wrong for run in pair] for pair in pairs], dtype=np.int8)  # (seeds, 2, images)
    return np.asarray((wrong[:, 0] - wrong[:, 1]).mean(axis=0), dtype=np.float64)


def _error(run: Run) -> float:
    error = number(run.results, "last", "error")
    assert error is not None  # it is a finished run
    return error


def _about_unlabeled(groups: Sequence[Group]) -> list[str]:
    baselines = _labels_only(groups)
    contenders = [group for group in groups if group.method not in (*WITHOUT_UNLABELED, ALL_LABELS)]
    if not contenders:
        return ["No run here uses unlabeled images, so there is nothing to say about whether they help."]
    found = []
    for baseline in baselines:
        fair = [group for group in contenders if same_data(group, baseline)]
        fair = [
            group for group in fair if len(group.errors) > 1
        ] or fair  # one that is left alone must not speak for all
        if fair:
            best = min(fair, key=_mean_error)
            who = best.label if len(fair) == 1 else f"{best.label}, the best of {len(fair)} configurations,"
            facts = f"{who} ends at {_percent(best)} test error against {_percent(baseline)} with {baseline.label}"
            question = (
                "the unlabeled images helped",
                "the unlabeled images hurt",
                "the unlabeled images made no clear difference",
            )
            found.append(compare(best, baseline).sentence(question, facts))
    if not found:
        best = min(contenders, key=_mean_error)
        which = "on the same data " if baselines else ""
        return [
            f"Whether the unlabeled images helped cannot be said without a run with labels only {which}to compare "
            f"with; the lowest test error is {_percent(best)}, by {best.label}."
        ]
    return found


def _about_start(group: Group) -> str:
    return (
        f"{group.label} learned without labels: its test error of {_percent(group)} is that of naming the class whose "
        "labeled images are nearest in the mean. What a method makes of this start, 'epass train --from' tells."
    )


def _labels_only(groups: Sequence[Group]) -> list[Group]:
    """Of the groups that learned from labels only, the best on each data."""
    found: list[Group] = []
    for group in sorted((group for group in groups if group.method in WITHOUT_UNLABELED), key=_mean_error):
        if not any(same_data(group, better) for better in found):
            found.append(group)
    return [group for group in groups if group in found]


def _about_epass(groups: Sequence[Group]) -> list[str]:
    found = []
    for ours, plain in ((ours, plain) for ours in groups for plain in groups if _only_projectors_differ(ours, plain)):
        name, (_, _, variant) = display_name(ours.method, ours.runs[0]), ours.label.partition(" · ")
        facts = (
            f"with {ours.projectors} projectors{f' ({variant})' if variant else ''} it ends at {_percent(ours)} test "
            f"error against {_percent(plain)} with one"
        )
        question = (f"EPASS helped {name}", f"EPASS hurt {name}", f"EPASS made no clear difference to {name}")
        found.append(compare(ours, plain).sentence(question, facts))
    return found


def same_data(one: Group, other: Group) -> bool:
    """Whether both were trained and tested on the same images."""
    data = [{k: repr(v) for k, v in group.setting.items() if k.startswith("data.")} for group in (one, other)]
    return data[0] == data[1]


def _only_projectors_differ(ours: Group, plain: Group) -> bool:
    """Whether `ours` is EPASS, and `plain` the same with one projector."""
    if not (ours.projectors > 1 == plain.projectors and ours.method == plain.method):
        return False
    settings = [{k: v for k, v in group.setting.items() if not k.startswith("projector.")} for group in (ours, plain)]
    return settings[0] == settings[1]


def _mean_error(group: Group) -> float:
    return float(np.mean(group.errors))


def _percent(group: Group) -> str:
    return SCORES["error"].text(_mean_error(group))


def _points(points: float) -> str:
    return f"{abs(points):.2f} points {_direction(points)}"


def _range(low: float, high: float) -> str:
    if low < 0 < high:
        return f"from {-low:.2f} less to {high:.2f} more"
    near, far = sorted((abs(low), abs(high)))
    return f"{near:.2f} to {far:.2f} {_direction(low + high)}"


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'s' * (number != 1)}"


def _direction(points: float) -> str:
    return "less" if points < 0 else "more" if points > 0 else "apart"
