"""Pictures of one run: timeline, memory, links, swap volume."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.patches import Patch
from numpy.typing import NDArray

from sim.colours import KINDS, PHASES
from sim.occupancy import Curve
from sim.picture import Picture, new, quiet_left, save, style
from sim.streams import Row
from sim.traffic import Load
from sim.words import byte_unit, three, time_unit

Floats = NDArray[np.float64]

_ROW = 0.2
"""Inches of height for one stream of a timeline."""
_KEYS = 7
"""Entries that one line of a legend has room for."""
_FEW = 400
"""Up to this many operations each bar gets a thin edge; beyond, edges would cover the bars."""
_POINTS = 2000
"""Points drawn of a memory curve; of more, the highest of each stretch is kept."""
_COLUMNS = 240
"""Stretches of time in the picture of links."""


class LinkUse(NamedTuple):
    """Use of one resource: name, capacity in B/s, bytes, busy share (0 to 1), and over time."""

    name: str
    capacity: float
    bytes: float
    busy: float
    load: Load


def timeline(
    rows: Sequence[Row], finish: float, title: str, path: str | Path | None = None
) -> Picture:
    """Draw bars by stream, grouped by device; ``finish`` is the iteration time in seconds."""
    with style():
        size, unit = time_unit(finish)
        figure = new(7.2, 1.15 + _ROW * max(len(rows), 3))
        axes = figure.add_subplot()
        few = sum(len(row.start) for row in rows) <= _FEW
        for at, row in enumerate(rows):
            _bars(axes, row, at, size, few)
        axes.set_xlim(0, finish / size or 1)
        axes.set_ylim(len(rows) - 0.5, -0.5)
        axes.set_yticks(range(len(rows)), [row.name for row in rows])
        axes.set_xlabel(f"time ({unit})")
        quiet_left(axes)
        _groups(axes, [row.device for row in rows])
        used = {phase for row in rows for phase in row.phases}
        keys = [Patch(color=c, label=word) for p, (c, word) in PHASES.items() if p in used]
        figure.suptitle(title, x=0.01, ha="left", fontsize=9.5)
        columns = len(keys) if len(keys) <= _KEYS else (len(keys) + 1) // 2
        figure.legend(handles=keys, loc="outside lower center", ncols=columns or 1,
                      handlelength=1.0, columnspacing=1.2)  # fmt: skip
        return save(figure, path)


def _bars(axes: Axes, row: Row, at: int, size: float, few: bool) -> None:
    left, right = row.start / size, row.end / size
    low, high = np.full(len(left), at - 0.41), np.full(len(left), at + 0.41)
    corners = np.stack(
        [np.stack(point, -1) for point in
         ((left, low), (right, low), (right, high), (left, high))], axis=1,
    )  # fmt: skip
    colours = [PHASES[phase][0] for phase in row.phases]
    # an edge in the bar's own colour keeps a bar visible that is thinner than a pixel
    split = few and row.name == "compute"
    edges = "white" if split else colours
    width = 0.3 if split else 0.4
    bars = PolyCollection(list(corners), facecolors=colours, edgecolors=edges, linewidths=width)
    axes.add_collection(bars, autolim=False)


def _groups(axes: Axes, devices: Sequence[str]) -> None:
    """Write each device once, left of its streams, with a line between devices."""
    starts = [i for i, device in enumerate(devices) if not i or devices[i - 1] != device]
    marks: list[float] = []
    for first, stop in zip(starts, [*starts[1:], len(devices)], strict=True):
        marks.append((first + stop - 1) / 2)
        if first:
            axes.axhline(first - 0.5, color="#bbbbbb", linewidth=0.6)
    second = axes.secondary_yaxis(-0.16)
    second.set_yticks(marks, [devices[i] for i in starts], fontweight="bold")
    second.tick_params(length=0)
    second.spines["left"].set_visible(False)


def memory(
    curves: Mapping[str, Curve],
    capacity: Mapping[str, int],
    finish: float,
    title: str,
    path: str | Path | None = None,
) -> Picture:
    """Draw bytes in use over time, stacked by kind of tensor, one panel per device.

    Parameters
    ----------
    curves : mapping of str to Curve
        By device.
    capacity : mapping of str to int
        Bytes, by device.
    finish : float
        Iteration time in seconds.
    """
    with style():
        size, unit = time_unit(finish)
        figure = new(7.2, 0.95 + 1.05 * max(len(curves), 1))
        panels = figure.subplots(max(len(curves), 1), 1, sharex=True, squeeze=False)[:, 0]
        used: set[str] = set()
        for axes, (device, curve) in zip(panels, curves.items(), strict=False):
            used |= set(curve.kinds)
            alike = [c.peak for d, c in curves.items() if capacity[d] == capacity[device]]
            _memory_panel(axes, device, curve, capacity[device], max(alike), finish, size)
        panels[-1].set_xlabel(f"time ({unit})")
        panels[-1].set_xlim(0, finish / size or 1)
        keys = [Patch(color=c, label=word) for k, (c, word) in KINDS.items() if k in used]
        figure.suptitle(title, x=0.01, ha="left", fontsize=9.5)
        figure.legend(handles=keys, loc="outside lower center", ncols=min(len(keys), 4) or 1,
                      handlelength=1.0, columnspacing=1.2)  # fmt: skip
        return save(figure, path)


def _memory_panel(
    axes: Axes, device: str, curve: Curve, capacity: int, top: int, finish: float, size: float
) -> None:
    """Draw one device; ``top`` is the highest peak of devices with this capacity, for the scale."""
    bytes_size, bytes_unit = byte_unit(max(top, 1))
    keep = _highest(curve.times, curve.bytes, finish)
    times = curve.times[keep]
    x = np.append(times, max(finish, float(times[-1]))) / size
    floor = np.zeros(len(x))
    for kind in (kind for kind in KINDS if kind in curve.kinds):
        level = curve.kinds[kind][keep]
        ceiling = floor + np.append(level, level[-1]) / bytes_size
        axes.fill_between(x, floor, ceiling, step="post", color=KINDS[kind][0], linewidth=0)
        floor = ceiling
    sizes = f"{three(curve.peak / bytes_size)} of {three(capacity / bytes_size)} {bytes_unit}"
    if top > 0.3 * capacity:
        axes.axhline(capacity / bytes_size, color="black", linewidth=0.8, linestyle="--")
        axes.set_ylim(0, 1.08 * capacity / bytes_size)
    else:
        axes.set_ylim(0, 1.12 * top / bytes_size or 1)
    axes.set_title(f"{device}: peak {sizes}", fontsize=8.5, pad=2)
    axes.set_ylabel(bytes_unit)


def _highest(times: Floats, total: NDArray[np.int64], finish: float) -> NDArray[np.int64]:
    """Choose at most `_POINTS` indices: of the highest point of each stretch of time."""
    if len(times) <= _POINTS:
        return np.arange(len(times))
    stretch = np.minimum((times / finish * _POINTS).astype(int), _POINTS - 1)
    order = np.lexsort((total, stretch))
    last = np.append(stretch[order][1:] != stretch[order][:-1], True)
    return np.sort(order[last])


def links(
    uses: Sequence[LinkUse], finish: float, title: str, path: str | Path | None = None
) -> Picture:
    """Draw utilisation and busy share of each resource as bars, and beside them over time."""
    with style():
        size, unit = time_unit(finish)
        figure = new(7.2, 1.35 + 0.21 * max(len(uses), 3))
        bars, heat = figure.subplots(1, 2, sharey=True, width_ratios=(1, 1.5))
        y = np.arange(len(uses))
        share = [use.bytes / (use.capacity * finish) if finish else 0.0 for use in uses]
        busy = [100 * use.busy for use in uses]
        bars.barh(y, busy, height=0.74, color="#c9dceb", label="time in use")
        bars.barh(y, [100 * value for value in share], height=0.74, color="#0072B2",
                  label="capacity used")  # fmt: skip
        longest = max([*busy, *(100 * value for value in share)], default=0.0) or 1.0
        for at, (use, part) in enumerate(zip(uses, share, strict=True)):
            bytes_size, bytes_unit = byte_unit(use.bytes)
            bars.text(
                100 * max(part, use.busy) + 0.02 * longest, at,
                f"{three(use.bytes / bytes_size)} {bytes_unit}", va="center", fontsize=7,
            )  # fmt: skip
        bars.set_xlim(0, 1.38 * longest)  # room for the bytes beside the longest bar
        bars.set_xticks([tick for tick in bars.get_xticks() if tick <= 100])
        bars.set_xlim(0, 1.38 * longest)
        bars.set_ylim(len(uses) - 0.5, -0.5)
        bars.set_yticks(y, [f"{use.name}  {three(use.capacity / 1e9)} GB/s" for use in uses])
        bars.set_xlabel("%")
        quiet_left(bars)
        grid = np.array([binned(use.load, use.capacity, finish) for use in uses])
        extent = (0.0, finish / size or 1.0, len(uses) - 0.5, -0.5)
        if len(uses):
            image = heat.imshow(
                grid * 100, aspect="auto", extent=extent, cmap="Blues", vmin=0, vmax=100,
                interpolation="nearest",
            )  # fmt: skip
            figure.colorbar(image, ax=heat, label="% of capacity", pad=0.02)
            figure.legend(*bars.get_legend_handles_labels(), loc="outside lower left", ncols=2,
                          handlelength=1.0)  # fmt: skip
            heat.hlines(y[1:] - 0.5, 0, extent[1], color="white", linewidth=1.5)
        heat.spines[["left", "bottom"]].set_color("#bbbbbb")
        heat.set_xlabel(f"time ({unit})")
        quiet_left(heat)
        figure.suptitle(title, x=0.01, ha="left", fontsize=9.5)
        return save(figure, path)


def binned(load: Load, capacity: float, finish: float) -> Floats:
    """Mean share of the capacity in each of `_COLUMNS` equal stretches of the iteration."""
    edges = np.linspace(0.0, finish, _COLUMNS + 1)
    if not len(load.times) or not finish:
        return np.zeros(_COLUMNS)
    moved = np.interp(edges, load.times, load.moved)
    return np.minimum(np.diff(moved) / (capacity * finish / _COLUMNS), 1.0)


def swap(
    volume: Mapping[tuple[str, str], int], title: str, path: str | Path | None = None
) -> Picture:
    """Draw bytes copied by kind of tensor and direction; keys are ``(kind, phase)``."""
    with style():
        kinds = [kind for kind in KINDS if any(key[0] == kind for key in volume)]
        phases = [p for p in ("swap_in", "swap_out", "peer") if any(k[1] == p for k in volume)]
        size, unit = byte_unit(max(volume.values(), default=1))
        figure = new(max(4.2, 1.6 + 0.95 * len(kinds)), 2.9)
        axes = figure.add_subplot()
        width = 0.8 / max(len(phases), 1)
        for at, phase in enumerate(phases):
            colour, word = PHASES[phase]
            x = np.arange(len(kinds)) + (at - (len(phases) - 1) / 2) * width
            height = [volume.get((kind, phase), 0) / size for kind in kinds]
            bars = axes.bar(x, height, 0.92 * width, color=colour, label=word)
            axes.bar_label(bars, [three(value) if value else "" for value in height],
                           fontsize=7, padding=1)  # fmt: skip
        axes.set_xticks(range(len(kinds)), [KINDS[kind][1].replace(" ", "\n", 1) for kind in kinds])
        axes.tick_params(axis="x", length=0)
        axes.set_ylabel(f"copied per iteration ({unit})")
        axes.margins(y=0.12)
        axes.set_title(title)
        if phases:
            figure.legend(loc="outside lower center", ncols=3, handlelength=1.0)
        return save(figure, path)
