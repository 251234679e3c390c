"""What happens to one point: it is planned, replayed and reduced to a row."""

from __future__ import annotations

import time
from typing import Any, NamedTuple

from hwmodels.errors import CommodiousError, DoesNotFit, InvalidInput, NoPath, UnknownName
from sim.compare import Result, measure
from sim.run import simulate
from sim.study.point import Point
from workloads.schedules.catalog import schedule

REPLAY = ("collectives",)
"""Settings of ``sim.simulate``; the others are for the schedule."""

COLUMNS: tuple[tuple[str, str], ...] = (
    ("microbatch_used", "microbatch"),
    ("iteration_time_s", "iteration_time"),
    ("samples_per_s", "samples_per_second"),
    ("tokens_per_s", "tokens_per_second"),
    ("swap_bytes", "swap_bytes"),
    ("peer_bytes", "peer_bytes"),
    ("peak_gpu_bytes", "peak_gpu_memory"),
    ("peak_host_bytes", "host_memory"),
    ("compute_share", "compute_share"),
    ("share_of_bound", "share_of_bound"),
    ("bottleneck", "bottleneck"),
)
"""Columns of a result, and the fields of ``sim.compare.Result`` that they show."""


class Outcome(NamedTuple):
    """What became of a point.

    Attributes
    ----------
    status : str
        ``ok``; ``does not fit``; ``invalid`` (sizes do not divide, no such knob ...); ``error``
        (a failure that is no answer: a defect, no memory left here, a worker that died).
    reason : str
        One sentence; empty if ``ok``.
    result : dict
        Values by column (seconds, bytes, shares); empty if it did not run.
    notes : tuple of str
        What the reader must know of this run.
    seconds : float
        Time that it took here.
    """

    status: str
    reason: str
    result: dict[str, Any]
    notes: tuple[str, ...]
    seconds: float


def evaluate(point: Point) -> Outcome:
    """Run one point; whatever goes wrong with it is its outcome."""
    start = time.perf_counter()
    found: Result | None = None
    try:
        found = _run(point)
        status, reason = "ok", ""
    except DoesNotFit as error:
        status, reason = "does not fit", str(error)
    except (InvalidInput, UnknownName, NoPath) as error:
        status, reason = "invalid", str(error)
    except CommodiousError as error:
        status, reason = "error", str(error)
    except Exception as error:  # a study goes on; the row says what happened
        status, reason = "error", f"{type(error).__name__}: {error}"
    result = {} if found is None else {name: getattr(found, field) for name, field in COLUMNS}
    notes = () if found is None else found.remarks
    return Outcome(status, reason, result, notes, time.perf_counter() - start)


def _run(point: Point) -> Result:
    if point.model is None or point.server is None:
        raise InvalidInput(point.fault)
    for gpu in point.server.gpus:  # before planning: a wrong number format is no lack of memory
        point.server.gpu(gpu).peak(point.model.precision.compute)
    asked: dict[str, Any] = point.asked
    replay = {name: asked.pop(name) for name in REPLAY if name in asked}
    plan = schedule(asked.pop("schedule"), point.model, point.server, **asked)
    return measure("", simulate(plan, point.server, **replay))
