"""Changes of a server: fewer GPUs, other PCIe, other memory, a worn link; each makes new parts."""

from __future__ import annotations

from dataclasses import replace

from hwmodels.errors import InvalidInput
from hwmodels.gpu import GPU
from hwmodels.link import PCIE_LANE, Width, parse_width, pcie_effective
from hwmodels.parts import GPUSlot, Link, Parts
from hwmodels.units import parse_bytes


def with_gpus(parts: Parts, count: int) -> Parts:
    """Keep the first ``count`` GPUs; their slots, switches and root complexes stay.

    Raises
    ------
    InvalidInput
        If there are not that many.
    """
    there = len(parts.gpus)
    if type(count) is not int or not 1 <= count <= there:
        raise InvalidInput(
            f"Server {parts.name!r} has {there} GPUs, so with_gpus({count!r}) is not possible; "
            f"take 1 to {there}, or start from a larger server."
        )
    pulled = {slot.name for slot in parts.gpus[count:]}
    links = tuple(link for link in parts.links if not pulled & set(link.ends))
    linked = {end for link in links for end in link.ends}
    nvswitches = tuple(name for name in parts.nvswitches if name in linked)
    gone = pulled | {link.name for link in parts.links} - {link.name for link in links}
    return replace(
        parts,
        gpus=parts.gpus[:count],
        links=links,
        nvswitches=nvswitches,
        unverified=tuple(x for x in parts.unverified if x.partition(".")[0] not in gone),
    )


def with_pcie(parts: Parts, generation: int, lanes: int) -> Parts:
    """Give all PCIe slots and switches another generation and width.

    A rate below what the old width carries, as measured, keeps its share of it and is listed as
    unverified.

    Raises
    ------
    InvalidInput
        If there is no such PCIe.
    """
    where = f"Server {parts.name!r}: with_pcie"
    asked = parse_width(f"gen{generation} x{lanes}", PCIE_LANE, where)
    gpu_of = {slot.name: slot.gpu for slot in parts.gpus}
    drives = {store.name for store in parts.stores}
    links: list[Link] = []
    growth: dict[str, float] = {}
    doubtful: list[str] = []
    for link in parts.links:
        if link.kind != "pcie" or drives & set(link.ends):
            links.append(link)
            continue
        gpu = next((gpu_of[end] for end in link.ends if end in gpu_of), None)
        width = asked if gpu is None else _narrower(asked, gpu)
        before = link.bandwidth if link.width is None else pcie_effective(link.width)
        factor = pcie_effective(width) / before
        if link.bandwidth != before:
            doubtful.append(f"{link.name}.bandwidth")
        links.append(
            replace(
                link,
                bandwidth=_scaled(link.bandwidth, before, pcie_effective(width)),
                duplex=link.duplex * factor,
                width=width,
            )
        )
        growth |= {end: factor for end in link.ends if end in gpu_of}
    gpus = tuple(_grown(slot, growth[slot.name]) for slot in parts.gpus)
    for slot, old in zip(gpus, parts.gpus, strict=True):
        fields = ("h2d", "d2h", "peer")
        doubtful += [f"{slot.name}.{x}" for x in fields if getattr(slot, x) != getattr(old, x)]
    unverified = tuple(dict.fromkeys((*parts.unverified, *doubtful)))
    return replace(parts, gpus=gpus, links=tuple(links), unverified=unverified)


def _narrower(asked: Width, gpu: GPU) -> Width:
    """Take what a slot and a GPU agree on: the lower generation, the smaller width."""
    return Width(min(asked.generation, gpu.pcie_generation), min(asked.lanes, gpu.pcie_lanes))


def _scaled(value: float, before: float, after: float) -> float:
    """``value`` in proportion, exactly ``after`` if it was ``before``."""
    return after if value == before else value * (after / before)


def _grown(slot: GPUSlot, factor: float) -> GPUSlot:
    return replace(slot, h2d=slot.h2d * factor, d2h=slot.d2h * factor, peer=slot.peer * factor)


def with_memory(parts: Parts, host: str | None = None, gpu: str | None = None) -> Parts:
    """Give host memory (all nodes together, in equal parts) or every GPU another size.

    Raises
    ------
    InvalidInput
        If a size is unusable, or neither is given.
    """
    where = f"Server {parts.name!r}: with_memory"
    if host is None and gpu is None:
        raise InvalidInput(f'{where} changes nothing; give host="256 GiB" or gpu="24 GiB".')
    found = parts
    if host is not None:
        each = parse_bytes(host, f"{where}: host") // len(parts.hosts)
        found = replace(found, hosts=tuple(replace(x, memory=each) for x in parts.hosts))
    if gpu is not None:
        size = parse_bytes(gpu, f"{where}: gpu")
        for slot in parts.gpus:
            if size <= slot.gpu.reserve:
                raise InvalidInput(
                    f"{where}: gpu {gpu!r} is less than driver and context of {slot.gpu.name} "
                    "take; give more."
                )
        slots = (replace(x, gpu=replace(x.gpu, memory=size)) for x in parts.gpus)
        found = replace(found, gpus=tuple(slots))
    return found


def degraded(parts: Parts, old: Link, factor: float) -> Parts:
    """Leave one link only ``factor`` of its bandwidth.

    Raises
    ------
    InvalidInput
        If the factor is not above 0 and at most 1.
    """
    if type(factor) not in (int, float) or not 0 < factor <= 1:
        raise InvalidInput(
            f"Link {old.name!r}: degraded by the factor {factor!r}; it must be above 0 and at most "
            "1, such as 0.5 for half of its bandwidth."
        )
    new = replace(old, bandwidth=old.bandwidth * factor, duplex=old.duplex * factor)
    return replace(parts, links=tuple(new if x.name == old.name else x for x in parts.links))
