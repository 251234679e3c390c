"""A schedule made ready to run on one server: flat lists by operation, and few kinds of steps.

Operations that differ only in their bytes share one *lane*: same stream, device, peer, group and
work. Everything that takes time to find (routes, seconds of compute, phases of collectives) is
found once a lane.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hwmodels.compute import LayerProfile, Work, seconds
from hwmodels.errors import InvalidSchedule
from sim.collectives import Phase, phases, traffic
from sim.fabric import Usage
from workloads.schedule import Op, Schedule

if TYPE_CHECKING:
    from hwmodels.server import Server

Ids = NDArray[np.int32]


class Path(NamedTuple):
    """What the bytes of an operation cross.

    Attributes
    ----------
    kind : str
        As in ``Route``, or ``collective``.
    usage : Usage
        Bytes that pass each resource per byte of the operation.
    latency : float
        Seconds before the first byte (all steps of a collective together).
    cap : float
        B/s that the flow never exceeds.
    """

    kind: str
    usage: Usage
    latency: float
    cap: float


class Lane(NamedTuple):
    """A kind of step.

    Attributes
    ----------
    kind, stream, device, peer, phase, group : as in ``Op``
    seconds : float
        Time of compute; zero for all else.
    path : Path or None
        Of what moves bytes.
    engine : (str, int) or None
        GPU and number of its copy engine.
    """

    kind: str
    stream: str
    device: str
    peer: str
    phase: str
    group: tuple[str, ...]
    seconds: float
    path: Path | None
    engine: tuple[str, int] | None


@dataclass(frozen=True)
class Program:
    """A schedule made ready to run.

    Attributes
    ----------
    lanes : list of Lane
    lane : list of int
        Lane of each operation.
    nbytes : list of int
        Bytes of each operation.
    waits : list of int
        How many operations each one waits for, its stream's previous one included.
    first, successors : list of int
        Operation i is waited for by ``successors[first[i] : first[i + 1]]``, increasing.
    plans : dict of int to tuple of Phase
        Phases of each collective and host operation.
    """

    lanes: list[Lane]
    lane: list[int]
    nbytes: list[int]
    waits: list[int]
    first: list[int]
    successors: list[int]
    plans: dict[int, tuple[Phase, ...]]


class _Numbers(dict[Hashable, int]):
    """Numbers keys in the order in which they are first asked for."""

    def __missing__(self, key: Hashable) -> int:
        self[key] = found = len(self)
        return found


def prepare(schedule: Schedule, server: Server, algorithm: str = "ring") -> Program:
    """Make a schedule ready to run on a server.

    Parameters
    ----------
    schedule : Schedule
    server : Server
        Has every device that the schedule names.
    algorithm : str
        Of all collectives, as in ``sim.collectives.phases``.

    Raises
    ------
    InvalidSchedule
        If an operation is malformed.
    UnknownName, NoPath, InvalidInput
        If the server lacks a device, a path or a number format, or the algorithm does not fit.
    """
    ops = schedule.ops
    if not ops:
        return Program([], [], [], [], [0], [], {})
    (ids, kinds, streams, after, devices, names, _, _, works, nbytes, peers, groups, *_) = zip(
        *ops, strict=True
    )
    if ids != tuple(range(len(ops))):
        wrong = next(i for i, op in enumerate(ops) if op.id != i)
        raise InvalidSchedule(f"op at position {wrong} has id {ids[wrong]}; it must be {wrong}.")
    numbers = _Numbers()
    keys = zip(kinds, streams, names, devices, map(id, works), peers, groups, strict=True)
    lane = list(map(numbers.__getitem__, keys))
    lane_ids = np.array(lane, np.int32)
    examples = [ops[i] for i in np.unique(lane_ids, return_index=True)[1].tolist()]
    cost: dict[tuple[int, str], float] = {}
    lanes = [_lane(op, server, schedule.profile, cost) for op in examples]
    queue = _Numbers({"": 0})
    stream = np.array([queue[found.stream] for found in lanes], np.int32)[lane_ids]
    waits, first, successors = _edges(after, stream)
    plans = _plans(schedule, server, lanes, lane, algorithm)
    for number, found in enumerate(lanes):
        if found.kind == "collective":
            lanes[number] = found._replace(path=_collective_path(number, lane, ops, plans))
    return Program(lanes, lane, list(nbytes), waits, first, successors, plans)


def _edges(after: Sequence[tuple[int, ...]], stream: Ids) -> tuple[list[int], list[int], list[int]]:
    """Count what each operation waits for and list who waits for it; streams are in order.

    Returns
    -------
    waits, first, successors : list of int
        As in `Program`.
    """
    total = len(after)
    counts = np.fromiter(map(len, after), np.int32, total)
    source = np.fromiter(chain.from_iterable(after), np.int64, int(counts.sum()))
    target = np.repeat(np.arange(total), counts)
    if len(source) and (source.min() < 0 or source.max() >= total):
        bad = int(target[np.flatnonzero((source < 0) | (source >= total))[0]])
        raise InvalidSchedule(
            f"op {bad} waits for {after[bad]}, but there are ops 0 to {total - 1}."
        )
    by_stream = np.argsort(stream, kind="stable")
    same = (np.diff(stream[by_stream]) == 0) & (stream[by_stream][1:] > 0)
    source = np.concatenate([source, by_stream[:-1][same]])
    target = np.concatenate([target, by_stream[1:][same]])
    pairs = source << 32 | target
    pairs.sort()
    first = np.zeros(total + 1, np.int64)
    np.cumsum(np.bincount(source, minlength=total), out=first[1:])
    waits = np.bincount(target, minlength=total)
    return waits.tolist(), first.tolist(), (pairs & 0xFFFFFFFF).tolist()


def _lane(
    op: Op, server: Server, profile: LayerProfile | None, cost: dict[tuple[int, str], float]
) -> Lane:
    """Resolve one kind of step on the server."""
    took, path, engine = 0.0, None, None
    if op.kind == "compute":
        took = _compute_seconds(op, server, profile, cost)
    elif op.kind == "copy":
        route = server.route(op.device, op.peer)
        path = Path(route.kind, tuple(route.usage), route.latency, route.cap)
        engine = copy_engine(server, op.device, op.peer)
    elif op.kind == "host":
        route = server.cpu_route(op.device)
        path = Path(route.kind, tuple(route.usage), route.latency, route.cap)
    elif op.kind == "collective":
        for gpu in op.group:
            server.gpu(gpu)
    elif op.stream:
        raise InvalidSchedule(
            f"op {op.id} ({op.kind}) is on stream {op.stream}, but only compute, copy, collective "
            "and host operations have a stream."
        )
    if op.kind != "free" and not op.stream:
        raise InvalidSchedule(f"op {op.id} ({op.kind} on {op.device}) names no stream.")
    return Lane(op.kind, op.stream, op.device, op.peer, op.phase, op.group, took, path, engine)


def _compute_seconds(
    op: Op, server: Server, profile: LayerProfile | None, cost: dict[tuple[int, str], float]
) -> float:
    if op.work is None:
        raise InvalidSchedule(f"op {op.id} (compute on {op.device}) says no work.")
    gpu = server.gpu(op.device)
    key = (id(op.work), gpu.name)
    if key not in cost:
        cost[key] = seconds(gpu, op.work, profile)
    return cost[key]


def copy_engine(server: Server, source: str, target: str) -> tuple[str, int] | None:
    """Copy engine that a copy occupies: GPU and number, or None between host memories.

    A GPU with one engine does all its copies on it; with two, swap-ins on one, swap-outs and
    copies to other GPUs on the other; with three or more, each of the three on its own. A copy
    between GPUs is driven by the source.
    """
    if source in server.gpus:
        engines = server.gpu(source).copy_engines
        wanted = 2 if target in server.gpus else 1
        return source, min(wanted, engines - 1)
    return (target, 0) if target in server.gpus else None


def _plans(
    schedule: Schedule, server: Server, lanes: Sequence[Lane], lane: Sequence[int], algorithm: str
) -> dict[int, tuple[Phase, ...]]:
    """Phases of every collective and host operation; equal ones are found once."""
    special = {i for i, found in enumerate(lanes) if found.kind in ("collective", "host")}
    if not special:
        return {}
    known: dict[tuple[int, int], tuple[Phase, ...]] = {}
    found: dict[int, tuple[Phase, ...]] = {}
    for op in schedule.ops:
        if lane[op.id] not in special:
            continue
        key = (lane[op.id], op.nbytes)
        if key not in known:
            if op.kind == "host":
                known[key] = _host_phases(op, lanes[key[0]].path, schedule.profile)
            else:
                known[key] = phases(op.phase, op.group, op.nbytes, server, algorithm)
        found[op.id] = known[key]
    return found


def _host_phases(op: Op, path: Path | None, profile: LayerProfile | None) -> tuple[Phase, ...]:
    """One flow through cores and memory; a measured update sets its rate when alone."""
    assert path is not None
    cap = path.cap
    took = _measured_update(op.work, profile)
    if took:
        cap = op.nbytes / took
    return (Phase(path.latency, float(op.nbytes), path.usage, cap),)


def _measured_update(work: Work | None, profile: LayerProfile | None) -> float:
    """Seconds that the profile measured for the update of all layers of ``work``, else zero."""
    if profile is None or work is None:
        return 0.0
    if any((part.layer, "update") not in profile.rows for part in work.parts):
        return 0.0
    return sum(profile.seconds(part.layer, "update", part.samples) for part in work.parts)


def _collective_path(
    number: int, lane: Sequence[int], ops: Sequence[Op], plans: dict[int, tuple[Phase, ...]]
) -> Path:
    """Total of all phases, per byte of the buffer."""
    best: Path | None = None
    for i, plan in plans.items():
        if lane[i] == number and (best is None or not best.usage):
            best = Path(
                "collective",
                traffic(plan, ops[i].nbytes),
                sum(step.latency for step in plan),
                min((step.cap for step in plan), default=float("inf")),
            )
            if best.usage:
                break
    assert best is not None
    return best
