"""Random servers whose hidden numbers a calibration must find again."""

from __future__ import annotations

import math
import random
from typing import cast

from hwmodels.gpu import GPU, Reach
from hwmodels.parts import GPUSlot, Host, Link, Parts, Root, Switch
from hwmodels.routes import ADAM_BYTES
from hwmodels.server import Server


def _kind(draw: random.Random) -> GPU:
    return GPU(
        "hidden", 24 * 2**30, 2**29,
        {"fp32": draw.uniform(5e12, 40e12), "bf16": draw.uniform(50e12, 150e12)},
        draw.uniform(0.3e12, 2e12), 4, 16, copy_engines=3, peer_reach="none",
        launch_overhead=draw.uniform(3e-6, 9e-6),
        compute_efficiency=draw.uniform(0.4, 0.9), memory_efficiency=draw.uniform(0.6, 0.95),
    )  # fmt: skip


def _groups(draw: random.Random, gpus: list[str]) -> list[list[str]]:
    """One or two groups of GPUs, not in order."""
    mixed = draw.sample(gpus, len(gpus))
    if len(gpus) < 4 or draw.random() < 0.4:
        return [mixed]
    cut = draw.randint(2, len(gpus) - 2)
    return [mixed[:cut], mixed[cut:]]


def server(seed: int) -> Server:
    """Two to eight GPUs on one or two sockets, each with one or two switches or direct roots."""
    draw = random.Random(seed)
    total = 2 + seed % 7
    base = draw.choice([6e9, 12e9, 25e9, 50e9])
    gpus = [f"gpu{i}" for i in range(total)]
    homes = [gpus]
    if total >= 4 and draw.random() < 0.5:
        mixed = draw.sample(gpus, total)
        cut = draw.randint(2, total - 2)
        homes = [sorted(mixed[:cut]), sorted(mixed[cut:])]
    width = {x: base * draw.uniform(0.92, 1.08) for x in gpus}

    def some(share: float, low: float, high: float, of: float) -> float:
        return of * draw.uniform(low, high) if draw.random() < share else math.inf

    links: list[Link] = []
    roots: list[Root] = []
    switches: list[Switch] = []
    hosts: list[Host] = []
    lag = draw.uniform(0.2e-6, 0.8e-6)
    reach = cast(Reach, draw.choice(["none", "root", "socket", "server"]))
    for i, home in enumerate(homes):
        groups = _groups(draw, home)
        apart = len(groups) > 1 and draw.random() < 0.4
        both = 0.0
        ports = [0.0, 0.0]
        for j, group in enumerate(groups):
            number = i * 2 + (j if apart else 0)
            at, carried = f"root{number}", sum(width[x] for x in group)
            if draw.random() < 0.7 and len(group) > 1:
                at = f"sw{len(switches)}"
                switches.append(Switch(at))
                rate = base * draw.uniform(1.2, min(0.75 * len(group), 2.4))
                duplex = some(0.3, 1.25, 1.6, rate)
                links.append(Link(f"up{at}", (at, f"root{number}"), "pcie", rate, lag, duplex))
                carried = min(rate, carried)
            for x in group:
                links.append(
                    Link(f"l{x}", (x, at), "pcie", width[x], lag, some(0.4, 1.2, 1.7, width[x]))
                )
            ports[number - i * 2] += carried
            both += 2 * carried
        for k in range(2 if apart else 1):
            count = len(groups[k]) if apart else len(home)
            memory = (
                some(0.5, 0.6, 0.8, ports[k]) if count > 1 and ports[k] > 1.7 * base else math.inf
            )
            roots.append(Root(f"root{i * 2 + k}", f"host{i}", memory))
        dram = both * draw.uniform(0.9, 1.6)
        process = dram / ADAM_BYTES * draw.uniform(0.15, 0.3)
        hosts.append(
            Host(
                f"host{i}", f"socket{i}", 2**38, dram, 16, process * draw.uniform(1.5, 2.2), process
            )
        )
    if len(homes) > 1:
        least = min(sum(width[x] for x in home) for home in homes)
        rate = least * draw.uniform(0.45, 0.7)
        links.append(Link("qpi", ("socket0", "socket1"), "socket", rate, 1e-7))
    slots: list[GPUSlot] = []
    kind = _kind(draw)
    for x in gpus:
        slots.append(
            GPUSlot(
                x, kind, some(0.25, 0.6, 0.85, width[x]), some(0.25, 0.6, 0.85, width[x]),
                some(0.3, 0.5, 0.8, width[x]),
            )
        )  # fmt: skip
    return Server(
        Parts(
            f"hidden-{seed}", tuple(slots), tuple(hosts), tuple(roots), tuple(links),
            tuple(switches), peer=reach, host_latency=draw.uniform(4e-6, 12e-6),
        )
    )  # fmt: skip
