"""Fluid flows in time: flows of one pool share its links and end when their bytes have passed."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from heapq import heappush
from itertools import count
from typing import Any, NamedTuple

from simpy import Environment
from simpy.events import Event

from sim.fabric import Share, fill

INF = math.inf

RESOLUTION = 1.0 + 4e-15
"""Flows whose ends are closer than this factor of the clock end together: below about 18 units
of the last place of a float64 two instants are not told apart, and time always moves on."""

MEMO = 200_000
"""Rates kept in a pool's memory of states before it is emptied (about 20 MB)."""


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
        env: Any = Environment()
        return Clock(env, env._queue, env._eid, [])

    def settle(self) -> None:
        """Do what waits for the end of this instant, if it has come."""
        queue, now = self.queue, self.env._now  # pyright: ignore[reportPrivateUsage]
        if not queue or queue[0][0] > now:
            for act in self.late:
                act(now)
            self.late.clear()


class Tick(Event):
    """An event that is used again and again: the end of a wait of one stream or of one pool.

    Attributes
    ----------
    op : int
        Operation that it is about.
    again : list
        Its callbacks; SimPy forgets them each time that the event happens.
    finished : callable
        Told the operation when its wait or its flow has ended.
    begin : callable
        Told an operation that can start but must not simply wait.
    latency, rate : float
        Seconds before the first byte; B/s if the flow has no rivals, else ``inf``.
    slot, bit : int
        Place in its pool.
    """

    def __init__(self, env: Environment, callback: Callable[[Tick], None]) -> None:
        super().__init__(env)
        self._ok = True
        self._value = None
        self.again: list[Any] = [callback]
        self.callbacks = self.again
        self.op = -1
        self.finished: Callable[[int], None] = _nothing
        self.begin: Callable[[int], None] = _nothing
        self.latency = 0.0
        self.rate = INF
        self.slot = 0
        self.bit = 0


def _nothing(op: int) -> None:
    """Stand in until the engine has wired a tick."""


class Change(NamedTuple):
    """How rates change from one set of active flows to another.

    Attributes
    ----------
    fresh : tuple of (int, float)
        Slot and rate in B/s of flows that join.
    scaled : tuple of (int, float)
        Slot and old rate / new rate of flows that go on at another rate.
    rates : dict of int to float
        Rate of every active slot.
    """

    fresh: tuple[tuple[int, float], ...]
    scaled: tuple[tuple[int, float], ...]
    rates: dict[int, float]


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
        self._states: dict[int, dict[int, float]] = {}
        self._changes: dict[tuple[int, int], Change] = {}
        self._kept = 0

    def state(self, active: int) -> dict[int, float]:
        """Rate in B/s of every active slot."""
        found = self._states.get(active)
        if found is None:
            chosen: list[int] = []
            left = active
            while left:
                lowest = left & -left
                chosen.append(lowest.bit_length() - 1)
                left ^= lowest
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
            found = self._states[active] = {self._slots[i]: rate_of[self._kind[i]] for i in chosen}
            self._kept += len(found)
        return found

    def change(self, old: int, new: int) -> Change:
        """Tell what changes when the active set ``old`` becomes ``new``."""
        found = self._changes.get((old, new))
        if found is None:
            if self._kept > MEMO:
                self._states.clear()
                self._changes.clear()
                self._kept = 0
            before, after = self.state(old), self.state(new)
            joined: set[int] = set()
            left = new & ~old
            while left:
                lowest = left & -left
                joined.add(self._slots[lowest.bit_length() - 1])
                left ^= lowest
            fresh = tuple((slot, rate) for slot, rate in after.items() if slot in joined)
            scaled = tuple(
                (slot, before[slot] / rate)
                for slot, rate in after.items()
                if slot not in joined and before[slot] != rate
            )
            found = self._changes[(old, new)] = Change(fresh, scaled, after)
            self._kept += len(fresh) + len(scaled)
        return found


def pool(
    clock: Clock, ticks: Sequence[Tick], rates: Rates, slots: int, amount: Sequence[float]
) -> None:
    """Let flows of one pool run: each tick, when it happens, joins its flow to the pool.

    Only the flows whose rate changes are touched: a flow keeps the time at which it will end, and
    that time is stretched or shrunk when its rate changes. All changes of one instant are taken
    together, at its end.

    Parameters
    ----------
    clock : Clock
    ticks : sequence of Tick
        One a flow, its ``slot`` and ``bit`` as in ``rates``; their callbacks are set here.
    rates : Rates
    slots : int
        Streams that take part.
    amount : sequence of float
        Bytes of each operation.
    """
    env: Any = clock.env
    queue, number, late = clock.queue, clock.number, clock.late
    settle_clock = clock.settle
    change = rates.change
    finish = [INF] * slots  # when the flow will end at its present rate
    size: list[float] = [0.0] * slots
    running = [ticks[0]] * slots
    rejoined: list[int] = []
    active = settled = 0  # sets of flows: now, and when rates were last found
    armed = INF  # time of the timer that counts; later ones in the heap are ignored
    dirty = False

    def join(tick: Tick) -> None:
        nonlocal active, dirty
        tick.callbacks = tick.again
        slot, bit = tick.slot, tick.bit
        running[slot] = tick
        size[slot] = amount[tick.op]
        if settled & bit:  # the same kind of flow ended in this very instant
            rejoined.append(slot)
        active |= bit
        if not dirty:
            dirty = True
            late.append(settle)
        settle_clock()

    def settle(now: float) -> None:
        nonlocal settled, armed, dirty
        dirty = False
        if active != settled or rejoined:
            fresh, scaled, present = change(settled, active)
            for slot, factor in scaled:
                finish[slot] = now + (finish[slot] - now) * factor
            for slot, rate in fresh:
                finish[slot] = now + size[slot] / rate
            for slot in rejoined:
                finish[slot] = now + size[slot] / present[slot]
            rejoined.clear()
            settled = active
        soonest = min(finish)
        if soonest < armed:
            armed = soonest if soonest > now else now
            heappush(queue, (armed, 1, next(number), timer))

    def leave(event: Tick) -> None:
        nonlocal active, armed, dirty
        event.callbacks = event.again
        now = env._now
        if now >= armed:
            armed = INF
            edge = now * RESOLUTION
            soonest = min(finish)
            if not dirty:
                dirty = True
                late.append(settle)
            while soonest <= edge:
                slot = finish.index(soonest)
                finish[slot] = INF
                tick = running[slot]
                active ^= tick.bit
                tick.finished(tick.op)
                soonest = min(finish)
        if late:
            settle_clock()

    timer = Tick(clock.env, leave)
    for tick in ticks:
        tick.again[0] = join
