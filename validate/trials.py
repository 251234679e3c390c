"""Schedules predicted and then run for real, one after another."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import workloads
from hwmodels.errors import CommodiousError
from hwmodels.parts import GPUSlot
from hwmodels.server import Server
from sim import simulate
from validate.execute import execute
from validate.network import Network
from validate.report import Report
from workloads.model import Model
from workloads.schedules.info import KnobValue

if TYPE_CHECKING:
    from torch import Tensor

    from sim.picture import Picture

ITERATIONS = 4
"""Iterations of a trial: the first one warms up, the period of the others counts."""


@dataclass(frozen=True)
class Trial:
    """One schedule to try.

    Attributes
    ----------
    schedule : str
    knobs : mapping of str to value
        Settings of the schedule.
    share : float or None
        Memory of each GPU as a share of the bytes of weights, gradients and states; None leaves it.
    """

    schedule: str
    knobs: dict[str, KnobValue] = field(default_factory=dict[str, KnobValue])
    share: float | None = None

    @property
    def name(self) -> str:
        """Schedule and settings."""
        return self.schedule + "".join(f" {key}={value}" for key, value in self.knobs.items())

    @property
    def memory(self) -> str:
        """Memory of a GPU, as a share of the states."""
        return "all" if self.share is None else f"{self.share:.0%}"


TRIALS = (
    Trial("dp"),
    Trial("dp-recompute"),
    Trial("gpipe"),
    Trial("dp-pager", {"host_copy": "exclusive"}, 0.6),
    Trial("dp-pager", {"host_copy": "keep"}, 0.6),
    Trial("dp-pager-recompute", {"host_copy": "exclusive"}, 0.4),
    Trial("harmony-dp", {"packing": False}, 0.6),
    Trial("harmony-dp", {"packing": False}, 0.4),
    Trial("harmony-dp", {"packing": False, "update": "cpu"}, 0.4),
    Trial("harmony-pp", {"grouping": False, "packing": False}, 0.4),
)
"""What is tried by default: resident, paged and planned, with recompute and without, in memory for
all, for 0.6 and for 0.4 of the states."""


@dataclass(frozen=True)
class Outcome:
    """What became of a trial: a report, or why there is none."""

    trial: Trial
    report: Report | None
    reason: str = ""


@dataclass(frozen=True)
class Trials:
    """Outcomes of all trials.

    Attributes
    ----------
    outcomes : tuple of Outcome
    left_out : tuple of str
        Trials that Ctrl-C kept from running.
    """

    outcomes: tuple[Outcome, ...]
    left_out: tuple[str, ...] = ()

    @property
    def reports(self) -> tuple[Report, ...]:
        """Of the trials that ran."""
        return tuple(done.report for done in self.outcomes if done.report is not None)

    @property
    def median_error(self) -> float:
        """Median of the absolute relative errors of the iteration times."""
        return median(abs(report.iteration.error) for report in self.reports)

    def rows(self) -> Iterator[tuple[str, ...]]:
        """Memory, predicted and measured seconds, error, and name of each trial, as text."""
        for done in self.outcomes:
            name, memory = done.trial.name, done.trial.memory
            if done.report is None:
                yield (memory, "", "", "", f"{name}: {done.reason}")
                continue
            pair = done.report.iteration
            times = (f"{pair.predicted:.4g}", f"{pair.measured:.4g}")
            yield (memory, *times, f"{pair.error:+.1%}", name)

    def worst(self, most: int = 3) -> Iterator[str]:
        """Sentences on the trials that are off most, and what differs most in each."""
        ran = [done for done in self.outcomes if done.report is not None]
        for done in sorted(ran, key=lambda each: -abs(_error(each)))[:most]:
            assert done.report is not None
            for sentence in done.report.worst(1):
                yield f"{done.trial.name} ({done.trial.memory}), {_error(done):+.1%}: {sentence}."

    def plot(self, path: str | Path | None = None) -> Picture:
        """Draw bars of predicted and measured iteration times; of one trial both timelines."""
        if len(self.reports) == 1:
            return self.reports[0].plot(path)
        from validate import plot

        names = [
            f"{done.trial.name} ({done.trial.memory})"
            for done in self.outcomes
            if done.report is not None
        ]
        return plot.bars(names, [report.iteration for report in self.reports], path)

    def to_dict(self) -> dict[str, Any]:
        """All outcomes as plain data for JSON."""
        return {
            "trials": [
                {"name": done.trial.name, "memory_share": done.trial.share}
                | (done.report.to_dict() if done.report else {"reason": done.reason})
                for done in self.outcomes
            ],
            "median_error": self.median_error if self.reports else None,
            "left_out": list(self.left_out),
        }


def _error(done: Outcome) -> float:
    return done.report.iteration.error if done.report is not None else 0.0


def try_all(
    trials: Sequence[Trial],
    network: Network,
    model: Model,
    batch: tuple[Tensor, Tensor],
    server: Server,
    *,
    microbatch: int,
    devices: Sequence[str] | None = None,
    fresh: Callable[[], Model] | None = None,
    progress: Callable[[int, int, str], None] | None = None,
) -> Trials:
    """Predict and run each trial.

    Parameters
    ----------
    trials : sequence of Trial
    network : Network
        Layers to train.
    model : Model
        Their description, with measured times where there are any.
    batch : (Tensor, Tensor)
        One minibatch; every iteration repeats it.
    server : Server
        Describes the machine.
    microbatch : int
        Samples per microbatch.
    devices : sequence of str, optional
        As `execute` takes them.
    fresh : callable, optional
        Called before each trial for the model with the layer times of that minute.
    progress : callable, optional
        Called before each trial with how many are done, of how many, and the name.

    Returns
    -------
    Trials
        A trial that fails says why; Ctrl-C keeps those that have ended.
    """
    done: list[Outcome] = []
    for number, trial in enumerate(trials):
        try:
            if progress is not None:
                progress(number, len(trials), trial.name)
            now = model if fresh is None else fresh()
            report = _try(trial, network, now, batch, server, microbatch, devices)
            done.append(Outcome(trial, report))
        except CommodiousError as error:
            done.append(Outcome(trial, None, str(error)))
        except KeyboardInterrupt:
            return Trials(tuple(done), tuple(left.name for left in trials[number:]))
    return Trials(tuple(done))


def _try(
    trial: Trial,
    network: Network,
    model: Model,
    batch: tuple[Tensor, Tensor],
    server: Server,
    microbatch: int,
    devices: Sequence[str] | None,
) -> Report:
    box = server if trial.share is None else with_share(server, model, trial.share)
    plan = workloads.repeat(
        workloads.schedule(
            trial.schedule,
            model,
            box,
            minibatch=len(batch[0]),
            microbatch=microbatch,
            **trial.knobs,
        ),
        ITERATIONS,
    )
    measured = execute(plan, network, [batch] * ITERATIONS, box, devices=devices)
    return Report(simulate(plan, box), measured.run)


def with_share(server: Server, model: Model, share: float) -> Server:
    """Give every GPU usable memory of a share of the model's weights, gradients and states."""
    states = sum(
        model.weight_bytes(weight) + model.gradient_bytes(weight) + model.state_bytes(weight)
        for weight in model.weights
    )

    def resized(slot: GPUSlot) -> GPUSlot:
        memory = round(share * states) + slot.gpu.reserve
        return replace(slot, gpu=replace(slot.gpu, memory=memory))

    parts = server.parts
    return Server(replace(parts, gpus=tuple(resized(slot) for slot in parts.gpus)))
