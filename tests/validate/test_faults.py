"""What goes wrong while a schedule runs for real: one sentence, no hang, measurements kept."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from toys import ideal
from worlds import Batch, gpt, roomy, tight

import sim
import workloads as wl
from hwmodels.errors import CommodiousError, InvalidInput, InvalidSchedule
from validate.execute import ExecutionFailed, ExecutionInterrupted, execute, replay
from validate.interpret import Interpreter
from validate.network import Network
from workloads.schedule import Op, Schedule

PATIENCE = 30.0
"""Seconds after which a run counts as hanging."""


class Watchdog:
    """Fails the test in which the body does not end; leaves no thread behind."""

    def __enter__(self) -> None:
        self.before = set(threading.enumerate())
        self.timer = threading.Timer(PATIENCE, os.kill, (os.getpid(), signal.SIGALRM))
        self.old = signal.signal(signal.SIGALRM, self.bark)
        self.timer.start()

    def bark(self, number: int, frame: object) -> None:
        raise AssertionError(f"still running after {PATIENCE} s")

    def __exit__(self, *what: object) -> None:
        self.timer.cancel()
        self.timer.join()
        signal.signal(signal.SIGALRM, self.old)
        assert set(threading.enumerate()) <= self.before, "a worker is still alive"


def run(plan: Schedule, network: Network, batches: Sequence[Batch], gpus: int = 2) -> None:
    with Watchdog():
        execute(plan, network, batches, ideal(gpus))


def breaks(
    monkeypatch: pytest.MonkeyPatch, matches: Callable[[Op], bool], act: Callable[[], Any]
) -> None:
    """Let the 3rd operation that matches do something else than it should."""
    usual, seen = Interpreter.act, []

    def changed(self: Interpreter, op: Op) -> None:
        if matches(op):
            seen.append(op)
            if len(seen) == 3:
                act()
        usual(self, op)

    monkeypatch.setattr(Interpreter, "act", changed)


def fail(error: Exception) -> Callable[[], None]:
    def act() -> None:
        raise error

    return act


@pytest.mark.parametrize("phase", ["forward", "backward", "update", "swap_in", "swap_out"])
def test_a_worker_that_raises(monkeypatch, phase):
    plan, _ = tight("harmony-pp", gpt(), 2)
    breaks(monkeypatch, lambda op: op.phase == phase, fail(RuntimeError("the cable fell out")))
    with pytest.raises(ExecutionFailed, match=rf"op \d+ \({phase} on .*the cable fell out") as got:
        run(plan, gpt().network, gpt().batches[:1])
    assert "\n" not in str(got.value)
    kept = got.value.end[~np.isnan(got.value.end)]
    assert len(kept)
    assert (kept > 0).all()
    assert f"{len(kept)} operations were measured" in str(got.value)


def test_a_device_out_of_memory(monkeypatch):
    plan, _ = tight("dp-pager", gpt(), 2)
    lack = torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 MiB")
    breaks(monkeypatch, lambda op: op.phase == "backward", fail(lack))
    with pytest.raises(ExecutionFailed, match="out of memory"):
        run(plan, gpt().network, gpt().batches[:1])


def test_a_smaller_device_than_planned():
    """The ledger refuses the first byte too much, whatever the machine really has."""
    plan, _ = tight("dp-pager", gpt(), 1)
    smaller = replace(plan, capacity={**plan.capacity, "gpu0": plan.capacity["gpu0"] // 2})
    order = sim.simulate(plan, ideal(1)).timeline.sequence
    with pytest.raises(CommodiousError, match=r"op \d+ .* takes \d+ bytes on gpu0, where \d+ of"):
        replay(smaller, gpt().network, gpt().batches[:1], order)


def without(plan: Schedule, number: int, **changes: Any) -> Schedule:
    ops = list(plan.ops)
    ops[number] = ops[number]._replace(**changes)
    return replace(plan, ops=tuple(ops))


def find(plan: Schedule, **wanted: str) -> Op:
    return next(
        op for op in plan.ops if all(getattr(op, key) == value for key, value in wanted.items())
    )


def test_a_damaged_schedule_is_refused_before_it_runs():
    plan, _ = tight("harmony-pp", gpt(), 2)
    op = find(plan, phase="backward")
    with pytest.raises(InvalidSchedule):
        run(without(plan, op.id, frees=()), gpt().network, gpt().batches[:1])


@pytest.mark.parametrize(
    ("wanted", "changes", "words"),
    [
        ({"phase": "swap_in"}, {"allocs": ()}, "writes .* which is not there"),
        ({"phase": "backward"}, {"phase": "sideways"}, "nobody knows how to run a sideways"),
        ({"phase": "forward"}, {"allocs": ()}, "writes .* which is not there"),
    ],
)
def test_damage_that_the_proof_did_not_see(wanted, changes, words):
    """The interpreter does not trust the proof."""
    plan, _ = tight("harmony-pp", gpt(), 2)
    order = sim.simulate(plan, ideal(2)).timeline.sequence
    damaged = without(plan, find(plan, **wanted).id, **changes)
    with pytest.raises(InvalidSchedule, match=words):
        replay(damaged, gpt().network, gpt().batches[:1], order)


def test_a_read_of_what_was_dropped():
    """Freeing a stash before its backward is noticed by the backward, not by luck."""
    plan, _ = roomy("dp", gpt(), 1)
    op = find(plan, phase="backward")
    stash = next(t for t in op.reads if plan.tensors[t].kind == "stash")
    early = next(o for o in plan.ops if stash in o.writes)
    damaged = without(plan, early.id, frees=(*early.frees, (stash, "gpu0")))
    order = sim.simulate(plan, ideal(1)).timeline.sequence
    with pytest.raises(InvalidSchedule, match=r"op \d+ \(backward .* reads stash.*not there"):
        replay(damaged, gpt().network, gpt().batches[:1], order)


def test_ctrl_c(monkeypatch):
    plan, _ = tight("harmony-pp", gpt(), 2)
    breaks(
        monkeypatch,
        lambda op: op.phase == "forward",
        lambda: os.kill(os.getpid(), signal.SIGINT),
    )
    usual = Interpreter.act

    def slow(self: Interpreter, op: Op) -> None:
        usual(self, op)
        threading.Event().wait(0.02)

    monkeypatch.setattr(Interpreter, "act", slow)
    with pytest.raises(ExecutionInterrupted, match=r"stopped after \d+ operations") as got:
        run(plan, gpt().network, gpt().batches[:1])
    kept = np.count_nonzero(~np.isnan(got.value.end))
    assert 0 < kept < len(plan.ops)


def test_a_layer_that_works_in_place():
    class Careless(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.mul_(2.0)

    world = gpt()
    layers = (world.network.layers[0], Careless(), *world.network.layers[2:])
    slots = (world.network.slots[0], (), *world.network.slots[2:])
    plan, _ = roomy("dp", world, 1)
    careless = replace(world.network, layers=layers, slots=slots)
    with pytest.raises(ExecutionFailed, match=r"op \d+ \(forward on .*modified inplace"):
        run(plan, careless, world.batches[:1], 1)


@pytest.mark.parametrize(
    ("batches", "words"),
    [
        (lambda world: world.batches, "2 batches were passed for 1 iterations"),
        (lambda world: [tuple(part[:4] for part in world.batches[0])], "has 4 samples"),
    ],
)
def test_batches_that_do_not_match(batches, words):
    plan, _ = roomy("dp", gpt(), 1)
    with pytest.raises(InvalidInput, match=words):
        run(plan, gpt().network, batches(gpt()), 1)


def test_fewer_devices_than_gpus():
    plan, _ = roomy("dp", gpt(), 2)
    with pytest.raises(InvalidInput, match="runs on 2 GPUs and 1 devices were passed"):
        execute(plan, gpt().network, gpt().batches[:1], ideal(2), devices=["cpu"])


def test_a_network_of_another_model():
    with pytest.raises(InvalidInput, match="describes 5 layers and 4 were passed"):
        Network.bind(gpt().network.layers[:-1], gpt().network.model)
    wider = [torch.nn.Linear(2, 2), *gpt().network.layers[1:]]
    with pytest.raises(InvalidInput, match="make the model of these layers"):
        Network.bind(wider, gpt().network.model)


def test_dropout_is_refused():
    layers = [torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Dropout(0.1))]
    data = torch.zeros(4, 2)
    layers[0].eval()
    model = wl.from_torch(layers, data)
    assert Network.bind(layers, model).model is model
    layers[0].train()
    with pytest.raises(InvalidInput, match=r"drops values at random in '1'"):
        Network.bind(layers, model)
