"""Hand a model over: one folder that other programs load."""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from .. import extensions
from ..errors import InputError, RunError, one_of
from ..files import check_folder, naming, write_atomically
from .doubts import not_read
from .events import Event, Notice, Result, work
from .flags import Flag, Images, Reading, Run, Trust
from .words import counted, file_size

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ..runs import Run as Finished

FORMATS = ("safetensors", "torch", "onnx")
CHECKED = 37  # images: one alone, and all together
UNTESTED = "This model was trained on every label, and tested on nothing: look at the runs that it was chosen by."
VERSIONS = ("epass", "commit", "python", "torch", "numpy")


@work
def export(
    run: Run,
    *,
    out: Annotated[str | Path | None, Flag("The folder to write, which must be new.", default="RUN-exported")] = None,
    formats: Annotated[str, Flag("What to write, with commas between.")] = "safetensors,torch,onnx",
    any_size: Annotated[
        bool, Flag("Take images of any size: their central square is scaled inside of the graph.")
    ] = False,
    raw: Annotated[bool, Flag("Leave normalization and calibration out of the graph.")] = False,
    images: Annotated[
        Images | None, Flag("Check with these images.", metavar="IMAGES", default="images of the run's data set")
    ] = None,
    trust: Trust = None,
    reading: Reading | None = None,
) -> Iterator[Event]:
    """Write the model of a run as one folder that loads without epass.

    It holds the weights (model.safetensors), what is known of them (model.json), a
    program of torch.export (model.pt2), an ONNX file with everything inside
    (model.onnx) and a model card (README.md). The graphs take uint8 images and
    give logits, calibrated probabilities and features. Both are checked against
    PyTorch; if they differ, nothing is written and the exit code is 1.
    """
    run = Path(run)
    target = Path(f"{run}-exported") if out is None else Path(out)
    wanted = parse_formats(formats)
    check_target(target)
    if raw and any_size:
        raise InputError("--raw takes normalized input, which has its size already: leave out --any-size.")

    from ..engine.export import LARGEST_DIFFERENCE, Deployed, scaling_difference, write_graphs
    from ..engine.models import load_model
    from ..report.card import data_name, render_card
    from ..report.loading import how_to_load
    from ..runs import load_embeddings, load_run

    extensions.trust(*(trust or ()))
    net, model = load_model(run)
    if any_size and "numbers" in model:
        raise InputError("--any-size is for images, and the model takes vectors: leave it out.")
    finished, kept = load_run(run), load_embeddings(run)
    facts = {
        **model,
        "format": model.get("format", 1),
        "export": {"formats": wanted, "input": "normalized" if raw else "any size" if any_size else "pixels"},
        "provenance": provenance(finished, data_name(finished.recipe)),
    }
    title, loading = f"{finished.name}: {data_name(finished.recipe)}", how_to_load(facts)
    card = f"# {title}\n\n{UNTESTED}\n\n## Load it\n\n{loading}\n"
    if finished.predictions is not None:
        card = render_card(finished, title, loading)
    known = None if kept is None else kept.features
    shown: dict[str, str] = {}
    values: dict[str, Any] = {}
    with made_whole(target) as folder:
        write_facts(folder, facts, card, known, run if "safetensors" in wanted else None)
        if len(wanted) > ("safetensors" in wanted):
            deployed = Deployed(net, model, raw=raw, any_size=any_size)
            pixels = yield from check_images(run, finished.recipe, model, images, reading)
            differences = write_graphs(folder, deployed, facts, known, pixels)
            for name, difference in differences.items():
                if not difference <= LARGEST_DIFFERENCE:  # NaN is not
                    raise RunError(
                        f"{name} differs from PyTorch by {difference:.1e} of its largest number, more than "
                        f"{LARGEST_DIFFERENCE:.0e}, so nothing was written: say --formats without it."
                    )
                shown[f"{name}, largest difference to PyTorch"] = f"{difference:.1e}"
            shown["checked with"] = f"{counted(len(pixels), 'vector' if 'numbers' in model else 'image')}"
            values = {"differences": differences, "images": len(pixels)}
            if any_size:
                values["scaling"] = moved = scaling_difference(deployed, pixels)
                yield Notice(
                    f"Images are scaled inside of the graph: that moves probabilities by up to {moved:.1e} from those "
                    "of images that Pillow has scaled."
                )
    files = {path.name: path for path in sorted(target.iterdir())}
    sizes = {name: file_size(path.stat().st_size) for name, path in files.items()}
    yield Result(
        f"The model of {run}, in {target}",
        facts={**sizes, **shown},
        values={"run": str(run), "out": str(target), "files": list(files), **values},
        files=files,
        following=shlex.join(["epass", "predict", str(target), "VECTORS" if "numbers" in model else "PHOTOS"]),
    )


def parse_formats(formats: str) -> list[str]:
    """The formats that are asked for, if this installation can write them."""
    wanted = [name.strip() for name in formats.split(",") if name.strip()]
    for name in wanted:
        one_of("format", name, FORMATS)
    if not wanted:
        raise InputError(f"--formats names nothing: choose some of {', '.join(FORMATS)}.")
    missing = [name for name in ("onnx", "onnxscript", "onnxruntime") if find_spec(name) is None]
    if "onnx" in wanted and missing:
        raise InputError(
            f"Writing ONNX needs {', '.join(missing)}: pip install epass[onnx], or say --formats safetensors,torch."
        )
    return [name for name in FORMATS if name in wanted]


def check_target(target: Path) -> None:
    """Nothing is overwritten."""
    if target.exists() or target.is_symlink():
        raise InputError(f"'{target}' is there already: choose another folder with --out.")
    if not target.absolute().parent.is_dir():
        raise InputError(f"'{target}' cannot be made: name one in a folder that exists.")
    check_folder(target)


@contextmanager
def made_whole(target: Path) -> Iterator[Path]:
    """A folder that gets its name when everything is in it, and is gone if something fails."""
    partial = target.with_name(f".{target.name}.{os.getpid()}.part")
    partial.mkdir()
    try:
        yield partial
        partial.rename(target)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def provenance(run: Finished, data: str) -> dict[str, Any]:
    """Where a model comes from. Of a path only its end is told: the rest is of no use elsewhere."""
    results = run.results or {}
    return {
        "run": run.name,
        "data": {**run.recipe["data"], "name": data},
        "recipe": {name: table for name, table in run.recipe.items() if name != "data"},
        "labels": results.get("labels"),
        "images": results.get("images"),
        "scores": results.get("last"),
        **{name: run.environment.get(name) for name in VERSIONS},
        "exported": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def write_facts(folder: Path, facts: Mapping[str, Any], card: str, known: Any, run: Path | None) -> None:
    """Everything but the graphs."""
    from ..runs import MODEL, WEIGHTS, RunFolder
    from ..runs.exported import CARD, KNOWN, packed

    RunFolder(folder).write_json(MODEL, facts)
    write_atomically(folder / CARD, card.encode())
    if known is not None:
        write_atomically(folder / KNOWN, packed(known))
    if run is not None:
        with naming(folder / WEIGHTS):  # else an error of a full disk would name the weights of the run
            shutil.copyfile(run / WEIGHTS, folder / WEIGHTS)


def check_images(
    run: Path, recipe: Mapping[str, Any], model: Mapping[str, Any], images: Images | None, reading: Reading | None
) -> Generator[Event, None, NDArray[Any]]:
    """Some real images, or vectors, as the model takes them: those that are given, or of the run's own data set."""
    from ..data import find_images, find_vectors
    from .evaluate import own_test

    name = os.fspath(recipe["data"]["name"] if images is None else images)
    try:
        if "numbers" in model:
            return find_vectors(name).vectors[:CHECKED].astype("float32")
        found = find_images(name, path_column=recipe["data"].get("path_column"))
        if images is not None:  # those of the run were told when it was trained
            yield from not_read(found.passed_over)
        readable: NDArray[Any] = next(found.chunks(model["height"], model["channels"], rows=CHECKED)).images
        if len(readable):
            return readable
        raise InputError(f"No image of '{name}' can be read: name others with --images.")
    except InputError as problem:
        if images is not None:
            raise
        reason = str(problem).rstrip(".")
    try:
        dataset, test, _ = own_test(run, reading)
        source = test if len(test) else dataset.train
        pixels: NDArray[Any] = next(iter(source.chunks(CHECKED))).numpy()
        return pixels
    except (InputError, OSError):
        raise InputError(f"There are no images to check with ({reason}): name some with --images.") from None
