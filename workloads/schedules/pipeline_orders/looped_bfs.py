"""Looped breadth-first pipeline (arXiv 2211.05953): each stage runs all microbatches in one go.

Rank r holds stages r, r + p, r + 2p ...; all forwards, then all backwards, newest first.
"""

from __future__ import annotations

from workloads.schedules.pipeline_orders.actions import Action


def order(microbatches: int, ranks: int, rank: int, chunks: int) -> list[Action]:
    """Actions of one rank."""
    stages = range(rank, ranks * chunks, ranks)
    found = [Action("F", stage, j) for stage in stages for j in range(microbatches)]
    for stage in reversed(stages):
        found += [Action("B", stage, j) for j in reversed(range(microbatches))]
    return found
