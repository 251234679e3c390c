"""Copies between GPUs: which are direct, over what, and how far driver and hardware allow them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from statistics import fmean
from typing import NamedTuple

from hwmodels.gpu import Reach
from hwmodels.matrix import read_matrix
from validate.calibrate.copies import Paces
from validate.measurements import Machine
from validate.plan import Flow, ins, outs

Pair = frozenset[str]

DIRECT = 0.75
"""A copy is direct if its latency is below this share of the latencies out of one GPU and into the
other, of which a copy through host memory takes both (12 us, NVIDIA/nccl#1127, beside 6 us)."""

MOST_DIRECT_NVLINKS = 4
"""GPUs that are all joined by NVLink, more of them than this, have an NVSwitch: up to four peers
fit the links of one GPU (DGX-1: 6 links to 4 peers), and there no five GPUs are all joined."""


class Peers(NamedTuple):
    """What copies between GPUs tell.

    Attributes
    ----------
    direct : frozenset of pairs
        GPUs that copy to each other over PCIe without going through host memory.
    nvlink : mapping of pair to float
        B/s of the pairs that NVLink joins.
    nvswitch : bool
        Whether a switch joins them.
    reach : str
        How far direct copies over PCIe go.
    rooms : tuple of frozenset
        GPUs under one root complex, where direct copies tell; else those near one host memory.
    notes : tuple of str
        What does not fit.
    """

    direct: frozenset[Pair]
    nvlink: Mapping[Pair, float]
    nvswitch: bool
    reach: Reach
    rooms: tuple[frozenset[str], ...]
    notes: tuple[str, ...]


def peers(machine: Machine, paces: Paces) -> Peers:
    """Tell direct from staged copies by latency, NVLink by the topology matrix."""
    joined, notes = _joined(machine)
    rates = {
        pair: fmean(1.0 / paces.alone[flow] for flow in both(pair) if flow in paces.alone)
        for pair in map(frozenset, combinations(machine.gpus, 2))
        if any(flow in paces.alone for flow in both(pair))
    }
    nvlink = {pair: rates[pair] for pair in sorted(joined & rates.keys(), key=sorted)}
    over_pcie = [pair for pair in rates if pair not in nvlink]
    direct = frozenset(pair for pair in over_pcie if _is_direct(machine, paces, pair))
    host = dict(zip(machine.gpus, machine.near, strict=True))
    reach, rooms, odd = _reach(machine.gpus, host, over_pcie, direct)
    total = len(machine.gpus)
    switch = total > MOST_DIRECT_NVLINKS and len(nvlink) == total * (total - 1) // 2
    return Peers(direct, nvlink, switch, reach, rooms, (*notes, *odd))


def _joined(machine: Machine) -> tuple[frozenset[Pair], tuple[str, ...]]:
    """Pairs joined by NVLink, as the topology matrix says."""
    if not machine.topology.strip():
        return frozenset(), ()
    matrix = read_matrix(machine.topology)
    if len(matrix.gpus) != len(machine.gpus):
        note = (
            f"The topology matrix has {len(matrix.gpus)} GPUs and {len(machine.gpus)} were "
            "measured, so it does not tell which pairs NVLink joins; all count as PCIe."
        )
        return frozenset(), (note,)
    name = dict(zip(matrix.gpus, machine.gpus, strict=True))
    pairs = frozenset(
        frozenset((name[a], name[b]))
        for a, b in combinations(matrix.gpus, 2)
        if matrix.classes[(a, b)].startswith("NV")
    )
    return pairs, ()


def _is_direct(machine: Machine, paces: Paces, pair: Pair) -> bool:
    into, out = ins(machine), outs(machine)
    shares: list[float] = []
    for src, dst in both(pair):
        known = [paces.latency.get(flow) for flow in ((src, dst), out[src], into[dst])]
        if None not in known:
            took, first, second = (float(x or 0.0) for x in known)
            shares.append(took / (first + second))
    return bool(shares) and fmean(shares) < DIRECT


def both(pair: Pair) -> tuple[Flow, Flow]:
    """Give the copies from one to the other and back."""
    a, b = sorted(pair)
    return (a, b), (b, a)


def _components(nodes: Sequence[str], pairs: Iterable[Pair]) -> tuple[frozenset[str], ...]:
    """Find the sets of nodes that pairs connect, by first member."""
    group = {node: frozenset((node,)) for node in nodes}
    for pair in pairs:
        both = frozenset().union(*(group[node] for node in pair))
        group |= dict.fromkeys(both, both)
    return tuple(dict.fromkeys(group[node] for node in nodes))


def _reach(
    gpus: Sequence[str], host: Mapping[str, str], pairs: Sequence[Pair], direct: frozenset[Pair]
) -> tuple[Reach, tuple[frozenset[str], ...], tuple[str, ...]]:
    """Largest reach whose pairs are all direct, the roots it needs, and what contradicts it."""
    by_host = tuple(
        frozenset(x for x in gpus if host[x] == name) for name in dict.fromkeys(host.values())
    )
    if not direct:
        return "none", by_host, ()
    if len(direct) == len(pairs):
        across = any(len({host[x] for x in pair}) > 1 for pair in pairs)
        return "server" if across else "socket", by_host, ()
    inside = [pair for pair in pairs if len({host[x] for x in pair}) == 1]
    if all(pair in direct for pair in inside):
        odd = len(direct) - len(inside)
        return "socket", by_host, _odd(odd, "across sockets")
    near = [pair for pair in direct if pair in inside]
    rooms = _components(gpus, sorted(near, key=sorted))
    implied = sum(any(pair <= room for room in rooms) for pair in pairs)
    odd = (len(direct) - len(near)) + (implied - len(near))
    return "root", rooms, _odd(odd, "beyond one root complex, or not within it")


def _odd(count: int, where: str) -> tuple[str, ...]:
    if not count:
        return ()
    return (f"{count} pairs of GPUs copy directly {where}, unlike the others; not modelled.",)
