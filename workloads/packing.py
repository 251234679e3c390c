"""Cut a chain of layers into contiguous packs or stages."""

from __future__ import annotations

from collections.abc import Sequence

from workloads.tasks import Pack

_CLOSE = 1e-12
"""Packs whose largest costs differ by less than this share are equally good."""


def balance(costs: Sequence[float], count: int) -> tuple[Pack, ...]:
    """Cut a chain into ``count`` contiguous packs so that the largest cost is least.

    Parameters
    ----------
    costs : sequence of float
        Cost of each layer, not negative.
    count : int
        Number of packs, at most the number of layers.

    Returns
    -------
    tuple of Pack
        First and last layer of each pack.
    """
    low, high = max(costs), sum(costs)
    while high - low > _CLOSE * high:
        middle = (low + high) / 2
        if len(_greedy(costs, middle, count)) <= count:
            high = middle
        else:
            low = middle
    return tuple(_greedy(costs, high, count))


def _greedy(costs: Sequence[float], limit: float, count: int) -> list[Pack]:
    """Fill packs up to ``limit``, leaving at least one layer for each of ``count`` packs."""
    packs: list[Pack] = []
    first, total = 0, 0.0
    latest = len(costs) - count + 1  # where the next pack must begin
    for index, cost in enumerate(costs):
        total += cost
        if (total > limit or index >= latest) and index > first:
            packs.append((first, index - 1))
            first, total = index, cost
            latest += 1
    packs.append((first, len(costs) - 1))
    return packs


def equal(layers: int, size: int) -> tuple[Pack, ...]:
    """Packs of ``size`` layers each; the last one may be smaller."""
    return tuple((i, min(i + size, layers) - 1) for i in range(0, layers, size))
