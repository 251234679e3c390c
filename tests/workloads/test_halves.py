"""The halves of a backward: what each reads and writes, and that together they are the whole."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from toys import BIG, Box, build, chain, ideal

import hwmodels.compute as compute
from hwmodels.compute import Curve, LayerProfile
from sim.engine import execute
from workloads.training import Training


def training(layers=3, **kinds):
    model = chain(layers, 5, 2, 1, 7, 11, times=[(2.0, 6.0)] * layers)
    layers_ = tuple(replace(one, **kinds) for one in model.layers)
    return Training(replace(model, layers=layers_), range(layers), range(layers), [(0, 4)])


def names(made, ids):
    return {made.tensors[i].name for i in ids}


def test_what_the_halves_read_and_write():
    made, span = training(), (0, 4)
    half = made.backward_input("gpu0", (1, 1), span)
    assert names(made, half.reads) == {"W[l1]", "X[l1]0:4", "stash[l1]0:4", "dX[l2]0:4"}
    assert names(made, half.writes) == {"dX[l1]0:4"}
    rest = made.backward_weight("gpu0", (1, 1), span)
    assert names(made, rest.reads) == {"W[l1]", "X[l1]0:4", "stash[l1]0:4", "dX[l2]0:4"}
    assert names(made, rest.writes) == {"dW[l1]"}
    again = made.backward_weight("gpu0", (1, 1), span)
    assert "dW[l1]" in names(made, again.reads)


@given(st.floats(0, 1), st.integers(1, 9), st.integers(1, 40))
def test_halves_sum_to_the_whole(share, samples, kernels):
    made = training(weight_share=share, backward_bytes=13.0, backward_kernels=kernels)
    (whole,) = made.work("backward", (1, 1), samples).parts
    halves = [made.work(f"backward_{half}", (1, 1), samples).parts[0] for half in
              ("input", "weight")]  # fmt: skip
    assert sum(half.flops for half in halves) == pytest.approx(whole.flops)
    assert sum(half.bytes for half in halves) == pytest.approx(whole.bytes)
    assert sum(half.share for half in halves) == pytest.approx(whole.share)
    assert 0 <= sum(half.kernels for half in halves) - whole.kernels <= 1
    assert all(half.kernels >= 1 for half in halves)


def test_measured_times_are_shared_out():
    made = training(weight_share=0.25)
    curve = Curve((1, 2), (3.0, 4.0))
    profile = LayerProfile("ideal", {(f"l{i}", "backward"): curve for i in range(3)})
    gpu = ideal(1).gpu("gpu0")
    for half, expected in (("input", 3.0), ("weight", 1.0)):
        work = made.work(f"backward_{half}", (1, 1), 2)
        assert compute.seconds(gpu, work, profile) == pytest.approx(expected)


def test_layers_without_weights_have_one_backward():
    model = chain(4, 1, 1, 1, 1, 1)
    bare = replace(model.layers[1], weights=())
    model = replace(model, layers=(model.layers[0], bare, *model.layers[2:]))
    phases = {op.phase for op in build("zb-h1", model, Box(2, BIG), 4).ops if op.layers == (1, 1)}
    assert phases == {"forward", "backward"}


def test_what_a_pair_makes_is_handed_on_when_both_have_ended():
    """The next rank's forward waits for the end of the pair, and the pair for its gradient."""
    server = ideal(4)
    plan = build("dualpipe", chain(4, 1, 1, 1, 1, 1, times=[(1.0, 2.0)] * 4), server, 8)
    end = execute(plan, server).end
    pairs = 0
    for op in plan.ops:
        gradients = [t for t in op.reads if plan.tensors[t].kind == "activation_gradient"]
        if op.phase != "forward" or not gradients:
            continue
        pairs += 1
        second = next(o for o in plan.ops[op.id + 1 :] if o.stream == op.stream)
        assert second.phase == "backward"
        assert gradients[0] in second.reads
        out = [t for t in op.writes if plan.tensors[t].kind == "activation"]
        sent = [o for o in plan.ops if o.kind == "copy" and o.reads[0] in out]
        assert all(end[o.id] >= end[second.id] for o in sent)
    assert pairs > 8
