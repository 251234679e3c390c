"""Picture of a study: one result over one setting, a panel for each combination of the others."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import cycle
from pathlib import Path
from typing import Any, NamedTuple

from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, MaxNLocator, NullLocator, ScalarFormatter

from hwmodels.errors import InvalidInput
from hwmodels.names import unknown
from sim.picture import Picture, new, save, style
from sim.study import table
from sim.study.evaluate import COLUMNS
from sim.study.table import Row
from sim.words import byte_unit

_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
"""Palette for colour-blind readers: Okabe and Ito, "Color universal design" (2008)."""
_MARKERS = ("o", "s", "^", "D", "v")
_PANELS = 12
"""Most panels that can still be read."""
_WIDE = 16.0
"""Ratio of the largest to the smallest x from which the axis is logarithmic."""
_WORDS = ("bottleneck",)
_RESULTS = tuple(name for name, _ in COLUMNS)


class _Axis(NamedTuple):
    """A column as an axis: its label, the value of a tick of 1, and its words, if it has words."""

    name: str
    label: str
    scale: float
    words: tuple[str, ...]

    def place(self, row: Row) -> float:
        value = row[self.name]
        return float(self.words.index(str(value))) if self.words else float(value) / self.scale


def lines(
    rows: Sequence[Row], x: str, y: str, colour: str | None, path: str | Path | None
) -> Picture:
    """Draw ``y`` over ``x``; what did not run is a cross below zero.

    Raises
    ------
    InvalidInput
        If there are no rows, a column does not suit, or there would be too many panels.
    UnknownName
        If there is no such column.
    """
    _check(rows, x, y, colour)
    ran = [row for row in rows if row["status"] == "ok"]
    # Over a result (one cost against another) the points of all settings belong in one picture.
    apart = [] if x in _RESULTS else [n for n in table.varying(rows) if n not in (x, colour)]
    panels = list(dict.fromkeys(tuple(row.get(name) for name in apart) for row in rows))
    if len(panels) > _PANELS:
        raise InvalidInput(
            f"The picture would need {len(panels)} panels, one for each combination of "
            f"{', '.join(apart)}, and more than {_PANELS} cannot be read; use one of them as x or "
            "colour, or run a smaller study with the same file, which runs nothing again."
        )
    across, up = _axis(x, rows if x not in _RESULTS else ran), _axis(y, ran)
    looks = _looks(rows, colour)
    wide = 2 if len(panels) == 4 else min(3, len(panels))
    high = math.ceil(len(panels) / wide)
    with style():
        figure = new(max(4.8, 0.4 + 3.0 * wide), 0.9 + 2.5 * high)
        grid = figure.subplots(high, wide, squeeze=False).flatten()
        for axes, panel in zip(grid, panels, strict=False):
            mine = [row for row in rows if tuple(row.get(name) for name in apart) == panel]
            _panel(axes, mine, across, up, colour, looks)
            named = zip(apart, panel, strict=True)
            axes.set_title("\n".join(_said(name, value) for name, value in named), fontsize=8)
        for axes in grid[len(panels) :]:
            axes.set_visible(False)
        _legend(figure, colour, looks, failed=len(rows) - len(ran), of=len(rows))
        figure.suptitle(_title(rows, y, x, len(panels)), x=0.01, ha="left", fontsize=9.5)
        return save(figure, path)


def _check(rows: Sequence[Row], x: str, y: str, colour: str | None) -> None:
    if not any(row["status"] == "ok" for row in rows):
        raise InvalidInput("There is nothing to draw: no point of the study has run yet.")
    settings = table.settings(rows)
    if y not in _RESULTS:
        raise unknown("Result", y, _RESULTS)
    if y in _WORDS:
        raise InvalidInput(f"{y} is a word, so it cannot be y; take a number as y.")
    if x not in settings and x not in _RESULTS:
        raise unknown("Column", x, (*settings, *_RESULTS))
    if x in _WORDS:
        raise InvalidInput(f"{x} is a word that results, so it cannot be x; take a setting as x.")
    if colour is not None and colour not in (*settings, *_WORDS):
        raise unknown("Setting", colour, (*settings, *_WORDS))


def _axis(name: str, rows: Sequence[Row]) -> _Axis:
    values = [row.get(name) for row in rows]
    if not all(type(value) in (int, float) for value in values):
        return _Axis(name, name.replace("_", " "), 1.0, tuple(dict.fromkeys(map(str, values))))
    if name.endswith("_bytes"):
        scale, unit = byte_unit(max(float(value or 0) for value in values))
        return _Axis(name, f"{_plain(name)} ({unit})", scale, ())
    return _Axis(name, _plain(name), 1.0, ())


def _plain(name: str) -> str:
    """Name of a column in words: ``iteration time (s)``."""
    text = name.removesuffix("_bytes").replace("_per_s", "/s")
    if text.endswith("_s"):
        text = text.removesuffix("_s") + " (s)"
    return text.replace("_", " ")


def _looks(rows: Sequence[Row], colour: str | None) -> dict[str, tuple[str, str]]:
    """Colour and marker of each value of the setting ``colour``."""
    values = dict.fromkeys(_key(row, colour) for row in rows if row.get(colour or "", "") != "")
    values = values or {"": None}
    marks = [_MARKERS[at // len(_COLOURS) % len(_MARKERS)] for at in range(len(values))]
    return dict(zip(values, zip(cycle(_COLOURS), marks, strict=False), strict=False))


def _key(row: Row, colour: str | None) -> str:
    return "" if colour is None else str(row.get(colour))


def _panel(
    axes: Axes,
    rows: Sequence[Row],
    across: _Axis,
    up: _Axis,
    colour: str | None,
    looks: dict[str, tuple[str, str]],
) -> None:
    top = max((up.place(row) for row in rows if row["status"] == "ok"), default=0.0) or 1.0
    step = 0.07 * top  # below zero there is a line of crosses for each colour
    line = "-" if not across.words and across.name not in _RESULTS else ""
    for at, (value, (shade, marker)) in enumerate(looks.items()):
        mine = [row for row in rows if _key(row, colour) == value]
        places = sorted((across.place(r), up.place(r)) for r in mine if r["status"] == "ok")
        axes.plot(
            [p[0] for p in places], [p[1] for p in places], line, marker=marker, color=shade,
            markersize=4, linewidth=1.2,
        )  # fmt: skip
        if across.name not in _RESULTS:
            failed = [across.place(row) for row in mine if row["status"] != "ok"]
            axes.plot(failed, [-step * (at + 0.6)] * len(failed), "x", color=shade, markersize=5)
    crossed = across.name not in _RESULTS and any(row["status"] != "ok" for row in rows)
    axes.set_ylim(-step * (len(looks) + 0.2) if crossed else 0, 1.08 * top)
    axes.set_yticks([tick for tick in axes.get_yticks() if 0 <= tick <= 1.08 * top])
    if crossed:
        axes.axhline(0, color="#999999", linewidth=0.7)
    axes.set_ylabel(up.label)
    axes.set_xlabel(across.label)
    _ticks(axes, rows, across)


def _ticks(axes: Axes, rows: Sequence[Row], across: _Axis) -> None:
    if across.words:
        many = sum(map(len, across.words)) > 30
        axes.set_xticks(range(len(across.words)), across.words)
        axes.tick_params(axis="x", rotation=25 if many else 0)
        for text in axes.get_xticklabels():
            text.set_horizontalalignment("right" if many else "center")
        axes.set_xlim(-0.5, len(across.words) - 0.5)
        return
    found = sorted({across.place(r) for r in rows if r.get(across.name) is not None})
    wide = bool(found) and found[0] > 0 and found[-1] / found[0] >= _WIDE
    if wide:
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_formatter(ScalarFormatter())
        axes.xaxis.set_minor_locator(NullLocator())
    if len(found) <= 8 and across.name not in _RESULTS:
        axes.xaxis.set_major_locator(FixedLocator(found))
    elif not wide:
        axes.xaxis.set_major_locator(MaxNLocator(6))


def _legend(
    figure: Picture, colour: str | None, looks: dict[str, tuple[str, str]], failed: int, of: int
) -> None:
    entries = [
        Line2D([], [], color=shade, marker=marker, markersize=4, linewidth=1.2, label=value)
        for value, (shade, marker) in looks.items()
        if colour is not None
    ]
    if failed:
        label = f"did not run ({failed} of {of})"
        entries.append(Line2D([], [], color="#666666", marker="x", linestyle="", label=label))
    if entries:
        title = None if colour is None else colour.replace("_", " ")
        figure.legend(handles=entries, loc="outside lower center", ncols=4, title=title)


def _title(rows: Sequence[Row], y: str, x: str, panels: int) -> str:
    """Say what is drawn, how to read it, and the settings that all rows share."""
    scales = "; each panel has its own scale" if panels > 1 else ""
    same = [name for name in table.settings(rows) if name not in table.varying(rows)]
    shared = [_said(name, rows[0].get(name)) for name in same]
    return "\n".join(
        [f"{_plain(y)} over {_plain(x)}{scales}", *([" · ".join(shared)] if shared else [])]
    )


def _said(name: str, value: Any) -> str:
    """One setting in words; models, servers and schedules speak for themselves."""
    if name in ("model", "server", "schedule"):
        return str(value)
    return f"{name.replace('_', ' ')} {'open' if value is None else value}"
