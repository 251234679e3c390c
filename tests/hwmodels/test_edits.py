"""Changes of a server: each gives a new, valid server, and says what it cannot do."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import hwmodels
from hwmodels.catalog import load
from hwmodels.errors import CommodiousError, InvalidInput, UnknownName
from hwmodels.link import Width, pcie_effective
from hwmodels.server import Server

BOX = "pcie-4u-4x1080ti"


@pytest.mark.parametrize("name", hwmodels.servers())
def test_fewer_gpus_keep_their_routes(name: str) -> None:
    box = hwmodels.server(name)
    for count in range(1, len(box.gpus) + 1):
        less = box.with_gpus(count)
        assert less.gpus == box.gpus[:count]
        for a in less.gpus:
            assert less.route(a, less.host_of(a)) == box.route(a, box.host_of(a))
            for b in less.gpus:
                assert less.route(a, b) == box.route(a, b)
    assert box.with_gpus(len(box.gpus)) == box


def test_nvswitch_goes_only_with_its_last_gpu() -> None:
    for name in ("dgx-2", "dgx-a100"):
        assert hwmodels.server(name).with_gpus(1).parts.nvswitches != ()


def test_unverified_forgets_what_was_pulled_out() -> None:
    box = hwmodels.server("8x4090").with_pcie(3, 8)
    less = box.with_gpus(2)
    names = {x.partition(".")[0] for x in less.parts.unverified}
    assert not names & set(box.gpus[2:])
    assert not names & ({x.name for x in box.links} - {x.name for x in less.links})


def test_pcie_of_slots_is_no_better_than_the_gpu() -> None:
    box = hwmodels.server(BOX).with_pcie(4, 16)  # GTX 1080 Ti are gen3
    old = hwmodels.server(BOX)
    assert box.link("pcie0") == old.link("pcie0")
    assert box.parts.gpus == old.parts.gpus
    share = old.link("uplink0").bandwidth / pcie_effective(Width(3, 16))
    assert box.link("uplink0").width == Width(4, 16)
    assert math.isclose(box.link("uplink0").bandwidth, share * pcie_effective(Width(4, 16)))
    assert "uplink0.bandwidth" in box.parts.unverified
    assert box.link("sockets") == old.link("sockets")


def test_pcie_scales_measured_limits_and_says_so() -> None:
    old = hwmodels.server(BOX)
    box = old.with_pcie(3, 8)
    assert box.link("pcie1").bandwidth == pcie_effective(Width(3, 8))
    assert math.isclose(box.parts.gpus[1].peer, old.parts.gpus[1].peer / 2)
    assert box.parts.gpus[1].h2d == math.inf
    assert {"gpu1.peer", "uplink0.bandwidth"} <= set(box.parts.unverified)
    assert "pcie1.bandwidth" not in box.parts.unverified
    assert "gpu1.h2d" not in box.parts.unverified


def test_pcie_of_a_link_known_by_bandwidth_only_and_of_a_duplex_limit() -> None:
    parts = hwmodels.server(BOX).parts
    links = (
        replace(x, width=None, bandwidth=10e9, duplex=15e9) if x.name == "uplink0" else x
        for x in parts.links
    )
    new = Server(replace(parts, links=tuple(links))).with_pcie(4, 16).link("uplink0")
    assert new.bandwidth == pcie_effective(Width(4, 16))
    assert math.isclose(new.duplex, 1.5 * new.bandwidth)


@given(st.sampled_from(hwmodels.servers()), st.integers(1, 6), st.sampled_from((1, 4, 8, 16)))
def test_pcie_laws(name: str, generation: int, lanes: int) -> None:
    box = hwmodels.server(name)
    new = box.with_pcie(generation, lanes)
    again = new.with_pcie(generation, lanes)
    for once, twice in zip(new.links, again.links, strict=True):
        assert once.width == twice.width
        assert math.isclose(once.bandwidth, twice.bandwidth)
        if once.kind != "pcie":
            assert once == box.link(once.name)
    for slot in new.parts.gpus:
        link = next(x for x in new.links if x.kind == "pcie" and slot.name in x.ends)
        assert link.width is not None
        assert link.width.generation <= min(generation, slot.gpu.pcie_generation)
        assert link.width.lanes <= min(lanes, slot.gpu.pcie_lanes)


def test_memory() -> None:
    box = hwmodels.server("dgx-1").with_memory(host="1 TiB", gpu="32 GiB")
    assert [box.memory(x) for x in box.hosts] == [2**39, 2**39]
    reserve = box.gpu("gpu0").reserve
    assert {box.memory(x) for x in box.gpus} == {2**35 - reserve}
    assert box.with_memory(gpu="16 GiB").with_memory(host="512 GiB") == hwmodels.server("dgx-1")


def test_degraded() -> None:
    box = hwmodels.server(BOX)
    old, new = box.link("uplink0"), box.degraded("uplink0", 0.25).link("uplink0")
    assert new.bandwidth == old.bandwidth / 4
    assert box.degraded("uplink0", 1) == box


def test_edited_servers_read_back_as_equal(tmp_path: Any) -> None:
    box = hwmodels.server("8x3090-gen3")
    edited = (
        box.with_gpus(3), box.with_pcie(4, 8), box.with_memory(gpu="48 GiB"),
        box.degraded(box.links[0].name, 0.3),
    )  # fmt: skip
    for found in edited:
        path = tmp_path / "box.toml"
        path.write_text(found.to_toml())
        assert load(path) == found != box


@pytest.mark.parametrize(
    ("edit", "error", "words"),
    [
        (lambda x: x.with_gpus(5), InvalidInput, ("has 4 GPUs", "1 to 4")),
        (lambda x: x.with_gpus(0), InvalidInput, ("with_gpus(0)",)),
        (lambda x: x.with_gpus(True), InvalidInput, ("with_gpus(True)",)),
        (lambda x: x.with_pcie(7, 16), InvalidInput, ("generation 7", "1, 2, 3")),
        (lambda x: x.with_pcie(4, 64), InvalidInput, ("x64", "x1 to x32")),
        (lambda x: x.with_pcie("4", "sixteen"), InvalidInput, ("gen3 x16",)),
        (lambda x: x.with_memory(), InvalidInput, ("changes nothing",)),
        (lambda x: x.with_memory(host="64"), InvalidInput, ("no unit", "GiB")),
        (lambda x: x.with_memory(host="0 GiB"), InvalidInput, ("host0.memory", "zero")),
        (lambda x: x.with_memory(gpu="10 MiB"), InvalidInput, ("driver", "give more")),
        (lambda x: x.degraded("uplink9", 0.5), UnknownName, ("uplink9", "uplink0")),
        (lambda x: x.degraded("uplink0", 0), InvalidInput, ("factor 0", "at most 1")),
        (lambda x: x.degraded("uplink0", 1.5), InvalidInput, ("factor 1.5",)),
        (lambda x: x.degraded("uplink0", float("nan")), InvalidInput, ("factor nan",)),
        (lambda x: x.degraded("uplink0", "half"), InvalidInput, ("'half'",)),
    ],
)  # fmt: skip
def test_errors_are_one_sentence(edit: Any, error: type[CommodiousError], words: Any) -> None:
    with pytest.raises(error) as said:
        edit(hwmodels.server(BOX))
    assert all(word in str(said.value) for word in words)
    assert "\n" not in str(said.value)
