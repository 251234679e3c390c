"""How long the rest of a study takes: said as a range as long as the points tell little."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from sim.study.point import Point

_SURE = 0.1
"""Relative uncertainty below which one figure is shown instead of a range (our choice)."""

_FEW = 5
"""Finished points below which nothing is said: their spread is not known (our choice)."""

_FIXED = 10
"""Work of any point besides its layer steps, in layer steps.

Measured on one GPU, a model of three layers, no swapping: 4 ms for one microbatch, 60 ms for 51,
217 ms for 201, so 0.36 ms a layer step and the time of ten steps besides."""

_GUESS = 4
"""Samples per microbatch where the schedule chooses: the largest that it tries."""


class Done(NamedTuple):
    """A finished point: its size as `size` has it, and the seconds that it took."""

    size: float
    seconds: float


def size(point: Point) -> float:
    """Work of a point in layer steps: layers times microbatches, and what every point costs."""
    if point.model is None:
        return 1.0
    asked = point.asked
    each = asked.get("microbatch")
    microbatches = int(asked["minibatch"] or 1) / int(each or _GUESS)
    return _FIXED + len(point.model.layers) * max(1.0, microbatches)


def left(done: Sequence[Done], elapsed: float, rest: float) -> str:
    """Say how long the rest takes.

    The rest is taken to need as much time for its size as the finished points did, start of the
    processes and waiting included; its uncertainty is two standard errors of that ratio (Cochran,
    "Sampling Techniques", 3rd edition, section 6.4), for points that differ as the finished ones
    do. Points that are slow for their size and come last make it take longer than said.

    Parameters
    ----------
    done : sequence of Done
        Points finished by this run.
    elapsed : float
        Seconds since this run started.
    rest : float
        Size of all points that are left.

    Examples
    --------
    >>> left([Done(10, 1.0)] * 60, 60.0, 1200.0)
    'about 2 min left'
    >>> left([Done(10, 0.1), Done(10, 4.0)] * 5, 20.0, 1000.0)
    '1 to 5 min left'
    >>> left([], 1.0, 1000.0)
    'time left not known yet'
    """
    whole = sum(x.size for x in done)
    if len(done) < _FEW or whole == 0:
        return "time left not known yet"
    expected = elapsed * rest / whole
    doubt = 2 * _relative_error(done)
    if doubt <= _SURE:
        return f"about {_time(expected)} left"
    low, high = expected * max(0.0, 1 - doubt), expected * (1 + doubt)
    return f"{_range(low, high)} left"


def _relative_error(done: Sequence[Done]) -> float:
    """Give the standard error of seconds over size, relative to that ratio."""
    count, seconds = len(done), sum(x.seconds for x in done)
    ratio = seconds / sum(x.size for x in done)
    if ratio == 0:
        return 0.0
    spread = sum((x.seconds - ratio * x.size) ** 2 for x in done)
    return math.sqrt(spread * count / (count - 1)) / seconds


def _unit(seconds: float) -> tuple[float, str]:
    for length, unit in ((86400.0, "days"), (3600.0, "h"), (60.0, "min")):
        if seconds >= 2 * length:
            return length, unit
    return 1.0, "s"


def _short(value: float) -> str:
    return f"{value:.0f}" if value >= 1 else f"{value:.1g}"


def _time(seconds: float) -> str:
    length, unit = _unit(seconds)
    return f"{_short(seconds / length)} {unit}"


def _range(low: float, high: float) -> str:
    length, unit = _unit(high)
    return f"{_short(low / length)} to {_short(high / length)} {unit}"
