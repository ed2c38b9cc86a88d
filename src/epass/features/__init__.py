"""Features of images by a frozen network, made once and kept."""

from ..data.read.cache import cache_folder as features_folder
from .dataset import drained, embed_dataset, embed_images, in_color
from .embed import Extractor, embed, make_extractor

__all__ = [
    "Extractor",
    "drained",
    "embed",
    "embed_dataset",
    "embed_images",
    "features_folder",
    "in_color",
    "make_extractor",
]
