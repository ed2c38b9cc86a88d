"""Time collectives and JPEG decoding on this machine, and test the model of benchmarks/scaling.py by them."""

from __future__ import annotations

import io
import json
import os
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple
from warnings import simplefilter

import numpy as np
import torch
import torch.distributed as dist
from scaling_model import Link, ring_all_gather, ring_all_reduce
from torch.multiprocessing.spawn import spawn

from epass.data.read.decode import Packed, decode

MODELS = {"all-reduce": ring_all_reduce, "all-gather": ring_all_gather}
SIZES = tuple(1 << power for power in range(10, 26))  # 1 KiB to 32 MiB
REPEATS = 40


class Timing(NamedTuple):
    """The best of several calls: what else runs on the machine only adds to it."""

    collective: str
    size: int  # bytes of every rank
    seconds: float


def measure(
    ranks: int = 2, sizes: Sequence[int] = SIZES, repeats: int = REPEATS, backend: str = "gloo"
) -> list[Timing]:
    """Times of both collectives for each size, between that many processes of this machine."""
    with TemporaryDirectory() as folder:
        spawn(_time_collectives, (ranks, folder, tuple(sizes), repeats, backend), nprocs=ranks)  # type: ignore[no-untyped-call]
        return [Timing(*row) for row in json.loads((Path(folder) / "times").read_text())]


def _time_collectives(rank: int, ranks: int, folder: str, sizes: tuple[int, ...], repeats: int, backend: str) -> None:
    torch.set_num_threads(1)
    simplefilter("ignore", FutureWarning)
    device = torch.device("cuda", rank) if backend == "nccl" else torch.device("cpu")
    if device.type == "cuda":
        torch.cuda.set_device(device)
    dist.init_process_group(
        backend, init_method=f"file://{folder}/meeting", rank=rank, world_size=ranks, timeout=timedelta(seconds=120)
    )
    rows = []
    for size in sizes:
        own = torch.ones(size // 4, device=device)
        everyone = torch.empty(ranks * len(own), device=device)
        calls: dict[str, Callable[[], Any]] = {
            "all-reduce": partial(dist.all_reduce, own),
            "all-gather": partial(dist.all_gather_into_tensor, everyone, own),
        }
        for name, call in calls.items():
            spent = []
            for _ in range(repeats + 3):  # the first ones connect and allocate
                own.fill_(1)
                dist.barrier()
                started = time.perf_counter()
                call()
                if device.type == "cuda":
                    torch.cuda.synchronize()
                spent.append(time.perf_counter() - started)
            rows.append(Timing(name, size, min(spent[3:])))
    if rank == 0:
        (Path(folder) / "times").write_text(json.dumps(rows))
    dist.barrier()
    os._exit(0)  # as in epass.testing.replicas: taking gloo down in good order sometimes aborts a process


def fit(timings: Sequence[Timing], ranks: int) -> Link:
    """Latency and bandwidth that make the model of one collective fit its times best, relative to each."""
    model = MODELS[timings[0].collective]
    seconds = np.array([row.seconds for row in timings])
    # The model is linear in latency and 1 / bandwidth, so its value for one of them alone is the factor of that one.
    per_latency = np.array([model(0, ranks, Link(1.0, 1.0)) for _ in timings])
    per_byte = np.array([model(row.size, ranks, Link(0.0, 1.0)) for row in timings])
    (latency, slowness), *_ = np.linalg.lstsq(
        np.stack([per_latency, per_byte], 1) / seconds[:, None], np.ones(len(seconds))
    )
    return Link(max(0.0, float(latency)), 1 / float(slowness))


def errors(timings: Sequence[Timing], ranks: int) -> dict[str, tuple[Link, list[tuple[Timing, float]]]]:
    """Each collective fitted on every second size, and how it predicts the others: predicted / measured - 1."""
    found = {}
    for name, model in MODELS.items():
        own = [row for row in timings if row.collective == name]
        link = fit(own[::2], ranks)
        found[name] = link, [(row, model(row.size, ranks, link) / row.seconds - 1) for row in own[1::2]]
    return found


def synthetic_jpeg(quality: int = 95) -> Packed:
    """500 x 375 pixels with coarse colors and some grain; at quality 95 as large as a file of ImageNet."""
    from PIL import Image

    generator = np.random.default_rng(0)
    coarse = Image.fromarray(generator.integers(0, 256, (12, 16, 3), dtype=np.uint8))
    pixels = np.asarray(coarse.resize((500, 375), Image.Resampling.BICUBIC)) + generator.normal(0, 12, (375, 500, 3))
    stream = io.BytesIO()
    Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(stream, "JPEG", quality=quality)
    return Packed("synthetic.jpg", stream.getvalue())


def decode_rate(quality: int = 95, images: int = 60, repeats: int = 5) -> float:
    """Images per second of one thread, to 224 x 224."""
    photo, rates = synthetic_jpeg(quality), []
    for _ in range(repeats + 1):
        started = time.perf_counter()
        for _ in range(images):
            decode(photo, 224)
        rates.append(images / (time.perf_counter() - started))
    return median(rates[1:])


def report() -> str:
    """What this machine does, and how far the model is off."""
    ranks, backend = (torch.cuda.device_count(), "nccl") if torch.cuda.device_count() > 1 else (2, "gloo")
    lines = []
    for name, (link, predicted) in errors(measure(ranks, backend=backend), ranks).items():
        lines.append(
            f"{name} of {ranks} processes, {backend}: {1e6 * link.latency:.1f} µs and {link.bandwidth / 1e9:.2f} GB/s "
            "per message, fitted on every second size; the others:"
        )
        lines += [
            f"  {row.size:>11,} bytes  {1e6 * row.seconds:10.1f} µs measured  {100 * off:+6.1f} % predicted"
            for row, off in predicted
        ]
        distances = [abs(off) for _, off in predicted]
        lines.append(f"  median error {100 * median(distances):.0f} %, largest {100 * max(distances):.0f} %")
    for quality in (75, 95):
        size = len(synthetic_jpeg(quality).data)
        lines.append(f"decoding quality {quality}, {size:,} bytes: {decode_rate(quality):.0f} images/s on one core")
    return "\n".join(lines)
