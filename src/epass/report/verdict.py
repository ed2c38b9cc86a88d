"""One plain sentence: did it help, and is that more than luck?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from .summary import ALL_LABELS, LABELS_ONLY, NAMES, Group

# Two-sided 95 % quantiles of Student's t for 1, 2, ... degrees of freedom; the last one serves all above. Two standard
# errors, the rule of thumb for many seeds, would call pure luck "more than noise" in 18 of 100 cases with three seeds.
T_QUANTILES = (12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23)


class Comparison(NamedTuple):
    """How much lower or higher the test error of one group is than that of another, in points."""

    points: float  # negative: lower error
    detail: str  # the spread, in words
    seeds: str | None  # how many, in words; None when one seed is all there is
    sure: bool  # more than the noise of these seeds

    def sentence(self, question: tuple[str, str, str], facts: str) -> str:
        """Pick the answer among (helped, hurt, unclear) and add the numbers."""
        helped, hurt, unclear = question
        amount = f"{facts}, {_points(self.points)}"
        if self.seeds is None:
            return f"One seed cannot tell whether {helped}: {amount}."
        answer = (helped if self.points < 0 else hurt) if self.sure else unclear
        noise = "more than" if self.sure else "within"
        return f"{answer[0].upper()}{answer[1:]}: {amount} ({self.detail}), {noise} the noise of {self.seeds}."


def verdict(groups: Sequence[Group]) -> str:
    """Whether the unlabeled images helped, and whether EPASS did, judged by the error at the last step."""
    return " ".join(sentences(groups))


def sentences(groups: Sequence[Group]) -> list[str]:
    """The verdict, one sentence per comparison."""
    finished = [group for group in groups if group.errors]
    if not finished:
        return ["No run has finished yet, so there is nothing to compare."]
    return [*_about_unlabeled(finished), *_about_epass(finished)]


def compare(ours: Group, theirs: Group) -> Comparison:
    """The difference in the error of the last step: paired by seed when both have the same seeds."""
    ours_points, theirs_points = 100 * np.array(ours.errors), 100 * np.array(theirs.errors)
    points = float(ours_points.mean() - theirs_points.mean())
    fewest = min(len(ours_points), len(theirs_points))
    if fewest == 1:
        return Comparison(points, "", None, False)
    t = T_QUANTILES[min(fewest - 1, len(T_QUANTILES)) - 1]
    if ours.seeds == theirs.seeds and len(set(ours.seeds)) == len(ours.seeds):
        gaps = ours_points - theirs_points
        error = gaps.std(ddof=1) / np.sqrt(len(gaps))
        agree = bool((gaps < 0).all() or (gaps > 0).all())
        detail = f"seed by seed {_range(gaps.min(), gaps.max())}"
        return Comparison(points, detail, f"{len(gaps)} seeds", agree and abs(points) > t * error)
    error = np.sqrt(sum(x.var(ddof=1) / len(x) for x in (ours_points, theirs_points)))
    apart = bool(ours_points.max() < theirs_points.min() or ours_points.min() > theirs_points.max())
    detail = f"seeds not paired, standard deviations {ours_points.std():.2f} and {theirs_points.std():.2f}"
    return Comparison(
        points, detail, f"{len(ours_points)} and {len(theirs_points)} seeds", apart and abs(points) > t * error
    )


def _about_unlabeled(groups: Sequence[Group]) -> list[str]:
    baselines = [group for group in groups if group.method == LABELS_ONLY]
    contenders = [group for group in groups if group.method not in (LABELS_ONLY, ALL_LABELS)]
    if not contenders:
        return ["No run here uses unlabeled images, so there is nothing to say about whether they help."]
    found = []
    for baseline in baselines:
        fair = [group for group in contenders if same_data(group, baseline)]
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


def _about_epass(groups: Sequence[Group]) -> list[str]:
    found = []
    for ours in groups:
        for plain in groups:
            if ours.projectors > 1 == plain.projectors and ours.method == plain.method and _same_recipe(ours, plain):
                name = NAMES.get(ours.method, ours.method)
                facts = (
                    f"with {ours.projectors} projectors it ends at {_percent(ours)} test error "
                    f"against {_percent(plain)} with one"
                )
                question = (f"EPASS helped {name}", f"EPASS hurt {name}", f"EPASS made no clear difference to {name}")
                found.append(compare(ours, plain).sentence(question, facts))
    return found


def same_data(one: Group, other: Group) -> bool:
    """Whether both were trained and tested on the same images."""
    data = [{k: repr(v) for k, v in group.setting.items() if k.startswith("data.")} for group in (one, other)]
    return data[0] == data[1]


def _same_recipe(ours: Group, plain: Group) -> bool:
    """Equal in everything but the projector."""
    settings = [{k: v for k, v in group.setting.items() if not k.startswith("projector.")} for group in (ours, plain)]
    return settings[0] == settings[1]


def _mean_error(group: Group) -> float:
    return float(np.mean(group.errors))


def _percent(group: Group) -> str:
    return f"{100 * _mean_error(group):.2f} %"


def _points(points: float) -> str:
    return f"{abs(points):.2f} points {_direction(points)}"


def _range(low: float, high: float) -> str:
    if low < 0 < high:
        return f"from {-low:.2f} less to {high:.2f} more"
    near, far = sorted((abs(low), abs(high)))
    return f"{near:.2f} to {far:.2f} {_direction(low + high)}"


def _direction(points: float) -> str:
    return "less" if points < 0 else "more" if points > 0 else "apart"
