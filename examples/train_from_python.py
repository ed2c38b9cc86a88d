"""Train on arrays from Python: a recipe becomes a run, the run becomes a model, the model predicts.

The labels of all but 40 training images are hidden from the method.
"""

from pathlib import Path

import numpy as np
import torch
from sklearn.datasets import load_digits

from epass import from_arrays, load_model, load_run, read_recipe, run
from epass.augment import normalize


def main(folder: str | Path = "runs/train_from_python", steps: int = 600) -> float:
    digits = load_digits()
    images = (digits.images * 255 / 16).round().astype(np.uint8)  # (N, 8, 8)
    train, test = slice(0, 1400), slice(1400, None)

    # 1. The data, and a recipe with some settings changed. Names with a dot are keys of the recipe's tables.
    dataset = from_arrays(images[train], digits.target[train], images[test], digits.target[test], name="my digits")
    recipe = read_recipe("digits-simmatch").with_settings(
        {"data.name": "my digits", "augment.horizontal_flip": False, "projector.size": 3, "plan.steps": steps}
    )

    # 2. Train. Every report is a chance to print, plot or stop.
    for report in run(recipe, folder, dataset=dataset, device="cpu", force=True):
        if "test_error" in report.values:
            print(f"step {report.step}  loss {report.values['loss']:.2f}  test error {report.values['test_error']:.1%}")

    # 3. What the run folder says.
    results = load_run(folder).results
    assert results is not None
    print(f"{results['labels']} labels, test error {results['last']['error']:.1%}, ECE {results['last']['ece']:.1%}")

    # 4. The model on arrays, as any other program would use it.
    net, facts = load_model(folder)
    pixels = torch.from_numpy(images[test])[:, None]  # (N, 1, 8, 8)
    with torch.no_grad():
        probs = net(normalize(pixels, torch.tensor(facts["mean"]), torch.tensor(facts["std"]))).logits.softmax(1)
    confidence, predicted = probs.max(1)
    error = (predicted != torch.from_numpy(digits.target[test])).float().mean().item()
    print(f"The first image is a {facts['classes'][predicted[0]]} (confidence {confidence[0]:.0%}).")
    print(f"Error on {len(pixels)} arrays: {error:.1%}")
    return error


if __name__ == "__main__":
    main()
