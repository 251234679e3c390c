"""What holds for every server, on random ones."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

import hwmodels as hw
from hwmodels.check import check
from hwmodels.errors import InvalidInput
from hwmodels.gpu import Reach
from hwmodels.link import Width, pcie_effective
from hwmodels.parts import GPUSlot, Host, Link, Parts, Root, Store, Switch
from hwmodels.read import parts_from_text
from hwmodels.write import to_toml

RATES = st.floats(min_value=1.0, max_value=1e15)
LIMITS = st.one_of(st.just(math.inf), RATES)
TIMES = st.floats(min_value=0.0, max_value=1.0, allow_subnormal=False)
REACHES: list[Reach | None] = [None, "none", "root", "socket", "server"]


@st.composite
def servers(draw: st.DrawFn) -> Parts:
    """Random forests of switches under random roots and sockets, some with NVLink and a drive."""
    sockets = draw(st.integers(1, 3))
    hosts = tuple(
        Host(
            f"mem{i}", f"s{i % sockets}", draw(st.integers(1, 2**45)), draw(RATES),
            draw(st.integers(1, 128)), draw(RATES), draw(RATES),
        )
        for i in range(draw(st.integers(sockets, 4)))
    )  # fmt: skip
    roots = tuple(
        Root(f"r{i}", draw(st.sampled_from(hosts)).name, draw(LIMITS))
        for i in range(draw(st.integers(1, 4)))
    )
    above = [root.name for root in roots]
    links: list[Link] = []

    def pcie(node: str) -> None:
        parent = draw(st.sampled_from(above))
        width = draw(st.sampled_from([None, Width(3, 16), Width(5, 8)]))
        rate = draw(RATES) if width is None or draw(st.booleans()) else pcie_effective(width)
        links.append(
            Link(f"l.{node}", (node, parent), "pcie", rate, draw(TIMES), draw(LIMITS), width)
        )

    switches: list[Switch] = []
    for i in range(draw(st.integers(0, 4))):
        pcie(f"sw{i}")
        above.append(f"sw{i}")
        switches.append(Switch(f"sw{i}", draw(st.booleans())))
    kinds = [hw.gpu(name) for name in ("gtx-1080-ti", "rtx-4090", "rtx-a6000", "t4")]
    gpus: list[GPUSlot] = []
    for i in range(draw(st.integers(1, 6))):
        pcie(f"g{i}")
        limits = (draw(LIMITS), draw(LIMITS), draw(LIMITS))
        gpus.append(GPUSlot(f"g{i}", draw(st.sampled_from(kinds)), *limits))
    stores: tuple[Store, ...] = ()
    if draw(st.booleans()):
        pcie("disk")
        stores = (Store("disk", draw(st.integers(1, 2**45)), draw(RATES), draw(RATES)),)
    pairs = list(itertools.combinations([slot.name for slot in gpus], 2))
    for a, b in draw(st.lists(st.sampled_from(pairs), unique=True)) if pairs else []:
        links.append(Link(f"nv.{a}.{b}", (a, b), "nvlink", draw(RATES), draw(TIMES)))
    for i in range(1, sockets):
        links.append(Link(f"qpi{i}", (f"s{i - 1}", f"s{i}"), "socket", draw(RATES), draw(TIMES)))
    return Parts(
        name="random",
        gpus=tuple(gpus),
        hosts=hosts,
        roots=roots,
        links=tuple(draw(st.permutations(links))),
        switches=tuple(switches),
        stores=stores,
        peer=draw(st.sampled_from(REACHES)),
        host_latency=draw(TIMES),
        description=draw(st.text(st.characters(exclude_categories=("Cs",)), max_size=20)),
    )


def places(server: hw.Server) -> tuple[str, ...]:
    return (*server.gpus, *server.hosts, *server.stores)


@given(servers())
def test_every_pair_is_routable_over_known_capacities(parts: Parts) -> None:
    server = hw.Server(parts)
    for a, b in itertools.permutations(places(server), 2):
        route = server.route(a, b)
        assert route.usage
        assert list(route.usage) == sorted(route.usage)
        assert all(name in server.resources for name, _ in route.usage)
        assert all(times in (1.0, 2.0, 4.0) for _, times in route.usage)
        assert route.latency >= 0.0
        assert route.cap > 0.0


def mirrored(resource: str) -> str:
    """Same resource on the way back."""
    for pair in ((".read", ".write"), (".to_memory", ".from_memory")):
        for one, other in (pair, pair[::-1]):
            if resource.endswith(one):
                return resource.removesuffix(one) + other
    a, arrow, b = resource.partition(">")
    return f"{b}>{a}" if arrow else resource


@given(servers())
def test_the_way_back_mirrors_the_way(parts: Parts) -> None:
    server = hw.Server(parts)
    for a, b in itertools.combinations(places(server), 2):
        there, back = server.route(a, b), server.route(b, a)
        assert there.kind == back.kind
        if there.kind == "staged":  # staged near its source, so its DRAM differs
            continue
        assert {(mirrored(name), x) for name, x in there.usage} == set(back.usage)
        assert there.latency == pytest.approx(back.latency, rel=1e-12)


@given(servers())
def test_written_servers_come_back_equal(parts: Parts) -> None:
    text = to_toml(parts)
    again = parts_from_text(text, "random.toml", hw.gpu)
    assert again == parts
    assert to_toml(again) == text


@given(servers())
def test_peer_means_a_copy_that_is_not_staged(parts: Parts) -> None:
    server = hw.Server(parts)
    for a, b in itertools.permutations(server.gpus, 2):
        assert server.peer(a, b) == (server.route(a, b).kind in ("nvlink", "pcie"))


@given(servers())
def test_order_of_the_links_does_not_matter(parts: Parts) -> None:
    turned = hw.Server(replace(parts, links=parts.links[::-1]))
    server = hw.Server(parts)
    for a, b in itertools.permutations(places(server), 2):
        one, other = server.route(a, b), turned.route(a, b)
        assert one == other


@given(servers(), st.data())
def test_damage_is_refused(parts: Parts, data: st.DataObject) -> None:
    pcie = [link for link in parts.links if link.kind == "pcie"]
    broken = data.draw(st.sampled_from(pcie))
    rest = tuple(link for link in parts.links if link is not broken)
    damages = [
        rest,  # something is cut off
        (*parts.links, replace(broken, name="twice")),
        (*rest, replace(broken, bandwidth=0.0)),
        (*rest, replace(broken, bandwidth=-1.0)),
        (*rest, replace(broken, bandwidth=math.nan)),
        (*rest, replace(broken, latency=-1.0)),
        (*rest, replace(broken, ends=(broken.ends[0], "nowhere"))),
        (*rest, replace(broken, ends=(broken.ends[0], broken.ends[0]))),
        (*rest, replace(broken, kind="nvlink")),
    ]
    with pytest.raises(InvalidInput) as error:
        check(replace(parts, links=data.draw(st.sampled_from(damages))))
    assert "\n" not in str(error.value)
    assert str(error.value)[-1] in ".?"
