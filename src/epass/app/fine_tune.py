"""After the run on frozen features, the whole network: trained on from pixels, in a run of its own."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import replace
from pathlib import Path

from ..errors import InputError
from ..machine.launch import is_first_process
from ..recipe import Recipe, read_recipe
from ..runs import RunFolder
from .events import Event, Notice, Result
from .request import Request, compose, default_folder, starting_recipe, trusting
from .train import is_continued, recipe_to_resume, train_one
from .words import percent

SOURCE = (
    "Chosen for fine-tuning on one GPU: the settings of the run on frozen features, from whose network it starts, with "
    "small batches of pixels, a thirtieth of its learning rate, and a tenth of that for the network that makes "
    "the features"
)
PLAN = {
    "steps": 1000,
    "labeled_batch": 8,  # which takes 5 GB of memory with 224 pixels, and half of it on a GPU
    "unlabeled_ratio": 3,
    "lr": 0.001,  # 0.01 undid what was learned: 13 % error became 17 % in one run of photos, and chance in another
    "layer_decay": 0.1,  # the network that made the features is the first of two layers
    "average_momentum": 0.99,
    "report_every": 20,
    "evaluate_every": 200,
}
KEPT = ("steps", "budget", "device", "resume", "force", "log", "allow_leak", "trust", "command", "stop", "reading")


def fine_tune(request: Request) -> Iterator[Event]:
    """Train on frozen features, then go on with the whole network; each is a run of its own, and both are kept."""
    from ..machine.device import choose_device
    from ..machine.distributed import on_first_rank

    first = replace(request, steps=None, budget=None)  # these are about what takes long
    typed = trusting(first)
    base = recipe_to_resume(typed.out) if is_continued(typed) else starting_recipe(typed)
    recipe = compose(typed, base)
    check_features(recipe)
    home = Path(request.out or default_folder(recipe))
    second = home.parent / f"{home.absolute().name}-fine-tuned"
    if second.exists() and not (request.resume or request.force):
        RunFolder(second).create(force=False)  # says why it cannot be used, before anything is trained
    frozen = yield from without_result(train_one(first))
    yield Notice("Now the whole network, from pixels.", apart=True)
    if choose_device(request.device).type == "cpu":
        yield Notice("That is made for a GPU: on a CPU, --budget 30m does as many steps as fit into that time.")
    on_first_rank(lambda: None)  # the others wait for its files
    rest = replace(
        Request(settings=[text for text in request.settings if text.startswith("plan.")], out=second),
        **{name: getattr(request, name) for name in KEPT},
    )
    tuned = yield from without_result(train_one(rest, fine_tuned(read_recipe(str(home / "recipe.toml")), home)))
    yield beside(tuned, frozen) if is_first_process() else tuned


def check_features(recipe: Recipe) -> None:
    """Refuse what has no frozen network that could be trained on."""
    if recipe.features is None:
        raise InputError(
            "--fine-tune goes on from a run on frozen features, and this one learns from its data directly: leave it "
            "out, or name the network that makes features (--features efficientnet-lite0)."
        )
    if recipe.wrapper is not None:
        raise InputError("--fine-tune does not know how to go on with a wrapper: leave out --wrap or --fine-tune.")


def fine_tuned(recipe: Recipe, folder: Path) -> Recipe:
    """The recipe that trains the whole network of a finished run on features, in pixels."""
    from ..engine.build import settings_of_pixels

    assert recipe.features is not None
    longer = recipe.with_settings({"plan.steps": PLAN["steps"]})  # durations of the method follow
    return replace(
        longer,
        source=SOURCE,
        features=None,
        augment=settings_of_pixels(recipe),  # noise is for features
        net={**recipe.net, "behind": recipe.features.get("net", "efficientnet-lite0")},
        start={"weights": str(folder.absolute())},
        plan={**longer.plan, **PLAN},
    )


def without_result(events: Iterator[Event]) -> Generator[Event, None, Result]:
    """All events but the last, which is returned."""
    for event in events:
        if isinstance(event, Result):
            return event
        yield event
    raise AssertionError("a training ends with a result")


def beside(tuned: Result, frozen: Result) -> Result:
    """What came out of fine-tuning, under what it started from."""
    error, run = frozen.values["results"]["last"]["error"], frozen.values["run"]
    facts = {"test error, frozen features": f"{percent(error)}, of the run in {run}", **tuned.facts}
    return replace(tuned, facts=facts, values={**tuned.values, "frozen": frozen.values})
