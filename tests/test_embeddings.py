from __future__ import annotations

import shutil
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image

from epass.engine import keep as embeddings
from epass.engine.build import build
from epass.engine.infer import infer, predict
from epass.engine.keep import evenly, most_confident_mistakes, photos, projector_of, see_test_images, thumbnails
from epass.errors import InputError
from epass.recipe import read_recipe
from epass.runs import RunFolder, load_embeddings, write_embeddings


def flip(path: Path, place: int) -> None:
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(content)


class Taken:
    """Test images that can only be taken, as those in files."""

    def __init__(self, images) -> None:
        self.select, self.look = images.select, images.look
        self.labels, self.length = images.labels, len(images)

    def __len__(self) -> int:
        return self.length


@pytest.fixture(scope="module")
def experiment():
    return build(read_recipe("digits-simmatch").with_settings({"plan.steps": 50}), torch.device("cpu"))


def keep(experiment, folder: Path):
    net, split = experiment.network, experiment.split
    logits = predict(net, split.test, experiment.dataset, experiment.device)
    only_taken = SimpleNamespace(
        split=SimpleNamespace(test=Taken(split.test)),
        dataset=experiment.dataset,
        device=experiment.device,
        method=experiment.method,
    )
    write_embeddings(RunFolder(folder), see_test_images(only_taken, net, logits))
    return load_embeddings(folder), logits


def test_a_flipped_bit_is_noticed(experiment, tmp_path) -> None:
    keep(experiment, tmp_path)
    path = tmp_path / "embeddings.safetensors"
    flip(path, -1)
    with pytest.raises(InputError, match=r"embeddings\.safetensors' is damaged: its checksum does not match\.$"):
        load_embeddings(tmp_path)


def test_what_is_kept_is_what_the_model_sees(experiment, tmp_path) -> None:
    found, logits = keep(experiment, tmp_path)
    test = experiment.split.test
    features = infer(experiment.network, test, experiment.dataset, experiment.device).features
    assert found.chosen.tolist() == list(range(len(test)))
    np.testing.assert_allclose(found.features, features, rtol=2e-3, atol=1e-4)
    np.testing.assert_allclose(found.embedding, experiment.method.projector(features).detach(), rtol=2e-3, atol=1e-3)
    assert (found.thumbnails == test.pixels.numpy()).all()
    assert found.mistakes.tolist() == most_confident_mistakes(logits, test.labels).tolist()
    assert (found.mistake_thumbnails == test.pixels[found.mistakes].numpy()).all()


def test_many_images_are_thinned_to_fit(experiment, tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embeddings, "MOST_IMAGES", 100)
    assert len(keep(experiment, tmp_path)[0].chosen) == 100
    monkeypatch.setattr(embeddings, "MOST_BYTES", 20_000)
    found, _ = keep(experiment, tmp_path)
    assert 10 < len(found.chosen) < 100
    kept = (found.features, found.embedding, found.thumbnails)
    assert sum(part.nbytes for part in kept) <= 20_000
    assert found.chosen.max() > 0.9 * len(experiment.split.test)


def test_a_method_without_an_embedding_has_no_projector() -> None:
    recipe = read_recipe("digits-simmatch").with_settings({"plan.steps": 50})
    assert projector_of(build(recipe, torch.device("cpu"))) is not None
    plain = read_recipe("digits-fixmatch").with_settings({"plan.steps": 50})
    assert projector_of(build(plain, torch.device("cpu"))) is None


def test_the_embedding_of_a_wrapped_method_is_that_of_the_method_inside(tmp_path) -> None:
    settings = {"plan.steps": 50, "wrapper.name": "abc", "projector.size": 2}
    wrapped = build(read_recipe("digits-simmatch").with_settings(settings), torch.device("cpu"))
    assert projector_of(wrapped) is wrapped.method.host.projector is not None
    found, _ = keep(wrapped, tmp_path)
    features = infer(wrapped.network, wrapped.split.test, wrapped.dataset, wrapped.device).features
    np.testing.assert_allclose(found.embedding, wrapped.method.host.projector(features).detach(), rtol=2e-3, atol=1e-3)


def test_evenly_chosen() -> None:
    assert evenly(3, 5).tolist() == [0, 1, 2]
    assert evenly(10, 5).tolist() == [0, 2, 4, 6, 8]
    assert evenly(10_000, 2_000).unique().numel() == 2_000
    assert evenly(10, 0).tolist() == [0]


def test_mistakes_come_in_the_order_of_their_confidence() -> None:
    logits = torch.tensor([[3.0, 0.0], [1.0, 0.0], [9.0, 0.0], [0.0, 2.0], [0.0, 2.0]])
    labels = torch.tensor([1, 1, 0, 0, 0])
    assert most_confident_mistakes(logits, labels).tolist() == [0, 3, 4, 1]
    assert most_confident_mistakes(torch.eye(3), torch.arange(3)).tolist() == []
    assert len(most_confident_mistakes(torch.eye(2)[torch.zeros(99).long()], torch.ones(99).long())) == 24


def test_thumbnails_keep_small_images_and_the_shape_of_large_ones() -> None:
    small = torch.arange(2 * 3 * 8 * 4, dtype=torch.uint8).view(2, 3, 8, 4)
    assert (thumbnails(small, 32) == small).all()
    large = torch.zeros(2, 3, 100, 50, dtype=torch.uint8)
    large[:, :, 50:] = 200
    scaled = thumbnails(large, 32)
    assert scaled.shape == (2, 3, 32, 16)
    assert scaled[0, 0, :15].max() == 0
    assert scaled[0, 0, 17:].min() == 200
    assert thumbnails(torch.full((1, 4, 8, 8), 9, dtype=torch.uint8), 32).tolist() == [[[[9] * 8] * 8]]
    assert thumbnails(large[:0], 32).shape[0] == 0


@pytest.mark.parametrize("packed", [False, True])
def test_mistakes_are_shown_as_large_as_their_files_are(tmp_path, packed) -> None:
    for number in range(12):
        folder = tmp_path / "photos" / ("dark", "light")[number % 2]
        folder.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (300, 200), (20 * number, 0, 0)).save(folder / f"{number:02}.png")
    place = Path(shutil.make_archive(str(tmp_path / "photos"), "zip", tmp_path / "photos")) if packed else tmp_path
    settings = {"data.name": str(place if packed else place / "photos"), "data.image_size": 16, "plan.steps": 50}
    held_out = build(read_recipe("folder-fixmatch").with_settings(settings), torch.device("cpu"))
    index = torch.tensor([1, 0])
    assert held_out.split.held_out
    seen = photos(held_out, index)
    assert seen.shape == (2, 3, 192, 192)
    assert (seen[:, :, 0, 0] == held_out.split.test.take(index)[:, :, 0, 0]).all()
    shutil.rmtree(tmp_path / "photos")
    if packed:
        place.unlink()
    assert photos(held_out, index).shape == (2, 3, 16, 16)
