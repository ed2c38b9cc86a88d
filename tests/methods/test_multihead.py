from __future__ import annotations

from itertools import product

import pytest
import torch
from problems import (
    LABELED,
    LABELS,
    Row,
    answers,
    cross_entropy,
    hard,
    labeled_loss,
    make_batch,
    make_problem,
    random_answers,
    record_inputs,
    soft_gradient,
    told,
)
from torch import Tensor, nn

from epass.methods.multihead import MultiHeadCoTraining
from epass.networks import Classifier, MultiHead, Small

CLASSES, LABELED_BATCH, UNLABELED_BATCH = 3, 4, 8


class Told(MultiHead):
    """Three heads that say what they are told: an image is the answers of all of them, one after the other."""

    def __init__(self) -> None:
        nn.Module.__init__(self)
        self.trunk, self.precision = nn.Identity(), torch.float32
        self.heads = nn.ModuleList(Speaker(number) for number in range(3))


class Speaker(nn.Module):
    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        mine = images.chunk(3, 1)[self.number]
        return mine[:, :CLASSES], mine[:, CLASSES:]


def random_images(generator: torch.Generator, count: int) -> Tensor:
    """For `Told`: three answers with two features each."""
    return torch.cat([random_answers(generator, count, CLASSES, 2) for _ in range(3)], 1).requires_grad_()


def logits_of(images: Tensor, head: int) -> list[Row]:
    return told(images.chunk(3, 1)[head], CLASSES)[0]


def best(row: Row) -> int:
    return row.index(max(row))


def test_losses_are_those_of_the_loops() -> None:
    generator = torch.Generator().manual_seed(6)
    method = MultiHeadCoTraining(Told(), make_problem(), unlabeled_weight=0.7)
    shares = set()
    for step in range(4):
        labels = torch.randint(CLASSES, (LABELED_BATCH,), generator=generator)
        x, weak = random_images(generator, LABELED_BATCH), random_images(generator, UNLABELED_BATCH)
        strong = [random_images(generator, UNLABELED_BATCH) for _ in range(3)]
        outcome = method(make_batch(x, labels, weak, *strong, step=step))
        outcome.loss.backward()

        on_weak = [logits_of(weak, head) for head in range(3)]
        labeled = unlabeled = 0.0
        for i in range(3):
            j, k = (head for head in range(3) if head != i)
            labeled += labeled_loss(logits_of(x, i), labels.tolist())
            agree = [float(best(a) == best(b)) for a, b in zip(on_weak[j], on_weak[k], strict=True)]
            targets = [hard(best(row), CLASSES) for row in on_weak[j]]
            said = logits_of(strong[i], i)
            unlabeled += sum(a * cross_entropy(t, row) for a, t, row in zip(agree, targets, said, strict=True))
            # Its own view teaches head i alone, and only where its peers agree.
            wanted = soft_gradient(targets, said, agree, 0.7)
            found = strong[i].grad.chunk(3, 1)
            torch.testing.assert_close(found[i][:, :CLASSES], torch.tensor(wanted), rtol=1e-4, atol=1e-6)
            assert not any(found[other].any() for other in (j, k))
        assert not weak.grad.any()
        assert outcome.losses["labeled"].item() == pytest.approx(labeled, rel=1e-4)
        assert outcome.losses["unlabeled"].item() == pytest.approx(0.7 * unlabeled / UNLABELED_BATCH, rel=1e-4)

        for b in range(UNLABELED_BATCH):
            votes = [best(rows[b]) for rows in on_weak]
            most = max(votes, key=votes.count)
            share = {1: 0, 2: 1 / 3, 3: 1}[votes.count(most)]
            assert outcome.pseudo.mask[b].item() == pytest.approx(share)
            assert share == 0 or outcome.pseudo.labels[b] == most
            shares.add(share)
    assert shares == {0, 1 / 3, 1}


def test_every_head_learns_from_its_two_peers_whoever_agrees() -> None:
    """All 27 votes of three heads: who is taught, and what."""
    votes = list(product(range(CLASSES), repeat=3))
    rows = [torch.cat([4.0 * torch.eye(CLASSES)[vote], torch.zeros(1)]) for vote in sum(votes, ())]
    weak = torch.stack(rows).view(len(votes), -1)
    strong = [torch.zeros_like(weak).requires_grad_() for _ in range(3)]
    x = torch.cat([answers(LABELED)] * 3, 1)
    MultiHeadCoTraining(Told(), make_problem())(make_batch(x, LABELS, weak, *strong)).losses["unlabeled"].backward()
    for b, vote in enumerate(votes):
        for i in range(3):
            j, k = (head for head in range(3) if head != i)
            pull = -len(votes) * strong[i].grad.chunk(3, 1)[i][b, :CLASSES]
            wanted = torch.tensor(hard(vote[j], CLASSES)) - 1 / CLASSES if vote[j] == vote[k] else torch.zeros(CLASSES)
            torch.testing.assert_close(pull, wanted)


def test_without_any_agreement_the_loss_is_zero() -> None:
    weak = torch.cat([answers(torch.eye(CLASSES)[[head] * 5]) for head in range(3)], 1)
    strong = [torch.randn_like(weak).requires_grad_() for _ in range(3)]
    x = torch.cat([answers(LABELED)] * 3, 1)
    outcome = MultiHeadCoTraining(Told(), make_problem())(make_batch(x, LABELS, weak, *strong))
    assert outcome.losses["unlabeled"].item() == 0
    assert not outcome.pseudo.mask.any()
    outcome.loss.backward()
    assert all(view.grad.isfinite().all() and not view.grad.any() for view in strong)


def test_all_views_pass_the_trunk_once_and_each_head_once() -> None:
    torch.manual_seed(0)
    net = MultiHeadCoTraining.adapt(Classifier(Small(in_channels=3, width=2), CLASSES))
    x, weak, *strong = torch.randn(5, 4, 3, 8, 8)
    by_trunk, by_heads = record_inputs(net.trunk), [record_inputs(head) for head in net.heads]
    MultiHeadCoTraining(net, make_problem())(make_batch(x, torch.tensor([0, 1, 2, 0]), weak, *strong))
    assert len(by_trunk) == 1
    assert torch.equal(by_trunk[0], torch.cat([x, weak, *strong]))
    assert [[len(maps) for maps in seen] for seen in by_heads] == [[12], [12], [12]]


def test_features_are_those_of_the_network_that_is_kept() -> None:
    torch.manual_seed(0)
    net = MultiHeadCoTraining.adapt(Classifier(Small(in_channels=3, width=2), CLASSES)).eval()
    x, weak, *strong = torch.randn(5, 4, 3, 8, 8)
    outcome = MultiHeadCoTraining(net, make_problem())(make_batch(x, torch.tensor([0, 1, 2, 0]), weak, *strong))
    for found, images in zip(outcome.features, (x, weak, strong[0]), strict=True):
        torch.testing.assert_close(found, net(images).features)


def test_defaults_are_the_published_ones() -> None:
    method = MultiHeadCoTraining(Told(), make_problem())
    assert method.unlabeled_weight == 1.0
    assert method.views == (("weak",), ("weak", "strong", "strong", "strong"))
    assert len(MultiHeadCoTraining.adapt(Classifier(Small(), 3)).heads) == 3
