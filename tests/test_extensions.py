"""Code of one's own: a method, a wrapper, a network, a reader of data and a policy that the package knows nothing of.

One file of a user goes through every command, each in a process of its own.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from epass import METHODS, InputError, extensions, load_model, load_run, open_dataset, read_recipe, run
from epass.app.contenders import parse_contenders
from epass.augment import make_policies
from epass.augment.policies import POLICIES, Weak
from epass.engine.build import check_recipe
from epass.engine.models import method_class, with_located_code, wrapper_class
from epass.networks import make_network
from epass.report.summary import display_name, group_runs
from epass.runs import Run

OWN = '''
"""Code of somebody who uses epass."""

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from epass import Batch, Dataset, Method, Outcome, Problem, Views, from_arrays, predict_jointly
from epass.evaluation import Score
from epass.method import Features, Wrapper

MARGIN = Score(
    "margin",
    "mean margin",
    "mean gap between the two largest probabilities",
    "higher",
    lambda outputs: float(np.diff(np.sort(np.exp(outputs.log_probs), 1)[:, -2:]).mean()),
    unit="",
    digits=3,
    place="screen",
)


class OwnMatch(Method):
    """The weak view labels the strong one, however unsure it is."""

    views = Views(labeled=("weak",), unlabeled=("weak", "strong"))
    display_name = "Own Match"

    def __init__(self, net: nn.Module, problem: Problem, *, weight: float = 0.5) -> None:
        super().__init__(net)
        self.weight = weight

    def forward(self, batch: Batch) -> Outcome:
        (x,), (weak, strong) = batch.labeled, batch.unlabeled
        on_x, on_strong, on_weak = predict_jointly(self.net, x, strong, weak)
        guess = on_weak.logits.detach().argmax(1)
        unlabeled = self.weight * F.cross_entropy(on_strong.logits, guess)
        return Outcome(
            losses={"labeled": F.cross_entropy(on_x.logits, batch.labels), "unlabeled": unlabeled},
            features=Features(on_x.features, on_weak.features, on_strong.features),
        )


class SmallFeatures(Wrapper):
    """Features shall be small."""

    def __init__(self, method: Method, problem: Problem, *, share: float = 0.1) -> None:
        super().__init__(method)
        self.share = share

    def forward(self, batch: Batch) -> Outcome:
        outcome: Outcome = self.method(batch)
        small = self.share * self.features_of(outcome).weak.square().mean()
        return outcome._replace(losses={**outcome.losses, "small": small})


class OneLayer(nn.Sequential):
    """A convolution."""

    num_features = 8

    def __init__(self, *, in_channels: int, kernel: int = 3) -> None:
        convolution = nn.Conv2d(in_channels, 8, kernel, padding=1)
        super().__init__(convolution, nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())


def stripes(image_size: int | None) -> Dataset:
    """Stripes that lie or stand."""
    size, draw = image_size or 8, np.random.default_rng(0)
    images, labels = draw.integers(0, 100, (60, size, size), dtype=np.uint8), np.arange(60) % 2
    for image, label in zip(images, labels):
        (image if label else image.T)[::2] += 150
    return from_arrays(images, labels, name="stripes", classes=["standing", "lying"])


def pixels(image_size: int | None) -> np.ndarray:
    """Not a data set yet."""
    return np.zeros((4, 8, 8), np.uint8)


class Darken:
    """A part of the light."""

    def __init__(self, *, cutout: float) -> None:
        self.reach = cutout

    def draw(self, count: int, generator: torch.Generator) -> tuple[Tensor, ...]:
        return (torch.rand(count, generator=generator, device=generator.device),)

    def apply(self, pixels: Tensor, draws: tuple[Tensor, ...]) -> Tensor:
        (share,) = draws
        return (pixels * (1 - self.reach * share[:, None, None, None])).to(torch.uint8)
'''
EVERYTHING = ("OwnMatch", "SmallFeatures", "OneLayer", "stripes", "Darken", "MARGIN")
PARTS = [
    "--set",
    'plan.scores=["own.py:MARGIN"]',
    "--net",
    "own.py:OneLayer",
    "--set",
    "augment.strong=own.py:Darken",
    "--set",
    "net.kernel=5",
]
SHORT = ["--labels", "10", "--steps", "4", "--image-size", "8", "--device", "cpu"]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where a user works: a file of code, and a picture."""
    path = tmp_path_factory.mktemp("home")
    (path / "own.py").write_text(OWN)
    (path / "elsewhere").mkdir()
    Image.fromarray(np.zeros((8, 8), np.uint8)).save(path / "picture.png")
    return path


def epass(folder: Path, *words: str | Path, code: int = 0) -> str:
    """What a command prints, in a process of its own that must end with this code."""
    command = [sys.executable, "-m", "epass", *map(str, words)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert done.returncode == code, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return done.stdout if code == 0 else done.stderr


def trusting(*names: str) -> list[str]:
    """As typed from a folder beside the file."""
    return [word for name in names for word in ("--trust", f"../own.py:{name}")]


@pytest.fixture(scope="module")
def trained(home: Path) -> Path:
    """A run in which everything is the user's."""
    flags = ["--method", "own.py:OwnMatch", "--wrap", "own.py:SmallFeatures", "--set", "method.weight=0.7"]
    printed = epass(home, "train", "own.py:stripes", *flags, *PARTS, *SHORT, "--out", "run")
    assert "OwnMatch + SmallFeatures" in printed
    assert f"--trust {home}/own.py:OwnMatch" in printed.partition("Next: epass predict run PHOTOS")[2]
    return home / "run"


@pytest.mark.slow
def test_a_run_holds_whole_paths_and_names_for_people(home: Path, trained: Path) -> None:
    found = load_run(trained)
    tables = {"method": "OwnMatch", "wrapper": "SmallFeatures", "net": "OneLayer", "data": "stripes"}
    assert {table: found.recipe[table]["name"] for table in tables} == {
        table: f"{home}/own.py:{name}" for table, name in tables.items()
    }
    assert found.recipe["augment"] == {"strong": f"{home}/own.py:Darken"}
    assert (found.recipe["method"]["weight"], found.recipe["net"]["kernel"]) == (0.7, 5)
    assert found.model is not None
    assert sorted(found.model["names"].values()) == ["Own Match", "SmallFeatures"]
    assert {"loss_small", "loss_unlabeled"} <= {key for row in found.metrics for key in row}
    (group,) = group_runs([found])
    assert group.label == "Own Match + SmallFeatures"
    assert found.recipe["plan"]["scores"] == [f"{home}/own.py:MARGIN"]
    assert found.results is not None
    assert found.metrics[-1]["test_margin"] == found.results["last"]["margin"] > 0


@pytest.mark.slow
def test_evaluate_and_predict_load_what_is_typed_and_nothing_else(home: Path, trained: Path) -> None:
    away = home / "elsewhere"
    model = ("OwnMatch", "SmallFeatures", "OneLayer")
    refused = epass(away, "evaluate", trained, code=2)
    assert refused.count("\n") == 1
    assert all(f"--trust {home}/own.py:{name}" in refused for name in model)
    assert f"--trust {home}/own.py:stripes" in epass(away, "evaluate", trained, *trusting(*model), code=2)
    partial = json.loads(epass(away, "evaluate", trained, *trusting(*model, "stripes"), "--json"))
    assert "margin" not in partial["scores"]
    answer = json.loads(epass(away, "evaluate", trained, *trusting(*model, "stripes", "MARGIN"), "--json"))
    recorded = load_run(trained).results
    assert recorded is not None
    assert (answer["data"], answer["scores"]) == ("stripes", recorded["last"])

    assert "OneLayer" in epass(away, "predict", trained, "../picture.png", code=2)
    epass(away, "predict", trained, "../picture.png", *trusting(*model))
    assert len((away / "predictions.csv").read_text().splitlines()) == 2


@pytest.mark.slow
def test_a_run_goes_on_once_its_code_is_trusted(home: Path, trained: Path) -> None:
    away = home / "elsewhere"
    assert "own.py:Darken" in epass(away, "train", "--resume", "--out", trained, code=2)
    assert "Results" in epass(away, "train", "--resume", "--out", trained, *trusting(*EVERYTHING))
    recipe = trained / "recipe.toml"
    assert "own.py:Darken" in epass(away, "train", "--recipe", recipe, "--out", "again", code=2)


@pytest.mark.slow
def test_report_needs_no_code(home: Path, trained: Path) -> None:
    (home / "own.py").rename(home / "gone.py")
    try:
        epass(home, "report", trained, "--no-maps", "--out", "page.html", "--card", "card.md")
    finally:
        (home / "gone.py").rename(home / "own.py")
    page = (home / "page.html").read_text()
    assert "Own Match + SmallFeatures on stripes, 10 labels" in page
    assert "margin" in page
    assert "Own Match + SmallFeatures on stripes" in (home / "card.md").read_text()


@pytest.mark.slow
def test_compare_puts_a_method_beside_others(home: Path) -> None:
    methods = ["--methods", "fixmatch,own.py:OwnMatch", "--seeds", "1"]
    changed = [f"--set={word}" for word in ("data.image_size=8", "method.weight=0.3")]
    printed = epass(home, "compare", "own.py:stripes", *methods, *PARTS, *changed, *SHORT[:4], "--device", "cpu")
    assert [line.partition("  ")[0] for line in printed.splitlines() if line.rstrip().endswith(tuple("0123456789"))][
        :3
    ] == ["labels only", "FixMatch", "Own Match"]
    folder = home / "runs" / "compare"
    assert {path.name for path in folder.iterdir() if path.is_dir()} == {"supervised-0", "fixmatch-0", "OwnMatch-0"}
    assert load_run(folder / "OwnMatch-0").recipe["method"]["weight"] == 0.3
    table = (folder / "table.md").read_text()
    assert "Own Match" in table
    assert "mean margin" in table
    assert "mean margin" in printed


@pytest.mark.slow
def test_a_process_for_each_device_knows_what_is_trusted(home: Path, tmp_path: Path) -> None:
    script = tmp_path / "two.py"
    script.write_text(
        "import sys\nfrom pathlib import Path\nfrom epass import open_dataset, read_recipe, trust\n"
        "from epass.app.workers import How, train_apart\n"
        "if __name__ == '__main__':\n"
        "    trust(sys.argv[1])\n"
        "    settings = {'method.name': sys.argv[1], 'method.threshold': None, 'plan.steps': 2, 'net.width': 2}\n"
        "    recipe = read_recipe('digits-fixmatch').with_settings(settings)\n"
        "    jobs = {Path('a'): recipe, Path('b'): recipe}\n"
        "    told = train_apart(jobs, open_dataset('digits'), ['cpu', 'cpu'], How())\n"
        "    print(sorted((update.folder.name, update.problem) for update in told if update.ended))\n"
    )
    command = [sys.executable, script, f"{home}/own.py:OwnMatch"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.stdout == "[('a', None), ('b', None)]\n", done.stderr


# In this process


@pytest.fixture
def own(home: Path) -> Callable[[str], str]:
    def trusted_name(name: str) -> str:
        extensions.trust(f"{home}/own.py:{name}")
        return f"{home}/own.py:{name}"

    return trusted_name


def test_every_kind_is_found_by_name(own: Callable[[str], str]) -> None:
    method = method_class(own("OwnMatch"))
    assert (method.__name__, method.display_name, method.paper) == ("OwnMatch", "Own Match", None)
    assert method_class(own("OwnMatch")) is method  # the file was run once
    assert wrapper_class(own("SmallFeatures")).display_name == "SmallFeatures"
    assert make_network(own("OneLayer"), in_channels=1, num_classes=3, kernel=5).num_features == 8
    assert open_dataset(own("stripes"), image_size=6).train.shape == (1, 6, 6)
    policies = make_policies(padding=1, cutout=0.25, strong=own("Darken"))
    assert policies["strong"].reach == 0.25  # type: ignore[attr-defined]
    assert isinstance(policies["weak"], Weak)


def test_a_module_is_found_by_its_dotted_name(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own: Callable[[str], str]
) -> None:
    (tmp_path / "ownpackage").mkdir()
    (tmp_path / "ownpackage/__init__.py").write_text("")
    (tmp_path / "ownpackage/parts.py").write_text(OWN)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(InputError, match=r"--trust ownpackage\.parts:OwnMatch \(in Python"):
        method_class("ownpackage.parts:OwnMatch")
    assert "ownpackage.parts" not in sys.modules
    extensions.trust("ownpackage.parts:OwnMatch")
    assert method_class("ownpackage.parts:OwnMatch").__module__ == "ownpackage.parts"
    assert extensions.trusted() == ["ownpackage.parts:OwnMatch"]
    with pytest.raises(InputError, match=r"--trust ownpackage\.parts:OneLayer"):  # not trusted as well
        make_network("ownpackage.parts:OneLayer", in_channels=1, num_classes=3)


@pytest.mark.parametrize(
    ("good", "bad", "words"),
    [
        ("        super().__init__(net)\n", "", r"^OwnMatch must call `super\(\).__init__\(net\)` before all else"),
        ("        super().__init__(method)\n", "", r"^SmallFeatures must call `super\(\).__init__\(method\)` before"),
        (
            "cross_entropy(on_x.logits, batch.labels)",
            "cross_entropy(on_x.logits, batch.labels, reduction='none')",
            r"^OwnMatch returns losses\['labeled'\] of shape \(32,\): reduce it to a scalar\.$",
        ),
    ],
)
def test_a_slip_in_code_of_ones_own_is_one_sentence(tmp_path: Path, good: str, bad: str, words: str) -> None:
    assert OWN.count(good) == 1
    (tmp_path / "own.py").write_text(OWN.replace(good, bad))
    extensions.trust(*(f"{tmp_path}/own.py:{name}" for name in ("OwnMatch", "SmallFeatures")))
    settings = {"method.name": f"{tmp_path}/own.py:OwnMatch", "method.threshold": None, "plan.steps": 1, "net.width": 2}
    if "SmallFeatures" in words:
        settings["wrapper.name"] = f"{tmp_path}/own.py:SmallFeatures"
    with pytest.raises(InputError, match=words):
        list(run(read_recipe("digits-fixmatch").with_settings(settings), tmp_path / "run", device="cpu"))


def test_two_files_of_one_name_are_two(tmp_path: Path) -> None:
    names = []
    for folder, text in (("a", "first"), ("b", "second")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "own.py").write_text(OWN.replace("Own Match", text))
        names.append(f"{tmp_path}/{folder}/own.py:OwnMatch")
    extensions.trust(*names)
    assert [method_class(name).display_name for name in names] == ["first", "second"]


def test_python_runs_and_loads_code_of_ones_own(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own: Callable[[str], str]
) -> None:
    monkeypatch.chdir(home)
    settings = {
        "method.name": "own.py:OwnMatch",
        "method.threshold": None,
        "plan.steps": 2,
        "net.name": "own.py:OneLayer",
    }
    recipe = read_recipe("digits-fixmatch").with_settings(settings)
    for name in ("OwnMatch", "OneLayer"):
        own(name)
    assert len(list(run(recipe, tmp_path / "run", device="cpu"))) > 0
    monkeypatch.chdir(tmp_path)  # the run knows where the file is
    net, model = load_model(tmp_path / "run")
    assert model["method"]["name"] == f"{home}/own.py:OwnMatch"
    assert type(net.backbone).__name__ == "OneLayer"


def test_a_class_in_the_table_needs_no_trust(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(METHODS, "mine", type("Mine", (METHODS["fixmatch"],), {"display_name": "My Match"}))
    recipe = read_recipe("digits-fixmatch").with_settings({"method.name": "mine", "plan.steps": 2, "net.width": 2})
    assert len(list(run(recipe, tmp_path / "run", device="cpu"))) > 0
    monkeypatch.delitem(METHODS, "mine")
    (group,) = group_runs([load_run(tmp_path / "run")])  # as another process sees it
    assert group.label == "My Match"


def test_a_policy_may_be_one_of_ours_or_of_a_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(POLICIES, "none", type("Nothing", (Weak,), {}))
    policies = make_policies(padding=1, strong="weak", crop="none")
    assert [type(policies[view]).__name__ for view in ("weak", "strong", "crop")] == ["Weak", "Weak", "Nothing"]
    with pytest.raises(InputError, match="Unknown policy 'week': did you mean 'weak'"):
        make_policies(padding=1, weak="week")


BROKEN = {
    "nothing.py:Own": r"There is no file '.*/nothing\.py'",
    "onw.py:OwnMatch": r"There is no file '.*/onw\.py': did you mean 'own\.py'\?",
    "own.py:Onw": r"Unknown method of '.*/own\.py', 'Onw': choose one of: OwnMatch\.",
    "own.py:OwnMach": r"Unknown method of '.*/own\.py', 'OwnMach': did you mean 'OwnMatch'\?",
    "own.py:OneLayer": r"'.*/own\.py:OneLayer' is not a method: that is a class made from epass\.Method",
    "own.py:SmallFeatures": r"is not a method",
    "own.py:Method": r"is not a method",
    "own.py:stripes": r"is not a method",
    "empty.py:OwnMatch": r"'.*/empty\.py' has no 'OwnMatch': a method is a class made from epass\.Method",
    "failing.py:X": r"'.*/failing\.py' cannot be loaded: ZeroDivisionError: division by zero \(failing\.py, line 2\)",
    "leaving.py:X": r"'.*/leaving\.py' cannot be loaded: SystemExit: 3 \(leaving\.py, line 2\)",
    "garbled.py:X": r"'.*/garbled\.py' cannot be loaded: SyntaxError: .*garbled\.py, line 1",
    "lacking.py:X": r"'.*/lacking\.py' cannot be loaded: ModuleNotFoundError: No module named 'nowhere_at_all'",
    "epas.methods:X": r"There is no module 'epas': did you mean 'epass'\?",
    "epass.metods:X": r"There is no module 'epass\.metods': did you mean 'methods'\?",
    "epass.errors.more:X": r"There is no module 'epass\.errors\.more'",
}


@pytest.mark.parametrize("name", BROKEN)
def test_what_cannot_be_loaded_is_one_sentence(home: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.chdir(home)
    files = {"empty": "", "failing": "zero = 0\n1 / zero", "leaving": "import sys\nsys.exit(3)", "garbled": "x = ("}
    for stem, text in (files | {"lacking": "import nowhere_at_all"}).items():
        Path(f"{stem}.py").write_text(text)
    extensions.trust(name)
    for _ in range(2):  # what failed once is not there half
        with pytest.raises(InputError, match=BROKEN[name]) as complaint:
            method_class(name)
        assert "\n" not in str(complaint.value)


@pytest.mark.parametrize(
    ("part", "name", "words"),
    [
        ("wrapper", "OwnMatch", "is not a wrapper: that is a class made from epass.method.Wrapper"),
        ("net", "stripes", "is not a network: that is a class or function of in_channels"),
        ("net", "OwnMatch", "is not a network"),
        ("policy", "OneLayer", "is not a policy: that is a class with draw"),
        ("data", "OneLayer", "is not a data reader: that is a function of the image size"),
        ("data", "pixels", "returned ndarray: use epass.from_arrays"),
    ],
)
def test_a_name_of_another_kind_is_refused(own: Callable[[str], str], part: str, name: str, words: str) -> None:
    find: dict[str, Callable[[str], Any]] = {
        "wrapper": wrapper_class,
        "net": lambda name: make_network(name, in_channels=1, num_classes=2),
        "policy": lambda name: make_policies(padding=1, weak=name),
        "data": open_dataset,
    }
    with pytest.raises(InputError, match=words):
        find[part](own(name))


def test_a_network_of_ones_own_has_no_published_weights(own: Callable[[str], str]) -> None:
    with pytest.raises(InputError, match="comes without published weights"):
        make_network(own("OneLayer"), in_channels=1, num_classes=2, weights="published")


def test_a_folder_wins_over_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for label in ("a", "b"):
        Path("photos:new", label).mkdir(parents=True)
        Image.fromarray(np.zeros((8, 8), np.uint8)).save(Path("photos:new", label, "1.png"))
    assert open_dataset("photos:new").classes == ("a", "b")


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("mine.py:Own", True),
        ("a folder/mine.py:Own", True),
        ("package.module:Own", True),
        ("module:Own", True),
        ("simmatch", False),
        ("timm:resnet18", False),
        ("hf:owner/model", False),
        ("C:\\photos", False),
        ("/photos:new", False),
        ("mine.py:Own.inner", False),
        ("mine.py:", False),
        (":Own", False),
        ("package.module:Own\n", False),
        (7, False),
        (None, False),
    ],
)
def test_what_is_taken_for_the_name_of_code(name: object, code: bool) -> None:
    assert extensions.is_code(name) is code


def test_names_are_trusted_by_where_they_lead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    extensions.trust("mine.py:A", "deep/../other.py:B", "~/third.py:C", "package.module:D")
    assert extensions.trusted() == [
        f"{tmp_path}/mine.py:A",
        f"{tmp_path}/other.py:B",
        f"{tmp_path}/third.py:C",
        "package.module:D",
    ]
    assert extensions.trust_flags()[:2] == ["--trust", f"{tmp_path}/mine.py:A"]
    extensions.check_trusted(["mine.py:A", "./mine.py:A", f"{tmp_path}/deep/../mine.py:A", "simmatch", 3, None])
    with pytest.raises(InputError, match=r"allow it with --trust /.*/mine\.py:B --trust package\.module:E \(in Python"):
        extensions.check_trusted(["mine.py:B", "package.module:E", "package.module:D"])


def test_only_names_of_code_can_be_trusted() -> None:
    for name in ("simmatch", "mine.py", "", "timm:resnet18"):
        with pytest.raises(InputError, match=r"does not name code: write package\.module:Class or file\.py:Class"):
            extensions.trust(name)
    extensions.trust_typed(None, "simmatch", 0.5, "package.module:A")  # of flags only those that name code
    assert extensions.trusted() == ["package.module:A"]


def test_a_recipe_in_python_is_refused_before_anything_is_read(home: Path) -> None:
    recipe = read_recipe("digits-fixmatch").with_settings(
        {"method.name": f"{home}/own.py:OwnMatch", "augment.weak": "package.module:P", "data.name": "package.module:D"}
    )
    names = rf"--trust {home}/own\.py:OwnMatch --trust package\.module:D --trust package\.module:P"
    with pytest.raises(InputError, match=names):
        check_recipe(recipe)


def test_paths_are_whole_wherever_a_recipe_names_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    named = {"method.name": "m.py:M", "net.name": "n.py:N", "augment.strong": "p.py:P", "wrapper.name": "package.w:W"}
    recipe = with_located_code(read_recipe("digits-fixmatch").with_settings(named))
    assert {key: recipe.flat()[key] for key in named} == {
        "method.name": f"{tmp_path}/m.py:M",
        "net.name": f"{tmp_path}/n.py:N",
        "augment.strong": f"{tmp_path}/p.py:P",
        "wrapper.name": "package.w:W",
    }
    plain = read_recipe("digits-fixmatch")
    assert with_located_code(plain) == plain


def test_contenders_of_one_name_are_refused(tmp_path: Path, own: Callable[[str], str]) -> None:
    (tmp_path / "own.py").write_text(OWN)
    found = parse_contenders(f"fixmatch,{own('OwnMatch')}")
    assert [contender.name for contender in found] == ["supervised", "fixmatch", "OwnMatch"]
    with pytest.raises(InputError, match="Two of the methods are called 'OwnMatch'"):
        parse_contenders(f"{own('OwnMatch')},{tmp_path}/own.py:OwnMatch")


def test_a_name_that_nobody_can_load_is_shown_by_its_class() -> None:
    assert display_name("/somewhere/mine.py:RisingMatch") == "RisingMatch"
    assert display_name("simmatch") == "SimMatch"
    assert display_name("nobody knows") == "nobody knows"


@pytest.mark.parametrize("names", [None, 7, ["mine"], {"mine": 7}, {"other": "Other"}])
def test_odd_names_in_a_run_are_passed_over(names: object) -> None:
    assert display_name("mine", stranger(names)) == "mine"


def test_a_run_names_what_the_package_does_not_know() -> None:
    written = stranger({"mine": "Mine", "simmatch": "Other"})
    assert (display_name("mine", written), display_name("simmatch", written)) == ("Mine", "SimMatch")


def stranger(names: object) -> Run:
    """A run that somebody else made."""
    return Run(Path("run"), "run", {}, {}, [], None, {"names": names}, None)
