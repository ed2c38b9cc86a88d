"""Compute the features of photos before they are needed."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from os import fspath
from typing import Annotated, Any

from ..extensions import located, trust_typed
from ..machine.launch import all_or_none, is_first_process, join_processes
from ..machine.signals import stopped_with
from ..recipe import read_recipe, toml_value
from .doubts import doubts_about
from .events import Event, Result, work
from .features import watched
from .flags import Decoder, Device, Flag, Images, ImageSize, Reading, SkipUnreadable, Stop, Stream, go_on
from .request import Request, for_features, learns_from_features, locate, side_of

PHOTOS = "photos-simmatch"  # whose [data] and [features] all recipes for photos share


@work
def embed(
    data: Annotated[Images, Flag("A folder, archive or table of photos.", metavar="DATA")],
    *,
    net: Annotated[str | None, Flag("See 'epass networks'; also timm:NAME.", default="efficientnet-lite0")] = None,
    views: Annotated[
        int | None, Flag("Also so many weak and so many strong views of every photo.", default="0", least=0)
    ] = None,
    image_size: ImageSize = None,
    stream: Stream = False,
    skip_unreadable: SkipUnreadable = False,
    device: Device = "auto",
    decoder: Decoder = "auto",
    stop: Stop = go_on,
    reading: Reading | None = None,
) -> Iterator[Event]:
    """Compute the features that 'epass train' learns from, and keep them.

    'epass train' does the same when it needs to. Stop it whenever you like: the
    same command goes on where it was. Photos that were embedded before, by
    whichever command, are not embedded again; new ones are.
    """
    from ..data import open_dataset
    from ..engine.build import check_recipe, reading_settings
    from ..features import embed_dataset, features_folder
    from ..machine.device import choose_device

    trust_typed(data, net)
    flags = {
        "features.net": None if net is None else located(net),
        "features.views": views,
        "data.image_size": image_size,
    }
    given = {name: value for name, value in flags.items() if value is not None}
    given |= {"data.streaming": True} if stream else {}
    given |= {"data.decoder": decoder} if decoder != "auto" else {}
    given |= {"data.skip_unreadable": True} if skip_unreadable else {}
    recipe = for_features(read_recipe(PHOTOS), net and located(net)).with_settings(
        {"data.name": locate(fspath(data)), **given}
    )
    check_recipe(recipe)
    assert recipe.features is not None
    folder = features_folder()
    place = choose_device(join_processes(device))
    with stopped_with("nothing is kept: EPASS_CACHE is off." if folder is None else "the same command goes on."):
        with all_or_none():
            dataset = open_dataset(recipe.data["name"], **reading_settings(recipe), progress=reading)
        yield from doubts_about(dataset)
        vectors = yield from watched(embed_dataset(dataset, recipe.features, place), stop)
    if not is_first_process():
        yield Result()
        return
    tested = 0 if vectors.test is None else len(vectors.test)
    count, made = len(vectors.train) + tested, 1 + 2 * recipe.features.get("views", 0)
    by_itself = given == {} and learns_from_features(Request(data), lambda: side_of(fspath(data)))
    asked_for = [] if by_itself else ["--features", recipe.features["net"], *settings_for(given)]
    yield Result(
        f"Features of {count:,} photos of {dataset.name}",
        {
            "network": recipe.features["net"],
            "numbers": f"{vectors.train.shape[0]:,} for each photo"
            + (f" and for {made - 1} views of it" if views else ""),
            "kept in": "nothing is kept: EPASS_CACHE is off" if folder is None else str(folder),
        },
        values={"data": str(recipe.data["name"]), "images": count, "views": made, "width": vectors.train.shape[0]},
        following=" ".join(["epass train", shlex.quote(fspath(data)), *asked_for]),
    )


def settings_for(given: Mapping[str, Any]) -> Iterator[str]:
    """What has to be said to a training so that it finds these features."""
    for name, value in given.items():
        if name != "features.net":
            yield from ("--set", f"{name}={toml_value(value)}")
