"""The time of a training step with our kernels and without them. Both stand ready and are timed in turns.

    python benchmarks/with_kernels.py [--net wrn-28-8] [--method simmatch] [--turns 5] [--steps 100]

Without them the same step is compiled and recorded, and the library and the compiler do everything.
"""

from __future__ import annotations

from unittest.mock import patch

import torch
from turns import compare, images_for, parser_of, stand_ready

from epass.machine.device import choose_device
from epass.networks import passes

PROJECTORS = 3


def main(arguments: list[str] | None = None) -> None:
    given = parser_of(__doc__).parse_args(arguments)
    device = choose_device(given.device)
    dataset, ways = images_for(device), {}
    for name, fit in (("without", lambda maps: False), ("with", passes.can_be_compiled)):
        torch.compiler.reset()  # what was compiled for the other one would do for this one, too
        with patch.object(passes, "can_be_compiled", fit):
            ways[name] = stand_ready(given, PROJECTORS, device, dataset)
    compare(ways, given, device)


if __name__ == "__main__":
    main()
