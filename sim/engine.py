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
* Compute operations of one stream between which nothing else waits are one event (`sim.chains`);
  their dates are the same to the last bit. In ``Timeline.sequence``, which decides what memory is
  given back before other memory is taken, what happens inside such a chain comes before all else
  of the same instant.
"""

from __future__ import annotations

import gc
import math
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from heapq import heappush
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hwmodels.errors import Deadlock
from sim.chains import ended, unfold
from sim.fabric import Use, alone
from sim.pool import Clock
from sim.program import Path, Program, prepare
from sim.wiring import SPECIAL, Hooks, alone_seconds, wire
from workloads.schedule import Schedule

if TYPE_CHECKING:
    from hwmodels.server import Server

Floats = NDArray[np.float64]


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
        return _timeline(schedule, server, program, _run(program, server))
    finally:
        if collecting:
            gc.enable()


class _Records(NamedTuple):
    """What a run writes down.

    ``log`` holds each op twice, where it starts and where it ends, of a chain the head where it
    starts and the tail where it ends; ``times`` the seconds of each. ``last`` is by op, and
    ``early`` the seconds at which those ops were ready that waited for a copy engine.
    """

    log: array[int]
    times: array[float]
    last: list[int]
    early: dict[int, float]


def _run(program: Program, server: Server) -> _Records:
    """Let SimPy run until nothing is left to do."""
    total = len(program.lane)
    clock = Clock.start()
    queue, number = clock.queue, clock.number
    after, following = program.after, program.following
    records = _Records(array("q"), array("d"), [-1] * total, {})
    log, when, last = records.log.append, records.times.append, records.last
    over = bytearray(total)  # whether an op has ended
    freed: list[int] = []
    # Who asks again at the end of an op that is not done: a chain through ``behind``.
    watcher, behind = [-1] * total, [-1] * total

    def attempt(op: int, cause: int, now: float) -> None:
        """Start an operation, the first of its stream that is not done, if nothing is missing."""
        for before in after[op]:
            if not over[before]:
                behind[op] = watcher[before]
                watcher[before] = op
                return
        last[op] = cause
        wait = delay[op]
        tick = tick_of[op]
        if wait < 0.0:
            tick.begin(op, now)
            return
        log(op)
        when(now)
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

    def done(op: int, now: float) -> None:
        """End an operation and try all that may have waited for it."""
        while True:
            over[op] = 1
            log(op)
            when(now)
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

    hooks = Hooks(done, log, when, freed, records.early, list(program.nbytes))
    wiring = wire(program, server.resources, clock, hooks)
    tick_of = list(map(wiring.ticks.__getitem__, program.lane.tolist()))
    wait_of = _per_op(program, wiring.latency, wiring.rate)
    wait_of[program.chains.heads] = SPECIAL
    delay = wait_of.tolist()
    for op in program.heads:
        attempt(op, -1, 0.0)
        if freed:
            done(freed.pop(), 0.0)
    clock.env.run()
    # The functions above hold each other, and these, until the next collection of garbage.
    for column in (delay, tick_of, watcher, behind, hooks.amount):
        column.clear()
    return records


def _per_op(program: Program, latency: Sequence[float], rate: Sequence[float]) -> Floats:
    """Seconds of each op from latency and rate of its lane."""
    nbytes = np.array(program.nbytes, np.float64)
    return np.array(latency)[program.lane] + nbytes / np.array(rate)[program.lane]


def _timeline(schedule: Schedule, server: Server, program: Program, records: _Records) -> Timeline:
    """Turn the records of a run into arrays, and verify that it ended and that memory sufficed."""
    found = program.chains
    total = len(schedule.ops)
    events, times = np.array(records.log), np.array(records.times)
    if len(events) < 2 * (total - len(found.members) + len(found.first)):
        raise _deadlock(schedule, ended(events, found, total))
    dates = unfold(events, times, np.array(records.last, np.int64), found)
    ready = dates.start.copy()
    for op, when in records.early.items():
        ready[op] = when
    peak = program.ledger.peaks(dates.sequence, server.memory)
    paths: dict[Path, int] = {}
    index = [paths.setdefault(x.path, len(paths)) if x.path else -1 for x in program.lanes]
    return Timeline(
        dates.start,
        dates.end,
        ready,
        dates.last,
        _alone(program, server.resources),
        np.array(index, np.int32)[program.lane],
        tuple(paths),
        dates.sequence,
        peak,
    )


def _alone(program: Program, capacities: Mapping[str, float]) -> Floats:
    """Seconds of each op if nothing else ran."""
    flows = [lane.path if lane.kind == "copy" else None for lane in program.lanes]
    found = _per_op(
        program,
        [
            path.latency if path else lane.seconds
            for path, lane in zip(flows, program.lanes, strict=True)
        ],
        [alone(Use(path.usage, path.cap), capacities) if path else math.inf for path in flows],
    )
    known: dict[int, float] = {}
    for op, plan in program.plans.items():
        if id(plan) not in known:
            known[id(plan)] = alone_seconds(plan, capacities)
        found[op] = known[id(plan)]
    return found


def _deadlock(schedule: Schedule, ended: set[int]) -> Deadlock:
    """Name the first operations that never ran and what each waits for."""
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
