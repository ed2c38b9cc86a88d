"""The time of a training step with our kernels and without them. Both stand ready and are timed in turns.

    python benchmarks/with_kernels.py [--net wrn-28-8] [--method simmatch] [--turns 5] [--steps 100]

Without them the same step is compiled and recorded, and the library and the compiler do everything.
"""

from __future__ import annotations

from functools import partial
from unittest.mock import patch

import torch
from turns import compare, images_for, parser_of, recipe_of

from epass.engine.build import build
from epass.engine.timing import state_kept, time_steps, warm_up, whole_step
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
            experiment = build(recipe_of(given, PROJECTORS), device, dataset)
            with state_kept(experiment):
                work = whole_step(experiment)
                warm_up(work, device)
        ways[name] = partial(time_steps, work, device, given.steps)
    compare(ways, given, device)


if __name__ == "__main__":
    main()
