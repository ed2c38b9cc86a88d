"""What a person can say, each explained once: the names, types and help texts that all faces share.

The arguments of an application function that carry a `Flag` are what a command line offers, or a form: those before the
`*` by position, the others by name. What carries none (`stop`, `reading`) is between the function and the face.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from os import PathLike
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin

from ..errors import InputError, nearest
from ..recipe import read_recipe
from ..recipes import builtin_recipes, recipe_families


@dataclass(frozen=True)
class Flag:
    """What is known of an argument beside its name, type and default."""

    help: str
    panel: str = ""  # the heading under which it is listed
    name: str = ""  # where it is not that of the argument, which may be a word of Python
    metavar: str = ""
    least: int | None = None
    default: str = ""  # in words, where the function decides
    names: Callable[[], Sequence[str]] | None = None  # that a shell completes; quickly, so without torch
    others: bool = False  # whether more than these names can be said

    def called(self, argument: str) -> str:
        """What is typed for an argument that is said by name."""
        return self.name or f"--{argument.replace('_', '-')}"


def flag_of(hint: Any) -> Flag | None:
    """The flag that an annotation carries."""
    carried = get_args(hint)[1:] if get_origin(hint) is Annotated else ()
    return next((extra for extra in carried if isinstance(extra, Flag)), None)


def method_names() -> list[str]:
    """The methods that folders of images have a recipe for: all."""
    return [name.partition("-")[2] for name in recipe_families()["folder"]]


def training_names() -> list[str]:
    """The methods that learn from labels: those that can learn from the features of photos."""
    return [name.partition("-")[2] for name in recipe_families()["photos"]]


def pretraining_names() -> list[str]:
    """The methods that learn from images alone."""
    return sorted({*method_names()} - {*training_names()})


def network_names() -> list[str]:
    """The networks that recipes have; the whole list takes torch."""
    return sorted({str(read_recipe(name).net["name"]) for name in builtin_recipes()})


def device_names() -> list[str]:
    """The kinds of device."""
    return ["auto", "cpu", "cuda", "mps"]


def decoder_names() -> list[str]:
    """Who can decode image files."""
    return ["auto", "cpu", "device"]


WHAT, HOW_LONG, WHERE, RECIPE = "What to train", "How long", "Where", "Every other setting"

DEFAULT_METHOD, DEFAULT_PRETRAINING = "simmatch", "moco"

Images = str | PathLike[str]  # the name of a data set or a path, as it was said: '' is not the folder that we are in
Run = Annotated[str | Path, Flag("The folder of a finished run.", metavar="RUN")]
Model = Annotated[str | Path, Flag("A finished run, an exported folder or an .onnx file.", metavar="MODEL")]
Data = Annotated[
    Images | None, Flag("A built-in data set, or a folder, archive, table or .npz file of yours.", metavar="DATA")
]
Labels = Annotated[int | None, Flag("How many images keep their label, equally many of every class.", WHAT)]
Method = Annotated[str | None, Flag("See 'epass methods'.", WHAT, default=DEFAULT_METHOD, names=training_names)]
Projectors = Annotated[int | None, Flag("Projection heads; EPASS is 3, the plain method 1.", WHAT)]
Wrap = Annotated[
    str | None,
    Flag("A wrapper around the method: abc for rare classes, mix for mixed images, shrink for unsure ones.", WHAT),
]
Start = Annotated[str | Path | None, Flag("Start from 'epass pretrain'.", WHAT, name="--from", metavar="RUN")]
Continue = Annotated[
    str | Path | None,
    Flag(
        "Go on from a finished run, with more steps, labels or images. It is kept.",
        WHAT,
        name="--continue",
        metavar="RUN",
    ),
]
Net = Annotated[
    str | None,
    Flag("See 'epass networks'; timm:NAME and hf:NAME are networks of others.", WHAT, names=network_names, others=True),
]
Weights = Annotated[
    str | Path | None,
    Flag("Start from pre-trained weights: a file, or 'published' if the network has some.", WHAT, metavar="FILE"),
]
Features = Annotated[
    str | None,
    Flag(
        "The frozen network whose features photos are learned from, or none.",
        WHAT,
        metavar="NET",
        default="efficientnet-lite0 for photos of 64 pixels and more",
    ),
]
FineTune = Annotated[bool, Flag("Then train the network of the features, too; for a GPU.", WHAT)]
ImageSize = Annotated[int | None, Flag("Scale images to this side.", WHAT)]
Stream = Annotated[bool, Flag("Decode images while they are needed: for more than fit into memory.", WHAT)]
SkipUnreadable = Annotated[bool, Flag("Leave out files that cannot be read, and say which.", WHAT)]
Seed = Annotated[int | None, Flag("Decides the labeled images, the weights and the batches.", WHAT)]
Guard = Annotated[
    bool | None,
    Flag(
        "Train labels only beside it, and keep that if it is better: cross-validation over the labels.",
        WHAT,
        default="on for photos' features, without cross-validation below 30 labels",
    ),
]
AllowLeak = Annotated[bool, Flag("Train although test images are among the labeled ones.", WHAT)]
Steps = Annotated[int | None, Flag("Optimization steps.", HOW_LONG)]
Budget = Annotated[
    str | None, Flag("As many steps as fit into 90s, 10m or 1.5h; on features no more than the recipe has.", HOW_LONG)
]
Out = Annotated[str | Path | None, Flag("The run folder.", WHERE, default="runs/DATA-METHOD-SEED")]
Device = Annotated[str, Flag("auto, cpu, cuda or mps.", WHERE, names=device_names)]
Decoder = Annotated[
    str, Flag("Who decodes JPEG files: cpu, device (if it is a GPU) or auto.", WHERE, names=decoder_names)
]
Resume = Annotated[bool, Flag("Continue the run in the folder, or start it.", WHERE)]
Force = Annotated[bool, Flag("Throw away the run in the folder.", WHERE)]
Log = Annotated[Sequence[str], Flag("Also report to tensorboard, wandb or mlflow; may be given twice.", WHERE)]
FromRecipe = Annotated[str | None, Flag("A name from 'epass recipes' or a .toml file.", RECIPE, names=builtin_recipes)]
Settings = Annotated[
    Sequence[str], Flag("Any key of a recipe: method.threshold=0.9", RECIPE, name="--set", metavar="KEY=VALUE")
]
Trust = Annotated[
    list[str] | None,
    Flag(
        "Code of yours that a run or recipe may name: package.module:Class or file.py:Class. It is run.",
        RECIPE,
        metavar="NAME",
    ),
]

Stop = Callable[[], None]  # called between steps; what it raises ends the work
Reading = Callable[[int, int], None]  # told (images done, images in all) while images are decoded
Fetching = Callable[[str, int, int | None], None]  # told (file, bytes so far, bytes in all) while files are downloaded


def unknown_flag(flag: str, typed: Sequence[str], known: Sequence[str]) -> InputError:
    """The error for a flag that a command does not have, with the nearest one, or the setting that does it."""
    name = flag.lstrip("-").replace("-", "_")
    settings = settings_called(name) if "--set" in known else []
    value = next((after for before, after in pairwise([*typed, "-"]) if before == flag), "-")
    value = next((word.partition("=")[2] for word in typed if word.startswith(f"{flag}=")), value)
    if settings:
        return InputError(f"Unknown flag '{flag}': say --set {settings[0]}={'VALUE' if value[:1] == '-' else value}.")
    near = nearest(flag, known)
    return InputError(f"Unknown flag '{flag}': " + (f"did you mean '{near}'?" if near else "--help lists all."))


def settings_called(name: str) -> list[str]:
    """The settings of recipes whose dotted name ends so."""
    from ..engine.build import setting_names

    ends: dict[str, list[str]] = {}
    for setting in setting_names():
        ends.setdefault(setting.rpartition(".")[2], []).append(setting)
    return ends.get(name, [])


def go_on() -> None:
    """Never stop: what is called between steps where nobody may interrupt."""
