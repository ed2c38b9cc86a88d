from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from epass.errors import InputError
from epass.networks import Classifier, ViT, count_parameters, make_network
from epass.networks.vit import resize_positions
from epass.parts.projector import ProjectorEnsemble
from epass.parts.teacher import Average
from epass.training.optimizer import parameter_groups

# Name, classes, width of the features, then parameters: without projector, with one of each of PROJECTORS.
PUBLISHED_COUNTS = [
    ("vit-tiny-patch2-32", 8, 192, 5_392_328, (5_441_736, 5_540_552, 5_454_088, 5_577_608)),
    ("vit-small-patch2-32", 100, 384, 21_436_900, (21_609_380, 21_954_340, 21_634_020, 22_028_260)),
    ("vit-small-patch2-32", 10, 384, 21_402_250, (21_574_730, 21_919_690, 21_599_370, 21_993_610)),
    ("vit-small-patch16-224", 200, 384, 21_742_664, (21_915_144, 22_260_104, 21_939_784, 22_334_024)),
    ("vit-base-patch16-96", 10, 768, 85_683_466, (86_323_274, 87_602_890, 86_372_490, 87_750_538)),
    ("vit-base-patch16-224", 1000, 768, 86_567_656, None),
]
PROJECTORS = [(1, 64), (3, 64), (1, 128), (3, 128)]


def tiny(**arguments: object) -> ViT:
    """4 x 4 patches of 2 pixels, 3 blocks."""
    torch.manual_seed(0)
    net = ViT(8, 2, 16, 3, 2, **arguments)  # type: ignore[arg-type]
    with torch.no_grad():  # they start at zero, where nothing could be seen of them
        net.cls_token.normal_()
        net.pos_embed.normal_()
    return net


@pytest.mark.parametrize(("name", "num_classes", "num_features", "alone", "with_projector"), PUBLISHED_COUNTS)
def test_parameter_counts_are_the_published_ones(
    name: str, num_classes: int, num_features: int, alone: int, with_projector: tuple[int, ...] | None
) -> None:
    with torch.device("meta"):
        net = make_network(name, in_channels=3, num_classes=num_classes)
        projectors = [ProjectorEnsemble(net.num_features, width, size=size) for size, width in PROJECTORS]
    assert (net.num_features, count_parameters(net)) == (num_features, alone)
    assert all(parameter.requires_grad for parameter in net.parameters())
    if with_projector is not None:
        assert tuple(alone + count_parameters(projector) for projector in projectors) == with_projector


@pytest.mark.parametrize(
    ("width", "heads", "classes", "expected"),
    [(192, 3, 8, 5_362_376), (384, 6, 100, 21_376_996), (384, 6, 10, 21_342_346)],
)
def test_counts_with_the_patches_that_the_paper_words(width: int, heads: int, classes: int, expected: int) -> None:
    with torch.device("meta"):
        assert count_parameters(Classifier(ViT(32, 4, width, 12, heads), classes)) == expected


@pytest.mark.parametrize(
    ("name", "image", "patch", "drop_path"),
    [
        ("vit-tiny-patch2-32", 32, 2, 0.1),
        ("vit-small-patch2-32", 32, 2, 0.2),
        ("vit-small-patch16-224", 224, 16, 0.2),
        ("vit-base-patch16-96", 96, 16, 0.2),
        ("vit-base-patch16-224", 224, 16, 0.2),
    ],
)
def test_networks_are_those_of_their_names(name: str, image: int, patch: int, drop_path: float) -> None:
    with torch.device("meta"):
        backbone = make_network(name, in_channels=3, num_classes=2).backbone
    assert isinstance(backbone, ViT)
    assert (backbone.image_size, backbone.patch_size, backbone.drop_path) == (image, patch, drop_path)


def by_hand(net: ViT, images: Tensor) -> Tensor:
    """The published equations, one image, one token, one head at a time."""
    answers = []
    for image in images:
        size, weight = net.patch_size, net.patch_embed.proj.weight
        tokens = [net.cls_token[0, 0]]
        for top in range(0, image.shape[1], size):
            for left in range(0, image.shape[2], size):
                patch = image[:, top : top + size, left : left + size]
                tokens.append((weight * patch).sum((1, 2, 3)) + net.patch_embed.proj.bias)
        x = torch.stack(tokens) + net.pos_embed[0]
        for block in net.blocks:
            y = F.layer_norm(x, x.shape[1:], block.norm1.weight, block.norm1.bias, 1e-6)
            query, key, value = (y @ block.attn.qkv.weight.T + block.attn.qkv.bias).chunk(3, 1)
            width = query.shape[1] // block.attn.num_heads
            heads = []
            for head in range(block.attn.num_heads):
                part = slice(head * width, (head + 1) * width)
                attention = (query[:, part] @ key[:, part].T / width**0.5).softmax(1)
                heads.append(attention @ value[:, part])
            x = x + torch.cat(heads, 1) @ block.attn.proj.weight.T + block.attn.proj.bias
            y = F.layer_norm(x, x.shape[1:], block.norm2.weight, block.norm2.bias, 1e-6)
            hidden = y @ block.mlp.fc1.weight.T + block.mlp.fc1.bias
            hidden = 0.5 * hidden * (1 + torch.erf(hidden / 2**0.5))
            x = x + hidden @ block.mlp.fc2.weight.T + block.mlp.fc2.bias
        answers.append(F.layer_norm(x[0], x.shape[1:], net.norm.weight, net.norm.bias, 1e-6))
    return torch.stack(answers)


def test_the_network_is_the_equations_written_by_hand() -> None:
    net, images = tiny(in_channels=2), torch.randn(3, 2, 8, 8)
    torch.testing.assert_close(net(images), by_hand(net, images), atol=2e-5, rtol=1e-4)


def test_norms_have_the_published_guard() -> None:
    norms = [part for part in tiny().modules() if isinstance(part, torch.nn.LayerNorm)]
    assert [norm.eps for norm in norms] == [1e-6] * 7


def test_tokens_start_at_zero_and_layers_as_torch_makes_them() -> None:
    torch.manual_seed(0)
    net = ViT(8, 2, 16, 1, 2)
    torch.manual_seed(0)
    proj = torch.nn.Conv2d(3, 16, 2, 2)
    assert not net.cls_token.any()
    assert not net.pos_embed.any()
    assert torch.equal(net.patch_embed.proj.weight, proj.weight)


def test_every_parameter_gets_a_gradient() -> None:
    net = tiny()
    net(torch.randn(4, 3, 8, 8)).square().sum().backward()
    for name, parameter in net.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().sum() > 0, name


def test_images_of_other_sizes_get_interpolated_positions() -> None:
    net, images = tiny(), torch.randn(2, 3, 12, 6)
    grid = net.pos_embed[:, 1:].transpose(1, 2).reshape(1, 16, 4, 4)
    grid = F.interpolate(grid, (6, 3), mode="bicubic")
    other = copy.deepcopy(net)
    other.pos_embed.data = torch.cat([net.pos_embed[:, :1], grid.flatten(2).transpose(1, 2)], 1).detach()
    torch.testing.assert_close(net(images), by_hand(other, images), atol=2e-5, rtol=1e-4)


def test_resized_positions_keep_the_class_token_the_sides_and_a_smooth_field() -> None:
    rows, columns = torch.meshgrid(torch.arange(8.0), torch.arange(8.0), indexing="ij")
    field = torch.stack([rows.flatten(), columns.flatten()], 1)
    positions = torch.cat([torch.tensor([[50.0, 60.0]]), field])[None]
    resized = resize_positions(positions, 4, 8)
    assert resized.shape == (1, 33, 2)
    assert resized[0, 0].tolist() == [50.0, 60.0]
    grid = resized[0, 1:].reshape(4, 8, 2)
    torch.testing.assert_close(grid[1:3, 4, 0], torch.tensor([2.5, 4.5]))  # rows get fewer, not columns
    torch.testing.assert_close(grid[1, 2:6, 1], torch.arange(2.0, 6.0))
    assert resize_positions(positions, 8, 8) is positions


@pytest.mark.parametrize(("height", "width", "near"), [(9, 8, 8), (8, 7, 8), (13, 13, 12), (1, 1, 2)])
def test_images_without_whole_patches_are_refused(height: int, width: int, near: int) -> None:
    net = tiny()
    with pytest.raises(InputError, match=rf"patches of 2 pixels.*{height} x {width}.*image_size to {near}, or to 8,"):
        net(torch.zeros(1, 3, height, width))
    with pytest.raises(InputError, match="patches of 2 pixels"):
        Classifier(net, 2).check_shape((3, height, width))
    Classifier(net, 2).check_shape((3, 8, 12))
    make_network("small", in_channels=1, num_classes=2).check_shape((1, 9, 7))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [((8, 3, 16, 1, 2), "8 pixels by 3"), ((8, 2, 16, 1, 3), "16 by 3")],
)
def test_a_vit_that_does_not_divide_is_refused(arguments: tuple[int, ...], words: str) -> None:
    with pytest.raises(InputError, match=words):
        ViT(*arguments)


@pytest.mark.parametrize("rate", [-0.1, 1.0, 1.5])
def test_stochastic_depth_is_a_share(rate: float) -> None:
    with pytest.raises(InputError, match=r"net\.drop_path lies in \[0, 1\)"):
        ViT(8, 2, 16, 1, 2, drop_path=rate)


# --- Stochastic depth -------------------------------------------------------------------------------------------------


def test_later_blocks_are_left_out_more_often() -> None:
    torch.testing.assert_close(ViT(8, 2, 16, 5, 2, drop_path=0.2).drop_rates[:, 0], torch.linspace(0, 0.2, 5))


def test_stochastic_depth_leaves_branches_out_as_often_as_it_says_and_keeps_expectations() -> None:
    net = tiny(drop_path=0.4)
    scales = torch.stack([scale for scale in net.branch_scales(torch.zeros(4000, 1, 16)) if scale is not None], 1)
    assert scales.shape == (4000, 3, 2)
    dropped = (scales == 0).float().mean(0)
    torch.testing.assert_close(dropped, torch.tensor([0.0, 0.2, 0.4])[:, None].expand(3, 2), atol=0.03, rtol=0)
    torch.testing.assert_close(scales.mean(0), torch.ones(3, 2), atol=0.05, rtol=0)
    assert {round(value, 4) for value in scales[:, 2].unique().tolist()} == {0.0, round(1 / 0.6, 4)}
    # branches of one block, blocks, images and passes are left out independently
    first, second = (scales[:, 2, branch] == 0 for branch in (0, 1))
    assert (first & second).float().mean().item() == pytest.approx(0.16, abs=0.03)
    again = net.branch_scales(torch.zeros(4000, 1, 16))[2]
    assert again is not None
    assert ((again[:, 0] == 0) & first).float().mean().item() == pytest.approx(0.16, abs=0.03)


def test_a_branch_that_is_left_out_changes_nothing() -> None:
    net = tiny()
    tokens, block = torch.randn(3, 17, 16), net.blocks[1]
    kept = torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 2.0]])
    out = block(tokens, kept)
    assert torch.equal(out[0], tokens[0])
    torch.testing.assert_close(out[1], (tokens + block.attn(block.norm1(tokens)))[1])
    torch.testing.assert_close(out[2], (tokens + 2 * block.mlp(block.norm2(tokens)))[2])


def test_nothing_is_left_out_in_evaluation() -> None:
    net, images = tiny(drop_path=0.9), torch.randn(4, 3, 8, 8)
    before = net.drop_seed.clone()
    torch.testing.assert_close(net.eval()(images), by_hand(net, images), atol=2e-5, rtol=1e-4)
    assert torch.equal(net.drop_seed, before)
    assert not torch.allclose(net.train()(images), net.eval()(images))


def test_what_is_left_out_is_part_of_the_state() -> None:
    images = torch.randn(4, 3, 8, 8)
    net = tiny(drop_path=0.9)
    net(images)
    saved = copy.deepcopy(net.state_dict())
    later = [net(images) for _ in range(3)]
    assert not torch.equal(later[0], later[1])
    resumed = tiny(drop_path=0.9)
    resumed.load_state_dict(saved)
    torch.manual_seed(99)  # torch's own generator has no say
    assert all(torch.equal(resumed(images), expected) for expected in later)


def test_seeds_leave_out_different_branches() -> None:
    seeds = set()
    for seed in range(5):
        torch.manual_seed(seed)
        seeds.add(ViT(8, 2, 16, 1, 2).drop_seed.item())
    assert len(seeds) == 5


def test_an_average_follows_the_weights() -> None:
    net = tiny(drop_path=0.5)
    average = Average(net, 0.0)
    net(torch.randn(2, 3, 8, 8)).sum().backward()
    with torch.no_grad():
        net.cls_token.add_(1)
    average.follow(net)
    images = torch.randn(2, 3, 8, 8)
    assert torch.equal(average(images), net.eval()(images))


# --- What the optimizer asks ------------------------------------------------------------------------------------------


def test_layers_are_counted_from_the_image() -> None:
    net = tiny()
    layers = {name: net.layer_of(name) for name, _ in net.named_parameters()}
    assert {name for name, layer in layers.items() if layer == 0} == {
        "cls_token", "pos_embed", "patch_embed.proj.weight", "patch_embed.proj.bias"
    }  # fmt: skip
    for block in range(3):
        members = {name for name, layer in layers.items() if layer == block + 1 and name.startswith("blocks.")}
        assert members == {name for name in layers if name.startswith(f"blocks.{block}.")}
    assert (layers["norm.weight"], layers["norm.bias"], net.num_layers) == (3, 3, 4)


@pytest.mark.parametrize("decay_tokens", [False, True])
def test_tokens_are_decayed_only_where_asked_wherever_the_network_stands(decay_tokens: bool) -> None:
    net = tiny(decay_tokens=decay_tokens)
    wrapped = torch.nn.ModuleDict({"net": Classifier(net, 2), "projector": ProjectorEnsemble(16, 4)})
    for module in (net, wrapped):
        decayed, exempt = parameter_groups(module, 0.1)
        inside = {id(parameter) for parameter in (decayed if decay_tokens else exempt)["params"]}
        assert {id(net.cls_token), id(net.pos_embed)} <= inside
        assert id(net.patch_embed.proj.weight) in {id(parameter) for parameter in decayed["params"]}
        assert id(net.norm.weight) in {id(parameter) for parameter in exempt["params"]}
