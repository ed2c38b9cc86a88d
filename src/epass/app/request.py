"""What a person asked for, and from that to a recipe."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import lru_cache
from itertools import chain, count
from os import fspath
from pathlib import Path
from typing import Annotated, Any, TypeVar

from ..errors import InputError, out_of_memory
from ..extensions import check_trusted, is_code, located, short, trust, trust_typed
from ..files import from_home
from ..recipe import TABLES, Recipe, parse_setting, read_recipe
from ..recipes import builtin_recipes
from ..runs import load_run
from .continued import continues, recipe_to_continue
from .flags import (
    DEFAULT_METHOD,
    DEFAULT_PRETRAINING,
    WHAT,
    AllowLeak,
    Budget,
    Continue,
    Data,
    Device,
    Features,
    FineTune,
    Flag,
    Force,
    FromRecipe,
    Guard,
    Images,
    ImageSize,
    Labels,
    Log,
    Method,
    Net,
    Out,
    Projectors,
    Reading,
    Resume,
    Seed,
    Settings,
    SkipUnreadable,
    Start,
    Steps,
    Stop,
    Stream,
    Trust,
    Weights,
    Wrap,
    go_on,
    pretraining_names,
    settings_called,
)

NO_FEATURES = "none"
PHOTO_SIDE = 64  # pixels: what is smaller looks like nothing a network that knows photos has seen
INSTEAD_OF_LABELS = ("fold", "label_share", "head_labels", "split_file")  # keys of [data] that outrank `labels`


@dataclass(frozen=True)
class Shared:
    """What can be said of every training, of one run or of many; None leaves the choice to the recipe."""

    data: Data = None
    _: KW_ONLY
    labels: Labels = None
    wrap: Wrap = None
    start: Start = None
    features: Features = None
    net: Net = None
    weights: Weights = None
    image_size: ImageSize = None
    stream: Stream = False
    skip_unreadable: SkipUnreadable = False
    allow_leak: AllowLeak = False
    steps: Steps = None
    budget: Budget = None
    device: Device = "auto"
    recipe: FromRecipe = None
    settings: Settings = ()
    trust: Trust = None
    command: str = ""  # that was typed, for the record
    stop: Stop = go_on
    reading: Reading | None = None


S = TypeVar("S", bound=Shared)


@dataclass(frozen=True, kw_only=True)
class OneMethod:
    """What is trained, where it is one run."""

    method: Method = None
    projectors: Projectors = None
    seed: Seed = None


@dataclass(frozen=True, kw_only=True)
class Request(Shared, OneMethod):  # the fields of the last base come first
    """A training run."""

    earlier: Continue = None
    guard: Guard = None
    fine_tune: FineTune = False
    out: Out = None
    resume: Resume = False
    force: Force = False
    log: Log = ()
    pretrain: bool = field(default=False, init=False)


@dataclass(frozen=True, kw_only=True)
class PretrainRequest(Request):
    """A training run without labels, which has no wrapper and nothing to start from."""

    method: Annotated[
        str | None, Flag("See 'epass methods'.", WHAT, default=DEFAULT_PRETRAINING, names=pretraining_names)
    ] = None
    labels: Annotated[int | None, Flag("How many labels judge the features; none teach.", WHAT)] = None
    wrap: None = field(default=None, init=False)
    start: None = field(default=None, init=False)
    earlier: None = field(default=None, init=False)
    guard: None = field(default=None, init=False)
    fine_tune: bool = field(default=False, init=False)
    features: None = field(default=None, init=False)  # there is nothing to learn before those of a frozen network
    allow_leak: bool = field(default=True, init=False)  # a test image that teaches without its label teaches nothing
    pretrain: bool = field(default=True, init=False)


def trusting(asked: S) -> S:
    """The same with whole paths. Who types the name of code wants it to be run; what a file names must be typed."""
    trust(*(asked.trust or ()))
    typed = [value for _, value in map(parse_setting, asked.settings)]
    said = vars(asked)
    named = {name: said[name] for name in ("method", "wrap", "net", "features") if said.get(name) is not None}
    trust_typed(asked.data, *named.values(), *typed)
    whole: dict[str, Any] = {name: located(value) for name, value in named.items()}
    return replace(asked, **whole)


def starting_recipe(request: Request) -> Recipe:
    """The recipe that was asked for, or the one that comes with the package for this data and method."""
    from .pixels import fitted

    if request.earlier is not None:
        return recipe_to_continue(request.earlier, request)
    name = recipe_name(request)
    recipe = read_recipe(name)
    if request.recipe is not None:
        return recipe
    if name.startswith("photos-"):
        return for_features(recipe, request.features)
    return fitted(request, recipe, photo_side(request)) if name.startswith("folder-") else recipe


def recipe_name(request: Request) -> str:
    """What that recipe is called, or its file."""
    from ..data import DATASETS, holds_vectors

    if request.recipe is not None:
        return request.recipe
    if request.data is None:
        raise no_data()
    method, data = method_with_recipe(request), fspath(request.data)
    own = f"{data}-{method}"
    if data in DATASETS and own in builtin_recipes() and request.features in (None, NO_FEATURES):
        return own
    if holds_vectors(data):
        if request.features not in (None, NO_FEATURES):
            raise InputError(f"'{data}' holds vectors already, and --features makes them of images: leave it out.")
        own = f"vectors-{method}"
        if own not in builtin_recipes():
            raise InputError(f"'{method}' needs images, and '{data}' holds vectors: choose another method.")
        return own
    return f"{'photos' if learns_from_features(request, lambda: side_of(data)) else 'folder'}-{method}"


def method_with_recipe(request: Request) -> str:
    """The method whose recipe is the one to start from: the usual one's for a method of your own."""
    default = DEFAULT_PRETRAINING if request.pretrain else DEFAULT_METHOD
    method = checked_method(request) or default
    return default if is_code(method) else method


def size_words(request: Request) -> str:
    """How the image size of a run was chosen, if nobody said it."""
    from .pixels import chosen_size

    if request.recipe is not None or request.earlier is not None or not recipe_name(request).startswith("folder-"):
        return ""
    chosen = chosen_size(request, photo_side(request))
    return "" if chosen is None else f"{chosen[0]}, {chosen[1]}: --image-size changes it"


def for_features(recipe: Recipe, net: str | None) -> Recipe:
    """A recipe for photos whose size is that of the images which the network of the features was made for."""
    from ..networks import input_size

    own = None if net is None else input_size(net)
    return recipe if own is None else recipe.with_settings({"data.image_size": own})


def photo_side(request: Request) -> int | None:
    """The shorter side of most photos of somebody's own; None of everything else, and where they are tiny."""
    side = side_of(fspath(request.data or ""))
    return None if side is None or side < PHOTO_SIDE else side


def learns_from_features(request: Request, side: Callable[[], int | None]) -> bool:
    """Whether images are learned from the features of a frozen network, which is better for photos but for tiny ones.

    Who names the network to train, or weights to start from, wants to train that. `side` is asked for that of most
    images, in pixels, only where it matters.
    """
    if request.features is not None:
        return request.features != NO_FEATURES
    if request.pretrain or (request.net, request.weights, request.start) != (None, None, None):
        return False
    return (side() or 0) >= PHOTO_SIDE


def side_of(data: str) -> int | None:
    """The shorter side of most photos at a path, if there are some."""
    path = from_home(data)
    return _side_of_photos(data, path.stat().st_mtime_ns) if path.exists() else None


@lru_cache(maxsize=4)
def _side_of_photos(data: str, changed: int) -> int | None:
    """Kept, since every run of a comparison asks, until the folder has `changed`."""
    from ..data import side_of_photos

    return side_of_photos(data)


def compose(request: Request, recipe: Recipe) -> Recipe:
    """`recipe` with the flags on top of it, and `--set` on top of these."""
    from ..engine.models import method_class, takes_projector, with_located_code
    from .pixels import refuse_idle

    if checked_method(request) not in (None, recipe.method.get("name")):
        # the settings of one method mean nothing to another
        projector = recipe.projector if takes_projector(method_class(request.method)) else None
        recipe = replace(recipe, method={"name": request.method}, projector=projector)
    if request.wrap not in (None, (recipe.wrapper or {}).get("name")):
        recipe = replace(recipe, wrapper={"name": request.wrap})
    if request.start is not None:
        if request.weights is not None:
            raise InputError("--from and --weights both say what the network starts from: give one of them.")
        recipe = as_pretrained(recipe, request.start)
    if request.net not in (None, recipe.net.get("name")):
        recipe = replace(recipe, net={"name": request.net})
    if request.features == NO_FEATURES and recipe.features is not None:
        raise InputError("The recipe learns from features, and --features none has none: name another recipe.")
    flags = {
        "data.name": locate(request.data),
        "features.net": None if request.features == NO_FEATURES else request.features,
        "data.labels": request.labels,
        "data.image_size": request.image_size,
        "data.streaming": request.stream or None,
        "data.skip_unreadable": request.skip_unreadable or None,
        "net.weights": locate(request.weights),
        "projector.size": request.projectors,
        "plan.steps": request.steps,
        "seed": request.seed,
    }
    recipe = recipe.with_settings({name: value for name, value in flags.items() if value is not None})
    settings = dict(map(parse_setting, request.settings))
    for name in settings:
        if "." not in name and name not in (*TABLES, "seed") and (whole := settings_called(name)):
            raise InputError(f"Unknown setting '{name}': did you mean '{whole[0]}'?")
    recipe = with_located_code(recipe.with_settings(settings))
    if isinstance(split_file := recipe.data.get("split_file"), str):
        recipe = recipe.with_settings({"data.split_file": locate(split_file)})
    if type(recipe.seed) is not int:
        raise InputError(f"seed is a whole number, not '{recipe.seed}'.")
    if "name" not in recipe.data:
        raise no_data()
    deciding = next((key for key in INSTEAD_OF_LABELS if recipe.data.get(key) is not None), None)
    if request.labels is not None and deciding is not None:
        raise InputError(f"data.{deciding} decides which images are labeled here, so --labels has no say: change that.")
    refuse_idle(request, recipe)
    return recipe


def checked_method(request: Request) -> str | None:
    """The method that was typed, which must be of the kind that the command trains."""
    from ..engine.models import method_class

    if request.method is not None and method_class(request.method).pretraining != request.pretrain:
        raise InputError(f"'{request.method}' is for 'epass {'train' if request.pretrain else 'pretrain'}'.")
    return request.method


def as_pretrained(recipe: Recipe, folder: str | Path) -> Recipe:
    """Start from the weights of a pre-training, with its network and, where both methods have one, its projector."""
    from ..engine.models import left_heads, method_class, takes_projector

    earlier = load_run(folder)
    if not earlier.pretraining:
        raise InputError(
            f"'{folder}' holds no pre-trained weights: give the folder of a finished 'epass pretrain', or go on from a "
            "run with --continue."
        )
    check_trusted(earlier.recipe["net"].values())  # first: code that may not run is a graver matter than a damaged file
    projector = recipe.projector
    if takes_projector(method_class(recipe.method.get("name"))) and left_heads(earlier.path):
        projector = earlier.recipe.get("projector")
    where = str(from_home(folder).absolute())
    return replace(recipe, start={"weights": where}, net=earlier.recipe["net"], projector=projector)


def no_data() -> InputError:
    """The error for a command line that names no images."""
    from ..data import DATASETS

    names = ", ".join(sorted(DATASETS))
    return InputError(
        f"Say which images: a built-in data set ({names}), or a folder, archive, table or .npz file of yours."
    )


def locate(data: Images | None) -> str | None:
    """A path becomes absolute, so that the run can be resumed and evaluated from any folder."""
    from ..data import DATASETS

    data = None if data is None else fspath(data)
    if data is None or data in DATASETS or not from_home(data).exists():
        return data  # what does not exist is refused later, in the words it was typed
    return str(from_home(data).absolute())


def default_folder(recipe: Recipe) -> Path:
    """Where a run goes when nobody says."""
    if (earlier := continues(recipe)) is not None:
        names = chain([f"{earlier.name}-continued"], (f"{earlier.name}-continued-{number}" for number in count(2)))
        home = earlier.parent.relative_to(Path.cwd()) if earlier.is_relative_to(Path.cwd()) else earlier.parent
        return next(path for name in names if not (path := home / name).exists())
    data = re.sub(r"[^\w.-]+", "-", Path(short(str(recipe.data.get("name", "")))).stem) or "data"
    epass = ["epass"] if (recipe.projector or {}).get("size", 1) != 1 else []
    wrapper = [short(str(recipe.wrapper.get("name")))] if recipe.wrapper else []
    start = ["pretrained"] if recipe.start else []
    words = [data, short(str(recipe.method.get("name"))), *epass, *wrapper, *start, str(recipe.seed)]
    return Path("runs") / "-".join(words)


def describe_recipe(recipe: Recipe) -> str:
    """The method of a recipe, its projectors and its wrapper, in words."""
    words = describe_method(str(recipe.method["name"]), (recipe.projector or {}).get("size"))
    words += f" + {short(recipe.wrapper['name'])}" if recipe.wrapper else ""
    if recipe.start is None:
        return words
    kind = "fine-tuned" if "behind" in recipe.net else "pre-trained"
    return f"{words}, {kind if continues(recipe) is None else 'continued'}"


def describe_method(name: str, projectors: int | None) -> str:
    """A method and its projectors, in words."""
    name = short(name)
    return name if projectors in (None, 1) else f"{name} + EPASS ({projectors} projectors)"


@contextmanager
def fitting(batch: int, setting: str, flag: str) -> Iterator[None]:
    """Say which setting to lower, and to what, when a labeled batch of this size does not fit into the memory."""
    try:
        yield
    except (RuntimeError, MemoryError) as problem:
        if not out_of_memory(problem):
            raise
        fewer = max(1, batch // 2)
        lower = f"lower {setting} from {batch} to {fewer} ({flag}{fewer})"
        if type(problem).__name__ == "OutOfMemoryError":
            raise InputError(f"The batch does not fit into the memory of the device: {lower}.") from None
        raise InputError(
            f"The memory of this machine is not enough: {lower}, choose a smaller --image-size, or leave the images on "
            "disk with --stream."
        ) from None
