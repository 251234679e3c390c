"""Bandwidth sharing: who gets how much of every link, by max-min fairness.

A flow takes ``multiplicity`` bytes per second from each resource on its way for every byte per
second that it makes, and may have a cap of its own. Rates are max-min fair: no flow can get more
unless a flow that has no more than it gets less (Bertsekas, Gallager, Data Networks, 2nd edition
1992, section 6.5.2). They are found by progressive filling: all rates rise together until a
resource is full or a cap is reached; the flows that are held stay there, the others rise on.

Everything here is pure: flows and capacities in, rates out. Time is in ``sim.pool``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

Usage = tuple[tuple[str, float], ...]
"""Resource and multiplicity: B/s taken from it per B/s of the flow."""

TIE = 1e-12
"""Limits that differ by less than this share of each other count as equal, so that the order in
which resources are listed does not matter."""


class Use(NamedTuple):
    """What one kind of flow asks of the fabric.

    Attributes
    ----------
    usage : Usage
        Resources on its way.
    cap : float
        B/s that it never exceeds; ``inf`` if none.
    """

    usage: Usage
    cap: float


class Share(NamedTuple):
    """A flow as its neighbours see it: the resources that others can make scarce.

    Attributes
    ----------
    pool : int
        Flows of different pools never slow each other down.
    usage : Usage
        Resources that other flows of the pool may fill.
    limit : float
        Rate of the flow when it is alone, in B/s.
    """

    pool: int
    usage: Usage
    limit: float


def max_min(
    usages: Sequence[Usage], caps: Sequence[float], capacities: Mapping[str, float]
) -> list[float]:
    """Max-min fair rates.

    Parameters
    ----------
    usages : sequence of Usage
        Of each flow; no resource twice in one flow.
    caps : sequence of float
        B/s that each flow never exceeds; ``inf`` if none.
    capacities : mapping of str to float
        B/s of each resource, positive.

    Returns
    -------
    list of float
        B/s of each flow; ``inf`` for a flow without any limit.

    Examples
    --------
    Two flows through link ``a``, one of which must also pass the narrow link ``b``:

    >>> max_min([(("a", 1),), (("a", 1), ("b", 1))], [math.inf] * 2, {"a": 10.0, "b": 2.0})
    [8.0, 2.0]
    """
    kinds: dict[Use, int] = {}
    members = [kinds.setdefault(Use(*pair), len(kinds)) for pair in zip(usages, caps, strict=True)]
    counts = [0] * len(kinds)
    for kind in members:
        counts[kind] += 1
    names: dict[str, int] = {}
    indexed = [
        [(names.setdefault(r, len(names)), multiplicity) for r, multiplicity in use.usage]
        for use in kinds
    ]
    limits = [use.cap for use in kinds]
    rates = fill(indexed, limits, counts, [capacities[resource] for resource in names])
    return [rates[kind] for kind in members]


def fill(
    usages: Sequence[Sequence[tuple[int, float]]],
    caps: Sequence[float],
    counts: Sequence[int],
    capacities: Sequence[float],
) -> list[float]:
    """Progressive filling over kinds of flows, as `max_min` but with resources by number.

    Parameters
    ----------
    usages, caps : sequences
        Of each kind of flow, as in `max_min`.
    counts : sequence of int
        Flows of each kind.
    capacities : sequence of float
        B/s of each resource.

    Returns
    -------
    list of float
        B/s of one flow of each kind.
    """
    room = list(capacities)  # B/s that no held flow takes
    rising: dict[int, float] = {}  # multiplicity of flows that still rise
    users = [0] * len(room)  # kinds of flows that still rise
    for usage, count in zip(usages, counts, strict=True):
        for r, multiplicity in usage:
            rising[r] = rising.get(r, 0.0) + multiplicity * count
            users[r] += 1
    rates = [math.inf] * len(caps)
    free = list(range(len(caps)))
    level = 0.0
    while free:
        lowest = min([caps[i] for i in free])
        fills = {r: room[r] / load for r, load in rising.items()}
        if fills:
            lowest = min(lowest, *fills.values())
        # The level never falls, though rounding in ``room`` could say so.
        level = max(level, lowest)
        if level == math.inf:
            break
        edge = level * (1.0 + TIE)
        full = {r for r, height in fills.items() if height <= edge}
        still: list[int] = []
        for i in free:
            usage = usages[i]
            if caps[i] > edge and full.isdisjoint([r for r, _ in usage]):
                still.append(i)
                continue
            rates[i] = rate = min(level, caps[i])
            for r, multiplicity in usage:
                multiplicity *= counts[i]
                room[r] -= rate * multiplicity
                rising[r] -= multiplicity
                users[r] -= 1
                if not users[r]:
                    del rising[r]
        free = still
    return rates


def alone(use: Use, capacities: Mapping[str, float]) -> float:
    """Rate of a flow that has the fabric to itself, in B/s."""
    return min([use.cap] + [capacities[r] / multiplicity for r, multiplicity in use.usage])


def shares(
    owners: Sequence[int], uses: Sequence[Use], capacities: Mapping[str, float]
) -> list[Share]:
    """Split flows into pools that cannot influence each other.

    A resource that stays below its capacity whatever runs at the same time never holds a flow, so
    it is left out; what is left tells which flows belong together. Rates do not change by this
    (the tests compare them with those of the whole fabric), only the work to find them.

    Parameters
    ----------
    owners : sequence of int
        Of each flow; an owner (a stream) runs at most one of its flows at a time.
    uses : sequence of Use
        Of each flow.
    capacities : mapping of str to float
        B/s of each resource.
    """
    limits = [alone(use, capacities) for use in uses]
    through: dict[str, list[int]] = {}
    for i, use in enumerate(uses):
        for resource, _ in use.usage:
            through.setdefault(resource, []).append(i)
    loads = [dict(use.usage) for use in uses]
    # One by one: what is left out no longer vouches for others. The widest first, since they
    # join what could be apart.
    scarce = dict.fromkeys(sorted(through, key=lambda r: -len({owners[i] for i in through[r]})))
    for resource, flows in [(resource, through[resource]) for resource in scarce]:
        del scarce[resource]
        most = _most(resource, flows, owners, loads, limits, scarce, capacities)
        if most > capacities[resource] * (1.0 + TIE):
            scarce[resource] = None
    leader = list(range(len(uses)))

    def find(i: int) -> int:
        while leader[i] != i:
            leader[i] = leader[leader[i]]
            i = leader[i]
        return i

    for resource in scarce:
        first = through[resource][0]
        for i in through[resource]:
            low, high = sorted((find(first), find(i)))
            leader[high] = low
    return [
        Share(find(i), tuple(pair for pair in use.usage if pair[0] in scarce), limits[i])
        for i, use in enumerate(uses)
    ]


def _most(
    resource: str,
    flows: Sequence[int],
    owners: Sequence[int],
    loads: Sequence[Mapping[str, float]],
    limits: Sequence[float],
    kept: Mapping[str, None],
    capacities: Mapping[str, float],
) -> float:
    """Find an upper bound in B/s of what can ever be asked of ``resource`` at one time.

    Each owner asks for at most its largest flow alone; owners whose flows all pass some other
    resource that is ``kept`` ask together for no more than that one lets through.
    """
    asks: dict[int, float] = {}
    for i in flows:
        ask = limits[i] * loads[i][resource]
        asks[owners[i]] = max(asks.get(owners[i], 0.0), ask)
    total = 0.0
    others = list(dict.fromkeys(r for i in flows for r in loads[i] if r in kept))
    while others:
        best, saved, covered, bound = "", 0.0, [], 0.0
        for other in others:
            inside = [i for i in flows if other in loads[i] and owners[i] in asks]
            outside = {owners[i] for i in flows if other not in loads[i]}
            group = dict.fromkeys(owners[i] for i in inside if owners[i] not in outside)
            if len(group) < 2:
                continue
            ratio = max(loads[i][resource] / loads[i][other] for i in inside if owners[i] in group)
            gain = sum(asks[owner] for owner in group) - ratio * capacities[other]
            if gain > saved:
                best, saved, covered, bound = other, gain, list(group), ratio * capacities[other]
        if not best:
            break
        others.remove(best)
        total += bound
        for owner in covered:
            del asks[owner]
    return total + sum(asks.values())
