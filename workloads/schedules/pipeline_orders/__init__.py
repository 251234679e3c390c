"""The orders of pipelines by name: which action each rank takes when, and what each one needs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from workloads.schedules.pipeline_orders import (
    dualpipe,
    gpipe,
    looped_bfs,
    one_f_one_b,
    zero_bubble_v,
)
from workloads.schedules.pipeline_orders.actions import Action, Order

__all__ = ["ORDERS", "Action", "Entry", "Order"]


@dataclass(frozen=True, slots=True)
class Entry:
    """One order.

    Attributes
    ----------
    summary, source : str
        One line; the paper or code that describes it.
    order : callable
        Actions of one rank.
    stages : str
        ``one`` a rank; ``many``: the caller says how many a rank; ``two`` a rank, in a V;
        ``mirrored``: as many as ranks, each on two of them.
    count : callable
        ``count(microbatches, ranks)``: what the number of microbatches must be, where it is not.
    """

    summary: str
    source: str
    order: Order
    stages: Literal["one", "many", "two", "mirrored"] = "one"
    count: Callable[[int, int], str] = lambda microbatches, ranks: ""


def _rounds(microbatches: int, ranks: int) -> str:
    return f"a multiple of the {ranks} GPUs" if microbatches % ranks else ""


def _both_ways(microbatches: int, ranks: int) -> str:
    enough = microbatches % 2 == 0 and microbatches >= 2 * ranks
    return "" if enough else f"an even number, at least {2 * ranks}"


def _both_chunks(microbatches: int, ranks: int) -> str:
    return "" if microbatches >= 2 * ranks else f"at least {2 * ranks}, two for each GPU"


_ZERO_BUBBLE = "zero bubble, arXiv 2401.10241"
_DUALPIPE = "arXiv 2412.19437; github.com/deepseek-ai/DualPipe"

ORDERS: Mapping[str, Entry] = {
    "gpipe": Entry("all forwards, then all backwards", "GPipe, arXiv 1811.06965", gpipe.order),
    "1f1b": Entry(
        "one forward, one backward, with flush", "PipeDream-Flush, arXiv 2006.09503",
        one_f_one_b.plain,
    ),
    "interleaved-1f1b": Entry(
        "1f1b over several stages a GPU", "PTD-P, arXiv 2104.04473", one_f_one_b.interleaved,
        "many", _rounds,
    ),
    "looped-bfs": Entry(
        "several stages a GPU, each runs all microbatches in one go",
        "breadth-first pipeline, arXiv 2211.05953", looped_bfs.order, "many",
    ),
    "zb-h1": Entry(
        "zero bubble H1: 1f1b, weight gradients fill the end", _ZERO_BUBBLE,
        one_f_one_b.zero_bubble_h1,
    ),
    "zb-h2": Entry(
        "zero bubble H2: twice the microbatches in flight, no bubble", _ZERO_BUBBLE,
        one_f_one_b.zero_bubble_h2,
    ),
    "interleaved-zb": Entry(
        "zero bubble H1 over several stages a GPU", f"{_ZERO_BUBBLE}; torch.distributed.pipelining",
        one_f_one_b.interleaved_zero_bubble, "many", _rounds,
    ),
    "zb-v": Entry(
        "zero bubble V: two stages a GPU, first and last together", "arXiv 2405.15362",
        zero_bubble_v.order, "two",
    ),
    "dualpipe": Entry(
        "microbatches enter at both ends, every stage on two GPUs", f"DualPipe, {_DUALPIPE}",
        dualpipe.two_ways, "mirrored", _both_ways,
    ),
    "dualpipe-v": Entry(
        "half of DualPipe folded: two stages a GPU, in a V", f"DualPipeV, {_DUALPIPE}",
        dualpipe.folded, "two", _both_chunks,
    ),
}  # fmt: skip
"""Every order that flushes before the update."""
