"""The numbers of a server that a fit may change, by name, and what each copy takes of them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

from hwmodels.parts import Link, Parts
from hwmodels.routes import ADAM_BYTES, Route
from hwmodels.server import Server
from validate.calibrate.fluid import Demand

CPU = "cpu"
"""First half of the "flow" that is an optimizer step on a host memory."""

UPLINK = "uplink.latency"
"""Latency of every PCIe link that ends at no GPU; links of GPUs have one each."""


class Terms(NamedTuple):
    """Time of one flow: a latency, and what it takes while its bytes pass.

    Attributes
    ----------
    latency : tuple of (int, float)
        Parameters that are latencies, and how many of each.
    demand : Demand
    """

    latency: tuple[tuple[int, float], ...]
    demand: Demand


def _tied(link: Link) -> bool:
    """Whether one direction alone already fills what both directions may carry together."""
    return link.duplex <= link.bandwidth


def is_latency(name: str) -> bool:
    """Whether a parameter is in seconds."""
    return name.endswith("latency")


def latency_name(link: Link, parts: Parts) -> str:
    """Parameter that is the latency of a link: copies cross too few to tell all of them apart."""
    if link.kind != "pcie":
        return f"{link.kind}.latency"
    own = any(parts.kinds[end] == "gpu" for end in link.ends)
    return f"{link.name}.latency" if own else UPLINK


def values(parts: Parts) -> dict[str, float]:
    """Numbers of a server by parameter: B/s (also of optimizer steps), and seconds of latencies."""
    found: dict[str, float] = {}
    for link in parts.links:
        if not _tied(link):
            found[f"{link.name}.bandwidth"] = link.bandwidth
        if math.isfinite(link.duplex):
            found[f"{link.name}.duplex"] = link.duplex
    for slot in parts.gpus:
        limits = {"h2d": slot.h2d, "d2h": slot.d2h, "peer": slot.peer}
        found |= {f"{slot.name}.{x}": rate for x, rate in limits.items() if math.isfinite(rate)}
    found |= {f"{x.name}.memory": x.memory for x in parts.roots if math.isfinite(x.memory)}
    for host in parts.hosts:
        found[f"{host.name}.dram"] = host.dram
        found[f"{host.name}.update"] = host.update * ADAM_BYTES
        found[f"{host.name}.update_process"] = host.update_process * ADAM_BYTES
    found["host_latency"] = parts.host_latency
    for link in parts.links:
        found.setdefault(latency_name(link, parts), link.latency)
    return found


def changed(parts: Parts, new: Mapping[str, float]) -> Parts:
    """Make the same server with other numbers."""

    def link(old: Link) -> Link:
        duplex = new.get(f"{old.name}.duplex", old.duplex)
        bandwidth = duplex if _tied(old) else new.get(f"{old.name}.bandwidth", old.bandwidth)
        latency = new.get(latency_name(old, parts), old.latency)
        return replace(old, bandwidth=bandwidth, duplex=duplex, latency=latency)

    return replace(
        parts,
        links=tuple(link(x) for x in parts.links),
        gpus=tuple(
            replace(
                x,
                h2d=new.get(f"{x.name}.h2d", x.h2d),
                d2h=new.get(f"{x.name}.d2h", x.d2h),
                peer=new.get(f"{x.name}.peer", x.peer),
            )
            for x in parts.gpus
        ),
        roots=tuple(replace(x, memory=new.get(f"{x.name}.memory", x.memory)) for x in parts.roots),
        hosts=tuple(
            replace(
                x,
                dram=new.get(f"{x.name}.dram", x.dram),
                update=new.get(f"{x.name}.update", x.update * ADAM_BYTES) / ADAM_BYTES,
                update_process=new.get(f"{x.name}.update_process", x.update_process * ADAM_BYTES)
                / ADAM_BYTES,
            )
            for x in parts.hosts
        ),
        host_latency=new.get("host_latency", parts.host_latency),
    )


@dataclass(frozen=True)
class Layout:
    """What every flow takes of every parameter of one server.

    Attributes
    ----------
    parts : Parts
    """

    parts: Parts

    @cached_property
    def start(self) -> dict[str, float]:
        """Values of the parameters, in a fixed order."""
        return values(self.parts)

    @cached_property
    def number(self) -> Mapping[str, int]:
        """Position of each parameter."""
        return {name: i for i, name in enumerate(self.start)}

    @cached_property
    def server(self) -> Server:
        """The server itself."""
        return Server(self.parts)

    @cached_property
    def _probes(self) -> tuple[tuple[str, Server], ...]:
        """The server with one latency, not that of a GPU's link, of 1 s, and all others zero."""
        zero = {name: 0.0 for name in self.number if is_latency(name)}
        own = {latency_name(x, self.parts) for x in self.parts.links if x.kind == "pcie"} - {UPLINK}
        return tuple(
            (name, Server(changed(self.parts, zero | {name: 1.0})))
            for name in zero
            if name not in own
        )

    @cached_property
    def _own(self) -> Mapping[str, int]:
        """Latency of the PCIe link of each GPU."""
        gpus = self.server.gpus
        return {
            end: self.number[latency_name(link, self.parts)]
            for link in self.parts.links
            for end in link.ends
            if link.kind == "pcie" and end in gpus
        }

    @cached_property
    def of(self) -> Mapping[str, int]:
        """Parameter that is the capacity of each resource."""
        found: dict[str, int] = {}
        for link in self.parts.links:
            a, b = link.ends
            own = "duplex" if _tied(link) else "bandwidth"
            found[f"{a}>{b}"] = found[f"{b}>{a}"] = self.number[f"{link.name}.{own}"]
            if math.isfinite(link.duplex):
                found[f"{link.name}.duplex"] = self.number[f"{link.name}.duplex"]
        for root in self.parts.roots:
            if math.isfinite(root.memory):
                number = self.number[f"{root.name}.memory"]
                found[f"{root.name}.to_memory"] = found[f"{root.name}.from_memory"] = number
        for host in self.parts.hosts:
            found[f"{host.name}.dram"] = self.number[f"{host.name}.dram"]
            found[f"{host.name}.cores"] = self.number[f"{host.name}.update"]
        return found

    @cached_property
    def _known(self) -> dict[tuple[str, str], Terms]:
        return {}

    def terms(self, flow: tuple[str, str]) -> Terms:
        """Tell what a flow takes; memoised."""
        if flow not in self._known:
            self._known[flow] = self._terms(*flow)
        return self._known[flow]

    def _terms(self, src: str, dst: str) -> Terms:
        if src == CPU:
            route = self.server.cpu_route(dst)
            caps = (self.number[f"{dst}.update_process"],)
            return Terms((), Demand(route.usage, caps))
        route = self.server.route(src, dst)
        latency = [
            (self.number[name], probe.route(src, dst).latency) for name, probe in self._probes
        ]
        over = () if route.kind == "nvlink" else (src, dst)
        latency += [(self._own[end], 1.0) for end in over if end in self._own]
        latency = tuple((number, count) for number, count in latency if count)
        return Terms(latency, Demand(route.usage, self._caps(route, src, dst)))

    def _caps(self, route: Route, src: str, dst: str) -> tuple[int, ...]:
        names = {
            "host": (f"{src}.d2h", f"{dst}.h2d"),
            "staged": (f"{src}.d2h", f"{dst}.h2d"),
            "pcie": (f"{src}.peer", f"{dst}.peer"),
            "nvlink": (f"{src}.peer", f"{dst}.peer"),
        }.get(route.kind, ())
        return tuple(self.number[name] for name in names if name in self.number)
