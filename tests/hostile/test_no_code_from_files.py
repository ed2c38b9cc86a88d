"""What the package never does: a rule about its source, run on the source and on small offences."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

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
    "importlib.import_module",
}
METHODS = {"extractall", "extract"}  # of archives, whatever they are called
MODULES = {"pickle", "marshal", "shelve", "dill", "joblib", "cloudpickle", "yaml", "xml"}
ALLOWED = {
    ("networks/weights.py", "pickle.UnpicklingError"),  # only to catch it
    ("cli/workers.py", "pickle"),  # what the process itself packed, for the processes that it starts: no file
    ("cli/workers.py", "pickle.loads"),
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
        "AutoModel.from_pretrained(name, trust_remote_code=True)",
        "Image.open(path)",
    ],
)
def test_an_offence_is_found(source: str) -> None:
    assert len(complaints("data/new.py", source)) == 1


def test_what_only_looks_like_one_passes() -> None:
    assert complaints("networks/weights.py", "from pickle import UnpicklingError\nnet.eval()\nmodel.compile()") == []
