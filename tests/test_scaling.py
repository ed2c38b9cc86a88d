"""The model of many GPUs: its formulae against single messages, its sizes against what the package exchanges."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
import scaling
import scaling_measure
import scaling_model as model
import torch
from scaling_model import Cluster, Link
from torch import Tensor

from epass.method import Problem
from epass.methods import METHODS
from epass.networks import make_network
from epass.networks.resnet import ResNet
from epass.parts.projector import ProjectorEnsemble
from epass.parts.teacher import Average
from epass.recipe import read_recipe
from epass.testing.case import Case as TinyCase
from epass.training.checkpoint import RunState

LINK = Link(latency=3e-6, bandwidth=2e9)


# Formulae


def simulate_ring(
    values: list[list[float]], chunk: float, link: Link, *, reduce: bool
) -> tuple[list[list[float]], float]:
    """Send chunks around a ring, each when it is there and the line is free; what every rank has at the end, and when.

    `values[rank][part]`. With `reduce` parts are added up on their way; without, only part `rank` of each counts.
    """
    ranks = len(values)
    have = [list(row) for row in values]
    ready = [[0.0] * ranks for _ in range(ranks)]
    free = [0.0] * ranks

    def send(rank: int, part: int, add: bool) -> None:
        start = max(ready[rank][part], free[rank])
        arrival = start + link.latency + chunk / link.bandwidth
        free[rank] = arrival
        to = (rank + 1) % ranks
        have[to][part] = have[to][part] + have[rank][part] if add else have[rank][part]
        ready[to][part] = max(ready[to][part], arrival)

    if reduce:
        for turn in range(ranks - 1):
            for rank in range(ranks):
                send(rank, (rank - turn) % ranks, add=True)
    for turn in range(ranks - 1):
        for rank in range(ranks):
            send(rank, (rank - turn + (1 if reduce else 0)) % ranks, add=False)
    return have, max(map(max, ready))


@pytest.mark.parametrize("ranks", [1, 2, 3, 5, 8])
def test_a_ring_all_reduce_takes_as_long_as_its_messages(ranks: int) -> None:
    size, values = 1e6, [[float(10 * rank + part) for part in range(ranks)] for rank in range(ranks)]
    have, seconds = simulate_ring(values, size / ranks, LINK, reduce=True)
    assert have == [[sum(column) for column in zip(*values, strict=True)]] * ranks
    assert model.ring_all_reduce(size, ranks, LINK) == pytest.approx(seconds, rel=1e-12)


@pytest.mark.parametrize("ranks", [1, 2, 3, 5, 8])
def test_a_ring_all_gather_takes_as_long_as_its_messages(ranks: int) -> None:
    values = [[float(rank if part == rank else -1) for part in range(ranks)] for rank in range(ranks)]
    have, seconds = simulate_ring(values, 5e4, LINK, reduce=False)
    assert have == [[float(part) for part in range(ranks)]] * ranks
    assert model.ring_all_gather(5e4, ranks, LINK) == pytest.approx(seconds, rel=1e-12)


@pytest.mark.parametrize("ranks", [1, 2, 3, 8, 13])
def test_a_tree_of_tiny_messages_takes_a_turn_per_level(ranks: int) -> None:
    turns, waiting = 0, list(range(ranks))
    while len(waiting) > 1:  # neighbors in pairs, until one has the sum
        waiting, turns = waiting[::2], turns + 1
    assert model.tree_all_reduce(0, ranks, LINK) == pytest.approx(2 * turns * LINK.latency)


def test_the_faster_way_depends_on_the_size() -> None:
    tiny, huge = 100, 1e9
    assert model.flat_all_reduce(tiny, 64, LINK) == model.tree_all_reduce(tiny, 64, LINK)
    assert model.flat_all_reduce(huge, 64, LINK) == model.ring_all_reduce(huge, 64, LINK)


@pytest.mark.parametrize("gpus", [1, 4, 8, 16, 64])
def test_nodes_move_what_a_flat_ring_moves(gpus: int) -> None:
    fast = Link(0.0, 1e9)  # where messages are free, only bytes count
    cluster = Cluster(gpus, 8, fast, fast)
    assert model.all_gather(1e6, cluster) == pytest.approx(model.ring_all_gather(1e6, gpus, fast))
    parts = 2 * (cluster.in_node - 1) / cluster.in_node + 2 * (cluster.nodes - 1) / cluster.nodes / cluster.in_node
    assert model.all_reduce(1e9, cluster) == pytest.approx(parts)


# The work


@pytest.mark.parametrize("method", scaling.TITLES)
def test_one_gpu_talks_to_nobody(method: str) -> None:
    found = model.times(model.case(method, 1))
    assert (found.gradients, found.batch_norm, found.gathers) == (0, 0, 0)
    assert found.step == max(found.computing, found.decoding)


@pytest.mark.parametrize("method", scaling.TITLES)
def test_more_gpus_more_latency_and_less_bandwidth_never_help_communication(method: str) -> None:
    def talk(gpus: int, **changes: float) -> tuple[float, float, float]:
        found = model.times(model.case(method, gpus, values=model.costs(**changes)))
        return found.gradients, found.batch_norm, found.gathers

    for fewer, more in pairwise([talk(gpus) for gpus in (1, 2, 8, 16, 64, 512)]):
        assert all(a <= b for a, b in zip(fewer, more, strict=True))
    usual = talk(64)
    costs = model.costs()
    for name in ("nvlink_latency", "network_latency"):
        assert talk(64, **{name: 2 * costs[name]})[1] > usual[1]
    for name in ("nvlink_bandwidth", "network_bandwidth"):
        assert talk(64, **{name: costs[name] / 2})[2] > usual[2]


@pytest.mark.parametrize("method", scaling.TITLES)
def test_halving_every_price_halves_what_is_paid(method: str) -> None:
    costs = model.costs()
    cheap = {name: costs[name] / 2 for name in costs if name.endswith("latency")}
    cheap |= {name: 2 * costs[name] for name in (*costs, "decode_per_core") if name.endswith(("bandwidth", "per_core"))}
    cheap[f"{method}_step_ms"] = [[images, ms / 2] for images, ms in costs[f"{method}_step_ms"]]
    usual, found = (model.times(model.case(method, 512, values=values)) for values in (costs, costs | cheap))
    assert list(found) == pytest.approx([part / 2 for part in usual])


def test_units() -> None:
    one = model.case("simmatch", 1, values=model.costs(simmatch_step_ms=[[384, 96.0]]))
    assert one.own_images == one.images == 128 + 2 * 128
    assert model.compute(one) == pytest.approx(0.096)
    assert model.compute(replace(one, labeled=64, unlabeled=64)) == pytest.approx(0.048)  # one point: proportional
    assert model.case("comatch", 1).images == 64 + 3 * 64
    one = model.case("simmatch", 8, values=model.costs(decode_per_core=100, cores_per_gpu=16, read_bandwidth=1e9))
    assert model.decoding(one) == pytest.approx(256 / 1600)
    assert model.reading(one) == pytest.approx(8 * 256 * 107_700 / 1e9)
    assert model.reading(replace(one, cached=True)) == 0
    assert scaling.ms(0.0123) == "12.3"
    assert scaling.ms(0.36) == "360"


def test_the_line_through_measured_points() -> None:
    assert model.line([[100, 30.0]]) == (0.3, 0.0)
    assert model.line([[1, 4.0], [385, 100.0]]) == pytest.approx((0.25, 3.75))
    assert model.line([[10, 1.0], [20, 3.0]])[1] == 0  # no negative time without images


def test_the_backward_pass_hides_all_but_the_last_message() -> None:
    long = model.case("simmatch", 64)
    each = model.all_reduce(4 * model.network().parameters / 4, long.cluster)
    assert model.gradients(long) == pytest.approx(each)
    short = model.case("simmatch", 64, values=model.costs(simmatch_step_ms=[[1, 1e-6]]))
    assert model.gradients(short) == pytest.approx(4 * each, rel=0.01)


@pytest.mark.parametrize(("megabytes", "messages"), [(0.5, 1), (2.5, 2), (100, 4)])
def test_a_message_waits_for_no_longer_than_to_the_next_normalization(megabytes: float, messages: int) -> None:
    size, place = megabytes * 2**20, model.cluster(8, model.costs())
    each = model.all_reduce(size / messages, place)
    assert model.exposed(size, each / 4, place) == pytest.approx(each + (messages - 1) * 0.75 * each)
    assert model.exposed(size, 2 * each, place) == pytest.approx(each)


def test_batch_norm_inside_a_node_does_not_see_the_network() -> None:
    one = model.case("simmatch", 512)
    inside = model.batch_norm(replace(one, norm_group="node"))
    assert inside == model.batch_norm(model.case("simmatch", 8))
    assert inside < model.batch_norm(one) / 10


def test_batch_norm_counts_every_layer_in_both_directions() -> None:
    free = {"nvlink_latency": 0.0, "nvlink_bandwidth": 1.0}
    sent = 0
    for channels in model.network().norms:
        sent += 4 * (channels + channels + 1)  # means, deviations and a count, to one other GPU
        sent += 2 * (4 * 2 * channels) / 2  # two sums: half of them there, and the other half back
    assert model.batch_norm(model.case("simmatch", 2, values=model.costs(**free))) == pytest.approx(sent)
    slow = model.case("simmatch", 2, values=model.costs(nvlink_latency=1.0, nvlink_bandwidth=1e30))
    assert model.batch_norm(slow) == pytest.approx(53 * (1 + 2))


def test_what_limits_a_step_is_named() -> None:
    assert model.Times(3, 1, 1, 1, 5, 5).limit == "computing"
    assert model.Times(3, 1, 4, 1, 5, 5).limit == "SyncBatchNorm"
    assert model.Times(3, 1, 1, 1, 7, 5).limit == "decoding"
    assert model.Times(3, 1, 1, 1, 7, 8).limit == "reading files"
    assert model.Times(3, 1, 1, 1, 5, 5).step == 6
    assert model.Times(3, 1, 1, 1, 7, 8).step == 8


def test_a_gpu_without_an_image_is_not_possible() -> None:
    assert [model.case("simmatch", gpus, shared=True).possible for gpus in (64, 128, 256, 512)] == [
        True,
        True,
        False,
        False,
    ]
    assert model.case("simmatch", 512).possible


# Sizes against the package


def test_the_network_is_that_of_the_paper() -> None:
    found = model.network()
    assert round(found.parameters / 1e6, 2) == 38.93
    assert round(found.averaged / 1e6, 1) == 25.6
    assert (len(found.norms), sum(found.norms)) == (53, 26560)


def test_activations_are_what_autograd_saves() -> None:
    net, kept = ResNet(), {}
    own = {tensor.untyped_storage().data_ptr() for tensor in (*net.parameters(), *net.buffers())}

    def save(tensor: Tensor) -> Tensor:
        if tensor.untyped_storage().data_ptr() not in own:
            kept[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(save, lambda tensor: tensor):
        net(torch.randn(2, 3, 224, 224))
    assert sum(tensor.numel() for tensor in kept.values()) / 2 == pytest.approx(
        model.costs()["activation_elements"], rel=0.03
    )


@pytest.mark.parametrize("name", scaling.TITLES)
def test_the_method_exchanges_what_the_model_says(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[str, int]] = []

    def size(tensor: Tensor) -> int:
        return tensor.numel() * tensor.element_size()

    def gather_rows(rows: Tensor) -> Tensor:
        seen.append(("all-gather", size(rows)))
        if rows.requires_grad:
            seen.append(("all-reduce", size(rows)))
        return rows

    def mean_over_ranks(value: Tensor) -> Tensor:
        seen.append(("all-reduce", size(value)))
        return value

    for place in ("epass.parts.memory", "epass.parts.graph", f"epass.methods.{name}"):
        monkeypatch.setattr(f"{place}.gather_rows", gather_rows, raising=False)
        monkeypatch.setattr(f"{place}.mean_over_ranks", mean_over_ranks, raising=False)
    tiny = TinyCase(METHODS[name], {}, {"size": 3})
    method, batch = tiny.build(), tiny.batch(0)
    outcome = method(batch)
    method.update(outcome.memory)

    monkeypatch.setattr(model, "WIDTH", outcome.memory["embedding"].shape[1])
    monkeypatch.setattr(model, "CLASSES", len(outcome.memory["mean_probs"]))
    one = replace(model.case(name, 1), labeled=len(batch.labels), unlabeled=len(batch.unlabeled_index))
    assert sorted(seen) == sorted(model.exchanged(one))


@pytest.mark.parametrize("name", scaling.TITLES)
def test_a_checkpoint_has_the_bytes_of_the_model(name: str) -> None:
    recipe = read_recipe(f"imagenet-{name}")
    problem = Problem(model.CLASSES, model.LABELED, 1_281_167, (100,) * 1000, 128, 128, steps=10)
    arguments = {key: value for key, value in recipe.method.items() if key != "name"}
    with torch.device("meta"):
        net = make_network("resnet-50", in_channels=3, num_classes=model.CLASSES)
        projector = ProjectorEnsemble(net.num_features, recipe.projector["out_dim"], size=model.PROJECTORS)
        method = METHODS[name](net, problem, projector, **arguments)  # type: ignore[call-arg]
        average = Average(method.net)
    optimizer = torch.optim.SGD(method.parameters(), momentum=0.9)
    for parameter in method.parameters():
        optimizer.state[parameter]["momentum_buffer"] = torch.empty_like(parameter)
    state = RunState(method, average, optimizer).tensors().values()
    found = sum(tensor.numel() * tensor.element_size() for tensor in state)
    assert model.checkpoint(model.case(name, 8)) == pytest.approx(found, rel=1e-4)
    assert sum(model.memory_rows(model.case(name, 8)).values()) / found == pytest.approx(
        {"simmatch": 0.11, "comatch": 0.24}[name], abs=0.01
    )


def test_memory_grows_with_the_batch_and_the_cluster_where_rows_are_gathered() -> None:
    for name in scaling.TITLES:
        small, large = (model.memory(model.case(name, 8, labeled=labeled)) for labeled in (64, 1024))
        assert all(small[part] <= large[part] for part in small)
        assert small["activations"] == pytest.approx(large["activations"] / 16)
        assert small["weights"] == large["weights"] == 6 * model.network().parameters
    assert model.memory(model.case("simmatch", 8)) == model.memory(model.case("simmatch", 512))
    near, far = (model.memory(model.case("comatch", gpus)) for gpus in (8, 512))
    assert far["gathered"] == 64 * near["gathered"]


# The page and the script


def test_the_page_has_the_tables_of_today() -> None:
    text = scaling.PAGE.read_text(encoding="utf-8")
    assert scaling.written(text) == text, "run python benchmarks/scaling.py --write"
    for name in scaling.TABLES:
        assert text.count(f"<!-- scaling.py: {name} -->") == 1


def test_a_stale_table_is_found() -> None:
    text = scaling.PAGE.read_text(encoding="utf-8")
    stale = text.replace("| SimMatch + EPASS | 8 |", "| SimMatch + EPASS | 9 |", 1)
    assert stale != text
    assert scaling.written(stale) == text


def test_every_input_says_where_it_is_from() -> None:
    for name, entry in model.INPUTS.items():
        assert set(entry) == {"value", "unit", "kind", "source"}, name
        assert entry["kind"] in {"measured", "published", "assumed"}, name
        assert len(entry["source"]) > 10, name
        assert "|" not in entry["source"], name


def test_the_fit_finds_the_link() -> None:
    for ranks in (2, 5):
        timings = [
            scaling_measure.Timing(name, size, formula(size, ranks, LINK))
            for name, formula in scaling_measure.MODELS.items()
            for size in (1024, 4096, 65536, 1 << 20, 1 << 22)
        ]
        for link, predicted in scaling_measure.errors(timings, ranks).values():
            assert link == pytest.approx(LINK)
            assert [size for (_, size, _), _ in predicted] == [4096, 1 << 20]
            assert all(abs(off) < 1e-9 for _, off in predicted)


@pytest.mark.distributed
def test_collectives_are_timed_between_two_processes() -> None:
    timings = scaling_measure.measure(2, sizes=(1024, 4096), repeats=2)
    assert [(row.collective, row.size) for row in timings] == [
        (name, size) for size in (1024, 4096) for name in ("all-reduce", "all-gather")
    ]
    assert all(row.seconds > 0 for row in timings)


def test_decoding_is_timed_on_a_photo_like_those_of_imagenet() -> None:
    assert len(scaling_measure.synthetic_jpeg().data) == pytest.approx(model.costs()["file_bytes"], rel=0.1)
    assert scaling_measure.decode_rate(images=1, repeats=1) > 0


def test_the_script_prints_every_table(capsys: pytest.CaptureFixture[str]) -> None:
    scaling.main([])
    printed = capsys.readouterr().out
    for name, table in scaling.TABLES.items():
        assert f"{name}\n\n{table()}" in printed


def test_the_script_writes_only_what_stands_between_the_marks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = scaling.PAGE.read_text(encoding="utf-8")
    monkeypatch.setattr(scaling, "PAGE", tmp_path / "scaling.md")
    scaling.PAGE.write_text(text.replace("| 64 |", "| 65 |"), encoding="utf-8")
    scaling.main(["--write"])
    assert scaling.PAGE.read_text(encoding="utf-8") == text


def test_the_script_reports_how_far_the_model_is_off(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    exact = [
        scaling_measure.Timing(name, size, 1.1 * formula(size, 2, LINK) if size == 4096 else formula(size, 2, LINK))
        for name, formula in scaling_measure.MODELS.items()
        for size in (1024, 4096, 65536)
    ]
    monkeypatch.setattr(scaling_measure, "measure", lambda *_, **__: exact)
    monkeypatch.setattr(scaling_measure, "decode_rate", lambda quality: 123.0)
    scaling.main(["--measure"])
    printed = capsys.readouterr().out
    assert "all-gather of 2 processes, gloo: 3.0 µs and 2.00 GB/s per message" in printed
    assert printed.count("-9.1 % predicted") == 2
    assert "123 images/s on one core" in printed
