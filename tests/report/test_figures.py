from __future__ import annotations

import re
from html import unescape
from xml.etree import ElementTree

import numpy as np
import pytest

from epass.report import group_runs
from epass.report.curves import error_curves, head_similarity, loss_parts, pseudo_labels
from epass.report.diagrams import confusion_matrix, reliability_diagram
from epass.report.maps import Atlas, atlas_of, draw_maps
from epass.report.microscope import class_history, pseudo_labels_by_class, quantity_against_quality
from epass.report.style import COLORS, Drawing, NoDataError
from epass.runs import Predictions


def texts(drawn: str | Drawing) -> list[str]:
    svg = drawn if isinstance(drawn, str) else drawn.svg()
    ElementTree.fromstring(svg)  # well-formed
    return [unescape(text) for text in re.findall(r"<text[^>]*>([^<]*)</text>", svg)]


def lines(svg: str, color: str) -> int:
    return len(re.findall(rf'<path d="[^"]*"[^>]*stroke: {color.lower()}', svg))


@pytest.fixture
def groups(make_runs):
    return group_runs(
        make_runs("supervised", [0.5, 0.52])
        + make_runs("simmatch", [0.2, 0.21])
        + make_runs("simmatch", [0.18], size=3)
    )


def test_error_curves(groups):
    svg = error_curves(groups).svg()
    found = texts(svg)
    assert {"test error (%)", "training steps"} <= set(found)
    assert {"labels only, 2 seeds", "SimMatch, 2 seeds", "SimMatch + EPASS (3), 1 seed"} <= set(found)
    # two seeds, their mean and the legend's line; a single seed is its own mean
    assert [lines(svg, color) for color in COLORS[1:3]] == [4, 2]
    assert lines(svg, COLORS[3]) == 0


def test_mean_ends_with_the_shortest_seed(make_runs):
    short, long = make_runs("simmatch", [0.2, 0.4])
    del short.metrics[5:]  # its test errors end at step 200
    svg = error_curves(group_runs([short, long])).svg()
    counts = sorted(path.count("L") for path in re.findall(r'<path d="([^"]*)" clip-path', svg) if path.count("L"))
    assert counts[-3:] == [1, 1, 3]  # segments: mean, short, long


def test_many_methods_make_the_figure_taller_not_the_plot_flatter(make_run):
    def height(names):
        svg = error_curves(group_runs([make_run(name) for name in names])).svg()
        return float(re.search(r'viewBox="0 0 [\d.]+ ([\d.]+)"', svg)[1])

    names = [f"method_{number:02d}" for number in range(26)]
    few, many = height(names[:4]), height(names)
    assert height(names[:2]) == few
    assert many > few + 50  # points: four more rows of the legend


def test_pseudo_labels(groups):
    found = texts(pseudo_labels(groups))
    assert {"images used (%)", "of these right (%)", "training steps"} <= set(found)
    assert {"SimMatch", "SimMatch + EPASS (3)"} <= set(found)
    assert "labels only" not in found


def test_where_nobody_knows_the_truth_there_is_no_empty_axis(make_run):
    run = make_run()
    for row in run.metrics:
        row.pop("quality")
        row.update({key: [0.0] * 3 for key in ("known_by_class", "right_by_class") if "used_by_class" in row})
    both, by_class = pseudo_labels(group_runs([run])), pseudo_labels_by_class(run, ["cat", "dog", "ship"], "b")
    assert texts(both).count("training steps") == texts(by_class).count("training steps") == 1
    assert "images used (%)" in texts(both)
    assert "share of the pseudo-labels (%)" in texts(by_class)
    assert not any("right (%)" in text for text in texts(both) + texts(by_class))


def test_a_label_wider_than_the_figure_is_broken(make_run):
    run, other = make_run(), make_run(plan__steps=800)
    for each in (run, other):
        each.recipe["data"]["name"] = "/a/folder " * 9 + str(each.recipe["plan"]["steps"])
    assert max(map(len, texts(error_curves(group_runs([run, other]))))) < 70


def test_loss_parts(groups):
    found = texts(loss_parts(groups))
    assert {"loss", "training steps", "total", "labeled", "unlabeled"} <= set(found)
    assert {"labels only", "SimMatch", "SimMatch + EPASS (3)"} <= set(found)


def test_loss_panels_show_every_curve_whole(make_runs):
    low, high = make_runs("supervised", [0.5])[0], make_runs("simmatch", [0.2])[0]
    for row in high.metrics:
        row["loss"] = 40.0
    assert "40" in texts(loss_parts(group_runs([low, high])))


def test_seeds_are_a_band(make_runs):
    one, two = (error_curves(group_runs(make_runs("simmatch", errors))).svg() for errors in ([0.2], [0.2, 0.4]))
    assert ("PolyCollection" in one, "PolyCollection" in two) == (False, True)
    low, high = (error_curves(group_runs(make_runs("simmatch", [0.3, error]))).svg() for error in (0.3, 0.5))
    assert band_height(low) == pytest.approx(0, abs=0.1)
    assert band_height(high) > 20


def band_height(svg):
    """Of the band at its first step, in points."""
    band = re.search(r'id="[^"]*PolyCollection[^"]*">.*?<path[^>]* d="([^"]*)"', svg, re.S)[1]
    points = [tuple(map(float, point)) for point in re.findall(r"[ML] (-?[\d.]+) (-?[\d.]+)", band)]
    heights = [y for x, y in points if x == min(x for x, _ in points)]
    return max(heights) - min(heights)


def test_quantity_against_quality(groups):
    found = texts(quantity_against_quality(groups))
    assert {"quantity: unlabeled images used (%)", "quality: of these, labeled right (%)"} <= set(found)
    assert {"SimMatch", "SimMatch + EPASS (3)", "first report", "last report"} <= set(found)
    assert "labels only" not in found


def test_head_similarity(groups):
    found = texts(head_similarity(groups))
    assert {"mean cosine between two heads", "training steps", "SimMatch + EPASS (3)"} <= set(found)
    assert "1: all heads are one head" in found
    assert "SimMatch" not in found  # one head has nothing to differ from


def test_pseudo_labels_by_class(make_run):
    found = texts(pseudo_labels_by_class(make_run(), ["cat", "dog", "ship"], "b"))
    assert {"share of the pseudo-labels (%)", "of these, labeled right (%)", "training steps"} <= set(found)
    assert {"class that they name", "cat", "dog", "ship"} <= set(found)


def test_the_history_of_classes(make_run):
    run = make_run()
    run.metrics[:] = [
        {"step": 1},
        {"step": 2, "used_by_class": [0.3, 0.1, 0.0], "known_by_class": [0.2, 0, 0], "right_by_class": [0.05, 0, 0]},
        {"step": 4, "used_by_class": [0.0, 0.0, 0.0], "known_by_class": [0.0, 0, 0], "right_by_class": [0.0, 0, 0]},
    ]
    steps, share, right = class_history(run)
    assert steps.tolist() == [2, 4]
    np.testing.assert_allclose(share, [[75, 25, 0], [0, 0, 0]])
    np.testing.assert_allclose(right, [[25, np.nan, np.nan], [np.nan] * 3])


def test_maps_name_what_they_show(pictured):
    found = texts(draw_maps(atlas_of(pictured()), "m"))
    assert {"t-SNE of the features of the backbone", "t-SNE of the embeddings of the projectors"} <= set(found)
    assert {"color: the true class", "right answer", "wrong answer", "cat", "dog", "ship"} <= set(found)
    alone = texts(draw_maps(atlas_of(pictured(embedding=False)), "m"))
    assert "t-SNE of the features of the backbone" in alone
    assert "t-SNE of the embeddings of the projectors" not in alone


def test_the_map_lies_in_the_unit_square_and_belongs_to_its_images(pictured):
    run = pictured()
    atlas = atlas_of(run)
    assert isinstance(atlas, Atlas)
    for places in atlas.maps.values():
        assert places.shape == (30, 2)
        assert (places.min(), places.max()) == (0, 1)
    assert atlas.answers.labels.tolist() == run.predictions.labels[::2].tolist()


@pytest.mark.parametrize(
    ("draw", "reason"),
    [
        (quantity_against_quality, "how good its pseudo-labels are"),
        (head_similarity, "more than one projector"),
        (lambda groups: pseudo_labels_by_class(groups[0].runs[0], [], "b"), "class by class"),
        (lambda groups: atlas_of(groups[0].runs[0]), "kept no features"),
        (error_curves, "test error was not measured"),
        (pseudo_labels, "pseudo-labels"),
        (loss_parts, "loss was not recorded"),
    ],
)
def test_missing_data_is_a_reason(make_runs, draw, reason):
    (run,) = make_runs("supervised", [0.5])
    run.metrics[:] = [{"step": 1, "test_error": None}]
    with pytest.raises(NoDataError, match=reason):
        draw(group_runs([run]))


def test_reliability_diagram(make_run):
    found = texts(reliability_diagram(make_run().predictions, "r"))
    assert {"accuracy", "confidence", "images (%)", "gap to confidence", "perfect"} <= set(found)
    assert any(re.fullmatch(r"ECE \d+\.\d\d %", text) for text in found)
    assert any(re.fullmatch(r"overall accuracy \d+\.\d %", text) for text in found)
    assert any(re.fullmatch(r"mean confidence \d+\.\d %", text) for text in found)


def test_reliability_marks_accuracy_solid_and_confidence_dotted():
    sure = Predictions(np.array([[9.0, 0.0]] * 4, dtype=np.float32), np.array([0, 0, 0, 1]))
    svg = reliability_diagram(sure, "r").svg()
    assert "ECE 24.99 %" in texts(svg)
    assert {"overall accuracy 75.0 %", "mean confidence 100.0 %"} <= set(texts(svg))
    assert svg.count("stroke-dasharray") >= 2  # the diagonal and the mean confidence


def test_confusion_matrix_with_numbers():
    predictions = Predictions(np.eye(3, dtype=np.float32)[[0, 0, 1, 2]], np.array([0, 1, 1, 0]))
    found = texts(confusion_matrix(predictions, ["a & b", "$cash$", "<i>"], "c"))
    assert {"true class", "predicted class", "a & b", "$cash$", "<i>"} <= set(found)
    # class 0: half right, half taken for 2; class 1: half and half; class 2 has no images, so no numbers
    assert [text for text in found if text.isdigit()] == ["50", "0", "50", "50", "50", "0"]


def test_confusion_matrix_of_many_classes_is_pixels():
    predictions = Predictions(np.eye(120, dtype=np.float32), np.arange(120))
    svg = confusion_matrix(predictions, [f"class {number}" for number in range(120)], "c").svg()
    assert "share of the true class (%)" in texts(svg)
    assert "class 7" not in texts(svg)
    assert "data:image/png" in svg
    assert len(svg) < 100_000


def test_figures_are_the_same_text_every_time(groups, make_run):
    predictions = make_run().predictions
    for draw in (
        lambda: error_curves(groups),
        lambda: reliability_diagram(predictions, "r"),
        lambda: confusion_matrix(predictions, list("abc"), "c"),
    ):
        assert draw().svg() == draw().svg()


def test_a_script_our_font_lacks_is_no_warning(make_run):
    assert "猫" in texts(confusion_matrix(make_run().predictions, ["猫", "犬", "船"], "c"))


def test_long_curves_stay_light(make_run):
    run = make_run()
    run.metrics[:] = [{"step": step, "test_error": 0.5 + 0.1 * (step % 2)} for step in range(1, 20_001)]
    assert len(error_curves(group_runs([run])).svg()) < 40_000


def test_confusion_matrix_of_very_many_classes_has_no_more_cells_than_can_be_seen():
    labels = np.array([0, 1, 700, 1100])
    logits = np.zeros((4, 1200), dtype=np.float32)
    logits[np.arange(4), [2, 400, 700, 5]] = 1
    drawing = confusion_matrix(Predictions(logits, labels), [str(number) for number in range(1200)], "c")
    axes = drawing.figure.axes[0]
    shares = axes.collections[0].get_array().reshape(400, 400)
    assert (shares[0, 0], shares[0, 133], shares[233, 233], shares[366, 1]) == (50, 50, 100, 100)
    assert axes.get_ylabel() == "true class, 3 together"
