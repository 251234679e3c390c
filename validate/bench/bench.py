"""All micro-benchmarks of a machine within a budget of time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, NamedTuple

from hwmodels.compute import Phase
from hwmodels.errors import InvalidInput
from sim.words import size
from validate import plan as plans
from validate.bench import collectives, compute, copies, updates
from validate.bench.layers import Case, cases
from validate.bench.machine import machine as describe
from validate.bench.timing import alone
from validate.devices import COLLECTIVES, Devices, devices
from validate.measurements import (
    Collective,
    Compute,
    Copies,
    HostUpdate,
    Machine,
    Measurements,
)
from validate.plan import Pattern

if TYPE_CHECKING:
    from torch import Tensor, nn

Progress = Callable[[int, int, str], None]
"""Called before each measurement: how many are done, of how many, what comes next."""


class Chain(NamedTuple):
    """A network to measure.

    Attributes
    ----------
    layers : sequence of Module
        ``x = layer(x)``, the last ``layer(x, target)`` with the mean loss.
    example : sequence of Tensor
        Input of the first layer, and the target; samples first.
    """

    layers: Sequence[nn.Module]
    example: Sequence[Tensor]


class Launch(NamedTuple):
    """Seconds of one small operation on a GPU."""

    gpu: str
    seconds: float


Record = Copies | Collective | Compute | HostUpdate | Launch


class Task(NamedTuple):
    """A measurement to make: what it is called, and how to make it until a reading of the clock."""

    label: str
    measure: Callable[[float], Record]


def bench(
    device: str = "cpu",
    gpus: int = 1,
    networks: Sequence[Chain] | None = None,
    *,
    microbatches: Sequence[int] = (1, 2, 4),
    plan: Callable[[Machine], Iterable[Pattern]] = plans.plan,
    budget_seconds: float = 60.0,
    progress: Progress | None = None,
) -> Measurements:
    """Measure a machine.

    Ctrl-C ends it early: what is measured by then is returned, and ``left_out`` names the rest
    (before the first measurement there is nothing to return, and the interrupt is raised).
    What fails (a microbatch that does not fit) is left out too, with the reason.

    Parameters
    ----------
    device : str
        ``cuda`` for real GPUs, ``cpu`` for logical ones that are threads of this machine.
    gpus : int
        How many; the first ones that torch sees. Set ``CUDA_DEVICE_ORDER=PCI_BUS_ID`` to count
        them as ``nvidia-smi`` does.
    networks : sequence of Chain, optional
        Whose layers to measure; by default a small GPT.
    microbatches : sequence of int
        Samples of a call; the largest is used beside copies and collectives.
    plan : callable
        Copies to measure on the machine that it is given.
    budget_seconds : float
        Shared by all measurements. A measurement makes at least five repeats, so a very short
        budget is exceeded.
    progress : callable, optional
        Called before each measurement.

    Raises
    ------
    InvalidInput
        If the devices are not there, two networks name different layers alike, or nothing is to
        be measured.
    """
    if not microbatches or min(microbatches) < 1:
        raise InvalidInput(f"microbatches are {tuple(microbatches)}; give sizes of at least 1.")
    end = perf_counter() + budget_seconds
    with closing(devices(device, gpus)) as found:
        about = describe(found)
        chosen = [_usual(found)] if networks is None else networks
        made = [
            case
            for gpu in _kinds(about)
            for samples in sorted(set(microbatches))
            for case in _cases(chosen, samples, found, gpu)
        ]
        found.synchronize()
        # Page-locked or not is one and the same on logical devices.
        wanted = [each for each in plan(about) if each.pinned or found.kind == "cuda"]
        shared = copies.rig(found, about, wanted)
        # Long ones first: what they take beyond their share, short ones make up for.
        tasks = (
            *_updates(shared),
            *_compute(shared, made),
            *_collectives(found),
            *(Task(_label(each), partial(copies.measure, shared, each)) for each in wanted),
            *_launches(found),
        )
        records, left_out = _run(tasks, end, progress)
    return _gather(about, records, left_out)


def layer_records(
    device: str, gpus: int, chain: Chain, microbatch: int, budget_seconds: float = 3.0
) -> tuple[Compute, ...]:
    """Measure the layers of one network alone, on the first GPU, and nothing else.

    Parameters
    ----------
    device, gpus
        As `bench` takes them.
    chain : Chain
    microbatch : int
        Samples of a call.
    budget_seconds : float

    Raises
    ------
    KeyboardInterrupt
        On Ctrl-C: without all layers there is nothing to keep.
    """
    end = perf_counter() + budget_seconds
    with closing(devices(device, gpus)) as found:
        about = describe(found)
        made = _cases([chain], microbatch, found, found.gpus[0])
        found.synchronize()
        shared = copies.rig(found, about, ())
        tasks = [
            Task(f"{case.row} {phase}", partial(compute.measure, shared, case, phase, ""))
            for case in made
            for phase in compute.phases(case)
        ]
        records, left_out = _run(tasks, end, None)
    if left_out:
        raise KeyboardInterrupt
    return tuple(record for record in records if isinstance(record, Compute))


def _kinds(about: Machine) -> list[str]:
    """Give the first GPU of each kind: others of the kind compute alike."""
    return [gpu for i, gpu in enumerate(about.gpus) if about.models[i] not in about.models[:i]]


def _cases(networks: Sequence[Chain], samples: int, where: Devices, gpu: str) -> list[Case]:
    """Distinct layers of all networks."""
    found = [case for chain in networks for case in cases(*chain, samples, where, gpu)]
    rows = [case.row for case in found]
    twice = next((row for row in rows if rows.count(row) > 1), None)
    if twice is not None:
        raise InvalidInput(f"two networks have a layer {twice!r}; measure them one by one.")
    return found


def _usual(found: Devices) -> Chain:
    """Give a GPT of two blocks: small for one thread of a CPU, larger for a GPU."""
    from validate.nets import gpt, text

    if found.kind == "cpu":
        return Chain(gpt(), text(4))
    return Chain(gpt(hidden=2048, heads=16, vocab=32768, tokens=1024), text(4, 1024, 32768))


def _run(
    tasks: Sequence[Task], end: float, progress: Progress | None
) -> tuple[list[Record], list[str]]:
    """Measure one after another; each gets its share of the time that is left."""
    records: list[Record] = []
    left_out: list[str] = []
    for index, task in enumerate(tasks):
        now = perf_counter()
        until = now + max(0.0, end - now) / (len(tasks) - index)
        try:
            if progress is not None:
                progress(index, len(tasks), task.label)
            records.append(task.measure(until))
        except KeyboardInterrupt:
            left_out += [f"{left.label}: interrupted" for left in tasks[index:]]
            break
        except (RuntimeError, MemoryError) as error:  # torch: out of memory, no peer access ...
            reason = str(error).partition("\n")[0] or type(error).__name__
            left_out.append(f"{task.label}: {reason}")
    return records, left_out


def _gather(about: Machine, records: Sequence[Record], left_out: Sequence[str]) -> Measurements:
    return Measurements(
        machine=about,
        copies=tuple(record for record in records if isinstance(record, Copies)),
        collectives=tuple(record for record in records if isinstance(record, Collective)),
        compute=tuple(record for record in records if isinstance(record, Compute)),
        updates=tuple(record for record in records if isinstance(record, HostUpdate)),
        launch={x.gpu: x.seconds for x in records if isinstance(x, Launch)},
        left_out=tuple(left_out),
    )


def _label(pattern: Pattern) -> str:
    flows = ", ".join(f"{source} to {target}" for source, target in pattern.flows)
    return f"copy {flows}, {size(pattern.nbytes)}"


def _collectives(found: Devices) -> Iterator[Task]:
    if len(found.gpus) == 1:
        return
    for kind in COLLECTIVES:
        for nbytes in collectives.SIZES:
            yield Task(f"{kind}, {size(nbytes)}", partial(collectives.measure, found, kind, nbytes))


def _compute(rig: copies.Rig, made: Sequence[Case]) -> Iterator[Task]:
    """Phases by microbatch, then the largest microbatch beside copies and a collective."""

    def task(case: Case, phase: Phase, beside: compute.Beside = "") -> Task:
        label = f"{case.row} {phase} of {case.samples}" + (f" beside {beside}" if beside else "")
        return Task(label, partial(compute.measure, rig, case, phase, beside))

    for case in made:
        for phase in compute.phases(case):
            yield task(case, phase)
    others: list[compute.Beside] = ["copies"]
    if len(rig.machine.gpus) > 1:
        others.append("collective")
    largest = max(case.samples for case in made)
    for case in (case for case in made if case.samples == largest):
        for phase in ("forward", "backward"):
            if phase in compute.phases(case):
                for beside in others:
                    yield task(case, phase, beside)
        if compute.params(case):
            yield task(case, "update")
            yield task(case, "update", "copies")


def _updates(rig: copies.Rig) -> Iterator[Task]:
    for step in plans.steps(rig.machine):
        label = f"optimizer step of size {step.scale} on {', '.join(step.hosts)}"
        label += f" beside {step.beside}" if step.beside else ""
        yield Task(label, partial(updates.measure, rig, step))


def _launches(found: Devices) -> Iterator[Task]:
    for gpu in found.gpus:
        yield Task(f"launch on {gpu}", partial(_launch, found, gpu))


def _launch(found: Devices, gpu: str, until: float) -> Launch:
    """Add one to one number: nothing but the launch."""
    import torch

    with closing(found.stream(gpu)) as stream:
        one = torch.ones(1, device=found.place(gpu))
        found.synchronize()
        return Launch(gpu, alone((stream, partial(one.add_, 1)), until).seconds[0])
