from __future__ import annotations

import math
from collections.abc import Callable
from itertools import combinations
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from epass.parts.projector import ProjectorEnsemble

SIZES = [1, 2, 3, 5, 8]
IN, OUT = 6, 4


def make(size: int, *, seed: int = 0, **settings: object) -> ProjectorEnsemble:
    torch.manual_seed(seed)
    return ProjectorEnsemble(IN, OUT, size=size, **settings)


def features(count: int = 7) -> Tensor:
    return torch.randn(count, IN, generator=torch.Generator().manual_seed(1))


def cotangent(width: int = OUT, count: int = 7) -> Tensor:
    """What a loss might say about embeddings: any fixed direction."""
    return torch.randn(count, width, generator=torch.Generator().manual_seed(2))


def gradients(projector: ProjectorEnsemble, embedding: Tensor, inputs: Tensor) -> list[Tensor]:
    found = torch.autograd.grad((embedding * cotangent(embedding.shape[1])).sum(), [*projector.parameters(), inputs])
    return list(found)


# --- Loops over numbers: section 6 and 11.1 --------------------------------------------------------------------------


def slow_head(head: nn.Sequential, row: list[float]) -> list[float]:
    (first_weight, first_bias), (second_weight, second_bias) = (
        (layer.weight.tolist(), layer.bias.tolist()) for layer in (head[0], head[2])
    )
    hidden = [
        max(0.0, bias + sum(w * value for w, value in zip(weights, row, strict=True)))
        for weights, bias in zip(first_weight, first_bias, strict=True)
    ]
    return [
        bias + sum(w * value for w, value in zip(weights, hidden, strict=True))
        for weights, bias in zip(second_weight, second_bias, strict=True)
    ]


def unit(row: list[float]) -> list[float]:
    norm = math.sqrt(sum(value**2 for value in row))
    return [value / norm for value in row]


def slow_embedding(projector: ProjectorEnsemble, row: list[float], combine: str, normalize: str) -> list[float]:
    said = [slow_head(head, row) for head in projector.heads]
    if normalize in ("before", "both"):
        said = [unit(output) for output in said]
    if combine == "concat":
        combined = [value for output in said for value in output]
    else:
        combined = [sum(column) for column in zip(*said, strict=True)]
        if combine == "mean":
            combined = [value / len(said) for value in combined]
    return unit(combined) if normalize in ("after", "both") else combined


@pytest.mark.parametrize("normalize", ["after", "before", "both"])
@pytest.mark.parametrize("combine", ["mean", "sum", "concat"])
@pytest.mark.parametrize("size", [1, 3])
def test_embeddings_are_those_of_the_loops(size: int, combine: str, normalize: str) -> None:
    projector = make(size, combine=combine, normalize=normalize)
    wanted = [slow_embedding(projector, row, combine, normalize) for row in features().tolist()]
    embedding = projector(features())
    torch.testing.assert_close(embedding, torch.tensor(wanted), rtol=1e-4, atol=1e-6)
    assert embedding.shape == (7, projector.out_dim)


def test_the_default_is_one_head_meaned_then_normalized() -> None:
    projector = ProjectorEnsemble(IN)
    assert len(projector.heads) == 1
    assert (projector.out_dim, projector.combine, projector.normalize, projector.eps) == (128, "mean", "after", 1e-12)


# --- The fused path --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("combine", ["mean", "sum"])
@pytest.mark.parametrize("size", SIZES)
def test_one_wide_mlp_is_the_loop_over_heads(size: int, combine: str) -> None:
    projector, inputs = make(size, combine=combine), features().requires_grad_()
    fused, looped = projector.as_one_mlp(inputs), projector.combine_heads(projector.outputs(inputs))
    torch.testing.assert_close(fused, looped, rtol=1e-5, atol=1e-6)

    embedding = projector(inputs)  # what a method gets, against the loop normalized by hand
    by_hand = looped / looped.norm(dim=1, keepdim=True)
    torch.testing.assert_close(embedding, by_hand, rtol=1e-5, atol=1e-6)
    ours, theirs = gradients(projector, embedding, inputs), gradients(projector, by_hand, inputs)
    assert len(ours) == 4 * size + 1
    for one, other in zip(ours, theirs, strict=True):
        assert one.any()
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)


def test_mean_and_sum_take_the_fused_path(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("looped over heads")

    monkeypatch.setattr(ProjectorEnsemble, "outputs", refuse)
    for combine in ("mean", "sum"):
        make(3, combine=combine)(features())


@pytest.mark.parametrize("size", SIZES)
def test_sum_is_mean_once_normalized(size: int) -> None:
    mean, total = make(size, combine="mean"), make(size, combine="sum")
    inputs = features().requires_grad_()
    torch.testing.assert_close(mean(inputs), total(inputs), rtol=1e-5, atol=1e-6)
    ours, theirs = gradients(mean, mean(inputs), inputs), gradients(total, total(inputs), inputs)
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)
    if size > 1:  # and not before that
        assert not torch.allclose(mean.as_one_mlp(inputs), total.as_one_mlp(inputs))


def test_sum_is_not_mean_when_normalized_before() -> None:
    mean, total = make(3, combine="mean", normalize="before"), make(3, combine="sum", normalize="before")
    torch.testing.assert_close(3 * mean(features()), total(features()))
    assert (mean(features()).norm(dim=1) < 1 - 1e-3).all()
    both = make(3, combine="sum", normalize="both")(features())
    torch.testing.assert_close(both.norm(dim=1), torch.ones(7))
    assert not torch.allclose(both, make(3, combine="sum")(features()), atol=1e-3)


def test_concatenated_cosine_is_the_norm_weighted_average_of_the_heads() -> None:
    projector = make(3, combine="concat")
    z = projector(features())
    said = torch.stack(projector.outputs(features()))  # (P, N, d)
    norms = said.square().sum((0, 2)).sqrt()
    products = (said[:, 0] * said[:, 1]).sum() / (norms[0] * norms[1])
    torch.testing.assert_close(z[0] @ z[1], products)


# --- Features of any shape --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("normalize", ["after", "before", "both"])
@pytest.mark.parametrize("combine", ["mean", "sum", "concat"])
@pytest.mark.parametrize("size", [1, 3])
@pytest.mark.parametrize("shape", [(), (3, 4), (2, 2, 3)])
def test_the_last_dimension_is_that_of_the_features(
    shape: tuple[int, ...], size: int, combine: str, normalize: str
) -> None:
    projector = make(size, combine=combine, normalize=normalize)
    inputs = torch.randn(*shape, IN, generator=torch.Generator().manual_seed(3))
    embedding = projector(inputs)
    assert embedding.shape == (*shape, projector.out_dim)
    torch.testing.assert_close(embedding.reshape(-1, projector.out_dim), projector(inputs.reshape(-1, IN)))
    torch.testing.assert_close(projector.similarity(inputs), projector.similarity(inputs.reshape(-1, IN)))


# --- Heads that somebody changed ------------------------------------------------------------------------------------


def with_gelu(projector: ProjectorEnsemble) -> None:
    projector.heads[1][1] = nn.GELU()


def with_norm(projector: ProjectorEnsemble) -> None:
    projector.heads[1].insert(1, nn.BatchNorm1d(IN))


def with_wider_head(projector: ProjectorEnsemble) -> None:
    projector.heads[1] = nn.Sequential(nn.Linear(IN, 9), nn.ReLU(), nn.Linear(9, OUT))


def without_bias(projector: ProjectorEnsemble) -> None:
    projector.heads[1][2] = nn.Linear(IN, OUT, bias=False)


def with_one_layer(projector: ProjectorEnsemble) -> None:
    projector.heads[1] = nn.Linear(IN, OUT)


def with_normalized_weights(projector: ProjectorEnsemble) -> None:
    nn.utils.parametrizations.weight_norm(projector.heads[1][2])
    projector.heads[1][2].parametrizations.weight.original0.data.mul_(3)


class Tripled(nn.Linear):
    """A layer of another kind, as quantization puts into the place of one."""

    def forward(self, rows: Tensor) -> Tensor:
        return 3 * super().forward(rows)


def with_a_layer_of_another_kind(projector: ProjectorEnsemble) -> None:
    projector.heads[1][0] = Tripled(IN, IN)


def with_hook(projector: ProjectorEnsemble) -> None:
    projector.heads[1].register_forward_hook(lambda _, __, output: 3 * output.roll(1, -1))


def with_hook_before_a_layer(projector: ProjectorEnsemble) -> None:
    projector.heads[1][2].register_forward_pre_hook(lambda _, inputs: (inputs[0].roll(1, -1),))


def with_a_forward_of_its_own(projector: ProjectorEnsemble) -> None:
    layer, forward = projector.heads[1][2], projector.heads[1][2].forward  # as accelerate puts weights on a device
    layer.forward = lambda rows: forward(rows.roll(1, -1))


class Packed(Tensor):
    """Weights that are more than their numbers, as torchao stores them."""

    __tensor_flatten__ = None

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        said = super().__torch_function__(function, types, args, kwargs)
        return 3 * said.as_subclass(Tensor) if function is F.linear else said


def with_packed_weights(projector: ProjectorEnsemble) -> None:
    projector.heads[1][0].weight = nn.Parameter(projector.heads[1][0].weight.detach().as_subclass(Packed))


CHANGES = [
    with_gelu,
    with_norm,
    with_wider_head,
    without_bias,
    with_one_layer,
    with_normalized_weights,
    with_a_layer_of_another_kind,
    with_hook,
    with_hook_before_a_layer,
    with_a_forward_of_its_own,
    with_packed_weights,
]


@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_head_says_what_it_computes_now(change: Callable[[ProjectorEnsemble], None]) -> None:
    projector, inputs = make(3), features()
    change(projector)
    said = [head(inputs) for head in projector.heads]
    wanted = F.normalize(sum(said) / 3, dim=1)
    torch.testing.assert_close(projector(inputs), wanted)
    assert not torch.allclose(wanted, make(3)(inputs), atol=1e-2)  # it matters
    cosines = [F.cosine_similarity(one, other) for one, other in combinations(said, 2)]
    torch.testing.assert_close(projector.similarity(inputs), torch.stack(cosines).mean())


def test_a_hook_that_looks_at_the_gradients_of_a_head_is_called() -> None:
    projector, seen = make(2), []
    projector.heads[0].register_full_backward_hook(lambda _, __, gradients: seen.append(gradients))
    projector(features().requires_grad_()).sum().backward()
    assert len(seen) == 1


def test_a_hook_that_looks_at_the_gradients_before_a_head_takes_them_is_called() -> None:
    projector, seen = make(2), []
    projector.heads[0].register_full_backward_pre_hook(lambda _, gradients: seen.append(gradients))
    projector(features().requires_grad_()).sum().backward()
    assert len(seen) == 1


def test_the_similarity_counts_no_features_twice() -> None:
    projector = make(2)
    with_norm(projector)
    projector.similarity(features())
    assert projector.heads[1][1].num_batches_tracked == 0


@pytest.mark.slow
@pytest.mark.parametrize("change", [lambda _: None, with_gelu, with_norm])
def test_heads_compile_whether_they_were_changed_or_not(change: Callable[[ProjectorEnsemble], None]) -> None:
    projector, inputs = make(3), features()
    change(projector)
    compiled = torch.compile(
        lambda rows: (projector(rows), projector.similarity(rows)), fullgraph=True, backend="aot_eager"
    )
    for ours, wanted in zip(compiled(inputs), (projector(inputs), projector.similarity(inputs)), strict=True):
        torch.testing.assert_close(ours, wanted)


# --- One head --------------------------------------------------------------------------------------------------------


def test_one_head_is_a_plain_head_bit_for_bit() -> None:
    projector, inputs = make(1), features().requires_grad_()
    torch.manual_seed(0)
    first, second = nn.Linear(IN, IN), nn.Linear(IN, OUT)  # also initialized as a plain head is
    plain = F.normalize(second(F.relu(first(inputs))), dim=1, eps=1e-12)
    embedding = projector(inputs)
    assert torch.equal(embedding, plain)
    weights = [first.weight, first.bias, second.weight, second.bias]
    theirs = torch.autograd.grad((plain * cotangent()).sum(), [*weights, inputs])
    for one, other in zip(gradients(projector, embedding, inputs), theirs, strict=True):
        assert torch.equal(one, other)


# --- Heads -----------------------------------------------------------------------------------------------------------


def test_heads_are_initialized_independently() -> None:
    for one, other in combinations(make(5).heads, 2):
        for ours, theirs in zip(one.parameters(), other.parameters(), strict=True):
            assert not torch.equal(ours, theirs)


def test_heads_have_the_framework_initialization() -> None:
    """Uniform within 1/sqrt(fan in), weights and biases alike."""
    torch.manual_seed(0)
    for head in ProjectorEnsemble(256, 128, size=2).heads:
        for weight in head.parameters():
            bound = 1 / 16
            assert weight.abs().max() <= bound
            assert weight.abs().max() > 0.9 * bound
            assert weight.std().item() == pytest.approx(bound / math.sqrt(3), rel=0.15)


def test_every_head_can_be_addressed() -> None:
    projector = make(3)
    before = [output.clone() for output in projector.outputs(features())]
    for output, head in zip(before, projector.heads, strict=True):
        assert torch.equal(output, head(features()))
    with torch.no_grad():
        projector.heads[1][2].bias.add_(1)
    after = projector.outputs(features())
    assert torch.equal(after[0], before[0])
    torch.testing.assert_close(after[1], before[1] + 1)
    assert torch.equal(after[2], before[2])


@pytest.mark.parametrize("combine", ["mean", "sum", "concat"])
@pytest.mark.parametrize("size", SIZES)
def test_a_head_costs_its_two_layers(size: int, combine: str) -> None:
    projector = make(size, combine=combine)
    count = sum(weight.numel() for weight in projector.parameters())
    assert count == size * (IN**2 + IN + IN * OUT + OUT)
    assert not list(projector.buffers())


@pytest.mark.parametrize("size", SIZES)
def test_only_concatenation_widens_the_embedding(size: int) -> None:
    assert make(size, combine="mean").out_dim == make(size, combine="sum").out_dim == OUT
    assert make(size, combine="concat").out_dim == size * OUT
    assert make(size, combine="concat")(features()).shape == (7, size * OUT)


# --- Numbers at the edge ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("normalize", ["after", "before", "both"])
@pytest.mark.parametrize("combine", ["mean", "sum", "concat"])
def test_a_zero_embedding_stays_finite(combine: str, normalize: str) -> None:
    projector = make(3, combine=combine, normalize=normalize, eps=1e-12)
    for weight in projector.parameters():
        if weight.ndim == 1:
            nn.init.zeros_(weight)
    inputs = torch.zeros(2, IN, requires_grad=True)
    embedding = projector(inputs)
    assert torch.equal(embedding, torch.zeros_like(embedding))
    embedding.sum().backward()
    assert all(weight.grad.isfinite().all() for weight in [*projector.parameters(), inputs])


def test_eps_is_a_floor_under_the_norm() -> None:
    projector = make(1, eps=1e6)
    torch.testing.assert_close(projector(features()), projector.as_one_mlp(features()) / 1e6, rtol=1e-5, atol=0)
    both = make(2, eps=1e6, normalize="both")
    wanted = sum(both.outputs(features())) / 2 / 1e12
    torch.testing.assert_close(both(features()), wanted, rtol=1e-5, atol=0)


@pytest.mark.parametrize("normalize", ["after", "before", "both"])
def test_embeddings_are_float32_whatever_the_network_runs_in(normalize: str) -> None:
    projector = make(3, normalize=normalize)
    with torch.autocast("cpu", torch.bfloat16):
        embedding = projector(features())
    assert embedding.dtype == torch.float32
    if normalize != "before":
        torch.testing.assert_close(embedding.norm(dim=1), torch.ones(7), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"size": 0}, "A projector ensemble needs at least one head, not 0."),
        ({"size": -2}, "A projector ensemble needs at least one head, not -2."),
        ({"combine": "median"}, "Unknown way to combine heads 'median': did you mean 'mean'?"),
        (
            {"normalize": "never"},
            "Unknown place of the normalization 'never': choose one of: after, before, both.",
        ),
    ],
)
def test_bad_arguments_are_refused_with_a_sentence(settings: dict[str, object], sentence: str) -> None:
    with pytest.raises(ValueError) as error:  # noqa: PT011  (the whole sentence is compared)
        ProjectorEnsemble(IN, OUT, **settings)
    assert str(error.value) == sentence


@pytest.mark.parametrize("combine", ["mean", "sum", "concat"])
@pytest.mark.parametrize("size", [1, 3])
def test_combined_heads_are_not_normalized_yet(size: int, combine: str) -> None:
    projector = make(size, combine=combine)
    wanted = [slow_embedding(projector, row, combine, "never") for row in features().tolist()]
    combined = projector.combined(features())
    torch.testing.assert_close(combined, torch.tensor(wanted), rtol=1e-4, atol=1e-6)
    assert torch.equal(F.normalize(combined, dim=1, eps=1e-12), projector(features()))


# --- Diversity -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [2, 3, 5])
def test_similarity_is_the_mean_pairwise_cosine(size: int) -> None:
    projector = make(size)
    cosines = []
    for row in features().tolist():
        said = [unit(slow_head(head, row)) for head in projector.heads]
        cosines += [sum(a * b for a, b in zip(one, other, strict=True)) for one, other in combinations(said, 2)]
    similarity = projector.similarity(features().requires_grad_())
    assert similarity.item() == pytest.approx(sum(cosines) / len(cosines), rel=1e-4)
    assert similarity.shape == ()
    assert not similarity.requires_grad


def test_identical_heads_have_similarity_one() -> None:
    projector = make(3)
    for head in projector.heads:
        head.load_state_dict(projector.heads[0].state_dict())
    assert projector.similarity(features()).item() == pytest.approx(1, abs=1e-6)
    assert make(1).similarity(features()).item() == 1


def test_opposite_heads_have_similarity_minus_one() -> None:
    projector = make(2)
    projector.heads[1].load_state_dict(projector.heads[0].state_dict())
    with torch.no_grad():
        for weight in projector.heads[1][2].parameters():
            weight.neg_()
    assert projector.similarity(features()).item() == pytest.approx(-1, abs=1e-6)
