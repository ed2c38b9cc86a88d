"""Comparing from Python: what happens, run by run, and what one set of flags means to many runs."""

from __future__ import annotations

import inspect
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from epass.app.compare import CompareRequest, compare
from epass.app.contenders import parse_methods, recipes_for
from epass.app.demo import demo
from epass.app.events import Caution, Intention, Notice, Progress, Result, Section, Table
from epass.app.train import pretrain, train
from epass.errors import InputError, RunError
from epass.machine.signals import Stopped
from epass.runs import load_run

TINY: dict[str, Any] = {"seeds": 1, "steps": 2, "settings": ["net.width=4"], "device": "cpu"}


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("epass.report.write_page", lambda path, *_, **__: path)  # drawing takes seconds
    monkeypatch.setattr("epass.evaluation.alarms.is_near_chance", lambda pairs: False)  # a few steps teach nothing
    return tmp_path


def test_what_happens_run_by_run() -> None:
    opening, *events, result = compare("digits", methods="pi_model", out="out", command="as typed", **TINY)

    assert opening == Intention(
        "2 ways of training on digits, 1 seed each: 2 runs of 2 steps with the network small, in out."
    )
    progress = [event for event in events if isinstance(event, Progress)]
    assert [(event.run, event.step) for event in progress[:2]] == [("supervised-0", 0), ("pi_model-0", 0)]
    assert all((event.steps, event.place) == (2, "") for event in progress)
    assert [event.step for event in progress[2:] if event.run == "pi_model-0"] == [1, 2, 2]
    assert [event.run for event in events if isinstance(event, Notice) and event.run] == ["supervised-0", "pi_model-0"]
    kinds = [type(event) for event in events]
    assert kinds[kinds.index(Table) :] == [Table, Table, Section, Notice, Notice]
    assert isinstance(result, Result)
    assert result.values == json.loads(Path("out/comparison.json").read_text(encoding="utf-8"))
    assert result.files == {
        "table": Path("out/table.md"),
        "rows": Path("out/results.csv"),
        "record": Path("out/comparison.json"),
        "page": Path("out/report.html"),
    }
    assert result.complaint == ""
    assert load_run("out/pi_model-0").environment["command"] == "as typed"

    again = list(compare("digits", methods="pi_model", out="out", **TINY))
    assert [event.step for event in again if isinstance(event, Progress)] == [2, 2]
    assert sum(isinstance(event, Notice) and event.sentence.endswith("(was there)") for event in again) == 2


def test_one_set_of_flags() -> None:
    both = {function: inspect.signature(function).parameters for function in (train, compare)}
    own = {"methods", "projectors", "strategies", "seeds", "choose", "out"}
    assert both[compare].keys() - both[train].keys() == own - {"projectors", "out"}
    one = {"method", "seed", "resume", "force", "log", "guard", "earlier", "fine_tune"}
    assert both[train].keys() - both[compare].keys() == one
    for name in both[train].keys() & both[compare].keys() - own:
        assert both[train][name].default == both[compare][name].default, name


def test_failures_and_damage_are_cautions_and_a_complaint(monkeypatch: pytest.MonkeyPatch) -> None:
    from epass.methods.pi_model import PiModel

    assert compare("digits", methods="pi_model,fixmatch", out="out", **TINY).result().complaint == ""
    Path("out/fixmatch-0/results.json").write_text("{")
    Path("out/pi_model-0/results.json").unlink()
    Path("out/pi_model-0/model.json").unlink()
    for checkpoint in Path("out/pi_model-0/checkpoints").iterdir():
        checkpoint.unlink()

    def broken(self: PiModel, batch: object) -> None:
        raise RuntimeError("the views\ndo not fit")

    monkeypatch.setattr(PiModel, "forward", broken)
    events = list(compare("digits", methods="pi_model,fixmatch", out="out", **TINY))
    cautions = [event for event in events if isinstance(event, Caution)]
    assert [caution.kind for caution in cautions] == ["Left out", "Error", "Error"]
    assert cautions[1].sentence == "pi_model-0 failed: RuntimeError: the views do not fit"
    assert cautions[2].sentence.startswith("1 of 3 runs are left out (fixmatch-0)")
    result = events[-1]
    assert isinstance(result, Result)
    assert result.complaint == "1 of 3 runs failed (pi_model-0); the same command tries them again."
    assert result.values["missing"].keys() == {"fixmatch-0", "pi_model-0"}


def test_leaks_are_refused_before_anything_is_trained(home: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 255, (40, 8, 8), dtype=np.uint8)
    labels = np.arange(40) % 2
    np.savez("leak.npz", train_images=pixels, train_labels=labels, test_images=pixels[:8], test_labels=labels[:8])
    said: dict[str, Any] = {"methods": "pi_model", "labels": 10, "out": "out", **TINY}

    with pytest.raises(InputError, match="test images are among the labeled ones"):
        compare("leak.npz", **said).result()
    assert not Path("out").exists()
    assert compare("leak.npz", allow_leak=True, **said).result().complaint == ""
    assert compare("leak.npz", **said).result().complaint == ""  # these runs were started by somebody who knew


def test_labels_that_contradict_each_other_are_told_of_once(home: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 255, (40, 8, 8), dtype=np.uint8)
    pixels[1] = pixels[0]
    labels = np.arange(40) % 2
    np.savez(
        "copy.npz", train_images=pixels[:32], train_labels=labels[:32], test_images=pixels[32:], test_labels=labels[32:]
    )
    said: dict[str, Any] = {"methods": "pi_model,supervised", "labels": 32, "out": "out", **TINY, "seeds": 2}

    told = [event.sentence for event in compare("copy.npz", **said) if isinstance(event, Caution)]
    assert told[0].startswith("2 labeled images have an exact copy with another label, such as 'train ")
    assert not any("exact copy" in sentence for sentence in told[1:])


def test_the_slowest_method_decides_what_fits_into_a_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = {"supervised": 0.1, "pi_model": 1.0}
    monkeypatch.setattr(
        "epass.engine.timing.seconds_per_step", lambda experiment, patience: seconds[experiment.recipe.method["name"]]
    )
    said: dict[str, Any] = {"methods": "pi_model", "budget": "5s", "out": "out", **TINY, "steps": None}
    events = list(compare("digits", **said))
    few, late = (event.sentence for event in events if isinstance(event, Caution))
    assert few.startswith("Only 4 steps fit into 5 s, and less than 300 teach hardly anything: ")
    assert late.startswith("Training took 0 s and not the 5 s asked for, ")
    assert {load_run(f"out/{name}-0").recipe["plan"]["steps"] for name in seconds} == {4}

    seconds["pi_model"] = 0.01  # a faster day goes on with the same runs
    said["seeds"] = 2
    assert compare("digits", **said).result().complaint == ""
    assert load_run("out/pi_model-1").recipe["plan"]["steps"] == 4


def test_a_recipe_is_the_start_of_all_methods_and_its_settings_are_for_its_own() -> None:
    Path("mine.toml").write_text(
        'format = 1\nsource = "mine"\n[data]\nname = "digits"\nlabels = 20\n[net]\nname = "small"\nwidth = 4\n'
        '[method]\nname = "fixmatch"\nthreshold = 0.5\n[plan]\nsteps = 3000\nlr = 0.01\n[wrapper]\nname = "abc"\n'
    )
    found = recipes_for(CompareRequest(recipe="mine.toml"), parse_methods("fixmatch,simmatch"), 1)
    by_name = {contender.name: recipe for contender, recipe in found.items()}

    assert {recipe.plan["lr"] for recipe in by_name.values()} == {0.01}
    assert {name: dict(recipe.method) for name, recipe in by_name.items()} == {
        "supervised": {"name": "supervised"},
        "fixmatch": {"name": "fixmatch", "threshold": 0.5},
        "simmatch": {"name": "simmatch"},
    }
    # labels only has no strong view for a wrapper to build on
    assert [name for name, recipe in by_name.items() if recipe.wrapper] == ["fixmatch", "simmatch"]
    wrapped = recipes_for(CompareRequest("digits", wrap="abc"), parse_methods("fixmatch,pi_model"), 0)
    assert [contender.name for contender, recipe in wrapped.items() if recipe.wrapper] == ["fixmatch"]


def test_all_start_from_a_pre_training_that_has_their_heads() -> None:
    settings = ["plan.labeled_batch=8", "net.width=4", "method.queue_size=32"]
    pretrain("digits", projectors=2, steps=2, out="pre", device="cpu", settings=settings).result()

    found = recipes_for(CompareRequest("digits", start="pre"), parse_methods("fixmatch,simmatch+2"), 0)
    assert all(recipe.start == {"weights": str(Path("pre").absolute())} for recipe in found.values())
    assert all(recipe.net["width"] == 4 for recipe in found.values())
    with pytest.raises(InputError, match=r"^'simmatch\+3' has 3 projectors and the pre-training 2: pre-train with"):
        compare("digits", methods="simmatch+3", start="pre", **TINY).result()


def test_a_stop_says_that_the_same_command_goes_on() -> None:
    def stop() -> None:
        raise KeyboardInterrupt

    with pytest.raises(Stopped, match=r"^the same command goes on from here; finished runs are in out\.$"):
        compare("digits", methods="pi_model", out="out", stop=stop, **TINY).result()


def test_the_demo_ends_with_the_first_run_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    from epass.methods.supervised import Supervised

    def broken(self: Supervised, batch: object) -> None:
        raise RuntimeError("no")

    monkeypatch.setattr("epass.app.demo.count_cores", lambda: 1)
    monkeypatch.setattr(Supervised, "forward", broken)
    with pytest.raises(RunError, match=r"^supervised-0 failed: RuntimeError: no$"):
        demo(seeds=1, steps=2).result()


def test_without_images_there_is_nothing_to_compare() -> None:
    with pytest.raises(InputError, match="Say which images"):
        compare().result()
