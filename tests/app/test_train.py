"""Training from Python: the same refusals, the same run and the same facts as on the command line, as events."""

from __future__ import annotations

import inspect
import json
import os
import re
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from epass.app import train as module
from epass.app.budget import Budget
from epass.app.events import Caution, Notice, Plan, Progress, Result, Work
from epass.app.train import pretrain, train
from epass.errors import InputError, RunError
from epass.machine.signals import Stopped, stop_signals
from epass.runs import load_run
from tiny_recipe import tiny_recipe


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("epass.report.write_page", lambda path, *_, **__: path)  # drawing takes seconds
    monkeypatch.setattr("epass.evaluation.alarms.is_near_chance", lambda pairs: False)  # a few steps teach nothing
    (tmp_path / "tiny.toml").write_text(tiny_recipe())
    return tmp_path


def leaking(place: Path) -> str:
    """Two classes of noise; the first test image is also a labeled one."""
    pixels = np.random.default_rng(0).integers(0, 255, (40, 8, 8), dtype=np.uint8)
    labels = np.arange(40) % 2
    np.savez(
        place / "leak.npz", train_images=pixels, train_labels=labels, test_images=pixels[:4], test_labels=labels[:4]
    )
    return str(place / "leak.npz")


def test_the_plan_says_that_numbers_are_measured_which_the_recipe_has_published() -> None:
    pixels = np.random.default_rng(0).integers(0, 255, (40, 32, 32, 3), dtype=np.uint8)
    np.savez("cifar10.npz", train_images=pixels, train_labels=np.arange(40) % 10)

    def planned(**said: Any) -> dict[str, str]:
        events = iter(train("cifar10.npz", labels=10, steps=1, net="small", out="run", device="cpu", **said))
        plan = next(event for event in events if isinstance(event, Plan))
        return dict(plan.facts)

    told = planned(recipe="cifar10-supervised")["normalization"]
    assert told.startswith("measured: mean 0.4")
    assert told.endswith(
        "; the published runs on cifar10 have mean 0.485, 0.456, 0.406 and deviation 0.229, 0.224, 0.225"
    )
    assert "normalization" not in planned(method="supervised")


def test_a_plan_then_progress_then_a_result() -> None:
    events = list(train(recipe="tiny.toml", projectors=3, out="run", device="cpu", command="as typed"))

    plan, *middle, result = events
    assert isinstance(plan, Plan)
    assert plan.facts["method"] == "simmatch + EPASS (3 projectors)"
    assert plan.facts["run folder"] == "run"
    assert "time" not in plan.facts
    first, notice, *reports = middle
    assert isinstance(first, Progress)
    assert (first.values, first.steps) == ({}, 6)
    assert isinstance(notice, Notice)
    assert notice.sentence.startswith("About ")
    assert [event.step for event in reports if isinstance(event, Progress)] == [1, 2, 3, 4, 5, 6]
    for event in reports:
        assert isinstance(event, Progress)
        assert event.seconds_left is not None
        assert event.values.keys() >= {"loss", "lr"}
    assert reports[-1].seconds_left == 0
    assert isinstance(result, Result)
    stored = json.loads(Path("run/results.json").read_text())
    assert result.values == {"run": "run", "data": "digits", "results": stored}
    assert result.files == {"page": Path("run/report.html"), "model": Path("run/model.safetensors")}
    assert result.following == "epass predict run PHOTOS"
    assert load_run("run").environment["command"] == "as typed"


def test_the_first_estimate_does_not_wait_for_a_report(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FIRST_ESTIMATE", 0.0)
    settings = ["plan.report_every=6", "plan.evaluate_every=6"]
    _, first, notice, last, result = train(recipe="tiny.toml", device="cpu", settings=settings)

    assert isinstance(first, Progress)
    assert (first.step, dict(first.values)) == (1, {})
    assert first.seconds_left is not None
    assert isinstance(notice, Notice)
    assert isinstance(last, Progress)
    assert (last.step, last.seconds_left) == (6, 0)
    assert isinstance(result, Result)


def test_nothing_happens_before_somebody_asks(home: Path) -> None:
    work = train(recipe="tiny.toml", method="simatch")

    assert isinstance(work, Work)
    assert repr(work) == "<train: not done yet, call .result() or iterate over its events>"
    assert [path.name for path in home.iterdir()] == ["tiny.toml"]
    with pytest.raises(InputError, match="did you mean 'simmatch'"):
        work.result()
    assert train(recipe="tiny.toml", steps=1, device="cpu").result().values["data"] == "digits"


def test_leaks_are_refused_in_python_too(home: Path) -> None:
    said: dict[str, Any] = {"recipe": "tiny.toml", "labels": 20, "steps": 2, "device": "cpu", "out": "run"}
    data = leaking(home)
    with pytest.raises(InputError, match=r"^[1-4] of 4 test images are among the labeled ones: .* --allow-leak\.$"):
        train(data, **said).result()
    assert not Path("run").exists()
    assert train(data, allow_leak=True, **said).result().files
    # whoever started a run has decided about it
    assert train(data, resume=True, **said).result().files


def copied(place: Path) -> str:
    """As `leaking`, without the leak; twice some labeled images are the same and have two labels."""
    pixels = np.random.default_rng(0).integers(0, 255, (40, 8, 8), dtype=np.uint8)
    pixels[6] = pixels[7] = pixels[4]
    pixels[21] = pixels[20]
    np.savez(place / "copied.npz", train_images=pixels[:36], train_labels=np.arange(36) % 2, test_images=pixels[36:])
    with np.load(place / "copied.npz") as arrays:
        np.savez(place / "copied.npz", **arrays, test_labels=np.arange(4) % 2)
    return str(place / "copied.npz")


def test_labels_that_contradict_each_other_are_told_of_before_training(home: Path) -> None:
    said: dict[str, Any] = {"recipe": "tiny.toml", "labels": 36, "steps": 2, "device": "cpu", "out": "run"}
    data = copied(home)
    told = Caution(
        "5 labeled images have an exact copy with another label, such as 'train 4' (0) and 'train 7' (1): correct them "
        f"(epass check {data} lists all)."
    )
    events = list(train(data, **said))
    assert events.index(told) < [type(event) for event in events].index(Plan)
    assert told not in list(train(data, resume=True, **said))  # it was said
    assert told not in list(train(leaking(home), allow_leak=True, force=True, **{**said, "labels": 40}))
    settings = ["plan.labeled_batch=8", "net.width=4", "method.queue_size=32"]
    assert told not in list(pretrain(data, labels=36, steps=2, device="cpu", settings=settings))  # none teaches


def test_no_label_teaches_so_none_can_leak(home: Path) -> None:
    settings = ["plan.labeled_batch=8", "net.width=4", "method.queue_size=32"]
    result = pretrain(leaking(home), labels=20, steps=2, device="cpu", settings=settings).result()
    assert result.following.startswith("epass train ")
    assert " --from " in result.following


def test_pretrain_takes_what_train_takes_except_what_makes_no_sense() -> None:
    both = {function: inspect.signature(function).parameters.keys() for function in (train, pretrain)}
    assert both[train] - both[pretrain] == {
        *("wrap", "start", "allow_leak", "earlier", "guard", "fine_tune", "features"),
    }
    assert both[pretrain] <= both[train]
    assert next(iter(both[train])) == "data"
    with pytest.raises(TypeError, match="wrap"):
        pretrain("digits", wrap="abc")  # type: ignore[call-arg]


def test_a_stop_says_how_to_go_on_and_going_on_is_exact() -> None:
    line: dict[str, Any] = {"recipe": "tiny.toml", "device": "cpu"}

    def interrupt(work: Work) -> None:
        for event in work:
            if isinstance(event, Progress) and event.step == 4:
                os.kill(os.getpid(), signal.SIGTERM)  # waits for the next step

    with stop_signals() as stop, pytest.raises(Stopped) as stopped:
        interrupt(train(out="run", stop=stop, **line))
    assert str(stopped.value) == "continue with epass train --resume --out run --device cpu"
    assert stopped.value.code == 143

    events = list(train(resume=True, out="run", device="cpu"))
    assert isinstance(events[0], Plan)
    assert events[0].facts["steps"].endswith("; 4 of them are done")
    assert [event.step for event in events if isinstance(event, Progress) and event.values] == [5, 6]
    train(out="undisturbed", **line).result()
    assert Path("run/model.safetensors").read_bytes() == Path("undisturbed/model.safetensors").read_bytes()


def test_a_stop_before_anything_is_written() -> None:
    def at_once(*_: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(Stopped, match=r"^nothing was written yet\.$") as stopped:
        train(many_images(), recipe="tiny.toml", device="cpu", out="run", reading=at_once).result()
    assert stopped.value.code == 130


def many_images() -> Path:
    from PIL import Image

    for number in range(20):
        place = Path("images", "ab"[number % 2], f"{number}.png")
        place.parent.mkdir(parents=True, exist_ok=True)
        Image.new("L", (8, 8), 10 * number).save(place)
    return Path("images")


def test_a_loss_that_is_no_number_and_a_full_disk_say_what_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = ["plan.lr=1e30", "plan.evaluate_every=6"]
    with pytest.raises(RunError, match=r"The run is in 'run', it had no checkpoint yet; a lower plan\.lr may help\.$"):
        train(recipe="tiny.toml", out="run", device="cpu", settings=settings).result()

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device", "metrics.jsonl")

    monkeypatch.setattr("epass.runs.RunFolder.append_metrics", full)
    with pytest.raises(
        RunError, match=r"^No space left on device: 'metrics.jsonl'\. The run is in 'other', .* --out other"
    ):
        train(recipe="tiny.toml", out="other", device="cpu").result()


def test_a_loss_that_is_no_number_before_any_step_does_not_blame_the_rate() -> None:
    with pytest.raises(RunError, match=r" at step 0\. The run is in 'run', .*; no weight had moved yet, so") as error:
        train(recipe="digits-uda", steps=2, out="run", device="cpu", settings=["method.temperature=1e-300"]).result()
    assert "a lower plan.lr" not in str(error.value)


BUDGET: dict[str, Any] = {"recipe": "tiny.toml", "budget": "10s", "out": "run", "device": "cpu"}


def test_a_budget_becomes_steps_and_a_resumed_run_keeps_them(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[float] = []

    def slow(experiment: object, patience: float) -> float:
        tried.append(patience)
        return 1.0

    monkeypatch.setattr(Budget, "better_steps", lambda self, clock: 0)
    monkeypatch.setattr("epass.engine.timing.seconds_per_step", slow)
    *_, late, result = train(**BUDGET)
    assert result.values["results"]["steps"] == 9  # nine tenths of the time are for training
    assert tried == [0.5]
    assert isinstance(late, Caution)  # steps of a second each would have taken ten
    assert re.match(r"Training took \d s and not the 10 s asked for, because the machine was slower ", late.sentence)
    monkeypatch.setattr("epass.engine.timing.seconds_per_step", None)
    assert train(resume=True, **BUDGET).result().values["results"]["steps"] == 9


def test_a_number_of_steps_that_does_not_fit_is_corrected_by_the_first_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[int] = []

    class Listener:
        def start(self, folder: Path, settings: dict[str, Any]) -> None:
            heard.append(settings["plan.steps"])

        def report(self, step: int, values: Any) -> None:
            heard.append(step)

        def finish(self) -> None:
            pass

    judged: list[int] = []

    def twelve(budget: Budget, clock: module.Clock) -> int:
        judged.append(clock.step)
        return 12 if clock.steps == 9 and clock.step == 3 else 0

    monkeypatch.setattr(module, "make_loggers", lambda names: [Listener()])
    monkeypatch.setattr(Budget, "better_steps", twelve)
    monkeypatch.setattr("epass.engine.timing.seconds_per_step", lambda experiment, patience: 1.0)
    events = list(train(resume=True, **BUDGET))  # there is nothing to resume yet

    plans = [event.facts["steps"].partition(",")[0] for event in events if isinstance(event, Plan)]
    assert plans == ["9", "12"]
    assert judged[:4] == [1, 2, 3, 1]
    now = "The machine is faster than when its steps were timed"
    assert Notice(f"{now}: starting over with 12 steps instead of 9.") in events
    assert load_run("run").recipe["plan"]["steps"] == 12
    assert heard == [12, *(row["step"] for row in load_run("run").metrics)]  # nobody hears of what was thrown away
    train(recipe="tiny.toml", steps=12, out="same", device="cpu").result()
    assert Path("run/model.safetensors").read_bytes() == Path("same/model.safetensors").read_bytes()


def test_a_number_of_steps_that_fits_is_kept_and_no_step_made_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Budget, "better_steps", lambda self, clock: 0)
    monkeypatch.setattr("epass.engine.timing.seconds_per_step", lambda experiment, patience: 1.0)
    events = list(train(**BUDGET))
    steps = [event.step for event in events if isinstance(event, Progress) and event.values]
    assert steps == sorted(set(steps))
    assert sum(isinstance(event, Plan) for event in events) == 1


def test_without_a_budget_no_step_is_thrown_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("epass.engine.timing.seconds_per_step", None)
    assert train(recipe="tiny.toml", steps=1, device="cpu").result().files


def test_warnings_about_the_result_are_events(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("epass.report.warnings_of", lambda groups: ["One class is never predicted."])
    *_, warning, result = train(recipe="tiny.toml", steps=1, device="cpu")
    assert warning == Caution("One class is never predicted.")
    assert isinstance(result, Result)


REFUSED: list[tuple[tuple[str, ...], dict[str, Any]]] = [
    (("--method", "moco"), {"method": "moco"}),
    (("--labels", "45"), {"labels": 45}),
    (("--budget", "soon"), {"budget": "soon"}),
    (("--budget", "10m", "--steps", "5"), {"budget": "10m", "steps": 5}),
    (("--resume", "--force"), {"resume": True, "force": True}),
    (("--set", "plan.stps=1"), {"settings": ["plan.stps=1"]}),
    (("--log", "wndb"), {"log": ["wndb"]}),
    (("--out", "tiny.toml"), {"out": "tiny.toml"}),
    (("--from", "nowhere"), {"start": "nowhere"}),
    (("--device", "cdua"), {"device": "cdua"}),
]


@pytest.mark.parametrize(("typed", "said"), REFUSED, ids=lambda value: " ".join(value))
def test_what_the_command_refuses_the_function_refuses_with_the_same_sentence(
    typed: tuple[str, ...], said: dict[str, Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from epass.cli import main

    monkeypatch.setattr("sys.argv", ["epass", "train", "--recipe", "tiny.toml", *typed])
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == 2
    with pytest.raises(InputError) as refused:
        train(recipe="tiny.toml", **said).result()
    assert capsys.readouterr().err == f"Error: {refused.value}\n"


def test_json_is_all_that_is_printed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    from epass.cli import main

    monkeypatch.setattr(
        "sys.argv", ["epass", "train", "--recipe", "tiny.toml", "--steps", "1", "--out", "run", "--json"]
    )
    with pytest.raises(SystemExit) as end:
        main()
    assert not end.value.code
    assert json.loads(capsys.readouterr().out)["results"] == json.loads(Path("run/results.json").read_text())


def test_the_plan_says_what_folders_and_files_were_taken_for(home: Path) -> None:
    pixels = np.random.default_rng(1).integers(0, 255, (24, 8, 8, 3), dtype=np.uint8)
    for number, image in enumerate(pixels):
        folder = home / "photos" / ("Train" if number < 12 else "val") / "ab"[number % 2]
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(folder / f"{number}.png")
    (home / "photos" / "notes").mkdir()
    (home / "photos" / "Train" / "a" / "torn.png").write_bytes(b"no image")
    said: dict[str, Any] = {"recipe": "tiny.toml", "method": "supervised", "out": "run", "labels": 4}
    with pytest.raises(InputError, match="--skip-unreadable"):
        list(train("photos", **said))
    plan = next(event for event in train("photos", skip_unreadable=True, **said) if isinstance(event, Plan))
    assert plan.facts["folders"] == "Train: labeled images, val: test images, since there are no others"
    assert plan.facts["not used"] == "notes"
    assert "torn.png" in plan.facts["left out"]
