"""Labels that are handed in and out: tables, tasks of Label Studio, and archives of class folders."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from pathlib import Path
from posixpath import normpath
from tempfile import NamedTemporaryFile
from typing import IO, Any, Literal, NamedTuple, cast
from urllib.parse import unquote

from ..app.label import agreed
from ..app.label_files import FILE, Answer, path_at, read_answers, read_sheet
from ..app.suggested import choice, csv_bytes, served_at
from ..data.read.ways import Ways
from ..errors import InputError, one_of, shortened
from ..untrusted import parse_json, printable, spreadsheet_path, spreadsheet_text
from .board import Board
from .steps import MARKS, Conflict, code_of

ENDINGS = (".csv", ".tsv", ".json", ".zip")
UPLOADED = ".import-"  # how the names of files begin that are being read
_OURS = b"epass"  # the comment of archives whose names are escaped
_PIECE = 2**20  # bytes that are handed out at a time
_UNSAFE = frozenset('/\\%:*?"<>|')  # what some system does not let a folder be called


class Said(NamedTuple):
    """An image about which something is said."""

    id: int
    name: str
    label: str
    mark: str


class Handed(NamedTuple):
    """What a file says, by image."""

    labels: dict[str, Answer]
    marks: dict[str, str]


def read_labels(places: Mapping[str, int], home: Path, name: str, content: bytes) -> Handed:
    """What somebody handed in under this name, if it is about images that are there."""
    ending = Path(name.replace("\0", "")).suffix.lower()
    if ending not in ENDINGS:
        raise InputError(
            f"'{shortened(printable(name))}' holds no labels: give a .csv table, what Label Studio exports as "
            ".json, or a .zip of class folders."
        )
    with NamedTemporaryFile(dir=home, prefix=UPLOADED, suffix=ending) as file:
        file.write(content)
        file.flush()
        path = Path(file.name)
        try:
            handed = _read(path, home.parent, places)
            for image in (*handed.labels, *handed.marks):
                if image not in places:
                    where = f" in {handed.labels[image].where}" if image in handed.labels else ""
                    raise InputError(
                        f"'{shortened(image)}'{where} of '{path}' is no photo of this folder: put the photo there and "
                        "start again, or leave it out."
                    )
        except InputError as problem:
            raise InputError(str(problem).replace(str(path), shortened(printable(name)))) from None
    return handed


def resolve(board: Board, handed: Handed, force: bool) -> dict[str, str | int]:
    """What images are to get; a label that would be replaced is a `Conflict` unless `force` says so."""
    said: dict[str, str | int] = {name: answer.label for name, answer in handed.labels.items()}
    said |= {name: code_of(None, mark) for name, mark in handed.marks.items()}
    known = {name: answer.known for name, answer in handed.labels.items()}
    odd = []
    for name, label in said.items():
        code = board.code(name)
        if code >= 0 and board.words(code) not in (label, known.get(name)):
            odd.append(name)
    if odd and not force:
        more = f" (and {len(odd) - 1:,} more like it)" if len(odd) > 1 else ""
        label = said[odd[0]]
        given = f"'{label}'" if isinstance(label, str) else f"marked '{board.words(label)}'"
        raise Conflict(
            f"'{shortened(odd[0])}' is '{board.words(board.code(odd[0]))}' so far and {given} in the file{more}: "
            "correct the file, or choose to replace labels.",
            [board.places[name] for name in odd],
        )
    return said


def _read(path: Path, folder: Path, places: Mapping[str, int]) -> Handed:
    if path.suffix == ".zip":
        return Handed(agreed(_read_folders(path, places), path), {})
    ways = Ways(folder, places, Path())
    answers = [one._replace(name=ways.find(one.name)) for one in read_answers(path, FILE)]
    marks = _marks_in_tasks(path) if path.suffix == ".json" else _marks_in_table(path)
    if path.suffix != ".json":  # as a spreadsheet needs what would be a formula
        answers = [_without_apostrophe(answer) for answer in answers]
    labels = agreed(answers, path) if answers or not marks else {}
    for mark in {*marks.values()}:
        one_of("mark", mark, MARKS)
    return Handed(labels, {name: mark for name, mark in marks.items() if name not in labels})


def _without_apostrophe(answer: Answer) -> Answer:
    bare = answer.label[1:]
    return answer._replace(label=bare) if spreadsheet_text(bare) == answer.label != bare else answer


def _marks_in_table(path: Path) -> dict[str, str]:
    sheet = read_sheet(path)
    at = next((at for at, name in enumerate(sheet.columns) if name.lower() == "mark"), None)
    files = path_at(path, sheet.columns)
    rows = [] if at is None else [(normpath(row[files].strip()), row[at].strip()) for row in sheet.rows]
    return {name: mark for name, mark in rows if mark}


def _marks_in_tasks(path: Path) -> dict[str, str]:
    tasks = parse_json(path.read_bytes())
    data = [task["data"] for task in tasks if isinstance(task.get("data"), dict)]
    return {str(one[FILE]): str(one["mark"]) for one in data if one.get(FILE) and one.get("mark")}


def _read_folders(path: Path, places: Mapping[str, int]) -> list[Answer]:
    """The images in an archive of class folders, which may have one folder around all of them."""
    from ..data.read.archives import list_archived
    from ..data.read.folder import Problems

    members = [str(member.path) for member in list_archived(path, Problems()) if not isinstance(member, Path)]
    with zipfile.ZipFile(path) as archive:
        ours = archive.comment == _OURS
    paths = [[unquote(part) if ours else part for part in member.split("/")] for member in members]
    around = {parts[0] for parts in paths}
    answers = _by_folder(paths, places)
    if len(around) == 1 and min(map(len, paths)) > 2 and any(answer.name not in places for answer in answers):
        inner = _by_folder([parts[1:] for parts in paths], places)
        answers = inner if all(answer.name in places for answer in inner) else answers
    return answers


def _by_folder(paths: Sequence[list[str]], places: Mapping[str, int]) -> list[Answer]:
    answers = []
    for parts in paths:
        inside, whole = "/".join(parts[1:]), "/".join(parts)
        if not inside:
            raise InputError(f"The image '{shortened(whole)}' lies in no class folder: put it into one.")
        name = whole if whole in places and inside not in places else inside
        answers.append(Answer(name, parts[0].strip(), "", f"folder '{shortened(parts[0])}'"))
    return answers


def write_labels(
    folder: str,
    names: Container[str],
    said: Sequence[Said],
    place: Callable[[int], Path],
    kind: Literal["csv", "json", "folders"],
) -> tuple[str, Iterator[bytes]]:
    """The name of a file, and its content in pieces.

    Args:
        folder: What the folder of photos is called.
        names: Of all photos.
        said: What is said, about images about which something is.
        place: Where an image lies.
        kind: What is written.
    """
    one_of("kind of file", kind, ("csv", "json", "folders"))
    stem = "".join(letter if letter.isascii() and (letter.isalnum() or letter in "._-") else "-" for letter in folder)
    if kind == "csv":
        rows = [[spreadsheet_path(one.name), spreadsheet_text(one.label), one.mark] for one in said]
        return f"{stem}-labels.csv", iter([csv_bytes([[FILE, "label", "mark"], *rows])])
    if kind == "json":
        return f"{stem}-labels.json", _tasks(folder, said)
    return f"{stem}-labeled.zip", _archive([one for one in said if one.label], names, place)


def _tasks(folder: str, said: Sequence[Said]) -> Iterator[bytes]:
    """Tasks that Label Studio imports. It serves the files if its document root is the folder around the photos."""
    for number, one in enumerate(said):
        facts = {"image": served_at(folder, one.name), FILE: one.name}
        task: dict[str, Any] = {"data": facts | ({"mark": one.mark} if one.mark else {})}
        if one.label:
            task["annotations"] = [{"result": [choice(one.label)]}]
        yield (b",\n" if number else b"[\n") + json.dumps(task, ensure_ascii=False).encode()
    yield b"\n]\n" if said else b"[]\n"


def _archive(said: Sequence[Said], names: Container[str], place: Callable[[int], Path]) -> Iterator[bytes]:
    """An archive with a folder for each class, made while it is sent."""
    pipe, lacking = _Pipe(), []
    with zipfile.ZipFile(cast(IO[bytes], pipe), "w") as archive:  # images do not shrink
        archive.comment = _OURS
        for one in said:
            folder = _escaped(one.label)
            inside = one.name.removeprefix(f"{one.label}/")  # no class folder within a class folder
            inside = one.name if inside in names else inside
            try:
                path = place(one.id)
                info = zipfile.ZipInfo.from_file(
                    path, f"{folder}/{'/'.join(map(_escaped, inside.split('/')))}", strict_timestamps=False
                )
                file = path.open("rb")
            except (InputError, OSError):
                lacking.append(one.name)
                continue
            with file, archive.open(info, "w") as member:
                while piece := file.read(_PIECE):
                    member.write(piece)
                    yield pipe.take()
        if lacking:
            archive.writestr("left-out.txt", "\n".join(["These could not be read:", *lacking, ""]))
    yield pipe.take()


class _Pipe:
    """What an archive is written to, and taken from."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []

    def write(self, piece: bytes) -> int:
        self._pieces.append(bytes(piece))
        return len(piece)

    def flush(self) -> None:
        pass

    def take(self) -> bytes:
        whole = b"".join(self._pieces)
        self._pieces.clear()
        return whole


def _escaped(name: str) -> str:
    """A name that is one part of a path on any system; `unquote` gives it back."""
    first, last = name[:1], name[-1:]
    letters = [f"%{ord(letter):02X}" if letter in _UNSAFE else letter for letter in name]
    if first == ".":
        letters[0] = "%2E"
    if last == "." and len(name) > 1:
        letters[-1] = "%2E"
    return "".join(letters)
