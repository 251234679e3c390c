"""Laws that hold for the run of every schedule on every server."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from toys import chain

import hwmodels
from sim import Run, simulate
from workloads.model import Model
from workloads.schedules.catalog import schedule, schedule_infos

SERVERS = ("pcie-4u-4x1080ti", "dgx-1")
NAMES = tuple(info.name for info in schedule_infos())


def model(name: str) -> Model:
    """Eight layers of 0.1 s; too large for a GPU where the schedule can swap."""
    swaps = "pager" in name or "harmony" in name
    size = 10**9 if swaps else 10**8
    found = chain(8, weight=size, gradient=1, state=2, boundary=10**8, stash=10**8)
    layers = tuple(
        replace(layer, forward_flops=5e11, backward_flops=1e12) for layer in found.layers
    )
    return replace(found, layers=layers)


@pytest.fixture(scope="module", params=[(n, s) for n in NAMES for s in SERVERS], ids="-".join)
def run(request: pytest.FixtureRequest) -> Run:
    name, server = request.param
    box = hwmodels.server(server)
    plan = schedule(name, model(name), box, minibatch=16, microbatch=1)
    return simulate(plan, box)


def test_time_split_sums_to_the_iteration_time(run):
    split = run.time_split()
    assert (split.to_numpy() >= 0).all()
    assert split.sum(axis=1).tolist() == pytest.approx([run.iteration_time] * len(split), 1e-12)
    compute = run.ops().query("kind == 'compute'").groupby("device")["seconds"].sum()
    assert split["compute"].tolist() == pytest.approx(
        [compute.get(gpu, 0.0) for gpu in run.server.gpus], rel=1e-12
    )


def test_bytes_on_links_equal_the_sum_over_operations(run):
    expected: dict[str, float] = {}
    for op in run.schedule.ops:
        if op.kind == "copy":
            usage = run.server.route(op.device, op.peer).usage
        elif op.kind == "host":
            usage = run.server.cpu_route(op.device).usage
        else:
            continue
        for name, times in usage:
            expected[name] = expected.get(name, 0.0) + op.nbytes * times
    moved = run.links().set_index("resource")["bytes"].to_dict()
    collectives = any(op.kind == "collective" for op in run.schedule.ops)
    for name, count in expected.items():
        assert moved[name] == pytest.approx(count, rel=1e-12) or (
            collectives and moved[name] > count
        )
    assert set(moved) == set(expected) or collectives


def test_no_link_carries_more_than_it_can(run):
    links = run.links()
    assert (links["utilisation"] <= links["busy"] * (1 + 1e-9)).all()
    assert (links["busy"] <= 1 + 1e-12).all()


def test_makespan_is_at_least_each_bound(run):
    for bound in run.explain().bounds:
        assert run.iteration_time >= bound.seconds * (1 - 1e-9), bound.name
    assert 0 < run.explain().share_of_bound <= 1 + 1e-9


def test_critical_path_has_no_gap(run):
    path = run.explain().path
    assert path[0].start == 0.0
    assert path[-1].end == run.iteration_time
    assert all(a.end == b.start for a, b in pairwise(path))
    assert sum(run.explain().shares.values()) == pytest.approx(1, rel=1e-9)


def test_memory_agrees_with_the_ledger_and_returns_to_its_final_state(run):
    assert run.peak_memory == dict(run.timeline.peak)
    left = dict.fromkeys(run.schedule.capacity, 0)
    for tensor, device in run.schedule.final:
        left[device] += run.schedule.tensors[tensor].nbytes
    for device in run.schedule.capacity:
        memory = run.memory(device)
        assert memory["bytes"].iloc[-1] == left[device]
        kinds = memory.drop(columns=["time", "bytes"])
        assert (kinds.sum(axis=1) == memory["bytes"]).all()
        assert (kinds >= 0).all().all()
        assert (np.diff(memory["time"]) > 0).all()


def test_volume_equals_the_copies(run):
    copies = run.copies()
    assert run.swap_bytes + run.peer_bytes == copies["bytes"].sum()
    assert run.swap_volume().to_numpy().sum() == copies["bytes"].sum()
    per_gpu = run.swap_volume(per_gpu=True)
    if len(per_gpu):
        assert (per_gpu.groupby(level="kind").sum().sort_index()
                == run.swap_volume().sort_index()).all().all()  # fmt: skip


def test_equal_runs_have_equal_results(run):
    assert simulate(run.schedule, run.server).summary() == run.summary()
