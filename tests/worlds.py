"""Small networks with their models, and boxes of logical devices, for tests that run for real."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from toys import BIG, Box

import workloads as wl
from hwmodels.errors import DoesNotFit
from validate import nets
from validate.network import Network
from workloads.model import Precision
from workloads.schedule import Schedule

DOUBLE = Precision("fp64", "fp32", 8, 8, 0, 8, 8)
"""Every value in 8 bytes, so that sums in another order differ by 1e-16 only."""

Batch = tuple[torch.Tensor, torch.Tensor]


@dataclass(frozen=True, eq=False)
class World:
    """A network and a batch for each of two iterations of eight samples."""

    network: Network
    batches: Sequence[Batch]

    @property
    def total(self) -> int:
        """Bytes of all weights."""
        model = self.network.model
        return sum(model.weight_bytes(weight) for weight in model.weights)


MINIBATCH = 8


@cache
def gpt(*, tied: bool = True, precision: str | None = None, optimizer: str = "adam") -> World:
    torch.manual_seed(0)
    layers = nets.gpt(layers=3, hidden=8, heads=2, vocab=11, tokens=5, tied=tied)
    if precision is None:
        layers = [layer.double() for layer in layers]
    batches = [nets.text(MINIBATCH, tokens=5, vocab=11, seed=seed) for seed in range(2)]
    return _world(layers, batches, precision or DOUBLE, optimizer)


@cache
def conv(optimizer: str = "momentum") -> World:
    torch.manual_seed(0)
    layers = [layer.double() for layer in nets.convnet((3, 8, 16), classes=4, groups=4)]
    found = [nets.pictures(MINIBATCH, size=8, classes=4, seed=seed) for seed in range(2)]
    return _world(layers, [(x.double(), y) for x, y in found], DOUBLE, optimizer)


def _world(
    layers: Sequence[torch.nn.Module],
    batches: Sequence[Batch],
    precision: Precision | str,
    optimizer: str,
) -> World:
    model = wl.from_torch(layers, batches[0], precision=precision, optimizer=optimizer)
    return World(Network.bind(layers, model), batches)


def tight(name: str, world: World, gpus: int, **knobs: Any) -> tuple[Schedule, Box]:
    """Schedule for the smallest of a row of GPU memories that it fits in, and that box."""
    knobs.setdefault("microbatch", 2)
    for tenths in (7, 10, 16, 26, 60, 150):
        box = Box(gpus, world.total * tenths // 10)
        with suppress(DoesNotFit):
            return wl.schedule(
                name, world.network.model, box, minibatch=MINIBATCH, **knobs
            ), box  # fmt: skip
    raise AssertionError(f"{name} fits nowhere")


def roomy(name: str, world: World, gpus: int, **knobs: Any) -> tuple[Schedule, Box]:
    """Schedule with all the memory that it wants."""
    knobs.setdefault("microbatch", 2)
    box = Box(gpus, BIG)
    return wl.schedule(name, world.network.model, box, minibatch=MINIBATCH, **knobs), box
