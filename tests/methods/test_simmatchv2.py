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
    Row,
    SmallNet,
    angles,
    answers,
    average_row,
    cross_entropy,
    dot,
    hard,
    image_batch,
    labeled_loss,
    make_batch,
    make_problem,
    mix,
    random_answers,
    record_inputs,
    scale_to_sum_one,
    soft_consistency,
    soft_gradient,
    softmax,
    told,
    train_steps,
    with_plain_head,
)
from torch import Tensor, nn

from epass.errors import InputError
from epass.method import Batch
from epass.methods.simmatchv2 import SimMatchV2
from epass.networks import Classifier, count_parameters, make_network
from epass.parts.graph import Propagation
from epass.parts.projector import ProjectorEnsemble
from epass.parts.teacher import Average
from epass.training.optimizer import make_optimizer
from epass.training.schedule import Plan
from epass.training.step import make_step

CLASSES, WIDTH, NUM_LABELED, LABELED_BATCH, UNLABELED_BATCH = 4, 5, 9, 4, 6
SETTINGS = {
    "threshold": 0.5,
    "temperature": 0.2,
    "propagation": 0.3,
    "neighbors": 4,
    "unlabeled_weight": 0.7,
    "edge_weight": 1.3,
    "node_edge_weight": 0.9,
    "ring_batches": 3,
    "alignment_momentum": 0.8,
}
BANK_LABELS = [0, 1, 2, 2]
RING_PROBS = torch.tensor([[1, 0, 0], [0, 1, 0], [0.2, 0.3, 0.5], [0, 0, 1]])


class Told(Answers):
    """With a weight, so that a teacher has something to follow."""

    def __init__(self, num_classes: int) -> None:
        super().__init__(num_classes)
        self.weight = nn.Parameter(torch.zeros(()))


# --- Conformance numbers ---------------------------------------------------------------------------------------------


def spec_method(**settings: object) -> SimMatchV2:
    """The bank of rows N-3 to N-9, and a ring at the same angles."""
    method = SimMatchV2(Told(3), make_problem(unlabeled_batch=4), Passing(2), threshold=0.8, ring_batches=1, **settings)
    bank = angles(0, 0.5, 1.5, 2.5)
    method.bank.write(torch.arange(4), embedding=bank, label=torch.tensor(BANK_LABELS))
    method.ring.push(embedding=bank, probs=RING_PROBS)
    return method


def spec_batch() -> Batch:
    weak, strong = answers(WEAK, angles(0, 1, 2)), answers(STRONG, angles(0.3, 1.3, 2.3))
    return make_batch(answers(LABELED, angles(0, 0)), LABELS, weak, strong, labeled_index=torch.tensor([0, 1]))


def second_call(method: SimMatchV2) -> SimMatchV2:
    """The method as it is after alignment has seen softmax(W) once; bank and ring are left alone."""
    method.alignment.remember(WEAK.softmax(1).mean(0))
    return method


def test_conformance_rows_n1_and_n2_alignment() -> None:
    alignment, probs = spec_method().alignment, WEAK.softmax(1)
    mean = probs.mean(0)
    torch.testing.assert_close(alignment(probs, mean), probs)
    alignment.remember(mean)
    torch.testing.assert_close(alignment.found, torch.tensor([0.340937, 0.346089, 0.312974]), rtol=1e-4, atol=0)
    wanted = torch.tensor([0.842066, 0.112265, 0.045670])
    torch.testing.assert_close(alignment(probs, mean)[0], wanted, rtol=1e-4, atol=0)
    alignment.remember(mean)
    torch.testing.assert_close(alignment.found, torch.tensor([0.347780, 0.357568, 0.294651]), rtol=1e-4, atol=0)


N3 = [[0.836167, 0.125746, 0.038087], [0.333686, 0.347523, 0.318791], [0.015584, 0.850870, 0.133546]]
N4 = [[0.836124, 0.125743, 0.038133], [0.336544, 0.346184, 0.317272], [0.015599, 0.850895, 0.133506]]


@pytest.mark.parametrize(("neighbors", "wanted"), [(2, N3), (4, N4), (128, N4)])
def test_conformance_rows_n3_and_n4_propagation(neighbors: int, wanted: list[Row]) -> None:
    method = spec_method(neighbors=neighbors)
    found = method.propagate(WEAK.softmax(1), angles(0, 1, 2), method.bank["embedding"], method.bank["label"])
    torch.testing.assert_close(found, torch.tensor(wanted), rtol=1e-4, atol=1e-6)


def test_conformance_row_n5_weights() -> None:
    bank, weak = angles(0, 0.5, 1.5, 2.5), angles(0, 1, 2)
    near = [[0, 1], [1, 2], [2, 3]]
    assert [sorted(row) for row in (weak @ bank.T).topk(2).indices.tolist()] == near
    nodes = torch.cat([weak[:, None], bank[torch.tensor(near)]], 1)
    weights = Propagation(2, 0.1, 0.1).weights(nodes, torch.ones(3, 3).bool())
    wanted = torch.tensor([[0.906611, 0.071173, 0.022216], [0.908816, 0.045592, 0.045592]])
    torch.testing.assert_close(weights[:2], wanted, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(("neighbors", "wanted"), [(2, 0.395030), (4, 0.395041)])
def test_conformance_row_n6_node_loss(neighbors: int, wanted: float) -> None:
    outcome = spec_method(neighbors=neighbors)(spec_batch())
    assert outcome.pseudo.mask.tolist() == [1, 0, 1]
    assert outcome.losses["unlabeled"].item() == pytest.approx(wanted, rel=1e-4)


@pytest.mark.parametrize("ring_rows", ["written", "all"])
def test_conformance_rows_n7_and_n8_edge_and_node_edge_loss(ring_rows: str) -> None:
    method = spec_method(ring_rows=ring_rows)
    losses = method(spec_batch()).losses
    assert losses["edge"].item() == pytest.approx(1.273022, rel=1e-4)
    assert losses["node_edge"].item() == pytest.approx(2.061273, rel=1e-4)
    assert second_call(method)(spec_batch()).losses["node_edge"].item() == pytest.approx(2.059466, rel=1e-4)


@pytest.mark.parametrize("classes", [[], [0, 1]])
def test_conformance_row_n8_an_infinite_loss_is_dropped_with_its_gradient(classes: list[int]) -> None:
    method, batch = spec_method(ring_rows="all"), spec_batch()
    method.ring["probs"].zero_()
    method.ring["probs"][:2, classes] = 0.5  # a single class that no edge reaches makes the loss infinite
    strong = batch.unlabeled[1].requires_grad_()
    outcome = method(batch)
    assert outcome.losses["node_edge"].item() == 0
    (gradient,) = torch.autograd.grad(outcome.losses["node_edge"], strong)
    assert torch.equal(gradient, torch.zeros_like(gradient))


@pytest.mark.parametrize(("weights", "wanted"), [((10, 10, 10), 37.772775), ((10, 5, 5), 21.101300)])
def test_conformance_row_n9_total(weights: tuple[int, int, int], wanted: float) -> None:
    nodes, edges, node_edges = weights
    method = spec_method(neighbors=2, unlabeled_weight=nodes, edge_weight=edges, node_edge_weight=node_edges)
    assert method(spec_batch()).loss.item() == pytest.approx(wanted, rel=1e-4)


def test_conformance_row_n22_aggregate_of_heads() -> None:
    outputs = [torch.tensor([row]) for row in ([1.0, 0.0], [0.0, 2.0], [3.0, 4.0])]
    found = F.normalize(ProjectorEnsemble(4, 2, size=3).combine_heads(outputs), dim=1)
    torch.testing.assert_close(found, torch.tensor([[0.554700, 0.832050]]), rtol=1e-4, atol=0)


class Nothing(nn.Flatten):
    """As wide as a ResNet-50, without its weights."""

    num_features = 2048


@pytest.mark.parametrize(("size", "wanted"), [(1, 30_019_752), (3, 38_937_000)])
def test_conformance_row_n23_parameters(size: int, wanted: int) -> None:
    resnet_50 = 23_508_032
    net, projector = SimMatchV2.adapt(Classifier(Nothing(), 1000)), ProjectorEnsemble(2048, 128, size=size)
    assert resnet_50 + count_parameters(net) + count_parameters(projector) == wanted
    problem = make_problem(1000, num_labeled=2, unlabeled_batch=1)
    method = SimMatchV2(net, problem, projector, ring_batches=1)
    assert resnet_50 + sum(weight.numel() for weight in method.parameters() if weight.requires_grad) == wanted


def test_parameters_on_a_wide_resnet() -> None:
    net = make_network("wrn-28-2", in_channels=3, num_classes=10)
    plain = count_parameters(net)
    assert count_parameters(SimMatchV2.adapt(net)) == plain + 2 * 128


# --- The equations in loops ------------------------------------------------------------------------------------------


class SlowSimMatchV2:
    """Section N1.4, one number at a time; the matrix inverse is a matrix inverse."""

    def __init__(self, method: SimMatchV2, ring_rows: str, align_with: str) -> None:
        self.bank: list[Row | None] = [None] * NUM_LABELED
        self.labels = [-1] * NUM_LABELED
        self.ring: list[Row] = method.ring["embedding"].tolist()
        self.ring_probs = [[0.0] * CLASSES for _ in self.ring]
        self.written, self.pointer = 0, 0
        self.mean = [1 / CLASSES] * CLASSES
        self.ring_rows, self.align_with = ring_rows, align_with

    def align(self, probs: list[Row]) -> list[Row]:
        old, self.mean = self.mean, mix(SETTINGS["alignment_momentum"], self.mean, average_row(probs))
        by = old if self.align_with == "past" else self.mean
        return [scale_to_sum_one([p / m for p, m in zip(row, by, strict=True)]) for row in probs]

    def propagate(self, probs: Row, z: Row) -> Row:
        seen = [k for k, row in enumerate(self.bank) if row is not None]
        near = sorted(seen, key=lambda k: -dot(z, self.bank[k]))[: SETTINGS["neighbors"]]
        if not near:
            return probs
        nodes, opinions = [z] + [self.bank[k] for k in near], [probs] + [hard(self.labels[k], CLASSES) for k in near]
        rows = []
        for i, one in enumerate(nodes):
            powers = [0.0 if j == i else math.exp(dot(one, other) / 0.2) for j, other in enumerate(nodes)]
            rows.append(scale_to_sum_one(powers))
        alpha = SETTINGS["propagation"]
        solved = (1 - alpha) * torch.linalg.inv(torch.eye(len(nodes)).double() - alpha * torch.tensor(rows).double())
        return [dot(solved[0].tolist(), column) for column in map(list, zip(*opinions, strict=True))]

    def rows(self) -> range:
        return range(len(self.ring) if self.ring_rows == "all" else min(self.written, len(self.ring)))

    def edges(self, z: Row) -> Row:
        return [dot(z, self.ring[k]) / SETTINGS["temperature"] for k in self.rows()]

    def losses(self, z_weak: list[Row], z_strong: list[Row], probs: list[Row]) -> tuple[float, float, list[Row]]:
        """Of edges, of nodes through edges, and the gradient of their weighted sum."""
        if not self.rows():
            return 0.0, 0.0, [[0.0] * WIDTH for _ in z_strong]
        count, eps = len(z_weak), 0.0 if self.ring_rows == "all" else 1e-8
        said, taught = ([softmax(self.edges(z)) for z in view] for view in (z_strong, z_weak))
        edge = sum(cross_entropy(t, self.edges(z)) for t, z in zip(taught, z_strong, strict=True)) / count
        pulls = [[1.3 * (s - t) for s, t in zip(*rows, strict=True)] for rows in zip(said, taught, strict=True)]
        reached = [
            [
                sum(s * self.ring_probs[k][c] for k, s in zip(self.rows(), row, strict=True)) + eps
                for c in range(CLASSES)
            ]
            for row in said
        ]
        node_edge = 0.0
        if min(map(min, reached)) > 0:  # or the published code drops the loss
            for row, q, n, pull in zip(said, probs, reached, pulls, strict=True):
                node_edge -= sum(q[c] * math.log(n[c]) for c in range(CLASSES)) / count
                slope = [-sum(q[c] * self.ring_probs[k][c] / n[c] for c in range(CLASSES)) for k in self.rows()]
                for k in self.rows():
                    pull[k] += 0.9 * row[k] * (slope[k] - dot(row, slope))
        scale = SETTINGS["temperature"] * count
        gradient = [
            [sum(pull[k] * self.ring[k][i] for k in self.rows()) / scale for i in range(WIDTH)] for pull in pulls
        ]
        return edge, node_edge, gradient

    def write(self, index: list[int], z_x: list[Row], labels: list[int], z_weak: list[Row], probs: list[Row]) -> None:
        for i, row, label in zip(index, z_x, labels, strict=True):
            self.bank[i], self.labels[i] = row, label
        for row, q in zip(z_weak, probs, strict=True):
            self.ring[self.pointer], self.ring_probs[self.pointer] = row, q
            self.pointer = (self.pointer + 1) % len(self.ring)
            self.written += 1


@pytest.mark.parametrize("ring_rows", ["written", "all"])
@pytest.mark.parametrize("align_with", ["past", "present"])
def test_steps_are_those_of_the_loops(align_with: str, ring_rows: str) -> None:
    torch.manual_seed(3)
    sizes = {"num_labeled": NUM_LABELED, "labeled_batch": LABELED_BATCH, "unlabeled_batch": UNLABELED_BATCH}
    switches = {"ring_rows": ring_rows, "align_with": align_with}
    method = SimMatchV2(Told(CLASSES), make_problem(CLASSES, **sizes), Passing(WIDTH), **SETTINGS, **switches)
    slow = SlowSimMatchV2(method, ring_rows, align_with)
    generator = torch.Generator().manual_seed(4)
    masks = []
    for step in range(8):  # the ring turns more than twice
        index = torch.randint(NUM_LABELED, (LABELED_BATCH,), generator=generator)
        labels = (index * 3 + 1) % CLASSES
        counts = (LABELED_BATCH, UNLABELED_BATCH, UNLABELED_BATCH)
        x, weak, strong = (random_answers(generator, count, CLASSES, WIDTH).requires_grad_() for count in counts)
        outcome = method(make_batch(x, labels, weak, strong, step=step, labeled_index=index))

        (on_x, z_x), (on_weak, z_weak), (on_strong, z_strong) = (told(view, CLASSES) for view in (x, weak, strong))
        probs = slow.align([softmax(row) for row in on_weak])
        targets = [slow.propagate(q, z) for q, z in zip(probs, z_weak, strict=True)]
        mask = [1.0 if max(q) >= SETTINGS["threshold"] else 0.0 for q in probs]
        masks += mask
        terms = [m * cross_entropy(t, row) for m, t, row in zip(mask, targets, on_strong, strict=True)]
        edge, node_edge, pulls = slow.losses(z_weak, z_strong, probs)
        assert outcome.losses["labeled"].item() == pytest.approx(labeled_loss(on_x, labels.tolist()), rel=1e-4)
        assert outcome.losses["unlabeled"].item() == pytest.approx(0.7 * sum(terms) / len(terms), rel=1e-4)
        assert outcome.losses["edge"].item() == pytest.approx(1.3 * edge, rel=1e-4)
        assert outcome.losses["node_edge"].item() == pytest.approx(0.9 * node_edge, rel=1e-4)
        assert outcome.pseudo.mask.tolist() == mask
        assert outcome.pseudo.labels.tolist() == [row.index(max(row)) for row in targets]
        torch.testing.assert_close(outcome.pseudo.probs, torch.tensor(probs), rtol=1e-4, atol=1e-6)

        outcome.loss.backward()
        assert weak.grad is None  # it is the teacher who looks at them
        assert not x.grad[:, CLASSES:].any()  # the bank is written without gradient
        wanted = soft_gradient(targets, on_strong, mask, 0.7)
        torch.testing.assert_close(strong.grad[:, :CLASSES], torch.tensor(wanted), rtol=1e-4, atol=1e-6)
        torch.testing.assert_close(strong.grad[:, CLASSES:], torch.tensor(pulls), rtol=1e-3, atol=1e-5)

        method.update(outcome.memory)
        slow.write(index.tolist(), z_x, labels.tolist(), z_weak, probs)
        assert method.bank["label"].tolist() == slow.labels
        seen = [k for k, row in enumerate(slow.bank) if row is not None]
        torch.testing.assert_close(method.bank["embedding"][seen], torch.tensor([slow.bank[k] for k in seen]))
        torch.testing.assert_close(method.ring["embedding"], torch.tensor(slow.ring))
        torch.testing.assert_close(method.ring["probs"], torch.tensor(slow.ring_probs), rtol=1e-4, atol=1e-6)
        torch.testing.assert_close(method.alignment.found, torch.tensor(slow.mean), rtol=1e-4, atol=1e-6)
    assert 0 in masks
    assert 1 in masks


def test_masks_look_at_probabilities_before_neighbors_are_asked() -> None:
    """At a threshold between the two, a mask on the propagated target would stay closed."""
    method = spec_method(neighbors=4)
    method.threshold = 0.84  # softmax(W) has .8438 in row 0, the propagated target .8361
    outcome = method(spec_batch())
    assert outcome.pseudo.mask.tolist() == [1, 0, 1]
    assert outcome.losses["unlabeled"].item() == pytest.approx(0.395041, rel=1e-4)


def test_forward_reads_bank_and_ring_before_they_are_written() -> None:
    method = spec_method()
    before = {name: buffer.clone() for name, buffer in method.named_buffers()}
    outcome = method(spec_batch())
    for name, buffer in method.named_buffers():
        assert torch.equal(buffer, before[name]), name
    method.update(outcome.memory)
    for name in ("bank.embedding", "ring.embedding", "ring.probs", "alignment.found"):
        assert not torch.equal(method.get_buffer(name), before[name]), name


def test_the_first_step_has_no_edges_and_no_neighbors() -> None:
    method = SimMatchV2(Told(3), make_problem(), Passing(2), threshold=0.8)
    batch = spec_batch()
    outcome = method(batch)
    assert outcome.losses["edge"].item() == outcome.losses["node_edge"].item() == 0
    loss, _ = soft_consistency(WEAK.softmax(1).tolist(), STRONG.tolist(), 0.8)  # the target is the prediction itself
    assert outcome.losses["unlabeled"].item() == pytest.approx(loss, rel=1e-4)


def test_published_rows_that_were_never_written_take_part() -> None:
    torch.manual_seed(0)
    written, everything = (
        SimMatchV2(Told(3), make_problem(), Passing(2), ring_rows=rows) for rows in ("written", "all")
    )
    everything.ring["embedding"].copy_(written.ring["embedding"])
    for method in (written, everything):
        method.update(method(spec_batch()).memory)
    ours, theirs = written(spec_batch()).losses, everything(spec_batch()).losses
    assert 0 < ours["edge"].item() < theirs["edge"].item()  # 3 nodes and 96 of which 93 are noise
    # What lands on rows without a class is lost, so the published loss has a part that no class can mend.
    assert ours["node_edge"].item() < theirs["node_edge"].item() - 0.5


def test_a_class_that_no_node_has_keeps_the_loss_finite() -> None:
    method, batch = spec_method(), spec_batch()
    method.ring["probs"].copy_(torch.tensor([hard(0, 3)] * 4))
    strong = batch.unlabeled[1].requires_grad_()
    loss = method(batch).losses["node_edge"]
    wanted = -(WEAK.softmax(1)[:, 1:].sum(1) * math.log(1e-8)).mean()  # every edge leads to class 0
    assert loss.item() == pytest.approx(wanted.item(), rel=1e-4)
    loss.backward()
    assert strong.grad.isfinite().all()


# --- Properties of propagation ---------------------------------------------------------------------------------------


def random_graph(count: int = 6, size: int = 20) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(5)
    queries, bank = (F.normalize(torch.randn(rows, 8, generator=generator), dim=1) for rows in (count, size))
    return torch.randn(count, 3, generator=generator).softmax(1), queries, bank, torch.arange(size) % 3


@pytest.mark.parametrize("neighbors", [1, 7, 20])
@pytest.mark.parametrize("strength", [0.0, 0.1, 0.5, 0.9])
def test_propagated_probabilities_sum_to_one(strength: float, neighbors: int) -> None:
    found = Propagation(neighbors, 0.1, strength)(*random_graph())
    torch.testing.assert_close(found.sum(1), torch.ones(6))
    assert (found >= 0).all()


def test_without_propagation_nothing_changes() -> None:
    probs, *graph = random_graph()
    torch.testing.assert_close(Propagation(7, 0.1, 0.0)(probs, *graph), probs)
    assert (Propagation(7, 0.1, 1e-4)(probs, *graph) - probs).abs().max() < 2e-4
    assert (Propagation(7, 0.1, 0.1)(probs, *graph) - probs).abs().max() > 0.01


@pytest.mark.parametrize("strength", [0.1, 0.4])
def test_a_query_keeps_most_of_its_own_opinion(strength: float) -> None:
    _, queries, bank, _ = random_graph()
    nodes = torch.cat([queries[:, None], bank[torch.arange(6 * 4).view(6, 4) % 20]], 1)
    own = Propagation(4, 0.1, strength).weights(nodes, torch.ones(6, 5).bool())[:, 0]
    assert (own >= 1 - strength - 1e-6).all()
    assert (own <= 1 / (1 + strength) + 1e-6).all()


def test_the_series_is_the_direct_solution() -> None:
    _, queries, bank, _ = random_graph()
    nodes = torch.cat([queries[:, None], bank[None].expand(6, -1, -1)], 1)
    edges = (nodes.double() @ nodes.double().mT / 0.1).masked_fill(torch.eye(21).bool(), -math.inf).softmax(2)
    for strength, terms in ((0.1, 7), (0.7, 46)):
        propagation = Propagation(20, 0.1, strength)
        assert propagation.terms == terms
        direct = (1 - strength) * torch.linalg.inv(torch.eye(21).double() - strength * edges)[:, 0]
        found = propagation.weights(nodes, torch.ones(6, 21).bool())
        torch.testing.assert_close(found, direct.float(), rtol=1e-5, atol=2e-7)


def test_rows_that_were_never_seen_are_nobodys_neighbors() -> None:
    probs, queries, bank, labels = random_graph()
    hidden = torch.where(torch.arange(20) % 2 == 0, labels, -1)
    found = Propagation(20, 0.1, 0.3)(probs, queries, bank, hidden)
    torch.testing.assert_close(found, Propagation(10, 0.1, 0.3)(probs, queries, bank[::2], labels[::2]))
    nobody = Propagation(20, 0.1, 0.3)(probs, queries, bank, torch.full((20,), -1))
    torch.testing.assert_close(nobody, probs)


def test_identical_views_leave_the_entropy_of_the_edges() -> None:
    method, batch = spec_method(), spec_batch()
    batch = batch._replace(unlabeled=(batch.unlabeled[0], answers(STRONG, angles(0, 1, 2))))
    edges = (angles(0, 1, 2) @ angles(0, 0.5, 1.5, 2.5).T / 0.1).softmax(1)
    entropy = -(edges * edges.log()).sum(1).mean()
    assert method(batch).losses["edge"].item() == pytest.approx(entropy.item(), rel=1e-4)


# --- Teacher and network ---------------------------------------------------------------------------------------------


def taught(**settings: object) -> SimMatchV2:
    """A method whose teacher differs from its student in every weight, with something in its memories."""
    torch.manual_seed(5)
    problem = make_problem(num_labeled=8, labeled_batch=6, unlabeled_batch=9)
    method = SimMatchV2(SimMatchV2.adapt(SmallNet()), problem, ProjectorEnsemble(8, 4, size=3), **settings)
    with torch.no_grad():
        for weight in method.teacher.parameters():
            weight.add_(torch.randn_like(weight))
    method.update(method(image_batch(1, num_views=2)).memory)
    return method.train()


def test_the_teacher_sees_labeled_and_weak_and_the_student_labeled_and_strong() -> None:
    method, batch = taught(), image_batch(0, num_views=2)
    (x,), (weak, strong) = batch.labeled, batch.unlabeled
    by_student, by_teacher = record_inputs(method.net), record_inputs(method.teacher.module[0])
    method(batch)
    assert [len(by_student), len(by_teacher)] == [1, 1]
    assert torch.equal(by_student[0], torch.cat([x, strong]))
    assert torch.equal(by_teacher[0], torch.cat([x, weak]))


def test_the_teachers_ensemble_fills_bank_and_ring_and_teaches_the_edges() -> None:
    method, batch = taught(), image_batch(0, num_views=2)
    (x,), (weak, strong) = batch.labeled, batch.unlabeled
    net, projector = copy.deepcopy(method.teacher.module)
    on_both = net(torch.cat([x, weak]))
    z = projector(on_both.features)
    student = copy.deepcopy(method.net)
    z_strong = method.projector(student(torch.cat([x, strong])).features[6:])

    outcome = method(batch)
    torch.testing.assert_close(outcome.memory["z_x"], z[:6])
    torch.testing.assert_close(outcome.memory["z_weak"], z[6:])
    torch.testing.assert_close(z.norm(dim=1), torch.ones(15))
    nodes = method.ring["embedding"][:9]
    wanted = F.cross_entropy(z_strong @ nodes.T / 0.1, (z[6:] @ nodes.T / 0.1).softmax(1))
    assert outcome.losses["edge"].item() == pytest.approx(wanted.item(), rel=1e-4)


@pytest.mark.parametrize("momentum", [0.0, 0.75])
def test_the_teacher_follows_head_by_head(momentum: float) -> None:
    method = taught(teacher_momentum=momentum)
    teacher = dict(method.teacher.module.named_parameters())
    before = {name: weight.clone() for name, weight in teacher.items()}
    step = make_step(method, make_optimizer(method, Plan(steps=1, lr=0.5)), Average(method.net))
    step(image_batch(0, num_views=2))
    student = {f"0.{name}": weight for name, weight in method.net.named_parameters()}
    student |= {f"1.{name}": weight for name, weight in method.projector.named_parameters()}
    assert set(student) == set(teacher)
    assert "1.heads.2.0.weight" in teacher
    for name, weight in teacher.items():
        torch.testing.assert_close(weight, momentum * before[name] + (1 - momentum) * student[name])
        assert not weight.requires_grad


def test_the_scale_of_features_says_nothing() -> None:
    torch.manual_seed(0)
    net = SimMatchV2.adapt(SmallNet(num_features=16)).eval()
    images = torch.randn(5, 3, 6, 6)
    logits, features = net(images)
    torch.testing.assert_close(features.norm(dim=1), torch.full((5,), 4.0), rtol=1e-2, atol=0)  # sqrt(16)
    plain = net.backbone.backbone
    net.backbone.backbone = Scaled(plain, 100.0)
    torch.testing.assert_close(net(images).logits, logits, rtol=1e-2, atol=1e-3)
    assert plain(images).norm(dim=1).std() > 0.01  # before the norm they differ in scale


class Scaled(nn.Module):
    def __init__(self, backbone: nn.Module, factor: float) -> None:
        super().__init__()
        self.backbone, self.factor = backbone, factor

    def forward(self, images: Tensor) -> Tensor:
        return self.factor * self.backbone(images)


def test_an_adapted_network_is_a_classifier_of_the_same_width() -> None:
    net = make_network("small", in_channels=3, num_classes=7)
    head = net.head
    adapted = SimMatchV2.adapt(net)
    assert adapted is net
    assert adapted.head is head
    assert adapted.backbone.num_features == adapted.num_features == 96
    assert adapted(torch.randn(2, 3, 8, 8)).logits.shape == (2, 7)


# --- With an ensemble of projectors ----------------------------------------------------------------------------------


def test_one_head_is_the_plain_method_bit_for_bit() -> None:
    torch.manual_seed(6)
    problem = make_problem(num_labeled=8, labeled_batch=6, unlabeled_batch=9)
    settings = {"threshold": 0.5, "teacher_momentum": 0.5, "ring_batches": 3}
    net = SimMatchV2.adapt(SmallNet())
    ensemble = SimMatchV2(net, problem, ProjectorEnsemble(8, 4, size=1), **settings)
    plain = with_plain_head(ensemble, SimMatchV2, problem, **settings)
    losses = train_steps(ensemble, 6)
    assert losses == train_steps(plain, 6)
    assert losses[-1]["edge"] > 0
    for ours, theirs in zip(ensemble.state_dict().items(), plain.state_dict().items(), strict=True):
        assert torch.equal(ours[1], theirs[1]), ours[0]


@pytest.mark.parametrize(("combine", "width"), [("mean", 4), ("sum", 4), ("concat", 12)])
def test_bank_and_ring_are_as_wide_as_the_combined_embedding(combine: str, width: int) -> None:
    projector = ProjectorEnsemble(8, 4, size=3, combine=combine)
    problem = make_problem(num_labeled=8, labeled_batch=6, unlabeled_batch=9)
    method = SimMatchV2(SimMatchV2.adapt(SmallNet()), problem, projector, ring_batches=1)
    method.update(method(image_batch(0, num_views=2)).memory)
    assert method.bank["embedding"].shape == (8, width)
    assert method.ring["embedding"].shape == (9, width)
    seen = method.bank["embedding"][method.bank["label"] >= 0]
    torch.testing.assert_close(seen.norm(dim=1), torch.ones(len(seen)))
    torch.testing.assert_close(method.ring["embedding"].norm(dim=1), torch.ones(9))


def test_sum_is_mean() -> None:
    def losses(combine: str) -> list[dict[str, float]]:
        torch.manual_seed(7)
        net, projector = SimMatchV2.adapt(SmallNet()), ProjectorEnsemble(8, 4, size=3, combine=combine)
        problem = make_problem(num_labeled=8, labeled_batch=6, unlabeled_batch=9)
        return train_steps(SimMatchV2(net, problem, projector, threshold=0.4), 4)

    for one, other in zip(losses("mean"), losses("sum"), strict=True):
        assert one == pytest.approx(other, rel=1e-4)


# --- Arguments -------------------------------------------------------------------------------------------------------


def test_defaults_are_those_of_the_specification() -> None:
    method = SimMatchV2(Told(3), make_problem(num_labeled=200), Passing(2))
    assert (method.threshold, method.ring.temperature) == (0.95, 0.1)
    assert (method.unlabeled_weight, method.edge_weight, method.node_edge_weight) == (1.0, 1.0, 1.0)
    propagate = method.propagate
    assert (propagate.neighbors, propagate.temperature, propagate.strength) == (128, 0.1, 0.1)
    assert (method.alignment.momentum, method.teacher.momentum) == (0.9, 0.999)
    assert method.ring.size == 32 * 3
    assert method.views == (("weak",), ("weak", "strong"))


def test_no_more_neighbors_than_labeled_images() -> None:
    assert SimMatchV2(Told(3), make_problem(num_labeled=5), Passing(2)).propagate.neighbors == 5


def test_momentum_one_switches_alignment_off() -> None:
    method = second_call(spec_method(alignment_momentum=1.0))
    torch.testing.assert_close(method(spec_batch()).pseudo.probs, WEAK.softmax(1))


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"propagation": 1.0}, "The propagation 1 is out of range: use a number from 0 to below 1."),
        ({"propagation": -0.1}, "The propagation -0.1 is out of range: use a number from 0 to below 1."),
        ({"ring_rows": "al"}, "Unknown ring_rows 'al': did you mean 'all'?"),
        ({"align_with": "pas"}, "Unknown align_with 'pas': did you mean 'past'?"),
    ],
)
def test_bad_arguments_are_refused_with_a_sentence(settings: dict[str, object], sentence: str) -> None:
    with pytest.raises(InputError) as error:
        SimMatchV2(Told(3), make_problem(), Passing(2), **settings)
    assert str(error.value) == sentence
