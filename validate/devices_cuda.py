"""Real GPUs: CUDA streams and events through torch, and its single-process NCCL calls.

Imported where a device is opened: it needs torch. It follows
torch's documentation and has not run on a GPU yet.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, contextmanager

import torch
from torch import Tensor
from torch.cuda import nccl

from validate.devices import Mark, Stream
from validate.devices_cpu import CpuStream, random_bytes
from validate.numa import nodes, on_node

_GATE = 4096
"""Side of the square fp32 matrices whose product keeps a GPU busy while streams are filled: 137
GFLOP, 1 to 15 ms on the GPUs of the catalog."""


class CudaMark:
    """A CUDA event that was recorded with its time."""

    def __init__(self, stream: torch.cuda.Stream) -> None:
        self.event = torch.cuda.Event(enable_timing=True)
        self.event.record(stream)

    def wait(self) -> None:
        """Hold the calling thread until the event has happened."""
        self.event.synchronize()

    def seconds_since(self, earlier: CudaMark) -> float:
        """Wait for this mark; seconds between an earlier one of the same GPU and this one."""
        self.event.synchronize()
        return earlier.event.elapsed_time(self.event) / 1e3


class CudaStream:
    """A CUDA stream of the first GPU; of the others a stream that is current while work is queued.

    torch runs a copy between GPUs on the source's current stream, and lets it wait for the
    destination's: without a stream of its own there, copies into one GPU would go one by one.
    """

    def __init__(self, *places: torch.device) -> None:
        self.streams = tuple(torch.cuda.Stream(place) for place in places)

    def run(self, work: Callable[[], object]) -> None:
        """Call ``work``, which queues its kernels and copies here."""
        with ExitStack() as current:
            for stream in reversed(self.streams):
                current.enter_context(torch.cuda.stream(stream))
            work()

    def mark(self) -> CudaMark:
        """Record an event."""
        return CudaMark(self.streams[0])

    def wait(self, mark: Mark) -> None:
        """Let what is queued from now on start after ``mark`` is passed."""
        if isinstance(mark, CudaMark):
            for stream in self.streams:
                stream.wait_event(mark.event)
        else:
            mark.wait()

    def close(self) -> None:
        """Finish what is queued."""
        for stream in self.streams:
            stream.synchronize()


class CudaDevices:
    """The first GPUs that torch sees, and the host memory of every NUMA node."""

    def __init__(self, gpus: int) -> None:
        self.kind = "cuda"
        self.nodes = nodes()
        self.gpus = tuple(f"gpu{index}" for index in range(gpus))
        self.hosts = tuple(f"host{index}" for index in range(len(self.nodes)))
        self._gate = CudaStream(self.place("gpu0"))
        self._filler = torch.rand(2, _GATE, _GATE, device=self.place("gpu0"))
        self._threads = torch.get_num_threads()
        self._workers: list[CpuStream] = []
        torch.cuda.synchronize(self.place("gpu0"))

    def place(self, device: str) -> torch.device:
        """Where torch puts what lies on ``device``."""
        if device in self.hosts:
            return torch.device("cpu")
        return torch.device("cuda", self.gpus.index(device))

    def allocate(self, device: str, nbytes: int, *, pinned: bool = True) -> Tensor:
        """Allocate random bytes; host memory on its node, page-locked if ``pinned``."""
        place = self.place(device)
        if device in self.hosts:
            with on_node(self.nodes[self.hosts.index(device)]):
                return random_bytes(nbytes, place, pinned=pinned)
        made = random_bytes(nbytes, place)
        torch.cuda.synchronize(place)
        return made

    def stream(self, device: str) -> CudaStream | CpuStream:
        """Open a stream of a GPU, or a worker thread with a GPU's share of the node's cores."""
        if device in self.gpus:
            return CudaStream(self.place(device))
        node = self.nodes[self.hosts.index(device)]
        share = max(1, node.cores * len(self.nodes) // len(self.gpus))
        self._workers.append(CpuStream(node, min(node.cores, share)))
        return self._workers[-1]

    def copy_stream(self, source: str, destination: str) -> CudaStream:
        """Open a stream of the source, or of the destination if the source is host memory."""
        return CudaStream(*(self.place(x) for x in (source, destination) if x in self.gpus))

    @contextmanager
    def together(self) -> Generator[CudaMark]:
        """Give a mark behind a product of matrices, during which the streams are filled."""
        one, other = self._filler
        self._gate.run(lambda: torch.mm(one, one, out=other))
        yield self._gate.mark()

    def collective(self, kind: str, buffers: Sequence[Tensor], streams: Sequence[Stream]) -> None:
        """Queue an NCCL collective in place; shards are equal, so lengths must divide by ranks."""
        if not torch.distributed.is_nccl_available():
            raise RuntimeError("this build of torch has no NCCL")
        own = [stream.streams[0] for stream in streams if isinstance(stream, CudaStream)]
        shards = [buffer.chunk(len(buffers))[rank] for rank, buffer in enumerate(buffers)]
        if kind == "all_reduce":
            nccl.all_reduce(buffers, streams=own)
        elif kind == "reduce_scatter":
            nccl.reduce_scatter(buffers, shards, streams=own)
        elif kind == "all_gather":
            nccl.all_gather(shards, buffers, streams=own)
        else:
            nccl.broadcast(buffers, streams=own)

    def peak(self, device: str, work: Callable[[], object]) -> int:
        """Run ``work`` and wait; most bytes that torch's allocator gave out, less those before."""
        place = self.place(device)
        torch.cuda.synchronize(place)
        torch.cuda.reset_peak_memory_stats(place)
        before = torch.cuda.memory_allocated(place)
        work()
        torch.cuda.synchronize(place)
        return torch.cuda.max_memory_allocated(place) - before

    def synchronize(self) -> None:
        """Wait for every GPU."""
        for gpu in self.gpus:
            torch.cuda.synchronize(self.place(gpu))

    def close(self) -> None:
        """End all worker threads, and give torch back those that it had."""
        for worker in self._workers:
            worker.close()
        torch.set_num_threads(self._threads)
