"""What moved over which link, and when, from the records of a run."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from workloads.schedule import Op, Schedule, Tensor

if TYPE_CHECKING:
    from sim.engine import Timeline

Floats = NDArray[np.float64]


class Flows(NamedTuple):
    """All data movement of a run over one resource, one entry per operation.

    Attributes
    ----------
    start, end : array of float
        Seconds between which the data moved (latency is over at ``start``).
    bytes : array of float
        Bytes that crossed the resource (a staged copy crosses host memory twice).
    """

    start: Floats
    end: Floats
    bytes: Floats


class Load(NamedTuple):
    """Use of one resource over time.

    Attributes
    ----------
    times : array of float
        Seconds, increasing.
    rates : array of float
        B/s between ``times[i]`` and ``times[i + 1]``, each flow counted at its mean rate.
    moved : array of float
        Bytes that crossed before ``times[i]``.
    """

    times: Floats
    rates: Floats
    moved: Floats

    def between(self, start: float, end: float) -> float:
        """Bytes that crossed between two times in seconds."""
        if not len(self.times):
            return 0.0
        low, high = np.interp((start, end), self.times, self.moved)
        return float(high - low)


def flows(schedule: Schedule, timeline: Timeline) -> dict[str, Flows]:
    """All data movement by resource, in order of the schedule; unused resources are left out."""
    total = len(schedule.ops)
    nbytes = np.fromiter((op.nbytes for op in schedule.ops), np.float64, total)
    order = np.argsort(timeline.route, kind="stable")
    edges = np.searchsorted(timeline.route[order], np.arange(len(timeline.routes) + 1))
    parts: dict[str, list[tuple[Floats, Floats, Floats]]] = {}
    for path, first, stop in zip(timeline.routes, edges[:-1], edges[1:], strict=True):
        ids = order[first:stop]
        end = timeline.end[ids]
        start = np.minimum(timeline.start[ids] + path.latency, end)
        for name, times in path.usage:
            parts.setdefault(name, []).append((start, end, nbytes[ids] * times))
    return {
        name: Flows(*(np.concatenate(column) for column in zip(*found, strict=True)))
        for name, found in parts.items()
    }


def busy_seconds(flows: Flows) -> float:
    """Seconds during which at least one flow moved data: the union of their intervals."""
    if not len(flows.start):
        return 0.0
    order = np.argsort(flows.start, kind="stable")
    start, end = flows.start[order], flows.end[order]
    reach = np.maximum.accumulate(end)
    fresh = np.concatenate(([True], start[1:] > reach[:-1]))
    first = np.flatnonzero(fresh)
    stops = np.append(reach[first[1:] - 1], reach[-1])
    return float((stops - start[first]).sum())


def load(flows: Flows) -> Load:
    """Add up flows, each at its mean rate, to the use of the resource over time."""
    lasting = flows.end > flows.start
    start, end = flows.start[lasting], flows.end[lasting]
    rate = flows.bytes[lasting] / (end - start)
    at = np.concatenate((start, end))
    change = np.concatenate((rate, -rate))
    times, inverse = np.unique(at, return_inverse=True)
    steps = np.zeros(len(times))
    np.add.at(steps, inverse, change)
    rates = np.maximum(np.cumsum(steps), 0.0)  # rounding may leave -1e-7 B/s
    moved = np.concatenate(([0.0], np.cumsum(rates[:-1] * np.diff(times))))
    return Load(times, rates, moved[: len(times)])


def swap_volume(
    ops: Iterable[Op], tensors: tuple[Tensor, ...], gpus: Iterable[str]
) -> dict[tuple[str, str, str], int]:
    """Bytes copied, by GPU, kind of tensor and direction.

    Returns
    -------
    dict of (str, str, str) to int
        ``(gpu, tensor kind, phase)`` to bytes. The GPU is the one that a swap serves, and the
        receiver of a peer copy.
    """
    known = set(gpus)
    found: dict[tuple[str, str, str], int] = {}
    for op in ops:
        if op.kind == "copy":
            gpu = op.peer if op.peer in known else op.device
            key = (gpu, tensors[op.reads[0]].kind, op.phase)
            found[key] = found.get(key, 0) + op.nbytes
    return found
