"""Chains of compute operations: dates, order and memory inside them."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from wires import Draft, star

from hwmodels.compute import LayerWork, Work
from hwmodels.errors import Deadlock, DoesNotFit
from hwmodels.server import Server
from sim.program import prepare


def chains(draft, server):
    """Operations of each chain."""
    found = prepare(draft.schedule(), cast(Server, server)).chains
    rows = zip(found.first.tolist(), found.length.tolist(), strict=True)
    return [found.members[first : first + length].tolist() for first, length in rows]


NOTHING = Work((LayerWork("l", "update", 1, 0.0, 0.0, "fp32"),))
"""The update of a layer with nothing to train: no time."""


def compute(draft, gpu, seconds, *after, **more):
    more |= {} if seconds else {"work": NOTHING}
    return draft.compute(gpu, seconds, *after, **more)


def row(draft, gpu, *seconds):
    return [compute(draft, gpu, value) for value in seconds]


def test_dates_inside_a_chain():
    draft = Draft()
    a, b, c, d = row(draft, "gpu0", 1.0, 2.0, 4.0, 0.5)
    other = draft.compute("gpu1", 2.5)
    last = draft.compute("gpu1", 1.0, d)
    server = star(2, 1.0)
    assert chains(draft, server) == [[a, b, c, d]]
    timeline = draft.run(server)
    assert timeline.start.tolist() == [0.0, 1.0, 3.0, 7.0, 0.0, 7.5]
    assert timeline.end.tolist() == [1.0, 3.0, 7.0, 7.5, 2.5, 8.5]
    assert timeline.ready.tolist() == timeline.start.tolist()
    assert timeline.last_dependency.tolist() == [-1, a, b, c, -1, d]
    assert timeline.sequence.tolist() == [
        ~a, ~other, a, ~b, other, b, ~c, c, ~d, d, ~last, last,
    ]  # fmt: skip


def test_a_chain_starts_when_its_head_may():
    draft = Draft()
    load = draft.copy("host0", "gpu0", 30)
    a = draft.compute("gpu0", 1.0, load)
    b, c = row(draft, "gpu0", 2.0, 3.0)
    server = star(1, 10.0)
    assert chains(draft, server) == [[a, b, c]]
    timeline = draft.run(server)
    assert timeline.end.tolist() == pytest.approx([3.0, 4.0, 6.0, 9.0], rel=1e-12)
    assert timeline.last_dependency.tolist() == [-1, load, a, b]


def test_a_chain_breaks_where_something_waits():
    draft = Draft()
    a, b, c, d = row(draft, "gpu0", 1.0, 1.0, 1.0, 1.0)
    draft.copy("gpu0", "host0", 1, b)  # waits for b: c is not of its chain
    e, f = draft.compute("gpu0", 1.0, a), draft.compute("gpu0", 1.0)  # a is waited for, e waits
    server = star(1, 1.0)
    assert chains(draft, server) == [[c, d], [e, f]]
    assert draft.run(server).end.tolist() == [1.0, 2.0, 3.0, 4.0, 3.0, 5.0, 6.0]


def test_a_free_operation_breaks_a_chain():
    draft = Draft()
    tensor = draft.tensor(8, "gpu0")
    a, _ = row(draft, "gpu0", 1.0, 1.0)
    draft.free("gpu0", a, frees=((tensor, "gpu0"),))
    assert chains(draft, star(1, 1.0)) == []


def test_copies_are_not_chained():
    draft = Draft()
    draft.copy("host0", "gpu0", 1)
    draft.copy("host0", "gpu0", 1)
    assert chains(draft, star(1, 1.0)) == []


def test_memory_inside_a_chain():
    # b takes 50 from 1 to 3 (given back where c ends, at 7); the copy takes 30 at 2, to 12
    draft = Draft()
    small, big = draft.tensor(30), draft.tensor(50)
    row(draft, "gpu0", 1.0)
    draft.compute("gpu0", 2.0, allocs=((big, "gpu0"),))
    draft.compute("gpu0", 4.0, frees=((big, "gpu0"),))
    wait = draft.compute("gpu1", 2.0)
    draft.copy("host0", "gpu0", 10, wait, allocs=((small, "gpu0"),))
    server = star(2, 1.0)
    assert draft.run(replace(server, sizes={"gpu0": 80})).peak["gpu0"] == 80
    with pytest.raises(DoesNotFit, match=r"op 4 \(swap_in\) takes 30 bytes .* 50 of 79 .*W1 50"):
        draft.run(replace(server, sizes={"gpu0": 79}))


def test_room_that_a_chain_leaves_in_the_instant_of_an_allocation():
    # what happens inside a chain comes before all else of the same instant
    draft = Draft()
    old, new = draft.tensor(60, "gpu0"), draft.tensor(60)
    draft.compute("gpu0", 2.0, frees=((old, "gpu0"),))
    row(draft, "gpu0", 2.0)
    wait = draft.compute("gpu1", 2.0)
    draft.copy("host0", "gpu0", 10, wait, allocs=((new, "gpu0"),))
    assert draft.run(star(2, 1.0)).peak["gpu0"] == 60


def test_operations_without_seconds_inside_a_chain():
    draft = Draft()
    a, b, c, d = row(draft, "gpu0", 0.0, 3.0, 0.0, 0.0)
    timeline = draft.run(star(1, 1.0))
    assert timeline.start.tolist() == [0.0, 0.0, 3.0, 3.0]
    assert timeline.sequence.tolist() == [~a, a, ~b, b, ~c, c, ~d, d]


def test_a_chain_that_never_starts():
    draft = Draft()
    row(draft, "gpu1", 1.0, 1.0)
    draft.compute("gpu0", 1.0, 4)
    row(draft, "gpu0", 1.0, 1.0)
    with pytest.raises(Deadlock) as failure:
        draft.run(star(2, 1.0))
    assert str(failure.value) == (
        "schedule draft: 3 of 5 operations never became ready: "
        "op 2 (forward on gpu0.compute) waits for op 4; "
        "op 3 (forward on gpu0.compute) waits for op 2; "
        "op 4 (forward on gpu0.compute) waits for op 3."
    )


@st.composite
def drafts(draw):
    """Compute on three GPUs, some after others, that takes and gives back memory anywhere."""
    draft = Draft()
    for size in draw(st.lists(st.integers(0, 40), min_size=1, max_size=5)):
        draft.tensor(size, *draw(st.sampled_from([(), ("gpu0",), ("gpu1", "host0")])))
    place = st.tuples(
        st.integers(0, len(draft.tensors) - 1), st.sampled_from(["gpu0", "gpu1", "host0"])
    )
    places = st.lists(place, max_size=2).map(tuple)
    for i in range(draw(st.integers(0, 25))):
        after = draw(st.lists(st.integers(0, i - 1), max_size=1)) if i % 3 == 2 else []
        compute(
            draft, draw(st.sampled_from(["gpu0", "gpu1", "gpu2"])),
            draw(st.sampled_from([0.0, 0.1, 0.5, 1.0, 1e6, 1e-12])),
            *after, allocs=draw(places), frees=draw(places),
        )  # fmt: skip
    return draft


def plain_dates(ops):
    """Start and end of compute operations, one by one."""
    start, end, last = [], [], {}
    for op in ops:
        waits = [end[before] for before in (*op.after, *last.get(op.stream, ()))]
        start.append(max(waits, default=0.0))
        end.append(start[-1] + op.work.parts[0].flops)
        last[op.stream] = (op.id,)
    return start, end


def plain_peaks(draft, sequence):
    """Level after every single change; the largest by device, and who reached it first."""
    used, peak = {}, {}
    events = [(-1, place, 1) for place in draft.initial]
    for event in sequence:
        op = draft.ops[~event if event < 0 else event]
        events += [(op.id, place, 1) for place in op.allocs] if event < 0 else []
        events += [(op.id, place, -1) for place in op.frees] if event >= 0 else []
    for op, (tensor, device), sign in events:
        used[device] = used.get(device, 0) + sign * draft.tensors[tensor].nbytes
        if used[device] > peak.get(device, (0, -1))[0]:
            peak[device] = used[device], op
        peak.setdefault(device, (0, -1))
    return peak


@settings(deadline=None, max_examples=200)
@given(drafts())
def test_chains_change_no_date_and_no_peak(draft):
    server = star(3, 1.0)
    timeline = draft.run(server)
    assert (timeline.start.tolist(), timeline.end.tolist()) == plain_dates(draft.ops)
    sequence = timeline.sequence.tolist()
    place = {event: i for i, event in enumerate(sequence)}
    assert sorted(place) == sorted(e for op in draft.ops for e in (op.id, ~op.id))
    last = {}
    for op in draft.ops:
        assert place[~op.id] < place[op.id]
        waits = [*op.after, *last.get(op.stream, ())]
        assert all(place[before] < place[~op.id] for before in waits)
        cause = max(waits, key=place.__getitem__, default=-1)
        assert timeline.last_dependency[op.id] == cause
        last[op.stream] = (op.id,)
    times = [timeline.start[~e] if e < 0 else timeline.end[e] for e in sequence]
    assert all(a <= b for a, b in pairwise(times))
    peaks = plain_peaks(draft, sequence)
    assert timeline.peak == {device: nbytes for device, (nbytes, _) in peaks.items()}
    for device, (nbytes, op) in peaks.items():
        if nbytes:
            words = f"op {op} " if op >= 0 else "before the first"
            with pytest.raises(DoesNotFit, match=f"(?=.*{words}).*{device}"):
                draft.run(replace(server, sizes={device: nbytes - 1}))
