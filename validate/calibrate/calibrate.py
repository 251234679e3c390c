"""From measurements to a server, step by step."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import median

import numpy as np

from hwmodels.compute import LayerProfile
from hwmodels.errors import InvalidInput
from hwmodels.parts import LATENCY, Parts
from hwmodels.routes import ADAM_BYTES
from hwmodels.server import Server
from validate.calibrate import compute, copies, host, sharing
from validate.calibrate.fit import CLEARLY, Fitted, Quality, Seen, differences, fit_server
from validate.calibrate.guess import choose
from validate.calibrate.loads import least, loads
from validate.calibrate.parameters import UPLINK, Layout, changed, is_latency
from validate.calibrate.peers import peers
from validate.calibrate.profile import layer_times
from validate.calibrate.result import Calibration, Fit, Status, Unit
from validate.calibrate.server import Found, idle, nested
from validate.measurements import Compute, Machine, Measurements

WORDS: Mapping[str, str] = {
    "at least": "at least this: no measurement reached the limit",
    "in sum": "measured only in sum with other latencies",
    "assumed": "assumed: not measured",
}
"""What a server file says of numbers that are not fitted."""


def calibrate(measured: Measurements) -> Calibration:
    """Fit a server to measurements.

    Parameters
    ----------
    measured : Measurements
        Of `validate.bench`, or `validate.synthesize`.

    Returns
    -------
    Calibration

    Raises
    ------
    InvalidInput
        If a record contradicts itself or the machine, or what no server can do without is missing;
        says which record or what.
    """
    machine = measured.machine
    _check(machine)
    records = copies.usable(measured)
    paces = copies.paces(machine, records)
    of_copies, of_steps = copies.seen(records), host.seen(measured)
    seen = [*of_copies, *of_steps]
    groups, notes = nested(sharing.groups(machine, paces), machine)
    rows = compute.records(measured)
    rates = {name: compute.rates(found, _launches(measured, name)) for name, found in rows.items()}
    fastest = max(1.0 / pace for pace in paces.alone.values())
    memory = compute.memory(machine)
    kinds = {name: compute.gpu(name, memory[name], rates[name], fastest) for name in rates}
    found = Found(
        machine,
        paces,
        groups,
        peers(machine, paces),
        {name: host.first_look(of_steps, name) for name in machine.hosts},
        {
            gpu: kinds[compute.kind(model)]
            for gpu, model in zip(machine.gpus, machine.models, strict=True)
        },
    )
    layout, fitted = _fitted(found, seen, measured)
    server, fits = _finished(layout, fitted, seen, measured)
    final = Layout(server.parts)
    left = np.abs(differences(final, seen, final.start))
    return Calibration(
        server=server,
        profile=_profile(rows),
        fits=(*fits, *(fit for name in rates for fit in _of_gpu(name, rates[name], rows[name]))),
        residual=float(np.median(left)),
        worst=float(np.quantile(left, 0.95)),
        notes=(*notes, *found.peers.notes, *_slowed(measured), *_unmeasured(measured)),
    )


def _fitted(found: Found, seen: Sequence[Seen], measured: Measurements) -> tuple[Layout, Fitted]:
    """Build and fit a server; again without groups that turn out to limit nothing."""
    _, parts = choose(found, seen)
    layout = Layout(parts)
    fitted = fit_server(layout, seen, _assumed(layout, measured))
    known = {name for name, quality in fitted.quality.items() if quality.known}
    gone = idle(parts, known)
    if not gone:
        return layout, fitted
    kept = tuple(group for group in found.groups if group.gpus not in gone)
    return _fitted(replace(found, groups=kept), seen, measured)


def _check(machine: Machine) -> None:
    per_gpu = {"models": machine.models, "memory": machine.memory, "near": machine.near}
    per_host = {"host_memory": machine.host_memory, "cores": machine.cores}
    for names, fields in ((machine.gpus, per_gpu), (machine.hosts, per_host)):
        for field, given in fields.items():
            if len(given) != len(names) or not names:
                raise InvalidInput(
                    f"machine.{field} has {len(given)} entries for {len(names)} names; it needs "
                    "one for each of at least one."
                )
    for name in machine.near:
        if name not in machine.hosts:
            raise InvalidInput(
                f"machine.near names {name!r}, which is none of {', '.join(machine.hosts)}."
            )


def _launches(measured: Measurements, kind: str) -> list[float]:
    machine = measured.machine
    return sorted(
        measured.launch[gpu]
        for gpu, model in zip(machine.gpus, machine.models, strict=True)
        if compute.kind(model) == kind and measured.launch.get(gpu, 0.0) > 0.0
    )


def _assumed(layout: Layout, measured: Measurements) -> list[str]:
    """Parameters that no record can tell from others; they keep their usual value."""
    parts, machine = layout.parts, measured.machine
    pairs = ((a, b) for a in machine.gpus for b in machine.gpus if a != b)
    fixed: list[str] = []
    if not any(layout.server.route(*pair).kind == "pcie" for pair in pairs):
        fixed.append(UPLINK)
    if layout.start.get("socket.latency") == LATENCY["socket"]:
        fixed.append("socket.latency")
    if not any(
        len(record.flows) == 1 and record.nbytes <= copies.SMALL_BYTES for record in measured.copies
    ):
        fixed += [name for name in layout.start if is_latency(name)]
    if not measured.updates:
        for x in parts.hosts:
            fixed += [f"{x.name}.update", f"{x.name}.update_process"]
    return fixed


def _finished(
    layout: Layout, fitted: Fitted, seen: Sequence[Seen], measured: Measurements
) -> tuple[Server, list[Fit]]:
    """Put lower bounds where nothing was told, and say of each number how well it is known."""
    asked = loads(layout, fitted.values, seen)
    values, fits = dict(fitted.values), list[Fit]()
    for name in fitted.values:
        quality = fitted.quality.get(name)
        if quality is not None and not quality.known and asked[name] > 0.0:
            beside = [x for x in seen if x.background] if name.endswith(".dram") else []
            low = asked[name]
            values[name] = least(layout, fitted.values, name, low, beside) if beside else low
        fits.append(_fit(name, values[name], quality, asked[name]))
    parts = _without_idle_caps(changed(layout.parts, values), fits, seen)
    left = Layout(parts).start
    fits = [fit for fit in fits if fit.name in left]
    fits += [
        _fit(f"{link.name}.bandwidth", link.bandwidth, Quality(1.0, 0.0, 0), link.bandwidth)
        for link in parts.links
        if f"{link.name}.bandwidth" not in values
    ]
    told = ", ".join(f"{k} {v}" for k, v in measured.machine.software.items())
    sources = {"measurements": told or measured.machine.name}
    sources |= {fit.name: WORDS[fit.status] for fit in fits if fit.status in WORDS}
    loose = tuple(fit.name for fit in fits if fit.status != "fitted")
    return Server(replace(parts, sources=sources, unverified=loose)), fits


def _without_idle_caps(parts: Parts, fits: Sequence[Fit], seen: Sequence[Seen]) -> Parts:
    """Lift caps of GPUs that are not told, one by one, where nothing takes another time then."""
    for fit in fits:
        gpu, _, field = fit.name.partition(".")
        if fit.status == "fitted" or field not in ("h2d", "d2h", "peer"):
            continue
        lifted = changed(parts, {fit.name: math.inf})
        own = [x for x in seen if any(gpu in flow for flow in x.flows)]
        before, after = Layout(parts), Layout(lifted)
        shift = differences(before, own, before.start) - differences(after, own, after.start)
        if np.max(np.abs(shift), initial=0.0) < CLEARLY:
            parts = lifted
    return parts


def _fit(name: str, value: float, quality: Quality | None, asked: float) -> Fit:
    steps = name.endswith((".update", ".update_process"))
    unit: Unit = "params/s" if steps else "s" if is_latency(name) else "B/s"
    shown = value / ADAM_BYTES if steps else value
    if quality is not None and quality.known:
        return Fit(name, shown, unit, "fitted", *quality)
    status: Status = "at least" if quality is not None and asked > 0.0 else "assumed"
    if quality is not None and quality.points and is_latency(name):
        status = "in sum"
    return Fit(name, shown, unit, status, float("inf"), 0.0, 0)


def _of_gpu(kind: str, found: compute.Rates, rows: Sequence[Compute]) -> list[Fit]:
    """Say what was fitted of a kind of GPU: FLOP/s, B/s of its memory, seconds of a launch."""
    most = {
        "bandwidth": max((x.bytes / x.seconds for x in rows), default=0.0),
        **{
            f"flops.{dtype}": max(x.flops / x.seconds for x in rows if x.dtype == dtype)
            for dtype in found.flops
        },
    }
    fits: list[Fit] = []
    for name, quality in found.fitted.quality.items():
        unit: Unit = (
            "s" if name == "launch_overhead" else "B/s" if name == "bandwidth" else "FLOP/s"
        )
        value = found.fitted.values[name]
        if quality.known or (name == "launch_overhead" and quality.points):
            fits.append(Fit(f"{kind}.{name}", value, unit, "fitted", *quality))
        else:
            status = "at least" if name in most else "assumed"
            fits.append(
                Fit(f"{kind}.{name}", most.get(name, value), unit, status, float("inf"), 0.0, 0)
            )
    return fits


def _profile(rows: Mapping[str, Sequence[Compute]]) -> LayerProfile | None:
    """Layer times of the kind of GPU with most records."""
    kind = max(sorted(rows), key=lambda name: len(rows[name]))
    return layer_times(kind, rows[kind])


def _slowed(measured: Measurements) -> list[str]:
    """How much longer compute takes while copies or collectives run: no part of the model."""
    alone: dict[tuple[str, str, str, int], float] = {
        (x.gpu, x.layer, x.phase, x.samples): x.seconds for x in measured.compute if not x.beside
    }
    notes: list[str] = []
    for beside in ("copies", "collective"):
        ratios = [
            x.seconds / alone[key]
            for x in measured.compute
            if x.beside == beside and (key := (x.gpu, x.layer, x.phase, x.samples)) in alone
        ]
        if ratios:
            what = "copies" if beside == "copies" else "collectives"
            notes.append(
                f"Compute beside {what} takes {median(ratios):.2f} times as long (median of "
                f"{len(ratios)}); the simulator does not slow it."
            )
    return notes


def _unmeasured(measured: Measurements) -> list[str]:
    """Name groups of records that are missing, and what stands in for them."""
    notes: list[str] = []
    if not measured.updates:
        notes.append("No optimizer step was measured; the rates of the CPU are assumed.")
    if not measured.compute:
        notes.append("No layer was measured; the rates of the GPUs are those of the catalog.")
    if len(measured.machine.gpus) > 1 and not any(
        {src, dst} <= set(measured.machine.gpus) for x in measured.copies for src, dst in x.flows
    ):
        notes.append("No copy between GPUs was measured; all count as staged through host memory.")
    if all(not x.pinned for x in measured.copies):
        notes.append("Only pageable host memory was measured.")
    return notes
