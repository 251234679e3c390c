"""What Linux says of NUMA nodes and caches; elsewhere, one node and a guess that is named."""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

_SYS = Path("/sys/devices/system")

USUAL_CACHE = 64 * 2**20
"""Bytes of last-level cache where the system does not say: an assumption, on the large side."""


@dataclass(frozen=True, slots=True)
class Node:
    """One NUMA node.

    Attributes
    ----------
    number : int
        The system's number of it.
    cpus : frozenset of int
        Its logical processors.
    cores : int
        Its physical cores.
    memory : int
        Bytes.
    """

    number: int
    cpus: frozenset[int]
    cores: int
    memory: int


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""


def cpu_list(text: str) -> frozenset[int]:
    """Processors of a list as Linux prints it.

    Examples
    --------
    >>> sorted(cpu_list("0-2,8"))
    [0, 1, 2, 8]
    """
    found: set[int] = set()
    for part in filter(None, text.split(",")):
        low, _, high = part.partition("-")
        found |= set(range(int(low), int(high or low) + 1))
    return frozenset(found)


def _cores(cpus: frozenset[int]) -> int:
    """Physical cores: processors that share one are siblings."""
    siblings = "topology/thread_siblings_list"
    return len({_read(_SYS / f"cpu/cpu{cpu}" / siblings) or str(cpu) for cpu in cpus})


def _total_memory() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def whole_machine() -> Node:
    """All of this machine as one node."""
    cpus = frozenset(range(os.cpu_count() or 1))
    return Node(0, cpus, _cores(cpus), _total_memory())


def _node(folder: Path) -> Node:
    cpus = cpu_list(_read(folder / "cpulist"))
    totals = [x for x in _read(folder / "meminfo").splitlines() if "MemTotal" in x]
    memory = int(totals[0].split()[-2]) * 1024 if totals else 0
    return Node(int(folder.name[4:]), cpus, _cores(cpus), memory)


def nodes() -> tuple[Node, ...]:
    """NUMA nodes that have both processors and memory, in the system's order."""
    folders = sorted(_SYS.glob("node/node[0-9]*"), key=lambda path: int(path.name[4:]))
    found = tuple(node for node in map(_node, folders) if node.cpus and node.memory)
    return found or (whole_machine(),)


def cache_bytes() -> int:
    """Bytes of the largest cache of the first processor."""
    sizes = [_read(path) for path in _SYS.glob("cpu/cpu0/cache/index*/size")]
    return max((int(size[:-1]) * 1024 for size in sizes if size.endswith("K")), default=USUAL_CACHE)


@contextmanager
def on_node(node: Node) -> Generator[None]:
    """Keep the calling thread on a node's processors, so that memory it touches first lies there.

    Where the system does not allow it, the thread stays where it is.
    """
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, (node.cpus & before) or before)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
