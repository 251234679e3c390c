"""Collects operations while a schedule is planned: ids, streams, edges and hand-overs."""

from __future__ import annotations

from collections.abc import Iterable

from hwmodels.compute import Work
from workloads.schedule import Grant, Kind, Op, Place


class Emitter:
    """Grows the list of ops; every edge points to an op that was emitted before."""

    def __init__(self) -> None:
        self.grants: list[Grant] = []
        self._fields: list[tuple[object, ...]] = []
        self._allocs: list[tuple[Place, ...]] = []
        self._frees: list[tuple[Place, ...]] = []
        self._stream_of: list[str] = []
        self._after: list[tuple[int, ...]] = []

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

        Of several waits on one stream only the last is kept, and none on the op's own stream,
        because streams are in order; -1 stands for the time before the first op.
        """
        stream_of = self._stream_of
        latest: dict[str | int, int] = {}
        for op in waits:
            if op >= 0:
                queue = stream_of[op] or op
                if queue != stream and latest.get(queue, -1) < op:
                    latest[queue] = op
        after = tuple(sorted(latest.values())) if len(latest) > 1 else tuple(latest.values())
        found = len(self._fields)
        self._fields.append(
            (found, kind, stream, after, device, phase, layers, span, work, nbytes, peer, group,
             reads, writes)
        )  # fmt: skip
        self._allocs.append(allocs)
        self._frees.append(frees)
        self._stream_of.append(stream)
        self._after.append(after)
        return found

    def free(self, place: Place, touched: dict[str, int]) -> int:
        """Free ``place`` once the last op of each stream in ``touched`` has ended.

        Returns
        -------
        int
            The op whose end frees the place: the last toucher when it waits for all others,
            else a new ``free`` op.
        """
        last = max(touched.values())
        if len(touched) > 1 and not self._covers(last, touched):
            return self.emit(
                "free", "", place[1], "free", touched.values(), frees=(place,)
            )  # fmt: skip
        self._frees[last] += (place,)
        return last

    def _covers(self, last: int, touched: dict[str, int]) -> bool:
        stream_of = self._stream_of
        own = stream_of[last]
        reached = {stream_of[op]: op for op in self._after[last]}
        for stream, op in touched.items():
            if op != last and stream != own and reached.get(stream, -1) < op:
                return False
        return True

    def ops(self) -> tuple[Op, ...]:
        """All ops emitted so far."""
        make = Op._make
        return tuple(
            make((*fields, allocs, frees))
            for fields, allocs, frees in zip(self._fields, self._allocs, self._frees, strict=True)
        )
