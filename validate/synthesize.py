"""Measurements as a given server would give them: by the simulator, with noise.

With these a fit can be tried on servers whose hidden numbers are known.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence

from hwmodels.compute import LayerWork, Work, seconds
from hwmodels.routes import ADAM_BYTES
from hwmodels.server import Server
from sim.engine import Timeline, execute
from validate.measurements import Compute, Copies, HostUpdate, Machine, Measurements
from validate.plan import Flow, Pattern, Step, both_ways, plan, steps
from workloads.schedule import Op, Schedule

PARAMS = 10**8
"""Parameters of the smallest optimizer steps."""

ENDLESS = 10**15
"""Bytes of copies that must not end before what runs beside them."""


def machine(server: Server) -> Machine:
    """Describe the machine as it would itself."""
    parts = server.parts
    return Machine(
        name=server.name,
        gpus=server.gpus,
        models=tuple(slot.gpu.name for slot in parts.gpus),
        memory=tuple(slot.gpu.memory for slot in parts.gpus),
        hosts=server.hosts,
        host_memory=tuple(host.memory for host in parts.hosts),
        cores=tuple(host.cores for host in parts.hosts),
        near=tuple(server.host_of(gpu) for gpu in server.gpus),
        topology=_matrix(server),
    )


def _matrix(server: Server) -> str:
    """Give what ``nvidia-smi topo -m`` prints of NVLinks; nothing where there is none."""
    kinds = [[server.route(a, b).kind if a != b else "" for b in server.gpus] for a in server.gpus]
    if not any("nvlink" in row for row in kinds):
        return ""
    word = {"": "X", "nvlink": "NV1"}
    names = [f"GPU{i}" for i in range(len(kinds))]
    rows = [
        [name, *(word.get(x, "SYS") for x in row)] for name, row in zip(names, kinds, strict=True)
    ]
    return "\n".join("\t".join(row) for row in [["", *names], *rows]) + "\n"


def measure(
    server: Server, layers: Iterable[LayerWork] = (), *, noise: float = 0.0, seed: int = 0
) -> Measurements:
    """Measure a server in the simulator, by the plan for its machine.

    Parameters
    ----------
    server : Server
    layers : iterable of LayerWork
        Computed on the first GPU of each kind.
    noise : float
        Relative standard deviation of each time, independent of all others.
    seed : int
        Of the noise: the same seed gives the same measurements.
    """
    draw = random.Random(seed)

    def noisy(exact: float) -> float:
        return exact * max(0.5, draw.gauss(1.0, noise)) if noise else exact

    me = machine(server)
    patterns = plan(me)
    firsts = {slot.gpu.name: slot.name for slot in reversed(server.parts.gpus)}
    works = tuple(layers)
    return Measurements(
        machine=me,
        copies=tuple(
            Copies(
                flows=pattern.flows,
                nbytes=pattern.nbytes,
                pinned=pattern.pinned,
                seconds=tuple(map(noisy, times)),
            )
            for pattern, times in zip(patterns, copies(server, patterns), strict=True)
        ),
        compute=tuple(
            _compute(server, gpu, work, noisy) for gpu in sorted(firsts.values()) for work in works
        ),
        updates=tuple(
            HostUpdate(
                hosts=step.hosts,
                params=PARAMS * step.scale,
                nbytes=PARAMS * step.scale * ADAM_BYTES,
                seconds=noisy(update(server, step)),
                beside=step.beside,
            )
            for step in steps(me)
        ),
        launch={gpu: noisy(server.gpu(gpu).launch_overhead) for gpu in server.gpus},
    )


def copies(server: Server, patterns: Sequence[Pattern]) -> list[tuple[float, ...]]:
    """Seconds of every flow of every pattern, one pattern after another."""
    ops: list[Op] = []
    spans: list[range] = []
    before: tuple[int, ...] = ()
    for pattern in patterns:
        spans.append(range(len(ops), len(ops) + len(pattern.flows)))
        ops += [
            _copy(number, flow, pattern.nbytes, before)
            for number, flow in zip(spans[-1], pattern.flows, strict=True)
        ]
        before = tuple(spans[-1])
    took = _run(server, ops)
    return [tuple(float(took.end[i] - took.start[i]) for i in span) for span in spans]


def update(server: Server, step: Step) -> float:
    """Seconds of the slowest of some optimizer steps."""
    ops = [
        Op(i, "host", f"{host}.{i}", (), host, "update", nbytes=PARAMS * step.scale * ADAM_BYTES)
        for i, host in enumerate(step.hosts)
    ]
    for flow in both_ways(machine(server)) if step.beside else ():
        ops.append(_copy(len(ops), flow, ENDLESS, ()))
    took = _run(server, ops)
    return max(float(took.end[i] - took.start[i]) for i in range(len(step.hosts)))


def _copy(number: int, flow: Flow, nbytes: int, after: tuple[int, ...]) -> Op:
    src, dst = flow
    return Op(number, "copy", f"{src}>{dst}", after, src, "copy", nbytes=nbytes, peer=dst)


def _run(server: Server, ops: Sequence[Op]) -> Timeline:
    schedule = Schedule(
        "measurements", "none", tuple(ops), (), {}, (), (), (), minibatch=1, microbatch=1,
        num_layers=1,
    )  # fmt: skip
    return execute(schedule, server)


def _compute(server: Server, gpu: str, work: LayerWork, noisy: Callable[[float], float]) -> Compute:
    return Compute(
        gpu=gpu,
        layer=work.layer,
        phase=work.phase,
        samples=work.samples,
        flops=work.flops,
        bytes=work.bytes,
        dtype=work.dtype,
        kernels=work.kernels,
        seconds=noisy(seconds(server.gpu(gpu), Work((work,)))),
    )
