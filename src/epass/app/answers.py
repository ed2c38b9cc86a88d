"""What a model says about one image after the other, and the files and lines that it is written to."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ..errors import InputError
from ..files import write_atomically
from ..untrusted import spreadsheet_path, spreadsheet_text

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ..evaluation.calibrated import Calibration
    from ..evaluation.novelty import Novelty

    Floats = NDArray[np.float64]

BETWEEN = "|"  # the classes of a set in one cell
ENDINGS = (".csv", ".npy", ".parquet")  # of a file of probabilities


class Answer(NamedTuple):
    """What the model says about one image: the likeliest classes with their probabilities, the first one first."""

    file: str
    classes: Sequence[str]  # none where there is an error
    confidences: Sequence[float]
    set: Sequence[str] | None = None  # classes that it may be, if the model has prediction sets
    abstain: bool | None = None  # if the model knows when to
    novelty: float | None = None  # how unlike the run's test images, as far as that is known
    error: str = ""  # why there is no answer

    @property
    def unlike(self) -> bool:
        """Whether the image is none of the kind that the model was tested on."""
        return self.novelty is not None and self.novelty > 1


@dataclass(frozen=True)
class Judge:
    """Makes answers of logits and features."""

    classes: Sequence[str]
    calibration: Calibration
    known: Novelty | None
    top: int = 1

    def novelty(self, features: Any) -> Floats | None:
        """(N,) how unlike the run's test images those with features (N, D) are, as far as that is known."""
        return None if self.known is None else self.known.score(features)

    def answers(self, names: Iterable[str], logits: Any, novelty: Floats | None) -> tuple[list[Answer], Floats]:
        """What is to be said about images by their logits (N, C) and novelty (N,), and all probabilities (N, C)."""
        import numpy as np

        rule = self.calibration
        probs = rule.probabilities(logits)
        order = np.argsort(-probs, axis=1, kind="stable")
        shares = np.take_along_axis(probs, order[:, : self.top], axis=1).tolist()
        count = len(probs)
        sizes = [None] * count if rule.set_from is None else rule.sets(probs).sum(axis=1).tolist()
        silent = [None] * count if rule.answer_from is None else rule.abstains(probs).tolist()
        novel = [None] * count if novelty is None else novelty.tolist()
        return [
            Answer(
                name,
                [self.classes[number] for number in row[: self.top]],
                share,
                None if size is None else [self.classes[number] for number in row[:size]],
                abstain,
                unlike,
            )
            for name, row, share, size, abstain, unlike in zip(names, order, shares, sizes, silent, novel, strict=True)
        ], probs

    @property
    def columns(self) -> list[str]:
        """What a table says beside the classes."""
        found = {
            "set": self.calibration.set_from,
            "abstain": self.calibration.answer_from,
            "novelty": self.known,
            "unlike": self.known,
        }
        return [name for name, there in found.items() if there is not None]


def as_csv(answers: Iterable[Answer], top: int, column: str = "file", more: Sequence[str] = ()) -> bytes:
    """The table, in UTF-8, in which no name is a formula to a spreadsheet; `column` is called what the names are."""
    runners_up = [f"{kind}_{rank}" for rank in range(2, top + 1) for kind in ("prediction", "confidence")]
    rows = ([_name(answer.file, column), *_shares(answer, top), *_cells(answer, more)] for answer in answers)
    return _table([column, "prediction", "confidence", *runners_up, *more, "error"], rows)


def as_object(answer: Answer) -> dict[str, Any]:
    """An answer in JSON's own types."""
    if answer.error:
        return {"file": answer.file, "error": answer.error}
    pairs = [{"prediction": n, "confidence": p} for n, p in zip(answer.classes, answer.confidences, strict=True)]
    found = {"file": answer.file, **pairs[0], "top": pairs if len(pairs) > 1 else None}
    found |= {"set": answer.set, "abstain": answer.abstain, "novelty": answer.novelty}
    found["unlike"] = None if answer.novelty is None else answer.unlike
    return {name: value for name, value in found.items() if value is not None}


def check_probabilities(path: Path, classes: Sequence[str], column: str) -> None:
    """Refuse a file that probabilities cannot be written to, before any is computed."""
    ending = path.suffix.lower()
    if ending not in ENDINGS:
        raise InputError(f"'{path}' is no name for probabilities: choose one that ends in {', '.join(ENDINGS)}.")
    if ending != ".npy" and column in classes:
        raise InputError(
            f"A class is called '{column}', as the column of names is: write probabilities to a .npy file."
        )
    if ending == ".parquet":
        try:
            import pyarrow  # noqa: F401
        except ImportError:
            raise InputError(
                "A .parquet file needs pyarrow: pip install pyarrow, or write a .csv or .npy file."
            ) from None


def write_probabilities(path: Path, column: str, names: Sequence[str], classes: Sequence[str], probs: Floats) -> None:
    """All probabilities (N, C), a row for each name; NaN where there is no answer."""
    import numpy as np

    ending = path.suffix.lower()
    values, buffer = probs.astype(np.float32), io.BytesIO()
    if ending == ".csv":
        shares = [["" if math.isnan(share) else f"{share:.6f}" for share in row] for row in probs.tolist()]
        rows = ([_name(name, column), *row] for name, row in zip(names, shares, strict=True))
        buffer.write(_table([column, *map(spreadsheet_text, classes)], rows))
    elif ending == ".npy":
        np.save(buffer, values, allow_pickle=False)
    else:
        import pyarrow
        from pyarrow import parquet

        columns = {column: list(names)} | {name: values[:, number] for number, name in enumerate(classes)}
        parquet.write_table(pyarrow.table(columns), buffer)
    write_atomically(path, buffer.getvalue())


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> bytes:
    text, cells = io.StringIO(), [heads, *rows]
    # Python 3.11 takes a carriage return for a letter like others, and no reader does.
    quoted = any("\r" in row[0] for row in cells)
    writer = csv.writer(text, lineterminator="\n", quoting=csv.QUOTE_ALL if quoted else csv.QUOTE_MINIMAL)
    writer.writerows(cells)
    return text.getvalue().encode()


def _name(file: str, column: str) -> str:
    return (spreadsheet_path if column == "file" else spreadsheet_text)(file)


def _shares(answer: Answer, top: int) -> list[str]:
    if answer.error:
        return [""] * (2 * top)
    pairs = zip(answer.classes, answer.confidences, strict=True)
    return [cell for name, share in pairs for cell in (spreadsheet_text(name), f"{share:.6f}")]


def _cells(answer: Answer, more: Sequence[str]) -> list[str]:
    if answer.error:
        return [*[""] * len(more), answer.error]
    cells = {
        "set": spreadsheet_text(BETWEEN.join(answer.set or ())),
        "abstain": str(bool(answer.abstain)).lower(),
        "novelty": f"{answer.novelty or 0:.4f}",
        "unlike": str(answer.unlike).lower(),
    }
    return [*(cells[name] for name in more), ""]
