"""BatchNorm over all processes: alone it must be BatchNorm; what several do is in the replica tests."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn

from epass.errors import InputError
from epass.networks import shared_norm
from epass.networks.shared_norm import SharedBatchNorm, share_statistics
from epass.parts.statistics import statistics_kept

SHAPES = {nn.BatchNorm1d: (6, 3), nn.BatchNorm2d: (5, 3, 4, 2), nn.BatchNorm3d: (2, 3, 2, 2, 3)}


def shared(module: nn.Module, monkeypatch: pytest.MonkeyPatch) -> nn.Module:
    """A copy that shares its statistics, although there is nobody to share them with."""
    copied = copy.deepcopy(module)
    with monkeypatch.context() as several:
        several.setattr(shared_norm, "alone", lambda: False)
        share_statistics(copied)
    return copied


def state(norm: nn.Module) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in norm.state_dict().items()}


@pytest.mark.parametrize("settings", [{}, {"affine": False}, {"momentum": None}, {"momentum": 0.3, "eps": 0.1}])
@pytest.mark.parametrize("kind", SHAPES)
def test_it_is_batch_norm(kind: type[nn.Module], settings: dict[str, object], monkeypatch: pytest.MonkeyPatch) -> None:
    generator = torch.Generator().manual_seed(0)
    plain = kind(3, **settings)
    for parameter in plain.parameters():
        nn.init.uniform_(parameter, 0.5, 2, generator=generator)
    own = shared(plain, monkeypatch)
    assert type(own) is SharedBatchNorm
    for mode in ("train", "train", "kept", "eval"):
        for norm in (plain, own):
            norm.train(mode != "eval")
        rows = [(3 + 2 * torch.randn(SHAPES[kind], generator=generator)).requires_grad_()]
        rows.append(rows[0].detach().clone().requires_grad_())
        before = state(own)
        outputs = []
        for norm, x in zip((plain, own), rows, strict=True):
            norm.zero_grad()
            with statistics_kept(norm if mode == "kept" else nn.Identity()):
                y = norm(x)
            (y * torch.linspace(-1, 1, y.numel()).view_as(y)).square().sum().backward()
            outputs.append(y)
        torch.testing.assert_close(outputs[1], outputs[0], rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(rows[1].grad, rows[0].grad, rtol=1e-4, atol=1e-4)
        for mine, theirs in zip(own.parameters(), plain.parameters(), strict=True):
            torch.testing.assert_close(mine.grad, theirs.grad, rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(state(own), state(plain))
        if mode != "train":
            torch.testing.assert_close(state(own), before, rtol=0, atol=0)


def test_low_precision_goes_in_and_out_and_statistics_stay_exact(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = nn.BatchNorm2d(3)
    own = shared(plain, monkeypatch)
    rows = (100 + torch.randn(64, 3, 2, 2, generator=torch.Generator().manual_seed(1))).bfloat16()
    assert own(rows).dtype == torch.bfloat16
    plain(rows.float())
    torch.testing.assert_close(state(own), state(plain))


def test_the_variance_counts_how_far_the_ranks_are_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = torch.randn(8, 3, generator=torch.Generator().manual_seed(2)) + torch.arange(8)[:, None]
    whole = nn.BatchNorm1d(3)
    wanted = whole(rows)
    parts = [rows[rank::2] for rank in range(2)]
    monkeypatch.setattr(shared_norm, "alone", lambda: False)
    monkeypatch.setattr(shared_norm, "world_size", lambda: 2)
    everything = torch.stack([torch.stack([part.mean(0), part.var(0, correction=0)]) for part in parts])
    monkeypatch.setattr(shared_norm, "gather_rows", lambda mine: everything)
    for rank, part in enumerate(parts):
        own = nn.BatchNorm1d(3)
        share_statistics(own)
        torch.testing.assert_close(own(part), wanted[rank::2])
        torch.testing.assert_close(state(own), state(whole))


def test_one_process_keeps_the_layers_that_it_has() -> None:
    net = nn.Sequential(nn.BatchNorm2d(3), nn.Conv2d(3, 3, 1))
    share_statistics(net)
    assert type(net[0]) is nn.BatchNorm2d


def test_layers_stay_the_same_objects_with_the_same_names(monkeypatch: pytest.MonkeyPatch) -> None:
    net = nn.Sequential(nn.Conv2d(3, 3, 1), nn.BatchNorm2d(3), nn.LayerNorm(3))
    weights, names = list(net.parameters()), list(net.state_dict())
    monkeypatch.setattr(shared_norm, "alone", lambda: False)
    share_statistics(net)
    share_statistics(net)  # a second time changes nothing
    assert all(mine is before for mine, before in zip(net.parameters(), weights, strict=True))
    assert list(net.state_dict()) == names
    assert [type(part) for part in net] == [nn.Conv2d, SharedBatchNorm, nn.LayerNorm]


class Fused(nn.BatchNorm2d):
    """What other libraries have: a BatchNorm that does more."""


def test_a_layer_that_does_more_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_norm, "alone", lambda: False)
    with pytest.raises(InputError, match="Fused layers cannot share their statistics between processes: train it in"):
        share_statistics(nn.Sequential(Fused(3)))
