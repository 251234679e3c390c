"""The command line, end to end: what each command prints and writes."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

import hwmodels
import sim
import workloads

Command = Callable[..., tuple[int, str, str]]

BOX = "pcie-4u-4x1080ti"
SMALL = ["--model", "gpt2-small", "--sequence", "128", "--minibatch", "8"]
CONFIG = resources.files("workloads") / "models" / "configs" / "gpt2-xl.json"
MATRIX = """\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity
GPU0\t X \tPHB\t0-15\t0
GPU1\tPHB\t X \t0-15\t0
"""


def answer(commodious: Command, *arguments: str, **options: Any) -> str:
    """Output of a command that works and says nothing on stderr."""
    code, out, err = commodious(*arguments, **options)
    assert (code, err) == (0, "")
    return out


def parsed(commodious: Command, *arguments: str, **options: Any) -> Any:
    """Output of a command with ``--json``."""
    return json.loads(answer(commodious, *arguments, "--json", **options))


def library_run(name: str, microbatch: int | None = None, **knobs: Any) -> sim.Run:
    """What the library says about the run that `SMALL` describes."""
    box = hwmodels.server(BOX)
    model = workloads.model("gpt2-small", sequence=128)
    plan = workloads.schedule(name, model, box, minibatch=8, microbatch=microbatch, **knobs)
    return sim.simulate(plan, box)


# run and compare ---------------------------------------------------------------------------------


def test_run_prints_what_the_library_says(commodious: Command) -> None:
    found = parsed(commodious, "run", "--schedule", "harmony-pp", "--server", BOX, *SMALL)
    assert found == json.loads(json.dumps(library_run("harmony-pp").summary()))


def test_run_passes_microbatch_and_knobs(commodious: Command) -> None:
    found = parsed(
        commodious, "run", "--schedule", "harmony-pp", "--server", BOX, *SMALL,
        "--microbatch", "2", "--set", "update=cpu", "--set", "pack=3",
    )  # fmt: skip
    expected = library_run("harmony-pp", 2, update="cpu", pack=3).summary()
    assert found["microbatch"] == 2
    assert found["iteration_time_s"] == expected["iteration_time_s"]
    assert found["iteration_time_s"] != library_run("harmony-pp", 2).iteration_time
    # An optimizer on the CPU leaves its states in host memory.
    assert "state" not in found["swap_volume_bytes"]


def test_run_explains_in_text(commodious: Command) -> None:
    out = answer(commodious, "run", "--schedule", "dp-pager", "--server", BOX, *SMALL)
    run = library_run("dp-pager")
    for line in run.explain().text().splitlines():
        assert line[:60] in out
    for gpu in run.server.gpus:
        assert f"\n{gpu} " in out
    for note in run.notes:
        assert f"Note: {note}"[:60] in out


def test_run_writes_pictures_trace_and_page(commodious: Command, tmp_path: Path) -> None:
    names = ("t.png", "m.svg", "t.json", "t.html")
    timeline, memory, trace, page = (tmp_path / name for name in names)
    answer(
        commodious, "run", "--schedule", "gpipe", "--server", BOX, *SMALL, "--plot", str(timeline),
        "--memory-plot", str(memory), "--trace", str(trace), "--html", str(page),
    )  # fmt: skip
    assert timeline.read_bytes().startswith(b"\x89PNG")
    assert "<svg" in memory.read_text()
    events = json.loads(trace.read_text())["traceEvents"]
    timed = [op for op in library_run("gpipe").schedule.ops if op.kind != "free"]
    assert sum(event["ph"] == "X" for event in events) == len(timed)
    assert page.read_text(encoding="utf-8") == library_run("gpipe").to_html()


def test_compare_prints_a_row_for_each_cell(commodious: Command, tmp_path: Path) -> None:
    picture = tmp_path / "compare.png"
    arguments = ["compare", "--server", BOX, "--server", "dgx-1", *SMALL]
    arguments += ["--schedule", "harmony-pp", "--schedule", "gpipe"]
    found = parsed(commodious, *arguments, "--plot", str(picture))
    assert picture.read_bytes().startswith(b"\x89PNG")
    cells = {(row["server"], row["schedule"]): row for row in found["results"]}
    assert set(cells) == {(s, n) for s in (BOX, "dgx-1") for n in ("harmony-pp", "gpipe")}
    time = cells[BOX, "harmony-pp"]["iteration_time"]
    assert time == library_run("harmony-pp").iteration_time
    out = answer(commodious, *arguments, columns=200)
    assert " ".join(found["why"].split()) in " ".join(out.split())


def test_compare_says_why_a_schedule_does_not_fit(commodious: Command) -> None:
    arguments = ["compare", "--model", str(CONFIG), "--server", BOX, "--minibatch", "4"]
    arguments += ["--schedule", "dp", "--schedule", "harmony-pp"]
    found = parsed(commodious, *arguments)
    notes = {row["schedule"]: row["note"] for row in found["results"]}
    assert notes["harmony-pp"] == ""
    assert notes["dp"].startswith("does not fit")
    out = " ".join(answer(commodious, *arguments).split())
    assert f"dp on {BOX}: {notes['dp']}" in out


@pytest.mark.parametrize("columns", [80, 100, 120])
def test_tables_fit_the_terminal(commodious: Command, columns: int) -> None:
    names = ["1f1b-pager-recompute", "gpipe-pager-recompute", "dp", "harmony-pp"]
    chosen = [part for name in names for part in ("--schedule", name)]
    arguments = ["compare", "--model", "gpt2-xl", "--server", BOX, "--minibatch", "4", *chosen]
    out = answer(commodious, *arguments, columns=columns)
    lines = out.splitlines()
    assert max(map(len, lines)) <= columns
    for name in names:
        assert sum(line.startswith(f"{name} ") for line in lines) >= 1
    assert any(line.startswith("dp ") and line.endswith("does not fit") for line in lines)


def test_interrupt_keeps_results_so_far(
    commodious: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sim import compare as compare_function

    module = sys.modules[compare_function.__module__]
    simulate = module.simulate
    calls: list[str] = []

    def interrupted(plan: Any, box: Any) -> Any:
        calls.append(plan.name)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return simulate(plan, box)

    monkeypatch.setattr(module, "simulate", interrupted)
    code, out, err = commodious(
        "compare", "--server", BOX, *SMALL, "--schedule", "gpipe", "--schedule", "1f1b"
    )
    assert code == 130
    assert err == "commodious: interrupted\n"
    lines = out.splitlines()
    assert any(line.startswith("gpipe ") for line in lines)
    assert not any(line.startswith("1f1b ") for line in lines)


def test_progress_is_shown_on_a_terminal_only(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from sim import cli_tables

    with cli_tables.progress() as step:
        assert step is None
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    with cli_tables.progress() as step:
        assert step is not None
        step(3, 14, "gpipe on dgx-1")
    out, err = capsys.readouterr()
    assert out == ""
    assert "3/14" in err
    assert "gpipe on dgx-1" in err


def test_config_file_and_name_are_the_same_model(commodious: Command) -> None:
    options = ["--schedule", "harmony-pp", "--server", "dgx-1", "--minibatch", "8", "--json"]
    options += ["--sequence", "256"]
    named = parsed(commodious, "run", "--model", "gpt2-xl", *options)
    read = parsed(commodious, "run", "--model", str(CONFIG), *options)
    assert read["iteration_time_s"] == named["iteration_time_s"]
    assert read["swap_volume_bytes"] == named["swap_volume_bytes"]


def test_profile_file_and_name_are_the_same_model(commodious: Command) -> None:
    """A table of measured layer times is told from a config.json by what is in it."""
    path = resources.files("workloads") / "models" / "profiles" / "gpt2-medium.json"
    options = ["--schedule", "harmony-dp", "--server", BOX, "--minibatch", "4"]
    named = parsed(commodious, "run", "--model", "harmony/gpt2-medium", *options)
    read = parsed(commodious, "run", "--model", str(path), *options)
    assert read["iteration_time_s"] == named["iteration_time_s"]
    assert any("measured on gtx-1080-ti" in note for note in read["notes"])


# lists -------------------------------------------------------------------------------------------


def test_servers(commodious: Command) -> None:
    names = [row["name"] for row in parsed(commodious, "servers")]
    assert names == list(hwmodels.servers())
    out = answer(commodious, "servers", columns=80)
    assert [line.split()[0] for line in out.splitlines()[2:]] == names
    one = answer(commodious, "servers", "dgx-1")
    facts = hwmodels.server("dgx-1").describe()
    assert facts["tree"] in one
    for source in facts["sources"].values():
        assert source[:40] in " ".join(one.split())
    assert parsed(commodious, "servers", "dgx-1") == facts


def test_server_file_replays_as_the_named_server(commodious: Command, tmp_path: Path) -> None:
    path = tmp_path / "box.toml"
    path.write_text(answer(commodious, "servers", BOX, "--toml"))
    options = ["--schedule", "harmony-dp", *SMALL]
    read = parsed(commodious, "run", "--server", str(path), *options)
    assert read == parsed(commodious, "run", "--server", BOX, *options)


def test_topo_writes_a_server_that_can_be_used(commodious: Command, tmp_path: Path) -> None:
    code, out, err = commodious(
        "topo", "-", "--gpu", "rtx-4090", "--memory", "64 GiB", "--name", "mine", stdin=MATRIX
    )
    assert code == 0
    assert err.startswith("commodious: assumed")
    assert "host0.dram" in err
    path = tmp_path / "box.toml"
    path.write_text(out)
    box = hwmodels.load(path)
    assert (box.name, len(box.gpus), box.memory("host0")) == ("mine", 2, 64 * 2**30)
    found = parsed(commodious, "run", "--schedule", "dp", "--server", str(path), *SMALL)
    assert found["server"] == "mine"


def test_topo_of_a_mixed_box(commodious: Command, tmp_path: Path) -> None:
    path = tmp_path / "matrix.txt"
    path.write_text(MATRIX)
    code, out, _ = commodious("topo", str(path), "--gpu", "rtx-5090", "--gpu", "rtx-4090")
    assert code == 0
    assert out.index("rtx-5090") < out.index("rtx-4090")


def test_gpus(commodious: Command) -> None:
    found = parsed(commodious, "gpus")
    assert [row["name"] for row in found] == list(hwmodels.gpus())
    out = answer(commodious, "gpus", columns=80)
    assert "gtx-1080-ti" in out
    one = parsed(commodious, "gpus", "gtx-1080-ti")
    assert one["memory"] == "11 GiB"
    assert "11 GiB" in answer(commodious, "gpus", "gtx-1080-ti")


def test_models(commodious: Command) -> None:
    found = parsed(commodious, "models")
    assert [row["name"] for row in found] == list(workloads.models())
    # GPT-2 XL has 1557.6 million parameters with its tied embedding counted once.
    one = parsed(commodious, "models", "gpt2-xl")
    assert one["params"] == workloads.model("gpt2-xl").params == 1_557_611_200
    assert "1.56 B" in answer(commodious, "models", "gpt2-xl")
    assert "gpt2-xl " in answer(commodious, "models")


def test_schedules(commodious: Command) -> None:
    found = parsed(commodious, "schedules")
    assert [row["name"] for row in found] == list(workloads.schedules())
    info = workloads.schedule_info("harmony-pp")
    one = parsed(commodious, "schedules", "harmony-pp")
    assert [knob["name"] for knob in one["knobs"]] == list(info.knobs)
    out = answer(commodious, "schedules", "harmony-pp", columns=120)
    assert info.source in out
    for name in info.knobs:
        assert f"\n{name} " in out
    assert "no knobs" in answer(commodious, "schedules", "gpipe")


# the command itself ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "command", ["compare", "run", "servers", "gpus", "models", "schedules", "topo"]
)
def test_help_has_an_example(commodious: Command, command: str) -> None:
    assert f"commodious {command}" in answer(commodious, command, "--help").split("Example:")[1]


def test_no_arguments_show_the_help(commodious: Command) -> None:
    assert answer(commodious) == answer(commodious, "--help")


def script() -> str:
    """Path of the installed command."""
    found = shutil.which("commodious", path=str(Path(sys.executable).parent))
    assert found is not None
    return found


def test_installed_command_exits_with_two_on_bad_input() -> None:
    done = subprocess.run(
        [script(), "servers", "dgx-l"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("commodious: ")
    assert done.stderr.count("\n") == 1


def test_installed_command_ends_quietly_when_nobody_reads() -> None:
    line = f"'{script()}' gpus --json | true"
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=False)
    assert done.stderr == ""
