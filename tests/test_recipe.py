from __future__ import annotations

import inspect
import math
import random
import re
import string
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import FrozenInstanceError, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest

from epass import recipes
from epass.augment import make_policies
from epass.data import Protocol, open_dataset
from epass.engine.build import READING, check_recipe, data_schema, without
from epass.errors import InputError
from epass.methods import METHODS, PRETRAINING, WRAPPERS
from epass.networks import NETWORKS
from epass.parts.projector import ProjectorEnsemble
from epass.recipe import (
    FORMAT,
    TABLES,
    Recipe,
    arguments,
    check_table,
    differences,
    explained_recipe,
    parse_recipe,
    parse_setting,
    read_recipe,
    toml_value,
)
from epass.recipes import builtin_recipes, recipe_families
from epass.training.schedule import Plan

TEXT = """
format = 1
source = "made up"
seed = 4

[data]
name = "digits"

[net]
name = "small"

[method]
name = "simmatch"
warmup_steps = 60

[projector]
size = 3

[plan]
steps = 600
warmup_steps = 7
report_every = 20
evaluate_every = 60
lr = 0.03
"""
BASE = parse_recipe(TEXT, "base.toml")


def refusal(call: Any, *positional: Any) -> str:
    with pytest.raises(InputError) as error:
        call(*positional)
    sentence = str(error.value)
    assert "\n" not in sentence
    assert sentence.endswith((".", "?"))
    return sentence


# --- The file ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", builtin_recipes())
def test_built_in_recipes_survive_the_round_trip(name: str) -> None:
    recipe = read_recipe(name)
    assert parse_recipe(recipe.to_toml(), "again") == recipe
    assert recipe.source
    if "name" in recipe.data:
        check_recipe(recipe)
    else:  # a recipe for anybody's data
        assert name.startswith(("folder-", "photos-", "vectors-"))
        check_recipe(recipe.with_settings({"data.name": "photos"}))


def test_a_recipe_may_lie_in_the_home_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "mine.toml").write_text(read_recipe("digits-fixmatch").to_toml())
    assert read_recipe("~/mine.toml") == read_recipe("digits-fixmatch")


def test_built_in_recipes_cover_every_method_under_its_own_name() -> None:
    for family in ("digits", "folder"):
        assert {name.partition("-")[2] for name in recipe_families()[family]} == set(METHODS | PRETRAINING)
    with_vectors = {name for name, cls in (METHODS | PRETRAINING).items() if not cls.needs_pixels}
    assert {name.partition("-")[2] for name in recipe_families()["vectors"]} == with_vectors
    assert {name.partition("-")[2] for name in recipe_families()["photos"]} == set(METHODS)
    for name in builtin_recipes():
        assert read_recipe(name).method["name"] == name.partition("-")[2]


def test_a_family_has_one_kind_of_data_and_says_what_is_around_its_methods() -> None:
    families = recipe_families()
    assert [name for names in families.values() for name in names] == list(builtin_recipes())
    for family, names in families.items():
        assert re.fullmatch(r"[a-z0-9_]+", family)
        found = [read_recipe(name) for name in names]
        assert len({(recipe.data.get("name"), recipe.data.get("image_size")) for recipe in found}) == 1
        around = {(recipe.wrapper or {}).get("name") for recipe in found}
        assert around == {next((name for name in WRAPPERS if family.endswith(f"_{name}")), None)}


FAMILIES = {
    "old": """
        format = 1
        source = "old"
        seed = 3
        [data]
        name = "digits"
        labels = 40
        [net]
        name = "small"
        [plan]
        steps = 10
        lr = 0.1
        [methods.fixmatch]
        source = "old FixMatch"
        method = { threshold = 0.9, unlabeled_weight = 2.0 }
        plan = { lr = 0.2, momentum = 0.5 }
        [methods.comatch]
        method = { threshold = 0.8 }
        projector = { size = 1, out_dim = 64 }
        [methods.supervised]
    """,
    "new": """
        format = 1
        base = "old"
        source = "new"
        [data]
        image_size = 32
        [plan]
        steps = 20
        lr = 0.3
        [methods.fixmatch]
        method = { temperature = 1.0 }
        plan = { momentum = 0.6 }
        data = { streaming = true }
        [methods.comatch]
        source = "new CoMatch"
        projector = { out_dim = 8 }
    """,
}


@pytest.fixture
def families(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    for name, text in FAMILIES.items():
        (tmp_path / f"{name}.toml").write_text(text)
    monkeypatch.setattr(recipes, "FOLDER", tmp_path)
    caches = (recipes.read_family, recipes.builtin_recipes)
    for function in caches:
        function.cache_clear()
    yield tmp_path
    for function in caches:
        function.cache_clear()


@pytest.mark.usefixtures("families")
def test_a_family_has_the_methods_that_it_names() -> None:
    assert builtin_recipes() == ("new-comatch", "new-fixmatch", "old-comatch", "old-fixmatch", "old-supervised")
    assert read_recipe("old-supervised").method == {"name": "supervised"}


@pytest.mark.usefixtures("families")
def test_a_family_adds_to_its_base_and_a_method_to_its_family() -> None:
    recipe = read_recipe("new-fixmatch")
    assert recipe.plan == {"steps": 20, "lr": 0.2, "momentum": 0.6}  # what is said of the method wins over the family
    assert (recipe.net, recipe.seed) == ({"name": "small"}, 3)
    assert read_recipe("new-comatch").plan == {"steps": 20, "lr": 0.3}
    assert read_recipe("new-comatch").projector == {"size": 1, "out_dim": 8}
    assert read_recipe("old-fixmatch").plan == {"steps": 10, "lr": 0.2, "momentum": 0.5}
    assert read_recipe("new-fixmatch").projector is None


@pytest.mark.usefixtures("families")
def test_data_and_method_are_never_mixed_from_two_files() -> None:
    assert read_recipe("new-fixmatch").data == {"image_size": 32, "streaming": True}
    assert read_recipe("new-fixmatch").method == {"name": "fixmatch", "temperature": 1.0}
    assert read_recipe("new-comatch").data == {"image_size": 32}
    assert read_recipe("new-comatch").method == {"name": "comatch", "threshold": 0.8}


@pytest.mark.usefixtures("families")
def test_the_nearest_file_says_the_source() -> None:
    names = ("old-fixmatch", "old-comatch", "new-fixmatch", "new-comatch")
    assert [read_recipe(name).source for name in names] == ["old FixMatch", "old", "new", "new CoMatch"]


@pytest.mark.usefixtures("families")
def test_keys_stand_in_the_order_in_which_they_are_first_named() -> None:
    assert explained_recipe("new-fixmatch").splitlines() == [
        "format = 1",
        'source = "new"  # new.toml',
        "seed = 3  # old.toml",
        "",
        "[data]",
        "image_size = 32  # new.toml",
        "streaming = true  # new.toml [methods.fixmatch]",
        "",
        "[net]",
        'name = "small"  # old.toml',
        "",
        "[method]",
        'name = "fixmatch"  # new.toml [methods.fixmatch]',
        "temperature = 1.0  # new.toml [methods.fixmatch]",
        "",
        "[plan]",
        "steps = 20  # new.toml",
        "lr = 0.2  # old.toml [methods.fixmatch]",
        "momentum = 0.6  # new.toml [methods.fixmatch]",
    ]


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("[methods.comatch]", "[methods.comatch]\n        methd = { threshold = 0.7 }", "Unknown key 'methd'"),
        ("seed = 3", "sed = 3", "Unknown key 'sed'"),
        ("format = 1", "", "'format = 1'"),
    ],
)
def test_a_mistake_in_a_family_is_a_sentence(families: Path, old: str, new: str, words: str) -> None:
    assert old in FAMILIES["old"]
    (families / "old.toml").write_text(FAMILIES["old"].replace(old, new))
    assert words in refusal(read_recipe, "old-comatch")


@pytest.mark.parametrize("name", builtin_recipes())
def test_an_explained_recipe_is_the_recipe_and_names_where_each_value_stands(name: str) -> None:
    text = explained_recipe(name)
    recipe = read_recipe(name)
    assert parse_recipe(text, "explained") == recipe
    table, explained = "", 0
    for line in text.splitlines():
        if line.startswith("["):
            table = line.strip("[]")
        if place := re.fullmatch(r"(\w+) = .*  # (\w+)\.toml(?: \[methods\.(\w+)\])?", line):
            key, file, method = place.groups()
            content = tomllib.loads((recipes.FOLDER / f"{file}.toml").read_text("utf-8"))
            content = content["methods"][method] if method else content
            explained += 1
            if (table, key) != ("method", "name"):
                value = content[table][key] if table else content[key]
                assert value == (recipe.flat()[f"{table}.{key}"] if table else recipe.source)
    assert explained == len(recipe.flat())  # the source, and all settings but the seed


AWKWARD = [
    "",
    " ",
    'say "hi"',
    "'single'",
    "C:\\new\\table\\u0041",
    "ends with \\",
    '"""',
    "Grüße, 数字, 🙂, e\u0301",
    "line\nbreak\r\n\ttab",
    "\x00\x01\x1b[31m\x7f\x85\u2028\ufeff\U000e0001",
    "# no comment",
    "[plan]\nsteps = 1",
    5e-4,
    1e300,
    -1e-300,
    5e-324,
    0.1 + 0.2,
    1e16,
    1e22,
    -0.0,
    0,
    -7,
    2**62,
    True,
    False,
    [],
    [1, 2, 3],
    ["a", 'b"', "\\"],
    [[1, 2], [0.5]],
    [True, False],
]


@pytest.mark.parametrize("value", AWKWARD, ids=repr)
def test_awkward_values_survive_the_round_trip(value: object) -> None:
    recipe = replace(BASE, method={"name": "simmatch", "value": value}, source=str(value))
    again = parse_recipe(recipe.to_toml(), "again")
    assert again == recipe
    assert type(again.method["value"]) is type(value)
    assert repr(again.method["value"]) == repr(value)  # 0.0 == -0.0 and 1 == True


def test_infinity_and_nan_are_written_as_toml_knows_them() -> None:
    recipe = replace(BASE, plan={"a": math.inf, "b": -math.inf, "c": math.nan})
    plan = parse_recipe(recipe.to_toml(), "again").plan
    assert (plan["a"], plan["b"]) == (math.inf, -math.inf)
    assert math.isnan(plan["c"])


def random_value(rng: random.Random, depth: int = 0) -> Any:
    kind = rng.randrange(7 if depth < 2 else 6)
    if kind == 0:
        return rng.choice([True, False])
    if kind == 1:
        return rng.randint(-(2**63), 2**63 - 1)
    if kind == 2:
        return rng.uniform(-1, 1) * 10 ** rng.randint(-300, 300)
    if kind < 6:
        pool = string.printable + '"\\' * 20 + "äß数🙂\x00\x1f\x7f\x80\u200b\u2029\ufffe"
        return "".join(rng.choices(pool, k=rng.randint(0, 30)))
    return [random_value(rng, depth + 1) for _ in range(rng.randint(0, 4))]


def random_table(rng: random.Random) -> dict[str, Any]:
    keys = ("".join(rng.choices(string.ascii_letters + string.digits + "_-", k=rng.randint(1, 12))) for _ in range(9))
    return {key: random_value(rng) for key in keys if rng.random() < 0.6}


@pytest.mark.parametrize("seed", range(60))
def test_any_recipe_survives_the_round_trip(seed: int) -> None:
    rng = random.Random(seed)
    tables = {name: random_table(rng) or {"key": 1} for name in ("data", "net", "method", "plan")}
    recipe = Recipe(
        source=rng.choice(AWKWARD[:12]),
        **tables,
        projector=random_table(rng) or None,
        augment=random_table(rng),
        seed=rng.randint(-5, 2**40),
    )
    text = recipe.to_toml()
    assert parse_recipe(text, "again") == recipe
    assert parse_recipe(text, "again").to_toml() == text


def test_the_tables_are_written_in_their_order_and_empty_ones_are_not() -> None:
    others = {"features": {"views": 2}, "wrapper": {"name": "abc"}, "start": {"weights": "there"}}
    text = replace(BASE, augment={"padding": 1}, **others).to_toml()
    assert re.findall(r"^\[(\w+)\]$", text, re.MULTILINE) == list(TABLES)
    assert text.startswith(f'format = {FORMAT}\nsource = "made up"\nseed = 4\n')
    assert "[augment]" not in BASE.to_toml()
    assert "[projector]" not in replace(BASE, projector=None).to_toml()


def test_what_is_left_out_has_a_default() -> None:
    recipe = parse_recipe(TEXT.replace("seed = 4", "").replace("[projector]\nsize = 3", ""), "x")
    assert (recipe.seed, recipe.projector, recipe.augment) == (0, None, {})


def test_a_recipe_cannot_be_changed() -> None:
    with pytest.raises(FrozenInstanceError):
        BASE.seed = 3  # type: ignore[misc]


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("format = 1", "format = 2", ["'format = 1'"]),
        ("format = 1", 'format = "1"', ["'format = 1'"]),
        ("format = 1", "", ["'format = 1'"]),
        ('source = "made up"', "", ["'source' is missing"]),
        ('[data]\nname = "digits"', "", ["'data' is missing"]),
        ('[net]\nname = "small"', "", ["'net' is missing"]),
        ("[method]", "[methods]", ["Unknown key 'methods'", "did you mean 'method'?"]),
        ("[plan]", "[plans]", ["Unknown key 'plans'", "did you mean 'plan'?"]),
        ("[projector]", "[projectors]", ["Unknown key 'projectors'", "did you mean 'projector'?"]),
        ("seed = 4", "sed = 4", ["Unknown key 'sed'", "did you mean 'seed'?"]),
        ("seed = 4", "seed = 4\nxyz = 1", ["Unknown key 'xyz'", "choose one of: augment, data, features, format"]),
        ("seed = 4", 'seed = "4"', ["'seed' a whole number"]),
        ("seed = 4", "seed = 4.0", ["'seed' a whole number"]),
        ("seed = 4", "seed = true", ["'seed' a whole number"]),
        ('source = "made up"', "source = 3", ["'source' is a text"]),
        ("seed = 4", "seed = 4\naugment = 3", ["'augment' must be a table, [augment]"]),
        ("[projector]\nsize = 3", "[[projector]]\nsize = 3", ["'projector' must be a table"]),
        ("seed = 4", "seed = ", ["is not valid TOML", "line 4"]),
        ("seed = 4", "seed = 4\nseed = 5", ["is not valid TOML"]),
        ("seed = 4", "seed: 4", ["is not valid TOML"]),
    ],
)
def test_a_bad_file_is_one_sentence_that_names_it(old: str, new: str, words: list[str]) -> None:
    assert old in TEXT
    sentence = refusal(parse_recipe, TEXT.replace(old, new, 1), "my/own.toml")
    assert sentence.startswith("my/own.toml")
    for word in words:
        assert word in sentence


@pytest.mark.parametrize("table", ["data", "net", "method", "plan"])
def test_every_table_but_two_is_needed(table: str) -> None:
    lines = re.sub(rf"\[{table}\]\n(?:\w.*\n)+", "", TEXT)
    assert refusal(parse_recipe, lines, "x") == f"x: '{table}' is missing."


def test_a_recipe_is_read_by_name_or_from_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine.toml").write_text(TEXT.replace("made up", "né à côté"), encoding="utf-8")
    assert read_recipe(str(tmp_path / "mine.toml")).source == "né à côté"
    monkeypatch.chdir(tmp_path)
    assert read_recipe("mine.toml").seed == 4
    (tmp_path / "digits-simmatch").write_text("not this one")
    assert read_recipe("digits-simmatch").method["name"] == "simmatch"


def test_what_is_not_there_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "folder.toml").mkdir()
    assert refusal(read_recipe, "digits-simatch") == "Unknown recipe 'digits-simatch': did you mean 'digits-simmatch'?"
    assert refusal(read_recipe, "qqq").startswith(
        "Unknown recipe 'qqq': it is called FAMILY-METHOD, digits-simmatch for one, with one of the families cifar10, "
    )
    assert refusal(read_recipe, "folder-simmatsh").endswith("did you mean 'folder-simmatch'?")  # far down the list
    assert refusal(read_recipe, "usb_stl10-simatch").endswith("did you mean 'usb_stl10-simmatch'?")
    assert "did you mean 'digits-" in refusal(read_recipe, "digits")  # a family is no recipe
    assert refusal(read_recipe, "no/such.toml") == "There is no recipe file no/such.toml."
    assert refusal(read_recipe, str(tmp_path / "folder.toml")).startswith("There is no recipe file ")
    (tmp_path / "broken.toml").write_text("format = ")
    assert refusal(read_recipe, str(tmp_path / "broken.toml")).startswith(f"{tmp_path / 'broken.toml'} is not valid")


# --- Settings ---------------------------------------------------------------------------------------------------------


def test_flat_has_every_setting_under_its_dotted_name() -> None:
    assert BASE.flat() == {
        "data.name": "digits",
        "net.name": "small",
        "method.name": "simmatch",
        "method.warmup_steps": 60,
        "projector.size": 3,
        "plan.steps": 600,
        "plan.warmup_steps": 7,
        "plan.report_every": 20,
        "plan.evaluate_every": 60,
        "plan.lr": 0.03,
        "seed": 4,
    }
    assert replace(BASE, projector=None, augment={"padding": 2}).flat().keys() ^ BASE.flat().keys() == {
        "projector.size",
        "augment.padding",
    }


def test_settings_change_what_they_name_and_nothing_else() -> None:
    before = BASE.to_toml()
    changed = BASE.with_settings({"method.threshold": 0.9, "plan.lr": 1.0, "seed": 7, "source": "me"})
    assert changed == replace(
        BASE, method={**BASE.method, "threshold": 0.9}, plan={**BASE.plan, "lr": 1.0}, seed=7, source="me"
    )
    assert BASE.to_toml() == before
    assert BASE.with_settings({}) == BASE


def test_none_removes_a_key_and_the_projector_comes_and_goes() -> None:
    assert BASE.with_settings({"method.warmup_steps": None}).method == {"name": "simmatch"}
    assert BASE.with_settings({"method.nothing": None}) == BASE
    plain = BASE.with_settings({"projector.size": None})
    assert plain.projector is None
    assert plain.with_settings({"projector.size": 2}).projector == {"size": 2}
    assert plain.with_settings({"seed": 1}).projector is None
    assert BASE.with_settings({"augment.padding": 2}).augment == {"padding": 2}


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("methd.warmup_steps", "did you mean 'method.warmup_steps'?"),
        ("plan", "did you mean 'plan.lr'?"),
        ("plan.", "did you mean 'plan."),
        (".steps", "did you mean 'plan.steps'?"),
        ("sed", "did you mean 'seed'?"),
        ("seed.value", "seed"),
        ("format", "choose one of: data.name"),
        ("", "choose one of: data.name"),
    ],
)
def test_a_setting_of_no_table_is_refused(name: str, words: str) -> None:
    sentence = refusal(BASE.with_settings, {name: 1})
    assert sentence.startswith(f"Unknown setting '{name}': ")
    assert words in sentence


DURATIONS = ("method.warmup_steps", "plan.warmup_steps", "plan.report_every", "plan.evaluate_every")


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        (600, (60, 7, 20, 60)),  # nothing changes
        (1200, (120, 14, 40, 120)),
        (300, (30, 3, 10, 30)),  # durations down: 3.5 -> 3
        (100, (10, 1, 4, 12)),  # intervals up: 3.33 -> 4, and tests fall on reports: 10 -> 12
        (7, (0, 0, 1, 1)),
        (1, (0, 0, 1, 1)),
        (10**9, (10**8, 11666666, 33333334, 100000002)),
    ],
)
def test_new_steps_stretch_durations_and_intervals(steps: int, expected: tuple[int, ...]) -> None:
    flat = BASE.with_settings({"plan.steps": steps}).flat()
    assert tuple(flat[name] for name in DURATIONS) == expected
    assert {key: value for key, value in flat.items() if key not in (*DURATIONS, "plan.steps")} == {
        key: value for key, value in BASE.flat().items() if key not in (*DURATIONS, "plan.steps")
    }


@pytest.mark.parametrize("steps", [1, 2, 9, 60, 599, 601, 12345])
def test_a_stretched_recipe_can_still_be_trained(steps: int) -> None:
    for name in builtin_recipes():
        recipe = read_recipe(name).with_settings({"plan.steps": steps, "data.name": "digits"})
        check_recipe(recipe)
        assert 1 <= recipe.plan["evaluate_every"] <= max(steps, 1)


def test_an_explicit_duration_wins_over_stretching() -> None:
    changed = BASE.with_settings({"plan.report_every": 9, "plan.steps": 60, "method.warmup_steps": None})
    assert (changed.plan["report_every"], changed.plan["evaluate_every"]) == (9, 9)  # tests fall on reports
    assert "warmup_steps" not in changed.method
    changed = BASE.with_settings({"plan.evaluate_every": 7, "plan.steps": 60})
    assert (changed.plan["report_every"], changed.plan["evaluate_every"]) == (2, 7)


@pytest.mark.parametrize(
    ("steps", "momentum", "expected"),
    [(600, 0.99, 0.99), (1200, 0.999, 0.995), (60, 0.99, 0.9), (60, 0.5, 0.5), (6, 0.99, 0.0), (1, 0.99, 0.0)],
)
def test_the_averaged_weights_of_a_short_run_remember_less(steps: int, momentum: float, expected: float) -> None:
    base = BASE.with_settings({"plan.average_momentum": momentum})
    assert base.plan["average_momentum"] == momentum  # only new steps change it
    assert base.with_settings({"plan.steps": steps}).plan["average_momentum"] == pytest.approx(expected)
    explicit = base.with_settings({"plan.steps": steps, "plan.average_momentum": 0.7})
    assert explicit.plan["average_momentum"] == 0.7
    assert "average_momentum" not in BASE.with_settings({"plan.steps": steps}).plan


@pytest.mark.parametrize("report_every", [0, -1, 0.5, "often", None])
def test_an_odd_interval_is_left_to_the_check_of_the_recipe(report_every: object) -> None:
    changed = BASE.with_settings({"plan.steps": 60, "plan.report_every": report_every})
    assert changed.plan.get("report_every") == report_every


@pytest.mark.parametrize("steps", [0, -5, True])
def test_odd_steps_are_left_to_the_check_of_the_recipe(steps: int) -> None:
    base = BASE.with_settings({"plan.average_momentum": 0.9})
    assert base.with_settings({"plan.steps": steps}).plan["steps"] is steps


def test_only_whole_durations_are_stretched() -> None:
    odd = BASE.with_settings(
        {"method.a_steps": 0.5, "method.b_every": "often", "method.c_steps": True, "data.steps": 9}
    )
    changed = odd.with_settings({"plan.steps": 60}).flat()
    kept = ("method.a_steps", "method.b_every", "method.c_steps", "data.steps")
    assert [changed[name] for name in kept] == [0.5, "often", True, 9]
    assert changed["plan.report_every"] == 2


@pytest.mark.parametrize("steps", [None, 60.0, "60"])
def test_steps_that_are_no_whole_number_stretch_nothing(steps: object) -> None:
    changed = BASE.with_settings({"plan.steps": steps}).flat()
    assert [changed[name] for name in DURATIONS] == [BASE.flat()[name] for name in DURATIONS]
    stepless = BASE.with_settings({"plan.steps": None})
    assert stepless.with_settings({"plan.steps": 60}).plan["report_every"] == 20
    nothing = replace(BASE, plan={**BASE.plan, "steps": 0})
    assert nothing.with_settings({"plan.steps": 60}).plan["report_every"] == 20


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("method.threshold=0.9", ("method.threshold", 0.9)),
        (" plan.steps = 3 ", ("plan.steps", 3)),
        ("plan.lr=5e-4", ("plan.lr", 5e-4)),
        ("seed=-1", ("seed", -1)),
        ("data.include_labeled=false", ("data.include_labeled", False)),
        ("x.y=[1, 2]", ("x.y", [1, 2])),
        ('data.name="7"', ("data.name", "7")),
        ("data.name='a=b'", ("data.name", "a=b")),
        ("data.name=photos/a=b", ("data.name", "photos/a=b")),
        ("plan.optimizer=adamw", ("plan.optimizer", "adamw")),
        ("data.name=C:\\photos", ("data.name", "C:\\photos")),
        ("data.name=", ("data.name", "")),
        ("data.include_labeled=True", ("data.include_labeled", "True")),
        ("data.name=my photos", ("data.name", "my photos")),
        ('data.name="open', ("data.name", '"open')),
    ],
)
def test_a_setting_is_a_toml_value_or_else_a_text(text: str, expected: tuple[str, object]) -> None:
    found = parse_setting(text)
    assert found == expected
    assert type(found[1]) is type(expected[1])


@pytest.mark.parametrize("text", ["", "method.threshold", "method.threshold:0.9"])
def test_a_setting_needs_its_sign(text: str) -> None:
    assert refusal(parse_setting, text) == f"--set takes NAME=VALUE, such as method.threshold=0.9, not '{text}'."


def test_differences_are_named_with_both_values_in_order() -> None:
    other = BASE.with_settings(
        {"seed": 5, "plan.lr": 0.1, "method.warmup_steps": None, "augment.padding": 1, "source": "elsewhere"}
    )
    assert differences(other, BASE) == [
        "augment.padding: not set -> 1",
        "method.warmup_steps: 60 -> not set",
        "plan.lr: 0.03 -> 0.1",
        "seed: 4 -> 5",
    ]
    assert differences(BASE, parse_recipe(BASE.to_toml(), "again")) == []
    assert differences(replace(BASE, projector=None), BASE) == ["projector.size: 3 -> not set"]


# --- Schemas ----------------------------------------------------------------------------------------------------------


def schema_of(table: str) -> Mapping[str, inspect.Parameter]:
    return {
        "data": data_schema(),
        "augment": arguments(make_policies),
        "net": without(arguments(NETWORKS["small"]), "in_channels"),
        "method": arguments(METHODS["simmatch"]),
        "projector": arguments(ProjectorEnsemble),
        "plan": arguments(Plan),
    }[table]


def test_the_signature_is_the_schema() -> None:
    assert schema_of("data").keys() == {"name", *READING, "order"} | arguments(Protocol).keys()
    assert schema_of("data")["labels"] == arguments(Protocol)["labels"]
    assert arguments(open_dataset).keys() - {*READING} == {
        "progress",
        "notice",
        "labels_needed",
        "measured",
    }  # no settings: a run needs labels, and whether it needs a mean follows from its features
    assert schema_of("data")["labels"].annotation == int | None
    assert list(schema_of("net")) == ["width"]
    assert set(schema_of("projector")) == {"size", "combine", "normalize", "eps"}
    assert list(schema_of("plan"))[:2] == ["steps", "labeled_batch"]
    assert schema_of("plan")["steps"].default is inspect.Parameter.empty
    assert schema_of("plan")["lr"].annotation is float
    assert schema_of("method")["teacher"].annotation == Literal["student", "average"]
    assert arguments(METHODS["supervised"]) == {}
    for method in METHODS.values():
        assert not {"net", "problem", "projector", "self"} & arguments(method).keys()


def test_the_schema_of_a_partial_is_what_it_leaves_open() -> None:
    wide = NETWORKS["wrn-28-2"]
    assert isinstance(wide, partial)
    assert list(arguments(wide)) == ["in_channels", "activate_transitions", "stem_bias", "last_channels"]
    assert arguments(wide)["activate_transitions"].annotation is bool
    check_table("net", {"activate_transitions": True}, arguments(wide))
    assert refusal(check_table, "net", {"activate_transitions": 1}, arguments(wide)) == (
        "net.activate_transitions is true or false, not 1."
    )


def test_annotations_are_types_even_where_they_were_written_as_text() -> None:
    def function(*, size: int, shape: float | None = None) -> None: ...

    assert [parameter.annotation for parameter in arguments(function).values()] == [int, float | None]


@pytest.mark.parametrize(
    ("table", "key", "meant"),
    [
        ("data", "label", "labels"),
        ("data", "nam", "name"),
        ("augment", "paddding", "padding"),
        ("net", "widht", "width"),
        ("method", "treshold", "threshold"),
        ("method", "warmup_epochs", "warmup_steps"),
        ("projector", "sizes", "size"),
        ("plan", "step", "steps"),
        ("plan", "weight-decay", "weight_decay"),
    ],
)
def test_an_unknown_key_names_the_near_miss(table: str, key: str, meant: str) -> None:
    sentence = refusal(check_table, table, {key: 1}, schema_of(table))
    assert sentence == f"Unknown setting '{table}.{key}': did you mean '{table}.{meant}'?"


def test_a_method_without_settings_says_so() -> None:
    schema = arguments(METHODS["supervised"])
    assert refusal(check_table, "method", {"threshold": 1}, schema) == (
        "'method' takes no settings here: remove 'method.threshold'."
    )
    check_table("method", {}, schema)


@pytest.mark.parametrize(
    ("table", "key", "value", "sentence"),
    [
        ("plan", "steps", "many", 'plan.steps is a whole number, not "many".'),
        ("plan", "steps", 2.0, "plan.steps is a whole number, not 2.0."),
        ("plan", "steps", True, "plan.steps is a whole number, not true."),
        ("plan", "lr", "fast", 'plan.lr is a number, not "fast".'),
        ("plan", "lr", False, "plan.lr is a number, not false."),
        ("plan", "lr", math.nan, "plan.lr is a number, not nan."),
        ("plan", "lr", -math.inf, "plan.lr is a number, not -inf."),
        ("plan", "lr", [0.1], "plan.lr is a number, not [0.1]."),
        ("plan", "optimizer", "lion", "plan.optimizer is one of 'sgd', 'adam', 'adamw', not \"lion\"."),
        ("plan", "optimizer", 1, "plan.optimizer is one of 'sgd', 'adam', 'adamw', not 1."),
        ("data", "labels", "forty", 'data.labels is a whole number or not set, not "forty".'),
        ("data", "labels", True, "data.labels is a whole number or not set, not true."),
        ("data", "name", 7, "data.name is a text, not 7."),
        ("data", "include_labeled", 1, "data.include_labeled is true or false or 'twice' or not set, not 1."),
        ("data", "holdout", "some", 'data.holdout is a number, not "some".'),
        (
            "data",
            "known_classes",
            ["cat", 0.5],
            'data.known_classes is a list (each entry a text or a whole number) or not set, not ["cat", 0.5].',
        ),
        ("data", "order", "random", "data.order is one of 'seed', 'reference', not \"random\"."),
        ("method", "threshold", "0.9", 'method.threshold is a number, not "0.9".'),
        ("projector", "combine", "avg", "projector.combine is one of 'mean', 'sum', 'concat', not \"avg\"."),
        ("augment", "padding", 1.5, "augment.padding is a whole number, not 1.5."),
        ("net", "width", "wide", 'net.width is a whole number, not "wide".'),
    ],
)
def test_a_value_of_another_type_is_refused_in_words(table: str, key: str, value: object, sentence: str) -> None:
    filled = {"name": "digits"} if table == "data" else {"steps": 1} if table == "plan" else {}
    assert refusal(check_table, table, {**filled, key: value}, schema_of(table)) == sentence


def test_fitting_values_pass() -> None:
    check_table("plan", {"steps": 1, "lr": 1, "weight_decay": 0.5, "optimizer": "adamw"}, schema_of("plan"))
    check_table("data", {"name": "x", "labels": 4, "holdout": 1, "include_labeled": False}, schema_of("data"))
    check_table("data", {"name": "x", "labels": None}, schema_of("data"))
    for value in (["cat", 3], [], None):
        check_table("data", {"name": "x", "known_classes": value}, schema_of("data"))
    check_table("data", {"name": "x", "include_labeled": "twice"}, schema_of("data"))


# Of every method and wrapper, the settings whose names promise more than their types.
OURS = {"method": METHODS | PRETRAINING, "wrapper": WRAPPERS}
NAMED = [(table, name, key) for table, ours in OURS.items() for name in ours for key in arguments(ours[name])]


@pytest.mark.parametrize(
    ("table", "name", "key"), [case for case in NAMED if case[2].endswith(("threshold", "smoothing", "momentum"))]
)
def test_shares_of_a_method_lie_between_0_and_1(table: str, name: str, key: str) -> None:
    schema = arguments(OURS[table][name])
    for value in (0, 0.0, 0.5, 1, 1.0):
        check_table(table, {key: value}, schema)
    assert refusal(check_table, table, {key: 95}, schema) == (
        f"{table}.{key} lies in [0, 1], not at 95: write 95 % as 0.95."
    )
    assert refusal(check_table, table, {key: 1.5}, schema) == f"{table}.{key} lies in [0, 1], not at 1.5."
    assert refusal(check_table, table, {key: 1e18}, schema) == f"{table}.{key} lies in [0, 1], not at 1e+18."


@pytest.mark.parametrize(("table", "name", "key"), [case for case in NAMED if case[2].endswith("temperature")])
def test_temperatures_divide(table: str, name: str, key: str) -> None:
    schema = arguments(OURS[table][name])
    check_table(table, {key: 1e-3}, schema)
    check_table(table, {key: 95}, schema)
    assert refusal(check_table, table, {key: 0}, schema) == f"{table}.{key} must be above 0, not 0."


def test_the_rules_by_name_hold_for_your_methods_unless_a_default_breaks_them() -> None:
    def mine(*, head_threshold: float = 0.5, loss_threshold: float = 2.0, own_temperature: float) -> None: ...

    check_table("method", {"loss_threshold": 95, "own_temperature": 2}, arguments(mine))
    check_table("net", {"head_threshold": 95, "own_temperature": 0}, arguments(mine))  # of a network
    for setting in ({"head_threshold": 2}, {"own_temperature": 0.0}):
        assert next(iter(setting)) in refusal(check_table, "method", {"own_temperature": 1} | setting, arguments(mine))


def test_a_number_too_large_for_the_machine_is_called_by_its_name() -> None:
    assert refusal(check_table, "plan", {"steps": 10**20}, schema_of("plan")) == (
        "plan.steps must be less than 2^63, which 100000000000000000000 is not."
    )
    check_table("plan", {"steps": 2**63 - 1}, schema_of("plan"))
    recipe = read_recipe("digits-fixmatch").with_settings({"plan.steps": 10**20})  # which stretches its warm-up, too
    assert refusal(check_recipe, recipe).startswith("plan.steps must be")
    recipe = read_recipe("digits-simmatch").with_settings({"plan.steps": 10**20})
    assert refusal(check_recipe, recipe).startswith("plan.steps must be")


def test_what_has_no_default_must_be_there() -> None:
    assert refusal(check_table, "plan", {"lr": 0.1}, schema_of("plan")) == "plan.steps is missing: a whole number."
    assert refusal(check_table, "data", {}, schema_of("data")) == "data.name is missing: a text."

    def untyped(*, rate) -> None: ...  # type: ignore[no-untyped-def]

    assert refusal(check_table, "method", {}, arguments(untyped)) == "method.rate is missing: any value."


@pytest.mark.parametrize("name", METHODS)
def test_the_defaults_of_every_method_fit_their_own_annotations(name: str) -> None:
    schema = arguments(METHODS[name])
    check_table("method", {key: parameter.default for key, parameter in schema.items()}, schema)
    for key, parameter in schema.items():
        assert parameter.default is not parameter.empty, f"method.{key} would have to be in every recipe"


@pytest.mark.parametrize("name", NETWORKS)
def test_the_defaults_of_every_network_fit_their_own_annotations(name: str) -> None:
    schema = arguments(NETWORKS[name])
    check_table("net", {key: parameter.default for key, parameter in schema.items()}, schema)


# --- Faults that were found and must not come back -------------------------------------------------------------------


def test_a_file_that_is_no_text_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "picture.toml").write_bytes(b"\x89PNG")
    assert "is not valid TOML" in refusal(read_recipe, str(tmp_path / "picture.toml"))


@pytest.mark.parametrize("text", ["data.name=2024-05-01", "plan.steps=10:30:00"])
def test_a_date_is_refused_like_any_other_wrong_type(text: str) -> None:
    key, value = parse_setting(text)
    table, _, key = key.partition(".")
    filled = {"name": "digits"} if table == "data" else {"steps": 1}
    assert f"{table}.{key} is " in refusal(check_table, table, {**filled, key: value}, schema_of(table))


def test_numpy_numbers_are_written_as_numbers() -> None:
    assert toml_value(np.float64(0.1)) == "0.1"
    assert toml_value(np.bool_(True)) == "true"


def test_a_recipe_holds_the_numbers_of_numpy_as_those_of_python() -> None:
    given = {"plan.steps": np.int64(60), "method.threshold": np.float32(0.5), "data.include_labeled": np.bool_(True)}
    recipe, wanted = (
        read_recipe("digits-fixmatch").with_settings({**settings, "data.fold": counts, "seed": number})
        for settings, counts, number in (
            (given, [np.int8(1)], np.int16(3)),
            ({name: value.item() for name, value in given.items()}, [1], 3),
        )
    )
    assert recipe == wanted
    assert [type(value) for value in recipe.flat().values()] == [type(value) for value in wanted.flat().values()]
    written = Recipe(
        source="", data={"labels": np.int64(4)}, net={}, method={}, plan={"lr": np.float64(0.5)}, seed=np.int64(2)
    )
    assert type(written.data["labels"]) is type(written.seed) is int
    assert repr(written.plan["lr"]) == "0.5"
    assert parse_recipe(recipe.to_toml(), "x") == wanted


def test_choices_are_listed_once() -> None:
    assert refusal(BASE.with_settings, {"": 1}).count("seed") == 1
