"""Picture of a comparison: iteration times by server and schedule."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from sim.picture import Picture, new, quiet_left, save, style
from sim.words import size, three, time, time_unit

if TYPE_CHECKING:
    from sim.compare import Result

_BAR, _BEST, _BOUND = "#8fb8d6", "#0072B2", "#D55E00"
_ROW = 0.21
"""Inches of height for one schedule."""


def comparison(results: Sequence[Result], title: str, path: str | Path | None = None) -> Picture:
    """Draw one panel per server: a bar per schedule, its lower bound, and what did not run."""
    servers = list(dict.fromkeys(result.server for result in results))
    groups = [[r for r in results if r.server == name] for name in servers]
    with style():
        heights = [len(group) + 1.9 for group in groups] or [3.0]
        figure = new(7.2, 0.45 + _ROW * sum(heights))
        panels = figure.subplots(len(heights), 1, squeeze=False, height_ratios=heights)[:, 0]
        for axes, name, group in zip(panels, servers, groups, strict=False):
            _panel(axes, name, group)
        figure.suptitle(title, x=0.01, ha="left", fontsize=9.5)
        return save(figure, path)


def _panel(axes: Axes, server: str, group: Sequence[Result]) -> None:
    longest = max((r.iteration_time for r in group), default=0.0)
    scale, unit = time_unit(longest) if longest else (1.0, "s")
    best = min((r.iteration_time for r in group if r.fits), default=0.0)
    for at, result in enumerate(group):
        if not result.fits:
            reason = result.note.split(":")[0]
            axes.text(0.006, at, reason if len(reason) < 60 else "did not run", va="center",
                      fontsize=7.5, color="#666666", style="italic",
                      transform=axes.get_yaxis_transform())  # fmt: skip
            continue
        length = result.iteration_time / scale
        colour = _BEST if result.iteration_time == best else _BAR
        axes.barh(at, length, height=0.72, color=colour)
        bound = length * result.share_of_bound
        axes.plot([bound, bound], [at - 0.36, at + 0.36], color=_BOUND, linewidth=1.4)
        text = (
            f" {time(result.iteration_time)}, {three(result.samples_per_second)} samples/s, "
            f"swap {size(result.swap_bytes)}"
        )
        axes.text(length, at, text, va="center", fontsize=7.5)
    axes.set_ylim(len(group) - 0.5, -0.5)
    axes.set_xlim(0, 1.5 * longest / scale if longest else 1)
    axes.set_yticks(range(len(group)), [result.schedule for result in group])
    axes.xaxis.set_major_locator(MaxNLocator(6))
    axes.set_xlabel(f"iteration time ({unit}); the mark is the lower bound")
    axes.set_title(server, fontweight="bold")
    quiet_left(axes)
