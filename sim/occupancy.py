"""Memory in use on each device over time, by kind of tensor, from the records of a run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sim.memory import steps
from workloads.schedule import Schedule

if TYPE_CHECKING:
    from sim.engine import Timeline

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class Curve(NamedTuple):
    """Memory in use on one device.

    Attributes
    ----------
    times : array of float
        Seconds, increasing; the first is 0.
    bytes : array of int
        Bytes in use from each time on, after all changes of that instant.
    kinds : mapping of str to array of int
        The same by kind of tensor; kinds that never lie there are left out.
    peak : int
        Most bytes in use, within an instant too.
    """

    times: Floats
    bytes: Ints
    kinds: Mapping[str, Ints]
    peak: int


def occupancy(schedule: Schedule, timeline: Timeline) -> dict[str, Curve]:
    """Bytes in use over time, by device, in the order of ``schedule.capacity``.

    Memory is taken where an operation starts and given back where it ends, in the order in which
    starts and ends happened.
    """
    found = steps(schedule, timeline.sequence)
    when = np.zeros(len(found.op))
    later = found.op >= 0
    ops = found.op[later]
    # who takes memory takes it at the start of an operation, who gives it back does so at its end
    when[later] = np.where(found.nbytes[later] < 0, timeline.end[ops], timeline.start[ops])
    names = [tensor.kind for tensor in schedule.tensors]
    kind_of = np.array(names)[found.tensor] if names else np.array([], dtype=str)
    curves: dict[str, Curve] = {}
    for number, device in enumerate(found.devices):
        here = (found.device == number) & (found.nbytes != 0)
        curves[device] = _curve(when[here], found.nbytes[here], kind_of[here])
    return curves


def _curve(when: Floats, change: Ints, kind_of: NDArray[np.str_]) -> Curve:
    times = np.concatenate(([0.0], when))
    # of several changes at one instant only the last one lasts
    lasts = np.append(times[1:] > times[:-1], True)
    level = np.concatenate(([0], np.cumsum(change)))
    kinds: dict[str, Ints] = {}
    for kind in np.unique(kind_of).tolist():
        own = np.cumsum(np.where(kind_of == kind, change, 0))
        kinds[kind] = np.concatenate(([0], own))[lasts]
    return Curve(times[lasts], level[lasts], kinds, int(level.max()))
