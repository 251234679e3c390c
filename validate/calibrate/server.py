"""The parts of a server from what was found: switches and roots, NVLinks, host memories."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

from hwmodels.gpu import GPU
from hwmodels.link import HOST_LATENCY
from hwmodels.parts import LATENCY, GPUSlot, Host, Link, Parts, Root, Switch
from hwmodels.routes import ADAM_BYTES
from hwmodels.topology import CPU_ADAM
from validate.calibrate.copies import Paces
from validate.calibrate.host import Steps
from validate.calibrate.peers import Peers
from validate.calibrate.sharing import ALIKE, Group
from validate.measurements import Machine
from validate.plan import ins, outs

SAME = 1.06
"""Limits closer than this are one limit seen twice: three standard errors of two estimates."""

HIDDEN = 1.5
"""Where a limit behind another one starts in the fit: this much above the other."""

DOUBT = 1.02
"""Two flows that take this much longer together may share something: it is tried."""

Set = frozenset[str]


@dataclass(frozen=True)
class Found:
    """All that was found before the fit.

    Attributes
    ----------
    machine : Machine
    paces : Paces
    groups : tuple of Group
    peers : Peers
    steps : mapping of str to Steps
        By host memory.
    gpus : mapping of str to GPU
        Kind of each GPU by place.
    """

    machine: Machine
    paces: Paces
    groups: tuple[Group, ...]
    peers: Peers
    steps: Mapping[str, Steps]
    gpus: Mapping[str, GPU]


@dataclass(frozen=True)
class Choice:
    """What copies to and from the nearest host memory alone do not tell.

    Attributes
    ----------
    roots : frozenset of sets
        Groups whose limit is that of a root complex, which copies between GPUs do not use;
        the others are behind the uplink of a switch.
    drams : frozenset of str
        Host memories whose DRAM is the limit of both directions together of all GPUs near them.
    acs : frozenset of sets
        Groups behind a switch that sends copies between them up to the root complex and back.
    duplex : frozenset of str
        GPUs whose own link carries less in both directions together than in each, which the
        groups do not show beyond doubt, or only copies between GPUs.
    """

    roots: frozenset[Set] = frozenset()
    drams: frozenset[str] = frozenset()
    acs: frozenset[Set] = frozenset()
    duplex: frozenset[str] = frozenset()


@dataclass(frozen=True)
class _Limits:
    """Limits of one set of GPUs: B/s of each direction and of both together; zero for none."""

    each: float = 0.0
    both: float = 0.0


def near(machine: Machine, host: str) -> Set:
    """GPUs whose nearest host memory this is."""
    return frozenset(x for x, h in zip(machine.gpus, machine.near, strict=True) if h == host)


def _limits(groups: Sequence[Group]) -> dict[Set, _Limits]:
    """Limits by set, small sets first; a limit in both directions that is one on their sum."""
    found: dict[Set, _Limits] = {}
    for gpus in sorted({x.gpus for x in groups}, key=lambda x: (len(x), sorted(x))):
        each = max((x.capacity for x in groups if x.gpus == gpus and x.way != "both"), default=0.0)
        both = max((x.capacity for x in groups if x.gpus == gpus and x.way == "both"), default=0.0)
        if both and both <= each * SAME:
            each = 0.0
        found[gpus] = _Limits(each, both)
    return found


def nested(groups: Sequence[Group], machine: Machine) -> tuple[tuple[Group, ...], tuple[str, ...]]:
    """Keep groups that make a tree under the host memories, and a note on each that does not."""
    kept: list[Group] = []
    notes: list[str] = []
    homes = [near(machine, host) for host in machine.hosts]
    for group in groups:
        inside = any(group.gpus <= home for home in homes)
        crosses = any(
            x.gpus & group.gpus and not (x.gpus <= group.gpus or group.gpus <= x.gpus) for x in kept
        )
        if inside and not crosses:
            kept.append(group)
            continue
        why = "cross another group" if inside else "are near different host memories"
        notes.append(
            f"{', '.join(sorted(group.gpus))} share {group.capacity / 1e9:.1f} GB/s but {why}, "
            "which no tree of switches explains; not modelled."
        )
    return tuple(kept), tuple(notes)


def first_choice(found: Found) -> Choice:
    """Choose what is usual: a limit over groups with limits of their own is a root complex's."""
    limits = _limits(found.groups)
    rooms = _rooms(found)
    roots = frozenset(
        gpus
        for gpus, limit in limits.items()
        if limit.each and gpus in rooms and any(x < gpus and len(x) > 1 for x in limits)
    )
    drams = frozenset(
        host
        for host in found.machine.hosts
        if len(near(found.machine, host)) > 1
        and limits.get(near(found.machine, host), _Limits()).both
    )
    return Choice(roots, drams)


def alternatives(found: Found, choice: Choice) -> list[Choice]:
    """Choices that differ in one respect."""
    limits = _limits(found.groups)
    result: list[Choice] = []
    for gpus, limit in limits.items():
        if len(gpus) > 1 and limit.each:
            result.append(replace(choice, roots=choice.roots ^ {gpus}, acs=choice.acs - {gpus}))
        if len(gpus) > 1 and gpus not in choice.roots and (limit.each or limit.both):
            result.append(replace(choice, acs=choice.acs ^ {gpus}))
    for host in found.machine.hosts:
        if limits.get(near(found.machine, host), _Limits()).both:
            result.append(replace(choice, drams=choice.drams ^ {host}))
    result += [
        replace(choice, duplex=choice.duplex ^ {gpu})
        for gpu in found.machine.gpus
        if math.isfinite(_duplex_in_doubt(found, gpu))
    ]
    return result


def _duplex_in_doubt(found: Found, gpu: str) -> float:
    """Most that a GPU's link carried both ways at once, where that took longer than one way.

    Infinite if it did not, or if copies with host memory show the limit beyond doubt.
    """
    if _limits(found.groups).get(frozenset((gpu,)), _Limits()).both:
        return math.inf
    others = [x for x in found.machine.gpus if frozenset((gpu, x)) in found.peers.direct]
    totals: list[float] = []
    for flows in (
        (ins(found.machine)[gpu], outs(found.machine)[gpu]),
        *(((gpu, other), (other, gpu)) for other in others),
    ):
        paces = found.paces.together.get(frozenset(flows))
        if paces is not None:
            alone = sum(found.paces.alone.get(flow, pace) for flow, pace in paces.items())
            if sum(paces.values()) > DOUBT * alone:
                totals.append(_first_rates(found, paces))
    return max(totals, default=math.inf)


def _rooms(found: Found) -> list[Set]:
    """List the sets of GPUs under one root complex."""
    homes = [near(found.machine, host) for host in found.machine.hosts]
    return [room & home for room in found.peers.rooms for home in homes if room & home]


def idle(parts: Parts, known: set[str]) -> set[Set]:
    """Find sets of GPUs behind an uplink of which no record tells a limit.

    Parameters
    ----------
    parts : Parts
        As `build` made them.
    known : set of str
        Parameters that the records tell.
    """
    up = dict(link.ends for link in parts.links if link.kind == "pcie")

    def above(node: str) -> list[str]:
        return [node, *above(up[node])] if node in up else [node]

    return {
        frozenset(slot.name for slot in parts.gpus if link.ends[0] in above(slot.name))
        for link in parts.links
        if link.ends[0] in {switch.name for switch in parts.switches}
        and known.isdisjoint((f"{link.name}.bandwidth", f"{link.name}.duplex"))
    }


def build(found: Found, choice: Choice) -> Parts:
    """Make the parts, with first guesses of all numbers."""
    machine = found.machine
    limits = _limits(found.groups)
    roots: list[Root] = []
    switches: list[Switch] = []
    links: list[Link] = []
    above: dict[str, str] = {}  # switch or root right above each GPU
    for room in _rooms(found):
        home = machine.near[machine.gpus.index(min(room))]
        parts = [x for x in limits if x in choice.roots and x < room]
        rest = room.difference(*parts)
        for gpus in [*parts, *([rest] if rest else [])]:
            limit = limits.get(gpus, _Limits()).each if gpus in choice.roots else 0.0
            root = Root(f"root{len(roots)}", home, limit or math.inf)
            roots.append(root)
            above |= dict.fromkeys(sorted(gpus), root.name)
    for gpus in sorted((x for x in limits if len(x) > 1), key=lambda x: (-len(x), sorted(x))):
        limit = limits[gpus]
        each = 0.0 if gpus in choice.roots else limit.each
        both = 0.0 if any(gpus == near(machine, h) for h in choice.drams) else limit.both
        if not each and not both:
            continue
        number = len(switches)
        switches.append(Switch(f"sw{number}", gpus in choice.acs))
        ends = (f"sw{number}", above[min(gpus)])
        links.append(_link(f"uplink{number}", ends, each or both, both or math.inf))
        above |= dict.fromkeys(sorted(gpus), f"sw{number}")
    slots: list[GPUSlot] = []
    for number, name in enumerate(machine.gpus):
        slot, bandwidth = _slot(found, name)
        slots.append(slot)
        alone = frozenset((name,))
        both = limits.get(alone, _Limits()).both
        if any(alone == near(machine, host) for host in choice.drams):
            both = 0.0
        if name in choice.duplex:
            both = _duplex_in_doubt(found, name)
        links.append(_link(f"pcie{number}", (name, above[name]), bandwidth, both or math.inf))
    nvlinks, nvswitches = _nvlinks(found)
    return Parts(
        name=machine.name,
        gpus=tuple(slots),
        hosts=tuple(_host(found, choice, host) for host in machine.hosts),
        roots=tuple(roots),
        links=(*links, *nvlinks, *_sockets(found)),
        switches=tuple(switches),
        nvswitches=nvswitches,
        description="Fitted to measurements",
        peer=found.peers.reach,
        host_latency=_host_latency(found),
    )


def _link(name: str, ends: tuple[str, str], bandwidth: float, duplex: float) -> Link:
    return Link(name, ends, "pcie", bandwidth, LATENCY["pcie"], duplex)


def _host_latency(found: Found) -> float:
    """Latency of a copy with host memory besides its links: the least of all GPUs', less one link.

    Where no copy between GPUs is direct, this cannot be told from that of the links, and stays.
    """
    flows = (*ins(found.machine).values(), *outs(found.machine).values())
    known = [found.paces.latency[flow] for flow in flows if flow in found.paces.latency]
    return max(min(known) - LATENCY["pcie"], 0.5 * min(known)) if known else HOST_LATENCY


def through_link(found: Found, gpu: str) -> float:
    """Most that was seen on one direction of a GPU's own link, in B/s."""
    most = 0.0
    for flows, paces in found.paces.together.items():
        for side in (0, 1):
            own = [flow for flow in flows if flow[side] == gpu and not _by_nvlink(found, flow)]
            if len(own) == 1 and len(flows) == 1:
                most = max(most, 1.0 / paces[own[0]])
            elif len(own) == 2 == len(flows):
                total = _first_rates(found, paces)
                most = total if total > ALIKE * most else most
    return most


def _first_rates(found: Found, paces: Mapping[tuple[str, str], float]) -> float:
    """Rates of two flows together, while both run."""
    (_, short), (slow, long) = sorted(paces.items(), key=lambda x: x[1])
    alone = found.paces.alone.get(slow, long)
    return 1.0 / short + max(0.0, 1.0 - (long - short) / alone) / short


def _by_nvlink(found: Found, flow: tuple[str, str]) -> bool:
    return frozenset(flow) in found.peers.nvlink


def _slot(found: Found, name: str) -> tuple[GPUSlot, float]:
    """Make a GPU with its caps, and the first guess of its link's bandwidth."""
    into, out = ins(found.machine)[name], outs(found.machine)[name]
    rates = {"in": 1.0 / found.paces.alone[into], "out": 1.0 / found.paces.alone[out]}
    link = through_link(found, name)
    shared = {
        way: min(
            (x.capacity for x in found.groups if name in x.gpus and x.way == way), default=math.inf
        )
        for way in ("in", "out")
    }
    caps = {
        way: rate if rate * SAME < link and rate * SAME < shared[way] else math.inf
        for way, rate in rates.items()
    }
    if min(shared.values()) <= link * SAME and link <= max(rates.values()) * SAME:
        link *= HIDDEN  # the group's limit is what one GPU alone already meets
    return GPUSlot(name, found.gpus[name], caps["in"], caps["out"]), link


def _nvlinks(found: Found) -> tuple[list[Link], tuple[str, ...]]:
    latency = LATENCY["nvlink"]
    rates = found.peers.nvlink
    if found.peers.nvswitch:
        each = {x: max(rates[pair] for pair in rates if x in pair) for x in found.machine.gpus}
        through = [
            Link(f"nvlink{i}", (x, "nvswitch"), "nvlink", each[x], latency)
            for i, x in enumerate(found.machine.gpus)
        ]
        return through, ("nvswitch",)
    numbers = {gpu: i for i, gpu in enumerate(found.machine.gpus)}
    direct: list[Link] = []
    for pair, rate in rates.items():
        a, b = sorted(pair, key=numbers.__getitem__)
        direct.append(Link(f"nvlink{numbers[a]}-{numbers[b]}", (a, b), "nvlink", rate, latency))
    return direct, ()


def _sockets(found: Found) -> list[Link]:
    """Links between all pairs of host memories, so wide that they limit nothing; searched later."""
    hosts = found.machine.hosts
    return [
        Link(
            f"sockets{i}-{j}",
            (f"socket{i}", f"socket{j}"),
            "socket",
            most_asked(found),
            LATENCY["socket"],
        )
        for i, j in combinations(range(len(hosts)), 2)
    ]


def most_asked(found: Found) -> float:
    """More than all copies with host memory and all optimizer steps ask of anything, in B/s."""
    machine = found.machine
    flows = (*ins(machine).values(), *outs(machine).values())
    copies = sum(1.0 / found.paces.alone[flow] for flow in flows)
    return 2.0 * (copies + sum(step.all for step in found.steps.values()))


def _host(found: Found, choice: Choice, name: str) -> Host:
    machine = found.machine
    index = machine.hosts.index(name)
    limit = _limits(found.groups).get(near(machine, name), _Limits()).both
    dram = limit if name in choice.drams else most_asked(found)
    step = found.steps[name]
    process = step.process or CPU_ADAM * ADAM_BYTES
    return Host(
        name,
        f"socket{index}",
        machine.host_memory[index],
        dram,
        machine.cores[index],
        max(step.all, process) / ADAM_BYTES,
        process / ADAM_BYTES,
    )
