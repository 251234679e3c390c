"""A schedule made ready to run on one server: flat lists by operation, and few kinds of steps.

Operations that differ only in their bytes share one *lane*: same stream, device, peer, group and
work. Everything that takes time to find (routes, seconds of compute, phases of collectives) is
found once a lane.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hwmodels.compute import LayerProfile, Work, seconds
from hwmodels.errors import InvalidSchedule
from sim.chains import Bools, Chains, chains
from sim.collectives import Phase, phases, traffic
from sim.fabric import Usage
from sim.memory import PIECE, Ledger, Numbers
from workloads.schedule import Op, Schedule

if TYPE_CHECKING:
    from hwmodels.server import Server

Ids = NDArray[np.int32]
Ints = NDArray[np.int64]


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
    lane : array of int
        Lane of each operation.
    nbytes : list of int
        Bytes of each operation.
    after : sequence of tuple of int
        What each operation waits for besides its stream's previous one.
    following : list of int
        The next operation of the same stream; -1 after the last one.
    heads : list of int
        Operations without a previous one: first of a stream, or on no stream.
    ledger : Ledger
        Memory taken where an operation starts and given back where it ends.
    plans : dict of int to tuple of Phase
        Phases of each collective and host operation.
    chains : Chains
        Compute operations that run as one.
    """

    lanes: list[Lane]
    lane: Ids
    nbytes: list[int]
    after: Sequence[tuple[int, ...]]
    following: list[int]
    heads: list[int]
    ledger: Ledger
    plans: dict[int, tuple[Phase, ...]]
    chains: Chains


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
    columns = _columns(schedule)
    lane = columns.lane
    examples = [ops[i] for i in np.unique(lane, return_index=True)[1].tolist()]
    cost: dict[tuple[int, str], float] = {}
    lanes = [_lane(op, server, schedule.profile, cost) for op in examples]
    order, behind = _queues(lanes, lane)
    following = np.full(len(ops), -1)
    following[order[:-1][behind]] = order[1:][behind]
    head = np.ones(len(ops), np.bool_)
    head[order[1:][behind]] = False
    plans = _plans(schedule, server, lanes, lane, algorithm)
    for number, found in enumerate(lanes):
        if found.kind == "collective":
            lanes[number] = found._replace(path=_collective_path(number, lane, ops, plans))
    joins = _joins(schedule, columns, following, _by_lane(lanes, lane, "compute"))
    seconds_of = np.array([found.seconds for found in lanes])[lane]
    return Program(
        lanes, lane, columns.nbytes, columns.after, following.tolist(),
        np.flatnonzero(head).tolist(), columns.ledger, plans, chains(order, joins, seconds_of),
    )  # fmt: skip


class _Columns(NamedTuple):
    """What the engine reads of the operations, and how many waits each has, one after another."""

    lane: Ids
    nbytes: list[int]
    after: list[tuple[int, ...]]
    waits: Ints
    waited: Ints
    ledger: Ledger


def _columns(schedule: Schedule) -> _Columns:
    """Take operations apart; piece by piece, so that a piece stays in the cache."""
    numbers = Numbers[Hashable]()
    ledger = Ledger(schedule)
    lane: list[int] = []
    nbytes: list[int] = []
    after: list[tuple[int, ...]] = []
    waits = [np.zeros(0, np.int64)]
    waited = [np.zeros(0, np.int64)]
    for first in range(0, len(schedule.ops), PIECE):
        piece: Any = zip(*schedule.ops[first : first + PIECE], strict=True)
        (ids, kinds, streams, before, devices, names, _, _, works, sizes, peers, groups, _, _,
         allocs, frees) = piece  # fmt: skip
        if ids != tuple(range(first, first + len(ids))):
            wrong, found = next((i, op) for i, op in enumerate(ids, first) if i != op)
            raise InvalidSchedule(f"op at position {wrong} has id {found}; it must be {wrong}.")
        keys = zip(streams, names, map(id, works), devices, peers, kinds, groups, strict=True)
        lane += map(numbers.__getitem__, keys)
        nbytes += sizes
        after += before
        waits.append(np.fromiter(map(len, before), np.int64, len(before)))
        waited.append(np.fromiter(chain.from_iterable(before), np.int64))
        ledger.read(allocs, frees)
    return _Columns(
        np.array(lane, np.int32), nbytes, after, np.concatenate(waits),
        np.concatenate(waited), ledger,
    )  # fmt: skip


def _queues(lanes: Sequence[Lane], lane: Ids) -> tuple[Ints, Bools]:
    """All operations stream by stream, and which of them, but for the first, follow another."""
    number = Numbers[str]({"": 0})
    stream = np.array([number[found.stream] for found in lanes], np.int64)
    # 16 bits sort in linear time
    stream = stream.astype(np.uint16 if len(number) < 1 << 16 else np.int64)[lane]
    order = np.argsort(stream, kind="stable")
    ordered = stream[order]
    return order, (ordered[1:] == ordered[:-1]) & (ordered[1:] > 0)


def _joins(schedule: Schedule, columns: _Columns, following: Ints, compute: Bools) -> Bools:
    """Whether each operation is the next one of the same chain as the one before it.

    Raises
    ------
    InvalidSchedule
        If an operation waits for one that does not exist.
    """
    total, waits, waited = len(columns.after), columns.waits, columns.waited
    if len(waited) and not 0 <= int(waited.min()) <= int(waited.max()) < total:
        wrong = np.flatnonzero((waited < 0) | (waited >= total))[0]
        op = int(np.searchsorted(np.cumsum(waits), wrong, side="right"))
        raise InvalidSchedule(
            f"schedule {schedule.name}: op {op} waits for op {waited[wrong]}, but there are only "
            f"ops 0 to {total - 1}."
        )
    quiet = compute.copy()
    quiet[waited] = False
    first = np.flatnonzero(quiet & (following >= 0))
    after_it = following[first]
    joins = np.zeros(total, np.bool_)
    joins[after_it[compute[after_it] & (waits[after_it] == 0)]] = True
    return joins


def _by_lane(lanes: Sequence[Lane], lane: Ids, *kinds: str) -> Bools:
    """Whether each operation is of one of these kinds."""
    return np.array([found.kind in kinds for found in lanes], np.bool_)[lane]


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
    schedule: Schedule, server: Server, lanes: Sequence[Lane], lane: Ids, algorithm: str
) -> dict[int, tuple[Phase, ...]]:
    """Phases of every collective and host operation; equal ones are found once."""
    known: dict[tuple[int, int], tuple[Phase, ...]] = {}
    found: dict[int, tuple[Phase, ...]] = {}
    for i in np.flatnonzero(_by_lane(lanes, lane, "collective", "host")).tolist():
        op, number = schedule.ops[i], int(lane[i])
        key = (number, op.nbytes)
        if key not in known:
            if op.kind == "host":
                known[key] = _host_phases(op, lanes[number].path, schedule.profile)
            else:
                known[key] = phases(op.phase, op.group, op.nbytes, server, algorithm)
        found[i] = known[key]
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
    number: int, lane: Ids, ops: Sequence[Op], plans: dict[int, tuple[Phase, ...]]
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
