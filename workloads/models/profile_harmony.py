"""Layer profiles in the layout of Harmony's tables, into our own format.

Harmony (github.com/msr-fiddle/harmony) measures a backward that includes the forward recompute,
and peak memory of one layer that runs alone. Both are split here.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from statistics import median

from hwmodels.compute import Curve, LayerProfile
from hwmodels.errors import InvalidInput
from workloads.models.profile_schema import (
    FORMAT,
    ExactTable,
    HarmonyGroup,
    HarmonyTable,
    LayerTable,
    ProfileTable,
    SizesTable,
)

GPU = "gtx-1080-ti"
"""The tables do not name the GPU; inferred from the repository's GTX 1080 Ti binding files and
from the largest footprint recorded, 10.5 GiB."""


def memory(group: HarmonyGroup, table: HarmonyTable, *, first: bool) -> tuple[int, int]:
    """Bytes saved inside a layer for its backward, and scratch of the backward, per sample.

    Derived, not measured. The peak of the forward of one layer grows with the microbatch by its
    input, its output and what it saves; that of the backward by these, the gradients of input and
    output (token ids and pixels, the input of the ``first`` layer, have none), and scratch such as
    gradients inside the layer. A slope is the median over neighbouring sizes, so that the jumps
    where the library takes another convolution algorithm, with more workspace, do not count.
    """
    forward = _slope(table.fwd_u, group.fwd_mem_bytes)
    backward = _slope(table.bwd_u, group.bwd_mem_bytes)
    edges = group.input_bytes_u1 + group.output_bytes_u1
    stash = max(0, round(forward - edges))
    gradients = group.output_bytes_u1 + (0 if first else group.input_bytes_u1)
    return stash, max(0, round(backward - edges - gradients - stash))


def _slope(sizes: Sequence[int], nbytes: Sequence[int]) -> float:
    steps = zip(pairwise(sizes), pairwise(nbytes), strict=True)
    return median((most - least) / (large - small) for (small, large), (least, most) in steps)


def _backward(group: HarmonyGroup, table: HarmonyTable) -> list[float]:
    """Backward without recompute, in seconds: minus forward at the same size (interpolated)."""
    curve = Curve(tuple(table.fwd_u), tuple(group.fwd_s_mean))
    profile = LayerProfile(GPU, {(group.type, "forward"): curve})
    times = zip(table.bwd_u, group.bwd_incl_recompute_s_mean, strict=True)
    return [max(0.0, t - profile.seconds(group.type, "forward", u)) for u, t in times]


def _layer(group: HarmonyGroup, table: HarmonyTable, *, first: bool) -> LayerTable:
    stash, scratch = memory(group, table, first=first)
    return LayerTable.model_construct(
        name=group.type,
        count=group.count,
        params=group.weight_bytes // 4,
        buffers=float(group.buffer_bytes),
        output=float(group.output_bytes_u1),
        stash=float(stash),
        workspace=float(scratch),
        update=group.update_cpu_s_mean,
        forward=list(group.fwd_s_mean),
        backward=_backward(group, table),
    )


def _exact(table: HarmonyTable, where: str) -> ExactTable:
    exact = table.exact_per_layer
    if exact is None:
        return ExactTable()
    backward: dict[str, list[float]] = {}
    for size, times in exact.bwd_incl_recompute_us.items():
        if size not in exact.fwd_us:
            raise InvalidInput(
                f"{where}: 'exact_per_layer' has backward times at {size} samples but no forward "
                "times there, so the recompute cannot be taken off; add them to 'fwd_us'."
            )
        pairs = zip(exact.fwd_us[size], times, strict=True)
        backward[size] = [max(0.0, both - forward) * 1e-6 for forward, both in pairs]
    forward = {size: [t * 1e-6 for t in times] for size, times in exact.fwd_us.items()}
    update = [t * 1e-6 for t in exact.update_cpu_us]
    return ExactTable(forward=forward, backward=backward, update=update)


def _optimizer(table: HarmonyTable, where: str) -> str:
    """Tell the optimizer by its state per weight: two values for Adam, one for momentum."""
    weights = sum(group.count * group.weight_bytes for group in table.layer_groups)
    states = sum(group.count * group.optimizer_state_bytes for group in table.layer_groups)
    names = {0: "sgd", weights: "momentum", 2 * weights: "adam"}
    if states not in names:
        raise InvalidInput(
            f"{where}: {states} bytes of optimizer state for {weights} bytes of weights fit no "
            "known optimizer; sgd keeps none, momentum as many, adam twice as many."
        )
    return names[states]


def _ordered(table: HarmonyTable, where: str) -> list[tuple[int, HarmonyGroup]]:
    """List runs of equal layers as (count, group), in the order of the layers."""
    runs = sorted(
        (
            (first, last, group)
            for group in table.layer_groups
            for first, last in group.layer_ranges
        ),
        key=lambda run: run[0],
    )
    position = 0
    for first, last, _ in runs:
        if first != position or last < first:
            raise InvalidInput(
                f"{where}: 'layer_ranges' must name each layer once; layer {position} is next, "
                f"but the next range is {first} to {last}."
            )
        position = last + 1
    if position != table.num_layers:
        raise InvalidInput(
            f"{where}: 'layer_ranges' name {position} layers, 'num_layers' says {table.num_layers}."
        )
    return [(last - first + 1, group) for first, last, group in runs]


def _check_lengths(table: HarmonyTable, where: str) -> None:
    for group in table.layer_groups:
        for name, sizes in (
            ("fwd_s_mean", table.fwd_u),
            ("bwd_incl_recompute_s_mean", table.bwd_u),
            ("fwd_mem_bytes", table.fwd_u),
            ("bwd_mem_bytes", table.bwd_u),
        ):
            found = len(getattr(group, name))
            if found != len(sizes):
                raise InvalidInput(
                    f"{where}: {name!r} of group {group.type!r} has {found} values for "
                    f"{len(sizes)} microbatch sizes; give one for each."
                )
    exact = table.exact_per_layer
    if exact is None:
        return
    lists = [exact.update_cpu_us, *exact.fwd_us.values(), *exact.bwd_incl_recompute_us.values()]
    for times in lists:
        if len(times) != table.num_layers:
            raise InvalidInput(
                f"{where}: a list in 'exact_per_layer' has {len(times)} times for "
                f"{table.num_layers} layers; give one for each."
            )


def convert(table: HarmonyTable, where: str) -> ProfileTable:
    """Write a Harmony table in our own format; times in seconds.

    Raises
    ------
    InvalidInput
        If arrays and sizes do not match, layers are missing, or the optimizer is unknown.
    """
    _check_lengths(table, where)
    runs = _ordered(table, where)
    layers = [
        _layer(group, table, first=i == 0).model_copy(update={"count": count})
        for i, (count, group) in enumerate(runs)
    ]
    return ProfileTable(
        format=FORMAT,
        name=table.model,
        source="a layer profile in the layout of msr-fiddle/harmony",
        gpu=GPU,
        precision="fp32",
        optimizer=_optimizer(table, where),
        tokens=table.seqlen or 1,
        input=f"{runs[0][1].input_bytes_u1} B",  # pyright: ignore[reportArgumentType]
        time_unit="s",
        sizes=SizesTable(forward=table.fwd_u, backward=table.bwd_u),
        layers=layers,
        exact=_exact(table, where),
        notes=[
            "Bytes saved for backward and its scratch are derived from measured peaks of memory."
        ],
    )
