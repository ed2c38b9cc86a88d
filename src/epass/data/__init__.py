"""Files to tensors, splits, sampling and the feed of batches.

The names are imported when they are first used: files are found and decoded without torch, for whoever has a model that
needs none.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .dataset import Dataset, Normalization
    from .images import Images, ImageSource, concatenate
    from .opening import DATASETS, BuiltIn, open_dataset, side_of_photos
    from .read.arrays import from_arrays
    from .read.channels import with_channels
    from .read.decode import ProgressCallback
    from .read.formats import FORMATS, Format, closest, recognize
    from .read.found import Chunk, FoundImages, find_images, find_named
    from .read.huggingface import from_huggingface
    from .read.resize import EnlargedImages
    from .read.survey import ImageFile, Survey, survey_arrays, survey_folder
    from .read.vector_files import FoundVectors, find_vectors, holds_vectors
    from .read.vectors import from_vectors
    from .split.carried import carry_over
    from .split.drawing import balanced_split, long_tailed_counts, open_set_labels
    from .split.recorded import find_recorded
    from .split.split_file import Positions, split_text
    from .split.splits import Protocol, Split, cut, cut_test, divide
    from .stream.decoder import decide, decoder_of
    from .stream.disk import StreamedImages
    from .stream.feed import Feed, Selection, render
    from .stream.lookahead import Lookahead
    from .stream.sampling import Order, Shuffle
    from .vectors import Vectors, vector_statistics, views_of_vectors

__all__ = [
    "DATASETS",
    "FORMATS",
    "BuiltIn",
    "Chunk",
    "Dataset",
    "EnlargedImages",
    "Feed",
    "Format",
    "FoundImages",
    "FoundVectors",
    "ImageFile",
    "ImageSource",
    "Images",
    "Lookahead",
    "Normalization",
    "Order",
    "Positions",
    "ProgressCallback",
    "Protocol",
    "Selection",
    "Shuffle",
    "Split",
    "StreamedImages",
    "Survey",
    "Vectors",
    "balanced_split",
    "carry_over",
    "closest",
    "concatenate",
    "cut",
    "cut_test",
    "decide",
    "decoder_of",
    "divide",
    "find_images",
    "find_named",
    "find_recorded",
    "find_vectors",
    "from_arrays",
    "from_huggingface",
    "from_vectors",
    "holds_vectors",
    "long_tailed_counts",
    "open_dataset",
    "open_set_labels",
    "recognize",
    "render",
    "side_of_photos",
    "split_text",
    "survey_arrays",
    "survey_folder",
    "vector_statistics",
    "views_of_vectors",
    "with_channels",
]

_ROOMS = {
    "dataset": (
        "Dataset",
        "Normalization",
    ),
    "images": (
        "Images",
        "ImageSource",
        "concatenate",
    ),
    "opening": (
        "DATASETS",
        "BuiltIn",
        "open_dataset",
        "side_of_photos",
    ),
    "read.arrays": ("from_arrays",),
    "read.channels": ("with_channels",),
    "read.decode": ("ProgressCallback",),
    "read.formats": (
        "FORMATS",
        "Format",
        "closest",
        "recognize",
    ),
    "read.found": (
        "Chunk",
        "FoundImages",
        "find_images",
        "find_named",
    ),
    "read.huggingface": ("from_huggingface",),
    "read.resize": ("EnlargedImages",),
    "read.survey": (
        "ImageFile",
        "Survey",
        "survey_arrays",
        "survey_folder",
    ),
    "read.vector_files": (
        "FoundVectors",
        "find_vectors",
        "holds_vectors",
    ),
    "read.vectors": ("from_vectors",),
    "split.carried": ("carry_over",),
    "split.drawing": (
        "balanced_split",
        "long_tailed_counts",
        "open_set_labels",
    ),
    "split.recorded": ("find_recorded",),
    "split.split_file": (
        "Positions",
        "split_text",
    ),
    "split.splits": (
        "Protocol",
        "Split",
        "cut",
        "cut_test",
        "divide",
    ),
    "stream.decoder": (
        "decide",
        "decoder_of",
    ),
    "stream.disk": ("StreamedImages",),
    "stream.feed": (
        "Feed",
        "Selection",
        "render",
    ),
    "stream.lookahead": ("Lookahead",),
    "stream.sampling": (
        "Order",
        "Shuffle",
    ),
    "vectors": (
        "Vectors",
        "vector_statistics",
        "views_of_vectors",
    ),
}


def __getattr__(name: str) -> Any:
    for room, names in _ROOMS.items():
        if name in names:
            return getattr(import_module(f"{__name__}.{room}"), name)
    raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
