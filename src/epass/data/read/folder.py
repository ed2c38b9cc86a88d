"""A folder of image files as a data set, on disk or in an archive.

Three layouts are understood, all with folders of any depth inside a class:

- `labeled/<class>/...` or `train/<class>/...`, optionally `unlabeled/...`, `val/<class>/...` and `test/<class>/...`
- `<class>/...`, where every image has a label, optionally beside `unlabeled/...` or `test/<class>/...` of these classes
- images in no class folder, some of which have their label in the table `labels.csv` beside them

Folders that can be read both ways are refused, and what is not used is listed.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from ...errors import InputError
from ...files import as_text
from .given_labels import GivenLabels, find_labels, of_something_else, own_table
from .kinds import EXTENSIONS, NOT_READ, only_others
from .listing import (
    ROLES,
    Listing,
    Place,
    cannot_be_used,
    check_number,
    name_inside,
    names_inside,
    number,
    quoted,
    taken_for,
)

DEEPEST = 100  # folders in folders: people have a few, and a small archive can hold any number
LABELED = ("labeled", "labelled")  # whoever has such a folder means no other one to be a class
RUN = ("recipe.toml", "environment.json")  # what every run folder holds
Problem = tuple[Place, str]  # what cannot be used and why, as a text to be put behind its name


class Problems(list[Problem]):
    """What is found and cannot be used; image files of kinds that are not read are counted, by ending.

    Folders of runs beside the classes are `runs`: whoever trains in the folder of the photos gets them there.
    Images in these are figures.
    """

    def __init__(self) -> None:
        super().__init__()
        self.passed: Counter[str] = Counter()
        self.runs: list[Place] = []


def list_folder(path: Path, *, labels_needed: bool = True) -> Listing:
    """The images under `path`.

    Classes and images are in the order of their paths, so it does not matter which file system they lie on.
    """
    table = own_table(path)
    given = find_labels(table)
    if given is None and table.is_file():
        entries = _entries(path, path, Problems())
        folders = [entry for entry, is_folder in entries if is_folder]
        if len(folders) < len(entries) and not any(folder.name.lower() in ROLES for folder in folders):
            raise of_something_else(table)  # images in no folder have their classes nowhere else
    return list_layout(path, as_text(path.resolve().name), path, given, labels_needed=labels_needed)


def list_layout(
    path: Place, name: str, root: Path, given: GivenLabels | None = None, *, labels_needed: bool = True
) -> Listing:
    """The images under a folder on disk or in an archive, which is called `name` and was found at `root`.

    Without `labels_needed` there may be labels of a single class, or none, and images for tests are left out.
    """
    problems = Problems()
    entries = _entries(path, path, problems)
    folders = [entry for entry, is_folder in entries if is_folder]
    loose = [entry for entry, is_folder in entries if not is_folder]
    sorted_by_hand = given is None and labels_needed  # every labeled image lies in the folder of its class
    parts, beside = _find_parts(path, folders, problems, sorted_by_hand)
    if not parts or beside:
        problems = Problems()  # they are found again
        if sorted_by_hand and loose and not folders and root.is_dir():
            raise InputError(
                f"The images in '{path}' have no classes: give every class a folder, or let 'epass suggest {path}' say "
                "which ones to label."
            )
    passed_by = parts and not beside and not {"labeled", "unlabeled"}.isdisjoint(parts)
    in_no_folder = [] if sorted_by_hand or passed_by else loose
    classes, train, labels = _list_training(path, parts, beside, in_no_folder, problems)
    taken = taken_for({role: as_text(folder.name) for role, folder in parts.items()})
    if beside:
        taken["the others"] = "labeled images, a class each"
    if "unlabeled" in parts and -1 not in labels:
        taken[as_text(parts["unlabeled"].name)] += ", but it holds none"
    lacking: list[tuple[str, str]] = []
    if given is not None:
        known = [classes[label] if label >= 0 else "" for label in labels]
        texts, lacking = given.apply(names_inside(train, root), known)
        classes = sorted({*filter(None, texts)})
        numbers = {"": -1} | {text: number for number, text in enumerate(classes)}
        labels = [numbers[text] for text in texts]
        taken[given.table.name] = f"the labels of {sum(bool(label) for label, _ in given.rows.values()):,} images"
    if labels_needed:
        if lacking and len(classes) < 2:  # which they may be the reason of
            raise cannot_be_used(lacking, root)
        if len(classes) == 1 and not parts:
            _refuse_outer(path, folders)
        check_number(classes, f"The folder '{parts.get('labeled', path)}'")
    validation, test = (
        _list_scored(parts[role], path, role, classes, problems) if role in parts and labels_needed else ([], [])
        for role in ("validation", "test")
    )
    if "test" not in parts:
        validation, test = ([], []), validation
    unused = [folder for folder in folders if folder not in parts.values()] if parts and not beside else []
    left = len(loose) - len(in_no_folder) if parts else 0
    return Listing(
        name,
        root,
        classes,
        train + validation[0],
        labels + validation[1],
        *test,
        validation=len(validation[0]),
        parts=taken,
        unused=[as_text(folder.name) for folder in unused]
        + names_inside(problems.runs, root)
        + ([f"{left:,} image{'s' * (left != 1)} beside the folders"] if left else []),
        problems=named(problems, root) + lacking,
        passed_over=problems.passed,
    )


def _list_training(
    path: Place, parts: dict[str, Place], beside: bool, loose: list[Place], problems: Problems
) -> tuple[list[str], list[Place], list[int]]:
    """As `list_classes`, with the unlabeled images behind.

    The classes may lie `beside` the parts; `loose` are unlabeled images in no folder.
    """
    classes: list[str] = []
    train: list[Place] = []
    labels: list[int] = []
    if "labeled" in parts:
        classes, train, labels = _list_labeled(path, parts, problems)
    elif beside or not (parts or loose):
        others = {entry.name for entry in (*parts.values(), *loose)}
        classes, train, labels = list_classes(path, path, problems, others)
    unlabeled: list[Place] = []
    if "unlabeled" in parts:
        unlabeled = list(walk(parts["unlabeled"], path, problems))
        _check_open(parts["unlabeled"], problems)
    if parts:
        unlabeled += loose
    elif loose:
        unlabeled = list(walk(path, path, problems))
    return classes, train + unlabeled, labels + [-1] * len(unlabeled)


def _find_parts(
    path: Place, folders: Sequence[Place], problems: Sequence[Problem], sorted_by_hand: bool
) -> tuple[dict[str, Place], bool]:
    """The folders that are parts of a data set, by their role, and whether the others beside these are classes.

    There are no parts where every folder is a class.
    """
    for place, reason in problems:
        if place is path or place.name.lower() in ROLES:  # without a whole part, it would be another data set
            raise _closed(place, reason)
    parts: dict[str, Place] = {}
    for folder in folders:
        role = ROLES.get(folder.name.lower())
        if role in parts:
            both = quoted([parts[role].name, folder.name])
            raise InputError(f"'{path}' has the folders {both}, which both read like the {role} images: keep one.")
        if role is not None:
            parts[role] = folder
    if not parts or any(folder.name.lower() in LABELED for folder in folders):
        return parts, False
    others = [folder for folder in folders if folder not in parts.values()]
    beside = [folder.name for folder in others if not _holds_runs(folder) and any(walk(folder, path, Problems()))]
    if beside and not _are_classes(beside, path, parts):
        raise _two_ways(path, parts, f"move {quoted(beside)} elsewhere")
    if "labeled" not in parts and not beside and sorted_by_hand:
        raise _two_ways(path, parts, "add the labeled images as labeled/<class>/")
    return parts, bool(beside)


def _are_classes(names: Sequence[str], path: Place, parts: dict[str, Place]) -> bool:
    """Whether folders beside the parts can only be classes.

    Nobody calls a class 'unlabeled', and the folders in a part where answers are compared with the truth are classes.
    """
    if "labeled" in parts or "unlabeled" in parts:
        return "labeled" not in parts
    inside = {entry.name for part in parts.values() for entry, _ in _entries(part, path, Problems())}
    return inside <= {*names}


def _refuse_outer(path: Place, folders: Sequence[Place]) -> None:
    """Name the folder inside of another one that is meant, if it holds more than one."""
    for folder in folders:
        if sum(is_folder for _, is_folder in _entries(folder, path, Problems())) > 1:
            raise InputError(
                f"'{path}' holds the single class '{as_text(folder.name)}', which holds folders itself: give "
                f"'{folder}' if these are the classes, or add a second class."
            )


def _two_ways(path: Place, parts: dict[str, Place], advice: str) -> InputError:
    names = quoted([folder.name for folder in parts.values()])
    return InputError(
        f"'{path}' can be read in two ways: as parts of a data set ({names}), then {advice}, or as classes, then put "
        "the folders of all classes into one called 'labeled'."
    )


def _list_labeled(path: Place, parts: dict[str, Place], problems: Problems) -> tuple[list[str], list[Place], list[int]]:
    """As `list_classes`, where the classes are certain to be some."""
    folder = parts["labeled"]
    if folder.name.lower() not in LABELED and _is_flat(folder, path):
        raise _two_ways(path, parts, f"give every class a folder in '{folder.name}'")
    classes, train, labels = list_classes(folder, path, problems)
    no_classes = [name for name in classes if name.lower() in ROLES and name.lower().endswith(LABELED)]
    if no_classes or all(name.lower() in ROLES for name in classes):
        raise InputError(
            f"'{folder}' can be read in two ways: with {quoted(no_classes or classes)} as parts of a data set, then "
            f"move them to '{path}', or as classes, then call them otherwise."
        )
    return classes, train, labels


def _list_scored(
    folder: Place, root: Place, role: str, classes: Sequence[str], problems: Problems
) -> tuple[list[Place], list[int]]:
    """The images of a part in which answers are compared with the truth, and their labels."""
    if _is_flat(folder, root):
        raise InputError(
            f"'{folder}' holds images without classes, with which no answer can be compared: give every class a folder "
            "in it, or call it 'unlabeled' to train on its images."
        )
    names, files, labels = list_classes(folder, root, problems)
    numbers = number(names, classes, f"{role} class")
    return files, [numbers[label] for label in labels]


def list_classes(
    folder: Place, root: Place, problems: Problems, others: Collection[str] = ()
) -> tuple[list[str], list[Place], list[int]]:
    """The classes in `folder`, the image files in them, and the labels of these; no class has a name of `others`."""
    paths: list[Place] = []
    labels: list[int] = []
    classes: list[str] = []
    for entry, is_folder in _entries(folder, root, problems):
        if entry.name in others:
            continue
        if not is_folder:
            raise InputError(f"The image '{entry}' lies outside of the class folders: move it into one of them.")
        if _holds_runs(entry):
            problems.runs.append(entry)
            continue
        known, before = len(problems), Counter(problems.passed)
        found = list(walk(entry, root, problems))
        if not found and len(problems) == known:
            if passed := problems.passed - before:
                raise only_others(f"The class folder '{entry}'", passed)
            raise InputError(f"The class folder '{entry}' holds no image: add images or remove it.")
        paths += found
        labels += [len(classes)] * len(found)
        classes.append(as_text(entry.name))
    _check_open(folder, problems)
    if not classes:
        if problems.passed:
            raise only_others(f"The folder '{folder}'", problems.passed)
        raise InputError(f"The folder '{folder}' holds no class: give every class a folder with its images.")
    return classes, paths, labels


def _holds_runs(folder: Place, levels: int = 2) -> bool:
    """Whether a folder is a run or has some in its folders, or a comparison there, and no image lies beside these."""
    with suppress(OSError):
        if _is_run(folder):
            return True
        folders = []
        for entry in folder.iterdir() if levels else ():
            if entry.is_dir():
                folders.append(entry)
            elif entry.suffix.lower() in EXTENSIONS:  # a class, of which no more needs to be looked at
                return False
        return any(_holds_runs(entry, levels - 1) for entry in folders)
    return False


def _is_run(folder: Place) -> bool:
    if isinstance(folder, Path):
        return all((folder / name).is_file() for name in RUN)
    return {entry.name for entry in folder.iterdir()} >= {*RUN}


def walk(folder: Place, root: Place, problems: Problems) -> Iterator[Place]:
    """Every image file under `folder`, in the order of the paths; what cannot be used is put into `problems`."""
    found = 0
    way = [(folder, iter(_entries(folder, root, problems)), 0)]  # folders, what is left in them, images before them
    while way:
        place, left, before = way[-1]
        entry, is_folder = next(left, (None, False))
        if entry is None:
            way.pop()
            if way and found == before and place.suffix.lower() in EXTENSIONS:
                problems.append((place, "is called like an image, but is a folder without any"))
        elif not is_folder:
            found += 1
            yield entry
        elif len(way) == DEEPEST:
            problems.append((entry, f"lies more than {DEEPEST} folders deep"))
        else:
            way.append((entry, iter(_entries(entry, root, problems)), found))


def named(problems: Sequence[Problem], root: Path) -> list[tuple[str, str]]:
    """The same with the names of the files inside of the data set, and in their order."""
    return sorted((name_inside(place, root), reason) for place, reason in problems)


def _entries(folder: Place, root: Place, problems: Problems) -> list[tuple[Place, bool]]:
    """The images and folders in a folder, in the order of their names, and whether each is a folder."""
    found, others = [], []
    try:
        entries: list[Place] = sorted(folder.iterdir(), key=lambda entry: entry.name)
    except OSError as error:
        problems.append((folder, f"cannot be opened ({error.strerror})"))
        return []
    plain = _plain(folder)
    for entry in entries:
        if entry.name.startswith("."):
            continue
        try:
            known = plain.get(entry.name)
            reason, is_folder = (_leads_out(entry, root), entry.is_dir()) if known is None else ("", known)
        except OSError as error:
            reason, is_folder = f"cannot be looked at ({error.strerror})", False
        if reason:
            problems.append((entry, reason))
        elif is_folder or (ending := entry.suffix.lower()) in EXTENSIONS:
            found.append((entry, is_folder))
        elif ending in NOT_READ:
            others.append((entry.name[: -len(ending)], ending))
    if others:  # cameras write a raw file beside a photo, and editors their own: nothing of these is missing
        read = {entry.name[: -len(entry.suffix)] for entry, is_folder in found if not is_folder}
        problems.passed.update(ending for name, ending in others if name not in read)
    return found


def _plain(folder: Place) -> dict[str, bool]:
    """Whether each file in a folder is a folder itself, without the links.

    The system says so along with the names: to ask for each of 100,000 photos would take seconds.
    """
    if not isinstance(folder, Path) or not os.access(folder, os.X_OK):  # of what can be listed, but not opened
        return {}
    with suppress(OSError), os.scandir(folder) as entries:
        return {entry.name: entry.is_dir(follow_symlinks=False) for entry in entries if not entry.is_symlink()}
    return {}


def _is_flat(folder: Place, root: Place) -> bool:
    """Whether a folder holds images, but no folder with images."""
    entries = _entries(folder, root, Problems())
    return any(not is_folder for _, is_folder in entries) and not any(
        is_folder and any(walk(entry, root, Problems())) for entry, is_folder in entries
    )


def _check_open(folder: Place, problems: Sequence[Problem]) -> None:
    for place, reason in problems:
        if place is folder:
            raise _closed(place, reason)


def _closed(place: Place, reason: str) -> InputError:
    return InputError(f"'{place}' {reason}: put a folder there that can be read.")


def _leads_out(path: Place, root: Place) -> str:
    """Why a link is not followed, if it is not: one that leaves the data folder shows what nobody meant to show."""
    if not (isinstance(path, Path) and isinstance(root, Path) and path.is_symlink()):
        return ""
    if path.is_file() and path.resolve().is_relative_to(root.resolve()):
        return ""
    return f"leads to '{as_text(path.readlink())}', and only links to files inside of the data folder are followed"
