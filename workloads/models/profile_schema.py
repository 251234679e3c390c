"""What may stand in a layer-profile file: our own format, and the layout of Harmony's tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeVar, cast

from pydantic import BaseModel, ConfigDict, Field

from hwmodels import schema
from hwmodels.names import suggestion
from hwmodels.schema import Bytes, Seconds

FORMAT = "commodious-profile-1"

Count = Annotated[int, Field(ge=0)]
Positive = Annotated[int, Field(ge=1)]
Number = Annotated[float, Field(ge=0.0, allow_inf_nan=False)]
Numbers = list[Number]
T = TypeVar("T", bound=BaseModel)


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class SizesTable(_Table):
    """Microbatch sizes at which the group times were measured, in samples, increasing."""

    forward: Annotated[list[Positive], Field(min_length=1)]
    backward: Annotated[list[Positive], Field(min_length=1)]


class LayerTable(_Table):
    """``count`` equal layers one after another; sizes, FLOPs and traffic are per sample.

    ``forward``, ``backward`` (without recompute) are mean times of one layer at the sizes of
    ``sizes``, in ``time_unit``; ``update`` is one optimizer step of one layer on the CPU.
    """

    name: str
    count: Annotated[int, Field(ge=1, le=100_000)] = 1
    params: Count
    buffers: Bytes = 0.0
    output: Bytes
    stash: Bytes = 0.0
    workspace: Bytes = 0.0
    forward_flops: Number = 0.0
    backward_flops: Number = 0.0
    forward_traffic: Bytes = 0.0
    backward_traffic: Bytes = 0.0
    forward_kernels: Positive = 1
    backward_kernels: Positive = 1
    update: Seconds | None = None
    forward: Numbers
    backward: Numbers


class ExactTable(_Table):
    """Times of every single layer (list index = layer), by microbatch size, in ``time_unit``."""

    forward: dict[str, Numbers] = {}
    backward: dict[str, Numbers] = {}
    update: Numbers = []


class ProfileTable(_Table):
    """A whole profile in our own format. Counts are bare numbers, quantities have units."""

    format: Literal["commodious-profile-1"]
    name: str
    source: str = ""
    gpu: str
    precision: str
    optimizer: str
    tokens: Positive = 1
    input: Bytes
    time_unit: Literal["s", "ms", "us"]
    sizes: SizesTable
    layers: Annotated[list[LayerTable], Field(min_length=1)]
    exact: ExactTable = ExactTable()
    notes: list[str] = []


class _Loose(BaseModel):
    """Tables of others: fields that are not needed are ignored."""

    model_config = ConfigDict(extra="ignore", strict=True, frozen=True)


class HarmonyGroup(_Loose):
    """Layers of equal size; bytes and seconds. Backward includes the forward recompute."""

    type: str
    count: Positive
    layer_ranges: list[Annotated[list[Count], Field(min_length=2, max_length=2)]]
    weight_bytes: Count
    buffer_bytes: Count
    optimizer_state_bytes: Count
    input_bytes_u1: Count
    output_bytes_u1: Count
    update_cpu_s_mean: Number
    fwd_s_mean: Numbers
    bwd_incl_recompute_s_mean: Numbers
    fwd_mem_bytes: list[Count]
    bwd_mem_bytes: list[Count]


class HarmonyExact(_Loose):
    """Times of every single layer in microseconds, by microbatch size."""

    update_cpu_us: Numbers
    fwd_us: dict[str, Numbers]
    bwd_incl_recompute_us: dict[str, Numbers]


class HarmonyTable(_Loose):
    """Layer profile in the layout of Harmony's tables: bytes, seconds, fp32."""

    model: str
    num_layers: Positive
    seqlen: Positive | None
    dtype: Literal["float32"]
    optimizer: str
    fwd_u: Annotated[list[Positive], Field(min_length=2)]
    bwd_u: Annotated[list[Positive], Field(min_length=2)]
    layer_groups: Annotated[list[HarmonyGroup], Field(min_length=1)]
    exact_per_layer: HarmonyExact | None = None


_NESTED: Mapping[tuple[type[BaseModel], str], type[BaseModel]] = {
    (ProfileTable, "layers"): LayerTable,
    (ProfileTable, "sizes"): SizesTable,
    (ProfileTable, "exact"): ExactTable,
    (HarmonyTable, "layer_groups"): HarmonyGroup,
    (HarmonyTable, "exact_per_layer"): HarmonyExact,
}


def _place(loc: tuple[int | str, ...], data: Any) -> str:
    """Say in words which entry is meant: `` in layers 'block'``."""
    if len(loc) < 2:
        return ""
    if not isinstance(loc[1], int) or len(loc) < 3:
        return f" in {loc[0]!r}"
    entry = data[loc[0]][loc[1]]
    named = cast(Any, entry.get("name", entry.get("type"))) if isinstance(entry, dict) else None
    shown = repr(named) if isinstance(named, str) else f"number {loc[1] + 1}"
    return f" in {loc[0]!r} entry {shown}"


def _sentence(error: Mapping[str, Any], top: type[BaseModel], data: object) -> str:
    loc = cast(tuple[int | str, ...], error["loc"])
    names = [part for part in loc if isinstance(part, str)]
    field = names[-1] if names else ""
    place = _place(loc, data)
    if error["type"] == "extra_forbidden":
        model = _NESTED.get((top, names[0]), top) if len(names) > 1 else top
        return f"unknown field {field!r}{place}{suggestion(field, model.model_fields)}"
    if error["type"] == "missing":
        return f"field {field!r} is missing{place}; add it."
    message = str(error["msg"]).removeprefix("Value error, ").rstrip(".")
    shown = f"field {field!r}" if field else "the file"
    return f"{shown}{place}: {message[:1].lower()}{message[1:]}."


def validated(table: type[T], data: object, where: str) -> T:
    """Read ``data`` as a ``table``; InvalidInput says the first thing that is wrong."""
    return schema.validated(table, data, where, _sentence)
