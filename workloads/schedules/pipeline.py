"""Pipelines: each GPU holds one stage of consecutive layers; microbatches flow through.

GPipe (arXiv 1811.06965) runs all forwards, then all backwards; 1F1B (PipeDream-Flush,
arXiv 2006.09503) starts each backward as early as it can: stage s of p runs min(M, p-s-1)
forwards, then alternates. Both flush before the update. Weights are resident or paged per GPU.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from hwmodels.compute import Phase
from workloads.order import by_time, merge
from workloads.packing import balance
from workloads.residency.policy import Policy
from workloads.schedule import Schedule
from workloads.schedules.assemble import assemble
from workloads.schedules.info import Job
from workloads.tasks import Pack, Span, Task, split
from workloads.training import Training, layer_cost

Order = Literal["gpipe", "1f1b"]

Turn = tuple[str, int]
"""Forward (F) or backward (B) of one microbatch."""


def gpipe_order(microbatches: int) -> list[Turn]:
    """All forwards, then all backwards, oldest first."""
    return [(phase, j) for phase in ("F", "B") for j in range(microbatches)]


def one_f_one_b_order(microbatches: int, stages: int, stage: int) -> list[Turn]:
    """Warm-up of min(M, p-s-1) forwards, then forward and backward in turn, then the rest."""
    warm = min(microbatches, stages - stage - 1)
    found: list[Turn] = [("F", j) for j in range(warm)]
    for j in range(microbatches - warm):
        found += [("F", warm + j), ("B", j)]
    found += [("B", j) for j in range(microbatches - warm, microbatches)]
    return found


def stages(job: Job, count: int, *, recompute: bool) -> tuple[Pack, ...]:
    """Cut the layers into stages of nearly equal compute."""
    model, size = job.model, job.microbatch
    phases: tuple[Phase, ...] = ("forward", "backward")
    if recompute:
        phases += ("recompute",)
    layers = range(len(model.layers))
    costs = [sum([layer_cost(model, phase, i, size) for phase in phases]) for i in layers]
    return balance(costs, count)


def build(job: Job, policy: Policy, order: Order, *, recompute: bool) -> Schedule:
    """Build the schedule.

    Parameters
    ----------
    job : Job
    policy : Policy
        Resident or a pager.
    order : str
        ``gpipe`` or ``1f1b``.
    recompute : bool
        Keep layer inputs only and run each layer's forward again before its backward.
    """
    gpus = job.server.gpus[: len(job.model.layers)]
    spans = split((0, job.minibatch), job.microbatch)
    cut = stages(job, len(gpus), recompute=recompute)
    layers = range(len(job.model.layers))
    training = Training(job.model, layers, layers, spans)
    lanes: list[list[Task]] = []
    for stage, gpu in enumerate(gpus):
        turns = (
            gpipe_order(len(spans))
            if order == "gpipe"
            else one_f_one_b_order(len(spans), len(gpus), stage)
        )
        lane: list[Task] = []
        for phase, j in turns:
            one = _forward if phase == "F" else _backward
            lane += one(training, gpu, cut[stage], spans[j], recompute=recompute)
        lanes.append(lane)
    tasks = merge(lanes, training.on_host)
    tasks += _finish(training, gpus, cut)
    return assemble(job, training, by_time(tasks, job.model.profile), policy)


def _forward(
    training: Training, gpu: str, pack: Pack, span: Span, *, recompute: bool
) -> Iterator[Task]:
    for layer in range(pack[0], pack[1] + 1):
        yield training.forward(gpu, (layer, layer), span, f"@{gpu}", save=not recompute)


def _backward(
    training: Training, gpu: str, pack: Pack, span: Span, *, recompute: bool
) -> Iterator[Task]:
    for layer in range(pack[1], pack[0] - 1, -1):
        if recompute:
            yield training.recompute(gpu, (layer, layer), span, f"@{gpu}")
        yield training.backward(gpu, (layer, layer), span, f"@{gpu}")


def _finish(training: Training, gpus: tuple[str, ...], cut: tuple[Pack, ...]) -> Iterator[Task]:
    """Sum the gradients of blocks that several stages share, then update every unit."""
    users: dict[int, list[str]] = {}
    for gpu, pack in zip(gpus, cut, strict=True):
        for unit in training.units_of(pack):
            users.setdefault(unit, []).append(gpu)
    for unit, shared in users.items():
        if len(shared) > 1:
            yield training.reduce(shared, unit, [f"@{gpu}" for gpu in shared])
    for unit, shared in users.items():
        for gpu in shared:
            yield training.update(gpu, unit, f"@{gpu}")
