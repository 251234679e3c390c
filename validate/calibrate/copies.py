"""Records of copies, checked and sorted: latency and pace of every set of flows."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean, median
from typing import NamedTuple

from hwmodels.errors import InvalidInput
from hwmodels.link import HOST_LATENCY
from hwmodels.names import suggestion
from validate.calibrate.fit import Flow, Seen
from validate.measurements import Copies, Machine, Measurements

SMALL_BYTES = 64 * 2**10
"""Copies up to this size tell the latency."""

LARGE_BYTES = 16 * 2**20
"""Copies from this size on tell the bandwidth."""


class Paces(NamedTuple):
    """First look at the copies.

    Attributes
    ----------
    alone : mapping of (str, str) to float
        Seconds per byte of each flow that was measured alone.
    together : mapping of frozenset to mapping
        Seconds per byte of each flow of every set that was measured at once (one flow too).
    counts : mapping of frozenset to int
        Sizes at which each set was measured.
    latency : mapping of (str, str) to float
        Seconds of the smallest copies of each flow.
    """

    alone: Mapping[Flow, float]
    together: Mapping[frozenset[Flow], Mapping[Flow, float]]
    counts: Mapping[frozenset[Flow], int]
    latency: Mapping[Flow, float]


def usable(measured: Measurements) -> tuple[Copies, ...]:
    """Check all copies, and keep those with page-locked memory; all, where there are none.

    Raises
    ------
    InvalidInput
        If a record contradicts itself or the machine; says which and why.
    """
    known = (*measured.machine.gpus, *measured.machine.hosts)
    for number, record in enumerate(measured.copies):
        _check(record, f"copies.{number}", known)
    pinned = tuple(record for record in measured.copies if record.pinned)
    return pinned or measured.copies


def _check(record: Copies, where: str, known: Sequence[str]) -> None:
    if len(record.seconds) != len(record.flows) or not record.flows:
        raise InvalidInput(
            f"{where} has {len(record.seconds)} times for {len(record.flows)} flows; "
            "it needs one time for each of at least one flow."
        )
    for place in (end for flow in record.flows for end in flow):
        if place not in known:
            raise InvalidInput(
                f"{where} names {place!r}, which the machine does not have"
                f"{suggestion(place, known)}"
            )
    if record.nbytes <= 0 or not all(0.0 < t < math.inf for t in record.seconds):
        raise InvalidInput(f"{where}: bytes and seconds must be greater than zero.")
    if any(src == dst for src, dst in record.flows) or len(set(record.flows)) < len(record.flows):
        raise InvalidInput(f"{where}: each flow leads from one place to another, and stands once.")


def seen(records: Iterable[Copies]) -> list[Seen]:
    """Every time that was measured, in an order that does not depend on that of the records."""
    found: list[Seen] = []
    for record in records:
        pairs = sorted(zip(record.flows, record.seconds, strict=True))
        flows = tuple(flow for flow, _ in pairs)
        found += [Seen(flows, record.nbytes, i, t) for i, (_, t) in enumerate(pairs)]
    return sorted(found)


def paces(machine: Machine, records: Iterable[Copies]) -> Paces:
    """Latency and pace of everything that was measured.

    Raises
    ------
    InvalidInput
        If there is no large copy to or from some GPU alone.
    """
    small: dict[Flow, list[float]] = defaultdict(list)
    large: dict[frozenset[Flow], dict[Flow, list[float]]] = defaultdict(lambda: defaultdict(list))
    rows = seen(records)
    for record in rows:
        if len(record.flows) == 1 and record.nbytes <= SMALL_BYTES:
            small[record.flows[0]].append(record.seconds)
    latency = {flow: median(times) for flow, times in small.items()}
    for record in rows:
        if record.nbytes >= LARGE_BYTES:
            flow = record.flows[record.which]
            took = record.seconds - latency.get(flow, HOST_LATENCY)
            if took > 0:
                large[frozenset(record.flows)][flow].append(math.log(took / record.nbytes))
    together = {
        flows: {flow: math.exp(fmean(found)) for flow, found in times.items()}
        for flows, times in large.items()
        if len(times) == len(flows)
    }
    alone = {
        next(iter(f)): next(iter(times.values())) for f, times in together.items() if len(f) == 1
    }
    for gpu, host in zip(machine.gpus, machine.near, strict=True):
        for flow in ((host, gpu), (gpu, host)):
            if flow not in alone:
                raise InvalidInput(
                    f"Copies from {flow[0]} to {flow[1]} alone of {LARGE_BYTES // 2**20} MiB or "
                    "more were not measured, so the bandwidth is unknown; measure them."
                )
    counts = {flows: min(map(len, large[flows].values())) for flows in together}
    return Paces(alone, together, counts, latency)
