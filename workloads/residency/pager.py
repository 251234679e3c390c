"""Per-GPU virtual memory: least recently used tensors leave when room is missing.

The baseline of the HotOS'21 paper. ``EXCLUSIVE`` is what PyTorch's large-model support does: the
host buffer is released when the swap-in completes, so every eviction moves bytes, clean or not
(PyTorch-LMS, docs/Internals.md). ``KEEP`` drops clean tensors without a copy.
"""

from __future__ import annotations

from workloads.residency.policy import Policy

KEEP = Policy(
    name="pager (keep)", home="host", evict="pressure", host_copy="keep", swap_in="on_demand"
)
EXCLUSIVE = Policy(
    name="pager (exclusive)", home="host", evict="pressure", host_copy="exclusive",
    swap_in="on_demand",
)  # fmt: skip

BY_HOST_COPY = {"keep": KEEP, "exclusive": EXCLUSIVE}
