"""The handwritten digits that come with scikit-learn: 1,797 gray images of 8 x 8 pixels, nothing to download.

E. Alpaydin and C. Kaynak, "Optical Recognition of Handwritten Digits", UCI Machine Learning Repository, 1998.
"""

from __future__ import annotations

import numpy as np
import torch

from ..dataset import Dataset, channel_statistics
from ..images import Images
from .resize import resize


def open_digits(image_size: int | None = None) -> Dataset:
    """The digits, divided into 1,442 training and 355 test images.

    The division never changes: of every class, in scikit-learn's order, the last fifth (rounded down) is the test set.
    The gray levels 0 to 16 become round(level * 255 / 16), halves rounded up.
    """
    from sklearn.datasets import load_digits

    bunch = load_digits()
    levels = bunch.images.astype(np.int64)
    pixels = torch.from_numpy(((levels * 255 + 8) // 16).astype(np.uint8))[:, None]
    if image_size is not None:
        pixels = resize(pixels, image_size)
    images = Images(pixels, torch.from_numpy(bunch.target.astype(np.int64)))
    train, test = [], []
    for digit in range(10):
        index = torch.nonzero(images.labels == digit).flatten()
        first_test = len(index) - len(index) // 5
        train.append(index[:first_test])
        test.append(index[first_test:])
    training = images.select(torch.cat(train).sort().values)
    mean, std = channel_statistics(training.pixels)
    return Dataset(
        name="digits",
        classes=tuple(str(digit) for digit in range(10)),
        train=training,
        test=images.select(torch.cat(test).sort().values),
        mean=mean,
        std=std,
        # A mirrored digit is another sign, and one pixel is an eighth of the image.
        augment={"padding": max(1, pixels.shape[-1] // 8), "horizontal_flip": False},
    )
