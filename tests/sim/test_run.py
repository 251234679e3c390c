"""Metrics of a run against the case that run_cases walks by hand."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import run_cases
from run_cases import GB
from toys import build, chain, ideal

import hwmodels
import workloads
from hwmodels.errors import InvalidInput, UnknownName
from sim import Run, simulate
from workloads.repeat import repeat
from workloads.schedule import Op


@pytest.fixture(scope="module")
def run() -> Run:
    return simulate(run_cases.plan(), run_cases.box())


def test_every_date_is_the_one_worked_out_by_hand(run):
    ops = run.ops().set_index("op")
    assert list(ops.index) == [0, 1, 2, 3, 4, 5, 7]  # a free is no record
    assert ops["start"].tolist() == pytest.approx([0, 0, 6, 8, 9, 12, 16], rel=1e-12)
    assert ops["end"].tolist() == pytest.approx([6, 6, 8, 9, 12, 16, 18], rel=1e-12)
    assert ops["waited_for"].tolist() == [-1, -1, 0, 2, 3, 4, 5]
    assert ops.loc[4, ["first_layer", "last_layer", "first_sample", "stop_sample"]].tolist() == [
        1, 1, 0, 2,
    ]  # fmt: skip


def test_time_and_throughput(run):
    assert run.iteration_time == run.duration == pytest.approx(18.0, rel=1e-12)
    assert run.samples_per_second == pytest.approx(2 / 18)
    assert run.tokens_per_second == pytest.approx(2 * 5 / 18)


def test_copies(run):
    copies = run.copies()
    assert copies["tensor"].tolist() == ["W[a]", "W[b]", "X[a]", "dW[b]"]
    assert copies["source"].tolist() == ["host0", "host0", "gpu0", "gpu1"]
    assert copies["destination"].tolist() == ["gpu0", "gpu1", "gpu1", "host0"]
    assert copies["rate"].tolist() == pytest.approx([2e9, 2e9, 3e9, 3e9])


def test_time_split_charges_each_gap_to_what_ran_then(run):
    # gpu0: swap-in until 6, compute until 8, its copy to gpu1 until 9, then nothing to do.
    # gpu1: swap-in until 6, gpu0 computes until 8, peer copy until 9, compute until 12,
    #       swap-out until 16, its optimizer on the host until 18.
    split = run.time_split()
    assert list(split.columns) == ["compute", "swap", "peer", "collective", "host", "bubble"]
    assert split.loc["gpu0"].tolist() == pytest.approx([2, 6, 1, 0, 0, 9])
    assert split.loc["gpu1"].tolist() == pytest.approx([3, 10, 1, 0, 2, 2])


def test_links(run):
    links = run.links().set_index("resource")
    expected = {
        # bytes in GB, capacity in GB/s, busy seconds
        "root0>sw0": (24, 4, 6),
        "sw0>gpu1": (15, 3, 7),
        "sw0>gpu0": (12, 3, 6),
        "gpu1>sw0": (12, 3, 4),
        "sw0>root0": (12, 4, 4),
        "gpu0>sw0": (3, 3, 1),
        "host0.cores": (28, 28, 2),
        "host0.dram": (24 + 12 + 28, 100, 12),
    }
    assert set(links.index) == set(expected)
    for name, (moved, capacity, busy) in expected.items():
        row = links.loc[name]
        assert row["bytes"] == moved * GB
        assert row["capacity"] == capacity * GB
        assert row["utilisation"] == pytest.approx(moved / capacity / 18)
        assert row["busy"] == pytest.approx(busy / 18)
    assert links["utilisation"].is_monotonic_decreasing
    assert links.loc["root0>sw0", "link"] == "uplink0"
    assert links.loc["host0.dram", "link"] == ""


def test_swap_volume(run):
    volume = run.swap_volume()
    assert volume.loc["weight"].tolist() == [24 * GB, 0, 0]
    assert volume.loc["gradient"].tolist() == [0, 12 * GB, 0]
    assert volume.loc["activation"].tolist() == [0, 0, 3 * GB]
    assert run.swap_bytes == 36 * GB
    assert run.peer_bytes == 3 * GB


def test_swap_volume_per_gpu_counts_a_peer_copy_at_its_receiver(run):
    volume = run.swap_volume(per_gpu=True)
    assert volume.loc[("gpu0", "weight"), "swap_in"] == 12 * GB
    assert volume.loc[("gpu1", "weight"), "swap_in"] == 12 * GB
    assert volume.loc[("gpu1", "activation"), "peer"] == 3 * GB
    assert volume.loc[("gpu1", "gradient"), "swap_out"] == 12 * GB
    assert len(volume) == 4


def test_memory_over_time(run):
    gpu1 = run.memory("gpu1")
    assert gpu1["time"].tolist() == pytest.approx([0, 8, 9, 12, 16])
    assert gpu1["bytes"].tolist() == [12 * GB, 15 * GB, 27 * GB, 12 * GB, 0]
    assert gpu1["gradient"].tolist() == [0, 0, 12 * GB, 12 * GB, 0]
    host = run.memory("host0")
    assert host["time"].tolist() == pytest.approx([0, 12, 18])
    assert host["bytes"].tolist() == [24 * GB, 36 * GB, 24 * GB]
    assert run.peak_memory == {"gpu0": 15 * GB, "gpu1": 27 * GB, "host0": 36 * GB}


def test_memory_of_an_unknown_device_is_an_error(run):
    with pytest.raises(UnknownName, match=r"no device 'gpu9'.*gpu0, gpu1, host0"):
        run.memory("gpu9")


def test_summary_is_plain_data(run):
    summary = json.loads(json.dumps(run.summary()))
    assert summary["iteration_time_s"] == pytest.approx(18)
    assert summary["swap_volume_bytes"] == {
        "activation": {"peer": 3 * GB},
        "gradient": {"swap_out": 12 * GB},
        "weight": {"swap_in": 24 * GB},
    }
    assert summary["time_split_s"]["gpu1"]["host"] == pytest.approx(2)
    assert summary["links"][0]["resource"] == "root0>sw0"
    assert summary["peak_memory_bytes"]["gpu1"] == 27 * GB


def test_display(run):
    assert repr(run) == (
        "Run(hand of toy on box: 18 s, 0.1111 samples/s, peak 27 GB a GPU, swap 36 GB, "
        "bottleneck uplink0)"
    )
    html = run._repr_html_()
    assert "18 s" in html
    assert "89%" in html  # 16 of 18 s


def test_html_escapes_names(run):
    named = Run(replace(run.schedule, model="<b>"), run.server, run.timeline)
    assert "· &lt;b&gt; ·" in named._repr_html_()


def test_waiting_for_a_copy_engine_is_exposed_swap():
    # One engine: the swap-out waits until the swap-in is done. Each takes 0.5 s latency and 1 s.
    text = run_cases.BOX.replace("copy_engines = 2", "copy_engines = 1")
    text = text.replace('host_latency = "0 s"', 'host_latency = "0.5 s"')
    ops = (
        Op(0, "copy", "gpu0.h2d", (), "host0", "swap_in", nbytes=3 * GB, peer="gpu0", reads=(0,)),
        Op(1, "copy", "gpu0.d2h", (), "gpu0", "swap_out", nbytes=3 * GB, peer="host0", reads=(0,)),
        Op(2, "compute", "gpu0.compute", (1,), "gpu0", "forward", work=run_cases.work(2)),
    )
    plan = replace(run_cases.plan(), ops=ops, initial=(), final=())
    run = simulate(plan, run_cases.box(text))
    assert run.timeline.ready.tolist() == pytest.approx([0, 0, 3])
    assert run.timeline.start.tolist() == pytest.approx([0, 1.5, 3])
    assert run.duration == pytest.approx(5)
    assert run.time_split().loc["gpu0"].tolist() == pytest.approx([2, 3, 0, 0, 0, 0])
    path = [(s.op, s.resource, s.device) for s in run.explain().path]
    assert path == [
        (1, "copy engine", "gpu0"), (1, "latency", ""), (1, "gpu0>sw0", ""), (2, "compute", "gpu0"),
    ]  # fmt: skip
    assert [s.start for s in run.explain().path] == pytest.approx([0, 1.5, 2, 3])
    # data flows only after the latency: 2 of 5 s
    assert run.links().set_index("resource").loc["host0.dram", "busy"] == pytest.approx(2 / 5)


def test_collective_is_charged_to_both_gpus():
    # all-reduce of 6 GB over two GPUs: each sends and receives 6 GB at 3 GB/s
    ops = (
        Op(0, "compute", "gpu0.compute", (), "gpu0", "backward", work=run_cases.work(1)),
        Op(1, "compute", "gpu1.compute", (), "gpu1", "backward", work=run_cases.work(3)),
        Op(2, "collective", "collective:gpu0,gpu1", (0, 1), "gpu0", "all_reduce",
           nbytes=6 * GB, group=("gpu0", "gpu1")),
        Op(3, "compute", "gpu0.compute", (2,), "gpu0", "update", work=run_cases.work(1)),
        Op(4, "compute", "gpu1.compute", (2,), "gpu1", "update", work=run_cases.work(2)),
    )  # fmt: skip
    run = simulate(replace(run_cases.plan(), ops=ops, initial=(), final=()), run_cases.box())
    # gpu0: 1 compute, 2 behind gpu1, 2 collective, 1 compute, 1 behind gpu1
    assert run.duration == pytest.approx(7)
    assert run.time_split().loc["gpu0"].tolist() == pytest.approx([2, 0, 0, 2, 0, 3])
    assert run.time_split().loc["gpu1"].tolist() == pytest.approx([5, 0, 0, 2, 0, 0])
    assert run.links().set_index("resource")["bytes"].to_dict() == {
        "gpu0>sw0": 6 * GB, "gpu1>sw0": 6 * GB, "sw0>gpu0": 6 * GB, "sw0>gpu1": 6 * GB,
    }  # fmt: skip


def test_the_algorithm_of_collectives_can_be_chosen():
    # a tree over two GPUs: 6 GB to the root at 3 GB/s, then 6 GB back
    ops = (
        Op(0, "collective", "collective:gpu0,gpu1", (), "gpu0", "all_reduce",
           nbytes=6 * GB, group=("gpu0", "gpu1")),
    )  # fmt: skip
    plan = replace(run_cases.plan(), ops=ops, initial=(), final=())
    assert simulate(plan, run_cases.box()).duration == pytest.approx(2)
    assert simulate(plan, run_cases.box(), collectives="tree").duration == pytest.approx(4)


def test_several_iterations_report_the_period():
    run = simulate(repeat(run_cases.plan(), 3), run_cases.box())
    assert run.duration == pytest.approx(54)
    assert run.iteration_time == pytest.approx(18)
    assert run.samples_per_second == pytest.approx(2 / 18)
    assert run.time_split().loc["gpu1"].sum() == pytest.approx(54)


def test_an_empty_schedule_takes_no_time():
    run = simulate(replace(run_cases.plan(), ops=()), run_cases.box())
    assert run.iteration_time == run.samples_per_second == run.swap_bytes == 0
    assert run.links().empty
    assert run.time_split().to_numpy().sum() == 0
    assert run.explain().text() == "hand of toy on box takes no time."
    assert json.dumps(run.summary())


def test_measured_dates_with_late_starts_still_sum_up(run):
    """A real machine starts compute later than its waits end: launch time counts as bubble."""
    shift = np.array([0, 0, 0.5, 0.5, 1, 1, 1, 1])
    timeline = replace(
        run.timeline,
        start=run.timeline.start + shift,
        end=run.timeline.end + np.array([0, 0, 0.5, 0.5, 1, 1, 1, 1]),
        ready=run.timeline.ready + np.array([0, 0, 0, 0.5, 0.5, 1, 1, 1]),
    )
    split = Run(run.schedule, run.server, timeline).time_split()
    assert split.loc["gpu0"].tolist() == pytest.approx([2, 6, 1, 0, 0, 10])
    assert split.loc["gpu1"].tolist() == pytest.approx([3, 10, 1, 0, 2, 3])


NAMES = {"gpu0": "zeta", "gpu1": "alpha", "host0": "memory7", "sw0": "s", "root0": "r"}


def renamed(text: str) -> str:
    for old, new in NAMES.items():
        text = text.replace(old, new)
    return text


def test_names_of_devices_change_nothing_but_names(run):
    ops = tuple(
        op._replace(
            device=renamed(op.device), peer=renamed(op.peer), stream=renamed(op.stream),
            allocs=tuple((t, renamed(d)) for t, d in op.allocs),
            frees=tuple((t, renamed(d)) for t, d in op.frees),
        )
        for op in run.schedule.ops
    )  # fmt: skip
    plan = replace(
        run.schedule, ops=ops,
        capacity={renamed(d): size for d, size in run.schedule.capacity.items()},
        initial=tuple((t, renamed(d)) for t, d in run.schedule.initial),
        final=tuple((t, renamed(d)) for t, d in run.schedule.final),
    )  # fmt: skip
    other = simulate(plan, run_cases.box(renamed(run_cases.BOX)))
    assert other.timeline.end.tolist() == run.timeline.end.tolist()
    expected, found = json.loads(renamed(json.dumps(run.summary()))), other.summary()
    # rows that are equally full are listed by name
    for summary in (expected, found):
        summary["links"].sort(key=lambda row: row["resource"])
    assert found == expected


def test_hash_seed_changes_nothing():
    code = (
        "import sys, json; sys.path.insert(0, 'tests')\n"
        "import hwmodels, sim; from toys import chain\n"
        "from workloads.schedules.catalog import schedule\n"
        "box = hwmodels.server('pcie-4u-4x1080ti')\n"
        "model = chain(7, weight=10**9, gradient=1, state=2, boundary=10**8, stash=10**8)\n"
        "run = sim.simulate(schedule('harmony-pp', model, box, minibatch=8, microbatch=1), box)\n"
        "print(json.dumps(run.summary()), run.explain(), run.ops().to_csv())"
    )
    said = {
        subprocess.run(
            [sys.executable, "-c", code], check=True, capture_output=True, text=True,
            env={**os.environ, "PYTHONHASHSEED": seed},
        ).stdout
        for seed in ("1", "2")
    }  # fmt: skip
    assert len(said) == 1


def test_a_plan_for_other_devices_is_refused():
    model = chain(3, 1, 1, 1, 1, 1)
    plan = build("dp", model, ideal(2), 2)
    with pytest.raises(InvalidInput, match="gpu1, host0, but ideal has gpu0, host0"):
        simulate(plan, ideal(1))
    with pytest.raises(InvalidInput, match="build the schedule for ideal"):
        simulate(plan, ideal(4))
    with pytest.raises(InvalidInput, match="not their names"):
        simulate("harmony-pp", ideal(2))


def test_staged_copies_are_said_to_be_at_the_links_rate():
    for name, said in (("8x4090", True), ("8xa6000", False)):
        box = hwmodels.server(name)
        model = workloads.model("gpt2-small", sequence=64)
        run = simulate(workloads.schedule("dp", model, box, minibatch=8), box)
        assert any("staged through host memory" in note for note in run.notes) == said
