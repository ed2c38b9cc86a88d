"""BatchNorm's statistics: who may move the running ones, and over which rows those of a batch are taken."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from ..errors import InputError
from ..machine.distributed import alone, gather_rows, world_size


@contextmanager
def statistics_kept(net: nn.Module) -> Iterator[None]:
    """Let passes of a training network normalize by their batch, as ever, and leave the running statistics alone."""
    norms = [module for module in net.modules() if isinstance(module, nn.modules.batchnorm._BatchNorm)]
    norms = [module for module in norms if module.training and module.track_running_stats]
    for module in norms:
        module.track_running_stats = False
    try:
        yield
    finally:
        for module in norms:
            module.track_running_stats = True


class SharedBatchNorm(nn.modules.batchnorm._BatchNorm):
    """BatchNorm whose statistics of a batch are those of the rows of all ranks, of which each has equally many."""

    def forward(self, rows: Tensor) -> Tensor:
        if not self.training:
            return super().forward(rows)
        others = [dim for dim in range(rows.ndim) if dim != 1]  # all but the channels
        var, mean = torch.var_mean(rows.float(), others, correction=0)
        means, variances = gather_rows(torch.stack([mean, var])[None]).unbind(1)  # (ranks, channels)
        mean = means.mean(0)
        var = (variances + (means - mean) ** 2).mean(0)
        if self.track_running_stats:
            count = world_size() * rows.numel() // rows.shape[1]
            self.remember(mean.detach(), var.detach() * count / max(count - 1, 1))
        scale = (var + self.eps).rsqrt()
        scale = scale if self.weight is None else scale * self.weight
        shift = -mean * scale if self.bias is None else self.bias - mean * scale
        shape = [-1, *[1] * (rows.ndim - 2)]
        return torch.addcmul(shift.view(shape), rows, scale.view(shape)).to(rows.dtype)

    def _check_input_dim(self, rows: Tensor) -> None:
        """Vectors, maps and volumes alike."""

    @torch.no_grad()
    def remember(self, mean: Tensor, var: Tensor) -> None:
        """Move the running statistics, of which the variance is the unbiased one."""
        assert self.running_mean is not None
        assert self.running_var is not None
        assert self.num_batches_tracked is not None
        self.num_batches_tracked.add_(1)
        share = 1 / self.num_batches_tracked if self.momentum is None else torch.full_like(mean[0], self.momentum)
        self.running_mean.lerp_(mean, share)
        self.running_var.lerp_(var, share)


def share_statistics(module: nn.Module) -> None:
    """Where there are several ranks, let every BatchNorm in `module` normalize by the rows of all of them.

    The layers stay the objects they are, with the same parameters, buffers and names.
    """
    if alone():
        return
    for part in module.modules():
        if type(part) in (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d):
            part.__class__ = SharedBatchNorm
        elif isinstance(part, nn.modules.batchnorm._BatchNorm) and not isinstance(part, SharedBatchNorm):
            raise InputError(
                f"The network's {type(part).__name__} layers cannot share their statistics between processes: train "
                "it in one process, or choose one of 'epass networks'."
            )
