"""Swap volumes of closed_forms section 4, items 1 to 5, to the byte."""

from __future__ import annotations

import pytest
from toys import Box, build, chain, volume


def weights(plan, phase):
    return volume(plan)[("weight", phase)]


@pytest.mark.parametrize("layers", [2, 3, 5, 8, 13])
@pytest.mark.parametrize("m", [1, 2, 3, 4])
def test_lru_pager_on_one_gpu_saves_c_layers_at_each_of_2m_turns(layers, m):
    for room in range(1, layers):
        expected = (2 * m + 1) * layers - 2 * m * room
        exclusive = build("dp-pager", chain(layers), Box(1, room), m)
        assert weights(exclusive, "swap_in") == expected
        assert weights(exclusive, "swap_out") == expected
        keep = build("dp-pager", chain(layers), Box(1, room), m, host_copy="keep")
        assert weights(keep, "swap_in") == expected
        assert weights(keep, "swap_out") == layers


@pytest.mark.parametrize(
    ("layers", "m", "room", "moved"), [(4, 2, 1, 16), (8, 1, 2, 20), (12, 4, 3, 84)]
)
def test_published_check_values(layers, m, room, moved):
    plan = build("dp-pager", chain(layers), Box(1, room), m)
    assert weights(plan, "swap_in") == weights(plan, "swap_out") == moved


@pytest.mark.parametrize("gpus", [1, 2, 4])
def test_replicas_multiply_the_volume(gpus):
    one = build("dp-pager", chain(6, 3), Box(1, 6), 3)
    many = build("dp-pager", chain(6, 3), Box(gpus, 6), 3 * gpus)
    assert volume(many) == {key: gpus * moved for key, moved in volume(one).items()}


def test_room_for_all_layers_swaps_weights_once():
    plan = build("dp-pager", chain(6), Box(1, 6), 4)
    assert weights(plan, "swap_in") == weights(plan, "swap_out") == 6


def test_pager_moves_gradients_m_times_and_states_once():
    m, layers, gpus = 3, 7, 2
    # room for the update of one layer: W, dW and K
    plan = build("dp-pager", chain(layers, 1, 1, 1), Box(gpus, 4), m * gpus)
    moved = volume(plan)
    assert moved[("state", "swap_in")] == moved[("state", "swap_out")] == 2 * layers * gpus
    # the first accumulation creates dW, the update frees it; one layer's dW survives the turn
    # from backward to update on each GPU (C = 1), so m N |G| less N
    assert moved[("gradient", "swap_in")] == moved[("gradient", "swap_out")]
    assert moved[("gradient", "swap_in")] == gpus * (m * layers - 1)


@pytest.mark.parametrize("gpus", [1, 2, 3])
@pytest.mark.parametrize("microbatches", [1, 2, 4, 5])
@pytest.mark.parametrize("each", [3, 4])
def test_lru_pipeline_stages(gpus, microbatches, each):
    for room in range(1, each):
        for name in ("gpipe-pager", "1f1b-pager"):
            plan = build(name, chain(each * gpus), Box(gpus, room), microbatches)
            for stage in range(gpus):
                warm = min(microbatches, gpus - stage - 1)
                turns = 2
                if name == "1f1b-pager" and microbatches > warm:
                    turns = 2 * (microbatches - warm)
                moved = sum(
                    op.nbytes
                    for op in plan.ops
                    if op.phase == "swap_in"
                    and op.peer == f"gpu{stage}"
                    and plan.tensors[op.reads[0]].kind == "weight"
                )
                assert moved == (2 * microbatches + 1) * each - turns * room


def fused_and_pinned(packs, gpus):
    """Packs whose second load is saved: the fused last one, and one more by parity."""
    return 1 + (packs > 1 and (2 * packs - 2 - gpus) % 2 == 0 and gpus > 1)


@pytest.mark.parametrize("gpus", [1, 2, 3, 4])
@pytest.mark.parametrize("layers", [8, 9, 12])
def test_harmony_weights_and_states(gpus, layers):
    m, model, room = 3, chain(layers, 5, 1, 1, 1, 1), Box(gpus, 200)
    dp = volume(build("harmony-dp", model, room, m * gpus, pack=1))
    total, last = 5 * layers, 5
    assert dp[("weight", "swap_in")] == gpus * (2 * total - last)
    assert dp[("weight", "swap_out")] == gpus * total
    assert dp[("state", "swap_in")] == dp[("state", "swap_out")] == gpus * 2 * total
    assert dp[("gradient", "swap_in")] == dp[("gradient", "swap_out")] == 0
    pp = volume(build("harmony-pp", model, room, m * gpus, pack=1))
    assert pp[("weight", "swap_in")] == 2 * total - last * fused_and_pinned(layers, gpus)
    assert pp[("weight", "swap_out")] == total
    assert pp[("state", "swap_in")] == pp[("state", "swap_out")] == 2 * total
    assert pp[("gradient", "swap_in")] == pp[("gradient", "swap_out")] == 0


@pytest.mark.parametrize("gpus", [1, 2, 4])
@pytest.mark.parametrize("mode", ["harmony-dp", "harmony-pp"])
def test_harmony_with_cpu_update_writes_gradients_once(gpus, mode):
    layers = 9
    moved = volume(
        build(mode, chain(layers, 5, 1, 1, 1, 1), Box(gpus, 200), 2 * gpus, pack=1, update="cpu")
    )
    assert moved[("weight", "swap_out")] == 0
    assert moved[("gradient", "swap_out")] == 5 * layers  # rank 0 only, under data parallel too
    assert moved[("state", "swap_in")] == moved[("state", "swap_out")] == 0


@pytest.mark.parametrize("gpus", [2, 3, 4])
def test_harmony_pp_stashes_pack_inputs_and_hands_edges_over_once(gpus):
    layers, samples, edge = 12, 6, 7
    model = chain(layers, 5, 1, 1, edge, 1)
    moved = volume(build("harmony-pp", model, Box(gpus, 400), samples, pack=2))
    packs = layers // 2
    inner = samples * edge * (packs - 1)
    # boundary 0 is the model input: it starts on the host and is never written back
    assert moved[("activation", "peer")] == moved[("activation_gradient", "peer")] == inner
    assert moved[("activation", "swap_out")] == inner - samples * edge  # last pack is fused
    assert moved[("activation", "swap_in")] == inner - samples * edge + 2 * samples * edge


def test_each_technique_moves_fewer_bytes():
    model, box = chain(12, 20, 1, 1, 7, 1), Box(4, 600)

    def moved(**knobs):
        return volume(build("harmony-pp", model, box, 8, pack=2, **knobs))

    full = moved()
    assert moved(grouping=False)[("weight", "swap_in")] > 2 * full[("weight", "swap_in")]
    assert moved(jit_update=False)[("gradient", "swap_out")] > full[("gradient", "swap_out")] == 0
    through_host = moved(peer=False)
    assert through_host[("activation", "peer")] == 0 < full[("activation", "peer")]
    assert (
        through_host[("activation_gradient", "swap_out")] == full[("activation_gradient", "peer")]
    )
    unpacked = volume(build("harmony-pp", model, box, 8, packing=False))
    assert unpacked[("activation", "swap_out")] > full[("activation", "swap_out")]


@pytest.mark.parametrize("scale", [2, 10])
def test_volumes_scale_with_weight_size(scale):
    small = build("dp-pager", chain(6, 1), Box(2, 2), 4)
    large = build("dp-pager", chain(6, scale), Box(2, 2 * scale), 4)
    assert volume(large)[("weight", "swap_in")] == scale * volume(small)[("weight", "swap_in")]


def test_one_microbatch_makes_grouping_irrelevant():
    model, box = chain(6, 5, 1, 1, 1, 1), Box(1, 100)
    grouped = volume(build("harmony-dp", model, box, 1, pack=1))
    single = volume(build("harmony-dp", model, box, 1, pack=1, grouping=False))
    assert grouped == single


def test_keep_never_moves_more_than_exclusive():
    model, box = chain(8, 3, 1, 1, 2, 2), Box(2, 24)
    for name in ("dp-pager", "gpipe-pager", "1f1b-pager", "dp-pager-recompute"):
        keep = volume(build(name, model, box, 8, host_copy="keep"))
        exclusive = volume(build(name, model, box, 8, host_copy="exclusive"))
        assert keep.total() <= exclusive.total()


def test_tied_weights_move_as_one_block_and_are_updated_once():
    plan = build("harmony-pp", chain(8, 5, 1, 1, 1, 1, tied=True), Box(2, 200), 4, pack=2)
    named = [t.name for t in plan.tensors if t.kind == "weight"]
    assert named.count("W[w0]") == 1
    pipe = build("1f1b", chain(8, 5, 1, 1, 1, 1, tied=True), Box(2, 2000), 4)
    reduced = [op for op in pipe.ops if op.kind == "collective"]
    assert [op.group for op in reduced] == [("gpu0", "gpu1")]


@pytest.mark.parametrize("layers", [3, 5, 8])
@pytest.mark.parametrize("m", [1, 2, 3])
@pytest.mark.parametrize("gpus", [1, 2])
def test_pager_moves_every_stash_out_and_in_once(layers, m, gpus):
    """Room for one layer's backward: only the last layer's stash survives its turn."""
    stash = 10
    plan = build("dp-pager", chain(layers, 1, stash=stash), Box(gpus, 1 + stash), m * gpus)
    moved = volume(plan)
    once = gpus * m * (layers - 1) * stash
    assert moved[("stash", "swap_out")] == moved[("stash", "swap_in")] == once
