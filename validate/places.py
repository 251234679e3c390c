"""The devices of a schedule on a real machine, and how bytes get from one to another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hwmodels.errors import InvalidInput
from hwmodels.server import Server
from workloads.schedule import Schedule

if TYPE_CHECKING:
    import torch
    from torch import Tensor


@dataclass(frozen=True)
class Places:
    """Where the devices of a schedule are.

    Attributes
    ----------
    devices : mapping of str to torch.device
        Of each GPU and host memory.
    staged : frozenset of (str, str)
        Pairs of GPUs whose copies go through host memory.
    pinned : bool
        Whether host memory is page-locked, so that copies run beside compute.
    """

    devices: Mapping[str, torch.device]
    staged: frozenset[tuple[str, str]]
    pinned: bool

    def like(self, data: Tensor, place: str) -> Tensor:
        """Make room on a device for what has the shape of ``data``."""
        import torch

        device = self.devices[place]
        locked = self.pinned and device.type == "cpu"
        return torch.empty(data.shape, dtype=data.dtype, device=device, pin_memory=locked)

    def own(self, data: Tensor, place: str) -> Tensor:
        """Copy data into a contiguous storage of its own on a device."""
        return self.like(data, place).copy_(data)

    def copy(self, source: Tensor, target: Tensor, origin: str, place: str) -> None:
        """Copy on the current stream: directly, or in two steps where the server says so."""
        import torch

        if (origin, place) in self.staged:
            host = torch.empty(source.shape, dtype=source.dtype, pin_memory=self.pinned)
            source = host.copy_(source, non_blocking=True)
        target.copy_(source, non_blocking=True)


def places(
    schedule: Schedule, server: Server, devices: Sequence[str] | None, *, pinned: bool
) -> Places:
    """Find the torch device of every device of a schedule; host memory is the CPU's.

    Raises
    ------
    InvalidInput
        If there are fewer devices than GPUs that compute.
    """
    import torch

    found = dict.fromkeys(schedule.capacity, torch.device("cpu"))
    computing = {op.device for op in schedule.ops if op.kind == "compute"}
    gpus = [place for place in schedule.capacity if place in computing]
    if devices is not None:
        if len(devices) < len(gpus):
            raise InvalidInput(
                f"the schedule runs on {len(gpus)} GPUs and {len(devices)} devices were passed; "
                "pass one for each, or build the schedule for fewer GPUs"
            )
        found |= dict(zip(gpus, map(torch.device, devices), strict=False))
    pairs = {(op.device, op.peer) for op in schedule.ops if op.phase == "peer"}
    staged = frozenset(pair for pair in pairs if server.route(*pair).kind == "staged")
    locked = pinned and any(device.type == "cuda" for device in found.values())
    return Places(found, staged, locked)
