"""Mean Teacher: Mean Teachers Are Better Role Models (Tarvainen & Valpola, NeurIPS 2017).

A moving average of the network teaches it: on another view of the image, both should predict the same.
"""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..errors import one_of
from ..method import Batch, Method, Outcome, Problem, Views
from ..parts.labels import squared_error
from ..parts.schedule import ramp_up
from ..parts.statistics import statistics_kept
from ..parts.teacher import Average


class MeanTeacher(Method):
    """The teacher's prediction on one weak view is the student's soft target on another one.

    `compare="teacher"` repeats a slip of published code, which compares the teacher with itself: the unlabeled loss is
    then zero, and what remains is training on labels only.
    """

    views = Views(labeled=("weak",), unlabeled=("weak", "weak"))

    def __init__(
        self,
        net: nn.Module,
        problem: Problem,
        *,
        unlabeled_weight: float = 50.0,
        ramp: float = 0.4,
        teacher_momentum: float = 0.999,
        compare: Literal["student", "teacher"] = "student",
    ) -> None:
        super().__init__(net)
        one_of("compare", compare, ("student", "teacher"))
        self.unlabeled_weight = unlabeled_weight if compare == "student" else 0.0
        self.ramp_steps = round(ramp * problem.steps)
        self.teacher = Average(net, teacher_momentum, batch_statistics=True)

    def forward(self, batch: Batch) -> Outcome:
        (x,), (first, second) = batch.labeled, batch.unlabeled
        on_x = self.net(x)
        with torch.no_grad():
            target = self.teacher(first).logits.softmax(1)
        with statistics_kept(self.net):
            on_second = self.net(second)

        weight = self.unlabeled_weight * ramp_up(batch.step, self.ramp_steps)
        return Outcome(
            losses={
                "labeled": F.cross_entropy(on_x.logits, batch.labels),
                "unlabeled": weight * squared_error(on_second.logits, target),
            }
        )

    @torch.no_grad()
    def update(self, memory: dict[str, Tensor]) -> None:
        self.teacher.follow(self.net)
