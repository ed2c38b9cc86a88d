"""From a recipe to the objects that learn, and from a run folder to the network that it left behind."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, get_args

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from ..data import Dataset, ImageSource, Vectors
from ..data.dataset import Normalization
from ..errors import InputError
from ..evaluation import SCORES, Score, add_score
from ..evaluation.calibrated import Calibration
from ..extensions import Kind, check_trusted, find, load, located, names_in
from ..features import make_extractor
from ..method import Method, Problem, Wrapper, made
from ..methods import METHODS, PRETRAINING, WRAPPERS
from ..networks import NETWORKS, FromImages, OnFeatures, find_network, make_network
from ..networks.weights import names_of_tensors, read_safetensors
from ..parts.pretrained import BACKBONE, PROJECTOR, go_on_from, take_over
from ..parts.projector import Combine, ProjectorEnsemble
from ..recipe import Recipe, arguments, check_table
from ..runs import MODEL, PRETRAINED, WEIGHTS, RunFolder, is_finished, load_run
from ..runs.exported import is_exported, load_facts
from ..training.checkpoint import intact

STRATEGIES: tuple[str, ...] = get_args(Combine)  # ways to combine projectors
METHOD = Kind(
    "method",
    lambda found: (
        inspect.isclass(found)
        and issubclass(found, Method)
        and hasattr(found, "views")
        and not issubclass(found, Wrapper)
    ),
    "a class made from epass.Method, with views",
)
WRAPPER = Kind(
    "wrapper",
    lambda found: inspect.isclass(found) and issubclass(found, Wrapper) and found is not Wrapper,
    "a class made from epass.method.Wrapper",
)
SCORE = Kind("score", lambda found: isinstance(found, Score), "an epass.evaluation.Score")


def start_settings(*, weights: str, continued: bool = False) -> None:
    """The schema of a recipe's [start] table: the folder of a pre-training, or its file, or the folder of a run.

    The run is `continued`, or one on the features of the network that this one stands behind.
    """


def method_class(name: object) -> type[Method]:
    """The method or the pre-training of that name."""
    return find(name, METHOD, METHODS | PRETRAINING)


def wrapper_class(name: object) -> type[Wrapper]:
    """The wrapper of that name."""
    return find(name, WRAPPER, WRAPPERS)


def with_located_code(recipe: Recipe) -> Recipe:
    """The recipe with the whole paths of your files of code, so that the run can be used from any folder."""
    found = {key: value for key, value in recipe.flat().items() if any(names_in([value]))}
    whole = {key: [*map(located, value)] if isinstance(value, list) else located(value) for key, value in found.items()}
    return recipe.with_settings(whole)


def use_scores(names: Sequence[str] | None) -> None:
    """Put scores of one's own into the table, unless they are there already."""
    for name in names or ():
        if SCORES.get((own := load(name, SCORE)).key) is not own:
            add_score(own)


def display_names(recipe: Recipe) -> dict[str, str]:
    """What tables call the method and the wrapper of a recipe: for whoever reads the run and cannot load their code."""
    classes = {recipe.method["name"]: method_class(recipe.method["name"])}
    if recipe.wrapper is not None:
        classes[recipe.wrapper["name"]] = wrapper_class(recipe.wrapper["name"])
    return {name: cls.display_name for name, cls in classes.items()}


def takes_projector(method: type[Method]) -> bool:
    """Whether a method has an embedding, and so a place for EPASS."""
    return "projector" in inspect.signature(method).parameters


def memory_per_image(cls: type[Method]) -> dict[str, int]:
    """How many bytes a method with its default settings keeps of every labeled and every unlabeled image."""
    labeled, unlabeled = 10_007, 100_003  # primes: nothing else in a method has that many rows
    counts = (1_000,) * 9 + (1_007,)
    problem = Problem(10, labeled, unlabeled, counts, labeled_batch=64, unlabeled_batch=448, steps=10_000)
    make: Callable[..., Method] = cls
    with torch.device("meta"):  # shapes without memory or initialization
        net = make_network("small", in_channels=3, num_classes=10)
        parts = [ProjectorEnsemble(net.num_features)] if takes_projector(cls) else []
        buffers = list(make(cls.adapt(net), problem, *parts).buffers())
    sides = {"labeled": labeled, "unlabeled": unlabeled}
    return {side: sum(b.nbytes for b in buffers if rows in b.shape) // rows for side, rows in sides.items()}


def make_method(
    recipe: Recipe, problem: Problem, *, image_shape: Sequence[int], precision: torch.dtype, classes: Sequence[str] = ()
) -> Method:
    """The method of a recipe around its network, with fresh weights or those that the recipe starts from.

    The names of the `classes` are needed where a recipe goes on from a run, which may have known others.
    """
    cls = method_class(recipe.method["name"])
    net = make_network(
        recipe.net["name"], in_channels=image_shape[0], num_classes=problem.num_classes, **without(recipe.net, "name")
    )
    net.check_shape(image_shape)
    projector = None
    if takes_projector(cls):
        projector = ProjectorEnsemble(net.num_features, **(recipe.projector or {}))
    start = None if recipe.start is None else Path(recipe.start["weights"])
    if start is not None and not is_finished(start):
        take_over(pretrained_weights(start), net, projector)
    net.precision = precision
    adapted, parts = cls.adapt(net), [] if projector is None else [projector]
    if start is not None and is_finished(start):
        weights, knew = trained_weights(start, adapted)
        go_on_from(weights, adapted, knew, classes, where=f"'{start}'")
        if projector is not None and (heads := trained_heads(start, projector)):
            projector.load_state_dict(heads)
    method = made(cls, adapted, problem, *parts, **without(recipe.method, "name"))
    if method.needs_pixels and len(image_shape) == 1:
        raise InputError(f"{cls.display_name} {method.needs_pixels}, and these are vectors: choose another method.")
    if recipe.wrapper is not None:
        wrapper = wrapper_class(recipe.wrapper["name"])
        method = made(wrapper, method, problem, **without(recipe.wrapper, "name"))
    return method.train()


def network_schema(name: str) -> dict[str, inspect.Parameter]:
    """What a recipe's [net] table may hold beside the name of the network."""
    schema = arguments(find_network(name)) | arguments(make_network)
    return {key: parameter for key, parameter in schema.items() if key not in ("in_channels", "num_classes")}


def without(table: Mapping[str, Any], key: str) -> dict[str, Any]:
    """A copy of a table that lacks one key."""
    return {name: value for name, value in table.items() if name != key}


def learned_without_labels(method: Method) -> dict[str, Tensor]:
    """What a pre-training hands over to other runs, by name."""
    return {name: value for name, value in method.state_dict().items() if name.startswith((BACKBONE, PROJECTOR))}


def left_heads(pretraining: Path) -> bool:
    """Whether there are projection heads in what a pre-training left in its folder; they are not read."""
    return any(name.startswith(PROJECTOR) for name in names_of_tensors(pretraining / PRETRAINED))


def pretrained_weights(where: str | Path) -> dict[str, Tensor]:
    """What a pre-training left in its folder, or in a file of that kind."""
    path = Path(where)
    file = path / PRETRAINED if path.is_dir() else path
    if not file.is_file():
        raise InputError(f"'{where}' holds no pre-trained weights: give the folder of a finished 'epass pretrain'.")
    return read_safetensors(file)


def trained_weights(folder: Path, net: nn.Module) -> tuple[dict[str, Tensor], list[str]]:
    """What a finished run has learned, by the names of `net`, which starts from it, and the classes it knows.

    Of a run on frozen features, the network of the features is left out, unless `net` stands behind it to train both.
    """
    trained, model = load_model(folder)
    weights = trained.state_dict()
    if not isinstance(trained, FromImages):
        return weights, model["classes"]
    body = next((name for name, part in net.named_modules() if isinstance(part, OnFeatures)), None)
    if body is None:
        return trained.net.state_dict(), model["classes"]
    moved = {f"net.{body}.": f"{body}.body.", "net.": "", "backbone.": f"{body}.features.", "": f"{body}."}
    found = {}
    for name, tensor in weights.items():
        before = next(start for start in moved if name.startswith(start))  # the first that fits
        found[moved[before] + name.removeprefix(before)] = tensor
    return found, model["classes"]


def trained_heads(folder: Path, projector: nn.Module) -> dict[str, Tensor]:
    """The projection heads of a finished run, if it kept a checkpoint and they are like those of `projector`."""
    wanted = {name: tensor.shape for name, tensor in projector.state_dict().items()}
    prefix = f"method.{PROJECTOR}"
    for _, _, tensors in islice(intact(RunFolder(folder).checkpoints), 1):
        found = {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
        if {name: tensor.shape for name, tensor in found.items()} == wanted:
            return found
    return {}


def scale_of_start(recipe: Recipe) -> Normalization | None:
    """The mean and deviation of the images that a run starts from the network of; None if it does not."""
    if recipe.start is None or "behind" not in recipe.net:
        return None
    folder = Path(recipe.start["weights"])
    model = load_run(folder).model if folder.is_dir() else None
    if model is None or "mean" not in model:
        raise InputError(f"'{folder}' holds no finished run, which fine-tuning starts from.")
    return Normalization(tuple(model["mean"]), tuple(model["std"]))


@torch.no_grad()
def answer_by_nearest_mean(net: nn.Module, features: Tensor, labels: Tensor) -> None:
    """Set the linear layer of a classifier so that it names the class whose mean `features` (N, D) are nearest."""
    head = net.head
    assert isinstance(head, nn.Linear)
    means = torch.stack([features[labels == label].mean(0) for label in range(head.out_features)])
    head.weight.copy_(means)
    head.bias.copy_(-means.square().sum(1) / 2)  # |f - m|^2 = |f|^2 - 2 (f m - |m|^2 / 2)


def kept_model(recipe: Recipe, dataset: Dataset, test: ImageSource, net: nn.Module) -> tuple[nn.Module, dict[str, Any]]:
    """What a run leaves behind, a network from image to class even if it learned from features, and what it takes."""
    if not isinstance(test, Vectors):
        channels, height, width = test.shape
        scale = {"mean": dataset.mean, "std": dataset.std}
        return net, {**scale, "channels": channels, "height": height, "width": width}
    if recipe.features is None or test.pictures is None:
        return net, {"mean": dataset.mean, "std": dataset.std, "numbers": test.shape[0]}
    extractor, (channels, height, width) = make_extractor(**recipe.features), test.pictures.shape
    whole = FromImages(extractor.net, dataset.mean, dataset.std, net.cpu())
    scale = {"mean": extractor.mean, "std": extractor.std}
    features = {"net": extractor.name}
    return whole, {**scale, "channels": channels, "height": height, "width": width, "features": features}


def load_model(folder: str | Path) -> tuple[nn.Module, dict[str, Any]]:
    """The trained network of a run folder, or of an exported one, on the CPU, and what model.json says about it."""
    file = Path(folder) / WEIGHTS
    model = load_facts(Path(folder)) if is_exported(Path(folder)) else load_run(folder).model
    if model is not None and "net" not in model:
        raise InputError(f"'{folder}' is a baseline of a comparison, which leaves no network: name another run.")
    if model is not None and not file.is_file() and is_exported(Path(folder)):
        raise InputError(f"'{folder}' was exported without weights: export it again with --formats safetensors,onnx.")
    if model is None or not file.is_file():
        raise InputError(f"'{folder}' holds no finished model yet: resume the run first.")
    weights, described = read_safetensors(file), Path(folder) / MODEL
    try:
        _check_facts(model)
        check_trusted((model[part] or {}).get("name") for part in ("net", "method", "wrapper") if part in model)
        features = model.get("features")
        backbones = [model["net"]["name"], *([] if features is None else [features["net"]])]
        backbones += [model["net"]["behind"]] if "behind" in model["net"] else []
        check_trusted(backbones)
        if all(name in NETWORKS for name in backbones):
            with torch.device("meta"), _Undrawn():  # what a stranger's file asks for may be larger than any memory
                _check_shapes(_network(model), weights, file)
        net = _network(model)
    except InputError:
        raise
    except Exception as problem:  # a file that was written by hand can lack anything
        raise InputError(f"'{described}' is damaged ({type(problem).__name__}: {problem}): copy it again.") from None
    _check_shapes(net, weights, file)
    net.load_state_dict(weights)
    return net.eval(), model


class _Undrawn(TorchFunctionMode):
    """Draws no normal numbers.

    For a tensor without memory torch imports its compiler first, which takes longer than all else that loads a model.
    """

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return args[0] if function is Tensor.normal_ else function(*args, **(kwargs or {}))


def _network(model: Mapping[str, Any]) -> nn.Module:
    """The network that a model.json describes, with fresh weights."""
    settings = without(without(model["net"], "name"), "weights")  # which are in the run's own file now
    check_table("net", settings, network_schema(model["net"]["name"]))
    features = model.get("features")
    backbone = None if features is None else find_network(features["net"])(in_channels=model["channels"])
    inputs: Any = model.get("numbers") or (model["channels"] if backbone is None else backbone.num_features)
    classifier = make_network(model["net"]["name"], in_channels=inputs, num_classes=len(model["classes"]), **settings)
    net = method_class(model["method"]["name"]).adapt(classifier)
    wrapper = model.get("wrapper")
    if wrapper is not None:
        reads_embedding = wrapper.get("feature") == "embedding"
        made = [ProjectorEnsemble(classifier.num_features, **(model["projector"] or {}))] if reads_embedding else []
        adapt: Callable[..., nn.Module] = wrapper_class(wrapper["name"]).adapt
        net = adapt(net, *made)
    if backbone is None:
        return net
    return FromImages(backbone, [0.0] * inputs, [1.0] * inputs, net)  # whose statistics are in the run's file


def _check_facts(model: Mapping[str, Any]) -> None:
    """Refuse what cannot be said about images and classes."""
    Calibration.from_json(model.get("calibration"))
    vectors = "numbers" in model
    counts = [model[key] for key in (["numbers"] if vectors else ["channels", "height", "width"])]
    if not all(type(count) is int and count > 0 for count in counts) or not (vectors or model["channels"] in (1, 3)):
        raise ValueError("numbers is no count" if vectors else "channels, height and width are no sizes of images")
    names = model["classes"]
    if not isinstance(names, list) or not names or not all(isinstance(name, str) for name in names):
        raise ValueError("classes is no list of names")
    for key in ("mean", "std"):
        numbers = torch.tensor(model[key], dtype=torch.float32)
        if len(numbers) != counts[0] or not numbers.isfinite().all() or (key == "std" and (numbers <= 0).any()):
            kind = "numbers above 0" if key == "std" else "numbers"
            raise ValueError(
                f"{key} is no list of {kind}, one for every {'number of a vector' if vectors else 'channel'}"
            )


def _check_shapes(net: nn.Module, weights: Mapping[str, Tensor], file: Path) -> None:
    """Refuse weights that are not exactly those of the network."""
    wanted = {name: tensor.shape for name, tensor in net.state_dict().items()}
    found = {name: tensor.shape for name, tensor in weights.items()}
    odd = sorted(name for name in wanted.keys() | found.keys() if wanted.get(name) != found.get(name))
    if odd:
        raise InputError(f"'{file}' is not what {MODEL} describes, '{odd[0]}' differs: copy both again.")
    infinite = [name for name, tensor in weights.items() if not tensor.isfinite().all()]
    if infinite:
        raise InputError(f"'{file}' is damaged: it holds numbers that are not finite in '{infinite[0]}'.")
