"""Labels only beside a run: when, what it costs, and what it says."""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING

from ..errors import InputError
from ..recipe import Recipe
from ..runs import RunFolder, load_run
from .events import Caution, Event, Section
from .features import watched
from .request import Request

if TYPE_CHECKING:
    from ..engine.build import Experiment


def is_guarded(experiment: Experiment, request: Request) -> bool:
    """Whether labels only is trained beside a run: the default for features of photos, where it takes seconds."""
    from ..machine.distributed import alone

    why_not = ""
    if not experiment.feed.views.unlabeled or experiment.method.pretraining:
        why_not = "learns from no unlabeled images itself"
    elif not alone():
        why_not = "is trained by several processes"
    elif not len(experiment.split.test):
        why_not = "has no test images"
    if request.guard and why_not:
        raise InputError(f"--guard compares with labels only, but this run {why_not}: leave it out.")
    wanted = uses_features(experiment.recipe) if request.guard is None else request.guard
    return wanted and not why_not


def uses_features(recipe: Recipe) -> bool:
    """Whether a recipe learns from the features of photos."""
    return recipe.features is not None


def guard_facts(experiment: Experiment, request: Request) -> dict[str, str]:
    """What the guard of a run will do, for its plan."""
    from ..engine.crossfit import FOLDS, shortened
    from ..engine.guard import LEAST_LABELS, basis_of

    if not is_guarded(experiment, request):
        return {}
    steps = shortened(experiment.recipe, experiment.split).plan["steps"]
    basis = basis_of(experiment, asked=bool(request.guard))
    how = {
        "validation": "and the better one on the validation images is kept",
        "cross-validation": f"then both {FOLDS} times with {steps:,} steps, each time without a fifth of the labels, "
        "which say which one is kept",
        "nothing": f"and reported; fewer than {LEAST_LABELS} labels decide nothing unless you say --guard",
    }
    return {"guard": f"labels only is trained beside it, {how[basis]}; --no-guard leaves it out"}


def guarded(experiment: Experiment, home: RunFolder, request: Request) -> Generator[Event, None, None]:
    """Train labels only beside a finished run, keep the better model, and say which it is."""
    from ..engine.guard import basis_of, guard
    from ..report import guard_sentences
    from ..training.window import NotFiniteError

    basis = basis_of(experiment, asked=bool(request.guard))
    try:
        yield from watched(guard(experiment, home, basis), request.stop, "guard step")
    except NotFiniteError as problem:
        yield Caution(f"Labels only could not be compared with: {problem}")
        return
    yield Section(" ".join(guard_sentences(load_run(home.path).results)))
