"""The order of actions on each rank: as torch.distributed.pipelining has it, and as papers say."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from types import SimpleNamespace
from unittest.mock import MagicMock

import pytest
from hypothesis import given
from hypothesis import strategies as st
from toys import BIG, Box, build, chain

from hwmodels.errors import InvalidInput
from workloads.schedules.pipeline_orders import ORDERS

OF_TORCH = {
    "gpipe": "ScheduleGPipe",
    "1f1b": "Schedule1F1B",
    "interleaved-1f1b": "ScheduleInterleaved1F1B",
    "looped-bfs": "ScheduleLoopedBFS",
    "interleaved-zb": "ScheduleInterleavedZeroBubble",
    "zb-v": "ScheduleZBVZeroBubble",
    "dualpipe-v": "ScheduleDualPipeV",
}


def of_torch(name, microbatches, ranks, chunks):
    """Actions by rank as torch writes them (``2F0``), without its empty slots."""
    from torch.distributed.pipelining import schedules

    made = getattr(schedules, OF_TORCH[name])
    if chunks == 1 and ORDERS[name].stages == "one":
        return {rank: run_one(made, microbatches, ranks, rank) for rank in range(ranks)}
    stages = [
        SimpleNamespace(
            stage_index=ranks * chunk, num_stages=ranks * chunks, group_size=ranks, group_rank=0,
            submod=None,
        )
        for chunk in range(chunks)
    ]  # fmt: skip
    order = made(stages, microbatches).pipeline_order
    return {rank: [str(action) for action in actions if action] for rank, actions in order.items()}


def run_one(made, microbatches, ranks, rank):
    """What torch's own step does on a stage that only notes it.

    The order that torch 2.13 prints of 1F1B numbers the forwards of the last rank from 1.
    """
    done = []
    stage = MagicMock(stage_index=rank, num_stages=ranks, is_last=False)
    for ops in ("get_fwd_recv_ops", "get_fwd_send_ops", "get_bwd_recv_ops", "get_bwd_send_ops"):
        getattr(stage, ops).return_value = []
    stage.forward_one_chunk.side_effect = lambda j, *_, **__: done.append(f"{rank}F{j}")
    stage.backward_one_chunk.side_effect = lambda j, *_, **__: done.append(f"{rank}B{j}")
    schedule = made(stage, microbatches, loss_fn=MagicMock())
    schedule._initialize_stage = MagicMock()  # shapes and peers, which need processes
    schedule._step_microbatches([()] * microbatches)
    return done


def ours(name, microbatches, ranks, chunks):
    """Actions by rank in torch's letters."""
    found = {}
    for rank in range(ranks):
        words, pair = [], ""
        for kind, stage, j, joined in ORDERS[name].order(microbatches, ranks, rank, chunks):
            word = f"{stage}{kind}{j}"
            if joined:
                pair = word
            else:
                words.append(f"({pair};{word})OVERLAP_F_B" if pair else word)
                pair = ""
        found[rank] = words
    return found


def counts(name, ranks):
    """Numbers of microbatches that an order takes."""
    if name in ("interleaved-1f1b", "interleaved-zb"):
        return [ranks, 2 * ranks, 3 * ranks]
    if name == "dualpipe-v":
        return [2 * ranks, 2 * ranks + 1, 3 * ranks + 2]
    return [ranks, ranks + 1, 3 * ranks + 1]


@pytest.mark.parametrize("name", OF_TORCH)
@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 6])
def test_same_order_as_torch(name, ranks):
    for chunks in {"one": [1], "many": [2, 3], "two": [2]}[ORDERS[name].stages]:
        for microbatches in counts(name, ranks):
            theirs = of_torch(name, microbatches, ranks, chunks)
            assert ours(name, microbatches, ranks, chunks) == theirs


@given(st.sampled_from(sorted(ORDERS)), st.integers(1, 5), st.integers(1, 3), st.integers(0, 9))
def test_every_action_once_and_halves_in_order(name, half, chunks, more):
    """Each stage sees each microbatch once forward, then backward: whole, or I before W."""
    entry = ORDERS[name]
    ranks = 2 * half if entry.stages == "mirrored" else half
    chunks = {"many": chunks, "two": 2}.get(entry.stages, 1)
    rounds = 2 * ranks * (2 + more)
    seen = Counter()
    for rank in range(ranks):
        done = set()
        actions = entry.order(rounds, ranks, rank, chunks)
        for kind, stage, j, _ in actions:
            assert (kind, stage, j) not in done
            if kind in "BI":
                assert ("F", stage, j) in done
            if kind == "W":
                assert ("I", stage, j) in done
            done.add((kind, stage, j))
        assert all(a.kind == "F" and b.kind == "B" for a, b in pairwise(actions) if a.joined)
        for kind, stage, j in done:
            for part in {"B": "IW"}.get(kind, kind):
                seen[part, stage, j] += 1
    stages = ranks * chunks
    assert set(seen.values()) == {1}
    assert len(seen) == 3 * stages * rounds


def in_flight(name, microbatches, ranks, rank, chunks=1):
    """Most forwards whose backward is not done: whole or its weight half; and its input half."""
    now, most = Counter(), Counter()
    for kind, *_ in ORDERS[name].order(microbatches, ranks, rank, chunks):
        for half in {"F": "IW", "B": "IW"}.get(kind, kind):
            now[half] += 1 if kind == "F" else -1
        most |= now
    return most["W"], most["I"]


@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 8])
@pytest.mark.parametrize("rounds", [1, 2, 3])
def test_microbatches_in_flight(ranks, rounds):
    count = 2 * ranks * rounds
    for rank in range(ranks):
        assert in_flight("gpipe", count, ranks, rank)[0] == count
        assert in_flight("1f1b", count, ranks, rank)[0] == min(count, ranks - rank)
        assert in_flight("looped-bfs", count, ranks, rank, 3)[0] == 3 * count
        for chunks in (2, 3):
            steps = 2 * (ranks - rank - 1) + (chunks - 1) * ranks + 1
            assert in_flight("interleaved-1f1b", count, ranks, rank, chunks)[0] == steps
        # zero bubble: the input half is done as early as in 1F1B, the weight half waits
        assert in_flight("zb-h1", count, ranks, rank) == (ranks, ranks - rank)
        assert in_flight("zb-h2", count, ranks, rank) == (2 * ranks - 1, 2 * (ranks - rank) - 1)
        assert in_flight("zb-v", count, ranks, rank)[0] == 2 * ranks
        assert in_flight("dualpipe-v", count, ranks, rank)[0] == 2 * ranks + 1
        if ranks % 2 == 0:
            assert in_flight("dualpipe", count, ranks, rank)[0] == ranks + 1


@pytest.mark.parametrize(
    ("name", "gpus", "minibatch", "words"),
    [
        (
            "interleaved-1f1b",
            4,
            6,
            "makes 6 microbatches; their number must be a multiple of the 4",
        ),
        ("interleaved-zb", 3, 8, "must be a multiple of the 3 GPUs"),
        ("dualpipe", 3, 8, "even number of GPUs"),
        ("dualpipe", 4, 9, "an even number, at least 8"),
        ("dualpipe", 4, 6, "an even number, at least 8"),
        ("dualpipe-v", 4, 7, "at least 8, two for each GPU"),
    ],
)
def test_what_an_order_cannot_take(name, gpus, minibatch, words):
    with pytest.raises(InvalidInput, match=words):
        build(name, chain(12), Box(gpus, BIG), minibatch)


def test_too_few_layers():
    with pytest.raises(InvalidInput, match="3 stages a GPU need 3 layers at least; toy has 2"):
        build("looped-bfs", chain(2), Box(2, BIG), 4, chunks=3)
    plan = build("zb-v", chain(5), Box(4, BIG), 4)
    assert plan.notes == ("2 of 4 GPUs stay idle: too few layers.",)
