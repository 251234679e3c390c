"""Plain words about a comparison: who wins, by how much, and why."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sim.words import size, three, time

if TYPE_CHECKING:
    from sim.compare import Result

_EQUAL = 1e-9
"""Iteration times that differ by less than this share are equal."""


def why(results: Sequence[Result], minibatch: int, model: str) -> str:
    """One line for each server: the winner, its lead and the reason; then one across servers."""
    if not results:
        return "Nothing was compared."
    servers = list(dict.fromkeys(result.server for result in results))
    said = [_on_server([r for r in results if r.server == name], name) for name in servers]
    best = [_ran([r for r in results if r.server == name])[:1] for name in servers]
    ran = sorted((r for found in best for r in found), key=lambda r: r.iteration_time)
    if len(ran) > 1:
        first, last = ran[0], ran[-1]
        said.append(
            f"With the best schedule of each, {first.server} needs {time(first.iteration_time)} "
            f"for a minibatch of {minibatch} of {model}, {_times(first, last)} as fast as "
            f"{last.server}."
        )
    return "\n".join(said)


def _ran(results: Sequence[Result]) -> list[Result]:
    return sorted((r for r in results if r.fits), key=lambda r: r.iteration_time)


def _on_server(results: Sequence[Result], server: str) -> str:
    ran = _ran(results)
    if not ran:
        note = results[0].note
        return f"On {server} no schedule runs: {note if note.endswith('.') else note + '.'}"
    first = ran[0]
    limit = first.iteration_time * (1 + _EQUAL)
    slower = [r for r in ran[1:] if r.iteration_time > limit]
    equal = [r.schedule for r in ran[1:] if r.iteration_time <= limit]
    said = f"On {server}, {first.schedule} wins with {time(first.iteration_time)} an iteration"
    if equal:
        said += f" (as fast: {', '.join(equal)})"
    if slower:
        said += f", {_lead(first, slower[0])}"
    if len(slower) > 1:
        said += f", and {_lead(first, slower[-1])}"
    said += (
        f". Its bottleneck is {first.bottleneck}, and its best lower bound ({first.bound}) is "
        f"{first.share_of_bound:.0%} of its time."
    )
    failed = [r for r in results if not r.fits]
    if failed:
        fit = "does not fit" if len(failed) == 1 else "do not fit"
        small = all(r.note.startswith("does not fit") for r in failed)
        said += f" {len(failed)} of {len(results)} schedules {fit if small else 'did not run'}."
    return said


def _times(fast: Result, slow: Result) -> str:
    return f"{three(slow.iteration_time / fast.iteration_time)} times"


def _lead(first: Result, other: Result) -> str:
    return f"{_times(first, other)} as fast as {other.schedule}, which {_excuse(first, other)}"


def _excuse(first: Result, other: Result) -> str:
    """Say what makes ``other`` slower: computing more, swapping more, or waiting more.

    Computing counts if it makes up at least half of the difference in time.
    """
    lost = other.iteration_time - first.iteration_time
    own = first.compute_share * first.iteration_time
    more = other.compute_share * other.iteration_time
    if more - own >= 0.5 * lost:
        return f"computes {time(more)} on a GPU (here {time(own)})"
    if other.swap_bytes > 1.1 * first.swap_bytes:
        return f"swaps {size(other.swap_bytes)} (here {size(first.swap_bytes)})"
    idle, rest = 1 - other.compute_share, 1 - first.compute_share
    return f"leaves its GPUs without compute {idle:.0%} of the time (here {rest:.0%})"
