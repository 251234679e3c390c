"""Which copies and optimizer steps are measured on a machine, so that a server can be fitted.

Each limit must show in enough measurements that noise of 2 % averages out, and a shared limit in
copies of few enough GPUs that no other limit hides it:

* Small copies take little but latency, large ones nothing but bandwidth; both are measured at
  four sizes.
* Subsets: all of at most three GPUs (up to three links fill an uplink), and all but at most two of
  them (the rest still fills what all share). Up to five GPUs that is every subset.
* In and out of different GPUs at once: limits on both directions of a cable together.
* Between GPUs: the whole matrix, both ways, beside a copy from host memory (does it share the GPU's
  PCIe link?), and several at once (do they share an uplink?).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations, permutations
from typing import Literal, NamedTuple

from validate.measurements import Machine

Flow = tuple[str, str]
"""Source and destination of a copy."""

SMALL = tuple(2**power for power in range(10, 14))
"""1 to 8 KiB: at 10 GB/s at most 0.8 us beside a latency of some microseconds."""

MIDDLE = (2**20,)
"""Both latency and bandwidth count: shows whether a line through the other sizes is right."""

LARGE = tuple(2**power for power in (26, 27, 25, 28))
"""32 to 256 MiB: latency is below 0.5 % of the time. The first ones are used first."""


SCALES = (1, 2, 3, 4)
"""Sizes of optimizer steps, in the smallest: there are few patterns, so each counts four times."""


class Pattern(NamedTuple):
    """Copies that start together: source and destination of each, and the bytes of each."""

    flows: tuple[Flow, ...]
    nbytes: int
    pinned: bool = True


class Step(NamedTuple):
    """Optimizer steps that start together.

    Attributes
    ----------
    hosts : tuple of str
        Host memory of each.
    beside : str
        ``copies`` if `both_ways` runs all the time.
    scale : int
        Size: this many times the parameters that the smallest steps have.
    """

    hosts: tuple[str, ...]
    beside: Literal["", "copies"] = ""
    scale: int = 1


def ins(machine: Machine) -> dict[str, Flow]:
    """Copy from the nearest host memory to each GPU."""
    return {gpu: (host, gpu) for gpu, host in zip(machine.gpus, machine.near, strict=True)}


def outs(machine: Machine) -> dict[str, Flow]:
    """Copy from each GPU to the nearest host memory."""
    return {gpu: (gpu, host) for gpu, host in zip(machine.gpus, machine.near, strict=True)}


def both_ways(machine: Machine, gpus: Sequence[str] | None = None) -> tuple[Flow, ...]:
    """List copies to and from some GPUs, or all: what runs beside an optimizer step."""
    into, out = ins(machine), outs(machine)
    return tuple(flow for gpu in gpus or machine.gpus for flow in (into[gpu], out[gpu]))


def large(gpus: int) -> tuple[int, ...]:
    """Sizes of copies that start together: more where few GPUs make few patterns."""
    return LARGE[: 4 if gpus <= 3 else 2 if gpus <= 5 else 1]


def plan(machine: Machine) -> tuple[Pattern, ...]:
    """All copies to measure on a machine: about 110 patterns for 2 GPUs, 1100 for 8."""
    sizes = large(len(machine.gpus))
    found = [Pattern(flows, n) for flows, n in _alone(machine)]
    found += [
        Pattern(flows, n)
        for flows in _subsets(machine)
        for n in (sizes if len(flows) > 2 else LARGE[: max(2, len(sizes))])
    ]
    found += [Pattern(flows, n) for flows, n in _far(machine)]
    found += [Pattern(flows, n) for flows, n in _matrix(machine)]
    found += [Pattern(flows, n) for flows in _peers(machine) for n in sizes]
    found += [
        Pattern(flows, n, False) for flows, n in _alone(machine) if machine.gpus[0] in flows[0]
    ]
    return tuple(dict.fromkeys(found))


def steps(machine: Machine) -> tuple[Step, ...]:
    """All optimizer steps to measure, alone and beside copies, by size.

    On each host memory one, one for each GPU near it, and twice as many (so that the cores are
    busy); and on all host memories one for each GPU.
    """
    found: list[Step] = []
    for host in machine.hosts:
        count = max(1, machine.near.count(host))
        found += [Step((host,) * n) for n in (1, count, 2 * count)]
    found.append(Step(machine.near))
    wanted = [
        Step(step.hosts, beside, scale)
        for step in dict.fromkeys(found)
        for beside in ("", "copies")
        for scale in SCALES
    ]
    return tuple(wanted)


def _alone(machine: Machine) -> Iterator[tuple[tuple[Flow, ...], int]]:
    """Each GPU alone: in, out, and both at once."""
    into, out = ins(machine), outs(machine)
    for gpu in machine.gpus:
        for nbytes in (*SMALL, *MIDDLE, *LARGE):
            yield (into[gpu],), nbytes
            yield (out[gpu],), nbytes
        for nbytes in LARGE:
            yield (into[gpu], out[gpu]), nbytes


def _subsets(machine: Machine) -> Iterator[tuple[Flow, ...]]:
    """Subsets of GPUs at once: all in, all out, all both; one in and another out."""
    into, out = ins(machine), outs(machine)
    total = len(machine.gpus)
    for size in range(2, total + 1):
        if size > 3 and size < total - 2:
            continue
        for group in combinations(machine.gpus, size):
            ingoing, outgoing = tuple(into[x] for x in group), tuple(out[x] for x in group)
            yield ingoing
            yield outgoing
            if size == 2 or size >= total - 1:
                yield ingoing + outgoing
    for one, other in permutations(machine.gpus, 2):
        yield into[one], out[other]


def _far(machine: Machine) -> Iterator[tuple[tuple[Flow, ...], int]]:
    """Yield copies to and from host memories that are not the nearest."""
    for near, far in permutations(machine.hosts, 2):
        gpus = [x for x, host in zip(machine.gpus, machine.near, strict=True) if host == near]
        for gpu in gpus:
            for nbytes in (SMALL[0], SMALL[2], LARGE[0]):
                yield ((far, gpu),), nbytes
                yield ((gpu, far),), nbytes
        ingoing, outgoing = tuple((far, x) for x in gpus), tuple((x, far) for x in gpus)
        if len(gpus) > 1:
            for flows in (ingoing, outgoing):
                yield from ((flows, nbytes) for nbytes in LARGE)


def _matrix(machine: Machine) -> Iterator[tuple[tuple[Flow, ...], int]]:
    """Every ordered pair of GPUs."""
    count = max(2, len(large(len(machine.gpus))))
    for pair in permutations(machine.gpus, 2):
        for nbytes in (*SMALL, *LARGE[:count]):
            yield (pair,), nbytes


def _peers(machine: Machine) -> Iterator[tuple[Flow, ...]]:
    """Yield copies between GPUs with others beside: back, from host memory, two, a whole ring."""
    gpus, into = machine.gpus, ins(machine)
    total = len(gpus)
    for one, other in combinations(gpus, 2):
        yield (one, other), (other, one)
        yield (one, other), into[other]
    for one, other in combinations(gpus, 2) if total >= 4 else ():
        first, second = [x for x in (*gpus, *gpus)[gpus.index(other) :] if x not in (one, other)][
            :2
        ]
        yield (one, first), (other, second)
    for step in range(1, total) if total >= 3 else ():
        yield tuple((gpus[i], gpus[(i + step) % total]) for i in range(total))
