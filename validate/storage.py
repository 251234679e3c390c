"""What lies where while a schedule runs for real, and the ledger of it."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from hwmodels.errors import DoesNotFit, InvalidSchedule
from workloads.schedule import Op, Place, Schedule

if TYPE_CHECKING:
    from torch import Tensor

Content = list["Tensor"]
"""Storage of one tensor of a schedule; its parts take exactly the planned bytes together."""


class Storage:
    """Contents of every place, and how many bytes each device holds.

    Parameters
    ----------
    schedule : Schedule
        Says the bytes of each tensor and the capacity of each device.

    Attributes
    ----------
    peak : dict of str to int
        Largest number of bytes held at one time on each device.
    moved : counter of (str, str, str)
        Bytes copied by kind of tensor, source and destination.
    """

    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule
        self._contents: dict[Place, Content | None] = {}
        self._level = dict.fromkeys(schedule.capacity, 0)
        self._lock = threading.Lock()
        self.peak = dict(self._level)
        self.moved: Counter[tuple[str, str, str]] = Counter()

    def take(self, place: Place, who: str) -> None:
        """Reserve the planned bytes of a tensor on a device.

        Raises
        ------
        DoesNotFit
            If the device has no room for them.
        InvalidSchedule
            If the tensor is already there.
        """
        tensor, device = place
        if place in self._contents:
            raise InvalidSchedule(f"{who} allocates {self.say(place)}, which is already there")
        with self._lock:
            level = self._level[device] + self._schedule.tensors[tensor].nbytes
            if level > self._schedule.capacity[device]:
                raise DoesNotFit(
                    f"{who} takes {self._schedule.tensors[tensor].nbytes} bytes on {device}, where "
                    f"{self._level[device]} of {self._schedule.capacity[device]} bytes are in use"
                )
            self._level[device] = level
            self.peak[device] = max(self.peak[device], level)
        self._contents[place] = None

    def release(self, place: Place, who: str) -> None:
        """Give back what ``take`` reserved."""
        if place not in self._contents:
            raise InvalidSchedule(f"{who} frees {self.say(place)}, which is not there")
        del self._contents[place]
        with self._lock:
            self._level[place[1]] -= self._schedule.tensors[place[0]].nbytes

    def read(self, place: Place, who: str) -> Content:
        """Content of a place.

        Raises
        ------
        InvalidSchedule
            If nothing was ever written there, or it was freed.
        """
        found = self._contents.get(place)
        if found is None:
            missing = "never written" if place in self._contents else "not there"
            raise InvalidSchedule(f"{who} reads {self.say(place)}, which is {missing}")
        _note_stream(found)
        return found

    def find(self, place: Place) -> Content | None:
        """Content of a place, stale or not; None if it holds nothing yet."""
        found = self._contents.get(place)
        _note_stream(found or ())
        return found

    def write(self, place: Place, content: Sequence[Tensor], who: str) -> None:
        """Put content into a place that was taken.

        Raises
        ------
        InvalidSchedule
            If the place was not taken, or the content is not of the planned size.
        """
        if place not in self._contents:
            raise InvalidSchedule(f"{who} writes {self.say(place)}, which is not there")
        nbytes = sum(part.nbytes for part in content)
        planned = self._schedule.tensors[place[0]].nbytes
        if nbytes != planned:
            raise InvalidSchedule(
                f"{who} writes {nbytes} bytes to {self.say(place)}, for which {planned} are "
                "planned; the model does not describe the layers that run"
            )
        self._contents[place] = list(content)

    def count(self, kind: str, source: str, destination: str, nbytes: int) -> None:
        """Note bytes that were copied."""
        with self._lock:
            self.moved[(kind, source, destination)] += nbytes

    def say(self, place: Place) -> str:
        """Name a place in a message."""
        return f"{self._schedule.tensors[place[0]].name} on {place[1]}"


def name(op: Op) -> str:
    """Name an operation in a message."""
    return f"op {op.id} ({op.phase} on {op.stream or op.device})"


def _note_stream(parts: Sequence[Tensor]) -> None:
    """Tell torch's allocator that the current CUDA stream uses this memory too."""
    for part in parts:
        if part.is_cuda:
            import torch

            part.record_stream(torch.cuda.current_stream(part.device))
