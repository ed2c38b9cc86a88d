"""Time a training step."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from ..errors import InputError
from ..extensions import trust_typed
from ..files import check_writable, write_atomically
from ..recipe import Recipe
from .doubts import not_read
from .events import Event, Result, work
from .flags import DEFAULT_METHOD, Flag, Images, Reading
from .request import describe_method, fitting, locate
from .seen import left_out
from .words import count_images, percent

if TYPE_CHECKING:
    import torch

    from ..engine.build import Experiment

STEPS = 2**20  # the published schedule: where there is CUDA, a run of this length is compiled
LABELS_PER_CLASS = 4  # only the memory of a method that remembers labeled images depends on it
NOISE_IMAGES = (5_000, 50_000)  # in main memory, on a GPU
WHAT, BATCH, HOW = "What to time", "The batch", "How"


@work
def bench(
    data: Annotated[
        Images | None,
        Flag("Instead of random pixels: a data set, or a folder, archive, table or .npz file.", metavar="DATA"),
    ] = None,
    *,
    method: Annotated[str, Flag("See 'epass methods'.", WHAT)] = DEFAULT_METHOD,
    projectors: Annotated[int | None, Flag("Projection heads.", WHAT, default="3, where a method has them")] = None,
    net: Annotated[str | None, Flag("See 'epass networks'.", WHAT, default="wrn-28-2, on a CPU small")] = None,
    labeled_batch: Annotated[int, Flag("Labeled images a step.", BATCH)] = 64,
    unlabeled_ratio: Annotated[int, Flag("Unlabeled images for every labeled one.", BATCH)] = 7,
    classes: Annotated[int | None, Flag("Of the random pixels.", BATCH, default="10")] = None,
    image_size: Annotated[int | None, Flag("Side in pixels.", BATCH, default="32")] = None,
    steps: Annotated[int | None, Flag("Timed steps of every pass.", HOW, default="about 10 s in all")] = None,
    seed: Annotated[int, Flag("Decides the pixels, weights and batches.", HOW)] = 0,
    device: Annotated[str, Flag("auto, cpu, cuda or mps.", HOW)] = "auto",
    out: Annotated[str | Path | None, Flag("Write the numbers to this JSON file.", HOW)] = None,
    command: str = "",
    reading: Reading | None = None,
) -> Iterator[Event]:
    """Time a training step here: how long it takes and how far that is from what the machine can do.

    The step is that of 'epass train', making its batch included. It is warmed
    up, then timed twice: the difference of the two is the noise. The split
    comes from timing parts of a step by themselves, the ceilings from a large
    matrix product and a large copy in the same run.
    """
    data, file = None if data is None else str(data), None if out is None else Path(out)
    arguments = {
        "data": data,
        "method": method,
        "projectors": projectors,
        "net": net,
        "labeled_batch": labeled_batch,
        "unlabeled_ratio": unlabeled_ratio,
        "classes": classes,
        "image_size": image_size,
        "steps": steps,
        "seed": seed,
        "device": device,
        "out": None if file is None else str(file),
    }
    if file is not None:
        check_writable(file)
    if data is not None and classes is not None:
        raise InputError(f"'{data}' has its own classes: leave out --classes, which is for random pixels.")

    from ..engine.timing import measure
    from ..machine.device import choose_device

    trust_typed(data, method, net)
    place = choose_device(device)
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
        experiment = prepare(recipe, place, classes, image_size, reading)
        yield from not_read(experiment.dataset.passed_over)
        yield from left_out(experiment.dataset, True)
        found = measure(experiment, steps=steps, command=command) | {"arguments": arguments}
    if file is not None:
        write_atomically(file, (dumps(found, indent=2) + "\n").encode())
    title = f"A training step on {found['environment']['device_name']}"
    yield Result(title, bench_facts(found), found, {} if file is None else {"numbers": file})


def prepare(
    recipe: Recipe, device: torch.device, classes: int | None, image_size: int | None, reading: Reading | None
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
        # a step takes as long without the damaged files
        dataset = open_dataset(recipe.data["name"], image_size=image_size, progress=reading, skip_unreadable=True)
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
