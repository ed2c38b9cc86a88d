from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from epass.errors import InputError
from epass.networks import make_network
from epass.parts.projector import ProjectorEnsemble
from epass.parts.teacher import Average
from epass.training.optimizer import make_optimizer, parameter_groups, set_lr, trainable
from epass.training.schedule import Plan


class Network(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(2, 3, 3)
        self.norm = nn.BatchNorm2d(3)
        self.head = nn.Linear(3, 2)
        self.scale = nn.Parameter(torch.ones(()))
        self.position_bias = nn.Parameter(torch.zeros(2, 2))  # two dimensions, exempt by its name
        self.frozen = nn.Parameter(torch.ones(2, 2), requires_grad=False)


def small(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Linear(4, 3)


def give_gradients(module: nn.Module, step: int) -> None:
    generator = torch.Generator().manual_seed(step)
    for p in trainable(module):
        p.grad = torch.randn(p.shape, generator=generator)


def test_biases_norms_and_scalars_are_exempt_from_weight_decay() -> None:
    network = Network()
    names = {id(p): name for name, p in network.named_parameters()}
    decayed, exempt = parameter_groups(network, 0.01)
    assert (decayed["weight_decay"], exempt["weight_decay"]) == (0.01, 0.0)
    assert [names[id(p)] for p in decayed["params"]] == ["frozen", "conv.weight", "head.weight"]
    assert {names[id(p)] for p in exempt["params"]} == {
        "scale", "position_bias", "conv.bias", "norm.weight", "norm.bias", "head.bias"
    }  # fmt: skip


def test_groups_reach_the_optimizer() -> None:
    for name in ("sgd", "adamw"):
        optimizer = make_optimizer(Network(), Plan(steps=1, optimizer=name, weight_decay=0.25, lr=0.5))
        assert [group["weight_decay"] for group in optimizer.param_groups] == [0.25, 0.0]
        assert [group["lr"] for group in optimizer.param_groups] == [0.5, 0.5]


def test_sgd_is_nesterov_momentum_written_by_hand() -> None:
    module = small()
    plan = Plan(steps=5, lr=0.1, weight_decay=0.05, momentum=0.8)
    optimizer = make_optimizer(module, plan)
    weights = {name: p.detach().clone() for name, p in module.named_parameters()}
    velocity = {name: torch.zeros_like(value) for name, value in weights.items()}
    for step in range(4):
        lr = plan.lr / (step + 1)
        set_lr(optimizer, lr)
        give_gradients(module, step)
        for name, p in module.named_parameters():
            gradient = p.grad + (0.05 * weights[name] if name == "weight" else 0.0)
            velocity[name] = 0.8 * velocity[name] + gradient
            weights[name] = weights[name] - lr * (gradient + 0.8 * velocity[name])
        optimizer.step()
    for name, p in module.named_parameters():
        torch.testing.assert_close(p.detach(), weights[name])


def test_sgd_with_plain_momentum_written_by_hand() -> None:
    module = small()
    optimizer = make_optimizer(module, Plan(steps=5, lr=0.1, weight_decay=0.0, momentum=0.8, nesterov=False))
    weights = {name: p.detach().clone() for name, p in module.named_parameters()}
    velocity = {name: torch.zeros_like(value) for name, value in weights.items()}
    for step in range(4):
        give_gradients(module, step)
        for name, p in module.named_parameters():
            velocity[name] = 0.8 * velocity[name] + p.grad
            weights[name] = weights[name] - 0.1 * velocity[name]
        optimizer.step()
    for name, p in module.named_parameters():
        torch.testing.assert_close(p.detach(), weights[name])


def test_everything_decays_where_the_plan_says_so() -> None:
    groups = make_optimizer(small(), Plan(steps=1, decayed="everything", weight_decay=0.1)).param_groups
    assert [(len(group["params"]), group["weight_decay"]) for group in groups if group["params"]] == [(2, 0.1)]


@pytest.mark.parametrize("kind", ["adam", "adamw"])
def test_adam_and_adamw_are_the_published_rules_written_by_hand(kind: str) -> None:
    module = small()
    optimizer = make_optimizer(module, Plan(steps=5, optimizer=kind, lr=0.1, weight_decay=0.05))
    weights = {name: p.detach().clone() for name, p in module.named_parameters()}
    first = {name: torch.zeros_like(value) for name, value in weights.items()}
    second = {name: torch.zeros_like(value) for name, value in weights.items()}
    for step in range(1, 5):
        give_gradients(module, step)
        for name, p in module.named_parameters():
            decay = 0.05 * weights[name] if name == "weight" else torch.zeros_like(p)
            gradient = p.grad + decay if kind == "adam" else p.grad  # a part of it, or beside it
            if kind == "adamw":
                weights[name] = weights[name] - 0.1 * decay
            first[name] = 0.9 * first[name] + 0.1 * gradient
            second[name] = 0.999 * second[name] + 0.001 * gradient**2
            mean, variance = first[name] / (1 - 0.9**step), second[name] / (1 - 0.999**step)
            weights[name] = weights[name] - 0.1 * mean / (variance.sqrt() + 1e-8)
        optimizer.step()
    for name, p in module.named_parameters():
        torch.testing.assert_close(p.detach(), weights[name])


def run(optimizer: torch.optim.Optimizer, module: nn.Module) -> list[Tensor]:
    for step in range(4):
        give_gradients(module, step)
        optimizer.step()
    return [p.detach().clone() for p in module.parameters()]


@pytest.mark.parametrize("name", ["sgd", "adam", "adamw"])
def test_state_primed_with_zeros_is_torchs_own_bit_for_bit(name: str) -> None:
    plan = Plan(steps=4, optimizer=name, lr=0.1, weight_decay=0.05)
    ours, theirs = small(), small()
    groups = parameter_groups(theirs, plan.weight_decay)
    if name != "sgd":
        adam = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[name]
        reference: torch.optim.Optimizer = adam(groups, lr=plan.lr)
    else:
        reference = torch.optim.SGD(groups, lr=plan.lr, momentum=plan.momentum, nesterov=True)
    optimizer = make_optimizer(ours, plan)
    assert all(torch.equal(a, b) for a, b in zip(run(optimizer, ours), run(reference, theirs), strict=True))
    for a, b in zip(ours.parameters(), theirs.parameters(), strict=True):
        assert optimizer.state[a].keys() == reference.state[b].keys()
        assert all(torch.equal(optimizer.state[a][key], reference.state[b][key]) for key in optimizer.state[a])


@pytest.mark.parametrize("name", ["sgd", "adam", "adamw"])
def test_state_exists_before_the_first_step_and_stays_in_place(name: str) -> None:
    network = Network()
    optimizer = make_optimizer(network, Plan(steps=1, optimizer=name))
    assert network.frozen not in optimizer.state
    assert len(optimizer.state) == len(list(network.parameters())) - 1
    before = {p: {key: value.data_ptr() for key, value in state.items()} for p, state in optimizer.state.items()}
    assert all(not value.any() for state in optimizer.state.values() for value in state.values())
    give_gradients(network, 0)
    optimizer.step()
    assert before == {p: {k: v.data_ptr() for k, v in state.items()} for p, state in optimizer.state.items()}


def test_sgd_without_momentum_keeps_no_state() -> None:
    module = small()
    optimizer = make_optimizer(module, Plan(steps=1, momentum=0.0, lr=0.1, weight_decay=0.0))
    assert not optimizer.state
    start = module.weight.detach().clone()
    give_gradients(module, 0)
    optimizer.step()
    torch.testing.assert_close(module.weight.detach(), start - 0.1 * module.weight.grad)


def test_set_lr_reaches_every_group() -> None:
    optimizer = make_optimizer(small(), Plan(steps=1))
    set_lr(optimizer, 0.125)
    assert [group["lr"] for group in optimizer.param_groups] == [0.125, 0.125]


def test_set_lr_fills_a_tensor_in_place() -> None:
    lr = torch.tensor(1.0)
    optimizer = torch.optim.SGD(parameter_groups(small(), 0.0), lr=lr)
    held = [group["lr"] for group in optimizer.param_groups]
    set_lr(optimizer, 0.125)
    assert all(group["lr"] is tensor for group, tensor in zip(optimizer.param_groups, held, strict=True))
    assert all(tensor.item() == 0.125 for tensor in held)


# --- Layer-wise learning rates ----------------------------------------------------------------------------------------


class Layered(nn.Module):
    num_layers = 3

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.block, self.norm = nn.Linear(2, 2), nn.Linear(2, 2), nn.LayerNorm(2)

    def layer_of(self, name: str) -> int:
        return ["stem", "block", "norm"].index(name.partition(".")[0])


def layered() -> nn.ModuleDict:
    torch.manual_seed(0)
    net = Layered()
    return nn.ModuleDict({"net": net, "head": nn.Linear(2, 2), "average": Average(net)})


def factors(module: nn.Module, optimizer: torch.optim.Optimizer, lr: float) -> dict[str, float]:
    rates = {p: float(group["lr"]) / lr for group in optimizer.param_groups for p in group["params"]}
    return {name: rates[p] for name, p in module.named_parameters()}


def test_row_19_factors_of_a_vit() -> None:
    with torch.device("meta"):
        net = make_network("vit-tiny-patch2-32", in_channels=3, num_classes=8)
        module = nn.ModuleDict({"net": net, "projector": ProjectorEnsemble(net.num_features, 64)})
        optimizer = make_optimizer(module, Plan(steps=1, optimizer="adamw", lr=1.0, layer_decay=0.5))
    found = factors(module, optimizer, 1.0)
    prefix = "net.backbone."
    for name in ("cls_token", "pos_embed", "patch_embed.proj.weight", "patch_embed.proj.bias"):
        assert found.pop(prefix + name) == 2**-13
    for name, factor in found.items():
        if name.startswith(prefix + "blocks."):
            assert factor == 2.0 ** -(12 - int(name.split(".")[3])), name
        elif name.startswith(prefix):
            assert name in (prefix + "norm.weight", prefix + "norm.bias")
            assert factor == 2**-1
        else:
            assert name.startswith(("net.head.", "projector."))
            assert factor == 1
    assert {found[prefix + "blocks.0.norm1.bias"], found[prefix + "blocks.11.mlp.fc2.weight"]} == {2**-12, 2**-1}


@pytest.mark.parametrize("name", ["sgd", "adamw"])
def test_scales_survive_the_schedule(name: str) -> None:
    module = layered()
    optimizer = make_optimizer(module, Plan(steps=1, optimizer=name, lr=0.5, layer_decay=0.1, weight_decay=0.25))
    expected = {"net.stem": 1e-3, "net.block": 1e-2, "net.norm": 1e-1, "head": 1.0}
    expected |= {name.replace("net.", "average.module."): factor for name, factor in expected.items()}
    for lr in (0.5, 0.125, 0.0078125):
        set_lr(optimizer, lr)
        for parameter, factor in factors(module, optimizer, lr).items():
            assert factor == pytest.approx(expected[parameter.rpartition(".")[0]]), parameter
    decays = {p: group["weight_decay"] for group in optimizer.param_groups for p in group["params"]}
    assert all(decays[p] == (0.25 if p.ndim > 1 else 0.0) for p in module.parameters())


def test_scales_survive_the_schedule_of_a_captured_step() -> None:
    groups = parameter_groups(layered(), 0.0, 0.5)
    for group in groups:
        group["lr"] = torch.tensor(99.0)  # as on CUDA: the step holds on to these tensors
    optimizer = torch.optim.SGD(groups)
    held = [group["lr"] for group in optimizer.param_groups]
    set_lr(optimizer, 0.5)
    assert all(group["lr"] is tensor for group, tensor in zip(optimizer.param_groups, held, strict=True))
    assert sorted({tensor.item() for tensor in held}) == [0.0625, 0.125, 0.25, 0.5]


def test_a_layer_moves_as_far_as_its_rate_says() -> None:
    module = layered()
    optimizer = make_optimizer(module, Plan(steps=1, lr=1.0, momentum=0.0, weight_decay=0.0, layer_decay=0.5))
    before = {name: p.detach().clone() for name, p in module.named_parameters()}
    for p in trainable(module):
        p.grad = torch.ones_like(p)
    optimizer.step()
    moved = {name: (before[name] - p.detach()).mean().item() for name, p in module.named_parameters()}
    assert [moved[f"net.{part}.weight"] for part in ("stem", "block", "norm")] == pytest.approx([0.125, 0.25, 0.5])
    assert (moved["head.bias"], moved["average.module.stem.weight"]) == (pytest.approx(1.0), 0.0)


def test_of_parts_inside_of_one_another_the_outer_one_has_the_last_word() -> None:
    module = Layered()
    module.block = Layered()  # all of it is the outer one's layer 1 of 3
    found = factors(module, make_optimizer(module, Plan(steps=1, lr=1.0, layer_decay=0.5)), 1.0)
    assert {found[f"block.{part}.weight"] for part in ("stem", "block", "norm")} == {0.25}


def test_without_layer_decay_there_are_two_groups_whatever_the_network() -> None:
    groups = parameter_groups(layered(), 0.1)
    assert [(group["weight_decay"], group["lr_scale"]) for group in groups] == [(0.1, 1.0), (0.0, 1.0)]


def test_layer_decay_needs_a_network_that_knows_its_layers() -> None:
    with pytest.raises(InputError, match=r"plan\.layer_decay is 0\.5, but this network does not know its layers.*vit-"):
        make_optimizer(small(), Plan(steps=1, layer_decay=0.5))


def test_an_optimizer_that_others_made_follows_the_schedule_too() -> None:
    optimizer = torch.optim.SGD(small().parameters(), lr=1.0)
    set_lr(optimizer, 0.25)
    assert optimizer.param_groups[0]["lr"] == 0.25
