"""Processes that work on points, each result handed back as soon as it is there.

Workers are started afresh ("spawn"), so threads of the caller do no harm; each is told its points
in chunks over a pipe of its own, so that it is known which point it was at if it dies.
"""

from __future__ import annotations

import os
import signal
from collections import deque
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing import get_context, resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess

from hwmodels.errors import CommodiousError
from sim.study.evaluate import Outcome, evaluate
from sim.study.point import Point

Report = Callable[[str], None]
"""Told, in a sentence, what the user should know while the study goes on."""

_CHUNK = 32
"""Most points told at once: a trip over the pipe (under 1 ms) is then lost in their time."""

_TRIES = 2
"""Times that a point may see its worker die."""

_READY = "ready"


def processors() -> int:
    """Count the processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def chunk_size(left: int, workers: int) -> int:
    """Points told to one worker at once: fewer towards the end, so that all end together."""
    return max(1, min(_CHUNK, left // (4 * workers)))


def lost(how: str) -> Outcome:
    """Give up a point whose workers died, the last one by ``how``."""
    reason = f"its worker process died {_TRIES} times ({how}), perhaps for lack of memory"
    return Outcome("error", reason, {}, (), 0.0)


def here(points: Sequence[Point]) -> Generator[tuple[int, Outcome], None, None]:
    """Evaluate points in this process; gives the position of each with its outcome."""
    for at, point in enumerate(points):
        yield at, evaluate(point)


@dataclass
class _Worker:
    """A process, this end of its pipe, and the points that it was told and has not answered."""

    process: BaseProcess
    pipe: Connection
    told: deque[int] = field(default_factory=deque[int])
    ready: bool = False


@dataclass
class _Work:
    """Points that wait, those that saw a worker die, and starts in a row that failed."""

    points: Sequence[Point]
    waiting: deque[int]
    report: Report
    deaths: dict[int, int] = field(default_factory=dict[int, int])
    failed: int = 0

    def tell(self, worker: _Worker, workers: int) -> None:
        """Hand a worker its next points, if it has none."""
        if worker.told or not worker.ready:
            return
        for _ in range(min(len(self.waiting), chunk_size(len(self.waiting), workers))):
            worker.told.append(self.waiting.popleft())
        if worker.told:
            with suppress(OSError):  # if it has died, its pipe says so next
                worker.pipe.send([self.points[at] for at in worker.told])

    def take_back(self, worker: _Worker) -> tuple[int, Outcome] | None:
        """Let the points of a dead worker wait again; the outcome of one that is given up.

        Raises
        ------
        CommodiousError
            If workers cannot start.
        """
        how = _cause(worker.process)
        self.failed += not worker.ready
        if self.failed == _TRIES:
            raise CommodiousError(
                f"Worker processes cannot start ({how}); a script that runs a study must do so "
                'under if __name__ == "__main__":, or with processes=1.'
            )
        self.report(f"A worker process died ({how}); its points are tried again.")
        self.waiting.extendleft(reversed(worker.told))
        if not worker.told:
            return None
        at = worker.told[0]
        self.deaths[at] = self.deaths.get(at, 0) + 1
        if self.deaths[at] < _TRIES:
            return None
        return self.waiting.popleft(), lost(how)


def processes(
    points: Sequence[Point], count: int, report: Report
) -> Generator[tuple[int, Outcome], None, None]:
    """Evaluate points in ``count`` processes; gives the position of each with its outcome.

    A worker that dies is reported and replaced; the point that it was at is tried once more.

    Raises
    ------
    CommodiousError
        If workers cannot be started.
    """
    work = _Work(points, deque(range(len(points))), report)
    workers = [_start() for _ in range(min(count, len(points)))]
    try:
        left = len(points)
        while left:
            for worker in _with_news(workers):
                answer = _answer(worker, workers, work)
                if answer is not None:
                    left -= 1
                    yield answer
            for worker in workers:
                work.tell(worker, len(workers))
    finally:
        for worker in workers:
            worker.process.kill()
            worker.pipe.close()
        for worker in workers:
            worker.process.join()


def _with_news(workers: Sequence[_Worker]) -> list[_Worker]:
    """Wait until a worker has answered or died."""
    ready = wait([worker.pipe for worker in workers])
    return [worker for worker in workers if worker.pipe in ready]


def _answer(worker: _Worker, workers: list[_Worker], work: _Work) -> tuple[int, Outcome] | None:
    """Read what a worker says; one that has died is replaced."""
    try:
        news = worker.pipe.recv()
    except (EOFError, OSError):
        given_up = work.take_back(worker)
        workers[workers.index(worker)] = _start()
        return given_up
    if news != _READY:
        return worker.told.popleft(), news
    worker.ready, work.failed = True, 0
    return None


def _cause(process: BaseProcess) -> str:
    """Say how a process died."""
    process.join()
    code = process.exitcode or 0
    return signal.Signals(-code).name if code < 0 else f"exit code {code}"


def _start() -> _Worker:
    context = get_context("spawn")
    mine, theirs = context.Pipe()
    process = context.Process(target=_work, args=(theirs,), daemon=True)
    with _no_interrupt():
        process.start()
    theirs.close()
    return _Worker(process, mine)


@contextmanager
def _no_interrupt() -> Generator[None]:
    """Start processes that Ctrl-C does not reach: only the parent answers to it."""
    resource_tracker.ensure_running()  # starting it later would let signals through again
    old = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, old)


def _work(pipe: Connection) -> None:
    """Answer chunks of points, one outcome each, until the parent is gone."""
    with suppress(EOFError, OSError):
        pipe.send(_READY)
        while True:
            for point in pipe.recv():
                pipe.send(evaluate(point))
