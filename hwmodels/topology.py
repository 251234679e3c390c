"""Output of ``nvidia-smi topo -m`` into a server."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from hwmodels.catalog import gpu as gpu_by_name
from hwmodels.errors import InvalidInput
from hwmodels.gpu import GPU
from hwmodels.link import PCIE_LANE, Width, parse_width, pcie_effective
from hwmodels.matrix import Matrix, cores, read_matrix
from hwmodels.parts import LATENCY, GPUSlot, Host, Link, Parts, Root, Switch
from hwmodels.routes import ADAM_BYTES
from hwmodels.server import Server
from hwmodels.units import parse, parse_bytes

ASSUMED_DRAM = "100 GB/s"
"""DRAM bandwidth of a NUMA node where the caller gives none: an assumption, marked unverified."""

ASSUMED_SOCKET = "38.4 GB/s"
"""Bandwidth between sockets where the caller gives none: two QPI links of 9.6 GT/s; unverified."""

ASSUMED_MEMORY_SHARE = 2
"""Host memory for each byte of GPU memory where the caller gives none: assumed, unverified."""

ASSUMED_CORES = 16
"""Cores of a NUMA node where the matrix shows no CPU affinity: assumed, unverified."""

CPU_ADAM = 1.41e9
"""Parameters/s of one process's fp32 Adam step on the CPU: deepspeedai/DeepSpeed PR #735."""


def _groups(matrix: Matrix, names: Sequence[str], classes: Iterable[str]) -> dict[str, int]:
    """Give each device the number of its group, joining pairs of the given classes."""
    joined = frozenset(classes)
    group: dict[str, int] = {}
    for number, first in enumerate(names):
        if first in group:
            continue
        group[first] = number
        queue = [first]
        for here in queue:
            for other in names:
                if other not in group and matrix.classes[(here, other)] in joined:
                    group[other] = number
                    queue.append(other)
    return group


@dataclass(frozen=True)
class _Tree:
    """PCIe part of the server."""

    roots: tuple[Root, ...]
    switches: tuple[Switch, ...]
    links: tuple[Link, ...]


def _numa_nodes(matrix: Matrix) -> dict[str, int]:
    """NUMA node of each GPU: as printed, else one a group that SYS does not part."""
    if len(matrix.numa) == len(matrix.gpus):
        return dict(matrix.numa)
    near = _groups(matrix, (*matrix.gpus, *matrix.others), ("PIX", "PXB", "PHB", "NODE"))
    numbers = {g: i for i, g in enumerate(dict.fromkeys(near[x] for x in matrix.gpus))}
    return {name: numbers[near[name]] for name in matrix.gpus}


def _pcie(name: str, a: str, b: str, width: Width) -> Link:
    return Link(name, (a, b), "pcie", pcie_effective(width), LATENCY["pcie"], width=width)


def _tree(matrix: Matrix, widths: dict[str, Width], numa: dict[str, int]) -> _Tree:
    devices = (*matrix.gpus, *matrix.others)
    leaf = _groups(matrix, devices, ("PIX",))
    bridge = _groups(matrix, devices, ("PIX", "PXB"))
    complex_ = _groups(matrix, devices, ("PIX", "PXB", "PHB"))
    roots: dict[int, Root] = {}
    switches: dict[tuple[str, int], Switch] = {}
    links: list[Link] = []

    def switch(level: str, group: int, above: str, width: Width) -> str:
        key = (level, group)
        if key not in switches:
            switches[key] = Switch(f"sw{len(switches)}")
            links.append(_pcie(f"uplink{len(switches) - 1}", switches[key].name, above, width))
        return switches[key].name

    for number, name in enumerate(matrix.gpus):
        width = widths[name]
        group = complex_[name]
        if group not in roots:
            roots[group] = Root(f"root{len(roots)}", f"host{numa[name]}")
        above = roots[group].name
        in_bridge = [x for x in devices if bridge[x] == bridge[name]]
        in_leaf = [x for x in devices if leaf[x] == leaf[name]]
        if len(in_bridge) > 1:
            above = switch("bridge", bridge[name], above, width)
        if 1 < len(in_leaf) < len(in_bridge):
            above = switch("leaf", leaf[name], above, width)
        links.append(_pcie(f"pcie{number}", f"gpu{number}", above, width))
    return _Tree(tuple(roots.values()), tuple(switches.values()), tuple(links))


def _nvlinks(matrix: Matrix, gpus: dict[str, GPU]) -> tuple[tuple[str, ...], tuple[Link, ...]]:
    """NVSwitch (if any) and NVLinks."""
    counts = {
        (a, b): int(matrix.classes[(a, b)][2:])
        for i, a in enumerate(matrix.gpus)
        for b in matrix.gpus[i + 1 :]
        if matrix.classes[(a, b)].startswith("NV")
    }
    if not counts:
        return (), ()
    place = {name: f"gpu{i}" for i, name in enumerate(matrix.gpus)}
    total = {name: sum(n for pair, n in counts.items() if name in pair) for name in matrix.gpus}
    for name in matrix.gpus:
        if total[name] and not gpus[name].nvlink_links:
            raise InvalidInput(
                f"The matrix shows NVLinks of {name}, but {gpus[name].name} has none; name the "
                "right GPU."
            )

    def link(name: str, ends: tuple[str, str], of: GPU, count: int) -> Link:
        width = Width(of.nvlink_generation, count)
        rate = of.nvlink_bandwidth * count
        return Link(name, ends, "nvlink", rate, LATENCY["nvlink"], width=width)

    if all(total[name] <= gpus[name].nvlink_links for name in matrix.gpus):
        direct = (
            link(f"nvlink{a[3:]}-{b[3:]}", (place[a], place[b]), gpus[a], count)
            for (a, b), count in counts.items()
        )
        return (), tuple(direct)
    if len(set(counts.values())) > 1:
        raise InvalidInput(
            "The matrix shows more NVLinks than the GPUs have, and not the same number for all "
            "pairs, so no NVSwitch explains them; check the GPU names."
        )
    linked = [name for name in matrix.gpus if total[name]]
    each = next(iter(counts.values()))
    for name in linked:
        if each > gpus[name].nvlink_links:
            raise InvalidInput(
                f"The matrix shows {each} NVLinks of {name}, but {gpus[name].name} has "
                f"{gpus[name].nvlink_links}; name the right GPU."
            )
    through = (link(f"nvlink{x[3:]}", (place[x], "nvswitch"), gpus[x], each) for x in linked)
    return ("nvswitch",), tuple(through)


def _hidden(matrix: Matrix) -> tuple[str, ...]:
    """PCIe links whose place NVLink hides and no network card shows."""
    return tuple(
        f"pcie{i}"
        for i, name in enumerate(matrix.gpus)
        if any(matrix.classes[(name, x)].startswith("NV") for x in matrix.gpus)
        and not any(matrix.classes[(name, x)] in ("PIX", "PXB") for x in matrix.others)
    )


def _models(matrix: Matrix, gpu: str | Sequence[str]) -> dict[str, GPU]:
    names = [gpu] * len(matrix.gpus) if isinstance(gpu, str) else list(gpu)
    if len(names) != len(matrix.gpus):
        raise InvalidInput(
            f"The matrix has {len(matrix.gpus)} GPUs but {len(names)} GPU models are named; name "
            "one for all or one for each."
        )
    return {place: gpu_by_name(name) for place, name in zip(matrix.gpus, names, strict=True)}


def _host(matrix: Matrix, numa: dict[str, int], node: int, memory: int, dram: float) -> Host:
    near = next((x for x in matrix.gpus if numa[x] == node and x in matrix.affinity), "")
    count = cores(matrix.affinity[near]) if near else ASSUMED_CORES
    update = float(round(dram / ADAM_BYTES))  # as much as DRAM allows
    return Host(f"host{node}", f"socket{node}", memory, dram, count, update, CPU_ADAM)


def _sockets(nodes: Sequence[int], bandwidth: float) -> tuple[Link, ...]:
    """Links between all pairs of NUMA nodes, each taken as a socket."""
    return tuple(
        Link(
            f"sockets{a}-{b}",
            (f"socket{a}", f"socket{b}"),
            "socket",
            bandwidth,
            LATENCY["socket"],
        )
        for i, a in enumerate(nodes)
        for b in nodes[i + 1 :]
    )


def from_topology(
    text: str,
    gpu: str | Sequence[str],
    *,
    name: str = "server",
    memory: str | None = None,
    pcie: str | None = None,
    dram: str | None = None,
    socket_link: str | None = None,
) -> Server:
    """Server from the output of ``nvidia-smi topo -m``.

    Parameters
    ----------
    text : str
        The output; legends and other matrices around it are ignored.
    gpu : str or sequence of str
        Catalog name of the GPUs, or one name for each GPU of a mixed box.
    name : str
        Name of the server.
    memory : str, optional
        Host memory of all NUMA nodes together, such as ``"512 GiB"``; assumed if not given.
    pcie : str, optional
        Generation and width of all PCIe links, such as ``"gen3 x16"``; else the GPUs' own.
    dram : str, optional
        Bandwidth of one NUMA node's DRAM; assumed if not given.
    socket_link : str, optional
        Bandwidth per direction between two NUMA nodes; assumed if not given.

    Returns
    -------
    Server
        Assumed values are listed in ``parts.unverified``.

    Raises
    ------
    InvalidInput
        If the text has no complete matrix, or the GPUs named do not fit it.
    UnknownName
        If a GPU is not in the catalog.

    Notes
    -----
    Pairs joined by NVLink do not show where they lie in the PCIe tree; the network cards' classes
    then tell which share a switch, and a GPU without such a card gets its own root port. NUMA
    nodes are taken as sockets of their own. The class does not tell bandwidth: compare with a
    measurement and correct links with ``with_link``.
    """
    matrix = read_matrix(text)
    models = _models(matrix, gpu)
    given = parse_width(pcie, PCIE_LANE, "pcie") if pcie is not None else None
    widths = {x: given or Width(g.pcie_generation, g.pcie_lanes) for x, g in models.items()}
    numa = _numa_nodes(matrix)
    tree = _tree(matrix, widths, numa)
    nvswitches, nvlinks = _nvlinks(matrix, models)
    nodes = sorted(set(numa.values()))
    assumed = ASSUMED_MEMORY_SHARE * sum(model.memory for model in models.values())
    total = assumed if memory is None else parse_bytes(memory, "memory")
    rate = parse(ASSUMED_DRAM if dram is None else dram, "bandwidth", "dram")
    between = parse(socket_link or ASSUMED_SOCKET, "bandwidth", "socket_link")
    hosts = tuple(_host(matrix, numa, node, total // len(nodes), rate) for node in nodes)
    sockets = _sockets(nodes, between)
    no_affinity = {f"host{numa[x]}" for x in matrix.gpus if x not in matrix.affinity}
    unverified: list[str] = []
    for host in hosts:
        missing = {
            "memory": memory is None,
            "dram": dram is None,
            "cores": host.name in no_affinity,
            "update": True,
        }
        unverified += [f"{host.name}.{field}" for field, is_so in missing.items() if is_so]
    if socket_link is None:
        unverified += [f"{link.name}.bandwidth" for link in sockets]
    return Server(
        Parts(
            name=name,
            gpus=tuple(GPUSlot(f"gpu{i}", models[x]) for i, x in enumerate(matrix.gpus)),
            hosts=hosts,
            roots=tree.roots,
            links=(*tree.links, *nvlinks, *sockets),
            switches=tree.switches,
            nvswitches=nvswitches,
            description="Read from nvidia-smi topo -m",
            peer=None if matrix.peer else "none",
            sources={"topology": "nvidia-smi topo -m", "update": "deepspeedai/DeepSpeed PR #735"},
            unverified=(*unverified, *_hidden(matrix)),
        )
    )
