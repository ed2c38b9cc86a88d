"""What a run that was begun says about how it has to go on."""

from __future__ import annotations

from ..data import Dataset, decoder_of
from ..data.stream.decoder import CPU, DEVICE
from ..errors import InputError
from ..machine.distributed import of_first_rank, on_first_rank
from ..runs import RunFolder
from ..runs.folder import ENVIRONMENT
from ..untrusted import LARGEST_JSON, parse_json, read_limited


def recorded_decoder(home: RunFolder) -> str:
    """Who decoded the images of a run, on all ranks: "device" or "cpu"."""
    path, found = home.path / ENVIRONMENT, [False]

    def read() -> None:
        try:
            facts = parse_json(read_limited(path, LARGEST_JSON))
        except ValueError as problem:
            raise InputError(f"'{path}' is damaged: {problem}.") from problem
        found[0] = isinstance(facts, dict) and facts.get("decoder") == DEVICE

    on_first_rank(read)
    return DEVICE if of_first_rank(found[0]) else CPU


def check_decoder(home: RunFolder, before: str, dataset: Dataset) -> None:
    """Refuse to go on with pixels of another decoder than those that a run began with: `before`, as it recorded it."""
    now = decoder_of(dataset.train)
    if before != now:
        names = {DEVICE: "on the GPU", CPU: "by the CPU"}
        raise InputError(
            f"The images of '{home.path}' were decoded {names[before]}, and are decoded {names[now]} now: let the run "
            f"open them itself, or begin another one with data.decoder={now}."
        )
