"""Our convolutions of few channels against the library's, layer by layer, on a CUDA device.

    python benchmarks/narrow.py [--images 960] [--size 32] [--repeats 20] [--out FILE.json]

Every time is the median of replays of a graph with six calls, over three sets of inputs in turn, which together are
larger than the cache. Ours hand out the sums of a normalization too, which the library's do not.
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from statistics import median

import torch
import torch.nn.functional as F
from torch import Tensor

from epass.engine.timing import machine, time_steps
from epass.machine.device import choose_device
from epass.networks.operators import convolve, convolve_pictures, picture_weight_sums, weight_sums
from epass.runs import environment
from epass.training.recording import Recorded

SETS, CALLS = 3, 6
Work = Callable[[int], object]  # given the number of a set of inputs


def microseconds(work: Work, device: torch.device, repeats: int) -> float:
    """Of one call."""

    def calls(_: tuple[()]) -> None:
        for number in range(CALLS):
            work(number % SETS)

    calls(())
    run = Recorded(calls, ()) if device.type == "cuda" else calls
    return 1000 * median(time_steps(lambda _: run(()), device, repeats)) / CALLS


def layers(images: int, size: int, device: torch.device) -> dict[str, tuple[Work, Work]]:
    """Name of a computation, the library's way and ours."""
    computations = [inner_layer(images, size, device, *channels) for channels in ((32, 32), (16, 32))]
    return {**computations[0], **computations[1], **first_layer(images, size, device)}


def inner_layer(
    images: int, size: int, device: torch.device, inputs: int, outputs: int
) -> dict[str, tuple[Work, Work]]:
    x, g = (random_maps(images, size, device, channels) for channels in (inputs, outputs))
    weight = torch.randn(outputs, inputs, 3, 3, device=device).to(memory_format=torch.channels_last)
    rounded = weight.to(x[0].dtype)
    name = f"{inputs} to {outputs} channels"
    return {
        f"{name}, forward": (lambda at: F.conv2d(x[at], rounded, padding=1), lambda at: convolve(x[at], weight)),
        f"{name}, gradient of the input": (
            lambda at: library_gradients(g[at], x[at], rounded, of_input=True),
            lambda at: convolve(g[at], weight, transposed=True),
        ),
        f"{name}, gradient of the weights": (
            lambda at: library_gradients(g[at], x[at], rounded, of_weight=True),
            lambda at: weight_sums(x[at], g[at]).sum(0),
        ),
    }


def first_layer(images: int, size: int, device: torch.device) -> dict[str, tuple[Work, Work]]:
    pictures = [torch.randn(images, 3, size, size, device=device) for _ in range(SETS)]
    g = random_maps(images, size, device, 16)
    weight, bias = torch.randn(16, 3, 3, 3, device=device), torch.randn(16, device=device)
    rounded, rounded_bias = (values.to(g[0].dtype) for values in (weight, bias))

    def ready(at: int) -> Tensor:
        return pictures[at].to(g[0].dtype, memory_format=torch.channels_last)

    return {
        "the first, forward": (
            lambda at: F.conv2d(ready(at), rounded, rounded_bias, padding=1),
            lambda at: convolve_pictures(pictures[at], weight, bias, g[0].dtype),
        ),
        "the first, gradients of weights and bias": (
            lambda at: library_gradients(g[at], ready(at), rounded, of_weight=True, of_bias=True),
            lambda at: picture_weight_sums(pictures[at], g[at]).sum(0),
        ),
    }


def random_maps(images: int, size: int, device: torch.device, channels: int) -> list[Tensor]:
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    shape = (images, size, size, channels)
    return [torch.randn(shape, device=device).to(dtype).permute(0, 3, 1, 2) for _ in range(SETS)]


def library_gradients(
    gradient: Tensor,
    x: Tensor,
    weight: Tensor,
    *,
    of_input: bool = False,
    of_weight: bool = False,
    of_bias: bool = False,
) -> object:
    geometry = ((1, 1), (1, 1), (1, 1), False, (0, 0), 1)
    biases = [len(weight)] if of_bias else None
    wanted = (of_input, of_weight, of_bias)
    return torch.ops.aten.convolution_backward(gradient, x, weight, biases, *geometry, wanted)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=960)
    parser.add_argument("--size", type=int, default=32, help="side in pixels: 8, 16, 32 or 64")
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--out", type=Path, help="a JSON file for every number")
    given = parser.parse_args(arguments)
    device = choose_device(given.device)
    torch.backends.cudnn.benchmark, torch.backends.cudnn.benchmark_limit = True, 0  # as a captured step has it
    facts = environment(0, shlex.join(["python", *sys.argv]), str(device)) | machine(device)
    print(f"{given.images} maps of {given.size} x {given.size} pixels on {facts['device_name']}")
    found = {}
    for name, ways in layers(given.images, given.size, device).items():
        theirs, own = found[name] = [microseconds(work, device, given.repeats) for work in ways]
        print(f"{name:42} library {theirs:8.1f} µs   ours {own:8.1f} µs", flush=True)
    if given.out is not None:
        given.out.write_text(json.dumps({"library_and_ours_us": found, "environment": facts}, indent=2) + "\n")


if __name__ == "__main__":
    main()
