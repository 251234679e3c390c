"""Copies between devices, and the copies that run beside other measurements."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cache
from itertools import cycle
from typing import TYPE_CHECKING, NamedTuple

from validate.bench.timing import Job, Work, opened, together
from validate.devices import Devices
from validate.measurements import Copies, Machine
from validate.numa import cache_bytes
from validate.plan import Pattern, both_ways

if TYPE_CHECKING:
    from torch import Tensor

SHARED = 2**26
"""Bytes of each copy that runs beside something else."""

PIECES = 2**14
"""Pieces of a buffer that take turns at most, spread over it: 16 MiB of copies of 1 KiB."""

Place = tuple[str, bool, int]
"""Device, page-locked or not, and which of the buffers that one pattern needs there."""


class Rig(NamedTuple):
    """What measurements share.

    Attributes
    ----------
    devices : Devices
    machine : Machine
    slab : callable
        The buffer of a place, made when it is first asked for.
    """

    devices: Devices
    machine: Machine
    slab: Callable[[Place], Tensor]


def rig(devices: Devices, machine: Machine, patterns: Iterable[Pattern]) -> Rig:
    """Make what measurements share, for these patterns and the copies beside other things."""
    sizes = slab_sizes((*patterns, load(machine, machine.gpus)))

    @cache
    def slab(place: Place) -> Tensor:
        device, pinned, _ = place
        return devices.allocate(device, sizes[place], pinned=pinned)

    return Rig(devices, machine, slab)


def places(pattern: Pattern) -> list[tuple[Place, Place]]:
    """Buffers of the source and the destination of each flow: no two flows share one."""
    used: dict[str, int] = {}
    found: list[tuple[Place, Place]] = []
    for flow in pattern.flows:
        ends: list[Place] = []
        for device in flow:
            slot = used[device] = used.get(device, -1) + 1
            ends.append((device, pattern.pinned, slot))
        found.append((ends[0], ends[1]))
    return found


def slab_sizes(patterns: Iterable[Pattern]) -> dict[Place, int]:
    """Bytes of every buffer: the largest copy, and at least twice the last-level cache.

    A copy smaller than that takes another piece each time, so that none is served by the cache.
    """
    sizes: dict[Place, int] = {}
    least = 2 * cache_bytes()
    for pattern in patterns:
        for ends in places(pattern):
            for place in ends:
                sizes[place] = max(sizes.get(place, least), pattern.nbytes)
    return sizes


def copying(source: Tensor, destination: Tensor, nbytes: int) -> Work:
    """Work that copies the next ``nbytes`` of a buffer each time, and starts over at its end."""
    count = min(len(source), len(destination)) // nbytes
    starts = range(0, count * nbytes, nbytes * -(-count // PIECES))
    turn = cycle([(destination[at : at + nbytes], source[at : at + nbytes]) for at in starts])

    def work() -> None:
        into, out_of = next(turn)
        into.copy_(out_of, non_blocking=True)

    return work


def jobs(rig: Rig, pattern: Pattern) -> list[Job]:
    """One job a flow, each with a stream of its own."""
    return [
        (
            rig.devices.copy_stream(*flow),
            copying(rig.slab(source), rig.slab(destination), pattern.nbytes),
        )
        for flow, (source, destination) in zip(pattern.flows, places(pattern), strict=True)
    ]


def load(machine: Machine, gpus: Sequence[str]) -> Pattern:
    """Give the copies that run beside other measurements: to and from each GPU at once."""
    return Pattern(both_ways(machine, gpus), SHARED)


def measure(rig: Rig, pattern: Pattern, until: float) -> Copies:
    """Measure copies that start together."""
    with opened(jobs(rig, pattern)) as flows:
        sample = together(rig.devices, flows, until)
    return Copies(
        flows=pattern.flows,
        nbytes=pattern.nbytes,
        pinned=pattern.pinned and rig.devices.kind == "cuda",
        seconds=sample.seconds,
        spread=sample.spread,
    )
