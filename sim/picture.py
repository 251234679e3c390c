"""Style that all pictures share, and how a figure is made, shown and saved."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from hwmodels.errors import InvalidInput

_STYLE: dict[Any, Any] = {
    "font.size": 8.5,
    "font.family": "sans-serif",
    "axes.titlesize": 9.5,
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.7,
    "xtick.major.width": 0.7,
    "ytick.major.width": 0.7,
    "legend.frameon": False,
    "legend.fontsize": 8,
    "svg.hashsalt": "commodious",
    "pdf.fonttype": 42,
}
SUFFIXES = (".png", ".pdf", ".svg")


class Picture(Figure):
    """A figure outside pyplot's global state that a notebook shows by itself."""

    def _repr_png_(self) -> bytes:
        data = BytesIO()
        with mpl.rc_context(_STYLE):
            self.savefig(data, format="png", dpi=110)
        return data.getvalue()


@contextmanager
def style() -> Generator[None]:
    """Use the common style inside the block, and leave the caller's settings as they were."""
    with mpl.rc_context(_STYLE):
        yield


def new(width: float, height: float) -> Picture:
    """Create an empty figure; sizes in inches."""
    return Picture(figsize=(width, height), layout="constrained")


def save(figure: Picture, path: str | Path | None) -> Picture:
    """Write the figure if a path is given; return it.

    Raises
    ------
    InvalidInput
        If the suffix is not .png, .pdf or .svg, or the file cannot be written.
    """
    if path is None:
        return figure
    target = Path(path)
    suffix = target.suffix.lower()
    if suffix not in SUFFIXES:
        known = ", ".join(SUFFIXES)
        raise InvalidInput(f"the picture {target} must have a name that ends in one of {known}")
    # no time stamp: equal runs give equal files
    stamp = {".png": {}, ".pdf": {"CreationDate": None}, ".svg": {"Date": None}}[suffix]
    try:
        with style():
            figure.savefig(target, dpi=200, metadata=stamp)
    except OSError as error:
        raise InvalidInput(
            f"the picture cannot be written to {target}: {error.strerror}"
        ) from error
    return figure


def quiet_left(axes: Axes) -> None:
    """Remove the axis line and ticks on the left, where labels alone are enough."""
    axes.spines["left"].set_visible(False)
    axes.tick_params(axis="y", length=0)
