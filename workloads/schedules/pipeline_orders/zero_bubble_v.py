"""Zero bubble V (ZB-V, arXiv 2405.15362): two stages a rank, r and 2p - 1 - r, in a V.

Rank 0 so holds the first and the last stage, and every rank the same memory. The order is the
hand-made one for equal times of forward, input half and weight half.
"""

from __future__ import annotations

from workloads.schedules.pipeline_orders.actions import Action, Kind


def order(microbatches: int, ranks: int, rank: int, chunks: int) -> list[Action]:
    """Actions of one rank, made for 2p - 1 microbatches at least; of fewer, the rest falls out."""
    count = max(2 * ranks - 1, microbatches)
    writer = _Writer(rank, 2 * ranks - 1 - rank)
    writer.add("F0" * (2 * (ranks - rank) - 1))
    writer.add("F1F0" * rank)
    writer.add("F1I1W1" * (ranks - rank))
    while writer.done["F1"] < count:
        writer.add(("F0" if writer.done["F0"] < count else "") + "I0W0F1I1W1")
    writer.add("I0I1" * rank)
    writer.add("I0W0" * (ranks - rank))
    writer.add("W1" * (count - writer.done["W1"]))
    writer.add("W0" * (count - writer.done["W0"]))
    return [action for action in writer.actions if action.microbatch < microbatches]


class _Writer:
    """Numbers the microbatches of each part of each of the two stages."""

    def __init__(self, down: int, up: int) -> None:
        self.stages = (down, up)
        self.done: dict[str, int] = {"F0": 0, "F1": 0, "I0": 0, "I1": 0, "W0": 0, "W1": 0}
        self.actions: list[Action] = []

    def add(self, steps: str) -> None:
        """Append steps such as ``F0I1``: kind, then which of the two stages."""
        kinds: dict[str, Kind] = {"F": "F", "I": "I", "W": "W"}
        for at in range(0, len(steps), 2):
            step = steps[at : at + 2]
            stage = self.stages[int(step[1])]
            self.actions.append(Action(kinds[step[0]], stage, self.done[step]))
            self.done[step] += 1
