from __future__ import annotations

import pytest

from epass.recipe import read_recipe
from epass.recipes import builtin_recipes

# Of the published configuration: network, images, labels, learning rate, layer decay, SimMatch's temperature.
TASKS = {
    "cifar100": ("vit-small-patch2-32", 32, 200, 5e-4, 0.5, 0.1),
    "stl10": ("vit-base-patch16-96", 96, 40, 1e-4, 0.65, 0.1),
    "eurosat": ("vit-small-patch2-32", 32, 20, 5e-5, 1.0, 0.2),
    "tissuemnist": ("vit-tiny-patch2-32", 32, 80, 5e-5, 0.95, 0.2),
    "semi_aves": ("vit-small-patch16-224", 224, None, 1e-3, 0.65, 0.2),
}
METHODS = ("comatch", "fixmatch", "simmatch")


def test_every_task_has_a_recipe_for_every_method() -> None:
    found = [name for name in builtin_recipes() if name.startswith("usb_")]
    assert found == sorted(f"usb_{task}-{method}" for task in TASKS for method in METHODS)


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("method", METHODS)
def test_recipes_hold_the_published_numbers(task: str, method: str) -> None:
    settings = read_recipe(f"usb_{task}-{method}").flat()
    net, size, labels, lr, layer_decay, temperature = TASKS[task]
    assert (settings["net.name"], settings["data.image_size"], settings.get("data.labels")) == (net, size, labels)
    assert net.endswith(f"-{size}")
    plan = {key.removeprefix("plan."): value for key, value in settings.items() if key.startswith("plan.")}
    assert plan == {
        "steps": 204_800,
        "labeled_batch": 8,
        "unlabeled_ratio": 1,
        "optimizer": "adamw",
        "lr": lr,
        "weight_decay": 5e-4,
        "layer_decay": layer_decay,
        "average_momentum": 0.0 if method == "fixmatch" else 0.999,
        "warmup_steps": 5120,
        "report_every": 256,
        "evaluate_every": 2048,
    }
    if method == "simmatch":
        assert settings["method.temperature"] == temperature
        assert settings.get("method.bank_normalization") == (None if task == "semi_aves" else "batch")
    if method == "comatch":
        assert settings["method.queue_batches"] * 2 * 8 == 512
        assert settings.get("method.contrast_weight", 1.0) == (5.0 if task == "stl10" else 1.0)
