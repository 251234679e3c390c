"""Reports and trials: predicted beside measured."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from toys import ideal
from worlds import gpt, roomy, tight

import sim
from hwmodels.errors import InvalidInput
from validate import trials as trials_module
from validate.report import Pair, Report
from validate.trials import Trial, try_all, with_share


def slower(run, op_phase, factor):
    """The same run in which one phase takes longer: each op ends later, none starts later."""
    end = run.timeline.end.copy()
    for op in run.schedule.ops:
        if op.phase == op_phase:
            end[op.id] += (factor - 1) * (end[op.id] - run.timeline.start[op.id])
    return replace(run, timeline=replace(run.timeline, end=end))


@pytest.fixture(name="runs")
def made():
    plan, box = tight("dp-pager", gpt(), 2)
    run = sim.simulate(plan, ideal(2, memory=box.capacity))
    return run, slower(run, "backward", 2.0)


def test_equal_runs_have_no_error(runs):
    report = Report(runs[0], runs[0])
    every = (report.iteration, *report.classes, *report.streams, *report.memory, *report.copied)
    assert all(pair.error == 0.0 for pair in every)
    assert report.worst() == ()


def test_the_class_that_is_slower_is_named(runs):
    report = Report(*runs)
    first = report.classes[0]
    assert (first.what, first.error) == ("backward", pytest.approx(-0.5))
    backwards = [op for op in runs[0].schedule.ops if op.phase == "backward"]
    assert first.count == len(backwards)
    assert all(pair.error == 0.0 for pair in report.classes[1:])
    streams = {pair.what: pair for pair in report.streams}
    assert streams["gpu0.compute"].measured > streams["gpu0.compute"].predicted
    assert report.worst()[0].startswith(f"backward: {len(backwards)} operations take")
    assert json.loads(json.dumps(report.to_dict()))["classes_s"][0]["error"] == first.error


def test_picture(runs, tmp_path):
    picture = Report(*runs).plot(tmp_path / "both.png")
    names = [label.get_text() for label in picture.axes[0].get_yticklabels()]
    assert names[:2] == ["compute", "measured"]
    assert len(names) % 2 == 0
    assert (tmp_path / "both.png").stat().st_size > 10_000


def test_runs_of_two_schedules(runs):
    plan, box = roomy("dp", gpt(), 2)
    other = sim.simulate(plan, ideal(2, memory=box.capacity))
    with pytest.raises(InvalidInput, match="of dp-pager and the measured one of dp"):
        Report(runs[0], other)


@pytest.mark.parametrize(
    ("predicted", "measured", "error"),
    [(0.0, 0.0, 0.0), (1.0, 2.0, -0.5), (3.0, 2.0, 0.5), (1.0, 0.0, float("inf"))],
)
def test_error(predicted, measured, error):
    assert Pair("x", 1, predicted, measured).error == error


def attempt(*trials):
    world = gpt()
    model, batch = world.network.model, world.batches[0]
    return try_all(trials, world.network, model, batch, ideal(1), microbatch=2)


def test_trials():
    found = attempt(
        Trial("dp"), Trial("dp-pager", {"host_copy": "keep"}, 0.9), Trial("dp", share=0.1)
    )
    assert len(found.reports) == 2
    rows = list(found.rows())
    assert [row[0] for row in rows] == ["all", "90%", "10%"]
    assert "does not fit" in rows[2][-1]
    assert found.median_error > 0
    assert len(list(found.worst())) == 2
    assert found.to_dict()["trials"][2]["reason"]
    shares = [report.predicted.server.memory("gpu0") for report in found.reports]
    assert shares[1] == with_share(ideal(1), gpt().network.model, 0.9).memory("gpu0") < shares[0]


def test_ctrl_c_keeps_what_has_ended(monkeypatch):
    usual, seen = trials_module.execute, []

    def stops(*arguments, **settings):
        seen.append(1)
        if len(seen) == 2:
            raise KeyboardInterrupt
        return usual(*arguments, **settings)

    monkeypatch.setattr(trials_module, "execute", stops)
    found = attempt(Trial("dp"), Trial("gpipe"), Trial("1f1b"))
    assert [done.trial.name for done in found.outcomes] == ["dp"]
    assert found.left_out == ("gpipe", "1f1b")


def test_picture_of_trials(tmp_path):
    found = attempt(Trial("dp"), Trial("gpipe"))
    found.plot(tmp_path / "bars.png")
    assert (tmp_path / "bars.png").stat().st_size > 5_000


def test_fresh_models_are_asked_for_before_each_trial():
    world, asked = gpt(), []

    def fresh():
        asked.append(1)
        faster = [replace(layer, backward_flops=0.5) for layer in world.network.model.layers]
        return replace(world.network.model, layers=tuple(faster))

    trials = [Trial("dp"), Trial("gpipe")]
    slow = attempt(*trials)
    quick = try_all(
        trials, world.network, world.network.model, world.batches[0], ideal(1),
        microbatch=2, fresh=fresh,
    )  # fmt: skip
    assert len(asked) == 2
    for one, other in zip(slow.reports, quick.reports, strict=True):
        assert other.iteration.predicted < one.iteration.predicted
