"""A folder of photos that is being labeled: all that people say about it, on disk before they are told so."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from itertools import chain
from pathlib import Path
from threading import Event, Lock, RLock, Thread
from time import monotonic
from typing import Literal, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from ..app.doubts import alike
from ..errors import InputError, shortened
from ..runs.lock import locked
from ..untrusted import printable
from .board import Board
from .hand import UPLOADED, Said, read_labels, resolve, write_labels
from .journal import LONG, Journal
from .photos import list_photos
from .steps import Change, ClassFacts, Conflict, Step
from .table import LabelTable

__all__ = ["HOME", "Change", "Changed", "ClassFacts", "Conflict", "Project"]

HOME = ".epass-studio"  # hidden, so that nobody takes what is in it for photos
LATE = 1.0  # seconds after which labels.csv has an answer
MOST_UNDONE = 200_000  # changes of images that are remembered for undoing
Scalar = TypeVar("Scalar", bound=np.generic)


class Changed(NamedTuple):
    """What happened, once it is on disk."""

    n: int  # number of the last record
    ids: list[int]  # of the images whose label or mark is another one
    said: str  # a sentence for people
    classes: bool  # whether classes or keys changed


class Project:
    """The labels of a folder of photos, for one process at a time and any number of its threads.

    Readers take no lock, and see a change when it is on disk. An image's number is its position among `names`, which
    holds as long as the project is open; on disk, images are called by their names.
    """

    def __init__(self, folder: Path, notice: Callable[[str], None]) -> None:
        """Open a folder, with what was said about it before; `notice` is told what people should know."""
        self.folder, self.home, self._notice = folder, folder / HOME, notice
        names, classes, self._odd = list_photos(folder, notice)
        self._root = folder.resolve()
        self._board = Board(names, classes)
        self._lock, self._due, self._closing = RLock(), Event(), Event()
        self._saving = Lock()  # taken before the other one
        self._listeners: list[Callable[[Changed], None]] = []
        self._history: deque[tuple[int, Step]] = deque()  # what can be undone
        self._remembered = 0  # changes of images in it
        self._closed = False
        self._complaint = ""
        self._doubted = ""  # the last sentence about classes
        self._warned = False  # of what labels.csv cannot say
        self.n = 0
        _make_home(self.home)
        self._held = ExitStack()
        try:
            self._held.enter_context(locked(self.home))
            _sweep(self.home)
            self._journal = Journal(self.home, notice)
            self._held.callback(self._journal.close)
            self._replay()
            self._table = LabelTable(folder, self.home, self._board.places)
            self._settle()
            self._doubt()
        except BaseException:
            self._held.close()
            raise
        self._due.set()  # who was killed, or lost the table, may have left one that lacks answers of the journal
        self._keeper = Thread(target=self._keep, name="labels", daemon=True)
        self._keeper.start()

    @property
    def names(self) -> Sequence[str]:
        """The paths of the images inside of the folder."""
        return self._board.names

    @property
    def labels(self) -> NDArray[np.int32]:
        """The class of each image, -1 for none; to be read only."""
        return _read_only(self._board.labels)

    @property
    def marks(self) -> NDArray[np.uint8]:
        """0 for none, 1 skip, 2 unsure, 3 none of these; to be read only."""
        return _read_only(self._board.marks)

    @property
    def keys(self) -> dict[str, str]:
        """The keys of actions."""
        return dict(self._board.keys)

    def classes(self) -> list[ClassFacts]:
        """The classes in the order in which they came, with their numbers, which no other class ever gets."""
        return self._board.facts()

    def answer(self, changes: Sequence[Change], tab: str) -> Changed:
        """Label, mark or clear images, all of them or none; a `Conflict` if one is no longer what the tab saw."""
        return self._do(lambda: self._board.answer(changes, tab))

    def add_class(self, name: str, tab: str = "") -> Changed:
        """A new class, with the next free key. What a tab "" does, any tab may undo."""
        return self._do(lambda: self._board.add(name, tab))

    def rename_class(self, id: int, name: str, tab: str = "") -> Changed:
        """Another name for a class; its labels follow."""
        return self._do(lambda: self._board.rename(id, name, tab))

    def merge_classes(self, id: int, into: int, tab: str = "") -> Changed:
        """Give all images of one class the label of another, and remove it."""
        return self._do(lambda: self._board.merge(id, into, tab))

    def remove_class(self, id: int, tab: str = "") -> Changed:
        """Remove a class that no image has."""
        return self._do(lambda: self._board.remove(id, tab))

    def set_key(self, what: int | str, key: str, tab: str = "") -> Changed:
        """Another key for a class, by number, or for an action, by name; a class may have none, ""."""
        return self._do(lambda: self._board.set_key(what, key, tab))

    def undo(self, tab: str) -> Changed:
        """Undo the last thing that a tab did and did not undo yet; a `Conflict` if others changed it since."""

        def plan() -> Step:
            for place in range(len(self._history) - 1, -1, -1):
                n, step = self._history[place]
                if step.tab in (tab, ""):
                    try:
                        return self._board.reverse(step, n, tab)
                    except Conflict:
                        self._forget(place)  # so that the next time, the step before is undone
                        raise
            raise InputError("There is nothing left to undo in this tab.")

        return self._do(plan)

    def path(self, id: int) -> Path:
        """The file of an image, as long as it is a plain one inside of the folder."""
        if not 0 <= id < len(self.names):
            raise InputError(f"There is no image {id}: the last one is {len(self.names) - 1}.")
        try:
            path = (self._odd.get(id) or self.folder / self.names[id]).resolve(strict=True)
            if path.is_file() and path.is_relative_to(self._root):
                return path
        except (OSError, RuntimeError):  # a link to itself is the latter
            pass
        raise InputError(f"'{shortened(self.names[id])}' is no longer a file in this folder: put it back.")

    def take_in(self, name: str, content: bytes, force: bool, tab: str = "") -> Changed:
        """Labels from a .csv table, Label Studio's .json or a .zip of class folders; `force` replaces other labels."""
        handed = read_labels(self._board.places, self.home, name, content)

        def plan() -> Step:
            said = resolve(self._board, handed, force)
            return self._board.take_in(said, lambda count: f"{_count(count)} from {shortened(printable(name))}", tab)

        return self._do(plan)

    def hand_out(self, kind: Literal["csv", "json", "folders"]) -> tuple[str, Iterator[bytes]]:
        """The name of a file, and its content in pieces: what `take_in` takes."""
        with self._lock:
            said = [Said(id, *facts) for id, facts in self._board.said()]
        return write_labels(self._root.name, self._board.places, said, self.path, kind)

    def write_labels(self) -> None:
        """Bring labels.csv up to date now, which otherwise follows within a second, and keep the journal short."""
        with self._saving:
            try:
                self._write_table()
                if self._journal.size > LONG:
                    self._compact()
                self._complaint = ""
            except (OSError, InputError) as problem:
                if str(problem) != self._complaint:
                    self._notice(f"The labels are safe, but labels.csv is not up to date: {problem}")
                self._complaint = str(problem)

    def on_change(self, listener: Callable[[Changed], None]) -> None:
        """Tell `listener` of every change, in the thread that made it, after the lock is free again."""
        self._listeners.append(listener)

    def close(self) -> None:
        """Write labels.csv, and let others open the folder; everything else is on disk already."""
        if self._closing.is_set():
            return
        self._closing.set()
        self._due.set()
        self._keeper.join()
        self.write_labels()
        with self._lock:
            self._closed = True
            self._held.close()

    def _do(self, plan: Callable[[], Step]) -> Changed:
        with self._lock:
            if self._closed:
                raise InputError("The studio is closing: start it again, and go on.")
            step = plan()
            changed = self._commit(step) if step else Changed(self.n, [], "Nothing changed", False)
        if changed.classes:
            self._doubt()
        for listener in self._listeners if step else ():
            listener(changed)
        return changed

    def _doubt(self) -> None:
        """Say of classes that may be one that they may be, once."""
        before, self._doubted = self._doubted, alike(known.name for known in self._board.classes.values())
        if self._doubted not in ("", before):
            self._notice(self._doubted)

    def _commit(self, step: Step) -> Changed:
        n = self.n + 1
        self._journal.append(step.record(n))
        ids = self._board.apply(step)
        self.n = n
        self._remember(n, step)
        self._due.set()
        return Changed(n, ids, step.said, bool(step.classes or step.keys))

    def _remember(self, n: int, step: Step) -> None:
        if step.undoes is not None:
            for place in [place for place, (m, _) in enumerate(self._history) if m == step.undoes]:
                self._forget(place)
        elif step.tab is not None:
            self._history.append((n, step))
            self._remembered += len(step.images) + 1
        while self._remembered > MOST_UNDONE and len(self._history) > 1:
            self._forget(0)

    def _forget(self, place: int) -> None:
        self._remembered -= len(self._history[place][1].images) + 1
        del self._history[place]

    def _replay(self) -> None:
        """Do again what the journal says."""
        state, records = self._journal.state, self._journal.records
        try:
            if state:
                self._board.restore(state)
                self.n = state["n"]
            for record in records:
                step = Step.read(record)
                if record["n"] > self.n:
                    self._board.apply(step)
                    self.n = record["n"]
                self._remember(record["n"], step)
        except (ValueError, KeyError, TypeError, IndexError, AttributeError) as problem:
            raise self._journal.damaged(f"Something ({shortened(str(problem))})") from None
        records.clear()

    def _settle(self) -> None:
        """Take over what the folder says: class folders, and what others wrote into labels.csv."""
        if step := self._board.settle():
            self._commit(step)
        self._board.lie_down()
        before = self.n
        changed = self._take_news()
        if changed.n > before:
            self._notice(f"{changed.said}.")

    def _take_news(self) -> Changed:
        news = self._table.news(self.n)
        board = self._board
        said: dict[str, str | int] = {name: label or self._folder_label(name) for name, label in news.items()}
        known = {name: label for name, label in said.items() if name in board.places}
        if strange := [name for name in said if name not in board.places]:
            more = f" and {len(strange) - 1:,} more" if len(strange) > 1 else ""
            self._notice(f"'{shortened(strange[0])}'{more} in labels.csv is no photo here: it is left as it stands.")
        return self._do(lambda: board.take_in(known, lambda n: f"{_count(n)} taken over from labels.csv", None))

    def _folder_label(self, name: str) -> str:
        """The label that an image has by its folder, by the name that the class has now."""
        place = self._board.places.get(name)
        folder = self._board.folders[place] if place is not None else ""
        return next((known.name for known in self._board.classes.values() if folder and folder in known.folders), "")

    def _keep(self) -> None:
        """Save now and then, until the end."""
        pause = LATE
        while self._due.wait() and not self._closing.wait(pause):  # so that the answers of a second are written at once
            self._due.clear()
            began = monotonic()
            self.write_labels()
            pause = max(LATE, 10 * (monotonic() - began))  # a table of 100,000 labels takes its time

    def _write_table(self) -> None:
        if self._table.changed():
            changed = self._take_news()
            if changed.ids:
                self._notice(f"{changed.said}.")
        board = self._board
        with self._lock:
            n, labels, classes = self.n, board.labels.copy(), board.classes
        texts = {id: known.name for id, known in classes.items()}

        def label_of(name: str) -> str | None:
            place = board.places.get(name)
            return None if place is None else texts.get(int(labels[place]), "")

        if not self._warned and np.any(board.in_folder & (labels < 0)):
            self._warned = True
            self._notice(
                "Photos in class folders have no label now, which labels.csv cannot say: 'epass train' takes their "
                "folder's until they are moved out of it."
            )
        labeled = np.flatnonzero(labels >= 0).tolist()
        others = {
            board.names[id]: texts[int(labels[id])] for id in labeled if texts[int(labels[id])] != board.folders[id]
        }
        self._table.write(n, label_of, others)

    def _compact(self) -> None:
        with self._lock:
            state, covered = {"n": self.n, **self._board.state()}, self._journal.size
        self._journal.write_snapshot(state)  # people go on answering meanwhile
        with self._lock:
            self._journal.shorten(covered)


def _make_home(home: Path) -> None:
    """The folder in which everything is kept; what a stranger put there must not lead elsewhere."""
    thumbs = home / "thumbs"
    if not home.is_symlink():
        try:
            home.mkdir(exist_ok=True)
            thumbs.mkdir(exist_ok=True)
        except OSError as problem:
            raise InputError(
                f"'{home.parent}' cannot be written to ({problem.strerror}), and labels are kept in it: give a copy."
            ) from None
    for path in chain([home], *(folder.iterdir() for folder in (home, thumbs) if folder.exists())):
        if path.is_symlink():
            raise InputError(f"'{path}' is a link, which nobody needs there: remove it.")


def _sweep(home: Path) -> None:
    """Remove what a process that was killed left behind."""
    for pattern in (f"{UPLOADED}*", ".*.part"):
        for left in home.glob(pattern):
            left.unlink()


def _count(count: int) -> str:
    """How many were changed, in words."""
    return f"{count:,} label{'s' * (count != 1)}"


def _read_only(array: NDArray[Scalar]) -> NDArray[Scalar]:
    view = array.view()
    view.flags.writeable = False
    return view
