from __future__ import annotations

import tomllib
from pathlib import Path

import numpy as np
import pytest
from calling import Answer, Epass

from epass.runs import load_run

TINY = ("--steps", "6", "--set", "plan.labeled_batch=8", "--set", "net.width=4", "--set", "method.queue_size=32")


def pretrain(epass: Epass, *words: str) -> Answer:
    return epass("pretrain", "digits", *TINY, "--out", "pre", *words)


def test_from_images_alone_to_a_run_that_starts_there(epass: Epass) -> None:
    answer = pretrain(epass, "--projectors", "2")
    assert (answer.code, answer.err) == (0, "")
    assert "contrast" not in answer.out.splitlines()[0]
    assert answer.out.endswith("Next: epass train digits --from pre\n")
    assert Path("pre/pretrained.safetensors").is_file()

    answer = epass("train", "digits", "--from", "pre", "--steps", "6", "--set", "plan.labeled_batch=8")
    assert (answer.code, answer.err) == (0, "")
    assert "simmatch + EPASS (2 projectors), pre-trained" in answer.out
    recipe = tomllib.loads(Path("runs/digits-simmatch-epass-pretrained-0/recipe.toml").read_text())
    assert recipe["start"] == {"weights": str(Path("pre").absolute())}
    assert recipe["net"]["width"] == 4, "the network of the pre-training"
    assert recipe["projector"]["size"] == 2

    answer = epass("train", "digits", "--method", "fixmatch", "--from", "pre", "--steps", "6")
    assert answer.code == 0
    assert "projector" not in tomllib.loads(Path("runs/digits-fixmatch-pretrained-0/recipe.toml").read_text())


def test_what_follows_a_recipe_of_known_data_is_its_method(epass: Epass) -> None:
    answer = pretrain(epass, "--recipe", "digits-moco")
    assert answer.out.endswith("Next: epass train digits --recipe digits-simmatch --from pre\n")
    copied = Path("pre/recipe.toml").read_text()
    Path("mine-moco.toml").write_text(copied)
    answer = epass("pretrain", "--recipe", "mine-moco.toml", "--steps", "2", "--out", "mine")
    assert answer.out.endswith("Next: epass train digits --from mine\n")


def test_a_start_is_judged_by_what_it_learned_not_by_its_classes(epass: Epass, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "epass.evaluation.alarms.is_near_chance", lambda counts: True
    )  # a classifier would be warned of
    random = np.random.default_rng(0)
    upright = random.integers(0, 90, (200, 8, 8), dtype=np.uint8) + np.linspace(160, 0, 8).astype(np.uint8)[:, None]
    plain, labels = upright * 0 + np.arange(200, dtype=np.uint8)[:, None, None], random.integers(0, 4, 200)
    for name, images in (("upright", upright), ("plain", plain)):
        tests = {"test_images": 255 - images[:9], "test_labels": [0, 1, 2] * 3}
        np.savez(f"{name}.npz", train_images=images, train_labels=labels, **(tests if name == "plain" else {}))
    short = ("--method", "rotnet", "--steps", "300", "--set", "plan.labeled_batch=8", "--set", "net.width=4")
    size = ("--image-size", "8", "--set", "plan.evaluate_every=100")

    answer = epass("pretrain", "upright.npz", *short, *size, "--out", "up")
    assert (answer.code, answer.err) == (0, "")
    assert "  nearest class means " in answer.out
    assert " test error, which says little of what a method makes of this start\n" in answer.out
    assert "best on test" not in answer.out
    assert load_run("up").results["alarms"] == []
    assert epass("report", "up", "--no-maps").err == epass("evaluate", "up").err == ""

    answer = epass("pretrain", "plain.npz", *short, *size, "--out", "no")
    assert answer.code == 0
    assert "  loss 1.386  turns found 25 %  test error " in answer.out
    idle, untested = load_run("no").results["alarms"]
    assert idle.startswith("this model finds the turn of 25 %")
    assert untested.startswith("No test image is of 3: ")
    first, *others = answer.err.splitlines()
    assert first.startswith("Warning: RotNet after 200 steps finds the turn of 25 %")
    assert [line[:39] for line in others] == [
        "Warning: RotNet finds the turn of 25 % ",
        "Warning: No test image is of 3: the tes",
    ]


def test_what_was_learned_without_heads_is_a_start_for_any_number_of_them(epass: Epass) -> None:
    short = ("--steps", "6", "--set", "plan.labeled_batch=8")
    answer = epass("pretrain", "digits", "--method", "rotnet", *short, "--set", "net.width=4", "--out", "pre")
    assert (answer.code, answer.err) == (0, "")
    assert answer.out.endswith("Next: epass train digits --from pre\n")

    answer = epass("train", "digits", "--from", "pre", "--projectors", "2", *short, "--out", "after")
    assert (answer.code, answer.err) == (0, "")
    assert "simmatch + EPASS (2 projectors), pre-trained" in answer.out
    recipe = tomllib.loads(Path("after/recipe.toml").read_text())
    assert (recipe["net"]["width"], recipe["projector"]["size"]) == (4, 2)
    assert recipe["projector"]["out_dim"] == 64, "what the recipe says besides"

    both = ("--methods", "simmatch", "--projectors", "1,3", "--seeds", "1", "--out", "compared")
    answer = epass("compare", "digits", "--from", "pre", *both, *short)
    assert (answer.code, answer.err) == (0, "")


@pytest.mark.parametrize(("method", "heads"), [("MoCo", 2), ("RotNet", 1)])
def test_nobody_runs_the_code_of_a_pre_training_to_start_from_it(epass: Epass, method: str, heads: int) -> None:
    Path("mine.py").write_text(
        f'"""Mine: Ours (Us, HERE 2020).\n\nOf ours."""\nfrom epass.methods.{method.lower()} import {method}\n\n\n'
        f'class Mine({method}):\n    """Ours."""\n'
    )
    settings = ("--projectors", "2", "--set", "method.queue_size=32") if heads > 1 else ()
    answer = epass("pretrain", "digits", "--method", "mine.py:Mine", *TINY[:6], *settings, "--out", "pre")
    assert answer.code == 0, answer
    Path("mine.py").unlink()
    answer = epass("train", "digits", "--from", "pre", "--steps", "6", "--set", "plan.labeled_batch=8", "--out", "run")
    assert (answer.code, answer.err) == (0, "")
    assert tomllib.loads(Path("run/recipe.toml").read_text())["projector"]["size"] == heads


def test_rotations_of_vectors_are_refused(epass: Epass) -> None:
    np.savez("vectors.npz", train_vectors=np.zeros((8, 3), "float32"), train_labels=[0, 1] * 4)
    answer = epass("pretrain", "vectors.npz", "--method", "rotnet")
    assert (answer.code, answer.out) == (2, "")
    assert answer.err == "Error: 'rotnet' needs images, and 'vectors.npz' holds vectors: choose another method.\n"


def test_a_stopped_pre_training_says_how_to_continue(epass: Epass, monkeypatch: pytest.MonkeyPatch) -> None:
    from epass.training import window

    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(window.Window, "means", stop)
        answer = pretrain(epass)
    assert answer.code == 130
    assert "epass pretrain --resume --out pre" in answer.err
    assert epass("pretrain", "--resume", "--out", "pre").code == 0


def test_a_wrapped_run_is_named_after_its_wrapper(epass: Epass) -> None:
    answer = epass("train", "--recipe", "tiny.toml", "--wrap", "abc", "--set", "wrapper.threshold=0.5")
    assert (answer.code, answer.err) == (0, "")
    assert "simmatch + abc" in answer.out
    recipe = tomllib.loads(Path("runs/digits-simmatch-abc-0/recipe.toml").read_text())
    assert recipe["wrapper"] == {"name": "abc", "threshold": 0.5}
    assert epass("evaluate", "runs/digits-simmatch-abc-0").code == 0


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("train", "digits", "--method", "moco"), "'moco' is for 'epass pretrain'."),
        (("pretrain", "digits", "--method", "fixmatch"), "'fixmatch' is for 'epass train'."),
        (("pretrain", "digits", "--method", "mocko"), "Unknown method 'mocko': did you mean 'moco'?"),
        (("train", "digits", "--from", "nowhere"), "There is no run at 'nowhere'."),
        (("train", "digits", "--wrap", "abd"), "Unknown wrapper 'abd': did you mean 'abc'?"),
    ],
)
def test_a_mistake_is_one_sentence_and_nothing_is_written(epass: Epass, words: tuple[str, ...], sentence: str) -> None:
    answer = epass(*words)
    assert (answer.code, answer.out) == (2, "")
    assert " ".join(answer.err.split()) == f"Error: {sentence}"
    assert not Path("runs").exists()


def test_a_run_that_was_no_pre_training_cannot_be_started_from(epass: Epass) -> None:
    assert epass("train", "--recipe", "tiny.toml", "--out", "plain").code == 0
    answer = epass("train", "digits", "--from", "plain", "--steps", "6")
    assert answer.code == 2
    assert "holds no pre-trained weights: give the folder of a finished 'epass pretrain', or" in " ".join(
        answer.err.split()
    )
