"""Commands that list what there is: servers, GPUs, models, schedules; and ``topo``."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sim import cli_inputs, cli_tables
from sim.words import three

if TYPE_CHECKING:
    from workloads.model import Model

Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]


def servers(
    name: Annotated[str | None, typer.Argument(help="Show one: a name or a box.toml.")] = None,
    toml: Annotated[bool, typer.Option("--toml", help="Print one as a file to edit.")] = False,
    as_json: Json = False,
) -> None:
    """List the servers; with a name, its topology, link speeds and sources."""
    import hwmodels
    from hwmodels.errors import InvalidInput

    if name is None:
        if toml:
            raise InvalidInput("servers --toml needs a name, such as servers dgx-1 --toml.")
        facts = [hwmodels.server(each).describe() for each in hwmodels.servers()]
        if as_json:
            cli_tables.print_json([_brief(fact) for fact in facts])
            return
        rows = [(x["name"], _counts(x["gpus"]), x["peer copies"], x["host memory"]) for x in facts]
        cli_tables.print_table(("server", "GPUs", "GPU to GPU", ">host memory"), rows)
        return
    box = cli_inputs.read_server(name)
    fact = box.describe()
    if toml:
        print(box.to_toml(), end="")
    elif as_json:
        cli_tables.print_json(fact)
    else:
        cli_tables.print_text(f"{fact['name']}: {fact['description']}")
        cli_tables.print_text(
            f"{_counts(fact['gpus'])}, {fact['gpu memory']} in all; host memory "
            f"{fact['host memory']}; GPU to GPU: {fact['peer copies']}"
        )
        # The drawing keeps its lines, however narrow the terminal.
        print(f"\n{fact['tree']}\n\nBandwidths are effective and per direction.")
        _sources(fact["sources"], fact["unverified"])


def _brief(fact: Mapping[str, Any]) -> dict[str, Any]:
    """Facts of a server that a list shows."""
    return {key: fact[key] for key in ("name", "description", "gpus", "peer copies", "host memory")}


def _counts(gpus: Mapping[str, int]) -> str:
    return " + ".join(f"{count}x {model}" for model, count in gpus.items())


def _sources(sources: Mapping[str, str], unverified: Sequence[str]) -> None:
    """Where the figures come from, and which are not checked."""
    for field, source in sources.items():
        cli_tables.print_text(f"source of {field}: {source}")
    if unverified:
        cli_tables.print_text(f"unverified (from memory): {', '.join(unverified)}")


def gpus(
    name: Annotated[str | None, typer.Argument(help="Show one with its sources.")] = None,
    as_json: Json = False,
) -> None:
    """List the GPUs; with a name, all that is known of it."""
    import hwmodels

    if name is None:
        found = [_gpu(each) for each in hwmodels.gpus()]
        if as_json:
            cli_tables.print_json(found)
            return
        rows = [
            (x["name"], x["memory"], x["bandwidth"], x["flops"].get("fp32", ""), x["best"])
            for x in found
        ]
        cli_tables.print_table(("GPU", ">memory", ">bandwidth", ">fp32", ">fastest"), rows)
        return
    fact = _gpu(name)
    if as_json:
        cli_tables.print_json(fact)
        return
    rows = [(key, value) for key, value in fact.items() if isinstance(value, str)]
    rows += [(f"peak {dtype}", rate) for dtype, rate in fact["flops"].items()]
    cli_tables.print_table(("fact", "value"), rows)
    _sources(fact["sources"], fact["unverified"])


_REACH = {
    "none": "none",
    "root": "within a root complex",
    "socket": "within a socket",
    "server": "across sockets too",
}


def _gpu(name: str) -> dict[str, Any]:
    """Facts of a GPU as text with units."""
    import hwmodels
    from hwmodels.units import format_bandwidth, format_bytes, format_flops, format_time

    gpu = hwmodels.gpu(name)
    dtype = max(gpu.flops, key=lambda each: gpu.flops[each])
    nvlink = f"gen{gpu.nvlink_generation} x{gpu.nvlink_links}" if gpu.nvlink_links else "none"
    return {
        "name": gpu.name,
        "memory": format_bytes(gpu.memory),
        "usable": format_bytes(gpu.usable),
        "bandwidth": format_bandwidth(gpu.bandwidth),
        "best": f"{format_flops(gpu.flops[dtype])} {dtype}",
        "pcie": f"gen{gpu.pcie_generation} x{gpu.pcie_lanes}",
        "nvlink": nvlink,
        "copy engines": str(gpu.copy_engines),
        "PCIe peer copies": _REACH[gpu.peer_reach],
        "launch overhead": format_time(gpu.launch_overhead),
        "compute efficiency": cli_tables.percent(gpu.compute_efficiency),
        "memory efficiency": cli_tables.percent(gpu.memory_efficiency),
        "flops": {each: format_flops(rate) for each, rate in gpu.flops.items()},
        "unverified": list(gpu.unverified),
        "sources": dict(gpu.sources),
    }


def models(
    name: Annotated[
        str | None, typer.Argument(help="Show one: a name, a config.json or a profile.")
    ] = None,
    as_json: Json = False,
) -> None:
    """List the models; with a name, its layers and what is assumed of it."""
    import workloads

    if name is None:
        found = [_model(workloads.model(each)) for each in workloads.models()]
        if as_json:
            cli_tables.print_json(found)
            return
        rows = [
            (x["name"], _billions(x["params"]), str(x["layers"]), str(x["tokens"]), x["precision"])
            for x in found
        ]
        cli_tables.print_table(
            ("model", ">parameters", ">layers", ">tokens a sample", "precision"), rows
        )
        return
    model = cli_inputs.read_model(name, None, None, None)
    fact = _model(model)
    if as_json:
        cli_tables.print_json({**fact, "notes": list(model.notes), "kinds": _kinds(model)})
        return
    cli_tables.print_text(
        f"{fact['name']}: {_billions(fact['params'])} parameters in {fact['layers']} layers; "
        f"{fact['tokens']} tokens a sample; {fact['precision']}, {fact['optimizer']}\n"
        f"weights {_size(fact['weight_bytes'])}, gradients {_size(fact['gradient_bytes'])}, "
        f"optimizer states {_size(fact['state_bytes'])}\n"
    )
    rows = [
        (
            x["kind"],
            str(x["layers"]),
            f"{x['params']:,}",
            three(x["forward_flops"] / 1e9),
            three(x["output_bytes"] / 1e6),
            three(x["stash_bytes"] / 1e6),
        )
        for x in _kinds(model)
    ]
    headers = (
        "kind", ">layers", ">parameters", ">forward GFLOP", ">output MB", ">stash MB",
    )  # fmt: skip
    print("Mean of the layers of each kind, per sample")
    cli_tables.print_table(headers, rows)
    for note in model.notes:
        cli_tables.print_text(f"Note: {note}")


def _model(model: Model) -> dict[str, Any]:
    """Facts of a model; sizes in bytes."""
    return {
        "name": model.name,
        "params": model.params,
        "layers": len(model.layers),
        "tokens": model.tokens,
        "precision": model.precision.name,
        "optimizer": model.optimizer.name,
        "weight_bytes": sum(model.weight_bytes(weight) for weight in model.weights),
        "gradient_bytes": sum(model.gradient_bytes(weight) for weight in model.weights),
        "state_bytes": sum(model.state_bytes(weight) for weight in model.weights),
        "measured_on": model.profile.gpu if model.profile is not None else None,
    }


def _kinds(model: Model) -> list[dict[str, Any]]:
    """Layers by kind: how many, and the mean of what one has and does per sample."""
    found: list[dict[str, Any]] = []
    for kind in dict.fromkeys(layer.kind for layer in model.layers):
        alike = [layer for layer in model.layers if layer.kind == kind]
        count = len(alike)
        found.append(
            {
                "kind": kind,
                "layers": count,
                "params": sum(layer.params for layer in alike) // count,
                "forward_flops": sum(layer.forward_flops for layer in alike) / count,
                "backward_flops": sum(layer.backward_flops for layer in alike) / count,
                "output_bytes": sum(layer.output_bytes for layer in alike) / count,
                "stash_bytes": sum(layer.stash_bytes for layer in alike) / count,
            }
        )
    return found


def _billions(params: int) -> str:
    size, letter = (1e9, "B") if params >= 999.5e6 else (1e6, "M")
    return f"{three(params / size)} {letter}"


def _size(count: int) -> str:
    return f"{cli_tables.gigabytes(count)} GB"


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
            cli_tables.print_table(
                ("schedule", "what it does"), [(i.name, i.summary) for i in infos]
            )
        return
    info = workloads.schedule_info(name)
    if as_json:
        cli_tables.print_json(
            {
                "name": info.name,
                "summary": info.summary,
                "source": info.source,
                "knobs": [
                    {
                        "name": key,
                        "default": knob.default,
                        "values": _values(knob.kind, knob.choices),
                        "help": knob.help,
                    }
                    for key, knob in info.knobs.items()
                ],
            }
        )
        return
    cli_tables.print_text(f"{info.name}: {info.summary}\nsource: {info.source}\n")
    rows = [
        (key, _default(knob.default), _values(knob.kind, knob.choices), knob.help)
        for key, knob in info.knobs.items()
    ]
    if rows:
        cli_tables.print_table(("knob", "default", "values", "meaning"), rows)
    else:
        cli_tables.print_text("It has no knobs.")


def _values(kind: type, choices: Sequence[str]) -> str:
    kinds = {bool: "true or false", int: "whole number", str: "text"}
    return " or ".join(choices) or kinds[kind]


def _default(value: bool | int | str | None) -> str:
    return "chosen" if value is None else str(value).lower()


def topo(
    matrix: Annotated[str, typer.Argument(help="Output of nvidia-smi topo -m; - reads stdin.")],
    gpu: Annotated[
        list[str], typer.Option("--gpu", help="GPU name (see: gpus); repeat for a mixed box.")
    ],
    name: Annotated[str, typer.Option("--name", help="Name of the server.")] = "server",
    memory: Annotated[
        str | None, typer.Option("--memory", help='Host memory in all, such as "512 GiB".')
    ] = None,
    pcie: Annotated[
        str | None, typer.Option("--pcie", help='All PCIe links, such as "gen3 x16".')
    ] = None,
    dram: Annotated[
        str | None, typer.Option("--dram", help='DRAM of one NUMA node, such as "120 GB/s".')
    ] = None,
    socket_link: Annotated[
        str | None, typer.Option("--socket-link", help='Between sockets, such as "38 GB/s".')
    ] = None,
    as_json: Json = False,
) -> None:
    """Turn nvidia-smi topo -m into a server file; says on stderr what had to be assumed."""
    import hwmodels

    box = hwmodels.from_topology(
        cli_inputs.read_text(matrix),
        gpu[0] if len(gpu) == 1 else gpu,
        name=name,
        memory=memory,
        pcie=pcie,
        dram=dram,
        socket_link=socket_link,
    )
    assumed = box.describe()["unverified"]
    if as_json:
        cli_tables.print_json(box.describe())
    else:
        print(box.to_toml(), end="")
    if assumed:
        print(f"commodious: assumed, correct it in the file: {', '.join(assumed)}", file=sys.stderr)
