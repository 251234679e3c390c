"""Streams of a run as people look at them: by device, with names, the bars of each in order."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sim.trace import home
from workloads.schedule import Op, Schedule

if TYPE_CHECKING:
    from sim.engine import Timeline

Floats = NDArray[np.float64]


class Row(NamedTuple):
    """One stream of a timeline: where it belongs, its name, and its bars.

    Attributes
    ----------
    device, name : str
        Group and label.
    phases : tuple of str
        Key of ``PHASES`` of each bar.
    ops : array of int
        Operation of each bar.
    start, end : array of float
        Seconds.
    """

    device: str
    name: str
    phases: tuple[str, ...]
    ops: NDArray[np.int64]
    start: Floats
    end: Floats


def rows(schedule: Schedule, gpus: tuple[str, ...], timeline: Timeline) -> list[Row]:
    """Streams of a run by device: compute, swaps, peer copies, collectives of members, host."""
    ops_of: dict[tuple[str, str], list[Op]] = {}
    for op in schedule.ops:
        if op.kind != "free":
            for device in op.group or (home(op, gpus),):
                ops_of.setdefault((device, op.stream), []).append(op)
    order = {device: at for at, device in enumerate(schedule.capacity)}
    found: list[tuple[int, int, str, Row]] = []
    for (device, stream), ops in ops_of.items():
        ids = np.array([op.id for op in ops], dtype=np.int64)
        phases = tuple("collective" if op.kind == "collective" else op.phase for op in ops)
        rank, name = _stream(ops[0])
        row = Row(device, name, phases, ids, timeline.start[ids], timeline.end[ids])
        found.append((order[device], rank, stream, row))
    return [row for *_, row in sorted(found, key=lambda entry: entry[:3])]


def _stream(op: Op) -> tuple[int, str]:
    """Place of a stream among those of its device, and its name, by its first operation."""
    if op.kind == "copy":
        swaps = {"swap_in": (1, "swap in"), "swap_out": (2, "swap out")}
        return swaps.get(op.phase, (3, f"to {op.peer}"))
    if op.kind == "collective":
        return 4, "collective"
    if op.kind == "host":
        return 5, "for " + op.stream.removeprefix(op.device + ".")
    return 0, "compute"
