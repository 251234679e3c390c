"""How long work takes: warm-up, repeats until the median is steady, and work in the background."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from math import ceil
from statistics import median, quantiles
from threading import Event, Thread
from time import perf_counter
from typing import NamedTuple, TypeVar

from validate.devices import Devices, Mark, Stream

Result = TypeVar("Result")
Work = Callable[[], object]
Job = tuple[Stream, Work]
"""Work and the stream that runs it."""

LEAST, MOST = 5, 50
"""Repeats: quartiles need five; beyond fifty the median hardly moves."""

STEADY = 0.02
"""Spread at which repeating stops: half the distance between quartiles over the median."""

REGION = 5e-4
"""Seconds that a timed region lasts at least, in batches of shorter work: a thousand times the
resolution of CUDA events (about 0.5 us, CUDA runtime API, cudaEventElapsedTime) and of the clock
and queue of a worker thread."""

MOST_BATCH = 1000


class Sample(NamedTuple):
    """Median seconds of each job, and the largest spread of them."""

    seconds: tuple[float, ...]
    spread: float


def spread(times: Sequence[float]) -> float:
    """Half the distance between the quartiles, as a share of the median."""
    low, middle, high = quantiles(times, n=4, method="inclusive")
    return (high - low) / 2 / middle


def repeat(run: Callable[[int], Sequence[float]], until: float) -> Sample:
    """Repeat until the spread of every job is small, or the time has come.

    Parameters
    ----------
    run : callable
        Does every job as many times as it is told, and gives the seconds of each.
    until : float
        Reading of ``perf_counter`` at which to end; five repeats are made in any case.
    """
    run(1)
    batch = min(MOST_BATCH, ceil(REGION / max(max(run(1)), 1e-9)))
    rows: list[list[float]] = []
    while len(rows) < MOST:
        rows.append([seconds / batch for seconds in run(batch)])
        if len(rows) < LEAST:
            continue
        most = max(spread(times) for times in zip(*rows, strict=True))
        if most <= STEADY or perf_counter() >= until:
            break
    columns = tuple(zip(*rows, strict=True))
    return Sample(tuple(median(times) for times in columns), max(map(spread, columns)))


def _times(work: Work, count: int) -> Work:
    def run() -> None:
        for _ in range(count):
            work()

    return run


def _between(jobs: Sequence[Job], batch: int, gate: Mark | None) -> list[tuple[Mark, Mark]]:
    """Queue every job between two marks, behind the gate."""
    marks: list[tuple[Mark, Mark]] = []
    for stream, work in jobs:
        if gate is not None:
            stream.wait(gate)
        start = stream.mark()
        stream.run(_times(work, batch))
        marks.append((start, stream.mark()))
    return marks


def alone(job: Job, until: float) -> Sample:
    """Time one job, its launch included."""

    def run(batch: int) -> list[float]:
        ((start, end),) = _between([job], batch, None)
        return [end.seconds_since(start)]

    return repeat(run, until)


def together(devices: Devices, jobs: Sequence[Job], until: float) -> Sample:
    """Time jobs that start together, each by its own clock, without the launch."""

    def run(batch: int) -> list[float]:
        with devices.together() as gate:
            marks = _between(jobs, batch, gate)
        return [end.seconds_since(start) for start, end in marks]

    return repeat(run, until)


@contextmanager
def busy(jobs: Sequence[Job]) -> Generator[None]:
    """Keep jobs running, over and over, while the block runs; without jobs nothing runs.

    Each stream has two of them queued, so that it never idles; the block starts when each has
    run once.
    """
    if not jobs:
        yield
        return
    stop, errors = Event(), list[Exception]()

    def feed() -> None:
        queued = deque[Mark]()
        try:
            while not stop.is_set():
                for stream, work in jobs:
                    stream.run(work)
                    queued.append(stream.mark())
                while len(queued) > 2 * len(jobs):
                    queued.popleft().wait()
            for mark in queued:
                mark.wait()
        except Exception as error:  # raised again where the block ends
            errors.append(error)

    for stream, work in jobs:
        stream.run(work)
    for stream, _ in jobs:
        stream.mark().wait()
    feeder = Thread(target=feed, daemon=True)
    feeder.start()
    try:
        yield
    finally:
        stop.set()
        feeder.join()
    if errors:
        raise errors[0]


@contextmanager
def opened(jobs: Sequence[Job]) -> Generator[Sequence[Job]]:
    """Close the streams of jobs where the block ends."""
    try:
        yield jobs
    finally:
        for stream, _ in jobs:
            stream.close()


def done_on(stream: Stream, work: Callable[[], Result]) -> Result:
    """Run work on a stream, wait for it, and give what it gave."""
    given: list[Result] = []
    stream.run(lambda: given.append(work()))
    stream.mark().wait()
    return given[0]
