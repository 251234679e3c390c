"""Harmony: pack by pack, all microbatches of a pack in one visit (HotOS'21, VLDB'22).

The four techniques, each of which can be switched off to show what it brings:

* *grouping*: a pack runs all its microbatches in one visit, so its weights come once;
* *just-in-time update*: a pack is updated right after its backward, so dW is never swapped;
* *peer*: activations go from GPU to GPU directly, not through host memory;
* *packing*: several layers a pack, balanced by time, so that only pack inputs are stashed.

Backward always starts from the stashed pack input (recompute); the last pack runs its forward
fused with its backward. ``harmony-dp`` runs all packs on every GPU; ``harmony-pp`` places packs
round-robin, the backward packs continuing where the forward packs stopped (msr-fiddle/harmony).
With ``update="cpu"`` host memory holds one W and K, rank 0 writes dW after the all-reduce, and the
CPU steps.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from hwmodels.errors import InvalidInput
from workloads.order import by_time
from workloads.packing import equal
from workloads.residency.just_in_time import JUST_IN_TIME
from workloads.schedule import Schedule
from workloads.schedules.assemble import assemble
from workloads.schedules.data_parallel import shares
from workloads.schedules.harmony_packs import choose, parse
from workloads.schedules.info import Job
from workloads.tasks import Pack, Span, Task, split
from workloads.training import Training


@dataclass(frozen=True, slots=True)
class Setup:
    """Packs, microbatches and techniques of one Harmony schedule."""

    forward: tuple[Pack, ...]
    backward: tuple[Pack, ...]
    u_forward: int
    u_backward: int
    grouping: bool
    jit_update: bool
    host_update: bool


def build(
    job: Job,
    mode: Literal["dp", "pp"],
    *,
    pack: int | None = None,
    packs_forward: str | None = None,
    packs_backward: str | None = None,
    microbatch_backward: int | None = None,
    grouping: bool = True,
    jit_update: bool = True,
    peer: bool = True,
    packing: bool = True,
    update: str = "gpu",
) -> Schedule:
    """Build the schedule; the knobs are described in the list of schedules."""
    backward_size = microbatch_backward or job.microbatch
    if packs_backward is not None:
        packs = parse(packs_backward, len(job.model.layers), "packs_backward")
        if packs[-1][1] != len(job.model.layers) - 1:
            raise InvalidInput(
                f"knob packs_backward: the packs end at layer {packs[-1][1]}; they must cover "
                f"all layers up to {len(job.model.layers) - 1}"
            )
    elif not packing:
        packs = equal(len(job.model.layers), 1)
    elif pack is not None:
        packs = equal(len(job.model.layers), pack)
    else:
        room = min(job.server.memory(gpu) for gpu in job.server.gpus)
        packs = choose(
            job.model, len(job.server.gpus), room, backward_size,
            gpu_update=update == "gpu", round_robin=mode == "pp",
        )  # fmt: skip
    forward = packs[:-1]
    if packs_forward is not None:
        forward = parse(packs_forward, len(job.model.layers), "packs_forward")
    if (forward[-1][1] + 1 if forward else 0) != packs[-1][0]:
        raise InvalidInput(
            f"knob packs_forward: the last forward pack must end at layer {packs[-1][0] - 1}, "
            "where the fused last backward pack begins"
        )
    if not grouping and backward_size != job.microbatch:
        raise InvalidInput("knob microbatch_backward: without grouping it must equal microbatch")
    setup = Setup(
        forward, packs, job.microbatch, backward_size, grouping, jit_update, update == "cpu"
    )
    return _dp(job, setup) if mode == "dp" else _pp(job, setup, peer=peer)


@dataclass(frozen=True, slots=True)
class _Lane:
    """One replica (or the whole pipeline): its samples and the copies of W and dW it uses."""

    share: Span
    copy: str
    grads: str


class _Writer:
    """Writes the visits of one Harmony schedule in an order in which they could run."""

    def __init__(self, job: Job, setup: Setup, lanes: tuple[_Lane, ...]) -> None:
        self.setup = setup
        self.lanes = lanes
        self.first = [split(lane.share, setup.u_forward) for lane in lanes]
        self.second = [split(lane.share, setup.u_backward) for lane in lanes]
        starts = [pack[0] for pack in setup.backward]
        cuts = [*starts, *(pack[0] for pack in setup.forward)]
        spans = [span for group in (*self.first, *self.second) for span in group]
        self.training = Training(job.model, cuts, starts, spans)
        self.tasks: list[Task] = []
        self.visit = 0

    def begin(self) -> None:
        """Start a new visit."""
        self.visit += 1

    def forward(self, lane: int, gpu: str, pack: Pack, span: Span) -> None:
        """One microbatch of a forward pack."""
        copy = self.lanes[lane].copy
        self.tasks.append(
            self.training.forward(gpu, pack, span, copy, self.visit, save=False)
        )  # fmt: skip

    def backward(self, lane: int, gpu: str, pack: Pack, span: Span) -> None:
        """One microbatch of a backward pack: forward again, or for the fused pack at last."""
        who = self.lanes[lane]
        phase = "forward" if pack == self.setup.backward[-1] else "recompute"
        self.tasks.append(
            self.training.recompute(gpu, pack, span, who.copy, self.visit, phase=phase)
        )
        self.tasks.append(
            self.training.backward(gpu, pack, span, who.copy, self.visit, grads=who.grads)
        )


def _visits(setup: Setup, turns: int) -> list[tuple[str, Pack, range]]:
    """Visits of one pass: phase, pack and which microbatches (all, or one without grouping)."""
    if setup.grouping:
        forward = [("F", pack, range(turns)) for pack in setup.forward]
        return forward + [("B", pack, range(turns)) for pack in reversed(setup.backward)]
    return [
        (phase, pack, range(j, j + 1))
        for j in range(turns)
        for phase, packs in (("F", setup.forward), ("B", setup.backward[::-1]))
        for pack in packs
    ]


def _dp(job: Job, setup: Setup) -> Schedule:
    gpus = job.server.gpus
    lanes = tuple(
        _Lane(share, "" if setup.host_update else f"@{gpu}", f"@{gpu}")
        for gpu, share in zip(gpus, shares(job), strict=True)
    )
    writer = _Writer(job, setup, lanes)
    last_turn = len(writer.second[0]) - 1
    late: list[int] = []
    for phase, pack, turns in _visits(setup, last_turn + 1):
        writer.begin()
        spans = writer.first if phase == "F" else writer.second
        whole = range(len(spans[0])) if setup.grouping else turns
        for j in whole:
            for rank, gpu in enumerate(gpus):
                one = writer.forward if phase == "F" else writer.backward
                one(rank, gpu, pack, spans[rank][j])
        if phase == "B" and whole[-1] == last_turn:
            late += writer.training.finished(pack)
            if setup.jit_update:
                _step(writer, gpus, late)
                late = []
    for unit in sorted(late):
        writer.begin()
        _step(writer, gpus, [unit])
    tasks = by_time(writer.tasks, job.model.profile)
    return assemble(job, writer.training, tasks, JUST_IN_TIME, replicas=len(gpus))


def _step(writer: _Writer, gpus: tuple[str, ...], units: list[int]) -> None:
    """All-reduce over the replicas, then update every copy (CPU: the one copy)."""
    training = writer.training
    for unit in units:
        if len(gpus) > 1:
            copies = [lane.grads for lane in writer.lanes]
            writer.tasks.append(training.reduce(gpus, unit, copies, writer.visit))
        for gpu, lane in zip(gpus, writer.lanes, strict=True):
            writer.tasks.append(
                training.update(
                    gpu, unit, lane.copy, writer.visit,
                    host=writer.setup.host_update, grads=lane.grads,
                )
            )  # fmt: skip
            if writer.setup.host_update:
                break


def _pp(job: Job, setup: Setup, *, peer: bool) -> Schedule:
    gpus = job.server.gpus
    writer = _Writer(job, setup, (_Lane((0, job.minibatch), "", ""),))
    first, second = writer.first[0], writer.second[0]
    place = {("F", pack): gpus[i % len(gpus)] for i, pack in enumerate(setup.forward)}
    for i, pack in enumerate(reversed(setup.backward)):
        place[("B", pack)] = gpus[(len(setup.forward) + i) % len(gpus)]
    late: list[tuple[str, int]] = []
    for phase, pack, turns in _visits(setup, len(second)):
        writer.begin()
        gpu = place[(phase, pack)]
        spans = first if phase == "F" else second
        whole = range(len(spans)) if setup.grouping else turns
        for j in whole:
            one = writer.forward if phase == "F" else writer.backward
            one(0, gpu, pack, spans[j])
        if phase == "B" and whole[-1] == len(second) - 1:
            done = [(gpu, unit) for unit in writer.training.finished(pack)]
            if setup.jit_update:
                for where, unit in done:
                    _update(writer, where, unit)
            else:
                late += done
    for where, unit in sorted(late, key=lambda item: item[1]):
        writer.begin()
        _update(writer, where, unit)
    tasks = by_time(writer.tasks, job.model.profile)
    return assemble(job, writer.training, tasks, JUST_IN_TIME, peer=peer)


def _update(writer: _Writer, gpu: str, unit: int) -> None:
    writer.tasks.append(
        writer.training.update(gpu, unit, "", writer.visit, host=writer.setup.host_update)
    )
