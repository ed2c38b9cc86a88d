"""The time of a training step against the number of projectors. All pipelines stand ready and are timed in turns.

    python benchmarks/projectors.py [--projectors 1 3 8] [--net wrn-28-2] [--turns 5] [--steps 100]

The percentages are against the first number of projectors.
"""

from __future__ import annotations

from functools import partial

from turns import compare, images_for, parser_of, recipe_of

from epass.engine.build import build
from epass.engine.timing import state_kept, time_steps, warm_up, whole_step
from epass.machine.device import choose_device


def main(arguments: list[str] | None = None) -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--projectors", type=int, nargs="+", default=[1, 3, 8])
    given = parser.parse_args(arguments)
    device = choose_device(given.device)
    dataset, ways = images_for(device), {}
    for size in given.projectors:
        experiment = build(recipe_of(given, size), device, dataset)
        with state_kept(experiment):
            work = whole_step(experiment)
            warm_up(work, device)
        ways[f"{size} projectors"] = partial(time_steps, work, device, given.steps)
    compare(ways, given, device)


if __name__ == "__main__":
    main()
