"""Embedding images against the bare network that makes their features, in one run.

The images are noise, which costs a network as much as photos do. Then, in turns,

    bare        views a second that the network takes, from tensors that are ready
    embedded    views a second through `epass embed` without a cache: keys, views, network, half precision

for the plain view, in float32, and for weak and strong views, in what is quickest here. With `--files`, also

    files       photos a second, plain view, streamed from so many JPEG files of 500 x 375 pixels that are made first:
                decoded by the CPU and, where there is a GPU that decodes them, by that

    python benchmarks/embedding.py --out embedding.json
    python benchmarks/embedding.py --files 4096 --rounds 2 --out embedding.json
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import sys
import time
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import torch
from streaming import make_photos

from epass.data import Images, StreamedImages
from epass.data.stream.device_jpeg import Decoder, DeviceDecoder, find_decoder
from epass.data.stream.disk import Files
from epass.engine.timing import machine
from epass.features import drained, embed, make_extractor
from epass.features.embed import TOGETHER, Extractor
from epass.machine.device import choose_device, features_precision
from epass.networks.prepared import prepared
from epass.runs import environment


def bare(net: torch.nn.Module, batch: torch.Tensor, seconds: float) -> float:
    """Views a second."""
    with torch.inference_mode():
        net(batch)
        began, views = time.perf_counter(), 0
        while time.perf_counter() - began < seconds:
            net(batch).cpu()
            views += len(batch)
    return views / (time.perf_counter() - began)


def from_files(paths: list[Path], extractor: Extractor, size: int, device: torch.device, decoder: Decoder) -> float:
    """Photos a second."""
    images = StreamedImages.all_of(Files(paths, size, decoder), torch.zeros(len(paths), dtype=torch.int64))
    began = time.perf_counter()
    drained(embed(images, extractor, device))
    spent = time.perf_counter() - began
    images.workers.close()
    return len(paths) / spent


def time_files(
    count: int, rounds: int, extractor: Extractor, size: int, device: torch.device, bare: float
) -> dict[str, Any]:
    """The rates of either decoder, in turns, each with the start of its workers; a short first one warms up."""
    decoders: list[Decoder] = ["cpu", "device"] if isinstance(find_decoder(device), DeviceDecoder) else ["cpu"]
    rates: dict[str, list[float]] = {decoder: [] for decoder in decoders}
    with TemporaryDirectory(prefix="epass-embedding-") as home:
        make_photos(Path(home), count, 1)
        paths = sorted(Path(home).rglob("*.jpg"))
        for turn in range(rounds + 1):
            for decoder in decoders:
                rate = from_files(paths if turn else paths[:512], extractor, size, device, decoder)
                rates[decoder] += [rate] if turn else []
    for decoder in decoders:
        rate = median(rates[decoder])
        print(
            f"files     {rate:.0f} a second, decoded by the {decoder}: {rate / bare:.0%} of the bare network",
            flush=True,
        )
    return rates


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--net", default="efficientnet-lite0")
    parser.add_argument("--image-size", type=int, default=224)
    parser.add_argument("--images", type=int, default=256)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--files", type=int, default=0, help="how many JPEG files to make and embed (default 0)")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args(arguments)
    os.environ["EPASS_CACHE"] = "off"
    device, extractor = choose_device(options.device), make_extractor(net=options.net)
    shape = (options.images, 3, options.image_size, options.image_size)
    pixels = torch.randint(0, 256, shape, dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    images = Images(pixels, torch.zeros(options.images, dtype=torch.int64))
    command = shlex.join(["python", "benchmarks/embedding.py", *(arguments or sys.argv[1:])])
    found: dict[str, Any] = {"environment": environment(0, command, str(device)) | machine(device)}
    facts = found["environment"]
    print(f"machine   {facts['device_name']}, {facts['cpu_count']} cores, torch {facts['torch']}", flush=True)
    for kind, views, precision in (("plain", 0, torch.float32), ("views", 2, features_precision(device))):
        batch = torch.rand(TOGETHER.get(device.type, 16), *shape[1:], device=device)
        batch = batch.to(precision).contiguous(memory_format=torch.channels_last)
        rates: dict[str, list[float]] = {"bare": [], "embedded": []}
        for _ in range(options.rounds):
            rates["bare"].append(bare(prepared(extractor.net, device, precision), batch, options.seconds))
            began = time.perf_counter()
            drained(embed(images, extractor, device, views=views))
            rates["embedded"].append(options.images * (2 * views or 1) / (time.perf_counter() - began))
        middle = {name: median(values) for name, values in rates.items()}
        share = middle["embedded"] / middle["bare"]
        found[kind] = {**rates, "share": share}
        name = str(precision).removeprefix("torch.")
        rate, reached = middle["bare"], middle["embedded"]
        print(
            f"{kind}     {rate:.0f} a second by the bare network in {name}, {reached:.0f} embedded: {share:.0%}",
            flush=True,
        )
        if kind == "plain" and options.files:
            size = options.image_size
            found["files"] = time_files(options.files, options.rounds, extractor, size, device, middle["bare"])
    if options.out is not None:
        options.out.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
