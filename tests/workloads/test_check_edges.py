"""``Schedule.check`` refuses early writes and frees, crowded hosts and gradients not summed."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

import pytest
from toys import BIG, Box, build, chain
from wires import Draft

from hwmodels.errors import DoesNotFit, InvalidSchedule
from workloads.schedule import Grant


def plan(*, waits, end):
    """gpu0 holds W; a swap-out reads it while ``end`` (a free or a compute) takes it away."""
    draft = Draft()
    w = draft.tensor(8, "gpu0")
    draft.tensors[w] = draft.tensors[w]._replace(kind="activation")
    read = draft.copy("gpu0", "host0", 8, reads=(w,), allocs=((w, "host0"),))
    after = (read,) if waits else ()
    if end == "free":
        draft.free("gpu0", *after, frees=((w, "gpu0"),))
        final = ((w, "host0"),)
    else:
        draft.compute("gpu0", 1.0, *after, phase="update", writes=(w,))
        draft.free("host0", len(draft.ops) - 1, read, frees=((w, "host0"),))
        final = ((w, "gpu0"),)
    found = draft.schedule()
    return replace(
        found,
        capacity={"gpu0": 8, "host0": 8},
        final=final,
        num_layers=0,
        grants=(Grant(-1, "gpu0", -1, 8), Grant(read, "host0", -1, 8)),
    )


@pytest.mark.parametrize("end", ["free", "write"])
def test_a_reader_on_another_stream_is_waited_for(end):
    plan(waits=True, end=end).check()
    with pytest.raises(InvalidSchedule, match="without waiting for op 0, which uses it"):
        plan(waits=False, end=end).check()


def tight():
    """Schedule on a host that is just large enough, so that its room is handed over."""
    model = chain(6, 5, 1, 1, 2, 3)
    for size in range(1, 1000):
        with suppress(DoesNotFit):
            return build("harmony-pp", model, Box(2, 120, host_capacity=size), 4, pack=1)
    raise AssertionError("no size fits")


def test_smaller_host():
    good = tight()
    smaller = {**good.capacity, "host0": good.capacity["host0"] - 1}
    with pytest.raises(InvalidSchedule, match="capacity"):
        replace(good, capacity=smaller).check()


@pytest.mark.parametrize("name", ["dp", "dp-pager", "harmony-dp"])
def test_replicas_must_sum_their_gradients(name):
    good = build(name, chain(3, 5, 1, 1, 1, 1), Box(2, BIG), 2)
    index = next(op.id for op in good.ops if op.kind == "collective")
    ops = list(good.ops)
    ops[index] = ops[index]._replace(
        kind="compute", phase="recompute", group=(), reads=(), writes=()
    )
    with pytest.raises(InvalidSchedule, match="not summed over the 2 replicas"):
        replace(good, ops=tuple(ops)).check()


def comes_back(*, waits):
    """W lies on gpu0 and host0; gpu0 drops it and fetches it again, with room for it twice."""
    draft = Draft()
    w = draft.tensor(8, "gpu0", "host0")
    used = draft.compute("gpu0", 1.0, phase="update", reads=(w,))
    left = draft.free("gpu0", used, frees=((w, "gpu0"),))
    back = draft.copy("host0", "gpu0", 8, *((left,) if waits else ()), reads=(w,),
                      allocs=((w, "gpu0"),))  # fmt: skip
    found = draft.schedule()
    return replace(
        found,
        capacity={"gpu0": 16, "host0": 8},
        final=((w, "gpu0"), (w, "host0")),
        num_layers=0,
        tensors=tuple(t._replace(kind="activation") for t in found.tensors),
        grants=(
            Grant(-1, "gpu0", -1, 8), Grant(-1, "host0", -1, 8), Grant(back, "gpu0", -1, 8),
        ),
    )  # fmt: skip


def test_a_tensor_comes_back_after_it_has_left():
    comes_back(waits=True).check()
    with pytest.raises(InvalidSchedule, match="without waiting for op 1 that frees it"):
        comes_back(waits=False).check()
