"""Pictures: what they show is read back from the axes."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
import run_cases
from matplotlib.collections import PolyCollection

from hwmodels.errors import InvalidInput
from sim import Run, simulate
from sim.colours import KINDS, PHASES
from sim.plot import binned
from sim.traffic import Flows, busy_seconds, load


@pytest.fixture(scope="module")
def run() -> Run:
    return simulate(run_cases.plan(), run_cases.box())


def flows(*rows: tuple[float, float, float]) -> Flows:
    return Flows(*(np.array(column, dtype=float) for column in zip(*rows, strict=True)))


def test_timeline_has_a_row_per_stream_and_a_bar_per_operation(run):
    figure = run.plot_timeline()
    (axes,) = figure.axes
    assert [label.get_text() for label in axes.get_yticklabels()] == [
        "compute", "swap in", "to gpu1", "compute", "swap in", "swap out", "for gpu1",
    ]  # fmt: skip
    bars = [c for c in axes.collections if isinstance(c, PolyCollection)]
    assert [len(row.get_paths()) for row in bars] == [1] * 7
    corners = bars[3].get_paths()[0].vertices  # gpu1 computes from 9 to 12
    assert (corners[:, 0].min(), corners[:, 0].max()) == pytest.approx((9, 12))
    assert axes.get_xlabel() == "time (s)"
    assert axes.get_xlim() == pytest.approx((0, 18))


def test_memory_has_a_panel_per_device_and_a_capacity_line_where_it_is_near(run):
    figure = run.plot_memory()
    assert [axes.get_title() or axes.get_title("left") for axes in figure.axes] == [
        "gpu0: peak 15.0 of 64.0 GB", "gpu1: peak 27.0 of 64.0 GB", "host0: peak 36.0 of 100 GB",
    ]  # fmt: skip
    lines = [axes.get_lines() for axes in figure.axes]
    # GPUs of one kind share their scale, that of the fullest
    assert [len(found) for found in lines] == [1, 1, 1]
    assert figure.axes[0].get_ylim() == figure.axes[1].get_ylim()
    assert lines[1][0].get_ydata()[0] == 64


def test_links_show_bytes_and_share_of_capacity(run):
    figure = run.plot_links(most=2)
    bars = figure.axes[0]
    assert [label.get_text() for label in bars.get_yticklabels()] == [
        "root0>sw0  4.00 GB/s", "sw0>gpu1  3.00 GB/s",
    ]  # fmt: skip
    used = bars.containers[1]
    assert [bar.get_width() for bar in used] == pytest.approx([100 / 3, 100 * 15 / 54])
    assert {text.get_text() for text in bars.texts} == {"24.0 GB", "15.0 GB"}


def test_swap_bars(run):
    axes = run.plot_swap().axes[0]
    heights = [[bar.get_height() for bar in group] for group in axes.containers]
    # weight, gradient, activation in; out; peer
    assert heights == [[24, 0, 0], [0, 12, 0], [0, 0, 3]]
    assert axes.get_ylabel() == "copied per iteration (GB)"


@pytest.mark.parametrize("name", ["a.png", "a.pdf", "a.svg"])
def test_equal_runs_give_equal_files(run, tmp_path, name):
    first, second = tmp_path / name, tmp_path / ("again" + name)
    run.plot_timeline(first)
    run.plot_timeline(str(second))
    assert first.read_bytes() == second.read_bytes() != b""


def test_a_notebook_gets_a_png(run):
    assert run.plot_swap()._repr_png_()[:4] == b"\x89PNG"


def test_other_suffixes_are_an_error(run, tmp_path):
    with pytest.raises(InvalidInput, match=r"must have a name that ends in one of .png, .pdf"):
        run.plot_timeline(tmp_path / "a.txt")


def test_a_folder_that_does_not_exist_is_an_error(run, tmp_path):
    with pytest.raises(InvalidInput, match=r"cannot be written to .*No such file"):
        run.plot_memory(tmp_path / "nowhere" / "a.png")


def test_phases_and_kinds_have_colours_of_their_own():
    for table in (PHASES, KINDS):
        assert len({colour for colour, _ in table.values()}) == len(table)


def test_pictures_leave_pyplot_alone():
    code = (
        "import sys; sys.path.insert(0, 'tests'); import run_cases, sim\n"
        "sim.simulate(run_cases.plan(), run_cases.box()).plot_timeline()._repr_png_()\n"
        "assert 'matplotlib.pyplot' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_busy_time_is_the_union_of_intervals():
    assert busy_seconds(flows((0, 2, 1), (1, 3, 1), (5, 6, 1))) == 4
    assert busy_seconds(flows((5, 6, 1), (0, 10, 1), (2, 3, 1))) == 10
    assert busy_seconds(Flows(np.array([]), np.array([]), np.array([]))) == 0


def test_load_adds_mean_rates():
    # 2 B/s from 0 to 2, and 3 B/s from 1 to 3
    found = load(flows((0, 2, 4), (1, 3, 6)))
    assert found.times.tolist() == [0, 1, 2, 3]
    assert found.rates.tolist() == [2, 5, 3, 0]
    assert found.moved.tolist() == [0, 2, 7, 10]
    assert found.between(0.5, 1.5) == pytest.approx(1 + 2.5)


def test_load_ignores_copies_that_take_no_time():
    assert load(flows((1, 1, 5))).between(0, 2) == 0


def test_binned_shares_average_to_the_utilisation():
    found = load(flows((0, 2, 4), (1, 3, 6)))
    assert binned(found, 5.0, 4.0).mean() == pytest.approx(10 / (5 * 4))
    assert binned(found, 5.0, 4.0).max() == pytest.approx(1.0)
