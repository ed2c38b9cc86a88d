"""How much of the time of `epass predict` is not decoding and computing: the command beside a bare loop.

    python benchmarks/predicting.py RUN PHOTOS [--images 500] [--repeats 3]

The bare loop decodes the same files with as many threads and runs the network of the run on batches of 32: no table, no
calibration, no "none of these", no care for damaged files. Both load the model and end with the class of every image.
Give an exported folder as well (--exported) to time ONNX Runtime.
"""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import torch

from epass.app.predict import predict
from epass.augment import normalize
from epass.data import find_images
from epass.data.read.decode import decode
from epass.engine.models import load_model

BATCH = 32


def bare_loop(run: Path, files: list[Path]) -> list[int]:
    net, model = load_model(run)
    mean, std = torch.tensor(model["mean"]), torch.tensor(model["std"])
    numbers: list[int] = []
    with ThreadPoolExecutor(os.cpu_count()) as pool, torch.no_grad():
        images = pool.map(lambda path: decode(path, model["height"]), files)
        for start in range(0, len(files), BATCH):
            batch = np.stack([next(images) for _ in files[start : start + BATCH]])
            numbers += net(normalize(torch.from_numpy(batch), mean, std)).logits.softmax(1).argmax(1).tolist()
    return numbers


def command(model: Path, folder: Path) -> None:
    result = predict(model, folder, out=folder.with_name("predictions.csv"), device="cpu").result()
    assert not result.partial


def timed(function, *arguments) -> float:  # type: ignore[no-untyped-def]
    started = time.perf_counter()
    function(*arguments)
    return time.perf_counter() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("photos", type=Path)
    parser.add_argument("--exported", type=Path)
    parser.add_argument("--images", type=int, default=500)
    parser.add_argument("--repeats", type=int, default=3)
    asked = parser.parse_args()
    found = [Path(file) for file in find_images(asked.photos).files if isinstance(file, Path)][: asked.images]
    with tempfile.TemporaryDirectory() as home:
        folder = Path(home) / "photos"
        folder.mkdir()
        files = [folder / f"{number:05d}{path.suffix}" for number, path in enumerate(found)]
        for path, copy in zip(found, files, strict=True):
            shutil.copyfile(path, copy)
        bare_loop(asked.run, files[:BATCH])  # files and libraries are read once
        seconds: dict[str, list[float]] = {}
        for _ in range(asked.repeats):
            seconds.setdefault("bare loop", []).append(timed(bare_loop, asked.run, files))
            seconds.setdefault("epass predict", []).append(timed(command, asked.run, folder))
            if asked.exported:
                seconds.setdefault("epass predict, exported", []).append(timed(command, asked.exported, folder))
    best = min(seconds["bare loop"])
    print(f"{len(files)} images, {os.cpu_count()} cores, {asked.repeats} repeats, best")
    for name, times in seconds.items():
        print(f"{name:<24} {min(times):6.2f} s {len(files) / min(times):6.0f} images/s {best / min(times):6.0%}")


if __name__ == "__main__":
    main()
