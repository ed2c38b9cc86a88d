"""Recipes of strangers: TOML that is deep, large, odd or no text."""

from __future__ import annotations

from pathlib import Path

import pytest
from hostile_files import RECIPE, hollow, pipe
from hostile_world import World

from epass.untrusted import LARGEST_RECIPE

HOSTILE = {
    "nested arrays": (b"source = " + b"[" * 30_000, "nested too deeply"),
    "nested tables": (b"a = " + b"{a=" * 10_000, "nested too deeply|not valid TOML"),
    "a long dotted key": (b"a" + b".a" * 16_000 + b" = 1", "key 'a'"),
    "many long dotted keys": (b"".join(b"a%d" % n + b".a" * 600 + b" = 1\n" for n in range(26)), "key 'a0'"),
    "repeated tables": (b"[[a]]\n" * 5_000, "key 'a'"),
    "repeated text": (b'a = "' + b"lol" * 10_000 + b'"', "key 'a'"),
    "a number of many digits": (b"seed = " + b"9" * 5_000, "not valid TOML"),
    "a number of more bits than torch has": (RECIPE.replace("steps = 2", f"steps = {2**70}").encode(), "plan.steps"),
    "a negative number": (RECIPE.replace("steps = 2", "steps = -2").encode(), "plan.steps must be at least 1"),
    "not a number": (RECIPE.replace("steps = 2", "steps = 2\nlr = nan").encode(), "plan.lr is a number"),
    "infinity": (RECIPE.replace("steps = 2", "steps = 2\nlr = -inf").encode(), "plan.lr is a number"),
    "a date": (RECIPE.replace("steps = 2", "steps = 1979-05-27").encode(), "plan.steps is a whole number"),
    "a key twice": (RECIPE.replace("steps = 2", "steps = 2\nsteps = 3").encode(), "not valid TOML"),
    "a table twice": ((RECIPE + "[data]\n").encode(), "not valid TOML"),
    "a zero byte": (RECIPE.replace("digits", "digits\0").encode(), "not valid TOML"),
    "a byte order mark": (b"\xef\xbb\xbf" + RECIPE.encode(), "not valid TOML"),
    "two bytes for every letter": (RECIPE.encode("utf-16"), "not even text"),
    "invalid UTF-8": (RECIPE.replace("digits", "\xff").encode("latin-1"), "not even text"),
    "a terminal's commands in a key": (b'"\\u001b[2J\\u202egnp.exe" = 1', "Unknown|key"),
    "a key of all letters that fit": (b'"' + b"k" * (LARGEST_RECIPE - 10) + b'" = 1', "key 'kkk"),
    "more heads than anybody has": (RECIPE.replace("size = 1", "size = 999999999").encode(), "at most 1,024 heads"),
    "images larger than any": (RECIPE.replace("labels = 40", "image_size = 999999").encode(), "too large"),
    "a pickle": (b"\x80\x04\x95\x00\x00\x00\x00\x00\x00\x00\x00\x8c\x02os\x94.", "not even text|not valid TOML"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_recipe_is_one_sentence(world: World, name: str) -> None:
    content, words = HOSTILE[name]
    (world.home / "hostile.toml").write_bytes(content)
    world.refused("train", "--recipe", "hostile.toml", words=words)


def test_a_recipe_of_100_megabytes_is_not_read(world: World) -> None:
    hollow(world.home / "large.toml", 100_000_000)
    world.refused("train", "--recipe", "large.toml", words=f"more than {LARGEST_RECIPE:,} bytes")


def test_a_recipe_that_is_a_pipe_is_not_waited_for(world: World) -> None:
    pipe(world.home / "pipe.toml")
    world.refused("train", "--recipe", "pipe.toml", words="no recipe file")


@pytest.mark.parametrize("name", ["nested arrays", "a number of many digits", "invalid UTF-8", "a zero byte"])
@pytest.mark.parametrize("command", ["report", "predict", "evaluate", "resume", "from"])
def test_a_hostile_recipe_in_a_run_folder(world: World, run: Path, name: str, command: str) -> None:
    (run / "recipe.toml").write_bytes(HOSTILE[name][0])
    arguments = {
        "report": ["report", "run"],
        "predict": ["predict", "run", "tiny.toml"],
        "evaluate": ["evaluate", "run"],
        "resume": ["train", "--resume", "--out", "run"],
        "from": ["train", "digits", "--from", "run"],
    }
    world.refused(*arguments[command], words="'run/recipe.toml' is damaged")


@pytest.mark.parametrize("value", ["[" * 20_000, "9" * 5_000, "{a=" * 9_000])
def test_a_hostile_setting_is_no_more_than_a_text(world: World, value: str) -> None:
    world.refused("train", "--recipe", "tiny.toml", "--set", f"plan.lr={value}", words=r"plan\.lr is a number")
