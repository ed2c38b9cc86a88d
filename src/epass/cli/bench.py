"""`epass bench`."""

from __future__ import annotations

import shlex
import sys
from dataclasses import replace
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..app.words import count_images, percent
from ..errors import InputError
from ..extensions import trust_typed
from ..files import write_atomically
from ..recipe import Recipe
from .progress import reading
from .screen import screen, show_facts, show_json
from .settings import DEFAULT_METHOD, describe_method, fitting, locate

if TYPE_CHECKING:
    import torch
    from rich.console import Console

    from ..engine.build import Experiment

STEPS = 2**20  # the published schedule: where there is CUDA, a run of this length is compiled
LABELS_PER_CLASS = 4  # only the memory of a method that remembers labeled images depends on it
NOISE_IMAGES = (5_000, 50_000)  # in main memory, on a GPU
WHAT, BATCH, HOW = "What to time", "The batch", "How"


def bench(
    data: Annotated[
        str | None,
        typer.Argument(metavar="DATA", help="A built-in data set, a folder or an .npz file instead of random pixels."),
    ] = None,
    method: Annotated[str, typer.Option(help="See 'epass methods'.", rich_help_panel=WHAT)] = DEFAULT_METHOD,
    projectors: Annotated[
        int | None,
        typer.Option(help="Projection heads. [dim]\\[default: 3, where a method has them][/]", rich_help_panel=WHAT),
    ] = None,
    net: Annotated[
        str | None,
        typer.Option(help="See 'epass networks'. [dim]\\[default: wrn-28-2, on a CPU small][/]", rich_help_panel=WHAT),
    ] = None,
    labeled_batch: Annotated[int, typer.Option(help="Labeled images a step.", rich_help_panel=BATCH)] = 64,
    unlabeled_ratio: Annotated[
        int, typer.Option(help="Unlabeled images for every labeled one.", rich_help_panel=BATCH)
    ] = 7,
    classes: Annotated[
        int | None, typer.Option(help="Of the random pixels. [dim]\\[default: 10][/]", rich_help_panel=BATCH)
    ] = None,
    image_size: Annotated[
        int | None, typer.Option(help="Side in pixels. [dim]\\[default: 32][/]", rich_help_panel=BATCH)
    ] = None,
    steps: Annotated[
        int | None,
        typer.Option(help="Timed steps of every pass. [dim]\\[default: about 10 s in all][/]", rich_help_panel=HOW),
    ] = None,
    seed: Annotated[int, typer.Option(help="Decides the pixels, weights and batches.", rich_help_panel=HOW)] = 0,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or mps.", rich_help_panel=HOW)] = "auto",
    out: Annotated[Path | None, typer.Option(help="Write the numbers to this JSON file.", rich_help_panel=HOW)] = None,
    json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object and nothing else.", rich_help_panel=HOW)
    ] = False,
) -> None:
    """Time a training step here: how long it takes and how far that is from what the machine can do.

    The step is that of 'epass train', making its batch included. It is warmed
    up, then timed twice: the difference of the two is the noise. The split
    comes from timing parts of a step by themselves, the ceilings from a large
    matrix product and a large copy in the same run.

    [cyan]epass bench[/]                            the published batch, random pixels

    [cyan]epass bench --method comatch[/]           another method

    [cyan]epass bench photos/ --out speed.json[/]   your images, for the record
    """
    typed = {name: value for name, value in locals().items() if name != "json"}
    typed["out"] = None if out is None else str(out)
    if out is not None and (out.is_dir() or not out.absolute().parent.is_dir()):
        raise InputError(f"'{out}' cannot be written: name a file in a folder that exists.")
    if data is not None and classes is not None:
        raise InputError(f"'{data}' has its own classes: leave out --classes, which is for random pixels.")

    from ..engine.timing import measure
    from ..machine.device import choose_device

    trust_typed(data, method, net)
    place, console = choose_device(device), screen()
    recipe = Recipe(
        source="epass bench",
        data={"name": locate(data) or "noise"},
        net={"name": net or ("small" if place.type == "cpu" else "wrn-28-2")},
        method={"name": method},
        projector=None if projectors is None else {"size": projectors},
        plan={"steps": STEPS, "labeled_batch": labeled_batch, "unlabeled_ratio": unlabeled_ratio},
        seed=seed,
    )
    with fitting(labeled_batch, "--labeled-batch", "--labeled-batch "):
        experiment = prepare(recipe, place, classes, image_size, console)
        found = measure(experiment, steps=steps, command=shlex.join(["epass", *sys.argv[1:]])) | {"arguments": typed}
    if out is not None:
        write_atomically(out, (dumps(found, indent=2) + "\n").encode())
    if json:
        show_json(found)
    else:
        show_facts(console, f"A training step on {found['environment']['device_name']}", bench_facts(found))


def prepare(
    recipe: Recipe, device: torch.device, classes: int | None, image_size: int | None, console: Console
) -> Experiment:
    """The objects to time, once the recipe is known to work: few labels, no test set."""
    import torch

    from ..data import open_dataset
    from ..engine.build import build, check_recipe
    from ..engine.models import method_class, takes_projector
    from ..engine.timing import noise

    check_recipe(recipe)
    if recipe.projector is None and takes_projector(method_class(recipe.method["name"])):
        recipe = replace(recipe, projector={"size": 3})
    if recipe.data["name"] == "noise":
        images, sizes = NOISE_IMAGES[device.type == "cuda"], {} if image_size is None else {"image_size": image_size}
        dataset = noise(images=images, classes=10 if classes is None else classes, seed=recipe.seed, **sizes)
    else:
        with reading(console) as progress:
            dataset = open_dataset(recipe.data["name"], image_size=image_size, progress=progress)
    known = dataset.train.labels[dataset.train.labels >= 0]
    each = min(LABELS_PER_CLASS, int(torch.bincount(known, minlength=len(dataset.classes)).min()))
    # nobody tests, so nothing needs to be held out
    dataset = replace(dataset, test=dataset.train.select(torch.empty(0, dtype=torch.int64)))
    recipe = replace(recipe, data={**recipe.data, "labels": max(1, each) * len(dataset.classes)})
    return build(recipe, device, dataset)


def bench_facts(found: dict[str, Any]) -> dict[str, str]:
    """The numbers in words."""
    work, step, environment = found["work"], found["step_ms"], found["environment"]
    first, again = found["pass_ms"]
    how = ", ".join(["captured"] * work["captured"] + ["compiled"] * work["compiled"]) or "eager"
    unlabeled = f" + {work['unlabeled_batch']} unlabeled" if work["unlabeled_batch"] else ""
    split = {name: ms for name, ms in found["split_ms"].items() if ms}
    parts = [f"{name} {ms:.4g} ms ({percent(ms / step['median'], 0)})" for name, ms in split.items()]
    if "batch" not in split:
        parts.append(f"a batch takes {found['batch_ms']:.4g} ms beside the step before")
    memory, load = found["peak_memory_bytes"], environment["load"]
    kind = "of tensors on the device" if work["captured"] else "of the whole process"
    reached, ceilings, shares = found["reached"], found["ceilings"], found["shares"]

    def against(what: str, amount: float, key: str, unit: float, words: str) -> str:
        return (
            f"{amount / unit:.4g} {what} a step, {reached[key] / unit:.4g} {what}/s: {percent(shares[key], 0)} of the "
            f"{ceilings[key] / unit:.4g} {what}/s of {words}"
        )

    return {
        "method": f"{describe_method(work['method'], work['projectors'])}, {how}",
        "network": f"{work['net']}, {work['parameters']:,} parameters, {work['precision']}",
        "images": f"{work['data']}, {work['classes']} classes, {work['channels']} x {work['image_size']} x "
        f"{work['image_size']}",
        "batch": f"{work['labeled_batch']} labeled{unlabeled}, {count_images(found['images_per_step'])} with all views",
        "time": f"{step['median']:.4g} ms a step (a tenth below {step['p10']:.4g}, a tenth above {step['p90']:.4g})",
        "noise": f"{first:.4g} and {again:.4g} ms in two passes of {found['steps_per_pass']} steps, "
        f"{percent(found['pass_spread'], 1)} apart",
        "speed": f"{found['images_per_second']:,.0f} images/s, every view of an image counted",
        "split": ", ".join(parts),
        "arithmetic": against("GFLOP", found["flops"], "flops_per_second", 1e9, "a large matrix product"),
        "traffic": against("GB", found["bytes"], "bytes_per_second", 1e9, "a large copy"),
        "memory": "unknown" if memory is None else f"{memory / 1e9:.4g} GB {kind}",
        "machine": f"{environment['cpu_count']} cores, {environment['threads']} threads, torch {environment['torch']}"
        + ("" if load is None else f", load {load:.2f} before"),
    }
