"""Study files: what a person writes to describe a study.

A file is TOML. One value or a list of values for each setting; the study is the grid of all::

    model = ["gpt2-xl", "bert-large"]          # names, or files beside this one
    schedule = ["harmony-pp", "dp-pager"]
    minibatch = [32, 64]
    sequence = 512                             # also: microbatch, precision, optimizer, collectives
    with_gpus = [2, 4]                         # edits of every server
    with_pcie = ["gen3 x8", "gen4 x16"]
    with_memory = { host = "256 GiB" }
    with_link = [{ name = "uplink0", bandwidth = "25 GB/s" }]
    degraded = { name = "uplink0", factor = 0.5 }

    [server]                                   # a label for each; a list as for model does too
    stock = "pcie-4u-4x1080ti"
    mine = "box.toml"

    [knobs]                                    # of the schedules
    pack = [1, 2]

    [[point]]                                  # any number: the settings above with these changed;
    minibatch = 128                            # the study is then these grids, one after another
    schedule = "harmony-pp"
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, cast

from pydantic import BaseModel, BeforeValidator, ConfigDict, Discriminator, Field, Tag

import hwmodels.errors
import workloads
from hwmodels.link import PCIE_LANE, parse_width
from hwmodels.names import suggestion
from hwmodels.read import parse_toml, read_text
from hwmodels.schema import validated
from hwmodels.units import Quantity, parse
from sim.cli_inputs import is_file_name
from sim.study import grid


def _many(value: object) -> object:
    """One value as a list of one; what is there already is the schema's to judge."""
    return cast(object, value) if isinstance(value, list) else [value]


def _kind(value: object) -> str:
    """Tell a table of labels from a list (or one name)."""
    return "table" if isinstance(value, Mapping) else "list"


def _quantity(quantity: Quantity) -> BeforeValidator:
    """Check a quantity; its text is kept, as the methods of ``Server`` take it."""

    def check(value: object) -> object:
        if value is not None:
            try:
                parse(value, quantity)
            except hwmodels.errors.InvalidInput as error:
                raise ValueError(str(error)) from None
        return value

    return BeforeValidator(check)


def _width(value: object) -> object:
    try:
        parse_width(str(value), PCIE_LANE, "PCIe")
    except hwmodels.errors.InvalidInput as error:
        raise ValueError(str(error)) from None
    return value


Count = Annotated[int, Field(ge=1)]
Words = Annotated[list[str], BeforeValidator(_many)]
Names = Annotated[
    Annotated[Words, Tag("list")] | Annotated[dict[str, str], Tag("table")], Discriminator(_kind)
]
Counts = Annotated[list[Count], BeforeValidator(_many)]
Bandwidth = Annotated[str | None, _quantity("bandwidth")]
Seconds = Annotated[str | None, _quantity("time")]
Bytes = Annotated[str | None, _quantity("bytes")]


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class LinkEdit(_Table):
    """``with_link``: arguments of ``Server.with_link``."""

    name: str
    bandwidth: Bandwidth = None
    latency: Seconds = None
    duplex: Bandwidth = None
    lanes: Count | None = None


class MemoryEdit(_Table):
    """``with_memory``: arguments of ``Server.with_memory``."""

    host: Bytes = None
    gpu: Bytes = None


class WornLink(_Table):
    """``degraded``: arguments of ``Server.degraded``."""

    name: str
    factor: Annotated[float, Field(gt=0.0, le=1.0)]


class Axes(_Table):
    """Settings of a grid; None where the file does not say."""

    model: Names | None = None
    server: Names | None = None
    schedule: Words | None = None
    minibatch: Counts | None = None
    microbatch: Counts | None = None
    precision: Words | None = None
    sequence: Counts | None = None
    optimizer: Words | None = None
    collectives: Words | None = None
    with_gpus: Counts | None = None
    with_pcie: Annotated[
        list[Annotated[str, BeforeValidator(_width)]] | None, BeforeValidator(_many)
    ] = None
    with_memory: Annotated[list[MemoryEdit] | None, BeforeValidator(_many)] = None
    with_link: Annotated[list[LinkEdit] | None, BeforeValidator(_many)] = None
    degraded: Annotated[list[WornLink] | None, BeforeValidator(_many)] = None
    knobs: dict[str, Annotated[list[bool | int | str], BeforeValidator(_many)]] = {}


class StudyTable(Axes):
    """A whole study file."""

    point: list[Axes] = []


_NESTED: Mapping[str, type[BaseModel]] = {
    "with_memory": MemoryEdit,
    "with_link": LinkEdit,
    "degraded": WornLink,
    "point": Axes,
}


def read(path: str | Path) -> list[dict[str, Any]]:
    """Read the settings of each point of a study file.

    Raises
    ------
    InvalidInput
        If the file cannot be read, or a field is unknown or wrong; one sentence says where.
    """
    where = str(path)
    found = validated(StudyTable, parse_toml(read_text(path), where), where, _sentence)
    folder = Path(path).parent
    whole = _axes(found, folder)
    if not found.point:
        return grid.combinations(whole)
    grids = (whole | _axes(point, folder) for point in found.point)
    return [row for axes in grids for row in grid.combinations(axes)]


def _axes(table: Axes, folder: Path) -> dict[str, Any]:
    """Axes that the table sets, in the order of the schema."""
    found: dict[str, Any] = {}
    for name in (x for x in type(table).model_fields if x in table.model_fields_set):
        value = getattr(table, name)
        if name == "knobs":
            found |= value
        elif name in ("model", "server"):
            found[name] = _paths(value, name, folder)
        elif name != "point":
            found[name] = [_plain(x) for x in value]
    return found


def _plain(value: Any) -> Any:
    return value.model_dump(exclude_unset=True) if isinstance(value, BaseModel) else value


def _paths(names: Sequence[str] | Mapping[str, str], kind: str, folder: Path) -> Any:
    """Names, with files found from the folder of the study file."""
    suffix, known = (
        (".toml", hwmodels.servers()) if kind == "server" else (".json", workloads.models())
    )

    def place(text: str) -> str:
        there = str(folder / text)
        return there if text not in known and is_file_name(there, suffix, known) else text

    if isinstance(names, Mapping):
        return {label: place(text) for label, text in names.items()}
    return [place(text) for text in names]


def _sentence(error: Mapping[str, Any], top: type[BaseModel], data: object) -> str:
    """Say in words what is wrong where."""
    table, place = top, ""
    loc = [x for x in cast(Iterable[int | str], error["loc"]) if x not in _UNIONS]
    while len(loc) > 1 and str(loc[0]) in _NESTED:
        name, at = str(loc[0]), loc[1]
        if not isinstance(at, int):
            break
        table = _NESTED[name]
        place += f" in {name}" + (f" number {at + 1}" if at or name == "point" else "")
        loc = loc[2:]
    field = ".".join(str(x) for x in loc if isinstance(x, str))
    if error["type"] == "extra_forbidden":
        return f"unknown field {field!r}{place}{suggestion(field, table.model_fields)}"
    if error["type"] == "missing":
        return f"field {field!r} is missing{place}; add it."
    message = str(error["msg"]).removeprefix("Value error, ").rstrip(".")
    given = error["input"]
    shown = (
        f", not {given!r}" if isinstance(given, str | int | float) and "'" not in message else ""
    )
    what = f"field {field!r}{place}" if field else place.removeprefix(" in ")
    return f"{what}: {message[:1].lower()}{message[1:]}{shown}."


_UNIONS = ("list", "table", "bool", "int", "str")
"""What pydantic adds to a place to say which member of a union it tried."""
