"""How good is a classifier that may answer "none of the known classes"?"""

from __future__ import annotations

from ..errors import InputError
from .accuracy import macro_averages
from .arrays import ArrayLike, as_arrays
from .confusion import count_pairs


def open_set_accuracy(logits: ArrayLike, labels: ArrayLike) -> float:
    """Balanced accuracy over the known classes and, as one more, all unknown ones: the mean of their recalls.

    The last column of the logits (N, C + 1) says that an image is of no known class; so does the label C. Known classes
    without an image are left out.
    """
    scores, truth = as_arrays(logits, labels)
    outside = scores.shape[1] - 1
    if not (truth == outside).any():
        raise InputError(
            f"Open-set accuracy needs images of unknown classes, which have the label {outside} here: there are none."
        )
    return macro_averages(count_pairs(truth, scores.argmax(axis=1), scores.shape[1]))["balanced_accuracy"]
