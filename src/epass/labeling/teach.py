"""Teach a model the labels of now: at once by the labels alone, then with the images that have none."""

from __future__ import annotations

import time
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..recipe import read_recipe
from .beliefs import LABELS_ONLY, SEMI_SUPERVISED, TYPICAL, UNCERTAIN, Beliefs
from .enough import LEAST_LABELS, why_no_accuracy
from .examples import RECIPE, Examples
from .steps import NUMBERS

if TYPE_CHECKING:
    import torch

    from ..data import Dataset, Split
    from ..evaluation.left_out import Estimate

Rows = NDArray[np.int64]  # positions among the images that can be read
Floats = NDArray[Any]
PROJECTORS, SHORTER = 3, 2  # heads, and times: half of the steps cost a point of accuracy and save half of the wait
FIRST, EACH = 12, 2  # labels, and labels in each class, up to which only typical images are suggested
TYPICAL_EACH = 20  # labels in each class on average, up to which they serve better than doubtful ones (label_order.py)
BATCH = 24  # suggestions that are unlike each other
POOL = 5_000  # images among which suggestions are looked for
COMPARED = 20_000  # images that are compared with all others: the time it takes grows with the square
JUDGED = 5  # labels of a class on average, from which on one can say which are wrong
SEED = 0


class Lesson(NamedTuple):
    """The labels at one moment."""

    n: int  # the journal's last record
    classes: NDArray[np.int64]  # ids of those that have labels, ascending
    labeled: Rows
    labels: NDArray[np.int64]  # (L,) positions among the classes
    left: NDArray[np.bool_]  # (M,) the images without a label and without a mark
    usable: NDArray[np.bool_]  # (M,) the images that may be learned from
    sample: NDArray[np.bool_]  # (L,) the labels of a fair sample of all images, if they are enough to measure by

    @property
    def counts(self) -> dict[str, int]:
        """Labels by class."""
        return dict(zip(map(str, self.classes), np.bincount(self.labels, minlength=len(self.classes)), strict=True))


@dataclass(frozen=True, eq=False)
class Opinion:
    """What one way to learn makes of a lesson."""

    how: str
    lesson: Lesson
    probs: Floats  # (M, C)
    left_out: Floats  # (L, C) of labeled images, by models that did not learn their label; NaN where nobody was asked
    seconds: float
    disagreement: Floats | None = None  # (M,)
    judged: bool = True  # `left_out` is of this way to learn, and not of the labels alone

    @property
    def wrong(self) -> NDArray[np.bool_]:
        """Which labels are missed when they are left out; empty as long as that says nothing."""
        from ..evaluation.left_out import mistakes

        if not self.judged or why_no_accuracy(self.lesson.counts):
            return np.zeros(0, dtype=bool)
        sample = self.lesson.sample if self.lesson.sample.any() else np.ones(len(self.lesson.labels), dtype=bool)
        return mistakes(self.left_out[sample], self.lesson.labels[sample])

    @property
    def accuracy(self) -> dict[str, float] | None:
        """The share of right answers to labels that are left out, with its interval."""
        from ..evaluation.left_out import estimate_error

        wrong = self.wrong
        return as_accuracy(estimate_error(wrong)) if len(wrong) else None

    @property
    def guesses(self) -> NDArray[np.int64]:
        """(M,) the id of the likeliest class."""
        found: NDArray[np.int64] = self.lesson.classes[self.probs.argmax(1)]
        return found


def as_accuracy(error: Estimate) -> dict[str, float]:
    """The share of right answers instead of that of wrong ones."""
    return {"value": 1 - error.value, "low": 1 - error.high, "high": 1 - error.low, "labels": error.labels}


@dataclass(eq=False)
class Teacher:
    """Learns lesson after lesson about the same images, and remembers the last opinions."""

    examples: Examples
    device: torch.device
    vectors: Floats = field(init=False)  # (M, D) half as long as floats: there may be 100,000
    scaled: Floats = field(init=False)  # as a linear classifier wants them
    unlike: Rows = field(init=False)
    # All images, at random. However labels were chosen, those before the first image without an answer are a fair
    # sample of the folder, and only by such a one an accuracy is that of the folder: doubtful images are harder.
    order: Rows = field(init=False)
    queue: list[int] = field(default_factory=list, init=False)  # typical images that were suggested and have no answer
    labels_only: Opinion | None = field(default=None, init=False)
    semi: Opinion | None = field(default=None, init=False)
    helped: str | None = field(default=None, init=False)
    worse: bool = field(default=False, init=False)  # the unlabeled images made it worse, by more than luck
    measured: Opinion | None = field(default=None, init=False)  # the last `semi` whose accuracy is known
    shown: Opinion | None = field(default=None, init=False)
    met: set[int] | None = field(default=None, init=False)  # images whose label was compared with an earlier guess

    def __post_init__(self) -> None:
        from ..evaluation.selection import outlying, standardized

        self.vectors = self.examples.dataset.train.pixels.numpy()
        self.scaled = standardized(self.vectors.astype(np.float32))
        self.order = np.random.default_rng(SEED).permutation(len(self.vectors))
        some = self.some(np.arange(len(self.vectors)), COMPARED)
        self.unlike = some[outlying(self.vectors[some])]

    def lesson(self, n: int, labels: Sequence[tuple[int, int]], marks: Sequence[tuple[int, int]]) -> Lesson:
        """What there is to learn, from pairs of an image's id and its class or mark."""
        label, mark = np.full(self.examples.images, -1), np.zeros(self.examples.images, dtype=np.int64)
        for image, number in labels:
            label[image] = number
        for image, number in marks:
            mark[image] = number
        label, mark = label[self.examples.ids], mark[self.examples.ids]
        labeled = np.flatnonzero(label >= 0)
        classes, numbers = np.unique(label[labeled], return_inverse=True)
        left = (label < 0) & (mark == 0)
        sample = np.isin(labeled, self.order[: int(left[self.order].argmax())] if left.any() else self.order)
        sample &= sample.sum() >= LEAST_LABELS
        return Lesson(n, classes, labeled, numbers, left, mark != NUMBERS["none"], sample)

    def learn_labels(self, lesson: Lesson) -> dict[str, Any]:
        """Learn from the labels alone, of two classes at least; returns a row of the history."""
        import torch

        from ..engine.crossfit import FOLDS, deal
        from ..evaluation.baselines import logistic_regression

        began, rows, labels = time.perf_counter(), self.scaled, lesson.labels
        probs = logistic_regression(rows[lesson.labeled], labels, rows[:0], rows)
        left_out = np.full((len(labels), len(lesson.classes)), np.nan)
        folds = deal(torch.from_numpy(labels), SEED, FOLDS).numpy()
        for fold in np.unique(folds[folds >= 0]):
            asked, taught = lesson.labeled[folds == fold], lesson.labeled[folds != fold]
            left_out[folds == fold] = logistic_regression(rows[taught], labels[folds != fold], rows[:0], rows[asked])
        opinion = Opinion(LABELS_ONLY, lesson, probs, left_out, time.perf_counter() - began)
        row = self.row(opinion, self.labels_only)
        self.labels_only = opinion
        return row

    def learn_all(self, lesson: Lesson) -> Generator[tuple[int, int], None, dict[str, Any]]:
        """Learn from the images without a label, too, after `learn_labels` of the same lesson; returns the same.

        Yields the steps done and the steps in all, after each of them. The guesses are there before the accuracy is.
        """
        from ..engine.crossfit import FOLDS, fit, going_on, out_of_fold, shortened
        from ..engine.infer import answering_network, infer

        began, before, beside = time.perf_counter(), self.semi, self.labels_only
        assert beside is not None
        settings = {"data.name": self.examples.dataset.name, "projector.size": PROJECTORS}
        recipe = replace(read_recipe(RECIPE).with_settings(settings), features=None, seed=SEED)
        dataset, split = self.divided(lesson)
        folded, done, judged = shortened(recipe, split), 0, not why_no_accuracy(lesson.counts)
        recipe = recipe.with_settings({"plan.steps": int(recipe.plan["steps"]) // SHORTER})
        total = int(recipe.plan["steps"]) + judged * FOLDS * int(folded.plan["steps"])
        steps = fit(recipe, dataset, split, self.device)
        while (experiment := next(steps)) is None:
            done += 1
            yield done, total
        said = infer(answering_network(experiment), dataset.train, dataset, self.device)
        self.semi = opinion = Opinion(
            SEMI_SUPERVISED,
            lesson,
            said.logits.double().softmax(1).cpu().numpy(),
            beside.left_out,
            time.perf_counter() - began,
            disagreement(experiment.method.projector, said.features),
            judged=False,
        )
        if judged:
            answers = yield from going_on(out_of_fold(folded, dataset, split, self.device), done, total)
            self.semi = opinion = replace(opinion, left_out=answers.double().softmax(1).numpy(), judged=True)
            self.measured = opinion
            self.helped, self.worse = compared(opinion, beside)
        return self.row(opinion, before)

    def divided(self, lesson: Lesson) -> tuple[Dataset, Split]:
        """A lesson as a run takes it: no image is tested, for the labels are left out in turn."""
        import torch

        from ..data import Positions, cut

        labels, nothing = np.full(len(self.vectors), -1), np.empty(0, dtype=np.int64)
        labels[lesson.labeled] = lesson.labels
        train = self.examples.dataset.train.labeled(torch.from_numpy(labels))
        dataset = replace(self.examples.dataset, classes=tuple(map(str, lesson.classes)), train=train)
        others = np.setdiff1d(np.flatnonzero(lesson.usable), lesson.labeled)
        positions = Positions(
            tuple(range(len(lesson.classes))),
            lesson.labeled,
            np.concatenate([lesson.labeled, others]),
            nothing,
            nothing,
        )
        return dataset, cut(dataset, positions)

    def row(self, opinion: Opinion, before: Opinion | None) -> dict[str, Any]:
        """What the history keeps of an opinion; `before` is the last one by the same way."""
        lesson, accuracy = opinion.lesson, opinion.accuracy or {}
        asked, right = self.meet(lesson)
        return {
            "n": lesson.n,
            "labels": len(lesson.labels),
            "classes": len(lesson.classes),
            "how": opinion.how,
            "accuracy": accuracy.get("value"),
            "low": accuracy.get("low"),
            "high": accuracy.get("high"),
            "seconds": round(opinion.seconds, 2),
            "changed": None if before is None else float((before.guesses != opinion.guesses).mean()),
            "asked": asked,
            "right": right,
        }

    def meet(self, lesson: Lesson) -> tuple[int, int]:
        """How many labels are new since the last lesson and had a guess before, and how many guesses were right."""
        labels = dict(zip(lesson.labeled.tolist(), lesson.classes[lesson.labels].tolist(), strict=True))
        met, self.met = self.met, (self.met or set()) | set(labels)
        if met is None or self.shown is None:
            return 0, 0
        known, guesses = {*met, *self.shown.lesson.labeled.tolist()}, self.shown.guesses
        hits = [int(guesses[row]) == label for row, label in labels.items() if row not in known]
        return len(hits), sum(hits)

    def choose(self, lesson: Lesson) -> Opinion | None:
        """The opinion to show: the rule is that of a run's guard, and every class that has labels must be known."""
        if len(lesson.classes) < 2 or self.labels_only is None:
            return None
        knows_all = self.semi is not None and np.array_equal(self.semi.lesson.classes, lesson.classes)
        return self.semi if knows_all and not self.worse else self.labels_only

    def believe(self, lesson: Lesson) -> Beliefs:
        """The newest opinions, and what to label next."""
        self.shown = self.choose(lesson)
        suggested, fair, by = self.suggest(lesson, self.shown)
        size, ids = self.examples.images, self.examples.ids
        facts: dict[str, Any] = {"by": by, "fair": ids[fair].tolist(), "labels": len(lesson.labels), "how": None}
        facts["unreadable"] = np.setdiff1d(np.arange(size), ids).tolist()
        guess, second, taught = (np.full(size, -1, dtype=np.int32) for _ in range(3))
        confidence, margin, doubt = (np.full(size, np.nan, dtype=np.float32) for _ in range(3))
        suspects: Rows = np.empty(0, dtype=np.int64)
        if (shown := self.shown) is not None:
            assert self.labels_only is not None
            known, classes, probs = shown.lesson.labeled, shown.lesson.classes, shown.probs.copy()
            probs[known] = shown.left_out
            heard = np.flatnonzero(np.isfinite(probs).all(1))
            order = np.argsort(probs[heard], axis=1)[:, -2:]
            low, high = np.take_along_axis(probs[heard], order, axis=1).T
            second[ids[heard]], guess[ids[heard]] = classes[order].T
            confidence[ids[heard]], margin[ids[heard]] = high, high - low
            taught[ids[known]] = classes[shown.lesson.labels]
            if shown.disagreement is not None:
                doubt[ids] = shown.disagreement
            suspects = self.suspects(shown)
            judged = shown if shown.accuracy else self.measured
            facts |= {
                "how": shown.how,
                "labels": len(known),
                "accuracy": None if judged is None or why_no_accuracy(shown.lesson.counts) else judged.accuracy,
                "labels_only": self.labels_only.accuracy,
                "sampled": judged is not None and bool(judged.lesson.sample.any()),
                "helped": self.helped,
                "seconds": round(shown.seconds, 2),
            }
        return Beliefs(
            n=lesson.n if shown is None else shown.lesson.n,
            digest=self.examples.digest,
            taught=taught,
            guess=guess,
            second=second,
            confidence=confidence,
            margin=margin,
            disagreement=doubt,
            suggested=ids[suggested].astype(np.int32),
            unlike=ids[self.unlike].astype(np.int32),
            suspects=ids[suspects].astype(np.int32),
            facts=facts,
        )

    def suggest(self, lesson: Lesson, shown: Opinion | None) -> tuple[Rows, Rows, str]:
        """Images to label next, those of them that are a fair sample, and by what the others were chosen.

        A model that has not met every class cannot hesitate about those it lacks, so the first labels are for typical
        images, of which each stands for a group. Later every other image is drawn at random, to measure the accuracy.
        """
        from ..evaluation.selection import uncertain

        nothing = np.empty(0, dtype=np.int64)
        usual = lesson.left.copy()
        usual[self.unlike] = False
        left = np.flatnonzero(usual if usual.sum() >= BATCH else lesson.left)
        pool = self.some(left, POOL)
        if not len(pool):
            return left, nothing, TYPICAL
        if shown is None or len(lesson.labels) < max(FIRST, EACH * len(lesson.classes)):
            self.queue = [row for row in self.queue if lesson.left[row]]
            if not self.queue:
                self.queue = self.typical(lesson, pool, FIRST).tolist()
            return np.array(self.queue, dtype=np.int64), nothing, TYPICAL
        self.queue = []
        by = TYPICAL if len(lesson.labels) < TYPICAL_EACH * len(lesson.classes) else UNCERTAIN
        chosen = (
            self.typical(lesson, pool, BATCH)
            if by == TYPICAL
            else pool[uncertain(self.vectors[pool], shown.probs[pool], BATCH)]
        )
        # A class that the model is sure of is never doubtful, but with a single label nobody can test it.
        rare = [name for name, count in lesson.counts.items() if count < EACH]
        columns = np.flatnonzero(np.isin(shown.lesson.classes.astype(str), rare))
        likely = pool[shown.probs[pool][:, columns].argmax(0)]
        fair = self.order[lesson.left[self.order]][: len(chosen)]
        # Whoever labels slowly sees the first of each list only, so that one must change in turn, too.
        in_turn = np.stack([fair, chosen[: len(fair)]][:: 1 if len(lesson.labels) % 2 else -1], 1).ravel()
        rows = np.array([*dict.fromkeys([*likely.tolist(), *in_turn.tolist()])], dtype=np.int64)
        return rows, np.setdiff1d(fair, np.concatenate([likely, chosen])), by

    def typical(self, lesson: Lesson, pool: Rows, count: int) -> Rows:
        """So many images of the pool, each of which stands for a group in which no image has a label."""
        from ..evaluation.selection import typical

        rows = np.union1d(pool, lesson.labeled)
        places = [np.searchsorted(rows, some) for some in (pool, lesson.labeled)]
        found: Rows = rows[typical(self.vectors[rows], count, places[0], places[1])]
        return found

    def suspects(self, shown: Opinion) -> Rows:
        """Labels that look wrong to a model that did not learn them, the most suspicious first."""
        from ..evaluation.selection import suspected

        labels = shown.lesson.labels
        if len(labels) < JUDGED * len(shown.lesson.classes):
            return np.empty(0, dtype=np.int64)
        found: Rows = shown.lesson.labeled[suspected(shown.left_out, labels).places]
        return found

    def some(self, rows: Rows, most: int) -> Rows:
        """At most so many of the rows, ascending, drawn equally."""
        if len(rows) <= most:
            return rows
        return np.sort(np.random.default_rng(SEED).choice(rows, most, replace=False))


def disagreement(projector: Any, features: torch.Tensor) -> Floats:
    """(N,) one less the mean cosine between what two of the projectors make of an image."""
    import torch
    from torch.nn.functional import normalize

    with torch.no_grad():
        outputs = torch.stack([normalize(output.float(), dim=1) for output in projector.outputs(features)])
    heads = len(outputs)
    cosine = (outputs.sum(0).square().sum(1) - heads) / (heads * (heads - 1))
    return (1 - cosine).cpu().numpy()


def compared(semi: Opinion, labels_only: Opinion) -> tuple[str | None, bool]:
    """Whether the unlabeled images helped, in a sentence, and whether they made it worse by more than luck."""
    from ..evaluation.left_out import estimate_gap

    wrong, other = semi.wrong, labels_only.wrong
    if not len(wrong) or len(wrong) != len(other):
        return None, False
    gap = estimate_gap(wrong, other)
    facts = (
        f"of {gap.labels:,} labels that were left out in turn, the model with them misses {wrong.sum():,} and the one "
        f"without {other.sum():,}"
    )
    if gap.low > 0:
        return f"The unlabeled images did not help, so the guesses are those of the labels only: {facts}.", True
    if gap.high < 0:
        return f"The unlabeled images helped: {facts}.", False
    return f"So few labels cannot tell yet whether the unlabeled images helped: {facts}.", False
