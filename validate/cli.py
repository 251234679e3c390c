"""The ``commodious`` command in full: the simulator's commands, and those that run for real.

Only this room knows both; `sim` does not know that anything can be run.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from hwmodels.errors import InvalidInput
from sim import cli_inputs, cli_tables
from sim.cli import Json, app, main

if TYPE_CHECKING:
    from hwmodels.compute import LayerProfile
    from validate.measurements import Measurements
    from workloads.model import Model

__all__ = ["main"]

Device = Annotated[
    Literal["cpu", "cuda"],
    typer.Option("--device", help="cuda: real GPUs; cpu: logical ones, which are threads."),
]
Gpus = Annotated[int, typer.Option("--gpus", min=1, help="How many GPUs.")]
Net = Annotated[
    Literal["gpt", "conv"], typer.Option("--net", help="Network whose layers are measured or run.")
]
Budget = Annotated[
    float, typer.Option("--seconds", min=1, help="Time to spend on measuring, roughly.")
]


@app.command(epilog="Example: commodious bench --device cuda --gpus 4 -o machine.json")
def bench(
    device: Device = "cpu",
    gpus: Gpus = 1,
    seconds: Budget = 60.0,
    output: Annotated[
        str | None, typer.Option("--output", "-o", help="Write the measurements to this .json.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Measure this machine: copies, collectives, layers, optimizer steps."""
    cli_inputs.check_output(output, (".json",))
    found = _measure(device, gpus, seconds)
    if output is not None:
        found.save(output)
    if as_json:
        print(found.model_dump_json(indent=2))
    else:
        from validate.bench import show

        show(found)
    if _interrupted(found):
        raise KeyboardInterrupt


@app.command(epilog="Example: commodious calibrate --device cuda --gpus 4 -o box.toml")
def calibrate(
    output: Annotated[str, typer.Option("--output", "-o", help="Server file (.toml) to write.")],
    device: Device = "cpu",
    gpus: Gpus = 1,
    seconds: Budget = 60.0,
    measurements: Annotated[
        str | None, typer.Option("--from", help="Use measurements that bench wrote.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Fit a server to this machine; writes box.toml, box.profile.json and box.measurements.json."""
    from validate.calibrate import calibrate as fit
    from validate.measurements import Measurements

    cli_inputs.check_output(output, (".toml",))
    if measurements is None:
        found = _measure(device, gpus, seconds)
        kept = Path(output).with_suffix(".measurements.json")
        found.save(kept)
        if _interrupted(found):
            cli_tables.print_text(f"What was measured until then lies in {kept}.")
            raise KeyboardInterrupt
    else:
        found = Measurements.load(measurements)
    result = fit(found)
    files = result.save(output)
    if as_json:
        cli_tables.print_json(result.to_dict() | {"files": [str(file) for file in files]})
        return
    cli_tables.print_rich(result.table())
    for note in (*result.notes, *found.left_out):
        cli_tables.print_text(f"Note: {note}")
    cli_tables.print_text(
        f"Copies and optimizer steps are fitted within {result.residual:.1%} (median); written: "
        + " and ".join(str(file) for file in files)
    )


@app.command(
    epilog="Example: commodious validate --device cuda --server box.toml --plot validate.png"
)
def validate(
    server: Annotated[
        str, typer.Option("--server", help="Server file that calibrate wrote (or a name).")
    ],
    device: Device = "cpu",
    net: Net = "gpt",
    schedule: Annotated[
        list[str] | None,
        typer.Option("--schedule", help="Repeat to choose some; by default a list of ten."),
    ] = None,
    minibatch: Annotated[int, typer.Option("--minibatch", help="Samples per iteration.")] = 16,
    microbatch: Annotated[int, typer.Option("--microbatch", help="Samples per microbatch.")] = 4,
    share: Annotated[
        float | None,
        typer.Option("--share", help="Memory of a GPU, as a share of weights, dW and K."),
    ] = None,
    fresh: Annotated[
        bool,
        typer.Option("--fresh", help="Measure the layers anew before each schedule."),
    ] = False,
    plot: Annotated[
        str | None, typer.Option("--plot", help="Draw predicted beside measured to this picture.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Predict schedules, run them for real with torch, and compare."""
    from validate.bench import Chain, layer_records
    from validate.calibrate import layer_times, with_profile
    from validate.network import Network
    from validate.trials import TRIALS, Trial, try_all
    from validate.usual import usual

    cli_inputs.check_output(plot, cli_inputs.PICTURES)
    import workloads

    for name in schedule or ():
        workloads.schedule_info(name)
    box = cli_inputs.read_server(server)
    layers, make = usual(net, device)
    batch = make(minibatch)
    plain = workloads.from_torch(layers, batch, name=f"{net} of torch")
    network = Network.bind(layers, plain)
    times = _times(server)
    model = plain if times is None else with_profile(plain, times)

    def measured() -> Model:
        records = layer_records(device, len(box.gpus), Chain(layers, make(microbatch)), microbatch)
        now = layer_times(box.gpu(box.gpus[0]).name, records)
        return plain if now is None else with_profile(plain, now)

    trials = [Trial(name, share=share) for name in schedule] if schedule else TRIALS
    devices = [f"cuda:{i}" for i in range(len(box.gpus))] if device == "cuda" else None
    with cli_tables.progress() as step:
        found = try_all(
            trials, network, model, batch, box,
            microbatch=microbatch, devices=devices, fresh=measured if fresh else None,
            progress=step,
        )  # fmt: skip
    if not found.reports and not found.left_out:
        raise InvalidInput(found.outcomes[0].reason)
    if plot is not None and found.reports:
        found.plot(plot)
    if as_json:
        cli_tables.print_json(found.to_dict())
    else:
        cli_tables.print_table(
            (">memory", ">predicted (s)", ">measured (s)", ">error", "schedule"), found.rows()
        )
        for sentence in found.worst():
            cli_tables.print_text(sentence)
        if found.reports:
            cli_tables.print_text(f"Median error of {len(found.reports)}: {found.median_error:.1%}")
        if times is None and not fresh:
            cli_tables.print_text(f"Note: there are no layer times beside {server}; computed ones.")
    if found.left_out:
        raise KeyboardInterrupt


def _measure(device: str, gpus: int, seconds: float) -> Measurements:
    """Measure with the layers of all networks that ``validate`` runs."""
    from validate.bench import Chain
    from validate.bench import bench as measure
    from validate.usual import NETS, usual

    networks = [Chain(net.layers, net.batch(4)) for net in (usual(name, device) for name in NETS)]
    with cli_tables.progress() as step:
        return measure(device, gpus, networks, budget_seconds=seconds, progress=step)


def _interrupted(found: Measurements) -> bool:
    """Whether Ctrl-C ended the measuring early."""
    return any(line.endswith(": interrupted") for line in found.left_out)


def _times(server: str) -> LayerProfile | None:
    """Layer times that calibrate wrote beside a server file."""
    from validate.calibrate import load_profile

    beside = Path(server).with_suffix(".profile.json")
    return load_profile(beside) if server.endswith(".toml") and beside.exists() else None
