"""Comparisons: rows, reasons, and the paragraph that says who wins."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from toys import chain

import hwmodels
import sim
from hwmodels.errors import InvalidInput, UnknownName
from sim.compare import Comparison, Result
from workloads.model import Model
from workloads.schedules.catalog import schedule


@pytest.fixture(scope="module")
def box():
    return hwmodels.server("pcie-4u-4x1080ti")


def model(size: int) -> Model:
    """Six layers with ``size`` bytes of weights each and work for about 0.2 s a sample."""
    found = chain(6, weight=size, gradient=1, state=2, boundary=10**6, stash=10**6)
    layers = tuple(
        replace(layer, forward_flops=1e11, backward_flops=2e11) for layer in found.layers
    )
    return replace(found, layers=layers)


@pytest.fixture(scope="module")
def found(box) -> Comparison:
    # 6 layers of 0.75 GB weights, 0.75 GB gradients, 3 GB states: two fit on 11 GB, six do not
    return sim.compare(
        model(75 * 10**7), box, minibatch=8, schedules=["dp", "harmony-dp", "gpipe", "harmony-pp"]
    )


def test_rows_agree_with_single_runs(found, box):
    table = found.table.set_index("schedule")
    assert list(table.columns) == [
        "server", "microbatch", "iteration time s", "samples/s", "tokens/s", "peak GPU memory GB",
        "host memory GB", "swap GB", "share of bound", "bottleneck", "note",
    ]  # fmt: skip
    for name in ("harmony-dp", "harmony-pp"):
        run = sim.simulate(schedule(name, model(75 * 10**7), box, minibatch=8), box)
        row = table.loc[name]
        assert row["iteration time s"] == run.iteration_time
        assert row["samples/s"] == 8 / run.iteration_time
        assert row["swap GB"] == run.swap_bytes / 1e9
        assert row["peak GPU memory GB"] == max(run.peak_memory[g] for g in box.gpus) / 1e9
        assert row["share of bound"] == run.explain().share_of_bound
        assert row["bottleneck"] == run.explain().bottleneck
        assert row["note"] == ""


def test_what_does_not_fit_is_a_row_with_the_reason(found):
    row = found.table.set_index("schedule").loc["dp"]
    assert row["note"].startswith("does not fit: gpu0 has")
    assert row["iteration time s"] != row["iteration time s"]  # missing
    assert found.results[-1].schedule == "dp"  # what did not run comes last


def test_fastest_first_and_best(found):
    times = [result.iteration_time for result in found.results if result.fits]
    assert times == sorted(times)
    assert found.best == found.results[0]
    assert found.best.iteration_time == min(times)


def test_other_reasons_are_kept_too(box):
    found = sim.compare(model(10**6), box, minibatch=6, schedules=["dp", "gpipe"])
    assert [r.fits for r in found.results] == [True, False]
    assert "minibatch 6 does not divide over the 4 GPUs" in found.results[1].note
    assert "1 of 2 schedules did not run." in found.why()


def test_progress_and_order(box):
    said: list[tuple[int, int, str]] = []
    sim.compare(
        model(10**6), [box, box], 4, schedules=["dp", "gpipe", "dp"],
        progress=lambda *step: said.append(step),
    )  # fmt: skip
    name = box.name
    assert said == [
        (0, 4, f"dp on {name}"), (1, 4, f"gpipe on {name}"), (2, 4, f"dp on {name} #2"),
        (3, 4, f"gpipe on {name} #2"), (4, 4, ""),
    ]  # fmt: skip


def test_an_interrupt_keeps_what_is_done(box):
    def stop(done: int, total: int, label: str) -> None:
        if done == 1 and label:
            raise KeyboardInterrupt

    found = sim.compare(model(10**6), box, 4, schedules=["dp", "gpipe"], progress=stop)
    assert [result.schedule for result in found.results] == ["dp"]
    assert not found.complete


def test_all_schedules_by_default(box):
    from workloads.schedules.catalog import schedule_infos

    found = sim.compare(model(10**7), box, minibatch=12)
    usual = {info.name for info in schedule_infos() if info.usual}
    assert {r.schedule for r in found.results} == usual
    assert all(result.fits for result in found.results)


def test_bad_arguments(box):
    with pytest.raises(UnknownName, match="did you mean harmony-pp"):
        sim.compare(model(1), box, 4, schedules=["harmony-ppp"])
    with pytest.raises(InvalidInput, match="no server"):
        sim.compare(model(1), [], 4)
    with pytest.raises(InvalidInput, match="minibatch is 0"):
        sim.compare(model(1), box, 0)


def test_json_and_html(found):
    plain = json.loads(json.dumps(found.to_dict()))
    assert [row["schedule"] for row in plain["results"]][-1] == "dp"
    assert plain["best"]["schedule"] == found.best.schedule
    assert plain["why"] == found.why()
    assert "does not fit" in found._repr_html_()
    assert repr(found).splitlines()[0] == "Comparison of toy at minibatch 8"


def test_picture_marks_bound_and_failures(found):
    (axes,) = found.plot().axes
    assert [t.get_text() for t in axes.get_yticklabels()] == [r.schedule for r in found.results]
    assert sum(text.get_text() == "does not fit" for text in axes.texts) == sum(
        not result.fits for result in found.results
    )
    for result, line in zip(found.results, axes.get_lines(), strict=False):
        bound = result.iteration_time * result.share_of_bound
        assert line.get_xdata()[0] == pytest.approx(bound, rel=1e-9)


def result(server: str, name: str, seconds: float, **facts) -> Result:
    facts = {"compute_share": 0.5, "bottleneck": "uplink0", "bound": "compute"} | facts
    return Result(server, name, fits=True, iteration_time=seconds, share_of_bound=0.8, **facts)


def test_paragraph_blames_swaps():
    rows = (
        result("a", "x", 2.0, swap_bytes=3 * 10**9, compute_share=0.5),
        result("a", "y", 5.0, swap_bytes=30 * 10**9, compute_share=0.2),
        Result("a", "z", note="does not fit: gpu0 is small"),
    )
    assert Comparison("m", 8, rows).why() == (
        "On a, x wins with 2.00 s an iteration, 2.50 times as fast as y, which swaps 30.0 GB "
        "(here 3.00 GB). Its bottleneck is uplink0, and its best lower bound (compute) is 80% of "
        "its time. 1 of 3 schedules does not fit."
    )


def test_paragraph_blames_compute_and_waiting():
    rows = (
        result("a", "x", 2.0, compute_share=0.5),  # 1 s of compute
        result("a", "same", 2.0, compute_share=0.5),
        result("a", "y", 3.0, compute_share=0.6),  # 0.8 s more compute in 1 s
        result("a", "z", 8.0, compute_share=0.125),  # as much compute, all else is waiting
    )
    said = Comparison("m", 8, rows).why()
    assert "x wins with 2.00 s an iteration (as fast: same)" in said
    assert "1.50 times as fast as y, which computes 1.80 s on a GPU (here 1.00 s)" in said
    assert (
        "4.00 times as fast as z, which leaves its GPUs without compute 88% of the time (here 50%)"
        in said
    )


def test_one_line_a_server_and_one_across():
    rows = (
        result("a", "x", 2.0),
        result("b", "x", 0.5),
        Result("c", "x", note="does not fit: gpu0 is small"),
    )
    said = Comparison("m", 8, rows).why()
    assert said.endswith(
        "On c no schedule runs: does not fit: gpu0 is small.\nWith the best schedule of each, b "
        "needs 500 ms for a minibatch of 8 of m, 4.00 times as fast as a."
    )
    assert Comparison("m", 8, ()).why() == "Nothing was compared."
    assert Comparison("m", 8, ()).best is None


def test_names_will_do():
    found = sim.compare("gpt2-small", "pcie-4u-4x1080ti", 8, schedules="harmony-pp")
    assert [(r.server, r.schedule) for r in found.results] == [("pcie-4u-4x1080ti", "harmony-pp")]
    assert any("a roofline at 71% of the arithmetic peak" in note for note in found.notes)


def test_a_missing_number_format_is_not_a_lack_of_memory():
    found = sim.compare("llama-2-7b", "dgx-1", 64)
    assert {r.note for r in found.results} == {
        "v100-sxm2-16gb has no bf16 arithmetic; it has fp32, fp16: choose a precision that "
        "computes in one of these."
    }


def test_minibatch_is_a_whole_number():
    with pytest.raises(InvalidInput, match=r"minibatch is 8\.0"):
        sim.compare("gpt2-small", "dgx-1", 8.0)
