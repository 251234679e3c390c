"""The ledger of memory: what lies on every device at any time of a run.

An operation takes the memory of its ``allocs`` where it starts and gives that of its ``frees``
back where it ends. A ``Schedule`` proves by itself that this fits; the ledger verifies it for a
run, simulated or measured, from nothing but the order in which operations started and ended.
Within one operation memory is taken in the order of ``allocs``; where several operations start or
end at one instant, the order of the run counts (`sim.chains.sequence`), or ends before starts in a
measured one (`order`).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from itertools import chain
from operator import itemgetter
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from hwmodels.errors import DoesNotFit
from workloads.schedule import Place, Schedule, Tensor

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

Group = tuple[Place, ...]
"""Places that one operation takes or gives back."""

Key = TypeVar("Key", bound=Hashable)

_NBYTES = itemgetter(Tensor._fields.index("nbytes"))

PIECE = 512
"""Operations taken apart at a time, so that they stay in the cache."""


class Steps(NamedTuple):
    """Every change of memory in the order of a run, starting with what is there before it.

    Attributes
    ----------
    devices : tuple of str
        Devices that appear, in order of first use.
    device : array of uint16
        Index into ``devices`` of each change.
    nbytes : array of int
        Bytes taken (positive) or given back (negative).
    tensor : array of int32
        Tensor id.
    op : array of int
        Operation, or -1 for what is there before the first one.
    """

    devices: tuple[str, ...]
    device: NDArray[np.uint16]
    nbytes: Ints
    tensor: NDArray[np.int32]
    op: Ints


class Numbers(dict[Key, int]):
    """Numbers keys in the order in which they are first asked for."""

    def __missing__(self, key: Key) -> int:
        self[key] = found = len(self)
        return found


class _Places(NamedTuple):
    """Groups of places taken apart; ``many`` says how many places each group has."""

    devices: tuple[str, ...]
    device: NDArray[np.uint16]
    nbytes: Ints
    tensor: NDArray[np.int32]
    many: NDArray[np.int32]


def order(start: Floats, end: Floats) -> Ints:
    """Sort starts (as ``~op``) and ends (as ``op``) by time; at one instant ends come first."""
    ids = np.arange(len(start))
    times = np.concatenate([end, start])
    kinds = np.concatenate([np.zeros_like(ids), np.ones_like(ids)])
    return np.concatenate([ids, ~ids])[np.lexsort((kinds, times))]


def steps(schedule: Schedule, sequence: Ints) -> Steps:
    """All changes of memory, in the order of ``sequence`` (as `order` gives it)."""
    ledger = Ledger(schedule)
    for first in range(0, len(schedule.ops), PIECE):
        piece = schedule.ops[first : first + PIECE]
        ledger.read([op.allocs for op in piece], [op.frees for op in piece])
    return ledger.steps(sequence)


class Ledger:
    """Memory that the operations of a schedule take and give back.

    Many operations take or give back the same places, in every iteration anew; a group of places
    is taken apart once.

    Parameters
    ----------
    schedule : Schedule
    """

    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule
        self._group = Numbers[Group]()
        self._initial = self._group[schedule.initial]
        self._allocs = [np.zeros(0, np.int32)]
        self._frees = [np.zeros(0, np.int32)]

    def read(self, allocs: Sequence[Group], frees: Sequence[Group]) -> None:
        """Read the next operations, those of a piece that stays in the cache at a time."""
        for column, groups in ((self._allocs, allocs), (self._frees, frees)):
            numbers = map(self._group.__getitem__, groups)
            column.append(np.fromiter(numbers, np.int32, len(groups)))

    def steps(self, sequence: Ints) -> Steps:
        """All changes, in the order of ``sequence``; every operation must have been read."""
        places = self._places()
        many, entries = self._in_order(sequence, places.many)
        op = np.concatenate([[-1], np.where(sequence < 0, ~sequence, sequence)])
        return Steps(
            places.devices,
            places.device[entries],
            places.nbytes[entries],
            places.tensor[entries],
            np.repeat(op, many),
        )

    def _places(self) -> _Places:
        """Take all groups apart: as they are taken, and then as they are given back."""
        number = Numbers[str]({device: i for i, device in enumerate(self._schedule.capacity)})
        count = np.fromiter(map(len, self._group), np.int32, len(self._group))
        pairs = list(chain.from_iterable(self._group))
        tensor = np.array([tensor for tensor, _ in pairs], np.int32)
        device = np.array([number[device] for _, device in pairs], np.uint16)
        tensors = self._schedule.tensors
        nbytes = np.fromiter(map(_NBYTES, tensors), np.int64, len(tensors))[tensor]
        return _Places(
            tuple(number),
            np.tile(device, 2),
            np.concatenate([nbytes, -nbytes]),
            np.tile(tensor, 2),
            np.tile(count, 2),
        )

    def _in_order(self, sequence: Ints, count: NDArray[np.int32]) -> tuple[NDArray[np.int32], Ints]:
        """Places of each start and end in the order of a run, and the places themselves."""
        allocs, frees = np.concatenate(self._allocs), np.concatenate(self._frees)
        given = len(count) // 2 + frees
        row = np.concatenate([given, allocs[::-1]])[sequence]  # ~op counts from the end
        row = np.concatenate([[self._initial], row])
        many = count[row]
        ends = np.cumsum(many, dtype=np.int64)
        first = (np.cumsum(count, dtype=np.int64) - count)[row]
        return many, np.arange(ends[-1]) + np.repeat(first - ends + many, many)

    def peaks(self, sequence: Ints, capacity: Callable[[str], int]) -> dict[str, int]:
        """Largest number of bytes in use at one time on each device; verifies that they fit.

        Parameters
        ----------
        sequence : array of int
            Starts (as ``~op``) and ends (as ``op``) in their order.
        capacity : callable
            Usable bytes of a device.

        Raises
        ------
        DoesNotFit
            Naming device, operation, bytes and the largest tensors there.
        UnknownName
            If ``capacity`` does not know a device.
        """
        places = self._places()
        _, entries = self._in_order(sequence, places.many)
        device_of, devices, nbytes = places.device[entries], places.devices, places.nbytes
        by = np.argsort(device_of, kind="stable")  # 16 bits: in linear time
        level = np.cumsum(nbytes[entries[by]])
        stop = np.cumsum(np.bincount(device_of, minlength=len(devices))).tolist()
        peak: dict[str, int] = {}
        over: list[tuple[int, int]] = []  # change that is too much, and what the device has
        begin = base = 0
        for device, end in zip(devices, stop, strict=True):
            room, inside = capacity(device), level[begin:end] - base
            peak[device] = int(inside.max(initial=0))
            if peak[device] > room:
                over.append((int(by[begin + int(np.argmax(inside > room))]), room))
            if end:
                begin, base = end, int(level[end - 1])
        if over:
            raise _overflow(self._schedule, self.steps(sequence), *min(over))
        return peak


def _overflow(schedule: Schedule, found: Steps, at: int, capacity: int) -> DoesNotFit:
    """Say who took the last byte (change number ``at``), and what else is there."""
    tensors = schedule.tensors
    op, here = int(found.op[at]), found.device == found.device[at]
    device = found.devices[int(found.device[at])]
    mine = here & (found.op == op) & (found.nbytes > 0)
    until = len(here) if op < 0 else int(np.flatnonzero(mine)[0])
    past = np.flatnonzero(mine if op < 0 else here[:until])
    held: dict[int, None] = {}
    for tensor, nbytes in zip(
        found.tensor[past].tolist(), found.nbytes[past].tolist(), strict=True
    ):
        if nbytes > 0:
            held[tensor] = None
        else:
            held.pop(tensor, None)
    largest = sorted(held, key=lambda t: (-tensors[t].nbytes, t))[:3]
    names = ", ".join(f"{tensors[t].name} {tensors[t].nbytes} bytes" for t in largest)
    before = sum(tensors[t].nbytes for t in held)
    if op < 0:
        return DoesNotFit(
            f"schedule {schedule.name}: {before} bytes lie on {device} before the first "
            f"operation, which has {capacity} (largest: {names})."
        )
    return DoesNotFit(
        f"schedule {schedule.name}: op {op} ({schedule.ops[op].phase}) takes "
        f"{int(found.nbytes[mine].sum())} bytes on {device}, where {before} of {capacity} bytes "
        "are in use" + (f" (largest: {names})." if names else ".")
    )
