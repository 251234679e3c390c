"""The ledger: bytes on each device, peaks, and what an overflow says."""

from __future__ import annotations

import numpy as np
import pytest
from wires import Draft, star

from hwmodels.errors import DoesNotFit, UnknownName
from sim.memory import order, steps


def swaps():
    """Two weights of 30 and 50 bytes swapped in and out again one after another; 5 B/s."""
    draft = Draft()
    one, two = draft.tensor(30, "host0"), draft.tensor(50, "host0")
    load = draft.copy("host0", "gpu0", 30, reads=(one,), allocs=((one, "gpu0"),))
    use = draft.compute("gpu0", 4.0, load, reads=(one,))
    draft.copy("gpu0", "host0", 30, use, reads=(one,), frees=((one, "gpu0"),))
    draft.copy("host0", "gpu0", 50, use, reads=(two,), allocs=((two, "gpu0"),))
    return draft


def test_memory_is_taken_at_the_start_and_given_back_at_the_end():
    # in 0-6, compute 6-10, then out 10-16 beside in 10-20: both are there from 10 to 16
    timeline = swaps().run(star(1, 5.0))
    assert timeline.end.tolist() == pytest.approx([6.0, 10.0, 16.0, 20.0], rel=1e-9)
    assert timeline.peak == {"host0": 80, "gpu0": 80}


def test_steps_say_who_took_and_gave_what():
    draft = swaps()
    timeline = draft.run(star(1, 5.0))
    found = steps(draft.schedule(), timeline.sequence)
    rows = zip(found.device, found.nbytes, found.tensor, found.op, strict=True)
    named = [(found.devices[d], int(n), int(t), int(o)) for d, n, t, o in rows]
    assert named == [
        ("host0", 30, 0, -1),
        ("host0", 50, 1, -1),
        ("gpu0", 30, 0, 0),
        ("gpu0", 50, 1, 3),
        ("gpu0", -30, 0, 2),
    ]


def test_order_of_measured_times_puts_ends_first():
    start, end = np.array([0.0, 1.0, 1.0]), np.array([1.0, 2.0, 1.5])
    assert order(start, end).tolist() == [~0, 0, ~1, ~2, 2, 1]


def test_a_free_operation_gives_back_when_all_before_it_have_ended():
    draft = Draft()
    tensor, other = draft.tensor(60, "gpu0"), draft.tensor(60)
    waits = [draft.compute("gpu0", 2.0), draft.compute("gpu1", 3.0)]
    gone = draft.free("gpu0", *waits, frees=((tensor, "gpu0"),))
    draft.compute("gpu0", 1.0, gone, allocs=((other, "gpu0"),))
    timeline = draft.run(star(2, 1.0, sizes={"gpu0": 60}))
    assert timeline.start.tolist() == [0.0, 0.0, 3.0, 3.0]
    assert timeline.end.tolist() == [2.0, 3.0, 3.0, 4.0]
    assert timeline.peak["gpu0"] == 60


def test_overflow_names_device_operation_bytes_and_what_is_there():
    draft = Draft()
    old = [draft.tensor(nbytes, "gpu0") for nbytes in (10, 40, 20, 5)]
    new = draft.tensor(30)
    wait = draft.compute("gpu0", 1.0, frees=((old[0], "gpu0"),))
    draft.copy("host0", "gpu0", 30, wait, allocs=((new, "gpu0"),))
    assert draft.run(star(1, 1.0, sizes={"gpu0": 95})).peak["gpu0"] == 95
    with pytest.raises(DoesNotFit) as failure:
        draft.run(star(1, 1.0, sizes={"gpu0": 94}))
    assert str(failure.value) == (
        "schedule draft: op 1 (swap_in) takes 30 bytes on gpu0, where 65 of 94 bytes are in use "
        "(largest: W1 40 bytes, W2 20 bytes, W3 5 bytes)."
    )


def test_overflow_before_the_first_operation():
    draft = Draft()
    draft.tensor(70, "host0")
    draft.tensor(40, "host0")
    with pytest.raises(DoesNotFit, match="110 bytes lie on host0 before the first operation"):
        draft.run(star(1, 1.0, sizes={"host0": 100}))


def test_overflow_by_a_copy_that_waited_for_its_engine():
    draft = Draft()
    tensor = draft.tensor(30)
    draft.copy("gpu0", "host0", 10)
    draft.copy("gpu0", "gpu1", 30, allocs=((tensor, "gpu1"),))
    with pytest.raises(DoesNotFit, match=r"op 1 \(peer\) takes 30 bytes on gpu1"):
        draft.run(star(2, 1.0, engines=2, sizes={"gpu1": 29}))


def test_memory_on_an_unknown_device():
    draft = Draft()
    tensor = draft.tensor(30)
    draft.compute("gpu0", 1.0, allocs=((tensor, "gpu7"),))
    with pytest.raises(UnknownName, match="gpu7"):
        draft.run(star(1, 1.0))
