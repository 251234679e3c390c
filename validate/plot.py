"""Pictures of predictions beside measurements."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from sim.picture import new, quiet_left, save, style
from sim.words import time_unit

if TYPE_CHECKING:
    from sim.picture import Picture
    from validate.report import Pair

_COLOURS = {"predicted": "#56B4E9", "measured": "#0072B2"}


def bars(names: Sequence[str], pairs: Sequence[Pair], path: str | Path | None = None) -> Picture:
    """Draw predicted and measured times of several runs, with the error of each."""
    with style():
        size, unit = time_unit(max(max(pair.predicted, pair.measured) for pair in pairs))
        figure = new(7.2, 1.0 + 0.42 * len(pairs))
        axes = figure.add_subplot()
        at = np.arange(len(pairs))
        sides = {
            "predicted": [pair.predicted / size for pair in pairs],
            "measured": [pair.measured / size for pair in pairs],
        }
        for shift, (side, values) in zip((-0.2, 0.2), sides.items(), strict=True):
            axes.barh(at + shift, values, 0.38, color=_COLOURS[side], label=side)
        for place, pair in zip(at, pairs, strict=True):
            end = max(pair.predicted, pair.measured) / size
            axes.annotate(f"{pair.error:+.1%}", (end, place), (3, 0), va="center",
                          textcoords="offset points")  # fmt: skip
        axes.set_yticks(at, names)
        axes.invert_yaxis()
        axes.margins(x=0.1)
        axes.set_xlabel(f"iteration time ({unit})")
        quiet_left(axes)
        figure.legend(loc="outside lower center", ncols=2)
        return save(figure, path)
