from __future__ import annotations

import math
import pickle
from collections.abc import Callable

import networkx as nx
import pytest

import hwmodels as hw
from hwmodels.errors import InvalidInput, UnknownName

Make = Callable[..., hw.Server]
GB = 1e9


def test_places_and_capacities(make: Make) -> None:
    box = make()
    assert box.gpus == ("a", "b", "c")
    assert box.hosts == ("mem0", "mem1")
    assert box.stores == ("disk",)
    assert box.memory("a") == 7 * 2**30
    assert box.memory("mem1") == 32 * 2**30
    assert [box.host_of(g) for g in box.gpus] == ["mem0", "mem0", "mem1"]
    assert box.resources == {
        "sw>r0": 12 * GB, "r0>sw": 12 * GB, "a>sw": 13 * GB, "sw>a": 13 * GB,
        "b>sw": 13 * GB, "sw>b": 13 * GB, "c>r1": 13 * GB, "r1>c": 13 * GB,
        "disk>r1": 4 * GB, "r1>disk": 4 * GB, "s0>s1": 20 * GB, "s1>s0": 20 * GB,
        "mem0.dram": 50 * GB, "mem1.dram": 40 * GB, "mem0.cores": 56 * GB, "mem1.cores": 56 * GB,
        "disk.read": 3 * GB, "disk.write": 2 * GB,
    }  # fmt: skip


def test_host_copy_crosses_each_link_and_dram_once(make: Make) -> None:
    route = make().route("mem0", "a")
    assert route.kind == "host"
    assert route.usage == (("mem0.dram", 1.0), ("r0>sw", 1.0), ("sw>a", 1.0))
    assert route.latency == pytest.approx(4e-6)  # 2 us of the host and two links
    assert route.cap == math.inf


def test_far_host_copy_crosses_the_sockets(make: Make) -> None:
    route = make().route("a", "mem1")
    assert dict(route.usage) == {"a>sw": 1, "sw>r0": 1, "s0>s1": 1, "mem1.dram": 1}


def test_peer_copy_turns_round_in_the_switch(make: Make) -> None:
    box = make()
    route = box.route("a", "b")
    assert route.kind == "pcie"
    assert route.usage == (("a>sw", 1.0), ("sw>b", 1.0))
    assert route.latency == pytest.approx(2e-6)
    assert box.peer("a", "b")


def test_copy_beyond_the_reach_is_one_flow_over_both_legs(make: Make) -> None:
    box = make()
    assert not box.peer("a", "c")
    route = box.route("a", "c")
    assert route.kind == "staged"
    assert dict(route.usage) == {"a>sw": 1, "sw>r0": 1, "mem0.dram": 2, "s0>s1": 1, "r1>c": 1}
    assert route.latency == pytest.approx(2 * 2e-6 + 4 * 1e-6)
    # The other way round it is staged in the memory near to c.
    assert ("mem1.dram", 2.0) in box.route("c", "a").usage


def test_staged_copy_inside_a_switch_uses_the_uplink_both_ways(make: Make) -> None:
    route = make(('name = "box"', 'name = "box"\npeer = "none"')).route("a", "b")
    assert route.kind == "staged"
    assert dict(route.usage) == {"a>sw": 1, "sw>r0": 1, "mem0.dram": 2, "r0>sw": 1, "sw>b": 1}


def test_peer_reach_of_the_server_overrides_the_gpus(make: Make) -> None:
    box = make(('name = "box"', 'name = "box"\npeer = "server"'))
    route = box.route("a", "c")
    assert route.kind == "pcie"
    assert dict(route.usage) == {"a>sw": 1, "sw>r0": 1, "s0>s1": 1, "r1>c": 1}
    socket = make(('name = "box"', 'name = "box"\npeer = "socket"'))
    assert socket.route("a", "c").kind == "staged"


def test_two_roots_of_a_socket_need_more_reach_than_one(make: Make) -> None:
    moved = ('[[root]]\nname = "r1"\nhost = "mem1"', '[[root]]\nname = "r1"\nhost = "mem0"')
    assert make(moved).route("a", "c").kind == "staged"
    wider = make(moved, ('peer = "root"', 'peer = "socket"'))
    assert dict(wider.route("a", "c").usage) == {"a>sw": 1, "sw>r0": 1, "r1>c": 1}


def test_acs_sends_peer_copies_up_and_back(make: Make) -> None:
    box = make(('name = "sw"\n', 'name = "sw"\nacs = true\n'))
    assert dict(box.route("a", "b").usage) == {"a>sw": 1, "sw>r0": 1, "r0>sw": 1, "sw>b": 1}


def test_root_capacity_counts_memory_traffic_only(make: Make) -> None:
    limited = ('host = "mem0"', 'host = "mem0"\nmemory = "9 GB/s"')
    box = make(limited)
    assert box.resources["r0.to_memory"] == box.resources["r0.from_memory"] == 9 * GB
    assert ("r0.from_memory", 1.0) in box.route("mem0", "a").usage
    assert ("r0.to_memory", 1.0) in box.route("a", "mem1").usage
    through = make(limited, ('name = "box"', 'name = "box"\npeer = "server"'))
    assert all("memory" not in name for name, _ in through.route("a", "c").usage)


def test_duplex_limit_is_shared_by_both_directions(make: Make) -> None:
    box = make(('name = "up"', 'name = "up"\nduplex = "15 GB/s"'))
    assert box.resources["up.duplex"] == 15 * GB
    assert ("up.duplex", 1.0) in box.route("mem0", "a").usage
    assert ("up.duplex", 1.0) in box.route("a", "mem0").usage
    staged = make(
        ('name = "up"', 'name = "up"\nduplex = "15 GB/s"'),
        ('name = "box"', 'name = "box"\npeer = "none"'),
    )
    assert ("up.duplex", 2.0) in staged.route("a", "b").usage


def test_copy_engine_caps(make: Make) -> None:
    box = make(
        ('name = "a"\nmodel = "toy"', 'name = "a"\nmodel = "toy"\nd2h = "9 GB/s"\npeer = "8 GB/s"'),
        ('name = "c"\nmodel = "toy"', 'name = "c"\nmodel = "toy"\nh2d = "7 GB/s"'),
    )
    assert box.route("a", "mem0").cap == 9 * GB
    assert box.route("mem0", "a").cap == math.inf
    assert box.route("a", "b").cap == box.route("b", "a").cap == 8 * GB
    assert box.route("a", "c").cap == 7 * GB


def test_nvlink_first_directly_or_through_a_switch(make: Make) -> None:
    direct = make(more='[[link]]\nname = "nv"\nends = ["a", "c"]\nnvlink = "gen2 x2"\n')
    assert direct.route("a", "c").kind == "nvlink"
    assert direct.route("c", "a").usage == (("c>a", 1.0),)
    assert direct.peer("a", "c")
    # A way over the NVLinks of another GPU is not taken.
    assert direct.route("b", "c").kind == "staged"
    ports = "".join(
        f'[[link]]\nname = "n{g}"\nends = ["{g}", "nvs"]\nbandwidth = "100 GB/s"\n' for g in "ac"
    )
    switched = make(('name = "box"', 'name = "box"\nnvswitch = ["nvs"]'), more=ports)
    assert switched.route("a", "c").usage == (("a>nvs", 1.0), ("nvs>c", 1.0))
    assert switched.route("a", "b").kind == "pcie"


def test_drives_are_read_and_written(make: Make) -> None:
    box = make()
    read, write = box.route("disk", "mem1"), box.route("mem0", "disk")
    assert dict(read.usage) == {"disk.read": 1, "disk>r1": 1, "mem1.dram": 1}
    assert dict(write.usage) == {"mem0.dram": 1, "s0>s1": 1, "r1>disk": 1, "disk.write": 1}
    assert box.route("disk", "a").kind == "staged"


def test_between_host_memories_and_within_one_place(make: Make) -> None:
    box = make()
    assert dict(box.route("mem0", "mem1").usage) == {"mem0.dram": 1, "mem1.dram": 1, "s0>s1": 1}
    assert box.route("a", "a") == hw.Route("local", (), 0.0, math.inf)


def test_optimizer_step_uses_cores_and_dram(make: Make) -> None:
    route = make().cpu_route("mem0")
    assert route == hw.Route("cpu", (("mem0.cores", 1.0), ("mem0.dram", 1.0)), 0.0, 28e9)


def test_routes_are_made_once(make: Make) -> None:
    box = make()
    assert box.route("a", "c") is box.route("a", "c")


def test_with_link_changes_one_link_of_a_new_server(make: Make) -> None:
    box = make()
    faster = box.with_link("up", bandwidth="25 GB/s", latency="3 us", duplex="40 GB/s")
    assert faster.resources["sw>r0"] == faster.resources["r0>sw"] == 25 * GB
    assert faster.resources["up.duplex"] == 40 * GB
    assert faster.link("up").latency == pytest.approx(3e-6)
    assert box.resources["sw>r0"] == 12 * GB
    assert faster.resources["a>sw"] == 13 * GB


def test_lanes_scale_bandwidth() -> None:
    box = hw.server("8x4090")
    half = box.with_link("uplink0", lanes=8)
    assert half.resources["sw0>root0"] == box.resources["sw0>root0"] / 2
    assert str(half.link("uplink0").width) == "gen4 x8"


def test_with_link_errors(make: Make) -> None:
    box = make()
    with pytest.raises(UnknownName, match="link 'upp' does not exist; did you mean 'up'"):
        box.with_link("upp", bandwidth="25 GB/s")
    with pytest.raises(InvalidInput, match="has no lanes to change"):
        box.with_link("up", lanes=8)
    with pytest.raises(InvalidInput, match="either bandwidth or lanes"):
        box.with_link("up", "1 GB/s", lanes=8)
    with pytest.raises(InvalidInput, match=r"up.bandwidth is 0; it must be greater than zero"):
        box.with_link("up", "0 GB/s")
    with pytest.raises(InvalidInput, match="'25' has no unit"):
        box.with_link("up", "25")


def test_unlimited_keeps_devices_and_the_rate_of_one_process(make: Make) -> None:
    box = make(('name = "up"', 'name = "up"\nduplex = "15 GB/s"'))
    free = box.unlimited()
    assert free.gpus == box.gpus
    assert free.memory("a") == box.memory("a")
    assert min(free.resources.values()) == 1e18
    assert free.route("a", "c").latency == 0.0
    assert free.cpu_route("mem0").cap == 28e9


@pytest.mark.parametrize(
    "ask",
    [
        lambda box: box.route("a", "d"),
        lambda box: box.memory("mem2"),
        lambda box: box.gpu("mem0"),
        lambda box: box.peer("a", "mem0"),
        lambda box: box.host_of("sw"),
        lambda box: box.cpu_route("a"),
    ],
)
def test_unknown_places(make: Make, ask: Callable[[hw.Server], object]) -> None:
    with pytest.raises(UnknownName, match=r"^Server 'box': .* does not exist; .*[.?]$"):
        ask(make())


def test_graph_has_every_part(make: Make) -> None:
    graph = make().graph
    kinds = nx.get_node_attributes(graph, "kind")
    assert {kinds[n] for n in ("a", "sw", "r0", "mem0", "s0", "disk")} == {
        "gpu", "switch", "root", "host", "socket", "nvme",
    }  # fmt: skip
    assert graph.edges["sw", "r0"]["bandwidth"] == 12 * GB
    assert nx.is_strongly_connected(graph)


def test_servers_can_be_hashed_and_sent_to_other_processes(make: Make) -> None:
    box = make()
    box.route("a", "b")
    again = pickle.loads(pickle.dumps(box))
    assert again == box
    assert hash(again) == hash(box)


def test_description_and_drawing(make: Make) -> None:
    about = make().describe()
    assert about["gpus"] == {"toy": 3}
    assert about["host memory"] == "96 GiB"
    assert about["peer copies"] == "pcie and staged"
    assert about["tree"].splitlines()[:4] == [
        "mem0 (s0)  64 GiB, DRAM 50 GB/s, 8 cores",
        "  r0",
        "    sw  [up 12 GB/s]",
        "      a toy  [la 13 GB/s]",
    ]
