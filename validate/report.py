"""Predicted beside measured: two runs of one schedule, op class by op class."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hwmodels.errors import InvalidInput
from sim.run import Run
from sim.words import time

if TYPE_CHECKING:
    from sim.picture import Picture
    from workloads.schedule import Op


@dataclass(frozen=True, slots=True)
class Pair:
    """One quantity, predicted and measured.

    Attributes
    ----------
    what : str
        Iteration, class of operations, stream or device.
    count : int
        Operations that it sums over; 1 for a single figure.
    predicted, measured : float
        Seconds, or bytes.
    """

    what: str
    count: int
    predicted: float
    measured: float

    @property
    def error(self) -> float:
        """Predicted over measured, less one; 0 if both are 0, infinite if only one is."""
        if self.measured == 0.0:
            return 0.0 if self.predicted == 0.0 else float("inf")
        return self.predicted / self.measured - 1.0


@dataclass(frozen=True)
class Report:
    """Two runs of one schedule side by side.

    Attributes
    ----------
    predicted, measured : Run
    """

    predicted: Run
    measured: Run

    def __post_init__(self) -> None:
        mine, theirs = self.predicted.schedule, self.measured.schedule
        if mine is not theirs and mine != theirs:
            raise InvalidInput(
                f"the predicted run is of {mine.name} and the measured one of {theirs.name}; "
                "pass two runs of one schedule"
            )

    @property
    def iteration(self) -> Pair:
        """Time of one iteration in seconds."""
        return Pair("iteration", 1, self.predicted.iteration_time, self.measured.iteration_time)

    @cached_property
    def classes(self) -> tuple[Pair, ...]:
        """Seconds of all operations of a kind, phase and layer kind, most different first."""
        found = self._sums(_class)
        return tuple(sorted(found, key=lambda pair: -abs(pair.predicted - pair.measured)))

    @cached_property
    def streams(self) -> tuple[Pair, ...]:
        """Busy seconds of each stream."""
        return tuple(self._sums(_stream))

    def _sums(self, key: Callable[[Op], str]) -> Iterator[Pair]:
        runs = (self.predicted, self.measured)
        seconds = [(run.timeline.end - run.timeline.start).tolist() for run in runs]
        sums: dict[str, list[float]] = {}
        counts: dict[str, int] = {}
        for op in self.predicted.schedule.ops:
            if op.stream:
                name = key(op)
                row = sums.setdefault(name, [0.0, 0.0])
                row[0] += seconds[0][op.id]
                row[1] += seconds[1][op.id]
                counts[name] = counts.get(name, 0) + 1
        for name, (predicted, measured) in sums.items():
            yield Pair(name, counts[name], predicted, measured)

    @cached_property
    def memory(self) -> tuple[Pair, ...]:
        """Peak bytes of each device."""
        theirs: Mapping[str, int] = self.measured.timeline.peak
        return tuple(
            Pair(device, 1, float(peak), float(theirs.get(device, 0)))
            for device, peak in self.predicted.timeline.peak.items()
        )

    @cached_property
    def copied(self) -> tuple[Pair, ...]:
        """Bytes copied, by direction."""
        return tuple(
            Pair(phase, 1, float(mine), float(theirs))
            for phase, mine, theirs in (
                ("swapped", self.predicted.swap_bytes, self.measured.swap_bytes),
                ("between GPUs", self.predicted.peer_bytes, self.measured.peer_bytes),
            )
        )

    def worst(self, most: int = 3) -> tuple[str, ...]:
        """Sentences on the classes of operations that differ most."""
        total = self.measured.duration or 1.0
        return tuple(
            f"{pair.what}: {pair.count} operations take {time(pair.measured)} and not "
            f"{time(pair.predicted)}, {abs(pair.predicted - pair.measured) / total:.0%} of the run"
            for pair in self.classes[:most]
            if pair.predicted != pair.measured
        )

    def to_dict(self) -> dict[str, Any]:
        """All pairs as plain data for JSON; seconds and bytes."""

        def rows(pairs: tuple[Pair, ...]) -> list[dict[str, Any]]:
            return [
                {
                    "what": pair.what,
                    "count": pair.count,
                    "predicted": pair.predicted,
                    "measured": pair.measured,
                    "error": pair.error if pair.measured else None,
                }
                for pair in pairs
            ]

        return {
            "schedule": self.predicted.schedule.name,
            "iteration_s": rows((self.iteration,))[0],
            "classes_s": rows(self.classes),
            "streams_s": rows(self.streams),
            "peak_memory_bytes": rows(self.memory),
            "copied_bytes": rows(self.copied),
            "worst": list(self.worst()),
        }

    def plot(self, path: str | Path | None = None) -> Picture:
        """Draw both timelines, each stream predicted above measured."""
        from sim import plot, streams

        gpus = self.predicted.server.gpus
        runs = {"predicted": self.predicted, "measured": self.measured}
        rows = [
            [
                row if name == "predicted" else row._replace(name=name)
                for row in streams.rows(run.schedule, gpus, run.timeline)
            ]
            for name, run in runs.items()
        ]
        both = [row for pair in zip(*rows, strict=True) for row in pair]
        finish = max(run.duration for run in runs.values())
        title = (
            f"{self.predicted.title}\npredicted {time(self.iteration.predicted)}, measured "
            f"{time(self.iteration.measured)} an iteration ({self.iteration.error:+.1%})"
        )
        return plot.timeline(both, finish, title, path)


def _stream(op: Op) -> str:
    return op.stream


def _class(op: Op) -> str:
    """Class of an operation in a report."""
    if op.kind == "host":
        return "update on the CPU"
    return op.phase.replace("_", " ")
