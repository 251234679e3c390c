"""Progress of a study: a bar in a terminal, a line in a notebook, nothing elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

from sim import cli_tables

Progress = Callable[[int, int, str], None]

_PAUSE = 0.1
"""Seconds between two pictures of the progress: more often is not seen, and costs time."""


@contextmanager
def shown(given: Progress | None) -> Generator[Progress]:
    """Use the progress that the caller gave, or what suits where the output goes."""
    if given is not None:
        yield given
        return
    notebook = _notebook()
    if notebook is not None:
        yield _calm(notebook)
        return
    with cli_tables.progress() as step:
        yield _nothing if step is None else _calm(step)


def _nothing(done: int, total: int, label: str) -> None:
    """Show nothing."""


def _calm(step: Progress) -> Progress:
    """Show the first and the last step, and between them not more often than is seen."""
    last = [0.0]

    def calm(done: int, total: int, label: str) -> None:
        now = time.monotonic()
        if done == total or now - last[0] >= _PAUSE:
            last[0] = now
            step(done, total, label)

    return calm


def _notebook() -> Progress | None:
    """Line below the cell of a notebook that is written again and again; None elsewhere."""
    shell: Any = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    if getattr(shell, "kernel", None) is None:
        return None
    display: Any = sys.modules["IPython"].display.display
    line = display({"text/plain": ""}, raw=True, display_id=True)

    def step(done: int, total: int, label: str) -> None:
        text = f"{done} of {total} points" + (f", {label}" if label else "")
        line.update({"text/plain": text}, raw=True)

    return step
