"""The ledger of memory: what lies on every device at any time of a run.

An operation takes the memory of its ``allocs`` where it starts and gives that of its ``frees``
back where it ends. A ``Schedule`` proves by itself that this fits; the ledger verifies it for a
run, simulated or measured, from nothing but the order in which operations started and ended.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain
from operator import itemgetter
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hwmodels.errors import DoesNotFit
from workloads.schedule import Place, Schedule

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

_TENSOR, _DEVICE = itemgetter(0), itemgetter(1)


class Steps(NamedTuple):
    """Every change of memory in the order of a run, starting with what is there before it.

    Attributes
    ----------
    devices : tuple of str
        Devices that appear, in order of first use.
    device : array of int
        Index into ``devices`` of each change.
    nbytes : array of int
        Bytes taken (positive) or given back (negative).
    tensor : array of int
        Tensor id.
    op : array of int
        Operation, or -1 for what is there before the first one.
    """

    devices: tuple[str, ...]
    device: Ints
    nbytes: Ints
    tensor: Ints
    op: Ints


class Level(NamedTuple):
    """Memory in use on one device.

    Attributes
    ----------
    seconds : array of float
        Times of change.
    nbytes : array of int
        Bytes in use from each of these times on.
    """

    seconds: Floats
    nbytes: Ints


class _Numbers(dict[str, int]):
    """Numbers devices in the order in which they are first asked for."""

    def __missing__(self, device: str) -> int:
        self[device] = found = len(self)
        return found


def order(start: Floats, end: Floats) -> Ints:
    """Sort starts (as ``~op``) and ends (as ``op``) by time; at one instant ends come first."""
    ids = np.arange(len(start))
    times = np.concatenate([end, start])
    kinds = np.concatenate([np.zeros_like(ids), np.ones_like(ids)])
    return np.concatenate([ids, ~ids])[np.lexsort((kinds, times))]


def steps(schedule: Schedule, sequence: Ints) -> Steps:
    """All changes of memory, in the order of ``sequence`` (as `order` gives it)."""
    number = _Numbers({device: i for i, device in enumerate(schedule.capacity)})
    total = len(schedule.ops)
    places = [op.frees for op in schedule.ops]
    places += [op.allocs for op in schedule.ops]
    counts = np.fromiter(map(len, places), np.int64, 2 * total)
    flat: list[Place] = list(chain.from_iterable(places))
    tensor = np.fromiter(map(_TENSOR, flat), np.int64, len(flat))
    device = np.fromiter(map(number.__getitem__, map(_DEVICE, flat)), np.int64, len(flat))
    # Row of an event in ``places``: frees of op i in row i, allocs in row total + i.
    rows = np.where(sequence < 0, total + ~sequence, sequence)
    first = np.concatenate([[0], np.cumsum(counts)])[rows]
    many = counts[rows]
    ends = np.cumsum(many)
    entries = np.arange(ends[-1] if total else 0) + np.repeat(first - (ends - many), many)
    event = np.repeat(sequence, many)
    start = schedule.initial
    tensor = np.concatenate([np.array([t for t, _ in start], np.int64), tensor[entries]])
    device = np.concatenate([np.array([number[d] for _, d in start], np.int64), device[entries]])
    sign = np.concatenate([np.ones(len(start), np.int64), np.where(event < 0, 1, -1)])
    op = np.concatenate([np.full(len(start), -1), np.where(event < 0, ~event, event)])
    size = np.fromiter((t.nbytes for t in schedule.tensors), np.int64, len(schedule.tensors))
    return Steps(tuple(number), device, sign * size[tensor], tensor, op)


def verify(schedule: Schedule, sequence: Ints, capacity: Callable[[str], int]) -> dict[str, int]:
    """Check that no device ever holds more than it can.

    Parameters
    ----------
    schedule : Schedule
    sequence : array of int
        Order of starts and ends, as `order` gives it.
    capacity : callable
        Usable bytes of a device.

    Returns
    -------
    dict of str to int
        Largest number of bytes in use at one time, by device.

    Raises
    ------
    DoesNotFit
        At the first overflow: device, operation, bytes, and the largest tensors there.
    UnknownName
        If ``capacity`` does not know a device.
    """
    found = steps(schedule, sequence)
    peak: dict[str, int] = {}
    broken: list[tuple[int, str]] = []
    for i, device in enumerate(found.devices):
        mine = np.flatnonzero(found.device == i)
        used = np.cumsum(found.nbytes[mine])
        peak[device] = int(used.max(initial=0))
        usable = capacity(device)
        if peak[device] > usable:
            broken.append((int(mine[np.argmax(used > usable)]), device))
    if broken:
        at, device = min(broken)
        raise _overflow(schedule, found, at, device, capacity(device))
    return peak


def _overflow(schedule: Schedule, found: Steps, at: int, device: str, capacity: int) -> DoesNotFit:
    """Say who took the last byte, and what else is there."""
    mine = found.devices.index(device)
    held: dict[int, int] = {}
    here = np.flatnonzero(found.device[:at] == mine)
    for tensor, nbytes in zip(
        found.tensor[here].tolist(), found.nbytes[here].tolist(), strict=True
    ):
        held[tensor] = held.get(tensor, 0) + nbytes
    used = sum(held.values())
    largest = sorted((t for t in held if held[t]), key=lambda t: (-held[t], t))[:3]
    names = ", ".join(f"{schedule.tensors[t].name} {held[t]} bytes" for t in largest)
    op, tensor = int(found.op[at]), schedule.tensors[int(found.tensor[at])]
    who = f"op {op} ({schedule.ops[op].phase})" if op >= 0 else "the initial state"
    return DoesNotFit(
        f"schedule {schedule.name}: {who} takes {tensor.nbytes} bytes for {tensor.name} on "
        f"{device}, where {used} of {capacity} bytes are in use"
        + (f" (largest: {names})." if names else ".")
    )


def level(
    schedule: Schedule, start: Floats, end: Floats, device: str, sequence: Ints | None = None
) -> Level:
    """Memory in use on one device over the time of a run.

    Parameters
    ----------
    schedule : Schedule
    start, end : array of float
        Seconds, by op id.
    device : str
        GPU or host memory.
    sequence : array of int, optional
        Order of starts and ends if the run kept it; else that of `order`.

    Returns
    -------
    Level
        The first entry is at time zero.
    """
    found = steps(schedule, order(start, end) if sequence is None else sequence)
    if device not in found.devices:
        return Level(np.zeros(1), np.zeros(1, np.int64))
    mine = (found.device == found.devices.index(device)) & (found.nbytes != 0)
    op, nbytes = found.op[mine], found.nbytes[mine]
    when = np.where(nbytes < 0, end[op], start[op])
    when[op < 0] = 0.0
    seconds = np.concatenate([[0.0], when])
    used = np.concatenate([[0], np.cumsum(nbytes)])
    last = np.append(np.diff(seconds) > 0, True)
    return Level(seconds[last], used[last])
