"""``commodious study``, end to end: run, show, plot, Ctrl-C, and what goes wrong."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import sim
from sim.study import evaluate, pool

Command = Callable[..., tuple[int, str, str]]

ROOT = Path(__file__).parents[1]
STUDY = """
model = "gpt2-small"
sequence = 64
server = "pcie-4u-4x1080ti"
schedule = ["harmony-pp", "dp"]
minibatch = [4, 6, 8]
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a study file, to work in."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "swap.toml").write_text(STUDY)
    return tmp_path


def test_run_show_and_plot(commodious: Command, folder: Path) -> None:
    code, out, err = commodious("study", "run", "swap.toml", "--processes", "1")
    assert (code, err) == (0, "")
    assert out == "swap.study has 6 points: 5 ran, 1 invalid.\n"
    code, out, err = commodious("study", "show", "swap.study", "--json")
    assert (code, err) == (0, "")
    rows = json.loads(out)
    table = sim.Study.load("swap.toml").run("swap.study")
    assert [row["minibatch"] for row in rows] == list(table.minibatch)
    assert [row["status"] for row in rows] == list(table.status)
    ran = [row["iteration_time_s"] for row in rows if row["status"] == "ok"]
    assert ran == list(table.iteration_time_s.dropna())
    code, out, err = commodious(
        "study", "plot", "swap.study", "--x", "minibatch", "--colour", "schedule", "--to", "a.svg"
    )
    assert (code, out, err) == (0, "", "")
    assert "<svg" in (folder / "a.svg").read_text()


@pytest.mark.parametrize("columns", [40, 60, 80, 100, 140])
def test_show_fits_the_terminal_and_cuts_nothing(
    commodious: Command, folder: Path, columns: int
) -> None:
    commodious("study", "run", "swap.toml", "--to", "b.study", "--processes", "1")
    code, out, err = commodious("study", "show", "b.study", columns=columns)
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert max(map(len, lines)) <= columns
    text = " ".join(out.split())
    assert "server: pcie-4u-4x1080ti" in lines
    assert "sequence: 64" in lines
    assert "1 x invalid: dp: minibatch 6 does not divide over the 4 GPUs" in text
    assert "Note: " in text
    from sim.words import time as words

    for row in sim.Study.load("swap.toml").run("b.study").to_dict("records"):
        wanted = words(row["iteration_time_s"]) if row["status"] == "ok" else "invalid"
        shown = [x for x in lines if row["schedule"] in x and f" {row['minibatch']} " in x]
        assert columns < 60 or any(wanted in line for line in shown)
        assert wanted in text


def test_installed_command_is_interrupted_and_goes_on(folder: Path) -> None:
    """Ctrl-C on the whole group, as a terminal sends it; then the same command again."""
    (folder / "swap.toml").write_text(STUDY.replace("[4, 6, 8]", f"{list(range(4, 404, 4))}"))
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}
    # A job in the background of a shell ignores Ctrl-C and so do its children: undo that here.
    heed = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
    command = [sys.executable, "-c", f"{heed}; from sim.cli import main; main()"]
    command += ["study", "run", "swap.toml", "--processes", "2"]
    running = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env,
        start_new_session=True,
    )  # fmt: skip
    while _stored(folder / "swap.study") < 3:
        assert running.poll() is None
        time.sleep(0.01)
    os.killpg(running.pid, signal.SIGINT)
    out, err = running.communicate()
    assert running.returncode == 130
    assert out == ""
    lines = err.strip().splitlines()
    assert len(lines) == 2
    kept = _stored(folder / "swap.study")
    assert lines[0].startswith(f"commodious: {kept} of 200 points are kept in swap.study; run")
    assert lines[1] == "commodious: interrupted"
    assert 3 <= kept < 200


def _stored(path: Path) -> int:
    from hwmodels.errors import InvalidInput
    from sim.study import point, store

    try:
        with store.opened(path, create=False) as file:
            return len(file.outcomes(point.version()))
    except InvalidInput:
        return 0


def test_rows_of_another_version_are_not_shown(
    commodious: Command, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commodious("study", "run", "swap.toml", "--processes", "1")
    from sim.study import point

    monkeypatch.setattr(point, "version", lambda: "9.9.9")
    code, out, err = commodious("study", "show", "swap.study")
    assert (code, out) == (2, "")
    assert "6 rows of other versions" in err
    assert "no rows of version 9.9.9" in err


def test_errors_are_shown_and_tried_again(
    commodious: Command, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(point: Any) -> Any:
        raise MemoryError("no more")

    monkeypatch.setattr(evaluate, "_run", fails)
    code, out, _ = commodious("study", "run", "swap.toml", "--processes", "1")
    assert code == 0
    assert out == "swap.study has 6 points: 6 failed (the next run tries them again).\n"
    _, out, _ = commodious("study", "show", "swap.study")
    assert "6 x error: MemoryError: no more" in out
    monkeypatch.undo()
    monkeypatch.chdir(folder)


def test_warnings_are_lines_on_stderr(
    commodious: Command, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def reports(points: Any, count: int, report: pool.Report) -> Any:
        report("A worker process died (SIGKILL); its points are tried again.")
        yield from pool.here(points)

    monkeypatch.setattr(pool, "processes", reports)
    code, _, err = commodious("study", "run", "swap.toml", "--processes", "2")
    assert code == 0
    assert err == "commodious: A worker process died (SIGKILL); its points are tried again.\n"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["run", "none.toml"], ("none.toml", "no such file")),
        (["run", "swap.study"], ("swap.study", ".toml")),
        (["run", "swap.toml", "--processes", "0"], ("processes is 0",)),
        (["run", "swap.toml", "--to", "none/a.study"], ("no folder none",)),
        (["run", "swap.toml", "--to", "swap.toml"], ("swap.toml",)),
        (["show", "none.study"], ("no study file none.study",)),
        (["show", "swap.toml"], ("swap.toml", "not a database")),
        (["plot", "none.study", "--x", "minibatch", "--to", "a.png"], ("none.study",)),
        (["plot", "none.study", "--x", "minibatch", "--to", "a.gif"], (".png",)),
    ],
)
def test_bad_input(
    commodious: Command, folder: Path, arguments: list[str], words: tuple[str, ...]
) -> None:
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    code, out, err = commodious("study", *arguments)
    assert (code, out) == (2, "")
    assert err.startswith("commodious: ")
    assert err.count("\n") == 1
    assert [word for word in words if word not in err] == [], err
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


@pytest.mark.parametrize("command", ["run", "show", "plot"])
def test_help_has_an_example(commodious: Command, command: str) -> None:
    code, out, _ = commodious("study", command, "--help")
    assert code == 0
    assert f"commodious study {command}" in " ".join(out.split("Example:")[1].split())
