"""Unsure images learn in a smaller class space: without the classes that they are confused with."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from ..errors import one_of
from ..machine.distributed import mean_over_ranks

HeadNorm = Literal["strong", "all"]


def shrink_loss(
    logits: Tensor, probs: Tensor, mask: Tensor, threshold: float, *, ranking: Tensor | None = None
) -> Tensor:
    """Cross-entropy of unsure rows (mask 0) with their top class, among the classes that remain.

    The runner-up and, as long as the top class is not confident among the rest, the next ones are removed. Rows whose
    top class is not even confident against the last one count 0. Each row is weighed by its confidence before.

    Args:
        logits: (N, C) of the auxiliary head.
        probs: (N, C) what the mask was taken from.
        mask: (N,) above 0 where the pseudo-label is used already.
        threshold: What the top class must reach among the remaining ones.
        ranking: (N, C) the probabilities that rank the classes, if not `probs`.
    """
    ranked, order = (probs if ranking is None else ranking).sort(dim=1, descending=True, stable=True)
    rest = ranked.flip(1).cumsum(1).flip(1)  # rest[:, c] is the mass of ranks c, c + 1, ...
    confidence = ranked[:, :1] / (ranked[:, :1] + rest)  # of the top class, ranks 1 to c - 1 removed: grows with c
    too_low = confidence[:, 2:] < threshold
    first = 2 + too_low.sum(1, keepdim=True)  # the first rank that remains, besides the top
    position = torch.arange(probs.shape[1], device=probs.device)
    removed = (position > 0) & (position < first)
    remaining = logits.gather(1, order).masked_fill(removed, -torch.inf)
    cross_entropy = remaining.logsumexp(1) - remaining[:, 0]  # 0 where nothing but the top remains
    return (torch.where(mask <= 0, probs.amax(1), 0.0) * cross_entropy).mean()


class Shrinking(nn.Module):
    """The auxiliary classifier of shrunk class spaces, and the share of certain images, which weighs its loss.

    Its gradient goes on into the backbone; at test time it is gone. `head_norm="strong"` lets its BatchNorm see the
    strong views only, with PyTorch's settings; "all" lets it see all views, slowly, as the code for STL-10 and SVHN.
    With `restart_steps` the share starts anew every so many steps.
    """

    share: Tensor
    started: Tensor

    def __init__(
        self,
        in_dim: int,
        num_classes: int,
        *,
        momentum: float = 0.999,
        restart_steps: int = 0,
        head_norm: HeadNorm = "strong",
    ) -> None:
        super().__init__()
        one_of("head_norm", head_norm, ("strong", "all"))
        self.momentum, self.restart_steps, self.head_norm = momentum, restart_steps, head_norm
        self.head = auxiliary_head(in_dim, num_classes, slow=head_norm == "all")
        self.register_buffer("share", torch.zeros(()))
        self.register_buffer("started", torch.zeros((), dtype=torch.bool))

    def forward(self, labeled: Tensor, weak: Tensor, strong: Tensor) -> Tensor:
        """(U, C) auxiliary logits of the strong views, from features of all views."""
        rows = strong if self.head_norm == "strong" else torch.cat([strong, labeled, weak])
        logits: Tensor = self.head(rows)
        return logits[: len(strong)]

    def next_share(self, mask: Tensor, step: Tensor) -> Tensor:
        """The share of certain images after this batch; it counts before it is used."""
        found = mean_over_ranks((mask > 0).float().mean())
        anew = ~self.started
        if self.restart_steps:
            anew = anew | (step % self.restart_steps == 0)
        return torch.where(anew, found, torch.lerp(found, self.share, self.momentum))

    @torch.no_grad()
    def remember(self, share: Tensor) -> None:
        self.share.copy_(share)
        self.started.fill_(True)


def auxiliary_head(in_dim: int, num_classes: int, *, slow: bool = False) -> nn.Sequential:
    """Three layers, a quarter as wide inside as the features."""
    width = max(in_dim // 4, 1)
    momentum, eps = (0.001, 1e-3) if slow else (0.1, 1e-5)
    layers: list[nn.Module] = []
    for inputs in (in_dim, width):
        layers += [nn.Linear(inputs, width), nn.BatchNorm1d(width, eps=eps, momentum=momentum), nn.LeakyReLU(0.1)]
    head = nn.Sequential(*layers, nn.Linear(width, num_classes))
    for layer in head if slow else ():
        if isinstance(layer, nn.Linear):
            nn.init.xavier_normal_(layer.weight)
            nn.init.zeros_(layer.bias)
    return head
