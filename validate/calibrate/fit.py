"""Least squares: all capacities and latencies of a server at once, from all records."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from validate.calibrate.fluid import Demand, Times, times
from validate.calibrate.parameters import Layout

Floats = NDArray[np.float64]
Flow = tuple[str, str]

OUTLIER = 0.05
"""Differences beyond this share count less and less (scale of scipy's ``soft_l1``)."""

UNSURE = 0.1
"""A parameter whose relative standard error is larger than this is not told by the records."""

FELT = 0.05
"""A record speaks of a parameter if 1 % more of the one changes the other by 0.05 % or more."""


MANY = 12
"""A parameter that fewer records depend on must matter to them: a limit hardly below another one
would else take the value of a record that is off by chance."""

LIFTED = 1.5
"""It matters if this many times its value ..."""

CLEARLY = 0.05
"""... changes their times by this share or more, in the median."""

CLOSE = 1e-4
"""The fit ends when a step lowers the sum of squares, or moves the parameters, by less than this
share of it, or of the distance from the first guess."""

PRIOR = 1e-3
"""A parameter that is e times its first guess counts as much as one difference of 0.1 %: nothing,
but it holds those in place that no record tells."""

LEAST_NOISE = 1e-6
"""Relative noise that is assumed where fit and records agree even better."""


SLOWEST = -1
"""Stands for the flow that took longest."""


class Seen(NamedTuple):
    """One time that was measured.

    Attributes
    ----------
    flows : tuple of (str, str)
        What ran together; an optimizer step is ``("cpu", host)``.
    nbytes : int
        Bytes of each.
    which : int
        The flow that was timed, or `SLOWEST`.
    seconds : float
    background : tuple of (str, str)
        Flows that ran all the time.
    """

    flows: tuple[Flow, ...]
    nbytes: int
    which: int
    seconds: float
    background: tuple[Flow, ...] = ()


class Quality(NamedTuple):
    """How well one parameter is known.

    Attributes
    ----------
    error : float
        Relative standard error (of the logarithm); large where no record depends on it.
    residual : float
        Median relative difference between fit and measurement of the records that depend on it.
    points : int
        Number of these records.
    """

    error: float
    residual: float
    points: int

    @property
    def known(self) -> bool:
        """Whether the records tell the value, not just that it is no smaller."""
        return self.error <= UNSURE


class Fitted(NamedTuple):
    """Outcome of a fit: values and quality by parameter, and all relative residuals."""

    values: dict[str, float]
    quality: dict[str, Quality]
    residuals: Floats


Model = Callable[[Floats], tuple[Floats, Floats]]
"""Parameters to predicted seconds, and their derivatives by each parameter."""


def predict(
    layout: Layout, seen: Sequence[Seen], numbers: Floats, *, slopes: bool = True
) -> tuple[Floats, Floats]:
    """Seconds of each record by the fluid model, and the derivatives by each parameter.

    Latency counts as if all flows had begun at once; it is small where several flows matter.
    """
    known: dict[tuple[tuple[Flow, ...], tuple[Flow, ...]], Times] = {}
    seconds = np.zeros(len(seen))
    steep = np.zeros((len(seen), len(numbers) if slopes else 0))
    values = numbers.tolist()
    for row, record in enumerate(seen):
        key = (record.flows, record.background)
        if key not in known:
            demands = [layout.terms(flow).demand for flow in record.flows]
            others = [layout.terms(flow).demand for flow in record.background]
            demands += [Demand(other.usage, other.caps, False) for other in others]
            known[key] = times(demands, layout.of, values, slopes=slopes)
        found = known[key]
        which = record.which
        if which == SLOWEST:
            which = max(range(len(record.flows)), key=found.seconds.__getitem__)
        seconds[row] = record.nbytes * found.seconds[which]
        steep[row] = record.nbytes * found.slopes[which]
        for number, count in layout.terms(record.flows[which]).latency:
            seconds[row] += count * values[number]
            if slopes:
                steep[row, number] += count
    return seconds, steep


def differences(layout: Layout, seen: Sequence[Seen], values: Mapping[str, float]) -> Floats:
    """Logarithm of measured over predicted seconds of each record, with these parameters."""
    measured = np.array([record.seconds for record in seen])
    numbers = np.array(list(values.values()))
    return np.log(measured / predict(layout, seen, numbers, slopes=False)[0])


def cost(layout: Layout, seen: Sequence[Seen], values: Mapping[str, float]) -> float:
    """Sum of squared differences, each held to three times `OUTLIER`."""
    return float(np.sum(np.minimum(differences(layout, seen, values) ** 2, (3 * OUTLIER) ** 2)))


def fit_server(layout: Layout, seen: Sequence[Seen], fixed: Iterable[str] = ()) -> Fitted:
    """Fit all parameters of a server but those ``fixed`` to the records."""
    measured = np.array([record.seconds for record in seen])
    return solve(layout.start, lambda x: predict(layout, seen, x), measured, fixed)


def solve(
    start: Mapping[str, float], model: Model, measured: Floats, fixed: Iterable[str] = ()
) -> Fitted:
    """Robust least squares of relative differences over the logarithms of positive parameters.

    Parameters
    ----------
    start : mapping of str to float
        First guess by name.
    model : callable
        Parameters in that order to predicted seconds and derivatives.
    measured : array of float
        Seconds.
    fixed : iterable of str
        Parameters that stay as they are.

    Notes
    -----
    The standard error is the square root of the diagonal of the inverse of J'J times the variance
    of the residuals (median absolute deviation), as usual for nonlinear least squares.
    """
    from scipy.optimize import least_squares

    names = list(start)
    guess = np.array(list(start.values()))
    held = set(fixed)
    free = [i for i, name in enumerate(names) if name not in held and guess[i] > 0]
    last: dict[bytes, tuple[Floats, Floats]] = {}  # the solver asks twice at each place

    def full(logs: Floats) -> Floats:
        numbers = guess.copy()
        numbers[free] *= np.exp(logs)
        return numbers

    def at(logs: Floats) -> tuple[Floats, Floats]:
        """Differences and their derivatives by the logarithms of the free parameters."""
        key = logs.tobytes()
        if key not in last:
            last.clear()
            seconds, slopes = model(full(logs))
            steep = (slopes * full(logs) / seconds[:, None])[:, free]
            last[key] = np.log(seconds / measured), steep
        return last[key]

    def residuals(logs: Floats) -> Floats:
        return np.concatenate([at(logs)[0], PRIOR * logs])

    def jacobian(logs: Floats) -> Floats:
        return np.concatenate([at(logs)[1], PRIOR * np.eye(len(free))])

    logs = np.zeros(len(free))
    if free and len(measured):
        solver: Any = least_squares
        logs = solver(
            residuals,
            logs,
            jacobian,
            loss="soft_l1",
            f_scale=OUTLIER,
            ftol=CLOSE,
            xtol=CLOSE,
            tr_solver="lsmr",
        ).x
    numbers, (left, slope) = full(logs), at(logs)
    quality: dict[str, Quality] = {}
    for k, found in enumerate(_quality(left, slope)):
        if 0 < found.points < MANY and not _matters(model, numbers, free[k], slope[:, k]):
            found = found._replace(error=np.inf)
        quality[names[free[k]]] = found
    return Fitted(dict(zip(names, numbers.tolist(), strict=True)), quality, left)


def _matters(model: Model, numbers: Floats, which: int, slope: Floats) -> bool:
    """Whether a parameter could not as well be larger, by the records that depend on it."""
    lifted = numbers.copy()
    lifted[which] *= LIFTED
    shift = np.abs(np.log(model(lifted)[0] / model(numbers)[0]))[np.abs(slope) >= FELT]
    return bool(np.median(shift) >= CLEARLY)


def _quality(residuals: Floats, slopes: Floats) -> list[Quality]:
    count = slopes.shape[1]
    if not len(residuals):
        return [Quality(np.inf, 0.0, 0)] * count
    sigma = max(1.4826 * float(np.median(np.abs(residuals))), LEAST_NOISE)
    # What no record tells keeps a large error, instead of none at all.
    prior = np.eye(count) * (sigma / 10.0) ** 2
    error = sigma * np.sqrt(np.diag(np.linalg.inv(slopes.T @ slopes + prior)))
    found: list[Quality] = []
    for k in range(count):
        own = np.abs(residuals[np.abs(slopes[:, k]) >= FELT])
        found.append(Quality(float(error[k]), float(np.median(own)) if len(own) else 0.0, len(own)))
    return found
