"""Devices as in-order streams of work: the same few calls on real GPUs and on logical ones.

``cpu`` makes logical devices of this machine's memory and threads, one thread a stream; ``cuda``
uses real GPUs, CUDA streams and events. What is written against these protocols runs on both.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol

from hwmodels.errors import InvalidInput

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from validate.numa import Node


class Mark(Protocol):
    """A point in a stream: passed when all that was queued before it has ended."""

    def wait(self) -> None:
        """Hold the calling thread until the mark is passed; raises what stream work raised."""
        ...

    def seconds_since(self, earlier: Any) -> float:
        """Wait for this mark; seconds between an earlier one of the same stream and this one."""
        ...


class Stream(Protocol):
    """Work that runs in order, beside other streams."""

    def run(self, work: Callable[[], object]) -> None:
        """Queue ``work``."""
        ...

    def mark(self) -> Mark:
        """Queue a mark."""
        ...

    def wait(self, mark: Mark) -> None:
        """Let what is queued from now on start after ``mark`` is passed.

        A CUDA stream that waits for a mark of host work holds the thread that queues it.
        """
        ...

    def close(self) -> None:
        """Finish what is queued; nothing may be queued later."""
        ...


class Devices(Protocol):
    """The devices of one machine.

    Attributes
    ----------
    kind : str
        ``cpu`` or ``cuda``.
    gpus, hosts : tuple of str
        ``gpu0`` ...; ``host0`` ...: host memory of each NUMA node.
    nodes : tuple of Node
        The NUMA node of each host memory.
    """

    kind: str
    gpus: tuple[str, ...]
    hosts: tuple[str, ...]
    nodes: tuple[Node, ...]

    def place(self, device: str) -> torch.device:
        """Where torch puts what lies on ``device``."""
        ...

    def allocate(self, device: str, nbytes: int, *, pinned: bool = True) -> Tensor:
        """Allocate bytes on a device, filled at random: touched, and no copies of zeros.

        ``pinned`` page-locks host memory; logical devices have no such difference.
        """
        ...

    def stream(self, device: str) -> Stream:
        """Open a stream of a GPU, or one of a host's threads, for compute."""
        ...

    def copy_stream(self, source: str, destination: str) -> Stream:
        """Open a stream for copies from one device to another, of which one is a GPU."""
        ...

    def together(self) -> AbstractContextManager[Mark]:
        """Give a mark that is passed when the block ends, or soon after.

        Streams that wait for it inside the block start together.
        """
        ...

    def collective(self, kind: str, buffers: Sequence[Tensor], streams: Sequence[Stream]) -> None:
        """Queue a collective of equally long buffers, one on each GPU, in place.

        ``all_reduce`` (sum), ``reduce_scatter`` (rank r's shard ends in its own buffer),
        ``all_gather`` (rank r's shard starts there) or ``broadcast`` (from rank 0).
        """
        ...

    def peak(self, device: str, work: Callable[[], object]) -> int:
        """Run ``work`` on the calling thread and wait for it.

        Gives the most bytes in use on the GPU besides what was there before.
        """
        ...

    def synchronize(self) -> None:
        """Wait until the GPUs have done what the calling thread queued outside of streams."""
        ...

    def close(self) -> None:
        """End all threads of streams that are still open, and leave torch as it was found."""
        ...


COLLECTIVES = ("all_reduce", "reduce_scatter", "all_gather", "broadcast")
"""Kinds that ``Devices.collective`` takes."""


def devices(kind: str, gpus: int = 1) -> Devices:
    """Open the devices of this machine.

    Parameters
    ----------
    kind : str
        ``cpu`` for logical GPUs, each a separate storage and a thread; ``cuda`` for real ones.
    gpus : int
        How many.

    Raises
    ------
    InvalidInput
        If torch is not installed, there is no such kind, or this machine has fewer GPUs.
    """
    if kind not in ("cpu", "cuda"):
        raise InvalidInput(f"device is {kind!r}; it must be 'cpu' or 'cuda'.")
    if gpus < 1:
        raise InvalidInput(f"gpus is {gpus}; at least 1 is needed.")
    torch = need_torch()
    if kind == "cpu":
        from validate.devices_cpu import CpuDevices

        return CpuDevices(gpus)
    found = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if found == 0:
        raise InvalidInput(
            f"device is 'cuda', but torch {torch.__version__} sees no GPU; it needs an NVIDIA "
            "driver and a CUDA build of torch, or ask for device 'cpu'."
        )
    if gpus > found:
        raise InvalidInput(f"gpus is {gpus}, but torch sees {found} of them; ask for at most that.")
    from validate.devices_cuda import CudaDevices

    return CudaDevices(gpus)


def need_torch() -> Any:
    """Import torch.

    Raises
    ------
    InvalidInput
        If it is not installed; says how to install it.
    """
    try:
        import torch
    except ImportError as error:
        raise InvalidInput(
            "Measuring needs torch, which is not installed; pip install 'commodious[validate]'."
        ) from error
    return torch
