"""Logical devices on the CPU: separate storages, one worker thread a stream.

Imported where a device is opened: it needs torch.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from functools import partial
from queue import SimpleQueue
from threading import Event, Thread
from time import perf_counter
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from validate.devices import Mark, Stream
from validate.numa import Node, on_node, whole_machine


class CpuMark:
    """A point in the queue of a worker thread."""

    def __init__(self) -> None:
        self._passed = Event()
        self._time = 0.0
        self._error: Exception | None = None

    def reach(self, error: Exception | None = None) -> None:
        """Pass the mark now."""
        self._time, self._error = perf_counter(), error
        self._passed.set()

    def wait(self) -> None:
        """Hold the calling thread until the mark is passed."""
        self._passed.wait()
        if self._error is not None:
            raise self._error

    def seconds_since(self, earlier: CpuMark) -> float:
        """Wait for this mark; seconds between an earlier one and this one."""
        self.wait()
        return self._time - earlier._time


class CpuStream:
    """A worker thread with its queue; torch uses ``threads`` threads for each operation."""

    def __init__(self, node: Node, threads: int = 1) -> None:
        self._queue: SimpleQueue[Callable[[], object] | CpuMark | None] = SimpleQueue()
        self._thread = Thread(target=self._work, args=(node, threads), daemon=True)
        self._thread.start()

    def _work(self, node: Node, threads: int) -> None:
        torch.set_num_threads(threads)
        error: Exception | None = None
        with on_node(node):
            while (item := self._queue.get()) is not None:
                if isinstance(item, CpuMark):
                    item.reach(error)
                elif error is None:
                    try:
                        item()
                    except Exception as raised:  # handed to whoever waits for the next mark
                        error = raised

    def run(self, work: Callable[[], object]) -> None:
        """Queue ``work``; after work that raised, nothing runs."""
        self._queue.put(work)

    def mark(self) -> CpuMark:
        """Queue a mark."""
        mark = CpuMark()
        self._queue.put(mark)
        return mark

    def wait(self, mark: Mark) -> None:
        """Let what is queued from now on start after ``mark`` is passed."""
        self.run(mark.wait)

    def close(self) -> None:
        """Finish what is queued and end the thread; once more does nothing."""
        self._queue.put(None)
        self._thread.join()


class LiveBytes(TorchDispatchMode):
    """Bytes of the storages that operations made and that are still alive, and their peak.

    Scratch inside an operation is not seen.
    """

    def __init__(self) -> None:
        super().__init__()
        self.peak = 0
        self._live: dict[int, int] = {}

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run the operation and count storages that its results bring."""
        given = {id(x.untyped_storage()) for x in tree_leaves((args, kwargs)) if _tensor(x)}
        made = func(*args, **(kwargs or {}))
        for tensor in filter(_tensor, tree_leaves(made)):
            storage = tensor.untyped_storage()
            if id(storage) not in given and id(storage) not in self._live:
                self._live[id(storage)] = storage.nbytes()
                weakref.finalize(storage, self._live.pop, id(storage), 0)
        self.peak = max(self.peak, sum(self._live.values()))
        return made


def _tensor(value: object) -> bool:
    return isinstance(value, Tensor)


def random_bytes(nbytes: int, place: torch.device, *, pinned: bool = False) -> Tensor:
    """Random bytes on a device of torch."""
    whole = torch.empty(-(-nbytes // 8), dtype=torch.int64, device=place, pin_memory=pinned)
    return whole.random_().view(torch.uint8)[:nbytes]


class CpuDevices:
    """N logical GPUs and one host memory; all of it is this machine's memory."""

    def __init__(self, gpus: int) -> None:
        self.kind = "cpu"
        self.gpus = tuple(f"gpu{index}" for index in range(gpus))
        self.hosts: tuple[str, ...] = ("host0",)
        self.nodes = (whole_machine(),)
        self._threads = torch.get_num_threads()
        self._streams: list[CpuStream] = []

    def place(self, device: str) -> torch.device:
        """Where torch puts what lies on ``device``."""
        return torch.device("cpu")

    def allocate(self, device: str, nbytes: int, *, pinned: bool = True) -> Tensor:
        """Allocate random bytes; there is nothing to page-lock."""
        return random_bytes(nbytes, self.place(device))

    def stream(self, device: str) -> CpuStream:
        """Start a worker thread."""
        self._streams.append(CpuStream(self.nodes[0]))
        return self._streams[-1]

    def copy_stream(self, source: str, destination: str) -> CpuStream:
        """Start a worker thread."""
        return self.stream(source)

    @contextmanager
    def together(self) -> Generator[CpuMark]:
        """Give a mark that is passed when the block ends."""
        gate = CpuMark()
        try:
            yield gate
        finally:
            gate.reach()

    def collective(self, kind: str, buffers: Sequence[Tensor], streams: Sequence[Stream]) -> None:
        """Queue a collective: sums of shards, each by its own rank, then copies of shards."""
        shards = [buffer.tensor_split(len(buffers)) for buffer in buffers]
        ranks = range(len(buffers))
        _meet(streams)
        if kind in ("all_reduce", "reduce_scatter"):
            for rank in ranks:
                others = [shards[other][rank] for other in ranks if other != rank]
                streams[rank].run(partial(_add, shards[rank][rank], others))
            _meet(streams)
        if kind in ("all_reduce", "all_gather"):
            for rank in ranks:
                pairs = [(shards[rank][x], shards[x][x]) for x in ranks if x != rank]
                streams[rank].run(partial(_copy, pairs))
        if kind == "broadcast":
            for rank in ranks[1:]:
                streams[rank].run(partial(_copy, [(buffers[rank], buffers[0])]))
        _meet(streams)

    def peak(self, device: str, work: Callable[[], object]) -> int:
        """Run ``work`` here; most bytes of what its operations made and still held."""
        with LiveBytes() as live:
            work()
        return live.peak

    def synchronize(self) -> None:
        """Nothing to wait for: what a thread does outside of streams is done when it returns."""

    def close(self) -> None:
        """End all worker threads, and give torch back those that it had."""
        for stream in self._streams:
            stream.close()
        torch.set_num_threads(self._threads)


def _meet(streams: Sequence[Stream]) -> None:
    """Let every stream wait for all."""
    marks = [stream.mark() for stream in streams]
    for stream in streams:
        for mark in marks:
            stream.wait(mark)


def _add(into: Tensor, others: Sequence[Tensor]) -> None:
    for other in others:
        into.add_(other)


def _copy(pairs: Sequence[tuple[Tensor, Tensor]]) -> None:
    for into, source in pairs:
        into.copy_(source)
