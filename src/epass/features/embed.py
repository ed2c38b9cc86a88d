"""Images to features of a frozen network: a plain view of every image, and weak and strong ones to learn from."""

from __future__ import annotations

import hashlib
import sys
from collections import deque
from collections.abc import Callable, Generator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from functools import cache
from inspect import signature
from itertools import islice
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ..augment import normalize
from ..data import ImageSource, decide
from ..errors import InputError
from ..extensions import is_code
from ..machine.cpu import count_cores
from ..machine.device import features_precision
from ..machine.distributed import alone, gather_rows, rank, world_size
from ..machine.launch import all_or_none
from ..networks import find_network, start_from
from ..networks.prepared import prepared
from ..networks.weights import PUBLISHED
from .store import Rows, Store, key_of
from .views import VIEWS, strong, weak

Pixels = np.ndarray[tuple[int, ...], np.dtype[np.uint8]]
IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
TOGETHER = {"cpu": 16, "cuda": 256}  # views that pass the network at a time: what its caches hold
AHEAD = {"cuda": 1}  # such batches that nobody waits for: while a device computes, the next ones are put together
_READ = 64  # images at a time
_ASKED = 64  # images that tell who decoded those whose features are kept; the first, which is embedded first, is one
_GATHERED = 4096  # images whose features travel between processes at a time


@dataclass(frozen=True, eq=False)
class Extractor:
    """A frozen network, and what images have to be for it."""

    name: str
    net: nn.Module
    mean: tuple[float, ...]
    std: tuple[float, ...]
    digest: str  # of the layers and their weights

    @property
    def num_features(self) -> int:
        return int(self.net.num_features)  # type: ignore[arg-type]


def make_extractor(
    *, net: str = "efficientnet-lite0", weights: str = PUBLISHED, views: int = 0, seed: int = 0
) -> Extractor:
    """The network of a recipe's [features] table, whose keys these are.

    Args:
        net: Its name, as `epass networks` lists them.
        weights: A file, or "published" for those that come with the network.
        views: How many weak and how many strong views are made of every image; noise makes them if there are none.
        seed: Decides these views; it is not that of the run, so that all runs share them.
    """
    make = find_network(net)
    if getattr(make, "takes_vectors", False):
        raise InputError(f"'{net}' makes no features of images: use efficientnet-lite0 (features.net).")
    if weights == PUBLISHED:
        if "published" not in signature(make).parameters:
            raise InputError(
                f"'{net}' comes without published weights: use efficientnet-lite0, or set features.weights to a file."
            )
        backbone = make(published=True, in_channels=3)
    else:
        backbone = make(in_channels=3)
        start_from(backbone, weights=weights)
    content = hashlib.sha256(repr(backbone).encode())
    if is_code(net):  # what it computes with its weights may change from one day to the next
        content.update(Path(str(sys.modules[make.__module__].__file__)).read_bytes())
    for name, tensor in backbone.state_dict().items():
        content.update(name.encode() + tensor.cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes())
    return Extractor(
        name=net,
        net=backbone.eval().requires_grad_(False),
        mean=tuple(getattr(backbone, "mean", IMAGENET_MEAN)),
        std=tuple(getattr(backbone, "std", IMAGENET_STD)),
        digest=content.hexdigest(),
    )


def embed(
    images: ImageSource,
    extractor: Extractor,
    device: torch.device,
    *,
    views: int = 0,
    seed: int = 0,
) -> Generator[int | str, None, Tensor]:
    """Features (N, V, D) of images: of the plain view, or with `views` of so many weak and then so many strong ones.

    Yields how many images are done and, before, what there is to tell of who decodes them. An image is read once, and
    computed from these pixels unless an earlier call has done it, even one that was killed, or an equal image came
    before; only few images are in memory. Several processes share reading and computing, in turns that all of them pass
    or none, and yield equally often.
    """
    if images.shape[0] != 3:
        raise InputError(f"'{extractor.name}' takes color images, and these have {images.shape[0]} channel(s).")
    check: Callable[[int, int], None] | None = getattr(extractor.net, "check_images", None)
    if check is not None:
        check(*images.shape[1:])
    shape = (2 * views or 1, extractor.num_features)
    # A plain view is what the model will be asked about: it is computed as the model computes. Views are there to vary.
    precision = features_precision(device) if views else torch.float32
    store = Store(digest_of(extractor, images.shape, views, seed, precision), shape)
    if sentence := decide(images, device, lambda: _count_kept(images, store)):
        yield sentence
    rows = max(1, TOGETHER.get(device.type, 16) // shape[0])
    mine = images if alone() else images.select(torch.arange(rank(), len(images), world_size()))
    turns = ceil(ceil(len(images) / world_size()) / rows)  # of the process with the most images
    keys: list[bytes] = []
    waiting: dict[bytes, Pixels] = {}  # until there are enough for the network
    with (
        store,
        closing(_looked_up(mine, rows, views, seed, store)) as groups,
        closing(_Computing(extractor, precision, device)) as computing,
    ):
        for turn in range(turns):
            with all_or_none():
                group, last = next(groups, []), turn == turns - 1
                keys += [key for key, _ in group]
                fresh = {key: drawn for key, drawn in group if drawn is not None and key not in store.found}
                waiting |= {key: drawn for key, drawn in fresh.items() if key not in computing.names}
                while len(waiting) >= rows or (waiting and last):
                    computing.begin({name: waiting.pop(name) for name in list(islice(waiting, rows))})
                    computing.finish(store, AHEAD.get(device.type, 0))
                if last:
                    computing.finish(store, 0)
            yield min(len(images), world_size() * (len(keys) - len(waiting) - len(computing.names)))
    return _of_all([store.found[key] for key in keys], (len(images), *shape))


def _count_kept(images: ImageSource, store: Store) -> int:
    """How many of some images have their features in the store, as they are decoded now."""
    with all_or_none():
        if not store.found:
            return 0
        some = images.select(torch.arange(0, len(images), ceil(len(images) / _ASKED)))
        return sum(key_of(image.reshape(-1).data, images.shape) in store.found for image in some.pixels.numpy())


def digest_of(extractor: Extractor, image_shape: tuple[int, ...], views: int, seed: int, precision: torch.dtype) -> str:
    """Of everything but the image that its features depend on."""
    import PIL

    drawn = (views, seed, VIEWS, PIL.__version__) if views else ()
    facts = (extractor.name, extractor.digest, extractor.mean, extractor.std, tuple(image_shape), drawn, precision)
    return hashlib.sha256(repr(facts).encode()).hexdigest()[:32]


class _Computing:
    """The network, which computes a few batches beside each other; it is prepared when it is needed."""

    def __init__(self, extractor: Extractor, precision: torch.dtype, device: torch.device) -> None:
        self._network = cache(lambda: prepared(extractor.net, device, precision))
        self._mean, self._std = (torch.tensor(values, device=device) for values in (extractor.mean, extractor.std))
        self._name, self._precision, self._device = extractor.name, precision, device
        self._pool = ThreadPoolExecutor(1 + AHEAD.get(device.type, 0), thread_name_prefix="embed")
        self._begun: deque[tuple[list[bytes], Future[Rows]]] = deque()
        self.names: set[bytes] = set()  # of the images that are computed right now

    def begin(self, views: dict[bytes, Pixels]) -> None:
        """Begin with these images, whose views are (V, H, W, 3)."""
        self.names |= views.keys()
        self._begun.append((list(views), self._pool.submit(self._compute, self._network(), [*views.values()])))

    def finish(self, store: Store, most: int) -> None:
        """Wait until at most so many batches are not done, and keep the features of those that are."""
        while len(self._begun) > most:
            names, features = self._begun.popleft()
            store.keep(names, features.result())
            self.names.difference_update(names)

    def close(self) -> None:
        """Give up what has not begun yet."""
        self._pool.shutdown(cancel_futures=True)

    def _compute(self, network: nn.Module, drawn: list[Pixels]) -> Rows:
        pixels, limit = torch.from_numpy(np.stack(drawn)), torch.finfo(torch.float16).max
        # channels last, as Pillow leaves them and the network wants them
        images = pixels.to(self._device).flatten(0, 1).permute(0, 3, 1, 2)
        with torch.inference_mode():
            features = network(normalize(images, self._mean, self._std).to(self._precision)).float()
        if not features.isfinite().all():
            raise InputError(f"'{self._name}' returns numbers that are not finite: use other weights.")
        kept: Rows = features.clamp(-limit, limit).half().view(*pixels.shape[:2], -1).cpu().numpy()
        return kept


def _looked_up(
    images: ImageSource, rows: int, views: int, seed: int, store: Store
) -> Generator[list[tuple[bytes, Pixels | None]]]:
    """The key of every image, `rows` at a time, and its views (V, H, W, 3) unless its features are in the store.

    Some threads are ahead of whoever asks.
    """
    threads = count_cores()

    def look_up(chunk: Tensor) -> list[tuple[bytes, Pixels | None]]:
        found: list[tuple[bytes, Pixels | None]] = []
        for image in chunk.numpy():
            key = key_of(image.reshape(-1).data, images.shape)
            known = key in store.found
            found.append((key, None if known else make_views(image.transpose(1, 2, 0), key, views, seed)))
        return found

    waiting: deque[Future[list[tuple[bytes, Pixels | None]]]] = deque()
    with ThreadPoolExecutor(threads) as pool:
        try:
            for chunk in images.chunks(rows * ceil(_READ / rows)):
                for part in torch.split(chunk, rows):
                    if len(waiting) > 1 + threads:
                        yield waiting.popleft().result()
                    waiting.append(pool.submit(look_up, part))
            while waiting:
                yield waiting.popleft().result()
        finally:
            pool.shutdown(cancel_futures=True)


def _of_all(features: list[Rows], shape: tuple[int, ...]) -> Tensor:
    """The features of all images, of which every process has some: those of rank, rank + world, ... in their order."""
    each, world = ceil(shape[0] / world_size()), world_size()
    whole = torch.zeros(each * world, *shape[1:], dtype=torch.float16)
    for start in range(0, each, _GATHERED):
        piece = torch.zeros(min(_GATHERED, each - start), *shape[1:], dtype=torch.float16)
        if own := features[start : start + _GATHERED]:  # one less than there is place for, in some processes
            piece[: len(own)] = torch.from_numpy(np.stack(own))
        whole[world * start : world * (start + len(piece))] = gather_rows(piece)
    return whole[: shape[0]]


def make_views(pixels: Pixels, key: bytes, views: int, seed: int) -> Pixels:
    """The views (V, H, W, 3) of one image (H, W, 3), a function of the seed and of what the image shows."""
    from PIL import Image

    if not views:
        return pixels[None]
    image: Any = Image.fromarray(np.ascontiguousarray(pixels))
    made = []
    for kind in (weak, strong):
        for number in range(views):
            random = np.random.default_rng([seed, number, kind is strong, *key])
            made.append(np.asarray(kind(image, random)))
    return np.stack(made)
