"""From what each GPU does, one order in which all tasks could run one by one."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from hwmodels.compute import LayerProfile, Work
from hwmodels.errors import InvalidSchedule
from workloads.tasks import Task


def merge(lanes: Sequence[Sequence[Task]], start: Sequence[int]) -> list[Task]:
    """Merge the task lists of several devices so that every tensor is written before it is read.

    Parameters
    ----------
    lanes : sequence of sequences of Task
        One list a device, each in the order in which that device runs it.
    start : sequence of int
        Tensors that exist before the first task.

    Raises
    ------
    InvalidSchedule
        If the devices would wait for each other forever.
    """
    known = set(start)
    waiting = [deque(lane) for lane in lanes]
    found: list[Task] = []
    while any(waiting):
        before = len(found)
        for lane in waiting:
            while lane and known.issuperset(lane[0].reads):  # joined tasks so stay together
                known.update(lane[0].writes)
                found.append(lane.popleft())
        if len(found) == before:
            heads = ", ".join(f"{lane[0].phase} on {lane[0].device}" for lane in waiting if lane)
            raise InvalidSchedule(f"the devices wait for each other forever at: {heads}")
    return found


def by_time(tasks: Sequence[Task], profile: LayerProfile | None) -> list[Task]:
    """Sort tasks by when they could start if copies took no time.

    The order of each device stays. The planner then meets producer and consumer of an
    activation close together, as they will run, and need not hold it long. Joined tasks stay next
    to each other.

    Parameters
    ----------
    tasks : sequence of Task
        In an order in which they could run one by one.
    profile : LayerProfile or None
        Measured times; without them tasks are weighed by their FLOPs.
    """
    lane_free: dict[str, float] = {}
    ended: dict[int, float] = {}
    held: list[int] = []
    together = False
    cost: dict[int, float] = {}
    starts: list[float] = []
    for task in tasks:
        lane = task.device if task.kind == "compute" else f"{task.kind}:{','.join(task.group)}"
        begin = lane_free.get(lane, 0.0)
        for tensor in task.reads:
            written = ended.get(tensor, 0.0)
            if written > begin:
                begin = written
        end = begin
        if task.work is not None:
            key = id(task.work)
            if key not in cost:
                cost[key] = weight(task.work, profile)
            end += cost[key]
        lane_free[lane] = end
        held += task.writes
        if not task.joined:
            ended.update(dict.fromkeys(held, end))
            held.clear()
        starts.append(starts[-1] if together else begin)
        together = task.joined
    return [tasks[i] for i in sorted(range(len(tasks)), key=starts.__getitem__)]


def weight(work: Work, profile: LayerProfile | None) -> float:
    """Relative duration of some work: measured seconds, else FLOPs, else the number of layers.

    An update that the profile does not have counts as none.
    """
    if profile is not None:
        known = (p for p in work.parts if p.phase != "update" or (p.layer, p.phase) in profile.rows)
        return sum(p.share * profile.seconds(p.layer, p.phase, p.samples) for p in known)
    return sum(part.flops for part in work.parts) or float(len(work.parts))
