from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from epass.parts.cutmix import Patched, cut_mix, patched_consistency
from epass.parts.draws import permutation, uniform


def seeds(count: int) -> list[Tensor]:
    return [torch.tensor(1_000_003 * number) for number in range(count)]


@pytest.mark.parametrize(("height", "width"), [(8, 8), (9, 5)])
def test_every_image_gets_the_box_of_its_partner(height: int, width: int) -> None:
    count, shares = 6, []
    for seed in seeds(10):
        images = torch.randn(count, 2, height, width, generator=torch.Generator().manual_seed(1))
        patched = cut_mix(images, seed)
        assert patched.partner.tolist() == permutation(seed, count, salt=3).tolist()
        draws = uniform(seed, count, salt=4).tolist(), uniform(seed, count, 2, salt=5).tolist()
        for row, (kept, center) in enumerate(zip(*draws, strict=True)):
            kept, other = max(kept, 1 - kept), images[patched.partner[row]]
            y, x = (int(size * place) for size, place in zip((height, width), center, strict=True))
            sides = [math.floor(size * math.sqrt(1 - kept)) // 2 for size in (height, width)]
            wanted, foreign = images[row].clone(), 0
            for i in range(height):
                for j in range(width):
                    if y - sides[0] <= i < y + sides[0] and x - sides[1] <= j < x + sides[1]:
                        wanted[:, i, j], foreign = other[:, i, j], foreign + 1
            assert torch.equal(patched.images[row], wanted)
            assert patched.share[row].item() == pytest.approx(1 - foreign / (height * width))
        shares += patched.share.tolist()
    assert min(shares) < 0.8
    assert max(shares) == 1  # a side of one pixel has no half


def test_vectors_are_mixed_number_by_number() -> None:
    vectors, shares = torch.randn(7, 5, generator=torch.Generator().manual_seed(0)), []
    for seed in seeds(10):
        mixed, share, partner = cut_mix(vectors, seed)
        torch.testing.assert_close(mixed, share[:, None] * vectors + (1 - share)[:, None] * vectors[partner])
        shares += share.tolist()
    assert 0.5 <= min(shares) < 0.55 < 0.95 < max(shares)
    assert len(set(shares)) > 60  # every row has its own


def test_what_is_drawn_follows_the_seed() -> None:
    images = torch.randn(6, 1, 8, 8)
    first, again, other = (cut_mix(images, torch.tensor(seed)) for seed in (5, 5, 6))
    assert all(torch.equal(one, same) for one, same in zip(first, again, strict=True))
    assert not torch.equal(first.images, other.images)


@pytest.mark.parametrize("world", [2, 3])
def test_several_processes_patch_their_rows_as_one_would(world: int, monkeypatch: pytest.MonkeyPatch) -> None:
    images, (seed,) = torch.randn(12, 1, 6, 6, generator=torch.Generator().manual_seed(3)), seeds(3)[2:]
    labels, mask, logits = torch.arange(12) % 3, (torch.arange(12) % 2).float(), torch.randn(12, 3)
    wanted = cut_mix(images, seed)
    loss = patched_consistency(logits, wanted, labels, mask)
    losses = []
    for module in ("epass.parts.draws", "epass.parts.cutmix"):
        monkeypatch.setattr(f"{module}.world_size", lambda: world)
    for rank in range(world):
        # what all have, in the order in which it is asked for
        gathered = iter([uniform_of_all(seed, monkeypatch), images, labels, mask])
        for module in ("epass.parts.draws", "epass.parts.cutmix"):
            monkeypatch.setattr(f"{module}.rank", lambda rank=rank: rank)
            monkeypatch.setattr(f"{module}.gather_rows", lambda mine, gathered=gathered: next(gathered))
        found = cut_mix(images[rank::world], seed)
        for ours, theirs in zip(found, wanted, strict=True):
            assert torch.equal(ours, theirs[rank::world])
        losses.append(patched_consistency(logits[rank::world], found, labels[rank::world], mask[rank::world]))
    torch.testing.assert_close(sum(losses) / world, loss)


def uniform_of_all(seed: Tensor, monkeypatch: pytest.MonkeyPatch) -> Tensor:
    """The numbers by which one process would order twelve rows."""
    with monkeypatch.context() as alone:
        alone.setattr("epass.parts.draws.world_size", lambda: 1)
        alone.setattr("epass.parts.draws.rank", lambda: 0)
        return uniform(seed, 12, salt=3)


def test_both_labels_count_by_their_share_where_they_are_trusted() -> None:
    logits = torch.tensor([[1.0, 0.0, 0.0], [0.0, 2.0, 0.0]])
    patched = Patched(torch.zeros(2, 1), torch.tensor([0.75, 0.5]), torch.tensor([1, 0]))
    labels, mask = torch.tensor([0, 1]), torch.tensor([1.0, 0.0])
    below = -logits.log_softmax(1)
    # Row 0 counts by its own label alone, row 1 by that of row 0, since its own is not trusted.
    wanted = (0.75 * below[0, 0] + 0.5 * below[1, 0]) / 2
    torch.testing.assert_close(patched_consistency(logits, patched, labels, mask), wanted)
