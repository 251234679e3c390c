"""What an operation on tensors does: FLOPs, bytes of memory traffic, kernels.

Imported where it is used: it needs torch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode


class Counted(NamedTuple):
    """FLOPs (a multiply-add is 2; products and convolutions only), bytes, kernels."""

    flops: float
    nbytes: float
    kernels: int


class _Traffic(TorchDispatchMode):
    """Sums the bytes that each operation reads and writes; views are free."""

    def __init__(self) -> None:
        super().__init__()
        self.nbytes = 0
        self.kernels = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run the operation; one that makes nothing but views of its inputs does not count."""
        made = func(*args, **(kwargs or {}))
        if not func.is_view:
            self.kernels += 1
            touched = tree_leaves((args, kwargs, made))
            self.nbytes += sum(x.numel() * x.element_size() for x in touched if _tensor(x))
        return made


def _tensor(value: object) -> bool:
    return isinstance(value, Tensor)


def count(work: Callable[[], object]) -> Counted:
    """Run ``work`` twice and count: attention as plain products, of which all FLOPs are known.

    Traffic and kernels are those of the operations as they really run.
    """
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as flops:
        work()
    with _Traffic() as traffic:
        work()
    return Counted(float(flops.get_total_flops()), float(traffic.nbytes), traffic.kernels)
