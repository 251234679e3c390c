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

LARGE_SET = 4
"""Sets of so many GPUs or more are tried without each of them."""

BISECTIONS = 16
"""Halvings of a range of two decades: to 1e-4."""

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
    repeats: int

    @property
    def gpus(self) -> frozenset[str]:
        return frozenset(gpu for gpu, _ in self.flows)


def groups(machine: Machine, paces: Paces) -> tuple[Group, ...]:
    """Find groups of GPUs behind one limit: of copies in, then out, then both; narrow first."""
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
    """Find groups of one way, given others."""
    found: list[Group] = []
    for _ in range(2 * len(alone)):  # a laminar family has fewer members
        slow = [x for x in patterns if _shares(x, alone, (*known, *found))]
        least = [x for x in slow if not any(set(y.flows) < set(x.flows) for y in slow)]
        if not least:
            break
        inside = [_inside(Group(way, x.gpus, 0.0), x, alone, (*known, *found)) for x in least]
        found = _with(found, _narrowest(inside))
    return found


def _narrowest(sets: Sequence[Group]) -> Group:
    """Join the sets that overlap and show the lowest capacity."""
    first = min(sets, key=lambda x: (x.capacity, sorted(x.gpus)))
    near = [x for x in sets if x.capacity <= first.capacity * ALIKE]
    gpus, members = first.gpus, [first]
    while more := [x for x in near if x not in members and x.gpus & gpus]:
        members += more
        gpus = gpus.union(*(x.gpus for x in more))
    return Group(first.way, gpus, math.exp(fmean(math.log(x.capacity) for x in members)))


def _inside(
    group: Group,
    pattern: _Pattern,
    alone: Mapping[tuple[str, Way], float],
    known: Sequence[Group],
) -> Group:
    """Capacity of a group, without GPUs of large sets whose times are better explained outside.

    A large set may be the smallest that is slow beyond doubt because of two limits, each of which
    is in doubt by itself.
    """
    best = _sized(group, pattern, alone, known)
    while len(best.gpus) >= LARGE_SET:
        tried = [
            _sized(best._replace(gpus=best.gpus - {gpu}), pattern, alone, known)
            for gpu in sorted(best.gpus)
        ]
        off = [_misfit(pattern, alone, (*known, x)) for x in tried]
        if _misfit(pattern, alone, (*known, best)) - min(off) < 25.0 * NOISE**2 * (
            1.0 + 1.0 / ALONE
        ):
            break  # less than five standard errors of one time
        best = tried[off.index(min(off))]
    return best


def _misfit(
    pattern: _Pattern, alone: Mapping[tuple[str, Way], float], known: Sequence[Group]
) -> float:
    expected = _expected(pattern, alone, known)
    return sum(math.log(a / b) ** 2 for a, b in zip(pattern.paces, expected, strict=True))


def _with(found: Sequence[Group], new: Group) -> list[Group]:
    """Add a group; others of about its capacity that it overlaps are parts of it."""
    same = [
        x
        for x in found
        if x.gpus & new.gpus
        and max(x.capacity, new.capacity) <= ALIKE * min(x.capacity, new.capacity)
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
) -> list[float]:
    """Seconds per byte of each flow if nothing but the known groups limits them."""
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
    return times(demands, of, rates, slopes=False).seconds


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
    ratio = sum(pattern.paces) / sum(_expected(pattern, alone, known))
    return slower(ratio, pattern.repeats, len(pattern.flows))


def _sized(
    group: Group,
    pattern: _Pattern,
    alone: Mapping[tuple[str, Way], float],
    known: Sequence[Group],
) -> Group:
    """Give a group the capacity that explains the sum of a pattern's times, by bisection."""
    high = sum(alone[flow] for flow in pattern.flows)
    low = high / 100.0
    for _ in range(BISECTIONS):
        middle = math.sqrt(low * high)
        if sum(_expected(pattern, alone, (*known, group._replace(capacity=middle)))) > sum(
            pattern.paces
        ):
            low = middle
        else:
            high = middle
    return group._replace(capacity=math.sqrt(low * high))
