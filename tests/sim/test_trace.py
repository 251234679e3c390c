"""Trace files against the case that run_cases walks by hand."""

from __future__ import annotations

import gzip
import json

import pytest
import run_cases

from hwmodels.errors import InvalidInput
from sim import Run, simulate


@pytest.fixture(scope="module")
def run() -> Run:
    return simulate(run_cases.plan(), run_cases.box())


@pytest.fixture(scope="module")
def trace(run, tmp_path_factory):
    return json.loads(run.to_trace(tmp_path_factory.mktemp("trace") / "run.json").read_text())


def test_one_process_per_device_and_one_thread_per_stream(trace):
    named = {
        (event["name"], event["pid"], event["tid"]): event["args"]["name"]
        for event in trace["traceEvents"]
        if event["ph"] == "M" and event["name"].endswith("_name")
    }
    processes = [name for (what, *_), name in named.items() if what == "process_name"]
    assert processes == ["gpu0", "gpu1", "host0"]
    threads = {(pid, name) for (what, pid, _), name in named.items() if what == "thread_name"}
    assert threads == {
        (1, "gpu0.h2d"), (1, "gpu0.compute"), (1, "gpu0>gpu1"),
        (2, "gpu1.h2d"), (2, "gpu1.compute"), (2, "gpu1.d2h"), (3, "host0.gpu1"),
    }  # fmt: skip


def test_operations_have_their_dates_in_microseconds(trace):
    events = {e["args"]["op"]: e for e in trace["traceEvents"] if e["ph"] == "X"}
    assert sorted(events) == [0, 1, 2, 3, 4, 5, 7]
    assert [events[i]["ts"] for i in sorted(events)] == pytest.approx(
        [0, 0, 6e6, 8e6, 9e6, 12e6, 16e6]
    )
    assert [events[i]["dur"] for i in sorted(events)] == pytest.approx(
        [6e6, 6e6, 2e6, 1e6, 3e6, 4e6, 2e6]
    )
    assert events[3]["name"] == "peer X[a]"
    assert events[4]["name"] == "backward 1"
    assert events[5]["args"] == {
        "op": 5, "after": [4], "bytes": 12 * run_cases.GB, "tensor": "dW[b]", "from": "gpu1",
        "to": "host0",
    }  # fmt: skip


def test_operations_of_one_thread_do_not_overlap(trace):
    ends: dict[tuple[int, int], float] = {}
    for event in sorted((e for e in trace["traceEvents"] if e["ph"] == "X"), key=lambda e: e["ts"]):
        key = (event["pid"], event["tid"])
        assert event["ts"] >= ends.get(key, 0.0)
        ends[key] = event["ts"] + event["dur"]


def test_memory_counters(trace):
    levels = [
        (event["ts"], event["args"]["GB"])
        for event in trace["traceEvents"]
        if event["ph"] == "C" and event["pid"] == 2
    ]
    assert [time for time, _ in levels] == pytest.approx([0, 8e6, 9e6, 12e6, 16e6])
    assert [level for _, level in levels] == [12, 15, 27, 12, 0]


def test_compressed_traces_are_equal_for_equal_runs(run, trace, tmp_path):
    first = run.to_trace(tmp_path / "a.json.gz").read_bytes()
    second = run.to_trace(str(tmp_path / "b.json.gz")).read_bytes()
    assert first == second
    assert json.loads(gzip.decompress(first)) == trace


def test_a_folder_that_does_not_exist_is_an_error(run, tmp_path):
    with pytest.raises(InvalidInput, match=r"cannot be written to .*nowhere.*: No such file"):
        run.to_trace(tmp_path / "nowhere" / "run.json")
