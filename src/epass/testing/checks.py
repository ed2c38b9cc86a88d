"""The rules of the contract, one function each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch
from warnings import catch_warnings, simplefilter

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

from ..method import Batch, Method, Problem, Wrapper, check_losses, check_places, made
from ..methods.freematch import FreeMatch
from ..networks.shared_norm import share_statistics
from ..training.checkpoint import restore_newest, save_checkpoint
from ..training.step import make_step
from .case import LATE, PROBLEM, Case, difference, named, own_share, snapshot

# names that a report fills in itself
RESERVED = {"loss", "lr", "quality", "coverage", "used_known", "used_right"}
RESERVED |= {f"{name}_by_class" for name in ("used", "known", "right", "images")}
TOLERANCE = 1e-5
STATE = "keep all state in parameters and persistent buffers."


def check_method(
    cls: type[Method], *, projector: Mapping[str, Any] | None = None, vectors: bool = False, **arguments: Any
) -> None:
    """Check that a method keeps the contract on which training, resuming, compiling and reporting rely.

    The method is built as `cls(net, problem, **arguments)` on a small convolutional network with BatchNorm, for three
    classes, six labeled images and 32 unlabeled ones. If its `__init__` has a parameter `projector`, it also gets a
    `ProjectorEnsemble`. Choose arguments under which all parts of the objective are at work: a low `threshold`, short
    memories. Warm-ups need no change: the batches come from steps 0, 1 and from steps past a million. A wrapper is
    built as `cls(method, problem, **arguments)` around a FreeMatch.

    Args:
        cls: The method or wrapper to check.
        projector: Keyword arguments of its `ProjectorEnsemble`, for instance `{"size": 3}`.
        vectors: Check it on vectors and a linear layer with BatchNorm instead.
        **arguments: Hyper-parameters of the method.

    Raises:
        AssertionError: A rule is broken; the message says which one and how to mend it.
    """
    case = Case(cls, arguments, projector, vectors=vectors)
    if issubclass(cls, Wrapper):

        def wrap(method: Method, problem: Problem) -> Method:
            return made(cls, method, problem, **arguments)

        wrap.__name__ = cls.__name__  # what messages call it
        case = Case(FreeMatch, {}, projector, wrap, vectors)
    for check in CHECKS.values():
        check(case)


def check_outcome(case: Case) -> None:
    """Whatever the step, losses are finite differentiable scalars; all else is finite and has no gradient."""
    for step in (0, 1, LATE):
        method = case.build()
        outcome = method(case.batch(0, step))
        check_losses(outcome, type(method).__name__)
        for name, value in named(outcome).items():
            kind = name.split("[")[0].split(".")[0]
            scalar = value.ndim == 0 or kind not in ("losses", "metrics")
            case.require(scalar, f"returns {name} of shape {tuple(value.shape)}: reduce it to a scalar.")
            case.require(
                value.isfinite().all(), f"returns {name} not finite at step {step}: mind divisions and powers."
            )
            advice = "compute losses from the network, detach all else but features."
            fine = kind == "features" or value.requires_grad == (kind == "losses")
            case.require(fine, f"has a wrong `requires_grad` of {name}: {advice}")
        clash = sorted(RESERVED & set(outcome.metrics))
        case.require(not clash, f"names a metric {clash}: the report fills that name in, choose another one.")
        if outcome.pseudo is not None:
            labels, mask, _ = outcome.pseudo
            fits = labels.shape == mask.shape == (PROBLEM.unlabeled_batch,)
            fits = fits and labels.dtype == torch.int64 and mask.is_floating_point()
            case.require(fits, "must return `pseudo` as int64 labels (U,) and a float mask (U,).")
        method.update(outcome.memory)


def check_pure(case: Case) -> None:
    """`forward` reads state and never writes it: a second call gives the same outcome."""
    method, fresh = case.trained(), case.build()
    for position in (0, 3):
        batch, before = case.batch(position), snapshot(method)
        first, second = named(method(batch)), named(method(batch))
        kept = [part.training for part in fresh.modules()] == [part.training for part in method.modules()]
        case.require(kept, "leaves layers in another mode than it finds them (`train`, `eval`): put that back.")
        case.keep(before, snapshot(method), "in `forward`: put it into `memory` and write it in `update`.")
        case.keep(named(case.batch(position)), named(batch), "of the batch: work on a copy.")
        case.keep(first, second, "from one call of `forward` to the next: it must not keep things or draw at random.")


def check_in_place(case: Case) -> None:
    """A step writes into the tensors of the state, and never puts others in their place."""
    progress, step = case.start()
    before = progress.tensors()
    for position in range(2):
        step(case.batch(position))
    check_places(before, progress.tensors(), case.name)


def check_weights_move(case: Case) -> None:
    """One step trains the network."""
    progress, step = case.start()
    before = snapshot(progress.method.net)
    step(case.batch(0))
    moved = difference(before, snapshot(progress.method.net)) is not None
    case.require(moved, "does not move the weights of `net` in a step: is a loss computed from detached logits?")


def check_gradients(case: Case) -> None:
    """Every trainable parameter gets a gradient of its own in every step: data-parallel training relies on it."""
    for position in (0, 3):
        method = case.build()
        method(case.batch(position)).loss.backward()
        gradients = {name: p.grad for name, p in method.named_parameters() if p.requires_grad}
        dead = [name for name, gradient in gradients.items() if gradient is None]
        advice = "remove or freeze them, or gate their loss with `torch.where` (a gradient of zeros is fine)."
        case.require(not dead, f"has parameters without a gradient at step {position}, {dead}: {advice}")
        # Where autograd hands out one piece of memory twice, whatever works on gradients in place works on it twice.
        places = [gradient.data_ptr() for gradient in gradients.values() if gradient is not None]
        shared = [name for name, place in zip(gradients, places, strict=True) if places.count(place) > 1]
        advice = "add up with `sum(list)`, not `torch.stack(list).sum(0)`."
        case.require(not shared, f"has gradients that share memory, {shared}: {advice}")


def check_round_trip(case: Case) -> None:
    """`state_dict()` is the whole method: loaded into a fresh one, it gives the same outcome."""
    method, fresh = case.trained(), case.build(seed=1)
    fresh.load_state_dict(method.state_dict())
    known, found = named(method(case.batch(3))), named(fresh(case.batch(3)))
    case.keep(known, found, f"when its state goes into a fresh method: {STATE}")


def check_resume(case: Case) -> None:
    """Six steps equal three steps, a checkpoint, and three steps of fresh objects, bit for bit."""
    (straight, step), (first, first_step), (fresh, fresh_step) = case.start(), case.start(), case.start(seed=1)
    outcomes = [step(case.batch(position)) for position in range(6)]
    for position in range(3):
        first_step(case.batch(position))
    with TemporaryDirectory() as folder:
        save_checkpoint(Path(folder), first, 3)
        restore_newest(Path(folder), fresh)
    for position in range(3, 6):
        found = named(fresh_step(case.batch(position)))
        case.keep(named(outcomes[position]), found, f"of step {position} when resumed after 3 steps: {STATE}")
    states = [progress.tensors() | snapshot(progress.method) for progress in (straight, fresh)]
    case.keep(states[0], states[1], f"when resumed after 3 steps: {STATE}")


def check_compiled(case: Case) -> None:
    """`torch.compile(method, fullgraph=True)` gives the same losses, unless the method says why it cannot.

    One of several processes does so on its share of the batches.
    """
    if case.method.not_compiled:
        return
    (plain, step), (other, _) = case.start(), case.start()
    for progress in (plain, other):
        share_statistics(progress.method)
    with catch_warnings():
        simplefilter("ignore")  # torch warns about itself while it compiles
        torch._dynamo.reset()
        try:
            compiler = partial(torch.compile, fullgraph=True, backend="aot_eager")
            compiled_step = make_step(other.method, other.optimizer, other.average, compiler=compiler)
            for position in range(3):
                batch = Batch(*tree_map(own_share, case.batch(position)))
                eager, traced = named(step(batch)), named(compiled_step(batch))
                case.keep(eager, traced, "when compiled: let no Python value decide, only tensors.", TOLERANCE)
        except torch._dynamo.exc.TorchDynamoException as error:
            raise AssertionError(f"{case.name} does not compile to one graph: {error}") from error
        finally:
            torch._dynamo.reset()


def check_no_host_sync(case: Case) -> None:
    """Nothing in a step makes the host wait for the device."""
    _, step = case.start()
    # These three never reach the dispatcher when the tensor is on the CPU.
    hidden: Any = {name: partial(_refuse, f"Tensor.{name}") for name in ("tolist", "cpu", "numpy")}
    for position in range(3):
        batch = case.batch(position)
        with patch.multiple(Tensor, **hidden), _NoHostSync():  # type: ignore[no-untyped-call]
            step(batch)


def check_no_peeking(case: Case) -> None:
    """The true classes of unlabeled images are for diagnostics: no outcome depends on them."""
    method, batch = case.trained(), case.batch(3)
    known, truth = named(method(batch)), batch.unlabeled_truth
    for other in (torch.full_like(truth, -1), (truth + 1) % PROBLEM.num_classes):
        found = named(method(batch._replace(unlabeled_truth=other)))
        case.keep(known, found, "with `batch.unlabeled_truth`: no method may read that.")


def check_static_shapes(case: Case) -> None:
    """Names, shapes and types of the outcome and of all state are the same at every step."""
    method, found = case.build(), list[dict[str, tuple[torch.Size, torch.dtype]]]()
    for position in range(5):
        outcome = method(case.batch(position))
        method.update(outcome.memory)
        found.append({name: (value.shape, value.dtype) for name, value in (named(outcome) | snapshot(method)).items()})
        odd = sorted({name for name, _ in found[0].items() ^ found[-1].items()})
        advice = "select with masks and `torch.where`, and give memories their full size from the start."
        case.require(not odd, f"has another name, shape or type of {odd} at step {position} than at step 0: {advice}")


CHECKS: dict[str, Callable[[Case], None]] = {
    "outcome": check_outcome,
    "pure": check_pure,
    "in_place": check_in_place,
    "weights_move": check_weights_move,
    "gradients": check_gradients,
    "round_trip": check_round_trip,
    "resume": check_resume,
    "compiled": check_compiled,
    "no_host_sync": check_no_host_sync,
    "no_peeking": check_no_peeking,
    "static_shapes": check_static_shapes,
}


WAITS = {"_local_scalar_dense", "is_nonzero", "nonzero", "masked_select", "bincount", "equal", "allclose"}
WAITS |= {"_unique", "_unique2", "unique_dim", "unique_consecutive", "unique_dim_consecutive"}


class _NoHostSync(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Refuses whatever reads a tensor's values on the host, or shapes a tensor by them."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        indices = args[1] if name in ("index", "index_put", "index_put_", "_index_put_impl_") else ()
        masked = any(index is not None and index.dtype in (torch.bool, torch.uint8) for index in indices)
        if name in WAITS or masked or (name == "repeat_interleave" and not (kwargs or {}).get("output_size")):
            _refuse(f"aten.{name}")
        return func(*args, **(kwargs or {}))


def _refuse(name: str, *_: Any) -> None:
    advice = "no `.item()`, `if tensor:`, `t[mask]`, `t[zero_dim]`, `F.one_hot`; use `torch.where`, `index_select`."
    raise AssertionError(f"A step makes the host wait for the device ({name}, see the traceback): {advice}")
