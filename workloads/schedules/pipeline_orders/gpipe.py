"""GPipe (arXiv 1811.06965): all forwards, then all backwards, oldest first."""

from __future__ import annotations

from workloads.schedules.pipeline_orders.actions import Action


def order(microbatches: int, ranks: int, rank: int, chunks: int) -> list[Action]:
    """Actions of one rank; the paper leaves the order of the backwards open, torch takes this."""
    forward = [Action("F", rank, j) for j in range(microbatches)]
    return forward + [Action("B", rank, j) for j in range(microbatches)]
