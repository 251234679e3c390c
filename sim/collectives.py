"""Collectives as phases of coupled flows: bytes, latency and links of each algorithm.

In one phase every participant sends at the same rate: a ring is one flow that crosses all ring
edges at once, and the slowest hop sets the rate of all. Formulas: Thakur, Rabenseifner, Gropp,
"Optimization of Collective Communication Operations in MPICH", IJHPCA 19(1), 2005; Patarasuk,
Yuan, "Bandwidth optimal all-reduce algorithms", JPDC 69(2), 2009 (ring).

In all formulas N ranks, S bytes of the whole buffer, B bytes/s and alpha seconds per hop.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Literal, NamedTuple, cast, get_args

from hwmodels.errors import InvalidInput
from sim.fabric import Usage, max_min
from sim.rings import Hop, edges, hop, merged, rings

if TYPE_CHECKING:
    from hwmodels.server import Server

Collective = Literal[
    "all_reduce", "reduce_scatter", "all_gather", "broadcast", "reduce", "all_to_all"
]
Algorithm = Literal["ring", "tree", "chain", "halving_doubling", "hierarchical"]

Pairs = Sequence[tuple[str, str]]


class Phase(NamedTuple):
    """Part of an operation in which all its bytes move at one rate.

    Attributes
    ----------
    latency : float
        Seconds before the first byte.
    nbytes : float
        Bytes that pass each edge of the phase.
    usage : tuple of (str, float)
        Resources of all edges, with multiplicity.
    cap : float
        B/s that no edge exceeds; ``inf`` if none.
    """

    latency: float
    nbytes: float
    usage: Usage
    cap: float


def phases(
    kind: str,
    group: Sequence[str],
    nbytes: float,
    server: Server,
    algorithm: str = "ring",
    *,
    chunks: int | None = None,
    groups: Sequence[Sequence[str]] | None = None,
) -> tuple[Phase, ...]:
    """Phases of one collective.

    ========================  ===================================================================
    ring                      all-reduce 2(N-1)(alpha + S/(N B)); reduce-scatter and all-gather
                              half of it; broadcast and reduce as a chain with the best number of
                              chunks; all-to-all pairwise (N-1)(alpha + S/(N B))
    tree                      binomial, not pipelined: ceil(log2 N)(alpha + S/B) for broadcast and
                              for reduce, both for all-reduce
    chain                     broadcast and reduce in q chunks: (N-2+q)(alpha + S/(q B))
    halving_doubling          N a power of two: all-reduce 2 log2(N) alpha + 2(N-1)/N S/B, and its
                              halves
    hierarchical              reduce-scatter inside each group, all-reduce of each shard across the
                              groups, all-gather inside
    ========================  ===================================================================

    Parameters
    ----------
    kind : str
        ``all_reduce``, ``reduce_scatter``, ``all_gather``, ``broadcast``, ``reduce`` (from and to
        the first of ``group``) or ``all_to_all`` (each rank holds S, S/N for each rank).
    group : sequence of str
        GPUs in rank order.
    nbytes : float
        S: bytes of the whole buffer.
    server : Server
    algorithm : str
        One of the rows above.
    chunks : int, optional
        Chunks of a chain; the best number if not given.
    groups : sequence of sequences of str, optional
        Groups of a hierarchical collective, of equal sizes; those of `islands` if not given.

    Returns
    -------
    tuple of Phase
        To run one after another; empty for one GPU.

    Raises
    ------
    InvalidInput
        If the kind or algorithm is unknown, or the algorithm cannot do it with this group.
    """
    what = cast(Collective, _known(kind, get_args(Collective), "collective"))
    how = cast(Algorithm, _known(algorithm, get_args(Algorithm), "collective algorithm"))
    if len(set(group)) != len(group) or not group:
        raise InvalidInput(
            f"{kind} over ({', '.join(group)}): a group must name each of its GPUs once."
        )
    if len(group) == 1:
        return ()
    if how == "hierarchical":
        return _hierarchical(what, group, nbytes, server, groups)
    if how == "chain" or (how == "ring" and what in ("broadcast", "reduce")):
        return _chain(what, group, nbytes, server, chunks)
    if how == "tree":
        return _tree(what, group, nbytes, server)
    if how == "halving_doubling":
        return _halving_doubling(what, group, nbytes, server)
    if what == "all_to_all":
        return _all_to_all(group, nbytes, server)
    return (_ring(what, [group], nbytes, server),)


def traffic(steps: Sequence[Phase], nbytes: float) -> Usage:
    """Bytes that a collective moves over each resource, per byte of its buffer."""
    if nbytes == 0:
        return ()
    return merged([(step.usage, step.nbytes / nbytes) for step in steps])


def bus_bandwidth(kind: str, ranks: int, nbytes: float, seconds: float) -> float:
    """Bus bandwidth in B/s as nccl-tests reports it: S / t times a factor of the kind.

    The factor is 2(N-1)/N for all-reduce, (N-1)/N for reduce-scatter, all-gather and all-to-all,
    1 for broadcast and reduce. Source: NVIDIA/nccl-tests, doc/PERFORMANCE.md.
    """
    what = _known(kind, get_args(Collective), "collective")
    return nbytes / seconds * _factor(cast(Collective, what), ranks)


def _factor(kind: Collective, ranks: int) -> float:
    if kind in ("broadcast", "reduce"):
        return 1.0
    return (2 if kind == "all_reduce" else 1) * (ranks - 1) / ranks


def _known(name: str, names: Sequence[str], what: str) -> str:
    if name in names:
        return name
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.4)
    hint = f"did you mean {near[0]}?" if near else f"it is one of {', '.join(names)}."
    raise InvalidInput(f"{name!r} is not a {what}; {hint}")


def _cannot(algorithm: str, kind: str) -> InvalidInput:
    return InvalidInput(f"The {algorithm} algorithm cannot do {kind}; take ring.")


def _phase(pairs: Pairs, nbytes: float, server: Server, steps: int = 1) -> Phase:
    """All ``pairs`` send ``nbytes`` at one rate, in ``steps`` messages one after another."""
    hops = [hop(server, *pair) for pair in pairs]
    usage = merged([(h.usage, 1.0) for h in hops])
    return Phase(steps * max(h.latency for h in hops), nbytes, usage, min(h.cap for h in hops))


def _ring(
    kind: Collective, groups: Sequence[Sequence[str]], nbytes: float, server: Server
) -> Phase:
    """One ring collective in each of several groups of equal size, all at the same time."""
    ranks = len(groups[0])
    latency, cap = 0.0, math.inf
    parts: list[tuple[Usage, float]] = []
    for group in groups:
        found = rings(group, server)
        total = sum(ring.rate for ring in found)
        for ring in found:
            hops = [hop(server, *edge) for edge in edges(ring.order)]
            share = ring.rate / total if len(found) > 1 else 1.0
            parts += [(h.usage, share) for h in hops]
            latency = max(latency, *(h.latency for h in hops))
            cap = min(cap, *(h.cap / share for h in hops))
    steps = (2 if kind == "all_reduce" else 1) * (ranks - 1)
    return Phase(steps * latency, steps * nbytes / ranks, merged(parts), cap)


def _all_to_all(group: Sequence[str], nbytes: float, server: Server) -> tuple[Phase, ...]:
    """Pairwise exchange: in step k every rank sends to the one k places on."""
    ranks = len(group)
    return tuple(
        _phase([(group[i], group[(i + k) % ranks]) for i in range(ranks)], nbytes / ranks, server)
        for k in range(1, ranks)
    )


def _tree(
    kind: Collective, group: Sequence[str], nbytes: float, server: Server
) -> tuple[Phase, ...]:
    """Binomial tree: in each round every rank that has the data sends it to one that has not."""
    if kind not in ("all_reduce", "broadcast", "reduce"):
        raise _cannot("tree", kind)
    down: list[list[tuple[str, str]]] = []
    reach = 1
    while reach < len(group):
        down.append([(group[i], group[i + reach]) for i in range(min(reach, len(group) - reach))])
        reach *= 2
    up = [[(b, a) for a, b in pairs] for pairs in reversed(down)]
    rounds = (up if kind != "broadcast" else []) + (down if kind != "reduce" else [])
    return tuple(_phase(pairs, nbytes, server) for pairs in rounds)


def _chain(
    kind: Collective, group: Sequence[str], nbytes: float, server: Server, chunks: int | None
) -> tuple[Phase, ...]:
    """Chain in chunks: in step t edge e is busy if e <= t < e + chunks."""
    if kind not in ("broadcast", "reduce"):
        raise _cannot("chain", kind)
    pairs = list(pairwise(group))
    if kind == "reduce":
        pairs = [(b, a) for a, b in reversed(pairs)]
    if chunks is None:
        chunks = _best_chunks(len(group), nbytes, [hop(server, *pair) for pair in pairs], server)
    if chunks < 1:
        raise InvalidInput(f"A chain in {chunks} chunks is impossible; take at least 1.")
    found: list[Phase] = []
    busy, since = (0, 0), 0
    last = len(pairs) + chunks - 1
    for step in range(last + 1):
        now = (max(0, step - chunks + 1), min(len(pairs), step + 1)) if step < last else (0, 0)
        if now != busy:
            if step > since:
                count = step - since
                active = pairs[busy[0] : busy[1]]
                found.append(_phase(active, count * nbytes / chunks, server, count))
            busy, since = now, step
    return tuple(found)


def _best_chunks(ranks: int, nbytes: float, hops: Sequence[Hop], server: Server) -> int:
    """Nearest whole number to sqrt((N-2) S / (alpha B)), at least 1 and at most 4096."""
    alpha = max(h.latency for h in hops)
    usage = merged([(h.usage, 1.0) for h in hops])
    (rate,) = max_min([usage], [min(h.cap for h in hops)], server.resources)
    if ranks == 2 or nbytes == 0 or rate == math.inf:
        return 1
    if alpha == 0.0:
        return 4096
    return min(max(1, round(math.sqrt((ranks - 2) * nbytes / (alpha * rate)))), 4096)


def _halving_doubling(
    kind: Collective, group: Sequence[str], nbytes: float, server: Server
) -> tuple[Phase, ...]:
    """Exchange halves at distance N/2, quarters at N/4 ... (reduce-scatter), then back."""
    if kind not in ("all_reduce", "reduce_scatter", "all_gather"):
        raise _cannot("halving_doubling", kind)
    ranks = len(group)
    if ranks & (ranks - 1):
        raise InvalidInput(
            f"halving_doubling needs 2, 4, 8 ... GPUs but the group has {ranks}; take ring."
        )
    scatter: list[Phase] = []
    distance, part = ranks // 2, nbytes / 2
    while distance:
        pairs = [(group[i], group[i ^ distance]) for i in range(ranks)]
        scatter.append(_phase(pairs, part, server))
        distance, part = distance // 2, part / 2
    gather = scatter[::-1]
    if kind == "all_reduce":
        return (*scatter, *gather)
    return tuple(scatter if kind == "reduce_scatter" else gather)


def _hierarchical(
    kind: Collective,
    group: Sequence[str],
    nbytes: float,
    server: Server,
    groups: Sequence[Sequence[str]] | None,
) -> tuple[Phase, ...]:
    if kind not in ("all_reduce", "reduce_scatter", "all_gather"):
        raise _cannot("hierarchical", kind)
    inside = [list(part) for part in (groups or islands(group, server))]
    sizes = {len(part) for part in inside}
    if len(sizes) != 1 or sorted(gpu for part in inside for gpu in part) != sorted(group):
        raise InvalidInput(
            f"hierarchical needs groups of equal size that hold each of {', '.join(group)} once, "
            f"but got {' | '.join(', '.join(part) for part in inside)}; name other groups or "
            "take ring."
        )
    size = sizes.pop()
    found: list[Phase] = []
    across = [list(rank) for rank in zip(*inside, strict=True)]
    if size > 1 and kind != "all_gather":
        found.append(_ring("reduce_scatter", inside, nbytes, server))
    if len(inside) > 1:
        found.append(_ring(kind, across, nbytes / size, server))
    if size > 1 and kind != "reduce_scatter":
        found.append(_ring("all_gather", inside, nbytes, server))
    return tuple(found)


def islands(group: Sequence[str], server: Server) -> tuple[tuple[str, ...], ...]:
    """Split a group where the server has seams: GPUs joined by its best paths belong together.

    A path is better by kind (NVLink, then direct PCIe, then staged) and then by latency, which
    grows with the switches on the way. The best class of paths that joins the group into more
    than one island and fewer than one per GPU decides; without any, the whole group is one.
    """
    rank = {"nvlink": 0, "pcie": 1}
    classes: dict[tuple[int, float], list[tuple[str, str]]] = {}
    for i, a in enumerate(group):
        for b in group[i + 1 :]:
            route = server.route(a, b)
            quality = (rank.get(route.kind, 2), route.latency)
            classes.setdefault(quality, []).append((a, b))
    leader = {gpu: gpu for gpu in group}
    for quality in sorted(classes):
        for a, b in classes[quality]:
            old, new = leader[b], leader[a]
            leader = {gpu: new if found == old else found for gpu, found in leader.items()}
        count = len(set(leader.values()))
        if 1 < count < len(group):
            first = dict.fromkeys(leader.values())
            return tuple(tuple(g for g in group if leader[g] == name) for name in first)
        if count == 1:
            break
    return (tuple(group),)
