"""Rings over a group of GPUs: the order with the best bottleneck, and further rings beside it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from sim.fabric import Usage

if TYPE_CHECKING:
    from hwmodels.server import Server

BUDGET = 20_000
"""Partial rings looked at before the best ring so far is taken; enough to be exact up to eight
GPUs, where there are 7! = 5040 orders."""

SHARE = 1 / 64
"""A further ring must add this share of the first one's rate, else the search ends (our choice)."""


class Hop(NamedTuple):
    """One GPU-GPU path.

    Attributes
    ----------
    usage : Usage
        Resources on the way.
    latency : float
        Seconds.
    cap : float
        B/s that one copy reaches at most.
    kind : str
        As in ``Route``.
    """

    usage: Usage
    latency: float
    cap: float
    kind: str


class Ring(NamedTuple):
    """GPUs in ring order.

    Attributes
    ----------
    order : tuple of str
        Each sends to the next, the last one to the first.
    rate : float
        B/s over each edge when the server is otherwise idle.
    """

    order: tuple[str, ...]
    rate: float


def hop(server: Server, source: str, target: str) -> Hop:
    """Path of one edge of a collective."""
    route = server.route(source, target)
    return Hop(tuple(route.usage), route.latency, route.cap, route.kind)


def merged(usages: Sequence[tuple[Usage, float]]) -> Usage:
    """Add up usages, each times its weight; sorted by resource."""
    total: dict[str, float] = {}
    for usage, weight in usages:
        for resource, multiplicity in usage:
            total[resource] = total.get(resource, 0.0) + multiplicity * weight
    return tuple(sorted(total.items()))


def edges(order: Sequence[str]) -> list[tuple[str, str]]:
    """Neighbours in a ring."""
    return list(zip(order, [*order[1:], *order[:1]], strict=True))


def rings(group: Sequence[str], server: Server) -> tuple[Ring, ...]:
    """Rings to run at the same time, best first.

    The first ring has the best bottleneck of all orders. If it runs over NVLink alone, further
    rings are added as long as the NVLinks that are left over carry one (so NCCL lays several
    channels over a mesh of NVLinks: NVIDIA/nccl, src/graph/search.cc). Behind an NVSwitch, or
    over PCIe, there is one ring.

    Parameters
    ----------
    group : sequence of str
        At least two GPUs; the first one is the first of each ring.
    server : Server

    Returns
    -------
    tuple of Ring
    """
    hops = {(a, b): hop(server, a, b) for a in group for b in group if a != b}
    left = {resource: server.resources[resource] for h in hops.values() for resource, _ in h.usage}
    found: list[Ring] = []
    while True:
        ring = _best(group, hops, left)
        if found and ring.rate <= SHARE * found[0].rate:
            return tuple(found)
        found.append(ring)
        if ring.rate == math.inf or any(hops[e].kind != "nvlink" for e in edges(ring.order)):
            return tuple(found)
        hops = {e: h if h.kind == "nvlink" else h._replace(cap=0.0) for e, h in hops.items()}
        usage = merged([(hops[edge].usage, 1.0) for edge in edges(ring.order)])
        for resource, multiplicity in usage:
            left[resource] = max(left[resource] - multiplicity * ring.rate, 0.0)
        if any(hops[edge].cap <= ring.rate for edge in edges(ring.order)):
            return tuple(found)  # a cap per copy, not a link, is the limit


def _best(
    group: Sequence[str], hops: Mapping[tuple[str, str], Hop], left: Mapping[str, float]
) -> Ring:
    """Depth-first search for the ring with the best bottleneck; fast and near hops first."""
    speed = {edge: _rate(h.usage, left, h.cap) for edge, h in hops.items()}
    ranked = {
        a: sorted(
            (b for b in group if b != a),
            key=lambda b: (-speed[a, b], hops[a, b].latency, group.index(b)),
        )
        for a in group
    }
    # No ring is faster than the best way into or out of the worst connected GPU.
    bound = min(
        min(max(speed[a, b] for b in group if b != a), max(speed[b, a] for b in group if b != a))
        for a in group
    )
    best = Ring((), -1.0)
    looked = 0
    path = [group[0]]
    load: dict[str, float] = {}

    def rate_with(usage: Usage, rate: float) -> float:
        for resource, multiplicity in usage:
            rate = min(rate, left[resource] / (load.get(resource, 0.0) + multiplicity))
        return rate

    def add(usage: Usage, sign: float) -> None:
        for resource, multiplicity in usage:
            load[resource] = load.get(resource, 0.0) + sign * multiplicity

    def extend(rate: float) -> None:
        nonlocal best, looked
        here = path[-1]
        if len(path) == len(group):
            closing = hops[here, path[0]]
            rate = rate_with(closing.usage, min(rate, closing.cap))
            if rate > best.rate:
                best = Ring(tuple(path), rate)
            return
        for following in ranked[here]:
            if following in path:
                continue
            if best.rate >= bound or (best.order and looked >= BUDGET):
                return
            looked += 1
            step = hops[here, following]
            reached = rate_with(step.usage, min(rate, step.cap))
            if reached > best.rate:
                add(step.usage, 1.0)
                path.append(following)
                extend(reached)
                path.pop()
                add(step.usage, -1.0)

    extend(math.inf)
    return best


def _rate(usage: Usage, capacities: Mapping[str, float], cap: float) -> float:
    return min([cap] + [capacities[r] / multiplicity for r, multiplicity in usage])
