"""How long the rest of a study takes: said as a range as long as the points tell little."""

from __future__ import annotations

import math
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
    """Sums over finished points, so that one more costs the same however many there are.

    Attributes
    ----------
    points : int
        How many.
    size, seconds : float
        Sums of their sizes and of the seconds that they took.
    size2, both, seconds2 : float
        Sums of size squared, size times seconds, and seconds squared.
    """

    points: int = 0
    size: float = 0.0
    seconds: float = 0.0
    size2: float = 0.0
    both: float = 0.0
    seconds2: float = 0.0

    def plus(self, size: float, seconds: float) -> Done:
        """Add a point."""
        return Done(
            self.points + 1,
            self.size + size,
            self.seconds + seconds,
            self.size2 + size * size,
            self.both + size * seconds,
            self.seconds2 + seconds * seconds,
        )


def size(point: Point) -> float:
    """Work of a point in layer steps: layers times microbatches, and what every point costs."""
    if point.model is None:
        return 1.0
    asked = point.asked
    each = asked.get("microbatch")
    microbatches = int(asked["minibatch"] or 1) / int(each or _GUESS)
    return _FIXED + len(point.model.layers) * max(1.0, microbatches)


def left(done: Done, elapsed: float, rest: float) -> str:
    """Say how long the rest takes.

    The rest is taken to need as much time for its size as the finished points did, start of the
    processes and waiting included; its uncertainty is two standard errors of that ratio (Cochran,
    "Sampling Techniques", 3rd edition, section 6.4), for points that differ as the finished ones
    do. Points that are slow for their size and come last make it take longer than said.

    Parameters
    ----------
    done : Done
        Points finished by this run.
    elapsed : float
        Seconds since this run started.
    rest : float
        Size of all points that are left.

    Examples
    --------
    >>> done = Done()
    >>> left(done, 1.0, 1200.0)
    'time left not known yet'
    >>> for _ in range(6):
    ...     done = done.plus(10, 0.5).plus(10, 3.5)
    >>> left(done, 24.0, 1200.0)
    '2 to 6 min left'
    >>> for _ in range(600):
    ...     done = done.plus(10, 2.0)
    >>> left(done, 1224.0, 1200.0)
    'about 4 min left'
    """
    if done.points < _FEW or done.size == 0:
        return "time left not known yet"
    expected = elapsed * rest / done.size
    doubt = 2 * _relative_error(done)
    if doubt <= _SURE:
        return f"about {_time(expected)} left"
    return f"{_range(expected * max(0.0, 1 - doubt), expected * (1 + doubt))} left"


def _relative_error(done: Done) -> float:
    """Give the standard error of seconds over size, relative to that ratio."""
    if done.seconds == 0:
        return 0.0
    ratio = done.seconds / done.size
    spread = done.seconds2 - 2 * ratio * done.both + ratio * ratio * done.size2
    return math.sqrt(max(0.0, spread) * done.points / (done.points - 1)) / done.seconds


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
