"""The study file: a SQLite database with a row for each finished point, written at once.

Write-ahead logging keeps what is committed when the process is killed at any moment, and lets
several processes work on one file. (It needs a local disk: SQLite's log does not work on network
file systems.)
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hwmodels.errors import InvalidInput
from sim.study.evaluate import Outcome
from sim.study.point import SCHEMA, Setting

_MARK = 0x436F6D53
"""``application_id`` of a study file: "ComS"."""

_TABLE = """
CREATE TABLE rows (
    key TEXT PRIMARY KEY, version TEXT, place INTEGER, settings TEXT, status TEXT, reason TEXT,
    result TEXT, notes TEXT, seconds REAL
)
"""


@dataclass(frozen=True, slots=True)
class Store:
    """An open study file.

    Attributes
    ----------
    path : Path
        Where it lies.
    database : sqlite3.Connection
        Every statement outside a transaction is committed at once.
    """

    path: Path
    database: sqlite3.Connection

    def add(
        self,
        key: str,
        version: str,
        place: int,
        settings: Mapping[str, Setting],
        outcome: Outcome,
    ) -> None:
        """Keep one outcome; it replaces an earlier one of the same key.

        ``place`` is the point's position in its study, by which `rows` are sorted.

        Raises
        ------
        InvalidInput
            If the file cannot be written (disk full ...).
        """
        row = (
            key, version, place, json.dumps(settings), outcome.status, outcome.reason,
            json.dumps(outcome.result), json.dumps(outcome.notes), outcome.seconds,
        )  # fmt: skip
        with _said(self.path):
            self.database.execute(
                "INSERT OR REPLACE INTO rows VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", row
            )

    def outcomes(self, version: str) -> dict[str, Outcome]:
        """Outcomes of one version of the package by key."""
        found = self._select("key, status, reason, result, notes, seconds", version)
        return {key: _outcome(rest) for key, *rest in found}

    def rows(self, version: str) -> list[tuple[dict[str, Setting], Outcome]]:
        """Give settings and outcomes of one version of the package, in the order of the study."""
        found = self._select("settings, status, reason, result, notes, seconds", version)
        return [(json.loads(settings), _outcome(rest)) for settings, *rest in found]

    def others(self, version: str) -> int:
        """Count the rows of other versions."""
        with _said(self.path):
            found = self.database.execute(
                "SELECT count(*) FROM rows WHERE version != ?", (version,)
            )
            return int(found.fetchone()[0])

    def _select(self, columns: str, version: str) -> list[Any]:
        with _said(self.path):
            text = f"SELECT {columns} FROM rows WHERE version = ? ORDER BY place, key"
            return self.database.execute(text, (version,)).fetchall()


def _outcome(row: Iterable[Any]) -> Outcome:
    status, reason, result, notes, seconds = row
    return Outcome(status, reason, json.loads(result), tuple(json.loads(notes)), seconds)


@contextmanager
def opened(path: str | Path, *, create: bool) -> Generator[Store]:
    """Open a study file, and close it after the block.

    Parameters
    ----------
    path : str or Path
        The file.
    create : bool
        Make it if it is missing.

    Raises
    ------
    InvalidInput
        If it cannot be opened, is no study file, or is one of another schema; such files are never
        written to.
    """
    place = Path(path)
    if place.is_dir():
        raise InvalidInput(f"The study file {place} is a folder; name a file.")
    if not place.parent.is_dir():
        raise InvalidInput(
            f"There is no folder {place.parent} for the study file; create it first."
        )
    if not create and not place.exists():
        raise InvalidInput(f"There is no study file {place}; a study that is run writes one.")
    with _said(place):
        database = sqlite3.connect(place, timeout=60.0, isolation_level=None)
    try:
        with _said(place):
            _prepare(place, database)
        yield Store(place, database)
    finally:
        database.close()


def _prepare(path: Path, database: sqlite3.Connection) -> None:
    """Make the table in an empty file; refuse any other file but a study file of this schema."""

    def ask(text: str) -> int:
        return int(database.execute(text).fetchone()[0])

    if not ask("SELECT count(*) FROM sqlite_master"):
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("BEGIN IMMEDIATE")  # of two processes that create it, one waits
        if not ask("SELECT count(*) FROM sqlite_master"):
            database.execute(_TABLE)
            database.execute(f"PRAGMA application_id = {_MARK}")
            database.execute(f"PRAGMA user_version = {SCHEMA}")
        database.execute("COMMIT")
    if ask("PRAGMA application_id") != _MARK:
        raise InvalidInput(f"{path} is a database, but no study file; give another name.")
    schema = ask("PRAGMA user_version")
    if schema != SCHEMA:
        raise InvalidInput(
            f"{path} is a study file of schema {schema}, and this version writes schema {SCHEMA}; "
            "give another name, and the study runs anew."
        )
    database.execute("PRAGMA synchronous = NORMAL")  # with the log, safe when a process is killed


@contextmanager
def _said(path: Path) -> Generator[None]:
    """Say in a sentence what SQLite complains about."""
    try:
        yield
    except sqlite3.Error as error:
        reason = str(error).rstrip(".")
        raise InvalidInput(f"The study file {path} cannot be used: {reason}.") from None
