"""Checks of a server's graph: every impossible one is refused with one sentence."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable

from hwmodels.errors import InvalidInput
from hwmodels.names import suggestion
from hwmodels.parts import Link, Parts, link_kind


def check(parts: Parts) -> None:
    """Refuse parts that do not make a server.

    Raises
    ------
    InvalidInput
        Names the part and says what would be right.
    """
    where = f"Server {parts.name!r}"
    if not parts.gpus:
        raise InvalidInput(f"{where} has no GPU; list at least one.")
    if not parts.hosts:
        raise InvalidInput(f"{where} has no host memory; list at least one NUMA node.")
    _check_names(where, parts)
    kinds = {slot.gpu.name: slot.gpu for slot in parts.gpus}
    for slot in parts.gpus:
        if kinds[slot.gpu.name] != slot.gpu:
            raise InvalidInput(
                f"{where} has two different kinds of GPU named {slot.gpu.name!r}; rename one."
            )
    _check_numbers(where, parts)
    for root in parts.roots:
        if parts.kinds.get(root.host) != "host":
            hint = suggestion(root.host, (host.name for host in parts.hosts))
            raise InvalidInput(
                f"{where}: root complex {root.name!r} belongs to the unknown NUMA node "
                f"{root.host!r}{hint}"
            )
    _check_links(where, parts)
    _check_tree(where, parts)
    _check_sockets(where, parts)


def _check_names(where: str, parts: Parts) -> None:
    names = [slot.name for slot in parts.gpus] + [host.name for host in parts.hosts]
    names += [root.name for root in parts.roots] + [switch.name for switch in parts.switches]
    names += [*parts.nvswitches, *(store.name for store in parts.stores), *parts.sockets]
    for kind, given in (("parts", names), ("links", [link.name for link in parts.links])):
        for name, times in Counter(given).items():
            if not name:
                raise InvalidInput(f"{where}: one of the {kind} has an empty name; name it.")
            if ">" in name:
                raise InvalidInput(f'{where}: the name {name!r} has a ">"; use letters and digits.')
            if times > 1:
                raise InvalidInput(
                    f"{where}: {times} {kind} are named {name!r}; rename all but one."
                )


def _numbers(parts: Parts) -> Iterable[tuple[str, float, bool]]:
    """Every quantity: its name, its value, and whether it may be infinite (no limit)."""
    for slot in parts.gpus:
        yield f"{slot.name}.h2d", slot.h2d, True
        yield f"{slot.name}.d2h", slot.d2h, True
        yield f"{slot.name}.peer", slot.peer, True
        yield f"usable memory of {slot.name}", slot.gpu.usable, False
    for host in parts.hosts:
        yield f"{host.name}.memory", host.memory, False
        yield f"{host.name}.dram", host.dram, False
        yield f"{host.name}.cores", host.cores, False
        yield f"{host.name}.update", host.update, False
        yield f"{host.name}.update_process", host.update_process, False
    for root in parts.roots:
        yield f"{root.name}.memory", root.memory, True
    for store in parts.stores:
        yield f"{store.name}.memory", store.memory, False
        yield f"{store.name}.read", store.read, False
        yield f"{store.name}.write", store.write, False
    for link in parts.links:
        yield f"{link.name}.bandwidth", link.bandwidth, False
        yield f"{link.name}.duplex", link.duplex, True


def _check_numbers(where: str, parts: Parts) -> None:
    for name, value, unlimited in _numbers(parts):
        if math.isnan(value) or value <= 0 or (math.isinf(value) and not unlimited):
            raise InvalidInput(f"{where}: {name} is {value:g}; it must be greater than zero.")
    times = [(f"{link.name}.latency", link.latency) for link in parts.links]
    for name, value in [("host_latency", parts.host_latency), *times]:
        if not 0.0 <= value < math.inf:
            raise InvalidInput(f"{where}: {name} is {value:g}; it must not be negative.")


def _check_links(where: str, parts: Parts) -> None:
    seen: dict[frozenset[str], str] = {}
    for link in parts.links:
        for end in link.ends:
            if end not in parts.kinds:
                raise InvalidInput(
                    f"{where}: link {link.name!r} ends at the unknown part {end!r}"
                    f"{suggestion(end, parts.kinds)}"
                )
        a, b = link.ends
        if a == b:
            raise InvalidInput(f"{where}: link {link.name!r} connects {a!r} with itself.")
        if link_kind(link.ends, parts.kinds) != link.kind:
            raise InvalidInput(
                f"{where}: link {link.name!r} cannot connect {parts.kinds[a]} {a!r} with "
                f"{parts.kinds[b]} {b!r}; PCIe goes from a GPU, NVMe drive or switch to a switch "
                "or root complex, NVLink from a GPU to a GPU or NVSwitch, and sockets to sockets."
            )
        other = seen.setdefault(frozenset(link.ends), link.name)
        if other != link.name:
            raise InvalidInput(
                f"{where}: links {other!r} and {link.name!r} both connect {a!r} with {b!r}; "
                "write one link with their bandwidths added."
            )


def _neighbours(links: Iterable[Link]) -> dict[str, list[tuple[str, Link]]]:
    found: dict[str, list[tuple[str, Link]]] = {}
    for link in links:
        a, b = link.ends
        found.setdefault(a, []).append((b, link))
        found.setdefault(b, []).append((a, link))
    return found


def _check_tree(where: str, parts: Parts) -> None:
    """PCIe is a forest: from every GPU, drive and switch exactly one way up to one root."""
    near = _neighbours(link for link in parts.links if link.kind == "pcie")
    root_of: dict[str, str] = {}
    for root in parts.roots:
        root_of[root.name] = root.name
        below: list[tuple[str, str]] = [(root.name, "")]
        while below:
            node, parent = below.pop()
            for other, _ in near.get(node, []):
                if other == parent:
                    continue
                met = root_of.get(other)
                if met == root.name:
                    raise InvalidInput(
                        f"{where}: PCIe links form a cycle through {other!r}; every part has one "
                        "way up to its root complex."
                    )
                if met is not None or parts.kinds[other] == "root":
                    raise InvalidInput(
                        f"{where}: {node!r} is connected to two root complexes, {root.name!r} and "
                        f"{met or other!r}; keep one of the links."
                    )
                if parts.kinds[node] in ("gpu", "nvme"):
                    raise InvalidInput(
                        f"{where}: {node!r} has more than one PCIe link; it needs exactly one."
                    )
                root_of[other] = root.name
                below.append((other, node))
    for name, kind in parts.kinds.items():
        if kind in ("gpu", "nvme", "switch") and name not in root_of:
            raise InvalidInput(
                f"{where}: {kind} {name!r} is not connected to any root complex, so nothing "
                "reaches it from host memory; add a PCIe link."
            )
    linked = {end for link in parts.links if link.kind == "nvlink" for end in link.ends}
    for name in parts.nvswitches:
        if name not in linked:
            raise InvalidInput(f"{where}: NVSwitch {name!r} is not connected to any GPU.")


def _check_sockets(where: str, parts: Parts) -> None:
    near = _neighbours(link for link in parts.links if link.kind == "socket")
    first = parts.sockets[0]
    reached, below = {first}, [first]
    while below:
        for other, _ in near.get(below.pop(), []):
            if other not in reached:
                reached.add(other)
                below.append(other)
    for socket in parts.sockets:
        if socket not in reached:
            raise InvalidInput(
                f"{where}: socket {socket!r} is not connected to socket {first!r}; add a link."
            )
