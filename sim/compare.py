"""Replay several schedules on several servers and say which wins, by how much, and why."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hwmodels.catalog import server as named_server
from hwmodels.errors import CommodiousError, DoesNotFit, InvalidInput
from hwmodels.server import Server
from sim import verdict
from sim.run import Run, simulate
from workloads.model import Model
from workloads.models.named import model as named_model
from workloads.schedules.catalog import schedule, schedule_info, schedule_infos

if TYPE_CHECKING:
    from pandas import DataFrame

    from sim.picture import Picture

Progress = Callable[[int, int, str], None]


@dataclass(frozen=True, slots=True)
class Result:
    """One cell of a comparison: a schedule on a server.

    Attributes
    ----------
    server, schedule : str
        Names; a second server of the same name is called ``name #2``.
    fits : bool
        Whether it ran.
    note : str
        ``does not fit: ...`` or what else kept it from running; empty if it ran.
    microbatch : int
        Samples per microbatch (the schedule's choice, if the caller left it open).
    iteration_time : float
        Seconds.
    samples_per_second, tokens_per_second : float
        Throughput of the whole server.
    peak_gpu_memory, host_memory : int
        Most bytes in use on the fullest GPU, and on all host memories together.
    swap_bytes, peer_bytes : int
        Bytes between GPUs and host memory, and between GPUs.
    share_of_bound : float
        Best lower bound over iteration time.
    bound : str
        Name of that bound.
    bottleneck : str
        Resource with the largest part of the critical path.
    compute_share : float
        Mean share of the iteration time in which a GPU computes.
    remarks : tuple of str
        What the reader must know of this run (``Run.notes``).
    """

    server: str
    schedule: str
    fits: bool = False
    note: str = ""
    microbatch: int = 0
    iteration_time: float = 0.0
    samples_per_second: float = 0.0
    tokens_per_second: float = 0.0
    peak_gpu_memory: int = 0
    host_memory: int = 0
    swap_bytes: int = 0
    peer_bytes: int = 0
    share_of_bound: float = 0.0
    bound: str = ""
    bottleneck: str = ""
    compute_share: float = 0.0
    remarks: tuple[str, ...] = ()


@dataclass(frozen=True, repr=False)
class Comparison:
    """Results of schedules on servers.

    Attributes
    ----------
    model : str
        Name of the model.
    minibatch : int
        Samples per iteration.
    results : tuple of Result
        By server, as given; on each server the fastest first, then what did not run.
    complete : bool
        False if the caller interrupted it; the results so far are kept.
    """

    model: str
    minibatch: int
    results: tuple[Result, ...]
    complete: bool = True

    @property
    def table(self) -> DataFrame:
        """One row per server and schedule, units in the names of the columns; 1 GB is 1e9 bytes.

        Cells of what did not run are missing values; ``note`` says why.
        """
        from pandas import DataFrame

        return DataFrame([_row(result) for result in self.results], columns=list(_COLUMNS))

    @property
    def best(self) -> Result | None:
        """Fastest result on any server; None if nothing ran."""
        ran = [result for result in self.results if result.fits]
        return min(ran, key=lambda result: result.iteration_time, default=None)

    @property
    def notes(self) -> tuple[str, ...]:
        """What the reader must know of the runs: estimates and choices, each once."""
        return tuple(dict.fromkeys(note for result in self.results for note in result.remarks))

    def why(self) -> str:
        """Say which schedule wins on each server, by how much, and why: a line for each."""
        return verdict.why(self.results, self.minibatch, self.model)

    def plot(self, path: str | Path | None = None) -> Picture:
        """Draw the iteration times; write to a .png, .pdf or .svg if a path is given."""
        from sim import plot_compare

        title = f"{self.model} · minibatch {self.minibatch}"
        return plot_compare.comparison(self.results, title, path)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON; times in seconds, sizes in bytes."""
        best = self.best
        return {
            "model": self.model,
            "minibatch": self.minibatch,
            "complete": self.complete,
            "results": [asdict(result) for result in self.results],
            "best": None if best is None else {"server": best.server, "schedule": best.schedule},
            "why": self.why(),
            "notes": list(self.notes),
        }

    def __repr__(self) -> str:
        lines = [f"Comparison of {self.model} at minibatch {self.minibatch}"]
        for result in self.results:
            what = f"{result.iteration_time:.4g} s" if result.fits else result.note
            lines.append(f"  {result.server}  {result.schedule}  {what}")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        html = self.table.to_html(index=False, na_rep="", float_format="{:.4g}".format)
        said = [*self.why().splitlines(), *(f"Note: {note}" for note in self.notes)]
        return html + "".join(f"<p>{escape(line)}</p>" for line in said)


_COLUMNS = (
    "server", "schedule", "microbatch", "iteration time s", "samples/s", "tokens/s",
    "peak GPU memory GB", "host memory GB", "swap GB", "share of bound", "bottleneck", "note",
)  # fmt: skip


def _row(result: Result) -> dict[str, Any]:
    if not result.fits:
        return {"server": result.server, "schedule": result.schedule, "note": result.note}
    return {
        "server": result.server,
        "schedule": result.schedule,
        "microbatch": result.microbatch,
        "iteration time s": result.iteration_time,
        "samples/s": result.samples_per_second,
        "tokens/s": result.tokens_per_second,
        "peak GPU memory GB": result.peak_gpu_memory / 1e9,
        "host memory GB": result.host_memory / 1e9,
        "swap GB": result.swap_bytes / 1e9,
        "share of bound": result.share_of_bound,
        "bottleneck": result.bottleneck,
        "note": "",
    }


def compare(
    model: Model | str,
    servers: Server | str | Sequence[Server | str],
    minibatch: int,
    microbatch: int | None = None,
    schedules: str | Sequence[str] | None = None,
    progress: Progress | None = None,
) -> Comparison:
    """Replay schedules on servers.

    A combination that cannot run (it does not fit, or sizes do not divide) becomes a row with the
    reason; an interrupt (Ctrl-C) returns the results so far.

    Parameters
    ----------
    model : Model or str
        A model or the name of one.
    servers : Server or str, or a sequence of them
        Servers or their names.
    minibatch : int
        Samples per iteration on the whole server.
    microbatch : int, optional
        Samples per microbatch; by default each schedule takes the largest that fits.
    schedules : str or sequence of str, optional
        Names; ``all`` is every one, and the default leaves out most variants of pipelines
        (``ScheduleInfo.usual``).
    progress : callable, optional
        Called as ``progress(done, total, label)`` before each combination and at the end.

    Returns
    -------
    Comparison

    Raises
    ------
    UnknownName
        If a schedule does not exist.
    InvalidInput
        If there is no server or the minibatch is not positive.

    Examples
    --------
    >>> import hwmodels, workloads, sim
    >>> boxes = [hwmodels.server("pcie-4u-4x1080ti"), hwmodels.server("dgx-1")]
    >>> found = sim.compare(workloads.model("gpt2-xl"), boxes, minibatch=64)  # doctest: +SKIP
    >>> found.table, found.why()  # doctest: +SKIP
    """
    if isinstance(model, str):
        model = named_model(model)
    given = [servers] if isinstance(servers, Server | str) else list(servers)
    boxes = [named_server(box) if isinstance(box, str) else box for box in given]
    if not boxes:
        raise InvalidInput("there is no server to compare on; give at least one")
    if type(minibatch) is not int:
        raise InvalidInput(f"minibatch is {minibatch!r}; it must be a whole number of samples")
    if minibatch < 1:
        raise InvalidInput(f"minibatch is {minibatch}; it must be at least 1")
    names = _names([schedules] if isinstance(schedules, str) else schedules)
    cells = [(label, box, name) for label, box in _labels(boxes) for name in names]
    results: list[Result] = []
    complete = True
    try:
        for done, (label, box, name) in enumerate(cells):
            if progress is not None:
                progress(done, len(cells), f"{name} on {label}")
            results.append(_result(label, name, model, box, minibatch, microbatch))
    except KeyboardInterrupt:
        complete = False
    if progress is not None:
        progress(len(results), len(cells), "")
    order = {label: at for at, (label, _) in enumerate(_labels(boxes))}
    results.sort(key=lambda r: (order[r.server], not r.fits, r.iteration_time, r.schedule))
    return Comparison(model.name, minibatch, tuple(results), complete)


def _names(wanted: Sequence[str] | None) -> list[str]:
    """Names of the schedules to compare."""
    if wanted is None:
        return [info.name for info in schedule_infos() if info.usual]
    if "all" in wanted:
        return [info.name for info in schedule_infos()]
    return [schedule_info(name).name for name in dict.fromkeys(wanted)]


def _labels(boxes: Sequence[Server]) -> list[tuple[str, Server]]:
    """Servers under different names."""
    seen: dict[str, int] = {}
    found: list[tuple[str, Server]] = []
    for box in boxes:
        seen[box.name] = seen.get(box.name, 0) + 1
        number = seen[box.name]
        found.append((box.name if number == 1 else f"{box.name} #{number}", box))
    return found


def _result(
    label: str, name: str, model: Model, box: Server, minibatch: int, microbatch: int | None
) -> Result:
    try:
        for gpu in box.gpus:  # before planning: the wrong number format is not a lack of memory
            box.gpu(gpu).peak(model.precision.compute)
        plan = schedule(name, model, box, minibatch=minibatch, microbatch=microbatch)
        return measure(label, simulate(plan, box))
    except DoesNotFit as error:
        text = str(error)
        note = text if text.startswith("does not fit") else f"does not fit: {text}"
        return Result(label, name, note=note)
    except CommodiousError as error:
        return Result(label, name, note=str(error))


def measure(label: str, run: Run) -> Result:
    """Reduce a run to a row; ``label`` names the server."""
    peak, gpus = run.peak_memory, run.server.gpus
    found = run.explain()
    split = run.time_split_seconds
    computing = sum(parts["compute"] for parts in split.values()) / max(len(split), 1)
    return Result(
        server=label,
        schedule=run.schedule.name,
        fits=True,
        microbatch=run.schedule.microbatch,
        iteration_time=run.iteration_time,
        samples_per_second=run.samples_per_second,
        tokens_per_second=run.tokens_per_second,
        peak_gpu_memory=max((peak[gpu] for gpu in gpus if gpu in peak), default=0),
        host_memory=sum(count for device, count in peak.items() if device not in gpus),
        swap_bytes=run.swap_bytes,
        peer_bytes=run.peer_bytes,
        share_of_bound=found.share_of_bound,
        bound=found.bounds[0].name,
        bottleneck=found.bottleneck,
        compute_share=computing / run.iteration_time if run.iteration_time else 0.0,
        remarks=run.notes,
    )
