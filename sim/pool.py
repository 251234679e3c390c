"""Fluid flows in time: flows of one pool share its links and end when their bytes have passed."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from heapq import heappop, heappush
from itertools import count
from typing import Any, NamedTuple

from simpy import Environment
from simpy.events import Event

from sim.fabric import Share, fill

INF = math.inf

RESOLUTION = 1.0 + 4e-15
"""Flows whose ends are closer than this factor of the clock end together: below about 18 units
of the last place of a float64 two instants are not told apart, and time always moves on."""

MEMO = 1_000_000
"""Numbers kept in a pool's memory before it is emptied (about 30 MB)."""


class Clock(NamedTuple):
    """SimPy's clock and heap, and what must be done at the end of the present instant.

    Attributes
    ----------
    env : Loop
    queue : list
        SimPy's heap of (time, priority, number, event).
    number : itertools.count
        SimPy's counter: events of one instant run in the order in which they were scheduled.
    late : list of callable
        Called with the time once no event of this instant is left.
    """

    env: Loop
    queue: list[tuple[float, int, int, Event]]
    number: count[int]
    late: list[Callable[[float], None]]

    @staticmethod
    def start() -> Clock:
        """Make a new clock at zero."""
        loop: Any = Loop()
        return Clock(loop, loop._queue, loop._eid, loop.late)


class Loop(Environment):
    """SimPy's environment, whose loop knows that all its events are ticks.

    Clock, heap and order of events are SimPy's. A tick has one callback, cannot fail, and happens
    again and again, so that taking its callbacks off and putting them back each time is left out.

    Attributes
    ----------
    late : list of callable
        Called with the time once no event of this instant is left, then forgotten.
    """

    def __init__(self) -> None:
        super().__init__()
        self.late: list[Callable[[float], None]] = []

    def run(self, until: Any = None) -> None:
        """Let ticks happen until none is left."""
        queue: Any = self._queue
        late, now = self.late, self._now
        while True:
            if late and not (queue and queue[0][0] <= now):
                for act in late:
                    act(now)
                late.clear()
            if not queue:
                return
            now, _, _, tick = heappop(queue)
            self._now = now
            tick.act(tick.op, now)


class Tick(Event):
    """An event that is used again and again: the end of a wait of one stream or of one pool.

    Attributes
    ----------
    op : int
        Operation that it is about.
    act : callable
        What happens; told the operation and the time.
    finished : callable
        Told the operation when its wait or its flow has ended.
    begin : callable
        Told an operation that can start but must not simply wait.
    latency, rate : float
        Seconds before the first byte; B/s if the flow has no rivals, else ``inf``.
    slot, bit : int
        Place in its pool; a ``bit`` of zero says that it is in none.
    """

    def __init__(self, env: Environment) -> None:
        super().__init__(env)
        self.op = -1
        self.act: Callable[[int, float], None] = _nothing
        self.finished: Callable[[int, float], None] = _nothing
        self.begin: Callable[[int, float], None] = _nothing
        self.latency = 0.0
        self.rate = INF
        self.slot = 0
        self.bit = 0


def _nothing(op: int, now: float) -> None:
    """Stand in until the engine has wired a tick."""


class Move(NamedTuple):
    """What changes when one set of active flows follows another.

    Attributes
    ----------
    state : State
        The new set.
    stretch : tuple of (int, float)
        Slots of flows that are in both sets, if their rate changes: old rate over new one.
    """

    state: State
    stretch: tuple[tuple[int, float], ...]


class State:
    """A set of active flows.

    Attributes
    ----------
    rates : sequence of float
        Rate in B/s by slot, 1 where no flow is active.
    moves : dict of int to Move
        Sets that have followed this one so far.
    """

    __slots__ = ("flows", "moves", "rates")

    def __init__(self, flows: int, rates: Sequence[float]) -> None:
        self.flows = flows
        self.rates = rates
        self.moves: dict[int, Move] = {}


class Rates:
    """Rates by the set of active flows, and changes from one set to the next, found once each.

    A layer-wise schedule repeats a few dozen sets; a set is an integer with one bit a flow.

    Parameters
    ----------
    slots : sequence of int
        Slot of each flow: flows of one stream share one, since only one of them runs.
    flows : sequence of Share
    capacities : mapping of str to float
        B/s of each resource.
    """

    def __init__(
        self, slots: Sequence[int], flows: Sequence[Share], capacities: Mapping[str, float]
    ) -> None:
        self._slots = slots
        numbers: dict[str, int] = {}
        kinds: dict[tuple[tuple[tuple[int, float], ...], float], int] = {}
        self._kind: list[int] = []
        for flow in flows:
            usage = tuple((numbers.setdefault(r, len(numbers)), m) for r, m in flow.usage)
            self._kind.append(kinds.setdefault((usage, flow.limit), len(kinds)))
        self._usages = [usage for usage, _ in kinds]
        self._limits = [limit for _, limit in kinds]
        self._capacities = [capacities[resource] for resource in numbers]
        self._count = max(slots) + 1
        self._known: dict[int, State] = {}
        self._kept = 0

    def state(self, flows: int) -> State:
        """Find a set of flows."""
        found = self._known.get(flows)
        if found is None:
            found = self._known[flows] = State(flows, self._solve(flows))
            self._kept += self._count
        return found

    def move(self, before: State, flows: int) -> Move:
        """Change to another set of flows; from now on in ``before.moves``."""
        if self._kept > MEMO:
            for state in self._known.values():
                state.moves.clear()  # states hold each other
            self._known.clear()
            self._kept = 0
        after = self.state(flows)
        pairs = [(self._slots[i], before.rates, after.rates) for i in _bits(before.flows & flows)]
        stretch = tuple((i, old[i] / new[i]) for i, old, new in pairs if old[i] != new[i])
        found = before.moves[flows] = Move(after, stretch)
        self._kept += len(stretch) + 1
        return found

    def _solve(self, flows: int) -> Sequence[float]:
        chosen = _bits(flows)
        counts: dict[int, int] = {}
        for i in chosen:
            counts[self._kind[i]] = counts.get(self._kind[i], 0) + 1
        rates = fill(
            [self._usages[kind] for kind in counts],
            [self._limits[kind] for kind in counts],
            list(counts.values()),
            self._capacities,
        )
        rate_of = dict(zip(counts, rates, strict=True))
        found = [1.0] * self._count
        for i in chosen:
            found[self._slots[i]] = rate_of[self._kind[i]]
        return found


def _bits(flows: int) -> list[int]:
    """Positions of the bits that are set, lowest first."""
    found: list[int] = []
    while flows:
        lowest = flows & -flows
        found.append(lowest.bit_length() - 1)
        flows ^= lowest
    return found


def pool(
    clock: Clock,
    ticks: Sequence[Tick],
    rates: Rates,
    slots: int,
    amount: Sequence[float],
) -> None:
    """Let flows of one pool run: each tick, when it happens, joins its flow to the pool.

    A flow keeps the time at which it will end, and that time is stretched or shrunk when its rate
    changes. All changes of one instant are taken together, at its end.

    Parameters
    ----------
    clock : Clock
    ticks : sequence of Tick
        One a flow, its ``slot`` and ``bit`` as in ``rates``; what they do is set here.
    rates : Rates
    slots : int
        Streams that take part.
    amount : sequence of float
        Bytes of each operation.
    """
    queue, number, late = clock.queue, clock.number, clock.late
    finish = [INF] * slots  # when the flow will end at its present rate
    running = [ticks[0]] * slots
    joined: list[tuple[int, float]] = []  # slot and bytes of flows that have no rate yet
    active = 0  # set of flows
    present = rates.state(active)
    armed = INF  # time of the timer that counts; later ones in the heap are ignored
    soonest = INF  # least of ``finish`` when last looked at
    dirty = False

    def join(tick: Tick, op: int, _: float) -> None:
        nonlocal active, dirty
        slot = tick.slot
        running[slot] = tick
        joined.append((slot, amount[op]))
        active |= tick.bit
        if not dirty:
            dirty = True
            late.append(settle)

    def settle(now: float) -> None:
        nonlocal present, armed, dirty, soonest
        dirty = False
        present, stretch = present.moves.get(active) or rates.move(present, active)
        for slot, ratio in stretch:
            finish[slot] = now + (finish[slot] - now) * ratio
        if joined:
            speed = present.rates
            for slot, size in joined:
                finish[slot] = now + size / speed[slot]
            joined.clear()
        soonest = min(finish)
        if soonest < armed:
            armed = soonest if soonest > now else now
            heappush(queue, (armed, 1, next(number), timer))

    def leave(_: int, now: float) -> None:
        nonlocal active, armed, dirty
        if now < armed:  # an older timer
            return
        edge = now * RESOLUTION
        if soonest > edge:  # flows were slowed since; a change that is due sets the timer itself
            if dirty:
                armed = INF
            else:
                armed = soonest
                heappush(queue, (armed, 1, next(number), timer))
            return
        armed = INF
        if not dirty:  # who leaves changes rates; if none does, the timer must be set anew
            dirty = True
            late.append(settle)
        slot = finish.index(soonest)
        finish[slot] = INF
        if min(finish) > edge:
            ending = (slot,)
        else:
            finish[slot] = soonest
            ending = [slot for slot, end in enumerate(finish) if end <= edge]
        for slot in ending:
            finish[slot] = INF
            tick = running[slot]
            active ^= tick.bit
            tick.finished(tick.op, now)

    timer = Tick(clock.env)
    timer.act = leave
    for tick in ticks:
        tick.act = partial(join, tick)
