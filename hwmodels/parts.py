"""The parts of a server, as plain records."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

from hwmodels.gpu import GPU, Reach
from hwmodels.link import HOST_LATENCY, NVLINK_LATENCY, PCIE_LATENCY, SOCKET_LATENCY, Width

LinkKind = Literal["pcie", "nvlink", "socket"]
NodeKind = Literal["gpu", "switch", "root", "host", "socket", "nvswitch", "nvme"]

LATENCY: dict[LinkKind, float] = {
    "pcie": PCIE_LATENCY,
    "nvlink": NVLINK_LATENCY,
    "socket": SOCKET_LATENCY,
}
"""Default latency of a link in seconds, by kind."""


@dataclass(frozen=True, slots=True)
class GPUSlot:
    """A GPU in its place.

    Attributes
    ----------
    name : str
        Name in the server, such as ``gpu0``.
    gpu : GPU
        What is plugged in.
    h2d, d2h, peer : float
        Most that one copy from host memory, to host memory, or to another GPU reaches, in B/s,
        where measured below what the links allow; infinite otherwise.
    """

    name: str
    gpu: GPU
    h2d: float = math.inf
    d2h: float = math.inf
    peer: float = math.inf


@dataclass(frozen=True, slots=True)
class Host:
    """Memory and cores of one NUMA node.

    Attributes
    ----------
    name : str
        Name of the node's memory, such as ``host0``.
    socket : str
        Socket it belongs to.
    memory : int
        Bytes.
    dram : float
        B/s of reads and writes together.
    cores : int
        Physical cores.
    update, update_process : float
        Parameters/s of an fp32 Adam step, by all cores together and by one process.
    """

    name: str
    socket: str
    memory: int
    dram: float
    cores: int
    update: float
    update_process: float


@dataclass(frozen=True, slots=True)
class Root:
    """A PCIe root complex (or the die quadrant that holds it).

    Attributes
    ----------
    name : str
        Name in the server.
    host : str
        Nearest NUMA node.
    memory : float
        B/s per direction between all its ports together and host memory, infinite if the links
        below it are the only limit. Peer copies do not use it.
    """

    name: str
    host: str
    memory: float = math.inf


@dataclass(frozen=True, slots=True)
class Switch:
    """A PCIe switch.

    Attributes
    ----------
    name : str
        Name in the server.
    acs : bool
        Access control redirects peer copies up to the root complex and back.
    """

    name: str
    acs: bool = False


@dataclass(frozen=True, slots=True)
class Store:
    """An NVMe drive: name, size in bytes, B/s of reading and of writing."""

    name: str
    memory: int
    read: float
    write: float


@dataclass(frozen=True, slots=True)
class Link:
    """A full-duplex cable or bus between two nodes: two directed links.

    Attributes
    ----------
    name : str
        Name in the server.
    ends : (str, str)
        The two nodes.
    kind : str
        ``pcie``, ``nvlink`` or ``socket``.
    bandwidth : float
        Effective B/s of each direction.
    latency : float
        Seconds.
    duplex : float
        B/s of both directions together, infinite if they do not disturb each other.
    width : Width or None
        Generation and lanes, where the link was described by them.
    """

    name: str
    ends: tuple[str, str]
    kind: LinkKind
    bandwidth: float
    latency: float
    duplex: float = math.inf
    width: Width | None = None


@dataclass(frozen=True)
class Parts:
    """All parts of a server, unchecked.

    Attributes
    ----------
    name, description : str
        For people.
    gpus, hosts, roots, switches, nvswitches, stores, links : tuple
        The parts, in the order in which they are listed.
    peer : str or None
        How far peer copies over PCIe go here, where driver or firmware differ from the GPU's
        default.
    host_latency : float
        Seconds that each copy from or to host memory takes besides its links.
    sources : mapping of str to str
        Where the facts are from, by part (``gpu0``, ``uplink0`` ...) or topic.
    unverified : tuple of str
        Fields (``host0.dram``) that no source confirms.
    """

    name: str
    gpus: tuple[GPUSlot, ...]
    hosts: tuple[Host, ...]
    roots: tuple[Root, ...]
    links: tuple[Link, ...]
    switches: tuple[Switch, ...] = ()
    nvswitches: tuple[str, ...] = ()
    stores: tuple[Store, ...] = ()
    description: str = ""
    peer: Reach | None = None
    host_latency: float = HOST_LATENCY
    sources: Mapping[str, str] = field(default_factory=dict[str, str], hash=False)
    unverified: tuple[str, ...] = ()

    @cached_property
    def sockets(self) -> tuple[str, ...]:
        """Names of the sockets, in order of first mention."""
        return tuple(dict.fromkeys(host.socket for host in self.hosts))

    @cached_property
    def kinds(self) -> Mapping[str, NodeKind]:
        """Kind of every node by name (of the first, where a name is given twice)."""
        found: dict[str, NodeKind] = {}
        named: tuple[tuple[NodeKind, tuple[str, ...]], ...] = (
            ("gpu", tuple(slot.name for slot in self.gpus)),
            ("host", tuple(host.name for host in self.hosts)),
            ("root", tuple(root.name for root in self.roots)),
            ("switch", tuple(switch.name for switch in self.switches)),
            ("nvswitch", self.nvswitches),
            ("nvme", tuple(store.name for store in self.stores)),
            ("socket", self.sockets),
        )
        for kind, names in named:
            for name in names:
                found.setdefault(name, kind)
        return found


def link_kind(ends: tuple[str, str], kinds: Mapping[str, NodeKind]) -> LinkKind | None:
    """Kind of a link by what it connects; None if nothing connects such nodes."""
    pair = {kinds.get(end) for end in ends}
    if pair in ({"gpu"}, {"gpu", "nvswitch"}):
        return "nvlink"
    if pair == {"socket"}:
        return "socket"
    if pair <= {"gpu", "switch", "root", "nvme"} and pair & {"switch", "root"} and pair != {"root"}:
        return "pcie"
    return None
