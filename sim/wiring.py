"""Wiring: which SimPy event stands for which lane, and how special operations begin and go on."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from functools import partial
from heapq import heappop, heappush
from typing import NamedTuple

from sim.chains import Chains
from sim.collectives import Phase
from sim.fabric import Use, alone, shares
from sim.pool import INF, Clock, Rates, Tick, pool
from sim.program import Lane, Program

SPECIAL = -1.0
"""Delay of an operation that does not simply wait: ``Tick.begin`` is called instead."""

Told = Callable[[int, float], None]
"""Something that is told the id of an operation and the present time in seconds."""


class Hooks(NamedTuple):
    """What the engine lends to the wiring.

    Attributes
    ----------
    done : callable
        Ends an operation.
    log, when : callable
        Write down that an operation starts, in the order of the run: its id, and the seconds.
    freed : list of int
        Operations that end as soon as the present one has been handled.
    early : dict of int to float
        Seconds at which those were ready that waited for a copy engine.
    amount : list of float
        Bytes of each operation, or of its present phase.
    """

    done: Told
    log: Callable[[int], None]
    when: Callable[[float], None]
    freed: list[int]
    early: dict[int, float]
    amount: list[float]


class Wiring(NamedTuple):
    """How each lane runs.

    Attributes
    ----------
    ticks : list of Tick
        By lane.
    latency, rate : list of float
        By lane: an operation waits ``latency + bytes / rate`` seconds; a latency of ``SPECIAL``
        says that ``begin`` is called instead.
    """

    ticks: list[Tick]
    latency: list[float]
    rate: list[float]


class _Port(NamedTuple):
    """A kind of flow; of those with one owner (a stream or a copy engine) one runs at a time."""

    owner: Hashable
    use: Use
    latency: float


def wire(program: Program, capacities: Mapping[str, float], clock: Clock, hooks: Hooks) -> Wiring:
    """Make the events of a run.

    Parameters
    ----------
    program : Program
    capacities : mapping of str to float
        B/s of each resource of the server.
    clock : Clock
    hooks : Hooks
    """
    engines = _shared_engines(program.lanes)
    ports: dict[_Port, int] = {}
    copies: dict[int, int] = {}
    for number, lane in enumerate(program.lanes):
        if lane.kind == "copy" and lane.path is not None:
            owner = lane.engine if lane.engine in engines else lane.stream
            port = _Port(owner, Use(lane.path.usage, lane.path.cap), lane.path.latency)
            copies[number] = ports.setdefault(port, len(ports))
    steps: dict[int, list[int]] = {}
    for op, plan in program.plans.items():
        owner = program.lanes[program.lane[op]].stream
        wanted = [_Port(owner, Use(step.usage, step.cap), 0.0) for step in plan]
        steps[op] = [ports.setdefault(port, len(ports)) for port in wanted]
    flows = _flows(list(ports), capacities, clock, hooks)
    clocks: dict[str, Tick] = {}
    chained = _chained(program.chains, clock, hooks)
    phased = _phased(program.plans, steps, flows, clock, hooks)
    wiring = Wiring([], [], [])
    for number, lane in enumerate(program.lanes):
        if lane.kind == "copy" and lane.path is not None:
            tick = flows[copies[number]]
            tick.latency = lane.path.latency
            if lane.engine in engines:
                _take_turns(tick, engines[lane.engine], clock, hooks)
        elif lane.kind == "compute":
            tick = clocks.setdefault(lane.stream, Tick(clock.env))
            tick.act, tick.begin = hooks.done, partial(chained, tick)
        else:
            tick = phased if lane.kind != "free" else _free(clock, hooks)
        plain = lane.kind == "compute" or (lane.kind == "copy" and lane.engine not in engines)
        latency = lane.seconds if lane.kind == "compute" else tick.latency
        wiring.ticks.append(tick)
        wiring.latency.append(latency if plain else SPECIAL)
        wiring.rate.append(tick.rate if plain else INF)
    for tick in flows:
        if not tick.bit:
            tick.act = tick.finished
    return wiring


def _flows(
    ports: Sequence[_Port], capacities: Mapping[str, float], clock: Clock, hooks: Hooks
) -> list[Tick]:
    """Make one tick a port: a plain wait where no other stream can slow the flow, else a pool's."""
    number: dict[Hashable, int] = {}
    owners = [number.setdefault(port.owner, len(number)) for port in ports]
    found = shares(owners, [port.use for port in ports], capacities)
    ticks: list[Tick] = []
    for _ in ports:
        tick = Tick(clock.env)
        tick.finished = hooks.done
        ticks.append(tick)
    members: dict[int, list[int]] = {}
    for i, share in enumerate(found):
        members.setdefault(share.pool, []).append(i)
    for inside in members.values():
        slots = list(dict.fromkeys(owners[i] for i in inside))
        if len(slots) == 1:
            for i in inside:
                ticks[i].rate = found[i].limit
            continue
        for bit, i in enumerate(inside):
            ticks[i].slot, ticks[i].bit = slots.index(owners[i]), 1 << bit
        rates = Rates([ticks[i].slot for i in inside], [found[i] for i in inside], capacities)
        pool(clock, [ticks[i] for i in inside], rates, len(slots), hooks.amount)
    return ticks


def _chained(found: Chains, clock: Clock, hooks: Hooks) -> Callable[[Tick, int, float], None]:
    """Chains wait once for the seconds of all their members."""
    queue, number = clock.queue, clock.number
    first, stop = found.first, found.first + found.length
    pieces = zip(found.heads.tolist(), first.tolist(), stop.tolist(), strict=True)
    span = {head: (begin, end) for head, begin, end in pieces}
    members, seconds = found.members.tolist(), found.seconds.tolist()

    def begin(tick: Tick, op: int, now: float) -> None:
        hooks.log(op)
        hooks.when(now)
        first, stop = span[op]
        for step in seconds[first:stop]:
            now += step
        tick.op = members[stop - 1]
        heappush(queue, (now, 1, next(number), tick))

    return begin


def _free(clock: Clock, hooks: Hooks) -> Tick:
    """Operations that take no time end right after the one that made them ready."""

    def begin(op: int, now: float) -> None:
        hooks.log(op)
        hooks.when(now)
        hooks.freed.append(op)

    tick = Tick(clock.env)
    tick.begin = begin
    return tick


def _shared_engines(lanes: Sequence[Lane]) -> dict[tuple[str, int], _Engine]:
    """Copy engines that more than one stream uses; a stream alone is in order anyway."""
    streams: dict[tuple[str, int], set[str]] = {}
    for lane in lanes:
        if lane.engine is not None:
            streams.setdefault(lane.engine, set()).add(lane.stream)
    return {engine: _Engine() for engine, users in streams.items() if len(users) > 1}


class _Engine:
    """One copy engine: who waits, by time of readiness and then id, and whether it is busy."""

    __slots__ = ("busy", "waiting")

    def __init__(self) -> None:
        self.busy = False
        self.waiting: list[tuple[float, int, Tick]] = []


def _take_turns(tick: Tick, engine: _Engine, clock: Clock, hooks: Hooks) -> None:
    """Let the operations of ``tick`` wait for the copy engine, and hand it on when they end."""
    queue, number = clock.queue, clock.number
    done, log, when, amount = hooks.done, hooks.log, hooks.when, hooks.amount
    waiting = engine.waiting

    def launch(op: int, now: float, mine: Tick) -> None:
        log(op)
        when(now)
        mine.op = op
        heappush(queue, (now + mine.latency + amount[op] / mine.rate, 1, next(number), mine))

    def request(op: int, now: float) -> None:
        if engine.busy:
            heappush(waiting, (now, op, tick))
        else:
            engine.busy = True
            launch(op, now, tick)

    def release(op: int, now: float) -> None:
        done(op, now)
        if waiting:
            ready, following, mine = heappop(waiting)
            if ready < now:
                hooks.early[following] = ready
            launch(following, now, mine)
        else:
            engine.busy = False

    tick.begin, tick.finished = request, release


def _phased(
    plans: Mapping[int, Sequence[Phase]],
    steps: Mapping[int, Sequence[int]],
    flows: Sequence[Tick],
    clock: Clock,
    hooks: Hooks,
) -> Tick:
    """Operations of several phases: each phase is a latency and then a flow."""
    running: dict[int, Iterator[tuple[Phase, int]]] = {}
    queue, number = clock.queue, clock.number
    amount = hooks.amount

    def advance(op: int, now: float) -> None:
        step = next(running[op], None)
        if step is None:
            del running[op]
            hooks.done(op, now)
            return
        phase, port = step
        tick = flows[port]
        tick.op = op
        amount[op] = phase.nbytes
        wait = phase.latency + phase.nbytes / tick.rate
        heappush(queue, (now + wait, 1, next(number), tick))

    def begin(op: int, now: float) -> None:
        hooks.log(op)
        hooks.when(now)
        plan = plans[op]
        if not plan:  # a group of one
            hooks.freed.append(op)
            return
        running[op] = iter(zip(plan, steps[op], strict=True))
        advance(op, now)

    for ports in steps.values():
        for port in ports:
            flows[port].finished = advance
    tick = Tick(clock.env)
    tick.begin = begin
    return tick


def alone_seconds(plan: Sequence[Phase], capacities: Mapping[str, float]) -> float:
    """Time of all phases of an operation when nothing else runs."""
    return sum(
        step.latency + step.nbytes / alone(Use(step.usage, step.cap), capacities) for step in plan
    )
