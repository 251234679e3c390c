"""Proof that a schedule is safe in every execution that respects its edges.

The ops are walked once in list order, which is one possible execution; a vector clock a stream
then shows that any two ops that touch the same memory are ordered by the edges themselves, so
that every other execution sees the same data. The cost is linear in ops times streams.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NoReturn

import numpy as np

from hwmodels.errors import InvalidSchedule

if TYPE_CHECKING:
    from workloads.schedule import Op, Place, Schedule


@dataclass(slots=True)
class _Held:
    """One tensor on one device: who made it valid (None: not valid), and who read it since."""

    maker: int | None
    touched: dict[str, int] = field(default_factory=dict[str, int])


def check(schedule: Schedule) -> None:
    """Prove the rules of ``Schedule``; see the module's docstring.

    Raises
    ------
    InvalidSchedule
        Naming the first op that breaks a rule, and which.
    """
    order = Order(schedule)
    _Memory(schedule, order).walk()
    _check_room(schedule, order)
    _check_coverage(schedule)


class Order:
    """Which op is certain to have ended before which other starts."""

    def __init__(self, schedule: Schedule) -> None:
        self.schedule = schedule
        names = dict.fromkeys(op.stream for op in schedule.ops if op.stream)
        self.index = {name: i for i, name in enumerate(names)}
        self.clock = np.zeros((len(schedule.ops), len(names)), dtype=np.int32)
        self.position: list[int] = []
        last: dict[str, int] = {}
        counts = dict.fromkeys(names, 0)
        for place, op in enumerate(schedule.ops):
            if op.id != place:
                _fail(op, f"has id {op.id} at place {place}; ids must be unique and in order")
            row = self.clock[place]
            for before in op.after:
                if not 0 <= before < place:
                    _fail(op, f"waits for op {before}, which is not before it: a cycle")
                np.maximum(row, self.clock[before], out=row)
            if op.stream:
                previous = last.get(op.stream)
                if previous is not None:
                    np.maximum(row, self.clock[previous], out=row)
                counts[op.stream] += 1
                last[op.stream] = place
                row[self.index[op.stream]] = counts[op.stream]
            elif op.phase == "barrier":
                if any(row[self.index[name]] < counts[name] for name in names):
                    _fail(op, "does not wait for every op before it")
            elif op.kind != "free":
                _fail(op, "has no stream; only a free may have none")
            self.position.append(counts[op.stream] if op.stream else 0)

    def before(self, first: int, second: int) -> bool:
        """Whether op ``first`` has ended when op ``second`` starts, in every execution."""
        stream = self.schedule.ops[first].stream
        if stream:
            return bool(self.clock[second, self.index[stream]] >= self.position[first])
        return bool((self.clock[second] >= self.clock[first]).all())


class _Memory:
    """Walks the ops and follows what lies where."""

    def __init__(self, schedule: Schedule, order: Order) -> None:
        self.schedule = schedule
        self.order = order
        self.held: dict[Place, _Held] = {place: _Held(-1) for place in schedule.initial}
        self.where: dict[int, set[str]] = {}
        for tensor, device in schedule.initial:
            self.where.setdefault(tensor, set()).add(device)
        self.left: dict[Place, int] = {}
        self.summed: set[int] = set()

    def walk(self) -> None:
        for op in self.schedule.ops:
            for place in op.allocs:
                if place in self.held:
                    _fail(op, f"allocates {self._say(place)}, which is already there")
                left = self.left.get(place)
                if left is not None and not self.order.before(left, op.id):
                    _fail(
                        op,
                        f"allocates {self._say(place)} without waiting for op {left} that frees it",
                    )
                self.held[place] = _Held(op.id if op.phase == "barrier" else None)
                self.where.setdefault(place[0], set()).add(place[1])
            for place in reads(op):
                self._read(op, place)
            for place in writes(op):
                self._write(op, place)
            for place in op.frees:
                self._free(op, place)
            if self.schedule.replicas > 1:
                self._follow_sums(op)
        self._end()

    def _follow_sums(self, op: Op) -> None:
        """Between the last backward and the update, replicas sum each gradient."""
        if op.kind == "collective":
            self.summed.update(op.writes)
        elif op.phase in ("backward", "backward_weight"):
            self.summed.difference_update(op.writes)
        elif op.phase == "update":
            for tensor in op.reads:
                kind = self.schedule.tensors[tensor].kind
                if kind == "gradient" and tensor not in self.summed:
                    _fail(
                        op,
                        f"uses {self.schedule.tensors[tensor].name}, which was not summed over "
                        f"the {self.schedule.replicas} replicas",
                    )

    def _find(self, op: Op, place: Place, what: str) -> _Held:
        held = self.held.get(place)
        if held is None:
            _fail(op, f"{what} {self._say(place)}, which is not there (freed, or never allocated)")
        return held

    def _read(self, op: Op, place: Place) -> None:
        held = self._find(op, place, "reads")
        if held.maker is None:
            _fail(op, f"reads {self._say(place)}, which is stale or was never written")
        if held.maker >= 0 and not self.order.before(held.maker, op.id):
            _fail(op, f"reads {self._say(place)} without waiting for op {held.maker} that fills it")
        held.touched[op.stream] = op.id

    def _write(self, op: Op, place: Place) -> None:
        held = self._find(op, place, "writes")
        self._all_before(op, held, f"writes {self._say(place)}")
        if op.kind != "copy":
            for device in self.where[place[0]]:
                if device != place[1]:
                    self.held[(place[0], device)].maker = None
        held.maker = op.id
        held.touched = {op.stream: op.id}

    def _free(self, op: Op, place: Place) -> None:
        held = self._find(op, place, "frees")
        self._all_before(op, held, f"frees {self._say(place)}")
        del self.held[place]
        self.left[place] = op.id
        self.where[place[0]].discard(place[1])

    def _all_before(self, op: Op, held: _Held, what: str) -> None:
        users = list(held.touched.values())
        if held.maker is not None and held.maker >= 0:
            users.append(held.maker)
        for user in users:
            if user != op.id and not self.order.before(user, op.id):
                _fail(op, f"{what} without waiting for op {user}, which uses it")

    def _end(self) -> None:
        final = set(self.schedule.final)
        for place in self.held:
            if place not in final:
                raise InvalidSchedule(
                    f"schedule {self.schedule.name}: {self._say(place)} is never freed (a leak)"
                )
        for place in self.schedule.final:
            held = self.held.get(place)
            if held is None or held.maker is None:
                raise InvalidSchedule(
                    f"schedule {self.schedule.name}: {self._say(place)} is not there, or not "
                    "valid, at the end of the iteration"
                )

    def _say(self, place: Place) -> str:
        return f"{self.schedule.tensors[place[0]].name} on {place[1]}"


def reads(op: Op) -> Iterator[Place]:
    """Places that an op reads."""
    for i, tensor in enumerate(op.reads):
        yield tensor, (op.group[i] if op.kind == "collective" else op.device)


def writes(op: Op) -> Iterator[Place]:
    """Places that an op makes valid."""
    if op.kind == "copy":
        for tensor in op.reads:
            yield tensor, op.peer
    for i, tensor in enumerate(op.writes):
        yield tensor, (op.group[i] if op.kind == "collective" else op.device)


def _check_room(schedule: Schedule, order: Order) -> None:
    """Every allocation has room that nobody else was given, whatever the timing."""
    given, taken = _handed_over(schedule, order)
    needed, made = _memory_flow(schedule)
    for (op, device), nbytes in needed.items():
        if taken.get((op, device), 0) != nbytes:
            who = f"op {op}" if op >= 0 else "the start"
            raise InvalidSchedule(
                f"schedule {schedule.name}: {who} allocates {nbytes} bytes on {device} but was "
                f"given room for {taken.get((op, device), 0)}"
            )
    for (op, device), nbytes in given.items():
        if nbytes > made.get((op, device), 0):
            who = f"op {op}" if op >= 0 else "the capacity"
            raise InvalidSchedule(
                f"schedule {schedule.name}: {nbytes} bytes of room on {device} were handed out of "
                f"{who}, which has only {made.get((op, device), 0)}"
            )


Flow = dict[tuple[int, str], int]
"""Bytes by op (-1: before the first) and device."""


def _handed_over(schedule: Schedule, order: Order) -> tuple[Flow, Flow]:
    """Bytes given by each source and taken by each allocation, once their order is certain."""
    barriers = [op.id for op in schedule.ops if op.phase == "barrier"]
    given: Flow = {}
    taken: Flow = {}
    for grant in schedule.hand_overs():
        source, alloc = (grant.source, grant.device), (grant.alloc, grant.device)
        given[source] = given.get(source, 0) + grant.nbytes
        taken[alloc] = taken.get(alloc, 0) + grant.nbytes
        if grant.nbytes < 0:
            raise InvalidSchedule(f"schedule {schedule.name}: a hand-over of {grant.nbytes} bytes")
        if grant.source >= 0 and not order.before(grant.source, grant.alloc):
            _fail(
                schedule.ops[grant.alloc],
                f"takes room on {grant.device} without waiting for op {grant.source} that frees it",
            )
        past = bisect_right(barriers, grant.alloc) - 1
        if past >= 0 and grant.source < barriers[past]:
            _fail(
                schedule.ops[grant.alloc],
                f"takes room of op {grant.source}, which barrier {barriers[past]} has pooled",
            )
    return given, taken


def _memory_flow(schedule: Schedule) -> tuple[Flow, Flow]:
    """Bytes that each op allocates, and bytes of room that each op makes.

    At the start, and at a barrier, all memory that holds nothing is one pool.
    """
    size = [tensor.nbytes for tensor in schedule.tensors]
    held = dict.fromkeys(schedule.capacity, 0)
    needed: Flow = {}
    made: Flow = {(-1, device): room for device, room in schedule.capacity.items()}
    for tensor, device in schedule.initial:
        held[device] += size[tensor]
        needed[(-1, device)] = needed.get((-1, device), 0) + size[tensor]
    for op in schedule.ops:
        if op.phase == "barrier":
            for device, room in schedule.capacity.items():
                made[(op.id, device)] = room - held[device]
        for tensor, device in op.allocs:
            held[device] += size[tensor]
            needed[(op.id, device)] = needed.get((op.id, device), 0) + size[tensor]
        for tensor, device in op.frees:
            held[device] -= size[tensor]
            made[(op.id, device)] = made.get((op.id, device), 0) + size[tensor]
    return needed, made


_COVERS = {
    "forward": ("forward",),
    "backward": ("backward_input", "backward_weight"),
    "backward_input": ("backward_input",),
    "backward_weight": ("backward_weight",),
}
"""What an op of each phase does for its samples; a whole backward does both halves."""


def _check_coverage(schedule: Schedule) -> None:
    """Every layer sees every sample once forward and once backward; every weight is updated."""
    spans: dict[tuple[str, tuple[int, int]], list[tuple[int, int]]] = {}
    updates: dict[int, int] = {
        tensor.id: 0 for tensor in schedule.tensors if tensor.kind == "weight"
    }
    for op in schedule.ops:
        if op.phase in _COVERS:
            for phase in _COVERS[op.phase]:
                spans.setdefault((phase, op.layers), []).append(op.span)
        elif op.phase == "update":
            for tensor in op.writes:
                if tensor in updates:
                    updates[tensor] += 1
    for phase in ("forward", "backward_input", "backward_weight"):
        by_layer: list[list[tuple[int, int]]] = [[] for _ in range(schedule.num_layers)]
        for (kind, (first, last)), found in spans.items():
            if kind == phase:
                for layer in range(first, last + 1):
                    by_layer[layer] += found
        for layer, found in enumerate(by_layer):
            reached = 0
            for (low, high), times in sorted(Counter(found).items()):
                if low != reached or times != schedule.iterations:
                    break
                reached = high
            else:
                if reached == schedule.minibatch:
                    continue
            raise InvalidSchedule(
                f"schedule {schedule.name}: the {phase} of layer {layer} does not cover every "
                f"sample of the minibatch exactly once (near sample {reached})"
            )
    for tensor, count in updates.items():
        if count != schedule.iterations:
            raise InvalidSchedule(
                f"schedule {schedule.name}: {schedule.tensors[tensor].name} is updated {count} "
                "times; every weight must be updated once an iteration"
            )


def _fail(op: Op, what: str) -> NoReturn:
    raise InvalidSchedule(f"op {op.id} ({op.phase} on {op.stream or op.device}) {what}")
