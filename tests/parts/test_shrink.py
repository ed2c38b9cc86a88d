from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from epass.errors import InputError
from epass.networks import count_parameters
from epass.parts.shrink import Shrinking, auxiliary_head, shrink_loss

# The inputs of section 18 and of N6.
WEAK = torch.tensor([[2, 0, -1], [0.5, 0.4, 0.3], [-1, 3, 0]])
STRONG = torch.tensor([[1.5, 0.5, 0], [0.2, 0.1, 0], [0, 2, 0.5]])
WEAK_5 = torch.tensor(
    [[2, 1.8, 0.5, -1, -2], [3, 0, 0, 0, -1], [1, 0.9, 0.8, 0.7, 0.6], [6, 0, 0, 0, 0], [0, 1, 2, -1, 0.5]]
)
STRONG_5 = torch.tensor(
    [[1, 0.5, 0.2, 0, -0.5], [2, 1, 0, 0, -1], [0.5, 0.4, 0.3, 0.2, 0.1], [3, 0, 0, 0, 0], [0.2, 0.6, 1, 0, -0.2]]
)


def sure(probs: Tensor, threshold: float) -> Tensor:
    return (probs.amax(1) >= threshold).float()


def slow_rows(
    logits: list[list[float]], probs: list[list[float]], mask: list[float], threshold: float, ranking: list[list[float]]
) -> list[tuple[int, float, float, float]]:
    """Per row: the first rank that remains, the confidence there, the cross-entropy, the weight. Section N2.3."""
    rows = []
    for row, q, m, score in zip(logits, probs, mask, ranking, strict=True):
        classes = len(q)
        order = sorted(range(classes), key=lambda c: -score[c])
        chosen, confidence, valid = classes - 1, 0.0, 0.0
        for c in range(2, classes):
            rest = sum(score[order[j]] for j in range(c, classes))
            confidence = score[order[0]] / (score[order[0]] + rest)
            if confidence >= threshold:
                chosen, valid = c, 1.0
                break
        kept = [row[order[0]], *(row[order[j]] for j in range(chosen, classes))]
        entropy = math.log(sum(math.exp(value) for value in kept)) - kept[0]
        rows.append((chosen, confidence, entropy, (1.0 if m == 0 else 0.0) * valid * max(q)))
    return rows


def slow_loss(*arguments: object) -> float:
    rows = slow_rows(*arguments)
    return sum(weight * entropy for _, _, entropy, weight in rows) / len(rows)


# --- Conformance -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("threshold", "loss"), [(0.5, 0.073205), (0.8, 0.0), (0.95, 0.096262)])
def test_row_n_10_three_classes(threshold: float, loss: float) -> None:
    probs = WEAK.softmax(1)
    found = shrink_loss(STRONG, probs, sure(probs, threshold), threshold)
    assert found.item() == pytest.approx(loss, rel=1e-4)


def test_row_n_11_one_row_by_hand() -> None:
    probs = WEAK.softmax(1)
    mask = sure(probs, 0.5)
    assert mask.tolist() == [1, 0, 1]
    chosen, confidence, entropy, weight = slow_rows(
        STRONG.tolist(), probs.tolist(), mask.tolist(), 0.5, probs.tolist()
    )[1]
    assert (chosen, confidence) == (2, pytest.approx(0.549833, rel=1e-4))
    assert (entropy, weight) == (pytest.approx(0.598139, rel=1e-4), pytest.approx(0.367165, rel=1e-4))
    # alone in the batch, the row is the loss
    assert shrink_loss(STRONG[1:2], probs[1:2], mask[1:2], 0.5).item() == pytest.approx(0.598139 * 0.367165, rel=1e-4)


def test_row_n_12_five_classes() -> None:
    probs = WEAK_5.softmax(1)
    loss = shrink_loss(STRONG_5, probs, sure(probs, 0.8), 0.8).item()
    assert loss == pytest.approx(0.111275, rel=1e-4)
    assert 5 * loss == pytest.approx(0.556377, rel=1e-4)


def test_row_n_13_choices_of_five_classes() -> None:
    probs = WEAK_5.softmax(1)
    mask = sure(probs, 0.8).tolist()
    rows = slow_rows(STRONG_5.tolist(), probs.tolist(), mask, 0.8, probs.tolist())
    assert mask == [0, 1, 0, 1, 0]
    assert [rows[b][0] for b in (0, 2, 4)] == [3, 4, 3]
    assert [rows[b][1] for b in (0, 2, 4)] == pytest.approx([0.936239, 0.598688, 0.843795], rel=1e-4)
    assert [rows[b][2] for b in (0, 4)] == pytest.approx([0.464369, 0.597301], rel=1e-4)
    assert rows[2][3] == 0  # discarded
    for b in range(5):
        alone = shrink_loss(STRONG_5[b : b + 1], probs[b : b + 1], torch.tensor(mask[b : b + 1]), 0.8).item()
        assert alone == pytest.approx(rows[b][2] * rows[b][3], rel=1e-4)


@pytest.mark.parametrize(("threshold", "loss"), [(0.95, 0.062688), (0.7, 0.152123)])
def test_row_n_14_other_thresholds(threshold: float, loss: float) -> None:
    probs = WEAK_5.softmax(1)
    found = shrink_loss(STRONG_5, probs, sure(probs, threshold), threshold)
    assert found.item() == pytest.approx(loss, rel=1e-4)


@pytest.mark.parametrize(
    ("in_dim", "classes", "parameters"),
    [(128, 10, 5_642), (512, 100, 95_588), (256, 10, 21_514), (2048, 1000, 1_826_792)],
)
@pytest.mark.parametrize("slow", [False, True])
def test_the_head_has_the_published_number_of_parameters(
    in_dim: int, classes: int, parameters: int, slow: bool
) -> None:
    assert count_parameters(auxiliary_head(in_dim, classes, slow=slow)) == parameters


# --- The loss --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("classes", [3, 4, 10])
@pytest.mark.parametrize("threshold", [0.4, 0.6, 0.8, 0.95])
@pytest.mark.parametrize("other_ranking", [False, True])
def test_the_loss_is_that_of_the_loops(classes: int, threshold: float, other_ranking: bool) -> None:
    generator = torch.Generator().manual_seed(classes)
    scale = 4 * torch.rand(60, 1, generator=generator)
    logits, weak, other = torch.randn(3, 60, classes, generator=generator)
    probs, ranking = (scale * weak).softmax(1), (scale * (other if other_ranking else weak)).softmax(1)
    mask = sure(probs, threshold)
    logits.requires_grad_()
    loss = shrink_loss(logits, probs, mask, threshold, ranking=ranking if other_ranking else None)
    loss.backward()
    arguments = (probs.tolist(), mask.tolist(), threshold, ranking.tolist())
    assert loss.item() == pytest.approx(slow_loss(logits.tolist(), *arguments), rel=1e-4, abs=1e-7)
    # d e / d logit is the softmax over what remains, less 1 at the top class
    rows = slow_rows(logits.tolist(), *arguments)
    assert threshold < 0.5 or {row[3] > 0 for row in rows} == {True, False}
    for b, (chosen, _, _, weight) in enumerate(rows):
        order = sorted(range(classes), key=lambda c: -ranking[b, c].item())
        kept = [order[0], *order[chosen:]]
        wanted = torch.zeros(classes)
        wanted[kept] = logits[b, kept].detach().softmax(0)
        wanted[order[0]] -= 1
        torch.testing.assert_close(logits.grad[b], weight / 60 * wanted, rtol=1e-4, atol=1e-7)


def test_certain_rows_add_nothing_and_gradients_stay_finite() -> None:
    logits = STRONG_5.clone().requires_grad_()
    loss = shrink_loss(logits, WEAK_5.softmax(1), torch.ones(5), 0.8)
    loss.backward()
    assert loss.item() == 0
    assert not logits.grad.any()


def test_a_mask_of_weights_counts_as_certain_where_it_is_above_zero() -> None:
    probs = WEAK_5.softmax(1)
    weights = torch.tensor([0, 0.01, 0, 0.7, 0])
    whole = torch.tensor([0, 1.0, 0, 1, 0])
    assert shrink_loss(STRONG_5, probs, weights, 0.8) == shrink_loss(STRONG_5, probs, whole, 0.8) > 0


def test_two_classes_cannot_be_shrunk() -> None:
    logits = torch.randn(6, 2, requires_grad=True)
    loss = shrink_loss(logits, torch.randn(6, 2).softmax(1), torch.zeros(6), 0.6)
    loss.backward()
    assert loss.item() == 0
    assert not logits.grad.any()


def test_the_runner_up_is_always_removed() -> None:
    """Also where the top class needs no help, as with a mask that another rule than the threshold decided."""
    probs = torch.tensor([[0.9, 0.06, 0.04]])
    logits = torch.tensor([[0.0, 100.0, 1.0]])
    found = shrink_loss(logits, probs, torch.zeros(1), 0.5)
    assert found.item() == pytest.approx(0.9 * math.log(1 + math.e), rel=1e-5)


def test_hopeless_rows_are_discarded() -> None:
    probs = torch.full((2, 4), 0.25)
    assert shrink_loss(torch.randn(2, 4), probs, torch.zeros(2), 0.6).item() == 0
    assert shrink_loss(torch.randn(2, 4), probs, torch.zeros(2), 0.5).item() > 0  # one against one is a half


# --- The share and the head ------------------------------------------------------------------------------------------


def shares(shrinking: Shrinking, means: list[float]) -> list[float]:
    found = []
    for step, mean in enumerate(means):
        mask = (torch.arange(10) < 10 * mean).float() * 0.5  # weights, not counts
        share = shrinking.next_share(mask, torch.tensor(step))
        assert shrinking.next_share(mask, torch.tensor(step)) == share  # asking changes nothing
        shrinking.remember(share)
        found.append(share.item())
    return found


def test_the_share_starts_with_the_first_batch_and_counts_each_before_use() -> None:
    found = shares(Shrinking(8, 3, momentum=0.9), [0.5, 0.3, 1.0, 0.0])
    wanted = [0.5, 0.48, 0.532, 0.4788]
    assert found == pytest.approx(wanted, rel=1e-5)


def test_a_restarted_share_forgets() -> None:
    found = shares(Shrinking(8, 3, momentum=0.9, restart_steps=3), [0.5, 0.3, 1.0, 0.2, 0.4])
    assert found == pytest.approx([0.5, 0.48, 0.532, 0.2, 0.22], rel=1e-5)


def test_the_share_stays_between_zero_and_one() -> None:
    generator = torch.Generator().manual_seed(0)
    means = (torch.rand(50, generator=generator) > 0.5).float().tolist()
    assert all(0 <= share <= 1 for share in shares(Shrinking(8, 3, momentum=0.5), means))


@pytest.mark.parametrize("head_norm", ["strong", "all"])
def test_the_head_normalizes_the_views_it_is_meant_to(head_norm: str) -> None:
    torch.manual_seed(0)
    shrinking = Shrinking(8, 3, head_norm=head_norm)
    labeled, weak, strong = torch.randn(4, 8) + 3, torch.randn(6, 8) - 2, torch.randn(6, 8)
    seen = strong if head_norm == "strong" else torch.cat([strong, labeled, weak])
    first, norm, *_ = shrinking.head
    start = {name: buffer.clone() for name, buffer in norm.named_buffers()}
    found = shrinking(labeled, weak, strong)
    hidden = first(seen)
    momentum, eps = (0.1, 1e-5) if head_norm == "strong" else (0.001, 1e-3)
    torch.testing.assert_close(
        norm.running_mean, (1 - momentum) * start["running_mean"] + momentum * hidden.mean(0), rtol=1e-4, atol=1e-6
    )
    assert [layer.eps for layer in shrinking.head if hasattr(layer, "eps")] == [eps, eps]

    for layer in (0, 3):
        linear, batch_norm = shrinking.head[layer], shrinking.head[layer + 1]
        seen = linear(seen)
        seen = (seen - seen.mean(0)) / (seen.var(0, correction=0) + eps).sqrt() * batch_norm.weight + batch_norm.bias
        seen = F.leaky_relu(seen, 0.1)
    torch.testing.assert_close(found, shrinking.head[6](seen)[:6], rtol=1e-4, atol=1e-5)


def test_the_slow_head_starts_like_the_classifier() -> None:
    torch.manual_seed(0)
    head = auxiliary_head(1600, 100, slow=True)
    assert head[0].weight.std().item() == pytest.approx((2 / 2000) ** 0.5, rel=0.02)
    assert not any(head[layer].bias.any() for layer in (0, 3, 6))


def test_an_unknown_norm_is_an_error() -> None:
    with pytest.raises(InputError, match="did you mean 'strong'"):
        Shrinking(8, 3, head_norm="strogn")
