"""The kernels compiled for GPUs that are not here, by the compiler that Triton brings along."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import epass

pytest.importorskip("triton")
# Of a block, in bytes, by the CUDA programming guide.
SHARED_MEMORY = {80: 163 * 1024, 86: 99 * 1024, 90: 227 * 1024}
SCRIPT = """
import sys
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from epass.networks import kernels

FLOATS = {"weight", "bias", "pictures", "sums", "scale_and_shift"}
POINTERS = FLOATS | {"maps", "out", "add", "before", "gradient"}


def shared_memory(name, warps, **settings):
    kernel = getattr(kernels, name)
    sums = FLOATS | ({"out"} if name.endswith("weight_sums") else set())
    kinds = {}
    for argument in kernel.arg_names:
        pointer = "*fp32" if argument in sums else "*bf16"
        kinds[argument] = "constexpr" if argument in settings else pointer if argument in POINTERS else "i32"
    aligned = {(at,): [["tt.divisibility", 16]] for at, kind in enumerate(kinds.values()) if kind.startswith("*")}
    source = ASTSource(fn=kernel, signature=kinds, constexprs=settings, attrs=aligned)
    target = GPUTarget("cuda", int(sys.argv[1]), 32)
    print(triton.compile(source, target=target, options={"num_warps": warps}).metadata.shared)


size = {"HEIGHT": 32, "WIDTH": 32}
for inputs, outputs, adds, backward in [(32, 32, 0, 0), (16, 32, 0, 0), (32, 16, 0, 0), (32, 32, 1, 0), (32, 32, 0, 1)]:
    plain = not (adds or backward)
    how = {"IMAGES": 4 if plain else 2, "FOLDS": plain, "ADDS": bool(adds), "BACKWARD": bool(backward)}
    layer = {"INPUTS": inputs, "OUTPUTS": outputs, "SLOPE": 0.1, "STAGES": 3}
    shared_memory("convolve_rows", 8 if plain else 2, **size, **how, **layer)
shared_memory("weight_sums", 4, **size, INPUTS=32, OUTPUTS=32, PIXELS=64, TILES=2, STAGES=3)
shared_memory("convolve_pictures", 2, **size, CHANNELS=3, OUTPUTS=16, PIXELS=128, TILES=8)
shared_memory("picture_weight_sums", 4, **size, CHANNELS=3, OUTPUTS=16, PIXELS=256, TILES=8)
"""


@pytest.mark.slow
@pytest.mark.parametrize("capability", SHARED_MEMORY)
def test_they_compile_and_find_room(capability: int, tmp_path: Path) -> None:
    source = tmp_path / "compile.py"  # Triton reads the source of what it compiles
    source.write_text(SCRIPT)
    environment = {**os.environ, "TRITON_CACHE_DIR": str(tmp_path), "PYTHONPATH": str(Path(epass.__file__).parents[1])}
    environment.pop("TRITON_INTERPRET", None)
    done = subprocess.run(
        [sys.executable, str(source), str(capability)], capture_output=True, text=True, env=environment, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    sizes = [int(line) for line in done.stdout.split()]
    assert len(sizes) == 8
    assert max(sizes) <= SHARED_MEMORY[capability]
