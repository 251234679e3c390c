"""Small models and servers with round numbers, for tests that count by hand."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hwmodels.gpu import GPU
from hwmodels.parts import GPUSlot, Host, Link, Parts, Root
from hwmodels.server import Server
from workloads.model import Layer, Model, Optimizer, Precision, Weight
from workloads.schedule import Schedule
from workloads.schedules.catalog import schedule

BIG = 10**18


@dataclass(frozen=True)
class Box:
    """The part of a Server that workloads may know: devices, memory, nearest host."""

    count: int
    capacity: int
    numa: int = 1
    host_capacity: int = BIG
    name: str = "box"

    @property
    def gpus(self) -> tuple[str, ...]:
        return tuple(f"gpu{i}" for i in range(self.count))

    @property
    def hosts(self) -> tuple[str, ...]:
        return tuple(f"host{i}" for i in range(self.numa))

    def memory(self, place: str) -> int:
        return self.capacity if place in self.gpus else self.host_capacity

    def host_of(self, gpu: str) -> str:
        return self.hosts[self.gpus.index(gpu) * self.numa // self.count]


def chain(
    layers: int,
    weight: int = 1,
    gradient: int = 0,
    state: int = 0,
    boundary: int = 0,
    stash: int = 0,
    tied: bool = False,
    times: Sequence[tuple[float, float]] = (),
) -> Model:
    """Build a chain of equal layers; the sizes are bytes (of weights: also parameters).

    ``gradient`` and ``state`` are bytes per parameter; ``tied`` lets the last layer read the
    first layer's weights too. ``times`` are forward and backward FLOPs of each layer and sample.
    """
    precision = Precision("toy", "fp32", 1, gradient, 0, state, 1)
    optimizer = Optimizer("adam", 2 if state else 0, 0)
    found: list[Layer] = []
    for i in range(layers):
        weights = (Weight(f"w{i}", weight),)
        if tied and i == layers - 1:
            weights += (Weight("w0", weight),)
        forward, backward = times[i] if times else (1.0, 2.0)
        found.append(Layer(f"l{i}", "block", weights, boundary, stash, 0, forward, backward))
    return Model("toy", tuple(found), boundary, 1, precision, optimizer)


def build(name: str, model: Model, box: Box, minibatch: int, **knobs: Any) -> Schedule:
    """Build a checked schedule with microbatches of one sample."""
    knobs.setdefault("microbatch", 1)
    found = schedule(name, model, box, minibatch=minibatch, **knobs)
    found.check()
    return found


def volume(plan: Schedule) -> Counter[tuple[str, str]]:
    """Bytes moved by tensor kind and direction."""
    found: Counter[tuple[str, str]] = Counter()
    for op in plan.ops:
        if op.kind == "copy":
            found[(plan.tensors[op.reads[0]].kind, op.phase)] += op.nbytes
    return found


FAST = 1e30
"""B/s of links that take no time."""


def ideal(
    gpus: int, *, hop: float = 0.0, host: float = FAST, memory: int = BIG, cores: float = FAST
) -> Server:
    """Build a server whose GPUs do 1 FLOP/s; neighbours in a ring are ``hop`` seconds apart.

    ``host`` is the bandwidth in B/s of each GPU's own link to host memory, per direction.
    """
    gpu = GPU(
        "ideal", memory, 0, {"fp32": 1.0}, FAST, 3, 16, 99, "server", 0.0, 1.0, 1.0, 4, 18, FAST
    )
    names = [f"gpu{i}" for i in range(gpus)]
    links = [Link(f"pcie{i}", (name, "root0"), "pcie", host, 0.0) for i, name in enumerate(names)]
    for i in range(gpus if gpus > 2 else gpus - 1):
        links.append(Link(f"nv{i}", (names[i], names[(i + 1) % gpus]), "nvlink", FAST, hop))
    return Server(
        Parts(
            "ideal",
            tuple(GPUSlot(name, gpu) for name in names),
            (Host("host0", "socket0", BIG, FAST, 1, cores, cores),),
            (Root("root0", "host0", math.inf),),
            tuple(links),
            host_latency=0.0,
        )
    )
