"""From settings to points: a grid of all combinations, or a list."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any, NamedTuple, cast, get_args

from hwmodels.errors import CommodiousError, InvalidInput, UnknownName
from hwmodels.link import PCIE_LANE, Width, parse_width
from hwmodels.names import suggestion, unknown
from hwmodels.server import Server
from sim import cli_inputs
from sim.collectives import Algorithm
from sim.study.evaluate import REPLAY
from sim.study.point import EDITS, MODEL_OPTIONS, Point, Setting
from workloads.model import Model
from workloads.model import optimizer as optimizer_of
from workloads.model import precision as precision_of
from workloads.schedules.catalog import schedule_info, schedule_infos

_NEEDED = ("model", "server", "schedule", "minibatch")
_COUNTS = ("minibatch", "microbatch", "sequence")


class Labelled(NamedTuple):
    """A model or server under the name that the table shows."""

    label: str
    value: Any


def combinations(axes: Mapping[str, Any]) -> list[dict[str, Any]]:
    """All combinations of the values of the axes; the last axis changes fastest.

    Raises
    ------
    InvalidInput
        If an axis has no value.
    """
    values = {name: _values(name, given) for name, given in axes.items()}
    for name, given in values.items():
        if not given:
            raise InvalidInput(f"The axis {name!r} of the study has no value; give at least one.")
    return [dict(zip(values, each, strict=True)) for each in product(*values.values())]


def _values(name: str, given: Any) -> list[Any]:
    """One value or several, as a list; a mapping names models or servers."""
    if name in ("model", "server") and isinstance(given, Mapping):
        named = cast(Mapping[str, Any], given)
        return [Labelled(label, value) for label, value in named.items()]
    if isinstance(given, Sequence) and not isinstance(given, str | tuple):
        return list(cast(Sequence[Any], given))
    if isinstance(given, tuple) and name not in EDITS:
        return list(cast(tuple[Any, ...], given))
    if isinstance(given, range):
        return list(given)
    return [given]


@dataclass(frozen=True)
class _Made:
    """Models and servers made so far, so that each is made once and has one label."""

    models: dict[Any, Model | str] = field(default_factory=dict[Any, "Model | str"])
    bases: dict[str, Server] = field(default_factory=dict[str, Server])
    servers: dict[Any, Server | str] = field(default_factory=dict[Any, "Server | str"])
    labels: dict[tuple[str, str], list[Any]] = field(
        default_factory=dict[tuple[str, str], list[Any]]
    )

    def label(self, kind: str, name: str, thing: Any) -> str:
        """``name``, or ``name #2`` for a second, different thing of that name."""
        same = self.labels.setdefault((kind, name), [])
        if thing not in same:
            same.append(thing)
        number = same.index(thing) + 1
        return name if number == 1 else f"{name} #{number}"


def points(rows: Iterable[Mapping[str, Any]]) -> tuple[Point, ...]:
    """Points of a study from their settings; what holds for no point at all is refused.

    Raises
    ------
    UnknownName
        If a name is misspelt: a setting, model, server, schedule, precision or optimizer.
    InvalidInput
        If a setting is missing or of the wrong type, or there is no point.
    """
    given = [dict(row) for row in rows]
    if not given:
        raise InvalidInput("The study has no point; give at least one.")
    _check_names(given)
    made = _Made()
    return tuple(_point(row, made) for row in given)


def _check_names(rows: Sequence[Mapping[str, Any]]) -> None:
    """Refuse a setting that means nothing to any schedule of the study."""
    names: set[str] = set()
    for row in rows:
        name = row.get("schedule", "")
        if not isinstance(name, str):
            raise InvalidInput(f"A schedule of the study is {name!r}; it must be a name.")
        names.add(name)
    for name in sorted(names - {""}):
        schedule_info(name)
    knobs = {knob for x in schedule_infos() if x.name in names for knob in x.knobs}
    common = {*_NEEDED, "microbatch", *REPLAY, *MODEL_OPTIONS, *EDITS}
    for name in dict.fromkeys(name for row in rows for name in row):
        if name not in common | knobs:
            raise UnknownName(
                f"The study has no setting {name!r}{suggestion(name, sorted(common | knobs))}"
            )


def _point(row: Mapping[str, Any], made: _Made) -> Point:
    for name in _NEEDED:
        if row.get(name) is None:
            raise InvalidInput(f"A point of the study has no {name}; every point needs one.")
    for name in _COUNTS:
        if type(row.get(name)) not in (int, type(None)):
            raise InvalidInput(f"{name} is {row[name]!r}; it must be a whole number.")
        if row.get(name) is not None and row[name] < 1:
            raise InvalidInput(f"{name} is {row[name]}; it must be at least 1.")
    way = row.get("collectives")
    if way is not None and way not in get_args(Algorithm):
        raise unknown("Algorithm of collectives", str(way), get_args(Algorithm))
    model, shown_model = _model(row, made)
    server, shown_server = _server(row, made)
    shown = {"model": shown_model, "server": shown_server}
    settings = {name: shown.get(name, _cell(name, value)) for name, value in row.items()}
    fault = next((x for x in (model, server) if isinstance(x, str)), "")
    if isinstance(model, str) or isinstance(server, str):
        return Point(settings, None, None, fault)
    return Point(settings, model, server)


def _model(row: Mapping[str, Any], made: _Made) -> tuple[Model | str, str]:
    """Model, or why there is none, and its label."""
    label, value = _open(row["model"])
    options = {name: row.get(name) for name in MODEL_OPTIONS}
    for name, check in (("precision", precision_of), ("optimizer", optimizer_of)):
        chosen = options[name]
        if chosen is not None:
            check(chosen)
    if isinstance(value, Model):
        used = [name for name in MODEL_OPTIONS if options[name] is not None]
        if used:
            raise InvalidInput(
                f"The model {value.name!r} is made already, so the study cannot set its {used[0]}; "
                "name the model, or make one model for each value."
            )
        return value, label or made.label("model", value.name, value)
    if not isinstance(value, str):
        raise InvalidInput(f"A model of the study is {value!r}; give a Model, or a name or file.")
    key = (value, *options.values())
    if key not in made.models:
        made.models[key] = _read_model(value, options)
    found = made.models[key]
    return found, label or (value if isinstance(found, str) else found.name)


def _read_model(text: str, options: Mapping[str, Any]) -> Model | str:
    """Model by name or file; a reason if an option does not suit it."""
    try:
        return cli_inputs.read_model(text, **options)
    except InvalidInput as error:
        if all(value is None for value in options.values()):
            raise
        return str(error)


def _server(row: Mapping[str, Any], made: _Made) -> tuple[Server | str, str]:
    """Server with its edits made, or why that is not possible, and its label."""
    label, value = _open(row["server"])
    if isinstance(value, str):
        if value not in made.bases:
            made.bases[value] = cli_inputs.read_server(value)
        value = made.bases[value]
    if not isinstance(value, Server):
        raise InvalidInput(f"A server of the study is {value!r}; give a Server, or a name or file.")
    label = label or made.label("server", value.name, value)
    edits = [(name, row[name]) for name in row if name in EDITS and row[name] is not None]
    key = (value, repr(edits))
    if key not in made.servers:
        made.servers[key] = _edited(value, edits)
    return made.servers[key], label


def _edited(server: Server, edits: Sequence[tuple[str, Any]]) -> Server | str:
    found = server
    try:
        for name, value in edits:
            found = _edit(found, name, value)
    except CommodiousError as error:
        return str(error)
    return found


def _edit(server: Server, name: str, value: Any) -> Server:
    """Call the method ``name`` with one value, several in a tuple, or named ones.

    Raises
    ------
    InvalidInput
        If the method does not take such values.
    """
    change = getattr(server, name)
    if name == "with_pcie" and isinstance(value, str):
        value = tuple(parse_width(value, PCIE_LANE, name))
    try:
        if isinstance(value, Mapping):
            return change(**cast(Mapping[str, Any], value))
        return change(*(cast(Sequence[Any], value) if _several(value) else (value,)))
    except TypeError as error:
        raise InvalidInput(f"{name} cannot take {value!r}: {error}.") from None


def _several(value: Any) -> bool:
    return isinstance(value, tuple | list)


def _open(given: Any) -> tuple[str, Any]:
    """Label (empty if none was given) and value."""
    return given if isinstance(given, Labelled) else ("", given)


def _cell(name: str, value: Any) -> Setting:
    """One setting as the table shows it."""
    if name == "with_pcie" and _several(value) and len(value) == 2:
        return str(Width(*value))
    if isinstance(value, Mapping):
        value = tuple(cast(Mapping[str, Any], value).values())
    if _several(value):
        return " ".join(str(x) for x in value)
    if isinstance(value, str | int | float | None):
        return value
    return str(getattr(value, "name", value))
