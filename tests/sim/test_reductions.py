"""Replicas sum their gradients: each unit is reduced once, over all GPUs, before its update."""

from __future__ import annotations

import pytest
from toys import BIG, Box, build, chain, ideal

import sim

REPLICATED = ["dp", "dp-recompute", "dp-pager", "dp-pager-recompute", "harmony-dp"]


@pytest.mark.parametrize("name", REPLICATED)
@pytest.mark.parametrize("gpus", [1, 2, 4])
@pytest.mark.parametrize("m", [1, 3])
@pytest.mark.parametrize("tied", [False, True])
def test_every_gradient_is_reduced_once_before_its_updates(name, gpus, m, tied):
    layers, weight = 5, 9
    plan = build(name, chain(layers, weight, 1, 1, 1, 1, tied=tied), Box(gpus, BIG), m * gpus)
    reduced, updated = {}, set()
    for op in plan.ops:
        if op.kind == "collective":
            assert op.phase == "all_reduce"
            assert op.group == Box(gpus, BIG).gpus
            for tensor in op.reads:
                assert tensor not in reduced
                reduced[tensor] = op.nbytes
        elif op.phase == "backward":
            made = {t for t in op.writes if plan.tensors[t].kind == "gradient"}
            assert made.isdisjoint(reduced)  # nothing is added after the sum
        elif op.phase == "update":
            for tensor in op.reads:
                if plan.tensors[tensor].kind == "gradient":
                    assert gpus == 1 or tensor in reduced
                    updated.add(tensor)
    assert set(reduced) == (updated if gpus > 1 else set())
    assert sum(reduced.values()) == (gpus * layers * weight if gpus > 1 else 0)


@pytest.mark.parametrize("name", REPLICATED)
@pytest.mark.parametrize("gpus", [2, 3, 4])
def test_ring_traffic_of_data_parallel(name, gpus):
    """2(N-1)/N |G| leaves each GPU (section 4, item 6, DDP)."""
    layers, weight = 5, 10**6
    server = ideal(gpus, host=1e9)
    plan = build(name, chain(layers, weight, 1, 1), server, gpus)
    run = sim.simulate(plan, server)
    rings = [op for op in plan.ops if op.kind == "collective"]
    moved = 0.0
    for op in rings:
        path = run.timeline.routes[run.timeline.route[op.id]]
        ends = [name for name, _ in path.usage if name.startswith("gpu0>")]
        moved += op.nbytes * sum(dict(path.usage)[end] for end in ends)
    assert moved == pytest.approx(2 * (gpus - 1) / gpus * layers * weight, rel=1e-9)


@pytest.mark.parametrize("gpus", [2, 4])
def test_harmony_dp_with_cpu_update_reduces_too(gpus):
    plan = build("harmony-dp", chain(5, 9, 1, 1, 1, 1), Box(gpus, BIG), 2 * gpus, update="cpu")
    rings = [op for op in plan.ops if op.kind == "collective"]
    assert sum(op.nbytes for op in rings) == 5 * 9
    assert all(len(op.group) == gpus for op in rings)
