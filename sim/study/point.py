"""One point of a study: what is asked, and the key under which its answer is kept."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from importlib import metadata
from typing import Any, cast

from hwmodels.server import Server
from workloads.model import Model

Setting = str | int | float | bool | None
"""What stands in a cell of the table; None means that the schedule chooses."""

SCHEMA = 1
"""Version of what a key covers and of what a row holds; raise it when either changes."""

MODEL_OPTIONS = ("precision", "sequence", "optimizer")
"""Settings that go into the model."""

EDITS = ("with_gpus", "with_pcie", "with_memory", "with_link", "degraded")
"""Settings that change the server: methods of ``Server``."""

IN_OBJECTS = frozenset(("model", "server", *MODEL_OPTIONS, *EDITS))
"""Settings whose content is that of the point's model and server; the rest is for the schedule."""


@dataclass(frozen=True)
class Point:
    """One cell of a study.

    Attributes
    ----------
    settings : mapping of str to str, int, float, bool or None
        What the table shows: labels of model and server, edits, schedule, minibatch, knobs.
    model : Model or None
        What is trained.
    server : Server or None
        Where, all edits made.
    fault : str
        Why model or server could not be made (then they are None); empty otherwise.
    """

    settings: Mapping[str, Setting]
    model: Model | None
    server: Server | None
    fault: str = ""

    @property
    def asked(self) -> dict[str, Setting]:
        """Settings that are for the schedule and the replay, those left open omitted."""
        given = self.settings.items()
        return {name: x for name, x in given if name not in IN_OBJECTS and x is not None}


def version() -> str:
    """Version of the package that is running."""
    return metadata.version("commodious")


def keys(points: Iterable[Point]) -> list[str]:
    """Keys of points: equal if, and only if, the same is asked of the same version.

    A key is the SHA-256 of the version of the package, ``SCHEMA``, the whole content of the model
    (layers, sizes, precision, optimizer, measured times), the whole content of the server (every
    part with all its numbers, GPUs and sources included), the schedule, and its settings. It does
    not depend on labels, on file names, on the order of settings, or on how model and server were
    made. What invalidates stored rows is therefore: another version or schema, a changed model or
    server (also by a change of the catalog), a changed setting. A change of the simulator's code
    without a new version does not.
    """
    # A study names few models and servers many times: each is read once.
    seen: dict[int, str] = {}

    def of(thing: Model | Server | None) -> str:
        if id(thing) not in seen:
            content = thing.parts if isinstance(thing, Server) else thing
            seen[id(thing)] = _hash(plain(content))
        return seen[id(thing)]

    now = version()

    def key(point: Point) -> str:
        if point.fault:
            return _hash([SCHEMA, now, point.fault, sorted(point.settings.items())])
        content = [of(point.model), of(point.server), sorted(point.asked.items())]
        return _hash([SCHEMA, now, *content])

    return [key(point) for point in points]


def plain(value: Any) -> Any:
    """Turn records, mappings and tuples into lists for JSON, with nothing left out."""
    if is_dataclass(value):
        rows = [[field.name, plain(getattr(value, field.name))] for field in fields(value)]
        return [type(value).__name__, *rows]
    if isinstance(value, Mapping):
        pairs = cast(Mapping[Any, Any], value).items()
        return sorted(([plain(key), plain(x)] for key, x in pairs), key=json.dumps)
    if isinstance(value, tuple | list):
        return [plain(x) for x in cast(tuple[Any, ...], value)]
    return value


def _hash(content: Any) -> str:
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()
