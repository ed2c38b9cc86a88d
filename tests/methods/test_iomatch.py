from __future__ import annotations

import copy
import math

import pytest
import torch
import torch.nn.functional as F
from problems import (
    LABELED,
    LABELS,
    STRONG,
    WEAK,
    Answers,
    Passing,
    PlainHead,
    Row,
    SlowRing,
    SmallNet,
    cross_entropy,
    dot,
    hard,
    image_batch,
    labeled_loss,
    make_batch,
    make_problem,
    record_inputs,
    soft_gradient,
    softmax,
    told,
    train_steps,
)
from torch import Tensor, nn

from epass.method import Batch
from epass.methods.iomatch import IOMatch
from epass.networks import count_parameters, make_network
from epass.parts.projector import ProjectorEnsemble
from epass.parts.teacher import Average
from epass.training.optimizer import make_optimizer
from epass.training.schedule import Plan
from epass.training.step import make_step

CLASSES = 4


def width(num_classes: int) -> int:
    return 3 * num_classes + 1


def make(num_classes: int = 3, **settings: object) -> IOMatch:
    """A method whose embeddings are what its heads say: "not class k", "class k", and the open set's logits."""
    method = IOMatch(Answers(num_classes), make_problem(num_classes), Passing(width(num_classes)), **settings)
    with torch.no_grad():
        method.one_vs_all.weight.copy_(torch.eye(width(num_classes))[: 2 * num_classes])
        method.open_head.weight.copy_(torch.eye(width(num_classes))[2 * num_classes :])
        method.average.module[1].load_state_dict(method.open_head.state_dict())
    return method


def answers(logits: Tensor, negatives: Tensor, positives: Tensor, opened: Tensor) -> Tensor:
    return torch.cat([logits, negatives, positives, opened], 1)


# --- Conformance numbers ---------------------------------------------------------------------------------------------

OPENED = torch.tensor([[1, 0, 0, 0.5], [0, 0, 0, 1], [0, 2, 0, 0]])


def spec_batch(negatives: Tensor = STRONG, positives: Tensor = WEAK, step: int = 1024) -> Batch:
    x = answers(LABELED, torch.tensor([[0.0, 1, 0], [1, 0, 0]]), LABELED, torch.randn(2, 4))
    weak = answers(WEAK, negatives, positives, torch.randn(3, 4))
    strong = answers(STRONG, torch.randn(3, 3), torch.randn(3, 3), OPENED)
    return make_batch(x, LABELS, weak, strong, step=step)


def test_conformance_row_n17_one_vs_all_loss() -> None:
    assert make()(spec_batch()).losses["one_vs_all"].item() == pytest.approx(1.223299, rel=1e-4)


def test_conformance_row_n18_outlier_score_and_target() -> None:
    method, batch = make(align=False, threshold=0.8), spec_batch()
    strong = batch.unlabeled[1].requires_grad_()
    outcome = method(batch)
    is_none, _ = method.one_against_all(batch.unlabeled[0][:, 3:])
    score = (WEAK.softmax(1) * is_none).sum(1)
    torch.testing.assert_close(score, torch.tensor([0.420361, 0.425557, 0.293344]), rtol=1e-4, atol=0)
    # The gradient of the open-set logits is (softmax - target) / N, so it tells the target.
    outcome.losses["open"].backward()
    target = OPENED.softmax(1) - 3 * strong.grad[:, 9:]
    torch.testing.assert_close(target[0], torch.tensor([0.525228, 0.043113, 0.011298, 0.420361]), rtol=1e-4, atol=1e-6)


def test_conformance_row_n19_losses() -> None:
    method = make(align=False, threshold=0.8)
    losses = method(spec_batch()).losses
    assert losses["unlabeled"].item() == pytest.approx(0.350716, rel=1e-4)
    assert losses["open"].item() == pytest.approx(0.695861, rel=1e-4)
    assert method(spec_batch()).loss.item() == pytest.approx(2.749402, rel=1e-4)
    early = method(spec_batch(step=1023))
    assert early.loss.item() == pytest.approx(2.053541, rel=1e-4)
    assert early.losses["open"].item() == 0


def test_conformance_row_n20_with_alignment() -> None:
    outcome = make(alignment_length=4, threshold=0.8)(spec_batch())
    assert outcome.losses["unlabeled"].item() == pytest.approx(0.187443, rel=1e-4)
    assert outcome.losses["open"].item() == pytest.approx(0.373251, rel=1e-4)
    assert outcome.loss.item() == pytest.approx(2.263518, rel=1e-4)


def test_conformance_row_n21_swapped_rows_turn_inliers_into_outliers() -> None:
    method, batch = make(align=False, threshold=0.8), spec_batch(negatives=WEAK, positives=STRONG)
    outcome = method(batch)
    assert outcome.losses["unlabeled"].item() == 0
    assert outcome.losses["open"].item() == pytest.approx(1.416378, rel=1e-4)
    assert outcome.metrics["outliers"].item() == 1
    is_none, _ = method.one_against_all(batch.unlabeled[0][:, 3:])
    score = (WEAK.softmax(1) * is_none).sum(1)
    torch.testing.assert_close(score, torch.tensor([0.579639, 0.574443, 0.706656]), rtol=1e-4, atol=0)


@pytest.mark.parametrize(
    ("num_classes", "size", "alone", "wanted"),
    [
        (6, 1, 1_469_126, 1_504_589),
        (20, 1, 1_470_932, 1_511_785),
        (50, 1, 1_474_802, 1_527_205),
        (80, 1, 1_478_672, 1_542_625),
        (50, 3, 1_474_802, 1_593_253),
    ],
)
def test_conformance_row_n23_parameters(num_classes: int, size: int, alone: int, wanted: int) -> None:
    net = make_network("wrn-28-2", in_channels=3, num_classes=num_classes)
    # The published backbone has a bias in every convolution; ours, as in the other tables, in the first one only.
    biases = sum(part.out_channels for part in net.modules() if isinstance(part, nn.Conv2d) and part.bias is None)
    assert count_parameters(net) + biases == alone
    method = IOMatch(net, make_problem(num_classes), ProjectorEnsemble(128, 128, size=size))
    assert count_parameters(method) - count_parameters(method.average) + biases == wanted


# --- The equations in loops ------------------------------------------------------------------------------------------


def random_views(generator: torch.Generator, *counts: int) -> list[Tensor]:
    return [
        4
        * torch.rand(count, 1, generator=generator)
        * torch.randn(count, CLASSES + width(CLASSES), generator=generator)
        for count in counts
    ]


def one_vs_all(features: Row) -> tuple[Row, Row]:
    pairs = [softmax([features[k], features[CLASSES + k]]) for k in range(CLASSES)]
    return [pair[0] for pair in pairs], [pair[1] for pair in pairs]


@pytest.mark.parametrize("align", [True, False])
def test_steps_are_those_of_the_loops(align: bool) -> None:
    settings = {"threshold": 0.6, "open_threshold": 0.55, "warmup_steps": 2, "align": align, "alignment_length": 3}
    weights = {"unlabeled_weight": 0.7, "one_vs_all_weight": 1.3, "open_weight": 0.9}
    method = make(CLASSES, **settings, **weights)
    ring = SlowRing(3, CLASSES) if align else None
    generator = torch.Generator().manual_seed(4)
    masks, open_masks, inliers = [], [], []
    for step in range(7):
        labels = torch.randint(CLASSES, (5,), generator=generator)
        x, weak, strong = (view.requires_grad_() for view in random_views(generator, 5, 8, 8))
        outcome = method(make_batch(x, labels, weak, strong, step=step))

        (on_x, z_x), (on_weak, z_weak), (on_strong, z_strong) = (told(view, CLASSES) for view in (x, weak, strong))
        hits = misses = 0.0
        for features, label in zip(z_x, labels.tolist(), strict=True):
            is_none, is_class = one_vs_all(features)
            hits -= math.log(is_class[label] + 1e-8) / 5
            misses += max(-math.log(is_none[k] + 1e-8) for k in range(CLASSES) if k != label) / 5
        probs = [softmax(row) for row in on_weak]
        probs = ring.align(probs) if ring else probs
        targets, mask, open_mask = [], [], []
        for q, features in zip(probs, z_weak, strict=True):
            is_none, is_class = one_vs_all(features)
            outlier = dot(q, is_none)
            targets.append([a * b for a, b in zip(q, is_class, strict=True)] + [outlier])
            assert sum(targets[-1]) == pytest.approx(1)
            inliers.append(outlier < 0.5)
            mask.append(1.0 if outlier < 0.5 and max(q) >= 0.6 else 0.0)
            open_mask.append(1.0 if max(targets[-1]) >= 0.55 else 0.0)
        masks += mask
        open_masks += open_mask
        opened = [row[2 * CLASSES :] for row in z_strong]
        unlabeled = sum(m * cross_entropy(q, row) for m, q, row in zip(mask, probs, on_strong, strict=True)) / 8
        open_loss = sum(m * cross_entropy(q, row) for m, q, row in zip(open_mask, targets, opened, strict=True)) / 8
        warm = step >= 2
        assert outcome.losses["labeled"].item() == pytest.approx(labeled_loss(on_x, labels.tolist()), rel=1e-4)
        assert outcome.losses["one_vs_all"].item() == pytest.approx(1.3 * (hits + misses), rel=1e-4)
        assert outcome.losses["unlabeled"].item() == pytest.approx(0.7 * unlabeled, rel=1e-4)
        assert outcome.losses["open"].item() == pytest.approx(0.9 * open_loss * warm, rel=1e-4)
        assert outcome.pseudo.mask.tolist() == mask
        assert outcome.pseudo.labels.tolist() == [q.index(max(q)) for q in probs]

        outcome.loss.backward()
        assert not weak.grad.any()
        assert not x.grad[:, 3 * CLASSES :].any()  # no labeled image reaches the open-set head
        assert not strong.grad[:, CLASSES : 3 * CLASSES].any()  # no unlabeled image reaches the one-vs-all head
        wanted = soft_gradient(probs, on_strong, mask, 0.7)
        torch.testing.assert_close(strong.grad[:, :CLASSES], torch.tensor(wanted), rtol=1e-4, atol=1e-6)
        wanted = soft_gradient(targets, opened, open_mask, 0.9 * warm)
        torch.testing.assert_close(strong.grad[:, 3 * CLASSES :], torch.tensor(wanted), rtol=1e-4, atol=1e-6)

        method.update(outcome.memory)
        if ring:
            torch.testing.assert_close(method.alignment.means, torch.tensor(ring.rows), rtol=1e-4, atol=1e-6)
    for seen in (masks, open_masks, inliers):
        assert 0 in seen
        assert 1 in seen


def test_only_the_hardest_wrong_class_is_taught() -> None:
    method, batch = make(), spec_batch()
    x = batch.labeled[0].requires_grad_()
    method(batch).losses["one_vs_all"].backward()
    taught = x.grad[:, 3:6] != 0  # of the logits "not class k"
    is_none, _ = method.one_against_all(x[:, 3:])
    for row, label, grads in zip(is_none.tolist(), LABELS.tolist(), taught.tolist(), strict=True):
        hardest = min((k for k in range(3) if k != label), key=lambda k: row[k])
        assert {k for k, grad in enumerate(grads) if grad} == {label, hardest}


# --- Properties ------------------------------------------------------------------------------------------------------

FAR = 100 * torch.ones(3, 3)


def test_certain_inliers_leave_fixmatch_with_soft_targets() -> None:
    method, batch = make(align=False, threshold=0.8), spec_batch(negatives=-FAR, positives=FAR)
    strong = batch.unlabeled[1].requires_grad_()
    outcome = method(batch)
    assert outcome.losses["unlabeled"].item() == pytest.approx(0.350716, rel=1e-4)  # row 3: soft targets, no sharpening
    assert outcome.metrics["outliers"].item() == 0
    outcome.losses["open"].backward()
    target = OPENED.softmax(1) - 3 * strong.grad[:, 9:]
    probs = WEAK.softmax(1)
    confident = (probs.amax(1) >= 0.5)[:, None]
    wanted = torch.where(confident, torch.cat([probs, torch.zeros(3, 1)], 1), OPENED.softmax(1))
    torch.testing.assert_close(target, wanted, rtol=1e-4, atol=1e-6)


def test_certain_outliers_teach_the_open_set_head_only() -> None:
    method, batch = make(align=False, threshold=0.0), spec_batch(negatives=FAR, positives=-FAR)
    strong = batch.unlabeled[1].requires_grad_()
    outcome = method(batch)
    assert outcome.losses["unlabeled"].item() == 0
    outcome.losses["open"].backward()
    target = OPENED.softmax(1) - 3 * strong.grad[:, 9:]
    torch.testing.assert_close(target, torch.tensor([hard(3, 4)] * 3), rtol=1e-4, atol=1e-6)


def trained_parts(part: str) -> set[str]:
    torch.manual_seed(1)
    problem = make_problem(num_labeled=8, labeled_batch=6, unlabeled_batch=9)
    method = IOMatch(SmallNet(), problem, ProjectorEnsemble(8, 4), threshold=0.0, open_threshold=0.0, warmup_steps=0)
    outcome = method(image_batch(0, num_views=2))
    outcome.losses[part].backward()
    touched = {name: weight.grad for name, weight in method.named_parameters() if weight.grad is not None}
    return {name.split(".")[0] for name, gradient in touched.items() if gradient.any()}


def test_who_learns_from_what() -> None:
    assert trained_parts("labeled") == {"net"}
    assert trained_parts("one_vs_all") == {"net", "projector", "one_vs_all"}
    assert trained_parts("open") == {"net", "projector", "open_head"}


def test_a_threshold_is_reached_inclusively_and_an_outlier_strictly() -> None:
    method = make(align=False, threshold=0.5, open_threshold=0.5)
    logits = torch.tensor([[30.0, -30, -30]]).repeat(3, 1)  # probability 1 for class 0
    zeros = torch.zeros(3, 3)
    weak = answers(logits, zeros, zeros, torch.zeros(3, 4))  # so S is exactly one half
    batch = spec_batch()._replace(unlabeled=(weak, spec_batch().unlabeled[1]))
    outcome = method(batch)
    assert outcome.pseudo.mask.tolist() == [0, 0, 0]
    assert outcome.losses["open"].item() > 0


# --- Network, evaluation and ensemble --------------------------------------------------------------------------------


def small(size: int = 3, seed: int = 6, **settings: object) -> IOMatch:
    torch.manual_seed(seed)
    problem = make_problem(num_labeled=8, labeled_batch=6, unlabeled_batch=9)
    return IOMatch(SmallNet(), problem, ProjectorEnsemble(8, 4, size=size), **settings)


def test_all_views_pass_the_network_as_one_batch() -> None:
    method, batch = small(), image_batch(0, num_views=2)
    seen = record_inputs(method.net)
    method(batch)
    assert len(seen) == 1
    assert torch.equal(seen[0], torch.cat([*batch.labeled, batch.unlabeled[1], batch.unlabeled[0]]))


def test_heads_start_as_published() -> None:
    torch.manual_seed(0)
    method = IOMatch(Answers(100), make_problem(100), ProjectorEnsemble(8, 300))
    assert method.one_vs_all.bias is None
    assert method.one_vs_all.weight.std().item() == pytest.approx(math.sqrt(2 / 500), rel=0.02)
    assert method.open_head.weight.std().item() == pytest.approx(math.sqrt(2 / 401), rel=0.02)
    assert not method.open_head.bias.any()


def test_open_logits_are_those_of_the_averaged_heads_on_the_given_features() -> None:
    method = small(average_momentum=0.75)
    heads = nn.ModuleList([method.projector, method.open_head])
    before = copy.deepcopy(heads)
    step = make_step(method, make_optimizer(method, Plan(steps=1, lr=0.5)), Average(method.net))
    step(image_batch(0, num_views=2, num_classes=3)._replace(step=torch.tensor(5000)))
    assert not torch.equal(before[1].weight, heads[1].weight)
    with torch.no_grad():
        for old, new in zip(before.parameters(), heads.parameters(), strict=True):
            old.copy_(0.75 * old + 0.25 * new)
    features = torch.randn(5, 8)
    wanted = before[1](sum(head(features) for head in before[0].heads) / 3)
    found = method.open_logits(features)
    torch.testing.assert_close(found, wanted)
    assert found.shape == (5, 4)
    assert not found.requires_grad


def test_what_is_evaluated_closed_set_is_the_plain_classifier() -> None:
    net = SmallNet()
    assert IOMatch.adapt(net) is net
    assert small().net(torch.randn(2, 3, 6, 6)).logits.shape == (2, 3)


def test_one_head_is_the_published_method_bit_for_bit() -> None:
    settings = {"threshold": 0.4, "warmup_steps": 2}
    ensemble = small(size=1, **settings)
    torch.manual_seed(6)
    plain = IOMatch(
        SmallNet(),
        make_problem(num_labeled=8, labeled_batch=6, unlabeled_batch=9),
        PlainHead(8, 4),  # of which the method takes the output before it is normalized
        **settings,
    )
    losses = train_steps(ensemble, 6)
    assert losses == train_steps(plain, 6)
    assert losses[-1]["open"] > 0
    for ours, theirs in zip(ensemble.state_dict().items(), plain.state_dict().items(), strict=True):
        assert torch.equal(ours[1], theirs[1]), ours[0]


def test_heads_read_the_mean_of_the_projectors_unnormalized() -> None:
    method = small(size=3)
    features = torch.randn(5, 8)
    z = sum(head(features) for head in method.projector.heads) / 3
    said = (z @ method.one_vs_all.weight.T).view(5, 2, 3).softmax(1)
    for found, wanted in zip(method.one_against_all(features), said.unbind(1), strict=True):
        torch.testing.assert_close(found, wanted)
    assert (z.norm(dim=1) - 1).abs().min() > 0.05


def test_the_open_set_head_reads_the_mean_of_the_projectors_unnormalized() -> None:
    method, batch = small(size=3, open_threshold=0.0, warmup_steps=0), image_batch(0, num_views=2)
    outcome = method(batch)
    probs, features = outcome.pseudo.probs, outcome.features
    is_none, is_class = method.one_against_all(features.weak)
    target = torch.cat([probs * is_class, (probs * is_none).sum(1, keepdim=True)], 1)
    z = sum(head(features.strong) for head in method.projector.heads) / 3
    wanted = F.cross_entropy(method.open_head(z), target)
    assert outcome.losses["open"].item() == pytest.approx(wanted.item(), rel=1e-5)


def test_concatenated_projectors_widen_the_heads() -> None:
    problem = make_problem(num_labeled=8, labeled_batch=6, unlabeled_batch=9)
    method = IOMatch(SmallNet(), problem, ProjectorEnsemble(8, 4, size=3, combine="concat"))
    assert method.one_vs_all.weight.shape == (6, 12)
    assert method.open_head.weight.shape == (4, 12)
    assert method(image_batch(0, num_views=2)).loss.isfinite()


def test_defaults_are_the_published_ones() -> None:
    method = make()
    assert (method.threshold, method.open_threshold, method.warmup_steps) == (0.95, 0.5, 1024)
    assert (method.unlabeled_weight, method.one_vs_all_weight, method.open_weight) == (1.0, 1.0, 1.0)
    assert (len(method.alignment.means), method.average.momentum) == (128, 0.999)
    assert method.views == (("weak",), ("weak", "strong"))
