"""Optimizer steps on the CPU: one process, several on one host memory, all, and beside copies."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from hwmodels.routes import ADAM_BYTES
from validate.bench.compute import adam_buffers
from validate.bench.copies import Rig, jobs, load
from validate.bench.timing import Job, busy, done_on, opened, together
from validate.devices import Devices
from validate.measurements import HostUpdate
from validate.numa import cache_bytes
from validate.optimizer import adam_
from validate.plan import Step


def params(scale: int) -> int:
    """Parameters of one step: its four fp32 buffers take ``4 scale`` times the last-level cache."""
    return scale * cache_bytes() // 4


def measure(rig: Rig, step: Step, until: float) -> HostUpdate:
    """Measure fp32 Adam steps that start together; the slowest counts."""
    size = params(step.scale)
    copies = jobs(rig, load(rig.machine, rig.machine.gpus)) if step.beside else []
    with (
        opened(copies) as others,
        opened(_steps(rig.devices, step.hosts, size)) as steps,
        busy(others),
    ):
        sample = together(rig.devices, steps, until)
    return HostUpdate(
        hosts=step.hosts,
        params=size,
        nbytes=size * ADAM_BYTES,
        seconds=max(sample.seconds),
        spread=sample.spread,
        beside=step.beside,
    )


def _steps(devices: Devices, hosts: Sequence[str], size: int) -> list[Job]:
    """Make a step on each host; its own thread makes the buffers, so that they lie near it."""
    made: list[Job] = []
    for host in hosts:
        stream = devices.stream(host)
        buffers = done_on(stream, partial(adam_buffers, size, "cpu"))
        made.append((stream, partial(adam_, *buffers, 1)))
    return made
