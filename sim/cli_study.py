"""The ``commodious study`` commands: run a study file, show and draw what it found."""

from __future__ import annotations

import sys
import warnings
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from hwmodels.errors import InvalidInput
from sim import cli_inputs, cli_tables
from sim.words import three, time

if TYPE_CHECKING:
    from sim.study.evaluate import Outcome
    from sim.study.table import Row

app = typer.Typer(
    name="study", help="Run many points, keep them in a file, show and draw them.",
    no_args_is_help=True, context_settings={"help_option_names": ["-h", "--help"]},
)  # fmt: skip

StudyFile = Annotated[str, typer.Argument(metavar="FILE.study", help="Written by: study run.")]


@app.command(epilog="Example: commodious study run swap.toml --to swap.study")
def run(
    file: Annotated[str, typer.Argument(metavar="FILE.toml", help="Describes the study.")],
    to: Annotated[
        str | None,
        typer.Option("--to", help="Study file to keep results in; default: FILE.study."),
    ] = None,
    processes: Annotated[
        int | None, typer.Option("--processes", help="Processes; default: one a processor.")
    ] = None,
) -> None:
    """Run the points that the study file does not have yet; Ctrl-C loses nothing."""
    import sim

    if not file.endswith(".toml"):
        raise InvalidInput(f"{file}: name the file that describes the study, which ends in .toml.")
    target = to or file.removesuffix(".toml") + ".study"
    study = sim.Study.load(file)
    with _warnings_said():
        try:
            study.run(target, processes=processes)
        except KeyboardInterrupt as error:
            print(f"commodious: {error}.", file=sys.stderr)
            raise
    _print_summary([row["status"] for row in study.rows], target)


@app.command(epilog="Example: commodious study show swap.study")
def show(
    file: StudyFile,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")] = False,
) -> None:
    """Print the rows of a study file, and why points did not run."""
    found, rows = _read(file)
    if as_json:
        cli_tables.print_json(rows)
        return
    _print_rows(rows)
    reasons = Counter((row["status"], row["reason"]) for row in rows if row["status"] != "ok")
    print()
    for (status, reason), count in reasons.items():
        again = "" if reason.startswith(status) else f"{status}: "
        cli_tables.print_text(f"{count} x {again}{reason}")
    _print_summary([row["status"] for row in rows], file)
    for note in dict.fromkeys(note for outcome in found for note in outcome.notes):
        cli_tables.print_text(f"Note: {note}")


@app.command(
    epilog="Example: commodious study plot swap.study --x minibatch --y samples_per_s "
    "--colour schedule --to swap.png"
)
def plot(
    file: StudyFile,
    x: Annotated[str, typer.Option("--x", help="Setting (or result) along the picture.")],
    to: Annotated[str, typer.Option("--to", help="The .png, .pdf or .svg to write.")],
    y: Annotated[str, typer.Option("--y", help="Result up the picture.")] = "samples_per_s",
    colour: Annotated[
        str | None, typer.Option("--colour", help="Setting that the lines stand for.")
    ] = None,
) -> None:
    """Draw one column over another, a panel for each combination of what else varies."""
    from sim.study import plot as pictures

    cli_inputs.check_output(to, cli_inputs.PICTURES)
    _, rows = _read(file)
    pictures.lines(rows, x, y, colour, to)


def _read(path: str) -> tuple[list[Outcome], list[Row]]:
    """Outcomes and rows that this version wrote; says how many others there are."""
    from sim.study import point, store, table

    now = point.version()
    with store.opened(path, create=False) as file:
        found, others = file.rows(now), file.others(now)
    if others:
        print(
            f"commodious: {path} also has {others} rows of other versions of commodious, which are "
            "not shown; running the study again computes them anew",
            file=sys.stderr,
        )
    if not found:
        raise InvalidInput(f"{path} has no rows of version {now}; run the study first.")
    return [outcome for _, outcome in found], [table.row(*each) for each in found]


@contextmanager
def _warnings_said() -> Generator[None]:
    """Print each warning of the study as a line of the command."""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always", RuntimeWarning)
        try:
            yield
        finally:
            for warning in found:
                print(f"commodious: {warning.message}", file=sys.stderr)


def _print_summary(statuses: Sequence[str], path: str) -> None:
    counts = Counter(statuses)
    words = {"ok": "ran", "does not fit": "too large", "invalid": "invalid"}
    words["error"] = "failed (the next run tries them again)"
    said = [f"{counts[status]} {word}" for status, word in words.items() if counts[status]]
    many = "1 point" if len(statuses) == 1 else f"{len(statuses)} points"
    cli_tables.print_text(f"{path} has {many}: {', '.join(said)}.")


_RESULTS: tuple[tuple[str, Callable[[Row], str]], ...] = (
    (">time", lambda r: time(r["iteration_time_s"])),
    (">samples/s", lambda r: three(r["samples_per_s"])),
    ("bottleneck", lambda r: r["bottleneck"]),
    (">swap GB", lambda r: cli_tables.gigabytes(r["swap_bytes"])),
    (">peak GB", lambda r: cli_tables.gigabytes(r["peak_gpu_bytes"])),
    (">host GB", lambda r: cli_tables.gigabytes(r["peak_host_bytes"])),
)
"""Header and cell; the first ones are shown where the terminal has no room for all."""


def _print_rows(rows: Sequence[Row]) -> None:
    """Print settings that vary and results; settings that all rows share stand above."""
    from sim.study import table

    varying = table.varying(rows)
    for name in table.settings(rows):
        if name not in varying and rows[0].get(name) is not None:
            print(f"{name.replace('_', ' ')}: {rows[0][name]}")
    print()
    numbers = {x for x in varying if all(type(row.get(x)) in (int, float) for row in rows)}
    names = [(">" if x in numbers else "") + x.replace("_", " ") for x in varying]
    headers = [*names, "status", *(header for header, _ in _RESULTS)]
    cells = [
        [
            *("-" if row.get(name) is None else str(row[name]) for name in varying),
            row["status"],
            *(cell(row) if row["status"] == "ok" else "-" for _, cell in _RESULTS),
        ]
        for row in rows
    ]
    shown = _columns_that_fit(headers, cells, least=len(varying) + 2)
    if shown:
        cli_tables.print_table(headers[:shown], [each[:shown] for each in cells])
        return
    for each in cells:  # too many settings for a table: a paragraph a row
        pairs = zip(headers, each, strict=True)
        said = ", ".join(f"{head.removeprefix('>')} {x}" for head, x in pairs if x != "-")
        cli_tables.print_text(said)


def _columns_that_fit(headers: Sequence[str], cells: Sequence[Sequence[str]], least: int) -> int:
    """Count the first columns that fit the terminal whole; 0 if ``least`` do not."""
    width, room = 0, cli_tables.width()
    for at, header in enumerate(headers):
        width += 2 + max(len(header.removeprefix(">")), *(len(row[at]) for row in cells))
        if width > room:  # two blanks after each column
            return at if at >= least else 0
    return len(headers)
