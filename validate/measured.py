"""A measured run as the same `Run` that the simulator returns."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from hwmodels.server import Server
from sim import memory
from sim.run import Run, simulate
from workloads.schedule import Schedule

Floats = NDArray[np.float64]


def measured_run(schedule: Schedule, server: Server, start: Floats, end: Floats) -> Run:
    """Make a Run of measured times.

    Every table, picture and trace then works on it. What it says of links is the measured times
    on the server's routes; bounds and causes are those of the server as described.

    Parameters
    ----------
    schedule : Schedule
    server : Server
        Describes the machine that was measured.
    start, end : array of float
        Seconds by op; operations without a stream may be NaN.

    Returns
    -------
    Run
    """
    start, end, ready, last = _waits(schedule, start, end)
    sequence = memory.order(start, end)
    ledger = memory.Ledger(schedule)
    ledger.read([op.allocs for op in schedule.ops], [op.frees for op in schedule.ops])
    timeline = replace(
        simulate(schedule, server).timeline,
        start=start,
        end=end,
        ready=ready,
        last_dependency=last,
        sequence=sequence,
        peak=ledger.peaks(sequence, schedule.capacity.__getitem__),
    )
    return Run(schedule, server, timeline)


def _waits(
    schedule: Schedule, start: Floats, end: Floats
) -> tuple[Floats, Floats, Floats, NDArray[np.int64]]:
    """When each operation was ready and what it waited for last; times of those without a stream.

    A start is never before what it waits for: clocks of different streams differ by microseconds.
    """
    began, ended = start.tolist(), end.tolist()
    ready, last = [0.0] * len(began), [-1] * len(began)
    previous: dict[str, int] = {}
    for op in schedule.ops:
        waits = [*op.after, previous[op.stream]] if op.stream in previous else list(op.after)
        if waits:
            last[op.id] = max(waits, key=ended.__getitem__)
            ready[op.id] = ended[last[op.id]]
        if op.stream:
            previous[op.stream] = op.id
            began[op.id] = max(began[op.id], ready[op.id])
            ended[op.id] = max(ended[op.id], began[op.id])
        else:
            began[op.id] = ended[op.id] = ready[op.id]
    return np.array(began), np.array(ended), np.array(ready), np.array(last, np.int64)
