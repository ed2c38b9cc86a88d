"""The scikit-learn classifier: scikit-learn's own checks, every kind of X and y, and what is kept of a model."""

from __future__ import annotations

import doctest
import json
import pickle
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import epass.estimator
from epass import InputError, SemiSupervisedClassifier, load_run, predict, read_recipe, train
from epass.app.arrays import recipe_for
from epass.app.request import Request, starting_recipe
from epass.machine.device import choose_device

SMALL = {"plan.labeled_batch": 16, "plan.unlabeled_ratio": 2}
BODY = {**SMALL, "net.hidden": 16}
PIXELS = {**SMALL, "net.width": 4}
NOT_KEPT = {
    "check_classifiers_classes": "its last data set has a class -1, which means unlabeled here, as in "
    "sklearn.semi_supervised, whose classes scikit-learn excuses by name"
}


def small(steps: int = 3, **arguments: Any) -> SemiSupervisedClassifier:
    return SemiSupervisedClassifier(steps=steps, device="cpu", **{"settings": BODY, **arguments})


def few_labels(*, hidden: Any = -1) -> tuple[np.ndarray, list[Any], np.ndarray]:
    """Two clouds of vectors, the labels of four, and of all."""
    truth = np.arange(24) % 2
    vectors = np.random.default_rng(0).normal(size=(24, 5)) + 4 * truth[:, None]
    return vectors, [*truth[:4].tolist(), *[hidden] * 20], truth


def squares() -> tuple[np.ndarray, list[int]]:
    """Dark and bright images, the last ones without a label."""
    truth = np.arange(10) % 2
    noise = np.random.default_rng(0).integers(0, 60, (10, 8, 8))
    return (noise + 180 * truth[:, None, None]).astype(np.uint8), [*truth[:4].tolist(), *[-1] * 6]


@pytest.fixture(scope="module")
def model() -> SemiSupervisedClassifier:
    vectors, labels, _ = few_labels()
    return small(40, method="fixmatch").fit(
        vectors, ["cat" if label == 0 else "dog" if label == 1 else None for label in labels]
    )


# What scikit-learn checks


@pytest.mark.filterwarnings("ignore:Every example has a label")
@parametrize_with_checks([small(30)], expected_failed_checks=lambda _: NOT_KEPT)
def test_it_keeps_the_rules_of_scikit_learn(estimator: SemiSupervisedClassifier, check: Any) -> None:
    check(estimator)


def test_the_classes_of_a_problem_are_those_that_scikit_learn_expects() -> None:
    """What `check_classifiers_classes` asks for before it comes to the class -1."""
    vectors, _, truth = few_labels()
    for names in (
        np.take(["one", "two"], truth),
        np.take(["one", "two"], truth).astype(object),
        truth == 1,
        truth * 2.0,
    ):
        made = small().fit(vectors, np.where(np.arange(24) < 20, names.astype(object), None))
        assert made.classes_.tolist() == np.unique(names).tolist()
        assert set(made.predict(vectors).tolist()) <= set(names.tolist())


def test_it_works_in_pipelines_and_searches() -> None:
    vectors, _, truth = few_labels()
    labels = np.where(np.arange(24) % 6 < 4, truth, -1)
    steps = make_pipeline(StandardScaler(), small(10))
    assert cross_val_score(steps, vectors, labels, cv=2).shape == (2,)
    search = GridSearchCV(small(10), {"method": ["fixmatch", "supervised"], "random_state": [1]}, cv=2)
    search.fit(vectors, labels)
    assert search.best_params_["method"] in ("fixmatch", "supervised")
    assert search.predict(vectors).shape == (24,)


def test_an_estimator_can_be_cloned_and_changed() -> None:
    one = small(method="comatch", projectors=3, random_state=5)
    two = clone(one).set_params(method="fixmatch", projectors=None)
    assert one.get_params() == {**two.get_params(), "method": "comatch", "projectors": 3}


# Labels


@pytest.mark.parametrize("hidden", [-1, None, float("nan"), np.nan, "", "-1"])
def test_unlabeled_is_said_in_many_ways(hidden: Any, model: SemiSupervisedClassifier) -> None:
    vectors, labels, _ = few_labels(hidden=hidden)
    texts = [label if label is hidden else ["cat", "dog"][label] for label in labels]
    again = small(40, method="fixmatch").fit(vectors, texts)
    assert again.classes_.tolist() == ["cat", "dog"]
    assert np.array_equal(again.predict_proba(vectors), model.predict_proba(vectors))
    if not isinstance(hidden, str):
        numbers = small(40, method="fixmatch").fit(vectors, np.array(labels, dtype=float))
        assert numbers.classes_.tolist() == [0, 1]
        assert np.array_equal(numbers.predict_proba(vectors), model.predict_proba(vectors))


def test_it_learns_and_says_the_class_of_every_row(model: SemiSupervisedClassifier) -> None:
    vectors, labels, truth = few_labels()
    names = np.take(["cat", "dog"], truth)
    assert model.score(vectors, names) == 1.0
    assert model.transduction_.tolist() == names.tolist()
    wrong = small().fit(vectors, [1, 0, *labels[2:]])
    assert wrong.transduction_[:2].tolist() == [1, 0]  # a label that was given stays


def test_a_score_is_about_rows_whose_class_is_known(model: SemiSupervisedClassifier) -> None:
    vectors, _, truth = few_labels()
    names = np.take(["cat", "dog"], truth).tolist()
    assert model.score(vectors, [names[0], "dog" if names[1] == "cat" else "cat", *[None] * 22]) == 0.5
    with pytest.raises(InputError, match="No row of y has a label, so there is nothing to compare"):
        model.score(vectors, [-1] * 24)


def test_without_unlabeled_rows_only_labels_are_used(tmp_path: Path) -> None:
    vectors, _, truth = few_labels()
    with pytest.warns(UserWarning, match="Every example has a label, and 'simmatch' is for those that have none"):
        small(out=tmp_path / "run", projectors=3).fit(vectors, truth)
    assert load_run(tmp_path / "run").recipe["method"] == {"name": "supervised"}
    small(method="supervised").fit(vectors, truth)  # says nothing


@pytest.mark.parametrize(
    ("labels", "sentence"),
    [
        (None, "requires y to be passed, but the target y is None"),
        ([-1] * 24, "No row of y has a label: give at least one row of each class its label."),
        ([1] * 20 + [-1] * 4, "The labels in y are all of one class, '1': a classifier needs at least two."),
        ([0, "cat"] + [-1] * 22, "y holds numbers among texts: use one kind for all classes."),
    ],
)
def test_labels_that_teach_nothing_are_refused(labels: Any, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        small().fit(few_labels()[0], labels)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"method": "simatch"}, "Unknown method 'simatch': did you mean 'simmatch'?"),
        ({"method": "moco"}, "'moco' is for 'epass pretrain'."),
        ({"settings": {"plan.lrr": 1.0}}, "Unknown setting 'plan.lrr': did you mean 'plan.lr'?"),
        ({"method": "fixmatch", "projectors": 3}, "takes no projector"),
        ({"steps": 0}, "plan.steps must be at least 1"),
    ],
)
def test_what_the_command_line_refuses_is_refused(arguments: dict[str, Any], sentence: str, tmp_path: Path) -> None:
    vectors, labels, _ = few_labels()
    with pytest.raises(ValueError, match=sentence.replace("?", r"\?")):
        small(out=tmp_path / "run").set_params(**arguments).fit(vectors, labels)
    assert not (tmp_path / "run").exists()


def test_one_label_of_a_class_is_enough() -> None:
    vectors, _, _ = few_labels()
    assert small().fit(vectors, [0, 1, *[-1] * 22]).classes_.tolist() == [0, 1]


# Images


def test_images_are_levels_or_shares() -> None:
    images, labels = squares()
    levels = small(settings=PIXELS).fit(images, labels)
    with pytest.warns(UserWarning, match="taken as levels from 0 to 1"):
        shares = small(settings=PIXELS).fit(images[..., None] / 255, labels)
    expected = levels.predict_proba(images)
    assert np.array_equal(expected, shares.predict_proba(images[:, None] / 255))
    assert np.array_equal(expected, levels.predict_proba(images.astype(np.int64)))
    assert not hasattr(levels, "n_features_in_")
    scaled = small(settings={**PIXELS, "data.image_size": 16}).fit(images, labels)
    assert scaled.predict(images).shape == (10,)
    assert json.loads(scaled.__getstate__()["_files"]["model.json"])["height"] == 16
    colored = small(settings=PIXELS).fit(np.stack([images] * 3, axis=3), labels)
    assert np.allclose(colored.predict_proba(images[:2]), colored.predict_proba(np.stack([images[:2]] * 3, axis=3)))


def test_a_float_image_gets_the_same_answer_whatever_comes_with_it(tmp_path: Path) -> None:
    images, labels = squares()
    with pytest.warns(UserWarning, match="taken as levels from 0 to 255"):
        model = small(settings=PIXELS).fit(images.astype(np.float32), labels)
    model.save(tmp_path / "model")
    masks = (images > 128).astype(np.float32)  # black and white
    together = model.predict_proba(np.concatenate([masks, images]))
    for asked in (model, SemiSupervisedClassifier.load(tmp_path / "model"), pickle.loads(pickle.dumps(model))):
        with pytest.warns(UserWarning, match="read as very dark: the training images are from 0 to 255"):
            np.testing.assert_allclose(asked.predict_proba(masks), together[:10], rtol=1e-5)
        asked.predict_proba(masks[:1] * 0)  # black is black
        np.testing.assert_allclose(asked.predict_proba(images), together[10:], rtol=1e-5)  # also as whole numbers
    with pytest.raises(InputError, match="use 0 to 1 or 0 to 255"):
        model.predict(masks * 300)


def test_a_float_image_brighter_than_those_that_were_learned_from_is_refused(tmp_path: Path) -> None:
    images, labels = squares()
    with pytest.warns(UserWarning, match="taken as levels from 0 to 1"):
        model = small(settings=PIXELS).fit(images / 255, labels)
    for brightest in (100.0, 255.0):
        with pytest.raises(InputError, match="but the training images are from 0 to 1: use one range for both"):
            model.predict(images / 255 * brightest)
    model.save(tmp_path / "model")
    facts = json.loads((tmp_path / "model" / "model.json").read_text())
    del facts["estimator"]["reading"]  # as of a model that was written before it was kept
    (tmp_path / "model" / "model.json").write_text(json.dumps(facts))
    older = SemiSupervisedClassifier.load(tmp_path / "model")
    np.testing.assert_array_equal(older.predict_proba(images * 1.0), model.predict_proba(images / 255))


def test_whole_numbers_in_a_fit_settle_what_floats_are(tmp_path: Path) -> None:
    images, labels = squares()
    dark = images // 16  # all below 16: by themselves such floats could be read in two ways
    model = small(settings=PIXELS).fit(dark, labels)
    model.save(tmp_path / "model")
    for asked in (model, SemiSupervisedClassifier.load(tmp_path / "model"), pickle.loads(pickle.dumps(model))):
        np.testing.assert_array_equal(asked.predict_proba(dark.astype(np.float32)), model.predict_proba(dark))
        asked.predict_proba(dark * 0.0)  # black is black
        with pytest.raises(InputError, match="from 0 to 1, but the training images are whole numbers from 0 to 255"):
            asked.predict(images / images.max())
        with pytest.raises(InputError, match="before any normalization"):
            asked.predict(images / images.max() - 0.5)


def test_zeros_and_ones_after_floats_from_0_to_1_are_said_to_be_dark() -> None:
    images, labels = squares()
    masks = (images > 128).astype(np.uint8)
    with pytest.warns(UserWarning, match="taken as levels from 0 to 1"):
        model = small(settings=PIXELS).fit(masks.astype(np.float32), labels)
    with pytest.warns(UserWarning, match="uint8 values from 0 to 1, read as very dark: the training images are floats"):
        model.predict(masks)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.predict(images)


def test_images_are_squares_to_predict_if_they_are_to_fit() -> None:
    images, labels = squares()
    wide = np.zeros((3, 8, 16), np.uint8)
    with pytest.raises(InputError, match="images of 8 x 16 pixels: make them square, or train with an image size"):
        small(settings=PIXELS).fit(wide, [0, 1, 0])
    model = small(settings=PIXELS).fit(images, labels)
    with pytest.raises(InputError, match="images of 8 x 16 pixels: make them square, or train with an image size"):
        model.predict(wide)
    assert model.predict(np.zeros((3, 16, 16), np.uint8)).shape == (3,)
    scaled = small(settings=PIXELS, image_size=8).fit(images, labels)
    assert scaled.predict(wide).shape == (3,)


def test_a_run_may_be_kept_in_the_home_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    with epass.estimator._folder("~/run") as folder:
        assert folder == tmp_path / "run"


def test_images_are_files_in_a_list_or_a_folder(tmp_path: Path) -> None:
    images, labels = squares()
    names = ["dark", "bright"]
    for number, (image, label) in enumerate(zip(images, labels, strict=True)):
        folder = tmp_path / "photos" / ("unlabeled" if label < 0 else f"labeled/{names[label]}")
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(folder / f"{number}.png")
    paths = sorted((tmp_path / "photos").rglob("*.png"), key=lambda path: int(path.stem))
    texts = [None if label < 0 else names[label] for label in labels]
    listed = small(settings=PIXELS, image_size=8).fit(np.array(paths, dtype=object)[:, None], texts)
    stored = small(settings=PIXELS, image_size=8).fit(tmp_path / "photos")
    assert listed.classes_.tolist() == stored.classes_.tolist() == ["bright", "dark"]
    assert [Path(name).stem for name in stored.files_[:4]] == ["1", "3", "0", "2"]
    assert stored.transduction_[:4].tolist() == ["bright", "bright", "dark", "dark"]
    assert stored.predict([str(path) for path in paths]).shape == (10,)
    assert np.array_equal(stored.predict(tmp_path / "photos"), stored.predict(sorted(paths)))
    with pytest.raises(InputError, match="says itself what is labeled: leave out y"):
        small(settings=PIXELS).fit(tmp_path / "photos", texts)
    paths[3].write_text("nothing")
    with pytest.raises(InputError, match=r"3.png' .*: mend it or leave it out"):
        stored.predict(paths)


def test_photos_are_learned_from_features(tmp_path: Path) -> None:
    large, tiny = np.zeros((2, 64, 80, 3), np.uint8), np.zeros((2, 32, 32), np.uint8)
    assert recipe_for(Request(), large).features == read_recipe("photos-simmatch").features
    assert recipe_for(Request(features="none"), large).features is None
    assert recipe_for(Request(net="small"), large).features is None
    assert recipe_for(Request(), tiny).features is None
    assert "image_size" not in recipe_for(Request(), tiny).data  # arrays keep theirs
    Image.fromarray(large[0]).save(tmp_path / "one.png")
    files = np.array([str(tmp_path / "one.png")])
    assert recipe_for(Request(), files).features is not None
    stored = starting_recipe(Request(tmp_path, features="none", device="cpu"))
    assert recipe_for(Request(features="none", device="cpu"), files).data["image_size"] == stored.data["image_size"]


# What is kept


def test_the_seed_decides() -> None:
    vectors, labels, _ = few_labels()
    seeds = [3, 3, 4, np.random.RandomState(7), np.random.RandomState(7)]
    first, again, other, drawn, drawn_again = (
        small(random_state=seed).fit(vectors, labels).predict_proba(vectors) for seed in seeds
    )
    assert np.array_equal(first, again)
    assert np.array_equal(drawn, drawn_again)
    assert not np.array_equal(first, other)
    assert not np.array_equal(first, drawn)


def test_a_model_is_saved_as_a_run(model: SemiSupervisedClassifier, tmp_path: Path) -> None:
    vectors, _, _ = few_labels()
    model.save(tmp_path / "model")
    before = {path.name: path.read_bytes() for path in (tmp_path / "model").iterdir()}
    loaded = SemiSupervisedClassifier.load(tmp_path / "model")
    assert loaded.get_params() == model.get_params()
    assert loaded.predict(vectors).tolist() == model.predict(vectors).tolist()
    assert loaded.n_features_in_ == 5
    assert {path.name: path.read_bytes() for path in (tmp_path / "model").iterdir()} == before
    with pytest.raises(InputError, match="already holds a run"):
        model.save(tmp_path / "model")
    np.savez(tmp_path / "rows.npz", vectors=vectors)
    result = predict(tmp_path / "model", tmp_path / "rows.npz", out=tmp_path / "answers.csv", device="cpu").result()
    assert sum(result.values["predictions"].values()) == 24


def test_numbers_come_back_as_numbers(tmp_path: Path) -> None:
    vectors, labels, _ = few_labels()
    small(out=tmp_path / "run").fit(vectors, np.array(labels) * 3 + 5 * (np.array(labels) < 0) - 3)  # -3, 0 and -1
    loaded = SemiSupervisedClassifier.load(tmp_path / "run")
    assert loaded.classes_.tolist() == [-3, 0]
    assert loaded.classes_.dtype.kind == "i"
    with pytest.raises(InputError, match="already holds a run: choose another folder"):
        small(out=tmp_path / "run").fit(vectors, labels)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter.txt").write_text("dear")
    with pytest.raises(InputError, match="is not empty and holds no run"):
        small(out=tmp_path / "mine").fit(vectors, labels)


def test_a_calibrated_model_gives_calibrated_probabilities(model: SemiSupervisedClassifier, tmp_path: Path) -> None:
    vectors, _, _ = few_labels()
    model.save(tmp_path / "model")
    facts = json.loads((tmp_path / "model" / "model.json").read_text())
    (tmp_path / "model" / "model.json").write_text(json.dumps({**facts, "calibration": {"temperature": 2.0}}))
    warm = SemiSupervisedClassifier.load(tmp_path / "model").predict_proba(vectors)
    expected = np.sqrt(model.predict_proba(vectors))
    assert np.allclose(warm, expected / expected.sum(axis=1, keepdims=True))


def test_a_pickle_holds_the_files_of_the_run(model: SemiSupervisedClassifier) -> None:
    vectors, _, _ = few_labels()
    state = model.__getstate__()
    assert {"recipe.toml", "model.json", "model.safetensors"} <= state["_files"].keys()
    assert all(isinstance(content, bytes) for content in state["_files"].values())
    assert "_network" not in state
    again = pickle.loads(pickle.dumps(model))
    assert np.array_equal(again.predict_proba(vectors), model.predict_proba(vectors))
    assert again.transduction_.tolist() == model.transduction_.tolist()


def test_numbers_of_numpy_are_numbers() -> None:
    vectors, labels, _ = few_labels()
    settings = {**BODY, "plan.lr": 0.25, "data.include_labeled": True}
    plain = small(4, projectors=3, random_state=5, settings=settings).fit(vectors, labels)
    numbers = {name: np.array(value)[()] for name, value in settings.items()}
    found = small(np.int64(4), projectors=np.int64(3), random_state=np.int64(5), settings=numbers).fit(vectors, labels)
    np.testing.assert_array_equal(found.predict_proba(vectors), plain.predict_proba(vectors))


def test_a_generator_of_either_kind_is_drawn_from() -> None:
    vectors, labels, _ = few_labels()
    generator = np.random.default_rng(0)
    first, other, again = (
        small(random_state=drawn).fit(vectors, labels).predict_proba(vectors)
        for drawn in (generator, generator, np.random.default_rng(0))
    )
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)
    state = np.random.RandomState(0)
    assert small(random_state=state).fit(vectors, labels).predict(vectors).shape == (24,)


def test_a_device_of_torch_is_a_device(tmp_path: Path) -> None:
    vectors, labels, _ = few_labels()
    model = SemiSupervisedClassifier(steps=3, device=torch.device("cpu"), settings=BODY).fit(vectors, labels)
    model.save(tmp_path / "model")
    loaded = SemiSupervisedClassifier.load(tmp_path / "model")
    assert loaded.device == "cpu"
    assert np.array_equal(loaded.predict(vectors), model.predict(vectors))
    assert choose_device(torch.device("cpu")) == torch.device("cpu")


@pytest.mark.parametrize("side", [1, 2, 3])
def test_images_of_too_few_pixels_are_one_sentence(side: int) -> None:
    with pytest.raises(InputError, match=f"images of 4 pixels or more, and these have {side} x {side}: set"):
        small(settings=PIXELS).fit(np.zeros((4, side, side), np.uint8), [0, 1, -1, -1])


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ({"features": "efficientnet-lite0"}, "features"),
        ({"image_size": 8}, "image_size"),
        ({"settings": {"data.image_size": 8}}, "image_size"),
    ],
)
def test_what_is_for_images_is_refused_for_vectors(arguments: dict[str, Any], name: str) -> None:
    vectors, labels, _ = few_labels()
    with pytest.raises(InputError, match=f"^X holds vectors, and {name} is for images: leave it out\\.$"):
        small(**arguments).fit(vectors, labels)


def test_what_a_model_cannot_be_asked_about_is_one_sentence(model: SemiSupervisedClassifier, tmp_path: Path) -> None:
    images, labels = squares()
    of_images = small(settings=PIXELS).fit(images, labels)
    with pytest.raises(InputError, match=r"^X has shape \(10, 64\): use \(N, H, W\).* with 1 or 3 channels\.$"):
        of_images.predict(images.reshape(10, 64))
    with pytest.raises(InputError, match=r"^X has shape \(10, 8, 8\), and the model takes vectors: use \(N, 5\)\.$"):
        model.predict(images)
    with pytest.raises(
        InputError, match=r"gone.png' cannot be read \(there is no such file\): mend it or leave it out"
    ):
        of_images.predict([tmp_path / "gone.png"])


def test_the_run_of_a_command_can_be_loaded(tmp_path: Path) -> None:
    vectors, _, truth = few_labels()
    np.savez(tmp_path / "rows.npz", vectors=vectors, labels=truth)
    settings = [f"{name}={value}" for name, value in BODY.items()]
    with pytest.warns(UserWarning, match="hardly better than guessing"):
        train(tmp_path / "rows.npz", steps=3, seed=4, out=tmp_path / "run", device="cpu", settings=settings).result()
    loaded = SemiSupervisedClassifier.load(tmp_path / "run")
    assert loaded.classes_.tolist() == ["0", "1"]
    assert (loaded.method, loaded.random_state) == ("simmatch", 4)
    assert loaded.predict(vectors).shape == (24,)


def test_a_file_of_a_stranger_names_no_code(model: SemiSupervisedClassifier, tmp_path: Path) -> None:
    model.save(tmp_path / "model")
    facts = json.loads((tmp_path / "model" / "model.json").read_text())
    for change, sentence in (
        ({"method": "evil.py:Method"}, "evil.py:Method"),
        ({"settings": {"net.name": "evil.py:Net"}}, "evil.py:Net"),
        ({"novel": 1}, "is damaged, or of a newer version"),
    ):
        changed = {**facts, "estimator": {**facts["estimator"], "parameters": change}}
        (tmp_path / "model" / "model.json").write_text(json.dumps(changed))
        with pytest.raises(InputError, match=sentence):
            SemiSupervisedClassifier.load(tmp_path / "model")


# What is shown


def test_it_is_quiet_unless_somebody_looks(capfd: pytest.CaptureFixture[str]) -> None:
    vectors, labels, _ = few_labels()
    small().fit(vectors, labels)
    assert capfd.readouterr() == ("", "")
    small(verbose=True).fit(vectors, labels)
    shown = capfd.readouterr()
    assert "step" in shown.err
    assert "3/3" in shown.err
    assert shown.out == ""


def test_the_page_names_every_argument() -> None:
    page = (Path(__file__).parents[1] / "docs" / "estimator.md").read_text("utf-8")
    assert [name for name in small().get_params() if f"`{name}`" not in page] == []


def test_the_example_is_true() -> None:
    assert doctest.testmod(epass.estimator) == (0, 6)
