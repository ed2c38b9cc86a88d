"""Compute the features of photos before they are needed."""

from __future__ import annotations

from collections.abc import Iterator
from os import fspath
from typing import Annotated

from ..recipe import read_recipe
from .events import Event, Result, work
from .features import counted
from .flags import Device, Flag, Images, ImageSize, Reading, SkipUnreadable, Stop, go_on
from .request import locate

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
    skip_unreadable: SkipUnreadable = False,
    device: Device = "auto",
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

    flags = {"features.net": net, "features.views": views, "data.image_size": image_size}
    given = {name: value for name, value in flags.items() if value is not None}
    if skip_unreadable:
        given["data.skip_unreadable"] = True
    recipe = read_recipe(PHOTOS).with_settings({"data.name": locate(fspath(data)), **given})
    check_recipe(recipe)
    place = choose_device(device)
    dataset = open_dataset(recipe.data["name"], **reading_settings(recipe), progress=reading)
    assert recipe.features is not None
    vectors = yield from counted(embed_dataset(dataset, recipe.features, place), stop)
    tested = 0 if vectors.test is None else len(vectors.test)
    count, made = len(vectors.train) + tested, 1 + 2 * recipe.features.get("views", 0)
    folder = features_folder()
    yield Result(
        f"Features of {count:,} photos of {dataset.name}",
        {
            "network": recipe.features["net"],
            "numbers": f"{vectors.train.shape[0]:,} for each photo"
            + (f" and for {made - 1} views of it" if views else ""),
            "kept in": "nothing is kept: EPASS_CACHE is off" if folder is None else str(folder),
        },
        values={"data": str(recipe.data["name"]), "images": count, "views": made, "width": vectors.train.shape[0]},
        following=f"epass train {data}",
    )
