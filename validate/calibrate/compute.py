"""What each kind of GPU computes: rates by number format, memory rate, launch overhead."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import median
from typing import NamedTuple, cast

import numpy as np

from hwmodels import catalog
from hwmodels.compute import Dtype
from hwmodels.errors import InvalidInput
from hwmodels.gpu import GPU
from hwmodels.link import Width, pcie_effective
from hwmodels.names import suggestion
from validate.calibrate.fit import Fitted, Floats, solve
from validate.measurements import Compute, Machine, Measurements

CONTEXT = 512 * 2**20
"""Bytes that driver and context of one process take: PyTorch issues #28113 and #107667."""

WORDS = ("nvidia", "geforce", "tesla", "quadro", "amd")
"""What drivers put before the name of a GPU."""


class Rates(NamedTuple):
    """What one kind of GPU reaches.

    Attributes
    ----------
    flops : mapping of str to float
        FLOP/s by number format.
    bandwidth : float
        B/s of its memory.
    launch : float
        Seconds of each kernel.
    fitted : Fitted
    """

    flops: Mapping[str, float]
    bandwidth: float
    launch: float
    fitted: Fitted


def kind(model: str) -> str:
    """Name of a kind of GPU: that of the catalog, where it knows the GPU.

    Examples
    --------
    >>> kind("NVIDIA GeForce RTX 3090")
    'rtx-3090'
    """
    words = [x for x in model.lower().replace("_", "-").split() if x not in WORDS]
    return "-".join(words) or "gpu"


def records(measured: Measurements) -> dict[str, list[Compute]]:
    """Sort records of compute by kind of GPU, those beside something else left out.

    Raises
    ------
    InvalidInput
        If a record contradicts itself or the machine.
    """
    machine = measured.machine
    kinds = {gpu: kind(model) for gpu, model in zip(machine.gpus, machine.models, strict=True)}
    found: dict[str, list[Compute]] = {name: [] for name in kinds.values()}
    for number, record in enumerate(measured.compute):
        where = f"compute.{number}"
        if record.gpu not in kinds:
            raise InvalidInput(
                f"{where} names {record.gpu!r}, which the machine does not have"
                f"{suggestion(record.gpu, kinds)}"
            )
        if not 0.0 < record.seconds < math.inf or min(record.flops, record.bytes) < 0:
            raise InvalidInput(f"{where}: seconds must be greater than zero, work not negative.")
        if not record.beside:
            found[kinds[record.gpu]].append(record)
    key = Compute.model_dump_json
    return {name: sorted(rows, key=key) for name, rows in found.items()}


def rates(rows: Sequence[Compute], launches: Sequence[float]) -> Rates:
    """Fit a roofline: launch overhead of each kernel plus the longer of arithmetic and memory.

    Parameters
    ----------
    rows : sequence of Compute
        Of one kind of GPU.
    launches : sequence of float
        Seconds of empty kernels on such GPUs.
    """
    work = [x for x in rows if x.flops > 0 or x.bytes > 0]
    formats = sorted({x.dtype for x in work if x.flops > 0})
    column = {dtype: i for i, dtype in enumerate(formats)}
    start: dict[str, float] = {
        f"flops.{dtype}": max(x.flops / x.seconds for x in work if x.dtype == dtype)
        for dtype in formats
    }
    start["bandwidth"] = max((x.bytes / x.seconds for x in work), default=0.0)
    start["launch_overhead"] = (
        median(launches)
        if launches
        else min((x.seconds / x.kernels for x in work), default=0.0) / 2
    )
    memory, launch = len(formats), len(formats) + 1
    measured = np.array([*(x.seconds for x in work), *sorted(launches)])

    def model(numbers: Floats) -> tuple[Floats, Floats]:
        seconds, slopes = np.zeros(len(measured)), np.zeros((len(measured), len(numbers)))
        for row, record in enumerate(work):
            own = column.get(record.dtype, memory)
            arithmetic = record.flops / numbers[own] if record.flops else 0.0
            moving = record.bytes / numbers[memory] if record.bytes else 0.0
            which = own if arithmetic >= moving else memory
            seconds[row] = max(arithmetic, moving) + numbers[launch] * record.kernels
            slopes[row, which] = -max(arithmetic, moving) / numbers[which]
            slopes[row, launch] = record.kernels
        seconds[len(work) :] = numbers[launch]
        slopes[len(work) :, launch] = 1.0
        return seconds, slopes

    fitted = solve(start, model, measured)
    found = fitted.values
    flops = {dtype: found[f"flops.{dtype}"] for dtype in formats}
    return Rates(flops, found["bandwidth"], found["launch_overhead"], fitted)


def gpu(name: str, memory: int, found: Rates, link: float) -> GPU:
    """Kind of GPU as measured; what was not measured is from the catalog, or marked unverified.

    Parameters
    ----------
    name : str
        As `kind` gives it.
    memory : int
        Bytes, as the machine says.
    found : Rates
    link : float
        B/s of the fastest copy over its connector.

    Raises
    ------
    InvalidInput
        If nothing was measured on a GPU that the catalog does not know.

    Notes
    -----
    A server file has one efficiency for all number formats. It is that of the format that comes
    closest to its peak; the rates of the others are stated so that the product is as measured.
    """
    known = catalog.gpu(name) if name in catalog.gpus() else None
    if known is None and not (found.flops and found.bandwidth):
        raise InvalidInput(
            f"GPU {name!r} is not in the catalog and no layer was measured on it, so nothing is "
            "known of its speed; measure layers as well."
        )
    if known is None:
        return _unknown(name, memory, found, link)
    shares = [
        rate / known.peak(cast(Dtype, x)) for x, rate in found.flops.items() if x in known.flops
    ]
    share = min(1.0, max(shares)) if shares else known.compute_efficiency
    flops = dict(known.flops) | {x: rate / share for x, rate in found.flops.items()}
    through = found.bandwidth / known.bandwidth if found.bandwidth else known.memory_efficiency
    sources = dict(known.sources)
    if found.flops:
        sources["compute_efficiency"] = "fitted to measured layers"
        sources["flops"] = "as measured, over compute_efficiency: " + ", ".join(found.flops)
    if found.bandwidth:
        sources["memory_efficiency"] = "fitted to measured layers"
    if found.launch:
        sources["launch_overhead"] = "measured"
    told = {name for name in ("compute_efficiency", "flops") if found.flops}
    told |= {"memory_efficiency"} if found.bandwidth else set()
    return replace(
        known,
        flops=flops,
        compute_efficiency=share,
        bandwidth=known.bandwidth * max(1.0, through),
        memory_efficiency=min(1.0, through),
        launch_overhead=found.launch or known.launch_overhead,
        unverified=tuple(x for x in known.unverified if x not in told),
        sources=sources,
    )


def _unknown(name: str, memory: int, found: Rates, link: float) -> GPU:
    """Rates as measured stand for the peak, with efficiencies of one."""
    width = next(
        (w for w in (Width(g, 16) for g in range(1, 7)) if pcie_effective(w) >= link), None
    )
    width = width or Width(6, 16)
    return GPU(
        name=name,
        memory=memory,
        reserve=0 if name == "cpu" else CONTEXT,
        flops=dict(found.flops),
        bandwidth=found.bandwidth,
        pcie_generation=width.generation,
        pcie_lanes=width.lanes,
        copy_engines=2,
        peer_reach="none",
        launch_overhead=found.launch,
        compute_efficiency=1.0,
        memory_efficiency=1.0,
        unverified=("reserve", "pcie", "copy_engines"),
        sources={
            "flops": "what measured layers reach, not the peak",
            "bandwidth": "what measured layers reach, not the peak",
            "launch_overhead": "measured",
        },
    )


def memory(machine: Machine) -> dict[str, int]:
    """Bytes of each kind of GPU: the least that one of them says."""
    found: dict[str, int] = {}
    for model, nbytes in zip(machine.models, machine.memory, strict=True):
        found[kind(model)] = min(nbytes, found.get(kind(model), nbytes))
    return found
