"""Trace files that Perfetto and chrome://tracing open.

Format: Trace Event Format, JSON object form (Google, "Trace Event Format", 2016): one process per
device, one thread per stream, one complete event ("X") per operation, one counter ("C") of memory
per device; times in microseconds.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hwmodels.errors import InvalidInput
from sim.occupancy import occupancy
from workloads.schedule import Op, Schedule

if TYPE_CHECKING:
    from sim.engine import Timeline

Event = dict[str, Any]


def home(op: Op, gpus: tuple[str, ...]) -> str:
    """Device under which ``op`` is shown: the GPU that a swap serves, else where it runs."""
    return op.peer if op.kind == "copy" and op.device not in gpus else op.device


def events(schedule: Schedule, gpus: tuple[str, ...], timeline: Timeline) -> Iterator[Event]:
    """Yield the trace events of a run: names of devices and streams, operations, memory."""
    start, end = timeline.start.tolist(), timeline.end.tolist()
    process = {device: index + 1 for index, device in enumerate(schedule.capacity)}
    for device, pid in process.items():
        yield _name("process_name", pid, 0, device)
        yield {"ph": "M", "name": "process_sort_index", "pid": pid, "args": {"sort_index": pid}}
    thread: dict[tuple[int, str], int] = {}
    for op in schedule.ops:
        if op.kind == "free":
            continue
        pid = process[home(op, gpus)]
        tid = thread.get((pid, op.stream), 0)
        if not tid:
            tid = thread[pid, op.stream] = len(thread) + 1
            yield _name("thread_name", pid, tid, op.stream)
        begin = start[op.id]
        yield {
            "ph": "X", "name": _label(op, schedule), "cat": op.phase, "pid": pid, "tid": tid,
            "ts": begin * 1e6, "dur": (end[op.id] - begin) * 1e6, "args": _details(op, schedule),
        }  # fmt: skip
    for device, curve in occupancy(schedule, timeline).items():
        pid = process[device]
        for time, level in zip(curve.times.tolist(), curve.bytes.tolist(), strict=True):
            used = {"GB": level / 1e9}
            yield {"ph": "C", "name": "memory", "pid": pid, "ts": time * 1e6, "args": used}


def write(path: str | Path, schedule: Schedule, gpus: tuple[str, ...], timeline: Timeline) -> Path:
    """Write a trace; compressed if the name ends in ``.gz``. Equal runs give equal files.

    Raises
    ------
    InvalidInput
        If the file cannot be written.
    """
    target = Path(path)
    about = {"schedule": schedule.name, "model": schedule.model, "minibatch": schedule.minibatch}
    lines = (json.dumps(event, ensure_ascii=False) for event in events(schedule, gpus, timeline))
    body = ",\n".join(lines)
    text = (
        f'{{"displayTimeUnit": "ms", "otherData": {json.dumps(about, ensure_ascii=False)},\n'
        f'"traceEvents": [\n{body}\n]}}\n'
    )
    data = text.encode()
    try:
        # no time stamp in the archive: equal runs give equal bytes
        target.write_bytes(gzip.compress(data, mtime=0) if target.suffix == ".gz" else data)
    except OSError as error:
        raise InvalidInput(f"the trace cannot be written to {target}: {error.strerror}") from error
    return target


def _name(what: str, pid: int, tid: int, text: str) -> Event:
    return {"ph": "M", "name": what, "pid": pid, "tid": tid, "args": {"name": text}}


def _label(op: Op, schedule: Schedule) -> str:
    if op.kind == "copy":
        return f"{op.phase} {schedule.tensors[op.reads[0]].name}"
    first, last = op.layers
    if first < 0:
        return op.phase
    return f"{op.phase} {first}" if first == last else f"{op.phase} {first}-{last}"


def _details(op: Op, schedule: Schedule) -> Event:
    found: Event = {"op": op.id, "after": list(op.after)}
    if op.nbytes:
        found["bytes"] = op.nbytes
    if op.kind == "copy":
        found |= {"tensor": schedule.tensors[op.reads[0]].name, "from": op.device, "to": op.peer}
    if op.group:
        found["group"] = list(op.group)
    if op.layers[0] >= 0:
        found["layers"] = list(op.layers)
    if op.span[1] > op.span[0]:
        found["samples"] = list(op.span)
    return found
