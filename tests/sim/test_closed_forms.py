"""Closed forms of copies, collectives, swapping, pipelines and volumes (closed_forms 1 to 4)."""

from __future__ import annotations

import pytest
from toys import Box, build, chain, ideal, volume
from wires import Draft, Way, Wires, star, traffic

import hwmodels
import sim
import workloads
from sim.engine import execute
from workloads.residency.policy import Policy
from workloads.schedules import data_parallel
from workloads.schedules.info import Job


def exactly(value):
    return pytest.approx(value, rel=1e-9)


# section 1 ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["all_reduce", "reduce_scatter", "all_gather"])
@pytest.mark.parametrize("slow", range(4))
def test_the_slowest_hop_of_a_ring_decides(kind, slow):
    n, nbytes, alpha = 4, 840_000, 1e-3
    server = star(n, 10.0, latency=alpha)
    server.resources[f"gpu{slow}>"] = 2.5
    draft = Draft()
    draft.collective(kind, server.gpus, nbytes)
    steps = (2 if kind == "all_reduce" else 1) * (n - 1)
    assert draft.run(server).end[0] == exactly(steps * (alpha + nbytes / (n * 2.5)))


@pytest.mark.parametrize("n", [2, 4, 8])
def test_all_reduce_by_way_of_the_host(n):
    """Every rank out, sum on the CPU, every rank in; the uplink carries N S each way."""
    nbytes, port, cores = 1200, 4.0, 30.0
    wires = star(n, port, 6.0)
    cpu = Way((("cores", 1.0),), 0.0, kind="cpu")
    server = Wires(dict(wires.resources) | {"cores": cores}, wires.ways, wires.gpus, cpu=cpu)
    draft = Draft()
    out = [draft.copy(gpu, "host0", nbytes) for gpu in server.gpus]
    total = draft.host("host0", n * nbytes, *out)
    for gpu in server.gpus:
        draft.copy("host0", gpu, nbytes, total)
    timeline = draft.run(server)
    each = max(nbytes / port, n * nbytes / 6.0)
    assert timeline.end.max() == exactly(2 * each + n * nbytes / cores)
    moved = traffic(timeline, draft.ops)
    assert moved["up"] == moved["down"] == n * nbytes


@pytest.mark.parametrize("count", [1, 2, 4, 8])
@pytest.mark.parametrize("uplink", [1.0, 6.0, 100.0])
@pytest.mark.parametrize("way", ["in", "out"])
def test_equal_copies_over_one_uplink_end_together(count, uplink, way):
    nbytes, port = 120, 4.0
    draft = Draft()
    for i in range(count):
        ends = ("host0", f"gpu{i}") if way == "in" else (f"gpu{i}", "host0")
        draft.copy(*ends, nbytes)
    end = draft.run(star(count, port, uplink)).end.tolist()
    assert end == exactly([max(nbytes / port, count * nbytes / uplink)] * count)


@pytest.mark.parametrize("sizes", [(1, 2), (1, 2, 3), (2, 2, 5, 9), (3, 10, 11, 40, 41)])
def test_unequal_copies_share_what_ended_ones_leave(sizes):
    """Sorted V1 <= V2 <= ...: copy i ends (k - i)(V_i - V_(i-1)) / B_up after copy i - 1."""
    uplink, expected, clock, before = 3.0, [], 0.0, 0
    for i, nbytes in enumerate(sizes):
        clock += (len(sizes) - i) * (nbytes - before) / uplink
        before = nbytes
        expected.append(clock)
    draft = Draft()
    for i, nbytes in enumerate(sizes):
        draft.copy("host0", f"gpu{i}", nbytes)
    assert draft.run(star(len(sizes), uplink, uplink)).end.tolist() == exactly(expected)


@pytest.mark.parametrize("swap", [100, 840])
def test_swaps_add_up_with_the_ring_on_an_uplink(swap):
    """Two switches of two; the ring crosses each uplink once, a swap of gpu0 shares sw0's."""
    port, uplink, nbytes = 100.0, 2.0, 840
    gpus = tuple(f"gpu{i}" for i in range(4))
    resources, ways = {}, {}
    for i in (0, 1):
        resources |= {f"sw{i}>": uplink, f">sw{i}": uplink}
    for i, a in enumerate(gpus):
        resources |= {f"{a}>": port, f">{a}": port}
        ways[a, "host0"] = Way(((f"{a}>", 1.0), (f"sw{i // 2}>", 1.0)))
        for j, b in enumerate(gpus):
            usage = [(f"{a}>", 1.0), (f">{b}", 1.0)]
            if i // 2 != j // 2:
                usage += [(f"sw{i // 2}>", 1.0), (f">sw{j // 2}", 1.0)]
            ways[a, b] = Way(tuple(usage), kind="pcie")
    server = Wires(resources, ways, gpus)
    draft = Draft()
    first = draft.copy("gpu0", "host0", swap)
    draft.collective("all_reduce", gpus, nbytes)
    timeline = draft.run(server)
    ring = 2 * 3 / 4 * nbytes
    assert timeline.end.max() == exactly((swap + ring) / uplink)
    assert timeline.end[first] == exactly(
        2 * min(swap, ring) / uplink if swap < ring else (swap + ring) / uplink
    )
    assert traffic(timeline, draft.ops)["sw0>"] == exactly(swap + ring)


# section 2 ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("host_copy", ["keep", "exclusive"])
@pytest.mark.parametrize("m", [1, 2, 3])
@pytest.mark.parametrize("layers", [3, 5])
@pytest.mark.parametrize("room", [1, 2, 3, 4])
def test_reactive_pager_hides_no_copy(host_copy, m, layers, room):
    """On demand, whatever the room: every swap-in and swap-out is exposed (d = 1)."""
    if room >= layers:
        return
    weight, forward, backward, rate = 60, 3.0, 5.0, 10.0
    server = ideal(1, host=rate, memory=room * weight)
    model = chain(layers, weight, times=[(forward, backward)] * layers)
    plan = build("dp-pager", model, server, m, host_copy=host_copy)
    moved = volume(plan).total()
    swaps = layers * (2 * m + 1) - 2 * m * room
    assert moved == weight * (swaps + (layers if host_copy == "keep" else swaps))
    expected = m * layers * (forward + backward) + moved / rate
    assert execute(plan, server).end.max() == exactly(expected)


def test_cpu_step_of_adam_touches_28_bytes_a_parameter():
    """Reads w, g, m, v and writes w, m, v in fp32; host memory and cores carry that."""
    box, model = hwmodels.server("pcie-4u-4x1080ti"), workloads.model("gpt2-small", sequence=64)
    plan = workloads.schedule("harmony-pp", model, box, minibatch=4, update="cpu")
    steps = [op for op in plan.ops if op.kind == "host"]
    assert sum(op.nbytes for op in steps) == 28 * model.params


@pytest.mark.parametrize("m", [1, 2, 4])
@pytest.mark.parametrize("rate", [1.0, 5.0, 20.0, 1e3])
@pytest.mark.parametrize("packs", [2, 4, 8])
def test_harmony_on_one_gpu_keeps_its_bounds(m, rate, packs):
    """max(compute, (2W - w_last)/B_H, G/B_D), and never below the first load + compute."""
    weight, layers, forward, backward = 60, 8, 3.0, 6.0
    server = ideal(1, host=rate, memory=10 * 8 * weight)
    model = chain(layers, weight, 1, 0, times=[(forward, backward)] * layers)
    plan = build("harmony-dp", model, server, m, pack=layers // packs, update="cpu")
    compute = m * layers * (forward + backward) + m * (layers - layers // packs) * forward
    last = weight * layers // packs
    end = float(execute(plan, server).end.max())
    whole = weight * layers
    assert volume(plan)[("weight", "swap_in")] == 2 * whole - last
    assert volume(plan)[("gradient", "swap_out")] == whole
    assert end >= max(compute, (2 * whole - last) / rate, whole / rate)
    assert end >= (last / rate + compute) * (1 - 1e-9)
    # compute bound: everything but the first load and the last gradient is hidden; a load must
    # fit in the visit before it less one microbatch, since it queues before later inputs
    if (m - 1) * forward * layers / packs >= last / rate:
        assert end == exactly(last / rate + compute + last / rate)


@pytest.mark.parametrize("seed", range(5))
def test_vdnn_forward_waits_for_the_slower_of_compute_and_offload(seed):
    computes = [(7 * i + 3 * seed) % 9 + 1 for i in range(10)]
    sizes = [(5 * i + 2 * seed) % 11 for i in range(10)]
    draft, sync = Draft(), []
    for seconds, nbytes in zip(computes, sizes, strict=True):
        sync = [
            draft.compute("gpu0", float(seconds), *sync),
            draft.copy("gpu0", "host0", 2 * nbytes, *sync),
        ]
    expected = sum(max(c, x) for c, x in zip(computes, sizes, strict=True))
    assert draft.run(star(1, 2.0)).end.max() == exactly(expected)


def cpu_star():
    wires = star(1, 1.0)
    cpu = Way((("cores", 1.0),), 0.0, 1.0, "cpu")
    return Wires(dict(wires.resources) | {"cores": 8.0}, wires.ways, wires.gpus, cpu=cpu)


@pytest.mark.parametrize("layers", [1, 4, 9])
@pytest.mark.parametrize("update", [1, 3, 4])
def test_updates_behind_a_barrier_are_exposed_whole(layers, update):
    """Gradient clipping needs all gradients; without it only the last update shows."""
    ends = {}
    for barrier in (False, True):
        draft = Draft()
        outs = [draft.copy("gpu0", "host0", 2, draft.compute("gpu0", 4.0)) for _ in range(layers)]
        for out in outs:
            draft.host("host0", update, *(outs if barrier else [out]))
        ends[barrier] = draft.run(cpu_star()).end.max()
    assert ends[False] == exactly(layers * 4 + 2 + update)
    assert ends[True] == exactly(layers * 4 + 2 + layers * update)


# section 3 ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["gpipe", "1f1b"])
@pytest.mark.parametrize("stages", [1, 2, 4, 8])
@pytest.mark.parametrize("microbatches", [1, 4, 7])
def test_bubble_over_ideal_and_over_total(name, stages, microbatches):
    forward, backward, server = 3.0, 5.0, ideal(stages)
    model = chain(stages, 1, 1, 1, 1, 1, times=[(forward, backward)] * stages)
    run = sim.simulate(build(name, model, server, microbatches), server)
    for parts in run.time_split_seconds.values():
        idle = run.iteration_time - parts["compute"]
        assert idle / parts["compute"] == pytest.approx((stages - 1) / microbatches, abs=1e-9)
        share = (stages - 1) / (microbatches + stages - 1)
        assert idle / run.iteration_time == pytest.approx(share, abs=1e-9)
        assert parts["bubble"] == pytest.approx(idle, abs=1e-9)


@pytest.mark.parametrize("name", ["gpipe", "1f1b"])
@pytest.mark.parametrize("stages", [2, 3, 5])
@pytest.mark.parametrize("microbatches", [1, 3, 6])
def test_boundaries_cross_once_each_way(name, stages, microbatches):
    edge, server = 70, ideal(stages)
    model = chain(stages, 1, 1, 1, edge, 1, times=[(2.0, 4.0)] * stages)
    plan = build(name, model, server, microbatches)
    crossed = {}
    for op in plan.ops:
        if op.phase == "peer":
            key = (plan.tensors[op.reads[0]].kind, op.device, op.peer)
            crossed[key] = crossed.get(key, 0) + op.nbytes
    expected = {}
    for stage in range(stages - 1):
        here, there = f"gpu{stage}", f"gpu{stage + 1}"
        expected["activation", here, there] = microbatches * edge
        expected["activation_gradient", there, here] = microbatches * edge
    assert crossed == expected


@pytest.mark.parametrize("name", ["gpipe", "1f1b", "gpipe-recompute", "1f1b-recompute"])
@pytest.mark.parametrize("stages", [2, 4])
@pytest.mark.parametrize("microbatches", [1, 2, 6])
def test_memory_of_a_stage(name, stages, microbatches):
    """W + G + K + in flight x (x + A); with recompute in flight x x and one microbatch's A."""
    weight, edge, stash = 10**7, 10**3, 10**5
    server = ideal(stages)
    model = chain(stages, weight, 1, 2, edge, stash, times=[(2.0, 4.0)] * stages)
    timeline = execute(build(name, model, server, microbatches), server)
    for stage in range(stages):
        flight = microbatches if "gpipe" in name else min(microbatches, stages - stage)
        held = stash if "recompute" in name else stash * flight
        least = 6 * weight + held + flight * edge  # W, G and two states of 2 bytes a parameter
        peak = timeline.peak[f"gpu{stage}"]
        # a few boundaries more: dY and dX of the running microbatch; inputs of stage 0 come early
        assert least <= peak <= least + (3 if stage else microbatches + 3) * edge


# section 4 ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("gpus", [1, 2, 3])
@pytest.mark.parametrize("microbatches", [2, 4, 5])
def test_lru_pipeline_stages_send_out_what_they_take_in(gpus, microbatches):
    each = 4
    for name in ("gpipe-pager", "1f1b-pager"):
        for room in range(1, each):
            moved = volume(build(name, chain(each * gpus), Box(gpus, room), microbatches))
            assert moved[("weight", "swap_out")] == moved[("weight", "swap_in")]
            keep = build(name, chain(each * gpus), Box(gpus, room), microbatches, host_copy="keep")
            assert volume(keep)[("weight", "swap_out")] == each * gpus
            assert volume(keep)[("weight", "swap_in")] == moved[("weight", "swap_in")]


@pytest.mark.parametrize("gpus", [1, 2, 4])
def test_harmony_dp_stashes_pack_inputs(gpus):
    layers, each, edge, pack = 12, 3, 7, 2
    model = chain(layers, 5, 1, 1, edge, 1)
    moved = volume(build("harmony-dp", model, Box(gpus, 400), each * gpus, pack=pack))
    packs = layers // pack
    inner = gpus * each * edge * (packs - 1)
    assert moved[("stash", "swap_out")] == moved[("stash", "swap_in")] == 0
    assert moved[("activation", "peer")] == moved[("activation_gradient", "peer")] == 0
    assert moved[("activation", "swap_out")] == inner
    # the input of the fused last pack comes once, those of all others and X twice
    assert moved[("activation", "swap_in")] == 2 * inner + gpus * each * edge
    out = moved[("activation_gradient", "swap_out")]
    assert out == moved[("activation_gradient", "swap_in")] == inner


@pytest.mark.parametrize("room", [1, 2, 3, 5])
@pytest.mark.parametrize("m", [1, 2, 3])
def test_furthest_next_use_never_moves_more_than_lru(room, m):
    def moved(victim):
        policy = Policy(
            name=victim,
            home="host",
            evict="pressure",
            victim=victim,
            host_copy="keep",
            swap_in="on_demand",
        )
        job = Job("dp-pager", chain(7), Box(1, room), m, 1)
        plan = data_parallel.build(job, policy, recompute=False)
        plan.check()
        return volume(plan)[("weight", "swap_in")]

    assert moved("furthest") <= moved("lru")
