"""Text and JSON of the command line: tables that fit the terminal, and the progress bar."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

    from sim.compare import Comparison
    from sim.run import Run

Step = Callable[[int, int, str], None]


@contextmanager
def progress() -> Iterator[Step | None]:
    """Show a progress bar on stderr while the block runs; nothing if stderr is not a terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    columns = (BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=None)

        def step(done: int, total: int, label: str) -> None:
            bar.update(task, completed=done, total=total, description=label)

        yield step


def print_json(value: object) -> None:
    """Print JSON, keys in the order in which they were made."""
    print(json.dumps(value, indent=2, ensure_ascii=False))


def print_table(headers: Sequence[str], rows: Iterable[Sequence[str]], wrap: int = -1) -> None:
    """Print rows as a table as wide as its content, at most as wide as the terminal.

    Parameters
    ----------
    headers : sequence of str
        A header that starts with ``>`` aligns its column to the right.
    rows : iterable of sequence of str
    wrap : int
        Column that gives way where the terminal is narrow; by default the last.
    """
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False)
    flexible = wrap % len(headers)
    for index, header in enumerate(headers):
        right = header.startswith(">")
        table.add_column(
            header.removeprefix(">"),
            justify="right" if right else "left",
            no_wrap=index != flexible,
            overflow="fold",
        )
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    _console().print(table)


def print_text(text: str) -> None:
    """Print a paragraph, broken at the width of the terminal."""
    from rich.text import Text

    _console().print(Text(text))


def _console() -> Console:
    from rich.console import Console

    return Console(highlight=False, emoji=False, markup=False)


def seconds(value: float) -> str:
    """Time with its unit and three digits.

    Examples
    --------
    >>> seconds(0.01234)
    '12.3 ms'
    """
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if value >= size:
            break
    return f"{digits(value / size)} {unit}"


def gigabytes(value: float) -> str:
    """Bytes as a number of GB (1e9 bytes), three digits."""
    return digits(value / 1e9)


def digits(value: float) -> str:
    """Three significant digits without exponent; all digits before the point.

    Examples
    --------
    >>> digits(1234.5), digits(12.345), digits(0.012345)
    ('1234', '12.3', '0.0123')
    """
    if value == 0:
        return "0"
    size = len(f"{abs(value):.0f}") if abs(value) >= 1 else 0
    return f"{value:.{max(0, 3 - size)}f}" if size else f"{value:.3g}"


def percent(share: float) -> str:
    """Share as a whole percentage."""
    return f"{100 * share:.0f} %"
