"""Operations, streams, copy engines, host work, and runs that cannot end."""

from __future__ import annotations

import gc
import hashlib
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from wires import INF, Draft, Way, Wires, star

import hwmodels
from hwmodels.compute import Curve, LayerProfile, LayerWork, Work
from hwmodels.errors import CommodiousError, Deadlock, InvalidSchedule, NoPath, UnknownName
from sim.program import copy_engine


def exactly(value):
    return pytest.approx(value, rel=1e-9)


def test_streams_are_in_order_and_edges_hold():
    draft = Draft()
    a = draft.compute("gpu0", 2.0)
    b = draft.compute("gpu1", 5.0)
    c = draft.compute("gpu0", 1.0, b)
    d = draft.compute("gpu0", 1.0)  # ready, but behind c
    e = draft.compute("gpu1", 1.0, a, d)
    timeline = draft.run(star(2, 1.0))
    assert timeline.start.tolist() == [0.0, 0.0, 5.0, 6.0, 7.0]
    assert timeline.end.tolist() == [2.0, 5.0, 6.0, 7.0, 8.0]
    assert timeline.ready.tolist() == timeline.start.tolist()
    assert timeline.last_dependency.tolist() == [-1, -1, b, c, d]
    assert timeline.route.tolist() == [-1] * 5
    assert timeline.alone.tolist() == [2.0, 5.0, 1.0, 1.0, 1.0]
    assert [int(op) for op in timeline.sequence] == [~a, ~b, a, b, ~c, c, ~d, d, ~e, e]


def test_an_empty_schedule_takes_no_time():
    timeline = Draft().run(star(1, 1.0))
    assert timeline.end.tolist() == timeline.alone.tolist() == []
    assert timeline.routes == ()


def test_free_operations_in_a_long_chain():
    draft = Draft()
    last = draft.compute("gpu0", 1.0)
    for _ in range(5000):
        last = draft.free("gpu0", last)
    draft.compute("gpu0", 1.0, last)
    assert draft.run(star(1, 1.0)).end[-1] == 2.0


def test_free_operations_before_anything_else():
    draft = Draft()
    first = draft.free("gpu0")
    second = draft.free("gpu0", first)
    draft.compute("gpu0", 3.0, second)
    assert draft.run(star(1, 1.0)).end.tolist() == [0.0, 0.0, 3.0]


# copy engines ------------------------------------------------------------------------------------


def copies(engines):
    """A swap-in, a swap-out and two peer copies of 10 s each, all ready at once."""
    draft = Draft()
    draft.copy("host0", "gpu0", 10)
    draft.copy("gpu0", "host0", 10)
    draft.copy("gpu0", "gpu1", 10)
    draft.copy("gpu0", "gpu2", 10)
    server = star(3, 1.0, engines=engines)
    ways = {("gpu0", "gpu1"): Way(()), ("gpu0", "gpu2"): Way(())}
    ways = {pair: Way((), cap=1.0, kind="nvlink") for pair in ways}
    return draft.run(replace(server, ways=dict(server.ways) | ways))


def test_one_engine_does_all_copies_one_by_one():
    timeline = copies(1)
    assert timeline.start.tolist() == [0.0, 10.0, 20.0, 30.0]
    assert timeline.end.tolist() == [10.0, 20.0, 30.0, 40.0]
    assert timeline.ready.tolist() == [0.0] * 4


def test_two_engines_are_one_in_and_one_out():
    assert copies(2).start.tolist() == [0.0, 0.0, 10.0, 20.0]


def test_three_engines_leave_peer_copies_to_share_one():
    assert copies(3).start.tolist() == [0.0, 0.0, 0.0, 10.0]


def test_an_engine_serves_who_was_ready_first():
    # gpu0's outgoing engine is busy until 10; the peer copy is ready at 3, the swap-out at 5
    draft = Draft()
    draft.copy("gpu0", "gpu1", 10)
    early = draft.compute("gpu1", 3.0)
    late = draft.compute("gpu2", 5.0)
    out = draft.copy("gpu0", "host0", 4, late)
    peer = draft.copy("gpu0", "gpu2", 2, early)
    timeline = draft.run(star(3, 1.0, engines=2))
    assert timeline.ready[[out, peer]].tolist() == [5.0, 3.0]
    assert timeline.start[[out, peer]].tolist() == [12.0, 10.0]
    assert timeline.end[[out, peer]].tolist() == [16.0, 12.0]
    assert timeline.last_dependency[[out, peer]].tolist() == [late, early]


def test_an_engine_takes_the_lowest_id_of_those_ready_together():
    draft = Draft()
    draft.copy("gpu0", "host0", 4)
    wait = draft.compute("gpu1", 1.0)
    ids = [draft.copy("gpu0", f"gpu{i}", 1, wait) for i in (2, 1, 3)]
    timeline = draft.run(star(4, 1.0, engines=2))
    assert timeline.ready[ids].tolist() == [1.0] * 3
    assert timeline.start[ids].tolist() == [4.0, 5.0, 6.0]
    draft.ops[0] = draft.ops[0]._replace(nbytes=0)  # an idle engine: the same order
    assert draft.run(star(4, 1.0, engines=2)).start[ids].tolist() == [1.0, 2.0, 3.0]


def test_engine_of_each_direction():
    server = star(2, 1.0, engines=2)
    assert copy_engine(server, "host0", "gpu1") == ("gpu1", 0)
    assert copy_engine(server, "gpu1", "host0") == ("gpu1", 1)
    assert copy_engine(server, "gpu1", "gpu0") == ("gpu1", 1)
    assert copy_engine(server, "host0", "host1") is None


# host work ---------------------------------------------------------------------------------------


def cpu(cores, one):
    return Wires(
        {"cores": cores, "port": 4.0}, {("host0", "gpu0"): Way((("port", 1.0), ("cores", 1.0)))},
        ("gpu0",), cpu=Way((("cores", 1.0),), 0.5, one, "cpu"),
    )  # fmt: skip


def test_host_work_is_held_by_its_process_and_by_all_cores():
    draft = Draft()
    draft.host("host0", 60, stream="host0.gpu0")
    draft.host("host0", 30, stream="host0.gpu1")
    alone = cpu(100.0, 10.0)
    assert draft.run(alone).end.tolist() == exactly([6.5, 3.5])
    # together 12: 6 each until 0.5 + 30/6; then 10 for the 30 bytes left
    assert draft.run(cpu(12.0, 10.0)).end.tolist() == exactly([8.5, 5.5])


def test_swaps_and_host_work_share_memory():
    # 4 for the port, 6 of 10 for the update: the copy (8) ends at 0 + 2; update waits 0.5 first
    draft = Draft()
    draft.copy("host0", "gpu0", 8)
    draft.host("host0", 30)
    assert draft.run(cpu(10.0, INF)).end.tolist() == exactly([2.0, 2.0 + (30 - 1.5 * 6) / 10])


def test_a_measured_update_sets_the_rate():
    part = LayerWork("l", "update", 1, 5.0, 30.0, "fp32")
    draft = Draft()
    draft.host("host0", 60, work=Work((part, part)))
    profile = LayerProfile("elsewhere", {("l", "update"): Curve((1,), (2.0,))})
    assert draft.run(cpu(100.0, 3.0), profile=profile).end[0] == exactly(0.5 + 4.0)
    other = LayerProfile("elsewhere", {("l", "forward"): Curve((1,), (2.0,))})
    assert draft.run(cpu(100.0, 3.0), profile=other).end[0] == exactly(0.5 + 20.0)


def test_a_measured_time_of_compute_on_its_own_gpu():
    draft = Draft()
    draft.compute("gpu0", 1.0)
    profile = LayerProfile("unit", {("l", "forward"): Curve((1,), (0.25,))})
    assert draft.run(star(1, 1.0), profile=profile).end.tolist() == [0.25]


# errors ------------------------------------------------------------------------------------------


def test_a_deadlock_names_who_waits_for_what():
    draft = Draft()
    draft.compute("gpu0", 1.0)
    stuck = draft.compute("gpu0", 1.0, 3)
    draft.copy("host0", "gpu0", 1, stuck)
    draft.compute("gpu0", 1.0)
    with pytest.raises(Deadlock) as failure:
        draft.run(star(1, 1.0))
    assert str(failure.value) == (
        "schedule draft: 3 of 4 operations never became ready: "
        "op 1 (forward on gpu0.compute) waits for op 3; "
        "op 2 (swap_in on gpu0.h2d) waits for op 1; "
        "op 3 (forward on gpu0.compute) waits for op 1."
    )


def test_a_long_deadlock_is_told_briefly():
    draft = Draft()
    for _ in range(50):
        draft.compute("gpu0", 1.0, 49)
    with pytest.raises(Deadlock, match=r"50 of 50 operations .* op 2 .*; \.\.\.$"):
        draft.run(star(1, 1.0))


@pytest.mark.parametrize(
    ("build", "error", "words"),
    [
        (lambda d: d.compute("gpu9", 1.0), UnknownName, "gpu9"),
        (lambda d: d.copy("host0", "gpu9", 1), NoPath, "host0 to gpu9"),
        (lambda d: d.collective("all_reduce", ("gpu0", "gpu9"), 1), UnknownName, "gpu9"),
        (lambda d: d.compute("gpu0", 1.0, work=None), InvalidSchedule, "says no work"),
        (lambda d: d.copy("host0", "gpu0", 1, stream=""), InvalidSchedule, "names no stream"),
        (lambda d: d.compute("gpu0", 1.0, 7), InvalidSchedule, "waits for op 7"),
        (lambda d: d.compute("gpu0", 1.0, -1), InvalidSchedule, "waits for op -1"),
        (lambda d: d.compute("gpu0", 1.0, id=4), InvalidSchedule, "has id 4"),
    ],
)
def test_malformed_operations(build, error, words):
    draft = Draft()
    build(draft)
    with pytest.raises(error, match=words):
        draft.run(star(1, 1.0))


def test_a_free_operation_on_a_stream():
    draft = Draft()
    draft.add("free", "s", "gpu0", (), phase="free")
    with pytest.raises(InvalidSchedule, match="is on stream s"):
        draft.run(star(1, 1.0))


def test_a_real_server_names_the_nearest_device():
    draft = Draft()
    draft.compute("gpu11", 1.0)
    with pytest.raises(CommodiousError, match="gpu1"):
        draft.run(hwmodels.server("pcie-4u-4x1080ti"))


@pytest.mark.parametrize("enabled", [True, False])
def test_the_garbage_collector_is_left_as_it_was(enabled):
    was = gc.isenabled()
    try:
        (gc.enable if enabled else gc.disable)()
        draft = Draft()
        draft.compute("gpu0", 1.0)
        draft.run(star(1, 1.0))
        assert gc.isenabled() == enabled
        draft.compute("gpu9", 1.0)
        with pytest.raises(UnknownName):
            draft.run(star(1, 1.0))
        assert gc.isenabled() == enabled
    finally:
        (gc.enable if was else gc.disable)()


# determinism -------------------------------------------------------------------------------------


def mixed(names=("gpu0", "gpu1", "gpu2", "gpu3")):
    """All kinds of operations, many of them at the same instants."""
    server = star(4, 7.0, 11.0, latency=1e-3, engines=2)
    draft = Draft()
    for step in range(6):
        for i in range(4):
            load = draft.copy("host0", f"gpu{i}", 10 + 3 * ((step + i) % 3))
            work = draft.compute(f"gpu{i}", 1.5, load)
            draft.copy(f"gpu{i}", f"gpu{(i + 1) % 4}", 9, work)
            draft.copy(f"gpu{i}", "host0", 5 + step, work)
            draft.free(f"gpu{i}", work, load)
        draft.collective("all_reduce", server.gpus, 40, len(draft.ops) - 1)
    rename = dict(zip(server.gpus, names, strict=True))
    if names == server.gpus:
        return server, draft
    return renamed(server, draft, rename)


def renamed(server, draft, names):
    def new(text):
        return "".join(names.get(part, part) for part in split(text))

    def split(text):
        parts, rest = [], text
        while "gpu" in rest:
            at = rest.index("gpu")
            parts += [rest[:at], rest[at : at + 4]]
            rest = rest[at + 4 :]
        return [*parts, rest]

    resources = {new(name): capacity for name, capacity in reversed(server.resources.items())}
    ways = {
        (new(a), new(b)): replace(way, usage=tuple(sorted((new(r), m) for r, m in way.usage)))
        for (a, b), way in server.ways.items()
    }
    draft.ops = [
        op._replace(
            stream=new(op.stream), device=new(op.device), peer=new(op.peer),
            group=tuple(map(new, op.group)),
        )
        for op in draft.ops
    ]  # fmt: skip
    gpus = tuple(map(new, server.gpus))
    return replace(server, resources=resources, ways=ways, gpus=gpus), draft


def digest(names=("gpu0", "gpu1", "gpu2", "gpu3")):
    server, draft = mixed(names)
    timeline = draft.run(server)
    parts = (timeline.start, timeline.end, timeline.sequence, timeline.last_dependency)
    return hashlib.sha256(b"".join(part.tobytes() for part in parts)).hexdigest()


def test_a_run_can_be_repeated():
    assert digest() == digest()


def test_names_of_devices_do_not_matter():
    assert digest(("zeta", "mu", "alpha", "omega")) == digest()


def test_hash_seeds_do_not_matter():
    here = Path(__file__)
    code = (
        f"import sys; sys.path[:0] = [{str(here.parent)!r}, {str(here.parents[1])!r}]; "
        "import test_engine; print(test_engine.digest())"
    )
    found = {
        subprocess.run(
            [sys.executable, "-c", code], env=os.environ | {"PYTHONHASHSEED": seed},
            capture_output=True, text=True, check=True,
        ).stdout.strip()
        for seed in ("0", "1", "12345")
    }  # fmt: skip
    assert found == {digest()}
