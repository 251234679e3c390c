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
    """Seconds per byte of each flow that ends, and the derivative by each parameter, if asked."""

    seconds: list[float]
    slopes: list[Vector]


def rates(
    demands: Sequence[Demand],
    of: Mapping[str, int],
    values: Sequence[float],
    *,
    slopes: bool = True,
) -> tuple[list[float], list[Vector]]:
    """Max-min fair rates in B/s by progressive filling, and derivatives by each parameter.

    Parameters as in `times`.
    """
    speed = [math.inf] * len(demands)
    slope = [np.zeros(len(values) if slopes else 0)] * len(demands)
    users: dict[str, list[tuple[int, float]]] = {}
    for i, demand in enumerate(demands):
        for name, count in demand.usage:
            users.setdefault(name, []).append((i, count))
    room = {name: values[of[name]] for name in users}
    load = {name: sum([count for _, count in found]) for name, found in users.items()}
    tops = [min([values[p] for p in demand.caps], default=math.inf) for demand in demands]
    rising = dict.fromkeys(range(len(demands)))
    while rising:
        levels = {name: room[name] / share for name, share in load.items() if share > SAME}
        level = min([*levels.values(), *[tops[i] for i in rising]])
        edge = level * (1.0 + SAME)
        # Which parameter holds each flow: its own cap, or the capacity of a full resource.
        frozen = {i: _cap(demands[i], values, slopes) for i in rising if tops[i] <= edge}
        for name, height in levels.items():
            if height <= edge:
                steep = _level(name, users[name], rising, slope, load, of, slopes)
                for i, _ in users[name]:
                    if i in rising:
                        frozen.setdefault(i, steep)
        for i, steep in frozen.items():
            speed[i], slope[i] = level, steep
            del rising[i]
            for name, count in demands[i].usage:
                room[name] -= level * count
                load[name] -= count
    return speed, slope


def _cap(demand: Demand, values: Sequence[float], slopes: bool) -> Vector:
    """Differentiate a rate that a cap holds."""
    found = np.zeros(len(values) if slopes else 0)
    if slopes:
        found[min(demand.caps, key=values.__getitem__)] = 1.0
    return found


def _level(
    name: str,
    users: Sequence[tuple[int, float]],
    rising: Mapping[int, None],
    slope: Sequence[Vector],
    load: Mapping[str, float],
    of: Mapping[str, int],
    slopes: bool,
) -> Vector:
    """Differentiate the level at which a resource is full: its capacity less what others took."""
    found = np.zeros(len(slope[0]))
    if slopes:
        found[of[name]] = 1.0
        for i, count in users:
            if i not in rising:
                found -= count * slope[i]
        found /= load[name]
    return found


def times(
    demands: Sequence[Demand],
    of: Mapping[str, int],
    values: Sequence[float],
    *,
    slopes: bool = True,
) -> Times:
    """Seconds per byte of flows of equal bytes that start together.

    Parameters
    ----------
    demands : sequence of Demand
    of : mapping of str to int
        Parameter that is the capacity of each resource.
    values : sequence of float
        Parameters in B/s.
    slopes : bool
        Whether derivatives are wanted.

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
    size = len(values) if slopes else 0
    left = dict.fromkeys(range(len(demands)), 1.0)
    change = {i: np.zeros(size) for i in left}
    now, moved = 0.0, np.zeros(size)
    ended: dict[int, tuple[float, Vector]] = {}
    todo = [i for i in left if demands[i].ends]
    while todo:
        active = list(left)
        speed, steep = rates([demands[i] for i in active], of, values, slopes=slopes)
        rate = dict(zip(active, speed, strict=True))
        first = min(todo, key=lambda i: left[i] / rate[i])
        step = left[first] / rate[first]
        now += step
        if slopes:
            slope = dict(zip(active, steep, strict=True))
            later = (change[first] - step * slope[first]) / rate[first]
            moved = moved + later
            for i in todo:
                change[i] = change[i] - step * slope[i] - rate[i] * later
        for i in todo:
            left[i] -= step * rate[i]
            if left[i] <= SAME:
                ended[i] = (now, moved)
                del left[i]
        todo = [i for i in todo if i in left]
    order = sorted(ended)
    return Times([ended[i][0] for i in order], [ended[i][1] for i in order])
