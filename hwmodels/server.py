"""A server: its parts as a graph, and the way that every copy takes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from hwmodels import edits
from hwmodels.check import check
from hwmodels.errors import InvalidInput
from hwmodels.gpu import GPU
from hwmodels.link import NVLINK_NOMINAL, PCIE_LANE, Width, parse_width
from hwmodels.names import unknown
from hwmodels.parts import Link, Parts
from hwmodels.routes import Route, Router, capacities
from hwmodels.units import format_bytes, parse

if TYPE_CHECKING:
    import networkx as nx

UNLIMITED = 1e18
"""B/s that stand for "no limit" where a finite capacity is needed."""


@dataclass(frozen=True)
class Server:
    """GPUs, host memories and everything between them; never changes.

    Parameters
    ----------
    parts : Parts
        What it is made of.

    Raises
    ------
    InvalidInput
        If the parts do not make a server; one sentence says why.

    Notes
    -----
    Routes: NVLink if two GPUs are connected by it directly or through an NVSwitch; else PCIe
    through the lowest common switch or root complex if both GPUs and the driver allow peer copies
    that far; else staged through the host memory nearest to the source. A way over a third GPU's
    NVLink (pairs of a DGX-1 without a direct link) is *not* taken, as cudaMemcpyPeer does not
    take it: such copies go over PCIe or are staged.
    """

    parts: Parts

    def __post_init__(self) -> None:
        check(self.parts)

    def __repr__(self) -> str:
        return f"Server({self.name!r}, {len(self.gpus)} GPUs, {len(self.hosts)} host memories)"

    @property
    def name(self) -> str:
        """Name used in tables."""
        return self.parts.name

    @cached_property
    def gpus(self) -> tuple[str, ...]:
        """Names of the GPUs, in order."""
        return tuple(slot.name for slot in self.parts.gpus)

    @cached_property
    def hosts(self) -> tuple[str, ...]:
        """Names of the host memories (NUMA nodes), in order."""
        return tuple(host.name for host in self.parts.hosts)

    @cached_property
    def stores(self) -> tuple[str, ...]:
        """Names of the NVMe drives, in order."""
        return tuple(store.name for store in self.parts.stores)

    @property
    def links(self) -> tuple[Link, ...]:
        """Every cable and bus, in order."""
        return self.parts.links

    @cached_property
    def _gpu_of(self) -> Mapping[str, GPU]:
        return {slot.name: slot.gpu for slot in self.parts.gpus}

    @cached_property
    def _memory_of(self) -> Mapping[str, int]:
        found = {slot.name: slot.gpu.usable for slot in self.parts.gpus}
        found |= {host.name: host.memory for host in self.parts.hosts}
        return found | {store.name: store.memory for store in self.parts.stores}

    @cached_property
    def _router(self) -> Router:
        return Router(self.parts)

    @cached_property
    def _routes(self) -> dict[tuple[str, str], Route]:
        return {}

    def _known_place(self, place: str) -> None:
        if place not in self._memory_of:
            raise unknown(f"Server {self.name!r}: place", place, self._memory_of)

    def _known_gpu(self, name: str) -> None:
        if name not in self._gpu_of:
            raise unknown(f"Server {self.name!r}: GPU", name, self.gpus)

    def gpu(self, name: str) -> GPU:
        """Kind of the GPU with this name in the server.

        Raises
        ------
        UnknownName
            If there is none.
        """
        self._known_gpu(name)
        return self._gpu_of[name]

    def memory(self, place: str) -> int:
        """Usable bytes of a GPU (after driver and context), host memory or drive.

        Raises
        ------
        UnknownName
            If there is no such place.
        """
        self._known_place(place)
        return self._memory_of[place]

    def host_of(self, gpu: str) -> str:
        """Host memory nearest to a GPU.

        Raises
        ------
        UnknownName
            If there is no such GPU.
        """
        self._known_gpu(gpu)
        return self._router.host_of(gpu)

    @cached_property
    def resources(self) -> Mapping[str, float]:
        """Capacity in B/s of every directed link and every shared capacity, by name.

        ``a>b`` is one direction of the link between a and b; ``LINK.duplex`` both directions
        together; ``ROOT.to_memory`` and ``ROOT.from_memory`` all traffic of a root complex with
        host memory; ``HOST.dram`` reads and writes; ``HOST.cores`` optimizer steps in bytes
        touched; ``DRIVE.read`` and ``DRIVE.write`` an NVMe drive.
        """
        return capacities(self.parts)

    def route(self, src: str, dst: str) -> Route:
        """Way of a copy between two places (GPU, host memory or drive); memoised.

        Parameters
        ----------
        src, dst : str
            Names of places.

        Raises
        ------
        UnknownName
            If a place does not exist.
        NoPath
            If nothing leads from one to the other.
        """
        found = self._routes.get((src, dst))
        if found is None:
            self._known_place(src)
            self._known_place(dst)
            found = self._routes[(src, dst)] = self._router.route(src, dst)
        return found

    def peer(self, src: str, dst: str) -> bool:
        """Whether two GPUs copy directly to each other, over NVLink or PCIe.

        Raises
        ------
        UnknownName
            If there is no such GPU.
        """
        self._known_gpu(src)
        self._known_gpu(dst)
        return self._router.peer(src, dst)

    def cpu_route(self, host: str) -> Route:
        """Route of the optimizer step of one process, in B/s of host memory touched.

        All cores of the NUMA node together are the resource ``HOST.cores``; ``cap`` is what one
        process reaches.

        Raises
        ------
        UnknownName
            If there is no such host memory.
        """
        if host not in self.hosts:
            raise unknown(f"Server {self.name!r}: host memory", host, self.hosts)
        return self._router.cpu(host)

    def link(self, name: str) -> Link:
        """Link by name.

        Raises
        ------
        UnknownName
            If there is none.
        """
        for link in self.parts.links:
            if link.name == name:
                return link
        raise unknown(f"Server {self.name!r}: link", name, (x.name for x in self.parts.links))

    def with_link(
        self,
        name: str,
        bandwidth: str | None = None,
        *,
        latency: str | None = None,
        duplex: str | None = None,
        lanes: int | None = None,
    ) -> Server:
        """Return the same server with one link changed.

        Parameters
        ----------
        name : str
            Link to change.
        bandwidth : str, optional
            Effective bandwidth of each direction, such as ``"25 GB/s"``.
        latency : str, optional
            Such as ``"1 us"``.
        duplex : str, optional
            Bandwidth of both directions together.
        lanes : int, optional
            New width; bandwidth changes in proportion.

        Raises
        ------
        UnknownName
            If there is no such link.
        InvalidInput
            If a value cannot be used.
        """
        old = self.link(name)
        new = old
        if lanes is not None:
            if bandwidth is not None:
                raise InvalidInput(f"Link {name!r}: give either bandwidth or lanes, not both.")
            if old.width is None:
                raise InvalidInput(
                    f"Link {name!r} has no lanes to change; give its new bandwidth instead."
                )
            table = PCIE_LANE if old.kind == "pcie" else NVLINK_NOMINAL
            width = parse_width(str(Width(old.width.generation, lanes)), table, f"Link {name!r}")
            scaled = old.bandwidth * lanes / old.width.lanes
            new = replace(new, bandwidth=scaled, width=width)
        if bandwidth is not None:
            new = replace(new, bandwidth=parse(bandwidth, "bandwidth", f"Link {name!r}"))
        if latency is not None:
            new = replace(new, latency=parse(latency, "time", f"Link {name!r}"))
        if duplex is not None:
            new = replace(new, duplex=parse(duplex, "bandwidth", f"Link {name!r}"))
        links = tuple(new if link.name == name else link for link in self.parts.links)
        return Server(replace(self.parts, links=links))

    def with_gpus(self, count: int) -> Server:
        """Return the same server with only its first ``count`` GPUs plugged in.

        Slots, switches and root complexes stay, and so do the NVLinks among the GPUs that stay.

        Parameters
        ----------
        count : int
            1 to the number of GPUs.

        Raises
        ------
        InvalidInput
            If there are not that many.

        Examples
        --------
        >>> import hwmodels
        >>> hwmodels.server("dgx-1").with_gpus(4).gpus
        ('gpu0', 'gpu1', 'gpu2', 'gpu3')
        """
        return Server(edits.with_gpus(self.parts, count))

    def with_pcie(self, generation: int, lanes: int) -> Server:
        """Return the same server with other PCIe slots and switches.

        Every PCIe link changes except those of NVMe drives. A GPU's own link is no better than
        the GPU's connector: a gen3 card in a gen4 slot runs at gen3. What was measured below the
        rate of the old width (links, and a GPU's ``h2d``, ``d2h`` and ``peer``) keeps its share
        of the rate and is listed in ``parts.unverified``; caps of root complexes stay.

        Parameters
        ----------
        generation : int
            1 to 6.
        lanes : int
            1 to 32.

        Raises
        ------
        InvalidInput
            If there is no such PCIe.

        Examples
        --------
        >>> import hwmodels
        >>> str(hwmodels.server("8x4090").with_pcie(3, 8).link("pcie0").width)
        'gen3 x8'
        """
        return Server(edits.with_pcie(self.parts, generation, lanes))

    def with_memory(self, host: str | None = None, gpu: str | None = None) -> Server:
        """Return the same server with another amount of memory.

        Parameters
        ----------
        host : str, optional
            Memory of all NUMA nodes together, in equal parts, such as ``"256 GiB"``.
        gpu : str, optional
            Memory of every GPU as sold, such as ``"24 GiB"``; driver and context take as much of
            it as before, and the speed stays.

        Raises
        ------
        InvalidInput
            If a size cannot be used, or none is given.

        Examples
        --------
        >>> import hwmodels
        >>> hwmodels.server("dgx-1").with_memory(host="64 GiB").memory("host1") // 2**30
        32
        """
        return Server(edits.with_memory(self.parts, host, gpu))

    def degraded(self, name: str, factor: float) -> Server:
        """Return the same server with one link at a part of its bandwidth.

        Stands for a worn cable, a card that trained at fewer lanes, or traffic of others.

        Parameters
        ----------
        name : str
            Link.
        factor : float
            Share of the bandwidth that is left, above 0 and at most 1.

        Raises
        ------
        UnknownName
            If there is no such link.
        InvalidInput
            If the factor cannot be used.
        """
        return Server(edits.degraded(self.parts, self.link(name), factor))

    def unlimited(self) -> Server:
        """Return the same devices with links, memories and cores that never limit anything.

        One process's optimizer step keeps its rate.
        """
        parts = self.parts
        return Server(
            replace(
                parts,
                gpus=tuple(
                    replace(x, h2d=math.inf, d2h=math.inf, peer=math.inf) for x in parts.gpus
                ),
                hosts=tuple(replace(x, dram=UNLIMITED, update=UNLIMITED) for x in parts.hosts),
                roots=tuple(replace(x, memory=math.inf) for x in parts.roots),
                stores=tuple(replace(x, read=UNLIMITED, write=UNLIMITED) for x in parts.stores),
                links=tuple(
                    replace(x, bandwidth=UNLIMITED, latency=0.0, duplex=math.inf, width=None)
                    for x in parts.links
                ),
                host_latency=0.0,
            )
        )

    @cached_property
    def graph(self) -> nx.DiGraph[str]:
        """Directed graph of all parts.

        Nodes have ``kind`` (gpu, switch, root, host, socket, nvswitch, nvme); edges have ``link``
        (its name; empty inside a chip), ``bandwidth`` in B/s and ``latency`` in s.
        """
        import networkx as nx

        graph: nx.DiGraph[str] = nx.DiGraph(name=self.name)
        for name, kind in self.parts.kinds.items():
            graph.add_node(name, kind=kind)

        def connect(a: str, b: str, link: str, bandwidth: float, latency: float) -> None:
            attributes: dict[str, Any] = {"link": link, "bandwidth": bandwidth, "latency": latency}
            graph.add_edge(a, b, **attributes)
            graph.add_edge(b, a, **attributes)

        for link in self.parts.links:
            connect(*link.ends, link.name, link.bandwidth, link.latency)
        for root in self.parts.roots:
            connect(root.name, root.host, "", root.memory, 0.0)
        for host in self.parts.hosts:
            connect(host.name, host.socket, "", host.dram, 0.0)
        return graph

    def to_toml(self) -> str:
        """Write the server as a file that `hwmodels.load` reads back as an equal server."""
        from hwmodels.write import to_toml

        return to_toml(self.parts)

    def describe(self) -> dict[str, Any]:
        """Plain facts of the server, for tables and JSON: strings with units and a drawing."""
        from hwmodels.draw import tree

        models = dict.fromkeys(slot.gpu.name for slot in self.parts.gpus)
        counts = {
            model: sum(slot.gpu.name == model for slot in self.parts.gpus) for model in models
        }
        return {
            "name": self.name,
            "description": self.parts.description,
            "gpus": counts,
            "gpu memory": format_bytes(sum(x.gpu.memory for x in self.parts.gpus)),
            "host memory": format_bytes(sum(x.memory for x in self.parts.hosts)),
            "peer copies": self._peer_summary(),
            "unverified": list(self.parts.unverified),
            "sources": dict(self.parts.sources),
            "tree": tree(self.parts),
        }

    def _peer_summary(self) -> str:
        kinds = dict.fromkeys(self.route(a, b).kind for a in self.gpus for b in self.gpus if a != b)
        return " and ".join(sorted(kinds)) or "none (one GPU)"
