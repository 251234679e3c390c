"""The two flat record types of a run: one row per operation, one row per copy."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from workloads.schedule import Schedule

if TYPE_CHECKING:
    from sim.engine import Timeline


class OpRecord(NamedTuple):
    """When one operation ran.

    Attributes
    ----------
    op : int
        Id of the operation.
    kind, phase, stream, device, peer : str
        As in ``Op``.
    first_layer, last_layer : int
        Layers, inclusive; -1 where none is meant.
    first_sample, stop_sample : int
        Samples of the minibatch, half open.
    bytes : int
        Bytes copied, of the whole buffer of a collective, or touched by a host update.
    ready, start, end : float
        Seconds since the start of the iteration: when its own waits were over, when it started
        and when it ended.
    seconds : float
        ``end - start``.
    waited_for : int
        Id of the operation that ended last before this one could start; -1 if none.
    """

    op: int
    kind: str
    phase: str
    stream: str
    device: str
    peer: str
    first_layer: int
    last_layer: int
    first_sample: int
    stop_sample: int
    bytes: int
    ready: float
    start: float
    end: float
    seconds: float
    waited_for: int


class CopyRecord(NamedTuple):
    """What one copy moved.

    Attributes
    ----------
    op : int
        Id of the operation.
    phase : str
        ``swap_in``, ``swap_out`` or ``peer``.
    tensor, tensor_kind : str
        Name and kind of the tensor.
    source, destination : str
        Devices.
    bytes : int
        Bytes moved.
    start, end, seconds : float
        Seconds, latency included.
    rate : float
        Mean B/s over ``seconds``; 0 for a copy that took no time.
    """

    op: int
    phase: str
    tensor: str
    tensor_kind: str
    source: str
    destination: str
    bytes: int
    start: float
    end: float
    seconds: float
    rate: float


def op_records(schedule: Schedule, timeline: Timeline) -> Iterator[OpRecord]:
    """One record per operation that takes a stream, in the order of the schedule."""
    start, end = timeline.start.tolist(), timeline.end.tolist()
    ready, before = timeline.ready.tolist(), timeline.last_dependency.tolist()
    for op in schedule.ops:
        if op.kind == "free":
            continue
        at, stop = start[op.id], end[op.id]
        yield OpRecord(
            op.id, op.kind, op.phase, op.stream, op.device, op.peer, *op.layers, *op.span,
            op.nbytes, ready[op.id], at, stop, stop - at, before[op.id],
        )  # fmt: skip


def copy_records(schedule: Schedule, timeline: Timeline) -> Iterator[CopyRecord]:
    """One record per copy, in the order of the schedule."""
    start, end = timeline.start.tolist(), timeline.end.tolist()
    for op in schedule.ops:
        if op.kind != "copy":
            continue
        tensor = schedule.tensors[op.reads[0]]
        at, stop = start[op.id], end[op.id]
        rate = op.nbytes / (stop - at) if stop > at else 0.0
        yield CopyRecord(
            op.id, op.phase, tensor.name, tensor.kind, op.device, op.peer, op.nbytes,
            at, stop, stop - at, rate,
        )  # fmt: skip
