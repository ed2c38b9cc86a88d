"""Predict ImageNet with ResNet-50 on 8, 64 and 512 GPUs: time of a step, memory, and what breaks first.

    python benchmarks/scaling.py            # print the tables
    python benchmarks/scaling.py --write    # and put them into docs/scaling.md
    python benchmarks/scaling.py --measure  # time collectives and decoding on this machine, and test the model by them

The model is in scaling_model.py, its prices in scaling_inputs.json: change a value there, with its source, and write.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from scaling_model import (
    INPUTS,
    Case,
    all_reduce,
    case,
    checkpoint,
    cluster,
    costs,
    exposed,
    memory,
    network,
    slower,
    times,
)

PAGE = Path(__file__).parents[1] / "docs" / "scaling.md"
GPUS = (1, 8, 64, 512)
TITLES = {"simmatch": "SimMatch + EPASS", "comatch": "CoMatch + EPASS"}
LARGEST_BATCH = 4096  # labeled images of a step that we would dare to train with


def all_cases(values: dict[str, Any] | None = None) -> list[tuple[bool, Case]]:
    return [
        (shared, case(method, gpus, shared=shared, values=values))
        for shared in (True, False)
        for method in TITLES
        for gpus in GPUS
        if shared or gpus > 1
    ]


def days(one: Case, step: float) -> float:
    """For as many images as the recipe trains on."""
    alone = case(one.method, 1, shared=True)
    steps: int = alone.recipe.plan["steps"]
    return steps * alone.images / one.images * step / 86400


def ms(seconds: float) -> str:
    return f"{1000 * seconds:.3g}" if seconds < 0.1 else f"{1000 * seconds:.0f}"


def markdown(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    lines = [tuple(head)]
    lines += [("---",) * len(lines[0]), *map(tuple, rows)]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def steps_table(*, shared: bool) -> str:
    head = ["method", "GPUs", "images per GPU", "computing", "gradients", "SyncBatchNorm", "gathers", "decoding"]
    head += ["reading", "step", "images/s", "efficiency", "days", "largest"]
    rows = []
    for kind, one in all_cases():
        if kind is not shared:
            continue
        name = TITLES[one.method], str(one.cluster.gpus)
        if not one.possible:
            rows.append((*name, "fewer images than GPUs", *[""] * (len(head) - 3)))
            continue
        found, alone = times(one), times(case(one.method, 1, shared=True))
        speed = one.images / found.step
        ideal = one.cluster.gpus * case(one.method, 1, shared=True).images / alone.step
        shown = map(ms, (*found, found.step))
        rest = f"{speed:,.0f}", f"{speed / ideal:.0%}", f"{days(one, found.step):.2g}", found.limit
        rows.append((*name, str(one.own_images), *shown, *rest))
    return markdown(head, rows)


def plan_table() -> str:
    """What we would run: a batch that still trains, BatchNorm inside a node, files kept on the nodes."""
    head = "method", "GPUs", "batch", "images per GPU", "step", "images/s", "efficiency", "steps", "hours", "largest"
    rows = []
    for method, title in TITLES.items():
        alone = case(method, 1)
        for gpus in GPUS[1:]:
            labeled = min(gpus * alone.labeled, LARGEST_BATCH)
            one = replace(case(method, gpus, labeled=labeled), norm_group="node", cached=True)
            found = times(one)
            speed, ideal = one.images / found.step, gpus * alone.images / times(alone).step
            batch = f"{one.labeled:,} + {one.unlabeled:,}", str(one.own_images)
            steps = alone.recipe.plan["steps"] * alone.images / one.images
            shown = ms(found.step), f"{speed:,.0f}", f"{speed / ideal:.0%}", f"{steps:,.0f}"
            rows.append((title, str(gpus), *batch, *shown, f"{24 * days(one, found.step):.1f}", found.limit))
    return markdown(head, rows)


def changes_table() -> str:
    """The same steps if latency doubles, if BatchNorm stays inside a node, and both."""
    head = "method", "batch", "GPUs", "step", "latency doubled", "BatchNorm inside a node", "both"
    rows = []
    doubled = slower(costs(), 2)
    for shared, one in all_cases():
        if not one.possible or one.cluster.gpus == 1:
            continue
        slow = case(one.method, one.cluster.gpus, shared=shared, values=doubled)
        before = times(one).step
        variants = slow, replace(one, norm_group="node"), replace(slow, norm_group="node")
        shown = (f"{ms(step)} ({step / before - 1:+.0%})" for step in (times(variant).step for variant in variants))
        place = "of the recipe" if shared else "on every GPU"
        rows.append((TITLES[one.method], place, str(one.cluster.gpus), ms(before), *shown))
    return markdown(head, rows)


def exchange_table() -> str:
    """What messages beside the backward pass gain against one after it, computing and gradients alone."""
    head = "network", "gradients", "GPUs", "batch", "computing", "one message, after", "ours, beside", "gained"
    rows, values = [], costs()
    for name, step in values["wide_step_ms"].items():
        net = network(name, classes=10)
        size = 4 * net.parameters
        for gpus, share, batch in ((8, 1, "on every GPU"), (8, 8, "shared"), (64, 1, "on every GPU")):
            computing = step / share / 1000
            gap = values["backward_share"] * computing / len(net.norms)
            after, beside = all_reduce(size, cluster(gpus, values)), exposed(size, gap, cluster(gpus, values))
            shown = map(ms, (computing, after, beside))
            gained = f"{(after - beside) / (computing + after):.1%}"
            rows.append((name, f"{size / 1e6:.1f} MB", str(gpus), batch, *shown, gained))
    return markdown(head, rows)


def memory_table() -> str:
    """Gigabytes per GPU, and of a checkpoint."""
    chosen = [one for shared, one in all_cases() if one.cluster.gpus in (8, 512) and not shared]
    names = dict.fromkeys(name for one in chosen for name in memory(one))
    head = "method", "GPUs", *names, "sum", "of the GPU", "checkpoint", "its writing"
    rows = []
    for one in chosen:
        parts = memory(one)
        total, saved = sum(parts.values()), checkpoint(one)
        shown = (f"{parts[name] / 1e9:.2f}" if name in parts else "" for name in names)
        share, writing = total / one.costs["gpu_memory"], saved / one.costs["write_bandwidth"]
        end = f"{total / 1e9:.1f}", f"{share:.0%}", f"{saved / 1e9:.2f}", f"{writing:.1f} s"
        rows.append((TITLES[one.method], str(one.cluster.gpus), *shown, *end))
    return markdown(head, rows)


def inputs_table() -> str:
    rows = []
    for name, entry in INPUTS.items():
        value = entry["value"]
        shown = f"{value:,}" if isinstance(value, int) else f"{value:g}" if isinstance(value, float) else str(value)
        kind = f"**{entry['kind']}**" if entry["kind"] == "assumed" else entry["kind"]
        rows.append((f"`{name}`", shown, entry["unit"], kind, entry["source"]))
    return markdown(("input", "value", "unit", "kind", "source"), rows)


TABLES: dict[str, Callable[[], str]] = {
    "recipe's batch": lambda: steps_table(shared=True),
    "batch on every GPU": lambda: steps_table(shared=False),
    "plan": plan_table,
    "changes": changes_table,
    "exchange": exchange_table,
    "memory": memory_table,
    "inputs": inputs_table,
}


def written(text: str) -> str:
    """The page with the tables of today."""
    for name, table in TABLES.items():
        before, opening, rest = text.partition(f"<!-- scaling.py: {name} -->\n")
        text = before + opening + table() + rest[rest.index("<!-- end -->") :]
    return text


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="put the tables into docs/scaling.md")
    parser.add_argument("--measure", action="store_true", help="time collectives and decoding here, and test the model")
    asked = parser.parse_args(words)
    if asked.measure:
        from scaling_measure import report

        print(report())
        return
    for name, table in TABLES.items():
        print(f"{name}\n\n{table()}")
    if asked.write:
        PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
