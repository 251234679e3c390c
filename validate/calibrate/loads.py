"""The most that any measurement asked of each limit: no limit can be lower."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from validate.calibrate.fit import Seen
from validate.calibrate.fluid import rates
from validate.calibrate.parameters import Layout


def loads(layout: Layout, values: Mapping[str, float], seen: Sequence[Seen]) -> dict[str, float]:
    """B/s that passed each parameter's resource or cap while all flows of a record ran.

    Parameters
    ----------
    layout : Layout
    values : mapping of str to float
        By parameter, in its order.
    seen : sequence of Seen
    """
    names, numbers = list(values), list(values.values())
    most = dict.fromkeys(names, 0.0)
    for flows in dict.fromkeys((*record.flows, *record.background) for record in seen):
        demands = [layout.terms(flow).demand for flow in flows]
        found, _ = rates(demands, layout.of, numbers, slopes=False)
        total: dict[str, float] = {}
        for demand, rate in zip(demands, found, strict=True):
            for resource, count in demand.usage:
                total[resource] = total.get(resource, 0.0) + count * rate
            for cap in demand.caps:
                most[names[cap]] = max(most[names[cap]], rate)
        for resource, load in total.items():
            name = names[layout.of[resource]]
            most[name] = max(most[name], load)
    return most
