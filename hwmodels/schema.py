"""What may stand in the files that describe GPUs and servers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any, TypeVar, cast

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from hwmodels.errors import InvalidInput
from hwmodels.gpu import Reach
from hwmodels.names import suggestion
from hwmodels.units import Quantity, parse


def _reader(quantity: Quantity) -> BeforeValidator:
    def read(value: object) -> float:
        try:
            return parse(value, quantity)
        except InvalidInput as error:
            raise ValueError(str(error)) from None

    return BeforeValidator(read)


Bytes = Annotated[float, _reader("bytes")]
Bandwidth = Annotated[float, _reader("bandwidth")]
Seconds = Annotated[float, _reader("time")]
Flops = Annotated[float, _reader("flops")]
ParamRate = Annotated[float, _reader("params")]
T = TypeVar("T", bound=BaseModel)
Share = Annotated[float, Field(gt=0.0, le=1.0)]


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class GPUTable(_Table):
    """One kind of GPU; fields as in `hwmodels.gpu.GPU`."""

    memory: Bytes
    reserve: Bytes
    bandwidth: Bandwidth
    flops: dict[str, Flops]
    pcie: str
    nvlink: str | None = None
    nvlink_bandwidth: Bandwidth | None = None
    copy_engines: Annotated[int, Field(ge=1)]
    peer: Reach
    launch_overhead: Seconds
    compute_efficiency: Share
    memory_efficiency: Share
    unverified: list[str] = []
    sources: dict[str, str] = {}


class SlotTable(_Table):
    """``[[gpu]]``: a GPU in its place."""

    name: str
    model: str
    h2d: Bandwidth | None = None
    d2h: Bandwidth | None = None
    peer: Bandwidth | None = None


class HostTable(_Table):
    """``[[host]]``: memory and cores of a NUMA node."""

    name: str
    socket: str
    memory: Bytes
    dram: Bandwidth
    cores: Annotated[int, Field(ge=1)]
    update: ParamRate
    update_process: ParamRate


class RootTable(_Table):
    """``[[root]]``: a root complex."""

    name: str
    host: str
    memory: Bandwidth | None = None


class SwitchTable(_Table):
    """``[[switch]]``: a PCIe switch."""

    name: str
    acs: bool = False


class StoreTable(_Table):
    """``[[nvme]]``: a drive."""

    name: str
    memory: Bytes
    read: Bandwidth
    write: Bandwidth


class LinkTable(_Table):
    """``[[link]]``: a cable or bus."""

    name: str
    ends: Annotated[list[str], Field(min_length=2, max_length=2)]
    pcie: str | None = None
    nvlink: str | None = None
    bandwidth: Bandwidth | None = None
    latency: Seconds | None = None
    duplex: Bandwidth | None = None


class ServerTable(_Table):
    """A whole server file."""

    name: str
    description: str = ""
    peer: Reach | None = None
    host_latency: Seconds | None = None
    unverified: list[str] = []
    nvswitch: list[str] = []
    models: dict[str, GPUTable] = {}
    gpu: list[SlotTable] = []
    host: list[HostTable] = []
    root: list[RootTable] = []
    switch: list[SwitchTable] = []
    nvme: list[StoreTable] = []
    link: list[LinkTable] = []
    sources: dict[str, str] = {}


_NESTED: Mapping[str, type[BaseModel]] = {
    "models": GPUTable,
    "gpu": SlotTable,
    "host": HostTable,
    "root": RootTable,
    "switch": SwitchTable,
    "nvme": StoreTable,
    "link": LinkTable,
}


def _place(loc: tuple[int | str, ...], data: object) -> str:
    """Say in words where an error is: ``link 'uplink0'``."""
    if len(loc) < 2 or loc[0] not in _NESTED:
        return ""
    part = "GPU model" if loc[0] == "models" else str(loc[0])
    if isinstance(loc[1], str):
        return f" in {part} {loc[1]!r}"
    name: object = None
    try:
        entry = cast(Any, data)[loc[0]][loc[1]]
        name = entry.get("name")
    except (AttributeError, KeyError, IndexError, TypeError):
        pass
    return f" in {part} {name!r}" if isinstance(name, str) else f" in {part} number {loc[1] + 1}"


def _sentence(error: Mapping[str, Any], top: type[BaseModel], data: object) -> str:
    loc = cast(tuple[int | str, ...], error["loc"])
    place, field = _place(loc, data), loc[-1] if loc else ""
    nested = _NESTED.get(str(loc[0])) if top is ServerTable and len(loc) > 2 else None
    model = nested or top
    if error["type"] == "extra_forbidden":
        return f"unknown field {field!r}{place}{suggestion(str(field), model.model_fields)}"
    if error["type"] == "missing":
        return f"field {field!r} is missing{place}; add it."
    fields = loc[2:] if nested else loc
    names = [str(x) for x in fields if isinstance(x, str)]
    shown = ".".join(names) or str(field)
    message = str(error["msg"]).removeprefix("Value error, ").rstrip(".")
    return f"field {shown!r}{place}: {message[:1].lower()}{message[1:]}."


def validated(
    table: type[T], data: object, where: str, sentence: Callable[..., str] | None = None
) -> T:
    """Read ``data`` as a ``table``.

    Parameters
    ----------
    table : type
        Pydantic model of the whole file.
    data : object
        Parsed file.
    where : str
        Name of the file, for the error.
    sentence : callable, optional
        Puts pydantic's error, the table and the data into words; by default as for server files.

    Raises
    ------
    InvalidInput
        Says the first thing that is wrong, unknown fields first, in one sentence.
    """
    try:
        return table.model_validate(data)
    except ValidationError as error:
        errors = cast(list[Mapping[str, Any]], error.errors(include_url=False))
        first = min(errors, key=lambda x: x["type"] != "extra_forbidden")
        said = (sentence or _sentence)(first, table, data)
        raise InvalidInput(f"{where}: {said}") from None
