"""ReMixMatch: Semi-Supervised Learning with Distribution Alignment and Augmentation Anchoring (Berthelot et al., ICLR 2020).

MixMatch whose guesses come from the weak view, follow the classes of the labeled images, and label strong views.
"""  # noqa: E501  (the title is that long)

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..machine.distributed import mean_over_ranks
from ..method import Batch, Method, Outcome, Problem, PseudoLabels, Views
from ..parts.alignment import AverageAlignment
from ..parts.labels import one_hot
from ..parts.mixing import Mixture, check_temperature, logits_in_chunks, sharpen
from ..parts.rotation import TURNS, turn_at_random
from ..parts.schedule import ramp_up
from ..parts.statistics import statistics_kept


class ReMixMatch(Method):
    """Mixtures with aligned guesses, the same guesses on a strong view as it is, and how far that view is turned.

    With `rotation_weight=0` there is no rotation task, and images need not be square.
    """

    views = Views(labeled=("weak",), unlabeled=("weak", "strong", "strong"))

    def __init__(
        self,
        net: nn.Module,
        problem: Problem,
        *,
        temperature: float = 0.5,
        mix_alpha: float = 0.75,
        alignment_momentum: float = 0.999,
        unlabeled_weight: float = 1.5,
        unmixed_weight: float = 0.5,
        rotation_weight: float = 0.5,
        ramp: float = 1 / 64,
    ) -> None:
        super().__init__(net)
        check_temperature(temperature)
        self.temperature, self.rotation_weight = temperature, rotation_weight
        self.needs_pixels = "turns images (method.rotation_weight=0 leaves that out)" if rotation_weight > 0 else ""
        self.unlabeled_weight, self.unmixed_weight = unlabeled_weight, unmixed_weight
        self.num_classes, self.ramp_steps = problem.num_classes, round(ramp * problem.steps)
        counts = torch.tensor(problem.label_counts)
        self.alignment = AverageAlignment(
            problem.num_classes, momentum=alignment_momentum, target=counts / counts.sum()
        )
        self.mixture = Mixture(mix_alpha)
        self.rotation_head = nn.Linear(net.num_features, TURNS) if rotation_weight > 0 else None  # type: ignore[arg-type]

    def forward(self, batch: Batch) -> Outcome:
        (x,), (weak, strong, other) = batch.labeled, batch.unlabeled
        with torch.no_grad(), statistics_kept(self.net):
            probs = self.net(weak).logits.softmax(1)
            mean_probs = mean_over_ranks(probs.mean(0))
            guess = sharpen(self.alignment(probs, mean_probs), self.temperature)

        count = len(x)  # the mixtures that are mostly labeled come first
        labels = one_hot(batch.labels, self.num_classes)
        mixed, target = self.mixture(
            torch.cat([x, strong, other, weak]), torch.cat([labels, guess, guess, guess]), batch.seed
        )
        logits = logits_in_chunks(self.net, mixed, count)
        with statistics_kept(self.net):
            on_strong = self.net(strong)

        ramp = ramp_up(batch.step, self.ramp_steps)
        losses = {
            "labeled": F.cross_entropy(logits[:count], target[:count]),
            "unlabeled": self.unlabeled_weight * ramp * F.cross_entropy(logits[count:], target[count:]),
            "unmixed": self.unmixed_weight * ramp * F.cross_entropy(on_strong.logits, guess),
        }
        if self.rotation_head is not None:
            losses["rotation"] = self.rotation_weight * self.rotation_loss(self.rotation_head, strong, batch.seed)
        return Outcome(
            losses=losses,
            memory={"mean_probs": mean_probs},
            pseudo=PseudoLabels(guess.argmax(1), torch.ones_like(guess[:, 0]), guess),
        )

    def rotation_loss(self, head: nn.Module, images: Tensor, seed: Tensor) -> Tensor:
        """How badly the features of turned images tell by how much they were turned."""
        turned, turns = turn_at_random(images, seed, salt=2)
        with statistics_kept(self.net):
            return F.cross_entropy(head(self.net(turned).features), turns)

    @torch.no_grad()
    def update(self, memory: dict[str, Tensor]) -> None:
        self.alignment.remember(memory["mean_probs"])
