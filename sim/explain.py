"""Why a run takes as long as it does: the critical path by resource, and three lower bounds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from hwmodels.server import Server
from sim.traffic import Load
from sim.words import time
from workloads.schedule import Op, Schedule

if TYPE_CHECKING:
    from sim.engine import Timeline

COMPUTE, LATENCY, WAITING = "compute", "latency", "copy engine"
OWN_RATE = {"copy": "copy rate", "host": "host process", "collective": "collective"}
"""Names of what holds a flow back when no resource on its way is full."""

BUBBLE = "bubble"
"""Name of the bottleneck where GPUs compute in turn."""

_IN_TURN = 0.25
"""Compute is a bubble where the critical path has this share of the time more of it than the
busiest GPU: then GPUs compute in turn (our choice)."""

_SMALL = 0.005
"""Shares of the critical path below half a percent are not put into words."""
_NAMED = 4
"""At most so many parts are put into words."""


class Segment(NamedTuple):
    """One stretch of the critical path.

    Attributes
    ----------
    op : int
        Operation that ran, or that waited for a copy engine.
    start, end : float
        Seconds since the start of the iteration.
    resource : str
        What set the pace: ``compute``, ``latency``, ``copy engine`` (waiting for one), a resource
        of the server, or ``copy rate`` and ``host process`` (all that one engine or process does).
    device : str
        Where: the GPU that computed or whose copy engine was taken; empty for a link.
    """

    op: int
    start: float
    end: float
    resource: str
    device: str


class Bound(NamedTuple):
    """A time that no order of these operations on this server can beat.

    Attributes
    ----------
    name : str
        ``compute``, ``busiest link`` or ``critical path without contention``.
    seconds : float
        Lower bound of the iteration time.
    where : str
        The GPU or link that sets it; empty for the path.
    """

    name: str
    seconds: float
    where: str


@dataclass(frozen=True, repr=False)
class Explanation:
    """What sets the iteration time.

    Attributes
    ----------
    title : str
        Schedule, model and server.
    iteration_time : float
        Seconds.
    path : tuple of Segment
        Critical path from 0 to ``iteration_time``, in order of time.
    bounds : tuple of Bound
        Largest first. Those of compute and of the busiest link hold for any order of the same
        operations, that of the path for the order and dependencies of this schedule.
    links : mapping of str to str
        Resource that is one direction of a link, to the name of the link.
    busiest : float
        Share of the time in which the busiest GPU computes, 0 to 1.
    """

    title: str
    iteration_time: float
    path: tuple[Segment, ...]
    bounds: tuple[Bound, ...]
    links: Mapping[str, str]
    busiest: float = 1.0

    @property
    def seconds(self) -> dict[str, float]:
        """Seconds of the critical path by resource, largest first."""
        total: dict[str, float] = {}
        for segment in self.path:
            length = segment.end - segment.start
            total[segment.resource] = total.get(segment.resource, 0.0) + length
        return dict(sorted(total.items(), key=lambda item: (-item[1], item[0])))

    @property
    def shares(self) -> dict[str, float]:
        """Shares of the critical path, 0 to 1, largest first; both directions of a link together.

        Keys are names of links; else as in ``Segment.resource``.
        """
        total: dict[str, float] = {}
        if not self.iteration_time:
            return total
        for resource, part in self.seconds.items():
            name = self.links.get(resource, resource)
            total[name] = total.get(name, 0.0) + part / self.iteration_time
        return dict(sorted(total.items(), key=lambda item: (-item[1], item[0])))

    @property
    def bottleneck(self) -> str:
        """What has the largest share of the critical path; empty for an empty run.

        ``bubble`` where that is compute, but of GPUs that wait for each other in turn.
        """
        first, share = next(iter(self.shares.items()), ("", 0.0))
        in_turn = first == COMPUTE and share - self.busiest > _IN_TURN
        return BUBBLE if in_turn else first

    @property
    def share_of_bound(self) -> float:
        """Best lower bound over iteration time: 1 means that nothing can be gained."""
        if not self.bounds or not self.iteration_time:
            return 1.0
        return self.bounds[0].seconds / self.iteration_time

    def text(self) -> str:
        """Explain in plain words."""
        if not self.iteration_time:
            return f"{self.title} takes no time."
        lines = [f"{self.title} takes {time(self.iteration_time)}."]
        first, *others = self.shares.items()
        if self.bottleneck == BUBBLE:
            lines.append(
                f"The pipeline's bubble sets the step: the critical path is {first[1]:.0%} compute"
                f"{self._parts(first[0])}, but the GPUs take turns, and the busiest one computes "
                f"only {self.busiest:.0%} of the time{_others(others)}."
            )
        else:
            lines.append(
                f"{first[0]} sets the step: {first[1]:.0%} of the critical path"
                f"{self._parts(first[0])}{_others(others)}."
            )
        lines.append("Lower bounds for the same operations on this server:")
        for bound in self.bounds:
            where = f": {_where(bound.where, self.links)}" if bound.where else ""
            lines.append(f"  {time(bound.seconds):>8}  {bound.name}{where}")
        lines.append(
            f"The best bound is {self.share_of_bound:.0%} of the iteration time{_rest(self)}."
        )
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON; times in seconds."""
        return {
            "iteration_time_s": self.iteration_time,
            "bottleneck": self.bottleneck,
            "critical_path_s": self.seconds,
            "critical_path_share": self.shares,
            "bounds_s": {bound.name: bound.seconds for bound in self.bounds},
            "bound_where": {bound.name: bound.where for bound in self.bounds if bound.where},
            "share_of_bound": self.share_of_bound,
        }

    def _parts(self, name: str) -> str:
        """Say where: directions of a link, or devices, each with its share."""
        parts: dict[str, float] = {}
        for segment in self.path:
            if name in (segment.resource, self.links.get(segment.resource)):
                where = segment.device or segment.resource
                parts[where] = parts.get(where, 0.0) + segment.end - segment.start
        parts.pop(name, None)
        ranked = sorted(parts.items(), key=lambda item: (-item[1], item[0]))
        shares = [(where, part / self.iteration_time) for where, part in ranked]
        said = [f"{where} {share:.0%}" for where, share in shares if share >= _SMALL][:_NAMED]
        said += ["..."] if len(said) == _NAMED < len(ranked) else []
        return f" ({', '.join(said)})" if said else ""

    def __repr__(self) -> str:
        return self.text()


def explain(
    schedule: Schedule, server: Server, timeline: Timeline, loads: Callable[[str], Load]
) -> Explanation:
    """Walk the critical path back from the operation that ends last, and compute the bounds.

    Parameters
    ----------
    schedule : Schedule
    server : Server
    timeline : Timeline
        When each operation ran.
    loads : callable
        Use of a resource over time.
    """
    end: list[float] = timeline.end.tolist()
    path: list[Segment] = []
    op = max(range(len(end)), key=end.__getitem__, default=-1)
    while op >= 0:
        path.extend(reversed(_segments(schedule.ops[op], timeline, server, loads)))
        op = int(timeline.last_dependency[op])
    path.reverse()
    bounds = (
        _compute_bound(schedule.ops, timeline),
        _link_bound(schedule.ops, server, timeline),
        Bound("critical path without contention", _path_bound(schedule, timeline), ""),
    )
    return Explanation(
        title=f"{schedule.name} of {schedule.model} on {server.name}",
        iteration_time=max(end, default=0.0),
        path=tuple(path),
        bounds=tuple(sorted(bounds, key=lambda bound: -bound.seconds)),
        links=directions(server),
        busiest=_busiest(bounds, max(end, default=0.0)),
    )


def _busiest(bounds: Sequence[Bound], whole: float) -> float:
    """Share of the time in which the busiest GPU computes."""
    compute = next((bound.seconds for bound in bounds if bound.name == "compute"), whole)
    return compute / whole if whole else 1.0


def directions(server: Server) -> dict[str, str]:
    """Resources that are one direction of a link, with the name of the link."""
    found: dict[str, str] = {}
    for link in server.links:
        a, b = link.ends
        found[f"{a}>{b}"] = found[f"{b}>{a}"] = link.name
    return found


def _segments(
    op: Op, timeline: Timeline, server: Server, loads: Callable[[str], Load]
) -> list[Segment]:
    """List what ``op`` adds to the critical path, in order of time."""
    ready, start = float(timeline.ready[op.id]), float(timeline.start[op.id])
    end = float(timeline.end[op.id])
    found: list[Segment] = []
    if start > ready:
        gpu = op.device if op.device in server.gpus else op.peer
        found.append(Segment(op.id, ready, start, WAITING, gpu))
    if end <= start:
        return found
    if op.kind == "compute":
        return [*found, Segment(op.id, start, end, COMPUTE, op.device)]
    route = int(timeline.route[op.id])
    latency = timeline.routes[route].latency if route >= 0 else 0.0
    flowing = min(start + latency, end)
    if flowing > start:
        found.append(Segment(op.id, start, flowing, LATENCY, ""))
    if end > flowing:
        pace = _pace(op, flowing, end, timeline, server, loads)
        found.append(Segment(op.id, flowing, end, pace, ""))
    return found


def _pace(
    op: Op,
    start: float,
    end: float,
    timeline: Timeline,
    server: Server,
    loads: Callable[[str], Load],
) -> str:
    """Resource that a flow crossed and that was fullest meanwhile.

    Of several full ones the one that allows this flow the least, then the one with most traffic.
    A flow that is no slower than alone, with no full resource on its way, is held back by its own
    largest rate: one copy engine or one CPU process.
    """
    ranked: list[tuple[float, float, float, str]] = []
    path = timeline.routes[int(timeline.route[op.id])]
    for name, times in path.usage:
        capacity, use = server.resources[name], loads(name)
        full = min(round(use.between(start, end) / (capacity * (end - start)), 4), 1.0)
        ranked.append((-full, capacity / times, -float(use.moved[-1]), name))
    fullest = min(ranked, default=(0.0, 0.0, 0.0, OWN_RATE[op.kind]))
    own = (float(timeline.alone[op.id]) - path.latency) / (end - start)
    return OWN_RATE[op.kind] if own > 1e-3 - fullest[0] else fullest[3]


def _compute_bound(ops: Sequence[Op], timeline: Timeline) -> Bound:
    busy: dict[str, float] = {}
    length = (timeline.end - timeline.start).tolist()
    for op in ops:
        if op.kind == "compute":
            busy[op.device] = busy.get(op.device, 0.0) + length[op.id]
    gpu = max(busy, key=lambda name: busy[name], default="")
    return Bound("compute", busy.get(gpu, 0.0), gpu)


def _link_bound(ops: Sequence[Op], server: Server, timeline: Timeline) -> Bound:
    total = np.zeros(len(timeline.routes))
    moving = timeline.route >= 0
    nbytes = np.fromiter((op.nbytes for op in ops), np.float64, len(ops))
    np.add.at(total, timeline.route[moving], nbytes[moving])
    taken: dict[str, float] = {}
    for path, count in zip(timeline.routes, total.tolist(), strict=True):
        for name, times in path.usage:
            taken[name] = taken.get(name, 0.0) + count * times / server.resources[name]
    link = max(sorted(taken), key=lambda name: taken[name], default="")
    return Bound("busiest link", taken.get(link, 0.0), link)


def _path_bound(schedule: Schedule, timeline: Timeline) -> float:
    """Longest path of the schedule with every operation alone on the server, in seconds.

    Operations of one stream run in order; edges point backwards, so one pass is exact.
    """
    done: list[float] = []
    last_of: dict[str, float] = {}
    for op, alone in zip(schedule.ops, timeline.alone.tolist(), strict=True):
        begin = last_of.get(op.stream, 0.0) if op.stream else 0.0
        for other in op.after:
            begin = max(begin, done[other])
        done.append(begin + alone)
        if op.stream:
            last_of[op.stream] = begin + alone
    return max(done, default=0.0)


def _where(resource: str, links: Mapping[str, str]) -> str:
    link = links.get(resource)
    return f"{link} ({resource})" if link else resource


def _others(shares: Sequence[tuple[str, float]]) -> str:
    """Name the rest of the critical path, small parts left out."""
    named = [f"{name} {share:.0%}" for name, share in shares if share >= _SMALL]
    return "; then " + ", ".join(named[:_NAMED]) if named else ""


def _rest(found: Explanation) -> str:
    gap = found.iteration_time - found.bounds[0].seconds
    if gap <= 1e-9 * found.iteration_time:
        return ""
    return f"; the rest, {time(gap)}, is sharing of links and waiting"
