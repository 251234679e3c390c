"""Where a GPU's time goes: computing, or idle, and then behind what."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from workloads.schedule import Op, Schedule

if TYPE_CHECKING:
    from sim.engine import Timeline

CAUSES = ("compute", "swap", "peer", "collective", "host", "bubble")
"""Columns of the time split: computing; idle behind swaps, peer copies, collectives or the CPU's
optimizer; and idle behind other GPUs' compute or with nothing to wait for."""

_BY_PHASE = {"swap_in": "swap", "swap_out": "swap", "peer": "peer"}
_BY_KIND = {"collective": "collective", "host": "host"}


def cause(op: Op) -> str:
    """Column of `CAUSES` that a GPU's idle time counts in while it waits for ``op``."""
    return _BY_PHASE.get(op.phase) or _BY_KIND.get(op.kind, "bubble")


def gpu_of(op: Op, gpus: Sequence[str]) -> tuple[str, ...]:
    """GPUs that ``op`` works for: where it runs, both ends of a copy, a group, a host's client.

    The stream of host work is named ``<host>.<gpu>`` where it serves one GPU.
    """
    if op.kind == "collective":
        return op.group
    ends = (op.device, op.peer, op.stream.removeprefix(op.device + "."))
    return tuple(dict.fromkeys(end for end in ends if end in gpus))


def time_split(
    schedule: Schedule, gpus: Sequence[str], timeline: Timeline
) -> dict[str, dict[str, float]]:
    """Split the iteration time of each GPU into `CAUSES`.

    Each idle gap of a GPU's compute stream is walked backwards along the operations that ended
    last before the next one could start, and charged to what was running then. A walk may pass
    through other GPUs: waiting for a neighbour that itself waits for a swap is exposed swap, and
    waiting for a neighbour that computes is bubble. After a GPU's last compute operation, the gap
    is walked back from the last operation that works for this GPU; the rest is bubble.

    Returns
    -------
    dict of str to dict of str to float
        Seconds by GPU and cause; each GPU's sum is the iteration time.
    """
    start, end = timeline.start.tolist(), timeline.end.tolist()
    ready, before = timeline.ready.tolist(), timeline.last_dependency.tolist()
    causes = [cause(op) for op in schedule.ops]
    finish = max(end, default=0.0)

    def charge(op: int, low: float, high: float, parts: dict[str, float]) -> None:
        while op >= 0 and high > low:
            begin = max(ready[op], low)
            if begin < high:
                parts[causes[op]] += high - begin
                high = begin
            op = before[op]
        parts["bubble"] += max(high - low, 0.0)

    own: dict[str, list[int]] = {gpu: [] for gpu in gpus}
    for op in schedule.ops:
        if op.kind == "compute" and op.device in own:
            own[op.device].append(op.id)
    last = _last_ops(schedule.ops, gpus, end)
    split: dict[str, dict[str, float]] = {}
    for gpu in gpus:
        parts: dict[str, float] = dict.fromkeys(CAUSES, 0.0)
        done = 0.0
        for op in own[gpu]:
            held = max(ready[op], done)  # a measured start may come later than its waits' end
            parts["bubble"] += max(start[op] - held, 0.0)
            charge(before[op], done, min(held, start[op]), parts)
            parts["compute"] += end[op] - start[op]
            done = end[op]
        op = last[gpu]
        busy = max(end[op], done) if op >= 0 else done
        charge(op, done, busy, parts)
        parts["bubble"] += finish - busy
        split[gpu] = parts
    return split


def _last_ops(ops: Sequence[Op], gpus: Sequence[str], end: Sequence[float]) -> Mapping[str, int]:
    """For each GPU the operation, other than compute, that works for it and ends last."""
    last = dict.fromkeys(gpus, -1)
    for op in ops:
        if op.kind in ("compute", "free"):
            continue
        for gpu in gpu_of(op, gpus):
            if last[gpu] < 0 or end[op.id] >= end[last[gpu]]:
                last[gpu] = op.id
    return last
