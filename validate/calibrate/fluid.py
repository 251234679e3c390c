"""Times of copies that start together, and how they change with each limit.

The same max-min fair sharing as in ``sim.fabric``, here for a handful of flows and with derivatives
(forward mode, by hand), which a fit needs. The tests compare it with the simulator.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]

SAME = 1e-12
"""Levels closer than this share of each other are reached together."""


class Demand(NamedTuple):
    """What a flow takes.

    Attributes
    ----------
    usage : tuple of (str, float)
        Resources, and B/s taken from each for each B/s of the flow.
    caps : tuple of int
        Parameters that the flow's rate never exceeds.
    ends : bool
        Whether it ends when its bytes have passed; a flow that does not runs all the time.
    """

    usage: tuple[tuple[str, float], ...]
    caps: tuple[int, ...] = ()
    ends: bool = True


class Times(NamedTuple):
    """Seconds per byte of each flow that ends, and the derivative by each parameter."""

    seconds: list[float]
    slopes: list[Vector]


def rates(
    demands: Sequence[Demand], of: Mapping[str, int], values: Sequence[float]
) -> tuple[list[float], list[Vector]]:
    """Max-min fair rates in B/s by progressive filling, and derivatives by each parameter.

    Parameters as in `times`.
    """
    unit = np.eye(len(values))
    speed = [math.inf] * len(demands)
    slopes = [np.zeros(0)] * len(demands)
    users: dict[str, list[tuple[int, float]]] = {}
    for i, demand in enumerate(demands):
        for name, count in demand.usage:
            users.setdefault(name, []).append((i, count))
    room = {name: values[of[name]] for name in users}
    load = {name: sum(count for _, count in found) for name, found in users.items()}
    rising = set(range(len(demands)))
    while rising:
        levels = {name: room[name] / load[name] for name in load if load[name] > SAME}
        tops = {i: min((values[p] for p in demands[i].caps), default=math.inf) for i in rising}
        level = min([*levels.values(), *tops.values()])
        edge = level * (1.0 + SAME)
        frozen: dict[int, Vector] = {}
        for i in sorted(rising):
            if tops[i] <= edge:
                frozen[i] = unit[min(demands[i].caps, key=values.__getitem__)]
        for name, height in levels.items():
            if height <= edge:
                slope = unit[of[name]].copy()
                for i, count in users[name]:
                    if i not in rising:
                        slope -= count * slopes[i]
                slope /= load[name]
                for i, _ in users[name]:
                    if i in rising:
                        frozen.setdefault(i, slope)
        for i, slope in frozen.items():
            speed[i], slopes[i] = level, slope
            rising.discard(i)
            for name, count in demands[i].usage:
                room[name] -= level * count
                load[name] -= count
    return speed, slopes


def times(demands: Sequence[Demand], of: Mapping[str, int], values: Sequence[float]) -> Times:
    """Seconds per byte of flows of equal bytes that start together.

    Parameters
    ----------
    demands : sequence of Demand
    of : mapping of str to int
        Parameter that is the capacity of each resource.
    values : sequence of float
        Parameters in B/s.

    Returns
    -------
    Times
        Of the demands that end, in their order.

    Examples
    --------
    Two copies share 10 B/s until the one that is capped at 2 B/s is alone:

    >>> two = [Demand((("bus", 1.0),)), Demand((("bus", 1.0),), (1,))]
    >>> times(two, {"bus": 0}, [10.0, 2.0]).seconds
    [0.125, 0.5]
    """
    left = dict.fromkeys(range(len(demands)), 1.0)
    change = {i: np.zeros(len(values)) for i in left}
    now, moved = 0.0, np.zeros(len(values))
    ended: dict[int, tuple[float, Vector]] = {}
    while any(demands[i].ends for i in left):
        active = list(left)
        found, slopes = rates([demands[i] for i in active], of, values)
        rate, slope = dict(zip(active, found, strict=True)), dict(zip(active, slopes, strict=True))
        todo = [i for i in active if demands[i].ends]
        first = min(todo, key=lambda i: left[i] / rate[i])
        step = left[first] / rate[first]
        steepness = (change[first] - step * slope[first]) / rate[first]
        now, moved = now + step, moved + steepness
        for i in todo:
            left[i] -= step * rate[i]
            change[i] = change[i] - step * slope[i] - rate[i] * steepness
            if left[i] <= SAME:
                ended[i] = (now, moved)
                del left[i]
    order = sorted(ended)
    return Times([ended[i][0] for i in order], [ended[i][1] for i in order])
