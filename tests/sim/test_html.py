"""The page of a run: its data are the run's, to the bit, and names cannot break out of it."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import hypothesis.strategies as st
import numpy as np
import pytest
import run_cases
from hypothesis import given
from page_files import packed, unpack

import hwmodels
import workloads
from hwmodels.errors import InvalidInput
from sim import Run, simulate
from sim.columns import pack

HOSTILE = (
    "</script><script>window.hacked=1</script><img src=x onerror='window.hacked=1'>{{data}}&\""
)


@pytest.fixture(scope="module")
def run() -> Run:
    return simulate(run_cases.plan(), run_cases.box())


@pytest.fixture(scope="module")
def generated() -> Run:
    """Collectives, several GPUs, and a barrier that others wait for."""
    box = hwmodels.server("pcie-4u-4x1080ti")
    model = workloads.model("bert-large", sequence=128)
    plan = workloads.schedule("dp-pager", model, box, minibatch=16)
    return simulate(workloads.repeat(plan, 2), box)


@pytest.mark.parametrize("which", ["run", "generated"])
def test_columns_are_the_records(which, request):
    run = request.getfixturevalue(which)
    facts, columns = unpack(packed(run.to_html()))
    ops = run.ops()
    ids = ops["op"].to_numpy()
    for name in ("start", "end", "ready"):
        assert np.array_equal(columns[name][ids], ops[name])
    copies = run.copies()
    of_copies = copies["op"].to_numpy()
    assert np.array_equal(columns["bytes"][of_copies], copies["bytes"])
    names = [facts["tensors"][at] for at in columns["tensor"][of_copies]]
    assert names == list(copies["tensor"])
    assert [facts["devices"][at] for at in columns["peer"][of_copies]] == list(copies.destination)
    assert [facts["actions"][at] for at in columns["action"][ids]] == list(ops["phase"])
    work = {op.id: sum(p.flops for p in op.work.parts) for op in run.schedule.ops if op.work}
    assert columns["flop"][list(work)].tolist() == list(work.values())
    assert facts["finish"] == run.duration


def test_every_operation_lies_in_its_stream_and_a_collective_in_each_members(generated):
    facts, columns = unpack(packed(generated.to_html()))
    streams = [columns[f"stream.{i}"].astype(int) for i in range(len(facts["streams"]))]
    shown = np.bincount(np.concatenate(streams), minlength=len(generated.schedule.ops))
    ops = generated.schedule.ops
    assert any(op.group for op in ops)
    assert shown.tolist() == [0 if op.kind == "free" else len(op.group) or 1 for op in ops]


def test_what_was_waited_for_is_shown(generated):
    _, columns = unpack(packed(generated.to_html()))
    kinds = [op.kind for op in generated.schedule.ops]
    before = generated.timeline.last_dependency
    hidden = [at for at in before if at >= 0 and kinds[at] == "free"]
    assert hidden  # else this case would prove nothing
    assert all(at < 0 or kinds[at] != "free" for at in columns["waited"])
    plain = [i for i, at in enumerate(before) if at < 0 or kinds[at] != "free"]
    assert np.array_equal(columns["waited"][plain], before[plain])


@pytest.mark.parametrize("which", ["run", "generated"])
def test_memory_is_the_runs_memory(which, request):
    run = request.getfixturevalue(which)
    facts, columns = unpack(packed(run.to_html()))
    assert {name: peak for name, _, peak in facts["memory"]} == {
        device: peak for device, peak in run.peak_memory.items() if peak
    }
    for at, (device, capacity, _) in enumerate(facts["memory"]):
        table = run.memory(device)
        assert capacity == run.schedule.capacity[device]
        assert np.array_equal(columns[f"memory.{at}.times"], table["time"])
        kinds = [kind for kind, *_ in facts["kinds"] if f"memory.{at}.{kind}" in columns]
        assert set(kinds) == set(table.columns) - {"time", "bytes"}
        for kind in kinds:
            level = np.cumsum(columns[f"memory.{at}.{kind}"].astype(float))
            assert np.array_equal(level, table[kind])


def test_critical_path_is_the_explanations(generated):
    facts, columns = unpack(packed(generated.to_html()))
    path = generated.explain().path
    assert columns["path.op"].tolist() == [part.op for part in path]
    assert columns["path.start"].tolist() == [part.start for part in path]
    assert columns["path.end"].tolist() == [part.end for part in path]
    names = [facts["resources"][at] for at in columns["path.resource"]]
    assert names == [part.resource for part in path]


def test_page_says_title_results_and_notes(generated):
    page = generated.to_html()
    for text in (generated.title, *generated.notes, "samples/s", "bottleneck: "):
        assert text.replace("'", "&#x27;").replace(">", "&gt;") in page


def test_page_asks_for_nothing_from_outside(run):
    page = run.to_html()
    assert not re.search(r"https?:|\bsrc=|@import|url\(|\bfetch\(|XMLHttpRequest", page)


def test_names_cannot_break_out(run):
    plan = run_cases.plan()
    tensors = tuple(tensor._replace(name=HOSTILE + tensor.name) for tensor in plan.tensors)
    hostile = simulate(replace(plan, tensors=tensors, name=HOSTILE, model=HOSTILE), run_cases.box())
    page = hostile.to_html()
    assert "hacked" in page  # the title is there, escaped
    assert page.count("<script") == run.to_html().count("<script") == 2
    assert "<img" not in page
    facts, _ = unpack(packed(page))
    assert facts["tensors"][0] == HOSTILE + "W[a]"


def test_equal_runs_give_equal_pages(run, tmp_path):
    page = simulate(run_cases.plan(), run_cases.box()).to_html()
    target = run.to_html(tmp_path / "run.html")
    assert target == tmp_path / "run.html"
    assert target.read_text(encoding="utf-8") == page


def test_page_is_small():
    """200 000 operations must stay below 12 MB: 60 bytes for each."""
    many = 2000
    plan = workloads.repeat(run_cases.plan(), many)
    page = simulate(plan, run_cases.box()).to_html()
    assert len(page.encode()) < 60 * len(plan.ops) + 60_000  # the page itself


def test_run_without_operations_has_a_page():
    empty = replace(run_cases.plan(), ops=(), initial=(), final=(), tensors=())
    facts, columns = unpack(packed(simulate(empty, run_cases.box()).to_html()))
    assert (facts["finish"], facts["streams"], facts["memory"]) == (0, [], [])
    assert len(columns["start"]) == 0


def test_page_that_cannot_be_written(run, tmp_path):
    with pytest.raises(InvalidInput, match="cannot be written"):
        run.to_html(tmp_path / "nowhere" / "run.html")


WHOLE = st.integers(-(2**53) + 1, 2**53 - 1)
INTEGERS = st.lists(WHOLE, max_size=5).map(lambda values: np.array(values, np.int64))
FLOATS = st.lists(st.floats(), max_size=5).map(lambda values: np.array(values, np.float64))


@given(st.dictionaries(st.text(max_size=3), INTEGERS | FLOATS, max_size=4), st.text())
def test_packed_columns_come_back(columns, text):
    facts, found = unpack(pack({"text": text}, columns))
    assert facts == {"text": text}
    assert list(found) == list(columns)
    for name, column in columns.items():
        assert np.array_equal(found[name].astype(column.dtype), column, equal_nan=True)


def test_small_numbers_take_small_columns():
    columns = {"a": [0, 255], "b": [-1, 32767], "c": [0, 32768], "d": [2**31], "e": []}
    text = pack({}, {name: np.array(values, np.int64) for name, values in columns.items()})
    _, found = unpack(text)
    kinds = {name: column.dtype.str[1:] for name, column in found.items()}
    assert kinds == {"a": "u1", "b": "i2", "c": "i4", "d": "f8", "e": "u1"}


def test_package_data_are_all_used():
    folder = Path(__file__).parents[2] / "sim" / "page"
    from sim import html

    named = {"timeline.html", "timeline.css", *html._SCRIPTS}
    assert {file.name for file in folder.iterdir()} == named
