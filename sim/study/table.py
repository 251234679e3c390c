"""Rows of a study as a table: settings, results, status and reason."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sim.study.evaluate import COLUMNS, Outcome
from sim.study.point import Setting

if TYPE_CHECKING:
    from pandas import DataFrame

Row = dict[str, Any]

_WHOLE = ("microbatch_used", "swap_bytes", "peer_bytes", "peak_gpu_bytes", "peak_host_bytes")
"""Columns of whole numbers, also where some cells are missing."""


def row(settings: Mapping[str, Setting], outcome: Outcome) -> Row:
    """One row; what did not run has no results."""
    return {**settings, **outcome.result, "status": outcome.status, "reason": outcome.reason}


def settings(rows: Sequence[Row]) -> list[str]:
    """Names of the settings, in order of first mention."""
    last = {*(name for name, _ in COLUMNS), "status", "reason"}
    return list(dict.fromkeys(name for row in rows for name in row if name not in last))


def varying(rows: Sequence[Row]) -> list[str]:
    """Names of the settings that are not the same in all rows."""
    return [name for name in settings(rows) if len({row.get(name) for row in rows}) > 1]


def frame(rows: Sequence[Row]) -> DataFrame:
    """Table with one row a point: settings, results (missing where it did not run), status."""
    from pandas import DataFrame

    columns = [*settings(rows), *(name for name, _ in COLUMNS), "status", "reason"]
    return DataFrame(rows, columns=columns).astype(dict.fromkeys(_WHOLE, "Int64"))
