"""The ledger of memory: what lies on every device at any time of a run.

An operation takes the memory of its ``allocs`` where it starts and gives that of its ``frees``
back where it ends. A ``Schedule`` proves by itself that this fits; the ledger verifies it for a
run, simulated or measured, from nothing but the order in which operations started and ended.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
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


class Ledger:
    """Bytes in use on every device while a run goes on.

    Parameters
    ----------
    schedule : Schedule
    capacity : callable
        Usable bytes of a device.
    history : sequence of int
        Starts (as ``~op``) and ends (as ``op``) so far; read only to explain an overflow.

    Attributes
    ----------
    used, peak : dict of str to int
        Bytes in use now, and the largest number at one time so far, by device.
    size : list of int
        Bytes of each tensor.

    Raises
    ------
    DoesNotFit
        If what is there at the beginning is too much.
    UnknownName
        If ``capacity`` does not know a device.
    """

    def __init__(
        self, schedule: Schedule, capacity: Callable[[str], int], history: Sequence[int]
    ) -> None:
        self._schedule = schedule
        self._history = history
        self.size = [tensor.nbytes for tensor in schedule.tensors]
        self.peak: dict[str, int] = {}
        self.used = _Used(capacity, self.peak)
        for device in schedule.capacity:
            self.used[device] += 0
        self.take(-1, schedule.initial)

    def take(self, op: int, places: Sequence[Place]) -> None:
        """Operation ``op`` starts and takes the memory of ``places``.

        Raises
        ------
        DoesNotFit
            Naming device, operation, bytes and the largest tensors there.
        """
        used, size, peak = self.used, self.size, self.peak
        for tensor, device in places:
            used[device] = level = used[device] + size[tensor]
            if level > peak[device]:
                self.raised(op, device)

    def raised(self, op: int, device: str) -> None:
        """Note that operation ``op`` has brought a device to a new peak.

        Raises
        ------
        DoesNotFit
            If that is more than the device has.
        """
        level = self.used[device]
        if level > self.used.capacity[device]:
            raise self._overflow(op, device)
        self.peak[device] = level

    def _overflow(self, op: int, device: str) -> DoesNotFit:
        """Say who took the last byte, and what else is there."""
        tensors, ops = self._schedule.tensors, self._schedule.ops
        held = dict.fromkeys(t for t, where in self._schedule.initial if where == device)
        for event in self._history:
            for place in ops[~event].allocs if event < 0 else ops[event].frees:
                if place[1] == device and event < 0:
                    held[place[0]] = None
                elif place[1] == device:
                    held.pop(place[0], None)
        largest = sorted(held, key=lambda t: (-tensors[t].nbytes, t))[:3]
        names = ", ".join(f"{tensors[t].name} {tensors[t].nbytes} bytes" for t in largest)
        before = sum(tensors[t].nbytes for t in held)
        capacity = self.used.capacity[device]
        if op < 0:
            return DoesNotFit(
                f"schedule {self._schedule.name}: {before} bytes lie on {device} before the first "
                f"operation, which has {capacity} (largest: {names})."
            )
        return DoesNotFit(
            f"schedule {self._schedule.name}: op {op} ({ops[op].phase}) takes "
            f"{sum(tensors[t].nbytes for t, where in ops[op].allocs if where == device)} bytes on "
            f"{device}, where {before} of {capacity} bytes are in use"
            + (f" (largest: {names})." if names else ".")
        )


class _Used(dict[str, int]):
    """Bytes in use by device; a device is looked up on the server when it is first asked for."""

    def __init__(self, capacity: Callable[[str], int], peak: dict[str, int]) -> None:
        super().__init__()
        self.capacity: dict[str, int] = {}
        self._find = capacity
        self._peak = peak

    def __missing__(self, device: str) -> int:
        self.capacity[device] = self._find(device)
        self._peak[device] = 0
        return 0
