"""Calibration finds the hidden numbers of servers again, and says what cannot be told."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hidden_servers import server

import hwmodels as hw
import workloads
from hwmodels.compute import Curve, LayerProfile, LayerWork
from hwmodels.errors import InvalidInput
from hwmodels.parts import Parts
from hwmodels.routes import Route
from hwmodels.server import Server
from sim.fabric import Use, alone
from validate.calibrate import Calibration, calibrate, load_profile, with_profile
from validate.calibrate.copies import seen, usable
from validate.calibrate.fit import Seen, predict
from validate.calibrate.fluid import Demand, times
from validate.calibrate.host import seen as steps_seen
from validate.calibrate.parameters import Layout
from validate.measurements import Compute, Copies, HostUpdate, Machine, Measurements
from validate.plan import plan, steps
from validate.synthesize import PARAMS, measure
from validate.synthesize import copies as simulated
from validate.synthesize import update as simulated_update

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
"""What a limit counts (``each`` direction or ``both`` together), and the GPUs behind it."""


@cache
def hidden(seed: int) -> tuple[Server, Measurements, Calibration]:
    """Hidden server, its noisy measurements, and what these give."""
    box = server(seed)
    rows = measure(box, LAYERS, noise=NOISE, seed=100 + seed)
    return box, rows, calibrate(rows)


def records(rows: Measurements) -> list[Seen]:
    return [*seen(usable(rows)), *steps_seen(rows)]


def limits(parts: Parts) -> dict[str, tuple[Key, float]]:
    """Limits on copies with the nearest host memory, by name of the parameter."""
    box, layout = Server(parts), Layout(parts)
    flows = {
        (gpu, way): flow
        for gpu in box.gpus
        for way, flow in (("in", (box.host_of(gpu), gpu)), ("out", (gpu, box.host_of(gpu))))
    }
    users: dict[str, list[frozenset[tuple[str, str]]]] = {}
    names = list(layout.start)
    for resource, number in layout.of.items():
        own = frozenset(x for x, f in flows.items() if resource in dict(box.route(*f).usage))
        if own:
            users.setdefault(names[number], []).append(own)
    return {
        name: (
            (
                "both" if any(len({way for _, way in x}) == 2 for x in own) else "each",
                frozenset(gpu for x in own for gpu, _ in x),
            ),
            layout.start[name],
        )
        for name, own in users.items()
    }


def tightest(found: Iterable[tuple[Key, float]]) -> dict[Key, float]:
    """Lowest of the limits that count the same."""
    least: dict[Key, float] = {}
    for key, value in found:
        least[key] = min(value, least.get(key, math.inf))
    return least


@cache
def told(seed: int) -> frozenset[str]:
    """Parameters of a hidden server that its measurements can tell within 3 %.

    By the derivatives at the true values (Fisher information), noise of 2 % leaves a standard
    error of a quarter of that, and six records or more would change by 10 % without the limit.
    """
    box, rows, _ = hidden(seed)
    layout, them = Layout(box.parts), records(rows)
    numbers = np.array(list(layout.start.values()))
    took, slopes = predict(layout, them, numbers)
    steep = slopes * numbers / took[:, None]
    error = NOISE * np.sqrt(np.diag(np.linalg.inv(steep.T @ steep + 1e-8 * np.eye(len(numbers)))))
    found: set[str] = set()
    for k, name in enumerate(layout.start):
        if error[k] > CLOSE / 4:
            continue
        lifted = numbers.copy()
        lifted[k] *= 1.5
        change = np.abs(np.log(took / predict(layout, them, lifted, slopes=False)[0]))
        if np.sum(change > 0.1) >= 6:
            found.add(name)
    return frozenset(found)


@pytest.mark.parametrize("seed", SEEDS)
def test_hidden_servers(seed: int, tmp_path: Path) -> None:
    """One test a server, since its calibration takes a second."""
    check_limits_and_who_shares_them(seed)
    check_every_copy_alone_is_as_fast_and_goes_the_same_way(seed)
    check_cpus_and_gpus(seed)
    check_written_server_simulates_what_was_measured(seed, tmp_path)


def check_limits_and_who_shares_them(seed: int) -> None:
    box, _, found = hidden(seed)
    status = {fit.name: fit.status for fit in found.fits}
    true, got = limits(box.parts), limits(found.server.parts)
    least, known = tightest(true.values()), tightest(got.values())
    telling = told(seed)
    count = 0
    for name, (key, value) in true.items():
        if name in telling and least[key] == value:
            assert known[key] == pytest.approx(value, rel=CLOSE), name
            count += 1
    assert count >= len(box.gpus) - 1
    for name, (key, value) in got.items():
        if status[name] == "fitted" and len(key[1]) > 1:
            assert key in least, f"{name} is invented"
        dram = name.endswith(".dram")  # optimizer steps load it as well
        if status[name] == "at least" and not dram and known[key] == value:
            assert value <= least.get(key, math.inf) * (1 + CLOSE), name


def check_every_copy_alone_is_as_fast_and_goes_the_same_way(seed: int) -> None:
    box, _, found = hidden(seed)
    same = _switches(box.parts) == _switches(found.server.parts)
    for a, b in itertools.permutations((*box.gpus, *box.hosts), 2):
        true, got = box.route(a, b), found.server.route(a, b)
        assert got.kind == true.kind
        if a in box.hosts and b in box.hosts:
            continue
        assert _alone(got, found.server) == pytest.approx(_alone(true, box), rel=CLOSE)
        # A switch that limits nothing is not found; its latency goes to the links around it.
        room = CLOSE * true.latency if same else 1e-6
        assert got.latency == pytest.approx(true.latency, abs=room)


def _alone(route: Route, box: Server) -> float:
    return alone(Use(route.usage, route.cap), box.resources)


def _switches(parts: Parts) -> set[frozenset[str]]:
    """GPUs below each switch."""
    up = dict(link.ends for link in parts.links if link.kind == "pcie")

    def chain(node: str) -> list[str]:
        return [node, *(chain(up[node]) if node in up else [])]

    return {
        frozenset(x.name for x in parts.gpus if switch.name in chain(x.name))
        for switch in parts.switches
    }


def check_cpus_and_gpus(seed: int) -> None:
    box, _, found = hidden(seed)
    telling = told(seed)
    for true, got in zip(box.parts.hosts, found.server.parts.hosts, strict=True):
        for field in ("dram", "update", "update_process"):
            ratio = getattr(got, field) / getattr(true, field)
            assert ratio <= 1 + CLOSE
            assert ratio >= 1 - CLOSE or f"{true.name}.{field}" not in telling
    true, got = box.parts.gpus[0].gpu, found.server.parts.gpus[0].gpu
    for dtype in ("fp32", "bf16"):
        assert got.peak(dtype) * got.compute_efficiency == pytest.approx(
            true.peak(dtype) * true.compute_efficiency, rel=CLOSE
        )
    assert got.bandwidth * got.memory_efficiency == pytest.approx(
        true.bandwidth * true.memory_efficiency, rel=CLOSE
    )
    assert got.launch_overhead == pytest.approx(true.launch_overhead, rel=CLOSE)


def check_written_server_simulates_what_was_measured(seed: int, tmp_path: Path) -> None:
    box, rows, found = hidden(seed)
    file, beside = found.save(tmp_path / "box.toml")
    again = hw.load(file)
    assert again == found.server
    assert load_profile(beside) == found.profile
    patterns = plan(rows.machine)
    pairs = zip(simulated(box, patterns), simulated(again, patterns), strict=True)
    off = [abs(math.log(a / b)) for x, y in pairs for a, b in zip(x, y, strict=True)]
    assert max(off) < 0.05
    assert found.residual < NOISE
    for step in steps(rows.machine)[:: len(rows.machine.gpus)]:
        true = simulated_update(box, step)
        assert simulated_update(again, step) == pytest.approx(true, rel=0.05)


def test_order_of_records_does_not_matter() -> None:
    _, rows, found = hidden(2)
    turned = rows.model_copy(
        update={
            "copies": rows.copies[::-1],
            "compute": rows.compute[::-1],
            "updates": rows.updates[::-1],
        }
    )
    again = calibrate(turned)
    assert again.server == found.server
    assert again.to_dict() == found.to_dict()


def test_flows_of_one_record_in_another_order() -> None:
    _, rows, found = hidden(7)
    turned = [
        x.model_copy(update={"flows": x.flows[::-1], "seconds": x.seconds[::-1]})
        for x in rows.copies
    ]
    assert calibrate(rows.model_copy(update={"copies": tuple(turned)})).server == found.server


@pytest.mark.parametrize("name", ["pcie-4u-4x1080ti", "8x3090-gen3"])
def test_servers_of_the_catalog(name: str) -> None:
    box = hw.server(name)
    found = calibrate(measure(box, LAYERS[:24], noise=NOISE, seed=1))
    assert found.notes == ()
    assert _switches(found.server.parts) == _switches(box.parts)
    true, got = box.parts.gpus[0].gpu, found.server.parts.gpus[0].gpu
    assert got.name == true.name
    assert got.compute_efficiency == pytest.approx(true.compute_efficiency, rel=CLOSE)
    assert got.flops["fp32"] == pytest.approx(true.flops["fp32"], rel=1e-9)
    for a, b in itertools.permutations(box.gpus, 2):
        assert found.server.route(a, b).kind == box.route(a, b).kind


def test_nvlinks_by_the_topology_matrix() -> None:
    box = hw.server("dgx-1")
    found = calibrate(measure(box, LAYERS[:24], noise=NOISE, seed=1)).server
    nvlinks = {frozenset(x.ends): x.bandwidth for x in box.links if x.kind == "nvlink"}
    got = {frozenset(x.ends): x.bandwidth for x in found.links if x.kind == "nvlink"}
    assert got == pytest.approx(nvlinks, rel=CLOSE)
    for a, b in itertools.permutations(box.gpus, 2):
        assert found.route(a, b).kind == box.route(a, b).kind


def one_gpu() -> Measurements:
    """A machine without GPUs: one logical GPU, whose copies are copies in memory at 8 GB/s."""
    machine = Machine(
        name="laptop", gpus=("gpu0",), models=("cpu",), memory=(2**32,), hosts=("host0",),
        host_memory=(2**33,), cores=(4,), near=("host0",),
    )  # fmt: skip
    return Measurements(
        machine=machine,
        copies=tuple(
            Copies(
                flows=pattern.flows,
                nbytes=pattern.nbytes,
                pinned=False,
                seconds=tuple(2e-6 + pattern.nbytes / 8e9 for _ in pattern.flows),
            )
            for pattern in plan(machine)
        ),
        compute=tuple(
            Compute(gpu="gpu0", layer="block", phase=phase, samples=u, flops=1e9 * u,
                    bytes=1e6, dtype="fp32", kernels=5, seconds=20e-6 + u * 0.02)
            for phase in ("forward", "backward") for u in (1, 2, 4)
        ),
        updates=tuple(
            HostUpdate(hosts=x.hosts, params=PARAMS, nbytes=28 * PARAMS, seconds=0.2)
            for x in steps(machine)
            if not x.beside
        ),
        launch={"gpu0": 4e-6},
    )  # fmt: skip


def test_one_logical_gpu_on_the_cpu() -> None:
    found = calibrate(one_gpu())
    box = found.server
    route = box.route("host0", "gpu0")
    assert _alone(route, box) == pytest.approx(8e9, rel=1e-3)
    assert route.latency == pytest.approx(2e-6, rel=0.01)
    assert box.gpu("gpu0").flops["fp32"] == pytest.approx(1e9 / 0.02, rel=0.01)
    assert "gpu0" in {slot.name for slot in box.parts.gpus}
    assert "Only pageable host memory was measured." in found.notes
    status = {fit.name: fit.status for fit in found.fits}
    assert status["cpu.bandwidth"] == status["host0.dram"] == "at least"
    assert "cpu" in hw.Server(box.parts).to_toml()


def test_layer_times_join_a_model(tmp_path: Path) -> None:
    model = workloads.model("gpt2-xl")
    kinds = sorted({layer.kind for layer in model.layers})
    profile = LayerProfile(
        "toy",
        {
            (kind, phase): Curve((1, 2), (0.1, 0.2))
            for kind in kinds
            for phase in ("forward", "backward")
        },
    )
    joined = with_profile(model, profile)
    assert joined.profile is profile
    assert {layer.profile_row for layer in joined.layers} == set(kinds)
    rest = LayerProfile("toy", {k: v for k, v in profile.rows.items() if k[0] != kinds[0]})
    with pytest.raises(InvalidInput, match="have no row for layer"):
        with_profile(model, rest)
    (tmp_path / "x.json").write_text("{")
    with pytest.raises(InvalidInput, match="not valid JSON"):
        load_profile(tmp_path / "x.json")
    (tmp_path / "x.json").write_text('{"gpu": "toy", "rows": [{"layer": "a"}]}')
    with pytest.raises(InvalidInput, match=r"rows\.0"):
        load_profile(tmp_path / "x.json")


def broken(rows: Measurements, **change: object) -> Measurements:
    return rows.model_copy(update=change)


def test_broken_records_are_named() -> None:
    rows = one_gpu()
    copy, compute, step = rows.copies[0], rows.compute[0], rows.updates[0]
    cases: list[tuple[str, Measurements]] = [
        ("copies.0 has 2 times for 1 flows",
         broken(rows, copies=(copy.model_copy(update={"seconds": (1.0, 2.0)}),))),
        ("copies.0 names 'gpu1'",
         broken(rows, copies=(copy.model_copy(update={"flows": (("host0", "gpu1"),)}),))),
        ("copies.0: bytes and seconds",
         broken(rows, copies=(copy.model_copy(update={"seconds": (0.0,)}),))),
        ("copies.0: each flow",
         broken(rows, copies=(copy.model_copy(update={"flows": (("gpu0", "gpu0"),)}),))),
        ("were not measured, so the bandwidth is unknown", broken(rows, copies=(copy,))),
        ("compute.0 names 'gpu7'",
         broken(rows, compute=(compute.model_copy(update={"gpu": "gpu7"}),))),
        ("compute.0: seconds",
         broken(rows, compute=(compute.model_copy(update={"seconds": -1.0}),))),
        ("nothing is known of its speed", broken(rows, compute=())),
        ("updates.0 names 'host9'",
         broken(rows, updates=(step.model_copy(update={"hosts": ("host9",)}),))),
        ("updates.0: bytes", broken(rows, updates=(step.model_copy(update={"hosts": ()}),))),
        ("machine.near has 0 entries",
         broken(rows, machine=rows.machine.model_copy(update={"near": ()}))),
        ("machine.near names 'host3'",
         broken(rows, machine=rows.machine.model_copy(update={"near": ("host3",)}))),
    ]  # fmt: skip
    for message, wrong in cases:
        with pytest.raises(InvalidInput, match=message):
            calibrate(wrong)


def test_what_is_missing_is_said() -> None:
    box = hw.server("pcie-4u-4x1080ti")
    rows = measure(box)
    alone_only = tuple(x for x in rows.copies if not {*x.flows[0]} <= set(box.gpus))
    found = calibrate(broken(rows, copies=alone_only, updates=()))
    text = " ".join(found.notes)
    assert "No optimizer step was measured" in text
    assert "No layer was measured" in text
    assert "No copy between GPUs was measured" in text
    status = {fit.name: fit.status for fit in found.fits}
    assert status["host0.update"] == "assumed"
    assert "host0.update" in found.server.parts.unverified


def test_table_and_facts() -> None:
    from rich.console import Console

    found = hidden(1)[2]
    console = Console(width=100, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(found.table())
    text = console.export_text()
    assert "uplink0.bandwidth" in text
    assert "at least" in text
    facts = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert {fit["status"] for fit in facts["fits"]} >= {"fitted", "at least"}


def test_slower_compute_beside_copies_is_said() -> None:
    rows = one_gpu()
    beside = tuple(
        x.model_copy(update={"seconds": 1.5 * x.seconds, "beside": "copies"}) for x in rows.compute
    )
    found = calibrate(broken(rows, compute=(*rows.compute, *beside)))
    assert any("beside copies takes 1.50 times" in note for note in found.notes)
    assert found.server == calibrate(rows).server


@pytest.mark.parametrize("seed", [3, 6])
def test_fluid_model_is_the_simulator(seed: int) -> None:
    box = server(seed)
    layout = Layout(box.parts)
    patterns = [x for x in plan(measure(box).machine) if x.nbytes > 2**24]
    numbers = np.array(list(layout.start.values()))
    rows = [
        Seen(x.flows, x.nbytes, i, took)
        for x, both in zip(patterns, simulated(box, patterns), strict=True)
        for i, took in enumerate(both)
    ]
    found, _ = predict(layout, rows, numbers, slopes=False)
    assert found == pytest.approx(np.array([x.seconds for x in rows]), rel=2e-3)


def test_slopes_are_those_of_finite_differences() -> None:
    demands = [
        Demand((("a", 1.0), ("b", 2.0))),
        Demand((("b", 1.0), ("c", 1.0)), (3,)),
        Demand((("c", 1.0),)),
        Demand((("a", 1.0), ("c", 0.5)), (4,), ends=False),
    ]
    of = {"a": 0, "b": 1, "c": 2}
    values = [3.0, 4.1, 5.3, 1.9, 1.1]
    exact = times(demands, of, values)
    for k in range(len(values)):
        near = values.copy()
        near[k] *= 1 + 1e-7
        moved = times(demands, of, near, slopes=False)
        for flow in range(3):
            slope = (moved.seconds[flow] - exact.seconds[flow]) / (values[k] * 1e-7)
            assert exact.slopes[flow][k] == pytest.approx(slope, abs=1e-5)
