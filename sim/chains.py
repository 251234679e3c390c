"""Chains: rows of compute operations that nobody outside can tell apart, run as one event.

An operation joins the chain of the previous one of its stream if both compute, it waits for
nothing else, and nothing else waits for the previous one. Between the start of the first and the
end of the last no other operation depends on a chain, so one event stands for all, and the dates
inside are sums of seconds that are filled in after the run.
"""

from __future__ import annotations

from collections.abc import Sequence
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
    """What is known of each operation after a run, by id; times in seconds."""

    ready: Floats
    start: Floats
    end: Floats
    last: Ints


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


def fill_in(found: Chains, dates: Dates) -> None:
    """Write the dates inside all chains; those of the heads' starts are there."""
    members = found.members
    if not len(members):
        return
    begin = dates.start[found.heads]
    # Chain by chain in their own order, as the clock would have gone on, to the last bit.
    for count in np.unique(found.length).tolist():
        which = np.flatnonzero(found.length == count)
        rows = found.first[which, None] + np.arange(count)
        steps = np.column_stack([begin[which], found.seconds[rows]])
        dates.end[members[rows]] = np.cumsum(steps, axis=1)[:, 1:]
    before, after = _inside(found)
    dates.start[after] = dates.ready[after] = dates.end[before]
    dates.last[after] = before


def sequence(log: Sequence[int], found: Chains, dates: Dates) -> Ints:
    """Starts (as ``~op``) and ends (as ``op``) of all operations in the order of the run.

    Parameters
    ----------
    log : sequence of int
        Starts and ends as they happened, by id; of a chain the head where it starts and the tail
        where it ends.
    found : Chains
    dates : Dates
        Of all operations.

    Notes
    -----
    What happens inside a chain comes before all else of the same instant, but not before the
    chain's own start.
    """
    events = np.array(log, np.int64)
    place = np.arange(len(events))
    earliest = np.zeros(len(dates.end), np.int64)
    earliest[events[::-1]] = place[::-1]
    starts = earliest[events] == place
    whole = np.ones(len(dates.end), np.bool_)
    whole[found.tails] = False
    starts &= whole[events]
    signed = np.where(starts, ~events, events)
    if not len(found.members):
        return signed
    times = np.where(starts, dates.start[events], dates.end[events])
    before, after = _inside(found)
    when = dates.end[before]
    where = np.maximum(
        np.searchsorted(times, when), np.repeat(earliest[found.heads] + 1, found.length - 1)
    )
    # by time first, where two are put in the same place
    by = np.argsort(when, kind="stable")
    by = by[np.argsort(where[by], kind="stable")]
    pairs = np.column_stack([before[by], ~after[by]]).ravel()
    return np.insert(signed, np.repeat(where[by], 2), pairs)


def _inside(found: Chains) -> tuple[Ints, Ints]:
    """All neighbours in chains: the earlier ones and the later ones."""
    later = np.ones(len(found.members), np.bool_)
    later[found.first] = False
    at = np.flatnonzero(later)
    return found.members[at - 1], found.members[at]
