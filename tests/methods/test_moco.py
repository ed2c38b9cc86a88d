from __future__ import annotations

import copy
import math

import pytest
import torch
import torch.nn.functional as F
from problems import (
    Answers,
    Passing,
    Row,
    SmallNet,
    cross_entropy,
    dot,
    hard,
    image_batch,
    make_batch,
    make_problem,
    only_unlabeled,
    random_answers,
    record_inputs,
    softmax,
    told,
    train_steps,
    with_plain_head,
)
from torch import Tensor, nn

from epass.errors import InputError
from epass.method import Batch
from epass.methods import METHODS, PRETRAINING
from epass.methods.moco import MoCo
from epass.parts.projector import ProjectorEnsemble
from epass.parts.teacher import Average
from epass.training.optimizer import make_optimizer
from epass.training.schedule import Plan
from epass.training.step import make_step

CLASSES, WIDTH, BATCH, QUEUE = 3, 4, 6, 10


class Speaker(Answers):
    """Says what it is told, and has a linear layer to freeze."""

    def __init__(self) -> None:
        super().__init__(CLASSES)
        self.head = nn.Linear(1, 1)


def views_batch(step: int) -> Batch:
    return only_unlabeled(image_batch(step, num_views=2))


def small(size: int = 3, **settings: object) -> MoCo:
    """A method whose key encoder differs from its query encoder in every weight."""
    torch.manual_seed(5)
    method = MoCo(SmallNet(), make_problem(), ProjectorEnsemble(8, 4, size=size), queue_size=QUEUE, **settings)
    with torch.no_grad():
        for weight in method.key_encoder.parameters():
            weight.add_(torch.randn_like(weight))
    return method.train()


# --- The equations in loops ------------------------------------------------------------------------------------------


def test_steps_are_those_of_the_loops() -> None:
    torch.manual_seed(3)
    method = MoCo(Speaker(), make_problem(CLASSES), Passing(WIDTH), temperature=0.3, queue_size=QUEUE)
    queue: list[Row] = method.seen["key"].tolist()
    pointer = 0
    generator = torch.Generator().manual_seed(4)
    found = []
    for step in range(6):  # ten rows are no multiple of six: batches wrap around the end of the queue
        query_view, key_view = (random_answers(generator, BATCH, CLASSES, WIDTH) for _ in range(2))
        key_view[: BATCH // 2] = query_view[: BATCH // 2]  # some find their own key
        query_view.requires_grad_()
        key_view.requires_grad_()
        outcome = method(only_unlabeled(make_batch(query_view, torch.zeros(BATCH).long(), query_view, key_view)))

        (_, queries), (_, keys) = told(query_view, CLASSES), told(key_view, CLASSES)
        terms, pulls, nearest = [], [], []
        for query, key in zip(queries, keys, strict=True):
            candidates = [key, *queue]
            logits = [dot(query, candidate) / 0.3 for candidate in candidates]
            terms.append(cross_entropy(hard(0, 1 + QUEUE), logits))
            weights = [(p - t) / 0.3 / BATCH for p, t in zip(softmax(logits), hard(0, 1 + QUEUE), strict=True)]
            pulls.append([dot(weights, column) for column in map(list, zip(*candidates, strict=True))])
            nearest.append(float(logits[0] > max(logits[1:])))
        assert list(outcome.losses) == ["contrast"]
        assert outcome.losses["contrast"].item() == pytest.approx(sum(terms) / BATCH, rel=1e-4)
        assert outcome.metrics["own_found"].item() == pytest.approx(sum(nearest) / BATCH)
        found += nearest

        outcome.loss.backward()
        assert key_view.grad is None  # keys are constants
        torch.testing.assert_close(query_view.grad[:, CLASSES:], torch.tensor(pulls), rtol=1e-4, atol=1e-6)

        assert method.seen["key"].tolist() == queue  # read before it is written
        method.update(outcome.memory)
        for key in keys:
            queue[pointer] = key
            pointer = (pointer + 1) % QUEUE
        assert method.seen["key"].tolist() == queue, step
    assert {0.0, 1.0} == set(found)


def test_the_queue_keeps_the_last_keys_in_their_order() -> None:
    method = MoCo(Speaker(), make_problem(CLASSES), Passing(1), queue_size=5)
    for start in (0, 3, 6):
        method.update({"key": torch.arange(start, start + 3.0)[:, None]})
    assert method.seen["key"][:, 0].tolist() == [5, 6, 7, 8, 4]
    method.update({"key": torch.arange(20.0, 32)[:, None]})  # a batch longer than the queue
    assert sorted(method.seen["key"][:, 0].tolist()) == [27, 28, 29, 30, 31]


def test_the_queue_starts_random_with_unit_rows() -> None:
    queue = MoCo(Speaker(), make_problem(), Passing(16), queue_size=50).seen["key"]
    torch.testing.assert_close(queue.norm(dim=1), torch.ones(50))
    assert queue.unique(dim=0).shape == (50, 16)
    assert (queue.mean(0).abs() < 0.15).all()


def test_with_a_random_queue_the_loss_is_near_that_of_guessing() -> None:
    torch.manual_seed(0)
    method = MoCo(Speaker(), make_problem(CLASSES), Passing(128), queue_size=4000)
    generator = torch.Generator().manual_seed(1)
    views = (random_answers(generator, 64, CLASSES, 128) for _ in range(2))
    loss = method(only_unlabeled(make_batch(torch.zeros(1), torch.zeros(1).long(), *views))).loss
    assert loss.item() == pytest.approx(math.log(4001), rel=0.05)


def published_losses(
    net: nn.Module, projector: nn.Module, queue: Tensor, *, momentum: float, steps: int
) -> list[float]:
    """Section 13.1 in its own order: the key encoder follows before it makes the keys, in training mode throughout."""
    query_encoder = nn.ModuleList([net, projector])
    key_encoder = copy.deepcopy(query_encoder)
    weights = [
        p for name, p in query_encoder.named_parameters() if "head.weight" not in name and "head.bias" not in name
    ]
    optimizer = torch.optim.SGD(weights, lr=0.05)
    losses, pointer = [], 0
    for step in range(steps):
        view, other = views_batch(step).unlabeled
        query = projector(net(view).features)
        with torch.no_grad():
            for slow, fast in zip(key_encoder.parameters(), query_encoder.parameters(), strict=True):
                slow.mul_(momentum).add_((1 - momentum) * fast)
            key = key_encoder[1](key_encoder[0](other).features)
        logits = torch.cat([torch.einsum("nc,nc->n", query, key)[:, None], torch.einsum("nc,kc->nk", query, queue)], 1)
        loss = F.cross_entropy(logits / 0.2, torch.zeros(len(query)).long())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        queue[pointer : pointer + len(key)] = key  # a multiple of the batch, as the published code asks for
        pointer = (pointer + len(key)) % len(queue)
        losses.append(loss.item())
    return losses


@pytest.mark.parametrize("size", [1, 3])
def test_a_run_is_that_of_the_published_order(size: int) -> None:
    torch.manual_seed(7)
    net, projector = SmallNet(), ProjectorEnsemble(8, 4, size=size)
    method = MoCo(copy.deepcopy(net), make_problem(), copy.deepcopy(projector), queue_size=18, momentum=0.7).train()
    wanted = published_losses(net, projector, method.seen["key"].clone(), momentum=0.7, steps=6)
    step = make_step(method, torch.optim.SGD(method.parameters(), lr=0.05), Average(method.net))
    found = [step(views_batch(number)).losses["contrast"].item() for number in range(6)]
    assert found == pytest.approx(wanted, rel=1e-5)


# --- The two encoders ------------------------------------------------------------------------------------------------


def test_queries_and_keys_each_pass_their_own_network_alone() -> None:
    method, batch = small(), views_batch(0)
    by_query, by_key = record_inputs(method.net), record_inputs(method.key_encoder.module[0])
    method(batch)
    assert [len(by_query), len(by_key)] == [1, 1]
    assert torch.equal(by_query[0], batch.unlabeled[0])
    assert torch.equal(by_key[0], batch.unlabeled[1])


@pytest.mark.parametrize("key", ["average", "eman"])
def test_keys_are_normalized_by_their_batch_or_by_averaged_statistics(key: str) -> None:
    method, batch = small(key=key), views_batch(0)
    norm = method.key_encoder.module[0].backbone.norm
    norm.running_mean.fill_(0.4)
    before = {name: buffer.clone() for name, buffer in norm.named_buffers()}
    net, projector = copy.deepcopy(method.key_encoder.module)
    net.backbone.norm.track_running_stats = True
    net.train(key == "average")
    expected = projector(net(batch.unlabeled[1]).features)
    torch.testing.assert_close(method(batch).memory["key"], expected)
    assert not torch.allclose(projector(net.train(key == "eman")(batch.unlabeled[1]).features), expected, atol=1e-3)
    for name, buffer in norm.named_buffers():
        assert torch.equal(buffer, before[name]), name


@pytest.mark.parametrize("momentum", [0.0, 0.75])
@pytest.mark.parametrize("key", ["average", "eman"])
def test_the_key_encoder_follows_after_the_optimizer_step(key: str, momentum: float) -> None:
    method = small(key=key, momentum=momentum)
    slow = method.key_encoder.module
    before = {name: value.clone() for name, value in slow.state_dict().items()}
    step = make_step(method, make_optimizer(method, Plan(steps=1, lr=0.5)), Average(method.net))
    step(views_batch(0))
    live = nn.ModuleList([method.net, method.projector]).state_dict()
    assert set(live) == set(before)
    assert not torch.equal(live["0.backbone.norm.running_mean"], torch.zeros(8))
    for name, value in slow.state_dict().items():
        if name.endswith("num_batches_tracked") or (key == "average" and "running" in name):
            assert torch.equal(value, live[name]), name
        else:
            torch.testing.assert_close(value, momentum * before[name] + (1 - momentum) * live[name])
    assert not any(weight.requires_grad for weight in method.key_encoder.parameters())


def test_the_key_encoder_starts_as_the_query_encoder() -> None:
    method = MoCo(SmallNet(), make_problem(), ProjectorEnsemble(8, 4, size=3), queue_size=QUEUE)
    live = nn.ModuleList([method.net, method.projector]).state_dict()
    assert all(torch.equal(value, live[name]) for name, value in method.key_encoder.module.state_dict().items())


def test_only_backbone_and_heads_learn() -> None:
    method = small()
    before = {name: value.clone() for name, value in method.named_parameters()}
    frozen = {name for name, weight in method.named_parameters() if not weight.requires_grad}
    assert {name for name in frozen if not name.startswith("key_encoder.")} == {"net.head.weight", "net.head.bias"}
    step = make_step(method, make_optimizer(method, Plan(steps=2, lr=0.5)), Average(method.net))
    for number in range(2):
        step(views_batch(number))
    for name, weight in method.named_parameters():
        if not name.startswith("key_encoder."):
            assert torch.equal(weight, before[name]) is (name in frozen), name


# --- With an ensemble of projectors ----------------------------------------------------------------------------------


@pytest.mark.parametrize("key", ["average", "eman"])
def test_one_head_is_the_plain_method_bit_for_bit(key: str) -> None:
    torch.manual_seed(6)
    problem = make_problem(num_labeled=8, labeled_batch=6, unlabeled_batch=9)
    settings = {"queue_size": 20, "momentum": 0.5, "key": key}
    ensemble = MoCo(SmallNet(), problem, ProjectorEnsemble(8, 4, size=1), **settings)
    plain = with_plain_head(ensemble, MoCo, problem, **settings)
    assert train_steps(ensemble, 6) == train_steps(plain, 6)
    for ours, theirs in zip(ensemble.state_dict().items(), plain.state_dict().items(), strict=True):
        assert torch.equal(ours[1], theirs[1]), ours[0]


@pytest.mark.parametrize(("combine", "width"), [("mean", 4), ("sum", 4), ("concat", 12)])
def test_the_queue_is_as_wide_as_the_combined_embedding(combine: str, width: int) -> None:
    projector = ProjectorEnsemble(8, 4, size=3, combine=combine)
    method = MoCo(SmallNet(), make_problem(), projector, queue_size=QUEUE)
    outcome = method(views_batch(0))
    method.update(outcome.memory)
    assert method.seen["key"].shape == (QUEUE, width)
    torch.testing.assert_close(method.seen["key"][:9], outcome.memory["key"])
    assert outcome.metrics["head_cosine"] < 1


# --- Settings --------------------------------------------------------------------------------------------------------


def test_defaults_are_the_published_ones() -> None:
    method = MoCo(SmallNet(), make_problem(), ProjectorEnsemble(8))
    assert method.temperature == 0.2
    assert method.seen["key"].shape == (65_536, 128)
    assert method.key_encoder.momentum == 0.999
    assert method.key_encoder.module[0].backbone.norm.training  # normalizes by the batch
    assert method.views == ((), ("crop", "crop"))
    assert not method.all_labels


@pytest.mark.parametrize(
    ("wrong", "word"),
    [({"key": "momentum"}, "eman"), ({"queue_size": 0}, "queue"), ({"temperature": 0.0}, "temperature")],
)
def test_impossible_settings_are_refused(wrong: dict[str, object], word: str) -> None:
    with pytest.raises(InputError, match=word):
        MoCo(SmallNet(), make_problem(), ProjectorEnsemble(8, 4), **wrong)


def test_it_is_no_method_to_classify_with() -> None:
    assert PRETRAINING["moco"] is MoCo
    assert not PRETRAINING.keys() & METHODS.keys()
