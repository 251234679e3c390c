"""First guesses that need a server to compare with: what is behind the limits known so far."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from hwmodels.parts import LATENCY, GPUSlot, Parts
from hwmodels.server import Server
from sim.fabric import Use, alone
from validate.calibrate.copies import LARGE_BYTES
from validate.calibrate.fit import Seen, cost, differences
from validate.calibrate.parameters import CPU, Layout, changed
from validate.calibrate.peers import both
from validate.calibrate.server import (
    HIDDEN,
    SAME,
    Choice,
    Found,
    alternatives,
    build,
    first_choice,
    near,
    through_link,
)
from validate.plan import ins, outs

SURE = 50.0
"""Another choice is taken if it lowers the sum of squared differences by this many variances of one
of them (median absolute deviation), far beyond chance ..."""

LEAST = 0.01
"""... of which the standard deviation counts as this much or more."""

FINER = 1.06
"""Step of a search for a first guess, then made ten times finer; the fit goes on from there."""

STEPS = 90
"""Steps of that search: from the most that can be asked down to a 180th of it."""


def choose(found: Found, seen: Sequence[Seen]) -> tuple[Choice, Parts]:
    """Find the choice that explains most of what copies near one host leave open, and its parts."""
    into, out = set(ins(found.machine).values()), set(outs(found.machine).values())
    telling = [
        x
        for x in seen
        if x.nbytes >= LARGE_BYTES
        and (x.background or not (set(x.flows) <= into or set(x.flows) <= out))
    ]
    best = first_choice(found)
    parts = _with_sockets(found, _with_drams(found, best, _plain(found, best), telling), telling)
    least = _cost(parts, telling)
    while True:
        tried = [(x, _like(found, x, telling, parts, best)) for x in alternatives(found, best)]
        costs = [_cost(other, telling) for _, other in tried]
        now = min(costs, default=least)
        if least - now < SURE * _variance(parts, telling):
            return best, _with_hidden_cores(_with_hidden_links(found, parts, telling))
        best, parts = tried[costs.index(now)]
        least = now


def _plain(found: Found, choice: Choice) -> Parts:
    """Parts without what must be searched."""
    return _with_socket_latency(found, _with_peer_caps(found, build(found, choice)))


def _like(found: Found, choice: Choice, seen: Sequence[Seen], other: Parts, was: Choice) -> Parts:
    """Parts of another choice, with what was searched for the first one."""
    known = {f"{x.name}.bandwidth": x.bandwidth for x in other.links if x.kind == "socket"}
    same = [x for x in other.hosts if (x.name in choice.drams) == (x.name in was.drams)]
    known |= {f"{host.name}.dram": host.dram for host in same}
    done = frozenset(host.name for host in same)
    return _with_drams(found, choice, changed(_plain(found, choice), known), seen, done)


def _with_drams(
    found: Found,
    choice: Choice,
    parts: Parts,
    seen: Sequence[Seen],
    done: frozenset[str] = frozenset(),
) -> Parts:
    """Bandwidth of memory as optimizer steps and copies both ways tell it, but where it is done."""
    for host in found.machine.hosts:
        own = [x for x in seen if _loads_dram(found, x, host)]
        if host not in choice.drams | done and own:
            parts = _scanned(parts, f"{host}.dram", own)
    return parts


def _loads_dram(found: Found, record: Seen, host: str) -> bool:
    """Whether an optimizer step ran beside copies, or almost all GPUs near copied both ways."""
    if record.background:
        return (CPU, host) in record.flows
    gpus = near(found.machine, host)
    both = sum((gpu, host) in record.flows and (host, gpu) in record.flows for gpu in gpus)
    return both > 0 and both >= len(gpus) - 1


def _with_sockets(found: Found, parts: Parts, seen: Sequence[Seen]) -> Parts:
    """Bandwidth between sockets, from copies of GPUs with a far host memory."""
    across = [x for x in seen if _far(found, x)]
    for link in parts.links:
        if link.kind == "socket" and across:
            parts = _scanned(parts, f"{link.name}.bandwidth", across)
    return parts


def _far(found: Found, record: Seen) -> bool:
    """Whether copies go to or from a host memory that is not the nearest."""
    home = dict(zip(found.machine.gpus, found.machine.near, strict=True))
    hosts = found.machine.hosts
    return any(
        src != CPU and (src in hosts or dst in hosts) and home.get(src, src) != home.get(dst, dst)
        for src, dst in record.flows
    )


def _scanned(parts: Parts, name: str, seen: Sequence[Seen]) -> Parts:
    """Try lower and lower values of one limit; the first one stays unless another fits better."""
    layout = Layout(parts)

    def nearest(values: Sequence[float]) -> float:
        off = [np.abs(differences(layout, seen, layout.start | {name: x})).sum() for x in values]
        return values[off.index(min(off))]

    rough = nearest([layout.start[name] * FINER**-k for k in range(STEPS)])
    best = changed(parts, {name: nearest([rough * FINER ** (k / 10) for k in range(-10, 11)])})
    sure = _cost(parts, seen) - _cost(best, seen) > SURE * _variance(best, seen)
    return best if sure else parts


def _variance(parts: Parts, seen: Sequence[Seen]) -> float:
    """Variance of one difference, by the median of all."""
    layout = Layout(parts)
    off = np.abs(differences(layout, seen, layout.start)) if seen else np.zeros(1)
    return max(1.4826 * float(np.median(off)), LEAST) ** 2


def _cost(parts: Parts, seen: Sequence[Seen]) -> float:
    layout = Layout(parts)
    return cost(layout, seen, layout.start)


def _with_peer_caps(found: Found, parts: Parts) -> Parts:
    """Cap copies to and from a GPU if all its direct copies are slower than its links allow."""
    server = Server(parts)

    def cap(slot: GPUSlot) -> GPUSlot:
        rates: list[float] = []
        for pair in found.peers.direct:
            for flow in both(pair) if slot.name in pair else ():
                if flow in found.paces.alone:
                    rate = 1.0 / found.paces.alone[flow]
                    route = server.route(*flow)
                    if rate * SAME >= alone(Use(route.usage, route.cap), server.resources):
                        return slot
                    rates.append(rate)
        return replace(slot, peer=max(rates)) if rates else slot

    return replace(parts, gpus=tuple(map(cap, parts.gpus)))


def _with_socket_latency(found: Found, parts: Parts) -> Parts:
    """Latency between sockets, where it is more than noise beside that of a copy from a host."""
    latency = found.paces.latency
    more = [
        latency[far] - latency[close]
        for gpu, close in ins(found.machine).items()
        for far in ((host, gpu) for host in found.machine.hosts if host != close[0])
        if far in latency and close in latency
    ]
    usual = parts.host_latency
    if not more or sum(more) / len(more) < 0.1 * usual:
        return parts
    return changed(parts, {"socket.latency": max(sum(more) / len(more), LATENCY["socket"])})


def _with_hidden_links(found: Found, parts: Parts, seen: Sequence[Seen]) -> Parts:
    """Search links of GPUs that started above the limit that hides them: several flows may tell."""
    gpus = found.machine.gpus
    for link in parts.links:
        gpu = next((end for end in link.ends if end in gpus), "")
        if link.kind == "pcie" and gpu and link.bandwidth > SAME * through_link(found, gpu):
            peers = [x for x in seen if any(gpu in f and {*f} <= {*gpus} for f in x.flows)]
            parts = _scanned(parts, f"{link.name}.bandwidth", peers) if peers else parts
    return parts


def _with_hidden_cores(parts: Parts) -> Parts:
    """Start cores behind DRAM, and a process behind the cores, above the limit that hides them."""
    new = Layout(parts).start
    for host in parts.hosts:
        dram, cores, process = (
            new[f"{host.name}.{x}"] for x in ("dram", "update", "update_process")
        )
        if cores * SAME >= dram:
            new[f"{host.name}.update"] = cores * HIDDEN
        if process * SAME >= cores:
            new[f"{host.name}.update_process"] = process * HIDDEN
    return changed(parts, new)
