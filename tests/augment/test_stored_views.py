"""Views of vectors: drawn from those that are stored, or made of noise."""

from __future__ import annotations

import pytest
import torch

from epass.augment import make_policies
from epass.augment.stored import StoredStrong, StoredWeak, StrongNoise, WeakNoise
from epass.errors import InputError

COUNT, WIDTH = 4000, 6


def drawn(policy: StoredWeak | WeakNoise, stored: torch.Tensor, seed: int = 0) -> torch.Tensor:
    return policy.apply(stored, policy.draw(len(stored), torch.Generator().manual_seed(seed)))


@pytest.mark.parametrize("views", [1, 3])
def test_each_policy_draws_its_own_views_and_all_of_them(views: int) -> None:
    numbers = torch.arange(1 + 2 * views)[None, :, None].expand(200, -1, WIDTH).half()
    weak, strong = drawn(StoredWeak(views=views), numbers), drawn(StoredStrong(views=views), numbers)
    assert tuple(weak.shape) == (200, WIDTH)
    assert set(weak.unique().tolist()) == set(range(1, 1 + views))
    assert set(strong.unique().tolist()) == set(range(1 + views, 1 + 2 * views))
    assert (weak == weak[:, :1]).all()  # a view is one view, not numbers of several


def test_a_view_is_that_of_its_own_example() -> None:
    stored = torch.randn(50, 5, WIDTH)
    found, (place,) = drawn(StoredWeak(views=2), stored), StoredWeak(views=2).draw(50, torch.Generator().manual_seed(0))
    assert all(torch.equal(found[row], stored[row, place[row]]) for row in range(50))
    assert torch.equal(found, drawn(StoredWeak(views=2), stored))
    assert not torch.equal(found, drawn(StoredWeak(views=2), stored, seed=1))


def test_without_stored_views_there_is_nothing_to_draw() -> None:
    words = r"^0 stored views are too few: embed at least one weak and one strong view\.$"
    with pytest.raises(InputError, match=words):
        make_policies(weak="stored-weak", strong="stored-strong", crop="stored-strong")


@pytest.mark.parametrize(("kind", "strength"), [(WeakNoise, 0.5), (StrongNoise, 2.0)])
def test_noise_is_as_strong_as_it_says(kind: type[WeakNoise], strength: float) -> None:
    center, spread = [float(number) for number in range(WIDTH)], [1.0, 2.0, 3.0, 4.0, 5.0, 0.0]
    policy = kind(center=center, spread=spread, noise=0.4, dropout=0.1)
    stored = torch.full((COUNT, 1, WIDTH), 50.0).half()
    found = drawn(policy, stored)
    assert found.dtype == torch.float32
    dropped = found == torch.tensor(center)
    torch.testing.assert_close(dropped.float().mean(0), torch.full((WIDTH,), 0.1 * strength), atol=0.025, rtol=0)
    for number in range(WIDTH):
        rest = found[~dropped[:, number], number]
        deviation = 0.4 * strength * spread[number]
        assert abs(float(rest.mean()) - 50) <= 4 * deviation / len(rest) ** 0.5
        torch.testing.assert_close(float(rest.std()), deviation, atol=1e-6, rtol=0.06)
    assert torch.equal(found, drawn(policy, stored))
    assert not torch.equal(found, drawn(policy, stored, seed=1))


def test_noise_and_dropout_of_nothing_is_the_plain_view() -> None:
    stored = torch.randn(9, 1, WIDTH)
    plain = WeakNoise(center=[0.0] * WIDTH, spread=[1.0] * WIDTH, noise=0.0, dropout=0.0)
    assert torch.equal(drawn(plain, stored), stored[:, 0])


@pytest.mark.parametrize("dropout", [0.5, 0.9, -0.1])
def test_a_dropout_that_leaves_nothing_is_refused(dropout: float) -> None:
    with pytest.raises(InputError, match=rf"^augment\.dropout is a share below 0\.5, not {dropout}\.$"):
        WeakNoise(center=[0.0], spread=[1.0], dropout=dropout)


def test_draws_do_not_look_at_the_vectors() -> None:
    for views in (2, 0):
        names = {side: f"stored-{side}" if views else f"{side}-noise" for side in ("weak", "strong")}
        policies = make_policies(**names, views=views, center=[0.0] * WIDTH, spread=[1.0] * WIDTH)
        for side in ("weak", "strong"):
            draws = policies[side].draw(7, torch.Generator().manual_seed(0))
            assert {len(part) for part in draws} == {7}  # so that a process can keep its rows
