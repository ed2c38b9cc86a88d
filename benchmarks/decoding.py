"""Photos from their files to pixels: where the time goes, what more workers do, and what a coarse resolution costs.

The photos are made first: noise of all scales with some grain, as large on disk as those of a telephone, which was held
upright, so that every one has to be turned. With --like FOLDER they are mosaics of the images in it. Then

    parts     milliseconds of a core to open a photo, to check its limits, to decode it, to scale and to turn it
    workers   photos a second by one thread, by one for every core, and by as many processes
    coarse    decoding at 1/2, 1/4 or 1/8 as long as 4, 3, 2 or 1 times the side is left, against the whole photo: its
              time, how far pixels get from those of the whole photo (mean, 99.9 % and largest, in levels of 255), and
              the cosine of their features; the same for a photo that is stored with less quality and decoded as a whole
    embed     photos a second through `epass embed`, streamed from their files, without a cache

    python benchmarks/decoding.py --out decoding.json
    python benchmarks/decoding.py --only coarse --like scenes

The files have just been written, so they are read from the memory of the system: what is measured is no disk.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from PIL import Image

from epass.augment import normalize
from epass.data import find_images
from epass.data.read import image_limits
from epass.data.read.decode import decode, to_square
from epass.data.stream.disk import Files, StreamedImages, Workers, default_workers
from epass.engine.timing import machine
from epass.features import Extractor, drained, embed, make_extractor
from epass.networks.prepared import prepared
from epass.runs import environment

STAGES = ("parts", "workers", "coarse", "embed")
SIZES = {"12": (4000, 3000), "3": (2000, 1500), "1.7": (1601, 1067), "0.2": (500, 400)}  # by megapixels
QUALITY, LESS_QUALITY = 92, 85
GRAIN = 6.0  # standard deviation of the noise that has no larger scale: it makes the files as large as photos
WHOLE = 10**6  # times the side: no photo has so many pixels, and all are decoded
PARTS = ("open", "limits", "decode", "scale")
Tell = Callable[[str], None]


def make_photo(size: tuple[int, int], random: np.random.Generator, like: list[Path]) -> Image.Image:
    """Noise of all scales, or a mosaic of images."""
    if like:
        photo = Image.new("RGB", size)
        side = 150
        for top in range(0, size[1], side):
            for left in range(0, size[0], side):
                with Image.open(like[random.integers(len(like))]) as tile:
                    photo.paste(tile.convert("RGB").resize((side, side)), (left, top))
        return photo
    levels = np.full((size[1], size[0], 3), 128, np.float32)
    across, strength = 8, 70.0
    while across < max(size):
        coarse = random.normal(0, strength, (3, across * 3 // 4, across)).astype(np.float32)
        for channel in range(3):
            levels[..., channel] += Image.fromarray(coarse[channel]).resize(size, Image.Resampling.BICUBIC)
        across, strength = 2 * across, 0.6 * strength
    levels += random.normal(0, GRAIN, (size[1], size[0], 1)).astype(np.float32)
    return Image.fromarray(levels.clip(0, 255).astype(np.uint8))


def make_photos(folder: Path, size: tuple[int, int], count: int, like: list[Path]) -> list[Path]:
    """Photos that have to be turned, each in the usual quality and, beside it, in a lesser one."""
    folder.mkdir(parents=True)
    exif = Image.Exif()
    exif[0x0112] = 6
    for number in range(count):
        photo = make_photo(size, np.random.default_rng(number), like)
        photo.save(folder / f"{number:03}.jpg", quality=QUALITY, exif=exif)
        photo.save(folder / f"{number:03}.less", "JPEG", quality=LESS_QUALITY, exif=exif)
    return sorted(folder.glob("*.jpg"))


def time_parts(path: Path, image_size: int) -> list[float]:
    """Milliseconds of each of PARTS."""
    times = [time.thread_time()]
    with path.open("rb") as stream, Image.open(stream) as image:
        whole = image.size
        times.append(time.thread_time())
        image_limits.prepare(image, stream, image_size)
        times.append(time.thread_time())
        image.load()
        times.append(time.thread_time())
        to_square(image, image_size, whole)
        times.append(time.thread_time())
    return [1000 * (after - before) for before, after in pairwise(times)]


def rate(images: StreamedImages, seconds: float) -> float:
    """Photos that are decoded in a second."""
    images.take(torch.arange(min(len(images), 8 * images.workers.count)))  # all workers have started
    done, started, spent = 0, time.perf_counter(), 0.0
    while spent < seconds:
        images.take(torch.arange(len(images)))
        done, spent = done + len(images), time.perf_counter() - started
    return done / spent


def streamed(paths: list[Path], image_size: int, workers: Workers) -> StreamedImages:
    """The photos several times over: a chunk should not end as soon as it begins."""
    files = [paths[number % len(paths)] for number in range(64)]
    return StreamedImages(Files(files, image_size), torch.arange(64), torch.zeros(64, dtype=torch.int64), workers)


def features_of(pixels: np.ndarray[Any, Any], extractor: Extractor) -> torch.Tensor:
    net = prepared(extractor.net, torch.device("cpu"), torch.float32)
    scale = (torch.tensor(extractor.mean), torch.tensor(extractor.std))
    with torch.inference_mode():
        return net(normalize(torch.from_numpy(pixels), *scale))


def at_least(left: int, paths: list[Path], image_size: int) -> tuple[np.ndarray[Any, Any], float]:
    """The pixels of photos if so many times the side are left, and milliseconds for each."""
    usual, image_limits.LEFT_TO_SCALE = image_limits.LEFT_TO_SCALE, left
    try:
        pixels, times = [], []
        for path in paths:
            started = time.thread_time()
            pixels.append(decode(path, image_size))
            times.append(1000 * (time.thread_time() - started))
    finally:
        image_limits.LEFT_TO_SCALE = usual
    return np.stack(pixels), median(times)


def compare_coarse(paths: list[Path], image_size: int, extractor: Extractor) -> dict[str, dict[str, float]]:
    """Time and distance to the whole photo, by how much is left to scale."""
    whole, ms = at_least(WHOLE, paths, image_size)
    known = features_of(whole, extractor)
    found = {"whole": {"ms": ms}}
    ways = {f"{left} x": (left, paths) for left in (4, 3, 2, 1)}
    ways[f"q{LESS_QUALITY}"] = (WHOLE, [path.with_suffix(".less") for path in paths])
    for name, (left, files) in ways.items():
        pixels, ms = at_least(left, files, image_size)
        away = np.abs(pixels.astype(np.int16) - whole)
        cosine = torch.cosine_similarity(features_of(pixels, extractor), known)
        found[name] = {"ms": ms, "mean": float(away.mean()), "99.9 %": float(np.quantile(away, 0.999))}
        found[name] |= {"largest": int(away.max()), "cosine": cosine.mean().item(), "least cosine": cosine.min().item()}
    return found


def embedded_rate(paths: list[Path], image_size: int, extractor: Extractor, count: int) -> float:
    """Photos a second from their files to features."""
    copies = [paths[number % len(paths)] for number in range(count)]
    images = StreamedImages.all_of(Different(Files(copies, image_size)), torch.zeros(count, dtype=torch.int64))
    try:
        started = time.perf_counter()
        drained(embed(images, extractor, torch.device("cpu")))
        return count / (time.perf_counter() - started)
    finally:
        images.workers.close()


class Different:
    """Rows of files, decoded by threads, of which every one shows something else: equal images are embedded once."""

    def __init__(self, files: Files) -> None:
        self.files, self.shape = files, files.shape

    def read(self, position: int) -> torch.Tensor:
        pixels = self.files.read(position).contiguous()
        pixels.view(-1)[:8] = torch.tensor([position]).view(torch.uint8)
        return pixels


def measure(options: argparse.Namespace, home: Path, found: dict[str, Any], tell: Tell) -> None:
    """Fill `found`, stage by stage, and tell about every figure."""
    like = [] if options.like is None else [Path(file) for file in find_images(options.like).files]  # type: ignore[arg-type]
    stages = options.only or STAGES
    paths = {}
    for name in options.megapixels:
        paths[name] = make_photos(home / name, SIZES[name], options.photos, like)
        size = median(path.stat().st_size for path in paths[name])
        tell(f"photos    {options.photos} of {name} megapixels, {size / 1e6:.2g} MB each")
    extractor = make_extractor() if {"coarse", "embed"} & set(stages) else None
    for name, files in paths.items():
        for side in options.image_size:
            place = found["figures"].setdefault(f"{name} megapixels to {side} pixels", {})
            title = f"{name:>4} MP to {side:>3}"
            if "parts" in stages:
                rounds = [time_parts(path, side) for _ in range(options.rounds) for path in files]
                place["parts"] = dict(zip(PARTS, map(median, zip(*rounds, strict=True)), strict=True))
                parts = ", ".join(f"{part} {ms:.2g}" for part, ms in place["parts"].items())
                tell(f"parts     {title}: {parts}; together {sum(place['parts'].values()):.3g} ms")
            if "workers" in stages:
                place["a second"] = {}
                for workers, processes in ((1, False), (default_workers(), False), (default_workers(), True)):
                    images = streamed(files, side, Workers(workers, processes=processes))
                    kind = f"{workers} {'processes' if processes else 'threads' if workers > 1 else 'thread'}"
                    place["a second"][kind] = rate(images, options.seconds)
                    images.workers.close()
                rates = ", ".join(f"{value:.3g} by {kind}" for kind, value in place["a second"].items())
                tell(f"workers   {title}: {rates} a second")
            if "coarse" in stages:
                assert extractor is not None
                place["coarse"] = compare_coarse(files, side, extractor)
                for way, values in place["coarse"].items():
                    numbers = ", ".join(f"{key} {value:.5g}" for key, value in values.items())
                    tell(f"coarse    {title}, {way:<5}: {numbers}")
            if "embed" in stages and side == max(options.image_size):
                assert extractor is not None
                count = options.embedded
                place["embedded"] = [embedded_rate(files, side, extractor, count) for _ in range(options.rounds)]
                tell(f"embed     {title}: {median(place['embedded']):.3g} photos a second")


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megapixels", nargs="+", choices=SIZES, default=list(SIZES))
    parser.add_argument("--image-size", nargs="+", type=int, default=[224, 32])
    parser.add_argument("--photos", type=int, default=8, help="of every size (default 8)")
    parser.add_argument("--embedded", type=int, default=128, help="photos that are embedded (default 128)")
    parser.add_argument("--seconds", type=float, default=4.0, help="for every kind of workers (default 4)")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--like", type=Path, help="a folder of images of which the photos are mosaics")
    parser.add_argument("--only", action="append", choices=STAGES, help="this stage; may be given several times")
    parser.add_argument("--out", type=Path, help="JSON file")
    options = parser.parse_args(arguments)
    os.environ["EPASS_CACHE"] = "off"
    command = shlex.join(["python", "benchmarks/decoding.py", *(arguments or sys.argv[1:])])
    found: dict[str, Any] = {"environment": environment(0, command, "cpu") | machine(torch.device("cpu"))}
    found["figures"] = {}

    def tell(line: str) -> None:
        print(line, flush=True)
        if options.out is not None:
            options.out.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")

    facts = found["environment"]
    commit = str(facts.get("commit"))[:12]
    tell(f"machine   {facts['device_name']}, {facts['cpu_count']} cores, torch {facts['torch']}, commit {commit}")
    with tempfile.TemporaryDirectory(prefix="epass-decoding-") as home:
        measure(options, Path(home), found, tell)
    return 0


if __name__ == "__main__":
    sys.exit(main())
