"""Optimizer steps on flat buffers, in place and chunk by chunk, so that they need little scratch.

On a CPU a chunk stays in the cache between the operations of a step, so an fp32 Adam step moves
the 28 bytes a parameter that ``hwmodels.routes.ADAM_BYTES`` counts. On a GPU each operation is a
kernel of its own and goes through memory: a fused kernel would be faster.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import sqrt
from typing import TYPE_CHECKING

from hwmodels.errors import InvalidInput

if TYPE_CHECKING:
    from torch import Tensor

_CHUNK = {"cpu": 2**16, "cuda": 2**24}
"""Elements of a chunk: four fp32 chunks and scratch fit into a core's second-level cache or near
it (1.25 MiB); on a GPU scratch is 64 MiB, and kernels are long beside their launch."""


def _chunks(*flat: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """Yield matching pieces of buffers of one length."""
    size = _CHUNK.get(flat[0].device.type, 2**24)
    return zip(*(buffer.split(size) for buffer in flat), strict=True)


def sgd_(weights: Tensor, gradients: Tensor, *, rate: float) -> None:
    """One step of gradient descent, in place: w -= rate g.

    Parameters
    ----------
    weights, gradients : Tensor
        Flat, of one length and format.
    rate : float
        Learning rate.
    """
    for w, g in _chunks(weights, gradients):
        w.add_(g, alpha=-rate)


def momentum_(
    weights: Tensor, gradients: Tensor, velocity: Tensor, *, rate: float, decay: float = 0.9
) -> None:
    """One step with momentum, in place: v = decay v + g; w -= rate v.

    Parameters
    ----------
    weights, gradients, velocity : Tensor
        Flat, of one length and format; the velocity starts as zeros.
    rate, decay : float
        Learning rate; share of the velocity that stays.
    """
    for w, g, v in _chunks(weights, gradients, velocity):
        v.mul_(decay).add_(g)
        w.add_(v, alpha=-rate)


def adam_(
    weights: Tensor,
    gradients: Tensor,
    mean: Tensor,
    square: Tensor,
    step: int,
    *,
    rate: float = 1e-3,
    betas: tuple[float, float] = (0.9, 0.999),
    epsilon: float = 1e-8,
) -> None:
    """One step of Adam, in place (Kingma and Ba, arXiv 1412.6980, algorithm 1).

    Parameters
    ----------
    weights, gradients, mean, square : Tensor
        Flat, of one length and format; both moments start as zeros.
    step : int
        Number of this step, from 1.
    rate : float
        Learning rate.
    betas : (float, float)
        Decay of the mean and of the mean square of the gradients.
    epsilon : float
        Keeps the division finite.
    """
    kept_mean, kept_square = betas
    size = rate / (1 - kept_mean**step)
    root = sqrt(1 - kept_square**step)
    scratch = weights.new_empty(min(weights.numel(), _CHUNK.get(weights.device.type, 2**24)))
    for w, g, m, v in _chunks(weights, gradients, mean, square):
        m.lerp_(g, 1 - kept_mean)
        v.mul_(kept_square).addcmul_(g, g, value=1 - kept_square)
        below = scratch[: v.numel()].copy_(v).sqrt_().div_(root).add_(epsilon)
        w.addcdiv_(m, below, value=-size)


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of an optimizer; the defaults are those of torch.optim.

    Attributes
    ----------
    rate : float
        Learning rate.
    decay : float
        Share of the velocity that stays (momentum).
    betas : (float, float)
        Decay of Adam's moments.
    epsilon : float
        Keeps Adam's division finite.
    """

    rate: float = 1e-3
    decay: float = 0.9
    betas: tuple[float, float] = (0.9, 0.999)
    epsilon: float = 1e-8


def step(
    kind: str,
    weights: Tensor,
    gradients: Tensor,
    states: Sequence[Tensor],
    count: int,
    settings: Settings,
) -> None:
    """One step of the optimizer of a `workloads.Model`, in place.

    Parameters
    ----------
    kind : str
        ``sgd``, ``momentum`` or ``adam``.
    weights, gradients : Tensor
        Flat, of one length and format.
    states : sequence of Tensor
        None, the velocity, or Adam's two moments; zeros before the first step.
    count : int
        Number of this step, from 1.
    settings : Settings

    Raises
    ------
    InvalidInput
        If there is no such optimizer.
    """
    if kind == "sgd":
        sgd_(weights, gradients, rate=settings.rate)
    elif kind == "momentum":
        momentum_(weights, gradients, *states, rate=settings.rate, decay=settings.decay)
    elif kind == "adam":
        mean, square = states
        adam_(
            weights, gradients, mean, square, count,
            rate=settings.rate, betas=settings.betas, epsilon=settings.epsilon,
        )  # fmt: skip
    else:
        raise InvalidInput(f"nothing runs the optimizer {kind!r}; take sgd, momentum or adam")
