"""Compute work and how long a GPU takes for it: roofline and measured profiles."""

from __future__ import annotations

import difflib
from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, NamedTuple

from hwmodels.errors import InvalidInput
from hwmodels.gpu import GPU, Dtype

Phase = Literal["forward", "recompute", "backward", "update"]

__all__ = ["Curve", "Dtype", "LayerProfile", "LayerWork", "Phase", "Work", "notes", "seconds"]


@dataclass(frozen=True, slots=True)
class LayerWork:
    """What one layer asks of a GPU in one phase of one microbatch.

    Attributes
    ----------
    layer : str
        Row of a measured profile that describes this layer.
    phase : str
        ``forward``, ``recompute``, ``backward`` (without recompute) or ``update``.
    samples : int
        Microbatch size u.
    flops : float
        Floating-point operations (1 multiply-add = 2).
    bytes : float
        Bytes read from and written to GPU memory.
    dtype : str
        Number format of the arithmetic.
    kernels : int
        Kernel launches.
    share : float
        Part of the measured time of this phase that it takes: half a backward, say. FLOPs, bytes
        and kernels are those of the part already.
    """

    layer: str
    phase: Phase
    samples: int
    flops: float
    bytes: float
    dtype: Dtype
    kernels: int = 1
    share: float = 1.0


@dataclass(frozen=True, slots=True)
class Work:
    """The work of one compute operation: its layers, run one after another."""

    parts: tuple[LayerWork, ...]


class Curve(NamedTuple):
    """Measured times of one layer in one phase.

    Attributes
    ----------
    sizes : tuple of int
        Microbatch sizes in samples, increasing.
    seconds : tuple of float
        Time at each size.
    """

    sizes: tuple[int, ...]
    seconds: tuple[float, ...]


@dataclass(frozen=True)
class LayerProfile:
    """Layer times measured on one GPU.

    Attributes
    ----------
    gpu : str
        Name of the GPU in the catalog.
    rows : mapping of (str, str) to Curve
        By row name and phase. ``backward`` is without recompute; ``recompute`` may be missing
        (a recompute repeats forward); ``update`` is one step of the layer's optimizer on the CPU
        and does not depend on the microbatch.
    """

    gpu: str
    rows: Mapping[tuple[str, Phase], Curve]

    def __post_init__(self) -> None:
        for (row, phase), (sizes, times) in self.rows.items():
            where = f"Profile row {row!r}, phase {phase!r}"
            if not sizes or len(sizes) != len(times):
                raise InvalidInput(
                    f"{where} has {len(sizes)} microbatch sizes and {len(times)} times; "
                    "it needs one time for each of at least one size."
                )
            if sizes[0] < 1 or any(a >= b for a, b in pairwise(sizes)):
                raise InvalidInput(f"{where}: microbatch sizes must be positive and increase.")
            if not all(0.0 <= t < float("inf") for t in times):
                raise InvalidInput(f"{where}: times must be finite and not negative.")

    def _curve(self, row: str, phase: Phase) -> Curve:
        found = self.rows.get((row, phase))
        if found is None and phase == "recompute":
            found = self.rows.get((row, "forward"))
        if found is not None:
            return found
        names = sorted({name for name, _ in self.rows})
        if row in names:
            raise InvalidInput(
                f"The profile measured on {self.gpu} has no {phase!r} times of row {row!r}."
            )
        near = difflib.get_close_matches(row, names, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else "."
        raise InvalidInput(f"The profile measured on {self.gpu} has no row {row!r}{hint}")

    def seconds(self, row: str, phase: Phase, samples: int) -> float:
        """Time of one layer in seconds: linear between measured sizes.

        Outside the measured range the nearest two sizes are continued as a line, held between
        "as long as the nearest size" and "in proportion to the samples".

        Parameters
        ----------
        row : str
            Name of the row.
        phase : str
            ``forward``, ``recompute``, ``backward`` (without recompute) or ``update`` (on the CPU).
        samples : int
            Microbatch size.

        Raises
        ------
        InvalidInput
            If the profile has no such row.
        """
        sizes, times = self._curve(row, phase)
        if phase == "update":
            return times[0]
        at = bisect_left(sizes, samples)
        if at < len(sizes) and sizes[at] == samples:
            return times[at]
        if 0 < at < len(sizes):
            low, high = at - 1, at
            share = (samples - sizes[low]) / (sizes[high] - sizes[low])
            return times[low] + share * (times[high] - times[low])
        near = 0 if at == 0 else len(sizes) - 1
        proportional = times[near] * samples / sizes[near]
        if len(sizes) == 1:
            return proportional
        other = 1 if at == 0 else near - 1
        slope = (times[near] - times[other]) / (sizes[near] - sizes[other])
        line = times[near] + slope * (samples - sizes[near])
        low, high = sorted((times[near], proportional))
        return min(max(line, low), high)

    def extrapolates(self, row: str, phase: Phase, samples: int) -> bool:
        """Whether ``samples`` lies outside the sizes measured for this row and phase."""
        sizes, _ = self._curve(row, phase)
        return phase != "update" and not sizes[0] <= samples <= sizes[-1]


def _measured(gpu: GPU, part: LayerWork, profile: LayerProfile | None) -> bool:
    """Whether the profile's time counts: same GPU, and not the update (measured on the CPU)."""
    return profile is not None and profile.gpu == gpu.name and part.phase != "update"


def _roofline(gpu: GPU, part: LayerWork, profile: LayerProfile | None) -> float:
    if part.kernels == 0:  # a layer that only reshapes, or has no backward
        return 0.0
    if part.flops == 0.0 and part.bytes == 0.0:
        if part.phase == "update":  # a layer with nothing to train
            return 0.0
        if profile is not None:
            raise InvalidInput(
                f"Layer {part.layer!r} is known only by times measured on {profile.gpu}, so its "
                f"time on {gpu.name} is unknown; use a server with {profile.gpu} or a model with "
                "FLOPs and bytes."
            )
        raise InvalidInput(
            f"Layer {part.layer!r} asks for no FLOPs and no bytes in its {part.phase} and has no "
            "measured profile, so its time is unknown."
        )
    arithmetic = 0.0
    if part.flops:
        arithmetic = part.flops / (gpu.peak(part.dtype) * gpu.compute_efficiency)
    memory = part.bytes / (gpu.bandwidth * gpu.memory_efficiency)
    return gpu.launch_overhead * part.kernels + max(arithmetic, memory)


def seconds(gpu: GPU, work: Work, profile: LayerProfile | None = None) -> float:
    """Time of one compute operation on one GPU.

    Layers run one after another. Times measured on this very GPU are used where the profile has
    them; else each layer takes its launch overhead plus the larger of its arithmetic and its
    memory traffic (roofline: Williams, Waterman, Patterson, CACM 52(4), 2009), each at the GPU's
    peak times its efficiency. Updates always take the roofline: profiles hold the CPU's update.

    Parameters
    ----------
    gpu : GPU
        Where it runs.
    work : Work
        What is asked of it.
    profile : LayerProfile, optional
        Measured times; used only if measured on ``gpu``.

    Returns
    -------
    float
        Seconds.

    Raises
    ------
    InvalidInput
        If the profile has no such row, the GPU no such number format, or nothing tells the time.
    """
    total = 0.0
    for part in work.parts:
        if profile is not None and _measured(gpu, part, profile):
            total += part.share * profile.seconds(part.layer, part.phase, part.samples)
        else:
            total += _roofline(gpu, part, profile)
    return total


def notes(gpu: GPU, works: Iterable[Work], profile: LayerProfile | None = None) -> tuple[str, ...]:
    """Say what the reader must know of the times of ``works``: each once, in a fixed order."""
    if profile is None or profile.gpu != gpu.name:
        doubt = " (unverified)" if "compute_efficiency" in gpu.unverified else ""
        measured = f"; the profile was measured on {profile.gpu}" if profile else ""
        return (
            f"Compute times on {gpu.name} are estimated, not measured: a roofline at "
            f"{gpu.compute_efficiency:.0%} of the arithmetic peak{doubt}{measured}.",
        )
    beyond: dict[tuple[str, Phase, int], None] = {}
    for work in works:
        for part in work.parts:
            known = _measured(gpu, part, profile)
            if known and profile.extrapolates(part.layer, part.phase, part.samples):
                beyond[(part.layer, part.phase, part.samples)] = None
    return tuple(
        f"Extrapolated: {phase} of {layer} at {samples} samples lies outside the measured sizes."
        for layer, phase, samples in sorted(beyond)
    )
