"""What is going to happen, before it happens, and what came out, after it has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..extensions import short
from .request import describe_recipe
from .words import count_images, counted, duration, some, times

if TYPE_CHECKING:
    from ..data import Dataset, ImageSource, Split
    from ..engine.build import Experiment
    from ..runs import Run

LISTED_CLASSES = 12  # more classes than this are summed up


def plan_facts(experiment: Experiment, folder: Path, done: int = 0, meant: str = "", sized: str = "") -> dict[str, str]:
    """The plan of a run, by name.

    Args:
        experiment: Everything it consists of.
        folder: Where it is written.
        done: Steps of it that were made earlier.
        meant: The data set that its recipe is for.
        sized: How its image size was chosen.
    """
    from ..data import Vectors
    from ..machine.device import choose_precision
    from ..machine.distributed import world_size
    from ..networks import count_parameters

    plan, split, dataset = experiment.plan, experiment.split, experiment.dataset
    uses_unlabeled = bool(experiment.feed.views.unlabeled)
    batch = f"{plan.labeled_batch} labeled" + (f" + {plan.unlabeled_batch} unlabeled" if uses_unlabeled else "")
    thing = "vector" if isinstance(split.test, Vectors) and split.test.pictures is None else "image"
    seen = f"each labeled {thing} {times(plan.steps * plan.labeled_batch / len(split.labeled))}"
    if uses_unlabeled:
        seen += f", each unlabeled {thing} {times(plan.steps * plan.unlabeled_batch / len(split.unlabeled))}"
    precision = str(choose_precision(experiment.device, plan.precision)).removeprefix("torch.")
    classes = f"{len(split.classes)} classes"
    if len(split.classes) < len(dataset.classes):
        classes = f"{len(split.classes)} known classes of {len(dataset.classes)}"
    kept_back = {}
    if split.validation:
        where = "" if dataset.validation else ", kept back from the labeled ones"
        kept_back = {"validation": f"{counted(len(split.validation), thing)}{where}"}
    return {
        "data": f"{dataset.name}, {classes}, {look_of(split.labeled)}",
        **({"image size": sized} if sized else {}),
        **reading_facts(dataset),
        **normalization_facts(dataset, meant),
        "labeled": f"{counted(len(split.labeled), thing)}: {per_class(split.label_counts, split.classes)}",
        "unlabeled": counted(len(split.unlabeled), thing)
        + ("" if uses_unlabeled else ", which this method does not look at"),
        **kept_back,
        "test": test_fact(split, thing),
        "method": describe_recipe(experiment.recipe),
        **feature_facts(experiment),
        "network": f"{network_name(experiment.recipe.net)}, {count_parameters(experiment.average):,} parameters",
        "steps": f"{plan.steps:,}, each with {batch} {thing}s" + (f"; {done:,} of them are done" if done else ""),
        "seen": seen,
        "device": f"{experiment.device}, {precision}" + (f", {count} processes" if (count := world_size()) > 1 else ""),
        "run folder": str(folder),
    }


def test_fact(split: Split, thing: str) -> str:
    """How many examples are tested, of which classes there are none, and where they come from."""
    from ..evaluation.alarms import untested

    if not len(split.test):
        return "none, for data.holdout is 0"
    text, missing = counted(len(split.test), thing), untested(split.test.labels, split.classes)
    if missing:
        text += f", none of {some(missing)}"
    return text + (f", held out from the labeled {thing}s" if split.held_out else "")


def look_of(images: ImageSource) -> str:
    """What an example consists of, in words."""
    from ..data import Vectors

    if isinstance(images, Vectors):
        numbers = f"vectors of {images.shape[0]:,} numbers"
        return numbers if images.pictures is None else f"{numbers}, the features of {look_of(images.pictures)}"
    channels, height, width = images.shape
    return f"{'gray' if channels == 1 else 'color'} images of {height} x {width} pixels"


def network_name(net: Mapping[str, Any]) -> str:
    """What is trained, in words."""
    name = short(str(net["name"]))
    return f"{short(net['behind'])} and {name} behind it" if "behind" in net else name


def feature_facts(experiment: Experiment) -> dict[str, str]:
    """Which network made the features that are learned from, and how to do without it."""
    features = experiment.recipe.features
    if features is None:
        return {}
    views = features.get("views", 0)
    seen = f"{views} weak and {views} strong views of each photo" if views else "noise on each makes its views"
    how = "--features none trains a network from the photos themselves, --fine-tune this one afterwards"
    return {"features": f"{short(str(features.get('net')))}, frozen; {seen}; {how}"}


def reading_facts(dataset: Dataset) -> dict[str, str]:
    """What was made of folders and files, where that is more than one way to see it."""
    facts = {}
    if dataset.parts:
        facts["folders"] = ", ".join(f"{name}: {part}" for name, part in dataset.parts.items())
    if dataset.unused:
        facts["not used"] = some(dataset.unused)
    if dataset.skipped:
        names = some([name for name, _ in dataset.skipped])
        facts["left out"] = f"{len(dataset.skipped):,} files that cannot be read: {names}"
    return facts


def normalization_facts(dataset: Dataset, meant: str) -> dict[str, str]:
    """That mean and deviation are measured, where there are published ones of what the recipe is `meant` for."""
    from ..reproduce import is_published, other_normalization

    numbers = dataset.mean, dataset.std
    found = "" if is_published(dataset.name, *numbers) else other_normalization(meant, *numbers)
    return {"normalization": f"measured: {found}"} if found else {}


def result_facts(run: Run, page: Path | None) -> dict[str, str]:
    """The outcome of a run, by name; without a test there is no `page`."""
    from ..evaluation import SCORES

    assert run.results is not None
    results, written = run.results, {} if page is None else {"page": str(page)}
    ending = {"time": duration(results["seconds"]), **written, "model": str(run.path / "model.safetensors")}
    if page is None:
        return ending
    last, best, chosen = results["last"], results["best_on_test"], results.get("validation_selected")
    error, selected = SCORES["error"].text, {}
    if run.pretraining:
        means = f"{error(last['error'])} test error, which says little of what a method makes of this start"
        return {"nearest class means": means, **ending}
    if chosen is not None:
        selected["test error, validation selected"] = (
            f"{error(chosen['error'])} at step {chosen['step']:,}, of the lowest error on the "
            f"{count_images(chosen['images'])} kept for validation"
        )
    return {
        "test error, last step": f"{error(last['error'])}, accuracy {error(1 - last['error'])}",
        **selected,
        "test error, best on test": f"{error(best['error'])} at step {best['step']:,}, as papers report it "
        "(chosen by looking at the test labels)",
        **{
            score.name: score.text(last[score.key])
            for score in SCORES.values()
            if score.place != "list" and score.key in last
        },
        **ending,
    }


def per_class(counts: Sequence[int], classes: Sequence[str]) -> str:
    """How labeled images are spread over the classes."""
    if len(set(counts)) == 1:
        return f"{counts[0]:,} per class"
    if len(counts) <= LISTED_CLASSES:
        return ", ".join(f"{name} {count:,}" for name, count in zip(classes, counts, strict=True))
    return f"{min(counts):,} to {max(counts):,} per class"
