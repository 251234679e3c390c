"""``Schedule.check``: passes for every generated schedule, fails for each kind of damage."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from toys import Box, build, chain, ideal

from hwmodels.errors import DoesNotFit, InvalidInput, InvalidSchedule
from sim.engine import execute
from workloads.check import Order
from workloads.repeat import repeat
from workloads.schedules.catalog import schedule, schedule_infos

NAMES = [info.name for info in schedule_infos()]


@st.composite
def cases(draw):
    """A schedule of a random model on a random box, or None where it does not fit."""
    layers = draw(st.integers(1, 7))
    model = chain(
        layers,
        weight=draw(st.integers(1, 9)),
        gradient=draw(st.integers(0, 2)),
        state=draw(st.integers(0, 2)),
        boundary=draw(st.integers(0, 4)),
        stash=draw(st.integers(0, 5)),
        tied=layers > 1 and draw(st.booleans()),
    )
    gpus = draw(st.integers(1, 4))
    box = Box(gpus, draw(st.integers(10, 400)), numa=draw(st.sampled_from([1, 2])))
    name = draw(st.sampled_from(NAMES))
    knobs = {}
    if name.startswith("harmony"):
        knobs = {
            "pack": draw(st.integers(1, layers)),
            "update": draw(st.sampled_from(["gpu", "cpu"])),
            "grouping": draw(st.booleans()),
            "jit_update": draw(st.booleans()),
        }
        if name == "harmony-pp":
            knobs["peer"] = draw(st.booleans())
        if knobs["grouping"]:
            knobs["microbatch_backward"] = draw(st.integers(1, 3))
    elif "pager" in name:
        knobs = {"host_copy": draw(st.sampled_from(["keep", "exclusive"]))}
    u = draw(st.integers(1, 3))
    minibatch = u * gpus * draw(st.integers(1, 3))
    try:
        return schedule(name, model, box, minibatch=minibatch, microbatch=u, **knobs)
    except (DoesNotFit, InvalidInput):  # numbers of GPUs or microbatches that it cannot take
        return None


@settings(max_examples=300, deadline=None)
@given(cases())
def test_every_generated_schedule_passes(plan):
    if plan is not None:
        plan.check()


def plan():
    return build("harmony-pp", chain(6, 5, 1, 1, 2, 3), Box(2, 120), 4, pack=1)


def edited(plan, index, **changes):
    ops = list(plan.ops)
    ops[index] = ops[index]._replace(**changes)
    return replace(plan, ops=tuple(ops))


def first(plan, **wanted):
    """Index of the first op with the given fields."""
    for op in plan.ops:
        if all(getattr(op, key) == value for key, value in wanted.items()):
            return op.id
    raise AssertionError(f"no op with {wanted}")


def without(plan, index):
    """Schedule without one op; later ids and edges move up."""

    def new(i):
        return i - (i > index)

    ops = tuple(
        op._replace(id=new(op.id), after=tuple(new(a) for a in op.after if a != index))
        for op in plan.ops
        if op.id != index
    )
    grants = tuple(
        grant._replace(alloc=new(grant.alloc), source=new(grant.source))
        for grant in plan.grants
        if index not in (grant.alloc, grant.source)
    )
    return replace(plan, ops=ops, grants=grants)


def fails(damaged, words):
    with pytest.raises(InvalidSchedule, match=words):
        damaged.check()


def test_both_halves_of_a_backward_are_needed_once():
    good = build("zb-h1", chain(2, 1, 1, 1, 1, 1), Box(1, 400), 2)
    for phase in ("backward_input", "backward_weight"):
        one, other = (op for op in good.ops if op.phase == phase and op.layers == (1, 1))
        fails(edited(good, other.id, span=one.span), f"the {phase} of layer 1 does not cover")
    late = first(good, phase="backward_weight")
    fails(edited(good, late, phase="backward"), "the backward_input of layer 1 does not cover")


def test_duplicate_id():
    fails(edited(plan(), 5, id=4), "ids must be unique")


def test_edge_to_a_later_op():
    fails(edited(plan(), 3, after=(9,)), "cycle")


def test_edge_to_itself():
    fails(edited(plan(), 3, after=(3,)), "cycle")


def test_compute_without_waiting_for_its_swap_in():
    good = plan()
    fails(edited(good, first(good, kind="compute"), after=()), "without waiting for op")


def test_edges_of_swap_ins_may_go_only_where_the_stream_already_orders_them():
    good = plan()
    refused = 0
    for op in good.ops:
        if op.phase != "swap_in" or not op.after:
            continue
        damaged = edited(good, op.id, after=())
        order = Order(damaged)
        if all(order.before(before, op.id) for before in op.after):
            damaged.check()
        else:
            fails(damaged, "without waiting")
            refused += 1
    assert refused > 3


def test_swap_out_before_the_result_is_there():
    good = plan()
    fails(edited(good, first(good, phase="swap_out"), after=()), "without waiting for op")


def test_missing_allocation():
    good = plan()
    fails(edited(good, first(good, phase="swap_in"), allocs=()), "not there")


def test_allocation_twice():
    good = plan()
    index = first(good, phase="swap_in")
    fails(edited(good, index, allocs=good.ops[index].allocs * 2), "already there")


def test_leak():
    good = plan()
    index = first(good, phase="swap_out")
    damaged = edited(good, index, frees=())
    fails(damaged, "leak|already there|handed out")


def test_freed_twice():
    good = plan()
    index = first(good, phase="swap_out")
    fails(edited(good, index, frees=good.ops[index].frees * 2), "not there")


def test_use_after_free():
    good = plan()
    index = first(good, phase="swap_in")
    fails(edited(good, index, frees=good.ops[index].allocs), "not there")


def test_stale_copy():
    good = plan()
    # reading W from the host again after the GPU has updated it, before it was written back
    update = first(good, phase="update", kind="compute")
    weight = next(t for t in good.ops[update].writes if good.tensors[t].kind == "weight")
    back = next(op.id for op in good.ops if op.phase == "swap_out" and weight in op.reads)
    fails(
        edited(good, back, device=good.ops[back].peer, stream="x"), "stale|never written|not there"
    )


def test_room_handed_out_twice():
    good = plan()
    grants = list(good.grants)
    i = next(i for i, grant in enumerate(grants) if grant.source >= 0 and grant.nbytes)
    grants[i] = grants[i]._replace(source=-1)
    fails(replace(good, grants=tuple(grants)), "handed out|given room")


def test_room_missing():
    fails(replace(plan(), grants=plan().grants[:-1]), "given room")


def test_smaller_device():
    good = plan()
    smaller = {
        place: size - 40 if place == "gpu0" else size for place, size in good.capacity.items()
    }
    fails(replace(good, capacity=smaller), "capacity")


@pytest.mark.parametrize("phase", ["forward", "backward"])
def test_lost_work(phase):
    good = plan()
    index = max(op.id for op in good.ops if op.phase == phase)
    fails(
        without(good, index),
        "not there|cover|leak|given room|handed out|stale|never|without waiting",
    )


def test_work_for_other_samples():
    good = plan()
    fails(edited(good, first(good, phase="backward"), span=(0, 4)), "does not cover")


def test_weight_never_updated():
    good = plan()
    index = first(good, phase="update")
    fails(edited(good, index, phase="recompute"), "updated 0 times")


def test_weight_updated_twice():
    good = plan()
    index = first(good, phase="update")
    again = good.ops[index].writes * 2
    fails(edited(good, index, writes=again), "updated 2 times")


def test_not_home_at_the_end():
    good = plan()
    fails(replace(good, final=((10**6, "host0"), *good.final[1:])), "leak")


def test_compute_needs_a_stream():
    good = plan()
    fails(edited(good, first(good, kind="compute"), stream=""), "no stream")


@settings(max_examples=40, deadline=None)
@given(cases(), st.integers(1, 3))
def test_iterations_laid_end_to_end_pass(plan, iterations):
    if plan is None:
        return
    laid = repeat(plan, iterations)
    laid.check()
    assert len(laid.ops) == iterations * (len(plan.ops) + 1) - 1


def test_iterations_need_their_barrier():
    laid = repeat(plan(), 2)
    barrier = first(laid, phase="barrier")
    fails(edited(laid, barrier, after=()), "every op before it")
    head = next(op.id for op in laid.ops if barrier in op.after and op.phase == "swap_in")
    fails(edited(laid, head, after=()), "without waiting|takes room")


def test_iterations_take_equal_time():
    box = ideal(2, host=10.0)
    model = chain(6, 5, 1, 1, 2, 3, times=[(1.0, 2.0)] * 6)
    one = build("harmony-pp", model, box, 4, pack=1)
    once = float(execute(one, box).end.max())
    assert float(execute(repeat(one, 3), box).end.max()) == pytest.approx(3 * once, rel=1e-9)


def test_only_one_iteration_can_be_repeated():
    with pytest.raises(InvalidInput, match="cannot lay"):
        repeat(repeat(plan(), 2), 2)
