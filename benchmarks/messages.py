"""What the messages of several processes cost a training step, on one device: a process that sends them to itself.

    python benchmarks/messages.py [--method simmatch] [--net wrn-28-2] [--turns 5] [--steps 100]

The same step is built twice, once as in a single process and once as in one of several, whose every message is sent
and received. Both stand ready and are timed in turns. What this leaves out is the way between devices.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

from turns import compare, images_for, parser_of, recipe_of

from epass.engine.build import build
from epass.engine.timing import state_kept, time_steps, warm_up, whole_step
from epass.machine.device import choose_device
from epass.testing.world_of_one import talking, world_of_one

PROJECTORS = 3


def main(arguments: list[str] | None = None) -> None:
    given = parser_of(__doc__).parse_args(arguments)
    device = choose_device(given.device)
    dataset = images_for(device)

    def prepare(company: Callable[[], AbstractContextManager[None]]) -> Callable[[], list[float]]:
        with company():
            experiment = build(recipe_of(given, PROJECTORS), device, dataset)
            with state_kept(experiment):
                work = whole_step(experiment)
                warm_up(work, device)

        def time() -> list[float]:
            with company():  # what is not recorded asks again at every step whether it is alone
                return time_steps(work, device, given.steps)

        return time

    with world_of_one(device.type):
        compare({"alone": prepare(nullcontext), "talking": prepare(talking)}, given, device)


if __name__ == "__main__":
    main()
