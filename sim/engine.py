"""The engine: replays a schedule on a server in simulated time, with SimPy's clock and events.

Rules
-----
* An operation is *ready* when all operations in its ``after`` and the previous one of its stream
  have ended. It starts then, unless it is a copy whose copy engine is busy.
* Compute takes the seconds of the GPU's cost model. A copy waits the latency of its route and
  then shares the fabric with all other flows (``sim.fabric``). A collective is a row of phases,
  each one flow (``sim.collectives``). Host work is a flow through cores and DRAM. ``free`` takes
  no time and has no stream.
* Streams of one GPU that share a copy engine exclude each other; who was ready first goes first.
* Ties: operations that end in one instant are handled in the order in which their ends were
  scheduled. At the end of one, the next of its stream is tried first, then others that wait for
  it, lowest id first. An idle copy engine goes to whoever asks first,
  one that is handed on to who was ready first, at equal times to the lowest id. Changes of rates
  come last in an instant, all together. Nothing depends on names or hashes.
"""

from __future__ import annotations

import gc
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from heapq import heappush
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hwmodels.errors import Deadlock, InvalidSchedule
from sim.fabric import Use, alone
from sim.memory import Ledger
from sim.pool import Clock, Tick
from sim.program import Path, Program, prepare
from sim.wiring import Hooks, alone_seconds, wire
from workloads.schedule import Schedule

if TYPE_CHECKING:
    from hwmodels.server import Server

Floats = NDArray[np.float64]

UNDONE = -1.0
"""End of an operation that has not ended."""


@dataclass(frozen=True)
class Timeline:
    """When everything happened; arrays are indexed by op id.

    Attributes
    ----------
    start, end : array of float
        Seconds.
    ready : array of float
        Seconds at which the op's own waits were over; later starts waited for a copy engine.
    last_dependency : array of int
        The op (in ``after``, or the stream's previous one) that ended last before it could start;
        -1 if it waited for none.
    alone : array of float
        Seconds that it would have taken without other flows.
    route : array of int
        Index into ``routes``; -1 for what moves no bytes.
    routes : tuple of Path
        Bytes over a resource are ``nbytes`` of the op times the multiplicity in ``usage``.
    sequence : array of int
        Starts (as ``~op``) and ends (as ``op``) in the order in which they happened.
    peak : mapping of str to int
        Largest number of bytes in use at one time on each device.
    """

    start: Floats
    end: Floats
    ready: Floats
    last_dependency: NDArray[np.int64]
    alone: Floats
    route: NDArray[np.int32]
    routes: tuple[Path, ...]
    sequence: NDArray[np.int64]
    peak: Mapping[str, int]


def execute(schedule: Schedule, server: Server, algorithm: str = "ring") -> Timeline:
    """Replay a schedule on a server.

    Parameters
    ----------
    schedule : Schedule
    server : Server
    algorithm : str
        Of all collectives: ``ring``, ``tree``, ``chain``, ``halving_doubling``, ``hierarchical``.

    Returns
    -------
    Timeline

    Raises
    ------
    Deadlock
        If operations never become ready; names the first ones and what each waits for.
    DoesNotFit
        If a device holds more than its usable memory at any time.
    UnknownName, NoPath, InvalidInput, InvalidSchedule
        If server and schedule do not go together.

    Notes
    -----
    Python's cyclic garbage collector is off during the run (a run makes no cycles that matter,
    and scanning millions of records would take most of the time) and restored after it.
    """
    collecting = gc.isenabled()
    gc.disable()
    try:
        program = prepare(schedule, server, algorithm)
        try:
            records = _run(schedule, program, server)
        except IndexError:
            _check_edges(schedule)
            raise
        if len(records.sequence) < 2 * len(schedule.ops):
            _check_edges(schedule)
            raise _deadlock(schedule, records)
        return _timeline(schedule, server, program, records)
    finally:
        if collecting:
            gc.enable()


class _Records(NamedTuple):
    """What a run writes down, by op id; ``late_starts`` where an op waited for a copy engine."""

    ready: list[float]
    end: list[float]
    last: list[int]
    late_starts: dict[int, float]
    sequence: list[int]
    peak: dict[str, int]


def _run(schedule: Schedule, program: Program, server: Server) -> _Records:
    """Let SimPy run until nothing is left to do."""
    total = len(program.lane)
    clock = Clock.start()
    env: Any = clock.env
    queue, number, settle, late = clock.queue, clock.number, clock.settle, clock.late
    after, following, allocs, frees = (
        program.after, program.following, program.allocs, program.frees
    )  # fmt: skip
    # one end more than there are ops: what waits for op -1 never starts
    ready, end, last = [0.0] * total, [UNDONE] * (total + 1), [-1] * total
    sequence: list[int] = []
    ledger = Ledger(schedule, server.memory, sequence)
    records = _Records(ready, end, last, {}, sequence, ledger.peak)
    log, used, size, peak = sequence.append, ledger.used, ledger.size, ledger.peak
    freed: list[int] = []
    # Who asks again at the end of an op that is not done: a chain through ``behind``.
    watcher, behind = [-1] * (total + 1), [-1] * total

    def started(op: int) -> None:
        ledger.take(op, allocs[op])
        log(~op)

    def attempt(op: int, cause: int, now: float) -> None:
        """Start an operation, the first of its stream that is not done, if nothing is missing."""
        for before in after[op]:
            if end[before] < 0.0:
                behind[op] = watcher[before]
                watcher[before] = op
                return
        ready[op] = now
        last[op] = cause
        wait = delay[op]
        tick = tick_of[op]
        if wait < 0.0:
            tick.begin(op)
            return
        for tensor, device in allocs[op]:
            used[device] = level = used[device] + size[tensor]
            if level > peak[device]:
                ledger.raised(op, device)
        log(~op)
        tick.op = op
        heappush(queue, (now + wait, 1, next(number), tick))

    def in_order(waiting: int) -> list[int]:
        """All who wait for one op, by id."""
        found: list[int] = []
        while waiting >= 0:
            found.append(waiting)
            waiting = behind[waiting]
        found.sort()
        return found

    def done(op: int) -> None:
        """End an operation and try all that may have waited for it."""
        now = env._now
        while True:
            end[op] = now
            log(op)
            for tensor, device in frees[op]:
                used[device] -= size[tensor]
            if following[op] >= 0:
                attempt(following[op], op, now)
            waiting = watcher[op]
            if waiting >= 0:
                if behind[waiting] < 0:
                    attempt(waiting, op, now)
                else:
                    for other in in_order(waiting):
                        attempt(other, op, now)
            if not freed:
                return
            op = freed.pop()

    def elapsed(tick: Tick) -> None:
        tick.finished(tick.op)
        if late and (not queue or queue[0][0] > env._now):
            settle()

    hooks = Hooks(elapsed, done, started, freed, ready, records.late_starts, list(program.nbytes))
    wiring = wire(program, server.resources, clock, hooks)
    tick_of = [wiring.ticks[lane] for lane in program.lane]
    delay = _per_op(program, wiring.latency, wiring.rate).tolist()
    for op in program.heads:
        attempt(op, -1, 0.0)
        if freed:
            done(freed.pop())
    settle()
    env.run()
    return records


def _per_op(program: Program, latency: Sequence[float], rate: Sequence[float]) -> Floats:
    """Seconds of each op from latency and rate of its lane."""
    if not program.lane:
        return np.zeros(0)
    lane = np.array(program.lane, np.int32)
    return np.array(latency)[lane] + np.array(program.nbytes, np.float64) / np.array(rate)[lane]


def _timeline(schedule: Schedule, server: Server, program: Program, records: _Records) -> Timeline:
    """Turn the records of a run into arrays, and verify memory."""
    capacities = server.resources
    ready = np.array(records.ready)
    start = ready.copy()
    for op, when in records.late_starts.items():
        start[op] = when
    lanes = program.lanes
    paths: dict[Path, int] = {}
    index = [paths.setdefault(x.path, len(paths)) if x.path else -1 for x in lanes]
    flows = [lane.path if lane.kind == "copy" else None for lane in lanes]
    alone_of = _per_op(
        program,
        [path.latency if path else lane.seconds for path, lane in zip(flows, lanes, strict=True)],
        [alone(Use(path.usage, path.cap), capacities) if path else math.inf for path in flows],
    )
    known: dict[int, float] = {}
    for op, plan in program.plans.items():
        if id(plan) not in known:
            known[id(plan)] = alone_seconds(plan, capacities)
        alone_of[op] = known[id(plan)]
    return Timeline(
        start,
        np.array(records.end[:-1]),
        ready,
        np.array(records.last, np.int64),
        alone_of,
        np.array(index, np.int32)[np.array(program.lane, np.int32)],
        tuple(paths),
        np.array(records.sequence, np.int64),
        records.peak,
    )


def _check_edges(schedule: Schedule) -> None:
    """Say whether a run failed because an operation waits for one that does not exist."""
    total = len(schedule.ops)
    for op in schedule.ops:
        for before in op.after:
            if not 0 <= before < total:
                raise InvalidSchedule(
                    f"schedule {schedule.name}: op {op.id} waits for op {before}, but there are "
                    f"only ops 0 to {total - 1}."
                )


def _deadlock(schedule: Schedule, records: _Records) -> Deadlock:
    """Name the first operations that never ran and what each waits for."""
    ended = {op for op in records.sequence if op >= 0}
    previous: dict[str, int] = {}
    stuck: list[str] = []
    count = 0
    for op in schedule.ops:
        if op.id not in ended:
            count += 1
            waits = [before for before in op.after if before not in ended]
            before = previous.get(op.stream, -1)
            if before >= 0 and before not in ended:
                waits.append(before)
            if len(stuck) < 3:
                where = op.stream or op.device
                names = ", ".join(f"op {w}" for w in dict.fromkeys(waits))
                stuck.append(f"op {op.id} ({op.phase} on {where}) waits for {names}")
        if op.stream:
            previous[op.stream] = op.id
    return Deadlock(
        f"schedule {schedule.name}: {count} of {len(schedule.ops)} operations never became ready: "
        + "; ".join(stuck)
        + ("; ..." if count > len(stuck) else ".")
    )
