"""Resident: weights, gradients and optimizer states stay on their GPU; nothing moves.

Only boundary activations travel between GPUs. A model that is too large is an error.
"""

from __future__ import annotations

from workloads.residency.policy import Policy

RESIDENT = Policy(name="resident", home="gpu", evict="never")
