"""The shape of the package: who may import whom, what a training step may call, how large a file may grow.

Each rule is a function from sources to a list of complaints. It is run on the package, where it must find nothing, and
on a small offence, which it must find.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

import epass
from epass.recipe import Recipe, parse_recipe, read_recipe
from epass.recipes import builtin_recipes

PACKAGE = Path(epass.__file__).parent

EVERYONE = {"errors", "files", "untrusted"}
CORE = {"method", "machine", "seeds", "parts", "networks", "methods", "augment", "data", "features", "training"}
EDGE = {"engine", "extensions", "loggers", "machine", "runs", "report", "recipe", "recipes"}
ROOMS: dict[str, set[str]] = {
    "errors": set(),
    "files": set(),
    "untrusted": set(),
    "extensions": set(),
    "machine": set(),
    "recipe": {"recipes"},
    "recipes": set(),
    "method": set(),
    "seeds": set(),
    "parts": {"machine.distributed"},
    "networks": {"extensions", "machine.distributed", "parts.draws"},
    "methods": {"method", "parts", "machine.distributed", "networks"},
    "augment": {"extensions"},
    "data": {"augment", "extensions", "method", "machine.device", "machine.distributed", "seeds"},
    "features": {"augment", "data", "extensions", "machine", "networks"},
    "training": {"method", "parts.teacher", "machine.distributed"},
    "evaluation": set(),
    "runs": set(),
    "report": {"runs", "evaluation", "extensions", "methods", "recipe"},
    "checking": {"data", "report"},
    "engine": CORE | {"checking.duplicates", "evaluation", "extensions", "recipe", "runs"},
    "loggers": {"training.loop"},
    "reproduce": {"evaluation", "networks", "parts.projector", "recipe", "recipes", "report", "runs"},
    "testing": CORE | {"recipe"},
    "estimator": {"app", "engine", "evaluation.calibrated", "extensions", "recipe", "runs"},
    "app": EDGE
    | {"checking", "data", "evaluation", "features", "methods", "networks", "parts", "reproduce", "training"},
    "labeling": {"app", "data", "engine", "evaluation", "extensions", "features", "machine"}
    | {"recipe", "recipes", "report", "runs", "training.window"},
    "studio": {"app", "labeling", "machine", "runs"},
    "cli": {"app", "machine", "studio"},
    "__main__": {"cli"},
}
LIBRARIES: dict[str, set[str]] = {
    "errors": set(),
    "files": set(),
    "untrusted": set(),
    "extensions": set(),
    "machine": {"torch"},
    "recipe": set(),
    "recipes": set(),
    "method": {"torch"},
    "seeds": {"torch"},
    "parts": {"torch"},
    "networks": {"torch", "safetensors", "timm", "transformers", "triton"},
    "methods": {"torch"},
    "augment": {"torch"},
    "data": {"torch", "numpy", "PIL", "sklearn", "pyarrow", "torchvision"},
    "features": {"torch", "numpy", "PIL"},
    "training": {"torch", "safetensors"},
    "evaluation": {"torch", "numpy", "sklearn", "openTSNE"},
    "runs": {"numpy", "safetensors"},
    "report": {"numpy", "matplotlib", "PIL"},
    "checking": {"torch", "numpy", "PIL"},
    "engine": {"torch", "numpy", "onnxruntime", "PIL"},
    "loggers": {"torch", "wandb", "mlflow"},
    "reproduce": {"torch"},
    "testing": {"torch", "safetensors"},
    "estimator": {"torch", "numpy", "sklearn", "rich"},
    "app": {"torch", "numpy", "pyarrow", "starlette", "uvicorn"},
    "labeling": {"torch", "numpy", "PIL", "sklearn"},
    "studio": {"starlette", "uvicorn"},
    "cli": {"typer", "rich"},
    "__main__": set(),
}
ONLY_INSIDE_FUNCTIONS = {
    "matplotlib",
    "sklearn",
    "openTSNE",
    "PIL",
    "pyarrow",
    "timm",
    "transformers",
    "wandb",
    "mlflow",
    "onnxruntime",
    "starlette",
    "torchvision",
    "uvicorn",
}
FACE_OF = {"sklearn": {"estimator"}}  # whose class is one of the library's, and which nobody imports
NOT_WITH_THE_CORE = ONLY_INSIDE_FUNCTIONS | {"typer", "rich", "triton"}

BANNED_NAMES = {"utils", "misc", "core", "common", "helpers"}
MODULE_LINES, METHOD_LINES, STORY_LINES = 400, 120, 300
STORY = ("training/loop.py", "training/step.py", "methods/simmatch.py")  # what one reads to understand a training run
HOST_SYNCS = {"item", "tolist", "cpu", "numpy", "bincount", "nonzero"}
FUNCTIONAL = {"F", "functional", "nn.functional", "torch.nn.functional"}


class Import(NamedTuple):
    target: str  # dotted, the package's own modules as "epass.room.module"
    name: str | None  # what is taken from it
    line: int
    always: bool  # it runs when the module is imported


def imports(path: str, source: str) -> Iterator[Import]:
    """Every import of the file at `path`, which is relative to the package, with relative imports resolved."""
    package = ["epass", *Path(path).parent.parts]

    def visit(node: ast.AST, always: bool) -> Iterator[Import]:
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(alias.name, None, node.lineno, always)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            target = ".".join([*base, *([node.module] if node.module else [])])
            for alias in node.names:
                yield Import(target, alias.name, node.lineno, always)
        elif isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
            for child in node.body:
                yield from visit(child, False)
            for child in node.orelse:
                yield from visit(child, always)
        else:
            inside = always and not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
            for child in ast.iter_child_nodes(node):
                yield from visit(child, inside)

    yield from visit(ast.parse(source), True)


def room_of(path: str) -> str:
    return Path(path).parts[0].removesuffix(".py")


def within(module: str, rooms: Iterable[str]) -> bool:
    return any(module == room or module.startswith(f"{room}.") for room in rooms)


def import_complaints(path: str, source: str) -> list[str]:
    """What the file imports against the two tables; the package's own `__init__` may take from every room."""
    room = room_of(path)
    if room == "__init__":
        allowed_rooms, allowed_libraries = set(ROOMS), set[str]()
    elif room in ROOMS:
        allowed_rooms, allowed_libraries = ROOMS[room] | EVERYONE | {room}, LIBRARIES[room]
    else:
        return [f"{path}: the room '{room}' is not in the table"]
    complaints = []
    for found in imports(path, source):
        top, _, module = found.target.partition(".")
        if top == "epass":
            taken = f"{module}.{found.name}".removeprefix(".") if found.name else module
            if not (within(module, allowed_rooms) or within(taken, allowed_rooms)):
                complaints.append(f"{path}:{found.line}: '{room}' may not import '{taken}'")
        elif top not in sys.stdlib_module_names:
            if top not in allowed_libraries:
                complaints.append(f"{path}:{found.line}: '{room}' may not import the library '{top}'")
            if top in ONLY_INSIDE_FUNCTIONS and found.always and room not in FACE_OF.get(top, ()):
                complaints.append(f"{path}:{found.line}: '{top}' is imported only inside functions")
    return complaints


def name_complaints(path: str) -> list[str]:
    names = {Path(part).stem for part in Path(path).parts}
    return [f"{path}: nothing is called '{name}'" for name in sorted(names & BANNED_NAMES)]


def size_complaints(lines: Mapping[str, int]) -> list[str]:
    """What is too long, given the number of lines of every file."""
    limits = {path: METHOD_LINES if room_of(path) == "methods" else MODULE_LINES for path in lines}
    complaints = [f"{path}: {lines[path]} lines, not {limit}" for path, limit in limits.items() if lines[path] > limit]
    story = sum(lines[path] for path in STORY)
    return complaints + ([f"{' + '.join(STORY)}: {story} lines, not {STORY_LINES}"] if story > STORY_LINES else [])


def in_the_step(path: str) -> bool:
    return room_of(path) in {"methods", "parts"} or path == "training/step.py"


def sync_complaints(path: str, source: str) -> list[str]:
    """The calls that make the host wait for the device."""
    complaints = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute):
            functional = ast.unparse(node.value) in FUNCTIONAL
            names = {node.attr} & (HOST_SYNCS | ({"one_hot"} if functional else set()))
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("torch"):
            names = {alias.name for alias in node.names} & (HOST_SYNCS | {"one_hot"})
        else:
            continue
        complaints += [f"{path}:{node.lineno}: '{name}' waits for the device" for name in names]
    return complaints


def truth_complaints(path: str, source: str) -> list[str]:
    seen = room_of(path) == "methods" and "unlabeled_truth" in source
    return [f"{path}: a method may not look at the true classes of unlabeled images"] if seen else []


def print_complaints(path: str, source: str) -> list[str]:
    """What prints, although only the command line has a screen."""
    nodes = [] if room_of(path) == "cli" else ast.walk(ast.parse(source))
    found = [node for node in nodes if isinstance(node, ast.Call) and ast.unparse(node.func) == "print"]
    return [f"{path}:{node.lineno}: '{room_of(path)}' may not print" for node in found]


def recipe_complaints(name: str, recipe: Recipe) -> list[str]:
    return [] if recipe.source.strip() else [f"{name}: says no source"]


@pytest.fixture(scope="module")
def sources() -> dict[str, str]:
    return {str(path.relative_to(PACKAGE)): path.read_text(encoding="utf-8") for path in sorted(PACKAGE.rglob("*.py"))}


def test_rooms_import_only_what_the_table_allows(sources: dict[str, str]) -> None:
    assert [complaint for path, source in sources.items() for complaint in import_complaints(path, source)] == []


def test_names_say_something(sources: dict[str, str]) -> None:
    assert [complaint for path in sources for complaint in name_complaints(path)] == []


def test_files_stay_small(sources: dict[str, str]) -> None:
    assert size_complaints({path: len(source.splitlines()) for path, source in sources.items()}) == []


def test_a_step_never_waits_for_the_device(sources: dict[str, str]) -> None:
    step = {path: source for path, source in sources.items() if in_the_step(path)}
    assert "training/step.py" in step
    assert [complaint for path, source in step.items() for complaint in sync_complaints(path, source)] == []


def test_no_method_reads_the_truth(sources: dict[str, str]) -> None:
    assert [complaint for path, source in sources.items() for complaint in truth_complaints(path, source)] == []


def test_only_the_command_line_prints(sources: dict[str, str]) -> None:
    assert [complaint for path, source in sources.items() for complaint in print_complaints(path, source)] == []


def test_the_application_is_imported_without_torch_and_without_a_screen() -> None:
    modules = [f"epass.app.{path.stem}" for path in (PACKAGE / "app").glob("[!_]*.py")]
    command = f"import sys, {', '.join(modules)}; print(*sorted({{'torch', 'typer', 'rich'}} & set(sys.modules)))"
    result = subprocess.run([sys.executable, "-c", command], capture_output=True, text=True, check=True)
    assert len(modules) > 10
    assert result.stdout.split() == []


def test_what_the_studio_serves_with_is_imported_without_torch() -> None:
    labeling = ("forms", "jobs", "learner", "past", "project", "thumbnails", "views")
    modules = [*(f"epass.studio.{path.stem}" for path in (PACKAGE / "studio").glob("[!_]*.py"))]
    modules += [f"epass.labeling.{name}" for name in labeling]
    command = (
        f"import sys, {', '.join(modules)}; print(*sorted({{'torch', 'typer', 'rich', 'PIL'}} & set(sys.modules)))"
    )
    result = subprocess.run([sys.executable, "-c", command], capture_output=True, text=True, check=True)
    assert len(modules) > 10
    assert result.stdout.split() == []


def test_every_recipe_parses_and_names_its_source() -> None:
    assert {name.partition("-")[0] for name in builtin_recipes()} == {
        path.stem for path in (PACKAGE / "recipes").iterdir() if path.suffix == ".toml"
    }
    assert [complaint for name in builtin_recipes() for complaint in recipe_complaints(name, read_recipe(name))] == []


@pytest.mark.parametrize("module", ["epass", "epass.engine.build"])
def test_the_core_imports_without_edge_libraries(module: str) -> None:
    command = f"import sys, {module}; print(*sorted({NOT_WITH_THE_CORE!r} & set(sys.modules)))"
    result = subprocess.run([sys.executable, "-c", command], capture_output=True, text=True, check=True)
    assert result.stdout.split() == []


@pytest.mark.parametrize(
    ("path", "source", "complaint"),
    [
        ("training/loop.py", "from ..methods import METHODS", "'training' may not import 'methods.METHODS'"),
        ("training/loop.py", "from ..data.feed import Feed", "'training' may not import 'data.feed.Feed'"),
        ("training/loop.py", "import epass.data", "'training' may not import 'data'"),
        ("training/step.py", "from ..parts import memory", "'training' may not import 'parts.memory'"),
        ("data/feed.py", "from epass.methods.fixmatch import FixMatch", "may not import 'methods.fixmatch.FixMatch'"),
        ("data/feed.py", "def read():\n    from .. import methods", "feed.py:2: 'data' may not import 'methods'"),
        ("methods/new.py", "from ..data import Feed", "may not import 'data.Feed'"),
        ("method.py", "from .machine.distributed import rank", "may not import 'machine.distributed.rank'"),
        ("method.py", "import numpy as np", "'method' may not import the library 'numpy'"),
        ("augment/ops.py", "from PIL import Image", "'augment' may not import the library 'PIL'"),
        ("runs/folder.py", "import torch", "'runs' may not import the library 'torch'"),
        ("report/page.py", "import rich", "'report' may not import the library 'rich'"),
        ("report/page.py", "import matplotlib.pyplot as plt", "'matplotlib' is imported only inside functions"),
        ("estimator.py", "import matplotlib", "'estimator' may not import the library 'matplotlib'"),
        ("report/page.py", "class Page:\n    import matplotlib", "'matplotlib' is imported only inside functions"),
        (
            "data/digits.py",
            "try:\n    import sklearn\nfinally:\n    pass",
            "'sklearn' is imported only inside functions",
        ),
        ("engine/run.py", "from ..cli import main", "'engine' may not import 'cli.main'"),
        ("cli/train.py", "from epass import __version__", "'cli' may not import '__version__'"),
        ("app/train.py", "from ..cli.screen import complain", "'app' may not import 'cli.screen.complain'"),
        ("app/train.py", "def ask():\n    import rich", "'app' may not import the library 'rich'"),
        ("cli/train.py", "from ..engine.run import run", "'cli' may not import 'engine.run.run'"),
        ("studio/server.py", "from ..engine.run import run", "'studio' may not import 'engine.run.run'"),
        ("studio/server.py", "import starlette", "'starlette' is imported only inside functions"),
        ("labeling/project.py", "from ..studio import server", "'labeling' may not import 'studio.server'"),
        ("recipe.py", "from .engine.run import run", "'recipe' may not import 'engine.run.run'"),
        ("plugins/new.py", "", "the room 'plugins' is not in the table"),
    ],
)
def test_a_forbidden_import_is_found(path: str, source: str, complaint: str) -> None:
    assert complaint in "\n".join(import_complaints(path, source))


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("training/step.py", "from ..parts.teacher import Average\nfrom ..parts import teacher"),
        ("methods/new.py", "from ..networks.classifier import predict_jointly\nfrom ..method import Method"),
        ("methods/__init__.py", "from .fixmatch import FixMatch\nfrom ..errors import unknown\nimport math"),
        ("report/page.py", "def draw():\n    from matplotlib.figure import Figure"),
        ("report/page.py", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from matplotlib.axes import Axes"),
        ("estimator.py", "from sklearn.base import BaseEstimator"),
        ("__init__.py", "from .engine.run import run\nfrom .methods.fixmatch import FixMatch"),
    ],
)
def test_an_allowed_import_passes(path: str, source: str) -> None:
    assert import_complaints(path, source) == []


@pytest.mark.parametrize(
    "source",
    [
        "loss.item()",
        "x = probs.max(1).values.tolist()",
        "x.detach().cpu()",
        "x.numpy()",
        "F.one_hot(labels, 10)",
        "torch.nn.functional.one_hot(labels)",
        "from torch.nn.functional import one_hot",
        "torch.bincount(labels)",
        "mask.nonzero()",
    ],
)
def test_a_host_sync_is_found(source: str) -> None:
    assert len(sync_complaints("methods/new.py", source)) == 1


def test_what_only_looks_like_a_host_sync_passes() -> None:
    assert sync_complaints("parts/labels.py", "one_hot(labels, 10)\nlosses.items()\nlabels.one_hot(y)") == []


def test_only_the_step_is_free_of_host_syncs() -> None:
    paths = ["methods/a.py", "parts/b.py", "training/step.py", "training/loop.py", "data/feed.py"]
    assert [in_the_step(path) for path in paths] == [True, True, True, False, False]


def test_the_other_offences_are_found() -> None:
    short = dict.fromkeys(STORY, 100)
    assert size_complaints(short) == []
    assert len(size_complaints(short | {"methods/new.py": METHOD_LINES + 1})) == 1
    assert len(size_complaints(short | {"data/new.py": MODULE_LINES + 1})) == 1
    assert len(size_complaints(short | {"training/loop.py": 101})) == 1
    assert name_complaints("data/helpers.py") == ["data/helpers.py: nothing is called 'helpers'"]
    assert name_complaints("core/feed.py") == ["core/feed.py: nothing is called 'core'"]
    assert truth_complaints("methods/new.py", "batch.unlabeled_truth")
    assert print_complaints("app/new.py", "def ask():\n    print(1)") == ["app/new.py:2: 'app' may not print"]
    assert print_complaints("cli/new.py", "print(1)") == []
    assert not truth_complaints("training/step.py", "batch.unlabeled_truth")
    tables = "\n".join(f"[{name}]" for name in ("data", "net", "method", "plan"))
    silent = parse_recipe(f"format = 1\nsource = ' '\n{tables}", "new")
    assert recipe_complaints("new", silent) == ["new: says no source"]
