"""The last step of every family: from ordered tasks to a planned Schedule."""

from __future__ import annotations

from collections.abc import Sequence

from workloads.residency.planner import plan
from workloads.residency.policy import Policy
from workloads.schedule import Schedule
from workloads.schedules.info import Job
from workloads.tasks import Task
from workloads.training import Training


def assemble(
    job: Job,
    training: Training,
    tasks: Sequence[Task],
    policy: Policy,
    *,
    peer: bool = True,
    replicas: int = 1,
    notes: Sequence[str] = (),
) -> Schedule:
    """Plan residency and pack everything into a Schedule.

    Raises
    ------
    DoesNotFit
        If the policy cannot make room.
    """
    found = plan(tasks, training.tensors, training.on_host, job.server, policy, peer=peer)
    return Schedule(
        name=job.name,
        model=job.model.name,
        ops=found.ops,
        tensors=found.tensors,
        capacity=found.capacity,
        initial=found.initial,
        final=found.final,
        grants=found.grants,
        minibatch=job.minibatch,
        microbatch=job.microbatch,
        num_layers=len(job.model.layers),
        tokens=job.model.tokens,
        replicas=replicas,
        profile=job.model.profile,
        notes=(*job.model.notes, *notes),
    )
