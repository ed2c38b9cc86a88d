"""Features of photos that a device decodes: never mixed with those of the CPU's pixels, and none computed in vain."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from eyes import SIZE, Eye, extractor
from PIL import Image
from torch import Tensor

from device_decoding import CPU, stand_in
from epass.app.embed import embed as embed_command
from epass.app.events import Notice, Result
from epass.app.train import train
from epass.data import StreamedImages
from epass.data.stream import decoder
from epass.data.stream.device_jpeg import DeviceDecoder, find_decoder
from epass.data.stream.disk import Files
from epass.errors import InputError
from epass.features import embed
from epass.networks import NETWORKS

module = sys.modules["epass.features.embed"]  # whose name is that of its function
PHOTOS = 12
BY_GPU = "JPEG files are decoded on the GPU"
BY_CPU = "Images are decoded by the CPU, as those were that are kept"


@pytest.fixture(autouse=True)
def _small_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EPASS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setitem(module.TOGETHER, "cpu", 2)
    monkeypatch.setattr(Eye, "seen", 0)
    monkeypatch.setitem(NETWORKS, "eye", Eye)


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the CPU were a GPU."""
    monkeypatch.setattr(decoder, "find_decoder", stand_in)
    monkeypatch.setattr(decoder, "DECODES", "cpu")


@pytest.fixture
def paths(tmp_path: Path) -> list[Path]:
    random = np.random.default_rng(0)
    found = []
    for number in range(PHOTOS):
        found.append(tmp_path / "photos" / "ab"[number % 2] / f"{number:02d}.jpg")
        found[-1].parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(random.integers(0, 255, (SIZE, SIZE, 3), dtype=np.uint8)).save(found[-1])
    return found


def embedded(paths: list[Path], wanted: Any = "auto") -> tuple[Tensor, int, str]:
    """The features of photos, how many passed the network for them, and what was said."""
    images = StreamedImages.all_of(Files(paths, SIZE, wanted), torch.zeros(len(paths), dtype=torch.int64), 1)
    before, said, passing = Eye.seen, [], embed(images, extractor(), CPU)
    while True:
        try:
            said.append(next(passing))
        except StopIteration as end:
            images.workers.close()
            return end.value, Eye.seen - before, " ".join(text for text in said if isinstance(text, str))


@pytest.fixture
def expected(paths: list[Path], monkeypatch: pytest.MonkeyPatch) -> dict[str, Tensor]:
    """The features of all photos by either decoder; nothing is kept."""
    with monkeypatch.context() as patch:
        patch.setenv("EPASS_CACHE", "off")
        patch.setattr(decoder, "find_decoder", stand_in)
        found = {wanted: embedded(paths, wanted)[0] for wanted in ("cpu", "device")}
    assert (found["cpu"] != found["device"]).any(2).all()
    return found


@pytest.mark.usefixtures("gpu")
def test_the_device_decodes_where_nothing_is_kept(paths: list[Path], expected: dict[str, Tensor]) -> None:
    found, computed, said = embedded(paths)
    assert torch.equal(found, expected["device"])
    assert (computed, said[: len(BY_GPU)]) == (PHOTOS, BY_GPU)
    again, computed, said = embedded(paths)
    assert torch.equal(again, found)
    assert (computed, said[: len(BY_GPU)]) == (0, BY_GPU)


def test_what_the_cpu_began_it_goes_on_with(
    paths: list[Path], expected: dict[str, Tensor], request: pytest.FixtureRequest
) -> None:
    assert embedded(paths[:1])[1:] == (1, "")
    request.getfixturevalue("gpu")
    found, computed, said = embedded(paths)
    assert torch.equal(found, expected["cpu"])
    assert (computed, said[: len(BY_CPU)]) == (PHOTOS - 1, BY_CPU)


@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize(("by_cpu", "by_device", "winner"), [(7, 6, "cpu"), (6, 6, "device"), (5, 6, "device")])
def test_of_both_kinds_those_that_are_more_decide(
    paths: list[Path], expected: dict[str, Tensor], by_cpu: int, by_device: int, winner: str
) -> None:
    embedded(paths[:by_cpu], "cpu")
    embedded(paths[:by_device], "device")
    found, computed, _ = embedded(paths)
    assert torch.equal(found, expected[winner])
    assert computed == PHOTOS - (by_cpu if winner == "cpu" else by_device)


@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize(("kept", "wanted"), [("cpu", "device"), ("device", "cpu")])
def test_a_wish_goes_before_what_is_kept(
    paths: list[Path], expected: dict[str, Tensor], kept: str, wanted: str
) -> None:
    embedded(paths, kept)
    found, computed, _ = embedded(paths, wanted)
    assert torch.equal(found, expected[wanted])
    assert computed == PHOTOS


def test_a_machine_without_a_gpu_uses_nothing_that_one_left(
    paths: list[Path], expected: dict[str, Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(decoder, "find_decoder", stand_in)
        embedded(paths, "device")
    found, computed, said = embedded(paths)
    assert torch.equal(found, expected["cpu"])
    assert (computed, said) == (PHOTOS, "")


@pytest.mark.usefixtures("gpu")
def test_few_photos_tell_who_decoded_all(
    paths: list[Path], expected: dict[str, Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_ASKED", 5)
    taken: list[int] = []
    begin = StreamedImages.begin
    monkeypatch.setattr(
        StreamedImages, "begin", lambda images, index: (taken.append(len(index)), begin(images, index))[1]
    )
    embedded(paths[1:3], "cpu")  # none of those that are asked
    taken.clear()
    found, *_ = embedded(paths)
    assert torch.equal(found, expected["device"])
    assert taken == [4, PHOTOS]  # every third
    embedded(paths[:1], "cpu")
    taken.clear()
    found, *_ = embedded(paths)
    assert torch.equal(found, expected["device"])
    assert taken == [4, 4, PHOTOS]  # by either decoder


# The commands


def said_by(events: Any) -> str:
    return " ".join(event.sentence for event in events if isinstance(event, Notice))


ASKED: dict[str, Any] = {"net": "eye", "image_size": SIZE, "device": "cpu"}
SETTINGS = ["plan.labeled_batch=4", "net.hidden=8", f"data.image_size={SIZE}", "data.streaming=true"]
TRAINED: dict[str, Any] = {"features": "eye", "steps": 4, "device": "cpu", "settings": SETTINGS, "guard": False}


@pytest.mark.usefixtures("gpu")
def test_embed_and_train_agree_on_a_decoder(paths: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("epass.report.write_page", lambda path, *_, **__: path)  # drawing takes seconds
    monkeypatch.setattr("epass.data.read.pixels._count", None)  # no pass of the CPU to measure pixels
    *events, result = embed_command("photos", **ASKED, stream=True)
    assert said_by(events).count(BY_GPU) == 1
    assert isinstance(result, Result)
    assert result.following.endswith("--set data.image_size=12 --set data.streaming=true")
    assert Eye.seen == PHOTOS
    Eye.seen = 0
    events = list(train("photos", **TRAINED, out="run"))
    assert said_by(events).count(BY_GPU) == 1
    assert '"decoder": "device"' in Path("run", "environment.json").read_text()
    trained = Eye.seen  # which tests its model from photo to class
    for path in Path("cache").glob("features-*"):
        shutil.rmtree(path)
    list(embed_command("photos", **ASKED, stream=True, decoder="cpu"))
    Eye.seen = 0
    events = list(train("photos", **TRAINED, out="as kept"))
    assert (said_by(events).count(BY_CPU), Eye.seen) == (1, trained)
    assert '"decoder"' not in Path("as kept", "environment.json").read_text()


@pytest.mark.usefixtures("gpu")
def test_photos_in_memory_are_decoded_by_the_cpu(
    paths: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert BY_GPU not in said_by(embed_command("photos", **ASKED))
    with pytest.raises(InputError, match=r"are not streamed .* add --stream"):
        list(embed_command("photos", **ASKED, decoder="device"))
    *events, result = embed_command("photos", **ASKED, stream=True, decoder="device")
    assert BY_GPU in said_by(events)  # although the CPU's features are kept
    assert isinstance(result, Result)
    assert result.following.endswith("""--set data.streaming=true --set data.decoder="device\"""")
    with pytest.raises(InputError, match=r"data\.decoder"):
        list(embed_command("photos", **ASKED, decoder="gpu"))


def test_a_wish_that_cannot_be_met_is_refused(
    paths: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=r"cannot be decoded on this device .* begin with the decoder 'cpu'"):
        list(embed_command("photos", **ASKED, stream=True, decoder="device"))


@pytest.mark.gpu
def test_a_gpu_embeds_what_it_decodes(paths: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = find_decoder(torch.device("cuda"))
    if not isinstance(found, DeviceDecoder):
        pytest.skip(found)
    monkeypatch.chdir(tmp_path)
    asked = {**ASKED, "device": "cuda", "stream": True}
    for settings, computed, by_gpu in (({}, PHOTOS, True), ({}, 0, True), ({"decoder": "cpu"}, PHOTOS, False)):
        Eye.seen = 0
        said = said_by(embed_command("photos", **asked, **settings))
        assert (Eye.seen, BY_GPU in said) == (computed, by_gpu)
    for path in (tmp_path / "cache").glob("features-*"):
        shutil.rmtree(path)
    list(embed_command("photos", **asked, decoder="cpu"))
    Eye.seen = 0
    assert BY_CPU in said_by(embed_command("photos", **asked))
    assert Eye.seen == 0
