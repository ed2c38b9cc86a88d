from __future__ import annotations

import base64
import io
import json
import re
from dataclasses import replace
from html import unescape

import numpy as np
import pytest
from PIL import Image

from epass.errors import InputError
from epass.evaluation.arrays import log_softmax
from epass.report import answers as report_answers
from epass.report import write_figures, write_page
from epass.report.gallery import class_table, confident_mistakes
from epass.report.maps import embeddings_of
from epass.report.pictures import Pictures, address_of, sprite_of
from epass.runs import Embeddings, Predictions, RunFolder, load_embeddings, names_of_test_images, write_embeddings


def decode(address):
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(address.partition("base64,")[2]))))


@pytest.fixture(scope="module")
def page(pictured, tmp_path_factory):
    runs = [pictured("supervised", 1, embedding=False), pictured()]
    return write_page(tmp_path_factory.mktemp("page") / "page.html", runs, title="t", maps=True).read_text("utf-8")


def test_a_map_knows_every_image(page, pictured):
    first, second = (json.loads(unescape(data)) for data in re.findall(r'data-atlas="([^"]*)"', page))
    run = pictured()
    assert (len(first["places"]), len(second["places"])) == (1, 2)
    assert second["labels"] == run.predictions.labels[::2].tolist()
    assert second["predicted"] == run.predictions.logits[::2].argmax(1).tolist()
    assert second["classes"] == ["cat", "dog", "ship"]
    assert all(len(places) == 60 and 0 <= min(places) <= max(places) <= 1000 for places in second["places"])


def test_every_image_is_a_dot_or_a_cross(page, pictured):
    wrong = (pictured().predictions.logits.argmax(1) != pictured().predictions.labels)[::2].sum()
    panels = re.findall(r'<svg viewBox="0 0 1000 1000".*?</svg>', page, re.S)
    assert len(panels) == 3
    for panel in panels:
        assert panel.count("h0") == 30 - wrong
        assert panel.count("l16 16m0-16l-16 16") == wrong > 0
        assert re.findall(r"<text[^>]*>([^<]*)", panel) == ["cat", "dog", "ship"]


def test_runs_on_the_same_images_share_their_pictures(page):
    sheets = re.findall(r'class="thumb (picture-\d+)"', page)
    assert (len(sheets), len(set(sheets))) == (2, 1)
    stored = re.findall(r"url\((data:image/[^)]*)\)", page)
    assert len(stored) == len(set(stored)) == 1 + 3  # the sheet, and a mistake of each color


def test_a_mistake_in_a_map_is_shown_by_the_picture_of_the_gallery(page, pictured):
    _, facts = (json.loads(unescape(data)) for data in re.findall(r'data-atlas="([^"]*)"', page))
    wrong = (pictured().predictions.logits.argmax(1) != pictured().predictions.labels)[::2]
    assert sorted(map(int, facts["larger"])) == np.flatnonzero(wrong).tolist()
    assert all(f'class="photo {picture}"' in page for picture in facts["larger"].values())


def test_images_are_called_by_their_files(pictured, tmp_path):
    run = pictured()
    names = [f"photos/<b>/{number}.jpg" for number in range(60)]
    (run.path / "split.json").write_text(json.dumps({"test": names}))
    text = write_page(tmp_path / "p.html", [run], title="t", maps=True).read_text()
    mistake = load_embeddings(run.path).mistakes[0]
    assert f'<small title="photos/&lt;b&gt;/{mistake}.jpg">{mistake}.jpg</small>' in text
    assert json.loads(unescape(re.search(r'data-atlas="([^"]*)"', text)[1]))["names"] == names[::2]


@pytest.mark.parametrize("content", ["torn", "[]", '{"test": [1, 2]}', '{"test": "abc"}', '{"test": ["one.jpg"]}'])
def test_without_files_images_have_numbers(pictured, content):
    run = pictured()
    assert names_of_test_images(run.path, 2) == ["test image 0", "test image 1"]
    (run.path / "split.json").write_text(content)
    assert names_of_test_images(run.path, 2) == ["test image 0", "test image 1"]


def test_the_mistakes_come_before_what_happened_in_training(page):
    heads = re.findall(r"<h2>([^<]*)", page)
    assert heads[:3] == ["Results", "Test images", "Calibration and confusion"]
    assert heads[-3:] == ["During training", "Pseudo-labels under the microscope", "How to reproduce"]


def test_the_only_script_is_ours_and_is_named_by_its_hash(page):
    scripts = re.findall(r"<script>(.*?)</script>", page, re.S)
    assert len(scripts) == page.count("<script") == 1
    assert re.search(r"default-src 'none';.*script-src 'sha256-[\w+/=]+'\"", page)
    assert not re.search(r"https?://(?!www\.w3\.org/(?:1999/xlink|2000/svg))", page)


def test_names_are_text_everywhere(pictured, tmp_path):
    evil = "</script><b onclick='x'>\"&"
    text = write_page(tmp_path / "p.html", [pictured(classes=[evil, "b", "c"])], title="t", maps=True).read_text()
    assert evil not in text
    assert json.loads(unescape(re.search(r'data-atlas="([^"]*)"', text)[1]))["classes"][0] == evil


def test_a_sprite_has_the_images_row_by_row():
    images = np.arange(5 * 3 * 2 * 4, dtype=np.uint8).reshape(5, 3, 2, 4)
    sprite = sprite_of(images)
    assert (sprite.columns, sprite.rows, sprite.height, sprite.width) == (3, 2, 2, 4)
    sheet = decode(sprite.address)
    assert sheet.shape == (4, 12, 3)
    for number, image in enumerate(images):
        row, column = divmod(number, 3)
        assert (sheet[2 * row : 2 * row + 2, 4 * column : 4 * column + 4].transpose(2, 0, 1) == image).all()


def test_gray_images_stay_gray_and_heavy_ones_become_lighter():
    assert decode(address_of(np.full((1, 3, 2), 7, np.uint8))).tolist() == [[7, 7]] * 3
    noise = np.random.default_rng(0).integers(0, 256, (3, 400, 400), dtype=np.uint8)
    address = address_of(noise)
    assert address.startswith("data:image/jpeg")
    assert decode(address).shape == (400, 400, 3)


def test_what_only_slow_compression_makes_light_enough_keeps_every_pixel():
    rings = (np.hypot(*np.mgrid[-50:50, -50:50]) * 9 % 256).astype(np.uint8)
    image, sizes = Image.fromarray(rings), []
    for settings in ({"compress_level": 1}, {"optimize": True}):
        buffer = io.BytesIO()
        image.save(buffer, "PNG", **settings)
        sizes.append(buffer.tell())
    hasty, slow = sizes
    assert slow < hasty < 2 * slow
    assert (decode(address_of(rings[None], heavy=slow)) == rings).all()
    assert address_of(rings[None], heavy=slow - 1).startswith("data:image/jpeg")


def test_the_most_confident_mistakes(pictured):
    run = pictured()
    text = confident_mistakes(run, Pictures())
    wrong = np.flatnonzero(run.predictions.logits.argmax(1) != run.predictions.labels)
    assert text.count("<li>") == len(wrong) > 0
    probs = np.exp(run.predictions.logits.astype(float))
    confidence = (probs / probs.sum(1, keepdims=True)).max(1)
    names = np.array(["cat", "dog", "ship"])
    first = wrong[0]
    said, true = names[run.predictions.logits[first].argmax()], names[run.predictions.labels[first]]
    assert f"predicted <b>{said}</b>, {100 * confidence[first]:.1f}&nbsp;%<br>is <b>{true}</b>" in text


def test_the_error_of_every_class(pictured):
    run = pictured()
    truth, predicted = np.array([0, 0, 0, 0, 1, 1]), np.array([0, 1, 1, 2, 1, 1])
    object.__setattr__(run, "predictions", Predictions(np.eye(3, dtype=np.float32)[predicted], truth))
    rows = [re.sub(r"<[^>]*>", "|", row) for row in re.findall(r"<tr><th scope=\"row\">.*?</tr>", class_table(run))]
    cells = [[cell for cell in row.split("|") if cell] for row in rows]
    assert cells == [
        ["cat", "4", "75.0", "25.0", "dog (2)"],
        ["dog", "2", "0.0", "100.0", "–"],
        ["ship", "0", "–", "–", "–"],
    ]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"chosen": np.arange(29)}, "do not fit together"),
        ({"chosen": np.arange(31, 61)}, "are of different images"),
        ({"mistakes": np.arange(2)}, "do not fit together"),
        (b"torn", "is damaged"),
    ],
)
def test_damaged_embeddings_are_named(pictured, change, words):
    run = pictured()
    if isinstance(change, bytes):
        (run.path / "embeddings.safetensors").write_bytes(change)
    else:
        write_embeddings(RunFolder(run.path), load_embeddings(run.path)._replace(**change))
    with pytest.raises(InputError, match=words):
        embeddings_of(run)


def test_damaged_embeddings_do_not_cost_the_page(pictured, tmp_path):
    run = pictured()
    (run.path / "embeddings.safetensors").write_bytes(b"torn")
    text = write_page(tmp_path / "p.html", [run], title="t", maps=True).read_text()
    assert text.count("embeddings.safetensors&#x27; is damaged") == 2  # in place of the map and of the mistakes
    assert "The error of every class" in text


def test_embeddings_come_back_as_they_were(pictured):
    run = pictured(embedding=False)
    found = load_embeddings(run.path)
    assert isinstance(found, Embeddings)
    assert found.embedding is None
    assert found.thumbnails.shape == (30, 3, 8, 6)
    assert load_embeddings(run.path / "nowhere") is None


def test_a_page_without_maps_says_where_they_are(pictured, tmp_path):
    text = write_page(tmp_path / "p.html", [pictured()], title="t").read_text()
    assert "epass report draws it" in text
    assert "<script" not in text
    assert "The most confident mistakes" in text


@pytest.mark.slow
def test_figures_as_files(pictured, make_run, tmp_path):
    run = pictured()
    written, left_out = write_figures(tmp_path / "one", [run])
    assert left_out == {}
    names = ["test-error", "loss-parts", "head-similarity", "pseudo-labels", "quantity-quality", "by-class", "map"]
    assert written == [*names, "confusion", "reliability", "reliability-scaled"]
    files = {path.name: path.read_bytes() for path in (tmp_path / "one").iterdir()}
    assert set(files) == {f"{name}.{kind}" for name in written for kind in ("svg", "pdf", "png")}
    assert all(files[f"{name}.pdf"].startswith(b"%PDF") for name in written)
    assert all(files[f"{name}.png"].startswith(b"\x89PNG") for name in written)
    assert b"ECE" in files["reliability.svg"]
    assert b"mean cosine between two heads" in files["head-similarity.svg"]


@pytest.mark.slow
def test_figures_that_cannot_be_drawn_leave_no_file(make_run, tmp_path):
    written, left_out = write_figures(tmp_path, [make_run("supervised", finished=False), make_run()])
    assert {"map-0-labels-only", "map-1-simmatch", "head-similarity", "by-class-0-labels-only"} <= set(left_out)
    assert left_out["confusion-0-labels-only"] == "No predictions yet: a run writes them when it ends."
    assert {path.stem for path in tmp_path.iterdir()} == set(written) >= {"confusion-1-simmatch", "test-error"}


def test_a_page_of_many_images_asks_and_holds_no_more_than_that_of_few(pictured, tmp_path, monkeypatch):
    few = pictured()
    logits, labels = (np.tile(part, (50,) + (1,) * (part.ndim - 1)) for part in few.predictions)
    many = replace(few, predictions=Predictions(logits, labels))
    (few.path / "split.json").write_text(json.dumps({"test": [f"{number}.jpg" for number in range(len(labels))]}))
    shown, sure = [], []
    monkeypatch.setattr(report_answers, "printable", lambda name: shown.append(name) or name)
    monkeypatch.setattr(report_answers, "log_softmax", lambda rows: sure.append(len(rows)) or log_softmax(rows))
    found = load_embeddings(few.path)
    page = write_page(tmp_path / "many.html", [many], title="t", maps=True)
    assert sorted(shown) == sorted(f"{place}.jpg" for place in (*found.chosen, *found.mistakes))
    assert sorted(sure) == sorted([len(found.chosen), len(found.mistakes)])
    size, less = page.stat().st_size, write_page(tmp_path / "few.html", [few], title="t", maps=True).stat().st_size
    assert abs(size - less) < 2000
