from __future__ import annotations

import math

import pytest
import torch
from problems import (
    LABELED,
    LABELS,
    STRONG,
    WEAK,
    Answers,
    Passing,
    Row,
    SlowRing,
    SmallNet,
    angles,
    answers,
    average_row,
    balance,
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

from epass.methods.comatch import CoMatch
from epass.parts.graph import agreement, edge_loss
from epass.parts.projector import ProjectorEnsemble

CLASSES, WIDTH, LABELED_BATCH, UNLABELED_BATCH = 3, 4, 2, 4
SETTINGS = {
    "threshold": 0.6,
    "edge_threshold": 0.35,
    "temperature": 0.3,
    "smoothing": 0.7,
    "alignment_length": 3,
    "unlabeled_weight": 0.7,
    "contrast_weight": 1.3,
}


# --- Conformance numbers ---------------------------------------------------------------------------------------------

VIEW_1, VIEW_2 = angles(0, 1, 2), angles(0.3, 1.3, 2.3)
GRAPH = torch.tensor([[0.735089, 0.264911, 0], [0.213024, 0.591111, 0.195865], [0, 0.248883, 0.751117]])


def row_11_method(**settings: object) -> CoMatch:
    settings = {"edge_threshold": 0.3, "threshold": 0.0, "alignment_length": 2, "queue_size": 4, **settings}
    method = CoMatch(Answers(3), make_problem(), Passing(2), **settings)
    balance(method, WEAK)  # aligned = softmax(W)
    bank_probs = torch.tensor([[1, 0, 0], [0, 1, 0], [0.2, 0.3, 0.5], [0, 0, 1]])
    method.seen.push(embedding=angles(0, 0.5, 1.5, 2.5), probs=bank_probs)
    return method


def test_row_11_comatch_graph() -> None:
    edges = agreement(WEAK.softmax(1), 0.3)
    torch.testing.assert_close(edges, GRAPH, rtol=1e-4, atol=1e-6)


def test_row_11b_contrastive_loss() -> None:
    x, weak = answers(LABELED, angles(0, 0)), answers(WEAK, VIEW_1)
    batch = make_batch(x, LABELS, weak, answers(STRONG, VIEW_1), answers(STRONG, VIEW_2), step=0)
    outcome = row_11_method()(batch)  # at step 0 nothing is smoothed, so the graph is row 11's
    assert outcome.losses["contrast"].item() == pytest.approx(0.911713, rel=1e-4)
    assert outcome.metrics["edges"].item() == pytest.approx(7 / 3)


def test_row_11c_memory_smoothing() -> None:
    wanted = torch.tensor([0.823974, 0.137899, 0.038126])
    method = row_11_method(warmup_steps=0, queue_batches=1)
    near = (VIEW_1 @ method.seen["embedding"].T / 0.2).softmax(1)
    smoothed = method.smooth(WEAK.softmax(1), near, torch.tensor(2))
    torch.testing.assert_close(smoothed[0], wanted, rtol=1e-4, atol=1e-6)

    # and the strong view is taught just that: the gradient of its logits is (softmax - target) / N
    strong = answers(STRONG, VIEW_1).requires_grad_()
    x, weak = answers(LABELED, angles(0, 0)), answers(WEAK, VIEW_1)
    method(make_batch(x, LABELS, weak, strong, answers(STRONG, VIEW_2), step=2)).losses["unlabeled"].backward()
    taught = STRONG.softmax(1) - 3 * strong.grad[:, :3]
    torch.testing.assert_close(taught[0], wanted, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("labeled_batch", "ratio", "queue_batches", "rows"), [(64, 7, 5, 2560), (64, 2, 5, 960), (8, 1, 32, 512)]
)
def test_row_23_bank_rows(labeled_batch: int, ratio: int, queue_batches: int, rows: int) -> None:
    problem = make_problem(10, labeled_batch=labeled_batch, unlabeled_batch=ratio * labeled_batch)
    method = CoMatch(Answers(10), problem, Passing(64), queue_batches=queue_batches)
    assert method.seen["embedding"].shape == (rows, 64)
    assert method.seen["probs"].shape == (rows, 10)
    assert not method.seen["embedding"].any()
    assert not method.seen["probs"].any()
    assert len(CoMatch(Answers(10), problem, Passing(64), queue_size=30).seen["probs"]) == 30


def test_alignment_fades_over_its_steps() -> None:
    method = CoMatch(Answers(3), make_problem(), Passing(2), smoothing=1.0, alignment_steps=4)
    x, weak = answers(LABELED, angles(0, 0)), answers(WEAK, VIEW_1)
    strong, other = answers(STRONG, VIEW_1), answers(STRONG, VIEW_2)
    for step, strength in ((0, 1.0), (2, 0.5), (4, 0.0), (9, 0.0)):
        pseudo = method(make_batch(x, LABELS, weak, strong, other, step=step)).pseudo
        assert pseudo is not None
        probs = WEAK.softmax(1)
        wanted = probs / probs.mean(0) ** strength
        torch.testing.assert_close(pseudo.probs, wanted / wanted.sum(1, keepdim=True), rtol=1e-4, atol=1e-5)


# --- The equations in loops ------------------------------------------------------------------------------------------


class SlowCoMatch:
    """Section A16, one number at a time."""

    def __init__(self, rows: int, overrun: str) -> None:
        self.embeddings = [[0.0] * WIDTH for _ in range(rows)]
        self.probs = [[0.0] * CLASSES for _ in range(rows)]
        self.pointer, self.overrun = 0, overrun
        self.ring = SlowRing(SETTINGS["alignment_length"], CLASSES)

    def targets(self, on_weak: list[Row], z_weak: list[Row], smooth: bool) -> tuple[list[Row], list[Row]]:
        """Aligned and, if `smooth`, mixed with what the bank says."""
        aligned = self.ring.align([softmax(row) for row in on_weak])
        if not smooth:
            return aligned, aligned
        targets = []
        for probs, z in zip(aligned, z_weak, strict=True):
            near = softmax([dot(z, v) / SETTINGS["temperature"] for v in self.embeddings])
            remembered = [dot(near, column) for column in map(list, zip(*self.probs, strict=True))]
            targets.append(mix(SETTINGS["smoothing"], probs, remembered))
        return aligned, targets

    def write(self, z_weak: list[Row], aligned: list[Row], z_x: list[Row], labels: list[int]) -> None:
        size = len(self.probs)
        pairs = [*zip(z_weak, aligned, strict=True), *((z, hard(y, CLASSES)) for z, y in zip(z_x, labels, strict=True))]
        for offset, (z, probs) in enumerate(pairs):
            slot = self.pointer + offset
            if slot >= size and self.overrun == "skip":
                break
            self.embeddings[slot % size], self.probs[slot % size] = z, probs
        self.pointer = (self.pointer + len(pairs)) % size


def slow_contrast(
    targets: list[Row], z_strong: list[Row], z_other: list[Row], paper: bool = False
) -> tuple[float, float]:
    """The contrastive loss, and edges per row; in the paper's equation the second view is on the diagonal only."""
    total, edges = 0.0, 0
    for b in range(len(targets)):
        row = [1.0 if j == b else dot(targets[b], targets[j]) for j in range(len(targets))]
        row = [edge if edge >= SETTINGS["edge_threshold"] else 0.0 for edge in row]
        edges += sum(edge > 0 for edge in row)
        partners = [z_other[j] if j == b or not paper else z_strong[j] for j in range(len(targets))]
        similar = scale_to_sum_one([math.exp(dot(z_strong[b], z) / SETTINGS["temperature"]) for z in partners])
        total -= sum(g * math.log(s + 1e-7) for g, s in zip(scale_to_sum_one(row), similar, strict=True))
    return total / len(targets), edges / len(targets)


def finite_differences(
    targets: list[Row], z_strong: list[Row], z_other: list[Row], side: int, paper: bool = False
) -> list[Row]:
    """The gradient of the contrastive loss with respect to one of its sides."""
    sides, h = (z_strong, z_other), 1e-5
    gradient = []
    for row in sides[side]:
        gradient.append([])
        for c, value in enumerate(row):
            losses = []
            for row[c] in (value + h, value - h):
                losses.append(slow_contrast(targets, *sides, paper)[0])
            row[c] = value
            gradient[-1].append((losses[0] - losses[1]) / (2 * h))
    return gradient


GATES = [  # smooth_after, warmup_steps, queue_batches, first step that is smoothed
    ("and", 2, 3, 4),
    ("and", 5, 1, 5),
    ("or", 2, 3, 2),
    ("or", 5, 1, 2),
]


def draw_batch(generator: torch.Generator) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """Labels, and the answers to the labeled, the weak and both strong views, which take gradients."""
    labels = torch.randint(CLASSES, (LABELED_BATCH,), generator=generator)
    counts = (LABELED_BATCH, UNLABELED_BATCH, UNLABELED_BATCH, UNLABELED_BATCH)
    return labels, [random_answers(generator, count, CLASSES, WIDTH).requires_grad_() for count in counts]


@pytest.mark.parametrize(("smooth_after", "warmup_steps", "queue_batches", "first"), GATES)
@pytest.mark.parametrize(("queue_size", "overrun"), [(None, "wrap"), (10, "wrap"), (10, "skip"), (4, "wrap")])
def test_steps_are_those_of_the_loops(
    smooth_after: str, warmup_steps: int, queue_batches: int, first: int, queue_size: int | None, overrun: str
) -> None:
    problem = make_problem(CLASSES, labeled_batch=LABELED_BATCH, unlabeled_batch=UNLABELED_BATCH)
    gate = {"smooth_after": smooth_after, "warmup_steps": warmup_steps, "queue_batches": queue_batches}
    ring = {"queue_size": queue_size, "queue_overrun": overrun}
    method = CoMatch(Answers(CLASSES), problem, Passing(WIDTH), **gate, **ring, **SETTINGS)
    slow = SlowCoMatch(queue_size or queue_batches * (LABELED_BATCH + UNLABELED_BATCH), overrun)
    generator = torch.Generator().manual_seed(8)
    masks, edge_counts = [], []
    for step in range(8):
        labels, views = draw_batch(generator)
        x, weak, strong, other = views
        outcome = method(make_batch(x, labels, weak, strong, other, step=step))

        (on_x, z_x), (on_weak, z_weak), (on_strong, z_strong), (_, z_other) = (told(view, CLASSES) for view in views)
        aligned, targets = slow.targets(on_weak, z_weak, smooth=step >= first)
        unlabeled, mask = soft_consistency(targets, on_strong, SETTINGS["threshold"])
        contrast, edges = slow_contrast(targets, z_strong, z_other)
        masks += mask
        edge_counts.append(edges)
        assert outcome.losses["labeled"].item() == pytest.approx(labeled_loss(on_x, labels.tolist()), rel=1e-4)
        assert outcome.losses["unlabeled"].item() == pytest.approx(0.7 * unlabeled, rel=1e-4)
        assert outcome.losses["contrast"].item() == pytest.approx(1.3 * contrast, rel=1e-4)
        assert outcome.metrics["edges"].item() == pytest.approx(edges)
        assert outcome.pseudo.mask.tolist() == mask
        assert outcome.pseudo.labels.tolist() == [row.index(max(row)) for row in targets]

        outcome.loss.backward()
        assert not weak.grad.any()
        assert not x.grad[:, CLASSES:].any()  # the bank is written without gradient
        assert not other.grad[:, :CLASSES].any()  # the second strong view teaches no classes
        wanted = soft_gradient(targets, on_strong, mask, 0.7)
        torch.testing.assert_close(strong.grad[:, :CLASSES], torch.tensor(wanted), rtol=1e-4, atol=1e-6)
        for side, view in enumerate((strong, other)):
            wanted = 1.3 * torch.tensor(finite_differences(targets, z_strong, z_other, side))
            torch.testing.assert_close(view.grad[:, CLASSES:], wanted, rtol=1e-4, atol=1e-6)

        method.update(outcome.memory)
        slow.write(z_weak, aligned, z_x, labels.tolist())
        torch.testing.assert_close(method.seen["embedding"], torch.tensor(slow.embeddings), rtol=1e-4, atol=1e-6)
        torch.testing.assert_close(method.seen["probs"], torch.tensor(slow.probs), rtol=1e-4, atol=1e-6)
        torch.testing.assert_close(method.alignment.means, torch.tensor(slow.ring.rows), rtol=1e-4, atol=1e-6)
    assert 0 in masks
    assert 1 in masks
    assert any(1 < count < UNLABELED_BATCH for count in edge_counts)  # some edges are cut and some are not


def test_the_graph_of_the_paper_is_that_of_its_equations() -> None:
    """Edges are agreements of similarities to remembered images; embeddings are those of the first strong view."""
    problem = make_problem(CLASSES, labeled_batch=LABELED_BATCH, unlabeled_batch=UNLABELED_BATCH)
    method = CoMatch(Answers(CLASSES), problem, Passing(WIDTH), queue_size=2, graph="paper", **SETTINGS)
    slow, generator = SlowCoMatch(2, "wrap"), torch.Generator().manual_seed(8)
    edge_counts = []
    for step in range(3):
        labels, views = draw_batch(generator)
        x, weak, strong, other = views
        outcome = method(make_batch(x, labels, weak, strong, other, step=step))

        (_, z_x), (on_weak, z_weak), (on_strong, z_strong), (_, z_other) = (told(view, CLASSES) for view in views)
        near = [softmax([dot(z, v) / SETTINGS["temperature"] for v in slow.embeddings]) for z in z_weak]
        contrast, edges = slow_contrast(near, z_strong, z_other, paper=True)
        assert outcome.losses["contrast"].item() == pytest.approx(1.3 * contrast, rel=1e-4)
        assert outcome.metrics["edges"].item() == pytest.approx(edges)
        edge_counts.append(edges)
        aligned, targets = slow.targets(on_weak, z_weak, smooth=False)
        unlabeled, _ = soft_consistency(targets, on_strong, SETTINGS["threshold"])
        assert outcome.losses["unlabeled"].item() == pytest.approx(0.7 * unlabeled, rel=1e-4)  # as it is without

        outcome.losses["contrast"].backward()
        assert not weak.grad.any()
        for side, view in enumerate((strong, other)):
            wanted = 1.3 * torch.tensor(finite_differences(near, z_strong, z_other, side, paper=True))
            torch.testing.assert_close(view.grad[:, CLASSES:], wanted, rtol=1e-4, atol=1e-6)
        method.update(outcome.memory)
        slow.write(z_weak, aligned, z_x, labels.tolist())
    assert any(1 < count < UNLABELED_BATCH for count in edge_counts)  # some edges are cut and some are not


def test_the_published_ring_drops_what_overruns_and_then_skips_rows() -> None:
    problem = make_problem(CLASSES, labeled_batch=1, unlabeled_batch=2)
    method = CoMatch(Answers(CLASSES), problem, Passing(1), queue_size=4, queue_overrun="skip")
    for start in (1, 4, 7):
        numbers = torch.arange(start, start + 3, dtype=torch.float)
        memory = {"embedding": numbers[:, None], "probs": numbers[:, None].expand(-1, CLASSES)}
        method.update({**memory, "mean_probs": torch.full((CLASSES,), 1 / CLASSES)})
    # 1 2 3 fill slots 0-2; 4 fills slot 3 while 5 6 are dropped, yet the pointer goes on to slot 2: 7 8 fill 2-3
    assert method.seen["embedding"][:, 0].tolist() == [1, 2, 7, 8]


def test_the_bank_remembers_unsmoothed_weak_probabilities_then_labels() -> None:
    problem = make_problem(CLASSES, labeled_batch=LABELED_BATCH, unlabeled_batch=UNLABELED_BATCH)
    method = CoMatch(
        Answers(CLASSES), problem, Passing(WIDTH), warmup_steps=0, queue_batches=1, queue_size=12, **SETTINGS
    )
    generator, labels = torch.Generator().manual_seed(9), torch.tensor([2, 0])
    views = [random_answers(generator, count, CLASSES, WIDTH) for count in (2, 4, 4, 4)]
    x, weak, _, _ = views
    first = method(make_batch(x, labels, *views[1:], step=2))  # the gate is open, the bank still empty
    assert not method.seen["probs"].any()  # read, not written
    method.update(first.memory)
    ring = SlowRing(3, CLASSES)
    aligned = torch.tensor(ring.align(weak[:, :CLASSES].softmax(1).tolist()))
    torch.testing.assert_close(method.seen["probs"][:4], aligned)
    assert method.seen["probs"][4:6].tolist() == [[0, 0, 1], [1, 0, 0]]
    torch.testing.assert_close(method.seen["embedding"][:4], weak[:, CLASSES:])
    torch.testing.assert_close(method.seen["embedding"][4:6], x[:, CLASSES:])
    assert not method.seen["probs"][6:].any()

    second = method(make_batch(x, labels, *views[1:], step=3))
    method.update(second.memory)
    torch.testing.assert_close(second.memory["probs"][:4], method.seen["probs"][6:10])
    torch.testing.assert_close(method.seen["embedding"].norm(dim=1), torch.ones(12))


def test_an_edge_at_the_threshold_stays() -> None:
    half = torch.tensor([[0.5, 0.5], [0.5, 0.5]])  # agreement is exactly 0.5
    torch.testing.assert_close(agreement(half, 0.5), torch.tensor([[2 / 3, 1 / 3], [1 / 3, 2 / 3]]))


def test_an_edge_to_one_that_is_nothing_alike_has_a_finite_loss() -> None:
    half, view = torch.full((2, 2), 0.5), torch.eye(2, requires_grad=True)
    loss = edge_loss(half, view, torch.eye(2), 0.005)  # exp(-200) is zero in float32
    assert loss.item() == pytest.approx(-0.5 * math.log(1e-7), rel=1e-4)
    loss.backward()
    assert view.grad is not None
    assert view.grad.isfinite().all()


def test_alignment_counts_the_batch_at_hand() -> None:
    """One batch whose classes are not uniform on average comes out uniform on average (to first order)."""
    method = CoMatch(Answers(3), make_problem(), Passing(2), threshold=0.0)
    outcome = method(make_batch(answers(LABELED, VIEW_1[:2]), LABELS, *[answers(WEAK, VIEW_1)] * 3))
    probs = WEAK.softmax(1)
    wanted = probs / torch.tensor(average_row(probs.tolist()))
    torch.testing.assert_close(outcome.memory["probs"][:3], wanted / wanted.sum(1, keepdim=True), rtol=2e-4, atol=1e-5)


def test_defaults_are_the_published_ones() -> None:
    method = CoMatch(Answers(3), make_problem(), Passing(2))
    assert (method.threshold, method.edge_threshold, method.temperature, method.smoothing) == (0.95, 0.8, 0.2, 0.9)
    assert (method.unlabeled_weight, method.contrast_weight) == (1.0, 1.0)
    assert (method.queue_batches, method.warmup_steps, method.smooth_after) == (5, 1024, "and")
    assert (method.seen.overrun, method.graph) == ("wrap", "code")
    assert len(method.alignment.means) == 32
    assert method.views == (("weak",), ("weak", "strong", "strong"))


def test_all_views_pass_the_network_as_one_batch() -> None:
    net, batch = SmallNet(), image_batch(0, num_views=3)
    seen = record_inputs(net)
    CoMatch(net, make_problem(), ProjectorEnsemble(8, 4))(batch)
    assert len(seen) == 1
    assert torch.equal(seen[0], torch.cat([*batch.labeled, *batch.unlabeled[1:], batch.unlabeled[0]]))


# --- With an ensemble of projectors ----------------------------------------------------------------------------------


def test_one_head_is_the_plain_method_bit_for_bit() -> None:
    torch.manual_seed(6)
    problem = make_problem(labeled_batch=6, unlabeled_batch=9)
    settings = {"threshold": 0.5, "edge_threshold": 0.4, "warmup_steps": 2, "queue_batches": 1}
    ensemble = CoMatch(SmallNet(), problem, ProjectorEnsemble(8, 4, size=1), **settings)
    plain = with_plain_head(ensemble, CoMatch, problem, **settings)
    losses = train_steps(ensemble, 6)
    assert losses == train_steps(plain, 6)
    for ours, theirs in zip(ensemble.state_dict().items(), plain.state_dict().items(), strict=True):
        assert torch.equal(ours[1], theirs[1]), ours[0]


@pytest.mark.parametrize(("combine", "width"), [("mean", 4), ("sum", 4), ("concat", 12)])
def test_the_bank_is_as_wide_as_the_combined_embedding(combine: str, width: int) -> None:
    problem = make_problem(labeled_batch=6, unlabeled_batch=9)
    projector = ProjectorEnsemble(8, 4, size=3, combine=combine)
    method = CoMatch(SmallNet(), problem, projector, warmup_steps=0, queue_batches=2)
    assert method.seen["embedding"].shape == (30, width)
    outcome = method(image_batch(3, num_views=3))
    method.update(outcome.memory)
    torch.testing.assert_close(method.seen["embedding"][:15].norm(dim=1), torch.ones(15))
