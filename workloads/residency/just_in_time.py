"""Planned just-in-time residency: in before use, out as soon as the visit is over.

Harmony's rule (HotOS'21, section 4; msr-fiddle/harmony runtime): the next visit's weights are
loaded while this one computes, clean tensors are dropped, written ones go out once.
"""

from __future__ import annotations

from workloads.residency.policy import Policy

JUST_IN_TIME = Policy(
    name="just in time", home="host", evict="eager", victim="furthest", host_copy="keep",
    swap_in="ahead",
)  # fmt: skip
