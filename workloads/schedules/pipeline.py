"""Pipelines: each GPU holds stages of consecutive layers; microbatches flow through.

Which stage, microbatch and half of a backward comes next on each GPU is the order's business
(``pipeline_orders``). All flush before the update. Weights are resident or paged per GPU.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hwmodels.compute import Phase
from hwmodels.errors import InvalidInput
from workloads.order import by_time, merge
from workloads.packing import balance
from workloads.residency.policy import Policy
from workloads.schedule import Schedule
from workloads.schedules.assemble import assemble
from workloads.schedules.info import Job
from workloads.schedules.pipeline_orders import ORDERS, Action, Entry
from workloads.tasks import Pack, Span, Task, split
from workloads.training import Training, layer_cost


def build(job: Job, policy: Policy, order: str, *, recompute: bool, chunks: int = 2) -> Schedule:
    """Build the schedule.

    Parameters
    ----------
    job : Job
    policy : Policy
        Resident or a pager.
    order : str
        Name in ``pipeline_orders.ORDERS``.
    recompute : bool
        Keep layer inputs only and run each layer's forward again before its backward.
    chunks : int
        Stages on each GPU, where the order leaves it open.

    Raises
    ------
    InvalidInput
        If the order cannot take so many GPUs, stages or microbatches.
    """
    entry = ORDERS[order]
    chunks = {"many": chunks, "two": 2}.get(entry.stages, 1)
    gpus = _ranks(job, chunks, even=entry.stages == "mirrored")
    spans = split((0, job.minibatch), job.microbatch)
    _check_count(job, entry, len(spans), len(gpus))
    layers = range(len(job.model.layers))
    training = Training(job.model, layers, layers, spans)
    writer = _Writer(
        training, stages(job, len(gpus) * chunks, recompute=recompute), spans, recompute
    )
    actions = [entry.order(len(spans), len(gpus), rank, chunks) for rank in range(len(gpus))]
    lanes = [list(writer.lane(gpu, todo)) for gpu, todo in zip(gpus, actions, strict=True)]
    tasks = merge(lanes, training.on_host)
    tasks += _finish(training, writer.users(gpus, actions))
    idle = len(job.server.gpus) - len(gpus)
    notes = [f"{idle} of {len(job.server.gpus)} GPUs stay idle: too few layers."] if idle else []
    return assemble(
        job, training, by_time(tasks, job.model.profile), policy,
        replicas=2 if entry.stages == "mirrored" else 1, notes=notes,
    )  # fmt: skip


def stages(job: Job, count: int, *, recompute: bool) -> tuple[Pack, ...]:
    """Cut the layers into stages of nearly equal compute."""
    model, size = job.model, job.microbatch
    phases: tuple[Phase, ...] = ("forward", "backward")
    if recompute:
        phases += ("recompute",)
    layers = range(len(model.layers))
    costs = [sum([layer_cost(model, phase, i, size) for phase in phases]) for i in layers]
    return balance(costs, count)


def _ranks(job: Job, chunks: int, *, even: bool) -> tuple[str, ...]:
    """GPUs that take part: as many as there are layers for."""
    layers = len(job.model.layers)
    found = job.server.gpus[: layers // chunks]
    if not found:
        raise InvalidInput(
            f"{job.name}: {chunks} stages a GPU need {chunks} layers at least; {job.model.name} "
            f"has {layers}"
        )
    if even and len(found) % 2:
        raise InvalidInput(
            f"{job.name} needs an even number of GPUs, one for each end of the pipeline; "
            f"{len(found)} would take part"
        )
    return found


def _check_count(job: Job, entry: Entry, microbatches: int, ranks: int) -> None:
    """Refuse numbers of microbatches for which the order is not defined."""
    need = entry.count(microbatches, ranks)
    if need:
        raise InvalidInput(
            f"{job.name}: minibatch {job.minibatch} in microbatches of {job.microbatch} makes "
            f"{microbatches} microbatches; their number must be {need}"
        )


class _Writer:
    """Turns actions into tasks, layer by layer."""

    def __init__(
        self, training: Training, cut: Sequence[Pack], spans: Sequence[Span], recompute: bool
    ) -> None:
        self.training = training
        self.cut = cut
        self.spans = spans
        self.recompute = recompute

    def lane(self, gpu: str, actions: Sequence[Action]) -> Iterator[Task]:
        """Tasks of one GPU."""
        joined: list[Task] = []
        for action in actions:
            tasks = list(self._tasks(gpu, action))
            if action.joined:
                joined = [task._replace(joined=True) for task in tasks]
                continue
            if joined:
                tasks = self._join(joined, tasks, action)
                joined = []
            yield from tasks

    def _join(self, first: list[Task], second: list[Task], action: Action) -> list[Task]:
        """Both actions as one, which starts when the gradient for the second is there too."""
        awaited = self.training.output_gradient(
            self.cut[action.stage], self.spans[action.microbatch]
        )
        first[0] = first[0]._replace(reads=first[0].reads + awaited)
        return [*first, *(task._replace(joined=True) for task in second[:-1]), second[-1]]

    def _tasks(self, gpu: str, action: Action) -> Iterator[Task]:
        training, copy, span = self.training, f"@{gpu}", self.spans[action.microbatch]
        low, high = self.cut[action.stage]
        if action.kind == "F":
            for i in range(low, high + 1):
                yield training.forward(gpu, (i, i), span, copy, save=not self.recompute)
            return
        for i in range(high, low - 1, -1):
            if action.kind == "W":
                if training.units_of((i, i)):
                    yield training.backward_weight(gpu, (i, i), span, copy)
                continue
            if self.recompute:
                yield training.recompute(gpu, (i, i), span, copy)
            whole = action.kind == "B" or not training.units_of((i, i))
            one = training.backward if whole else training.backward_input
            yield one(gpu, (i, i), span, copy)

    def users(
        self, gpus: Sequence[str], actions: Sequence[Sequence[Action]]
    ) -> dict[int, list[str]]:
        """GPUs that hold each unit of weights."""
        found: dict[int, list[str]] = {}
        for gpu, todo in zip(gpus, actions, strict=True):
            held = sorted({action.stage for action in todo})
            units = (unit for stage in held for unit in self.training.units_of(self.cut[stage]))
            for unit in dict.fromkeys(units):
                found.setdefault(unit, []).append(gpu)
        return found


def _finish(training: Training, users: dict[int, list[str]]) -> Iterator[Task]:
    """Sum the gradients of blocks that several GPUs hold, then update every unit."""
    for unit, shared in users.items():
        if len(shared) > 1:
            yield training.reduce(shared, unit, [f"@{gpu}" for gpu in shared])
    for unit, shared in users.items():
        for gpu in shared:
            yield training.update(gpu, unit, f"@{gpu}")
