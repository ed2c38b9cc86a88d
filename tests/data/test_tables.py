from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
from PIL import Image

from epass.data import open_dataset
from epass.data.read.tables import list_table

ROWS = [("a/1.png", "cat", "train"), ("a/2.png", "", ""), ("3.png", "dog", "Training"), ("4.png", "dog", "test")]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A folder with gray images 1.png to 4.png, some of them deeper."""
    root = tmp_path / "photos"
    (root / "a").mkdir(parents=True)
    for level, (name, _, _) in enumerate(ROWS, 1):
        Image.new("L", (8, 8), level).save(root / name)
    return root


def write(home: Path, text: str, name: str = "birds.csv", encoding: str = "utf-8") -> str:
    (home / name).write_text(text, encoding=encoding)
    return str(home / name)


def test_rows_become_images_labels_and_a_test_set(home: Path) -> None:
    lines = ["path,label,split", *(",".join(row) for row in ROWS)]
    made = open_dataset(write(home, "\n".join(lines)))
    assert (made.name, made.classes) == ("birds", ("cat", "dog"))
    assert made.train.pixels.shape == (3, 3, 32, 32)
    assert made.train.pixels[:, 0, 0, 0].tolist() == [1, 2, 3]
    assert made.train.labels.tolist() == [0, -1, 1]
    assert made.test is not None
    assert (made.test.pixels[:, 0, 0, 0].tolist(), made.test.labels.tolist()) == ([4], [1])


@pytest.mark.parametrize(
    ("text", "name", "encoding"),
    [
        ("File,Class\n3.png,x\n4.png,y\n", "t.csv", "utf-8"),
        ("filename;id;category\n 3.png ;1;x\n4.png;2; y\n", "t.csv", "utf-8-sig"),  # as a German spreadsheet does
        ('image_path\tlabel\n"3.png"\tx\n\n4.png\ty\n', "T.TSV", "utf-8"),
        ("img,label,path\nnone,x,3.png\nnone,y,4.png\n", "t.csv", "utf-8"),  # 'path' is the more usual name
    ],
)
def test_usual_spellings_are_understood(home: Path, text: str, name: str, encoding: str) -> None:
    made = open_dataset(write(home, text, name, encoding))
    assert made.train.pixels[:, 0, 0, 0].tolist() == [3, 4]
    assert made.classes == ("x", "y")
    assert made.test is None


def test_columns_can_be_named(home: Path, refused) -> None:
    path = write(home, "where,who,label\n3.png,crow,1\n4.png,wren,1\n")
    with refused("birds.csv' is called 'path' or the like", "'where', 'who', 'label'", "path_column"):
        open_dataset(path)
    assert open_dataset(path, path_column="where", label_column="who").classes == ("crow", "wren")
    with refused("Unknown column of", "'wher'", "did you mean 'where'?"):
        open_dataset(path, path_column="wher")
    with refused("the single class '1'", "column 'label'"):
        open_dataset(path, path_column="where")


def test_class_numbers_are_in_the_order_of_numbers(home: Path) -> None:
    made = open_dataset(write(home, "path,label\n3.png,10\n4.png,9\na/1.png,9\n"))
    assert made.classes == ("9", "10")
    assert made.train.labels.tolist() == [1, 0, 0]


@pytest.mark.parametrize("name", ["val", "Valid", "validation", "dev"])
def test_validation_images_are_kept_apart_or_are_the_test(home: Path, name: str) -> None:
    rows = f"path,label,split\n4.png,y,{name}\n3.png,x,train\na/1.png,y,\n"
    made = open_dataset(write(home, rows))
    assert made.train.labels.tolist() == [0, 1]
    assert made.test is not None
    assert (made.test_names, made.test.labels.tolist(), made.validation) == (("4.png",), [1], 0)
    assert made.parts == {name: "test images, since there are no others"}
    made = open_dataset(write(home, rows + "a/2.png,x,test\n"))
    assert made.train_names == ("3.png", "a/1.png", "4.png")
    assert (made.test_names, made.validation) == (("a/2.png",), 1)
    assert made.parts == {name: "validation images", "test": "test images"}


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("", ("is empty", "such as path and label")),
        ("path,path\n3.png,4.png\n", ("two columns called 'path'", "rename")),
        ("path,label\n3.png,x\n4.png\n", ("Row 3", "has 1 cells", "2 columns")),
        ('path,label\n"3.png,x\n', ("not a proper CSV file",)),
        ("path,label\n3.png,\n4.png,\n", ("column 'label'", "no class", "label some")),
        ("path,label\n3.png,x\n\nnone.png,y\n", ("none.png' in row 4", "no such file")),
        ("path,label\n3.png,x\n,y\n", ("Row 3", "has no path")),
        ("path,label\n3.png,x\na,y\n", ("a' in row 3", "no such file")),
        ("path,label\n3.png,x\n../secret.png,y\n", ("../secret.png' in row 3", "outside of")),
        ("path,label\n3.png,x\n..\\secret.png,y\n", ("..\\secret.png' in row 3", "outside of")),
        ("path,label\n3.png,x\na\\none.png,y\n", ("a\\none.png' in row 3", "no such file")),
        ("path,label\n3.png,x\na\\1.png,y\na/1.png,y\n", ("Rows 3 and 4", "both name")),
        ("path,label\n3.png,x\n/etc/hosts,y\n", ("'/etc/hosts'", "outside of")),
        ("path,label\n3.png,x\nlink.png,y\n", ("link.png' in row 3", "outside of")),
        ("path,label\n3.png,x\n" + "n" * 300 + ".png,y\n", ("row 3", "no")),
        ("path,label\n3.png,x\na/../3.png,y\n", ("Rows 2 and 3", "both name", "remove one")),
        ("path,label,split\n3.png,x,train\n3.png,x,test\n", ("Rows 2 and 3", "both name")),
        ("path,label,split\n3.png,x,later\n", ("Row 2", "split 'later'", "train, val or test")),
        ("path,label,split\n3.png,x,test\n4.png,,test\n", ("Row 3", "test image without a label")),
        ("path,label,split\n3.png,x,\n4.png,y,\na/1.png,yy,test\n", ("Unknown test class 'yy'", "did you mean 'y'?")),
    ],
)
def test_mistakes_in_a_table(refused, home: Path, text: str, parts: tuple[str, ...]) -> None:
    Image.new("L", (8, 8)).save(home.parent / "secret.png")
    (home / "link.png").symlink_to(home.parent / "secret.png")
    with refused(*parts):
        open_dataset(write(home, text))


def test_paths_may_be_written_as_windows_does(home: Path) -> None:
    made = open_dataset(write(home, "path,label\n3.png,x\n4.png,y\na\\1.png,y\n.\\a\\2.png,y\n"))
    assert made.train_names == ("3.png", "4.png", "a/1.png", "a/2.png")
    (home / "a\\1.png").write_bytes((home / "3.png").read_bytes())  # elsewhere, that is a name like any other
    made = open_dataset(write(home, "path,label\n3.png,x\na\\1.png,y\na/1.png,y\n"))
    assert len(made.train) == 3


def test_all_rows_without_a_file_are_reported_or_left_out(refused, home: Path) -> None:
    (home / "2.png").write_text("no image")
    path = write(home, "path,label\n1.png,x\n3.png,x\n../out.png,y\n2.png,y\n4.png,y\n")
    with refused(
        "3 images of", "birds.csv' cannot be used", "'1.png' in row 2", "'../out.png' in row 4", "'2.png' cannot"
    ):
        open_dataset(path)
    made = open_dataset(path, skip_unreadable=True)
    assert (made.train_names, made.train.labels.tolist()) == (("3.png", "4.png"), [0, 1])
    assert [name for name, _ in made.skipped] == ["1.png", "../out.png", "2.png"]
    path = write(home, "path,label\n3.png,x\n4.png,y\n1.png,z\n")
    with refused("None of the labeled images of class 'z'"):
        open_dataset(path, skip_unreadable=True)


def test_other_encodings_are_refused(refused, home: Path) -> None:
    with refused("not UTF-8 text", "save it"):
        open_dataset(write(home, "path,label\n3.png,Möwe\n", encoding="latin-1"))


def test_a_relative_table_and_an_absolute_path_inside(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(home.parent)
    write(home, f"path,label\n{home}/3.png,x\n4.png,y\n")
    assert open_dataset("photos/birds.csv").train.pixels[:, 0, 0, 0].tolist() == [3, 4]


class FakeParquet:
    """As much of pyarrow.parquet.ParquetFile as is used."""

    content: dict[str, list[object]]

    def __init__(self, path: Path) -> None:
        if path.read_bytes()[:4] != b"PAR1":
            raise ValueError("Parquet magic bytes not found in footer. Either the file is corrupted or not parquet.")
        self.schema_arrow = SimpleNamespace(names=list(self.content))
        self.metadata = SimpleNamespace(num_rows=len(self.content["path"]))

    def iter_batches(self, rows: int, columns: list[str]) -> Iterator[SimpleNamespace]:
        yield SimpleNamespace(
            nbytes=rows,
            column=lambda name: SimpleNamespace(to_pylist=lambda: self.content[columns[columns.index(name)]]),
        )


def test_parquet_tables(refused, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parquet, package = ModuleType("pyarrow.parquet"), ModuleType("pyarrow")
    parquet.ParquetFile, package.parquet = FakeParquet, parquet  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "pyarrow", package)
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", parquet)
    path = write(home, "PAR1", "t.parquet")
    paths: list[object] = ["a/1.png", "a/2.png", "3.png", "4.png"]
    FakeParquet.content = {"path": paths, "pixels": [{}] * 4, "label": [0.0, None, float("nan"), 1.0]}
    made = open_dataset(path)
    assert made.classes == ("0", "1")
    assert made.train.labels.tolist() == [0, -1, -1, 1]
    FakeParquet.content["path"] = [{"bytes": b""}] * 4
    with refused("The column 'path'", "dict values", "from_huggingface"):
        open_dataset(path)
    FakeParquet.content["path"] = ["3.png", None, "4.png", ""]
    with refused("Row 2", "has no path"):
        open_dataset(path)
    with refused("damaged.parquet' cannot be read (Parquet magic bytes not found in footer)", "save it again"):
        open_dataset(write(home, "none", "damaged.parquet"))


def test_parquet_without_pyarrow(refused, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with refused("t.parquet' needs pyarrow", "pip install pyarrow"):
        open_dataset(write(home, "PAR1", "t.parquet"))


def test_parquet_with_pyarrow(refused, home: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow", reason="needs the extra 'parquet'")
    from pyarrow import parquet

    columns = {"file": ["3.png", "4.png", "a/1.png"], "image": [{"bytes": b"x"}] * 3, "class": [1, 0, None]}
    parquet.write_table(pyarrow.table(columns), home / "t.parquet")
    made = open_dataset(str(home / "t.parquet"))
    assert (made.classes, made.train.labels.tolist()) == (("0", "1"), [1, 0, -1])
    with refused("The column 'image'", "dict values"):
        open_dataset(str(home / "t.parquet"), path_column="image")
    with refused("cannot be read", "save it again"):
        open_dataset(write(home, "none", "damaged.parquet"))


def test_every_folder_of_a_table_is_looked_up_once(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    resolved, resolve = [], Path.resolve
    monkeypatch.setattr(Path, "resolve", lambda path: resolved.append(path) or resolve(path))
    path = write(home, "path,label\na/1.png,x\na/2.png,\n3.png,y\n")
    assert len(list_table(Path(path)).train) == 3
    assert resolved == [home, home / "a"]


@pytest.mark.parametrize("way", ["linked/1.png", "alias.png", "a/../a/1.png", "linked/../a/1.png"])
def test_a_row_leads_to_the_file_that_its_links_lead_to(refused, home: Path, way: str) -> None:
    (home / "linked").symlink_to("a")
    (home / "alias.png").symlink_to("a/1.png")
    found = list_table(Path(write(home, f"path,label\n{way},x\n3.png,y\n")))
    assert found.train == [home / "a" / "1.png", home / "3.png"]
    with refused("Rows 2 and 3", "remove one"):
        list_table(Path(write(home, f"path,label\n{way},x\na/1.png,x\n3.png,y\n")))


def test_a_link_out_of_the_folder_of_a_table_is_not_followed(home: Path) -> None:
    outside = home.parent / "outside"
    outside.mkdir()
    (outside / "1.png").write_bytes((home / "3.png").read_bytes())
    (home / "away").symlink_to(outside)
    found = list_table(Path(write(home, "path,label\n3.png,x\naway/1.png,x\n4.png,y\naway/1.png,y\n")))
    assert found.train == [home / "3.png", home / "4.png"]
    assert [reason for _, reason in found.problems] == [
        f"in row {row} lies outside of the table's folder" for row in (3, 5)
    ]
