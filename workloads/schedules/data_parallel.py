"""Data parallel: every GPU runs the whole model on its share of the minibatch.

Layer by layer, microbatch by microbatch; gradients accumulate and are all-reduced after the last
microbatch's backward of each layer, as with ``no_sync`` in PyTorch DDP; then every replica updates
all layers in ascending order. With a pager this is the baseline of the HotOS'21 paper: per-GPU
virtual memory, each replica with its own copies of W, dW and K in host memory.
"""

from __future__ import annotations

from workloads.order import by_time
from workloads.packing import equal
from workloads.residency.policy import Policy
from workloads.schedule import Schedule
from workloads.schedules.assemble import assemble
from workloads.schedules.info import Job
from workloads.tasks import Span, Task, split
from workloads.training import Training


def shares(job: Job) -> tuple[Span, ...]:
    """Give each replica its samples; the minibatch has been checked to divide."""
    each = job.minibatch // len(job.server.gpus)
    return tuple((rank * each, (rank + 1) * each) for rank in range(len(job.server.gpus)))


def build(job: Job, policy: Policy, *, recompute: bool) -> Schedule:
    """Build the schedule.

    Parameters
    ----------
    job : Job
    policy : Policy
        Resident or a pager.
    recompute : bool
        Keep layer inputs only and run each layer's forward again before its backward.
    """
    gpus = job.server.gpus
    packs = equal(len(job.model.layers), 1)
    spans = [split(share, job.microbatch) for share in shares(job)]
    starts = [pack[0] for pack in packs]
    training = Training(job.model, starts, starts, [span for lane in spans for span in lane])
    copies = tuple(f"@{gpu}" for gpu in gpus)
    tasks: list[Task] = []
    rounds = len(spans[0])
    for turn in range(rounds):
        for pack in packs:
            for rank, gpu in enumerate(gpus):
                span = spans[rank][turn]
                tasks.append(
                    training.forward(gpu, pack, span, copies[rank], save=not recompute)
                )  # fmt: skip
        for pack in reversed(packs):
            for rank, gpu in enumerate(gpus):
                span = spans[rank][turn]
                if recompute:
                    tasks.append(training.recompute(gpu, pack, span, copies[rank]))
                tasks.append(training.backward(gpu, pack, span, copies[rank]))
            if turn == rounds - 1 and len(gpus) > 1:
                tasks += [training.reduce(gpus, unit, copies) for unit in training.finished(pack)]
    for unit in range(len(training.units)):
        for rank, gpu in enumerate(gpus):
            tasks.append(training.update(gpu, unit, copies[rank]))
    ordered = by_time(tasks, job.model.profile)
    return assemble(job, training, ordered, policy, replicas=len(gpus))
