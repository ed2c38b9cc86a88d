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
import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from epass.networks import kernels, operators, sum_kernels

KINDS = {torch.float32: "*fp32", torch.bfloat16: "*bf16", torch.int64: "*i64", int: "i32", float: "fp32"}


class Compiled:  # in the place of a kernel: is launched and compiles
    def __init__(self, kernel):
        self.kernel = kernel

    def __getitem__(self, grid):
        return self.launch

    def launch(self, *inputs, num_warps, **settings):
        kinds = [KINDS[value.dtype if isinstance(value, torch.Tensor) else type(value)] for value in inputs]
        aligned = {(at,): [["tt.divisibility", 16]] for at, kind in enumerate(kinds) if kind.startswith("*")}
        names = self.kernel.arg_names
        signature = dict(zip(names, kinds)) | dict.fromkeys(names[len(kinds) :], "constexpr")
        source = ASTSource(fn=self.kernel, signature=signature, constexprs=settings, attrs=aligned)
        target = GPUTarget("cuda", int(sys.argv[1]), 32)
        print(triton.compile(source, target=target, options={"num_warps": num_warps}).metadata.shared)


for name in ("convolve_rows", "weight_sums", "convolve_pictures", "picture_weight_sums"):
    setattr(kernels, name, Compiled(getattr(kernels, name)))
for name in ("sum_channels", "total", "statistics", "gradient_statistics"):
    setattr(sum_kernels, name, Compiled(getattr(sum_kernels, name)))
narrow, wide = (torch.zeros(960, 32, 32, width, dtype=torch.bfloat16).permute(0, 3, 1, 2) for width in (16, 32))
for weight, maps in ((torch.zeros(32, 32, 3, 3), wide), (torch.zeros(32, 16, 3, 3), narrow)):
    operators.convolve(maps, weight)
    operators.convolve(wide, weight, transposed=True)
    operators.weight_sums(maps, wide)
operators.convolve(wide, torch.zeros(32, 32, 3, 3), wide)
scale, shift = torch.zeros(2, 32)
operators.convolve(wide, torch.zeros(32, 32, 3, 3), None, wide, scale, shift, transposed=True, slope=0.1)
pictures = torch.zeros(960, 3, 32, 32)
operators.convolve_pictures(pictures, torch.zeros(16, 3, 3, 3), torch.zeros(16), torch.bfloat16)
operators.picture_weight_sums(pictures, narrow)
for maps in (narrow, torch.zeros(960, 8, 8, 512, dtype=torch.bfloat16).permute(0, 3, 1, 2)):
    operators.channel_sums(maps)
    operators.add_and_sum(maps, maps)
    operators.gradient_sums(maps, maps, *torch.zeros(2, maps.shape[1]), 0.1)
    operators.sum_parts(torch.zeros(264, 2, maps.shape[1]))
    given = (torch.zeros(264, 2, maps.shape[1]), *torch.zeros(2, maps.shape[1]), 960, 1e-5)
    operators.batch_statistics(*given, None, None, None, 0.0)
    operators.batch_statistics(*given, *torch.zeros(2, maps.shape[1]), torch.tensor(0), 0.001)
    given = (torch.zeros(264, 2, maps.shape[1]), *torch.zeros(3, maps.shape[1]), 960)
    operators.batch_gradients(*given)
    operators.batch_gradients(*given, given[0])
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
    assert len(sizes) == 26
    assert max(sizes) <= SHARED_MEMORY[capability]
