"""The ``commodious`` command: what the library does, from a shell, and nothing else."""

from __future__ import annotations

import os
import sys
from typing import Annotated, NoReturn

import typer

from hwmodels.errors import CommodiousError, InvalidInput
from sim import cli_inputs, cli_lists, cli_study, cli_tables

app = typer.Typer(
    name="commodious",
    help="Compare training schedules on multi-GPU commodity servers, before buying or waiting.",
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Minibatch = Annotated[
    int, typer.Option("--minibatch", help="Samples per iteration on the whole server.")
]
Microbatch = Annotated[
    int | None,
    typer.Option("--microbatch", help="Samples per microbatch; by default the schedule chooses."),
]
ModelName = Annotated[
    str, typer.Option("--model", help="Name, config.json, or layer profile (see: models).")
]
PrecisionName = Annotated[
    str | None,
    typer.Option("--precision", help="Such as fp32 or mixed-bf16; default: the model's."),
]
OptimizerName = Annotated[
    str | None, typer.Option("--optimizer", help="sgd, momentum or adam; default: the model's.")
]
Sequence = Annotated[
    int | None,
    typer.Option("--sequence", help="Tokens per sample; default: the model's longest."),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]


@app.command(
    epilog="Example: commodious compare --model gpt2-xl --server pcie-4u-4x1080ti "
    "--server dgx-1 --minibatch 64"
)
def compare(
    model: ModelName,
    server: Annotated[
        list[str], typer.Option("--server", help="Name or box.toml; repeat to compare several.")
    ],
    minibatch: Minibatch,
    microbatch: Microbatch = None,
    schedule: Annotated[
        list[str] | None,
        typer.Option("--schedule", help="Repeat to choose some, or: all; default: the usual."),
    ] = None,
    precision: PrecisionName = None,
    optimizer: OptimizerName = None,
    sequence: Sequence = None,
    plot: Annotated[
        str | None, typer.Option("--plot", help="Draw the comparison to this .png, .pdf or .svg.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Replay schedules on servers: a table, and why the winner wins."""
    import sim
    import workloads

    cli_inputs.check_output(plot, cli_inputs.PICTURES)
    for name in schedule or ():
        if name != "all":
            workloads.schedule_info(name)
    boxes = [cli_inputs.read_server(text) for text in server]
    net = cli_inputs.read_model(model, precision, sequence, optimizer)
    with cli_tables.progress() as step:
        found = sim.compare(
            net,
            boxes,
            minibatch=minibatch,
            microbatch=microbatch,
            schedules=schedule,
            progress=step,
        )
    fits = [result.fits or result.note.startswith("does not fit") for result in found.results]
    if found.complete and not any(fits):
        raise InvalidInput(found.results[0].note)
    if plot is not None:
        found.plot(plot)
    if as_json:
        cli_tables.print_json(found.to_dict())
    else:
        cli_tables.print_comparison(found)
        if schedule is None:
            left = len(workloads.schedules()) - len({result.schedule for result in found.results})
            cli_tables.print_text(f"Note: {left} more with --schedule all (see: schedules).")
    if not found.complete:
        raise KeyboardInterrupt


@app.command(
    epilog="Example: commodious run --schedule harmony-pp --model gpt2-xl "
    "--server pcie-4u-4x1080ti --minibatch 64 --plot timeline.png --trace trace.json"
)
def run(
    schedule: Annotated[str, typer.Option("--schedule", help="Name (see: schedules).")],
    model: ModelName,
    server: Annotated[str, typer.Option("--server", help="Name or box.toml (see: servers).")],
    minibatch: Minibatch,
    microbatch: Microbatch = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="A knob of the schedule, as name=value; repeatable."),
    ] = None,
    precision: PrecisionName = None,
    optimizer: OptimizerName = None,
    sequence: Sequence = None,
    plot: Annotated[
        str | None, typer.Option("--plot", help="Draw the timeline to this .png, .pdf or .svg.")
    ] = None,
    memory_plot: Annotated[
        str | None, typer.Option("--memory-plot", help="Draw memory over time to this picture.")
    ] = None,
    trace: Annotated[
        str | None,
        typer.Option("--trace", help="Write a .json or .json.gz for Perfetto or chrome://tracing."),
    ] = None,
    page: Annotated[
        str | None,
        typer.Option("--html", help="Write a page to look around in, for any browser, offline."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Replay one schedule on one server: time, memory, links, and what sets the step."""
    import sim
    import workloads

    cli_inputs.check_output(plot, cli_inputs.PICTURES)
    cli_inputs.check_output(memory_plot, cli_inputs.PICTURES)
    cli_inputs.check_output(trace, (".json", ".json.gz"))
    cli_inputs.check_output(page, (".html",))
    knobs = cli_inputs.read_knobs(settings or ())
    workloads.schedule_info(schedule)
    box = cli_inputs.read_server(server)
    net = cli_inputs.read_model(model, precision, sequence, optimizer)
    plan = workloads.schedule(
        schedule, net, box, minibatch=minibatch, microbatch=microbatch, **knobs
    )
    found = sim.simulate(plan, box)
    if plot is not None:
        found.plot_timeline(plot)
    if memory_plot is not None:
        found.plot_memory(memory_plot)
    if trace is not None:
        found.to_trace(trace)
    if page is not None:
        found.to_html(page)
    if as_json:
        cli_tables.print_json(found.summary())
    else:
        cli_tables.print_run(found)


app.command(epilog="Example: commodious servers dgx-1 --toml > box.toml")(cli_lists.servers)
app.command(epilog="Example: commodious gpus rtx-4090")(cli_lists.gpus)
app.command(epilog="Example: commodious models gpt2-xl")(cli_lists.models)
app.command(epilog="Example: commodious schedules harmony-pp")(cli_lists.schedules)
app.command(epilog="Example: nvidia-smi topo -m | commodious topo - --gpu rtx-4090 > box.toml")(
    cli_lists.topo
)
app.add_typer(cli_study.app)

# Every mistake in the use of an option is a kind of this; the class itself has no public name.
_USAGE_ERROR: type[Exception] = typer.BadParameter.__mro__[2]


def main() -> None:
    """Run the command; a user's mistake becomes one sentence on stderr and exit code 2."""
    try:
        code = app(sys.argv[1:] or ["--help"], prog_name="commodious", standalone_mode=False)
    except CommodiousError as error:
        _fail(str(error))
    except _USAGE_ERROR as error:
        said: str = error.format_message()  # pyright: ignore[reportAttributeAccessIssue]
        _fail(said.replace(". Did you mean", "; did you mean"))
    except (KeyboardInterrupt, typer.Abort):
        code = _INTERRUPTED
    except BrokenPipeError:
        # The reader (head, less) has what it wanted; keep the interpreter from complaining.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    if code == _INTERRUPTED:
        print("commodious: interrupted", file=sys.stderr)
    sys.exit(code if isinstance(code, int) else 0)


_INTERRUPTED = 130
"""Exit code after Ctrl-C: 128 and the number of the signal, as shells have it."""


def _fail(message: str) -> NoReturn:
    """Print one line and leave with exit code 2."""
    line = " ".join(message.split())
    stop = "" if line.endswith((".", "?", "!")) else "."
    print(f"commodious: {line}{stop}", file=sys.stderr)
    sys.exit(2)
