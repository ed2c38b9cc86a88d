"""BatchNorm over the rows of several processes."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ..errors import InputError
from ..machine.distributed import alone, gather_rows, world_size


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
            remember(self, mean.detach(), var.detach() * count / max(count - 1, 1))
        scale = (var + self.eps).rsqrt()
        scale = scale if self.weight is None else scale * self.weight
        shift = -mean * scale if self.bias is None else self.bias - mean * scale
        shape = [-1, *[1] * (rows.ndim - 2)]
        return torch.addcmul(shift.view(shape), rows, scale.view(shape)).to(rows.dtype)

    def _check_input_dim(self, rows: Tensor) -> None:
        """Vectors, maps and volumes alike."""


@torch.no_grad()
def remember(norm: nn.modules.batchnorm._BatchNorm, mean: Tensor, var: Tensor) -> None:
    """Move the running statistics as BatchNorm does, by the mean and the unbiased variance of a batch."""
    assert norm.running_mean is not None
    assert norm.running_var is not None
    assert norm.num_batches_tracked is not None
    norm.num_batches_tracked.add_(1)
    share = 1 / norm.num_batches_tracked if norm.momentum is None else torch.full_like(mean[0], norm.momentum)
    norm.running_mean.lerp_(mean, share)
    norm.running_var.lerp_(var, share)


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
