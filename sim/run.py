"""The result of a replay: every metric, table and picture, derived from its records."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from html import escape
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hwmodels.compute import notes as compute_notes
from hwmodels.errors import InvalidInput, UnknownName
from hwmodels.server import Server
from sim import html, idle, records, streams, trace, traffic, words
from sim.engine import Timeline, execute
from sim.explain import Explanation, directions, explain
from sim.occupancy import Curve, occupancy
from workloads.schedule import Schedule

if TYPE_CHECKING:
    from pandas import DataFrame

    from sim.picture import Picture


def simulate(schedule: Schedule, server: Server, collectives: str = "ring") -> Run:
    """Replay a schedule on a model of a server.

    Parameters
    ----------
    schedule : Schedule
        From ``workloads.schedule``.
    server : Server
        Has the devices that the schedule was planned for; may differ from the server it was built
        for in everything else (faster links, other GPUs).
    collectives : str
        Algorithm of all collectives: ``ring``, ``tree``, ``chain``, ``halving_doubling`` or
        ``hierarchical``.

    Returns
    -------
    Run
        Records, metrics and pictures.

    Raises
    ------
    DoesNotFit
        If the schedule uses more memory than a device has.
    InvalidInput
        If the schedule was planned for other devices than the server has.
    Deadlock
        If operations wait for each other.

    Examples
    --------
    >>> import hwmodels, workloads, sim
    >>> box = hwmodels.server("pcie-4u-4x1080ti")
    >>> plan = workloads.schedule("harmony-pp", workloads.model("gpt2-xl"), box, minibatch=64)
    >>> sim.simulate(plan, box)  # doctest: +SKIP
    """
    if isinstance(schedule, str) or isinstance(server, str):
        raise InvalidInput(
            "simulate takes a Schedule and a Server, such as workloads.schedule(...) and "
            "hwmodels.server('dgx-1'), not their names"
        )
    _check_places(schedule, server)
    return Run(schedule, server, execute(schedule, server, collectives))


def _check_places(schedule: Schedule, server: Server) -> None:
    """Refuse a schedule that was planned for other devices than the server has."""
    planned, there = list(schedule.capacity), [*server.gpus, *server.hosts]
    if set(planned) != set(there):
        raise InvalidInput(
            f"schedule {schedule.name} was planned for {', '.join(planned)}, but {server.name} has "
            f"{', '.join(there)}; build the schedule for {server.name}"
        )


_STAGED = (
    "Copies between GPUs are staged through host memory at the links' full rate; measured servers "
    "reached 46 % (eight RTX 3090, NVIDIA/nccl#1127) to 80 % (six RTX 4090, NVIDIA/nccl#814) of it."
)


@dataclass(frozen=True, repr=False, eq=False)
class Run:
    """One replayed (or measured) iteration.

    Attributes
    ----------
    schedule : Schedule
        What ran.
    server : Server
        Where.
    timeline : Timeline
        When each operation was ready, started and ended, in seconds.
    """

    schedule: Schedule
    server: Server
    timeline: Timeline

    # results ---------------------------------------------------------------------------------

    @cached_property
    def duration(self) -> float:
        """Seconds from the start to the end of the last operation, all iterations together."""
        return float(self.timeline.end.max(initial=0.0))

    @cached_property
    def iteration_time(self) -> float:
        """Seconds of one iteration.

        Of several iterations laid end to end: the mean period after the first one, from the
        barriers between them.
        """
        plan = self.schedule
        barriers = [op.id for op in plan.ops if op.phase == "barrier"]
        if plan.iterations == 1 or not barriers:
            return self.duration / plan.iterations
        first = float(self.timeline.end[barriers[0]])
        return (self.duration - first) / len(barriers)

    @property
    def samples_per_second(self) -> float:
        """Throughput of the whole server in samples/s; 0 if nothing took time."""
        return self.schedule.minibatch / self.iteration_time if self.iteration_time else 0.0

    @property
    def tokens_per_second(self) -> float:
        """Throughput of the whole server in tokens/s (equals samples/s for images)."""
        return self.samples_per_second * self.schedule.tokens

    @cached_property
    def _split(self) -> dict[str, dict[str, float]]:
        return idle.time_split(self.schedule, self.server.gpus, self.timeline)

    @property
    def time_split_seconds(self) -> dict[str, dict[str, float]]:
        """`time_split` as plain data: GPU to cause to seconds."""
        return self._split

    def time_split(self) -> DataFrame:
        """Seconds of each GPU (rows) by what it did or waited for (columns).

        ``compute``; exposed ``swap``, ``peer`` copies and ``collective``; ``host`` (waiting for an
        optimizer step on a CPU); ``bubble`` (waiting for another GPU's compute, or done). Each row
        sums to ``duration``. How gaps are charged: see ``sim.idle.time_split``.
        """
        from pandas import DataFrame

        return DataFrame.from_dict(self._split, orient="index", columns=list(idle.CAUSES))

    @cached_property
    def _flows(self) -> dict[str, traffic.Flows]:
        return traffic.flows(self.schedule, self.timeline)

    @cached_property
    def _loads(self) -> dict[str, traffic.Load]:
        return {}

    def _load(self, resource: str) -> traffic.Load:
        found = self._loads.get(resource)
        if found is None:
            found = self._loads[resource] = traffic.load(self._flows[resource])
        return found

    @cached_property
    def _links(self) -> list[dict[str, Any]]:
        finish, links = self.duration, directions(self.server)
        rows: list[dict[str, Any]] = []
        for name, capacity in self.server.resources.items():
            flows = self._flows.get(name)
            if flows is None:
                continue
            moved, busy = float(flows.bytes.sum()), traffic.busy_seconds(flows)
            rows.append(
                {
                    "resource": name,
                    "link": links.get(name, ""),
                    "bytes": moved,
                    "capacity": capacity,
                    "utilisation": moved / (capacity * finish) if finish else 0.0,
                    "busy": busy / finish if finish else 0.0,
                }
            )
        return sorted(rows, key=lambda row: (-row["utilisation"], row["resource"]))

    def links(self) -> DataFrame:
        """Use of every resource that something crossed, fullest first.

        Columns: ``resource`` (``a>b`` is one direction of a cable), ``link`` (name of the cable,
        as in ``server.with_link``), ``bytes``, ``capacity`` in
        B/s, ``utilisation`` (bytes over capacity times duration) and ``busy`` (share of the
        time in which at least one flow crosses it).
        """
        from pandas import DataFrame

        columns = ["resource", "link", "bytes", "capacity", "utilisation", "busy"]
        return DataFrame(self._links, columns=columns)

    @cached_property
    def _volume(self) -> dict[tuple[str, str, str], int]:
        return traffic.swap_volume(self.schedule.ops, self.schedule.tensors, self.server.gpus)

    @cached_property
    def _volume_by_kind(self) -> dict[tuple[str, str], int]:
        found: dict[tuple[str, str], int] = {}
        for (_, kind, phase), count in self._volume.items():
            found[kind, phase] = found.get((kind, phase), 0) + count
        return found

    @property
    def swap_bytes(self) -> int:
        """Bytes copied between GPUs and host memory in both directions, peer copies left out."""
        return sum(n for (_, _, phase), n in self._volume.items() if phase != "peer")

    @property
    def peer_bytes(self) -> int:
        """Bytes copied between GPUs, staged ones included."""
        return sum(n for (_, _, phase), n in self._volume.items() if phase == "peer")

    def swap_volume(self, per_gpu: bool = False) -> DataFrame:
        """Bytes copied, by kind of tensor (rows) and direction (columns).

        Parameters
        ----------
        per_gpu : bool
            Add the GPU to the rows: the one that a swap serves, the receiver of a peer copy.
        """
        from pandas import DataFrame, MultiIndex

        columns = ["swap_in", "swap_out", "peer"]
        table: dict[tuple[str, ...], dict[str, int]] = {}
        for (gpu, kind, phase), count in sorted(self._volume.items()):
            row = table.setdefault((gpu, kind) if per_gpu else (kind,), dict.fromkeys(columns, 0))
            row[phase] += count
        names = ["gpu", "kind"] if per_gpu else ["kind"]
        if not per_gpu:
            index: Any = [key[0] for key in table]
            found = DataFrame(list(table.values()), index=index, columns=columns)
            return found.rename_axis(index="kind")
        rows = MultiIndex.from_tuples(list(table), names=names)
        return DataFrame(list(table.values()), index=rows, columns=columns)

    @cached_property
    def _occupancy(self) -> dict[str, Curve]:
        return occupancy(self.schedule, self.timeline)

    @cached_property
    def peak_memory(self) -> dict[str, int]:
        """Most bytes in use on each device, GPUs first."""
        return {device: curve.peak for device, curve in self._occupancy.items()}

    def memory(self, device: str) -> DataFrame:
        """Bytes in use on one device over time.

        Columns: ``time`` in seconds, ``bytes`` in use from then on, and a column for each kind of
        tensor.

        Raises
        ------
        UnknownName
            If the schedule uses no such device.
        """
        from pandas import DataFrame

        curve = self._occupancy.get(device)
        if curve is None:
            known = ", ".join(self._occupancy)
            raise UnknownName(f"the run has no device {device!r}; it has {known}")
        return DataFrame({"time": curve.times, "bytes": curve.bytes, **curve.kinds})

    def ops(self) -> DataFrame:
        """One row per operation; columns as in ``sim.records.OpRecord``."""
        from pandas import DataFrame

        rows = records.op_records(self.schedule, self.timeline)
        return DataFrame(list(rows), columns=list(records.OpRecord._fields))

    def copies(self) -> DataFrame:
        """One row per copy; columns as in ``sim.records.CopyRecord``."""
        from pandas import DataFrame

        rows = records.copy_records(self.schedule, self.timeline)
        return DataFrame(list(rows), columns=list(records.CopyRecord._fields))

    @cached_property
    def _explanation(self) -> Explanation:
        return explain(self.schedule, self.server, self.timeline, self._load)

    def explain(self) -> Explanation:
        """Critical path by resource, and lower bounds; print it, or read its fields."""
        return self._explanation

    @cached_property
    def notes(self) -> tuple[str, ...]:
        """Choices and estimates that the reader must know."""
        plan = self.schedule
        found = dict.fromkeys(plan.notes)
        # equal work is shared by many operations; ask once
        works = list({id(op.work): op.work for op in plan.ops if op.work is not None}.values())
        for gpu in dict.fromkeys(self.server.gpu(name) for name in self.server.gpus):
            found |= dict.fromkeys(compute_notes(gpu, works, plan.profile))
        if any(path.kind == "staged" for path in self.timeline.routes) or self._staged_rings():
            found[_STAGED] = None
        return tuple(found)

    def _staged_rings(self) -> bool:
        """Whether a collective's neighbours reach each other through host memory only."""
        groups = {op.group for op in self.schedule.ops if op.kind == "collective"}
        return any(
            not self.server.peer(a, b) for group in groups for a, b in pairwise(group) if a != b
        )

    def summary(self) -> dict[str, Any]:
        """All results as plain data for JSON; times in seconds, sizes in bytes."""
        volume: dict[str, dict[str, int]] = {}
        for (kind, phase), count in sorted(self._volume_by_kind.items()):
            volume.setdefault(kind, {})[phase] = count
        plan = self.schedule
        return {
            "schedule": plan.name,
            "model": plan.model,
            "server": self.server.name,
            "minibatch": plan.minibatch,
            "microbatch": plan.microbatch,
            "iteration_time_s": self.iteration_time,
            "iterations": plan.iterations,
            "samples_per_s": self.samples_per_second,
            "tokens_per_s": self.tokens_per_second,
            "time_split_s": self._split,
            "peak_memory_bytes": self.peak_memory,
            "capacity_bytes": dict(plan.capacity),
            "swap_bytes": self.swap_bytes,
            "swap_volume_bytes": volume,
            "links": self._links,
            "explain": self.explain().to_dict(),
            "operations": len(plan.ops),
            "notes": list(self.notes),
        }

    # pictures and files ----------------------------------------------------------------------

    @property
    def title(self) -> str:
        """Schedule, model, server and batch in one line."""
        plan = self.schedule
        batch = f"minibatch {plan.minibatch}, microbatch {plan.microbatch}"
        return f"{plan.name} · {plan.model} · {self.server.name} · {batch}"

    def plot_timeline(self, path: str | Path | None = None) -> Picture:
        """Draw what each stream did when; write it to a .png, .pdf or .svg if a path is given."""
        from sim import plot

        rows = streams.rows(self.schedule, self.server.gpus, self.timeline)
        return plot.timeline(rows, self.duration, self.title, path)

    def plot_memory(self, path: str | Path | None = None) -> Picture:
        """Draw memory in use over time on each device that holds something."""
        from sim import plot

        used = {device: curve for device, curve in self._occupancy.items() if curve.peak}
        capacity = {device: self.server.memory(device) for device in used}
        return plot.memory(used, capacity, self.duration, self.title, path)

    def plot_links(self, path: str | Path | None = None, most: int = 16) -> Picture:
        """Draw use of the ``most`` fullest resources, in total and over time."""
        from sim import plot

        uses = [
            plot.LinkUse(
                row["resource"], row["capacity"], row["bytes"], row["busy"],
                self._load(row["resource"]),
            )
            for row in self._links[:most]
        ]  # fmt: skip
        return plot.links(uses, self.duration, self.title, path)

    def plot_swap(self, path: str | Path | None = None) -> Picture:
        """Draw bytes copied by kind of tensor and direction."""
        from sim import plot

        return plot.swap(self._volume_by_kind, self.title, path)

    def to_trace(self, path: str | Path) -> Path:
        """Write a trace for Perfetto or chrome://tracing; compressed if the name ends in .gz."""
        return trace.write(path, self.schedule, self.server.gpus, self.timeline)

    def to_html(self, path: str | Path | None = None) -> Path | str:
        """Make a page to look around in with any browser, without a server or a network.

        Zoom with the wheel, pan by dragging; point at an operation for what it did, moved and
        waited for. All of the run is in the one file, about 40 bytes for each operation.

        Parameters
        ----------
        path : str or Path, optional
            Where to write it.

        Returns
        -------
        Path or str
            The path, or without one the text of the page.

        Raises
        ------
        InvalidInput
            If the file cannot be written.
        """
        rows = streams.rows(self.schedule, self.server.gpus, self.timeline)
        found = self.explain()
        facts = (
            f"{words.time(self.iteration_time)} an iteration",
            f"{words.three(self.samples_per_second)} samples/s",
            f"bottleneck: {found.bottleneck or 'none'}",
            f"{len(self.schedule.ops)} operations",
        )
        story = html.Story(self.title, facts, self.notes, found.path)
        text = html.page(self.schedule, self.timeline, rows, self._occupancy, story)
        return text if path is None else html.write(path, text)

    def __repr__(self) -> str:
        gpu = max((self.peak_memory[name] for name in self.server.gpus), default=0)
        return (
            f"Run({self.schedule.name} of {self.schedule.model} on {self.server.name}: "
            f"{self.iteration_time:.4g} s, {self.samples_per_second:.4g} samples/s, "
            f"peak {gpu / 1e9:.3g} GB a GPU, swap {self.swap_bytes / 1e9:.4g} GB, "
            f"bottleneck {self.explain().bottleneck or 'none'})"
        )

    def _repr_html_(self) -> str:
        gpus = {name: self.peak_memory[name] / 1e9 for name in self.server.gpus}
        split = self._split.values()
        busy = sum(parts["compute"] for parts in split) / max(len(self._split), 1)
        rows = {
            "iteration time": f"{self.iteration_time:.4g} s",
            "throughput": f"{self.samples_per_second:.4g} samples/s, "
            f"{self.tokens_per_second:.4g} tokens/s",
            "computing": f"{busy / (self.duration or 1):.0%} of the time, mean of the GPUs",
            "peak GPU memory": f"{max(gpus.values(), default=0.0):.3g} GB",
            "swap volume": f"{self.swap_bytes / 1e9:.4g} GB",
            "bottleneck": self.explain().bottleneck or "none",
            "share of bound": f"{self.explain().share_of_bound:.0%}",
        }
        body = "".join(
            f"<tr><th style='text-align:left'>{escape(name)}</th>"
            f"<td style='text-align:left'>{escape(text)}</td></tr>"
            for name, text in rows.items()
        )
        return f"<b>{escape(self.title)}</b><table>{body}</table>"
