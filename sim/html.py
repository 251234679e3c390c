"""A run as one HTML file to look around in: no server, no network, any browser from 2023 on.

The page is made of the small files in ``sim/page`` and the columns of the run; what it draws it
draws from the columns, so that 200 000 operations are one file of a few megabytes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hwmodels.compute import Work
from hwmodels.errors import InvalidInput
from sim.colours import KINDS, PHASES
from sim.columns import pack
from sim.explain import Segment
from sim.memory import Numbers
from sim.occupancy import Curve
from sim.streams import Row
from workloads.schedule import Op, Schedule

if TYPE_CHECKING:
    from sim.engine import Timeline

Columns = dict[str, NDArray[Any]]

_SCRIPTS = (
    "data.js", "words.js", "scale.js", "paint.js", "draw.js", "find.js", "hover.js", "page.js",
)  # fmt: skip
"""Files of ``sim/page``, in the order in which they need each other."""
_PHASES, _KINDS = list(PHASES), list(KINDS)
_NONE = -1
"""Stands in columns of numbers for none."""


class Story(NamedTuple):
    """What the page says about the run.

    Attributes
    ----------
    title : str
        Schedule, model, server and batch.
    facts : tuple of str
        The results in short, for one line.
    notes : tuple of str
        Choices and estimates that the reader must know.
    path : sequence of Segment
        Critical path, in order of time.
    """

    title: str
    facts: tuple[str, ...]
    notes: tuple[str, ...]
    path: Sequence[Segment]


def page(
    schedule: Schedule,
    timeline: Timeline,
    rows: Sequence[Row],
    curves: Mapping[str, Curve],
    story: Story,
) -> str:
    """Make the text of the page; equal runs give equal text.

    Parameters
    ----------
    schedule : Schedule
    timeline : Timeline
        When each operation ran, in seconds.
    rows : sequence of Row
        Streams in the order in which they are shown.
    curves : mapping of str to Curve
        Memory in use by device; devices that hold nothing are left out of the page.
    story : Story
    """
    facts, columns = _content(schedule, timeline, rows, curves, story)
    parts = {
        "title": escape(story.title),
        "facts": escape(" · ".join(story.facts)),
        "notes": "".join(f"<li>{escape(note)}</li>" for note in story.notes),
        "count": str(len(story.notes)),
        "style": _file("timeline.css"),
        "script": "\n".join(_file(name) for name in _SCRIPTS),
        "data": pack(facts, columns),
    }
    # one pass: what is put in is not searched again for names of parts
    return re.sub(r"\{\{(\w+)\}\}", lambda found: parts[found[1]], _file("timeline.html"))


def write(path: str | Path, text: str) -> Path:
    """Write the page.

    Raises
    ------
    InvalidInput
        If the file cannot be written.
    """
    target = Path(path)
    try:
        target.write_text(text, encoding="utf-8")
    except OSError as error:
        raise InvalidInput(f"the page cannot be written to {target}: {error.strerror}") from error
    return target


def _file(name: str) -> str:
    return (files("sim") / "page" / name).read_text(encoding="utf-8")


def _content(
    schedule: Schedule,
    timeline: Timeline,
    rows: Sequence[Row],
    curves: Mapping[str, Curve],
    story: Story,
) -> tuple[dict[str, Any], Columns]:
    """Give the page's facts (plain data) and columns; ``sim/page/data.js`` reads them."""
    devices = list(schedule.capacity)
    used = {device: curve for device, curve in curves.items() if curve.peak}
    actions, groups, resources = Numbers[str](), Numbers[str](), Numbers[str]()
    columns = _operations(schedule, devices, actions, groups)
    columns |= _times(schedule, timeline)
    for at, row in enumerate(rows):
        columns[f"stream.{at}"] = row.ops
    for at, curve in enumerate(used.values()):
        columns |= _memory(at, curve)
    columns |= _path(story.path, resources)
    facts = {
        "finish": float(timeline.end.max(initial=0.0)),
        "devices": devices,
        "phases": [(name, colour, word) for name, (colour, word) in PHASES.items()],
        "kinds": [(name, colour, word) for name, (colour, word) in KINDS.items()],
        "actions": list(actions),
        "groups": list(groups),
        "resources": list(resources),
        "tensors": [tensor.name for tensor in schedule.tensors],
        "streams": [(row.device, row.name) for row in rows],
        "memory": [(name, schedule.capacity[name], curve.peak) for name, curve in used.items()],
    }
    return facts, columns


def _operations(
    schedule: Schedule, devices: list[str], actions: Numbers[str], groups: Numbers[str]
) -> Columns:
    """Say what each operation is: one column for each property, indexed by op id."""
    tensors, ops = schedule.tensors, schedule.ops
    place = {device: at for at, device in enumerate(devices)}
    moved = [op.reads[0] if op.kind == "copy" else _NONE for op in ops]
    layers = [
        op.layers if tensor < 0 else (tensors[tensor].layer,) * 2
        for op, tensor in zip(ops, moved, strict=True)
    ]
    spans = [
        op.span if tensor < 0 else tensors[tensor].span
        for op, tensor in zip(ops, moved, strict=True)
    ]
    phases = {name: at for at, name in enumerate(_PHASES)}
    flop, traffic = _per_work(ops, "flops"), _per_work(ops, "bytes")
    return {
        "action": _ints(actions[op.phase] for op in ops),
        "phase": _ints(
            phases["collective"] if op.kind == "collective" else phases.get(op.phase, _NONE)
            for op in ops
        ),
        "computes": _ints(op.kind == "compute" for op in ops),
        "device": _ints(place[op.device] if op.device else _NONE for op in ops),
        "peer": _ints(place[op.peer] if op.peer else _NONE for op in ops),
        "group": _ints(groups[", ".join(op.group)] if op.group else _NONE for op in ops),
        "tensor": _ints(moved),
        "first": _ints(first for first, _ in layers),
        "last": _ints(last for _, last in layers),
        "sample": _ints(first for first, _ in spans),
        "stop": _ints(stop for _, stop in spans),
        "flop": flop,
        "bytes": _floats(op.nbytes for op in ops) + traffic,
    }


def _per_work(ops: Sequence[Op], field: str) -> NDArray[np.float64]:
    """Sum of one field over the parts of each operation's work; equal work is shared."""
    known: dict[int, float] = {}

    def total(work: Work | None) -> float:
        if work is None:
            return 0.0
        if id(work) not in known:
            known[id(work)] = float(sum(getattr(part, field) for part in work.parts))
        return known[id(work)]

    return _floats(total(op.work) for op in ops)


def _times(schedule: Schedule, timeline: Timeline) -> Columns:
    """When each operation was ready, started and ended, and behind which one it waited.

    Operations that take no time (``free``) are not shown: behind them, what they waited for is.
    """
    before = timeline.last_dependency
    waited = before.copy()
    hidden = np.fromiter((op.kind == "free" for op in schedule.ops), bool, len(schedule.ops))
    while len(again := np.flatnonzero((waited >= 0) & hidden[waited])):
        waited[again] = before[waited[again]]
    columns = {"ready": timeline.ready, "start": timeline.start, "end": timeline.end}
    return {**columns, "waited": waited}


def _memory(at: int, curve: Curve) -> Columns:
    """One device's memory: times, and of each kind how much it changes there, which packs well."""
    names = {f"memory.{at}.{kind}": curve.kinds[kind] for kind in _KINDS if kind in curve.kinds}
    changes = {name: np.diff(level, prepend=0) for name, level in names.items()}
    return {f"memory.{at}.times": curve.times, **changes}


def _path(path: Sequence[Segment], resources: Numbers[str]) -> Columns:
    return {
        "path.op": _ints(part.op for part in path),
        "path.start": _floats(part.start for part in path),
        "path.end": _floats(part.end for part in path),
        "path.resource": _ints(resources[part.resource] for part in path),
    }


def _ints(values: Iterable[int]) -> NDArray[np.int64]:
    return np.fromiter(values, np.int64)


def _floats(values: Iterable[float]) -> NDArray[np.float64]:
    return np.fromiter(values, np.float64)
