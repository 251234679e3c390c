"""What the planner knows of the future: who uses a tensor next, and how much room a visit needs."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from workloads.tasks import Task

HOST = "host"
"""Stands for the CPU, whichever host memory a tensor lies in."""

Use = tuple[int, str]
"""A task that will use a tensor, and the device that needs it there."""


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
    uses : list of list of Use
        For each tensor its uses that are still to come, next one last.
    never : int
        Stands for the next use of what has none: past the last task.
    touched : list of tuple
        For each task every tensor that it uses, once.
    """

    def __init__(self, tasks: Sequence[Task], size: Sequence[int], gpus: Collection[str]) -> None:
        self._tasks = tasks
        self.never = len(tasks)
        self._size = size
        self.uses: list[list[Use]] = [[] for _ in size]
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
        weighed: dict[tuple[str, int, int], int] = {}
        for index, task in enumerate(tasks):
            device = task.device
            if task.kind == "compute":
                if visit_now.get(device) != task.visit:
                    visit_now[device] = task.visit
                    ordinals[device] += 1
                    self._starts[device].append(len(self._lane[device]))
                self._lane[device].append(index)
                # equal work needs the same, but for the first backward, which does not read dW
                like = (device, ordinals[device], id(task.work))
                times = weighed[like] = weighed.get(like, 0) + 1
                if times <= 2 or task.joined:
                    self._note_need(device, ordinals[device], index, task)
            self._ordinal_of[index] = ordinals[device]

    def _scan_uses(self, tasks: Sequence[Task]) -> None:
        uses = self.uses
        for index in range(len(tasks) - 1, -1, -1):
            task = tasks[index]
            reads = task.reads
            if task.kind == "collective":
                self.touched.append(reads)
                for tensor, device in zip(reads, task.group, strict=True):
                    uses[tensor].append((index, device))
                continue
            use = (index, HOST if task.kind == "host" else task.device)
            touched = tuple(dict.fromkeys(reads + task.writes))
            self.touched.append(touched)
            for tensor in touched:
                uses[tensor].append(use)
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

    def elsewhere(self, tensor: int, device: str) -> bool:
        """Whether another device than this one will use the tensor."""
        for _, user in self.uses[tensor]:  # noqa: SIM110 (any would take three times as long)
            if user != device:
                return True
        return False

    def next_use(self, tensor: int, device: str) -> int:
        """Index of the next task that uses the tensor on ``device``, else ``never``."""
        for index, user in reversed(self.uses[tensor]):
            if user == device:
                return index
        return self.never

    def near(self, tensor: int, device: str, visits: int) -> bool:
        """Whether ``device`` uses the tensor in its current visit or the next ``visits``."""
        index = self.next_use(tensor, device)
        return index < self.never and self._ordinal_of[index] <= self._now[device] + visits

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

    def visit_tasks(self, device: str) -> tuple[Sequence[int], int, int]:
        """Tasks of ``device``, and where in them the next one and the end of the visit are."""
        starts, following = self._starts[device], self._now[device] + 1
        lane = self._lane[device]
        end = starts[following] if following < len(starts) else len(lane)
        return lane, self._next[device], end
