"""A residency policy: who leaves a GPU, when, and what moves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """What the planner does with tensors that are not in use.

    Attributes
    ----------
    name : str
        Name used in messages.
    home : str
        Where weights and optimizer states lie before and after an iteration: ``gpu`` or ``host``.
    evict : str
        ``never`` (a lack of room is an error), ``pressure`` (when room is missing) or ``eager``
        (as soon as the tensor is not needed by this visit or the next one of its device).
    victim : str
        Who leaves under pressure: ``lru`` (least recently used) or ``furthest`` (next use).
    host_copy : str
        ``keep``: the host copy stays valid after a swap-in, so clean tensors are dropped;
        ``exclusive``: a swap-in destroys it, so every eviction moves bytes.
    swap_in : str
        ``on_demand``: starts after the device's previous compute op; ``ahead``: as early as room
        allows.
    """

    name: str
    home: Literal["gpu", "host"]
    evict: Literal["never", "pressure", "eager"]
    victim: Literal["lru", "furthest"] = "lru"
    host_copy: Literal["keep", "exclusive"] = "keep"
    swap_in: Literal["on_demand", "ahead"] = "ahead"
