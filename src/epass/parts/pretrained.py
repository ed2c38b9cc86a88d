"""Start from weights that are there: those of a pre-training, or those of a run that has learned these classes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from ..errors import InputError

BACKBONE, PROJECTOR = "net.backbone.", "projector."  # how these names start in the state of a method


def take_over(state: Mapping[str, Tensor], net: nn.Module, projector: nn.Module | None = None) -> None:
    """Copy what a method has learned without labels into a fresh network and, if there is one, its projector.

    Do this before a method is built around them: the averages that it keeps are then copies of what it starts from. The
    classifier's linear layer, the key encoder and the queue stay behind; without a `projector` the heads do, too. What
    was learned without heads, as by RotNet, leaves a `projector` as it is.

    Args:
        state: The `state_dict()` of the method that was pre-trained, such as MoCo or RotNet.
        net: A classifier with the same backbone.
        projector: An ensemble with as many heads of the same sizes.

    Raises:
        InputError: The weights belong to another network or another projector; nothing is changed then.
    """
    parts: list[tuple[str, str, nn.Module]] = [("network", BACKBONE, net.get_submodule("backbone"))]
    if projector is not None and _below(state, PROJECTOR):
        parts.append(("projector", PROJECTOR, projector))
    for kind, prefix, module in parts:
        found, wanted = _shapes(_below(state, prefix)), _shapes(module.state_dict())
        odd = sorted(name for name in found.keys() | wanted.keys() if found.get(name) != wanted.get(name))
        if odd:
            raise InputError(
                f"The pre-trained weights are those of another {kind}, '{prefix}{odd[0]}' and {len(odd) - 1} more "
                f"differ: use the {kind} settings of the pre-training."
            )
    for _, prefix, module in parts:
        module.load_state_dict(_below(state, prefix))


def go_on_from(
    state: Mapping[str, Tensor], net: nn.Module, knew: Sequence[str], classes: Sequence[str], where: str = "The run"
) -> None:
    """Copy the weights of a trained classifier into a fresh one of the same kind, which may know other classes.

    A class keeps what was learned about it whatever its number is now; one that is new starts fresh.

    Args:
        state: The `state_dict()` of the trained network.
        net: The fresh one.
        knew: The names of the classes that the trained network knows, by number.
        classes: Those that the fresh one shall know.
        where: What a refusal calls the trained network.

    Raises:
        InputError: The network is of another kind; nothing is changed then.
    """
    own = net.state_dict()
    by_class = {name for name in own if name.rpartition(".")[0].endswith("head")}
    wanted = {name: (len(knew), *shape[1:]) if name in by_class else shape for name, shape in _shapes(own).items()}
    found = _shapes(state)
    odd = sorted(name for name in found.keys() | wanted.keys() if found.get(name) != wanted.get(name))
    if odd:
        raise InputError(f"{where} has another network, '{odd[0]}' differs: go on with the same network and method.")
    kept = [(classes.index(name), number) for number, name in enumerate(knew) if name in classes]
    with torch.no_grad():
        for name, tensor in own.items():
            if name in by_class:
                for now, then in kept:
                    tensor[now] = state[name][then]
            else:
                tensor.copy_(state[name])


def _below(state: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): value for name, value in state.items() if name.startswith(prefix)}


def _shapes(state: Mapping[str, Tensor]) -> dict[str, tuple[int, ...]]:
    return {name: tuple(value.shape) for name, value in state.items()}
