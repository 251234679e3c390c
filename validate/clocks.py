"""When operations really started and ended: a CPU clock, or events on the streams of a GPU."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from workloads.schedule import Op, Schedule

if TYPE_CHECKING:
    import torch

Floats = NDArray[np.float64]


class Clock(Protocol):
    """Orders operations on the streams of a device, and times them."""

    def enter(self, stream: str) -> None:
        """Prepare the calling thread, which serves one stream."""
        ...

    def start(self, op: Op) -> None:
        """Note that an operation starts, once what it waits for has ended."""
        ...

    def end(self, op: Op) -> None:
        """Note that an operation ends."""
        ...

    def times(self) -> tuple[Floats, Floats]:
        """Start and end of every operation in seconds; NaN for what did not happen."""
        ...


class CpuClock:
    """Times operations that have ended when their worker comes back."""

    def __init__(self, schedule: Schedule) -> None:
        self._start = np.full(len(schedule.ops), np.nan)
        self._end = self._start.copy()
        self._zero = time.perf_counter()

    def enter(self, stream: str) -> None:
        """One torch thread for each worker: streams are the only parallelism."""
        import torch

        torch.set_num_threads(1)

    def start(self, op: Op) -> None:
        """Read the clock."""
        self._start[op.id] = time.perf_counter() - self._zero

    def end(self, op: Op) -> None:
        """Read the clock."""
        self._end[op.id] = time.perf_counter() - self._zero

    def times(self) -> tuple[Floats, Floats]:
        """Start and end of every operation in seconds."""
        return self._start, self._end


class CudaClock:
    """CUDA streams and events; host operations wait for the events that they need.

    A worker only issues: what an operation waits for on other streams becomes
    ``Stream.wait_event``. Events are timed against one that each GPU records at the start, when
    all of them are idle. Not yet run on a GPU in this repository's tests.
    """

    def __init__(self, schedule: Schedule, devices: Mapping[str, torch.device]) -> None:
        import torch

        self._cuda = torch.cuda
        self._ops = schedule.ops
        self._devices = devices
        self._gpus = sorted({d.index for d in devices.values() if d.type == "cuda"})
        self._streams: dict[str, tuple[Any, ...]] = {}
        self._began: dict[int, Any] = {}
        self._ended: dict[int, Any] = {}
        self._host = CpuClock(schedule)
        self._base: dict[int, Any] = {}
        for gpu in self._gpus:
            torch.cuda.synchronize(gpu)
        for gpu in self._gpus:
            with torch.cuda.device(gpu):
                self._base[gpu] = torch.cuda.Event(enable_timing=True)
                self._base[gpu].record()
        for op in schedule.ops:
            if op.stream and op.stream not in self._streams:
                self._streams[op.stream] = tuple(
                    torch.cuda.Stream(self._devices[place].index)
                    for place in dict.fromkeys((op.device, op.peer, *op.group))
                    if place and self._devices[place].type == "cuda"
                )

    def enter(self, stream: str) -> None:
        """Make the stream's CUDA streams current in this thread, its own GPU last."""
        self._host.enter(stream)
        for found in reversed(self._streams[stream]):
            self._cuda.set_stream(found)

    def start(self, op: Op) -> None:
        """Let the stream, or the calling thread of a host operation, wait for the edges."""
        streams = self._streams.get(op.stream, ())
        for before in op.after:
            for event in self._ended.get(before, ()):
                if not streams:
                    event.synchronize()
                for stream in streams:
                    stream.wait_event(event)
        if not op.stream:
            # stands for what it waits for, for those that wait for it
            self._ended[op.id] = [
                event for before in op.after for event in self._ended.get(before, ())
            ]
            return
        if streams:
            self._began[op.id] = self._record(streams[0])
        else:
            self._host.start(op)

    def end(self, op: Op) -> None:
        """Record an event on each stream of the operation."""
        streams = self._streams.get(op.stream, ())
        if streams:
            self._ended[op.id] = [self._record(stream) for stream in streams]
        elif op.stream:
            self._host.end(op)

    def _record(self, stream: Any) -> Any:
        event = self._cuda.Event(enable_timing=True)
        event.record(stream)
        return event

    def times(self) -> tuple[Floats, Floats]:
        """Start and end in seconds, once every GPU is idle."""
        for gpu in self._gpus:
            self._cuda.synchronize(gpu)
        start, end = self._host.times()
        for op, event in self._began.items():
            base = self._base[self._streams[self._ops[op].stream][0].device.index]
            start[op] = base.elapsed_time(event) / 1e3
            end[op] = base.elapsed_time(self._ended[op][0]) / 1e3
        return start, end


def clock(schedule: Schedule, devices: Mapping[str, torch.device]) -> Clock:
    """Clock for where the schedule runs."""
    if any(device.type == "cuda" for device in devices.values()):
        return CudaClock(schedule, devices)
    return CpuClock(schedule)
