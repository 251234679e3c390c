"""Which copies are measured: alone, both ways at once, pairs and all GPUs at once, peers."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations, permutations
from typing import NamedTuple

from validate.measurements import Machine

Flow = tuple[str, str]

SIZES = tuple(2**power for power in range(16, 29, 2))
"""64 KiB to 256 MiB: small ones show latency, large ones bandwidth."""

SHARED = 2**26
"""Bytes of each of several copies at once: latency is below 1 % of the time."""


class Pattern(NamedTuple):
    """Copies that start together: source and destination of each, and the bytes of each."""

    flows: tuple[Flow, ...]
    nbytes: int
    pinned: bool = True


def patterns(machine: Machine) -> Iterator[Pattern]:
    """Yield all copies to measure on a machine.

    Between host and every GPU alone by size, page-locked and (first GPU) not; both directions at
    once; each pair of GPUs and all GPUs at once, in, out and both; every ordered pair of peers.
    """
    ins = {gpu: (host, gpu) for gpu, host in zip(machine.gpus, machine.near, strict=True)}
    outs = {gpu: (gpu, host) for host, gpu in ins.values()}
    for gpu in machine.gpus:
        for nbytes in SIZES:
            yield Pattern((ins[gpu],), nbytes)
            yield Pattern((outs[gpu],), nbytes)
        yield Pattern((ins[gpu], outs[gpu]), SHARED)
    first = machine.gpus[0]
    for nbytes in SIZES:
        yield Pattern((ins[first],), nbytes, pinned=False)
        yield Pattern((outs[first],), nbytes, pinned=False)
    groups: list[tuple[str, ...]] = list(combinations(machine.gpus, 2))
    if len(machine.gpus) > 2:
        groups.append(machine.gpus)
    for group in groups:
        into, out = tuple(ins[gpu] for gpu in group), tuple(outs[gpu] for gpu in group)
        for flows in (into, out, into + out):
            yield Pattern(flows, SHARED)
    for pair in permutations(machine.gpus, 2):
        for nbytes in (SIZES[0], SIZES[2], SHARED):
            yield Pattern((pair,), nbytes)
    for one, other in combinations(machine.gpus, 2):
        yield Pattern(((one, other), (other, one)), SHARED)
