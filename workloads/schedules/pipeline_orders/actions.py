"""What a rank of a pipeline does next: the words in which every order is written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple

Kind = Literal["F", "B", "I", "W"]
"""Forward; whole backward; its half that makes the input gradient; its half that makes the weight
gradient. The zero-bubble paper calls I "B"; these are the letters of torch."""


class Action(NamedTuple):
    """One step of one rank.

    Attributes
    ----------
    kind : str
        ``F``, ``B``, ``I`` or ``W``.
    stage : int
        Stage of the model, from 0; a rank may hold several.
    microbatch : int
        From 0.
    joined : bool
        Runs as one with the next action: they start when both can, and what they make is handed
        on when both have ended.
    """

    kind: Kind
    stage: int
    microbatch: int
    joined: bool = False


Order = Callable[[int, int, int, int], list[Action]]
"""``order(microbatches, ranks, rank, chunks)``: the actions of one rank, with so many stages on
each rank. That a stage is on a rank follows from the actions."""
