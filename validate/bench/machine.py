"""What a machine says of itself."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from datetime import date
from pathlib import Path

from validate.devices import Devices
from validate.measurements import Machine


def machine(devices: Devices) -> Machine:
    """Describe the machine: GPUs, NUMA nodes, software, and ``nvidia-smi topo -m`` if there is one.

    Logical GPUs and the host share the machine's memory in equal parts.
    """
    host_memory = tuple(node.memory for node in devices.nodes)
    models, memory, near = ("cpu",) * len(devices.gpus), host_memory, devices.hosts[:1]
    software = _software()
    if devices.kind == "cuda":
        models, memory, near = _gpus(devices, software)
    else:
        share = host_memory[0] // (len(devices.gpus) + 1)
        host_memory, memory = (share,), (share,) * len(devices.gpus)
        near *= len(devices.gpus)
    return Machine(
        name=platform.node() or "machine",
        gpus=devices.gpus,
        models=models,
        memory=memory,
        hosts=devices.hosts,
        host_memory=host_memory,
        cores=tuple(node.cores for node in devices.nodes),
        near=near,
        software=software,
        topology=_ask("nvidia-smi", "topo", "-m") if devices.kind == "cuda" else "",
    )


def _software() -> dict[str, str]:
    import torch

    return {
        "date": date.today().isoformat(),
        "system": platform.platform(),
        "python": platform.python_version(),
        "torch": str(torch.__version__),
    }


def _gpus(
    devices: Devices, software: dict[str, str]
) -> tuple[tuple[str, ...], tuple[int, ...], tuple[str, ...]]:
    """Kinds, memory and nearest host memory of real GPUs; adds to what is said of the software."""
    import torch
    from torch.cuda import nccl

    found = [torch.cuda.get_device_properties(devices.place(gpu)) for gpu in devices.gpus]
    software["cuda"] = str(torch.version.cuda)
    if torch.distributed.is_nccl_available():
        software["nccl"] = ".".join(str(part) for part in nccl.version())
    software["driver"] = _ask(
        "nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"
    ).partition("\n")[0]
    software["gpu order"] = os.environ.get("CUDA_DEVICE_ORDER", "FASTEST_FIRST")
    software["visible gpus"] = os.environ.get("CUDA_VISIBLE_DEVICES", "all")
    hosts = {node.number: host for node, host in zip(devices.nodes, devices.hosts, strict=True)}
    near: list[str] = []
    for gpu, properties in zip(devices.gpus, found, strict=True):
        host = hosts.get(_numa_node(properties))
        if host is None:
            software[f"{gpu} is near"] = f"unknown, {devices.hosts[0]} assumed"
        near.append(host or devices.hosts[0])
    return tuple(p.name for p in found), tuple(p.total_memory for p in found), tuple(near)


def _numa_node(properties: object) -> int:
    """NUMA node that Linux gives for a GPU's place on the bus; -1 where it is not known."""
    places = [getattr(properties, f"pci_{part}_id", None) for part in ("domain", "bus", "device")]
    if None in places:
        return -1
    domain, bus, slot = (int(str(place)) for place in places)
    path = Path(f"/sys/bus/pci/devices/{domain:04x}:{bus:02x}:{slot:02x}.0/numa_node")
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return -1


def _ask(program: str, *arguments: str) -> str:
    """Give what a program prints; nothing if it is not there or fails."""
    if shutil.which(program) is None:
        return ""
    done = subprocess.run([program, *arguments], capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else ""
