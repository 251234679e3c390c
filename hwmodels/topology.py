"""Output of ``nvidia-smi topo -m`` into a server."""

from __future__ import annotations

from hwmodels.server import Server


def from_topology(text: str) -> Server:
    raise ValueError(text)
