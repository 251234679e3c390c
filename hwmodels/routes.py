"""Which links a copy crosses, and what else it takes from the server."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple

from hwmodels.errors import NoPath
from hwmodels.gpu import Reach
from hwmodels.parts import GPUSlot, Host, Link, Parts

RouteKind = Literal["nvlink", "pcie", "staged", "host", "cpu", "local"]

ADAM_BYTES = 28
"""Bytes of host memory per parameter that ``Host.update`` stands for.

An fp32 Adam step reads weight, gradient and two moments (16) and writes weight and moments (12)."""

_REACH: dict[Reach, int] = {"none": 0, "root": 1, "socket": 2, "server": 3}


@dataclass(frozen=True, slots=True)
class Route:
    """What one flow takes from the server.

    Attributes
    ----------
    kind : str
        ``nvlink`` or ``pcie`` (direct copy between GPUs), ``staged`` (through host memory),
        ``host`` (between host memory or NVMe and a GPU or another host memory), ``cpu``
        (optimizer step), ``local`` (within one place).
    usage : tuple of (str, float)
        Resources by name and B/s taken from each for each B/s of the flow, sorted by name.
    latency : float
        Seconds before the first byte arrives.
    cap : float
        Most B/s of the flow whatever the links carry; infinite if nothing else limits it.
    """

    kind: RouteKind
    usage: tuple[tuple[str, float], ...]
    latency: float
    cap: float


class Leg(NamedTuple):
    """Part of a way: the resources it crosses, one by one, and its latency in seconds."""

    resources: tuple[str, ...]
    latency: float


def _join(legs: Iterable[Leg]) -> Leg:
    resources: list[str] = []
    latency = 0.0
    for leg in legs:
        resources += leg.resources
        latency += leg.latency
    return Leg(tuple(resources), latency)


def _route(kind: RouteKind, leg: Leg, cap: float) -> Route:
    counts = Counter(leg.resources)
    usage = tuple((name, float(counts[name])) for name in sorted(counts))
    return Route(kind, usage, leg.latency, cap)


def _crossing(link: Link, start: str) -> Leg:
    """One link, entered at ``start``."""
    a, b = link.ends
    name = f"{a}>{b}" if start == a else f"{b}>{a}"
    shared = (f"{link.name}.duplex",) if math.isfinite(link.duplex) else ()
    return Leg((name, *shared), link.latency)


def capacities(parts: Parts) -> dict[str, float]:
    """Capacity in B/s of every directed link and shared capacity, by name.

    ``a>b`` is one direction of a link; ``NAME.duplex`` both directions together;
    ``ROOT.to_memory`` and ``ROOT.from_memory`` all traffic of a root complex with host memory;
    ``HOST.dram`` reads and writes of a NUMA node; ``HOST.cores`` its optimizer steps;
    ``DRIVE.read`` and ``DRIVE.write`` an NVMe drive.
    """
    found: dict[str, float] = {}
    for link in parts.links:
        a, b = link.ends
        found[f"{a}>{b}"] = found[f"{b}>{a}"] = link.bandwidth
        if math.isfinite(link.duplex):
            found[f"{link.name}.duplex"] = link.duplex
    for root in parts.roots:
        if math.isfinite(root.memory):
            found[f"{root.name}.to_memory"] = found[f"{root.name}.from_memory"] = root.memory
    for host in parts.hosts:
        found[f"{host.name}.dram"] = host.dram
        found[f"{host.name}.cores"] = host.update * ADAM_BYTES
    for store in parts.stores:
        found[f"{store.name}.read"] = store.read
        found[f"{store.name}.write"] = store.write
    return found


@dataclass(frozen=True)
class Router:
    """Finds routes in checked parts."""

    parts: Parts

    @cached_property
    def _hosts(self) -> Mapping[str, Host]:
        return {host.name: host for host in self.parts.hosts}

    @cached_property
    def _slots(self) -> Mapping[str, GPUSlot]:
        return {slot.name: slot for slot in self.parts.gpus}

    @cached_property
    def _acs(self) -> frozenset[str]:
        return frozenset(switch.name for switch in self.parts.switches if switch.acs)

    @cached_property
    def _limited_roots(self) -> frozenset[str]:
        return frozenset(r.name for r in self.parts.roots if math.isfinite(r.memory))

    @cached_property
    def _host_of_root(self) -> Mapping[str, str]:
        return {root.name: root.host for root in self.parts.roots}

    @cached_property
    def _up(self) -> Mapping[str, tuple[str, Link]]:
        """Parent and link of every node below a root complex."""
        near: dict[str, list[Link]] = {}
        for link in self.parts.links:
            if link.kind == "pcie":
                for end in link.ends:
                    near.setdefault(end, []).append(link)
        found: dict[str, tuple[str, Link]] = {}
        below = [root.name for root in self.parts.roots]
        while below:
            node = below.pop()
            for link in near.get(node, []):
                other = link.ends[1] if link.ends[0] == node else link.ends[0]
                if node in found and found[node][0] == other:
                    continue
                found[other] = (node, link)
                below.append(other)
        return found

    @cached_property
    def _nvlinks(self) -> Mapping[frozenset[str], Link]:
        return {frozenset(x.ends): x for x in self.parts.links if x.kind == "nvlink"}

    @cached_property
    def _socket_links(self) -> Mapping[str, tuple[tuple[str, Link], ...]]:
        found: dict[str, list[tuple[str, Link]]] = {name: [] for name in self.parts.sockets}
        for link in self.parts.links:
            if link.kind == "socket":
                a, b = link.ends
                found[a].append((b, link))
                found[b].append((a, link))
        return {name: tuple(sorted(links, key=lambda x: x[0])) for name, links in found.items()}

    def chain(self, node: str) -> tuple[str, ...]:
        """Nodes from ``node`` up to its root complex."""
        found = [node]
        while found[-1] in self._up:
            found.append(self._up[found[-1]][0])
        return tuple(found)

    def host_of(self, node: str) -> str:
        """NUMA node nearest to a GPU, switch or drive."""
        return self._host_of_root[self.chain(node)[-1]]

    def socket_of(self, place: str) -> str:
        """Socket of a host memory, GPU or drive."""
        host = place if place in self._hosts else self.host_of(place)
        return self._hosts[host].socket

    def _climb(self, chain: Iterable[str]) -> Leg:
        """Links upwards from each node of ``chain``."""
        return _join(_crossing(self._up[node][1], node) for node in chain)

    def _descend(self, chain: Iterable[str]) -> Leg:
        """Links downwards to each node of ``chain`` (listed from below)."""
        steps = tuple(chain)[::-1]
        return _join(_crossing(self._up[node][1], self._up[node][0]) for node in steps)

    def _between_sockets(self, start: str, end: str) -> Leg:
        """Fewest socket links from one socket to another; ties go by name."""
        ways: dict[str, Leg] = {start: Leg((), 0.0)}
        queue = [start]
        for here in queue:
            for other, link in self._socket_links[here]:
                if other not in ways:
                    ways[other] = _join((ways[here], _crossing(link, here)))
                    queue.append(other)
        return ways[end]

    def _to_memory(self, node: str, host: str) -> Leg:
        """From a GPU or drive to a host memory; the DRAM itself included."""
        chain = self.chain(node)
        root = chain[-1]
        limit = (f"{root}.to_memory",) if root in self._limited_roots else ()
        return _join(
            (
                self._climb(chain[:-1]),
                Leg(limit, 0.0),
                self._between_sockets(self.socket_of(node), self.socket_of(host)),
                Leg((f"{host}.dram",), self.parts.host_latency),
            )
        )

    def _from_memory(self, host: str, node: str) -> Leg:
        chain = self.chain(node)
        root = chain[-1]
        limit = (f"{root}.from_memory",) if root in self._limited_roots else ()
        return _join(
            (
                Leg((f"{host}.dram",), self.parts.host_latency),
                self._between_sockets(self.socket_of(host), self.socket_of(node)),
                Leg(limit, 0.0),
                self._descend(chain[:-1]),
            )
        )

    def _drive(self, place: str, what: Literal["read", "write"]) -> Leg:
        """Resources that a drive takes besides its link; none for other places."""
        is_drive = self.parts.kinds[place] == "nvme"
        return Leg((f"{place}.{what}",), 0.0) if is_drive else Leg((), 0.0)

    def _d2h(self, place: str) -> float:
        return self._slots[place].d2h if place in self._slots else math.inf

    def _h2d(self, place: str) -> float:
        return self._slots[place].h2d if place in self._slots else math.inf

    def _peer_cap(self, src: str, dst: str) -> float:
        return min(self._slots[src].peer, self._slots[dst].peer)

    def _peer_allowed(self, src: str, dst: str) -> bool:
        """Whether driver and GPUs let these two copy directly over PCIe."""
        a, b = self._slots[src].gpu.peer_reach, self._slots[dst].gpu.peer_reach
        reach = self.parts.peer or min(a, b, key=_REACH.__getitem__)
        if self.chain(src)[-1] == self.chain(dst)[-1]:
            needed: Reach = "root"
        else:
            same = self.socket_of(src) == self.socket_of(dst)
            needed = "socket" if same else "server"
        return _REACH[reach] >= _REACH[needed]

    def _pcie_peer(self, src: str, dst: str) -> Leg:
        """Through the lowest common switch or root, or across roots and sockets."""
        up, down = self.chain(src), self.chain(dst)
        common = next((node for node in up if node in down), None)
        if common is None:
            across = self._between_sockets(self.socket_of(src), self.socket_of(dst))
            return _join((self._climb(up[:-1]), across, self._descend(down[:-1])))
        if common in self._acs:
            common = up[-1]
        return _join(
            (self._climb(up[: up.index(common)]), self._descend(down[: down.index(common)]))
        )

    def nvlink(self, src: str, dst: str) -> Leg | None:
        """Direct NVLink, or through one NVSwitch; None without."""
        direct = self._nvlinks.get(frozenset((src, dst)))
        if direct is not None:
            return _crossing(direct, src)
        for middle in self.parts.nvswitches:
            first = self._nvlinks.get(frozenset((src, middle)))
            second = self._nvlinks.get(frozenset((middle, dst)))
            if first is not None and second is not None:
                return _join((_crossing(first, src), _crossing(second, middle)))
        return None

    def peer(self, src: str, dst: str) -> bool:
        """Whether two GPUs copy directly, over NVLink or PCIe."""
        return self.nvlink(src, dst) is not None or self._peer_allowed(src, dst)

    def route(self, src: str, dst: str) -> Route:
        """Route between two places (GPU, host memory or drive) that both exist."""
        if src == dst:
            return Route("local", (), 0.0, math.inf)
        kinds = (self.parts.kinds[src], self.parts.kinds[dst])
        if kinds == ("gpu", "gpu"):
            return self._between_gpus(src, dst)
        if kinds == ("host", "host"):
            across = self._between_sockets(self.socket_of(src), self.socket_of(dst))
            leg = _join((Leg((f"{src}.dram", f"{dst}.dram"), 0.0), across))
            return _route("host", leg, math.inf)
        if kinds[1] == "host":
            leg = _join((self._drive(src, "read"), self._to_memory(src, dst)))
            return _route("host", leg, self._d2h(src))
        if kinds[0] == "host":
            leg = _join((self._from_memory(src, dst), self._drive(dst, "write")))
            return _route("host", leg, self._h2d(dst))
        if "nvme" in kinds:
            return self._staged(src, dst)
        raise NoPath(f"There is no copy from {kinds[0]} {src!r} to {kinds[1]} {dst!r}.")

    def _between_gpus(self, src: str, dst: str) -> Route:
        fast = self.nvlink(src, dst)
        if fast is not None:
            return _route("nvlink", fast, self._peer_cap(src, dst))
        if self._peer_allowed(src, dst):
            return _route("pcie", self._pcie_peer(src, dst), self._peer_cap(src, dst))
        return self._staged(src, dst)

    def _staged(self, src: str, dst: str) -> Route:
        """One flow over both legs, through the memory nearest to the source."""
        host = self.host_of(src)
        legs = (
            self._drive(src, "read"),
            self._to_memory(src, host),
            self._from_memory(host, dst),
            self._drive(dst, "write"),
        )
        return _route("staged", _join(legs), min(self._d2h(src), self._h2d(dst)))

    def cpu(self, host: str) -> Route:
        """Route of the optimizer step of one process on the cores of ``host``."""
        cap = self._hosts[host].update_process * ADAM_BYTES
        return _route("cpu", Leg((f"{host}.cores", f"{host}.dram"), 0.0), cap)
