"""Start from pre-trained weights: the backbone of the query encoder, and the projection heads one to one."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor, nn

from ..errors import InputError

BACKBONE, PROJECTOR = "net.backbone.", "projector."  # how these names start in the state of a method


def take_over(state: Mapping[str, Tensor], net: nn.Module, projector: nn.Module | None = None) -> None:
    """Copy what a method has learned without labels into a fresh network and, if there is one, its projector.

    Do this before a method is built around them: the averages that it keeps are then copies of what it starts from. The
    classifier's linear layer, the key encoder and the queue stay behind; without a `projector` the heads do, too.

    Args:
        state: The `state_dict()` of the method that was pre-trained, such as MoCo.
        net: A classifier with the same backbone.
        projector: An ensemble with as many heads of the same sizes.

    Raises:
        InputError: The weights belong to another network or another projector; nothing is changed then.
    """
    parts: list[tuple[str, str, nn.Module]] = [("network", BACKBONE, net.get_submodule("backbone"))]
    parts += [] if projector is None else [("projector", PROJECTOR, projector)]
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


def _below(state: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): value for name, value in state.items() if name.startswith(prefix)}


def _shapes(state: Mapping[str, Tensor]) -> dict[str, tuple[int, ...]]:
    return {name: tuple(value.shape) for name, value in state.items()}
