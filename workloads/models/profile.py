"""Models known by measured layer times: profile files, and the ones that come with the package.

A profile file is JSON. Our own format (``"format": "commodious-profile-1"``)::

    {"format": "commodious-profile-1", "name": "mine", "gpu": "gtx-1080-ti",
     "precision": "fp32", "optimizer": "adam", "tokens": 1024, "input": "8192 B",
     "time_unit": "us", "sizes": {"forward": [1, 2, 4], "backward": [1, 2]},
     "layers": [
       {"name": "block", "count": 48, "params": 30740800, "buffers": "4 MiB",
        "output": "6.25 MiB", "stash": "540 MiB", "update": "41.4 ms",
        "forward": [14024, 26299, 51807], "backward": [25319, 47612]}],
     "exact": {"forward": {"4": [51564, 51563, 51646]}}}

``layers`` lists runs of equal layers in order; bytes, FLOPs (``forward_flops``,
``backward_flops``) and traffic of GPU memory (``forward_traffic``, ``backward_traffic``) are per
sample. ``backward`` is without recompute. Arrays are in ``time_unit``, one value a size.
``exact`` may add times of every single layer at some sizes; they go before the group's there.
Files in the layout of Harmony's layer tables (``layer_groups``, ``fwd_u`` ...) load as well.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, cast

from hwmodels.compute import Curve, LayerProfile, Phase
from hwmodels.errors import CommodiousError, InvalidInput
from hwmodels.names import unknown
from hwmodels.read import read_text
from workloads.model import Layer, Model, Optimizer, Precision, Weight

if TYPE_CHECKING:
    from workloads.models.profile_schema import ExactTable, LayerTable, ProfileTable

_DATA = Path(__file__).parent / "profiles"
_PREFIX = "harmony/"
_PRECISIONS = {"fp32": Precision("fp32", "fp32", 4, 4, 0, 4, 4)}
_OPTIMIZERS = {
    "sgd": Optimizer("sgd", 0, 2),
    "momentum": Optimizer("momentum", 1, 4),
    "adam": Optimizer("adam", 2, 12),
}
_SECONDS = {"s": 1.0, "ms": 1e-3, "us": 1e-6}


def harmony_names() -> tuple[str, ...]:
    """Names of the profiles of the Harmony project that `harmony` knows, sorted."""
    return tuple(sorted(f"{_PREFIX}{path.stem}" for path in _DATA.glob("*.json")))


def harmony(name: str) -> Model:
    """Model with the layers, sizes and times that the Harmony project measured.

    Figures of github.com/msr-fiddle/harmony, commit 5fd838f (MIT licence), one GTX 1080 Ti, fp32.
    FLOPs and traffic are added from the shapes, so that the model runs on other GPUs by roofline.

    Parameters
    ----------
    name : str
        One of `harmony_names`, such as ``"harmony/gpt2-xl"``.

    Raises
    ------
    UnknownName
        If there is no such profile; names the nearest.
    """
    known = harmony_names()
    if name not in known:
        raise unknown("Model", name, known)
    return from_profile(_DATA / f"{name.removeprefix(_PREFIX)}.json")


def from_profile(path: str | Path) -> Model:
    """Model with measured layer times, from a profile file (formats: see this module).

    Raises
    ------
    InvalidInput
        If the file cannot be read, is not JSON, or a field is unknown, missing or wrong.
    """
    from workloads.models import profile_schema as schema

    where = str(path)
    try:
        data: object = json.loads(read_text(path))
    except ValueError as error:
        raise InvalidInput(f"{where} is not valid JSON: {error}.") from None
    if not isinstance(data, dict):
        raise InvalidInput(f"{where} must hold one JSON object with the fields of a profile.")
    if "layer_groups" in data:
        from workloads.models.profile_harmony import convert

        table = convert(schema.validated(schema.HarmonyTable, data, where), where)
    else:
        table = schema.validated(schema.ProfileTable, cast(object, data), where)
    return _model(table, where)


def _model(table: ProfileTable, where: str) -> Model:
    names = _layer_names(table)
    exact = _Exact(table.exact, _SECONDS[table.time_unit], len(names), where)
    layers: list[Layer] = []
    rows: dict[tuple[str, Phase], Curve] = {}
    for entry in table.layers:
        first = len(layers)
        for index in range(first, first + entry.count):
            row = names[index] if exact.present else names[first]
            layers.append(_layer(entry, names[index], row))
            if exact.present or index == first:
                rows.update(_rows(table, entry, row, index, exact))
    try:
        return Model(
            name=table.name,
            layers=tuple(layers),
            input_bytes=round(table.input),
            tokens=table.tokens,
            precision=_PRECISIONS[table.precision],
            optimizer=_OPTIMIZERS[table.optimizer],
            profile=LayerProfile(table.gpu, rows),
            notes=(f"Layer times were measured on {table.gpu}.", *table.notes),
        )
    except CommodiousError as error:
        raise InvalidInput(f"{where}: {error}") from None


def _layer_names(table: ProfileTable) -> list[str]:
    """Make unique names: numbered within a kind, plain where a kind has one layer."""
    totals: Counter[str] = Counter()
    for entry in table.layers:
        totals[entry.name] += entry.count
    used: Counter[str] = Counter()
    names: list[str] = []
    for entry in table.layers:
        for _ in range(entry.count):
            alone = totals[entry.name] == 1
            names.append(entry.name if alone else f"{entry.name}.{used[entry.name]}")
            used[entry.name] += 1
    return names


def _layer(entry: LayerTable, name: str, row: str) -> Layer:
    buffers = round(entry.buffers)
    weights = (Weight(name, entry.params, buffers),) if entry.params or buffers else ()
    return Layer(
        name=name,
        kind=entry.name,
        weights=weights,
        output_bytes=round(entry.output),
        stash_bytes=round(entry.stash),
        workspace_bytes=round(entry.workspace),
        forward_flops=entry.forward_flops,
        backward_flops=entry.backward_flops,
        forward_bytes=entry.forward_traffic,
        backward_bytes=entry.backward_traffic,
        forward_kernels=entry.forward_kernels,
        backward_kernels=entry.backward_kernels,
        profile_row=row,
    )


class _Exact:
    """Times of single layers in seconds, by phase and size."""

    def __init__(self, table: ExactTable, unit: float, layers: int, where: str) -> None:
        self.forward = _by_size(table.forward, unit, layers, where)
        self.backward = _by_size(table.backward, unit, layers, where)
        if table.update and len(table.update) != layers:
            raise _wrong_length("update", len(table.update), layers, where)
        self.update = [t * unit for t in table.update]
        self.present = bool(self.forward or self.backward or self.update)


def _wrong_length(what: str, found: int, layers: int, where: str) -> InvalidInput:
    return InvalidInput(
        f"{where}: 'exact' has {found} {what} times for {layers} layers; give one for each."
    )


def _by_size(
    table: Mapping[str, Sequence[float]], unit: float, layers: int, where: str
) -> dict[int, list[float]]:
    found: dict[int, list[float]] = {}
    for size, times in table.items():
        if not size.isdecimal():
            raise InvalidInput(f"{where}: {size!r} in 'exact' is not a microbatch size.")
        if len(times) != layers:
            raise _wrong_length(f"size-{size}", len(times), layers, where)
        found[int(size)] = [t * unit for t in times]
    return found


def _curve(
    sizes: Sequence[int], times: Sequence[float], exact: Mapping[int, Sequence[float]], index: int
) -> Curve:
    """Put the layer's own times, where known, before its group's; lengths are checked later."""
    if not exact or len(sizes) != len(times):
        return Curve(tuple(sizes), tuple(times))
    merged = dict(zip(sizes, times, strict=True))
    merged.update((size, values[index]) for size, values in exact.items())
    return Curve(*zip(*sorted(merged.items()), strict=True))


def _rows(
    table: ProfileTable, entry: LayerTable, row: str, index: int, exact: _Exact
) -> dict[tuple[str, Phase], Curve]:
    unit = _SECONDS[table.time_unit]
    forward = [t * unit for t in entry.forward]
    backward = [t * unit for t in entry.backward]
    rows: dict[tuple[str, Phase], Curve] = {
        (row, "forward"): _curve(table.sizes.forward, forward, exact.forward, index),
        (row, "backward"): _curve(table.sizes.backward, backward, exact.backward, index),
    }
    update = exact.update[index] if exact.update else entry.update
    if update is not None:
        rows[(row, "update")] = Curve((1,), (update,))
    return rows
