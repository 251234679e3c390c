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
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, cast

from hwmodels.compute import Curve, LayerProfile, Phase
from hwmodels.errors import CommodiousError, InvalidInput
from hwmodels.names import unknown
from workloads.model import Layer, Model, Weight, optimizer, precision

if TYPE_CHECKING:
    from workloads.models.profile_schema import LayerTable, ProfileTable

_DATA = Path(__file__).parent / "profiles"
_PREFIX = "harmony/"
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
    from hwmodels.read import read_text  # loads pydantic
    from workloads.models import profile_schema as schema

    where = str(path)
    try:
        data: object = json.loads(read_text(path))
    except (ValueError, RecursionError) as error:
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
    names = _layer_names(table, where)
    exact = _exact(table, len(names), where)
    layers: list[Layer] = []
    rows: dict[tuple[str, Phase], Curve] = {}
    for entry in table.layers:
        first = len(layers)
        times = _group_times(table, entry, exact, where)
        for index in range(first, first + entry.count):
            row = names[index] if exact.present else names[first]
            layers.append(_layer(entry, names[index], row))
            if exact.present or index == first:
                rows[(row, "forward")] = times.forward.curve(index)
                rows[(row, "backward")] = times.backward.curve(index)
                update = exact.update[index] if exact.update else entry.update
                if update is not None:
                    rows[(row, "update")] = Curve((1,), (update,))
    try:
        return Model(
            name=table.name,
            layers=tuple(layers),
            input_bytes=round(table.input),
            tokens=table.tokens,
            precision=precision(table.precision),
            optimizer=optimizer(table.optimizer),
            profile=LayerProfile(table.gpu, rows),
            notes=(f"Layer times were measured on {table.gpu}.", *table.notes),
        )
    except CommodiousError as error:
        raise InvalidInput(f"{where}: {error}") from None


def _layer_names(table: ProfileTable, where: str) -> list[str]:
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
    twice = [name for name, times in Counter(names).items() if times > 1]
    if twice:
        raise InvalidInput(f"{where}: two layers are named {twice[0]!r}; name them apart.")
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


class _Exact(NamedTuple):
    """Times of single layers in seconds, by size; list index = layer."""

    forward: Mapping[int, Sequence[float]]
    backward: Mapping[int, Sequence[float]]
    update: Sequence[float]

    @property
    def present(self) -> bool:
        return bool(self.forward or self.backward or self.update)


def _exact(table: ProfileTable, layers: int, where: str) -> _Exact:
    unit = _SECONDS[table.time_unit]

    def scaled(what: str, times: Sequence[float]) -> list[float]:
        if len(times) != layers:
            raise InvalidInput(
                f"{where}: 'exact' has {len(times)} {what} times for {layers} layers; "
                "give one for each."
            )
        return [t * unit for t in times]

    def by_size(phase: str, times: Mapping[str, Sequence[float]]) -> dict[int, list[float]]:
        for size in times:
            if not size.isdecimal() or size != str(int(size)) or size == "0":
                raise InvalidInput(
                    f"{where}: {size!r} in 'exact' is not a microbatch size; write a whole number "
                    'of samples, such as "4".'
                )
        return {int(size): scaled(f"{phase} size-{size}", found) for size, found in times.items()}

    update = table.exact.update
    return _Exact(
        by_size("forward", table.exact.forward),
        by_size("backward", table.exact.backward),
        scaled("update", update) if update else (),
    )


class _Times(NamedTuple):
    """Times of a group in one phase, with places where its layers' own times go."""

    sizes: tuple[int, ...]
    mean: Sequence[float]
    own: tuple[tuple[int, Sequence[float]], ...]

    def curve(self, index: int) -> Curve:
        if not self.own:
            return Curve(self.sizes, tuple(self.mean))
        times = list(self.mean)
        for place, values in self.own:
            times[place] = values[index]
        return Curve(self.sizes, tuple(times))


class _GroupTimes(NamedTuple):
    forward: _Times
    backward: _Times


def _group_times(table: ProfileTable, entry: LayerTable, exact: _Exact, where: str) -> _GroupTimes:
    unit = _SECONDS[table.time_unit]

    def merged(
        phase: str,
        sizes: Sequence[int],
        times: Sequence[float],
        own: Mapping[int, Sequence[float]],
    ) -> _Times:
        if len(times) != len(sizes):
            raise InvalidInput(
                f"{where}: layer {entry.name!r} has {len(times)} {phase} times for {len(sizes)} "
                "microbatch sizes; give one for each."
            )
        if any(a >= b for a, b in pairwise(sizes)):
            raise InvalidInput(f"{where}: {phase} sizes must increase.")
        known = dict(zip(sizes, times, strict=True))
        every = sorted({*sizes, *own})
        mean = [known.get(size, 0.0) * unit for size in every]
        places = tuple((every.index(size), own[size]) for size in sorted(own))
        return _Times(tuple(every), mean, places)

    return _GroupTimes(
        merged("forward", table.sizes.forward, entry.forward, exact.forward),
        merged("backward", table.sizes.backward, entry.backward, exact.backward),
    )
