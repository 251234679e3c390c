"""Schedules run for real: the numbers of ordinary training, and the bytes of the simulator."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import cache
from itertools import cycle

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from toys import BIG, Box, ideal
from worlds import MINIBATCH, World, conv, gpt, roomy, tight

import sim
import workloads as wl
from hwmodels.errors import InvalidInput
from hwmodels.server import Server
from validate import plain
from validate.execute import execute, replay
from validate.optimizer import Settings

CLOSE = 2e-15
"""Sums of eight samples' gradients in another order, of values near 1."""

SETTINGS = Settings(epsilon=1e-4)
"""A bias of attention keys has no gradient but rounding; Adam divides that by epsilon."""

HARMONY = [
    {}, {"grouping": False}, {"jit_update": False}, {"update": "cpu"}, {"pack": 2},
    {"packing": False}, {"microbatch_backward": 1}, {"microbatch": 1, "microbatch_backward": 2},
]  # fmt: skip

KNOBS = {"harmony-dp": HARMONY, "harmony-pp": [*HARMONY, {"peer": False}]}


def half():
    """One device that computes in 16 bits too."""
    parts = ideal(1).parts
    (slot,) = parts.gpus
    gpu = replace(slot.gpu, flops={"fp32": 1.0, "bf16": 1.0})
    return Server(replace(parts, gpus=(replace(slot, gpu=gpu),)))


def knobs(name):
    """Settings of one schedule that a test runs."""
    usual = [{}, {"host_copy": "keep"}] if name.partition("-")[2].startswith("pager") else [{}]
    return KNOBS.get(name, usual)


EVERY = [
    pytest.param(name, gpus, each, id=f"{name}-{gpus}-{each}")
    for name in wl.schedules()
    for gpus in (1, 2, 4)
    for each in (knobs(name) if gpus == 2 else knobs(name)[:1])
]


FEW = (
    "dp", "dp-pager-recompute", "gpipe-pager", "1f1b-recompute", "interleaved-1f1b", "zb-h1-pager",
    "zb-v-recompute", "dualpipe", "dualpipe-v-pager", "harmony-dp", "harmony-pp",
)  # fmt: skip
"""One of each family, residency and recompute."""


def microbatch_of(name, gpus):
    """Two samples where the order takes four microbatches, else one."""
    try:
        wl.schedule(name, gpt().network.model, Box(gpus, BIG), minibatch=MINIBATCH, microbatch=2)
    except InvalidInput:
        return 1
    return 2


@cache
def reference(world: World, microbatch: int, iterations: int):
    return plain.train(world.network, world.batches[:iterations], microbatch, SETTINGS)


def furthest(weights, expected):
    return max(
        float((copy - expected[block]).abs().max())
        for block, copies in weights.items()
        for copy in copies
    )


def bytes_moved(plan):
    found = Counter()
    for op in plan.ops:
        if op.kind == "copy":
            found[(plan.tensors[op.reads[0]].kind, op.device, op.peer)] += op.nbytes
    return found


def agrees(plan, box, world, microbatch, close=CLOSE):
    """Run for real, freely and in the simulator's order; compare with training and simulator."""
    batches = world.batches[: plan.iterations]
    server = ideal(box.count, memory=box.capacity)
    predicted = sim.simulate(plan, server)
    expected, losses = reference(world, microbatch, plan.iterations)

    done = execute(plan, world.network, batches, server, settings=SETTINGS)
    assert set(done.weights) == set(expected)
    assert furthest(done.weights, expected) <= close
    assert done.losses == pytest.approx(losses, rel=1e-12)
    assert dict(done.moved) == bytes_moved(plan)
    assert all(done.peak[place] <= box.memory(place) for place in done.peak)
    assert done.run.swap_volume().equals(predicted.swap_volume())

    again = replay(plan, world.network, batches, predicted.timeline.sequence, settings=SETTINGS)
    assert furthest(again.weights(), expected) <= close
    assert again.storage.peak == {
        place: predicted.timeline.peak.get(place, 0) for place in again.storage.peak
    }
    assert again.storage.moved == bytes_moved(plan)


@pytest.mark.parametrize(("name", "gpus", "chosen"), EVERY)
def test_every_schedule_trains_as_one_device_does(name, gpus, chosen):
    if name.startswith("dualpipe") and "-v" not in name and gpus == 1:
        with pytest.raises(InvalidInput, match="even number of GPUs"):
            roomy(name, gpt(), gpus)
        return
    chosen = {"microbatch": microbatch_of(name, gpus), **chosen}
    plan, box = tight(name, gpt(), gpus, **chosen)
    agrees(plan, box, gpt(), chosen["microbatch"])


@pytest.mark.parametrize("name", FEW)
def test_two_iterations(name):
    plan, box = tight(name, gpt(), 2, microbatch=1)
    agrees(wl.repeat(plan, 2), box, gpt(), 1)


@pytest.mark.parametrize(
    ("name", "optimizer"), list(zip(FEW, cycle(["momentum", "sgd"]), strict=False))
)
def test_convolutions(name, optimizer):
    plan, box = tight(name, conv(optimizer), 2, microbatch=1)
    agrees(plan, box, conv(optimizer), 1)


@pytest.mark.parametrize("name", [name for name in FEW if name != "dualpipe"])
def test_on_one_device_the_order_of_sums_is_the_same(name):
    """Oldest microbatch first in all: not a bit differs (tied weights add in another order)."""
    world = gpt(tied=False)
    plan, box = roomy(name, world, 1)
    done = execute(
        plan,
        world.network,
        world.batches[:1],
        ideal(1, memory=box.capacity),
        settings=SETTINGS,
    )
    assert furthest(done.weights, reference(world, 2, 1)[0]) == 0.0


@pytest.mark.parametrize("precision", ["mixed-bf16", "bf16", "mixed-bf16-fp32-gradients"])
def test_sixteen_bits(precision):
    """Resident, paged and recomputed: equal to the bit, and near training in 32 bits."""
    world = gpt(tied=False, precision=precision)
    found = []
    for name in ("dp", "dp-pager-recompute", "harmony-pp"):
        plan, _ = tight(name, world, 1)
        done = execute(plan, world.network, world.batches[:1], half())
        found.append(done)
    for other in found[1:]:
        for block, (weights,) in found[0].weights.items():
            assert torch.equal(weights, other.weights[block][0])
    _, losses = reference(gpt(tied=False, precision="fp32"), 2, 1)
    assert found[0].losses == pytest.approx(losses, rel=0.02)


@settings(max_examples=10, deadline=None)
@given(data=st.data())
def test_any_schedule_any_memory(data):
    name = data.draw(st.sampled_from(wl.schedules()))
    world = data.draw(st.sampled_from([gpt(), gpt(tied=False), conv()]))
    gpus = data.draw(st.sampled_from([1, 2, 4]))
    chosen = dict(data.draw(st.sampled_from(knobs(name))))
    chosen["microbatch"] = data.draw(st.sampled_from([1, 2]))
    if chosen.get("grouping") is False:
        chosen.pop("microbatch_backward", None)
    pick = data.draw(st.sampled_from([tight, roomy]))
    try:
        plan, box = pick(name, world, gpus, **chosen)
    except InvalidInput:  # an order that does not take so many microbatches or GPUs
        return
    agrees(plan, box, world, chosen["microbatch"], close=1e-14)


def test_tables_and_pictures_of_a_measured_run(tmp_path):
    plan, box = tight("harmony-pp", gpt(), 2)
    run = execute(plan, gpt().network, gpt().batches[:1], ideal(2, memory=box.capacity)).run
    assert 0 < run.iteration_time < 60
    assert run.iteration_time == pytest.approx(run.ops()["end"].max())
    assert (run.ops()["seconds"] >= 0).all()
    assert (run.ops()["start"] >= run.ops()["ready"]).all()
    assert run.time_split().sum(axis=1).tolist() == pytest.approx([run.duration] * 2)
    assert run.peak_memory["gpu0"] <= box.capacity
    for draw in (run.plot_timeline, run.plot_memory, run.plot_links):
        draw(tmp_path / "picture.png")
        assert (tmp_path / "picture.png").stat().st_size > 10_000
    run.to_trace(tmp_path / "trace.json")
    assert run.summary()["minibatch"] == MINIBATCH
