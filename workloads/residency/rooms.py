"""Space hand-over: every allocation names the frees that made its room."""

from __future__ import annotations

from collections import deque

from workloads.schedule import NEW, Grant


class Rooms:
    """Free memory of one device as a queue of pieces, each made by one op.

    Pieces are handed out oldest first: the op that made an old piece has most likely ended, so
    that the wait which the hand-over adds is short.

    Parameters
    ----------
    device : str
    capacity : int
        Bytes; at first one piece that no op made (source -1).
    """

    __slots__ = ("_pieces", "capacity", "device", "free")

    def __init__(self, device: str, capacity: int) -> None:
        self.device = device
        self.capacity = capacity
        self.free = capacity
        self._pieces: deque[tuple[int, int]] = deque([(-1, capacity)])

    def give(self, op: int, nbytes: int) -> None:
        """Op ``op`` frees ``nbytes`` where it ends."""
        self.free += nbytes
        self._pieces.append((op, nbytes))

    def take(self, op: int, nbytes: int, grants: list[Grant], waits: list[int]) -> None:
        """Op ``op`` allocates ``nbytes``; appends the hand-overs and the ops to wait for.

        The caller has made sure that ``nbytes`` are free.
        """
        self.free -= nbytes
        pieces, device = self._pieces, self.device
        while nbytes:
            source, size = pieces[0]
            if size > nbytes:
                pieces[0] = (source, size - nbytes)
                size = nbytes
            else:
                pieces.popleft()
            grants.append(NEW(Grant, (op, device, source, size)))
            if source >= 0:
                waits.append(source)
            nbytes -= size
