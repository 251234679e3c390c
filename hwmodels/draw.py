"""A server's topology as a few lines of text."""

from __future__ import annotations

import math

from hwmodels.parts import Link, Parts


def _rate(value: float) -> str:
    return f"{value / 1e9:.4g} GB/s"


def _bytes(value: int) -> str:
    return f"{value / 2**30:.4g} GiB"


def _link(link: Link) -> str:
    width = f" {link.width}" if link.width is not None else ""
    shared = f", {_rate(link.duplex)} both ways" if math.isfinite(link.duplex) else ""
    return f"{link.name}{width} {_rate(link.bandwidth)}{shared}"


def _labels(parts: Parts) -> dict[str, str]:
    found = {slot.name: f" {slot.gpu.name}" for slot in parts.gpus}
    found |= {switch.name: " (ACS)" for switch in parts.switches if switch.acs}
    found |= {store.name: f" {_bytes(store.memory)}" for store in parts.stores}
    return found


def _below(
    node: str, parent: str, near: dict[str, list[Link]], labels: dict[str, str], depth: int
) -> list[str]:
    lines: list[str] = []
    for link in near.get(node, []):
        other = link.ends[1] if link.ends[0] == node else link.ends[0]
        if other == parent:
            continue
        lines.append(f"{'  ' * depth}{other}{labels.get(other, '')}  [{_link(link)}]")
        lines += _below(other, node, near, labels, depth + 1)
    return lines


def tree(parts: Parts) -> str:
    """Drawing of the PCIe tree below each NUMA node, then the socket and NVLink links.

    Returns
    -------
    str
        Lines of text; ``[...]`` names the link upwards with its bandwidth per direction.
    """
    near: dict[str, list[Link]] = {}
    for link in parts.links:
        if link.kind == "pcie":
            for end in link.ends:
                near.setdefault(end, []).append(link)
    labels = _labels(parts)
    lines: list[str] = []
    for host in parts.hosts:
        lines.append(
            f"{host.name} ({host.socket})  {_bytes(host.memory)}, DRAM {_rate(host.dram)}, "
            f"{host.cores} cores"
        )
        for root in parts.roots:
            if root.host == host.name:
                limit = f"  [memory {_rate(root.memory)}]" if math.isfinite(root.memory) else ""
                lines.append(f"  {root.name}{limit}")
                lines += _below(root.name, "", near, labels, 2)
    for kind in ("socket", "nvlink"):
        chosen = [link for link in parts.links if link.kind == kind]
        if chosen:
            lines.append(f"{kind} links")
            lines += [f"  {link.ends[0]} - {link.ends[1]}  [{_link(link)}]" for link in chosen]
    return "\n".join(lines)
