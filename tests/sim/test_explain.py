"""Critical path and lower bounds against the case that run_cases walks by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest
import run_cases
from run_cases import GB
from toys import build, chain, ideal

from sim import Explanation, simulate
from workloads.schedule import Op


@pytest.fixture(scope="module")
def found() -> Explanation:
    return simulate(run_cases.plan(), run_cases.box()).explain()


def test_critical_path_names_what_set_the_pace(found):
    assert [segment[0] for segment in found.path] == [0, 2, 3, 4, 5, 7]
    assert [segment.resource for segment in found.path] == [
        "root0>sw0",  # two flows of 2 GB/s fill 4 GB/s; their own links carry 2 of 3
        "compute",
        "sw0>gpu1",  # both GPU links are full; this one carries more in sum
        "compute",
        "gpu1>sw0",  # 3 of 3 GB/s; the uplink only 3 of 4
        "host process",  # 14 of 28 GB/s of the cores
    ]
    assert found.path[0].start == 0
    assert found.path[-1].end == found.iteration_time
    for before, after in zip(found.path, found.path[1:], strict=False):
        assert before.end == after.start


def test_seconds_and_shares(found):
    assert found.seconds == pytest.approx(
        {"root0>sw0": 6, "compute": 5, "gpu1>sw0": 4, "host process": 2, "sw0>gpu1": 1}
    )
    # both directions of the cable of gpu1 together
    assert found.shares == pytest.approx(
        {"uplink0": 6 / 18, "compute": 5 / 18, "pcie1": 5 / 18, "host process": 2 / 18}
    )
    assert found.bottleneck == "uplink0"


def test_lower_bounds(found):
    # path: 4 (alone at 3 GB/s) + 2 + 1 + 3 + 4 + 2; link: 24 GB at 4 GB/s; compute: gpu1
    assert [(b.name, b.where) for b in found.bounds] == [
        ("critical path without contention", ""),
        ("busiest link", "root0>sw0"),
        ("compute", "gpu1"),
    ]
    assert [b.seconds for b in found.bounds] == pytest.approx([16, 6, 3])
    assert found.share_of_bound == pytest.approx(16 / 18)


def test_text(found):
    assert found.text() == str(found) == repr(found)
    assert found.text().splitlines() == [
        "hand of toy on box takes 18.0 s.",
        "uplink0 sets the step: 33% of the critical path (root0>sw0 33%); then compute 28%, "
        "pcie1 28%, host process 11%.",
        "Lower bounds for the same operations on this server:",
        "    16.0 s  critical path without contention",
        "    6.00 s  busiest link: uplink0 (root0>sw0)",
        "    3.00 s  compute: gpu1",
        "The best bound is 89% of the iteration time; the rest, 2.00 s, is sharing of links and "
        "waiting.",
    ]


def test_dict(found):
    plain = found.to_dict()
    assert plain["bottleneck"] == "uplink0"
    assert plain["bounds_s"]["busiest link"] == pytest.approx(6)
    assert plain["bound_where"] == {"busiest link": "root0>sw0", "compute": "gpu1"}


def test_the_link_that_the_other_flows_fill_is_blamed():
    # A small copy to gpu0 beside a large one to gpu1: both get 2 GB/s of the uplink until the
    # small one ends at 3 s; the large one has moved 6 GB and goes on at 3 GB/s until 5 s.
    ops = (
        Op(0, "copy", "gpu0.h2d", (), "host0", "swap_in", nbytes=6 * GB, peer="gpu0", reads=(0,)),
        Op(1, "copy", "gpu1.h2d", (), "host0", "swap_in", nbytes=12 * GB, peer="gpu1", reads=(1,)),
        Op(2, "compute", "gpu0.compute", (0,), "gpu0", "forward", work=run_cases.work(3)),
    )
    plan = replace(run_cases.plan(), ops=ops, initial=(), final=())
    run = simulate(plan, run_cases.box())
    assert run.timeline.end.tolist() == pytest.approx([3, 5, 6])
    assert run.explain().seconds == pytest.approx({"root0>sw0": 3, "compute": 3})
    assert run.explain().bottleneck == "compute"  # equal parts: by name


def test_latency_is_no_link():
    text = run_cases.BOX.replace('host_latency = "0 s"', 'host_latency = "2 s"')
    ops = (
        Op(0, "copy", "gpu0.h2d", (), "host0", "swap_in", nbytes=3 * GB, peer="gpu0", reads=(0,)),
    )
    plan = replace(run_cases.plan(), ops=ops, initial=(), final=())
    found = simulate(plan, run_cases.box(text)).explain()
    assert found.seconds == pytest.approx({"latency": 2, "sw0>gpu0": 1})
    assert found.share_of_bound == pytest.approx(1)
    assert found.text().endswith("The best bound is 100% of the iteration time.")


def test_a_copy_below_what_its_links_carry_is_paced_by_its_own_rate():
    text = run_cases.BOX.replace(
        'name = "gpu0"\nmodel = "toy"', 'name = "gpu0"\nmodel = "toy"\nh2d = "1 GB/s"'
    )
    ops = (
        Op(0, "copy", "gpu0.h2d", (), "host0", "swap_in", nbytes=3 * GB, peer="gpu0", reads=(0,)),
    )
    plan = replace(run_cases.plan(), ops=ops, initial=(), final=())
    found = simulate(plan, run_cases.box(text)).explain()
    assert found.seconds == pytest.approx({"copy rate": 3})


def test_gpus_that_compute_in_turn_leave_a_bubble():
    box = ideal(4)
    model = chain(4, 1, 1, 1, 1, 1, times=[(1.0, 2.0)] * 4)
    found = simulate(build("gpipe", model, box, 2), box).explain()
    assert found.shares["compute"] == pytest.approx(1.0)
    assert found.busiest == pytest.approx(2 / 5)
    assert found.bottleneck == "bubble"
    assert "the busiest one computes only 40% of the time" in found.text()
    full = simulate(build("gpipe", model, box, 32), box).explain()
    assert full.bottleneck == "compute"
