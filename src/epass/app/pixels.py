"""How photos are learned from pixels: their size and the network where nobody says, and what is said in vain."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ..errors import InputError
from ..extensions import short
from ..recipe import Recipe, parse_setting
from ..runs import load_run
from .budget import parse_budget
from .words import duration

if TYPE_CHECKING:
    from .request import Request

SIZES = {"cpu": 64, "mps": 64, "cuda": 128}  # pixels that a network is trained on in minutes
SHORT = {"cpu": (600.0, 32), "mps": (600.0, 32), "cuda": (300.0, 96)}  # pixels where there are fewer seconds than these
NAMES = {"cpu": "CPU", "mps": "GPU", "cuda": "GPU"}
STEP = 16  # sizes are multiples of it
FOR_DETAIL = "resnet-18", 96  # the network for photos from so many pixels on: the small one looks at 64 at most


def fitted(request: Request, recipe: Recipe, side: int | None) -> Recipe:
    """The recipe with a size of images, and a network, for photos whose shorter `side` is mostly so long."""
    chosen = chosen_size(request, side)
    if chosen is None:
        return recipe
    size, _ = chosen
    recipe = recipe.with_settings({"data.image_size": size})
    name, least = FOR_DETAIL
    said = (request.net, request.weights, request.start) != (None, None, None)
    if said or size < least or any(key.startswith("net.") for key in said_settings(request)):
        return recipe
    return replace(recipe, net={"name": name})


def chosen_size(request: Request, side: int | None) -> tuple[int, str] | None:
    """The side that images are scaled to, and why, if it is to be chosen and there is something to choose it from.

    Who starts from another run has its size, a network that was made for one has that. Else it is what the device, or
    the time, allows, and never more than the photos have.
    """
    from ..machine.device import choose_device
    from ..networks import input_size

    if request.image_size is not None or "data.image_size" in said_settings(request):
        return None
    if request.start is not None:
        earlier = load_run(request.start).recipe.get("data", {}).get("image_size")
        return (earlier, f"as in {request.start}") if isinstance(earlier, int) else None
    if request.net is not None and (own := input_size(request.net)) is not None:
        return own, f"which {short(request.net)} was made for"
    if side is None:
        return None
    kind, seconds = choose_device(request.device).type, parse_budget(request)
    limit, less = SHORT[kind]
    size = less if seconds is not None and seconds < limit else SIZES[kind]
    time = f"{duration(seconds)} on" if seconds is not None else "the time that it takes on"
    why = f"chosen from the photos, most of which have a shorter side of {side}, and {time} a {NAMES[kind]}"
    return min(size, side // STEP * STEP), why


def refuse_idle(request: Request, recipe: Recipe) -> None:
    """Refuse to learn from features with settings that only change views of pixels.

    Runs that began with them go on, and views of one's own may understand them.
    """
    from ..engine.build import settings_of_pixels

    if recipe.features is None or request.fine_tune or {"weak", "strong", "crop"} & recipe.augment.keys():
        return
    said = {*said_settings(request), *(f"augment.{key}" for key in recipe.augment if request.recipe is not None)}
    idle = [name for key in settings_of_pixels(recipe) if (name := f"augment.{key}") in said]
    if idle:
        raise InputError(
            f"This run learns from features of its images, on which {idle[0]} has no say: leave it out, or learn from "
            "pixels (--features none)."
        )


def said_settings(request: Request) -> list[str]:
    """The keys that `--set` was given."""
    return [parse_setting(text)[0] for text in request.settings]
