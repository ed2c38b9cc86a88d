"""Tiny problems for the tests of methods, and the arithmetic of the specification in loops over plain floats."""

from __future__ import annotations

import copy
import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from epass.method import Batch, Method, Problem
from epass.networks.classifier import Prediction
from epass.parts.teacher import Average
from epass.training.optimizer import make_optimizer
from epass.training.schedule import Plan
from epass.training.step import make_step

Row = list[float]

# The common inputs of section 18.
WEAK = torch.tensor([[2, 0, -1], [0.5, 0.4, 0.3], [-1, 3, 0]])
STRONG = torch.tensor([[1.5, 0.5, 0], [0.2, 0.1, 0], [0, 2, 0.5]])
LABELED = torch.tensor([[1.0, 0, 0], [0, 2, 1]])
LABELS = torch.tensor([0, 1])


def angles(*radians: float) -> Tensor:
    """Unit vectors of the plane, one per angle."""
    return torch.tensor([[math.cos(angle), math.sin(angle)] for angle in radians])


# --- A network that says what it is told -----------------------------------------------------------------------------


class Answers(nn.Module):
    """A network whose images are its answers, so that a test prescribes logits and features row by row."""

    def __init__(self, num_classes: int, num_features: int = 1) -> None:
        super().__init__()
        self.num_classes, self.num_features = num_classes, num_features

    def forward(self, images: Tensor) -> Prediction:
        return Prediction(images[:, : self.num_classes], images[:, self.num_classes :])


def answers(logits: Tensor, features: Tensor | None = None) -> Tensor:
    """Images that make `Answers` say `logits` and `features`."""
    return torch.cat([logits, torch.zeros(len(logits), 1) if features is None else features], 1)


class Passing(nn.Module):
    """A projector that hands on features that are embeddings already."""

    def __init__(self, out_dim: int) -> None:
        super().__init__()
        self.out_dim = out_dim

    def forward(self, features: Tensor) -> Tensor:
        return features

    combined = forward

    def similarity(self, features: Tensor) -> Tensor:
        return features.new_ones(())


def make_problem(
    num_classes: int = 3,
    *,
    num_labeled: int = 4,
    labeled_batch: int = 2,
    unlabeled_batch: int = 3,
    steps: int = 1000,
) -> Problem:
    counts = tuple(len(range(c, num_labeled, num_classes)) for c in range(num_classes))
    return Problem(
        num_classes=num_classes,
        num_labeled=num_labeled,
        num_unlabeled=50,
        label_counts=counts,
        labeled_batch=labeled_batch,
        unlabeled_batch=unlabeled_batch,
        steps=steps,
    )


def make_batch(
    labeled: Tensor, labels: Tensor, *unlabeled: Tensor, step: int = 0, labeled_index: Tensor | None = None
) -> Batch:
    count = len(unlabeled[0]) if unlabeled else 0
    return Batch(
        labeled=(labeled,),
        labels=labels,
        unlabeled=unlabeled,
        labeled_index=torch.arange(len(labels)) if labeled_index is None else labeled_index,
        unlabeled_index=torch.arange(count),
        unlabeled_truth=torch.full((count,), -1),
        step=torch.tensor(step),
        seed=torch.tensor(1_000_003 * (step + 1)),
    )


def only_unlabeled(batch: Batch) -> Batch:
    """What the feed gives to a method without labeled views."""
    none = batch.labels[:0]
    return batch._replace(labeled=(), labels=none, labeled_index=none)


def random_answers(generator: torch.Generator, count: int, num_classes: int, width: int) -> Tensor:
    """Logits from timid to bold, and unit features."""
    scale = 4 * torch.rand(count, 1, generator=generator)
    logits = scale * torch.randn(count, num_classes, generator=generator)
    return answers(logits, F.normalize(torch.randn(count, width, generator=generator), dim=1))


def told(images: Tensor, num_classes: int) -> tuple[list[Row], list[Row]]:
    """The logits and features of such images, as floats."""
    return images[:, :num_classes].tolist(), images[:, num_classes:].tolist()


def balance(method: Method, weak_logits: Tensor) -> None:
    """Fill an alignment memory of length 2 so that, with this batch, classes are uniform: alignment does nothing."""
    assert len(method.alignment.means) == 2
    method.alignment.remember(2 / weak_logits.shape[1] - weak_logits.softmax(1).mean(0))


# --- A network that learns -------------------------------------------------------------------------------------------


class SmallBackbone(nn.Module):
    """A convolution with BatchNorm."""

    def __init__(self, num_features: int) -> None:
        super().__init__()
        self.num_features = num_features
        self.conv = nn.Conv2d(3, num_features, 3, padding=1)
        self.norm = nn.BatchNorm2d(num_features)

    def forward(self, images: Tensor) -> Tensor:
        return self.norm(self.conv(images)).relu().mean((2, 3))


class SmallNet(nn.Module):
    """The backbone and a linear layer. The golden traces depend on it."""

    def __init__(self, num_classes: int = 3, num_features: int = 8) -> None:
        super().__init__()
        self.num_features = num_features
        self.backbone = SmallBackbone(num_features)
        self.head = nn.Linear(num_features, num_classes)

    @property
    def norm(self) -> nn.Module:
        return self.backbone.norm

    def forward(self, images: Tensor) -> Prediction:
        features = self.backbone(images)
        return Prediction(self.head(features), features)


def image_batch(
    step: int, *, num_views: int, num_classes: int = 3, labeled: int = 6, unlabeled: int = 9, num_labeled: int = 8
) -> Batch:
    """Noisy images, one color per class; later views are noisier. The same at every call with the same `step`."""
    generator = torch.Generator().manual_seed(1000 + step)
    colors = torch.randn(num_classes, 3, 1, 1, generator=torch.Generator().manual_seed(7))

    def look(truth: Tensor, noise: float) -> Tensor:
        return colors[truth] + noise * torch.randn(len(truth), 3, 6, 6, generator=generator)

    index = torch.randint(num_labeled, (labeled,), generator=generator)  # repeats, as with few labels
    labels = index % num_classes
    truth = torch.randint(num_classes, (unlabeled,), generator=generator)
    views = tuple(look(truth, 0.3 + 0.4 * min(view, 1)) for view in range(num_views))
    batch = make_batch(look(labels, 0.3), labels, *views, step=step, labeled_index=index)
    return batch._replace(unlabeled_truth=truth, unlabeled_index=torch.arange(unlabeled))


def train_steps(method: Method, steps: int, *, lr: float = 0.05) -> list[dict[str, float]]:
    """Train on `image_batch`; the loss parts of every step."""
    optimizer = make_optimizer(method, Plan(steps=steps, lr=lr))
    step = make_step(method, optimizer, Average(method.net, 0.9))
    batches = (image_batch(number, num_views=len(method.views.unlabeled)) for number in range(steps))
    return [{name: float(loss) for name, loss in step(batch).losses.items()} for batch in batches]


class PlainHead(nn.Module):
    """The one projection head of SimMatch and CoMatch, written without any ensemble."""

    def __init__(self, in_dim: int, out_dim: int) -> None:
        super().__init__()
        self.out_dim = out_dim
        self.first, self.second = nn.Linear(in_dim, in_dim), nn.Linear(in_dim, out_dim)

    def forward(self, features: Tensor) -> Tensor:
        return F.normalize(self.combined(features), dim=1, eps=1e-12)

    def combined(self, features: Tensor) -> Tensor:
        return self.second(F.relu(self.first(features)))

    def similarity(self, features: Tensor) -> Tensor:
        return features.new_ones(())


def with_plain_head(method: Method, rebuild: type[Method], problem: Problem, **settings: object) -> Method:
    """The same method with its ensemble of one replaced by a plain head of the same weights."""
    (head,) = method.projector.heads
    plain = PlainHead(head[0].in_features, method.projector.out_dim)
    plain.first.load_state_dict(head[0].state_dict())
    plain.second.load_state_dict(head[2].state_dict())
    twin = rebuild(copy.deepcopy(method.net), problem, plain, **settings)
    for name, buffer in twin.named_buffers():
        buffer.copy_(method.get_buffer(name))
    return twin


def record_inputs(module: nn.Module) -> list[Tensor]:
    """A list that receives whatever `module` is called with from now on."""
    seen: list[Tensor] = []
    module.register_forward_hook(lambda _module, inputs, _output: seen.append(inputs[0].detach().clone()))
    return seen


# --- Slow arithmetic -------------------------------------------------------------------------------------------------


def softmax(logits: Row) -> Row:
    powers = [math.exp(value - max(logits)) for value in logits]
    return [power / sum(powers) for power in powers]


def cross_entropy(target: Row, logits: Row) -> float:
    """H(t, l) = - sum_c t_c log softmax(l)_c."""
    top = max(logits)
    log_total = top + math.log(sum(math.exp(value - top) for value in logits))
    return -sum(t * (value - log_total) for t, value in zip(target, logits, strict=True))


def divergence(target: Row, logits: Row) -> float:
    """KL(t || softmax(l)) = sum_c t_c log(t_c / softmax(l)_c)."""
    return sum(t * math.log(t / p) for t, p in zip(target, softmax(logits), strict=True) if t > 0)


def sharpened(logits: Row, temperature: float) -> Row:
    """softmax(l / T)."""
    return softmax([value / temperature for value in logits])


def hard(label: int, num_classes: int) -> Row:
    return [1.0 if c == label else 0.0 for c in range(num_classes)]


def dot(a: Row, b: Row) -> float:
    return sum(left * right for left, right in zip(a, b, strict=True))


def mix(weight: float, a: Row, b: Row) -> Row:
    return [weight * left + (1 - weight) * right for left, right in zip(a, b, strict=True)]


def scale_to_sum_one(row: Row) -> Row:
    return [value / sum(row) for value in row]


def average_row(rows: list[Row]) -> Row:
    return [sum(column) / len(rows) for column in zip(*rows, strict=True)]


class SlowRing:
    """Distribution alignment over a queue, section 9.4."""

    def __init__(self, length: int, num_classes: int) -> None:
        self.rows = [[0.0] * num_classes for _ in range(length)]
        self.pointer = 0

    def align(self, probs: list[Row]) -> list[Row]:
        self.rows[self.pointer] = average_row(probs)
        self.pointer = (self.pointer + 1) % len(self.rows)
        found, wanted = average_row(self.rows), 1 / len(probs[0])
        return [
            scale_to_sum_one([q * (wanted + 1e-6) / (f + 1e-6) for q, f in zip(row, found, strict=True)])
            for row in probs
        ]


def shrink(logits: list[Row], probs: list[Row], mask: list[float], threshold: float, ranking: list[Row]) -> float:
    """The loss of shrunk class spaces, section N2.3."""
    total = 0.0
    for row, q, m, scores in zip(logits, probs, mask, ranking, strict=True):
        order = sorted(range(len(q)), key=lambda c: -scores[c])
        for c in range(2, len(q)):
            top, rest = scores[order[0]], sum(scores[other] for other in order[c:])
            if m == 0 and top / (top + rest) >= threshold:
                kept = [row[order[0]], *(row[other] for other in order[c:])]
                total += max(q) * cross_entropy(hard(0, len(kept)), kept)
                break
    return total / len(probs)


def soft_consistency(targets: list[Row], logits: list[Row], threshold: float) -> tuple[float, list[float]]:
    """mean_b m_b H(q_b, l_b) and the mask, masked-out rows counted in the mean."""
    mask = [1.0 if max(target) >= threshold else 0.0 for target in targets]
    terms = [m * cross_entropy(target, row) for m, target, row in zip(mask, targets, logits, strict=True)]
    return sum(terms) / len(terms), mask


def labeled_loss(logits: list[Row], labels: list[int]) -> float:
    terms = [cross_entropy(hard(label, len(row)), row) for label, row in zip(labels, logits, strict=True)]
    return sum(terms) / len(terms)


def soft_gradient(targets: list[Row], logits: list[Row], mask: list[float], weight: float) -> list[Row]:
    """Of weight * mean_b m_b H(q_b, l_b) with respect to l: weight * m_b (sum(q_b) softmax(l)_c - q_bc) / N.

    A target mixed with empty rows of a bank sums to less than one.
    """
    return [
        [weight * m * (sum(target) * p - t) / len(logits) for p, t in zip(softmax(row), target, strict=True)]
        for m, target, row in zip(mask, targets, logits, strict=True)
    ]


def slow_squared_error(logits: list[Row], targets: list[Row]) -> float:
    """mean_b mean_c (softmax(l)_bc - t_bc)^2."""
    terms = [
        (p - t) ** 2
        for row, target in zip(logits, targets, strict=True)
        for p, t in zip(softmax(row), target, strict=True)
    ]
    return sum(terms) / len(terms)


def slow_squared_error_gradient(logits: list[Row], targets: list[Row], weight: float) -> list[Row]:
    """Of weight * mean_b mean_c (p_bc - t_bc)^2 with respect to l: 2 weight p_c (d_c - sum_k p_k d_k) / (N C)."""
    gradient = []
    for row, target in zip(logits, targets, strict=True):
        probs = softmax(row)
        gaps = [p - t for p, t in zip(probs, target, strict=True)]
        scale = 2 * weight / (len(logits) * len(row))
        gradient.append([scale * p * (gap - dot(probs, gaps)) for p, gap in zip(probs, gaps, strict=True)])
    return gradient
