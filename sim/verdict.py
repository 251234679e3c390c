"""Plain words about a comparison: who wins, by how much, and why."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sim.explain import COMPUTE
from sim.words import three, time

if TYPE_CHECKING:
    from sim.compare import Result


def why(results: Sequence[Result], minibatch: int, model: str) -> str:
    """One paragraph: for each server the winner, its lead and the reason; then across servers."""
    if not results:
        return "Nothing was compared."
    servers = list(dict.fromkeys(result.server for result in results))
    said = [_on_server([r for r in results if r.server == name], name) for name in servers]
    best = [_fastest(results, name) for name in servers]
    ran = sorted((r for r in best if r is not None), key=lambda r: r.iteration_time)
    if len(ran) > 1:
        first, last = ran[0], ran[-1]
        said.append(
            f"With the best schedule of each, {first.server} needs {time(first.iteration_time)} "
            f"for a minibatch of {minibatch} of {model}, {_times(first, last)} as fast as "
            f"{last.server}."
        )
    return " ".join(said)


def _fastest(results: Sequence[Result], server: str) -> Result | None:
    ran = [r for r in results if r.server == server and r.fits]
    return min(ran, key=lambda r: r.iteration_time, default=None)


def _on_server(results: Sequence[Result], server: str) -> str:
    ran = sorted((r for r in results if r.fits), key=lambda r: r.iteration_time)
    failed = [r for r in results if not r.fits]
    if not ran:
        return f"On {server} no schedule ran: {_full_stop(failed[0].note)}"
    first = ran[0]
    said = f"On {server}, {first.schedule} wins with {time(first.iteration_time)} an iteration"
    rival = next((r for r in ran[1:] if r.iteration_time > first.iteration_time), None)
    equal = [r.schedule for r in ran[1:] if r.iteration_time == first.iteration_time]
    if equal:
        said += f" (as does {', '.join(equal)})"
    if rival is None:
        said += "."
    else:
        said += f", {_times(first, rival)} as fast as {rival.schedule}"
        if ran[-1] is not rival:
            said += f" and {_times(first, ran[-1])} as fast as {ran[-1].schedule}"
        said += f": {_reason(first, ran[-1])}."
    said += f" {_state(first)}"
    if failed:
        number = len(failed)
        said += f" {number} of {len(results)} schedule{'s' if len(results) > 1 else ''} "
        said += "did not run." if any(not _full(r) for r in failed) else _no_fit(number)
    return said


def _full(result: Result) -> bool:
    return result.note.startswith("does not fit")


def _no_fit(number: int) -> str:
    return "does not fit." if number == 1 else "do not fit."


def _times(fast: Result, slow: Result) -> str:
    return f"{three(slow.iteration_time / fast.iteration_time)} times"


def _reason(first: Result, other: Result) -> str:
    """Say what differs most between the winner and the slowest: swaps, computing, or waiting."""
    name = other.schedule
    moved, more = _giga(first.swap_bytes), _giga(other.swap_bytes)
    if other.swap_bytes > 1.1 * first.swap_bytes:
        return f"it swaps {moved} an iteration where {name} swaps {more}"
    if first.compute_share > 1.1 * other.compute_share:
        kept = f"its GPUs compute {first.compute_share:.0%} of the time, those of {name} "
        return kept + f"{other.compute_share:.0%}"
    busy = first.compute_share * first.iteration_time
    if other.compute_share * other.iteration_time > 1.05 * busy:
        return f"it computes less than {name}"
    if other.swap_bytes == first.swap_bytes == 0:
        return "neither swaps; they differ in waiting and peer copies"
    return f"both swap alike ({moved} and {more}); they differ in what overlaps"


def _state(first: Result) -> str:
    """How good the winner is in itself."""
    share = f"{first.share_of_bound:.0%} of its iteration time is the lower bound ({first.bound})"
    if first.bottleneck == COMPUTE:
        return f"It is bound by compute; {share}."
    return f"Its bottleneck is {first.bottleneck}; {share}."


def _giga(count: int) -> str:
    return f"{three(count / 1e9)} GB" if count else "nothing"


def _full_stop(text: str) -> str:
    return text if text.endswith(".") else text + "."
