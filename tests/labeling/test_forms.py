"""Forms are made of signatures, and what comes back from one is checked."""

from __future__ import annotations

import inspect
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest

from epass.app.flags import Flag
from epass.app.train import train
from epass.errors import InputError
from epass.labeling.forms import FUNCTIONS, arguments_of, command_of, field_of, fields_of, forms

FIND = Path("runs").joinpath


def fields(do: str) -> dict[str, Any]:
    found = next(form for form in forms(["one", "two"]) if form["do"] == do)
    return {field["name"]: field for field in found["fields"]}


def test_every_form_is_json_and_asks_for_no_path_on_this_machine_and_no_code() -> None:
    json.dumps(forms(), allow_nan=False)
    for do in FUNCTIONS:
        assert not fields(do).keys() & {"out", "trust", "force", "resume", "weights", "card", "figures", "images"}
    assert "data" not in fields("train")
    assert "data" in fields("evaluate")  # other images are said by name


def test_a_new_flag_of_a_function_is_a_field_without_anybody_listing_it() -> None:
    asked = inspect.signature(train).parameters.keys()
    assert {field.name for field in fields_of("train")} == asked - {
        *("data", "weights", "out", "resume", "force", "trust"),  # decided
        *("command", "stop", "reading"),  # between the function and its face
    }


@pytest.mark.parametrize(
    ("do", "name", "kind", "choices", "default"),
    [
        ("train", "method", "choice", "simmatch", None),
        ("train", "guard", "choice", "yes", None),
        ("train", "settings", "list", None, []),
        ("train", "fine_tune", "bool", None, False),
        ("train", "earlier", "choice", "two", None),
        ("train", "net", "text", "small", None),
        ("train", "device", "choice", "cpu", "auto"),
        ("pretrain", "method", "choice", "moco", None),
        ("compare", "seeds", "int", None, 3),
        ("calibrate", "coverage", "text", None, None),
        ("predict", "run", "choice", "one", None),
        ("report", "runs", "list", "one", None),
    ],
)
def test_a_field_has_the_kind_and_the_choices_of_its_argument(
    do: str, name: str, kind: str, choices: str | None, default: object
) -> None:
    field = fields(do)[name]
    assert (field["kind"], field["default"]) == (kind, default)
    assert choices is None if field["choices"] is None else choices in field["choices"]


def test_methods_that_only_pretrain_are_not_offered_for_training() -> None:
    assert "moco" not in fields("train")["method"]["choices"]
    assert fields("pretrain")["method"]["choices"] == ["moco", "rotnet"]


def test_literals_are_choices() -> None:
    parameter = inspect.Parameter("how", inspect.Parameter.KEYWORD_ONLY, default="a")
    field = field_of(parameter, Annotated[Literal["a", "b"], Flag("How.")])
    assert field is not None
    assert (field.kind, field.choices) == ("choice", ("a", "b"))


def test_what_was_said_becomes_arguments_and_the_line_of_a_terminal() -> None:
    said = {"method": "fixmatch", "steps": "30", "guard": "no", "fine_tune": True, "seed": "", "start": None}
    arguments = arguments_of("train", {**said, "settings": "plan.lr=0.1\n\nseed=3", "earlier": "one"}, FIND)
    assert arguments == {
        **{"method": "fixmatch", "steps": 30, "guard": False, "fine_tune": True},
        **{"settings": ["plan.lr=0.1", "seed=3"], "earlier": Path("runs/one")},
    }
    line = "--method fixmatch --steps 30 --no-guard --fine-tune --set plan.lr=0.1 --set seed=3 --continue runs/one"
    assert command_of("train", arguments) == f"epass train {line}"
    assert arguments_of("calibrate", {"run": "one", "coverage": "0.9"}, FIND)["coverage"] == 0.9
    assert command_of("train", {"steps": 3, "data": "photos"}) == "epass train photos --steps 3"
    assert command_of("report", {"runs": ["a b", "c"], "maps": False}) == "epass report 'a b' c --no-maps"


@pytest.mark.parametrize(
    ("do", "said", "words"),
    [
        ("trian", {}, "Unknown job 'trian': did you mean 'train'?"),
        ("train", [], "one object"),
        ("train", {"step": 3}, "Unknown field 'step': did you mean 'steps'?"),
        ("train", {"out": "/tmp/x"}, "Unknown field 'out'"),
        ("train", {"steps": "many"}, "--steps is a whole number, not 'many'."),
        ("train", {"steps": True}, "--steps is a whole number"),
        ("train", {"method": "simmach"}, "did you mean 'simmatch'?"),
        ("train", {"recipe": "/etc/passwd.toml"}, "Unknown --recipe"),
        ("train", {"fine_tune": "yes"}, "--fine-tune is on or off"),
        ("train", {"net": 3}, "--net is a text, not '3'."),
        ("train", {"settings": [3]}, "--set is a text"),
        ("compare", {"seeds": 0}, "--seeds is at least 1, not 0."),
        ("calibrate", {"run": "one", "coverage": "most"}, "--coverage is a number, not 'most'."),
        ("predict", {}, "Say which run: choose from the list."),
        ("report", {"runs": []}, "Say which runs"),
    ],
)
def test_what_cannot_be_is_refused_in_a_sentence(do: str, said: Any, words: str) -> None:
    with pytest.raises(InputError, match=re.escape(words)):
        arguments_of(do, said, FIND)


@pytest.mark.parametrize(
    ("do", "said"),
    [
        ("train", {"net": "mine.py:Net"}),
        ("train", {"settings": ["method.name=mine:Match"]}),
        ("train", {"settings": 'plan.scores=["a.b:Score"]'}),
        ("compare", {"methods": "simmatch,/tmp/mine.py:Match+3"}),
        ("evaluate", {"run": "one", "data": "mine.py:read"}),
    ],
)
def test_a_page_cannot_name_code_to_run(do: str, said: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="which only a terminal may run"):
        arguments_of(do, said, FIND)


def test_networks_and_devices_with_a_colon_are_no_code() -> None:
    assert arguments_of("train", {"net": "timm:resnet18"}, FIND) == {"net": "timm:resnet18"}
    assert arguments_of("compare", {"device": "cuda:1"}, FIND) == {"device": "cuda:1"}


def test_forms_take_no_torch() -> None:
    code = "import sys; sys.modules['torch'] = None; from epass.labeling.forms import forms; assert forms(['one'])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False).stderr == ""
