"""Iteration times of pipelines: closed_forms section 3, to 1e-9."""

from __future__ import annotations

import random

import pytest
from toys import build, chain, ideal

from sim.engine import execute


def seconds(name, server, times, microbatches):
    """Iteration time with one layer of the given forward and backward seconds a stage."""
    model = chain(len(times), 1, 1, 1, 1, 1, times=times)
    plan = build(name, model, server, microbatches)
    return float(execute(plan, server).end.max())


@pytest.mark.parametrize("stages", range(1, 9))
@pytest.mark.parametrize("microbatches", [1, 2, 3, 5, 8, 13, 16])
def test_gpipe_and_1f1b_take_the_same_time_without_hops(stages, microbatches):
    forward, backward = 3.0, 5.0
    expected = (microbatches + stages - 1) * (forward + backward)
    server = ideal(stages)
    for name in ("gpipe", "1f1b"):
        got = seconds(name, server, [(forward, backward)] * stages, microbatches)
        assert got == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("stages", range(1, 6))
@pytest.mark.parametrize("microbatches", range(1, 9))
def test_gpipe_with_unequal_stages_and_hops(stages, microbatches):
    numbers = random.Random(stages * 100 + microbatches)
    times = [(numbers.uniform(1, 4), numbers.uniform(1, 9)) for _ in range(stages)]
    hop = numbers.uniform(0, 0.5)
    forward, backward = zip(*times, strict=True)
    expected = sum(forward) + sum(backward) + 2 * (stages - 1) * hop
    expected += (microbatches - 1) * (max(forward) + max(backward))
    got = seconds("gpipe", ideal(stages, hop=hop), times, microbatches)
    assert got == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("stages", range(2, 7))
@pytest.mark.parametrize("rounds", [1, 2, 3, 4])
@pytest.mark.parametrize("hop", [0.0, 0.3, 1.0, 1.5])
def test_1f1b_loses_time_on_every_hop(stages, rounds, hop):
    forward, backward = 3.0, 6.0
    microbatches = rounds * stages
    both = forward + backward
    expected = microbatches * both + (stages - 1) * (both + 2 * hop)
    expected += rounds * 2 * (stages - 1) * hop - 2 * hop
    server = ideal(stages, hop=hop)
    got = seconds("1f1b", server, [(forward, backward)] * stages, microbatches)
    assert got == pytest.approx(expected, rel=1e-9)
    gpipe = seconds("gpipe", server, [(forward, backward)] * stages, microbatches)
    lost = (rounds - 1) * 2 * (stages - 1) * hop + 2 * (stages - 2) * hop
    assert got - gpipe == pytest.approx(lost, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("seed", range(8))
def test_1f1b_with_unequal_stages_is_never_below_its_bound(seed):
    numbers = random.Random(seed)
    stages, microbatches = numbers.randint(2, 5), numbers.randint(1, 8)
    times = [(numbers.uniform(1, 4), numbers.uniform(1, 9)) for _ in range(stages)]
    got = seconds("1f1b", ideal(stages), times, microbatches)
    bound = max(
        sum(f + b for f, b in times[:s]) + microbatches * sum(times[s]) for s in range(stages)
    )
    assert got >= bound * (1 - 1e-9)


@pytest.mark.parametrize("stages", [1, 2, 4])
@pytest.mark.parametrize("microbatches", [2, 4, 6])
def test_recompute_adds_one_forward_a_microbatch(stages, microbatches):
    """Recompute needs W and x only, so each stage's first one hides in its wait for dY."""
    forward, backward = 2.0, 4.0
    got = seconds("gpipe-recompute", ideal(stages), [(forward, backward)] * stages, microbatches)
    expected = (microbatches + stages - 1) * (forward + backward) + microbatches * forward
    assert got == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("stages", [2, 3, 4])
@pytest.mark.parametrize("microbatches", [1, 2, 3, 6])
def test_microbatches_in_flight(stages, microbatches):
    """Peak stash of stage s: M under GPipe, min(M, p - s) under 1F1B."""
    stash, server = 1000, ideal(stages)
    model = chain(stages, 1, 1, 1, 1, stash, times=[(2.0, 4.0)] * stages)
    for name in ("gpipe", "1f1b"):
        timeline = execute(build(name, model, server, microbatches), server)
        for stage in range(stages):
            flight = microbatches if name == "gpipe" else min(microbatches, stages - stage)
            assert timeline.peak[f"gpu{stage}"] // stash == flight
