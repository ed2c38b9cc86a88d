"""Features of images by a frozen network, made once and kept."""

from .dataset import drained, embed_dataset
from .embed import Extractor, embed, make_extractor

__all__ = ["Extractor", "drained", "embed", "embed_dataset", "make_extractor"]
