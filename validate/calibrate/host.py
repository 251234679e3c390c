"""Optimizer steps on the CPU: what one process and all cores reach, for each host memory."""

from __future__ import annotations

import math
from typing import NamedTuple

from hwmodels.errors import InvalidInput
from hwmodels.names import suggestion
from validate.calibrate.fit import SLOWEST, Flow, Seen
from validate.calibrate.parameters import CPU
from validate.measurements import Measurements
from validate.plan import both_ways


class Steps(NamedTuple):
    """First look at the steps on one host memory, in B/s of memory touched.

    Attributes
    ----------
    process : float
        One step alone; zero where not measured.
    all : float
        The most that several together reached.
    """

    process: float
    all: float


def seen(measured: Measurements) -> list[Seen]:
    """Every optimizer step that was measured, with the copies that ran beside it.

    Raises
    ------
    InvalidInput
        If a record contradicts itself or the machine.
    """
    found: list[Seen] = []
    hosts = measured.machine.hosts
    copies = both_ways(measured.machine)
    for number, record in enumerate(measured.updates):
        for host in record.hosts:
            if host not in hosts:
                raise InvalidInput(
                    f"updates.{number} names {host!r}, which the machine does not have"
                    f"{suggestion(host, hosts)}"
                )
        if not record.hosts or record.nbytes <= 0 or not 0.0 < record.seconds < math.inf:
            raise InvalidInput(
                f"updates.{number}: bytes and seconds must be greater than zero, and at least one "
                "host memory named."
            )
        flows: tuple[Flow, ...] = tuple((CPU, host) for host in sorted(record.hosts))
        beside = copies if record.beside else ()
        found.append(Seen(flows, record.nbytes, SLOWEST, record.seconds, beside))
    return sorted(found)


def first_look(records: list[Seen], host: str) -> Steps:
    """See what steps on one host memory reached, alone and together."""
    own = [x for x in records if {name for _, name in x.flows} == {host} and not x.background]
    single = [x.nbytes / x.seconds for x in own if len(x.flows) == 1]
    return Steps(
        math.exp(sum(map(math.log, single)) / len(single)) if single else 0.0,
        max((len(x.flows) * x.nbytes / x.seconds for x in own), default=0.0),
    )
