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
    SlowRing,
    SmallNet,
    angles,
    answers,
    balance,
    cross_entropy,
    dot,
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
from torch import Tensor, is_tensor
from torch.utils._python_dispatch import TorchDispatchMode

from epass.method import Batch
from epass.methods.simmatch import SimMatch
from epass.parts.projector import ProjectorEnsemble
from epass.parts.teacher import Average
from epass.training.optimizer import make_optimizer
from epass.training.schedule import Plan
from epass.training.step import make_step

CLASSES, WIDTH, NUM_LABELED, LABELED_BATCH, UNLABELED_BATCH = 4, 5, 6, 7, 6
SETTINGS = {
    "threshold": 0.6,
    "temperature": 0.2,
    "smoothing": 0.8,
    "bank_momentum": 0.6,
    "alignment_length": 3,
    "unlabeled_weight": 0.7,
    "instance_weight": 1.3,
    "warmup_steps": 3,
}


# --- Conformance numbers ---------------------------------------------------------------------------------------------

# Bank rows at these angles, each with one coordinate of its own that no embedding has: similarities stay those of the
# plane, while the gradient along a row's own coordinate tells what that row was taught.
BANK = torch.cat([angles(0, 0.5, 1.5, 2.5), torch.eye(4)], 1)


def in_the_plane(*radians: float) -> Tensor:
    return F.pad(angles(*radians), (0, 4))


def row_12_batch() -> tuple[Batch, Tensor]:
    strong = answers(STRONG, in_the_plane(0.3, 1.3, 2.3)).requires_grad_()
    x, weak = answers(LABELED, in_the_plane(0, 0)), answers(WEAK, in_the_plane(0, 1, 2))
    return make_batch(x, LABELS, weak, strong, step=7), strong


def row_12_method(smoothing: float) -> SimMatch:
    method = SimMatch(
        Answers(3),
        make_problem(),
        Passing(6),
        threshold=0.0,  # every row is taught, so gradients show every target
        temperature=0.1,
        smoothing=smoothing,
        alignment_length=2,
        warmup_steps=0,
    )
    balance(method, WEAK)  # q0 = softmax(W)
    method.bank.write(torch.arange(4), embedding=BANK, label=torch.tensor([0, 1, 2, 2]))
    return method


def class_targets(strong: Tensor) -> Tensor:
    """What the strong logits were taught: their gradient is (softmax - target) / N."""
    return STRONG.softmax(1) - 3 * strong.grad[:, :3]


def test_row_12_simmatch_unfold() -> None:
    batch, strong = row_12_batch()
    row_12_method(0.9)(batch).losses["instance"].backward()
    student = [softmax([dot(z, v) / 0.1 for v in BANK.tolist()]) for z in strong[:, 3:].tolist()]
    taught = torch.tensor(student) - 3 * 0.1 * strong.grad[:, 5:]  # gradient: (student - taught) / (N T)
    wanted = torch.tensor([[0.961730, 0.038266, 0.000004, 0], [0.019506, 0.514663, 0.465686, 0.000146]])
    torch.testing.assert_close(taught[:2], wanted, rtol=1e-4, atol=1e-6)


def test_row_12b_simmatch_aggregate_smooth_and_instance_loss() -> None:
    batch, strong = row_12_batch()
    outcome = row_12_method(0.9)(batch)
    assert outcome.losses["instance"].item() == pytest.approx(1.327204, rel=1e-4)
    outcome.losses["unlabeled"].backward()
    torch.testing.assert_close(
        class_targets(strong)[0], torch.tensor([0.836689, 0.125494, 0.037816]), rtol=1e-4, atol=1e-6
    )

    batch, strong = row_12_batch()
    row_12_method(0.0)(batch).losses["unlabeled"].backward()  # nothing is left but what the neighbors say
    torch.testing.assert_close(
        class_targets(strong)[0], torch.tensor([0.772742, 0.227186, 0.000071]), rtol=1e-4, atol=1e-6
    )


@pytest.mark.parametrize(("count", "norm"), [(8, 4.00), (16, 2.83), (64, 1.41), (128, 1.00)])
@pytest.mark.parametrize("normalization", ["batch", "embedding"])
def test_row_24_norm_of_the_bank(normalization: str, count: int, norm: float) -> None:
    torch.manual_seed(0)
    problem = make_problem(10, num_labeled=count, labeled_batch=count)
    method = SimMatch(Answers(10), problem, Passing(128), bank_normalization=normalization)
    for _ in range(50):
        memory = {
            "index": torch.randperm(count),
            "embedding": F.normalize(torch.randn(count, 128), dim=1),
            "label": torch.zeros(count, dtype=torch.long),
            "mean_probs": torch.full((10,), 0.1),
        }
        method.update(memory)
    norms = method.bank["embedding"].norm(dim=1)
    if normalization == "batch":
        assert norms.mean().item() == pytest.approx(norm, rel=0.01)  # over 15 seeds it strays by 0.4 %
    else:
        torch.testing.assert_close(norms, torch.ones(count))


def test_alignment_fades_over_its_steps() -> None:
    method = SimMatch(Answers(3), make_problem(), Passing(2), smoothing=1.0, warmup_steps=0, alignment_steps=4)
    x, weak, strong = answers(LABELED, angles(0, 0)), answers(WEAK, angles(0, 1, 2)), answers(STRONG, angles(0, 1, 2))
    for step, strength in ((0, 1.0), (2, 0.5), (4, 0.0), (9, 0.0)):
        pseudo = method(make_batch(x, LABELS, weak, strong, step=step)).pseudo
        assert pseudo is not None
        probs = WEAK.softmax(1)
        wanted = probs / probs.mean(0) ** strength
        torch.testing.assert_close(pseudo.probs, wanted / wanted.sum(1, keepdim=True), rtol=1e-4, atol=1e-5)


# --- The equations in loops ------------------------------------------------------------------------------------------


class SlowSimMatch:
    """Section A17, one number at a time."""

    def __init__(self, bank: Tensor, bank_normalization: str) -> None:
        self.bank: list[Row] = bank.tolist()
        self.labels = [0] * len(self.bank)
        self.ring = SlowRing(SETTINGS["alignment_length"], CLASSES)
        self.bank_normalization = bank_normalization

    def targets(self, on_weak: list[Row], z_weak: list[Row], step: int) -> tuple[list[Row], list[Row]]:
        """Of classes, and of the instances in the bank."""
        classes, instances = [], []
        for probs, z in zip(self.ring.align([softmax(row) for row in on_weak]), z_weak, strict=True):
            near = softmax([dot(z, v) / SETTINGS["temperature"] for v in self.bank])
            instances.append(scale_to_sum_one([s * probs[c] for s, c in zip(near, self.labels, strict=True)]))
            gathered = [0.0] * CLASSES
            for s, c in zip(near, self.labels, strict=True):
                gathered[c] += s
            classes.append(mix(SETTINGS["smoothing"], probs, gathered) if step >= SETTINGS["warmup_steps"] else probs)
        return classes, instances

    def instance_loss(self, instances: list[Row], z_strong: list[Row], step: int) -> float:
        if step < SETTINGS["warmup_steps"]:
            return 0.0
        terms = []
        for taught, z in zip(instances, z_strong, strict=True):
            terms.append(cross_entropy(taught, [dot(z, v) / SETTINGS["temperature"] for v in self.bank]))
        return sum(terms) / len(terms)

    def write(self, index: list[int], z_x: list[Row], labels: list[int]) -> None:
        mixed = [mix(SETTINGS["bank_momentum"], self.bank[i], z) for i, z in zip(index, z_x, strict=True)]
        if self.bank_normalization == "embedding":
            mixed = [[value / math.sqrt(dot(row, row)) for value in row] for row in mixed]
        else:
            norms = [math.sqrt(sum(value**2 for value in column)) for column in zip(*mixed, strict=True)]
            mixed = [[value / norm for value, norm in zip(row, norms, strict=True)] for row in mixed]
        for i, row, label in zip(index, mixed, labels, strict=True):
            self.bank[i], self.labels[i] = row, label


@pytest.mark.parametrize("bank_normalization", ["embedding", "batch"])
def test_steps_are_those_of_the_loops(bank_normalization: str) -> None:
    torch.manual_seed(3)
    problem = make_problem(
        CLASSES, num_labeled=NUM_LABELED, labeled_batch=LABELED_BATCH, unlabeled_batch=UNLABELED_BATCH
    )
    method = SimMatch(Answers(CLASSES), problem, Passing(WIDTH), bank_normalization=bank_normalization, **SETTINGS)
    slow = SlowSimMatch(method.bank["embedding"], bank_normalization)
    generator = torch.Generator().manual_seed(4)
    masks = []
    for step in range(8):  # before and after warm-up; the alignment ring turns more than twice
        index = torch.randint(NUM_LABELED, (LABELED_BATCH,), generator=generator)  # seven of six: some repeat
        labels = (index * 3 + 1) % CLASSES
        counts = (LABELED_BATCH, UNLABELED_BATCH, UNLABELED_BATCH)
        x, weak, strong = (random_answers(generator, count, CLASSES, WIDTH) for count in counts)
        weak.requires_grad_()
        x.requires_grad_()
        strong.requires_grad_()
        outcome = method(make_batch(x, labels, weak, strong, step=step, labeled_index=index))

        (on_x, z_x), (on_weak, z_weak), (on_strong, z_strong) = (told(view, CLASSES) for view in (x, weak, strong))
        classes, instances = slow.targets(on_weak, z_weak, step)
        unlabeled, mask = soft_consistency(classes, on_strong, SETTINGS["threshold"])
        masks += mask
        assert outcome.losses["labeled"].item() == pytest.approx(labeled_loss(on_x, labels.tolist()), rel=1e-4)
        assert outcome.losses["unlabeled"].item() == pytest.approx(0.7 * unlabeled, rel=1e-4)
        instance = slow.instance_loss(instances, z_strong, step)
        assert outcome.losses["instance"].item() == pytest.approx(1.3 * instance, rel=1e-4)
        assert outcome.pseudo.mask.tolist() == mask
        assert outcome.pseudo.labels.tolist() == [row.index(max(row)) for row in classes]

        outcome.loss.backward()
        assert not weak.grad.any()
        assert not x.grad[:, CLASSES:].any()  # the bank is written without gradient
        wanted = soft_gradient(classes, on_strong, mask, 0.7)
        torch.testing.assert_close(strong.grad[:, :CLASSES], torch.tensor(wanted), rtol=1e-4, atol=1e-6)
        pulls = []
        for taught, z in zip(instances, z_strong, strict=True):
            said = softmax([dot(z, v) / SETTINGS["temperature"] for v in slow.bank])
            weights = [
                1.3 * (s - t) / SETTINGS["temperature"] / UNLABELED_BATCH for s, t in zip(said, taught, strict=True)
            ]
            pulls.append([dot(weights, column) for column in map(list, zip(*slow.bank, strict=True))])
        wanted = torch.tensor(pulls) if step >= SETTINGS["warmup_steps"] else torch.zeros(UNLABELED_BATCH, WIDTH)
        torch.testing.assert_close(strong.grad[:, CLASSES:], wanted, rtol=1e-4, atol=1e-6)

        method.update(outcome.memory)
        slow.write(index.tolist(), z_x, labels.tolist())
        torch.testing.assert_close(method.bank["embedding"], torch.tensor(slow.bank), rtol=1e-4, atol=1e-6)
        assert method.bank["label"].tolist() == slow.labels
        torch.testing.assert_close(method.alignment.means, torch.tensor(slow.ring.rows), rtol=1e-4, atol=1e-6)
    assert 0 in masks
    assert 1 in masks


def test_a_repeated_index_keeps_its_last_embedding_mixed_with_the_old_row() -> None:
    method = SimMatch(Answers(3), make_problem(num_labeled=2, labeled_batch=3), Passing(2), bank_momentum=0.7)
    method.bank.write(torch.arange(2), embedding=angles(0.2, 1.1), label=torch.tensor([0, 0]))
    z = angles(0.5, 2.0, 3.0)
    uniform = torch.full((3,), 1 / 3)
    memory = {"index": torch.tensor([1, 0, 1]), "embedding": z, "label": torch.tensor([2, 1, 1]), "mean_probs": uniform}
    method.update(memory)
    wanted = F.normalize(0.7 * angles(0.2, 1.1) + 0.3 * torch.stack([z[1], z[2]]), dim=1)
    torch.testing.assert_close(method.bank["embedding"], wanted)
    assert method.bank["label"].tolist() == [1, 1]


def test_forward_reads_the_bank_before_it_is_written() -> None:
    method = row_12_method(0.9)
    batch, _ = row_12_batch()
    outcome = method(batch)
    torch.testing.assert_close(method.bank["embedding"], BANK, rtol=0, atol=0)
    method.update(outcome.memory)
    assert not torch.equal(method.bank["embedding"], BANK)


def test_the_bank_starts_random_with_unit_rows_and_class_zero() -> None:
    bank = SimMatch(Answers(3), make_problem(num_labeled=40), Passing(16)).bank
    torch.testing.assert_close(bank["embedding"].norm(dim=1), torch.ones(40))
    assert bank["embedding"].unique(dim=0).shape == (40, 16)
    assert bank["label"].tolist() == [0.0] * 40


def test_defaults_are_the_published_ones() -> None:
    method = SimMatch(Answers(3), make_problem(), Passing(2))
    assert (method.threshold, method.temperature, method.smoothing, method.bank_momentum) == (0.95, 0.1, 0.9, 0.7)
    assert (method.unlabeled_weight, method.instance_weight, method.warmup_steps) == (1.0, 1.0, 1024)
    assert len(method.alignment.means) == 32
    assert method.views == (("weak",), ("weak", "strong"))


def test_all_views_pass_the_network_as_one_batch() -> None:
    net, batch = SmallNet(), image_batch(0, num_views=2)
    seen = record_inputs(net)
    SimMatch(net, make_problem(num_labeled=8), ProjectorEnsemble(8, 4))(batch)
    assert len(seen) == 1
    assert torch.equal(seen[0], torch.cat([*batch.labeled, *batch.unlabeled[1:], batch.unlabeled[0]]))


# --- The averaged teacher --------------------------------------------------------------------------------------------


def taught_by_average(**settings: object) -> SimMatch:
    """A method whose teacher differs from its student in every weight."""
    torch.manual_seed(5)
    problem = make_problem(num_labeled=8, labeled_batch=6, unlabeled_batch=9)
    projector = ProjectorEnsemble(8, 4, size=3)
    method = SimMatch(SmallNet(), problem, projector, teacher="average", warmup_steps=0, **settings)
    with torch.no_grad():
        for weight in method.teacher.parameters():
            weight.add_(torch.randn_like(weight))
    return method.train()


def test_the_teacher_sees_labeled_and_weak_and_the_student_labeled_and_strong() -> None:
    method, batch = taught_by_average(), image_batch(0, num_views=2)
    (x,), (weak, strong) = batch.labeled, batch.unlabeled
    by_student, by_teacher = record_inputs(method.net), record_inputs(method.teacher.module[0])
    method(batch)
    assert [len(by_student), len(by_teacher)] == [1, 1]
    assert torch.equal(by_student[0], torch.cat([x, strong]))
    assert torch.equal(by_teacher[0], torch.cat([x, weak]))


def test_the_teacher_gives_targets_and_bank_embeddings() -> None:
    method, batch = taught_by_average(threshold=0.4, smoothing=1.0), image_batch(0, num_views=2)
    (x,), (weak, strong) = batch.labeled, batch.unlabeled
    net, projector = copy.deepcopy(method.teacher.module)
    net.train().requires_grad_(False)  # BatchNorm normalizes by the batch
    on_both = net(torch.cat([x, weak]))
    target = method.alignment(on_both.logits[6:].softmax(1), on_both.logits[6:].softmax(1).mean(0))
    student = copy.deepcopy(method.net)
    on_strong = student(torch.cat([x, strong])).logits[6:]
    loss, mask = soft_consistency(target.tolist(), on_strong.tolist(), 0.4)

    outcome = method(batch)
    torch.testing.assert_close(outcome.memory["embedding"], projector(on_both.features[:6]))
    assert outcome.pseudo.labels.tolist() == target.argmax(1).tolist()
    assert outcome.pseudo.mask.tolist() == mask
    assert 0 < sum(mask) < 9
    assert outcome.losses["unlabeled"].item() == pytest.approx(loss, rel=1e-4)
    near = (projector(on_both.features[6:]) @ method.bank["embedding"].T / 0.1).softmax(1)
    taught = F.normalize(near * target[:, :1], p=1, dim=1)  # every row of a fresh bank has class 0
    said = method.projector(student(torch.cat([x, strong])).features[6:]) @ method.bank["embedding"].T / 0.1
    assert outcome.losses["instance"].item() == pytest.approx(F.cross_entropy(said, taught).item(), rel=1e-4)


def test_the_teacher_uses_batch_statistics_and_leaves_the_running_ones_alone() -> None:
    method, batch = taught_by_average(), image_batch(0, num_views=2)
    norm = method.teacher.module[0].norm
    before = {name: buffer.clone() for name, buffer in norm.named_buffers()}
    student = copy.deepcopy(method.net)
    method(batch)
    assert set(before) == {"running_mean", "running_var", "num_batches_tracked"}
    for name, buffer in norm.named_buffers():
        assert torch.equal(buffer, before[name]), name
    # and the student's running statistics come from its own single pass
    student(torch.cat([*batch.labeled, batch.unlabeled[1]]))
    for name, buffer in student.norm.named_buffers():
        torch.testing.assert_close(method.net.norm.get_buffer(name), buffer)


@pytest.mark.parametrize("momentum", [0.0, 0.75])
def test_the_teacher_follows_after_the_optimizer_step(momentum: float) -> None:
    method = taught_by_average(teacher_momentum=momentum)
    teacher = dict(method.teacher.module.named_parameters())
    before = {name: weight.clone() for name, weight in teacher.items()}
    start = {name: weight.clone() for name, weight in method.net.named_parameters()}
    step = make_step(method, make_optimizer(method, Plan(steps=1, lr=0.5)), Average(method.net))
    step(image_batch(0, num_views=2))
    student = {f"0.{name}": weight for name, weight in method.net.named_parameters()}
    student |= {f"1.{name}": weight for name, weight in method.projector.named_parameters()}
    assert set(student) == set(teacher)
    assert all(not torch.equal(weight, start[name]) for name, weight in method.net.named_parameters())
    for name, weight in teacher.items():
        torch.testing.assert_close(weight, momentum * before[name] + (1 - momentum) * student[name])
        assert not weight.requires_grad
    for name, buffer in method.net.named_buffers():
        assert torch.equal(method.teacher.module[0].get_buffer(name), buffer)


class Shapes(TorchDispatchMode):
    """Remembers the shape of every tensor that is made."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: set[tuple[int, ...]] = set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        made = func(*args, **(kwargs or {}))
        self.seen |= {
            tuple(one.shape) for one in (made if isinstance(made, tuple | list) else [made]) if is_tensor(one)
        }
        return made


def test_no_step_makes_a_row_of_all_classes_for_every_labeled_image() -> None:
    method = SimMatch(SmallNet(37), make_problem(37, num_labeled=53), ProjectorEnsemble(8, 4), warmup_steps=0)
    with Shapes() as shapes:
        method(image_batch(0, num_views=2)).loss.backward()
    assert (9, 53) in shapes.seen, "similarities to the bank"
    assert not {(53, 37), (37, 53)} & shapes.seen


# --- With an ensemble of projectors ----------------------------------------------------------------------------------


@pytest.mark.parametrize("teacher", ["student", "average"])
def test_one_head_is_the_plain_method_bit_for_bit(teacher: str) -> None:
    torch.manual_seed(6)
    problem = make_problem(num_labeled=8, labeled_batch=6, unlabeled_batch=9)
    settings = {"threshold": 0.5, "warmup_steps": 2, "teacher": teacher, "teacher_momentum": 0.5}
    ensemble = SimMatch(SmallNet(), problem, ProjectorEnsemble(8, 4, size=1), **settings)
    plain = with_plain_head(ensemble, SimMatch, problem, **settings)
    losses = train_steps(ensemble, 6)
    assert losses == train_steps(plain, 6)
    assert losses[-1]["instance"] > 0
    for ours, theirs in zip(ensemble.state_dict().items(), plain.state_dict().items(), strict=True):
        assert torch.equal(ours[1], theirs[1]), ours[0]


@pytest.mark.parametrize(("combine", "width"), [("mean", 4), ("sum", 4), ("concat", 12)])
def test_the_bank_is_as_wide_as_the_combined_embedding(combine: str, width: int) -> None:
    projector = ProjectorEnsemble(8, 4, size=3, combine=combine)
    method = SimMatch(SmallNet(), make_problem(num_labeled=8), projector, warmup_steps=0)
    assert method.bank["embedding"].shape == (8, width)
    batch = image_batch(0, num_views=2)
    outcome = method(batch)
    method.update(outcome.memory)
    assert outcome.memory["embedding"].shape == (6, width)
    # the ensemble's embedding, not a single head's, is what the bank remembers
    on_x = copy.deepcopy(method.net)(torch.cat([*batch.labeled, *batch.unlabeled])).features[:6]
    torch.testing.assert_close(outcome.memory["embedding"], projector(on_x))
