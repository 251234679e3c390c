"""A study of 2,000 points that is killed three times, and one whose cluster loses a worker."""

from __future__ import annotations

import os
import random
import re
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from study_runs import many

from sim.study import cluster, pool
from sim.study.evaluate import evaluate
from sim.study.point import version

ROOT = Path(__file__).parents[3]
POINTS = 2000


def stored(path: Path) -> int:
    """Rows in a study file; 0 if it is not there yet."""
    if not path.exists():
        return 0
    try:
        database = sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=30)
        try:
            return int(database.execute("SELECT count(*) FROM rows").fetchone()[0])
        finally:
            database.close()
    except sqlite3.OperationalError:
        return 0


def start(path: Path) -> subprocess.Popen[bytes]:
    """Run the study in a process of its own, with workers of its own."""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}
    command = [sys.executable, str(ROOT / "tests" / "study_runs.py"), str(path), str(POINTS)]
    return subprocess.Popen(command, env=env, cwd=ROOT)


def refuse(point: Any) -> Any:
    raise AssertionError(f"computed again: {point.settings}")


def test_killed_three_times_and_still_the_same_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "killed.study"
    moments = sorted(random.Random(6).sample(range(1, POINTS), 3))
    kept = 0
    for moment in moments:
        running = start(path)
        while stored(path) < moment:
            assert running.poll() is None
            time.sleep(0.01)
        running.send_signal(signal.SIGKILL)
        running.wait()
        assert kept < moment <= stored(path) < POINTS
        kept = stored(path)
    assert start(path).wait() == 0
    assert stored(path) == POINTS
    monkeypatch.setattr(pool, "evaluate", refuse)
    ours = many(POINTS).run(path, processes=1)  # from the file alone
    monkeypatch.undo()
    whole = many(POINTS).run(tmp_path / "whole.study")
    assert set(whole.status) == {"ok", "invalid"}
    assert ours.equals(whole)


class Cluster:
    """A Dask cluster of two worker processes, and a study of a part of the 2,000 points."""

    def __init__(self) -> None:
        from distributed import Client, LocalCluster

        self.local = LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0",
            silence_logs=50,
        )  # fmt: skip
        self.client = Client(self.local)

    def workers(self) -> list[int]:
        """Process ids of the workers."""
        return sorted(self.client.run(os.getpid).values())

    def close(self) -> None:
        self.client.close()
        self.local.close()


@pytest.fixture
def dask() -> Any:
    found = Cluster()
    yield found
    found.close()


def test_dask_loses_a_worker_and_gives_the_same_rows(dask: Cluster, tmp_path: Path) -> None:
    points = 400
    whole = many(points).run(tmp_path / "whole.study", processes=1)
    workers = dask.workers()
    assert len(workers) == 2
    assert os.getpid() not in workers
    killed: list[int] = []

    def kill(done: int, total: int, label: str) -> None:
        if not killed and done >= total // 4:
            assert done < total // 2
            os.kill(workers[0], signal.SIGKILL)
            killed.append(done)

    table = many(points).run(tmp_path / "dask.study", dask.client, progress=kill)
    assert killed
    assert workers[0] not in dask.workers()
    assert table.equals(whole)
    # What a cluster has finished is there for processes as well, and for another cluster.
    calls: list[Any] = []
    again = many(points).run(
        tmp_path / "dask.study", dask.client, progress=lambda *said: calls.append(said)
    )
    assert calls == [(points, points, "")]
    assert again.equals(whole)


# what a cluster can do to a task, without one ----------------------------------------------------


class Executor:
    """Runs tasks at once; fails those that ``fails`` names by their points."""

    def __init__(self, fails: Any) -> None:
        self.fails = fails

    def get_executor(self, **options: Any) -> Any:
        assert options == {"pure": False}
        return self

    def submit(self, work: Any, points: list[Any]) -> Any:
        from concurrent.futures import Future

        future: Future[Any] = Future()
        error = self.fails(points)
        if isinstance(error, BaseException):
            future.set_exception(error)
        elif error == "cancelled":
            future.cancel()
            future.set_running_or_notify_cancel()
        else:
            future.set_result((error or version(), [evaluate(point) for point in points]))
        return future


def test_a_task_that_dask_gives_up_is_tried_once_more_point_by_point(tmp_path: Path) -> None:
    bad = many(256).points[5]
    client: Any = Executor(lambda points: RuntimeError("killed") if bad in points else None)
    with pytest.warns(RuntimeWarning, match=r"gave up a task \(RuntimeError: killed\)"):
        table = many(256).run(tmp_path / "a.study", client)
    assert list(table.index[table.status == "error"]) == [5]
    assert table.reason[5] == "RuntimeError: killed"


@pytest.mark.parametrize(
    ("answer", "words"), [("cancelled", "went away"), ("9.9.9", "version 9.9.9")]
)
def test_a_cluster_that_cannot_be_used_is_said(tmp_path: Path, answer: str, words: str) -> None:
    from hwmodels.errors import CommodiousError

    client: Any = Executor(lambda points: answer)
    with pytest.raises(CommodiousError, match=words):
        many(8).run(tmp_path / "a.study", client)


def test_tasks_are_small_enough_for_a_lost_worker() -> None:
    sizes: list[int] = []

    def note(points: list[Any]) -> None:
        sizes.append(len(points))

    client: Any = Executor(note)
    found = list(cluster.on(client, many(160).points, lambda said: None))
    assert sorted(at for at, _ in found) == list(range(160))
    assert max(sizes) == 8


FIRST_WORKER = """
from sim.study import pool
if __name__ == "__main__":
    worker = pool._start()
    print(open(f"/proc/{worker.process.pid}/status").read())
    worker.process.kill()
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads Linux's /proc")
def test_ctrl_c_reaches_not_even_the_first_worker(tmp_path: Path) -> None:
    """Starting the first process starts Python's resource tracker, which lets signals through."""
    script = tmp_path / "first.py"
    script.write_text(FIRST_WORKER)
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, str(script)], env=env, capture_output=True, text=True, check=True
    )
    blocked = re.search(r"SigBlk:\s*([0-9a-f]+)", done.stdout)
    assert blocked is not None
    assert int(blocked[1], 16) >> (signal.SIGINT - 1) & 1
