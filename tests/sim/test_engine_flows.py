"""Copies in time: every date of small cases worked out by hand, and extreme sizes."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from wires import INF, Draft, Way, Wires, bus, star, traffic

from sim.fabric import max_min


def ends(timeline):
    return pytest.approx(timeline.end.tolist(), rel=1e-9)


def test_two_equal_copies_share_a_link():
    draft = Draft()
    draft.copy("host0", "gpu0", 100)
    draft.copy("host0", "gpu1", 100)
    assert ends(draft.run(bus(10.0, 2))) == [20.0, 20.0]


def test_unequal_copies_end_at_two_and_three():
    # V = 1 and 2 on B = 1: at half rate until 2, then the second one alone for its last 1
    draft = Draft()
    draft.copy("host0", "gpu0", 1)
    draft.copy("host0", "gpu1", 2)
    assert ends(draft.run(bus(1.0, 2))) == [2.0, 3.0]


def test_a_late_copy_slows_an_early_one():
    # 0-4: first alone, 40 of 100 bytes. From 4 on 5 B/s each: second done at 4 + 30/5 = 10 (first
    # has 30 left), first alone again: 10 + 30/10 = 13.
    draft = Draft()
    draft.copy("host0", "gpu0", 100)
    wait = draft.compute("gpu1", 4.0)
    draft.copy("host0", "gpu1", 30, wait)
    assert ends(draft.run(bus(10.0, 2))) == [13.0, 4.0, 10.0]


def test_three_copies_over_an_uplink_and_their_ports():
    # Uplink 9, ports 4. Rates 3, 3, 3: gpu0 (12 bytes) ends at 4. Then 4, 4 (ports; uplink has 1
    # left): gpu1 (20) has 8 left, ends at 6. gpu2 (40) has 28 left at 4, 20 at 6, ends at 11.
    draft = Draft()
    for gpu, nbytes in enumerate([12, 20, 40]):
        draft.copy("host0", f"gpu{gpu}", nbytes)
    assert ends(draft.run(star(3, 4.0, 9.0))) == [4.0, 6.0, 11.0]


def test_latency_comes_before_the_first_byte_and_takes_no_bandwidth():
    # The second copy's bytes start at 3: the first has moved 30 of 40; 10 left at half rate until
    # 5; the second has 10 of 20 left then, at full rate until 6.
    ways = {("host0", "gpu0"): Way((("bus", 1.0),)), ("host0", "gpu1"): Way((("bus", 1.0),), 3.0)}
    draft = Draft()
    draft.copy("host0", "gpu0", 40)
    draft.copy("host0", "gpu1", 20)
    timeline = draft.run(Wires({"bus": 10.0}, ways, ("gpu0", "gpu1")))
    assert ends(timeline) == [5.0, 6.0]
    assert timeline.start.tolist() == [0.0, 0.0]
    assert timeline.alone.tolist() == [4.0, 5.0]


def test_a_capped_copy_leaves_the_rest_to_its_neighbour():
    # cap 2 of 10: the other one gets 8, 80 bytes until 10; then still 2 for the capped one
    ways = {
        ("host0", "gpu0"): Way((("bus", 1.0),), 0.0, 2.0),
        ("host0", "gpu1"): Way((("bus", 1),)),
    }
    draft = Draft()
    draft.copy("host0", "gpu0", 30)
    draft.copy("host0", "gpu1", 80)
    assert ends(draft.run(Wires({"bus": 10.0}, ways, ("gpu0", "gpu1")))) == [15.0, 10.0]


def test_a_staged_copy_takes_the_memory_twice():
    # x + 2x = 9: 3 each until the host copy (12) ends at 4; the staged one has 18 left at 4.5
    ways = {
        ("host0", "gpu0"): Way((("dram", 1.0),)),
        ("gpu1", "gpu2"): Way((("dram", 2.0),), kind="staged"),
    }
    draft = Draft()
    draft.copy("host0", "gpu0", 12)
    draft.copy("gpu1", "gpu2", 30)
    timeline = draft.run(Wires({"dram": 9.0}, ways, ("gpu0", "gpu1", "gpu2")))
    assert ends(timeline) == [4.0, 8.0]
    assert traffic(timeline, draft.ops) == {"dram": 72.0}


def test_a_copy_of_nothing_takes_its_latency():
    draft = Draft()
    draft.copy("host0", "gpu0", 0)
    draft.copy("host0", "gpu1", 10)
    timeline = draft.run(star(2, 5.0, 8.0, latency=0.25))
    assert ends(timeline) == [0.25, 2.25]


def test_copies_of_nothing_one_after_another_without_latency():
    draft = Draft()
    for _ in range(50):
        draft.copy("host0", "gpu0", 0)
        draft.copy("host0", "gpu1", 0)
    assert draft.run(bus(3.0, 2)).end.tolist() == [0.0] * 100


def test_a_copy_within_one_place_that_crosses_nothing_is_instant():
    draft = Draft()
    draft.copy("host0", "gpu0", 10**12)
    server = Wires({}, {("host0", "gpu0"): Way(())}, ("gpu0",))
    assert draft.run(server).end.tolist() == [0.0]


@pytest.mark.parametrize("nbytes", [1, 10**12])
@pytest.mark.parametrize("bandwidth", [1.0, 1e15])
def test_extreme_links_and_sizes(nbytes, bandwidth):
    draft = Draft()
    draft.copy("host0", "gpu0", nbytes)
    draft.copy("host0", "gpu1", 2 * nbytes)
    draft.copy("host0", "gpu1", nbytes)
    base = nbytes / bandwidth
    assert [2 * base, 3 * base, 4 * base] == ends(draft.run(bus(bandwidth, 2)))


def test_slow_and_fast_links_side_by_side():
    # A byte on 1e15 B/s ends while a terabyte on 1 B/s is far from its end; clock at 1e12 then
    ways = {
        ("host0", "gpu0"): Way((("slow", 1.0), ("dram", 1.0))),
        ("host0", "gpu1"): Way((("fast", 1.0), ("dram", 1.0))),
    }
    server = Wires({"slow": 1.0, "fast": 1e15, "dram": 1e15}, ways, ("gpu0", "gpu1"))
    draft = Draft()
    slow = draft.copy("host0", "gpu0", 10**12)
    draft.copy("host0", "gpu1", 1)
    draft.copy("host0", "gpu1", 1, slow)  # below the resolution of the clock
    timeline = draft.run(server)
    assert ends(timeline) == [1e12, 1e-15, 1e12]
    assert timeline.end[2] >= timeline.start[2] == timeline.end[0]


def test_a_thousand_copies_that_end_together():
    draft = Draft()
    for gpu in range(1000):
        draft.copy("host0", f"gpu{gpu}", 7)
        draft.copy("host0", f"gpu{gpu}", 3)
    timeline = draft.run(bus(13.0, 1000))
    assert timeline.end[::2] == pytest.approx([7000 / 13] * 1000, rel=1e-9)
    assert timeline.end[1::2] == pytest.approx([10000 / 13] * 1000, rel=1e-9)


def test_a_thousand_copies_of_different_sizes_that_end_together():
    # Copy i starts when it needs exactly the time that is left: ends differ only by rounding
    count, total = 200, 1000.0
    gpus = tuple(f"gpu{i}" for i in range(count))
    ways = {("host0", gpu): Way((("bus", 1.0),), 0.0, 1.0 + i / 7) for i, gpu in enumerate(gpus)}
    server = Wires({"bus": 1e9}, ways, gpus)
    draft = Draft()
    for i, gpu in enumerate(gpus):
        left = total - i / 3
        wait = draft.compute(gpu, max(total - left, 1e-9))
        draft.copy("host0", gpu, round(left * (1.0 + i / 7)), wait)
    timeline = draft.run(server)
    for i in range(count):
        op = draft.ops[2 * i + 1]
        expected = timeline.start[op.id] + op.nbytes / (1.0 + i / 7)
        assert timeline.end[op.id] == pytest.approx(expected, rel=1e-9)


@st.composite
def traffics(draw):
    """A random fabric, and copies in several streams, some after others."""
    links = {f"l{i}": draw(st.sampled_from([1.0, 2.5, 4.0, 9.0])) for i in range(4)}
    gpus = tuple(f"gpu{i}" for i in range(4))
    ways = {}
    for gpu in gpus:
        used = draw(st.lists(st.sampled_from(list(links)), max_size=3, unique=True))
        usage = tuple((link, draw(st.sampled_from([1.0, 2.0]))) for link in used)
        cap = draw(st.sampled_from([2.0, INF])) if usage else 3.0
        ways["host0", gpu] = Way(usage, draw(st.sampled_from([0.0, 0.0, 0.5])), cap)
    draft = Draft()
    for i in range(draw(st.integers(1, 14))):
        gpu = draw(st.sampled_from(gpus))
        after = draw(st.lists(st.integers(0, i - 1), max_size=2, unique=True)) if i else []
        draft.copy("host0", gpu, draw(st.integers(0, 30)), *after)
    return Wires(links, ways, gpus), draft


def plain(server, ops):
    """The same dates by a loop over all flows: no pools, no memory, no lazy updates."""
    left = [float(op.nbytes) for op in ops]
    wait = [server.ways[op.device, op.peer].latency for op in ops]
    end = [None] * len(ops)
    last = {}
    before = []
    for op in ops:
        before.append([*op.after, *([last[op.stream]] if op.stream in last else [])])
        last[op.stream] = op.id
    now = 0.0
    while None in end:
        ready = [
            i
            for i in range(len(ops))
            if end[i] is None and all(end[b] is not None for b in before[i])
        ]
        flows = [i for i in ready if wait[i] <= 0]
        ways = [server.ways[ops[i].device, ops[i].peer] for i in flows]
        rates = max_min([w.usage for w in ways], [w.cap for w in ways], server.resources)
        done = [i for i in flows if left[i] <= 1e-9]
        if done:
            for i in done:
                end[i] = now
            continue
        steps = [left[i] / rate for i, rate in zip(flows, rates, strict=True)]
        step = min(steps + [wait[i] for i in ready if wait[i] > 0])
        for i, rate in zip(flows, rates, strict=True):
            left[i] -= rate * step
        for i in ready:
            wait[i] = 0.0 if wait[i] <= step * (1 + 1e-12) else wait[i] - step
        now += step
    return end


@settings(deadline=None, max_examples=200)
@given(traffics())
def test_random_traffic_has_the_dates_of_a_plain_loop(case):
    server, draft = case
    timeline = draft.run(server)
    assert timeline.end.tolist() == pytest.approx(plain(server, draft.ops), rel=1e-6, abs=1e-6)


@settings(deadline=None, max_examples=100)
@given(traffics())
def test_laws_of_any_run(case):
    """Starts follow what they wait for, streams are in order, links carry what they can."""
    server, draft = case
    timeline = draft.run(server)
    ops = draft.ops
    assert sorted(timeline.sequence.tolist()) == sorted([*range(len(ops)), *(~op.id for op in ops)])
    for op in ops:
        i = op.id
        assert timeline.ready[i] == timeline.start[i] <= timeline.end[i]
        assert all(timeline.end[b] <= timeline.start[i] for b in op.after)
        cause = timeline.last_dependency[i]
        assert (timeline.end[cause] if cause >= 0 else 0.0) == timeline.start[i]
        assert timeline.end[i] - timeline.start[i] >= timeline.alone[i] * (1 - 1e-9) - 1e-12
    for gpu in server.gpus:
        queue = [op.id for op in ops if op.peer == gpu]
        assert all(timeline.end[a] <= timeline.start[b] for a, b in pairwise(queue))
    span = float(np.max(timeline.end))
    for link, nbytes in traffic(timeline, ops).items():
        assert nbytes <= server.resources[link] * span * (1 + 1e-9)
        carried = sum(
            dict(server.ways[op.device, op.peer].usage).get(link, 0.0) * op.nbytes for op in ops
        )
        assert nbytes == carried
    assert not math.isnan(span)
