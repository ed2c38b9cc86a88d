"""How good is a classifier that may answer "none of the known classes"?"""

from __future__ import annotations

from ..errors import InputError
from .arrays import ArrayLike
from .outputs import Outputs
from .scores import balanced_accuracy


def open_set_accuracy(logits: ArrayLike, labels: ArrayLike) -> float:
    """Balanced accuracy over the known classes and, as one more, all unknown ones: the mean of their recalls.

    The last column of the logits (N, C + 1) says that an image is of no known class; so does the label C. Known classes
    without an image are left out.
    """
    outputs = Outputs(logits, labels)
    outside = outputs.num_classes - 1
    if not (outputs.labels == outside).any():
        raise InputError(
            f"Open-set accuracy needs images of unknown classes, which have the label {outside} here: there are none."
        )
    return balanced_accuracy(outputs)
