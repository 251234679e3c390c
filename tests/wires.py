"""Servers of bare wires and hand-made schedules, for tests of the engine.

A GPU does 1 FLOP/s, so that the FLOPs of an operation are its seconds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

from hwmodels.compute import LayerProfile, LayerWork, Work
from hwmodels.errors import NoPath, UnknownName
from hwmodels.gpu import GPU
from hwmodels.server import Server
from sim.engine import Timeline, execute
from workloads.schedule import Op, Place, Schedule, Tensor

INF = math.inf
UNIT = GPU(
    "unit", 1 << 60, 0, {"fp32": 1.0}, INF, 3, 16, copy_engines=3, peer_reach="server",
    launch_overhead=0.0, compute_efficiency=1.0, memory_efficiency=1.0,
)  # fmt: skip


@dataclass(frozen=True)
class Way:
    """A route."""

    usage: tuple[tuple[str, float], ...]
    latency: float = 0.0
    cap: float = INF
    kind: str = "host"


@dataclass(frozen=True)
class Wires:
    """What the engine asks of a server, from plain tables."""

    resources: Mapping[str, float]
    ways: Mapping[tuple[str, str], Way]
    gpus: tuple[str, ...]
    hosts: tuple[str, ...] = ("host0",)
    engines: int = 3
    sizes: Mapping[str, int] = field(default_factory=dict)
    cpu: Way = Way((), 0.0, INF, "cpu")
    name: str = "wires"

    def gpu(self, name: str) -> GPU:
        if name not in self.gpus:
            raise UnknownName(f"no GPU {name}")
        return replace(UNIT, copy_engines=self.engines)

    def memory(self, place: str) -> int:
        if place not in (*self.gpus, *self.hosts):
            raise UnknownName(f"no place {place}")
        return self.sizes.get(place, 1 << 60)

    def route(self, src: str, dst: str) -> Way:
        if (src, dst) not in self.ways:
            raise NoPath(f"no path from {src} to {dst}")
        return self.ways[src, dst]

    def cpu_route(self, host: str) -> Way:
        return self.cpu


def star(
    count: int, port: float, uplink: float = INF, *, latency: float = 0.0, **options: Any
) -> Wires:
    """GPUs with one full-duplex port each on a switch, whose uplink leads to the host."""
    gpus = tuple(f"gpu{i}" for i in range(count))
    resources = {"up": uplink, "down": uplink}
    ways: dict[tuple[str, str], Way] = {}
    for gpu in gpus:
        resources |= {f"{gpu}>": port, f">{gpu}": port}
        ways["host0", gpu] = Way((("down", 1.0), (f">{gpu}", 1.0)), latency)
        ways[gpu, "host0"] = Way(((f"{gpu}>", 1.0), ("up", 1.0)), latency)
        for other in gpus:
            if other != gpu:
                ways[gpu, other] = Way(((f"{gpu}>", 1.0), (f">{other}", 1.0)), latency, kind="pcie")
    return Wires(resources, ways, gpus, **options)


def bus(bandwidth: float, count: int, **options: Any) -> Wires:
    """One link to all GPUs, and nothing else."""
    gpus = tuple(f"gpu{i}" for i in range(count))
    ways = {("host0", gpu): Way((("bus", 1.0),)) for gpu in gpus}
    ways |= {(gpu, "host0"): Way((("bus", 1.0),)) for gpu in gpus}
    return Wires({"bus": bandwidth}, ways, gpus, **options)


class Draft:
    """Collects operations; each method returns the new operation's id."""

    def __init__(self) -> None:
        self.ops: list[Op] = []
        self.tensors: list[Tensor] = []
        self.initial: list[Place] = []
        self.works: dict[float, Work] = {}

    def tensor(self, nbytes: int, *where: str) -> int:
        self.tensors.append(Tensor(len(self.tensors), "weight", f"W{len(self.tensors)}", nbytes))
        self.initial += [(len(self.tensors) - 1, device) for device in where]
        return len(self.tensors) - 1

    def add(self, kind: str, stream: str, device: str, after: Sequence[int], **more: Any) -> int:
        op = Op(len(self.ops), cast(Any, kind), stream, tuple(after), device, more.pop("phase"))
        self.ops.append(op._replace(**more))
        return op.id

    def compute(self, gpu: str, seconds: float, *after: int, **more: Any) -> int:
        work = self.works.setdefault(
            seconds, Work((LayerWork("l", "forward", 1, seconds, 0.0, "fp32"),))
        )
        more = {"phase": "forward", "work": work} | more
        return self.add("compute", f"{gpu}.compute", gpu, after, **more)

    def copy(self, source: str, target: str, nbytes: int, *after: int, **more: Any) -> int:
        if source.startswith("host"):
            stream, phase = f"{target}.h2d", "swap_in"
        elif target.startswith("host"):
            stream, phase = f"{source}.d2h", "swap_out"
        else:
            stream, phase = f"{source}>{target}", "peer"
        more = {"phase": phase} | more
        stream = more.pop("stream", stream)
        return self.add("copy", stream, source, after, nbytes=nbytes, peer=target, **more)

    def free(self, device: str, *after: int, **more: Any) -> int:
        return self.add("free", "", device, after, phase="free", **more)

    def collective(self, phase: str, group: Sequence[str], nbytes: int, *after: int) -> int:
        return self.add(
            "collective", "collective:" + ",".join(group), group[0], after, phase=phase,
            nbytes=nbytes, group=tuple(group),
        )  # fmt: skip

    def host(self, host: str, nbytes: int, *after: int, **more: Any) -> int:
        stream = more.pop("stream", f"{host}.worker")
        return self.add("host", stream, host, after, phase="update", nbytes=nbytes, **more)

    def schedule(self, profile: LayerProfile | None = None) -> Schedule:
        return Schedule(
            "draft", "none", tuple(self.ops), tuple(self.tensors), {}, tuple(self.initial), (), (),
            minibatch=1, microbatch=1, num_layers=1, profile=profile,
        )  # fmt: skip

    def run(
        self, server: Wires | Server, algorithm: str = "ring", profile: LayerProfile | None = None
    ) -> Timeline:
        return execute(self.schedule(profile), cast(Server, server), algorithm)


def traffic(timeline: Timeline, ops: Sequence[Op]) -> dict[str, float]:
    """Bytes over each resource, from the records."""
    total: dict[str, float] = {}
    for op in ops:
        if timeline.route[op.id] >= 0:
            for resource, multiplicity in timeline.routes[timeline.route[op.id]].usage:
                total[resource] = total.get(resource, 0.0) + multiplicity * op.nbytes
    return total
