"""Micro-benchmarks on logical devices, with a small plan and little time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import validate.bench.collectives as collectives_module
import validate.bench.compute as compute_module
import validate.bench.copies as copies_module
import validate.bench.updates as updates_module
from hwmodels.errors import InvalidInput
from validate.bench import Chain, bench, layer_records, show
from validate.bench.copies import places, slab_sizes
from validate.bench.layers import cases, number_format
from validate.bench.timing import LEAST, MOST, busy, repeat, spread
from validate.devices import COLLECTIVES, devices
from validate.measurements import Machine, Measurements
from validate.nets import convnet, gpt, pictures, text
from validate.plan import LARGE, Pattern, plan, steps

SMALL = 2**16
OTHERS = ("copies", "collective")


def small_plan(machine: Machine) -> Iterator[Pattern]:
    """Every kind of pattern of the real plan, once, with few bytes."""
    seen: set[object] = set()
    for pattern in plan(machine):
        kind = tuple((a[:3], b[:3]) for a, b in pattern.flows), pattern.pinned
        if kind not in seen:
            seen.add(kind)
            yield pattern._replace(nbytes=SMALL)


def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pretend that caches are small, so that little data defeats them; load with small copies."""
    for module in (copies_module, updates_module):
        monkeypatch.setattr(module, "cache_bytes", lambda: 2**18)
    for module in (copies_module, compute_module):
        monkeypatch.setattr(module, "SHARED", 4 * SMALL)
    monkeypatch.setattr(collectives_module, "SIZES", (SMALL, 4 * SMALL))


def run(**settings: Any) -> Measurements:
    chain = Chain(gpt(2, 32, 2, 50, 8), text(2, 8, 50))
    usual = {"gpus": 2, "networks": [chain], "microbatches": (1, 3)}
    return bench("cpu", plan=small_plan, budget_seconds=0.5, **(usual | settings))


@pytest.fixture(scope="module")
def found() -> Measurements:
    with pytest.MonkeyPatch.context() as patch:
        small(patch)
        return run()


def test_nothing_is_left_out_and_all_times_are_positive(found: Measurements) -> None:
    assert found.left_out == ()
    for record in (*found.collectives, *found.compute, *found.updates):
        assert 0 < record.seconds < 10
        assert record.spread >= 0
    for copies in found.copies:
        assert len(copies.seconds) == len(copies.flows)
        assert all(0 < seconds < 10 for seconds in copies.seconds)
    assert found.launch.keys() == {"gpu0", "gpu1"}
    assert all(0 < seconds < 1 for seconds in found.launch.values())


def test_machine(found: Measurements) -> None:
    machine = found.machine
    assert machine.gpus == ("gpu0", "gpu1")
    assert machine.near == ("host0", "host0")
    assert machine.memory == (machine.host_memory[0],) * 2
    assert machine.software["torch"] == torch.__version__
    assert machine.cores[0] >= 1


def test_copies(found: Measurements) -> None:
    """Those of the plan; logical devices have nothing to page-lock."""
    wanted = [each.flows for each in small_plan(found.machine) if each.pinned]
    assert [each.flows for each in found.copies] == wanted
    assert all(each.nbytes == SMALL and not each.pinned for each in found.copies)
    both = (("host0", "gpu0"), ("gpu0", "host0"))
    assert both in wanted
    assert (("gpu0", "gpu1"),) in wanted


def test_collectives(found: Measurements) -> None:
    made = [(each.kind, each.nbytes) for each in found.collectives]
    assert made == [(kind, size) for kind in COLLECTIVES for size in (SMALL, 4 * SMALL)]
    assert all(each.group == ("gpu0", "gpu1") for each in found.collectives)


def test_layers_alike_are_measured_once(found: Measurements) -> None:
    alone = [
        (each.layer, each.phase, each.samples)
        for each in found.compute
        if not each.beside and each.phase != "update"
    ]
    assert alone == [
        (layer, phase, samples)
        for samples in (1, 3)
        for layer in ("embedding", "block", "head")
        for phase in ("forward", "recompute", "backward")
    ]


def test_work_of_layers(found: Measurements) -> None:
    """Backward of a block does twice the FLOPs of forward; stash shows in the peak."""
    block = {e.phase: e for e in found.compute if (e.layer, e.samples) == ("block", 3)}
    by_phase = {e.phase: e for e in found.compute if e.layer == "block" and not e.beside}
    b, s, h = 3, 8, 32
    assert block["forward"].flops == 24 * b * s * h * h + 4 * b * s * s * h
    assert block["backward"].flops == 2 * block["forward"].flops
    assert by_phase["recompute"].peak_bytes > by_phase["forward"].peak_bytes > 0
    assert {e.dtype for e in found.compute} == {"fp32"}
    update = by_phase["update"]
    params = 12 * h * h + 13 * h
    assert (update.samples, update.flops, update.bytes) == (1, 12 * params, 28 * params)


def test_layers_beside_copies_and_collectives(found: Measurements) -> None:
    beside = {(e.layer, e.phase, e.beside) for e in found.compute if e.beside}
    layers = ("embedding", "block", "head")
    wanted = {(n, p, o) for n in layers for p in ("forward", "backward") for o in OTHERS}
    assert beside == wanted | {(name, "update", "copies") for name in layers}
    assert all(e.samples == 3 for e in found.compute if e.beside and e.phase != "update")


def test_updates_on_hosts(found: Measurements) -> None:
    made = [(each.hosts, each.beside, each.params) for each in found.updates]
    least = min(size for *_, size in made)
    assert made == [(x.hosts, x.beside, x.scale * least) for x in steps(found.machine)]
    assert all(each.nbytes == 28 * each.params for each in found.updates)


def test_file_and_table(
    found: Measurements, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found.save(tmp_path / "m.json")
    assert Measurements.load(tmp_path / "m.json") == found
    show(found.model_copy(update={"left_out": ("copy of the moon: too far",)}))
    text = capsys.readouterr().out
    for words in ("host to GPU, 2 GPUs", "all-reduce", "block backward + coll.", "empty kernel"):
        assert words in text
    assert "Left out: copy of the moon: too far." in text
    assert "pageable" not in text


def interrupted(at: int) -> tuple[Measurements, list[str]]:
    """What a run gives that is interrupted before a measurement, and the labels until then."""
    seen: list[str] = []

    def progress(done: int, total: int, label: str) -> None:
        seen.append(label)
        if done == at:
            raise KeyboardInterrupt

    return run(progress=progress), seen


def test_the_set_of_records_is_always_the_same(
    found: Measurements, monkeypatch: pytest.MonkeyPatch
) -> None:
    small(monkeypatch)
    (one, _), (other, _) = interrupted(0), interrupted(0)
    assert one.left_out == other.left_out
    records = (found.copies, found.collectives, found.compute, found.updates, found.launch)
    assert len(one.left_out) == sum(map(len, records))
    assert one.copies == one.updates == ()


def test_interrupted_it_keeps_what_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    small(monkeypatch)
    part, seen = interrupted(2)
    assert len(part.updates) == 2
    assert len(seen) == 3
    assert part.copies == part.compute == ()
    assert part.left_out[0] == f"{seen[2]}: interrupted"
    assert part.left_out[-1] == "launch on gpu1: interrupted"


def test_one_gpu_has_no_peers_and_no_collectives(monkeypatch: pytest.MonkeyPatch) -> None:
    small(monkeypatch)
    one = run(gpus=1, networks=[Chain(convnet((3, 8, 8, 8)), pictures(2, 8))], microbatches=(2,))
    assert one.left_out == ()
    assert one.collectives == ()
    assert all("host0" in flow for copies in one.copies for flow in copies.flows)
    assert {e.beside for e in one.compute} == {"", "copies"}
    rows = {e.layer for e in one.compute}
    assert rows == {"convblock.0", "convblock.1", "convblock.2", "pool", "classifier"}


def test_what_fails_is_left_out_with_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    small(monkeypatch)

    def no_room(*_: object) -> None:
        raise torch.OutOfMemoryError("out of memory\nand a long story")

    monkeypatch.setattr(updates_module, "measure", no_room)
    part, seen = interrupted(3)
    assert part.updates == ()
    assert part.left_out[:3] == tuple(f"{label}: out of memory" for label in seen[:3])
    assert part.left_out[3] == f"{seen[3]}: interrupted"


def test_wrong_calls_say_what_is_right() -> None:
    same = Chain(gpt(1, 8, 2, 5, 4), text(1, 4, 5))
    with pytest.raises(InvalidInput, match="two networks have a layer 'embedding'"):
        bench("cpu", networks=[same, same])
    with pytest.raises(InvalidInput, match="give sizes of at least 1"):
        bench("cpu", microbatches=())
    double = cases(
        [nn.Linear(2, 2).double()], [torch.zeros(1, 2).double()], 1, devices("cpu"), "gpu0"
    )
    with pytest.raises(InvalidInput, match=r"computes in torch\.float64"):
        number_format(double[0])


def test_plan_of_four_gpus() -> None:
    machine = Machine(
        name="box",
        gpus=("gpu0", "gpu1", "gpu2", "gpu3"),
        models=("a",) * 4,
        memory=(1,) * 4,
        hosts=("host0", "host1"),
        host_memory=(1, 1),
        cores=(1, 1),
        near=("host0", "host0", "host1", "host1"),
    )
    found = plan(machine)
    assert len(found) == len(set(found))
    assert Pattern((("host1", "gpu2"),), LARGE[0]) in found
    everything = tuple(zip(machine.near, machine.gpus, strict=True))
    assert Pattern(everything, LARGE[0]) in found
    peers = {p.flows for p in found if len(p.flows) == 1 and "host" not in str(p.flows)}
    assert len(peers) == 12


def test_flows_share_no_buffer() -> None:
    flows = (("host0", "gpu0"), ("host0", "gpu1"), ("gpu0", "host0"))
    pattern = Pattern(flows, 2**30)
    ends = [place for pair in places(pattern) for place in pair]
    assert len(set(ends)) == len(ends) == 6
    assert slab_sizes([pattern]) == dict.fromkeys(ends, 2**30)


def test_copies_bring_the_bytes() -> None:
    with closing(devices("cpu")) as found:
        source, destination = found.allocate("host0", 1000), found.allocate("gpu0", 1000)
        work = copies_module.copying(source, destination, 300)
        for _ in range(3):
            work()
    assert torch.equal(source[:900], destination[:900])
    assert not torch.equal(source[900:], destination[900:])


def test_repeats_until_steady_or_out_of_time() -> None:
    calls: list[int] = []

    def steady(batch: int) -> list[float]:
        calls.append(batch)
        return [0.25e-3 * batch]

    sample = repeat(steady, until=float("inf"))
    assert sample == ((pytest.approx(0.25e-3),), pytest.approx(0, abs=1e-9))
    assert calls == [1, 1] + [2] * LEAST  # 2 x 0.25 ms fill a region of 0.5 ms

    def wild(batch: int) -> list[float]:
        calls.append(batch)
        return [float(len(calls)), 1.0]

    calls.clear()
    assert repeat(wild, until=0.0).spread == spread([3, 4, 5, 6, 7])
    assert len(calls) == 2 + LEAST
    calls.clear()
    repeat(wild, until=float("inf"))
    assert len(calls) == 2 + MOST


def test_spread_is_half_the_quartile_distance() -> None:
    assert spread([1, 2, 3, 4, 5]) == (4 - 2) / 2 / 3


def test_busy_runs_meanwhile_and_stops() -> None:
    count = [0]

    def work() -> None:
        count[0] += 1

    with closing(devices("cpu")) as found, closing(found.stream("gpu0")) as stream:
        with busy([(stream, work)]):
            start = count[0]
            while count[0] < start + 100:
                pass
        end = count[0]
        stream.mark().wait()
    assert start >= 1
    assert count[0] == end


def test_busy_hands_on_errors() -> None:
    def fail() -> None:
        raise RuntimeError("no peer access")

    with (
        closing(devices("cpu")) as found,
        closing(found.stream("gpu0")) as stream,
        pytest.raises(RuntimeError, match="no peer access"),
        busy([(stream, fail)]),
    ):
        pass


def test_layers_alone() -> None:
    chain = Chain(gpt(2, 32, 2, 50, 8), text(2, 8, 50))
    found = layer_records("cpu", 1, chain, 2, budget_seconds=0.2)
    phases = ("forward", "recompute", "backward")
    assert {(x.layer, x.phase) for x in found} == {
        (layer, phase) for layer in ("embedding", "block", "head") for phase in phases
    }
    assert all(x.samples == 2 and x.seconds > 0 and not x.beside for x in found)
