"""Text and JSON of the command line: tables that fit the terminal, and the progress bar."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from sim.words import three, time

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from sim.compare import Comparison, Result
    from sim.run import Run

Step = Callable[[int, int, str], None]


@contextmanager
def progress() -> Generator[Step | None]:
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


def print_table(headers: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print rows as a table as wide as its content; the last column gives way to the terminal.

    A header that starts with ``>`` aligns its column to the right.
    """
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), show_edge=False)
    for index, header in enumerate(headers):
        table.add_column(
            header.removeprefix(">"),
            justify="right" if header.startswith(">") else "left",
            no_wrap=index < len(headers) - 1,
            overflow="fold",
        )
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    _print(table)


def print_rich(table: Table) -> None:
    """Print a table that was made elsewhere."""
    _print(table)


def print_text(text: str) -> None:
    """Print a paragraph, broken at the width of the terminal."""
    from rich.text import Text

    _print(Text(text))


def _print(what: Table | Text) -> None:
    """Print without the blanks that rich adds at the end of each line."""
    console = _console()
    with console.capture() as text:
        console.print(what)
    for line in text.get().splitlines():
        print(line.rstrip())


def _console() -> Console:
    from rich.console import Console

    return Console(highlight=False, emoji=False, markup=False)


def width() -> int:
    """Characters in a line of the terminal."""
    return _console().width


def percent(share: float) -> str:
    """Share as a whole percentage."""
    return f"{100 * share:.0f} %"


def gigabytes(count: float) -> str:
    """Bytes as a number of GB (1e9 bytes): three digits, at most two behind the point.

    Examples
    --------
    >>> gigabytes(1.234e11), gigabytes(4.56e8), gigabytes(1000), gigabytes(0)
    ('123', '0.46', '<0.01', '0')
    """
    if 0 < count < 5e6:
        return "<0.01"
    return three(count / 1e9) if count >= 1e9 or count == 0 else f"{count / 1e9:.2f}"


def print_comparison(found: Comparison) -> None:
    """Print a table per server, the reasons of what did not run, and why the winner wins."""
    print(f"{found.model}, minibatch {found.minibatch}")
    width = _console().width
    reasons: list[tuple[list[str], str]] = []
    for server in dict.fromkeys(result.server for result in found.results):
        mine = [result for result in found.results if result.server == server]
        print(f"\n{server}")
        _print_results(mine, width)
        for result in mine:
            if not result.fits:
                _collect(reasons, result)
    if reasons:
        print()
    for names, note in reasons:
        print_text(f"{', '.join(names)}: {note}")
    print()
    for line in found.why().splitlines():
        print_text(line)
    for note in found.notes:
        print_text(f"Note: {note}")


_COLUMNS: tuple[tuple[str, int, Callable[[Result], str]], ...] = (
    (">time", 0, lambda r: time(r.iteration_time)),
    (">samples/s", 0, lambda r: three(r.samples_per_second)),
    (">tokens/s", 120, lambda r: three(r.tokens_per_second)),
    (">u", 100, lambda r: str(r.microbatch)),
    (">peak GB", 0, lambda r: gigabytes(r.peak_gpu_memory)),
    (">host GB", 100, lambda r: gigabytes(r.host_memory)),
    (">swap GB", 0, lambda r: gigabytes(r.swap_bytes)),
    (">bound", 0, lambda r: percent(r.share_of_bound)),
    ("bottleneck", 0, lambda r: r.bottleneck),
)
"""Header, least width of the terminal at which it is shown, and cell."""


def _print_results(results: Sequence[Result], width: int) -> None:
    """Print one server's rows with the columns that a terminal of ``width`` has room for."""
    shown = [(header, cell) for header, least, cell in _COLUMNS if width >= least]
    rows: list[list[str]] = []
    for result in results:
        if result.fits:
            rows.append([result.schedule, *(cell(result) for _, cell in shown)])
        else:
            short = "does not fit" if result.note.startswith("does not fit") else "did not run"
            rows.append([result.schedule, *("-" for _ in shown[1:]), short])
    print_table(("schedule", *(header for header, _ in shown)), rows)


def _collect(reasons: list[tuple[list[str], str]], result: Result) -> None:
    """Add a reason, once for all that share it."""
    name = f"{result.schedule} on {result.server}"
    for names, note in reasons:
        if note == result.note:
            names.append(name)
            return
    reasons.append(([name], result.note))


def print_run(found: Run) -> None:
    """Print a run: summary, time of each GPU, links, copies, explanation and notes."""
    gpus = [found.peak_memory.get(name, 0) for name in found.server.gpus]
    hosts = [found.peak_memory.get(name, 0) for name in found.server.hosts]
    print_text(found.title)
    print_text(
        f"{time(found.iteration_time)} an iteration, {three(found.samples_per_second)} samples/s, "
        f"{three(found.tokens_per_second)} tokens/s; peak {gigabytes(max(gpus))} GB on a GPU, "
        f"{gigabytes(sum(hosts))} GB in host memory; {gigabytes(found.swap_bytes)} GB swapped, "
        f"{gigabytes(found.peer_bytes)} GB between GPUs"
    )
    facts = found.summary()
    _print_split(facts["time_split_s"], found.iteration_time)
    _print_links(facts["links"], found.explain().links)
    _print_volume(facts["swap_volume_bytes"])
    print()
    print_text(found.explain().text())
    for note in found.notes:
        print_text(f"Note: {note}")


def _print_split(split: Mapping[str, Mapping[str, float]], whole: float) -> None:
    causes = list(next(iter(split.values()), {}))
    print("\nWhat each GPU did, in % of the iteration")
    print_table(
        ("GPU", *(f">{cause}" for cause in causes)),
        [
            (gpu, *(f"{100 * parts[cause] / (whole or 1.0):.1f}" for cause in causes))
            for gpu, parts in split.items()
        ],
    )


_LINKS = 8
"""Links that the summary of a run shows; ``--json`` has all."""


def _print_links(links: Sequence[Mapping[str, Any]], cables: Mapping[str, str]) -> None:
    shown = f" ({_LINKS} of {len(links)})" if len(links) > _LINKS else ""
    print(f"\nLinks, fullest first{shown}")
    print_table(
        ("resource", "link", ">GB", ">GB/s", ">used", ">busy"),
        [
            (
                link["resource"],
                cables.get(link["resource"], ""),
                gigabytes(link["bytes"]),
                gigabytes(link["capacity"]),
                percent(link["utilisation"]),
                percent(link["busy"]),
            )
            for link in links[:_LINKS]
        ],
    )


def _print_volume(volume: Mapping[str, Mapping[str, int]]) -> None:
    if not volume:
        return
    print("\nCopied, in GB")
    ways = ("swap_in", "swap_out", "peer")
    print_table(
        ("tensor", ">swap in", ">swap out", ">peer"),
        [
            (kind.replace("_", " "), *(gigabytes(moved.get(way, 0)) for way in ways))
            for kind, moved in volume.items()
        ],
    )
