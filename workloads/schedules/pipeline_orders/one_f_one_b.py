"""One forward, one backward: 1F1B, interleaved, and with the backward in halves.

1F1B (PipeDream-Flush, arXiv 2006.09503) starts each backward as early as it can. Interleaved
(PTD-P, arXiv 2104.04473, section 2.2) gives rank r the stages r, r + p, r + 2p ... and takes the
microbatches in rounds of p. Zero bubble H1 (arXiv 2401.10241) is 1F1B whose weight halves come r
microbatches late, to fill the wait at the end; H2 warms up twice as long; torch's interleaved zero
bubble is H1 with several stages a rank.
"""

from __future__ import annotations

from workloads.schedules.pipeline_orders.actions import Action


def plain(microbatches: int, ranks: int, rank: int, chunks: int) -> list[Action]:
    """1F1B: warm-up of min(M, p - r - 1) forwards, then forward and backward in turn."""
    return _alternate(microbatches, ranks, rank, 1, ranks - rank - 1, None)


def interleaved(microbatches: int, ranks: int, rank: int, chunks: int) -> list[Action]:
    """Interleaved 1F1B: warm-up of 2 (p - r - 1) + (v - 1) p forwards of v stages."""
    warm = 2 * (ranks - rank - 1) + (chunks - 1) * ranks
    return _alternate(microbatches, ranks, rank, chunks, warm, None)


def zero_bubble_h1(microbatches: int, ranks: int, rank: int, chunks: int) -> list[Action]:
    """ZB-H1: 1F1B with each weight half r microbatches after its input half."""
    return _alternate(microbatches, ranks, rank, 1, ranks - rank - 1, rank)


def zero_bubble_h2(microbatches: int, ranks: int, rank: int, chunks: int) -> list[Action]:
    """ZB-H2: 2 (p - r) - 1 forwards in flight, each weight half 2 r microbatches late.

    The delay is derived: with it every rank holds 2p - 1 microbatches at most, and the span of no
    rank has a bubble when the three parts take equal time.
    """
    return _alternate(microbatches, ranks, rank, 1, 2 * (ranks - rank - 1), 2 * rank)


def interleaved_zero_bubble(microbatches: int, ranks: int, rank: int, chunks: int) -> list[Action]:
    """Torch's ZB1P: warm-up of p - r - 1 + (v - 1) p, each weight half r steps late."""
    warm = ranks - rank - 1 + (chunks - 1) * ranks
    return _alternate(microbatches, ranks, rank, chunks, warm, rank)


def _alternate(
    microbatches: int, ranks: int, rank: int, chunks: int, warm: int, late: int | None
) -> list[Action]:
    """Warm up with ``warm`` forwards, then forward and backward in turn, then the rest.

    ``late`` is how many backwards a weight half waits; None leaves the backward whole.
    """
    steps = _steps(microbatches, ranks, chunks)
    forward = [Action("F", chunk * ranks + rank, j) for chunk, j in steps]
    stages = [(chunks - 1 - chunk) * ranks + rank for chunk, _ in steps]
    backs = [(stage, j) for stage, (_, j) in zip(stages, steps, strict=True)]
    warm = min(warm, len(forward))
    found = forward[:warm]
    for done, (stage, j) in enumerate(backs):
        found += forward[warm + done : warm + done + 1]
        found.append(Action("B" if late is None else "I", stage, j))
        if late is not None and done >= late:
            found.append(Action("W", *backs[done - late]))
    if late:
        found += [Action("W", *back) for back in backs[-late:]]
    return found


def _steps(microbatches: int, ranks: int, chunks: int) -> list[tuple[int, int]]:
    """Chunk and microbatch of each forward: a round of p microbatches through every chunk."""
    size = microbatches if chunks == 1 else ranks
    return [
        (chunk, j)
        for first in range(0, microbatches, size)
        for chunk in range(chunks)
        for j in range(first, first + size)
    ]
