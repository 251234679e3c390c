"""Collectives: closed forms of time and bytes, identities, ring orders."""

from __future__ import annotations

import math
from itertools import permutations

import pytest
from wires import Draft, Way, Wires, star, traffic

import hwmodels
from hwmodels.errors import InvalidInput
from sim.collectives import bus_bandwidth, islands, phases
from sim.rings import edges, hop, merged, rings

ALPHA, B, S = 2e-6, 10e9, 840 * 10**6
KINDS = ["all_reduce", "reduce_scatter", "all_gather", "broadcast", "reduce", "all_to_all"]
RANKS = [2, 3, 4, 5, 8]


def ports(count, **options):
    return star(count, B, latency=ALPHA, **options)


def run(kind, server, nbytes=S, algorithm="ring", group=None):
    draft = Draft()
    draft.collective(kind, group or server.gpus, nbytes)
    timeline = draft.run(server, algorithm)
    return float(timeline.end[0]), traffic(timeline, draft.ops)


def exactly(value):
    return pytest.approx(value, rel=1e-9)


def sent(bytes_of, gpu):
    return bytes_of.get(f"{gpu}>", 0.0)


@pytest.mark.parametrize("n", RANKS)
def test_ring(n):
    half = (n - 1) * (ALPHA + S / (n * B))
    for kind, steps in [("reduce_scatter", 1), ("all_gather", 1), ("all_reduce", 2)]:
        seconds, moved = run(kind, ports(n))
        assert seconds == exactly(steps * half)
        for gpu in ports(n).gpus:
            assert sent(moved, gpu) == exactly(steps * (n - 1) / n * S)
            assert moved[f">{gpu}"] == exactly(steps * (n - 1) / n * S)


@pytest.mark.parametrize("algorithm", ["ring", "halving_doubling", "hierarchical"])
@pytest.mark.parametrize("n", [2, 4, 8])
def test_all_reduce_is_reduce_scatter_and_all_gather(algorithm, n):
    whole, moved = run("all_reduce", ports(n), algorithm=algorithm)
    first, one = run("reduce_scatter", ports(n), algorithm=algorithm)
    second, two = run("all_gather", ports(n), algorithm=algorithm)
    assert whole == exactly(first + second)
    assert moved == exactly({link: one[link] + two[link] for link in one})


@pytest.mark.parametrize("kind", KINDS)
def test_one_gpu_takes_no_time_and_moves_nothing(kind):
    assert phases(kind, ("gpu0",), S, ports(2)) == ()
    assert run(kind, ports(2), group=("gpu0",)) == (0.0, {})


def test_two_gpus_all_reduce():
    assert run("all_reduce", ports(2))[0] == exactly(S / B + 2 * ALPHA)


@pytest.mark.parametrize("buckets", [1, 3, 10])
def test_buckets_pay_latency_each(buckets):
    n, server, draft = 4, ports(4), Draft()
    for _ in range(buckets):
        draft.collective("all_reduce", server.gpus, 60 * 10**6 // buckets)
    expected = buckets * 2 * (n - 1) * ALPHA + 2 * (n - 1) / n * 60e6 / B
    assert draft.run(server).end[-1] == exactly(expected)


@pytest.mark.parametrize("n", [2, 4, 8, 16])
def test_halving_doubling(n):
    seconds, moved = run("all_reduce", ports(n), algorithm="halving_doubling")
    assert seconds == exactly(2 * math.log2(n) * ALPHA + 2 * (n - 1) / n * S / B)
    assert sent(moved, "gpu0") == exactly(2 * (n - 1) / n * S)


@pytest.mark.parametrize("n", RANKS)
def test_binomial_tree(n):
    rounds = math.ceil(math.log2(n))
    seconds, moved = run("all_reduce", ports(n), algorithm="tree")
    assert seconds == exactly(2 * rounds * (ALPHA + S / B))
    assert sent(moved, "gpu0") == exactly(rounds * S)  # the root sends in each round down
    assert run("broadcast", ports(n), algorithm="tree")[0] == exactly(rounds * (ALPHA + S / B))
    assert sum(run("reduce", ports(n), algorithm="tree")[1].values()) == exactly(2 * (n - 1) * S)


@pytest.mark.parametrize("kind", ["broadcast", "reduce"])
@pytest.mark.parametrize("n", RANKS)
@pytest.mark.parametrize("chunks", [1, 2, 3, 7, 40])
def test_chain_in_chunks(kind, n, chunks):
    steps = phases(kind, ports(n).gpus, S, ports(n), "chain", chunks=chunks)
    seconds = sum(step.latency + step.nbytes / B for step in steps)
    assert seconds == exactly((n - 2 + chunks) * (ALPHA + S / (chunks * B)))
    total = {}
    for step in steps:
        for link, multiplicity in step.usage:
            total[link] = total.get(link, 0.0) + multiplicity * step.nbytes
    assert list(total.values()) == exactly([S] * (2 * (n - 1)))  # each hop: out of one, into one
    sender = "gpu0" if kind == "broadcast" else f"gpu{n - 1}"
    assert f"{sender}>" in total
    assert f">{sender}" not in total


def test_broadcast_takes_the_best_number_of_chunks():
    n = 6
    best = round(math.sqrt((n - 2) * S / (ALPHA * B)))
    seconds, moved = run("broadcast", ports(n))
    assert seconds == exactly((n - 2 + best) * (ALPHA + S / (best * B)))
    for other in (best // 2, best * 2):
        assert seconds < (n - 2 + other) * (ALPHA + S / (other * B))
    assert moved["gpu0>"] == exactly(S)


@pytest.mark.parametrize("n", RANKS)
def test_all_to_all(n):
    seconds, moved = run("all_to_all", ports(n))
    assert seconds == exactly((n - 1) * (ALPHA + S / (n * B)))
    assert [sent(moved, gpu) for gpu in ports(n).gpus] == exactly([(n - 1) / n * S] * n)


def nodes(count, size, inside, across):
    """GPUs with ports of ``inside`` B/s; each has its own link of ``across`` to other nodes."""
    gpus = tuple(f"gpu{i}" for i in range(count * size))
    resources, ways = {}, {}
    for a in gpus:
        resources |= {f"{a}>": inside, f">{a}": inside, f"{a}>>": across, f">>{a}": across}
        for b in gpus:
            near = int(a[3:]) // size == int(b[3:]) // size
            usage = ((f"{a}>", 1.0), (f">{b}", 1.0)) if near else ((f"{a}>>", 1.0), (f">>{b}", 1.0))
            ways[a, b] = Way(usage, ALPHA if near else 5 * ALPHA, kind="nvlink" if near else "pcie")
    return Wires(resources, ways, gpus)


@pytest.mark.parametrize(("n", "g"), [(2, 2), (2, 4), (3, 2), (4, 4)])
def test_hierarchical(n, g):
    inside, across = 40e9, 5e9
    server = nodes(n, g, inside, across)
    expected = 2 * (g - 1) / g * S / inside + 2 * (n - 1) / n * (S / g) / across
    expected += (g - 1) * 2 * ALPHA + 2 * (n - 1) * 5 * ALPHA
    assert run("all_reduce", server, algorithm="hierarchical")[0] == exactly(expected)
    groups = tuple(tuple(f"gpu{i * g + j}" for j in range(g)) for i in range(n))
    assert islands(server.gpus, server) == groups
    named = phases("all_reduce", server.gpus, S, server, "hierarchical", groups=groups)
    assert named == phases("all_reduce", server.gpus, S, server, "hierarchical")


def test_hierarchical_with_one_card_a_node_pays_g_times_across():
    n, g, inside, across = 2, 4, 40e9, 5e9
    gpus = tuple(f"gpu{i}" for i in range(n * g))
    resources = {f"node{i}>": across for i in range(n)} | {f">node{i}": across for i in range(n)}
    ways = {}
    for a in gpus:
        resources |= {f"{a}>": inside, f">{a}": inside}
        for b in gpus:
            i, j = int(a[3:]) // g, int(b[3:]) // g
            usage = ((f"{a}>", 1.0), (f">{b}", 1.0))
            usage = usage if i == j else ((f"node{i}>", 1.0), (f">node{j}", 1.0))
            ways[a, b] = Way(usage, 0.0, kind="nvlink" if i == j else "pcie")
    seconds, moved = run("all_reduce", Wires(resources, ways, gpus), algorithm="hierarchical")
    assert seconds == exactly(2 * (g - 1) / g * S / inside + g * 2 * (n - 1) / n * (S / g) / across)
    assert moved["node0>"] == exactly(2 * (n - 1) / n * S)


def switches(port, uplink, mixed=False):
    """Two switches of four; ``mixed`` puts neighbours in the numbering on different ones."""
    gpus = tuple(f"gpu{i}" for i in range(8))
    home = {gpu: (i % 2 if mixed else i // 4) for i, gpu in enumerate(gpus)}
    resources = {f"sw{i}>": uplink for i in (0, 1)} | {f">sw{i}": uplink for i in (0, 1)}
    ways = {}
    for a in gpus:
        resources |= {f"{a}>": port, f">{a}": port}
        for b in gpus:
            usage = [(f"{a}>", 1.0), (f">{b}", 1.0)]
            if home[a] != home[b]:
                usage += [(f"sw{home[a]}>", 1.0), (f">sw{home[b]}", 1.0)]
            ways[a, b] = Way(tuple(usage), ALPHA, kind="pcie")
    return Wires(resources, ways, gpus)


@pytest.mark.parametrize("mixed", [False, True])
def test_a_ring_crosses_each_uplink_once(mixed):
    # grouped by switch, an uplink carries one edge: no slower than the ports
    server = switches(B, B, mixed)
    seconds, moved = run("all_reduce", server)
    assert seconds == exactly(14 * (ALPHA + S / (8 * B)))
    for i in (0, 1):
        assert moved[f"sw{i}>"] == moved[f">sw{i}"] == exactly(14 / 8 * S)


def test_an_uplink_slower_than_the_ports_decides():
    seconds, _ = run("all_reduce", switches(B, B / 4))
    assert seconds == exactly(14 * (ALPHA + S / (8 * B / 4)))


def test_a_swap_on_the_uplink_slows_the_ring():
    # Ring edges and the swap share gpu0's outgoing port: half each until the swap's end at 2 V / B
    server = ports(4)
    draft = Draft()
    swap = draft.copy("gpu0", "host0", 10**9)
    ring = draft.collective("all_reduce", server.gpus, 10**10)
    timeline = draft.run(server)
    start = 6 * ALPHA
    rest = 10**9 - (start - ALPHA) * B
    assert timeline.end[swap] == exactly(start + 2 * rest / B)
    total = 1.5 * 10**10
    assert timeline.end[ring] == exactly(start + 2 * rest / B + (total - rest) / B)


@pytest.mark.parametrize("seed", range(6))
def test_ring_order_is_the_best_of_all(seed):
    """Against all orders, on links of scattered speeds."""
    gpus = tuple(f"gpu{i}" for i in range(6))
    resources, ways = {"bus": 11.0}, {}
    for i, a in enumerate(gpus):
        for j, b in enumerate(gpus):
            if a != b:
                resources[f"{a}>{b}"] = 1.0 + (7 * i + 11 * j + 5 * seed + 3 * i * j) % 13
                shared = (("bus", 1.0),) if (i + j + seed) % 3 == 0 else ()
                ways[a, b] = Way(((f"{a}>{b}", 1.0), *shared), ALPHA, kind="pcie")
    server = Wires(resources, ways, gpus)

    def rate(order):
        usage = merged([(hop(server, *edge).usage, 1.0) for edge in edges(order)])
        return min(resources[link] / multiplicity for link, multiplicity in usage)

    best = max(rate(("gpu0", *rest)) for rest in permutations(gpus[1:]))
    found = rings(gpus, server)
    assert found[0].rate == rate(found[0].order) == best


def test_cube_mesh_carries_several_rings():
    # V100 DGX-1: six NVLinks a GPU. Two double-link rings (one each way) and two single-link ones.
    server = hwmodels.server("dgx-1")
    found = rings(server.gpus, server)
    link = found[-1].rate
    assert [ring.rate / link for ring in found] == exactly([2.0, 2.0, 1.0, 1.0])
    for ring in found:
        assert all(server.route(*edge).kind == "nvlink" for edge in edges(ring.order))
    steps = phases("all_reduce", server.gpus, S, server)
    assert sum(m for _, m in steps[0].usage) == exactly(8.0)


@pytest.mark.parametrize(
    ("kind", "factor"),
    [("all_reduce", 1.75), ("reduce_scatter", 0.875), ("all_gather", 0.875), ("all_to_all", 0.875),
     ("broadcast", 1.0), ("reduce", 1.0)],
)  # fmt: skip
def test_bus_bandwidth(kind, factor):
    assert bus_bandwidth(kind, 8, 1e9, 0.1) == exactly(factor * 1e10)
    if kind not in ("broadcast", "reduce"):
        server = star(8, B)  # without latency, bus bandwidth is link bandwidth
        assert bus_bandwidth(kind, 8, S, run(kind, server)[0]) == exactly(B)


@pytest.mark.parametrize(
    ("kind", "algorithm", "n", "words"),
    [
        ("all_reduse", "ring", 4, "did you mean all_reduce"),
        ("all_reduce", "rings", 4, "did you mean ring"),
        ("all_reduce", "halving_doubling", 6, "needs 2, 4, 8 ... GPUs but the group has 6"),
        ("broadcast", "halving_doubling", 4, "cannot do broadcast"),
        ("all_gather", "tree", 4, "cannot do all_gather"),
        ("all_reduce", "chain", 4, "cannot do all_reduce"),
        ("all_to_all", "hierarchical", 4, "cannot do all_to_all"),
    ],
)
def test_what_an_algorithm_cannot_do(kind, algorithm, n, words):
    with pytest.raises(InvalidInput, match=words):
        phases(kind, ports(n).gpus, S, ports(n), algorithm)


def test_bad_groups():
    with pytest.raises(InvalidInput, match="name each of its GPUs once"):
        phases("all_reduce", ("gpu0", "gpu0"), S, ports(2))
    split = (("gpu0",), ("gpu1", "gpu2"))
    with pytest.raises(InvalidInput, match="groups of equal size"):
        phases("all_reduce", ports(3).gpus, S, ports(3), "hierarchical", groups=split)
    with pytest.raises(InvalidInput, match="at least 1"):
        phases("broadcast", ports(3).gpus, S, ports(3), "chain", chunks=0)
