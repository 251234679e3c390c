"""Calibration finds the hidden numbers of random servers again."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from hidden_servers import server

from hwmodels.compute import LayerWork
from hwmodels.parts import Parts
from hwmodels.routes import ADAM_BYTES
from hwmodels.server import Server
from sim.fabric import Use, alone
from validate.calibrate import Calibration, calibrate
from validate.calibrate.copies import seen, usable
from validate.calibrate.fit import differences, predict
from validate.calibrate.parameters import Layout
from validate.measurements import Measurements
from validate.plan import ins
from validate.synthesize import measure

SEEDS = range(20)
NOISE = 0.02
CLOSE = 0.03

LAYERS = tuple(
    LayerWork(f"{name}-{dtype}", phase, u, flops * u, fixed + nbytes * u, dtype, kernels)
    for dtype in ("fp32", "bf16")
    for name, flops, fixed, nbytes, kernels in (
        ("block", 3e11, 3e8, 5e8, 12),
        ("norm", 1e8, 1e6, 4e8, 3),
        ("tiny", 1e5, 1e4, 1e4, 40),
    )
    for phase in ("forward", "backward")
    for u in (1, 2, 4, 8)
)

Key = tuple[str, frozenset[str]]
"""What a limit counts (each direction, both, or optimizer steps), and the GPUs behind it."""


def limits(parts: Parts) -> dict[str, tuple[Key, float]]:
    """Shared limits on copies with the nearest host memory, by name of the parameter."""
    box = Server(parts)
    into = {gpu: (box.host_of(gpu), gpu) for gpu in box.gpus}
    layout = Layout(parts)
    found: dict[str, tuple[Key, float]] = {}
    for name, value in layout.start.items():
        ways: list[frozenset[str]] = []
        for resource, number in layout.of.items():
            if number == layout.number[name]:
                ways.append(
                    frozenset(
                        (gpu, way)  # type: ignore[misc]
                        for gpu, (host, _) in into.items()
                        for way, flow in (("in", (host, gpu)), ("out", (gpu, host)))
                        if any(r == resource for r, _ in box.route(*flow).usage)
                    )
                )
        if not ways or not any(ways):
            continue
        both = any({way for _, way in x} == {"in", "out"} for x in ways)
        gpus = frozenset(gpu for x in ways for gpu, _ in x)
        found[name] = (("both" if both else "each", gpus), value)
    return found


def tightest(found: dict[str, tuple[Key, float]]) -> dict[Key, float]:
    """Lowest limit of those that count the same."""
    least: dict[Key, float] = {}
    for key, value in found.values():
        least[key] = min(value, least.get(key, math.inf))
    return least


def switches(parts: Parts) -> set[frozenset[str]]:
    """GPUs below each switch."""
    router = Server(parts)._router
    return {
        frozenset(slot.name for slot in parts.gpus if switch.name in router.chain(slot.name))
        for switch in parts.switches
    }


def told(parts: Parts, rows: Measurements) -> dict[str, float]:
    """Standard error of each parameter that noise of 2 % leaves, where the parameter matters.

    From the derivatives at the true values (Fisher information); infinite for a parameter that
    could as well be half as large again.
    """
    layout = Layout(parts)
    records = calibrated_records(rows)
    numbers = np.array(list(layout.start.values()))
    times, slopes = predict(layout, records, numbers)
    steep = slopes * numbers / times[:, None]
    error = NOISE * np.sqrt(np.diag(np.linalg.inv(steep.T @ steep + 1e-8 * np.eye(len(numbers)))))
    found: dict[str, float] = {}
    for k, name in enumerate(layout.start):
        lifted = numbers.copy()
        lifted[k] *= 1.5
        change = np.log(times / predict(layout, records, lifted, slopes=False)[0])
        found[name] = float(error[k]) if np.sum(np.abs(change) > 0.1) >= 6 else math.inf
    return found


def calibrated_records(rows: Measurements):  # noqa: ANN201
    from validate.calibrate import host

    return [*seen(usable(rows)), *host.seen(rows)]


@pytest.fixture(scope="module")
def known() -> dict[int, tuple[Server, Measurements, Calibration]]:
    return {}


def case(
    seed: int, known: dict[int, tuple[Server, Measurements, Calibration]]
) -> tuple[Server, Measurements, Calibration]:
    """Hidden server, its noisy measurements and what they give, once each."""
    if seed not in known:
        box = server(seed)
        rows = measure(box, LAYERS, noise=NOISE, seed=100 + seed)
        known[seed] = (box, rows, calibrate(rows))
    return known[seed]


def problems(box: Server, rows: Measurements, found: Calibration) -> list[str]:
    bad: list[str] = []
    status = {fit.name: fit.status for fit in found.fits}
    error = told(box.parts, rows)
    true, got = limits(box.parts), limits(found.server.parts)
    true_least, got_least = tightest(true), tightest(got)
    for name, (key, value) in true.items():
        if error[name] <= CLOSE / 4 and true_least[key] == value:
            if key not in got_least:
                bad.append(f"missing {name} {key} {value:.4g}")
            elif abs(got_least[key] / value - 1) > CLOSE:
                bad.append(f"off {name} {key} {value:.4g} {got_least[key]:.4g} err {error[name]:.4f}")
    for name, (key, value) in got.items():
        if status[name] == "fitted" and len(key[1]) > 1 and key not in true_least:
            bad.append(f"invented {name} {key} {value:.4g}")
        least = got_least[key] == value and true_least.get(key, math.inf)
        if status[name] == "at least" and not name.endswith(".dram") and least and least < value * (1 - CLOSE):
            bad.append(f"not at least {name} {key} {value:.4g} {true_least[key]:.4g}")
    same = switches(box.parts) == switches(found.server.parts)
    for a, b in itertools.permutations((*box.gpus, *box.hosts), 2):
        if a in box.hosts and b in box.hosts:
            continue
        x, y = box.route(a, b), found.server.route(a, b)
        r = [alone(Use(z.usage, z.cap), s.resources) for z, s in ((x, box), (y, found.server))]
        if abs(r[1] / r[0] - 1) > CLOSE:
            bad.append(f"rate {a} {b} {x.kind} {r}")
        if abs(y.latency / x.latency - 1) > CLOSE and (same or abs(y.latency - x.latency) > 1e-6):
            bad.append(f"latency {a} {b} {x.kind} {x.latency:.3g} {y.latency:.3g}")
        if x.kind != y.kind:
            bad.append(f"kind {a} {b} {x.kind} {y.kind}")
    for h, g in zip(box.parts.hosts, found.server.parts.hosts, strict=True):
        for what in ("dram", "update", "update_process"):
            name = f"{h.name}.{what}"
            if getattr(g, what) > getattr(h, what) * (1 + CLOSE):
                bad.append(f"host above {name} {getattr(h, what):.4g} {getattr(g, what):.4g} {status[name]}")
            if error[name] <= CLOSE / 4 and abs(getattr(g, what) / getattr(h, what) - 1) > CLOSE:
                bad.append(f"host {name} {getattr(h, what):.4g} {getattr(g, what):.4g} {status[name]} {error[name]}")
    p, q = box.parts.gpus[0].gpu, found.server.parts.gpus[0].gpu
    for d in p.flops:
        if abs(q.flops[d] * q.compute_efficiency / (p.flops[d] * p.compute_efficiency) - 1) > CLOSE:
            bad.append(f"flops {d}")
    if abs(q.bandwidth * q.memory_efficiency / (p.bandwidth * p.memory_efficiency) - 1) > CLOSE:
        bad.append("bandwidth")
    if abs(q.launch_overhead / p.launch_overhead - 1) > CLOSE:
        bad.append(f"launch {p.launch_overhead} {q.launch_overhead}")
    exact = measure(box)
    again = Layout(found.server.parts)
    d = differences(again, calibrated_records(exact), again.start)
    if np.abs(d).max() > 0.05:
        r = calibrated_records(exact)
        k = np.argsort(-np.abs(d))[:3]
        bad.append(f"prediction {[(r[i].flows, r[i].nbytes, len(r[i].background), round(float(d[i]),3)) for i in k]} of {np.mean(np.abs(d)>.05)}")
    return bad
