"""Layer times as a file of their own, and models that use them.

A profile file of `workloads.models.profile` is a whole model: it also says how many layers there
are and how large their weights and activations. Measurements of layers do not know that, so their
times are kept by name, and join the model that the layers belong to with `with_profile`.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median

from pydantic import BaseModel, ConfigDict, ValidationError

from hwmodels.compute import Curve, LayerProfile, Phase
from hwmodels.errors import InvalidInput
from hwmodels.names import suggestion
from hwmodels.read import read_text
from validate.measurements import Compute
from workloads.model import Layer, Model

PHASES: tuple[Phase, ...] = ("forward", "recompute", "backward")
"""Phases whose times a profile holds; updates in it would be the CPU's, and these ran on a GPU."""


class _Row(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    layer: str
    phase: Phase
    sizes: tuple[int, ...]
    seconds: tuple[float, ...]


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    format: str = "commodious-layer-times-1"
    gpu: str
    rows: tuple[_Row, ...]


def layer_times(gpu: str, records: Sequence[Compute]) -> LayerProfile | None:
    """Median time of each layer, phase and microbatch size; None without records."""
    found: dict[tuple[str, Phase], dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for record in records:
        if record.phase in PHASES:
            found[(record.layer, record.phase)][record.samples].append(record.seconds)
    if not found:
        return None
    rows: dict[tuple[str, Phase], Curve] = {
        key: Curve(tuple(sorted(times)), tuple(median(times[size]) for size in sorted(times)))
        for key, times in sorted(found.items())
    }
    return LayerProfile(gpu, rows)


def save_profile(profile: LayerProfile, path: str | Path) -> None:
    """Write layer times as JSON that `load_profile` reads; times in seconds."""
    rows = tuple(
        _Row(layer=layer, phase=phase, sizes=sizes, seconds=seconds)
        for (layer, phase), (sizes, seconds) in profile.rows.items()
    )
    Path(path).write_text(_File(gpu=profile.gpu, rows=rows).model_dump_json(indent=1) + "\n")


def load_profile(path: str | Path) -> LayerProfile:
    """Layer times from a file that `save_profile` wrote.

    Raises
    ------
    InvalidInput
        If the file cannot be read or is no such file.
    """
    try:
        found = _File.model_validate(json.loads(read_text(path)))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "the file"
        raise InvalidInput(f"{path}: {where}: {first['msg']}.") from None
    except ValueError as error:
        raise InvalidInput(f"{path} is not valid JSON: {error}.") from None
    rows: dict[tuple[str, Phase], Curve] = {
        (row.layer, row.phase): Curve(row.sizes, row.seconds) for row in found.rows
    }
    return LayerProfile(found.gpu, rows)


def with_profile(model: Model, profile: LayerProfile) -> Model:
    """Give a model measured times: each layer has the row of its name, or of its kind.

    Raises
    ------
    InvalidInput
        If the profile has no row for some layer.
    """
    names = {row for row, _ in profile.rows}

    def row(layer: Layer) -> Layer:
        found = next((x for x in (layer.name, layer.kind) if x in names), None)
        if found is None:
            raise InvalidInput(
                f"The layer times measured on {profile.gpu} have no row for layer {layer.name!r} "
                f"of kind {layer.kind!r}{suggestion(layer.kind, sorted(names))}"
            )
        return replace(layer, profile_row=found)

    notes = (*model.notes, f"Layer times were measured on {profile.gpu}.")
    return replace(model, layers=tuple(map(row, model.layers)), profile=profile, notes=notes)
