"""Makespans of another group's pipeline simulator come out, to 0.01 %.

Source: github.com/ITcarrot/RoundPipe-artifact, pp-simulate: log and run.sh. Their backward includes
the recompute of the layer, which waits for dY; the head is never recomputed. Milliseconds; eight
ranks, 16 microbatches.
"""

from __future__ import annotations

from typing import NamedTuple

import pytest
from toys import build, chain, ideal

from sim.engine import execute

RANKS, MICROBATCHES = 8, 16


class Case(NamedTuple):
    """Seconds of a layer and of the head, forward and backward; of a hop."""

    forward: float
    backward: float
    head_forward: float
    head_backward: float
    hop: float


CASES = {
    "1p7b": Case(7.429, 15.831, 22.0655, 43.707, 1.6),
    "8b": Case(18.50370313, 41.20659375, 37.2255, 74.501, 3.2),
    "20b": Case(21.6445625, 81.780875, 44.2925, 86.264, 2.25),
    "32b": Case(40.5610625, 91.17429688, 54.928, 108.294, 4.0),
    "235b": Case(43.016, 58.376, 42.444, 43.294, 3.2),
}
STAGES = {
    "1p7b": [3, 3, 4, 4, 4, 4, 4, 2],
    "8b": [4] * 8,
    "20b": [3] * 8,
    "32b": [8] * 8,
    "235b": [11, *[12] * 6, 11],
}
"""Layers of each stage under gpipe and 1f1b, as given; the head is on the last."""
CHUNKS = {
    "1p7b": [1, 1, *[2] * 13, 0],
    "8b": [1] * 32,
    "20b": [1] * 24,
    "32b": [1] * 64,
    "235b": [0, *[1] * 94, 0],
}
"""Under the others: not given, found by trying (one layer a stage; where that leaves some over, the
totals of the ranks are those given)."""

MAKESPANS = [
    ("gpipe", "1p7b", 2896.9170), ("gpipe", "8b", 9028.1120), ("gpipe", "20b", 10750.2340),
    ("gpipe", "32b", 34370.0936), ("gpipe", "235b", 39698.3300),
    ("1f1b", "1p7b", 2854.7220), ("1f1b", "8b", 9028.1120), ("1f1b", "20b", 10750.2340),
    ("1f1b", "32b", 34370.0936), ("1f1b", "235b", 39716.4600),
    ("interleaved-1f1b", "8b", 7539.2180), ("interleaved-1f1b", "20b", 9071.2540),
    ("interleaved-1f1b", "32b", 26375.5690), ("interleaved-1f1b", "235b", 29052.8820),
    ("looped-bfs", "1p7b", 2467.2710), ("looped-bfs", "8b", 7385.6180),
    ("looped-bfs", "20b", 8999.2540), ("looped-bfs", "32b", 25927.5690),
    ("looped-bfs", "235b", 28575.7140),
]  # fmt: skip
"""All rows of these schedules but interleaved-1f1b of 1p7b, 2560.802 ms: how its 28 layers lie on
16 or 32 stages is not said, and no layout tried comes closer than 3 % (2450.676 with that of
looped-bfs, where it is exact)."""


def makespan(name, model):
    """End of the last backward of a stage that has layers.

    One without is passed through in no time, but for the hops; their simulator does not wait for
    the last gradient to reach one at the start.
    """
    case = CASES[model]
    layers = (STAGES if name in ("gpipe", "1f1b") else CHUNKS)[model]
    heads = [0] * (len(layers) - 1) + [1]
    times = [
        (
            count * case.forward + head * case.head_forward,
            count * (case.forward + case.backward) + head * case.head_backward,
        )
        for count, head in zip(layers, heads, strict=True)
    ]
    server = ideal(RANKS, hop=case.hop)
    knobs = {"chunks": len(layers) // RANKS} if name not in ("gpipe", "1f1b") else {}
    plan = build(name, chain(len(layers), times=times), server, MICROBATCHES, **knobs)
    end = execute(plan, server).end
    first = 1 if layers[0] == 0 else 0
    own = [op.id for op in plan.ops if op.phase == "backward" and op.layers[0] >= first]
    return float(end[own].max())


@pytest.mark.parametrize(("name", "model", "expected"), MAKESPANS)
def test_makespan(name, model, expected):
    assert makespan(name, model) == pytest.approx(expected, rel=1e-6)
