from __future__ import annotations

import itertools

import pytest

import hwmodels as hw

NAMES = (
    "8x3090-gen3", "8x4090", "8xa6000", "8xrtxpro6000-one-root", "8xrtxpro6000-two-roots",
    "dgx-1", "dgx-2", "dgx-a100", "dgx-h100", "hgx-a800", "pcie-4u-4x1080ti", "pcie-4u-8x1080ti",
    "pcie-4u-cascaded", "pcie-4u-dual-root", "pcie-4u-single-root",
)  # fmt: skip


def test_names() -> None:
    assert hw.servers() == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_every_pair_of_places_has_a_route(name: str) -> None:
    server = hw.server(name)
    for a, b in itertools.permutations((*server.gpus, *server.hosts), 2):
        route = server.route(a, b)
        assert route.usage
        assert all(server.resources[resource] > 0 for resource, _ in route.usage)


@pytest.mark.parametrize("name", NAMES)
def test_facts_have_sources(name: str) -> None:
    server = hw.server(name)
    assert server.parts.description
    assert "topology" in server.parts.sources or "uplinks" in server.parts.sources
    assert {"dram", "update"} <= set(server.parts.sources)
    known = {*server.parts.kinds, *(link.name for link in server.links), "uplinks"}
    assert {field.partition(".")[0] for field in server.parts.unverified} <= known


@pytest.mark.parametrize("name", hw.gpus())
def test_every_field_of_a_gpu_is_sourced_or_marked(name: str) -> None:
    gpu = hw.gpu(name)
    fields = {
        "memory", "reserve", "bandwidth", "flops", "pcie", "copy_engines", "peer",
        "launch_overhead", "compute_efficiency", "memory_efficiency",
    }  # fmt: skip
    if gpu.nvlink_links:
        fields.add("nvlink")
    assert fields <= {*gpu.sources, *gpu.unverified}
    assert not set(gpu.sources) & set(gpu.unverified)
    assert 0 < gpu.usable < gpu.memory


def test_harmony_box_is_as_calibrated() -> None:
    box = hw.server("pcie-4u-4x1080ti")
    into = [set(dict(box.route("host0", g).usage)) for g in box.gpus]
    assert set.intersection(*into) == {"host0.dram", "root0>sw0"}
    assert box.resources["root0>sw0"] == box.resources["sw0>root0"] == 11.5 * 2**30
    assert {box.route(a, b).cap for a, b in itertools.permutations(box.gpus, 2)} == {8.2 * 2**30}
    assert {box.host_of(g) for g in box.gpus} == {"host0"}
    assert sum(box.memory(h) for h in box.hosts) == 750 * 10**9
    assert box.cpu_route("host0").cap == pytest.approx(22e9, rel=0.01)
    # The largest footprint recorded on this GPU, 10.49 GiB, fits in what is usable.
    assert box.memory("gpu0") >= 10.49 * 2**30


def test_1080ti_peers_within_a_root_but_not_across_sockets() -> None:
    eight = hw.server("pcie-4u-8x1080ti")
    assert eight.peer("gpu0", "gpu3")
    assert not eight.peer("gpu0", "gpu4")
    for name in ("pcie-4u-single-root", "pcie-4u-cascaded"):
        box = hw.server(name)
        assert all(box.peer(a, b) for a, b in itertools.permutations(box.gpus, 2))


def test_cascaded_chassis_has_one_way_to_memory() -> None:
    box = hw.server("pcie-4u-cascaded")
    assert all(("root0>sw0", 1.0) in box.route("host0", g).usage for g in box.gpus)
    assert box.route("gpu0", "gpu7").usage == (
        ("gpu0>sw0", 1.0),
        ("sw0>sw1", 1.0),
        ("sw1>gpu7", 1.0),
    )


@pytest.mark.parametrize("name", ["8x4090", "8x3090-gen3"])
def test_consumer_cards_stage_every_copy(name: str) -> None:
    box = hw.server(name)
    kinds = {box.route(a, b).kind for a, b in itertools.permutations(box.gpus, 2)}
    assert kinds == {"staged"}


def test_dgx1_mesh() -> None:
    box = hw.server("dgx-1")
    ends = {link.ends: link.width for link in box.links if link.kind == "nvlink"}
    per_gpu = {g: sum(w.lanes for pair, w in ends.items() if w and g in pair) for g in box.gpus}
    assert set(per_gpu.values()) == {6}
    assert all(sum(g in pair for pair in ends) == 4 for g in box.gpus)
    staged = sum(box.route(a, b).kind == "staged" for a, b in itertools.combinations(box.gpus, 2))
    assert staged == 28 - 16


@pytest.mark.parametrize(
    ("name", "count", "rate"),
    [("dgx-2", 16, 120e9), ("dgx-a100", 8, 240e9), ("dgx-h100", 8, 376e9), ("hgx-a800", 8, 160e9)],
)
def test_nvswitch_joins_all(name: str, count: int, rate: float) -> None:
    box = hw.server(name)
    assert len(box.gpus) == count
    for a, b in itertools.permutations(box.gpus, 2):
        route = box.route(a, b)
        assert route.kind == "nvlink"
        assert min(box.resources[x] for x, _ in route.usage) == pytest.approx(rate)
