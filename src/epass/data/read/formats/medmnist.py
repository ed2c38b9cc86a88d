"""The two-dimensional data sets of MedMNIST, of 28 pixels and larger, with one label for every image.

J. Yang et al., "MedMNIST v2: A Large-scale Lightweight Benchmark for 2D and 3D Biomedical Image Classification", 2023.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ....augment import reflect_padding
from ....errors import InputError
from ...dataset import Dataset
from ...images import Images, ImageSource
from ..arrays import open_npz
from ..resize import resize
from .layout import File, Format, Layout

_TEXT = "NAME.npz, NAME_64.npz, NAME_128.npz or NAME_224.npz"
_MIRRORED = {"horizontal_flip": True}
_ANY_SIDE_UP = {"horizontal_flip": True, "vertical_flip": True}
_UPRIGHT = {"horizontal_flip": False}  # mirrored, a left kidney is a right one


def _layout(name: str, text: str = _TEXT) -> Layout:
    return Layout(text, archives=tuple(File(f"{name}{size}.npz") for size in ("", "_64", "_128", "_224")))


@dataclass(frozen=True)
class MedMnist:
    """One of the data sets. Its files are told by the number of images: checksums change when they are saved again."""

    name: str
    train: int  # images
    test: int
    classes: Sequence[str]
    flips: Mapping[str, bool]

    def find(self, path: Path) -> Sequence[str]:
        return _layout(self.name).missing(path)

    def read(self, path: Path) -> Dataset:
        file = _layout(self.name).archive(path)
        if file is None:
            raise InputError(f"'{path}' does not hold {self.name}.npz: put the original file there.")
        dataset = open_npz(file, name=self.name, classes=self.classes)
        found = len(dataset.train), 0 if dataset.test is None else len(dataset.test)
        if found != (self.train, self.test):
            raise InputError(
                f"'{file}' holds {found[0]:,} training and {found[1]:,} test images, but the original {self.train:,} "
                f"and {self.test:,}: get it again, or give data of your own another name."
            )
        if self.name == "tissuemnist":
            return _as_in_usb(dataset)
        padding = reflect_padding(dataset.train.pixels.shape[-1], 0.875)
        return replace(dataset, augment={"padding": padding, **self.flips})


def _as_in_usb(dataset: Dataset) -> Dataset:
    """TissueMNIST as the benchmark USB has it: color images of at least 32 pixels, turned any side up."""
    assert dataset.test is not None
    size = max(32, dataset.train.pixels.shape[-1])
    return replace(
        dataset,
        train=_in_color(dataset.train, size),
        test=_in_color(dataset.test, size),
        mean=(0.5, 0.5, 0.5),
        std=(0.5, 0.5, 0.5),
        augment={"padding": reflect_padding(size, 0.95), **_ANY_SIDE_UP, "color": False},
    )


def _in_color(images: ImageSource, size: int) -> Images:
    return Images(resize(images.pixels, size).expand(-1, 3, -1, -1).contiguous(), images.labels)


def _refused(name: str, reason: str) -> Format:
    """A data set of the same family that is recognized, so that a sentence can say why it is not read."""
    layout = _layout(name, f"not readable: {reason}")

    def refuse(path: Path) -> Dataset:
        raise InputError(f"'{path}' is {name}, which has {reason}: use a data set with one label for every image.")

    return Format(name, layout, layout.missing, refuse)


_ORGANS = (
    "bladder",
    "femur-left",
    "femur-right",
    "heart",
    "kidney-left",
    "kidney-right",
    "liver",
    "lung-left",
    "lung-right",
    "pancreas",
    "spleen",
)
MEDMNIST = (
    MedMnist(
        "pathmnist",
        89_996,
        7_180,
        (
            "adipose",
            "background",
            "debris",
            "lymphocytes",
            "mucus",
            "smooth muscle",
            "normal colon mucosa",
            "cancer-associated stroma",
            "colorectal adenocarcinoma epithelium",
        ),
        _ANY_SIDE_UP,
    ),
    MedMnist(
        "dermamnist",
        7_007,
        2_005,
        (
            "actinic keratoses and intraepithelial carcinoma",
            "basal cell carcinoma",
            "benign keratosis-like lesions",
            "dermatofibroma",
            "melanoma",
            "melanocytic nevi",
            "vascular lesions",
        ),
        _ANY_SIDE_UP,
    ),
    MedMnist(
        "octmnist",
        97_477,
        1_000,
        ("choroidal neovascularization", "diabetic macular edema", "drusen", "normal"),
        _MIRRORED,
    ),
    MedMnist("pneumoniamnist", 4_708, 624, ("normal", "pneumonia"), _MIRRORED),
    MedMnist("retinamnist", 1_080, 400, ("0", "1", "2", "3", "4"), _MIRRORED),
    MedMnist("breastmnist", 546, 156, ("malignant", "normal, benign"), _MIRRORED),
    MedMnist(
        "bloodmnist",
        11_959,
        3_421,
        (
            "basophil",
            "eosinophil",
            "erythroblast",
            "immature granulocytes",
            "lymphocyte",
            "monocyte",
            "neutrophil",
            "platelet",
        ),
        _ANY_SIDE_UP,
    ),
    MedMnist(
        "tissuemnist",
        165_466,
        47_280,
        (
            "Collecting Duct, Connecting Tubule",
            "Distal Convoluted Tubule",
            "Glomerular endothelial cells",
            "Interstitial endothelial cells",
            "Leukocytes",
            "Podocytes",
            "Proximal Tubule Segments",
            "Thick Ascending Limb",
        ),
        _ANY_SIDE_UP,
    ),
    MedMnist("organamnist", 34_581, 17_778, _ORGANS, _UPRIGHT),
    MedMnist("organcmnist", 13_000, 8_268, _ORGANS, _UPRIGHT),
    MedMnist("organsmnist", 13_940, 8_829, _ORGANS, _UPRIGHT),
)
_VOLUMES = tuple(f"{name}mnist3d" for name in ("organ", "nodule", "adrenal", "fracture", "vessel", "synapse"))

FORMATS = (
    *(Format(medmnist.name, _layout(medmnist.name), medmnist.find, medmnist.read) for medmnist in MEDMNIST),
    _refused("chestmnist", "several labels for one image"),
    *(_refused(name, "volumes instead of images") for name in _VOLUMES),
)
