"""The study: points, where their results are kept, and how they are shown."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import closing
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hwmodels.errors import InvalidInput
from sim.study import bar, estimate, grid, table
from sim.study.evaluate import Outcome
from sim.study.point import Point, keys, version

if TYPE_CHECKING:
    from pandas import DataFrame

    from sim.picture import Picture
    from sim.study.cluster import Client
    from sim.study.store import Store

Progress = Callable[[int, int, str], None]


class Study:
    """Many points, each run once and kept.

    Parameters
    ----------
    points : iterable of mapping
        Settings of each point: ``model`` and ``server`` (names, files, or objects), ``schedule``,
        ``minibatch``; and whatever else `Study.grid` takes.

    Attributes
    ----------
    points : tuple of Point
        In the order of the table.

    Raises
    ------
    UnknownName
        If a name is misspelt: a setting, model, server, schedule, precision or optimizer.
    InvalidInput
        If a setting is missing or of the wrong type, or there is no point.

    Examples
    --------
    >>> import sim
    >>> study = sim.Study.grid(
    ...     model="gpt2-xl", server="pcie-4u-4x1080ti", schedule=["harmony-pp", "dp-pager"],
    ...     minibatch=[32, 64],
    ... )
    >>> study
    Study of 4 points: 2 schedule x 2 minibatch
    >>> table = study.run("swap.study")  # doctest: +SKIP
    >>> study.plot(x="minibatch", y="samples_per_s", colour="schedule")  # doctest: +SKIP
    """

    def __init__(self, points: Iterable[Mapping[str, Any]]) -> None:
        self.points: tuple[Point, ...] = grid.points(points)
        self._finished: dict[str, Outcome] = {}

    @classmethod
    def grid(cls, **axes: Any) -> Study:
        """Study of all combinations; the last axis changes fastest.

        Parameters
        ----------
        **axes
            One value or a list of values for each setting:

            ``model``, ``server``
                Names, files or objects; a dict gives each its label in the table.
            ``schedule``, ``minibatch``, ``microbatch``, ``collectives`` and knobs of schedules
                As ``workloads.schedule`` and ``sim.simulate`` take them; None leaves it open.
            ``precision``, ``sequence``, ``optimizer``
                As ``workloads.model`` takes them; for models by name or file.
            ``with_gpus``, ``with_pcie``, ``with_memory``, ``with_link``, ``degraded``
                Edits of every server, in the order given: the argument of the method of that name,
                a tuple of several, or a dict of named ones; None leaves the server as it is.

        Raises
        ------
        UnknownName, InvalidInput
            As for `Study`.

        Examples
        --------
        >>> import sim
        >>> sim.Study.grid(
        ...     model="bert-large", server="dgx-1", schedule="dp", minibatch=8,
        ...     with_gpus=[1, 2, 4], degraded=[None, ("pcie0", 0.5)],
        ... )
        Study of 6 points: 3 with_gpus x 2 degraded
        """
        return cls(grid.combinations(axes))

    @classmethod
    def load(cls, path: str | Path) -> Study:
        """Study that a TOML file describes (format: see ``sim.study.file``).

        Raises
        ------
        UnknownName, InvalidInput
            As for `Study`, or if the file cannot be read; says where in one sentence.
        """
        from sim.study import file

        return cls(file.read(path))

    def run(
        self,
        path: str | Path,
        client: Client | None = None,
        *,
        processes: int | None = None,
        progress: Progress | None = None,
    ) -> DataFrame:
        """Run what the study file does not have yet, and show all.

        Every finished point is written at once, so a study that was killed or interrupted goes on
        where it was. A point that does not fit or is invalid is finished too; one that ended in an
        ``error`` is tried again by the next run. See ``sim.study.point.keys`` for what makes a
        point a new one.

        Parameters
        ----------
        path : str or Path
            Study file, such as ``"swap.study"``; made if it is missing. Several studies may share
            one.
        client : distributed.Client, optional
            Run on this Dask cluster (``pip install commodious[cluster]``, also on its workers).
        processes : int, optional
            Processes to run in; by default one a processor. 1 runs here.
        progress : callable, optional
            Called as ``progress(done, total, label)``; by default a bar is shown.

        Returns
        -------
        DataFrame
            One row a point, in the order of ``points``: settings, results (times in seconds, sizes
            in bytes), ``status`` and ``reason``.

        Raises
        ------
        InvalidInput
            If the study file cannot be used, or ``processes`` is not positive.
        CommodiousError
            If workers cannot be started, or the cluster goes away.
        KeyboardInterrupt
            After Ctrl-C; says how to go on.
        """
        from sim.study import store

        if processes is not None and (type(processes) is not int or processes < 1):
            raise InvalidInput(f"processes is {processes!r}; it must be a whole number from 1 on.")
        with store.opened(path, create=True) as file:
            self._finished = file.outcomes(version())
            ours = dict(zip(self._keys, self.points, strict=True))
            todo = [key for key in ours if not self._has(key)]
            with (
                bar.shown(progress) as step,
                closing(self._work(todo, ours, client, processes)) as work,
            ):
                try:
                    self._keep(file, todo, ours, work, step)
                except KeyboardInterrupt:
                    done = sum(self._has(key) for key in ours)
                    raise KeyboardInterrupt(
                        f"{done} of {len(ours)} points are kept in {path}; run the same study "
                        "with this file again to go on"
                    ) from None
        return self.table

    @cached_property
    def _keys(self) -> list[str]:
        return keys(self.points)

    def _has(self, key: str) -> bool:
        return key in self._finished and self._finished[key].status != "error"

    def _work(
        self,
        todo: Sequence[str],
        ours: Mapping[str, Point],
        client: Client | None,
        processes: int | None,
    ) -> Generator[tuple[int, Outcome], None, None]:
        from sim.study import cluster, pool

        points = [ours[key] for key in todo]
        count = min(processes or pool.processors(), len(points))
        if client is not None:
            return cluster.on(client, points, _report)
        return pool.processes(points, count, _report) if count > 1 else pool.here(points)

    def _keep(
        self,
        file: Store,
        todo: Sequence[str],
        ours: Mapping[str, Point],
        work: Iterable[tuple[int, Outcome]],
        step: Progress,
    ) -> None:
        """Write outcomes as they come, and say how far it is."""
        start, now = time.perf_counter(), version()
        sizes = [estimate.size(ours[key]) for key in todo]
        rest, done = sum(sizes), estimate.Done()
        places = {key: at for at, key in enumerate(ours)}
        old = len(ours) - len(todo)
        step(old, len(ours), "")
        for at, outcome in work:
            key = todo[at]
            file.add(key, now, places[key], ours[key].settings, outcome)
            self._finished[key] = outcome
            done = done.plus(sizes[at], outcome.seconds)
            rest -= sizes[at]
            said = (
                estimate.left(done, time.perf_counter() - start, rest)
                if done.points < len(todo)
                else ""
            )
            step(old + done.points, len(ours), said)

    @property
    def rows(self) -> list[table.Row]:
        """Rows of the points that the last run has finished."""
        pairs = zip(self._keys, self.points, strict=True)
        return [
            table.row(point.settings, self._finished[key])
            for key, point in pairs
            if key in self._finished
        ]

    @property
    def table(self) -> DataFrame:
        """Table of the points that the last run has finished; columns as `run` has them."""
        return table.frame(self.rows)

    @property
    def notes(self) -> tuple[str, ...]:
        """What the reader must know of the results: estimates and choices, each once."""
        found = (self._finished.get(key) for key in self._keys)
        return tuple(dict.fromkeys(note for x in found if x is not None for note in x.notes))

    def plot(
        self, x: str, y: str, colour: str | None = None, path: str | Path | None = None
    ) -> Picture:
        """Draw one column over another; a panel for each combination of what else varies.

        Parameters
        ----------
        x, y : str
            Columns; ``y`` is a result.
        colour : str, optional
            Setting that the lines stand for.
        path : str or Path, optional
            Write to this .png, .pdf or .svg.

        Raises
        ------
        InvalidInput
            If nothing was run yet, a column does not suit, or there would be too many panels.
        UnknownName
            If there is no such column.
        """
        from sim.study import plot

        return plot.lines(self.rows, x, y, colour, path)

    def __len__(self) -> int:
        return len(self.points)

    def __repr__(self) -> str:
        rows = [dict(point.settings) for point in self.points]
        axes = [f"{len({row.get(x) for row in rows})} {x}" for x in table.varying(rows)]
        many = f"{len(rows)} point{'s' if len(rows) > 1 else ''}"
        return f"Study of {many}{': ' if axes else ''}{' x '.join(axes)}"


def _report(sentence: str) -> None:
    warnings.warn(sentence, RuntimeWarning, stacklevel=2)
