"""Images to features of a frozen network: a plain view of every image, and weak and strong ones to learn from."""

from __future__ import annotations

import hashlib
import sys
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from copy import deepcopy
from dataclasses import dataclass
from inspect import signature
from itertools import islice
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

from ..augment import normalize
from ..data import ImageSource
from ..errors import InputError
from ..extensions import is_code
from ..machine.cpu import count_cores
from ..machine.device import features_precision
from ..machine.distributed import largest_over_ranks, rank, world_size
from ..machine.launch import all_or_none
from ..networks import find_network, start_from
from ..networks.weights import PUBLISHED
from .store import Rows, Store, key_of
from .views import VIEWS, strong, weak

Pixels = np.ndarray[tuple[int, ...], np.dtype[np.uint8]]
IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
TOGETHER = {"cpu": 16, "cuda": 256}  # views that pass the network at a time: what its caches hold
_HASHED = 256  # images at a time


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
) -> Generator[int, None, Tensor]:
    """Features (N, V, D) of images: of the plain view, or with `views` of so many weak and then so many strong ones.

    Yields how many images are done. What an earlier call has computed, even one that was killed, is not computed again.
    Several processes share the work and find each other's part in the store; all of them yield equally often.
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
    keys: list[bytes] = []
    for chunk in images.chunks(_HASHED):
        keys += [key_of(image.tobytes(), images.shape) for image in chunk.numpy()]
    rows = max(1, TOGETHER.get(device.type, 16) // shape[0])
    for world in sorted({1, world_size()}, reverse=True):  # what is not in the store after sharing, each has to do
        wanted = {key: place for place, key in enumerate(keys) if key not in store.found}  # of equal images the last
        before, share = (
            len(keys) - len(wanted),
            {key: wanted[key] for key in wanted if key[0] % world == rank() % world},
        )
        turns = int(largest_over_ranks(ceil(len(share) / rows)))
        if not turns:
            continue
        with all_or_none():
            rendered = _rendered(images, share, rows, views, seed)
            with closing(rendered) as batches, store:
                computed, done = _computed(batches, extractor, precision, device), 0
                for _ in range(turns):
                    for names, features in islice(computed, 1):
                        store.keep(names, features)
                        done += len(names)
                    yield min(len(keys), before + world * done)
        if world > 1:
            store.read()
    return torch.from_numpy(np.stack([store.found[key] for key in keys]) if keys else np.empty((0, *shape), np.float16))


def digest_of(extractor: Extractor, image_shape: tuple[int, ...], views: int, seed: int, precision: torch.dtype) -> str:
    """Of everything but the image that its features depend on."""
    import PIL

    drawn = (views, seed, VIEWS, PIL.__version__) if views else ()
    facts = (extractor.name, extractor.digest, extractor.mean, extractor.std, tuple(image_shape), drawn, precision)
    return hashlib.sha256(repr(facts).encode()).hexdigest()[:32]


def prepared(net: nn.Module, device: torch.device, precision: torch.dtype) -> nn.Module:
    """A copy that computes the same and is quicker: BatchNorm is part of the convolution before it."""
    net = deepcopy(net).eval()
    for module in net.modules():
        if isinstance(module, nn.Sequential):
            for place in range(len(module) - 1):
                first, second = module[place], module[place + 1]
                if isinstance(first, nn.Conv2d) and isinstance(second, nn.BatchNorm2d):
                    module[place], module[place + 1] = fuse_conv_bn_eval(first, second), nn.Identity()
    net = net.to(device, precision)
    return net.to(memory_format=torch.channels_last)  # type: ignore[call-overload,no-any-return]


def _computed(
    batches: Iterator[tuple[list[bytes], Pixels]], extractor: Extractor, precision: torch.dtype, device: torch.device
) -> Iterator[tuple[list[bytes], Rows]]:
    """The features of some images after the other, with their keys."""
    net, limit = prepared(extractor.net, device, precision), torch.finfo(torch.float16).max
    mean, std = (torch.tensor(values, device=device) for values in (extractor.mean, extractor.std))
    for keys, pixels in batches:
        count, views = pixels.shape[:2]
        # channels last, as Pillow leaves them and the network wants them
        images = torch.from_numpy(pixels).to(device).flatten(0, 1).permute(0, 3, 1, 2)
        with torch.inference_mode():
            features = net(normalize(images, mean, std).to(precision)).float()
        if not features.isfinite().all():
            raise InputError(f"'{extractor.name}' returns numbers that are not finite: use other weights.")
        yield keys, features.clamp(-limit, limit).half().view(count, views, -1).cpu().numpy()


def _rendered(
    images: ImageSource, wanted: dict[bytes, int], rows: int, views: int, seed: int
) -> Generator[tuple[list[bytes], Pixels]]:
    """The wanted images and their views, (n, V, H, W, 3) each; some threads are ahead of whoever asks."""
    threads, keys = count_cores(), list(wanted)
    waiting: deque[tuple[list[bytes], list[Future[Pixels]]]] = deque()
    with ThreadPoolExecutor(threads) as pool:
        try:
            for start in range(0, len(keys), rows):
                if len(waiting) > 1 + threads:
                    yield _collected(*waiting.popleft())
                names = keys[start : start + rows]
                pixels = images.take(torch.tensor([wanted[name] for name in names])).numpy().transpose(0, 2, 3, 1)
                pairs = zip(names, pixels, strict=True)
                waiting.append((names, [pool.submit(make_views, image, name, views, seed) for name, image in pairs]))
            while waiting:
                yield _collected(*waiting.popleft())
        finally:
            pool.shutdown(cancel_futures=True)


def _collected(names: list[bytes], pending: Sequence[Future[Pixels]]) -> tuple[list[bytes], Pixels]:
    return names, np.stack([views.result() for views in pending])


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
