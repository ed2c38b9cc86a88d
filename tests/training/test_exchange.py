"""Gradients that travel while the backward pass goes on: what is sent, when, and what comes of it."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from shutil import which
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from functorch.compile import make_boxed_func
from torch import Tensor, nn
from torch._dynamo.backends.common import aot_autograd
from torch._inductor.utils import run_fw_bw_and_get_code
from torch.fx import GraphModule
from torch.multiprocessing.spawn import spawn

from epass.testing.world_of_one import talking, world_of_one
from epass.training import exchange
from epass.training.early import SendEarly
from epass.training.exchange import averaging, differentiate, early_messages, flat, in_groups, shaped

MEGABYTE = 2**18  # of float32
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's about itself, while it compiles


class Layers(nn.Module):
    """Weights that lie in memory as on CUDA: one is used twice, two are used as one, one is frozen."""

    def __init__(self) -> None:
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            self.first, self.twice, self.upper, self.lower = (nn.Conv2d(3, 3, 3, padding=1) for _ in range(4))
        self.frozen = nn.Parameter(torch.ones(3, 1, 1), requires_grad=False)
        self.double().to(memory_format=torch.channels_last)

    def forward(self, images: Tensor) -> Tensor:
        maps = self.twice(self.twice(self.first(images).tanh()).tanh() * self.frozen)
        weight, bias = (torch.cat([getattr(self.upper, of), getattr(self.lower, of)]) for of in ("weight", "bias"))
        return F.conv2d(maps.tanh(), weight, bias).square().mean()


def images(start: int = 0, step: int = 1) -> Tensor:
    every = torch.randn(6, 3, 4, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    return every[start::step]


def gradients(net: nn.Module) -> dict[str, Tensor]:
    return {name: weight.grad for name, weight in net.named_parameters() if weight.grad is not None}


def plainly() -> dict[str, Tensor]:
    net = Layers()
    net(images()).backward()
    return gradients(net)


@pytest.fixture
def small_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange, "LEAST_BYTES", 1)


@pytest.fixture
def company(small_messages: None) -> Iterator[None]:
    """A process that sends its messages to itself."""
    with world_of_one("cpu"), talking():
        yield


def test_a_message_has_a_quarter_of_the_gradients_or_a_megabyte_and_the_last_weights_come_first() -> None:
    def lengths(*megabytes: float) -> list[list[float]]:
        weights = [nn.Parameter(torch.empty(int(MEGABYTE * size), device="meta")) for size in megabytes]
        return [[len(weight) / MEGABYTE for weight in group] for group in in_groups(weights)]

    assert lengths(0.5, 0.25) == [[0.25, 0.5]]
    assert lengths(0.5, 0.5, 0.5, 0.75) == [[0.75, 0.5], [0.5, 0.5]]
    assert lengths(*[1] * 16) == [[1] * 4] * 4
    assert lengths(1, 2, 4, 8) == [[8], [4], [2, 1]]


def test_frozen_weights_are_not_sent() -> None:
    net = Layers()
    assert not any(weight is net.frozen for group in in_groups(net.parameters()) for weight in group)


def test_numbers_lie_as_those_of_the_weights_and_are_not_copied() -> None:
    shapes = [(4, 3, 2, 2), (5,), (), (2, 3), (3, 4, 1, 1)]
    weights = [torch.randn(shape) for shape in shapes]
    weights = [weight.to(memory_format=torch.channels_last) if weight.ndim == 4 else weight for weight in weights]
    weights.append(torch.randn(3, 2).T)
    for weight in weights:
        values = torch.randn(weight.shape)
        found = shaped(flat(values, weight), weight)
        assert torch.equal(found, values)
        assert found.stride() == weight.stride()
        assert flat(weight, weight).data_ptr() == weight.data_ptr()


def test_a_process_on_its_own_sends_nothing_and_gives_the_compiler_nothing() -> None:
    net = Layers()
    assert averaging(net) is net
    assert early_messages() == {}
    differentiate(net(images()), net.parameters())
    assert all(torch.equal(found, plainly()[name]) for name, found in gradients(net).items())


@pytest.mark.distributed
@pytest.mark.usefixtures("company")
def test_gradients_are_sent_while_others_are_still_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    net, missing = Layers(), []

    def all_reduce(*arguments: Any, **how: Any) -> Any:
        missing.append(sum(weight.grad is None for weight in net.parameters() if weight.requires_grad))
        return original(*arguments, **how)

    original = dist.all_reduce
    monkeypatch.setattr(exchange.dist, "all_reduce", all_reduce)
    for _ in range(2):  # hooks of the first pass are gone in the second
        missing.clear()
        differentiate(net(images()), net.parameters())
        assert len(missing) == len(in_groups(net.parameters())) == 4
        assert missing == sorted(missing, reverse=True)
        assert min(missing[:2]) >= 4
        assert missing[2:] == [2, 0]
        found = gradients(net)
        assert found.keys() == plainly().keys()
        for name, gradient in found.items():
            assert torch.equal(gradient, plainly()[name])
            assert gradient.stride() == net.get_parameter(name).stride()
        assert len({gradient.untyped_storage().data_ptr() for gradient in found.values()}) == 4, "none was copied back"
        net.zero_grad()
    net(images()).backward()
    assert len(missing) == 4


def compiled_step(bw_compiler: Callable[..., Any]) -> dict[str, Tensor]:
    torch._dynamo.reset()
    net = Layers()
    backend = aot_autograd(fw_compiler=lambda graph, _: make_boxed_func(graph), bw_compiler=bw_compiler)
    torch.compile(averaging(net), fullgraph=True, backend=backend)(images()).backward()
    torch._dynamo.reset()
    return gradients(net)


@pytest.mark.distributed
@pytest.mark.usefixtures("company")
@pytest.mark.parametrize("early", [False, True])
def test_messages_of_a_compiled_graph_stand_where_gradients_are_there(early: bool) -> None:
    order: list[str] = []

    def keep(graph: GraphModule, _: Any) -> Callable[..., Any]:
        if early:
            early_messages()["post_grad_custom_post_pass"](graph.graph)
            graph.graph.lint()
            graph.recompile()
        order.extend(str(node.target) for node in graph.graph.nodes if node.op == "call_function")
        return make_boxed_func(graph)

    found = compiled_step(keep)
    assert found.keys() == plainly().keys()
    for name, gradient in found.items():
        torch.testing.assert_close(gradient, plainly()[name], rtol=1e-12, atol=1e-12)
        assert gradient.stride() == Layers().get_parameter(name).stride()
    passes = [place for place, name in enumerate(order) if name == "aten.convolution_backward.default"]
    sent = [place for place, name in enumerate(order) if name == "_c10d_functional.all_reduce.default"]
    awaited = [place for place, name in enumerate(order) if name == "_c10d_functional.wait_tensor.default"]
    assert (len(passes), len(sent), len(awaited)) == (4, 4, 4)
    assert min(awaited) > max(passes)
    assert "aten.clone.default" not in order, "no gradient is put into another order"
    if early:
        assert passes[0] < sent[0] < sent[1] < passes[1]
        assert passes[2] < sent[2] < passes[3] < sent[3] < min(awaited)
    else:  # as autograd orders it, which is why there is a pass
        assert min(sent) > max(passes)


@pytest.mark.slow
@pytest.mark.distributed
@pytest.mark.usefixtures("company")
@pytest.mark.skipif(which("g++") is None, reason="needs a compiler")
def test_the_code_of_a_compiled_step_sends_early_and_waits_late() -> None:
    """Of a network whose compiler would send and wait at the end, to need less memory."""
    torch._dynamo.reset()
    layers = [layer for _ in range(8) for layer in (nn.Linear(32, 32), nn.Tanh())]
    net = torch.compile(averaging(nn.Sequential(*layers)), fullgraph=True, options=early_messages())
    _, codes = run_fw_bw_and_get_code(lambda: net(torch.ones(32, 32)).mean())
    torch._dynamo.reset()
    calls = re.findall(r"extern_kernels\.(?:add)?(mm)\(|torch\.ops\._c10d_functional\.(\w+)\.default\(", codes[-1])
    named = "".join({"mm": "c", "all_reduce_": "s", "wait_tensor": "w"}["".join(call)] for call in calls)
    assert re.fullmatch("(c{2,5}s){4}w{4}", named), named


def test_the_compiler_can_keep_what_it_made_with_the_pass() -> None:
    assert SendEarly().uuid() == SendEarly().uuid()


def exchange_in_company(own: int, world: int, home: Path) -> None:
    torch.set_num_threads(1)
    exchange.LEAST_BYTES = 1
    dist.init_process_group("gloo", init_method=f"file://{home}/meeting", rank=own, world_size=world)
    share = images(own, world)
    plain, compiled = Layers(), Layers()
    # The loss depends on neither: they get no gradient, and do not stop the message of others, if there are others.
    plain.upper.idle, plain.apart = (nn.Parameter(torch.ones(size).double()) for size in (3, 300))
    differentiate(plain(share), plain.parameters())
    torch.compile(averaging(compiled), fullgraph=True, backend="aot_eager")(share).backward()
    torch.save({"plain": gradients(plain), "compiled": gradients(compiled)}, home / f"{own}.pt")
    dist.barrier()
    os._exit(0)


@pytest.mark.distributed
@pytest.mark.parametrize("world", [2, 3])
def test_several_processes_have_the_gradients_of_one(tmp_path: Path, world: int) -> None:
    spawn(exchange_in_company, (world, tmp_path), nprocs=world)
    first, *others = (torch.load(tmp_path / f"{own}.pt") for own in range(world))
    close = partial(torch.testing.assert_close, rtol=1e-12, atol=1e-12)
    for way in ("plain", "compiled"):
        assert first[way].keys() == plainly().keys()
        for name, gradient in first[way].items():
            close(gradient, plainly()[name])
            assert all(torch.equal(other[way][name], gradient) for other in others)
