"""Compute work and how long a GPU takes for it: roofline and measured profiles."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Phase = Literal["forward", "recompute", "backward", "update"]
Dtype = Literal["fp32", "tf32", "fp16", "bf16", "fp8"]


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
    """

    layer: str
    phase: Phase
    samples: int
    flops: float
    bytes: float
    dtype: Dtype
    kernels: int = 1


@dataclass(frozen=True, slots=True)
class Work:
    """The work of one compute operation: its layers, run one after another."""

    parts: tuple[LayerWork, ...]
