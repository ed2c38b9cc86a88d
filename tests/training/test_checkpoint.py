from __future__ import annotations

import json
import math
import os
import pickle
import re
from pathlib import Path

import pytest
import torch
from safetensors import safe_open

from epass.method import Method, Outcome
from epass.methods import METHODS
from epass.parts.teacher import Average
from epass.testing import Case, difference, named
from epass.training.checkpoint import (
    KEPT,
    TYPES,
    RunState,
    Unreported,
    checkpoints,
    packed,
    read_checkpoint,
    restore_newest,
    save_checkpoint,
    write_checkpoint,
)
from epass.training.optimizer import make_optimizer
from epass.training.schedule import Plan
from epass.training.step import Step, make_step
from epass.training.window import NotFiniteError, Window

CASE = Case(METHODS["simmatch"], {"threshold": 0.4}, {"size": 2})


def start(seed: int = 0, optimizer: str = "sgd", case: Case = CASE) -> tuple[RunState, Step]:
    method: Method = case.build(seed)
    progress = RunState(method, Average(method.net, 0.9), make_optimizer(method, Plan(steps=4, optimizer=optimizer)))
    return progress, make_step(method, progress.optimizer, progress.average)


def copy(progress: RunState) -> dict[str, torch.Tensor]:
    return {name: tensor.clone() for name, tensor in progress.tensors().items()}


@pytest.fixture
def saved(tmp_path: Path) -> tuple[Path, list[dict[str, torch.Tensor]]]:
    """A folder with checkpoints after one and after two steps, and the states they hold."""
    progress, step = start()
    states = []
    for position in range(2):
        step(CASE.batch(position))
        save_checkpoint(tmp_path, progress, position + 1)
        states.append(copy(progress))
    return tmp_path, states


@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
def test_round_trip_is_exact_in_place_and_goes_on_exactly(tmp_path: Path, optimizer: str) -> None:
    progress, step = start(optimizer=optimizer)
    for position in range(2):
        step(CASE.batch(position))
    path = save_checkpoint(tmp_path, progress, 2)
    assert path == tmp_path / "step-00000002.safetensors"
    fresh, fresh_step = start(seed=1, optimizer=optimizer)
    places = {name: tensor.data_ptr() for name, tensor in fresh.tensors().items()}
    assert difference(progress.tensors(), fresh.tensors()) is not None
    assert restore_newest(tmp_path, fresh) == 2
    assert difference(progress.tensors(), fresh.tensors()) is None
    assert places == {name: tensor.data_ptr() for name, tensor in fresh.tensors().items()}
    for position in range(2, 4):
        assert difference(named(step(CASE.batch(position))), named(fresh_step(CASE.batch(position)))) is None
    assert difference(progress.tensors(), fresh.tensors()) is None


@pytest.mark.parametrize(
    ("optimizer", "keys"), [("sgd", {"momentum_buffer"}), ("adamw", {"step", "exp_avg", "exp_avg_sq"})]
)
def test_every_part_of_a_run_is_in_the_file(tmp_path: Path, optimizer: str, keys: set[str]) -> None:
    progress, _ = start(optimizer=optimizer)
    step, tensors = read_checkpoint(save_checkpoint(tmp_path, progress, 7))
    assert step == 7
    wanted = {f"method.{name}" for name in progress.method.state_dict()}
    wanted |= {f"average.{name}" for name in progress.average.state_dict()}
    wanted |= {f"optimizer.{name}.{key}" for name, _ in progress.method.named_parameters() for key in keys}
    assert set(tensors) == wanted
    assert "method.net.backbone.1.running_mean" in wanted


def test_the_library_reads_every_type_and_shape_and_finds_it_aligned(tmp_path: Path) -> None:
    tensors = {f"a {kind}": torch.arange(6).reshape(2, 3).to(kind) for kind in reversed(TYPES)}
    tensors |= {"scalar": torch.tensor(2.5), "nothing": torch.zeros(0, 3), "Ümlaut": torch.ones(1)}
    data = b"".join(packed(tensors, {"step": "1", "checksum": "2"}))
    (tmp_path / "file").write_bytes(data)
    with safe_open(tmp_path / "file", framework="pt") as file:
        assert file.metadata() == {"step": "1", "checksum": "2"}
        assert difference(tensors, {name: file.get_tensor(name) for name in file.keys()}) is None  # noqa: SIM118
    start = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:start])
    assert all((start + header[name]["data_offsets"][0]) % tensors[name].element_size() == 0 for name in tensors)


def test_the_folder_is_made(tmp_path: Path) -> None:
    progress, _ = start()
    assert save_checkpoint(tmp_path / "a" / "b", progress, 1).is_file()


def test_the_newest_three_stay(tmp_path: Path) -> None:
    progress, _ = start()
    (tmp_path / "step-notes.safetensors").write_text("mine")
    for step in (1, 2, 10, 9, 30):
        save_checkpoint(tmp_path, progress, step)
    assert [path.name for path in checkpoints(tmp_path)] == [f"step-{step:08d}.safetensors" for step in (30, 10, 9)]
    assert KEPT == 3
    assert (tmp_path / "step-notes.safetensors").is_file()


def test_the_newest_stay_where_numbers_get_longer_too(tmp_path: Path) -> None:
    for step in range(99_999_997, 100_000_002):
        write_checkpoint(tmp_path, step, {"a": torch.zeros(1)})
    assert [read_checkpoint(path)[0] for path in checkpoints(tmp_path)] == [100_000_001, 100_000_000, 99_999_999]


@pytest.mark.parametrize("kept", [0, 20, 0.5, -1])
def test_a_truncated_file_is_named_and_the_one_before_is_used(saved, kept: float) -> None:
    folder, states = saved
    newest = checkpoints(folder)[0]
    data = newest.read_bytes()
    newest.write_bytes(data[: int(kept * len(data)) if isinstance(kept, float) else kept])
    progress, _ = start(seed=1)
    with pytest.warns(UserWarning, match=re.escape(str(newest)) + ".* is damaged"):
        assert restore_newest(folder, progress) == 1
    assert difference(states[0], progress.tensors()) is None


@pytest.mark.parametrize("place", [-1, 0.5])
def test_a_flipped_bit_is_found_by_the_checksum(saved, place: float) -> None:
    folder, states = saved
    newest = checkpoints(folder)[0]
    data = bytearray(newest.read_bytes())
    data[int(place * len(data)) if isinstance(place, float) else place] ^= 1
    newest.write_bytes(data)
    progress, _ = start(seed=1)
    with pytest.warns(UserWarning, match="its checksum does not match"):
        assert restore_newest(folder, progress) == 1
    assert difference(states[0], progress.tensors()) is None


@pytest.mark.parametrize(("old", "new"), [(b'"step":"2"', b'"step":"3"'), (b'"step":', b'"stop":'), (b"F32", b"I32")])
def test_a_damaged_header_is_found_too(saved, old: bytes, new: bytes) -> None:
    folder, states = saved
    newest = checkpoints(folder)[0]
    data = newest.read_bytes()
    assert old in data
    newest.write_bytes(data.replace(old, new, 1))
    progress, _ = start(seed=1)
    with pytest.warns(UserWarning, match=re.escape(str(newest)) + ".* is damaged"):
        assert restore_newest(folder, progress) == 1
    assert difference(states[0], progress.tensors()) is None


def test_a_tensor_of_the_same_bytes_in_another_shape_is_found_too(tmp_path: Path) -> None:
    path = write_checkpoint(tmp_path, 1, {"a": torch.arange(6.0).reshape(2, 3)})
    data = path.read_bytes()
    assert data.count(b'"shape":[2,3]') == 1
    path.write_bytes(data.replace(b'"shape":[2,3]', b'"shape":[3,2]'))
    with pytest.raises(ValueError, match="its checksum does not match"):
        read_checkpoint(path)


def test_after_a_resume_the_bad_step_is_still_named_by_its_number(tmp_path: Path) -> None:
    """Two steps follow the report at step 4, a checkpoint, and two more, of which the second has no loss."""
    progress, _ = start()
    window = Window(4)
    for _ in range(2):
        window.add(Outcome({"a": torch.tensor(1.0)}))
    save_checkpoint(tmp_path, progress, 6, Unreported(window, 7.5))
    resumed = Unreported(Window(0))
    assert restore_newest(tmp_path, start(seed=1)[0], resumed) == 6
    assert (resumed.window.start, resumed.window.count, resumed.seconds) == (4, 2, 7.5)
    for value in (1.0, math.nan):
        resumed.window.add(Outcome({"a": torch.tensor(value)}))
    with pytest.raises(NotFiniteError, match=r"at step 7\."):
        resumed.window.means()


def test_a_checkpoint_right_after_a_report_leaves_nothing_unreported(tmp_path: Path) -> None:
    """What was there before is forgotten, and steps count from the checkpoint on."""
    progress, _ = start()
    save_checkpoint(tmp_path, progress, 6, Unreported(Window(6), 7.5))
    resumed = Unreported(Window(0), 3.0)
    resumed.window.add(Outcome({"a": torch.tensor(1.0)}))
    assert restore_newest(tmp_path, start(seed=1)[0], resumed) == 6
    assert (resumed.window.start, resumed.window.count, resumed.seconds) == (6, 0, 0.0)
    resumed.window.add(Outcome({"a": torch.tensor(math.nan)}))
    with pytest.raises(NotFiniteError, match=r"at step 6\."):
        resumed.window.means()


def test_a_metric_that_is_no_number_is_saved_and_a_loss_is_not(tmp_path: Path) -> None:
    progress, _ = start()
    window = Window(0)
    window.add(Outcome({"a": torch.tensor(1.0)}, {"odd": torch.tensor(math.nan)}))
    save_checkpoint(tmp_path, progress, 1, Unreported(window))
    assert restore_newest(tmp_path, progress, Unreported(Window(0))) == 1
    window.clear(1)
    window.add(Outcome({"a": torch.tensor(math.nan)}, {"odd": torch.tensor(1.0)}))
    with pytest.raises(NotFiniteError, match=r"no longer finite at step 2\."):
        save_checkpoint(tmp_path, progress, 2, Unreported(window))


def test_when_all_are_damaged_training_starts_anew(saved) -> None:
    folder, _ = saved
    for path in checkpoints(folder):
        path.write_bytes(b"nothing")
    progress, _ = start(seed=1)
    before = copy(progress)
    with pytest.warns(UserWarning, match="is damaged") as found:
        assert restore_newest(folder, progress) == 0
    assert len(found) == 2
    assert difference(before, progress.tensors()) is None


@pytest.mark.parametrize(
    ("other", "complaint"),
    [
        (Case(METHODS["simmatch"], {}, {"size": 3}), "'method.projector.heads.2.0.bias' is in only one of them"),
        (Case(METHODS["simmatch"], {}, {"size": 2, "combine": "concat"}), "'method.bank.embedding' has another shape"),
        (Case(METHODS["supervised"], {}), "'method.alignment.means' is in only one of them"),
    ],
    ids=["more heads", "wider embedding", "another method"],
)
def test_a_checkpoint_of_another_model_raises_with_the_key(saved, other: Case, complaint: str) -> None:
    folder, _ = saved
    progress, _ = start(case=other)
    with pytest.raises(ValueError, match="step-00000002.safetensors belongs to another model: " + re.escape(complaint)):
        restore_newest(folder, progress)


def test_a_checkpoint_of_another_optimizer_raises(saved) -> None:
    folder, _ = saved
    progress, _ = start(optimizer="adamw")
    with pytest.raises(ValueError, match=r"another model: 'optimizer\..*exp_avg' is in only one"):
        restore_newest(folder, progress)


@pytest.mark.parametrize("failing", ["fsync", "replace"])
def test_a_failing_write_leaves_the_old_file_and_nothing_else(saved, monkeypatch, failing: str) -> None:
    folder, states = saved
    before = {path.name: path.read_bytes() for path in folder.iterdir()}

    def fail(*_: object) -> None:
        raise OSError("No space left on device")

    progress, _ = start(seed=2)
    with monkeypatch.context() as patched:
        patched.setattr(*((os, "fsync") if failing == "fsync" else (Path, "replace")), fail)
        with pytest.raises(OSError, match="No space left"):
            save_checkpoint(folder, progress, 2)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    assert restore_newest(folder, progress) == 2
    assert difference(states[1], progress.tensors()) is None


def test_the_file_is_on_disk_before_it_gets_its_name(saved, monkeypatch) -> None:
    folder, _ = saved
    events = []
    fsync, replace = os.fsync, Path.replace
    monkeypatch.setattr(os, "fsync", lambda number: (events.append("fsync"), fsync(number))[1])
    monkeypatch.setattr(Path, "replace", lambda path, new: (events.append("rename"), replace(path, new))[1])
    save_checkpoint(folder, start()[0], 3)
    assert events == ["fsync", "rename", "fsync"]


def test_no_checkpoint_means_step_zero(tmp_path: Path) -> None:
    progress, _ = start()
    before = copy(progress)
    assert restore_newest(tmp_path, progress) == 0
    assert restore_newest(tmp_path / "nowhere", progress) == 0
    assert difference(before, progress.tensors()) is None


def test_a_leftover_of_a_killed_write_is_no_checkpoint(saved) -> None:
    folder, _ = saved
    (folder / ".step-00000009.safetensors.123.part").write_bytes(b"half")
    assert restore_newest(folder, start()[0]) == 2


class Bomb:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return (pytest.fail, ("a checkpoint was unpickled",))


def test_pickle_is_never_used(saved) -> None:
    folder, states = saved
    with safe_open(checkpoints(folder)[0], framework="pt") as file:
        assert file.metadata()["step"] == "2"
    for data in (pickle.dumps(Bomb()), pickle.dumps(Bomb(), protocol=0)):
        (folder / "step-00000003.safetensors").write_bytes(data)
        progress, _ = start(seed=1)
        with pytest.warns(UserWarning, match=r"step-00000003.* is damaged"):
            assert restore_newest(folder, progress) == 2
        assert difference(states[1], progress.tensors()) is None
    torch.save(Bomb(), folder / "step-00000003.safetensors")
    with pytest.warns(UserWarning, match=r"step-00000003.* is damaged"):
        assert restore_newest(folder, start()[0]) == 2
