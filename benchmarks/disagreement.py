"""What tells a mistake, and what tells an image of none of the classes? Five signals of the same runs, side by side.

    probability    one less the largest probability
    margin         one less the difference of the two largest ones
    distance       one less the cosine to the tenth nearest of other test images, in the features of the classifier
    frozen         the same in the features of the frozen network that the classifier learned from
    disagreement   between projectors: one less the mean cosine of their outputs, over all pairs

Each number is an area under the ROC curve: the chance that of a mistake and a right answer, or of an image of another
data set and one of the test images, the first has the higher signal. The test images are cut into halves, of which each
is the reference of the other's distances; the mean over both is written. Projectors come from the last checkpoint.

    epass compare scenes --labels 12 --methods simmatch+3,simmatch+8 --seeds 5 --out compared
    python benchmarks/disagreement.py compared --others digits pneumoniamnist.npz cifar-10-batches-py --out rows.csv
"""

from __future__ import annotations

import argparse
import csv
import re
import sys
from pathlib import Path
from statistics import mean

import numpy as np
import torch
from safetensors.torch import load_file
from sklearn.metrics import roc_auc_score
from torch import Tensor
from torch.nn import functional as F

from epass import load_model, read_recipe
from epass.app.evaluate import own_test
from epass.data import Images, open_dataset, with_channels
from epass.evaluation.calibrated import Calibration
from epass.evaluation.novelty import Novelty
from epass.features import drained, embed, make_extractor
from epass.machine.device import choose_device
from epass.networks import FromImages
from epass.parts.projector import ProjectorEnsemble

OTHERS = 300  # images of every other data set
PROJECTOR = "method.projector."


def disagreement(projector: ProjectorEnsemble, features: Tensor) -> np.ndarray:
    """(N,) one less the mean cosine between the outputs of two heads."""
    outputs = torch.stack([F.normalize(output, dim=1) for output in projector.outputs(features)])
    heads = len(outputs)
    cosine = (outputs.sum(0).square().sum(1) - heads) / (heads * (heads - 1))
    return (1 - cosine).numpy()


def projector_of(run: Path, in_dim: int) -> ProjectorEnsemble:
    newest = max((run / "checkpoints").glob("step-*.safetensors"))
    weights = {
        name.removeprefix(PROJECTOR): value for name, value in load_file(newest).items() if PROJECTOR in name[:17]
    }
    projector = ProjectorEnsemble(in_dim, **(read_recipe(str(run / "recipe.toml")).projector or {}))
    projector.load_state_dict(weights)
    return projector


@torch.no_grad()
def signals(
    net: FromImages, projector: ProjectorEnsemble, frozen: Tensor, reference: Tensor
) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """The signals and predictions for images by their frozen features (N, D), with distances to those of others."""
    said, near = (net.net((part - net.mean) / net.std) for part in (frozen, reference))
    probs = Calibration().probabilities(said.logits)
    second, first = np.sort(probs, axis=1)[:, -2:].T
    found = {
        "probability": 1 - first,
        "margin": 1 - (first - second),
        "distance": Novelty(near.features).score(said.features),
        "frozen": Novelty(reference).score(frozen),
        "disagreement": disagreement(projector, said.features),
    }
    return found, probs.argmax(axis=1)


def measure(run: Path, test: Tensor, labels: np.ndarray, others: dict[str, Tensor]) -> list[dict[str, object]]:
    """A row for each question: mistakes, and each of the other data sets."""
    net, _ = load_model(run)
    assert isinstance(net, FromImages)
    projector = projector_of(run, net.num_features)
    areas: dict[tuple[str, str], list[float]] = {}
    for half in (0, 1):
        asked, reference = test[half::2], test[1 - half :: 2]
        own, predicted = signals(net, projector, asked, reference)
        wrong = predicted != labels[half::2]
        for name, values in own.items():
            areas.setdefault(("mistakes", name), []).append(roc_auc_score(wrong, values))
        for what, frozen in others.items():
            strange, _ = signals(net, projector, frozen, reference)
            truth = np.repeat([False, True], [len(asked), len(frozen)])
            for name, values in own.items():
                areas.setdefault((what, name), []).append(roc_auc_score(truth, np.concatenate([values, strange[name]])))
    questions = dict.fromkeys(what for what, _ in areas)
    names = dict.fromkeys(name for _, name in areas)
    return [{"question": what} | {name: round(mean(areas[what, name]), 4) for name in names} for what in questions]


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "compared", nargs="+", type=Path, help="folders of 'epass compare' with runs of several projectors"
    )
    parser.add_argument("--others", nargs="+", default=["digits"], help="data sets of other images")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args(arguments)
    runs = sorted(
        run for folder in options.compared for run in folder.iterdir() if re.search(r"^simmatch\+\d+-\d+$", run.name)
    )
    if not runs:
        print("No run of several projectors there.", file=sys.stderr)
        return 2
    recipe, device = read_recipe(str(runs[0] / "recipe.toml")), choose_device("auto")
    extractor = make_extractor(**recipe.features or {})
    _, test, _ = own_test(runs[0], None)

    def features(images: Images) -> Tensor:
        return drained(embed(images, extractor, device))[:, 0].float()

    side, others = test.shape[1], {}
    for name in options.others:
        dataset = open_dataset(name, image_size=side)
        source = dataset.test or dataset.train
        pixels = with_channels(source.take(torch.linspace(0, len(source) - 1, OTHERS).long()), 3)
        others[Path(name).stem] = features(Images(pixels, torch.full((OTHERS,), -1)))
    frozen, rows = features(test), []
    for run in runs:
        labels, (projectors, seed) = (
            read_recipe(str(run / "recipe.toml")).data["labels"],
            run.name.split("+")[1].split("-"),
        )
        facts = {"labels": labels, "projectors": projectors, "seed": seed}
        rows += [facts | row for row in measure(run, frozen, test.labels.numpy(), others)]
    with options.out.open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    groups = dict.fromkeys((row["labels"], row["projectors"], row["question"]) for row in rows)
    names = list(rows[0])[4:]
    print(f"{'labels':>6} {'heads':>5} {'question':>22} " + " ".join(f"{name:>12}" for name in names))
    for group in groups:
        same = [row for row in rows if (row["labels"], row["projectors"], row["question"]) == group]
        cells = " ".join(f"{mean(float(str(row[name])) for row in same):12.3f}" for name in names)
        print(f"{group[0]:>6} {group[1]:>5} {group[2]:>22} {cells}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
