"""Running a study: rows, resuming, failures, Ctrl-C, and pictures."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from study_runs import BOX, bomb, many, small, tiny

import hwmodels
import sim
import workloads
from hwmodels.errors import CommodiousError, InvalidInput, UnknownName
from sim.study import evaluate, pool
from sim.study.study import Study


def refuse(point: Any) -> Any:
    raise AssertionError(f"computed again: {point.settings}")


def test_rows_are_what_single_runs_say(tmp_path: Path) -> None:
    study = Study.grid(
        model="gpt2-small", sequence=128, server=[BOX, "dgx-1"], minibatch=[8, 16],
        schedule=["harmony-pp", "dp-pager"], collectives="tree",
    )  # fmt: skip
    table = study.run(tmp_path / "a.study", processes=1)
    assert len(table) == 8
    model = workloads.model("gpt2-small", sequence=128)
    for row in table.to_dict("records"):
        box = hwmodels.server(row["server"])
        plan = workloads.schedule(row["schedule"], model, box, minibatch=row["minibatch"])
        run = sim.simulate(plan, box, collectives="tree")
        assert (row["status"], row["reason"]) == ("ok", "")
        assert row["iteration_time_s"] == run.iteration_time
        assert row["samples_per_s"] == run.samples_per_second
        assert row["swap_bytes"] == run.swap_bytes
        assert row["peak_gpu_bytes"] == max(run.peak_memory[gpu] for gpu in box.gpus)
        assert row["bottleneck"] == run.explain().bottleneck
        assert row["microbatch_used"] == plan.microbatch
        assert set(run.notes) <= set(study.notes)


def test_failures_are_rows_with_their_reason(tmp_path: Path) -> None:
    study = Study.grid(
        model="gpt2-xl", sequence=128, server=BOX, schedule=["dp", "harmony-pp", "gpipe"],
        minibatch=[4, 6], pack=[None, 9], with_gpus=[4, 5],
    )  # fmt: skip
    table = study.run(tmp_path / "a.study", processes=1)
    rows = {
        (r["schedule"], r["minibatch"], r["pack"] == 9, r["with_gpus"]): (r["status"], r["reason"])
        for r in table.to_dict("records")
    }
    assert rows["harmony-pp", 4, False, 4] == ("ok", "")
    assert rows["dp", 4, False, 4][0] == "does not fit"
    assert "too much" in rows["dp", 4, False, 4][1]
    assert rows["dp", 6, False, 4][0] == "invalid"
    assert "does not divide" in rows["dp", 6, False, 4][1]
    assert rows["gpipe", 4, True, 4] == (
        "invalid",
        "schedule gpipe has no knob 'pack'; it has none",
    )
    assert {status for (*_, gpus), (status, _) in rows.items() if gpus == 5} == {"invalid"}
    failed = table[table.status != "ok"]
    assert failed.iteration_time_s.isna().all()
    assert failed.swap_bytes.isna().all()
    assert str(table.swap_bytes.dtype) == "Int64"


def test_wrong_number_format_is_no_lack_of_memory(tmp_path: Path) -> None:
    study = Study.grid(
        model="gpt2-small", sequence=128, server=BOX, schedule="dp", minibatch=4, precision="bf16"
    )
    (row,) = study.run(tmp_path / "a.study").to_dict("records")
    assert row["status"] == "invalid"
    assert "bf16" in row["reason"]


def test_nothing_is_computed_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.study"
    first = many(32).run(path, processes=1)
    assert set(first.status) == {"ok", "invalid"}
    calls: list[Any] = []
    monkeypatch.setattr(pool, "evaluate", refuse)
    again = many(32).run(path, processes=1, progress=lambda *said: calls.append(said))
    assert again.equals(first)
    assert calls == [(32, 32, "")]
    # a part of it is there already; a larger study runs only what is new
    part = Study.grid(
        model=tiny(), server={"the same under another name": small()}, degraded=("uplink0", 0.2),
        schedule="dp", minibatch=2, microbatch=2,
    )  # fmt: skip
    assert list(part.run(path, processes=1).server) == ["the same under another name"]
    monkeypatch.undo()
    count: list[Any] = []
    monkeypatch.setattr(pool, "evaluate", lambda x: count.append(x) or evaluate.evaluate(x))
    Study([*_settings(many(32)), _settings(many(32))[0] | {"minibatch": 4}]).run(path, processes=1)
    assert len(count) == 1


def _settings(study: Study) -> list[dict[str, Any]]:
    return [dict(p.settings) | {"model": p.model, "server": p.server, "degraded": None}
            for p in study.points]  # fmt: skip


def test_equal_points_are_run_once_and_shown_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    count: list[Any] = []
    monkeypatch.setattr(pool, "evaluate", lambda x: count.append(x) or evaluate.evaluate(x))
    study = Study.grid(
        model=tiny(), server=small(), schedule="dp", minibatch=1, with_gpus=[None, 1]
    )
    table = study.run(tmp_path / "a.study", processes=1)
    assert len(count) == 1
    assert len(table) == 2
    assert table.iteration_time_s.nunique() == 1


def test_unexpected_errors_are_rows_and_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(point: Any) -> Any:
        if point.settings["minibatch"] == 2:
            raise ZeroDivisionError("division by zero")
        return run(point)

    run = evaluate._run
    monkeypatch.setattr(evaluate, "_run", fails)
    study = Study.grid(model=tiny(), server=small(), schedule="dp", minibatch=[1, 2, 3])
    table = study.run(tmp_path / "a.study", processes=1)
    assert list(table.status) == ["ok", "error", "ok"]
    assert table.reason[1] == "ZeroDivisionError: division by zero"
    monkeypatch.undo()
    assert list(study.run(tmp_path / "a.study", processes=1).status) == ["ok"] * 3


def test_interrupt_keeps_what_is_done_and_says_how_to_go_on(tmp_path: Path) -> None:
    path = tmp_path / "a.study"
    whole = many(32).run(tmp_path / "whole.study", processes=1)
    for processes, done in ((1, 9), (2, 19)):
        study = many(32)

        def stop(now: int, total: int, label: str, last: int = done) -> None:
            if now == last:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt) as said:
            study.run(path, processes=processes, progress=stop)
        assert str(said.value).startswith(f"{done} of 32 points are kept in {path}; run the same")
        assert len(study.table) == done
    assert many(32).run(path, processes=1).equals(whole)


def test_another_version_runs_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from sim.study import point, study

    path = tmp_path / "a.study"
    many(8).run(path, processes=1)
    for module in (point, study):
        monkeypatch.setattr(module, "version", lambda: "9.9.9")
    monkeypatch.setattr(pool, "evaluate", refuse)
    with pytest.raises(AssertionError, match="computed again"):
        many(8).run(path, processes=1)


def test_processes_give_the_same_rows(tmp_path: Path) -> None:
    one = many(64).run(tmp_path / "one.study", processes=1)
    two = many(64).run(tmp_path / "two.study", processes=2)
    assert two.equals(one)


@pytest.mark.parametrize("processes", [0, -1, 1.5, True])
def test_number_of_processes_is_checked(tmp_path: Path, processes: Any) -> None:
    with pytest.raises(InvalidInput, match="processes"):
        many(8).run(tmp_path / "a.study", processes=processes)
    assert not (tmp_path / "a.study").exists()


# workers that die --------------------------------------------------------------------------------


def bombs(folder: Path, times: int) -> Study:
    """Four points, the second of which kills its process ``times`` times."""
    common = {"server": small(), "schedule": "dp"}
    models = [tiny(), bomb(folder / "seen", times), tiny(), tiny()]
    return Study([{**common, "model": m, "minibatch": at + 1} for at, m in enumerate(models)])


def test_a_worker_that_dies_is_reported_and_its_points_tried_again(tmp_path: Path) -> None:
    whole = bombs(tmp_path, 0).run(tmp_path / "whole.study", processes=1)
    study = bombs(tmp_path, 1)
    with pytest.warns(RuntimeWarning, match=r"A worker process died \(SIGKILL\)"):
        table = study.run(tmp_path / "a.study", processes=2)
    assert table.equals(whole)


def test_a_point_that_kills_two_workers_is_an_error_and_the_study_goes_on(tmp_path: Path) -> None:
    study = bombs(tmp_path, 99)
    with pytest.warns(RuntimeWarning, match="died") as said:
        table = study.run(tmp_path / "a.study", processes=2)
    assert len(said) == 2
    assert list(table.status) == ["ok", "error", "ok", "ok"]
    assert "died 2 times (SIGKILL)" in table.reason[1]


@pytest.mark.filterwarnings("ignore:A worker process died")
def test_workers_that_cannot_start_are_said(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(pool, "_work", math.prod)  # takes no pipe: every worker ends at once
    with pytest.raises(CommodiousError, match="__main__"):
        many(8).run(tmp_path / "a.study", processes=2)


def test_chunks_shrink_towards_the_end() -> None:
    sizes: list[int] = []
    left = 2000
    while left:
        sizes.append(pool.chunk_size(left, 2))
        left -= sizes[-1]
    assert sizes[0] == 32
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[-1] == 1


# pictures ----------------------------------------------------------------------------------------


def drawn(tmp_path: Path, **options: Any) -> Any:
    study = Study.grid(
        model=tiny(), server=small(), schedule=["dp", "1f1b"], minibatch=[1, 2, 3, 64],
        microbatch=[1, 2], degraded=[("uplink0", 0.5), ("uplink0", 1)],
    )  # fmt: skip
    study.run(tmp_path / "a.study", processes=1)
    given = {"x": "minibatch", "y": "samples_per_s", "colour": "schedule"} | options
    return study.plot(**given), study.table


def test_picture_has_a_panel_for_what_else_varies(tmp_path: Path) -> None:
    figure, table = drawn(tmp_path)
    panels = [axes for axes in figure.axes if axes.get_visible()]
    assert [axes.get_title(loc="left") for axes in panels] == [
        f"microbatch {u}\ndegraded uplink0 {x}" for u in (1, 2) for x in (0.5, 1)
    ]
    assert "each panel has its own scale" in figure.get_suptitle()
    ours = table[(table.microbatch == 1) & (table.degraded == "uplink0 1")]
    for at, name in enumerate(("dp", "1f1b")):
        wanted = ours[ours.schedule == name]
        line = panels[1].get_lines()[2 * at]
        assert list(line.get_xdata()) == list(wanted.minibatch)
        assert list(line.get_ydata()) == list(wanted.samples_per_s)
    crosses = [x.get_xdata() for x in panels[2].get_lines() if x.get_marker() == "x"]
    assert [list(found) for found in crosses] == [[1, 3], [1, 3]]  # two do not divide these
    said = [text.get_text() for text in figure.legends[0].get_texts()]
    assert said == ["dp", "1f1b", f"did not run ({(table.status != 'ok').sum()} of {len(table)})"]


def test_picture_of_words_of_bytes_and_of_results(tmp_path: Path) -> None:
    figure, _ = drawn(tmp_path, x="degraded", y="peak_gpu_bytes", path=tmp_path / "a.png")
    axes = figure.axes[0]
    assert [text.get_text() for text in axes.get_xticklabels()] == ["uplink0 0.5", "uplink0 1"]
    assert axes.get_ylabel() == "peak gpu (kB)"
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    figure, table = drawn(tmp_path, x="peak_gpu_bytes", y="iteration_time_s", colour=None)
    (axes,) = figure.axes
    assert axes.get_xlabel() == "peak gpu (kB)"
    assert axes.get_ylabel() == "iteration time (s)"
    assert len(axes.get_lines()[0].get_xdata()) == (table.status == "ok").sum()


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"x": "minibach"}, UnknownName, "minibatch"),
        ({"y": "sampels_per_s"}, UnknownName, "samples_per_s"),
        ({"y": "bottleneck"}, InvalidInput, "word"),
        ({"x": "bottleneck"}, InvalidInput, "word"),
        ({"colour": "scheduel"}, UnknownName, "schedule"),
        ({"path": "a.gif"}, InvalidInput, "png"),
    ],
)
def test_pictures_that_cannot_be_drawn(
    tmp_path: Path, options: Any, error: type[CommodiousError], words: str
) -> None:
    with pytest.raises(error, match=words):
        drawn(tmp_path, **options)


def test_picture_before_a_run_or_with_too_many_panels(tmp_path: Path) -> None:
    study = many(112)
    with pytest.raises(InvalidInput, match="nothing to draw"):
        study.plot(x="minibatch", y="samples_per_s")
    study.run(tmp_path / "a.study", processes=1)
    with pytest.raises(InvalidInput, match=r"56 panels.*degraded, schedule"):
        study.plot(x="minibatch", y="samples_per_s")
