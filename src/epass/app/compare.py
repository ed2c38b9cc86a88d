"""Compare several methods on one data set, over several seeds, in one table."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from ..errors import InputError
from ..extensions import short
from ..machine.signals import stopped_with
from ..recipe import Recipe
from ..runs import RESULTS, SPLIT, WEIGHTS, Run, RunFolder
from .budget import budget_facts, enough_steps, limited, misjudged, parse_budget, steps_in, steps_planned, too_few
from .choose import cost_of, elect, election_of
from .contenders import Contender, parse_contenders, recipes_for
from .doubts import doubts_about
from .events import Caution, Event, Intention, Notice, Result, Section, Table, with_arguments_of
from .features import embedded
from .flags import RECIPE, WHAT, WHERE, Flag
from .many_runs import check_folders, describe_damaged, describe_failures, places_for, train_all
from .request import Shared, trusting
from .words import some
from .workers import How

if TYPE_CHECKING:
    from ..data import Dataset

FILES = {"table": "table.md", "rows": "results.csv", "record": "comparison.json", "page": "report.html"}


@dataclass(frozen=True, kw_only=True)
class SeveralMethods:
    """What is trained, where it is compared."""

    methods: Annotated[
        str,
        Flag("Names from 'epass methods', with commas between them; simmatch+3 has 3 projectors; or all.", WHAT),
    ] = "fixmatch,simmatch,simmatch+3"
    projectors: Annotated[
        str | None, Flag("Numbers of projectors, 1,3 for instance, for each method that has an embedding.", WHAT)
    ] = None
    strategies: Annotated[
        str | None, Flag("How several projectors are combined, each with each: some of mean, sum, concat.", WHAT)
    ] = None
    choose: Annotated[
        bool, Flag("Choose one, by cross-validation over the labels of the first seed and never by the test.", WHAT)
    ] = False
    seeds: Annotated[int, Flag("Runs of each method; less than 3 can hardly tell luck from merit.", WHAT, least=1)] = 3


@dataclass(frozen=True, kw_only=True)
class CompareRequest(Shared, SeveralMethods):
    """A comparison.

    Of what one run has, seed, folder, loggers, --resume and --force have no place here: there are many of each, and
    runs that are there are kept or gone on with.
    """

    device: Annotated[str, Flag("auto, cpu, cuda (all that are visible), cuda:0 or mps.", WHERE)] = "auto"
    settings: Annotated[
        Sequence[str],
        Flag(
            "Any key of a recipe; method.threshold=0.9 is for those that have one.",
            RECIPE,
            name="--set",
            metavar="KEY=VALUE",
        ),
    ] = ()
    out: Annotated[str | Path, Flag("Where runs and tables go; finished runs in it are kept.", WHERE)] = "runs/compare"


@with_arguments_of(CompareRequest)
def compare(asked: CompareRequest) -> Iterator[Event]:
    """Which method is best on these images? Train several alike and put them in one table.

    Network, steps and labels are the same for all. Labels only (supervised) is
    always among them: it shows what the unlabeled images are worth. A seed
    decides which images are labeled, so methods are compared seed by seed. Runs
    follow one another, so that their times can be compared, too, and every
    method has run with the first seed before the second one begins. Where there
    are several GPUs, each trains one run at a time. --budget is for each run:
    the slowest method decides how many steps fit. --wrap is for the methods
    that have weak and strong views.
    """
    from ..data import open_dataset
    from ..engine.build import build, reading_settings
    from ..evaluation.baselines import MOST_SPREAD
    from ..machine.device import choose_device
    from ..report import comparison_record, sort_out, write_record

    asked = trusting(asked)
    out, seconds = Path(asked.out), parse_budget(asked)
    contenders = parse_contenders(asked.methods, asked.projectors, asked.strategies)
    names = [f"{contender.name}-{seed}" for seed in range(asked.seeds) for contender in contenders]
    if seconds is not None and (planned := max(steps_planned(RunFolder(out / name)) for name in names)):
        asked, seconds = replace(asked, steps=planned), None
    jobs = jobs_for(asked, contenders)
    damaged = sort_out([folder for folder in jobs if RunFolder(folder).exists()])[1]
    check_folders(out, {folder: recipe for folder, recipe in jobs.items() if folder not in damaged})
    places, first, most = places_for(asked.device), next(iter(jobs.values())), None
    dataset = open_dataset(first.data["name"], **reading_settings(first), progress=asked.reading)
    check_data([folder for folder in jobs if folder not in damaged], dataset)
    yield from check_splits(jobs, dataset, asked.allow_leak)
    yield from doubts_about(dataset)
    dataset = yield from embedded(first, dataset, choose_device(places[0]), asked.stop)
    if seconds is not None:
        device, first_seed = choose_device(places[0]), list(jobs.values())[: len(contenders)]
        most = enough_steps(build(first, device, dataset))
        fitting = steps_in(seconds, (build(recipe, device, dataset) for recipe in first_seed))
        asked = replace(asked, steps=limited(fitting, most))
        jobs = jobs_for(asked, contenders)
    beside = baselines_for(jobs, dataset)
    for problem in damaged.values():
        yield Caution(problem, "Left out")
    if others := finished_beside(out, {*jobs, *beside}):
        yield Caution(
            f"'{out}' also holds {some(others)}, which its tables leave out now: name all --methods and --seeds that "
            "they shall show, or another --out."
        )
    steps = next(iter(jobs.values())).plan["steps"]
    yield Intention(
        f"{len(contenders)} ways of training on {dataset.name}, {asked.seeds} seed{'s' * (asked.seeds != 1)} each: "
        f"{len(jobs)} runs of {steps:,} steps with the network {short(first.net['name'])}, in {out}."
    )
    yield from map(Notice, budget_facts(steps, seconds, most).values())
    labels, batch = first.data.get("labels", 0), first.plan.get("labeled_batch", 64)
    if seconds is not None and (few := too_few(steps, labels, batch, seconds)):
        yield Caution(few)
    amount = f"{first.data['labels']:,}" if "labels" in first.data else "all"
    title = f"{dataset.name} with {amount} labels: which method?"
    wanted = {folder: recipe for folder, recipe in jobs.items() if folder not in damaged}
    if beside and len(dataset.train) > MOST_SPREAD:
        yield Notice(
            f"Label spreading, which stands beside the methods, learns from {MOST_SPREAD:,} of the unlabeled examples, "
            "drawn by chance: its time grows with the square of their number."
        )
    election = None
    if asked.choose:
        election = election_of({**wanted, **beside}, dataset, choose_device(places[0]), out)
        yield Notice(cost_of(election))

    def keep(failed: Mapping[Path, str]) -> list[Run]:
        return write_tables([*wanted, *beside], {**damaged, **failed}, out, title)

    with stopped_with(f"the same command goes on from here; finished runs are in {out}."):
        fit_baselines(beside, dataset, asked)
        failed = yield from train_all(wanted, dataset, places, How(asked.command), asked.stop, keep)
        runs, choice = keep(failed), {}
        if runs:
            yield from outcome(runs, out, title)
        if runs and election is not None:
            choice = yield from elect(election, runs, asked.stop)
    used = max((run.results["seconds"] for run in runs if run.results is not None), default=0.0)
    if seconds is not None and used and (sentence := misjudged(used, seconds, steps, most)):
        yield Caution(sentence)
    left_out = describe_damaged(damaged, len(jobs))
    if damaged and failed:
        yield Caution(left_out, "Error")
    missing = {folder.name: reason for folder, reason in {**damaged, **failed}.items()}
    record = comparison_record(runs, title=title, missing=missing) | ({"choice": choice} if choice else {})
    if choice:
        write_record(out / FILES["record"], record)
    usable = bool(choice) and (out / choice["run"] / WEIGHTS).is_file()  # baselines leave no network
    yield Result(
        values=record,
        following=shlex.join(["epass", "predict", str(out / choice["run"]), "PHOTOS"]) if usable else "",
        files={name: out / file for name, file in FILES.items()} if runs else {},
        complaint=describe_failures(failed, len(jobs)) or left_out,
    )


def jobs_for(asked: CompareRequest, contenders: Sequence[Contender]) -> dict[Path, Recipe]:
    """The recipe of every run by its folder, all methods with one seed before the next seed."""
    return {
        Path(asked.out) / f"{contender.name}-{seed}": recipe
        for seed in range(asked.seeds)
        for contender, recipe in recipes_for(asked, contenders, seed).items()
    }


def baselines_for(jobs: Mapping[Path, Recipe], dataset: Dataset) -> dict[Path, Recipe]:
    """What others would do with the same vectors, once for every seed; nothing of the kind is done with images."""
    from ..data import Vectors
    from ..engine.baseline import baseline_recipe
    from ..evaluation.baselines import BASELINES

    if not isinstance(dataset.train, Vectors):
        return {}
    first = {recipe.seed: (folder.parent, recipe) for folder, recipe in reversed([*jobs.items()])}
    return {
        out / f"{name}-{seed}": baseline_recipe(recipe, name)
        for seed, (out, recipe) in sorted(first.items())
        for name in BASELINES
    }


def finished_beside(out: Path, ours: Set[Path]) -> list[str]:
    """The names of finished runs in the folder of a comparison that are none of it."""
    there = sorted(out.iterdir()) if out.is_dir() else []
    return [entry.name for entry in there if entry not in ours and (entry / RESULTS).is_file()]


def fit_baselines(beside: Mapping[Path, Recipe], dataset: Dataset, asked: CompareRequest) -> None:
    """Fit those that are not there yet: each takes about a second."""
    from ..engine.baseline import run_baseline

    for folder, recipe in beside.items():
        asked.stop()
        run_baseline(recipe, RunFolder(folder), dataset, asked.command)


def check_data(folders: Sequence[Path], dataset: Dataset) -> None:
    """Refuse to put new runs beside those of images that have changed since."""
    from ..data import find_recorded
    from ..engine.run import split_record

    there = [folder for folder in folders if RunFolder(folder).exists()]
    record = split_record(RunFolder(there[0])) if there and len(there) < len(folders) else b""
    if record and (change := find_recorded(record, there[0] / SPLIT, dataset).change):
        raise InputError(f"{change} in '{there[0]}': start the comparison anew in another folder with --out.")


def check_splits(jobs: Mapping[Path, Recipe], dataset: Dataset, allow_leak: bool) -> Iterator[Caution]:
    """Refuse labels that cannot be had, and test images among those of runs that nobody has started yet.

    Labels that contradict each other are told of once.
    """
    from ..engine.build import split_for
    from ..engine.copies import check_copies
    from ..engine.models import method_class

    new = [recipe for folder, recipe in jobs.items() if not RunFolder(folder).exists()]
    doubts = []
    by_split = {(recipe.seed, method_class(recipe.method["name"]).all_labels): recipe for recipe in new}
    for recipe in by_split.values():
        split = split_for(recipe, dataset)
        if not len(split.test):
            raise InputError("Runs are compared by a test, and data.holdout=0 leaves nothing to test on: leave it out.")
        doubts.append(check_copies(recipe, dataset, split, allow_leak=allow_leak))
    yield from map(Caution, list(filter(None, doubts))[:1])


def write_tables(folders: Sequence[Path], failed: Mapping[Path, str], out: Path, title: str) -> list[Run]:
    """The CSV, JSON and Markdown files of the runs that there are and can be read; returns these."""
    from ..report import comparison_record, group_runs, sort_out, write_record, write_rows, write_table

    runs, unreadable = sort_out([folder for folder in folders if RunFolder(folder).exists()])
    if runs:
        missing = {folder.name: reason for folder, reason in {**unreadable, **failed}.items()}
        write_rows(out / FILES["rows"], runs)
        write_record(out / FILES["record"], comparison_record(runs, title=title, missing=missing))
        write_table(out / FILES["table"], group_runs(runs), title=title, missing=missing)
    return runs


def outcome(runs: Sequence[Run], out: Path, title: str) -> Iterator[Event]:
    """The tables, the verdict and the page."""
    from ..report import (
        DIFFERENCE_HEADS,
        difference_rows,
        group_runs,
        table_heads,
        table_rows,
        verdict,
        warnings_of,
        write_page,
    )

    groups = group_runs(runs)
    for heads, rows in (
        (table_heads(groups, "screen"), [cells for _, cells in table_rows(groups, "screen")]),
        (DIFFERENCE_HEADS, difference_rows(groups)),
    ):
        if rows:
            yield without_empty(heads, rows)
    yield Section(verdict(groups))
    yield from map(Caution, warnings_of(groups))
    page = write_page(out / FILES["page"], runs, title=title)
    yield Notice(f"Every column: {', '.join(str(out / FILES[name]) for name in ('table', 'rows', 'record'))}")
    yield Notice(f"Open the page: {page.resolve()}")


def without_empty(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    """Only the columns in which some row says something."""
    kept = [column for column in range(len(heads)) if any(row[column] != "–" for row in rows)]
    return Table([heads[column] for column in kept], [[row[column] for column in kept] for row in rows])
