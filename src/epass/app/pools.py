"""Images among which somebody chooses what to label: as a network sees them, with what is known of them."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import extensions
from ..recipe import read_recipe
from ..runs import SPLIT, RunFolder
from .doubts import doubts_about
from .embed import PHOTOS
from .events import Event
from .features import watched
from .flags import Reading, Stop
from .request import INSTEAD_OF_LABELS, Request, learns_from_features, locate, side_of
from .seen import left_out, own_images

if TYPE_CHECKING:
    import numpy as np
    import torch
    from numpy.typing import NDArray

    from ..data import Dataset


@dataclass(frozen=True, eq=False)
class Pool:
    """The training images of a data set, or vectors in their place."""

    data: str  # where they come from, as people type it
    dataset: Dataset
    vectors: NDArray[Any]  # (N, D), one for every image
    made_of: str  # what the vectors are, in words
    labels: NDArray[np.int64]  # (N,) those that a model may learn from, -1 for none
    candidates: NDArray[np.int64]  # positions of the images that nobody has labeled
    probs: NDArray[Any] | None = None  # (N, C) what a model says about them, calibrated if it is
    classes: tuple[str, ...] = ()  # of these
    trained: bool = False  # the model is that of a run

    @property
    def thing(self) -> str:
        """What people call one of them."""
        from ..data import Vectors

        train = self.dataset.train
        return "vector" if isinstance(train, Vectors) and train.pictures is None else "image"

    @property
    def all_classes(self) -> tuple[str, ...]:
        """Every class that is known."""
        return tuple(sorted({*self.classes, *self.dataset.classes}))


def pool_of_data(
    data: str, image_size: int | None, skip: bool, place: torch.device, stop: Stop, reading: Reading | None
) -> Generator[Event, None, Pool]:
    """Photos as a frozen network sees them, small images by their pixels, and vectors as they are."""
    import numpy as np

    from ..data import Vectors, open_dataset
    from ..features import embed_dataset

    extensions.trust_typed(data)
    photos = read_recipe(PHOTOS)
    are_photos = learns_from_features(Request(data), lambda: side_of(data))
    size = photos.data["image_size"] if are_photos and image_size is None else image_size
    dataset = open_dataset(
        str(locate(data)), image_size=size, skip_unreadable=skip, progress=reading, labels_needed=False
    )
    yield from left_out(dataset, skip)
    yield from doubts_about(dataset)
    made_of = "numbers" if isinstance(dataset.train, Vectors) else "pixels"
    if are_photos:
        assert photos.features is not None
        dataset = yield from watched(embed_dataset(dataset, photos.features, place, plain_only=True), stop)
        made_of = f"features ({photos.features['net']})"
    vectors, labels = dataset.train.pixels.flatten(1).float().numpy(), dataset.train.labels.numpy()
    kept_back = np.arange(len(labels)) >= len(labels) - dataset.validation
    found = Pool(data, dataset, vectors, made_of, labels, np.flatnonzero(~kept_back & (labels < 0)))
    return with_first_answers(found)


def with_first_answers(pool: Pool) -> Pool:
    """The same with what logistic regression makes of the labels, if two classes have some."""
    import numpy as np

    from ..evaluation.baselines import logistic_regression
    from ..evaluation.selection import standardized

    known = np.flatnonzero(pool.labels >= 0)
    present = np.unique(pool.labels[known])
    if len(present) < 2:
        return pool
    rows = standardized(pool.vectors)
    probs = logistic_regression(rows[known], pool.labels[known], rows[:0], rows)
    return replace(pool, probs=probs, classes=tuple(pool.dataset.classes[number] for number in present))


def pool_of_run(
    home: RunFolder, skip: bool, place: torch.device, stop: Stop, reading: Reading | None
) -> Generator[Event, None, Pool]:
    """The training images of a run with its answers; candidates are those that it learned from without a label."""
    import numpy as np

    from ..data import Normalization, Vectors, find_recorded
    from ..engine.build import split_for
    from ..engine.infer import infer, ready
    from ..engine.models import load_model
    from ..engine.run import split_record
    from ..evaluation.calibrated import Calibration
    from ..features import embed_dataset
    from ..networks import FromImages

    loaded, model = load_model(home.path)
    recipe, dataset = own_images(home.path, reading, skip)
    yield from left_out(dataset, skip)
    yield from doubts_about(dataset)
    if recipe.features is not None:
        dataset = yield from watched(embed_dataset(dataset, recipe.features, place), stop)
    if record := split_record(home):
        positions = find_recorded(record, home.path / SPLIT, dataset, needed=()).positions
    else:
        positions = split_for(recipe, dataset).positions
    scale = Normalization(tuple(model["mean"]), tuple(model["std"]))
    net = loaded
    if isinstance(loaded, FromImages) and isinstance(dataset.train, Vectors):  # whose features are there already
        net, scale = loaded.net, Normalization(tuple(loaded.mean.tolist()), tuple(loaded.std.tolist()))
    said = infer(ready(net, place), dataset.train, scale, place)
    truth = dataset.train.labels.numpy()
    labels, taken = np.full_like(truth, -1), np.zeros(len(truth), dtype=bool)
    labels[positions.labeled] = truth[positions.labeled]
    held_out = positions.test if dataset.test is None else positions.test[:0]
    taken[np.concatenate([positions.labeled, positions.validation, held_out])] = True
    if all(recipe.data.get(key) is None for key in ("labels", "known_classes", *INSTEAD_OF_LABELS)):
        taken |= truth >= 0  # the run hid no label: what has one now has got it since
    seen = dataset.train.pixels if isinstance(dataset.train, Vectors) else said.features
    made_of = "numbers" if recipe.features is None else f"features ({recipe.features['net']})"
    return Pool(
        data=nearby(str(recipe.data["name"])),
        dataset=dataset,
        vectors=seen.float().cpu().numpy(),
        made_of=made_of if isinstance(dataset.train, Vectors) else "features (the run's own)",
        labels=labels,
        candidates=np.flatnonzero(~taken),
        probs=Calibration.from_json(model.get("calibration")).probabilities(said.logits.cpu().numpy()),
        classes=tuple(model["classes"]),
        trained=True,
    )


def nearby(path: str) -> str:
    """A path as people here would type it."""
    try:
        return str(Path(path).relative_to(Path.cwd()))
    except ValueError:
        return path
