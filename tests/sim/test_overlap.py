"""Swap and compute side by side: closed forms from hand-built schedules."""

from __future__ import annotations

import pytest
from wires import Draft, Way, Wires, bus, star


def exactly(value):
    return pytest.approx(value, rel=1e-9)


def layers(draft, count, load, compute, slots, *, gpu="gpu0", microbatches=1, store=0):
    """Load, compute (and write back) equal layers; the load of layer i waits for slot i - slots."""
    freed = []
    for layer in range(count):
        room = [freed[layer - slots]] if layer >= slots else []
        last = draft.copy("host0", gpu, load, *room)
        for _ in range(microbatches):
            last = draft.compute(gpu, compute, last)
        if store:
            last = draft.copy(gpu, "host0", store, last)
        freed.append(last)


@pytest.mark.parametrize("count", [1, 2, 5, 11])
@pytest.mark.parametrize("load", [1, 3, 5])
@pytest.mark.parametrize("compute", [1, 2, 5])
@pytest.mark.parametrize("slots", [1, 2, 3, 4])
def test_prefetch_into_slots(count, load, compute, slots):
    draft = Draft()
    layers(draft, count, load, compute, slots)
    if slots == 1:
        expected = count * (load + compute)
    else:
        expected = load + (count - 1) * max(load, compute) + compute
    assert draft.run(star(1, 1.0)).end.max() == exactly(expected)


@pytest.mark.parametrize("microbatches", [1, 2, 3, 4, 7])
def test_grouped_microbatches_hide_the_load(microbatches):
    count, load, compute = 6, 5, 2
    draft = Draft()
    layers(draft, count, load, compute, 2, microbatches=microbatches)
    work = microbatches * compute
    expected = load + (count - 1) * max(load, work) + work
    assert draft.run(star(1, 1.0)).end.max() == exactly(expected)
    if microbatches >= 3:  # break-even at ceil(5 / 2)
        assert expected == load + count * work


@pytest.mark.parametrize(("load", "store", "compute"), [(3, 2, 4), (5, 2, 1), (2, 6, 3), (3, 3, 3)])
def test_write_back_on_a_full_duplex_link_costs_the_largest_of_three(load, store, compute):
    totals = []
    for count in (20, 21):
        draft = Draft()
        layers(draft, count, load, compute, 4, store=store)
        totals.append(draft.run(star(1, 1.0)).end.max())
    assert totals[1] - totals[0] == exactly(max(load, store, compute))


@pytest.mark.parametrize(("load", "store", "compute"), [(3, 2, 4), (5, 2, 1), (2, 6, 3), (3, 3, 9)])
def test_write_back_on_a_half_duplex_link_adds_to_the_load(load, store, compute):
    totals = []
    for count in (40, 42):  # layers may settle into a pattern of two
        draft = Draft()
        layers(draft, count, load, compute, 4, store=store)
        totals.append(draft.run(bus(1.0, 1)).end.max())
    assert totals[1] - totals[0] == exactly(2 * max(load + store, compute))


@pytest.mark.parametrize("gpus", [1, 2, 3, 4, 8])
@pytest.mark.parametrize("uplink", [1.0, 2.5, 16.0])
def test_gpus_on_one_uplink_stretch_the_load(gpus, uplink):
    count, compute = 5, 3
    draft = Draft()
    for gpu in range(gpus):
        layers(draft, count, 2, compute, 2, gpu=f"gpu{gpu}")
    load = max(2.0, gpus * 2 / uplink)
    # Loads and computes of all GPUs are in step, so that every load meets all others.
    if load >= compute:
        expected = load + (count - 1) * load + compute
        assert draft.run(star(gpus, 1.0, uplink)).end.max() == exactly(expected)
    else:
        expected = load + (count - 1) * compute + compute
        assert draft.run(star(gpus, 1.0, uplink)).end.max() == exactly(expected)


def test_update_on_the_cpu_after_each_layer_leaves_one_copy_and_one_update():
    # Backward 4 s a layer, gradient 2 s to the host, update 3 s: tail 2 + 3 after the last layer
    draft = Draft()
    for _ in range(5):
        out = draft.copy("gpu0", "host0", 2, draft.compute("gpu0", 4.0))
        draft.host("host0", 3, out)
    cpu = Way((("cores", 1.0),), 0.0, 1.0, "cpu")
    wires = star(1, 1.0)
    server = Wires(dict(wires.resources) | {"cores": 8.0}, wires.ways, wires.gpus, cpu=cpu)
    assert draft.run(server).end.max() == exactly(5 * 4 + 2 + 3)
