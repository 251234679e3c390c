"""A GPU: memory, arithmetic, and how it talks to others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from hwmodels.errors import InvalidInput

Dtype = Literal["fp32", "tf32", "fp16", "bf16", "fp8"]
Reach = Literal["none", "root", "socket", "server"]
"""How far peer copies over PCIe go, from nowhere to anywhere."""


@dataclass(frozen=True)
class GPU:
    """One kind of GPU.

    Attributes
    ----------
    name : str
        Name in the catalog, such as ``gtx-1080-ti``.
    memory : int
        Bytes of device memory as sold.
    reserve : int
        Bytes of it that driver and context of one process take.
    flops : mapping of str to float
        Dense peak in FLOP/s by number format, with accumulation in fp32 where tensor cores do it.
    bandwidth : float
        Peak of the device memory in B/s.
    pcie_generation, pcie_lanes : int
        The GPU's own PCIe connector.
    nvlink_generation, nvlink_links : int
        NVLink of the GPU (0 and 0: none).
    nvlink_bandwidth : float
        Effective B/s per direction of one of its NVLinks; 0 without NVLink.
    copy_engines : int
        Copies that can run at the same time; streams beyond that share an engine.
    peer_reach : str
        How far two of these copy directly to each other over PCIe with the stock driver:
        ``none``, within one ``root`` complex, within one ``socket``, or in the whole ``server``.
    launch_overhead : float
        Seconds of each kernel that no work hides.
    compute_efficiency, memory_efficiency : float
        Share of the peak that large kernels reach.
    unverified : tuple of str
        Fields whose value is from memory and not checked against a source.
    sources : mapping of str to str
        Source of each field.
    """

    name: str
    memory: int
    reserve: int
    flops: Mapping[str, float]
    bandwidth: float
    pcie_generation: int
    pcie_lanes: int
    copy_engines: int
    peer_reach: Reach
    launch_overhead: float
    compute_efficiency: float
    memory_efficiency: float
    nvlink_generation: int = 0
    nvlink_links: int = 0
    nvlink_bandwidth: float = 0.0
    unverified: tuple[str, ...] = ()
    sources: Mapping[str, str] = field(default_factory=dict[str, str])

    def __hash__(self) -> int:
        return hash((self.name, self.memory, self.bandwidth))

    @property
    def usable(self) -> int:
        """Bytes left for tensors after driver and context."""
        return self.memory - self.reserve

    def peak(self, dtype: Dtype) -> float:
        """Dense peak in FLOP/s of one number format.

        TF32 is a mode of fp32 arithmetic: a GPU without it computes in fp32.

        Raises
        ------
        InvalidInput
            If the GPU has no arithmetic in this format.
        """
        found = self.flops.get(dtype)
        if found is None and dtype == "tf32":
            found = self.flops.get("fp32")
        if found is None:
            raise InvalidInput(
                f"{self.name} has no {dtype} arithmetic; it has {', '.join(self.flops)}: "
                "choose a precision that computes in one of these."
            )
        return found
