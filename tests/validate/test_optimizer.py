"""Optimizer steps on flat buffers, held against torch's own."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from validate.optimizer import adam_, momentum_, sgd_

SIZES = (1, 1000, 2**16 + 3)
"""One value; less than a chunk; a chunk and a short one."""


def buffers(size: int, count: int) -> list[Tensor]:
    draw = torch.Generator().manual_seed(size)
    made = [torch.randn(size, dtype=torch.float64, generator=draw) for _ in range(2)]
    return made + [torch.zeros(size, dtype=torch.float64) for _ in range(count - 2)]


def stepped(optimizer: type, size: int, **settings: float) -> Tensor:
    """Weights after five steps of torch, each gradient a multiple of the first."""
    weights, gradients = buffers(size, 2)
    parameter = torch.nn.Parameter(weights)
    ours = optimizer([parameter], **settings)
    for step in range(1, 6):
        parameter.grad = gradients * step
        ours.step()
    return parameter.detach()


@pytest.mark.parametrize("size", SIZES)
def test_adam_equals_torch(size: int) -> None:
    weights, gradients, mean, square = buffers(size, 4)
    for step in range(1, 6):
        adam_(weights, gradients * step, mean, square, step, rate=0.01, betas=(0.8, 0.99))
    wanted = stepped(torch.optim.Adam, size, lr=0.01, betas=(0.8, 0.99), foreach=False)
    assert torch.equal(weights, wanted)


@pytest.mark.parametrize("size", SIZES)
def test_momentum_equals_torch(size: int) -> None:
    weights, gradients, velocity = buffers(size, 3)
    for step in range(1, 6):
        momentum_(weights, gradients * step, velocity, rate=0.01, decay=0.7)
    wanted = stepped(torch.optim.SGD, size, lr=0.01, momentum=0.7, foreach=False)
    assert torch.equal(weights, wanted)


@pytest.mark.parametrize("size", SIZES)
def test_sgd_equals_torch(size: int) -> None:
    weights, gradients = buffers(size, 2)
    for step in range(1, 6):
        sgd_(weights, gradients * step, rate=0.01)
    assert torch.equal(weights, stepped(torch.optim.SGD, size, lr=0.01, foreach=False))


def test_buffers_of_different_lengths_are_refused() -> None:
    with pytest.raises(ValueError, match="longer"):
        sgd_(torch.zeros(2**16), torch.zeros(2**16 + 1), rate=1.0)
