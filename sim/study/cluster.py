"""The same work on a Dask cluster: chunks of points on workers of other machines."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, CancelledError, Executor, Future, wait
from typing import Any, Protocol

from hwmodels.errors import CommodiousError
from sim.study import pool
from sim.study.evaluate import Outcome, evaluate
from sim.study.point import Point, version

_CHUNK = 8
"""Points of one task: results travel when all of them are done, so a lost worker loses few."""

Answer = tuple[str, list[Outcome]]
"""Version of the package on the worker, and the outcomes of a chunk."""


class Client(Protocol):
    """What is used of ``distributed.Client``."""

    def get_executor(self, **options: Any) -> Executor:
        """Give an executor as in ``concurrent.futures``."""
        ...


def work(points: list[Point]) -> Answer:
    """Evaluate a chunk of points on a worker."""
    return version(), [evaluate(point) for point in points]


def on(
    client: Client, points: Sequence[Point], report: pool.Report
) -> Generator[tuple[int, Outcome], None, None]:
    """Evaluate points on a cluster; gives the position of each with its outcome.

    Dask gives the tasks of a lost worker to others; a chunk that it gives up is reported and its
    points are tried once more, one by one.

    Raises
    ------
    CommodiousError
        If the cluster goes away, or a worker has another version of the package.
    """
    executor = client.get_executor(pure=False)
    size = max(1, min(_CHUNK, len(points) // 16))
    starts = range(0, len(points), size)
    running: dict[Future[Answer], range] = {}
    try:
        _submit(executor, points, (range(x, min(x + size, len(points))) for x in starts), running)
        tried: set[int] = set()
        while running:
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                chunk = running.pop(future)
                answer = _answer(future)
                if not isinstance(answer, str):
                    yield from zip(chunk, answer, strict=True)
                elif chunk[0] in tried:  # tried alone, so it is the only one of its chunk
                    yield chunk[0], Outcome("error", answer, {}, (), 0.0)
                else:
                    report(f"Dask gave up a task ({answer}); its points are tried once more.")
                    tried.update(chunk)
                    _submit(executor, points, (range(at, at + 1) for at in chunk), running)
    finally:
        for future in running:
            future.cancel()


def _submit(
    executor: Executor,
    points: Sequence[Point],
    chunks: Iterable[range],
    running: dict[Future[Answer], range],
) -> None:
    for chunk in chunks:
        running[executor.submit(work, [points[at] for at in chunk])] = chunk


def _answer(future: Future[Answer]) -> list[Outcome] | str:
    """Outcomes of a chunk, or why the cluster gave it up.

    Raises
    ------
    CommodiousError
        If the cluster is gone, or the worker has another version.
    """
    try:
        theirs, outcomes = future.result()
    except CancelledError:
        raise CommodiousError(
            "The cluster went away before the study was done; run it again to go on."
        ) from None
    except Exception as error:  # of the cluster: `evaluate` raises nothing
        return f"{type(error).__name__}: {error}"
    _check_version(theirs)
    return outcomes


def _check_version(theirs: str) -> None:
    if theirs != version():
        raise CommodiousError(
            f"A worker of the cluster has version {theirs} of commodious and this is {version()}; "
            "install the same on both."
        )
