"""The contract of a method, as checks to run on your own: `check_method(MyMethod, threshold=0.5)`.

`check_method` runs every check of `CHECKS` on a tiny problem that it makes up itself, on the CPU, in a few seconds.
`check_replicas` starts two processes and takes longer. A broken rule raises an `AssertionError` that says which rule it
is and how to mend it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast
from unittest.mock import patch
from warnings import catch_warnings, simplefilter

import torch
import torch.distributed as dist
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.multiprocessing.spawn import spawn
from torch.nn.parallel import DistributedDataParallel
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import keystr, tree_flatten_with_path, tree_map

from .method import Batch, Method, Outcome, Problem
from .networks.classifier import Classifier
from .parts.projector import ProjectorEnsemble
from .parts.teacher import Average
from .train.checkpoint import Progress, restore_newest, save_checkpoint
from .train.optimizer import make_optimizer, trainable
from .train.schedule import Plan
from .train.step import Step, make_step

LATE = 10**6  # a step after every warm-up
PROBLEM = Problem(3, 6, 32, label_counts=(2, 2, 2), labeled_batch=8, unlabeled_batch=16)
RESERVED = {"loss", "lr", "quality", "coverage", "used_known", "used_right"}  # names that a report fills in itself
RUNNING = {"running_mean", "running_var", "num_batches_tracked"}  # BatchNorm's statistics, which `forward` may write
TOLERANCE = 1e-5
STATE = "keep all state in parameters and persistent buffers."


class TinyBackbone(nn.Sequential):
    """One convolution and the mean over the image."""

    num_features = 6

    def __init__(self, *, batch_norm: bool = True) -> None:
        norm = nn.BatchNorm2d(self.num_features) if batch_norm else nn.Identity()
        conv = nn.Conv2d(3, self.num_features, 3, stride=2)
        super().__init__(conv, norm, nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())


@dataclass(frozen=True)
class Case:
    """A method with its hyper-parameters on the tiny problem.

    `projector` holds the keyword arguments of the `ProjectorEnsemble` that the method gets if its `__init__` has a
    parameter of that name: `{"size": 3}`.
    """

    method: type[Method]
    arguments: Mapping[str, Any]
    projector: Mapping[str, Any] | None = None

    def build(self, seed: int = 0, *, batch_norm: bool = True) -> Method:
        """A fresh method; another seed gives other weights and, where they start random, other memories."""
        takes_projector = "projector" in inspect.signature(self.method).parameters
        self.require(takes_projector or self.projector is None, "takes no projector, so do not give it one.")
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            net = Classifier(TinyBackbone(batch_norm=batch_norm), PROBLEM.num_classes)
            arguments = dict(self.arguments)
            if takes_projector:
                arguments["projector"] = ProjectorEnsemble(net.num_features, 5, **(self.projector or {}))
            build: Callable[..., Method] = self.method
            return build(net, PROBLEM, **arguments)

    def batch(self, position: int, step: int | None = None) -> Batch:
        """The batch at a position, a pure function of it. The clock jumps past every warm-up after two batches."""
        step = (position if position < 2 else LATE + position) if step is None else step
        self.require(hasattr(self.method, "views"), "needs `views = Views(labeled=(...), unlabeled=(...))`.")
        views = self.method.views
        pattern = torch.randn(PROBLEM.num_classes, 3, 8, 8, generator=torch.Generator().manual_seed(0))
        generator = torch.Generator().manual_seed(1 + position)

        def draw(classes: Tensor, count: int) -> tuple[Tensor, ...]:
            noise = torch.randn(count, len(classes), 3, 8, 8, generator=generator)
            return tuple(pattern[classes] + (0.3 + 0.2 * view) * noise[view] for view in range(count))

        # More rows than labeled images, so that indices repeat.
        index = torch.randint(PROBLEM.num_labeled, (PROBLEM.labeled_batch,), generator=generator)
        size = PROBLEM.unlabeled_batch if views.unlabeled else 0
        unlabeled_index = torch.randint(PROBLEM.num_unlabeled, (size,), generator=generator)
        labels, classes = index % PROBLEM.num_classes, unlabeled_index % PROBLEM.num_classes
        labeled, unlabeled = draw(labels, len(views.labeled)), draw(classes, len(views.unlabeled))
        truth = torch.where(unlabeled_index < 24, classes, -1)  # not every one is known
        return Batch(labeled, labels, unlabeled, index, unlabeled_index, truth, torch.tensor(step))

    def start(self, seed: int = 0) -> tuple[Progress, Step]:
        """A fresh method with optimizer and average, and its step."""
        method = self.build(seed)
        optimizer = make_optimizer(method, Plan(steps=6, lr=0.05))  # SGD: Adam on the CPU reads its step count
        progress = Progress(method, Average(method.net, 0.9), optimizer)
        return progress, make_step(method, optimizer, progress.average)

    def trained(self) -> Method:
        """A method whose memories hold something: two early steps and one late one are done."""
        progress, step = self.start()
        for position in range(3):
            step(self.batch(position))
        return progress.method

    def require(self, condition: object, message: str) -> None:
        """Raise with the method's name unless the rule holds; `assert` would be silent under `python -O`."""
        if not condition:
            raise AssertionError(f"{self.method.__name__} {message}")

    def keep(self, these: Mapping[str, Tensor], those: Mapping[str, Tensor], rule: str, tolerance: float = 0.0) -> None:
        """Require equal tensors, bit for bit without a tolerance."""
        odd = difference(these, those, tolerance)
        self.require(odd is None, f"changes {odd} {rule}")


def check_method(cls: type[Method], *, projector: Mapping[str, Any] | None = None, **arguments: Any) -> None:
    """Check that a method keeps the contract on which training, resuming, compiling and reporting rely.

    The method is built as `cls(net, problem, **arguments)` on a small convolutional network with BatchNorm, for three
    classes, six labeled images and 32 unlabeled ones. If its `__init__` has a parameter `projector`, it also gets a
    `ProjectorEnsemble`. Choose arguments under which all parts of the objective are at work: a low `threshold`, short
    memories. Warm-ups need no change: the batches come from steps 0, 1 and from steps past a million.

    Args:
        cls: The method to check.
        projector: Keyword arguments of its `ProjectorEnsemble`, for instance `{"size": 3}`.
        **arguments: Hyper-parameters of the method.

    Raises:
        AssertionError: A rule is broken; the message says which one and how to mend it.
    """
    case = Case(cls, arguments, projector)
    for check in CHECKS.values():
        check(case)


def check_outcome(case: Case) -> None:
    """Whatever the step, losses are finite differentiable scalars; all else is finite and has no gradient."""
    for step in (0, 1, LATE):
        method = case.build()
        outcome = method(case.batch(0, step))
        case.require(isinstance(outcome, Outcome) and outcome.losses, "must return an `Outcome` with losses.")
        for name, value in named(outcome).items():
            kind = name.split("[")[0]
            scalar = value.ndim == 0 or kind not in ("losses", "metrics")
            case.require(scalar, f"returns {name} of shape {tuple(value.shape)}: reduce it to a scalar.")
            case.require(
                value.isfinite().all(), f"returns {name} not finite at step {step}: mind divisions and powers."
            )
            advice = "compute losses from the network, detach all else."
            case.require(value.requires_grad == (kind == "losses"), f"has a wrong `requires_grad` of {name}: {advice}")
        clash = sorted(RESERVED & set(outcome.metrics))
        case.require(not clash, f"names a metric {clash}: the report fills that name in, choose another one.")
        if outcome.pseudo is not None:
            labels, mask = outcome.pseudo
            fits = labels.shape == mask.shape == (PROBLEM.unlabeled_batch,)
            fits = fits and labels.dtype == torch.int64 and mask.is_floating_point()
            case.require(fits, "must return `pseudo` as int64 labels (U,) and a float mask (U,).")
        method.update(outcome.memory)


def check_pure(case: Case) -> None:
    """`forward` reads state and never writes it: a second call gives the same outcome."""
    method = case.trained()
    for position in (0, 3):
        batch, before = case.batch(position), snapshot(method)
        first, second = named(method(batch)), named(method(batch))
        case.keep(before, snapshot(method), "in `forward`: put it into `memory` and write it in `update`.")
        case.keep(named(case.batch(position)), named(batch), "of the batch: work on a copy.")
        case.keep(first, second, "from one call of `forward` to the next: it must not keep things or draw at random.")


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
        # Gradients stay allocated and are added to: where autograd hands out one piece of memory twice, they double.
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
    """`torch.compile(method, fullgraph=True)` gives the same losses."""
    (_, step), (other, _) = case.start(), case.start()
    with catch_warnings():
        simplefilter("ignore")  # torch warns about itself while it compiles
        torch._dynamo.reset()
        try:
            compiled = cast(nn.Module, torch.compile(other.method, fullgraph=True, backend="aot_eager"))
            compiled_step = make_step(other.method, other.optimizer, other.average, forward=compiled)
            for position in range(3):
                eager, traced = named(step(case.batch(position))), named(compiled_step(case.batch(position)))
                case.keep(eager, traced, "when compiled: let no Python value decide, only tensors.", TOLERANCE)
        except torch._dynamo.exc.TorchDynamoException as error:
            raise AssertionError(f"{case.method.__name__} does not compile to one graph: {error}") from error
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
    "weights_move": check_weights_move,
    "gradients": check_gradients,
    "round_trip": check_round_trip,
    "resume": check_resume,
    "compiled": check_compiled,
    "no_host_sync": check_no_host_sync,
    "no_peeking": check_no_peeking,
    "static_shapes": check_static_shapes,
}


def check_replicas(cls: type[Method], *, projector: Mapping[str, Any] | None = None, **arguments: Any) -> None:
    """Check that two data-parallel processes stay identical and do together what one process does.

    Starts two processes, so `cls` must be importable (not local to a function), and a script needs the usual
    `if __name__ == "__main__":`. The arguments are those of `check_method`.
    """
    (problem,) = compare_replicas([Case(cls, arguments, projector)])
    if problem:
        raise AssertionError(problem)


def compare_replicas(cases: Sequence[Case]) -> list[str | None]:
    """What `check_replicas` finds wrong with each of several cases, for the price of one start of two processes."""
    with TemporaryDirectory() as name:
        spawn(_train_replica, (name, list(cases)), nprocs=2)  # type: ignore[no-untyped-call]
        return [_judge(case, f"{name}/{number}") for number, case in enumerate(cases)]


def _train_replica(rank: int, name: str, cases: list[Case]) -> None:
    torch.set_num_threads(1)
    simplefilter("ignore", FutureWarning)  # names that torch renames, but not in the oldest release we support
    meeting = f"file://{name}/meeting"
    dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=2, timeout=timedelta(seconds=120))
    for number, case in enumerate(cases):
        for kind, batch_norm in (("norm", True), ("plain", False)):
            save_file(_trace(case, batch_norm=batch_norm, rank=rank), f"{name}/{number}-{kind}-{rank}")
    dist.barrier()  # who leaves early closes connections that the other may still read
    dist.destroy_process_group()


def _trace(case: Case, *, batch_norm: bool, rank: int | None = None) -> dict[str, Tensor]:
    """The losses of four steps and the state after them, of one rank or of a process on its own."""
    method = case.build(batch_norm=batch_norm)
    parallel = None if rank is None else DistributedDataParallel(method, broadcast_buffers=False)
    # No momentum and a small rate, so that rounding is not amplified to a visible difference
    step = make_step(method, torch.optim.SGD(trainable(method), lr=0.05), Average(method.net), forward=parallel)
    losses: dict[str, Tensor] = {}
    for position in range(4):
        batch = case.batch(position)
        if rank is not None:
            batch = Batch(*tree_map(lambda rows: rows[rank::2] if rows.ndim else rows, batch))
        losses |= {f"losses['{name}'] of step {position}": loss for name, loss in step(batch).losses.items()}
    return {name: tensor.contiguous().clone() for name, tensor in (losses | snapshot(method)).items()}


def _judge(case: Case, prefix: str) -> str | None:
    advice = "use the memories of `epass.parts`, or `gather_rows` and `mean_over_ranks` of `epass.distributed`."
    try:
        for kind in ("norm", "plain"):
            one, two = (load_file(f"{prefix}-{kind}-{rank}") for rank in range(2))
            losses = {name: (one.pop(name) + two.pop(name)) / 2 for name in list(one) if name.startswith("losses")}
            case.keep(one, two, f"from rank to rank: {advice}")
        # Without BatchNorm, whose statistics are those of each rank's rows, two ranks must do what one process does.
        alone = _trace(case, batch_norm=False)
        case.keep(alone, losses | one, f"when two ranks share the work of one: {advice}", TOLERANCE)
    except AssertionError as error:
        return str(error)
    return None


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


def named(part: Batch | Outcome) -> dict[str, Tensor]:
    """All tensors of a batch or an outcome by name."""
    leaves = tree_flatten_with_path(part)[0]
    return {keystr(path).lstrip("."): value for path, value in leaves if isinstance(value, Tensor)}


def snapshot(method: nn.Module) -> dict[str, Tensor]:
    """Copies of all parameters and buffers but BatchNorm's running statistics."""
    state = {**dict(method.named_parameters()), **dict(method.named_buffers())}
    return {name: value.detach().clone() for name, value in state.items() if name.split(".")[-1] not in RUNNING}


def difference(these: Mapping[str, Tensor], those: Mapping[str, Tensor], tolerance: float = 0.0) -> str | None:
    """The first name whose tensors differ by more than `tolerance`, or None; a NaN equals a NaN."""
    for name in {**these, **those}:
        this, that = these.get(name), those.get(name)
        if this is None or that is None or this.shape != that.shape or this.dtype != that.dtype:
            return name
        if not torch.allclose(this.detach(), that.detach(), rtol=tolerance, atol=tolerance, equal_nan=True):
            return name
    return None
