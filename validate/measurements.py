"""What micro-benchmarks measure, as plain records in one JSON file.

`validate.bench` writes them, `validate.calibrate` fits a server to them, and a test may synthesise
them; nobody else needs to know how they were made.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from hwmodels.compute import Dtype, Phase
from hwmodels.errors import InvalidInput


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Copies(_Record):
    """Copies that started together.

    Attributes
    ----------
    flows : tuple of (str, str)
        Source and destination of each: ``gpu0``, ``host0`` ...
    nbytes : int
        Bytes of each.
    pinned : bool
        Whether the host memory is page-locked.
    seconds : tuple of float
        Median time of each flow.
    spread : float
        Half the distance between the quartiles, as a share of the median; the largest of the flows.
    """

    flows: tuple[tuple[str, str], ...]
    nbytes: int
    pinned: bool
    seconds: tuple[float, ...]
    spread: float = 0.0


class Collective(_Record):
    """One collective: kind as in ``Op.phase``, GPUs in rank order, bytes of the whole buffer."""

    kind: str
    group: tuple[str, ...]
    nbytes: int
    seconds: float
    spread: float = 0.0


class Compute(_Record):
    """One phase of one layer for one microbatch.

    Attributes
    ----------
    gpu : str
        Where it ran.
    layer : str
        Row of the profile; layers that are alike share one.
    phase : str
        ``forward``, ``recompute``, ``backward`` or ``update`` (optimizer step on the GPU).
    samples : int
        Microbatch size; 1 for an update.
    flops, bytes : float
        Work, as the model counts it.
    dtype : str
        Number format of the arithmetic.
    kernels : int
        Kernel launches.
    seconds : float
        Median.
    spread : float
        As in ``Copies``.
    beside : str
        What ran on the same GPU at the same time: nothing, ``copies`` or ``collective``.
    peak_bytes : int
        Most memory in use during it besides what was there before; 0 where not measured.
    """

    gpu: str
    layer: str
    phase: Phase
    samples: int
    flops: float
    bytes: float
    dtype: Dtype
    kernels: int
    seconds: float
    spread: float = 0.0
    beside: Literal["", "copies", "collective"] = ""
    peak_bytes: int = 0


class HostUpdate(_Record):
    """One optimizer step on the CPU.

    Attributes
    ----------
    hosts : tuple of str
        Host memory of each of the processes or threads that step at the same time.
    params : int
        Parameters of each.
    nbytes : int
        Bytes of host memory that each touches.
    seconds : float
        Median.
    spread : float
        As in ``Copies``.
    beside : str
        ``copies`` if copies between GPUs and this host memory ran meanwhile.
    """

    hosts: tuple[str, ...]
    params: int
    nbytes: int
    seconds: float
    spread: float = 0.0
    beside: Literal["", "copies"] = ""


class Machine(_Record):
    """What was asked of the machine itself, not timed.

    Attributes
    ----------
    name : str
        For the server file.
    gpus : tuple of str
        GPUs in order, with ``models`` their kinds and ``memory`` their bytes.
    hosts : tuple of str
        NUMA nodes, with ``host_memory`` their bytes and ``cores`` their physical cores.
    near : tuple of str
        NUMA node nearest to each GPU.
    software : mapping of str to str
        Versions of Python, torch, driver, and the date.
    topology : str
        Text of ``nvidia-smi topo -m``; empty where there is none.
    """

    name: str
    gpus: tuple[str, ...]
    models: tuple[str, ...]
    memory: tuple[int, ...]
    hosts: tuple[str, ...]
    host_memory: tuple[int, ...]
    cores: tuple[int, ...]
    near: tuple[str, ...]
    software: dict[str, str] = {}
    topology: str = ""


class Measurements(_Record):
    """All that was measured on one machine; times in seconds.

    Attributes
    ----------
    launch : mapping of str to float
        Seconds of one empty kernel launch on each GPU.
    left_out : tuple of str
        What was meant to be measured and is not here, each with the reason.
    """

    machine: Machine
    copies: tuple[Copies, ...] = ()
    collectives: tuple[Collective, ...] = ()
    compute: tuple[Compute, ...] = ()
    updates: tuple[HostUpdate, ...] = ()
    launch: dict[str, float] = {}
    left_out: tuple[str, ...] = ()

    def save(self, path: str | Path) -> None:
        """Write as JSON."""
        Path(path).write_text(self.model_dump_json(indent=1) + "\n")

    @staticmethod
    def load(path: str | Path) -> Measurements:
        """Read what ``save`` wrote.

        Raises
        ------
        InvalidInput
            If the file cannot be read or is no file of measurements.
        """
        try:
            return Measurements.model_validate_json(Path(path).read_bytes())
        except OSError as error:
            raise InvalidInput(f"{path}: {error.strerror}") from error
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(str(part) for part in first["loc"]) or "the file"
            raise InvalidInput(f"{path}: {where}: {first['msg']}") from error
