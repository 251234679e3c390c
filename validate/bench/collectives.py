"""Collectives of all GPUs, and the one that runs beside other measurements."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from validate.bench.copies import SHARED
from validate.bench.timing import Job, together
from validate.devices import Devices, Mark, Stream
from validate.measurements import Collective

if TYPE_CHECKING:
    from torch import Tensor

SIZES = (2**16, 2**20, 2**24, SHARED)
"""Bytes of the whole buffer."""


@dataclass(frozen=True)
class _GroupMark:
    """Passed when every rank has passed its own mark."""

    marks: Sequence[Mark]

    def wait(self) -> None:
        for mark in self.marks:
            mark.wait()

    def seconds_since(self, earlier: _GroupMark) -> float:
        """Seconds of the slowest rank."""
        pairs = zip(self.marks, earlier.marks, strict=True)
        return max(mark.seconds_since(before) for mark, before in pairs)


@dataclass(frozen=True)
class _Group:
    """The streams of all ranks as one; its work is a call that queues on each of them."""

    streams: Sequence[Stream]

    def run(self, work: Callable[[], object]) -> None:
        work()

    def mark(self) -> _GroupMark:
        return _GroupMark([stream.mark() for stream in self.streams])

    def wait(self, mark: Mark) -> None:
        for stream in self.streams:
            stream.wait(mark)

    def close(self) -> None:
        for stream in self.streams:
            stream.close()


def job(devices: Devices, kind: str, nbytes: int) -> tuple[Job, int]:
    """One collective of all GPUs as a job, and the bytes of its buffer.

    The bytes are cut so that ranks have equal shards. Values are whole numbers: a sum that is
    made again and again stays finite.
    """
    import torch

    unit = 4 * len(devices.gpus)
    whole = nbytes // unit * unit
    buffers: list[Tensor] = [devices.allocate(gpu, whole).view(torch.int32) for gpu in devices.gpus]
    streams = [devices.stream(gpu) for gpu in devices.gpus]
    return (_Group(streams), partial(devices.collective, kind, buffers, streams)), whole


def measure(devices: Devices, kind: str, nbytes: int, until: float) -> Collective:
    """Measure one collective: from the common start until the last rank has ended."""
    (group, queue), whole = job(devices, kind, nbytes)
    with closing(group):
        sample = together(devices, [(group, queue)], until)
    return Collective(
        kind=kind,
        group=devices.gpus,
        nbytes=whole,
        seconds=sample.seconds[0],
        spread=sample.spread,
    )
