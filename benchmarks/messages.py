"""What the messages of several processes cost a training step, on one device: a process that sends them to itself.

    python benchmarks/messages.py [--method simmatch] [--net wrn-28-2] [--turns 5] [--steps 100]

The same step is built twice, once as in a single process and once as in one of several, whose every message is sent
and received. Both stand ready and are timed in turns. What this leaves out is the way between devices.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

from turns import compare, images_for, parser_of, stand_ready

from epass.machine.device import choose_device
from epass.testing.world_of_one import talking, world_of_one

PROJECTORS = 3


def main(arguments: list[str] | None = None) -> None:
    given = parser_of(__doc__).parse_args(arguments)
    device = choose_device(given.device)
    dataset = images_for(device)

    def prepare(company: Callable[[], AbstractContextManager[None]]) -> Callable[[], list[float]]:
        with company():
            timed = stand_ready(given, PROJECTORS, device, dataset)

        def time() -> list[float]:
            with company():  # what is not recorded asks again at every step whether it is alone
                return timed()

        return time

    with world_of_one(device.type):
        compare({"alone": prepare(nullcontext), "talking": prepare(talking)}, given, device)


if __name__ == "__main__":
    main()
