"""Harmony's shipped schedules: same order, same compute, same weight traffic."""

from __future__ import annotations

import pytest

import sim
import workloads
from validate import harmony

CASES = harmony.cases()


def label(case):
    return f"{case.model[8:]}-{case.mode}-N{case.gpus}-D{case.minibatch}-u{case.u_forward}"


def packs(text):
    return [tuple(int(end) for end in pack.split("-")) for pack in text.split(",")]


def pinned(case, model):
    """Weights and buffers that our planner keeps because the next visit of the GPU uses them.

    Harmony's runtime pins them too; its simulator, whose bytes are published, does not.
    """
    forward = packs(case.packs_forward) if case.packs_forward else []
    backward = packs(case.packs_backward)[::-1]
    visits = forward + backward
    step = 1 if case.mode == "harmony-dp" else case.gpus
    saved = 0
    for before, after in zip(visits, visits[step:], strict=False):
        shared = range(max(before[0], after[0]), min(before[1], after[1]) + 1)
        saved += sum(model.weight_bytes(w) for i in shared for w in model.layers[i].weights)
    return saved


@pytest.mark.parametrize("case", CASES, ids=label)
def test_free_links_give_the_published_time(case):
    box = harmony.server(case, free_links=True)
    plan = harmony.schedule(case, box)
    assert sim.simulate(plan, box).iteration_time == pytest.approx(case.free_links_s, rel=0.003)


@pytest.mark.parametrize("case", CASES, ids=label)
def test_weight_traffic_equals_the_published_bytes(case):
    """Apart from pinned packs, and from buffers, which only Harmony writes back with dW."""
    box = harmony.server(case)
    plan = harmony.schedule(case, box)
    model = workloads.model(case.model)
    moved = {"swap_in": 0, "swap_out": 0}
    for op in plan.ops:
        if op.kind == "copy":
            kind = plan.tensors[op.reads[0]].kind
            if kind == "weight" and op.phase == "swap_in":
                moved["swap_in"] += op.nbytes
            if kind == "gradient" and op.phase == "swap_out":
                moved["swap_out"] += op.nbytes
    ranks = case.gpus if case.mode == "harmony-dp" else 1
    expected = (case.weights_in_bytes - pinned(case, model)) * ranks
    assert moved["swap_in"] == pytest.approx(expected, rel=3e-6)
    buffers = sum(w.buffer_bytes for w in model.weights)
    assert moved["swap_out"] + buffers == pytest.approx(case.gradients_out_bytes, rel=3e-6)


def test_table_sets_our_time_beside_the_measured_run(monkeypatch):
    seen = harmony.measured()
    case = next(
        c for c in CASES if c.minibatch == seen["minibatch"] and c.u_forward == seen["u_forward"]
    )
    monkeypatch.setattr(harmony, "cases", lambda: (case,))
    heading, row = harmony.table()
    assert heading.split()[-1] == "measured"
    words = row.split()
    assert words[:4] == [case.model, case.mode, "4", "600"]
    assert float(words[5]) == pytest.approx(case.estimate_s, abs=0.005)
    box = harmony.server(case)
    ours = sim.simulate(harmony.schedule(case, box), box).iteration_time
    assert float(words[6]) == pytest.approx(ours, abs=0.005)
    assert row.endswith("48.9 s")
