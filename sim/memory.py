"""The ledger of memory: what lies on every device at any time of a run.

An operation takes the memory of its ``allocs`` where it starts and gives that of its ``frees``
back where it ends. A ``Schedule`` proves by itself that this fits; the ledger verifies it for a
run, simulated or measured, from nothing but the order in which operations started and ended.
Within one operation memory is taken in the order of ``allocs``; where several operations start or
end at one instant, the order of the run counts (`sim.chains.sequence`), or ends before starts in a
measured one (`order`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain, islice
from operator import itemgetter
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hwmodels.errors import DoesNotFit
from workloads.schedule import Place, Schedule, Tensor

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

_NBYTES = itemgetter(Tensor._fields.index("nbytes"))

PIECE = 512
"""Places taken apart at a time, so that they stay in the cache."""


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
    ops = schedule.ops
    return changes(schedule, [op.allocs for op in ops], [op.frees for op in ops], sequence)


def changes(
    schedule: Schedule,
    allocs: Sequence[Sequence[Place]],
    frees: Sequence[Sequence[Place]],
    sequence: Ints,
) -> Steps:
    """`steps`, of a schedule whose places are already at hand, by op."""
    number = _Numbers({device: i for i, device in enumerate(schedule.capacity)})
    total = len(allocs)
    tensor, device, counts = _columns([*frees, *allocs], number)
    # Row of an event in ``counts``: frees of op i in row i, allocs in row total + i.
    rows = np.where(sequence < 0, total + ~sequence, sequence)
    first = (np.cumsum(counts) - counts)[rows]
    many = counts[rows]
    ends = np.cumsum(many)
    entries = np.arange(many.sum()) + np.repeat(first - (ends - many), many)
    event = np.repeat(sequence, many)
    start, where, _ = _columns([schedule.initial], number)
    tensor = np.concatenate([start, tensor[entries]])
    device = np.concatenate([where, device[entries]])
    sign = np.concatenate([np.ones(len(start), np.int64), np.where(event < 0, 1, -1)])
    op = np.concatenate([np.full(len(start), -1), np.where(event < 0, ~event, event)])
    size = np.fromiter(map(_NBYTES, schedule.tensors), np.int64, len(schedule.tensors))
    return Steps(tuple(number), device, sign * size[tensor], tensor, op)


def _columns(places: Sequence[Sequence[Place]], number: _Numbers) -> tuple[Ints, Ints, Ints]:
    """Tensor and device of all places in a row, and how many there are in each group."""
    flat = chain.from_iterable(places)
    tensors: list[int] = []
    devices: list[str] = []
    while piece := list(islice(flat, PIECE)):
        tensor, device = zip(*piece, strict=True)
        tensors += tensor
        devices += device
    return (
        np.array(tensors, np.int64),
        np.fromiter(map(number.__getitem__, devices), np.int64, len(devices)),
        np.fromiter(map(len, places), np.int64, len(places)),
    )


def peaks(
    schedule: Schedule,
    allocs: Sequence[Sequence[Place]],
    frees: Sequence[Sequence[Place]],
    sequence: Ints,
    capacity: Callable[[str], int],
) -> dict[str, int]:
    """Largest number of bytes in use at one time on each device, verified against what it has.

    Parameters
    ----------
    schedule : Schedule
    allocs, frees : sequence of sequence of Place
        Of each op.
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
    found = changes(schedule, allocs, frees, sequence)
    # 16 bits sort in linear time
    small = len(found.devices) < 1 << 16
    by = np.argsort(found.device.astype(np.uint16) if small else found.device, kind="stable")
    level = np.cumsum(found.nbytes[by])
    stop = np.cumsum(np.bincount(found.device, minlength=len(found.devices))).tolist()
    peak: dict[str, int] = {}
    over: list[tuple[int, int]] = []  # change that is too much, and what the device has
    begin = base = 0
    for device, end in zip(found.devices, stop, strict=True):
        room, inside = capacity(device), level[begin:end] - base
        peak[device] = int(inside.max(initial=0))
        if peak[device] > room:
            over.append((int(by[begin + int(np.argmax(inside > room))]), room))
        if end:
            begin, base = end, int(level[end - 1])
    if over:
        raise _overflow(schedule, found, *min(over))
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
    for tensor, nbytes in zip(found.tensor[past].tolist(), found.nbytes[past].tolist(), strict=True):
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
