"""Training from image files that are decoded on the way, against training from images on the device, in one run.

The images are JPEG files like those of ImageNet: 500 x 375 pixels, quality 90, about 110 kB. They are made first. Then

    decode      how many of them all cores decode in a second, with nothing else to do
    resident    milliseconds of a step whose images lie on the device, decoded
    streamed    the same step, whose images come from their files, decoded by the CPU
    device      the same step, whose images come from their files, decoded by the GPU; before it, how many of them are
                read, decoded, decoded and scaled, and all of it side by side in a second, with nothing else to do
    cached      the same step, whose images come from the cache on disk, decoded

    python benchmarks/streaming.py --out streaming.json
    python benchmarks/streaming.py --only decode --images 1024

Every figure is printed, and the JSON file written, as soon as it is there. The files have just been written, so they
are read from the memory of the system: what is measured is decoding, not a disk.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, nullcontext
from itertools import count
from pathlib import Path
from statistics import mean, median
from typing import Any

import numpy as np
import torch
from PIL import Image

from epass.data import open_dataset
from epass.data.read.jpeg_header import read_encoded
from epass.data.stream.device_jpeg import DeviceDecoder, find_decoder
from epass.data.stream.disk import FILES_TOGETHER, Files, StreamedImages, Workers, default_workers
from epass.engine.build import Experiment, build, check_recipe
from epass.engine.timing import machine, time_steps, whole_step
from epass.errors import InputError
from epass.machine.device import choose_device
from epass.recipe import Recipe
from epass.runs import environment

STAGES = ("decode", "resident", "streamed", "device", "cached")
WIDTH, HEIGHT, QUALITY = 500, 375, 90
GRAIN = 18.0  # standard deviation of the noise: it makes the files as large as photos
TOGETHER = 256  # files that a device is given at a time, alone


def make_photos(folder: Path, images: int, classes: int) -> int:
    """Write `images` JPEG files, as many of every class; bytes of an average one."""
    noise = np.random.default_rng(0).normal(0, GRAIN, (2 * HEIGHT, 2 * WIDTH, 1)).astype(np.float32)

    def write(number: int) -> int:
        random = np.random.default_rng(number)
        coarse = Image.fromarray(random.integers(0, 256, (12, 16, 3), dtype=np.uint8))
        top, left = random.integers(0, HEIGHT), random.integers(0, WIDTH)
        grain = noise[top : top + HEIGHT, left : left + WIDTH]
        pixels = np.asarray(coarse.resize((WIDTH, HEIGHT), Image.Resampling.BICUBIC)) + grain
        path = folder / f"class{number % classes:03}" / f"{number:06}.jpg"
        Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(path, quality=QUALITY)
        return path.stat().st_size

    for number in range(classes):
        (folder / f"class{number:03}").mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(default_workers()) as pool:
        return round(mean(pool.map(write, range(images))))


def decode_rates(folder: Path, image_size: int, seconds: float) -> dict[str, float]:
    """Images a second by the number of threads, one, half of them and all, and by as many processes."""
    paths, most = sorted(folder.rglob("*.jpg")), default_workers()
    rates = {}
    kinds = [*((count, False) for count in sorted({1, max(1, most // 2), most})), (most, True)]
    for workers, processes in kinds:
        rows, labels = Files(paths, image_size), torch.zeros(len(paths), dtype=torch.int64)
        images = StreamedImages(rows, torch.arange(len(paths)), labels, Workers(workers, processes=processes))
        images.take(torch.arange(8 * workers) % len(paths))  # all of them have started
        done, started, spent = 0, time.perf_counter(), 0.0
        while spent < seconds:
            for chunk in images.chunks(256):
                done, spent = done + len(chunk), time.perf_counter() - started
                if spent >= seconds:
                    break
        kind = "process" if processes else "thread"
        rates[f"{workers} {kind}{'es' if processes else 's'}" if workers > 1 else f"1 {kind}"] = done / spent
        images.workers.close()
    return rates


@contextmanager
def busy(device: torch.device) -> Iterator[None]:
    """Let the device multiply matrices meanwhile, as much at a time as a step takes, and one step ahead of it."""
    over = threading.Event()

    def multiply() -> None:
        with torch.cuda.stream(torch.cuda.Stream(device)):  # type: ignore[no-untyped-call]
            factor = torch.randn(8192, 8192, device=device).bfloat16()
            marks: list[torch.cuda.Event] = []
            while not over.is_set():
                for _ in range(40):  # some 57 ms of an H200
                    factor @ factor
                marks.append(torch.cuda.Event(blocking=True))  # type: ignore[no-untyped-call]
                marks[-1].record()
                if len(marks) > 1:
                    marks.pop(0).synchronize()

    thread = threading.Thread(target=multiply)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def device_rates(folder: Path, image_size: int, seconds: float, decoder: DeviceDecoder) -> dict[str, float]:
    """Images a second: of files read, decoded by the device, decoded and scaled, and of all of it side by side.

    The last three also while the device has something else to do.
    """
    device = decoder.device
    paths = sorted(folder.rglob("*.jpg"))
    some = [read for path in paths[:TOGETHER] if (read := read_encoded(path)) is not None]
    data = [torch.from_numpy(image.data) for image in some]
    rows, labels = Files(paths, image_size), torch.zeros(len(paths), dtype=torch.int64, device=device)
    rows.device = decoder
    images = StreamedImages.all_of(rows, labels)

    def decode() -> Iterator[int]:
        while True:
            decoder.decode(data)
            yield len(data)

    def scale() -> Iterator[int]:
        while True:
            with decoder.at_work():
                decoder.squares(some, image_size)
            yield len(some)

    def all_of_it() -> Iterator[int]:
        while True:
            yield from map(len, images.chunks(TOGETHER))

    def read() -> Iterator[int]:
        pixels = memoryview(bytearray(3 * image_size**2))  # of no file: all are for the device
        places = [(number, number) for number in range(len(some))]
        jobs = [places[start : start + FILES_TOGETHER] for start in range(0, len(places), FILES_TOGETHER)]
        while True:
            begun = [images.workers.submit(rows, job, lambda _: pixels) for job in jobs]
            yield sum(len(future.result()) for future in begun)

    rates = {}
    stages = {"read": read, "decoded": decode, "scaled": scale, "all": all_of_it}
    cuda = device.type == "cuda"  # else another decoder stands in
    beside = {f"{name}, beside other work": work for name, work in stages.items() if cuda and name != "read"}
    for name, work in (stages | beside).items():
        with busy(device) if name in beside else nullcontext(), closing(work()) as turns:
            next(turns)  # what happens only once is over
            done, started, spent = 0, time.perf_counter(), 0.0
            while spent < seconds:
                done, spent = done + next(turns), time.perf_counter() - started
            rates[name] = done / spent
    images.workers.close()
    return rates


@contextmanager
def cache_in(folder: str) -> Iterator[None]:
    """Let decoded images be kept in `folder`, or nowhere if it is "off"."""
    before = os.environ.get("EPASS_CACHE")
    os.environ["EPASS_CACHE"] = folder
    try:
        yield
    finally:
        os.environ.pop("EPASS_CACHE")
        if before is not None:
            os.environ["EPASS_CACHE"] = before


def prepare(options: argparse.Namespace, folder: Path, stage: str) -> Experiment:
    """The objects of a run whose images come from where `stage` says."""
    recipe = make_recipe(options, folder)
    if stage == "cached":
        with cache_in(str(folder.parent / "cache")):
            open_dataset(str(folder), image_size=options.image_size)  # fills the cache
            return build(recipe.with_settings({"data.streaming": True}), choose_device(options.device))
    how = {"streamed": {"streaming": True, "decoder": "cpu"}, "device": {"streaming": True, "decoder": "device"}}
    settings = {f"data.{key}": value for key, value in how.get(stage, {}).items()}
    with cache_in("off"):
        return build(recipe.with_settings(settings), choose_device(options.device))


def make_recipe(options: argparse.Namespace, folder: Path) -> Recipe:
    each = max(1, options.images // options.classes // 2)
    return Recipe(
        source="benchmarks/streaming.py",
        data={"name": str(folder), "labels": each * options.classes, "image_size": options.image_size},
        net={"name": options.net},
        method={"name": options.method},
        projector={"size": options.projectors} if options.projectors else None,
        plan={
            "steps": 2**20,
            "labeled_batch": options.batch,
            "unlabeled_ratio": options.ratio,
            "compile": options.compile,
        },
    )


def turn(work: Callable[[int], object], device: torch.device, numbers: Iterator[int], steps: int) -> float:
    """Mean milliseconds of `steps` steps, after a few that fill what is read ahead; the next turn goes on there."""

    def next_step(_: int) -> None:
        work(next(numbers))

    time_steps(next_step, device, 5)
    return mean(time_steps(next_step, device, steps))


def conclude(found: dict[str, Any]) -> str:
    """What the figures say, in a sentence or two."""
    step_ms, rates, read = found["step_ms"], found["decoded_per_second"], found["images_read_per_step"]
    if "resident" not in step_ms:
        return "Without the resident stage there is nothing to compare with."
    needed = 1000 * read / step_ms["resident"]
    sentences = []
    names = {"streamed": "streamed images", "device": "images that the device decodes", "cached": "cached images"}
    for stage, name in names.items():
        if stage in step_ms:
            share = step_ms["resident"] / step_ms[stage]
            sentences.append(f"Steps with {name} reach {share:.0%} of the rate of resident ones.")
    if rates:
        best = max(rates.values())
        verdict = (
            "decoding is not the limit" if best >= needed else f"decoding limits steps to {best / needed:.0%} of it"
        )
        sentences.append(f"That rate takes {needed:,.0f} images a second; decoding alone gives {best:,.0f}: {verdict}.")
    return " ".join(sentences)


def measure(options: argparse.Namespace, folder: Path, found: dict[str, Any], tell: Callable[[str], None]) -> None:
    """Fill `found`, stage by stage, and tell about every figure."""
    stages = [stage for stage in STAGES if stage in (options.only or STAGES)]
    if "decode" in stages and options.decode_seconds:
        found["decoded_per_second"] = decode_rates(folder, options.image_size, options.decode_seconds)
        for workers, rate in found["decoded_per_second"].items():
            tell(f"decode      {rate:,.0f} images a second by {workers}")
    if "device" in stages:
        decoder = find_decoder(choose_device(options.device))
        if isinstance(decoder, DeviceDecoder):
            seconds = options.decode_seconds
            found["device_per_second"] = device_rates(folder, options.image_size, seconds, decoder) if seconds else {}
            for work, rate in found["device_per_second"].items():
                tell(f"device      {rate:,.0f} images a second: {work}")
        elif options.only:
            raise InputError(f"JPEG files cannot be decoded on this device ({decoder}).")
        else:
            stages.remove("device")
            tell(f"device      left out: {decoder}")
    seen = {stage: list[float]() for stage in stages if stage != "decode"}
    numbers = {stage: count() for stage in seen}
    works: dict[str, tuple[Callable[[int], object], Experiment]] = {}

    def time_one(stage: str) -> None:
        work, experiment = works[stage]
        seen[stage].append(turn(work, experiment.device, numbers[stage], options.steps))
        found["turns_ms"], found["step_ms"] = seen, {name: median(ms) for name, ms in seen.items() if ms}
        tell(f"{stage:<12}{seen[stage][-1]:.4g} ms a step, {options.steps} steps")

    try:
        for stage in seen:
            started = time.perf_counter()
            tell(f"{stage:<12}opening the files and building the network")
            experiment = prepare(options, folder, stage)
            tell(f"{stage:<12}built after {time.perf_counter() - started:.0f} s, making the step ready")
            works[stage] = whole_step(experiment), experiment
            tell(f"{stage:<12}ready after {time.perf_counter() - started:.0f} s")
            time_one(stage)
        for _ in range(1, options.rounds):
            for stage in seen:
                time_one(stage)
    finally:
        for _, experiment in works.values():
            experiment.feed.close()


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=4096, help="how many files to make (default 4096)")
    parser.add_argument("--classes", type=int, default=16)
    parser.add_argument("--method", default="simmatch")
    parser.add_argument("--projectors", type=int, default=3, help="0 for a method without them")
    parser.add_argument("--net", default="resnet-50")
    parser.add_argument("--image-size", type=int, default=224)
    parser.add_argument("--batch", type=int, default=128, help="labeled images of a step (default 128)")
    parser.add_argument("--ratio", type=int, default=1, help="unlabeled images for each of them (default 1)")
    parser.add_argument("--steps", type=int, default=60, help="timed steps of every turn (default 60)")
    parser.add_argument("--rounds", type=int, default=3, help="turns of every stage (default 3)")
    parser.add_argument("--compile", choices=("auto", "on", "off"), default="auto")
    parser.add_argument("--decode-seconds", type=float, default=5.0, help="for every rate (default 5); 0 for none")
    parser.add_argument("--only", action="append", choices=STAGES, help="this stage; may be given several times")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--folder", type=Path, help="where to make the files; they are kept there and used again")
    parser.add_argument("--out", type=Path, help="JSON file")
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> int:
    """Measure, print, write."""
    options = parse(arguments)
    temporary = tempfile.mkdtemp(prefix="epass-streaming-") if options.folder is None else None
    home = Path(temporary) if temporary else options.folder
    folder = home / f"photos-{options.images}-{options.classes}"
    try:
        if min(options.steps, options.rounds, options.images, options.batch) < 1:
            raise InputError("At least one step of one round with one image must be timed.")
        device = choose_device(options.device)
        check_recipe(make_recipe(options, folder))
        command = shlex.join(["python", "benchmarks/streaming.py", *(arguments or sys.argv[1:])])
        found: dict[str, Any] = {
            "arguments": {
                key: str(value) if isinstance(value, Path) else value for key, value in vars(options).items()
            },
            "environment": environment(0, command, str(device)) | machine(device),
            "workers": default_workers(),
            "images_read_per_step": options.batch * (1 + options.ratio),
            "decoded_per_second": {},
            "step_ms": {},
        }

        def tell(line: str) -> None:
            print(line, flush=True)
            found["conclusion"] = conclude(found)
            if options.out is not None:
                options.out.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")

        facts = found["environment"]
        tell(f"machine     {facts['device_name']}, {facts['cpu_count']} cores, torch {facts['torch']}")
        if not folder.exists():
            started = time.perf_counter()
            found["bytes_per_image"] = make_photos(folder, options.images, options.classes)
            spent = time.perf_counter() - started
            tell(f"files       {options.images:,} of {found['bytes_per_image'] / 1000:.0f} kB, made in {spent:.0f} s")
        measure(options, folder, found, tell)
        tell(f"conclusion  {conclude(found)}")
    except InputError as problem:
        print(f"Error: {problem}", file=sys.stderr)
        return 2
    finally:
        if temporary:
            shutil.rmtree(temporary)
    return 0


if __name__ == "__main__":
    sys.exit(main())
