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
    Row,
    SmallNet,
    answers,
    cross_entropy,
    hard,
    image_batch,
    labeled_loss,
    make_batch,
    make_problem,
    random_answers,
    record_inputs,
    soft_gradient,
    softmax,
    told,
)

from epass.errors import InputError
from epass.methods.dash import Dash

CLASSES, LABELED_BATCH, UNLABELED_BATCH = 4, 3, 6
SETTINGS = {
    "temperature": 0.6,
    "unlabeled_weight": 0.7,
    "warmup_steps": 4,
    "slack": 1.05,
    "decay": 2.0,
    "decay_steps": 2,
    "lowest_loss": 0.4,
}


def row_5_method(**settings: object) -> Dash:
    return Dash(Answers(3), make_problem(), warmup_steps=0, **settings)


@pytest.mark.parametrize(("initial_loss", "mask"), [(0.0746, [0, 0, 0]), (0.2, [0, 0, 1]), (1.2, [1, 1, 1])])
def test_conformance_row_5(initial_loss: float, mask: list[float]) -> None:
    losses = [0.213016, 1.088698, 0.074637]
    batch = make_batch(answers(LABELED), LABELS, answers(WEAK), answers(STRONG).requires_grad_())
    # Thresholds a little below and above a loss tell what the loss is.
    for b, loss in enumerate(losses):
        for factor, used in ((0.9999, 0), (1.0001, 1)):
            method = row_5_method(initial_loss=factor * loss, slack=1.0)
            assert method(batch).pseudo.mask[b] == used
    method = row_5_method(initial_loss=initial_loss)
    assert method(batch).pseudo.mask.tolist() == mask
    if initial_loss == 1.2:
        assert method(batch).metrics["threshold"].item() == pytest.approx(1.20012, rel=1e-6)
    torch.testing.assert_close(method(batch).pseudo.probs, (2 * WEAK).softmax(1))


class SlowDash:
    """Section A12; the initial loss is that of the first step, or the mean over the last steps of the warm-up."""

    def __init__(self, measured_steps: int, initial_loss: float | str) -> None:
        self.measured_steps, self.initial_loss, self.history = measured_steps, initial_loss, list[float]()

    def threshold(self, step: int) -> float:
        if self.initial_loss == "untrained":
            start = self.history[0]
        elif self.initial_loss == "trained":
            last = self.history[SETTINGS["warmup_steps"] - self.measured_steps : SETTINGS["warmup_steps"]]
            start = sum(last) / self.measured_steps
        else:
            start = self.initial_loss
        assert isinstance(start, float)
        j = (step - SETTINGS["warmup_steps"]) // SETTINGS["decay_steps"]
        return max(SETTINGS["slack"] * SETTINGS["decay"] ** -j * start, SETTINGS["lowest_loss"])

    def target(self, logits: Row, threshold: float) -> Row:
        if threshold == SETTINGS["lowest_loss"]:
            return hard(logits.index(max(logits)), CLASSES)
        return softmax([value / SETTINGS["temperature"] for value in logits])


@pytest.mark.parametrize("initial_loss", ["untrained", "trained", 2.0])
@pytest.mark.parametrize(("num_labeled", "measured_steps"), [(3, 1), (8, 3), (60, 4)])
def test_steps_are_those_of_the_loops(num_labeled: int, measured_steps: int, initial_loss: float | str) -> None:
    generator = torch.Generator().manual_seed(4)
    problem = make_problem(CLASSES, num_labeled=num_labeled, labeled_batch=LABELED_BATCH)
    method = Dash(Answers(CLASSES), problem, initial_loss=initial_loss, **SETTINGS)
    slow, masks, kinds = SlowDash(measured_steps, initial_loss), [], set()
    for step in range(16):
        labels = torch.randint(CLASSES, (LABELED_BATCH,), generator=generator)
        counts = (LABELED_BATCH, UNLABELED_BATCH, UNLABELED_BATCH)
        x, weak, strong = (random_answers(generator, count, CLASSES, 2).requires_grad_() for count in counts)
        outcome = method(make_batch(x, labels, weak, strong, step=step))

        (on_x, _), (on_weak, _), (on_strong, _) = (told(view, CLASSES) for view in (x, weak, strong))
        labeled = labeled_loss(on_x, labels.tolist())
        assert outcome.losses["labeled"].item() == pytest.approx(labeled, rel=1e-4)
        outcome.loss.backward()
        assert not weak.grad.any()
        if step < SETTINGS["warmup_steps"]:
            assert outcome.losses["unlabeled"].item() == 0
            assert not strong.grad.any()
            assert not outcome.pseudo.mask.any()
        else:
            threshold = slow.threshold(step)
            targets = [slow.target(row, threshold) for row in on_weak]
            mask = [1.0 if cross_entropy(t, row) <= threshold else 0.0 for t, row in zip(targets, on_weak, strict=True)]
            terms = [m * cross_entropy(t, row) for m, t, row in zip(mask, targets, on_strong, strict=True)]
            assert outcome.metrics["threshold"].item() == pytest.approx(threshold, rel=1e-4)
            assert outcome.pseudo.mask.tolist() == mask
            assert outcome.losses["unlabeled"].item() == pytest.approx(0.7 * sum(terms) / UNLABELED_BATCH, rel=1e-4)
            wanted = soft_gradient(targets, on_strong, mask, 0.7)
            torch.testing.assert_close(strong.grad[:, :CLASSES], torch.tensor(wanted), rtol=1e-4, atol=1e-6)
            torch.testing.assert_close(outcome.pseudo.probs, torch.tensor(targets), rtol=1e-4, atol=1e-6)
            masks += mask
            kinds.add(threshold == SETTINGS["lowest_loss"])
        slow.history.append(labeled)
        method.update(outcome.memory)
    assert set(masks) == {0, 1}
    assert kinds == {False, True}


def learned_by_heart(initial_loss: float | str) -> Dash:
    """Dash after a warm-up that leaves nothing of the loss of six labeled images."""
    torch.manual_seed(0)
    net = SmallNet()
    problem = make_problem(num_labeled=6, labeled_batch=6, unlabeled_batch=9)
    method = Dash(net, problem, warmup_steps=120, slack=1.0, decay=2.0, decay_steps=10, initial_loss=initial_loss)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.3)
    batch = image_batch(0, num_views=2)
    for step in range(120):
        outcome = method(batch._replace(step=torch.tensor(step)))
        optimizer.zero_grad()
        outcome.loss.backward()
        optimizer.step()
        method.update(outcome.memory)
    assert outcome.losses["labeled"] < 0.05
    return method


def test_the_threshold_starts_near_ln_c_and_shrinks_after_a_warm_up_that_learns_the_labels_by_heart() -> None:
    method = learned_by_heart("untrained")
    found = [method.loss_threshold(torch.tensor(step)).item() for step in (120, 130, 140, 500)]
    assert found[0] == pytest.approx(math.log(3), rel=0.5)
    assert found[1:] == pytest.approx([found[0] / 2, found[0] / 4, 0.05])


def test_the_loss_of_the_trained_network_leaves_nothing_to_shrink() -> None:
    method = learned_by_heart("trained")
    assert 0 < method.labeled_loss < 0.05
    assert method.loss_threshold(torch.tensor(120)).item() == pytest.approx(0.05)


def test_from_ln_10_the_floor_is_reached_after_17_decays() -> None:
    method = Dash(Answers(10), make_problem(10), initial_loss=math.log(10))
    found = [method.loss_threshold(torch.tensor(2048 + 10240 * j)).item() for j in (0, 16, 17, 97)]
    assert found[0] == pytest.approx(1.0001 * math.log(10))
    assert found[1] > 0.05
    assert found[2:] == pytest.approx([0.05, 0.05])
    last_of_the_first = method.loss_threshold(torch.tensor(2048 + 10239)).item()
    assert last_of_the_first == found[0]


def test_the_threshold_does_not_move_before_the_warm_up_is_over() -> None:
    method = Dash(Answers(10), make_problem(10), initial_loss=math.log(10), warmup_steps=100, decay_steps=10)
    found = [method.loss_threshold(torch.tensor(step)).item() for step in (0, 50, 99, 100)]
    assert found == pytest.approx([1.0001 * math.log(10)] * 4)


def test_before_anything_is_measured_the_threshold_is_the_lowest() -> None:
    method = Dash(Answers(3), make_problem(), warmup_steps=0, decay_steps=0, initial_loss="trained")
    outcome = method(make_batch(answers(LABELED), LABELS, answers(10 * WEAK), answers(STRONG)))
    assert outcome.metrics["threshold"].item() == pytest.approx(0.05)
    assert outcome.pseudo.mask.tolist() == [1, 0, 1]
    assert outcome.pseudo.probs.tolist() == [hard(0, 3), hard(0, 3), hard(1, 3)]
    method.update(outcome.memory)
    assert method.labeled_loss == 0  # there was no warm-up to measure


def test_without_a_warmup_the_first_step_is_measured_all_the_same() -> None:
    method = Dash(Answers(3), make_problem(), warmup_steps=0)
    outcome = method(make_batch(answers(LABELED), LABELS, answers(WEAK), answers(STRONG)))
    assert outcome.metrics["threshold"].item() == pytest.approx(0.05)
    method.update(outcome.memory)
    assert method.loss_threshold(torch.tensor(1)).item() == pytest.approx(1.0001 * outcome.losses["labeled"].item())


def test_settings_that_mean_nothing_are_refused() -> None:
    with pytest.raises(InputError, match=r"at least 1, not 0\.9"):
        Dash(Answers(3), make_problem(), decay=0.9)
    with pytest.raises(InputError, match="Unknown initial_loss 'random'"):
        Dash(Answers(3), make_problem(), initial_loss="random")


def test_all_views_pass_the_network_as_one_batch() -> None:
    net, (x, weak, strong) = SmallNet(), torch.randn(3, 4, 3, 6, 6)
    seen = record_inputs(net)
    Dash(net, make_problem())(make_batch(x, torch.tensor([0, 1, 2, 0]), weak, strong))
    assert len(seen) == 1
    assert torch.equal(seen[0], torch.cat([x, strong, weak]))


def test_defaults_are_the_published_ones() -> None:
    method = Dash(Answers(3), make_problem())
    assert (method.temperature, method.unlabeled_weight, method.warmup_steps) == (0.5, 1.0, 2048)
    assert (method.slack, method.decay, method.decay_steps, method.lowest_loss) == (1.0001, 1.27, 10 * 1024, 0.05)
    assert method.initial_loss == "untrained"
    assert method.views == (("weak",), ("weak", "strong"))
