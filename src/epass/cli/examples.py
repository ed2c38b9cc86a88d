"""What to type, by command: shown below the help."""

from __future__ import annotations

EXAMPLES: dict[str, dict[str, str]] = {
    "bench": {
        "epass bench": "the published batch, random pixels",
        "epass bench --method comatch": "another method",
        "epass bench photos/ --out speed.json": "your images, for the record",
    },
    "calibrate": {
        "epass calibrate runs/photos-simmatch-0": "how sure it may be",
        "epass calibrate runs/photos-simmatch-0 --coverage 0.9": "prediction sets",
        "epass calibrate runs/photos-simmatch-0 --data more/ --accuracy 0.95": "answer what is safe",
    },
    "check": {
        "epass check photos/ --out report.html": "your images, side by side",
        "epass check digits --labels 40 --json": "for a program",
    },
    "download": {
        "epass download": "what there is",
        "epass download eurosat": "into data/eurosat",
        "epass download stl10 --to /datasets": "into /datasets/stl10",
    },
    "embed": {
        "epass embed photos/": "before training, which then takes seconds",
        "epass embed photos/ --stream": "more photos than memory holds",
    },
    "evaluate": {
        "epass evaluate runs/photos-simmatch-0": "on its own test images",
        "epass evaluate runs/photos-simmatch-0 --data other/": "on other images",
    },
    "export": {
        "epass export runs/photos-simmatch-0 --out flowers": "a folder to hand over",
        "epass export runs/photos-simmatch-0 --any-size": "scaling is inside, too",
        "epass export runs/photos-simmatch-0 --formats onnx": "one file and its card",
    },
    "label": {
        "epass label photos/ suggested.csv": "after you filled it in",
        "epass label photos/ export.json": "from Label Studio",
    },
    "predict": {
        "epass predict runs/photos-simmatch-0 new/": "one class each",
        "epass predict runs/photos-simmatch-0 new.zip --top 3": "with the runners-up",
        "ls new/*.jpg | epass predict runs/photos-simmatch-0 -": "a line of JSON each",
    },
    "pretrain": {
        "epass pretrain photos/ --out runs/pre": "from pixels, without labels",
        "epass train photos/ --from runs/pre": "what comes next",
    },
    "report": {
        "epass report runs/a runs/b --out both.html": "two runs, one page",
        "epass report runs/a --card model-card.md": "to put beside a model",
        "epass report runs/a runs/b --figures paper/": "to put into a paper",
    },
    "serve": {
        "epass serve flowers/model.onnx": "at http://127.0.0.1:8000",
        "epass serve runs/photos-simmatch-0 --port 0": "at a free port",
        "curl --data-binary @a.jpg http://127.0.0.1:8000/predict": "asks it",
    },
    "studio": {
        "epass studio photos/": "at http://127.0.0.1:8765, in your browser",
        "epass studio photos/ --host 0.0.0.0": "for your phone, too",
        "ssh -L 8765:127.0.0.1:8765 gpu-machine": "to one that runs elsewhere",
    },
    "suggest": {
        "epass suggest photos/ --n 12": "the first to label",
        "epass suggest runs/photos-simmatch-0 --n 12": "what a run is unsure of",
        "epass suggest photos/ --out tasks.json": "for Label Studio",
    },
    "train": {
        "epass train digits --labels 40 --projectors 3": "a first run, no download",
        "epass train photos/ --projectors 3": "your photos",
        "epass train --continue runs/photos-simmatch-0": "with new labels or photos",
        "epass train cifar-10-batches-py --recipe cifar10-simmatch": "a published setting",
    },
}


def examples(command: str) -> str:
    """The lines of a command with what they are for, as typer wants them."""
    lines = EXAMPLES[command]
    width = max(map(len, lines))
    shown = [f"[cyan]{line}[/]{' ' * (width - len(line) + 3)}{what}" for line, what in lines.items()]
    return "\n\n".join(["[bold]Examples[/]", *shown])
