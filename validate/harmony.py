"""Harmony's own schedules: our times beside its estimates and its one measured run.

``published/harmony_schedules.json`` holds the 60 schedules behind the figures of the Harmony
papers (packs, microbatches, what Harmony's simulator says of them) and the one measured
iteration. ``python -m validate.harmony`` prints the table.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import hwmodels
import sim
import workloads
from hwmodels.server import Server
from workloads.schedule import Schedule

_FILE = Path(__file__).parent / "published" / "harmony_schedules.json"


@dataclass(frozen=True, slots=True)
class Case:
    """One schedule that Harmony shipped, and what its own simulator says of it.

    Attributes
    ----------
    model, mode : str
        Name of the profiled model; ``harmony-dp`` or ``harmony-pp``.
    gpus, minibatch, u_forward, u_backward : int
    packs_forward, packs_backward : str
        Packs as ``first-last`` layers.
    figures : str
        Figures of the papers whose scripts run it.
    estimate_s, estimate_no_prefetch_s, free_links_s : float
        Harmony's iteration time in seconds with and without overlap of copies, and with free
        transfers.
    weights_in_bytes, gradients_out_bytes : int
        Bytes on the ranks that Harmony's simulator plays (buffers included).
    ranks_counted : int
        How many ranks those are: 1 under data parallel.
    """

    model: str
    mode: str
    gpus: int
    minibatch: int
    u_forward: int
    u_backward: int
    packs_forward: str
    packs_backward: str
    figures: str
    estimate_s: float
    estimate_no_prefetch_s: float
    free_links_s: float
    weights_in_bytes: int
    gradients_out_bytes: int
    ranks_counted: int


@cache
def _published() -> dict[str, Any]:
    return json.loads(_FILE.read_text())


def cases() -> tuple[Case, ...]:
    """Every schedule behind a figure of the Harmony papers."""
    return tuple(Case(**row) for row in _published()["schedules"])


def measured() -> dict[str, Any]:
    """Give the one measured iteration: its schedule, seconds and source."""
    return _published()["measured"]


def server(case: Case, *, free_links: bool = False) -> Server:
    """Harmony's server with as many GPUs as the case uses; optionally links that take no time."""
    found = hwmodels.server("pcie-4u-8x1080ti" if case.gpus > 4 else "pcie-4u-4x1080ti")
    parts = found.parts
    gone = {slot.name for slot in parts.gpus[case.gpus :]}
    kept = replace(
        parts,
        gpus=parts.gpus[: case.gpus],
        links=tuple(link for link in parts.links if gone.isdisjoint(link.ends)),
    )
    found = Server(kept)
    return found.unlimited() if free_links else found


def schedule(case: Case, box: Server) -> Schedule:
    """Build the case's schedule with its own packs; the optimizer runs on the CPU as in Harmony."""
    return workloads.schedule(
        case.mode,
        workloads.model(case.model),
        box,
        minibatch=case.minibatch,
        microbatch=case.u_forward,
        microbatch_backward=case.u_backward,
        packs_forward=case.packs_forward,
        packs_backward=case.packs_backward,
        update="cpu",
    )


def table() -> Iterator[str]:
    """Give one line a schedule: Harmony's estimates, ours, and the measured run."""
    run_of = measured()
    yield (
        f"{'model':<28} {'mode':<10} {'N':>2} {'D':>5} {'u F/B':>8}  {'Harmony':>8} {'ours':>8} "
        f"{'ratio':>6}  {'free links':>10} {'ours':>8}  {'bottleneck':<14} measured"
    )
    for case in cases():
        box = server(case)
        run = sim.simulate(schedule(case, box), box)
        ideal = server(case, free_links=True)
        free = sim.simulate(schedule(case, ideal), ideal).iteration_time
        is_measured = all(
            getattr(case, key) == run_of[key]
            for key in ("model", "mode", "gpus", "minibatch", "u_forward")
        )
        seen = f"{run_of['iteration_s']:.1f} s" if is_measured else ""
        sizes = f"{case.u_forward}/{case.u_backward}"
        yield (
            f"{case.model:<28} {case.mode:<10} {case.gpus:>2} {case.minibatch:>5} {sizes:>8}  "
            f"{case.estimate_s:>8.2f} {run.iteration_time:>8.2f} "
            f"{run.iteration_time / case.estimate_s:>6.3f}  {case.free_links_s:>10.2f} "
            f"{free:>8.2f}  {run.explain().bottleneck:<14} {seen}"
        )


if __name__ == "__main__":
    print("Iteration times in s on the server of the Harmony papers, by Harmony and by us.")
    for line in table():
        print(line, flush=True)
