"""Run a schedule for real with torch: the very object that the simulator replays."""

from __future__ import annotations

import gc
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hwmodels.errors import CommodiousError
from hwmodels.server import Server
from sim.memory import Ints
from sim.run import Run
from validate.clocks import Floats, clock
from validate.interpret import Interpreter
from validate.measured import measured_run
from validate.network import Network
from validate.optimizer import Settings
from validate.places import Places, places
from validate.start import Batch
from validate.storage import name
from validate.streams import Failure, Streams
from workloads.schedule import Op, Schedule

if TYPE_CHECKING:
    from torch import Tensor


class ExecutionFailed(CommodiousError):
    """A run for real stopped before its end.

    Attributes
    ----------
    start, end : array of float
        Seconds by op of what was measured until then; NaN for the rest.
    """

    def __init__(self, message: str, start: Floats, end: Floats) -> None:
        super().__init__(message)
        self.start = start
        self.end = end


class ExecutionInterrupted(KeyboardInterrupt):
    """A run for real was stopped by Ctrl-C; keeps ``start`` and ``end`` as `ExecutionFailed`."""

    def __init__(self, start: Floats, end: Floats) -> None:
        super().__init__(f"stopped after {_count(end)} operations")
        self.start = start
        self.end = end


@dataclass(frozen=True, repr=False, eq=False)
class Execution:
    """What a run for real leaves behind.

    Attributes
    ----------
    run : Run
        Measured times, as a simulated run has them.
    weights : mapping of str to tuple of Tensor
        Flat values of each block of weights at the end, one for each copy that the schedule keeps.
    losses : tuple of float
        Mean loss of each iteration.
    peak : mapping of str to int
        Largest number of bytes that each device held at one time.
    moved : mapping of (str, str, str) to int
        Bytes copied, by kind of tensor, source and destination.
    """

    run: Run
    weights: Mapping[str, tuple[Tensor, ...]]
    losses: tuple[float, ...]
    peak: Mapping[str, int]
    moved: Mapping[tuple[str, str, str], int]

    def __repr__(self) -> str:
        found = self.run
        return (
            f"Execution({found.schedule.name} of {found.schedule.model}: "
            f"{found.iteration_time:.4g} s measured, loss {self.losses[-1]:.4g})"
        )


def execute(
    schedule: Schedule,
    network: Network,
    batches: Sequence[Batch],
    server: Server,
    *,
    devices: Sequence[str] | None = None,
    settings: Settings | None = None,
    pinned: bool = True,
) -> Execution:
    """Run a schedule for real.

    Streams are worker threads (CUDA streams on a GPU), ``after`` edges events. Tensors lie where
    the schedule says, take the planned bytes, and are copied when it says so; the ledger refuses a
    byte more than a device may hold.

    Parameters
    ----------
    schedule : Schedule
        Of the network's model; several iterations as `workloads.repeat` lays them end to end.
    network : Network
        Layers; their parameters are the weights at the start and stay as they are.
    batches : sequence of (Tensor, Tensor)
        Input and target of each iteration, with the schedule's minibatch of samples.
    server : Server
        Describes the devices: which copies between GPUs are staged, and the links of the tables.
    devices : sequence of str, optional
        Torch device of each GPU of the schedule, such as ``cuda:0``; by default all are logical
        devices on the CPU.
    settings : Settings, optional
        Of the optimizer.
    pinned : bool
        Page-lock host memory (with CUDA devices); pageable copies hold their stream.

    Returns
    -------
    Execution

    Raises
    ------
    InvalidSchedule, InvalidInput
        If schedule, network, batches and devices do not go together.
    ExecutionFailed
        If an operation fails; names it and keeps what was measured.
    ExecutionInterrupted
        On Ctrl-C, after every stream has stopped; keeps what was measured.
    """
    schedule.check()
    machine = places(schedule, server, devices, pinned=pinned)
    interpreter = Interpreter(schedule, network, batches, settings or Settings(), machine)
    timer = clock(schedule, machine.devices)

    def perform(op: Op) -> None:
        timer.start(op)
        interpreter.begin(op)
        interpreter.act(op)
        interpreter.end(op)
        timer.end(op)

    collecting = gc.isenabled()
    gc.disable()
    try:
        failure = Streams(schedule, perform, timer.enter).run()
    except KeyboardInterrupt as error:
        raise ExecutionInterrupted(*timer.times()) from error
    finally:
        if collecting:
            gc.enable()
    start, end = timer.times()
    if failure is not None:
        raise _failed(failure, start, end) from failure.error
    return _execution(measured_run(schedule, server, start, end), interpreter)


def replay(
    schedule: Schedule,
    network: Network,
    batches: Sequence[Batch],
    sequence: Ints,
    *,
    settings: Settings | None = None,
) -> Interpreter:
    """Run a schedule for real on the CPU, one operation at a time, in the order of a run.

    Repeatable to the last bit, and its ledger sees what the run's ledger saw.

    Parameters
    ----------
    schedule, network, batches, settings
        As in `execute`.
    sequence : array of int
        Starts (as ``~op``) and ends (as ``op``), such as a simulated run's ``timeline.sequence``.

    Returns
    -------
    Interpreter
        With storage and losses.
    """
    import torch

    machine = Places(dict.fromkeys(schedule.capacity, torch.device("cpu")), frozenset(), False)
    found = Interpreter(schedule, network, batches, settings or Settings(), machine)
    for item in sequence.tolist():
        if item < 0:
            found.begin(schedule.ops[~item])
        else:
            found.act(schedule.ops[item])
            found.end(schedule.ops[item])
    return found


def _count(end: Floats) -> int:
    """Operations that have ended."""
    return int((end == end).sum())


def _failed(failure: Failure, start: Floats, end: Floats) -> ExecutionFailed:
    what = str(failure.error) or type(failure.error).__name__
    mark = name(failure.op)
    text = what if what.startswith(mark) else f"{mark} failed: {what}"
    return ExecutionFailed(f"{text}; {_count(end)} operations were measured before", start, end)


def _execution(run: Run, interpreter: Interpreter) -> Execution:
    storage = interpreter.storage
    return Execution(
        run,
        interpreter.weights(),
        interpreter.mean_losses(),
        dict(storage.peak),
        dict(storage.moved),
    )
