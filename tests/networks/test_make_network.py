from __future__ import annotations

import inspect

import pytest
import torch

from epass.errors import InputError
from epass.networks import MLP, NETWORKS, Small, WideResNet, make_network


@pytest.mark.parametrize("name", NETWORKS)
def test_every_network_takes_images_of_any_number_of_channels(name: str) -> None:
    with torch.device("meta"):
        net = make_network(name, in_channels=2, num_classes=7)
        vectors = getattr(net.backbone, "takes_vectors", False)
        features = net.backbone(torch.empty(3, 2) if vectors else torch.empty(3, 2, 32, 32))
    assert features.shape == (3, net.num_features)
    assert net.head(features).shape == (3, 7)


@pytest.mark.parametrize("name", NETWORKS)
def test_a_recipe_may_set_only_keyword_arguments_with_defaults(name: str) -> None:
    parameters = inspect.signature(NETWORKS[name]).parameters.values()
    # which weights a network starts from is said by `net.weights`
    parameters = [parameter for parameter in parameters if parameter.name != "published"]
    assert "in_channels" in {parameter.name for parameter in parameters}
    assert all(parameter.kind is parameter.KEYWORD_ONLY for parameter in parameters)
    assert all(parameter.default is not parameter.empty for parameter in parameters)


def test_arguments_reach_the_backbone() -> None:
    assert make_network("small", in_channels=1, num_classes=2, width=5).num_features == 20
    with torch.device("meta"):
        backbone = make_network("wrn-28-2", in_channels=3, num_classes=2, activate_transitions=True).backbone
    assert isinstance(backbone, WideResNet)
    assert all(parameter.requires_grad for parameter in backbone.parameters())


def test_an_unknown_network_names_the_nearest() -> None:
    with pytest.raises(InputError, match=r"Unknown network 'wrn-28-3': did you mean 'wrn-28-[28]'"):
        make_network("wrn-28-3", in_channels=3, num_classes=10)


@pytest.mark.parametrize(
    ("name", "argument", "hint"),
    [
        ("small", "widht", "did you mean 'width'"),
        ("wrn-28-2", "activate_transition", "did you mean 'activate_transitions'"),
        ("wrn-28-2", "width", "choose one of: activate_transitions"),  # it would make the name a lie
    ],
)
def test_an_unknown_argument_names_the_nearest(name: str, argument: str, hint: str) -> None:
    with pytest.raises(InputError, match=f"Unknown argument of the {name} network: '{argument}': {hint}"):
        make_network(name, in_channels=3, num_classes=10, **{argument: 2})


@pytest.mark.parametrize(("size", "last_size"), [(8, 2), (16, 4), (28, 7), (32, 4), (48, 4), (64, 4)])
def test_small_network_works_at_a_size_that_suits_it(size: int, last_size: int) -> None:
    net = Small(in_channels=1, width=2)
    seen: list[tuple[int, ...]] = []
    net.body[-1].register_forward_hook(lambda module, inputs, maps: seen.append(tuple(maps.shape)))
    assert net(torch.randn(3, 1, size, size)).shape == (3, 8)
    assert seen == [(3, 8, last_size, last_size)]


@pytest.mark.parametrize("size", [8, 16, 28, 32, 33, 48, 63, 64])
def test_small_network_pools_before_it_activates_and_nothing_changes(size: int) -> None:
    torch.manual_seed(0)
    net = Small(in_channels=1, width=4)
    trunk, tail = net.divide()  # pools after it activates
    pictures, gradient = torch.randn(9, 1, size, size), torch.randn(9, 16)
    found = []
    for features in (net(pictures), tail(trunk(pictures))):
        net.zero_grad()
        features.backward(gradient)
        found.append([features.detach(), *(parameter.grad for parameter in net.parameters())])
    assert all(torch.equal(ours, theirs) for ours, theirs in zip(*found, strict=True))


def test_small_network_has_usable_statistics_after_a_hundred_steps() -> None:
    torch.manual_seed(0)
    net = Small(width=4)
    with torch.no_grad():
        for _ in range(100):
            trained = net(3 + torch.randn(64, 1, 8, 8))
        evaluated = net.eval()(3 + torch.randn(64, 1, 8, 8))
    torch.testing.assert_close(trained.mean(0), evaluated.mean(0), atol=0.1, rtol=0)


def test_small_network_gets_gradients_everywhere() -> None:
    net = Small(width=4)
    net(torch.randn(8, 1, 8, 8)).square().sum().backward()
    assert all(parameter.grad is not None and parameter.grad.abs().sum() > 0 for parameter in net.parameters())


def test_the_body_for_vectors_is_a_linear_layer_with_batchnorm() -> None:
    net = make_network("mlp", in_channels=7, num_classes=3, hidden=5)
    assert isinstance(net.backbone, MLP)
    vectors = 3 + torch.randn(64, 7)
    linear, norm, _ = net.backbone.layers
    plain = linear(vectors)
    wanted = ((plain - plain.mean(0)) / (plain.var(0, correction=0) + norm.eps).sqrt()).relu()
    torch.testing.assert_close(net(vectors).features, wanted)
    net.check_shape((7,))
    with pytest.raises(InputError, match=r"takes vectors, and these are images: use another one \(--net\)\."):
        net.check_shape((3, 32, 32))
    with pytest.raises(InputError, match=r"takes images, and these are vectors: use mlp \(--net\)\."):
        make_network("small", in_channels=7, num_classes=3).check_shape((7,))
