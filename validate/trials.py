"""Schedules predicted and then run for real, one after another."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import TYPE_CHECKING, Any

import workloads
from hwmodels.errors import CommodiousError
from hwmodels.server import Server
from sim import simulate
from validate.execute import execute
from validate.network import Network
from validate.report import Report
from workloads.model import Model
from workloads.schedules.info import KnobValue

if TYPE_CHECKING:
    from torch import Tensor

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
        """Schedule, settings and memory."""
        settings = "".join(f" {key}={value}" for key, value in self.knobs.items())
        return self.schedule + settings + (f" in {self.share:g}" if self.share else "")


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
        """Name, predicted and measured seconds, error, and what differs most, as text."""
        for done in self.outcomes:
            if done.report is None:
                yield (done.trial.name, "", "", "", done.reason)
                continue
            pair = done.report.iteration
            yield (
                done.trial.name,
                f"{pair.predicted:.4g}",
                f"{pair.measured:.4g}",
                f"{pair.error:+.1%}",
                next(iter(done.report.worst(1)), ""),
            )

    def to_dict(self) -> dict[str, Any]:
        """All outcomes as plain data for JSON."""
        return {
            "trials": [
                {"name": done.trial.name}
                | (done.report.to_dict() if done.report else {"reason": done.reason})
                for done in self.outcomes
            ],
            "median_error": self.median_error if self.reports else None,
            "left_out": list(self.left_out),
        }


def try_all(
    trials: Sequence[Trial],
    network: Network,
    model: Model,
    batch: tuple[Tensor, Tensor],
    server: Server,
    *,
    microbatch: int,
    devices: Sequence[str] | None = None,
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
            done.append(Outcome(trial, _try(trial, network, model, batch, server, microbatch, devices)))
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
            trial.schedule, model, box, minibatch=len(batch[0]), microbatch=microbatch, **trial.knobs
        ),
        ITERATIONS,
    )
    measured = execute(plan, network, [batch] * ITERATIONS, box, devices=devices)
    return Report(simulate(plan, box), measured.run)


def with_share(server: Server, model: Model, share: float) -> Server:
    """The server with GPUs whose usable memory is a share of the model's states."""
    states = sum(
        model.weight_bytes(weight) + model.gradient_bytes(weight) + model.state_bytes(weight)
        for weight in model.weights
    )
    return server.with_gpu_memory(round(share * states))
