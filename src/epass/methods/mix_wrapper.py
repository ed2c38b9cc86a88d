"""InfoMatch: Entropy Neural Estimation for Semi-Supervised Image Classification (Han et al., IJCAI 2024).

The mixtures of InfoMatch, added to any method with pseudo-labels.
Around SimMatch or CoMatch with three projectors, EPASS makes the pseudo-labels and mixing spreads them.
"""

from __future__ import annotations

from ..errors import InputError
from ..method import Batch, Method, Outcome, Problem, PseudoLabels, Wrapper
from ..parts.cutmix import cut_mix, patched_consistency
from ..parts.statistics import statistics_kept
from .infomatch import InfoMatch


class Mix(Wrapper):
    """Weak views with a part of another one learn both pseudo-labels of the wrapped method, each by its share."""

    display_name = "Mix"

    def __init__(self, method: Method, problem: Problem, *, weight: float = 1.0) -> None:
        super().__init__(method)
        if isinstance(self.host, InfoMatch):
            raise InputError("InfoMatch mixes its images already: wrap another method.")
        self.weight = weight

    def forward(self, batch: Batch) -> Outcome:
        outcome: Outcome = self.method(batch)
        labels, mask, _ = self.pseudo_of(outcome)
        patched = cut_mix(batch.unlabeled[self.views.unlabeled.index("weak")], batch.seed)
        # A pass of its own, since that of the wrapped method is over; what is tested is normalized as that one was.
        with statistics_kept(self.net):
            logits = self.net(patched.images).logits
        mixed = self.weight * patched_consistency(logits, patched, labels, mask)
        return outcome._replace(losses={**outcome.losses, "mixed": mixed})

    def pseudo_of(self, outcome: Outcome) -> PseudoLabels:
        """The pseudo-labels of the wrapped method, or a sentence that says that it exports none."""
        self.features_of(outcome)  # only a method that exports these has a classifier like any other
        if outcome.pseudo is None:
            raise InputError(f"{type(self.host).__name__} says nothing of its pseudo-labels, so there is none to mix.")
        return outcome.pseudo
