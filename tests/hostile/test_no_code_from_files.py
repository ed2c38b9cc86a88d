"""What the package never does: run what a file says. A rule about its source, and files that name code."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from hostile_files import RECIPE
from hostile_world import World

import epass

PACKAGE = Path(epass.__file__).parent
FORBIDDEN = {
    "eval",
    "exec",
    "compile",
    "__import__",
    "pickle.load",
    "pickle.loads",
    "pickle.Unpickler",
    "marshal.load",
    "marshal.loads",
    "shelve.open",
    "yaml.load",
    "os.system",
    "os.popen",
    "import_module",
    "importlib.import_module",
}
METHODS = {"extractall", "extract", "exec_module"}  # of archives and loaders, whatever they are called
MODULES = {"pickle", "marshal", "shelve", "dill", "joblib", "cloudpickle", "yaml", "xml"}
ALLOWED = {
    ("networks/weights.py", "pickle.UnpicklingError"),  # only to catch it
    ("app/workers.py", "pickle"),  # what the process itself packed, for the processes that it starts: no file
    ("app/workers.py", "pickle.loads"),
    ("__init__.py", "import_module"),  # the public names, from a table beside it
    ("data/__init__.py", "import_module"),  # the same
    ("loggers.py", "import_module"),  # of a table beside it, too
    ("methods/__init__.py", "import_module"),  # the files of its own folder
    ("extensions.py", "importlib.import_module"),  # names that a person typed, as the tests below make sure
    ("extensions.py", "spec.loader.exec_module"),
}


def complaints(path: str, source: str) -> list[str]:
    """The calls and imports by which a file could run code, or be written outside of its folder."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names if alias.name.partition(".")[0] in MODULES]
        elif isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] in MODULES and not node.level:
            found += [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Call):
            name = ast.unparse(node.func)
            given = {keyword.arg: ast.unparse(keyword.value) for keyword in node.keywords}
            if name in FORBIDDEN or (isinstance(node.func, ast.Attribute) and node.func.attr in METHODS):
                found.append(name)
            if name == "torch.load" and given.get("weights_only") != "True":
                found.append("torch.load without weights_only=True")
            if name in ("np.load", "numpy.load") and given.get("allow_pickle") != "False":
                found.append("np.load without allow_pickle=False")
            if given.get("shell", "False") != "False":
                found.append("shell=True")
            if given.get("trust_remote_code", "False") != "False":
                found.append("trust_remote_code")
            if name == "Image.open" and "formats" not in given:
                found.append("Image.open without formats")
    return [f"{path}: {what}" for what in found if (path, what) not in ALLOWED]


def test_nothing_in_the_package_runs_what_a_file_says() -> None:
    sources = {path.relative_to(PACKAGE).as_posix(): path.read_text("utf-8") for path in PACKAGE.rglob("*.py")}
    assert len(sources) > 100
    assert [complaint for path, source in sources.items() for complaint in complaints(path, source)] == []


@pytest.mark.parametrize(
    "source",
    [
        "eval(text)",
        "exec(text)",
        "import pickle",
        "from pickle import load",
        "def read():\n    import yaml",
        "torch.load(path)",
        "torch.load(path, weights_only=False)",
        "np.load(path)",
        "np.load(path, allow_pickle=True)",
        "subprocess.run(line, shell=True)",
        "archive.extractall(folder)",
        "tar.extract(name)",
        "os.system(line)",
        "import_module(name)",
        "spec.loader.exec_module(module)",
        "AutoModel.from_pretrained(name, trust_remote_code=True)",
        "Image.open(path)",
    ],
)
def test_an_offence_is_found(source: str) -> None:
    assert len(complaints("data/new.py", source)) == 1


def test_what_only_looks_like_one_passes() -> None:
    assert complaints("networks/weights.py", "from pickle import UnpicklingError\nnet.eval()\nmodel.compile()") == []


@pytest.fixture
def evil(world: World) -> str:
    """The name of code that makes the canary as soon as it is loaded."""
    path = world.home / "evil.py"
    path.write_text(f"open({str(world.canary)!r}, 'w').close()\nclass Evil: ...\n")
    return f"{path}:Evil"


NAMED = {
    "method": ('name = "simmatch"', "name = NAME"),
    "net": ('name = "small"', "name = NAME"),
    "data": ('name = "digits"', "name = NAME"),
    "wrapper": ("[plan]", "[wrapper]\nname = NAME\n[plan]"),
    "policy": ("[plan]", "[augment]\nstrong = NAME\n[plan]"),
}
REFUSAL = "names code outside of epass, which would be run: .* --trust "


def naming(part: str, name: str) -> str:
    """A recipe that names code, in one of its tables."""
    before, after = NAMED[part]
    assert RECIPE.count(before) == 1
    return RECIPE.replace(before, after.replace("NAME", f'"{name}"'))


@pytest.mark.parametrize("name", ["FILE", "evil.py:Evil", "evil:Evil", "os.path:join", "../home/evil.py:evil"])
@pytest.mark.parametrize("part", NAMED)
def test_a_recipe_that_names_code_runs_none(world: World, evil: str, part: str, name: str) -> None:
    (world.home / "hostile.toml").write_text(naming(part, name.replace("FILE", evil)))
    world.refused("train", "--recipe", "hostile.toml", words=REFUSAL)


@pytest.mark.parametrize("part", ["method", "net", "wrapper"])
@pytest.mark.parametrize("command", [["evaluate", "run"], ["predict", "run", "photos"]])
def test_a_model_that_names_code_runs_none(
    world: World, run: Path, change: Callable[..., None], evil: str, part: str, command: list[str]
) -> None:
    change("model.json", **{part: {"name": evil}})
    world.refused(*command, words=REFUSAL)


@pytest.mark.parametrize("part", NAMED)
def test_a_run_that_names_code_runs_none(world: World, run: Path, evil: str, part: str) -> None:
    (run / "recipe.toml").write_text(naming(part, evil))
    world.refused("train", "--resume", "--out", "run", words=REFUSAL)
    if part == "data":  # how a model was trained says nothing about how it is tested
        world.refused("evaluate", "run", words=REFUSAL)
    if part == "net":
        world.refused("train", "--continue", "run", words=REFUSAL)
        (run / "pretrained.safetensors").touch()
        world.refused("train", "digits", "--from", "run", words=REFUSAL)
    assert world.epass("report", "run", "--no-maps").code == 0


def test_a_name_cannot_hide_a_command(world: World, evil: str) -> None:
    (world.home / "hostile.toml").write_text(naming("net", "x; touch canary; y.py:Evil"))
    world.refused("train", "--recipe", "hostile.toml", words=re.escape("--trust '") + r".*y\.py:Evil'")


@pytest.mark.parametrize("part", NAMED)
def test_the_same_code_is_run_once_somebody_types_its_name(world: World, evil: str, part: str) -> None:
    """Or the tests above could not fail."""
    (world.home / "hostile.toml").write_text(naming(part, evil))
    with pytest.raises(AssertionError, match="code of the file was run"):
        world.epass("train", "--recipe", "hostile.toml", "--trust", evil)
