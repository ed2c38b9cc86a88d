"""Public data sets at their owners' addresses, and the way from there to a folder.

An entry is here only if address and checksum were found in at least two independent places. Where the owner publishes a
checksum, it is that one; for files that travel without encryption it is the SHA-256 that the other users of the file
have recorded.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ...errors import unknown
from .fetch import RemoteFile, Transfer, fetch
from .unpack import is_packed, unpack

SEE_PAGE = "see the owner's page"


@dataclass(frozen=True)
class Source:
    """A data set at its owner's address."""

    summary: str
    files: tuple[RemoteFile, ...]
    page: str
    license: str = SEE_PAGE

    @property
    def size(self) -> int | None:
        """Bytes to download, if they are known."""
        sizes = [file.size for file in self.files]
        return None if None in sizes else sum(size for size in sizes if size is not None)


_TORONTO, _TORONTO_PAGE = "https://www.cs.toronto.edu/~kriz/", "https://www.cs.toronto.edu/~kriz/cifar.html"
_HOUSES = "http://ufldl.stanford.edu/housenumbers/"
_FASHION = "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/"
_MEDICAL = "https://zenodo.org/records/10519652"

_CIFAR10, _CIFAR100 = "60,000 photos, 32 x 32, 10 classes", "60,000 photos, 32 x 32, 100 classes"
_SVHN_TRAIN = RemoteFile(
    _HOUSES + "train_32x32.mat", "sha256:435e94d69a87fde4fd4d7f3dd208dfc32cb6ae8af2240d066de1df7508d083b8", 182_040_794
)
_SVHN_TEST = RemoteFile(
    _HOUSES + "test_32x32.mat", "sha256:cdce80dfb2a2c4c6160906d0bd7c68ec5a99d7ca4831afa54f09182025b6a75b", 64_275_384
)
_SVHN_EXTRA = RemoteFile(
    _HOUSES + "extra_32x32.mat",
    "sha256:a133a4beb38a00fcdda90c9489e0c04f900b660ce8a316a5e854838379a71eb3",
    1_329_278_602,
)


def _medical(name: str, md5: str, summary: str, size: int | None = None, license: str = "CC BY 4.0") -> Source:
    return Source(
        summary, (RemoteFile(f"{_MEDICAL}/files/{name}.npz?download=1", f"md5:{md5}", size),), _MEDICAL, license
    )


SOURCES: dict[str, Source] = {
    "cifar10": Source(
        _CIFAR10,
        (RemoteFile(_TORONTO + "cifar-10-python.tar.gz", "md5:c58f30108f718f92721af3b95e74349a", 170_498_071),),
        _TORONTO_PAGE,
    ),
    "cifar10-binary": Source(
        f"{_CIFAR10}, not as Python objects",
        (RemoteFile(_TORONTO + "cifar-10-binary.tar.gz", "md5:c32a1d4ab5d03f1284b67883e8d87530", 170_052_171),),
        _TORONTO_PAGE,
    ),
    "cifar100": Source(
        _CIFAR100,
        (RemoteFile(_TORONTO + "cifar-100-python.tar.gz", "md5:eb9058c3a382ffc7106e4002c42a8d85", 169_001_437),),
        _TORONTO_PAGE,
    ),
    "cifar100-binary": Source(
        f"{_CIFAR100}, not as Python objects",
        (RemoteFile(_TORONTO + "cifar-100-binary.tar.gz", "md5:03b5dce01913d631647c71ecec9e9cb8", 168_513_733),),
        _TORONTO_PAGE,
    ),
    "stl10": Source(
        "13,000 labeled and 100,000 unlabeled photos, 96 x 96, 10 classes",
        (
            RemoteFile(
                "http://ai.stanford.edu/~acoates/stl10/stl10_binary.tar.gz",
                "sha256:f31fd99273a1acb8609c8db427cebb1de3f71de77758cdc0e22956e1289b9866",
                2_640_397_119,
            ),
        ),
        "https://cs.stanford.edu/~acoates/stl10/",
    ),
    "svhn": Source(
        "99,289 digits of house numbers, 32 x 32, 10 classes",
        (_SVHN_TRAIN, _SVHN_TEST),
        _HOUSES,
        "non-commercial use only",
    ),
    "svhn-extra": Source(
        "the same, and 531,131 easier ones",
        (_SVHN_TRAIN, _SVHN_TEST, _SVHN_EXTRA),
        _HOUSES,
        "non-commercial use only",
    ),
    "fashion-mnist": Source(
        "70,000 pictures of clothes, gray, 28 x 28, 10 classes",
        (
            RemoteFile(
                _FASHION + "train-images-idx3-ubyte.gz",
                "sha256:3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
                26_421_880,
            ),
            RemoteFile(
                _FASHION + "train-labels-idx1-ubyte.gz",
                "sha256:a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
                29_515,
            ),
            RemoteFile(
                _FASHION + "t10k-images-idx3-ubyte.gz",
                "sha256:346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
                4_422_102,
            ),
            RemoteFile(
                _FASHION + "t10k-labels-idx1-ubyte.gz",
                "sha256:67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
                5_148,
            ),
        ),
        "https://github.com/zalandoresearch/fashion-mnist",
        "MIT",
    ),
    "eurosat": Source(
        "27,000 satellite photos of land, 64 x 64, 10 classes",
        (
            RemoteFile(
                "https://zenodo.org/records/7711810/files/EuroSAT_RGB.zip?download=1",
                "md5:f46e308c4d50d4bf32fedad2d3d62f3b",
                94_658_721,
            ),
        ),
        "https://zenodo.org/records/7711810",
        "MIT",
    ),
    "pathmnist": _medical(
        "pathmnist", "a8b06965200029087d5bd730944a56c1", "107,180 colon tissues, 28 x 28, 9 classes", 205_615_438
    ),
    "dermamnist": _medical(
        "dermamnist",
        "0744692d530f8e62ec473284d019b0c7",
        "10,015 skin lesions, 28 x 28, 7 classes",
        license="CC BY-NC 4.0",
    ),
    "octmnist": _medical(
        "octmnist", "c68d92d5b585d8d81f7112f81e2d0842", "109,309 retina scans, gray, 28 x 28, 4 classes"
    ),
    "pneumoniamnist": _medical(
        "pneumoniamnist", "28209eda62fecd6e6a2d98b1501bb15f", "5,856 chest X-rays, gray, 28 x 28, 2 classes"
    ),
    "retinamnist": _medical(
        "retinamnist", "bd4c0672f1bba3e3a89f0e4e876791e4", "1,600 retina photos, 28 x 28, 5 grades"
    ),
    "breastmnist": _medical(
        "breastmnist", "750601b1f35ba3300ea97c75c52ff8f6", "780 breast ultrasounds, gray, 28 x 28, 2 classes"
    ),
    "bloodmnist": _medical("bloodmnist", "7053d0359d879ad8a5505303e11de1dc", "17,092 blood cells, 28 x 28, 8 classes"),
    "tissuemnist": _medical(
        "tissuemnist", "ebe78ee8b05294063de985d821c1c34b", "236,386 kidney cells, gray, 28 x 28, 8 classes"
    ),
    "organamnist": _medical(
        "organamnist", "68e3f8846a6bd62f0c9bf841c0d9eacc", "58,830 axial CT slices, gray, 28 x 28, 11 classes"
    ),
    "organcmnist": _medical(
        "organcmnist",
        "b9ceb9546e10131b32923c5bbeaea2b1",
        "23,583 coronal CT slices, gray, 28 x 28, 11 classes",
    ),
}


def download(name: str, to: Path, progress: Transfer | None = None) -> Path:
    """The folder `to`/`name` with the files of the data set as their owner packs them, archives unpacked.

    The folder appears when all is downloaded, checked and unpacked. Until then everything lies in a hidden folder
    beside it, from which the next call goes on. A folder that is there already stays as it is.
    """
    if name not in SOURCES:
        raise unknown("data set", name, SOURCES)
    folder, workplace = to / name, to / f".{name}.download"
    if is_filled(folder):
        return folder
    workplace.mkdir(parents=True, exist_ok=True)
    arrived = [fetch(file, workplace, progress) for file in SOURCES[name].files]
    unpacked = workplace / "unpacked"
    try:
        shutil.rmtree(unpacked, ignore_errors=True)  # what an earlier call was in the middle of
        unpacked.mkdir()
        for path in arrived:
            if is_packed(path):
                unpack(path, unpacked)
    except BaseException:
        shutil.rmtree(unpacked, ignore_errors=True)
        raise
    for path in arrived:
        if not is_packed(path):
            path.replace(unpacked / path.name)
    unpacked.replace(folder)
    shutil.rmtree(workplace)
    return folder


def is_filled(folder: Path) -> bool:
    """Whether there is something that a download would have to overwrite."""
    return folder.exists() and not (folder.is_dir() and next(folder.iterdir(), None) is None)


def contents(folder: Path) -> Path:
    """Where the files lie: past folders, as archives have them, that hold nothing but one other entry."""
    entries = list(_visible(folder))
    while len(entries) == 1:
        folder = entries[0]
        entries = list(_visible(folder)) if folder.is_dir() else []
    return folder


def _visible(folder: Path) -> Iterator[Path]:
    return (entry for entry in folder.iterdir() if not entry.name.startswith("."))
