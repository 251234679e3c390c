"""Commands that list what there is: servers, GPUs, models, schedules; and ``topo``."""

from __future__ import annotations

from typing import Annotated

import typer

from sim import cli_inputs, cli_tables

Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]


def schedules(
    name: Annotated[str | None, typer.Argument(help="Show one with its knobs.")] = None,
    as_json: Json = False,
) -> None:
    """List the schedules; with a name, its source and knobs (for run --set)."""
    import workloads

    if name is None:
        infos = [workloads.schedule_info(each) for each in workloads.schedules()]
        if as_json:
            cli_tables.print_json([{"name": i.name, "summary": i.summary} for i in infos])
        else:
            cli_tables.print_table(("schedule", "what it does"), ((i.name, i.summary) for i in infos))
        return
    info = workloads.schedule_info(name)
    knobs = [
        {"name": key, "default": knob.default, "choices": list(knob.choices), "help": knob.help}
        for key, knob in info.knobs.items()
    ]
    if as_json:
        cli_tables.print_json(
            {"name": info.name, "summary": info.summary, "source": info.source, "knobs": knobs}
        )
        return
    cli_tables.print_text(f"{info.name}: {info.summary}\nsource: {info.source}\n")
    if not knobs:
        cli_tables.print_text("It has no knobs.")
        return
    rows = [
        (key, _default(knob.default), " or ".join(knob.choices) or _KINDS[knob.kind], knob.help)
        for key, knob in info.knobs.items()
    ]
    cli_tables.print_table(("knob", "default", "values", "meaning"), rows)


_KINDS = {bool: "true or false", int: "whole number", str: "text"}


def _default(value: bool | int | str | None) -> str:
    return "chosen" if value is None else str(value).lower()
