"""Interleaved, zero-bubble and two-way pipelines: closed_forms section 3, times to 1e-9."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from toys import build, chain, ideal, volume

from sim.engine import execute
from workloads.schedules import pipeline
from workloads.schedules.pipeline_orders import ORDERS


def equal(stages, forward, into_input, into_weights, stash=0, boundary=1):
    """Model of equal stages with the given seconds of forward and of the halves of backward."""
    backward = into_input + into_weights
    model = chain(stages, 1, 1, 1, boundary, stash, times=[(forward, backward)] * stages)
    share = into_weights / backward
    return replace(model, layers=tuple(replace(one, weight_share=share) for one in model.layers))


def run(name, model, ranks, microbatches, **knobs):
    """Schedule, its timeline, and for each rank the seconds from its first op to its last."""
    server = ideal(ranks)
    plan = build(name, model, server, microbatches, **knobs)
    timeline = execute(plan, server)
    spans = []
    for gpu in server.gpus:
        own = [op.id for op in plan.ops if op.stream == f"{gpu}.compute"]
        spans.append(float(timeline.end[own].max() - timeline.start[own].min()))
    return plan, timeline, spans


def seconds(*arguments, **knobs):
    return float(run(*arguments, **knobs)[1].end.max())


@pytest.mark.parametrize("name", ["interleaved-1f1b", "looped-bfs"])
@pytest.mark.parametrize("chunks", [1, 2, 3])
@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
@pytest.mark.parametrize("rounds", [1, 2, 3])
def test_chunks_divide_the_bubble(name, chunks, ranks, rounds):
    forward, backward, count = 3.0, 6.0, ranks * rounds
    model = equal(ranks * chunks, forward / chunks, 0.0, backward / chunks)
    got = seconds(name, model, ranks, count, chunks=chunks)
    bubble = (ranks - 1) / chunks * (forward + backward)
    assert got == pytest.approx(count * (forward + backward) + bubble, rel=1e-9)
    # PTD-P's fraction is over the ideal time, GPipe's over the whole
    ideal_time = count * (forward + backward)
    assert (got - ideal_time) / ideal_time == pytest.approx((ranks - 1) / (chunks * count))
    assert (got - ideal_time) / got == pytest.approx((ranks - 1) / (chunks * count + ranks - 1))


times = st.floats(0.5, 5.0)


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 5), st.integers(0, 6), times, times, times)
def test_zero_bubble_h1_and_h2(ranks, more, forward, into_input, into_weights):
    """Bubbles (p-1)(tF + max(0, tI - tW)) and, of a rank's span, (p-1)(tF + tI - 2 tW).

    With short forwards the first gradient comes back after the warm-up, however long the weight
    halves: (p-1) tI, and under H2 (p-1)(tI - tF), is the least (derived).
    """
    count = 2 * ranks - 1 + more
    work = count * (forward + into_input + into_weights)
    model = equal(ranks, forward, into_input, into_weights)
    h1 = seconds("zb-h1", model, ranks, count)
    bubble = max(forward + max(0.0, into_input - into_weights), into_input)
    assert h1 == pytest.approx(work + (ranks - 1) * bubble, rel=1e-9)
    _, _, spans = run("zb-h2", model, ranks, count)
    bubble = max(forward + into_input - 2 * into_weights, into_input - forward, 0.0)
    assert max(spans) == pytest.approx(work + (ranks - 1) * bubble, rel=1e-9)


@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 8])
@pytest.mark.parametrize("more", [0, 1, 5])
def test_zero_bubble_is_the_span_of_a_rank_not_the_wall_time(ranks, more):
    """Equal parts: no rank ever waits, yet the last starts (p - 1) forwards late."""
    one, count = 2.0, 2 * ranks + ranks * more
    _, timeline, spans = run("zb-h2", equal(ranks, one, one, one), ranks, count)
    assert spans == pytest.approx([3 * count * one] * ranks, rel=1e-9)
    wall = 3 * count * one + (ranks - 1) * one
    assert float(timeline.end.max()) == pytest.approx(wall, rel=1e-9)
    half = one / 2
    _, timeline, spans = run("zb-v", equal(2 * ranks, half, half, half), ranks, count)
    assert spans == pytest.approx([3 * count * one] * ranks, rel=1e-9)
    wall = 3 * count * one + (ranks - 1) * half
    assert float(timeline.end.max()) == pytest.approx(wall, rel=1e-9)


@pytest.mark.parametrize("ranks", [2, 4, 8])
@pytest.mark.parametrize("chunks", [2, 3])
def test_interleaved_zero_bubble(ranks, chunks):
    one, count = 1.0 / chunks, 2 * ranks
    got = seconds("interleaved-zb", equal(ranks * chunks, one, one, one), ranks, count,
                  chunks=chunks)  # fmt: skip
    assert got == pytest.approx(3 * count + (ranks - 1) / chunks, rel=1e-9)


@pytest.mark.parametrize("ranks", [2, 4, 8])
@pytest.mark.parametrize("more", [0, 2, 6])
def test_two_way_pipelines(ranks, more):
    """Bubble (p/2 - 1)(F&B + B - 3W), and (p - 1)(...) of chunks when folded; F&B = F + B here."""
    one, count = 1.0, 2 * ranks + more
    bubble = 3 * one + 2 * one - 3 * one
    got = seconds("dualpipe", equal(ranks, one, one, one), ranks, count)
    assert got == pytest.approx(3 * count * one + (ranks / 2 - 1) * bubble, rel=1e-9)
    got = seconds("dualpipe-v", equal(2 * ranks, one, one, one), ranks, count)
    assert got == pytest.approx(2 * 3 * count * one + (ranks - 1) * bubble, rel=1e-9)


@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_the_pairs_must_be_one_operation(ranks, monkeypatch):
    """Forward and backward of a pair as two operations would give half the published bubble."""

    def apart(*arguments):
        return [action._replace(joined=False) for action in entry.order(*arguments)]

    entry, one = ORDERS["dualpipe-v"], 1.0
    loose = {**ORDERS, "dualpipe-v": replace(entry, order=apart)}
    monkeypatch.setattr(pipeline, "ORDERS", loose)
    got = seconds("dualpipe-v", equal(2 * ranks, one, one, one), ranks, 2 * ranks)
    assert got == pytest.approx(12 * ranks * one + (ranks - 1) * one, rel=1e-9)


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_peak_stash(ranks):
    """Closed forms of memory, counted in stashes of one stage, whose weight half still waits."""
    count, stash = 4 * ranks, 1000

    def peaks(name, stages, **knobs):
        _, timeline, _ = run(name, equal(stages, 1.0, 1.0, 1.0, stash), ranks, count, **knobs)
        return [timeline.peak[f"gpu{rank}"] // stash for rank in range(ranks)]

    for v in (1, 2, 3):
        steps = [2 * (ranks - rank - 1) + (v - 1) * ranks + 1 for rank in range(ranks)]
        assert peaks("interleaved-1f1b", v * ranks, chunks=v) == steps
        assert peaks("looped-bfs", v * ranks, chunks=v) == [v * count] * ranks
    assert peaks("zb-h1", ranks) == [ranks] * ranks
    assert peaks("zb-h2", ranks) == [2 * ranks - 1] * ranks
    assert peaks("zb-v", 2 * ranks) == [2 * ranks] * ranks
    assert peaks("dualpipe-v", 2 * ranks) == [2 * ranks + 1] * ranks
    if ranks > 1:
        assert peaks("dualpipe", ranks) == [ranks + 1] * ranks


@pytest.mark.parametrize("ranks", [2, 3, 4])
@pytest.mark.parametrize("suffix", ["", "-pager"])
def test_boundaries_crossed(ranks, suffix):
    """Every microbatch crosses p v - 1 boundaries each way; in a V, the turn stays on its GPU."""
    count, edge = 2 * ranks, 7

    def moved(name, stages, **knobs):
        plan, *_ = run(name + suffix, equal(stages, 1, 1, 1, 0, edge), ranks, count, **knobs)
        found = volume(plan)
        kinds = ("activation", "activation_gradient")
        return [found[kind, "peer"] // (count * edge) for kind in kinds]

    for name in ("gpipe", "1f1b", "zb-h1", "zb-h2"):
        assert moved(name, ranks) == [ranks - 1] * 2
    for name in ("interleaved-1f1b", "looped-bfs", "interleaved-zb"):
        assert moved(name, 3 * ranks, chunks=3) == [3 * ranks - 1] * 2
    for name in ("zb-v", "dualpipe-v"):
        assert moved(name, 2 * ranks) == [2 * ranks - 2] * 2
    if ranks % 2 == 0:
        assert moved("dualpipe", ranks) == [ranks - 1] * 2


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from(sorted(ORDERS)), st.sampled_from(["", "-recompute", "-pager-recompute"]),
    st.integers(1, 4), st.integers(1, 3), st.integers(0, 3), st.booleans(),
)  # fmt: skip
def test_every_order_is_safe_and_does_all_its_work(name, suffix, ranks, chunks, more, tied):
    """Passes check() with layers that no stage count divides; no rank beats its own work."""
    entry = ORDERS[name]
    assume(entry.stages != "mirrored" or ranks % 2 == 0)
    knobs = {"chunks": chunks} if entry.stages == "many" else {}
    layers = 2 + ranks * max(2, chunks)
    model = chain(layers, 3, 1, 1, 2, 5, tied=tied, times=[(2.0, 3.0)] * layers)
    count = ranks * (2 + 2 * more)
    _, timeline, _ = run(name + suffix, model, ranks, count, **knobs)
    work = count * layers * (7.0 if "recompute" in suffix else 5.0)
    assert float(timeline.end.max()) * ranks >= work * (1 - 1e-9)


def test_two_ways_hold_every_weight_twice():
    plan, timeline, _ = run("dualpipe", chain(4, 10, 1), 4, 8)
    held = [tensor.weights for tensor in plan.tensors if tensor.kind == "weight"]
    assert sorted(held) == sorted([(f"w{i}",) for i in range(4)] * 2)
    assert sum(op.kind == "collective" for op in plan.ops) == 4
    assert plan.replicas == 2
    assert min(timeline.peak[f"gpu{i}"] for i in range(4)) >= 2 * (10 + 10)
