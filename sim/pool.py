"""Fluid flows in time: flows of one pool share its links and end when their bytes have passed."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
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
"""Rates kept in a pool's memory before it is emptied (about 30 MB)."""


class Clock(NamedTuple):
    """SimPy's clock and heap, and what must be done at the end of the present instant.

    Attributes
    ----------
    env : Environment
    queue : list
        SimPy's heap of (time, priority, number, event).
    number : itertools.count
        SimPy's counter: events of one instant run in the order in which they were scheduled.
    late : list of callable
        Called with the time once no event of this instant is left.
    """

    env: Environment
    queue: list[tuple[float, int, int, Event]]
    number: count[int]
    late: list[Callable[[float], None]]

    @staticmethod
    def start() -> Clock:
        """Make a new clock at zero."""
        env: Any = Loop()
        return Clock(env, env._queue, env._eid, [])

    def settle(self) -> None:
        """Do what waits for the end of this instant, if it has come."""
        queue, now = self.queue, self.env._now  # pyright: ignore[reportPrivateUsage]
        if not queue or queue[0][0] > now:
            for act in self.late:
                act(now)
            self.late.clear()


class Loop(Environment):
    """SimPy's environment, whose loop knows that all its events are ticks.

    Clock, heap and order of events are SimPy's. A tick has one callback, cannot fail, and happens
    again and again, so that taking its callbacks off and putting them back each time is left out.
    """

    def run(self, until: Any = None) -> None:
        """Let ticks happen until none is left."""
        queue: Any = self._queue
        while queue:
            self._now, _, _, tick = heappop(queue)
            tick.act(tick)


class Tick(Event):
    """An event that is used again and again: the end of a wait of one stream or of one pool.

    Attributes
    ----------
    op : int
        Operation that it is about.
    act : callable
        What happens; given the tick.
    finished : callable
        Told the operation when its wait or its flow has ended.
    begin : callable
        Told an operation that can start but must not simply wait.
    latency, rate : float
        Seconds before the first byte; B/s if the flow has no rivals, else ``inf``.
    slot, bit : int
        Place in its pool.
    """

    def __init__(self, env: Environment, act: Callable[[Tick], None]) -> None:
        super().__init__(env)
        self.act = act
        self.op = -1
        self.finished: Callable[[int], None] = _nothing
        self.begin: Callable[[int], None] = _nothing
        self.latency = 0.0
        self.rate = INF
        self.slot = 0
        self.bit = 0


def _nothing(op: int) -> None:
    """Stand in until the engine has wired a tick."""


class Rates:
    """Rates by the set of active flows, found once each.

    A layer-wise schedule repeats a few dozen sets; a set is an integer with one bit a flow.

    Parameters
    ----------
    slots : sequence of int
        Slot of each flow: flows of one stream share one, since only one of them runs.
    flows : sequence of Share
    capacities : mapping of str to float
        B/s of each resource.

    Attributes
    ----------
    known : dict of int to sequence of float
        Rates found so far, by set of active flows.
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
        self.known: dict[int, Sequence[float]] = {}

    def find(self, active: int) -> Sequence[float]:
        """Rate in B/s by slot, 1 where no flow is active; from now on ``known``."""
        if len(self.known) * self._count > MEMO:
            self.known.clear()
        found = self.known[active] = self._solve(active)
        return found

    def _solve(self, active: int) -> Sequence[float]:
        chosen: list[int] = []
        while active:
            lowest = active & -active
            chosen.append(lowest.bit_length() - 1)
            active ^= lowest
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
    env: Any = clock.env
    queue, number, late, settle_clock = clock.queue, clock.number, clock.late, clock.settle
    finish = [INF] * slots  # when the flow will end at its present rate
    size: list[float] = [0.0] * slots
    running = [ticks[0]] * slots
    live: list[int] = []  # slots of flows that have a rate
    joined: list[int] = []  # slots of flows that have none yet
    active = 0  # set of flows
    known, find = rates.known, rates.find
    present = find(active)
    armed = INF  # time of the timer that counts; later ones in the heap are ignored
    dirty = False

    def join(tick: Tick) -> None:
        nonlocal active, dirty
        slot = tick.slot
        running[slot] = tick
        size[slot] = amount[tick.op]
        joined.append(slot)
        active |= tick.bit
        if not dirty:
            dirty = True
            late.append(settle)
        if not queue or queue[0][0] > env._now:
            settle_clock()

    def settle(now: float) -> None:
        nonlocal present, armed, dirty
        dirty = False
        before, present = present, known.get(active) or find(active)
        if present is not before:
            for slot in live:
                old, new = before[slot], present[slot]
                if old != new:
                    finish[slot] = now + (finish[slot] - now) * (old / new)
        if joined:
            for slot in joined:
                finish[slot] = now + size[slot] / present[slot]
            live.extend(joined)
            joined.clear()
        soonest = min(finish)
        if soonest < armed:
            armed = soonest if soonest > now else now
            heappush(queue, (armed, 1, next(number), timer))

    def leave(_: Tick) -> None:
        nonlocal active, armed, dirty
        now = env._now
        if now >= armed:
            armed = INF
            edge = now * RESOLUTION
            if not dirty:  # who leaves changes rates; if none does, the timer must be set anew
                dirty = True
                late.append(settle)
            for slot in [slot for slot, end in enumerate(finish) if end <= edge]:
                finish[slot] = INF
                live.remove(slot)
                tick = running[slot]
                active ^= tick.bit
                tick.finished(tick.op)
        if late and (not queue or queue[0][0] > now):
            settle_clock()

    timer = Tick(clock.env, leave)
    for tick in ticks:
        tick.act = join
