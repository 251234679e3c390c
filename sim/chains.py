"""Chains: rows of compute operations that nobody outside can tell apart, run as one event.

An operation joins the chain of the previous one of its stream if both compute, it waits for
nothing else, and nothing else waits for the previous one. Between the start of the first and the
end of the last no other operation depends on a chain, so one event stands for all, and the dates
inside are sums of seconds that are filled in after the run.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]


class Chains(NamedTuple):
    """All chains of a schedule, one after another.

    Attributes
    ----------
    members : array of int
        Operations, chain by chain.
    first : array of int
        Position in ``members`` of the first one of each chain.
    length : array of int
        Operations of each chain, at least two.
    seconds : array of float
        Seconds of each member.
    """

    members: Ints
    first: Ints
    length: Ints
    seconds: Floats

    @property
    def heads(self) -> Ints:
        """First operation of each chain."""
        return self.members[self.first]

    @property
    def tails(self) -> Ints:
        """Last operation of each chain."""
        return self.members[self.first + self.length - 1]


class Dates(NamedTuple):
    """What is known of each operation after a run, by id; times in seconds.

    Attributes
    ----------
    start, end : array of float
    last : array of int
        Which one ended last before it could start; -1 if none.
    sequence : array of int
        Starts (as ``~op``) and ends (as ``op``) in the order of the run.
    """

    start: Floats
    end: Floats
    last: Ints
    sequence: Ints


def chains(order: Ints, joins: Bools, seconds: Floats) -> Chains:
    """Find the chains.

    Parameters
    ----------
    order : array of int
        All operations, stream by stream.
    joins : array of bool
        By id: whether an operation joins the chain of the previous one of its stream.
    seconds : array of float
        Of each operation, by id.
    """
    joined = joins[order]
    inside = joined.copy()
    inside[:-1] |= joined[1:]
    members = order[inside]
    first = np.flatnonzero(~joined[inside])
    length = np.diff(first, append=len(members))
    return Chains(members, first, length, seconds[members])


def ended(events: Ints, found: Chains, total: int) -> set[int]:
    """Operations that have ended in a run that was not completed; ``events`` as in `unfold`."""
    count = np.bincount(events, minlength=total)
    count[found.tails] *= 2
    count[found.members] = np.repeat(count[found.tails], found.length)
    return set(np.flatnonzero(count == 2).tolist())


def unfold(events: Ints, times: Floats, last: Ints, found: Chains) -> Dates:
    """Fill in what happened inside the chains.

    Parameters
    ----------
    events : array of int
        Starts and ends as they happened, by id; of a chain the head where it starts and the tail
        where it ends.
    times : array of float
        Seconds of each.
    last : array of int
        As in `Dates`; filled in here.
    found : Chains

    Notes
    -----
    In the sequence, what happens inside a chain comes before all else of the same instant, but
    not before the chain's own start.
    """
    place = np.arange(len(events))
    first = np.zeros(len(last), np.int64)
    first[events[::-1]] = place[::-1]
    whole = np.ones(len(last), np.bool_)
    whole[found.tails] = False
    starts = (first[events] == place) & whole[events]
    start, end = np.zeros(len(last)), np.zeros(len(last))
    start[events[starts]] = times[starts]
    end[events[~starts]] = times[~starts]
    sequence = np.where(starts, ~events, events)
    if not len(found.members):
        return Dates(start, end, last, sequence)
    end[found.members] = _ends(start[found.heads], found)
    before, after = _inside(found)
    start[after] = when = end[before]
    last[after] = before
    where = np.maximum(
        np.searchsorted(times, when), np.repeat(first[found.heads] + 1, found.length - 1)
    )
    # by time first, where two are put in the same place
    by = np.argsort(when, kind="stable")
    by = by[np.argsort(where[by], kind="stable")]
    pairs = np.column_stack([before[by], ~after[by]]).ravel()
    return Dates(start, end, last, np.insert(sequence, np.repeat(where[by], 2), pairs))


def _ends(start: Floats, found: Chains) -> Floats:
    """End of each member of chains that start at ``start``.

    Each chain is summed in its own order, as the clock would have gone on, to the last bit.
    """
    ends = np.empty(len(found.members))
    for count in np.unique(found.length).tolist():
        which = np.flatnonzero(found.length == count)
        rows = found.first[which, None] + np.arange(count)
        steps = np.column_stack([start[which], found.seconds[rows]])
        ends[rows] = np.cumsum(steps, axis=1)[:, 1:]
    return ends


def _inside(found: Chains) -> tuple[Ints, Ints]:
    """All neighbours in chains: the earlier ones and the later ones."""
    later = np.ones(len(found.members), np.bool_)
    later[found.first] = False
    at = np.flatnonzero(later)
    return found.members[at - 1], found.members[at]
