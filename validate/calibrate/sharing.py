"""Which GPUs share a limit on their copies from and to host memory, and how large it is.

Copies of a set of GPUs that take longer together than all limits known so far explain must share
another one. The smallest such sets lie wholly inside the group that shares it (with a GPU from
outside, the others would be as slow without it), so their union is the group, and all of them show
the same capacity. The narrowest group is found first; then the search goes on with that one known.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Literal, NamedTuple

from validate.calibrate.copies import Paces
from validate.calibrate.fit import Flow
from validate.calibrate.fluid import Demand, times
from validate.measurements import Machine
from validate.plan import ins, outs

Way = Literal["in", "out", "both"]
"""Copies to GPUs, from GPUs, or both together."""

SLOWER = 0.05
"""Flows whose times add up to this much more than expected may share something, ..."""

NOISE = 0.02
"""... if that is five standard errors or more, where every time has this relative noise ..."""

ALONE = 4
"""... and the times alone come from as many measurements."""

ALIKE = 1.10
"""Capacities closer than this are taken as one: the range of a few dozen estimates with 1.5 %."""


class Group(NamedTuple):
    """GPUs that share a limit.

    Attributes
    ----------
    way : str
        Which of their copies count.
    gpus : frozenset of str
    capacity : float
        B/s.
    """

    way: Way
    gpus: frozenset[str]
    capacity: float


class _Pattern(NamedTuple):
    """Host copies that ran at once: GPU and direction of each, seconds per byte, and how often."""

    flows: tuple[tuple[str, Way], ...]
    paces: tuple[float, ...]
    count: int

    @property
    def gpus(self) -> frozenset[str]:
        return frozenset(gpu for gpu, _ in self.flows)


def groups(machine: Machine, paces: Paces) -> tuple[Group, ...]:
    """Groups of GPUs behind one limit, narrow ones first, those of copies in before out and both."""
    direction: dict[Flow, tuple[str, Way]] = {}
    direction |= {flow: (gpu, "in") for gpu, flow in ins(machine).items()}
    direction |= {flow: (gpu, "out") for gpu, flow in outs(machine).items()}
    alone = {direction[flow]: 1.0 / pace for flow, pace in paces.alone.items() if flow in direction}
    patterns = [
        _Pattern(
            tuple(sorted(direction[flow] for flow in found)),
            tuple(found[flow] for flow in sorted(found, key=direction.__getitem__)),
            paces.counts[flows],
        )
        for flows, found in paces.together.items()
        if len(flows) > 1 and flows <= direction.keys()
    ]
    patterns.sort()
    one_way = [x for x in patterns if len({way for _, way in x.flows}) == 1]
    found: list[Group] = []
    for way in ("in", "out"):
        found += _find(way, [x for x in one_way if x.flows[0][1] == way], alone, [])
    found = _same_both_ways(found)
    found += _find("both", [x for x in patterns if x not in one_way], alone, found)
    return tuple(found)


def _find(
    way: Way,
    patterns: Sequence[_Pattern],
    alone: Mapping[tuple[str, Way], float],
    known: Sequence[Group],
) -> list[Group]:
    """Groups of one way, given others."""
    found: list[Group] = []
    for _ in range(2 * len(alone)):  # a laminar family has fewer members
        slow = [x for x in patterns if _shares(x, alone, (*known, *found))]
        least = [x for x in slow if not any(set(y.flows) < set(x.flows) for y in slow)]
        if not least:
            break
        sizes = {x: _capacity(way, x, alone, (*known, *found)) for x in least}
        found = _with(found, _narrowest(way, sizes))
    return found


def _narrowest(way: Way, sizes: Mapping[_Pattern, float]) -> Group:
    """Join the sets that overlap and show the lowest capacity."""
    first = min(sizes, key=lambda x: (sizes[x], x))
    near = [x for x in sizes if sizes[x] <= sizes[first] * ALIKE]
    gpus, members = first.gpus, [first]
    while more := [x for x in near if x not in members and x.gpus & gpus]:
        members += more
        gpus = gpus.union(*(x.gpus for x in more))
    return Group(way, gpus, math.exp(fmean(math.log(sizes[x]) for x in members)))


def _with(found: Sequence[Group], new: Group) -> list[Group]:
    """Add a group; others of about its capacity that it overlaps are parts of it."""
    same = [
        x
        for x in found
        if x.gpus & new.gpus and max(x.capacity, new.capacity) <= ALIKE * min(x.capacity, new.capacity)
    ]
    gpus = new.gpus.union(*(x.gpus for x in same))
    capacity = math.exp(fmean(math.log(x.capacity) for x in (new, *same)))
    return [*(x for x in found if x not in same), Group(new.way, gpus, capacity)]


def _same_both_ways(found: Sequence[Group]) -> list[Group]:
    """Let groups of copies in and out that overlap and have about one capacity have one set."""
    result: list[Group] = []
    for group in found:
        twins = [
            x
            for x in found
            if x.way != group.way
            and x.gpus & group.gpus
            and max(x.capacity, group.capacity) <= ALIKE * min(x.capacity, group.capacity)
        ]
        result.append(group._replace(gpus=group.gpus.union(*(x.gpus for x in twins))))
    return result


def _expected(
    pattern: _Pattern, alone: Mapping[tuple[str, Way], float], known: Sequence[Group]
) -> float:
    """Sum of seconds per byte of all flows if nothing but the known groups limits them."""
    rates = [alone[flow] for flow in pattern.flows] + [x.capacity for x in known]
    first = len(pattern.flows)
    demands = [
        Demand(
            tuple(
                (str(k), 1.0)
                for k, group in enumerate(known)
                if gpu in group.gpus and group.way in (way, "both")
            ),
            (i,),
        )
        for i, (gpu, way) in enumerate(pattern.flows)
    ]
    of = {str(k): first + k for k in range(len(known))}
    return sum(times(demands, of, rates, slopes=False).seconds)


def slower(ratio: float, count: int, flows: int) -> bool:
    """Whether times that add up to ``ratio`` of what was expected are longer than noise explains.

    Parameters
    ----------
    ratio : float
        Sum of the times of all flows over the expected sum.
    count, flows : int
        How often the flows were measured together, and how many they are.
    """
    error = NOISE * math.sqrt((1.0 / count + 1.0 / ALONE) / flows)
    return ratio > 1.0 + max(SLOWER, 5.0 * error)


def _shares(
    pattern: _Pattern, alone: Mapping[tuple[str, Way], float], known: Sequence[Group]
) -> bool:
    ratio = sum(pattern.paces) / _expected(pattern, alone, known)
    return slower(ratio, pattern.count, len(pattern.flows))


def _capacity(
    way: Way,
    pattern: _Pattern,
    alone: Mapping[tuple[str, Way], float],
    known: Sequence[Group],
) -> float:
    """Capacity of one more group over exactly these GPUs that explains their times, by bisection."""
    high = sum(alone[flow] for flow in pattern.flows)
    low = high / 100.0
    for _ in range(30):
        middle = math.sqrt(low * high)
        more = (*known, Group(way, pattern.gpus, middle))
        if _expected(pattern, alone, more) > sum(pattern.paces):
            low = middle
        else:
            high = middle
    return math.sqrt(low * high)
