"""The time of a training step against the number of projectors. All pipelines stand ready and are timed in turns.

    python benchmarks/projectors.py [--projectors 1 3 8] [--net wrn-28-2] [--turns 5] [--steps 100]

The percentages are against the first number of projectors.
"""

from __future__ import annotations

from turns import compare, images_for, parser_of, stand_ready

from epass.machine.device import choose_device


def main(arguments: list[str] | None = None) -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--projectors", type=int, nargs="+", default=[1, 3, 8])
    given = parser.parse_args(arguments)
    device = choose_device(given.device)
    dataset = images_for(device)
    ways = {f"{size} projectors": stand_ready(given, size, device, dataset) for size in given.projectors}
    compare(ways, given, device)


if __name__ == "__main__":
    main()
