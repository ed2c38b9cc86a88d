"""A model answers all that it is asked, chunk by chunk: in one process or in several, and on from where it was."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from ..errors import InputError, RunError
from ..files import as_text, from_home
from ..machine.launch import all_or_none, is_first_process, is_one_of_several
from ..machine.signals import Stopped
from . import parts as disk
from .answers import Answer, Judge
from .events import Caution, Event, Notice
from .features import watched
from .flags import Stop, go_on
from .parts import Parts, Said
from .words import counted

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ..data import Chunk
    from ..data.read.listing import Place
    from ..data.stream.device_jpeg import Decoder, DeviceDecoder
    from ..engine.answer import Answerer

    Ask = Callable[[NDArray[Any]], tuple[NDArray[Any], NDArray[Any]]]  # uint8 (n, C, H, W) in; logits, features out


class Asked(NamedTuple):
    """What the model is asked about, some at a time."""

    thing: str  # image or vector
    column: str  # of the table, that holds the names
    names: Sequence[str]
    files: Sequence[Place]
    rows: int  # in a chunk
    chunks: Callable[[Sequence[int], DeviceDecoder | None], Iterable[Chunk]]  # those with these numbers, ascending
    are_files: bool = False  # which a device may decode
    device: DeviceDecoder | None = None  # that does
    passed_over: Mapping[str, int] = {}  # image files of kinds that are not read, by ending

    @property
    def num_chunks(self) -> int:
        """How many chunks there are. Images that cannot even be looked for are in the last one."""
        return -(-len(self.files) // self.rows) or 1


def find_what(path: str, model: dict[str, Any], settings: dict[str, Any]) -> Asked:
    """The images at `path` or, if the model takes these, the vectors; `settings` are the [data] table of the run."""
    from ..data import Chunk, find_images, find_vectors
    from ..data.read.found import ROWS

    if "numbers" not in model:
        images = find_images(path, path_column=settings.get("path_column"))
        size, channels = model["height"], model["channels"]
        return Asked(
            "image",
            "file",
            images.names,
            images.files,
            ROWS,
            lambda numbers, device: images.chunks(size, channels, ROWS, {*numbers}, device),
            images.are_files,
            passed_over=images.passed_over,
        )
    found = find_vectors(path, label_column=settings.get("label_column"))
    check_width(path, found.vectors.shape[1], model)
    places = list(range(len(found.names)))
    # One chunk: reading them takes longer than answering.
    return Asked(
        "vector",
        found.column,
        found.names,
        [from_home(path)],
        len(found.names),
        lambda numbers, _: [Chunk(places, found.vectors, {}) for _ in numbers],
    )


def check_decoder(wanted: str, path: str, asked: Asked, answerer: Answerer) -> None:
    """Refuse a decoder that cannot be had for what is asked."""
    if wanted != "device":
        return
    if answerer.place is None:
        raise InputError("ONNX Runtime takes images that the CPU has decoded: leave out --decoder.")
    if asked.thing == "vector":
        raise InputError(f"'{path}' holds vectors, which nobody decodes: leave out --decoder.")
    if not asked.are_files:
        raise InputError(f"'{path}' is an archive, which the CPU decodes: unpack it, or leave out --decoder.")


def choose_decoder(wanted: str, asked: Asked, answerer: Answerer, parts: Parts) -> tuple[DeviceDecoder | None, str]:
    """What decodes all images of a prediction, if not the CPU, and what to tell of it. All processes call this.

    Without a wish it is who decoded those that are answered already. One chunk alone is left to the CPU, for which no
    other library has to be loaded first.
    """
    if answerer.settings.get("decoder") == "cpu" and wanted == "auto":  # the run was to see the same pixels everywhere
        wanted = "cpu"
    if answerer.place is None or not asked.are_files or (wanted != "device" and asked.num_chunks == 1):
        return None, ""
    from ..data.stream.decoder import choose
    from ..machine.distributed import largest_over_ranks

    device, sentence = choose(cast("Decoder", wanted), answerer.place)
    if device is not None and largest_over_ranks(wanted == "auto" and parts.kept > parts.kept_by_device):
        return None, "Images are decoded by the CPU, as those were that are answered already."
    return device, sentence


def check_width(path: str, numbers: int, model: dict[str, Any]) -> None:
    """Refuse vectors of another width than those that the model has learned from."""
    if numbers != model["numbers"]:
        raise InputError(
            f"'{path}' holds vectors of {numbers:,} numbers, but the model takes {model['numbers']:,}: make them as "
            "those that it learned from were made."
        )


class Sheet:
    """The answers so far.

    Args:
        judge: Makes answers of what a model says.
        names: Of all images.
        keep: Whether all probabilities are wanted, too.
    """

    def __init__(self, judge: Judge, names: Sequence[str], keep: bool = False) -> None:
        import numpy as np

        self.judge, self.names, self.keep = judge, names, keep
        self.chunks: set[int] = set()  # that were entered
        self.rows: dict[int, Answer] = {}  # by position
        self.probs = np.full((len(names) if keep else 0, len(judge.classes)), np.nan)  # (N, C)

    @property
    def answers(self) -> list[Answer]:
        """In the order of the names."""
        return [self.rows[position] for position in sorted(self.rows)]

    def enter(self, said: Said) -> None:
        """Write down what was said about a chunk."""
        self.chunks.add(said.number)
        for place, why in said.unreadable.items():
            self.rows[place] = Answer(as_text(self.names[place]), (), (), error=why)
        if len(said.positions):
            positions = said.positions.tolist()
            names = [as_text(self.names[position]) for position in positions]
            answers, shares = self.judge.answers(names, said.logits, said.novelty)
            self.rows |= zip(positions, answers, strict=True)
            if self.keep:
                self.probs[positions] = shares


def ask_about(chunk: Chunk, number: int, ask: Ask, judge: Judge) -> Said:
    """What a model says about the images of a chunk."""
    import numpy as np

    positions = np.array(chunk.positions, np.int64)
    if not len(positions):
        return Said(number, positions, np.empty((0, len(judge.classes)), np.float32), None, chunk.unreadable)
    logits, features = ask(chunk.images)
    return Said(number, positions, logits, judge.novelty(features), chunk.unreadable)


def answer_all(
    answerer: Answerer, decoder: str, asked: Asked, sheet: Sheet, parts: Parts, stop: Stop
) -> Generator[Event, None, str]:
    """Fill the sheet, in the first of several processes, which share the work; returns who decoded.

    They are asked whether to `stop` at the same moments. One process alone needs no agreement: it stops at once.
    """
    if is_one_of_several():
        parts.meet()
    device, sentence = choose_decoder(decoder, asked, answerer, parts)
    yield from [Notice(sentence)] if sentence else []
    if device is not None:
        asked = asked._replace(device=device)
        parts.turn_to_device()
    try:
        for said in parts.found() if is_first_process() else ():
            sheet.enter(said)
        yield from recalled(asked, sheet, parts)
        several = is_one_of_several()
        yield from watched(shared(answerer.answer, asked, sheet, parts), stop if several else go_on, asked.thing)
        if is_first_process():
            collect(asked, sheet, parts)
    except KeyboardInterrupt as interrupt:
        kept = f"the answers to {parts.kept:,} of {counted(len(asked.names), asked.thing)} are kept, and "
        sentence = "the same command goes on." if parts.kept else "the same command starts over."
        raise Stopped((kept if parts.kept else "") + sentence, interrupt) from None
    return "cpu" if device is None else "device"


def recalled(asked: Asked, sheet: Sheet, parts: Parts) -> Generator[Event, None, None]:
    """What there is to say about parts that were there before."""
    if sheet.rows:
        yield Notice(f"{len(sheet.rows):,} of {counted(len(asked.names), asked.thing)} were answered before: going on.")
    if parts.stale:
        yield Caution(
            f"What an earlier prediction left in '{parts.folder}' is not used: the {asked.thing}s, the model or the "
            "settings are other ones now."
        )
    for name in parts.damaged:
        yield Caution(f"'{parts.folder / name}' is damaged: its {asked.thing}s are answered again.")


def shared(ask: Ask, asked: Asked, sheet: Sheet, parts: Parts) -> Generator[tuple[int, int], None, None]:
    """Answer this process's share of the chunks that are missing; yields how many images are done, of how many.

    All processes yield equally often. A chunk is answered as a whole, so that no answer depends on who gives it.
    """
    missing, own, world = [number for number in range(asked.num_chunks) if number not in sheet.chunks], 0, 1
    if is_one_of_several():
        from ..machine.distributed import bytes_of_first_rank, rank, world_size

        own, world = rank(), world_size()
        missing = json.loads(bytes_of_first_rank(json.dumps(missing).encode()))
    mine, before = missing[own::world], asked.num_chunks - len(missing)
    with all_or_none():
        chunks = zip(mine, asked.chunks(mine, asked.device), strict=True)
        for turn in range(1, 1 + -(-len(missing) // world)):
            for number, chunk in islice(chunks, 1):
                said = ask_about(chunk, number, ask, sheet.judge)
                if is_first_process():
                    sheet.enter(said)
                if own or number != missing[-1]:  # else the table follows
                    parts.keep(said)
            yield min(len(asked.names), (before + turn * world) * asked.rows), len(asked.names)
        if own:
            parts.write()


def collect(asked: Asked, sheet: Sheet, parts: Parts) -> None:
    """Read what the other processes have answered; all of them have said that they are done."""
    deadline = time.monotonic() + disk.PATIENCE
    while missing := asked.num_chunks - len(sheet.chunks):
        late = time.monotonic() > deadline
        for said in parts.found():
            sheet.enter(said)
        if late and missing == asked.num_chunks - len(sheet.chunks):
            raise RunError(
                f"The answers to about {counted(missing * asked.rows, asked.thing)} did not arrive in "
                f"'{parts.folder}': see that nothing else writes the same table, then give the same command again."
            )
        time.sleep(0.05)
