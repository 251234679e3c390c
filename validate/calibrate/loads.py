"""Lower bounds of limits that no measurement reached."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from validate.calibrate.fit import Seen, predict
from validate.calibrate.fluid import rates
from validate.calibrate.parameters import Layout


def loads(layout: Layout, values: Mapping[str, float], seen: Sequence[Seen]) -> dict[str, float]:
    """B/s that passed each parameter's resource or cap while all flows of a record ran.

    Flows in the background do not count, since nobody timed them.

    Parameters
    ----------
    layout : Layout
    values : mapping of str to float
        By parameter, in its order.
    seen : sequence of Seen
    """
    names, numbers = list(values), list(values.values())
    most = dict.fromkeys(names, 0.0)
    for flows, others in dict.fromkeys((record.flows, record.background) for record in seen):
        demands = [layout.terms(flow).demand for flow in (*flows, *others)]
        found, _ = rates(demands, layout.of, numbers, slopes=False)
        total: dict[str, float] = {}
        for demand, rate in zip(demands[: len(flows)], found, strict=False):
            for resource, count in demand.usage:
                total[resource] = total.get(resource, 0.0) + count * rate
            for cap in demand.caps:
                most[names[cap]] = max(most[names[cap]], rate)
        for resource, load in total.items():
            name = names[layout.of[resource]]
            most[name] = max(most[name], load)
    return most


UNCHANGED = 0.01
"""Times that differ by less than this share are the same."""

HALVINGS = 12
"""Of a range of at most three decades: to 0.2 %."""


def least(
    layout: Layout, values: Mapping[str, float], name: str, low: float, seen: Sequence[Seen]
) -> float:
    """Lowest value of one parameter from ``low`` on with which all records take as long as now."""
    numbers, high = np.array(list(values.values())), values[name]
    now, _ = predict(layout, seen, numbers, slopes=False)
    for _ in range(HALVINGS):
        middle = math.sqrt(low * high)
        numbers[layout.number[name]] = middle
        then, _ = predict(layout, seen, numbers, slopes=False)
        if np.max(np.abs(np.log(then / now))) < UNCHANGED:
            high = middle
        else:
            low = middle
    return high
