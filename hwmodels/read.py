"""Files that describe GPUs and servers, into records."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from hwmodels import schema
from hwmodels.errors import InvalidInput
from hwmodels.gpu import GPU
from hwmodels.link import (
    HOST_LATENCY,
    NVLINK_EFFECTIVE,
    NVLINK_NOMINAL,
    PCIE_LANE,
    Width,
    nvlink_effective,
    parse_width,
    pcie_effective,
)
from hwmodels.parts import (
    LATENCY,
    GPUSlot,
    Host,
    Link,
    LinkKind,
    NodeKind,
    Parts,
    Root,
    Store,
    Switch,
    link_kind,
)

DTYPES = ("fp32", "tf32", "fp16", "bf16", "fp8")


def read_text(path: str | Path) -> str:
    """Text of a file.

    Raises
    ------
    InvalidInput
        If it cannot be read as UTF-8 text.
    """
    try:
        return Path(path).read_text(encoding="utf-8")
    except OSError as error:
        reason = (error.strerror or "no such file").lower()
        raise InvalidInput(f"Cannot read {str(path)!r}: {reason}.") from None
    except UnicodeDecodeError:
        raise InvalidInput(f"Cannot read {str(path)!r}: it is not text in UTF-8.") from None


def parse_toml(text: str, where: str) -> dict[str, object]:
    """Tables of a TOML text.

    Raises
    ------
    InvalidInput
        If it is not TOML; says the line.
    """
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InvalidInput(f"{where} is not valid TOML: {str(error).rstrip('.')}.") from None


def gpu_from_table(name: str, table: schema.GPUTable, where: str) -> GPU:
    """GPU record of one table.

    Raises
    ------
    InvalidInput
        If a width or number format does not exist, or nothing is left of the memory.
    """
    at = f"{where}: GPU model {name!r}"
    pcie = parse_width(table.pcie, PCIE_LANE, at)
    nvlink = parse_width(table.nvlink, NVLINK_NOMINAL, at) if table.nvlink else Width(0, 0)
    for dtype in table.flops:
        if dtype not in DTYPES:
            raise InvalidInput(
                f"{at} has the unknown number format {dtype!r}; known: {', '.join(DTYPES)}."
            )
    for what, rate in (*table.flops.items(), ("bandwidth", table.bandwidth)):
        if rate == 0:
            raise InvalidInput(f"{at}: {what} is zero; it must be greater.")
    if table.reserve >= table.memory:
        raise InvalidInput(f"{at} reserves all of its memory; reserve less than memory.")
    each = table.nvlink_bandwidth or NVLINK_EFFECTIVE.get(nvlink.generation, 0.0)
    return GPU(
        name=name,
        memory=round(table.memory),
        reserve=round(table.reserve),
        flops=dict(table.flops),
        bandwidth=table.bandwidth,
        pcie_generation=pcie.generation,
        pcie_lanes=pcie.lanes,
        copy_engines=table.copy_engines,
        peer_reach=table.peer,
        launch_overhead=table.launch_overhead,
        compute_efficiency=table.compute_efficiency,
        memory_efficiency=table.memory_efficiency,
        nvlink_generation=nvlink.generation,
        nvlink_links=nvlink.lanes,
        nvlink_bandwidth=each,
        unverified=tuple(table.unverified),
        sources=dict(table.sources),
    )


def _unlimited(value: float | None) -> float:
    return math.inf if value is None else value


def _link(table: schema.LinkTable, kinds: Mapping[str, NodeKind], where: str) -> Link:
    at = f"{where}: link {table.name!r}"
    if table.pcie is not None and table.nvlink is not None:
        raise InvalidInput(f"{at} is both PCIe and NVLink; keep one.")
    ends = (table.ends[0], table.ends[1])
    named: LinkKind = "pcie" if table.nvlink is None else "nvlink"
    kind = link_kind(ends, kinds) or named
    width: Width | None = None
    bandwidth = table.bandwidth
    if table.pcie is not None:
        width = parse_width(table.pcie, PCIE_LANE, at)
        bandwidth = pcie_effective(width) if bandwidth is None else bandwidth
    elif table.nvlink is not None:
        width = parse_width(table.nvlink, NVLINK_NOMINAL, at)
        bandwidth = nvlink_effective(width) if bandwidth is None else bandwidth
    if width is not None and kind != named:
        raise InvalidInput(
            f"{at} is described as {named} but connects {ends[0]!r} with {ends[1]!r}, which is "
            f"{kind}; describe it so or give a bandwidth."
        )
    if bandwidth is None:
        raise InvalidInput(
            f'{at} has no capacity; give pcie = "gen3 x16", nvlink = "gen2 x2" or '
            'bandwidth = "12 GB/s".'
        )
    latency = LATENCY[kind] if table.latency is None else table.latency
    return Link(table.name, ends, kind, bandwidth, latency, _unlimited(table.duplex), width)


def parts_from_text(text: str, where: str, gpu: Callable[[str], GPU]) -> Parts:
    """Parts of a server from its TOML text.

    Parameters
    ----------
    text : str
        Contents of the file.
    where : str
        Name of the file, for errors.
    gpu : callable
        Finds a GPU of the catalog by name; used for models that the file does not define.

    Raises
    ------
    InvalidInput, UnknownName
        If the text is not a server file; says what and where in one sentence.
    """
    table = schema.validated(schema.ServerTable, parse_toml(text, where), where)
    own = {name: gpu_from_table(name, found, where) for name, found in table.models.items()}
    parts = Parts(
        name=table.name,
        gpus=tuple(
            GPUSlot(
                slot.name,
                own.get(slot.model) or gpu(slot.model),
                _unlimited(slot.h2d),
                _unlimited(slot.d2h),
                _unlimited(slot.peer),
            )
            for slot in table.gpu
        ),
        hosts=tuple(
            Host(x.name, x.socket, round(x.memory), x.dram, x.cores, x.update, x.update_process)
            for x in table.host
        ),
        roots=tuple(Root(x.name, x.host, _unlimited(x.memory)) for x in table.root),
        links=(),
        switches=tuple(Switch(x.name, x.acs) for x in table.switch),
        nvswitches=tuple(table.nvswitch),
        stores=tuple(Store(x.name, round(x.memory), x.read, x.write) for x in table.nvme),
        description=table.description,
        peer=table.peer,
        host_latency=HOST_LATENCY if table.host_latency is None else table.host_latency,
        sources=dict(table.sources),
        unverified=tuple(table.unverified),
    )
    links = tuple(_link(x, parts.kinds, where) for x in table.link)
    return replace(parts, links=links)
