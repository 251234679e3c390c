"""Servers as TOML text that reads back as the same server."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping

from hwmodels.gpu import GPU
from hwmodels.link import HOST_LATENCY, Width, nvlink_effective, pcie_effective
from hwmodels.parts import LATENCY, Link, Parts
from hwmodels.units import (
    format_bandwidth,
    format_bytes,
    format_flops,
    format_params,
    format_time,
)

Row = tuple[str, str]
"""A key and its value, written as TOML."""


def _text(value: str) -> str:
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _key(name: str) -> str:
    plain = name.isascii() and name.replace("-", "").replace("_", "").isalnum()
    return name if plain else _text(name)


def _list(values: Iterable[str]) -> str:
    return "[" + ", ".join(_text(value) for value in values) + "]"


def _limit(key: str, value: float) -> list[Row]:
    """Write a bandwidth, or nothing where nothing limits."""
    return [(key, _text(format_bandwidth(value)))] if math.isfinite(value) else []


def _table(header: str, rows: Iterable[Row]) -> str:
    return "\n".join([header, *(f"{key} = {value}" for key, value in rows)])


def _mapping(header: str, values: Mapping[str, str]) -> list[str]:
    if not values:
        return []
    return [_table(header, ((_key(name), _text(value)) for name, value in values.items()))]


def _gpu(gpu: GPU) -> list[str]:
    """``[models.NAME]`` of a GPU that is not in the catalog."""
    name = f"models.{_key(gpu.name)}"
    flops = ", ".join(f"{dtype} = {_text(format_flops(x))}" for dtype, x in gpu.flops.items())
    rows: list[Row] = [
        ("memory", _text(format_bytes(gpu.memory))),
        ("reserve", _text(format_bytes(gpu.reserve))),
        ("bandwidth", _text(format_bandwidth(gpu.bandwidth))),
        ("flops", f"{{ {flops} }}"),
        ("pcie", _text(str(Width(gpu.pcie_generation, gpu.pcie_lanes)))),
    ]
    if gpu.nvlink_links:
        rows.append(("nvlink", _text(str(Width(gpu.nvlink_generation, gpu.nvlink_links)))))
        rows.append(("nvlink_bandwidth", _text(format_bandwidth(gpu.nvlink_bandwidth))))
    rows += [
        ("copy_engines", str(gpu.copy_engines)),
        ("peer", _text(gpu.peer_reach)),
        ("launch_overhead", _text(format_time(gpu.launch_overhead))),
        ("compute_efficiency", repr(float(gpu.compute_efficiency))),
        ("memory_efficiency", repr(float(gpu.memory_efficiency))),
    ]
    if gpu.unverified:
        rows.append(("unverified", _list(gpu.unverified)))
    return [_table(f"[{name}]", rows), *_mapping(f"[{name}.sources]", gpu.sources)]


def _head(parts: Parts) -> str:
    rows: list[Row] = [("name", _text(parts.name))]
    if parts.description:
        rows.append(("description", _text(parts.description)))
    if parts.peer is not None:
        rows.append(("peer", _text(parts.peer)))
    if parts.host_latency != HOST_LATENCY:
        rows.append(("host_latency", _text(format_time(parts.host_latency))))
    if parts.nvswitches:
        rows.append(("nvswitch", _list(parts.nvswitches)))
    if parts.unverified:
        rows.append(("unverified", _list(parts.unverified)))
    return "\n".join(f"{key} = {value}" for key, value in rows)


def _of_width(link: Link) -> float | None:
    """Bandwidth that follows from generation and lanes alone."""
    if link.width is None:
        return None
    return pcie_effective(link.width) if link.kind == "pcie" else nvlink_effective(link.width)


def _links(parts: Parts) -> list[str]:
    found: list[str] = []
    for link in parts.links:
        rows: list[Row] = [("name", _text(link.name)), ("ends", _list(link.ends))]
        if link.width is not None:
            rows.append((link.kind, _text(str(link.width))))
        if link.bandwidth != _of_width(link):
            rows.append(("bandwidth", _text(format_bandwidth(link.bandwidth))))
        if link.latency != LATENCY[link.kind]:
            rows.append(("latency", _text(format_time(link.latency))))
        rows += _limit("duplex", link.duplex)
        found.append(_table("[[link]]", rows))
    return found


def _nodes(parts: Parts) -> list[str]:
    found: list[str] = []
    for slot in parts.gpus:
        rows: list[Row] = [("name", _text(slot.name)), ("model", _text(slot.gpu.name))]
        rows += _limit("h2d", slot.h2d) + _limit("d2h", slot.d2h) + _limit("peer", slot.peer)
        found.append(_table("[[gpu]]", rows))
    for host in parts.hosts:
        rows = [
            ("name", _text(host.name)),
            ("socket", _text(host.socket)),
            ("memory", _text(format_bytes(host.memory))),
            ("dram", _text(format_bandwidth(host.dram))),
            ("cores", str(host.cores)),
            ("update", _text(format_params(host.update))),
            ("update_process", _text(format_params(host.update_process))),
        ]
        found.append(_table("[[host]]", rows))
    for root in parts.roots:
        rows = [("name", _text(root.name)), ("host", _text(root.host))]
        found.append(_table("[[root]]", rows + _limit("memory", root.memory)))
    for switch in parts.switches:
        rows = [("name", _text(switch.name))] + ([("acs", "true")] if switch.acs else [])
        found.append(_table("[[switch]]", rows))
    for store in parts.stores:
        rows = [
            ("name", _text(store.name)),
            ("memory", _text(format_bytes(store.memory))),
            ("read", _text(format_bandwidth(store.read))),
            ("write", _text(format_bandwidth(store.write))),
        ]
        found.append(_table("[[nvme]]", rows))
    return found


def to_toml(parts: Parts) -> str:
    """TOML text of a server; GPUs of the catalog by name, others in full."""
    from hwmodels.catalog import gpu, gpus

    own = dict.fromkeys(slot.gpu for slot in parts.gpus)
    custom = [x for x in own if x.name not in gpus() or gpu(x.name) != x]
    blocks = [_head(parts)]
    for found in custom:
        blocks += _gpu(found)
    blocks += [*_nodes(parts), *_links(parts), *_mapping("[sources]", parts.sources)]
    return "\n\n".join(blocks) + "\n"
