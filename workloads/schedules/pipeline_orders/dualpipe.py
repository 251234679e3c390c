"""DualPipe (arXiv 2412.19437) and DualPipeV: two streams of microbatches meet on every rank.

In DualPipe half of the microbatches enter at each end, so rank r of p holds the stages r and
p - 1 - r, and every stage lies on two ranks. DualPipeV is one half of it folded up: p ranks hold
2p stages in a V. In the middle a forward of one stream and a backward of the other run as one.
The order is that of the authors' code (github.com/deepseek-ai/DualPipe), whose phases these are.
A pair takes as long as its two parts; that overlap makes it faster is not modelled (our choice).
"""

from __future__ import annotations

from workloads.schedules.pipeline_orders.actions import Action, Kind

_Step = tuple[Kind, int, bool]
"""Kind, stream (0: enters at this end), and whether it is joined to the next step."""

_F0: _Step = ("F", 0, False)
_F1: _Step = ("F", 1, False)
_B0: _Step = ("B", 0, False)
_B1: _Step = ("B", 1, False)
_I0: _Step = ("I", 0, False)
_I1: _Step = ("I", 1, False)
_W: _Step = ("W", -1, False)
"""A weight half: of whichever stream has waited longest."""
_PAIR01: list[_Step] = [("F", 0, True), _B1]
_PAIR10: list[_Step] = [("F", 1, True), _B0]


def two_ways(microbatches: int, ranks: int, rank: int, chunks: int) -> list[Action]:
    """Actions of one rank of DualPipe; the first half of the microbatches enters at rank 0."""
    half, near = microbatches // 2, min(rank, ranks - 1 - rank)
    ways = (0, 1) if near == rank else (1, 0)
    stages = (rank, ranks - 1 - rank)
    return [
        Action(kind, stages[ways[stream]], ways[stream] * half + j, joined)
        for (kind, stream, joined), j in _numbered(half, ranks // 2, near)
    ]


def folded(microbatches: int, ranks: int, rank: int, chunks: int) -> list[Action]:
    """Actions of one rank of DualPipeV, which holds the stages r and 2p - 1 - r."""
    stages = (rank, 2 * ranks - 1 - rank)
    return [
        Action(kind, stages[stream], j, joined)
        for (kind, stream, joined), j in _numbered(microbatches, ranks, rank)
    ]


def _numbered(count: int, ranks: int, rank: int) -> list[tuple[_Step, int]]:
    """Give each step the microbatch of its stream; weight halves follow their input halves."""
    done = {("F", 0): 0, ("F", 1): 0, ("B", 0): 0, ("B", 1): 0}
    late: list[tuple[int, int]] = []
    found: list[tuple[_Step, int]] = []
    for step in _steps(count, ranks, rank):
        kind, stream, _ = step
        if kind == "W":
            stream, j = late.pop(0)
            found.append((("W", stream, False), j))
            continue
        key = ("F" if kind == "F" else "B", stream)
        if kind == "I":
            late.append((stream, done[key]))
        found.append((step, done[key]))
        done[key] += 1
    return found


def _steps(count: int, ranks: int, rank: int) -> list[_Step]:
    """Eight phases of a rank; r ranks from its end, p to the middle, ``count`` of each stream."""
    after = ranks - rank - 1
    middle = (_PAIR01 + _PAIR10) * (count - 2 * ranks + rank + 1)
    if after == 0:
        middle[:2] = [_F0, _B1]  # the authors leave this pair apart: the bubble is smaller
    return [
        *[_F0] * (2 * after),
        *[_F0, _F1] * (rank + 1),
        *[_I1, _W, _F1] * after,
        *middle,
        *[_B1, *_PAIR10] * after,
        *_drain(rank),
        *[_W, _I0] * after,
        *[_W] * (rank + 1),
    ]


def _drain(rank: int) -> list[_Step]:
    """Backwards of both streams in turn; from the middle on in halves, to fill the end."""
    steps = [_B1, _B0] * (rank + 1)
    halves = [_I1, _I0] * (rank + 1)
    return steps[: rank + 1] + halves[rank + 1 :]
