from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from epass.errors import InputError
from epass.networks import ResNet, Small, ViT, make_network, start_from
from epass.networks.vit import resize_positions

IMAGES = torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(5))


def vit(seed: int, image_size: int = 8, **arguments: Any) -> ViT:
    torch.manual_seed(seed)
    net = ViT(image_size, 2, 16, 2, 2, **arguments).eval()
    with torch.no_grad():
        for p in net.parameters():
            p.normal_(std=0.3)
    return net


def resnet(seed: int, **arguments: Any) -> ResNet:
    torch.manual_seed(seed)
    net = ResNet((1, 1, 1, 1), False, **arguments)
    net(torch.randn(4, arguments.get("in_channels", 3), 32, 32))  # running statistics that are worth copying
    return net.eval()


def write(folder: Path, content: Any, name: str = "weights.safetensors") -> str:
    path = folder / name
    if path.suffix == ".safetensors":
        save_file({key: value.clone().contiguous() for key, value in content.items()}, path)
    else:
        torch.save(content, path)
    return str(path)


def learned(net: nn.Module) -> dict[str, Tensor]:
    """The state without what is only counted."""
    return {name: tensor for name, tensor in net.state_dict().items() if tensor.is_floating_point()}


def below(prefix: str, state: dict[str, Tensor]) -> dict[str, Tensor]:
    return {prefix + name: tensor for name, tensor in state.items()}


def check_equal(one: nn.Module, other: nn.Module) -> None:
    first, second = learned(one), learned(other)
    assert first.keys() == second.keys()
    assert all(torch.equal(first[name], second[name]) for name in first)


def refusal(net: nn.Module, file: str) -> str:
    before = {name: tensor.clone() for name, tensor in net.state_dict().items()}
    with pytest.raises(InputError) as error:
        start_from(net, weights=file)
    assert all(torch.equal(tensor, before[name]) for name, tensor in net.state_dict().items())
    sentence = str(error.value)
    assert "\n" not in sentence
    assert sentence.endswith(".")
    assert file in sentence
    return sentence


def torchvision_name(name: str) -> str:
    """A ViT's layers as torchvision calls them, from its documentation of `vit_b_16`."""
    parts = name.split(".")
    if parts[0] == "blocks":
        inner = {
            "norm1": "ln_1.", "norm2": "ln_2.", "attn.qkv": "self_attention.in_proj_",
            "attn.proj": "self_attention.out_proj.", "mlp.fc1": "mlp.0.", "mlp.fc2": "mlp.3.",
        }[".".join(parts[2:-1])]  # fmt: skip
        return f"encoder.layers.encoder_layer_{parts[1]}.{inner}{parts[-1]}"
    whole = {"cls_token": "class_token", "pos_embed": "encoder.pos_embedding"}
    return whole.get(name, name.replace("patch_embed.proj.", "conv_proj.").replace("norm.", "encoder.ln."))


HEAD = {"weight": torch.zeros(5, 16), "bias": torch.zeros(5)}
DECODER = {"decoder_embed.weight": torch.zeros(2, 2), "decoder_blocks.0.norm1.bias": torch.zeros(2)}


@pytest.mark.parametrize("name", ["a.safetensors", "a.pth", "a.pt"])
@pytest.mark.parametrize(
    "layout",
    [
        lambda state: state,
        lambda state: {**state, **below("head.", HEAD)},  # timm
        lambda state: {**state, **below("head.", HEAD), **below("pre_logits.fc.", HEAD)},
        lambda state: {**state, **DECODER, "mask_token": torch.zeros(1, 1, 2)},  # MAE with its decoder
        lambda state: {**{torchvision_name(key): v for key, v in state.items()}, **below("heads.head.", HEAD)},
        lambda state: {**below("backbone.", state), **below("head.", HEAD)},  # our model.safetensors
        lambda state: {**below("module.", state), **below("module.head.", HEAD)},  # data-parallel
        lambda state: {**below("module.encoder_q.", state), **below("module.encoder_k.", nothing(state))},
        lambda state: {**below("module.encoder_k.", nothing(state)), **below("module.encoder_q.", state)},
    ],
    ids=["plain", "timm", "timm_logits", "mae", "torchvision", "epass", "parallel", "moco", "moco_key_first"],
)
def test_every_layout_fits_a_vit(tmp_path: Path, name: str, layout: Any) -> None:
    source, net = vit(1), vit(2)
    start_from(net, weights=write(tmp_path, layout(learned(source)), name))
    check_equal(net, source)
    assert torch.equal(net(IMAGES), source(IMAGES))


def nothing(state: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: torch.zeros_like(tensor) for name, tensor in state.items()}


@pytest.mark.parametrize(
    "wrap",
    [
        lambda state: {"model": state, "epoch": 3, "optimizer": {"state": {}}},
        lambda state: {"state_dict": state},
        lambda state: {"state_dict": {"model": state}},
        lambda state: {"model_state_dict": state, "lr": torch.zeros(1)},
    ],
)
def test_weights_are_found_inside_of_a_checkpoint(tmp_path: Path, wrap: Any) -> None:
    source, net = vit(1), vit(2)
    start_from(net, weights=write(tmp_path, wrap(learned(source)), "checkpoint.pth"))
    check_equal(net, source)


@pytest.mark.parametrize("prefix", ["", "module.", "backbone.", "module.encoder_q."])
def test_a_residual_network_takes_its_statistics_too(tmp_path: Path, prefix: str) -> None:
    source, net, images = resnet(1), resnet(2), torch.randn(2, 3, 32, 32)
    head = {"fc.weight": torch.zeros(5, 512), "fc.bias": torch.zeros(5)}
    start_from(net, weights=write(tmp_path, below(prefix, {**learned(source), **head})))
    check_equal(net, source)
    assert torch.equal(net(images), source(images))


def test_counters_of_the_file_are_left_there(tmp_path: Path) -> None:
    source, net = vit(1), vit(2)
    own = net.drop_seed.clone()
    start_from(net, weights=write(tmp_path, source.state_dict()))
    assert torch.equal(net.drop_seed, own)  # seeds must differ after the same pre-training
    old = {**learned(resnet(1)), "bn1.num_batches_tracked": torch.tensor(7), "steps": torch.tensor(9)}
    start_from(resnet(2), weights=write(tmp_path, old))


@pytest.mark.parametrize("size", [4, 12, 16])
def test_positions_of_another_image_size_are_interpolated(tmp_path: Path, size: int) -> None:
    source, net = vit(1, image_size=size), vit(2)
    start_from(net, weights=write(tmp_path, learned(source)))
    assert torch.equal(net.pos_embed, resize_positions(source.pos_embed, 4, 4))
    assert torch.equal(net.pos_embed[:, 0], source.pos_embed[:, 0])
    assert torch.equal(net.blocks[1].mlp.fc2.weight, source.blocks[1].mlp.fc2.weight)


def test_weights_for_color_say_the_same_about_gray_images(tmp_path: Path) -> None:
    gray = torch.randn(2, 1, 8, 8)
    for make in (vit, resnet):
        source, net = make(1), make(2, in_channels=1)
        start_from(net, weights=write(tmp_path, learned(source)))
        torch.testing.assert_close(net(gray), source(gray.expand(-1, 3, -1, -1)), atol=1e-4, rtol=1e-4)


def test_half_precision_becomes_the_precision_of_the_network(tmp_path: Path) -> None:
    source, net = vit(1), vit(2)
    start_from(net, weights=write(tmp_path, {name: tensor.half() for name, tensor in learned(source).items()}))
    assert net.norm.weight.dtype == torch.float32
    torch.testing.assert_close(net.norm.weight, source.norm.weight, atol=1e-3, rtol=1e-3)


def test_any_network_of_ours_takes_its_own_weights_back(tmp_path: Path) -> None:
    source, net = Small(width=3), Small(width=3)
    start_from(net, weights=write(tmp_path, below("backbone.", learned(source))))
    check_equal(net, source)


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    state = learned(vit(1))
    del state["norm.bias"]
    assert "it lacks 'norm.bias': choose the network" in refusal(vit(2), write(tmp_path, state))
    fewer = {name: tensor for name, tensor in state.items() if not name.startswith("blocks.1.")}
    assert "it lacks 'blocks.1.attn.proj.bias', 'blocks.1.attn.proj.weight', 'blocks.1.attn.qkv.bias' and 10 more" in (
        refusal(vit(2), write(tmp_path, fewer))
    )


def test_what_nobody_asked_for_is_named(tmp_path: Path) -> None:
    state = learned(vit(1)) | {"blocks.2.norm1.bias": torch.zeros(16)}
    assert "it also has 'blocks.2.norm1.bias': choose" in refusal(vit(2), write(tmp_path, state))


def test_another_shape_is_named(tmp_path: Path) -> None:
    state = learned(vit(1)) | {"norm.bias": torch.zeros(17), "cls_token": torch.zeros(1, 1, 17)}
    sentence = refusal(vit(2), write(tmp_path, state))
    assert "it has 'cls_token', 'norm.bias' in another shape ((1, 1, 17) and not (1, 1, 16))" in sentence
    two_channels = learned(vit(1, in_channels=2))
    assert "'patch_embed.proj.weight' in another shape" in refusal(vit(2), write(tmp_path, two_channels))
    for tokens in (1, 16):  # no grid, no token for the class
        odd = learned(vit(1)) | {"pos_embed": torch.zeros(1, tokens, 16)}
        assert "'pos_embed' in another shape" in refusal(vit(2), write(tmp_path, odd))


def test_a_file_of_something_else_altogether_is_refused(tmp_path: Path) -> None:
    sentence = refusal(vit(2), write(tmp_path, learned(resnet(1))))
    assert "lacks" in sentence
    assert "also has" in sentence


class Trap:
    """Writes a file when it is unpickled."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, tuple[str, str]]:
        return open, (self.path, "w")


def test_a_file_never_runs_code(tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    for hidden in (Trap(str(trace)), argparse.Namespace(lr=1)):
        file = write(tmp_path, {"model": learned(vit(1)), "args": hidden}, "trap.pth")
        assert "could run code: save the state_dict alone" in refusal(vit(2), file)
    assert not trace.exists()


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("a.safetensors", b"{}", "is damaged"),
        ("a.pth", b"", "is damaged"),
        ("a.pth", b"PK\x03\x04 not a zip", "is damaged"),
        ("a.pt", b"text", "is damaged"),
        ("a.npz", b"", "is not a weights file: net.weights names a .safetensors, .pth or .pt file"),
        ("a.safetensors", None, "There is no file"),
    ],
)
def test_what_cannot_be_read_is_one_sentence(tmp_path: Path, name: str, content: bytes | None, words: str) -> None:
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    assert words in refusal(vit(2), str(path))


@pytest.mark.parametrize("content", [torch.zeros(3), [torch.zeros(3)], {"epoch": 3}, {"model": {"epoch": 3}}])
def test_a_file_without_named_tensors_is_refused(tmp_path: Path, content: Any) -> None:
    assert "holds no weights by name" in refusal(vit(2), write(tmp_path, content, "a.pth"))


def test_make_network_starts_from_weights(tmp_path: Path) -> None:
    source = make_network("small", in_channels=1, num_classes=3, width=3)
    file = write(tmp_path, source.state_dict())
    net = make_network("small", in_channels=1, num_classes=5, width=3, weights=file)
    check_equal(net.backbone, source.backbone)
    with pytest.raises(InputError, match=r"'small' comes without published weights: net\.weights names"):
        make_network("small", in_channels=1, num_classes=5, weights="published")
