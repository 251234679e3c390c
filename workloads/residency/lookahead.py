"""What the planner knows of the future: who uses a tensor next, and how much room a visit needs."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from workloads.tasks import Task

HOST = "host"
"""Stands for the CPU, whichever host memory a tensor lies in."""


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
        For each tensor and device the tasks that will use it, next one last; devices without a
        further use are left out.
    touched : list of tuple
        For each task every tensor that it uses, once.
    """

    def __init__(self, tasks: Sequence[Task], size: Sequence[int], gpus: Collection[str]) -> None:
        self._tasks = tasks
        self._size = size
        self.uses: list[dict[str, list[int]]] = [{} for _ in size]
        self.touched: list[tuple[int, ...]] = []
        self._lane: dict[str, list[int]] = {gpu: [] for gpu in gpus}
        self._starts: dict[str, list[int]] = {gpu: [] for gpu in gpus}
        self._ordinal_of = [0] * len(tasks)
        self._largest: dict[tuple[str, int], dict[str, tuple[int, int]]] = {}
        self._scan_visits(tasks, dict.fromkeys(gpus, -1))
        self._scan_uses(tasks)
        self._now = dict.fromkeys(gpus, -1)
        self._next = dict.fromkeys(gpus, 0)

    def _scan_visits(self, tasks: Sequence[Task], ordinals: dict[str, int]) -> None:
        """Count the visits of each GPU; a collective or host task belongs to the running one."""
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
                like = (device, ordinals[device], id(task.work))
                if like not in weighed or task.phase.startswith("backward"):
                    weighed.add(like)
                    self._note_need(device, ordinals[device], index, task)
            self._ordinal_of[index] = ordinals[device]

    def _scan_uses(self, tasks: Sequence[Task]) -> None:
        uses = self.uses
        for index in range(len(tasks) - 1, -1, -1):
            task = tasks[index]
            if task.kind == "collective":
                self.touched.append(task.reads)
                for tensor, device in zip(task.reads, task.group, strict=True):
                    uses[tensor].setdefault(device, []).append(index)
                continue
            device = HOST if task.kind == "host" else task.device
            reads = task.reads
            touched = reads + tuple([t for t in task.writes if t not in reads])
            self.touched.append(touched)
            for tensor in touched:
                queue = uses[tensor].get(device)
                if queue is None:
                    uses[tensor][device] = [index]
                else:
                    queue.append(index)
        self.touched.reverse()

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

    def consume(self, tensor: int, device: str) -> bool:
        """End the current use of ``tensor`` on ``device``; says whether any use is left."""
        uses = self.uses[tensor]
        queue = uses[device]
        queue.pop()
        if not queue:
            del uses[device]
        return bool(uses)

    def elsewhere(self, tensor: int, device: str) -> bool:
        """Whether another device than this one will use the tensor."""
        uses = self.uses[tensor]
        return len(uses) > 1 or device not in uses

    def following(self, tensor: int) -> tuple[int, str]:
        """Next task that uses the tensor, and where; the tensor must have a further use."""
        return min((queue[-1], device) for device, queue in self.uses[tensor].items())

    def next_use(self, tensor: int, device: str) -> int:
        """Index of the next task that uses the tensor on ``device`` (past the end if none)."""
        queue = self.uses[tensor].get(device)
        return queue[-1] if queue else len(self._tasks)

    def near(self, tensor: int, device: str, visits: int) -> bool:
        """Whether ``device`` uses the tensor in its current visit or the next ``visits``."""
        queue = self.uses[tensor].get(device)
        return bool(queue) and self._ordinal_of[queue[-1]] <= self._now[device] + visits

    def slack(self, device: str, here: Collection[int]) -> int:
        """Bytes that the current visit may still need besides what is ``here``."""
        size = self._size
        most = 0
        for _, index in self._largest.get((device, max(self._now[device], 0)), {}).values():
            task = self._tasks[index]
            missing = task.workspace
            for tensor in self.touched[index]:
                if tensor not in here:
                    missing += size[tensor]
            most = max(most, missing)
        return most

    def visit_tasks(self, device: str) -> tuple[int, int]:
        """Positions in the lane of ``device``: the next task, and the end of the running visit."""
        starts, following = self._starts[device], self._now[device] + 1
        lane = self._lane[device]
        return self._next[device], starts[following] if following < len(starts) else len(lane)

    def task_at(self, device: str, position: int) -> int | None:
        """Index of the task at a position in the lane of ``device``; None past the end."""
        lane = self._lane[device]
        return lane[position] if position < len(lane) else None
