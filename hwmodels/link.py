"""Links: what a PCIe or NVLink connection of a given generation and width carries.

All bandwidths are per direction. *Nominal* is the line rate after line coding; *effective* is what
large copies of a DMA engine reach and what the simulator uses.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from hwmodels.errors import InvalidInput

PCIE_LANE: dict[int, float] = {
    1: 2.5e9 * 8 / 10 / 8,
    2: 5.0e9 * 8 / 10 / 8,
    3: 8.0e9 * 128 / 130 / 8,
    4: 16.0e9 * 128 / 130 / 8,
    5: 32.0e9 * 128 / 130 / 8,
    6: 64.0e9 * 236 / 256 / 8,
}
"""Nominal B/s of one PCIe lane by generation: transfers/s x line coding / 8 bits.

Source: PCI-SIG, PCI Express Base Specification (8b/10b up to 2.0, 128b/130b from 3.0; 6.0 carries
236 bytes of transactions in each flit of 256)."""

TLP_OVERHEAD = 24
"""Bytes around the payload of one memory write: framing 2, link layer 6, header 4 + 12.

Source: Neugebauer et al., "Understanding PCIe performance for end host networking", SIGCOMM 2018,
section 3."""

MAX_PAYLOAD: dict[int, int] = {1: 128, 2: 128, 3: 128, 4: 128, 5: 256, 6: 256}
"""Payload bytes of one transaction by generation, as the measured rates imply.

Gen4 x16: 26.0 GB/s (NVIDIA nvbandwidth README) and 27.1 (noonghunna/club-3090 docs/PCIE_P2P.md)
against 26.5 from 128 bytes. Gen5 x16: 57.0 (ikawrakow/ik_llama.cpp#1022) against 57.6 from 256.
Gen3 x16: 12.3 (msr-fiddle/harmony sched_args.py) to 13.1 against 13.3 from 128."""

NVLINK_NOMINAL: dict[int, float] = {1: 20e9, 2: 25e9, 3: 25e9, 4: 25e9, 5: 50e9}
"""Nominal B/s of one NVLink by generation. Source: NVIDIA data sheets (P100 to B200)."""

NVLINK_EFFECTIVE: dict[int, float] = {1: 18.41e9, 2: 20e9, 3: 20e9, 4: 376e9 / 18, 5: 40.1e9}
"""Effective B/s of one NVLink by generation.

Sources: 1 measured on a P100 DGX-1 (uuudown/Tartan dgx1_ascending.txt); 2, 3, 5 the per-link
constants of NVIDIA/nccl src/graph/topo.h (V100, A100, B200); 4 measured, 376 GB/s over 18 links
(NVIDIA/nccl#1264)."""

PCIE_LATENCY = 0.3e-6
"""Seconds per PCIe link on the way of a peer copy.

Source: 0.63 to 0.73 us one way over two links, 1.06 us over four (local-inference-lab/rtx6kpro
hardware/wrx90-cpayne-8gpu-root-topology-comparison.md, section 2b)."""

NVLINK_LATENCY = 0.3e-6
"""Seconds per NVLink; taken as large as PCIe's (unverified)."""

SOCKET_LATENCY = 0.1e-6
"""Seconds to cross from socket to socket (unverified)."""

HOST_LATENCY = 6e-6
"""Seconds that each copy from or to host memory takes besides its links: half of a staged copy.

Source: 12 us for a staged copy (NVIDIA/nccl#1127), 14 us (rtx6kpro hardware/pcie-bandwidth.md),
15.2 us (club-3090 docs/PCIE_P2P.md)."""


def payload_efficiency(generation: int) -> float:
    """Share of PCIe traffic that is payload, in large transfers of memory writes.

    Examples
    --------
    >>> round(payload_efficiency(3), 3)
    0.842
    """
    payload = MAX_PAYLOAD[generation]
    return payload / (payload + TLP_OVERHEAD)


class Width(NamedTuple):
    """Generation and width of a connection, written ``gen3 x16``.

    Attributes
    ----------
    generation : int
        PCIe 1 to 6, or NVLink 1 to 5.
    lanes : int
        PCIe lanes, or number of NVLinks.
    """

    generation: int
    lanes: int

    def __str__(self) -> str:
        return f"gen{self.generation} x{self.lanes}"


def parse_width(text: str, generations: dict[int, float], where: str) -> Width:
    """Read ``gen3 x16``.

    Parameters
    ----------
    text : str
        What a person wrote.
    generations : dict
        Table whose keys are the generations that exist (`PCIE_LANE` or `NVLINK_NOMINAL`).
    where : str
        Name of the field, for the error.

    Raises
    ------
    InvalidInput
        If the text has another form, or the generation or width does not exist.
    """
    found = re.fullmatch(r"gen(\d+) x(\d+)", text.strip())
    known = ", ".join(str(g) for g in generations)
    if found is None:
        raise InvalidInput(f'{where}: {text!r} is not a generation and width such as "gen3 x16".')
    width = Width(int(found[1]), int(found[2]))
    if width.generation not in generations:
        raise InvalidInput(
            f"{where}: generation {width.generation} does not exist; it is one of {known}."
        )
    if not 1 <= width.lanes <= 32:
        raise InvalidInput(f"{where}: width x{width.lanes} is impossible; it is x1 to x32.")
    return width


def pcie_nominal(width: Width) -> float:
    """Nominal B/s per direction of a PCIe connection."""
    return PCIE_LANE[width.generation] * width.lanes


def pcie_effective(width: Width) -> float:
    """Effective B/s per direction of a PCIe connection.

    Examples
    --------
    >>> round(pcie_effective(Width(4, 16)) / 1e9, 1)
    26.5
    """
    return pcie_nominal(width) * payload_efficiency(width.generation)


def nvlink_nominal(width: Width) -> float:
    """Nominal B/s per direction of a bundle of NVLinks."""
    return NVLINK_NOMINAL[width.generation] * width.lanes


def nvlink_effective(width: Width) -> float:
    """Effective B/s per direction of a bundle of NVLinks."""
    return NVLINK_EFFECTIVE[width.generation] * width.lanes
