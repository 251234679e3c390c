"""Collects operations while a schedule is planned: ids, streams, edges and hand-overs."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable

from hwmodels.compute import Work
from workloads.schedule import NEW, Grant, Kind, Op, Place


class Emitter:
    """Grows the list of ops; every edge points to an op that was emitted before."""

    def __init__(self) -> None:
        self.grants: list[Grant] = []
        self._fields: list[tuple[object, ...]] = []
        self._frees: list[tuple[Place, ...]] = []
        self._stream_of: list[str] = []
        # waited[stream][other] = (ops of stream, latest ops of other that they wait for), growing
        self._waited: dict[str, dict[str, tuple[list[int], list[int]]]] = {}

    @property
    def next_id(self) -> int:
        """Id that the next op will have."""
        return len(self._fields)

    def emit(
        self,
        kind: Kind,
        stream: str,
        device: str,
        phase: str,
        waits: Iterable[int],
        layers: tuple[int, int] = (-1, -1),
        span: tuple[int, int] = (0, 0),
        work: Work | None = None,
        nbytes: int = 0,
        peer: str = "",
        group: tuple[str, ...] = (),
        reads: tuple[int, ...] = (),
        writes: tuple[int, ...] = (),
        allocs: tuple[Place, ...] = (),
        frees: tuple[Place, ...] = (),
    ) -> int:
        """Append one op and return its id.

        Waits that streams imply are left out: on the op's own stream, on any but the last op of
        another stream, and on what an earlier op of its own stream waited for. -1 stands for the
        time before the first op.
        """
        found = len(self._fields)
        after = self._edges(found, stream, waits) if stream else tuple(sorted(set(waits)))
        self._fields.append(
            (found, kind, stream, after, device, phase, layers, span, work, nbytes, peer, group,
             reads, writes, allocs)
        )  # fmt: skip
        self._frees.append(frees)
        self._stream_of.append(stream)
        return found

    def _edges(self, found: int, stream: str, waits: Iterable[int]) -> tuple[int, ...]:
        stream_of = self._stream_of
        latest: dict[str | int, int] = {}
        for op in waits:
            other = stream_of[op] if op >= 0 else stream
            if other != stream:
                other = other or op
                if latest.get(other, -1) < op:
                    latest[other] = op
        if not latest:
            return ()
        waited = self._waited.setdefault(stream, {})
        edges: list[int] = []
        for other, op in latest.items():
            if isinstance(other, str):
                known = waited.get(other)
                if known is None:
                    waited[other] = ([found], [op])
                elif known[1][-1] >= op:
                    continue
                else:
                    known[0].append(found)
                    known[1].append(op)
            edges.append(op)
        edges.sort()
        return tuple(edges)

    def free(self, place: Place, touched: dict[str, int]) -> int:
        """Free ``place`` once the last op of each stream in ``touched`` has ended.

        Returns
        -------
        int
            The op whose end frees the place: the last toucher when it waits for all others,
            else a new ``free`` op.
        """
        if len(touched) == 1:
            (last,) = touched.values()
        else:
            last = max(touched.values())
            if not self._covers(last, touched):
                return self.emit(
                    "free", "", place[1], "free", touched.values(), frees=(place,)
                )  # fmt: skip
        self._frees[last] += (place,)
        return last

    def _covers(self, last: int, touched: dict[str, int]) -> bool:
        """Whether ``last``, or an op before it on its stream, waits for all other touchers."""
        waited = self._waited.get(self._stream_of[last], {})
        for stream, op in touched.items():
            if op == last:
                continue
            known = waited.get(stream)
            if known is None:
                return False
            first = bisect_left(known[1], op)
            if first == len(known[1]) or known[0][first] > last:
                return False
        return True

    def ops(self) -> tuple[Op, ...]:
        """All ops emitted so far."""
        rows = zip(self._fields, self._frees, strict=True)
        return tuple([NEW(Op, (*fields, frees)) for fields, frees in rows])
