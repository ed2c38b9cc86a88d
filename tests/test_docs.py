"""The documentation keeps its promises: code and commands run, quoted lines, links and tables agree with the source.

Conventions for fenced blocks, by what follows the three backticks:

- `python`: executed. The blocks of a page share a namespace and an empty working directory.
- `python file=mine.py`: the same, and a file of that name for the commands that follow.
- `python quote=training/step.py`: consecutive lines of that file of the package; `...` stands for lines left out.
- `console`: lines after `$ ` are executed in order with the Python blocks. What stands below must be what they print,
  numbers aside; `...` stands for any lines.
- `console shortened`: the same, with 20 training steps instead of those shown, whose progress is not compared.
- `console no-run`: not executed.
- `toml`: a recipe, if it says `format`; else only well-formed.
- `text`, `sh` or nothing: only shown.

Each rule about text is a function to a list of complaints. It is run on the documentation, where it must find nothing,
and on a small offence, which it must find.
"""

from __future__ import annotations

import importlib
import inspect
import io
import re
import runpy
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple
from unittest.mock import patch

import make_lists
import numpy as np
import pytest
import results_table
from typer.main import get_command

import epass
from epass import METHODS, NETWORKS, ProjectorEnsemble, load_run
from epass.augment import make_policies
from epass.cli import main
from epass.cli.app import app as command_line
from epass.cli.examples import EXAMPLES
from epass.engine.build import check_recipe, data_schema
from epass.engine.models import network_schema, start_settings
from epass.errors import InputError
from epass.evaluation import SCORES
from epass.evaluation.bootstrap import paired_interval
from epass.features import make_extractor
from epass.labeling.board import KEYS
from epass.methods import PRETRAINING, WRAPPERS
from epass.recipe import arguments, parse_recipe, toml_value
from epass.recipes import recipe_families
from epass.runs.folder import FILES, PRETRAINED
from epass.training.schedule import Plan

ROOT = Path(__file__).parents[1]
PACKAGE = Path(epass.__file__).parent
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]
NOTICES = [ROOT / "CHANGELOG.md", ROOT / "CONTRIBUTING.md"]
SHORT = 20  # steps of a shortened run
LONG = {
    "data.md",
    "evaluation.md",
    "from-photos-to-a-service.md",
    "moco.md",
    "photos.md",
    "reproduce.md",
    "tutorial.md",
}  # pages whose code takes a while
SHOWN = {"", "text", "sh"}
TO_WRITE = {"src/epass/methods/risingmatch.py", "tests/methods/test_risingmatch.py"}  # by the reader
EXECUTED = {"python", "console", "console shortened"}
BRITISH = re.compile(
    r"\w*(?:behaviour|colour|\bgrey|labelled|neighbour|centre\b|(?:normal|optim|minim)is(?!m))\w*", re.I
)
MACHINE = re.compile(r"/(?:work|tmp|root|var)/[\w./-]+|https?://(?:localhost|127\.)\S*")


class Block(NamedTuple):
    info: str
    text: str
    line: int  # of the page, where the text starts


class Command(NamedTuple):
    line: str
    output: str  # below it, on the page


def blocks(text: str) -> Iterator[Block]:
    for found in re.finditer(r"^```([^\n`]*)\n(.*?)^```[ ]*$", text, re.M | re.S):
        yield Block(found[1].strip(), found[2], text.count("\n", 0, found.start(2)) + 1)


def prose(text: str) -> str:
    """The page without fenced blocks and code in backticks."""
    text = re.sub(r"^```.*?^```[ ]*$", "", text, flags=re.M | re.S)
    return re.sub(r"`[^`\n]*`", "", text)


def commands(block: str) -> Iterator[Command]:
    for part in re.split(r"^\$ ", block, flags=re.M)[1:]:
        line, _, output = part.partition("\n")
        yield Command(line, output)


def words(text: str) -> set[str]:
    """Everything in backticks outside of fenced blocks."""
    text = re.sub(r"^```.*?^```[ ]*$", "", text, flags=re.M | re.S)
    return set(re.findall(r"`([^`\n]+)`", text))


def table(text: str, first_head: str) -> list[list[str]]:
    """The cells of the rows of the first table whose first column is called `first_head`."""
    found = re.search(rf"^\| {re.escape(first_head)} \|.*\n\|[-| ]+\n((?:\|.*\n?)*)", text, re.M)
    rows = found[1].splitlines() if found else []
    return [[cell.strip() for cell in row.strip().strip("|").split(" | ")] for row in rows]


def names_in(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def section(text: str, heading: str) -> str:
    found = re.search(rf"^## {re.escape(heading)}\n(.*?)(?=^## |\Z)", text, re.M | re.S)
    return found[1] if found else ""


# What may be wrong with a text


def block_complaints(text: str) -> list[str]:
    """Fences that nobody knows, so that a slip of the pen does not switch a test off, and fences left open."""
    known = EXECUTED | SHOWN | {"console no-run", "toml"}
    odd = [f"line {b.line}: a block of kind '{b.info}'" for b in blocks(text) if b.info not in known]
    odd = [complaint for complaint in odd if "'python quote=" not in complaint and "'python file=" not in complaint]
    fences = len(re.findall(r"^```", text, re.M))
    return odd + ([f"{fences} fences: one is open"] if fences != 2 * sum(1 for _ in blocks(text)) else [])


def quote_complaints(text: str) -> list[str]:
    """Quoted lines that are not in the source, in this order and next to each other."""
    complaints = []
    for block in blocks(text):
        kind, _, name = block.info.partition("quote=")
        if kind != "python " or not name:
            continue
        source = (PACKAGE / name).read_text("utf-8") if (PACKAGE / name).is_file() else ""
        position = 0
        for part in re.split(r"^\.\.\.\n", block.text, flags=re.M):
            position = source.find("\n" + part, position)
            if position < 0 or not part.strip():
                complaints.append(f"line {block.line}: not in {name}: {part.strip().splitlines()[:1]}")
                break
    return complaints


def link_complaints(text: str, home: Path) -> list[str]:
    """Relative links and images that lead nowhere, and anchors that no heading has."""
    complaints = []
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(text)):
        if re.match(r"https?://|mailto:", target):
            continue
        name, _, anchor = target.partition("#")
        path = (home / name).resolve() if name else home
        if not path.exists() or not path.is_relative_to(ROOT):
            complaints.append(f"{target} does not exist")
        elif anchor and anchor not in anchors(path.read_text("utf-8")):
            complaints.append(f"{target}: no such heading")
    return complaints


def anchors(text: str) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", re.sub(r"^```.*?^```[ ]*$", "", text, flags=re.M | re.S), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def language_complaints(text: str) -> list[str]:
    british = [f"'{found[0]}' is not American spelling" for found in BRITISH.finditer(prose(text))]
    return british + [f"'{found[0]}' is a place on some machine" for found in MACHINE.finditer(text)]


def argument_complaints(text: str, expected: set[str]) -> list[str]:
    """How the table of arguments differs from the arguments; no table is right where there are none."""
    listed = [name for row in table(text, "argument") for name in names_in(row[0])]
    missing, extra = expected - set(listed), set(listed) - expected
    twice = {name for name in listed if listed.count(name) > 1}
    facts = {"lacks": missing, "has a stranger,": extra, "has twice": twice}
    return [f"the table {fact} {sorted(names)}" for fact, names in facts.items() if names]


def key_complaints(text: str, schema: Mapping[str, inspect.Parameter], *, defaults: bool) -> list[str]:
    """How a table of keys and defaults differs from the signature that it documents."""
    rows = {names_in(row[0])[0]: row[1] for row in table(text, "key")}
    complaints = [f"'{key}' is in only one of table and signature" for key in rows.keys() ^ schema.keys()]
    for key in sorted(rows.keys() & schema.keys()) if defaults else []:
        default = schema[key].default
        shown = "required" if default is inspect.Parameter.empty else "not set" if default is None else ""
        if rows[key] != (shown or toml_value(default)):
            complaints.append(f"'{key}' has the default {default!r}, not {rows[key]}")
    return sorted(complaints)


def output_complaints(command: str, shown: str, printed: str, *, steps: bool = True) -> list[str]:
    """How what a command printed differs from what the page shows, numbers aside."""
    if not shown.strip():
        return []
    expected, found = (masked(text, steps=steps) for text in (shown, printed))
    lines = [r"(?:.*\n)*?" if line == "..." else re.escape(line) + "\n" for line in expected]
    if re.fullmatch("".join(lines), "".join(f"{line}\n" for line in found)):
        return []
    odd = next((line for line in expected if line != "..." and line not in found), "their order")
    return [f"'{command}' printed something else; not found: {odd}\n" + "\n".join(found)]


def masked(text: str, *, steps: bool = True) -> list[str]:
    """The lines with every number, and a unit of time behind it, as `#`."""
    lines = [re.sub(r"\d[\d,.:]*(?: (?:s|min|h)\b)?", "#", line).rstrip() for line in text.strip("\n").splitlines()]
    return [line for line in lines if steps or not line.startswith("step ")]


def name_complaints(text: str) -> list[str]:
    """Files of Python and names of the package, in backticks, that are not there."""
    complaints = []
    for word in sorted(words(text)):
        if re.fullmatch(r"[\w-]+(?:/[\w-]+)*/[\w-]+\.py", word):
            if word not in TO_WRITE and not any((place / word).is_file() for place in (ROOT, PACKAGE)):
                complaints.append(f"there is no file {word}")
        elif (found := re.fullmatch(r"(epass(?:\.\w+)+)(?:\(.*\))?", word)) and not is_there(found[1]):
            complaints.append(f"there is no {found[1]}")
    return complaints


def is_there(name: str) -> bool:
    """Whether a dotted name is a module, or something in one."""
    home, _, last = name.rpartition(".")
    try:
        return hasattr(importlib.import_module(home), last) or bool(importlib.import_module(name))
    except ModuleNotFoundError:
        return False


def command_complaints(line: str) -> list[str]:
    """Commands, flags and arguments in a line of a terminal that `epass` does not know; nothing is run."""
    words = shlex.split(line.rpartition(" | ")[2], comments=True)
    command, rest = get_command(command_line), words[1:]
    while words[0] == "epass" and rest and rest[0] in getattr(command, "commands", {}):
        command, rest = command.commands[rest[0]], rest[1:]
    if words[0] != "epass" or rest in (["--version"], ["--help"]):
        return []
    if hasattr(command, "commands"):
        return [f"'{line}': there is no such command"]
    try:
        command.make_context(words[1], rest)
    except InputError as problem:
        return [f"'{line}': {problem}"]
    return []


# Running a page


def shorten(line: str) -> str:
    line = re.sub(r" --(?:steps|budget) \S+", "", line)
    return f"{line} --steps {SHORT}"


def execute(line: str, home: Path) -> tuple[int, str]:
    """Exit code and all output of a command; `epass` runs in this process, which has torch loaded already."""
    words = shlex.split(line)
    if words[0] != "epass":
        done = subprocess.run(words, cwd=home, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        return done.returncode, done.stdout
    printed, code = io.StringIO(), 0
    with patch.object(sys, "argv", words), redirect_stdout(printed), redirect_stderr(printed):
        try:
            main()
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else int(end.code is not None)
    return code, printed.getvalue()


def run_console(block: Block, home: Path) -> list[str]:
    complaints = []
    short = block.info == "console shortened"
    for command in commands(block.text):
        line = shorten(command.line) if short else command.line
        code, printed = execute(line, home)
        wanted = 2 if re.search(r"^Error: ", command.output, re.M) else 0
        if code != wanted:
            complaints.append(f"line {block.line}: '{line}' ended with {code}:\n{printed}")
        else:
            complaints += output_complaints(line, command.output, printed, steps=not short)
    return complaints


def run_page(text: str, name: str, home: Path) -> list[str]:
    """Execute the blocks of a page from top to bottom; a Python block that fails raises."""
    page = sys.modules["page"] = ModuleType("page")  # where a compiler looks for what the file of a method knows
    complaints = []
    for block in blocks(text):
        kind, _, file = block.info.partition(" file=")
        if kind == "python":
            if file:
                (home / file).write_text(block.text)
            code = compile("\n" * (block.line - 1) + block.text, name, "exec")
            with redirect_stdout(io.StringIO()):
                exec(code, vars(page))
        elif block.info in EXECUTED:
            complaints += run_console(block, home)
    return complaints


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty working directory; methods and networks that a page adds are gone afterwards."""
    monkeypatch.chdir(tmp_path)
    with patch.dict(METHODS), patch.dict(NETWORKS):
        yield tmp_path


def page_name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def pages_with_code() -> Iterator[Any]:
    for page in PAGES:
        if any(block.info in EXECUTED for block in blocks(page.read_text("utf-8"))):
            yield pytest.param(page, marks=[pytest.mark.slow] if page.name in LONG else [])


@pytest.mark.parametrize("page", list(pages_with_code()), ids=page_name)
def test_the_code_of_a_page_runs(page: Path, home: Path) -> None:
    assert run_page(page.read_text("utf-8"), str(page), home) == []


@pytest.mark.slow
def test_the_demo_on_the_front_page_is_what_it_prints(home: Path) -> None:
    with patch("epass.app.demo.count_cores", lambda: 1):  # so that no process has to load torch again
        code, printed = execute("epass demo --steps 6", home)
    assert code == 0, printed
    (shown,) = [command for command in console_of(ROOT / "README.md") if command.line == "epass demo"]
    lines = outline(printed)
    runs = [line for line in lines if "test error after" in line]
    assert len(runs) == 9
    assert outline(shown.output) == sorted(["...", *(line for line in lines if line not in runs)])


def console_of(page: Path, *, joined: bool = False) -> list[Command]:
    """All commands of a page; `joined`: those of several lines are one."""
    text = page.read_text("utf-8")
    text = text.replace("\\\n", " ") if joined else text
    found = (block for block in blocks(text) if block.info.startswith("console"))
    return [command for block in found for command in commands(block.text)]


def outline(text: str) -> list[str]:
    """The lines of the demo in any order, without numbers, widths, gaps, the verdict and the place of the page."""
    lines = [re.sub(r" +", " ", line).partition("Open the page:")[0] for line in masked(text)]
    return sorted(line for line in lines if line.strip() and "test error against" not in line)


@pytest.mark.parametrize("page", PAGES + NOTICES, ids=page_name)
def test_a_page_is_sound(page: Path) -> None:
    text = page.read_text("utf-8")
    complaints = block_complaints(text) + link_complaints(text, page.parent) + language_complaints(text)
    assert complaints + quote_complaints(text) + (name_complaints(text) if page in PAGES else []) == []


@pytest.mark.parametrize("page", PAGES, ids=page_name)
def test_the_recipes_of_a_page_are_valid(page: Path) -> None:
    for block in blocks(page.read_text("utf-8")):
        if block.info == "toml" and "format" in tomllib.loads(block.text):
            check_recipe(parse_recipe(block.text, f"{page}:{block.line}"))


def test_commands_that_are_only_shown_are_understood() -> None:
    shown = [command.line for page in PAGES for command in console_of(page, joined=True)]
    shown += [line for lines in EXAMPLES.values() for line in lines]
    assert len(shown) > 150
    assert [complaint for line in shown for complaint in command_complaints(line)] == []


def test_the_training_step_is_quoted_from_all_its_files() -> None:
    found = {block.info.partition("quote=")[2] for block in blocks((DOCS / "one-training-step.md").read_text("utf-8"))}
    assert found >= {"training/loop.py", "training/step.py", "methods/simmatch.py"}


def test_every_page_is_in_the_index() -> None:
    index = (DOCS / "README.md").read_text("utf-8")
    linked = {(DOCS / target).resolve() for target in re.findall(r"\]\(([^)#]+)\)", index)}
    assert [page_name(page) for page in PAGES[1:] if page != DOCS / "README.md" and page not in linked] == []


def test_the_front_page_is_short() -> None:
    assert len((ROOT / "README.md").read_text("utf-8").splitlines()) <= 155


def test_images_are_small() -> None:
    images = list((DOCS / "images").iterdir())
    assert images
    assert [image.name for image in images if image.stat().st_size > 150_000] == []


@pytest.mark.parametrize("name", METHODS | WRAPPERS | PRETRAINING)
def test_every_method_has_a_page_with_its_arguments(name: str) -> None:
    text = (DOCS / f"methods/{name}.md").read_text("utf-8")
    assert argument_complaints(text, set(arguments((METHODS | WRAPPERS | PRETRAINING)[name]))) == []


def test_lists_of_methods_are_those_of_the_classes() -> None:
    lists = list(make_lists.lists())
    assert len(lists) == 5
    for page, comment, listed in lists:
        names = {"wrappers": WRAPPERS, "pretraining": PRETRAINING}.get(comment, METHODS)
        assert [name for name in names if f"{name}.md)" not in listed] == []
        text = page.read_text("utf-8")
        assert text.count(f"<!-- {comment} -->\n{listed}<!-- end -->") == 1, f"{page}: run python docs/make_lists.py"
        stale = text.replace(listed, "| a list of yesterday |\n")
        assert make_lists.written(stale, comment, listed) == text


def test_the_projector_has_a_page_with_its_arguments() -> None:
    expected = set(inspect.signature(ProjectorEnsemble).parameters)
    assert argument_complaints((DOCS / "methods/epass.md").read_text("utf-8"), expected) == []


def test_tables_of_results_are_those_of_the_file() -> None:
    quoting = list(results_table.pages())
    assert len(quoting) > 20
    for page, comment, quote in quoting:
        text = page.read_text("utf-8")
        assert f"<!-- {comment} -->" in text, page
        assert make_lists.written(text, comment, quote) == text, f"{page}: run python docs/results_table.py"


def test_a_walk_through_the_studio_is_told_row_by_row() -> None:
    row = {"labels": "30", "seconds": "150.08", "error_labels_only": "0.2704", "error": "0.1136", "enough": "not yet"}
    early = row | {"labels": "12", "shown": "", "low": "", "high": ""}
    with patch.object(results_table, "rows", return_value=[early, row | {"shown": ".8", "low": ".6", "high": ".9"}]):
        found = results_table.walk_table().splitlines()[2:]
    assert found == [
        "| 12 | 150 s | 27.0 % | 11.4 % | not known yet | not yet |",
        "| 30 | 150 s | 27.0 % | 11.4 % | 80 % right (60 % to 90 %) | not yet |",
    ]
    with patch.object(results_table, "rows", return_value=[]):
        assert results_table.walk_table() == results_table.NO_WALK_YET


def test_the_keys_of_the_studio_are_those_on_its_page() -> None:
    text = (DOCS / "studio.md").read_text("utf-8")
    shown = {key for row in table(text, "key") for key in re.split(r"[, ]+", row[0])}
    names = {"ArrowLeft": "←", "ArrowRight": "→"}
    assert {names.get(key, key) for key in KEYS.values()} <= shown
    script = (PACKAGE / "studio/static/keys.js").read_text("utf-8")
    listed = script[script.index("ACTIONS = {") : script.index("};")]
    assert dict(re.findall(r"(\w+): \[\"([^\"]+)\",", listed)) == KEYS


def test_pairs_of_runs_share_seed_and_setting_and_a_repeat_counts_once() -> None:
    def run(projectors: str, seed: str, error: str, steps: str = "100", wrapper: str = "") -> dict[str, str]:
        facts = {"method": "simmatch", "projectors": projectors, "seed": seed, "error_last": error, "steps": steps}
        return dict.fromkeys(results_table.SETTING, "same") | facts | {"wrapper": wrapper}

    runs = [run("1", "0", "20"), run("3", "0", "10"), run("3", "0", "14"), run("1", "1", "30"), run("3", "1", "24")]
    alone = [run("3", "2", "1"), run("1", "0", "5", steps="900"), run("1", "2", "9", wrapper="mix")]
    with patch.object(results_table, "rows", return_value=[*runs, *alone]):
        found = results_table.pairs_table("any.csv").splitlines()[2:]
    assert len(found) == 1
    assert "| 20.00 and 12.00 (0), 30.00 and 24.00 (1) | -7.00 | " in found[0]
    low, high = paired_interval(np.array([-8.0, -6.0]), np.zeros(0))
    assert found[0].endswith(f"| {low:+.2f} to {high:+.2f} |")
    with patch.object(results_table, "rows", return_value=runs[:3]):
        assert results_table.pairs_table("any.csv").endswith("| none from one seed |\n")
    mixed = [row | {"wrapper": "mix"} for row in runs]
    with patch.object(results_table, "rows", return_value=[*runs, *mixed]):
        names = [line.split(" | ")[0] for line in results_table.pairs_table("any.csv").splitlines()[2:]]
    assert names == ["| SimMatch after `same`", "| SimMatch + Mix after `same`"]
    with patch.object(results_table, "rows", return_value=runs[:1]):
        assert results_table.pairs_table("any.csv") == results_table.NO_PAIR_YET


def test_projectors_are_compared_with_one_draw_by_draw() -> None:
    def run(projectors: str, seed: int, error: float, ece: float) -> dict[str, str]:
        facts = {"data": "some", "labels": "40", "method": "comatch", "projectors": projectors, "seed": str(seed)}
        return facts | {"error_last": str(error), "ece": str(ece)}

    runs = [run("1", 0, 0.2, 0.1), run("1", 1, 0.3, 0.1), run("3", 1, 0.26, 0.12), run("3", 0, 0.22, 0.08)]
    with patch.object(results_table, "rows", return_value=runs):
        one, three = results_table.heads_table().splitlines()[2:]
    assert one == "| some | 40 | CoMatch | 1 | 2 | 25.00 ± 5.00 | – | – | – | 10.00 ± 0.00 | – | – |"
    error, ece = (
        "{:+.2f} to {:+.2f}".format(*paired_interval(np.array(gaps), np.zeros(0)))
        for gaps in ([-4.0, 2.0], [2.0, -2.0])
    )
    assert (
        three == f"| some | 40 | CoMatch | 3 | 2 | 24.00 ± 2.00 | -1.00 | {error} | 1 | 10.00 ± 2.00 | +0.00 | {ece} |"
    )


@pytest.mark.parametrize("name", ["data", "features", "augment", "start", "net", "projector", "plan"])
def test_the_recipe_page_lists_every_key(name: str) -> None:
    projector = {"out_dim": inspect.signature(ProjectorEnsemble).parameters["out_dim"]} | arguments(ProjectorEnsemble)
    networks = {key: value for net in NETWORKS for key, value in network_schema(net).items()}
    schema = {
        "data": data_schema(),
        "augment": arguments(make_policies),
        "features": arguments(make_extractor),
        "start": arguments(start_settings),
        "net": networks,
        "projector": projector,
        "plan": arguments(Plan),
    }[name]
    text = section((DOCS / "recipes.md").read_text("utf-8"), f"`[{name}]`")
    assert key_complaints(text, schema, defaults=name != "augment") == []  # its defaults come from the data


def test_the_recipe_page_lists_every_flag() -> None:
    (train,) = [entry.callback for entry in command_line.registered_commands if entry.callback.__name__ == "train"]
    flags = {f"--{name.replace('_', '-')}" for name in inspect.signature(train).parameters}
    flags = flags - {"--data", "--settings", "--start", "--earlier"} | {"DATA", "--set", "--from", "--continue"}
    rows = table((DOCS / "recipes.md").read_text("utf-8"), "flag")
    assert {names_in(row[0])[0] for row in rows} == flags


def test_the_recipe_page_says_which_flags_are_those_of_a_single_run() -> None:
    def flags(name: str) -> set[str]:
        (command,) = [one.callback for one in command_line.registered_commands if one.callback.__name__ == name]
        names = {"settings": "set", "start": "from", "earlier": "continue"}
        return {f"--{names.get(key, key).replace('_', '-')}" for key in inspect.signature(command).parameters}

    text = (DOCS / "recipes.md").read_text("utf-8")
    (listed,) = re.findall(r"except those of a single run \(([^)]*)\)", text)
    assert set(names_in(listed)) == flags("train") - flags("compare")


def test_the_recipe_page_lists_every_family() -> None:
    rows = table((DOCS / "recipes.md").read_text("utf-8"), "family")
    assert sorted(name.removesuffix("-") for row in rows for name in names_in(row[0])) == sorted(recipe_families())


def test_the_python_page_lists_every_public_name_with_its_arguments() -> None:
    cells = [cell for line in (DOCS / "python.md").read_text("utf-8").splitlines() for cell in line.split("|")[1:2]]
    calls = {name.partition("(")[0]: name.partition("(")[2] for cell in cells for name in names_in(cell)}
    assert calls.keys() - {"values", "facts", "files", "following", "complaint", "partial"} == set(epass.__all__)
    signatures = {name: inspect.signature(getattr(epass, name)) for name, arguments in calls.items() if arguments}
    assert len(signatures) > 10
    for name, signature in signatures.items():
        listed = [argument.strip("* ") for argument in calls[name].rstrip(")").split(",")]
        assert [argument for argument in listed if argument] == list(signature.parameters), name


def test_the_evaluation_page_defines_every_score() -> None:
    rows = table((DOCS / "evaluation.md").read_text("utf-8"), "key")
    assert rows == [[f"`{score.key}`", score.name, score.better, score.definition] for score in SCORES.values()]


def test_the_run_folder_page_names_every_file_and_key(home: Path) -> None:
    line = f"epass train digits --projectors 3 --steps {SHORT} --out run"
    code, printed = execute(line, home)
    assert code == 0, printed
    text, run = (DOCS / "run-folder.md").read_text("utf-8"), load_run("run")
    assert {names_in(row[0])[0] for row in table(text, "file")} == {*FILES, "checkpoints/"}
    assert {path.name for path in Path("run").iterdir()} == {*FILES, "checkpoints"} - {PRETRAINED}
    keys = {key for row in run.metrics for key in row} - {f"test_{score}" for score in SCORES}
    for found in (run.environment, run.results, run.model):
        assert found is not None
        keys |= found.keys()
    assert keys - words(text) == set()


@pytest.mark.parametrize("script", sorted((ROOT / "examples").glob("*.py")), ids=lambda path: path.name)
def test_an_example_runs(script: Path, home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = runpy.run_path(str(script))["main"](steps=100)
    errors = found if isinstance(found, tuple) else (found,)
    assert all(0 <= error < 0.9 for error in errors)
    assert "rror" in capsys.readouterr().out


# Every rule finds an offence


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("```pyhton\n1 / 0\n```\n", "kind 'pyhton'"),
        ("```console norun\n$ epass\n```\n", "kind 'console norun'"),
        ("```python\n1\n", "one is open"),
    ],
)
def test_an_odd_block_is_found(text: str, complaint: str) -> None:
    assert complaint in "\n".join(block_complaints(text))


@pytest.mark.parametrize(
    ("quoted", "fine"),
    [
        ("        optimizer.step()\n", True),
        ("        optimizer.step()\n...\n        average.follow(method.net)\n", True),
        ("        optimizer.step( )\n", False),
        ("optimizer.step()\n", False),  # not a whole line
        ("        average.follow(method.net)\n...\n        optimizer.step()\n", False),  # order
        ("        optimizer.step()\n        average.follow(method.net)\n", False),  # not next to each other
    ],
)
def test_a_wrong_quotation_is_found(quoted: str, fine: bool) -> None:
    assert (quote_complaints(f"```python quote=training/step.py\n{quoted}```\n") == []) is fine
    assert quote_complaints(f"```python quote=training/none.py\n{quoted}```\n") != []


def test_a_dead_link_is_found() -> None:
    text = "[a](design.md) ![b](images/none.png) [c](design.md#rooms) [d](design.md#cellar) [e](../../elsewhere)"
    found = link_complaints(text + " [f](https://example.org) `[g](none.md)`", DOCS)
    assert [complaint.split()[0].rstrip(":") for complaint in found] == [
        "images/none.png",
        "design.md#cellar",
        "../../elsewhere",
    ]


@pytest.mark.parametrize(
    ("line", "fine"),
    [
        ("epass train digits --labels 40  # a comment", True),
        ("ls new | epass predict run -", True),
        ("epass reproduce classic --dry-run", True),
        ("python docs/make_lists.py --nothing", True),
        ("epass train digits --lables 40", False),
        ("epass predict run", False),
        ("epass evaluate run other", False),
        ("epass teach digits", False),
    ],
)
def test_a_command_that_is_not_understood_is_found(line: str, fine: bool) -> None:
    assert (command_complaints(line) == []) is fine


def test_a_name_of_yesterday_is_found() -> None:
    text = "`data/cache.py`, `data/read/cache.py`, `tests/test_docs.py`, `epass.data.join(a, b)`, `epass.none.at_all`"
    assert name_complaints(f"{text}, `epass.data.concatenate`, `epass.app`, `epass train`, `mine.py`") == [
        "there is no file data/cache.py",
        "there is no epass.data.join",
        "there is no epass.none.at_all",
    ]


def test_foreign_words_and_places_are_found() -> None:
    assert len(language_complaints("The behaviour of a grey, normalised neighbour")) == 4
    assert language_complaints("```text\ngrey\n```\n`colour`, gray, normalized, optimism, greyhound") == [
        "'greyhound' is not American spelling"
    ]
    assert len(language_complaints("see /tmp/x and\n```text\n/work/y\n```\n")) == 2
    assert language_complaints("in /home/you/epass or ~/work") == []


def test_a_wrong_table_of_arguments_is_found() -> None:
    text = "| argument | paper |\n|---|---|\n| `a`, `b` | x |\n| `c` | `d` |\n"
    assert argument_complaints(text, {"a", "b", "c"}) == []
    assert argument_complaints(text, {"a", "b", "c", "d"}) == ["the table lacks ['d']"]
    assert argument_complaints(text, {"a", "b"}) == ["the table has a stranger, ['c']"]
    assert argument_complaints(text + "| `a` | |\n", {"a", "b", "c"}) == ["the table has twice ['a']"]
    assert argument_complaints("no table", set()) == []


def test_a_wrong_table_of_keys_is_found() -> None:
    def documented(*, size: int, ratio: float = 0.5, name: str | None = None) -> None: ...

    text = "| key | default | meaning |\n|---|---|---|\n| `size` | required | |\n| `ratio` | 0.5 | |\n"
    schema = arguments(documented)
    assert key_complaints(text + "| `name` | not set | |\n", schema, defaults=True) == []
    assert key_complaints(text, schema, defaults=True) == ["'name' is in only one of table and signature"]
    assert len(key_complaints(text + "| `name` | 3 | |\n| `other` | 3 | |\n", schema, defaults=True)) == 2
    assert key_complaints(text + "| `name` | 3 | |\n", schema, defaults=False) == []


@pytest.mark.parametrize(
    ("shown", "printed", "fine"),
    [
        ("error  4.51 %\n", "error  12.00 %\n\n", True),
        ("time  21 s\n", "time  2 min\n", True),
        ("error  4.51 %\n", "accuracy  4.51 %\n", False),
        ("error  4.51 %\n", "error  4.51 %\nand more\n", False),
        ("error  4.51 %\n...\n", "error  4.51 %\nand more\n", True),
        ("...\nlast\n", "first\nlast\n", True),
        ("...\nlast\n", "first\nlast\nafter\n", False),
        ("b\na\n", "a\nb\n", False),
        ("", "anything", True),
    ],
)
def test_another_output_is_found(shown: str, printed: str, fine: bool) -> None:
    assert (output_complaints("epass", shown, printed) == []) is fine


def test_a_command_that_fails_is_found(home: Path) -> None:
    page = "```console\n$ epass methods nothing\n```\n"
    assert "ended with 2" in run_page(page, "page", home)[0]
    assert run_page(page.replace("\n```\n", "\nError: Unknown method 'nothing': did you mean\n```\n"), "page", home)
    assert run_page("```console\n$ epass --version\nepass 9.9.9\n```\n", "page", home) == []
    assert run_page("```console\n$ epass --version\nError: none\n```\n", "page", home)
    assert run_page("```console\n$ ls nothing\n```\n", "page", home)


def test_python_that_fails_is_found(home: Path) -> None:
    with pytest.raises(ZeroDivisionError):
        run_page("```python\nzero = 0\n```\ntext\n```python\n1 / zero\n```\n", "page", home)


def test_a_shortened_run_is_short() -> None:
    line = shorten("epass train photos --budget 1m --set method.threshold=0.8")
    assert line == f"epass train photos --set method.threshold=0.8 --steps {SHORT}"
    assert shorten("epass train digits --steps 600") == f"epass train digits --steps {SHORT}"
    assert masked("Plan\nstep 1/6  loss 2\n...\nstep 6/6\n\nResults", steps=False) == ["Plan", "...", "", "Results"]
