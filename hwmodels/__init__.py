"""Hardware: GPUs, links and servers, as facts with sources and as a graph with routes.

Examples
--------
>>> import hwmodels as hw
>>> box = hw.server("pcie-4u-4x1080ti")
>>> box.gpus
('gpu0', 'gpu1', 'gpu2', 'gpu3')
"""

from __future__ import annotations

from hwmodels import catalog
from hwmodels.gpu import GPU
from hwmodels.routes import Route
from hwmodels.server import Server
from hwmodels.topology import from_topology

# Bound last: importing the modules gpu.py and server.py binds their names to the modules.
gpu = catalog.gpu
gpus = catalog.gpus
load = catalog.load
server = catalog.server
servers = catalog.servers

__all__ = [
    "GPU",
    "Route",
    "Server",
    "from_topology",
    "gpu",
    "gpus",
    "load",
    "server",
    "servers",
]
