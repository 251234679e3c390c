"""What the planner knows of the future: who uses a tensor next, and how much room a visit needs."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterator, Sequence

from workloads.tasks import Task

HOST = "host"
"""Stands for the CPU, whichever host memory a tensor lies in."""

_ACTIVATIONS = 2
"""Tasks of the running visit whose inputs are fetched ahead (double buffering)."""

Use = tuple[int, int]
"""Index of a task, and the ordinal of its visit on its device."""


class Lookahead:
    """Future uses of every tensor on every device, consumed as the planner walks.

    Parameters
    ----------
    tasks : sequence of Task
    size : sequence of int
        Bytes of each tensor.
    gpus : collection of str
        Devices that have visits.

    Attributes
    ----------
    uses : list of dict
        For each tensor the coming uses of each device, in order.
    places : list of tuple
        For each task every tensor that it uses, once, with the device where.
    """

    def __init__(self, tasks: Sequence[Task], size: Sequence[int], gpus: Collection[str]) -> None:
        self._tasks = tasks
        self._size = size
        self.uses: list[dict[str, deque[Use]]] = [{} for _ in size]
        self.places: list[tuple[tuple[int, str], ...]] = []
        self._lane: dict[str, list[int]] = {gpu: [] for gpu in gpus}
        self._starts: dict[str, list[int]] = {gpu: [] for gpu in gpus}
        self._ordinal_of = [0] * len(tasks)
        self._largest: dict[tuple[str, int], dict[str, tuple[int, int]]] = {}
        self._scan(tasks, dict.fromkeys(gpus, -1))
        self._now = dict.fromkeys(gpus, -1)
        self._next = dict.fromkeys(gpus, 0)

    def _scan(self, tasks: Sequence[Task], ordinals: dict[str, int]) -> None:
        visit_now: dict[str, int] = {}
        weighed: set[tuple[str, int, int]] = set()
        for index, task in enumerate(tasks):
            device = task.device
            if task.kind == "compute":
                if visit_now.get(device) != task.visit:
                    visit_now[device] = task.visit
                    ordinals[device] += 1
                    self._starts[device].append(len(self._lane[device]))
                self._lane[device].append(index)
                ordinal = self._ordinal_of[index] = ordinals[device]
                like = (device, ordinal, id(task.work))
                if like not in weighed or task.phase == "backward":
                    weighed.add(like)
                    self._note_need(device, ordinal, index, task)
            places = _places(task)
            self.places.append(places)
            for tensor, place in places:
                queues = self.uses[tensor]
                queue = queues.get(place)
                if queue is None:
                    queue = queues[place] = deque()
                queue.append((index, ordinals.get(place, 0)))

    def _note_need(self, device: str, ordinal: int, index: int, task: Task) -> None:
        size = self._size
        need = task.workspace
        for tensor in task.reads:
            need += size[tensor]
        for tensor in task.writes:
            need += size[tensor]
        known = self._largest.setdefault((device, ordinal), {})
        if need > known.get(task.phase, (-1, 0))[0]:
            known[task.phase] = (need, index)

    def start(self, index: int, task: Task) -> None:
        """Begin task ``index``."""
        if task.kind == "compute":
            self._now[task.device] = self._ordinal_of[index]
            self._next[task.device] += 1

    def following(self, tensor: int) -> tuple[int, str] | None:
        """Next task that uses the tensor, and where; None if nobody will."""
        best: tuple[int, str] | None = None
        for device, queue in self.uses[tensor].items():
            if queue and (best is None or queue[0][0] < best[0]):
                best = (queue[0][0], device)
        return best

    def next_use(self, tensor: int, device: str) -> int:
        """Index of the next task that uses the tensor on ``device`` (past the end if none)."""
        queue = self.uses[tensor].get(device)
        return queue[0][0] if queue else len(self._tasks)

    def near(self, tensor: int, device: str, visits: int) -> bool:
        """Whether ``device`` uses the tensor in its current visit or the next ``visits``."""
        queue = self.uses[tensor].get(device)
        return bool(queue) and queue[0][1] <= self._now[device] + visits

    def slack(self, device: str, here: Collection[int]) -> int:
        """Bytes that the current visit may still need besides what is ``here``."""
        size = self._size
        most = 0
        for _, index in self._largest.get((device, max(self._now[device], 0)), {}).values():
            task = self._tasks[index]
            missing = task.workspace
            for tensor, _ in self.places[index]:
                if tensor not in here:
                    missing += size[tensor]
            most = max(most, missing)
        return most

    def wanted(self, device: str) -> Iterator[int]:
        """Tensors worth fetching now: of the next tasks, then of the next visit."""
        lane, position = self._lane[device], self._next[device]
        starts, visit = self._starts[device], self._now[device] + 1
        for index in lane[position : position + _ACTIVATIONS]:
            yield from self._tasks[index].reads
        if visit < len(starts):
            for index in lane[starts[visit] : starts[visit] + _ACTIVATIONS]:
                yield from self._tasks[index].reads


def _places(task: Task) -> tuple[tuple[int, str], ...]:
    """Each tensor of a task once, with the device on which the task uses it."""
    if task.kind == "collective":
        return tuple(zip(task.reads, task.group, strict=True))
    device = HOST if task.kind == "host" else task.device
    found = [(tensor, device) for tensor in task.reads]
    found += [(tensor, device) for tensor in task.writes if tensor not in task.reads]
    return tuple(found)
