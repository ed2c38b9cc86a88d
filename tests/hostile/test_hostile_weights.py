"""Weights of strangers: pickles, archives, and safetensors files that lie about what is in them."""

from __future__ import annotations

import io
import json
import pickle
import struct
import zipfile
from pathlib import Path

import pytest
import torch
from hostile_files import bomb, hollow, object_array, pipe, safetensors, zip_bomb, zipped
from hostile_world import World
from safetensors.torch import save

F32 = {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}

HEADERS = {
    "a length of all bits": safetensors({}, length=2**64 - 1),
    "a length of 100 GB": safetensors({}, length=10**11),
    "a length behind the end": safetensors({"a": F32}, bytes(4), length=10_000),
    "a length that is too short": safetensors({"a": F32}, bytes(4), length=9),
    "no length": b"\0\0\0",
    "nothing": b"",
    "no text": safetensors(b"\xff\xfe\xfd\xfc"),
    "no object": safetensors([1, 2, 3]),
    "nested deeply": safetensors(b"[" * 50_000),
    "a negative shape": safetensors({"a": F32 | {"shape": [-1]}}, bytes(4)),
    "a shape that is not a number": safetensors(json.dumps({"a": F32 | {"shape": [float("nan")]}}).encode(), bytes(4)),
    "a shape of fractions": safetensors({"a": F32 | {"shape": [0.5]}}, bytes(4)),
    "a shape of texts": safetensors({"a": F32 | {"shape": ["1"]}}, bytes(4)),
    "a shape beyond all numbers": safetensors({"a": F32 | {"shape": [2**62, 2**62]}}, bytes(4)),
    "a shape of nothing times everything": safetensors({"a": F32 | {"shape": [0, 2**62], "data_offsets": [0, 0]}}),
    "a shape of many dimensions": safetensors({"a": F32 | {"shape": [1] * 5000}}, bytes(4)),
    "a shape larger than its bytes": safetensors({"a": F32 | {"shape": [1000]}}, bytes(4)),
    "offsets behind the end": safetensors({"a": F32 | {"data_offsets": [0, 4000], "shape": [1000]}}, bytes(4)),
    "offsets that run backwards": safetensors({"a": F32 | {"data_offsets": [4, 0]}}, bytes(4)),
    "negative offsets": safetensors({"a": F32 | {"data_offsets": [-4, 0]}}, bytes(4)),
    "two tensors in one place": safetensors({"a": F32, "b": F32}, bytes(4)),
    "a hole": safetensors({"a": F32 | {"data_offsets": [8, 12]}}, bytes(12)),
    "an unknown kind of numbers": safetensors({"a": F32 | {"dtype": "PICKLE"}}, bytes(4)),
    "metadata that is no text": safetensors({"__metadata__": {"a": {"b": []}}, "a": F32}, bytes(4)),
    "a name that a terminal obeys": safetensors({"\x1b[2J\u202e": F32}, bytes(4)),
    "a very long name": safetensors({"k" * 1_000_000: F32}, bytes(4)),
    "many names": safetensors(
        {f"t{n}": F32 | {"data_offsets": [4 * n, 4 * n + 4]} for n in range(20_000)}, bytes(80_000)
    ),
}


def use(world: World, name: str, words: str = "is damaged|another network|holds no weights") -> None:
    world.refused("weights", name, words=words)


@pytest.mark.parametrize("name", HEADERS)
def test_a_safetensors_file_that_lies(world: World, name: str) -> None:
    (world.home / "w.safetensors").write_bytes(HEADERS[name])
    use(world, "w.safetensors")


def test_hostile_weights_of_a_recipe_are_one_sentence_too(world: World) -> None:
    (world.home / "w.pth").write_bytes(world.bomb)
    world.refused("train", "--recipe", "tiny.toml", "--set", "net.weights=w.pth", words="is damaged")


@pytest.mark.parametrize("name", ["a length of all bits", "a negative shape", "nothing", "many names"])
@pytest.mark.parametrize("command", ["predict", "evaluate"])
def test_a_model_that_lies(world: World, run: Path, name: str, command: str) -> None:
    (run / "model.safetensors").write_bytes(HEADERS[name])
    world.refused(
        *(["predict", "run", "tiny.toml"] if command == "predict" else ["evaluate", "run"]),
        words=r"model\.safetensors' is (damaged|not what model.json describes)",
    )


@pytest.mark.parametrize("name", ["a negative shape", "many names"])
def test_a_start_that_lies(world: World, run: Path, name: str) -> None:
    (run / "pretrained.safetensors").write_bytes(HEADERS[name])
    world.refused(
        "train", "--recipe", "tiny.toml", "--from", "run", "--out", "new", words=r"is damaged|of another network"
    )


@pytest.mark.parametrize("protocol", range(5))
@pytest.mark.parametrize("ending", ["pth", "pt", "safetensors"])
def test_a_pickle_of_any_protocol_runs_nothing(world: World, protocol: int, ending: str) -> None:
    (world.home / f"w.{ending}").write_bytes(bomb(world.canary, protocol))
    use(world, f"w.{ending}", "is damaged")


def test_a_pickle_in_the_archive_of_torch_runs_nothing(world: World) -> None:
    for number, names in enumerate((["archive/data.pkl", "archive/version"], ["constants.pkl", "data.pkl", "version"])):
        members = {name: b"3\n" if name.endswith("version") else world.bomb for name in names}
        zipped(world.home / f"{number}.pth", members)
        use(world, f"{number}.pth", "is damaged")


def test_a_module_saved_whole_runs_nothing(world: World) -> None:
    torch.save(torch.nn.Linear(1, 1), world.home / "whole.pt")
    use(world, "whole.pt", "Python objects besides tensors")


def test_objects_among_weights_run_nothing(world: World) -> None:
    buffer = io.BytesIO()
    torch.save({"a": torch.zeros(1)}, buffer)
    with zipfile.ZipFile(buffer) as archive:
        members = {info.filename: archive.read(info) for info in archive.infolist()}
    (name,) = [name for name in members if name.endswith("data.pkl")]
    zipped(world.home / "w.pth", members | {name: world.bomb})
    use(world, "w.pth", "is damaged")


def test_an_archive_that_would_fill_the_memory_is_not_unpacked(world: World) -> None:
    zip_bomb(world.home / "w.pth", "archive/data.pkl", 2**30)
    use(world, "w.pth", "would unpack to 1,073,741,824 bytes")


def test_one_number_that_pretends_to_be_many(world: World) -> None:
    torch.save({"head.weight": torch.zeros(1).half().expand(1, 10**12, 4)}, world.home / "w.pth")
    use(world, "w.pth", "does not hold all the numbers")


def test_a_sparse_tensor_that_pretends_to_be_large(world: World) -> None:
    tensor = torch.sparse_coo_tensor(
        torch.zeros(1, 1, dtype=torch.long), torch.ones(1), (10**12,), check_invariants=True
    )
    torch.save({"head.weight": tensor}, world.home / "w.pth")
    use(world, "w.pth", "does not hold all the numbers|is damaged")


def test_a_legacy_file_that_claims_a_large_storage(world: World) -> None:
    buffer = io.BytesIO()
    torch.save({"a": torch.zeros(3)}, buffer, _use_new_zipfile_serialization=False)
    data = buffer.getvalue()
    spoiled = data.replace(pickle.dumps(3, 2)[2:4], b"\x8a\x08" + struct.pack("<q", 2**60))
    assert spoiled != data
    (world.home / "w.pth").write_bytes(spoiled)
    use(world, "w.pth", "is damaged")


@pytest.mark.parametrize("kept", [0, 1, 100, 1000])
def test_a_file_of_torch_that_breaks_off(world: World, kept: int) -> None:
    buffer = io.BytesIO()
    torch.save({"a": torch.zeros(1000)}, buffer)
    (world.home / "w.pth").write_bytes(buffer.getvalue()[:kept])
    use(world, "w.pth", "is damaged")


def test_numbers_that_are_not_finite_are_refused(world: World, finished: Path) -> None:
    from safetensors.torch import load_file

    tensors = load_file(finished / "model.safetensors")
    spoiled = {name: t * float("nan") if t.is_floating_point() else t for name, t in tensors.items()}
    (world.home / "w.safetensors").write_bytes(save(spoiled))
    use(world, "w.safetensors", "not finite")


def test_other_kinds_of_files_are_not_opened(world: World) -> None:
    for name in ("w.npz", "w.npy", "w.pkl", "w.ckpt", "w.bin", "w.h5"):
        (world.home / name).write_bytes(object_array(world.canary) if "np" in name else world.bomb)
        use(world, name, "is not a weights file")


@pytest.mark.parametrize("name", ["w.safetensors", "w.pth"])
def test_pipes_and_endless_files_are_not_read(world: World, name: str) -> None:
    pipe(world.home / name)
    use(world, name, "There is no file")
    (world.home / name).unlink()
    hollow(world.home / name, 2**35)
    use(world, name, "at most 17,179,869,184 bytes")
