"""BatchNorm's running statistics, and who may move them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn


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
