"""Tables of strangers, and tables of ours that strangers' names go into."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import pytest
from hostile_files import hollow, photos, png
from hostile_world import World

HEAD = b"path,label\nphotos/cat/1.png,cat\nphotos/dog/1.png,dog\n"

HOSTILE = {
    "a path to the parent": (HEAD + b"../treasure/diary.txt,cat\n", "lies outside"),
    "an absolute path": (HEAD + b"/etc/passwd,cat\n", "lies outside"),
    "a path out and in": (HEAD + b"photos/../../treasure/diary.txt,cat\n", "lies outside"),
    "a path through a link": (HEAD + b"link/diary.txt,cat\n", "lies outside"),
    "a path with a zero byte": (HEAD + b"photos/\0.png,cat\n", "not a path|NUL|not a proper CSV"),
    "a path too long for any disk": (HEAD + b"p" * 100_000 + b",cat\n", "not a path"),
    "a path of a device": (HEAD + b"/dev/zero,cat\n", "lies outside"),
    "a path of a folder": (HEAD + b"photos,cat\n", "no such file"),
    "a field of megabytes": (HEAD + b'"' + b"x" * 1_000_000 + b'",cat\n', "not a proper CSV"),
    "a quote that never ends": (HEAD + b'"photos', "not a proper CSV"),
    "many columns": (b",".join(b"c%d" % n for n in range(50_000)) + b"\n", "50,000 columns"),
    "many short columns": (b",".join(b"c%d" % n for n in range(9_000)) + b"\n", "No column"),
    "rows of other lengths": (HEAD + b",,,,,,,,\nx", "cells"),
    "mixed encodings": (HEAD + "photos/dog/2.png,dög\n".encode("latin-1"), "not UTF-8"),
    "two bytes for every letter": (HEAD.decode().encode("utf-16"), "not UTF-8"),
    "a number of many digits as a class": (
        b"path,label\nphotos/cat/1.png,1\nphotos/cat/2.png,1\n"
        + b"".join(b"photos/dog/%d.png,%s\n" % (n, b"9" * 9_000) for n in (1, 2)),
        "",
    ),
    "nothing": (b"", "is empty"),
    "a terminal's commands": (HEAD + b"\x1b[2J\x07.png,cat\n", "no such file"),
    "a terminal's commands in a split": (b"path,label,split\nx,y,\x1b[2J\n", "has the split"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_table_is_one_sentence(world: World, name: str) -> None:
    content, words = HOSTILE[name]
    photos(world.home / "photos")
    (world.home / "link").symlink_to(world.path / "treasure")
    (world.home / "t.csv").write_bytes(content)
    if words:
        world.refused("train", "t.csv", words=words)
        answer = world.epass("check", "t.csv")
        told = answer.out + answer.err
        assert answer.code == (1 if answer.out else 2), "it looks at what can be read, and ends with a complaint"
        assert bool(answer.err) is not bool(answer.out)
        assert re.search(words, told)
        assert len(told) < 4000
        assert "\x1b" not in told
    else:
        assert world.epass("check", "t.csv").err == ""


@pytest.mark.parametrize("content", ["pickle", "nothing", "footer", "hollow"])
def test_a_parquet_file_that_is_none(world: World, content: str) -> None:
    path = world.home / "t.parquet"
    data = {"pickle": world.bomb, "nothing": b"", "footer": b"PAR1" + b"\xff" * 64 + b"\xff\xff\xff\x7fPAR1"}
    if content == "hollow":
        hollow(path, 2**33)
    else:
        path.write_bytes(data[content])
    world.refused("check", "t.parquet", words="cannot be read|needs pyarrow")


def test_parquet_files_that_blow_up(world: World) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    rows = pyarrow.array(["x" * 2**20]).dictionary_encode().take(pyarrow.array([0] * 3_000))
    parquet.write_table(pyarrow.table({"path": rows, "label": ["a"] * 3_000}), world.home / "t.parquet")
    world.refused("check", "t.parquet", words="unpacks to more than")
    parquet.write_table(
        pyarrow.table({"path": pyarrow.nulls(10_000_001), "label": pyarrow.nulls(10_000_001)}), world.home / "n.parquet"
    )
    world.refused("check", "n.parquet", words="10,000,001 rows")
    damaged = bytearray((world.home / "t.parquet").read_bytes())
    damaged[4:200] = bytes(196)
    (world.home / "d.parquet").write_bytes(damaged)
    world.refused("check", "d.parquet", words="cannot be read|has no path|no path")


def test_no_name_is_a_formula_in_the_table_of_predictions(world: World, run: Path, change) -> None:
    names = [f"{first}cmd.png" for first in "=+-@\t\r"]
    folder = world.home / "new"
    folder.mkdir()
    for name in names:
        (folder / name).write_bytes(png(10, 10))
    change("model.json", classes=[f"{'=+-@'[number % 4]}HYPERLINK({number})" for number in range(10)])
    assert world.epass("predict", "run", "new").code == 0
    with (world.home / "predictions.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert sorted(row["file"] for row in rows) == sorted(f"./{name}" for name in names)
    assert all((folder / row["file"]).is_file() for row in rows)
    assert all(row["prediction"].startswith("'") for row in rows)
