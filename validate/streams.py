"""Streams as worker threads: one thread a stream, its operations in order, edges as events.

The rules are the simulator's: an operation runs when the previous one of its stream and all of its
``after`` have ended; ``free`` has no stream and happens at the end of what it waits for. With the
first error every worker stops after what it is doing.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import NamedTuple

from hwmodels.errors import InvalidSchedule
from validate.storage import name
from workloads.schedule import Op, Schedule

POLL = 0.05
"""Seconds between looks of the main thread for Ctrl-C."""


class Failure(NamedTuple):
    """The first operation that raised, and what."""

    op: Op
    error: BaseException


class Streams:
    """Runs the operations of a schedule on one worker thread a stream.

    Parameters
    ----------
    schedule : Schedule
    perform : callable
        Runs one operation to its end; called in the thread of its stream, or for an operation
        without one in the thread in which the last one that it waits for ended.
    enter : callable
        Called first in each worker with the name of its stream.
    """

    def __init__(
        self,
        schedule: Schedule,
        perform: Callable[[Op], None],
        enter: Callable[[str], None],
    ) -> None:
        self._ops = schedule.ops
        self._perform = perform
        self._enter = enter
        self._lock = threading.Lock()
        self._failure: Failure | None = None
        self._stopped = False
        self._missing = [len(op.after) for op in schedule.ops]
        self._gates = {op.id: threading.Event() for op in schedule.ops if op.stream and op.after}
        self._later: list[list[int]] = [[] for _ in schedule.ops]
        self._queues: dict[str, list[Op]] = {}
        for op in schedule.ops:
            for before in op.after:
                if not 0 <= before < op.id:
                    raise InvalidSchedule(f"{name(op)} waits for op {before}, a cycle")
                self._later[before].append(op.id)
            if op.stream:
                self._queues.setdefault(op.stream, []).append(op)

    def run(self) -> Failure | None:
        """Run everything; returns the failure that stopped it, if any.

        Raises
        ------
        KeyboardInterrupt
            On Ctrl-C, after every worker has stopped.
        """
        workers = [
            threading.Thread(target=self._work, args=(stream, ops), name=stream, daemon=True)
            for stream, ops in self._queues.items()
        ]
        for op in self._ops:
            if not op.stream and not op.after:
                self._run(op)
        for worker in workers:
            worker.start()
        try:
            for worker in workers:
                while worker.is_alive():
                    worker.join(POLL)
        except KeyboardInterrupt:
            self._stop()
            for worker in workers:
                worker.join()
            raise
        return self._failure

    def _work(self, stream: str, ops: Sequence[Op]) -> None:
        try:
            self._enter(stream)
        except BaseException as error:
            self._fail(ops[0], error)
        for op in ops:
            if op.after:
                self._gates[op.id].wait()
            if self._stopped:
                return
            self._run(op)

    def _run(self, op: Op) -> None:
        """Run one operation, then all without a stream that waited for it last."""
        ready = [op]
        while ready:
            found = ready.pop()
            try:
                self._perform(found)
            except BaseException as error:
                self._fail(found, error)
                return
            with self._lock:
                for later in self._later[found.id]:
                    self._missing[later] -= 1
                    if not self._missing[later]:
                        if self._ops[later].stream:
                            self._gates[later].set()
                        else:
                            ready.append(self._ops[later])

    def _fail(self, op: Op, error: BaseException) -> None:
        with self._lock:
            if self._failure is None:
                self._failure = Failure(op, error)
        self._stop()

    def _stop(self) -> None:
        """Let every worker end after what it is doing."""
        self._stopped = True
        for gate in self._gates.values():
            gate.set()
