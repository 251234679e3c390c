"""First guesses that need a server to compare with: what is behind the limits known so far."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import permutations

from hwmodels.parts import LATENCY, GPUSlot, Parts
from hwmodels.server import Server
from sim.fabric import Use, alone
from validate.calibrate.copies import LARGE_BYTES
from validate.calibrate.fit import Seen, cost
from validate.calibrate.parameters import CPU, Layout, changed
from validate.calibrate.server import (
    HIDDEN,
    SAME,
    Choice,
    Found,
    alternatives,
    build,
    first_choice,
)
from validate.plan import ins, outs

BETTER = 0.9
"""Another choice is taken if it leaves at most this share of the squared differences ..."""

MATTERS = 0.02
"""... and at least this much less in all, as five differences of 6 % are."""

FINER = 1.15
"""Step of a search for a first guess; the fit goes on from there."""

STEPS = 30
"""Steps of that search: from the most that can be asked down to a sixtieth of it."""


def choose(found: Found, seen: Sequence[Seen]) -> tuple[Choice, Parts]:
    """The choice that explains most of what copies near one host do not tell, and its parts."""
    plain = {*ins(found.machine).values(), *outs(found.machine).values()}
    telling = [
        x
        for x in seen
        if x.nbytes >= LARGE_BYTES and (x.background or not set(x.flows) <= plain)
    ]
    best = first_choice(found)
    parts = guessed(found, best, telling)
    least = cost(Layout(parts), telling)
    while True:
        tried = [(x, guessed(found, x, telling)) for x in alternatives(found, best)]
        costs = [cost(Layout(other), telling) for _, other in tried]
        now = min(costs, default=least)
        if now > least * BETTER or least - now < MATTERS:
            return best, parts
        best, parts = tried[costs.index(now)]
        least = now


def guessed(found: Found, choice: Choice, seen: Sequence[Seen]) -> Parts:
    """Parts with first guesses of everything."""
    parts = _with_peer_caps(found, build(found, choice))
    parts = _with_socket_latency(found, parts)
    across = [x for x in seen if _far(found, x)]
    for link in parts.links:
        if link.kind == "socket" and across:
            parts = _scanned(parts, f"{link.name}.bandwidth", across)
    steps = [x for x in seen if x.background]
    for host in found.machine.hosts:
        own = [x for x in steps if (CPU, host) in x.flows]
        if host not in choice.drams and own:
            parts = _scanned(parts, f"{host}.dram", own)
    return _with_hidden_cores(parts)


def _far(found: Found, record: Seen) -> bool:
    """Whether a copy goes to or from a host memory that is not the nearest, or to a far GPU."""
    near = dict(zip(found.machine.gpus, found.machine.near, strict=True))
    return any(
        src != CPU and near.get(src, src) != near.get(dst, dst) for src, dst in record.flows
    )


def _scanned(parts: Parts, name: str, seen: Sequence[Seen]) -> Parts:
    """Try lower and lower values of one limit; the first one stays unless another fits better."""
    start = Layout(parts).start[name]
    tried = [changed(parts, {name: start * FINER**-k}) for k in range(STEPS)]
    costs = [cost(Layout(x), seen) for x in tried]
    least = min(costs)
    return parts if costs[0] - least < MATTERS else tried[costs.index(least)]


def _with_peer_caps(found: Found, parts: Parts) -> Parts:
    """Cap copies to and from a GPU if all its direct copies are slower than its links allow."""
    server = Server(parts)

    def cap(slot: GPUSlot) -> GPUSlot:
        rates: list[float] = []
        for pair in found.peers.direct:
            for flow in permutations(sorted(pair)) if slot.name in pair else ():
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
        latency[far] - latency[near]
        for gpu, near in ins(found.machine).items()
        for far in ((host, gpu) for host in found.machine.hosts if host != near[0])
        if far in latency and near in latency
    ]
    usual = parts.host_latency
    if not more or sum(more) / len(more) < 0.1 * usual:
        return parts
    return changed(parts, {"socket.latency": max(sum(more) / len(more), LATENCY["socket"])})


def _with_hidden_cores(parts: Parts) -> Parts:
    """What steps reach is one limit: cores behind DRAM, or a process behind the cores, count more."""
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
