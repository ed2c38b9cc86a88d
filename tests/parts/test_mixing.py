from __future__ import annotations

import copy
import math

import pytest
import torch
from torch import Tensor, nn

from epass.errors import InputError
from epass.networks.classifier import Prediction
from epass.parts.draws import permutation, uniform
from epass.parts.mixing import Mixture, SymmetricBeta, check_temperature, logits_in_chunks, sharpen

SHARES = (torch.arange(2**18) + 0.5) / 2**18  # of a distribution, evenly spaced


def seeds(count: int) -> list[Tensor]:
    return [torch.tensor(1_000_003 * number) for number in range(count)]


# --- Sharpening ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("temperature", [0.2, 0.5, 1.0, 3.0])
def test_sharpening_is_a_power_that_sums_to_one(temperature: float) -> None:
    probs = torch.randn(6, 4, generator=torch.Generator().manual_seed(0)).softmax(1)
    wanted = []
    for row in probs.tolist():
        powers = [value ** (1 / temperature) for value in row]
        wanted.append([power / sum(powers) for power in powers])
    torch.testing.assert_close(sharpen(probs, temperature), torch.tensor(wanted))


def test_sharpening_survives_zeros_and_powers_beyond_float32() -> None:
    probs = torch.tensor([[0.0, 0.0, 1.0], [0.3, 0.36, 0.34], [1e-30, 0.0, 1.0]])
    assert sharpen(probs, 0.001).argmax(1).tolist() == [2, 1, 2]
    torch.testing.assert_close(sharpen(probs, 0.001).sum(1), torch.ones(3))
    torch.testing.assert_close(sharpen(probs, 0.5)[0], probs[0])


@pytest.mark.parametrize("temperature", [0.0, -1.0, math.inf, math.nan])
def test_a_temperature_is_positive(temperature: float) -> None:
    check_temperature(0.5)
    with pytest.raises(InputError, match="temperature is a number above 0"):
        check_temperature(temperature)


# --- The distribution of shares --------------------------------------------------------------------------------------


def test_the_arcsine_law_is_exact() -> None:
    wanted = (math.pi / 2 * SHARES.double()).sin().square()
    found = SymmetricBeta(0.5).quantile(SHARES).double()
    torch.testing.assert_close(found, wanted, rtol=0, atol=2e-7)
    # in the lower tail also relative to what is there, where a table of x itself would have no digits left
    torch.testing.assert_close(found[: 2**15], wanted[: 2**15], rtol=2e-5, atol=0)


def test_alpha_1_is_uniform_and_alpha_2_the_parabola() -> None:
    torch.testing.assert_close(SymmetricBeta(1.0).quantile(SHARES), SHARES)
    x = SymmetricBeta(2.0).quantile(SHARES).double()
    torch.testing.assert_close(3 * x**2 - 2 * x**3, SHARES.double(), rtol=0, atol=1e-6)


@pytest.mark.parametrize("alpha", [0.05, 0.2, 0.5, 0.75, 1.0, 3.0, 10.0])
def test_moments_are_those_of_the_distribution(alpha: float) -> None:
    x = SymmetricBeta(alpha).quantile(SHARES).double()
    variance = 1 / (4 * (2 * alpha + 1))
    assert x.mean().item() == pytest.approx(0.5, abs=1e-6)
    assert x.var().item() == pytest.approx(variance, rel=2e-4)
    # kurtosis of a symmetric beta distribution: 3 - 6 / (2 alpha + 3)
    fourth = ((x - 0.5) ** 4).mean().item()
    assert fourth / variance**2 == pytest.approx(3 - 6 / (2 * alpha + 3), rel=1e-3)


@pytest.mark.parametrize("alpha", [0.05, 0.5, 0.75, 4.0, 100.0])
def test_quantiles_are_symmetric_monotone_and_inside(alpha: float) -> None:
    beta = SymmetricBeta(alpha)
    x = beta.quantile(SHARES)
    torch.testing.assert_close(x, 1 - beta.quantile(1 - SHARES), rtol=0, atol=1e-6)
    assert (x.diff() >= 0).all()
    assert ((x >= 0) & (x <= 1)).all()
    ends = torch.tensor([0.0, 0.5, 1.0])
    assert beta.quantile(ends).tolist() == [0.0, 0.5, 1.0]


def test_draws_follow_the_distribution_and_the_seed() -> None:
    beta = SymmetricBeta(0.75)
    found = torch.stack([beta(seed, salt=0) for seed in seeds(4000)])
    assert found.shape == (4000,)  # one number per seed
    assert found.mean().item() == pytest.approx(0.5, abs=0.02)
    assert found.var().item() == pytest.approx(1 / 10, abs=0.004)
    again = torch.stack([beta(seed, salt=0) for seed in seeds(50)])
    assert torch.equal(again, found[:50])
    other = torch.stack([beta(seed, salt=1) for seed in seeds(50)])
    assert (other != found[:50]).all()


def test_a_table_is_no_state() -> None:
    beta = SymmetricBeta(0.5)
    assert beta.state_dict() == {}
    assert dict(beta.named_buffers())["table"].dtype == torch.float32  # moved with the module nevertheless


@pytest.mark.parametrize("alpha", [0.0, -0.5, 101.0, math.nan])
def test_an_alpha_without_a_distribution_is_refused(alpha: float) -> None:
    with pytest.raises(InputError, match="alpha of a mixture is above 0"):
        SymmetricBeta(alpha)


# --- Mixtures --------------------------------------------------------------------------------------------------------


def test_one_share_and_one_order_mix_images_and_targets_alike() -> None:
    generator = torch.Generator().manual_seed(1)
    images, targets = torch.randn(7, 2, 3, 3, generator=generator), torch.rand(7, 4, generator=generator).softmax(1)
    mixture, shares = Mixture(0.5), []
    for seed in seeds(20):
        mixed, mixed_targets = mixture(images, targets, seed)
        share = math.sin(math.pi / 2 * uniform(seed, salt=0).item()) ** 2  # the arcsine law
        share = max(share, 1 - share)
        shares.append(share)
        order = permutation(seed, 7, salt=1).tolist()
        for row, partner in enumerate(order):
            torch.testing.assert_close(mixed[row], share * images[row] + (1 - share) * images[partner])
            torch.testing.assert_close(mixed_targets[row], share * targets[row] + (1 - share) * targets[partner])
    assert min(shares) < 0.7 < 0.95 < max(shares)
    assert min(shares) >= 0.5


@pytest.mark.parametrize("world", [2, 3])
def test_several_processes_mix_their_rows_as_one_would(world: int, monkeypatch: pytest.MonkeyPatch) -> None:
    mixture, (seed,) = Mixture(0.75), seeds(3)[2:]
    images, targets = torch.eye(12), torch.eye(12).flip(1)
    wanted = mixture(images, targets, seed)
    everything = [uniform(seed, 12, salt=1), images, targets]
    for module in ("epass.parts.draws", "epass.parts.mixing"):
        monkeypatch.setattr(f"{module}.world_size", lambda: world)
    for rank in range(world):
        gathered = iter(everything)  # what the others have, in the order in which it is asked for
        for module in ("epass.parts.draws", "epass.parts.mixing"):
            monkeypatch.setattr(f"{module}.rank", lambda rank=rank: rank)
            monkeypatch.setattr(f"{module}.gather_rows", lambda mine, gathered=gathered: next(gathered))
        found = mixture(images[rank::world], targets[rank::world], seed)
        for ours, theirs in zip(found, wanted, strict=True):
            assert torch.equal(ours, theirs[rank::world])


# --- Chunks ----------------------------------------------------------------------------------------------------------


class Norm(nn.Module):
    """A network that is one BatchNorm layer."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(3)

    def forward(self, images: Tensor) -> Prediction:
        normalized = self.norm(images)
        return Prediction(normalized, normalized)


def test_every_chunk_is_normalized_by_itself_and_the_first_one_is_remembered() -> None:
    images = torch.randn(10, 3, generator=torch.Generator().manual_seed(2)) * torch.arange(1, 11)[:, None]
    net = Norm()
    plain = copy.deepcopy(net)
    found = logits_in_chunks(net, images, 4)
    wanted = [plain(images[:4]).logits]
    for name, buffer in plain.norm.named_buffers():
        torch.testing.assert_close(net.norm.get_buffer(name), buffer.clone(), msg=name)
    assert net.norm.num_batches_tracked == 1
    wanted += [plain(images[4:8]).logits, plain(images[8:]).logits]
    torch.testing.assert_close(found, torch.cat(wanted))
    assert not torch.equal(plain.norm.running_mean, net.norm.running_mean)  # the other chunks would have moved it
    assert net.norm.track_running_stats  # and later passes are remembered again


def test_a_batch_of_one_chunk_is_a_plain_pass() -> None:
    images = torch.randn(4, 3, generator=torch.Generator().manual_seed(3))
    torch.testing.assert_close(logits_in_chunks(Norm(), images, 4), Norm()(images).logits)
