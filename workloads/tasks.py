"""Tasks: steps of work before residency is decided, and the weights that they move together."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from hwmodels.compute import Work
from workloads.model import Model, Weight
from workloads.schedule import Kind

Pack = tuple[int, int]
"""First and last layer of a pack, inclusive."""

Span = tuple[int, int]
"""Samples of the minibatch, half open."""


class Task(NamedTuple):
    """One step of work before residency is decided.

    Attributes
    ----------
    kind : str
        ``compute``, ``collective`` or ``host``.
    device : str
        GPU; the first of ``group`` for a collective. The planner finds the host of a host task.
    phase : str
        As in ``Op``.
    layers, span : (int, int)
        As in ``Op``.
    reads, writes : tuple of int
        Tensor ids; a tensor that is only written is created here.
    visit : int
        Tasks of one device with the same visit belong together (all microbatches of a pack).
    work : Work or None
        For compute and host tasks.
    workspace : int
        Bytes of scratch memory while the task runs.
    nbytes : int
        Buffer size of a collective; memory traffic of a host update.
    group : tuple of str
        GPUs of a collective; the GPU whose CPU worker runs a host task.
    joined : bool
        Runs as one with the next task, which is the next of its device too: what it writes is
        handed on when the last of the joined tasks has ended.
    """

    kind: Kind
    device: str
    phase: str
    layers: Pack
    span: Span
    reads: tuple[int, ...]
    writes: tuple[int, ...]
    visit: int = 0
    work: Work | None = None
    workspace: int = 0
    nbytes: int = 0
    group: tuple[str, ...] = ()
    joined: bool = False


@dataclass(frozen=True, slots=True)
class Unit:
    """Weights that always move together: one run of layers that no pack boundary cuts.

    Attributes
    ----------
    name : str
        First layer of the run (or the name of a block that several layers share).
    weights : tuple of Weight
        Blocks in the unit.
    layers : Pack
        The run; for a shared block, the first and last layer that read it.
    """

    name: str
    weights: tuple[Weight, ...]
    layers: Pack


def units(model: Model, cuts: Iterable[int]) -> tuple[tuple[Unit, ...], list[tuple[int, ...]]]:
    """Group the model's weights into units.

    Parameters
    ----------
    model : Model
    cuts : iterable of int
        Layers at which some pack starts.

    Returns
    -------
    units : tuple of Unit
    used : list of tuple of int
        For each layer the units that it reads.
    """
    starts = sorted({0, *cuts} - {len(model.layers)})
    readers: dict[str, list[int]] = {}
    for index, layer in enumerate(model.layers):
        for weight in layer.weights:
            readers.setdefault(weight.name, []).append(index)
    found: list[Unit] = []
    used: list[list[int]] = [[] for _ in model.layers]
    for first, stop in zip(starts, [*starts[1:], len(model.layers)], strict=True):
        own: list[Weight] = []
        for index in range(first, stop):
            for weight in model.layers[index].weights:
                layers = readers[weight.name]
                if layers[-1] < stop and layers[0] >= first:
                    if index == layers[0]:
                        own.append(weight)
                elif index == layers[0]:
                    for reader in layers:
                        used[reader].append(len(found))
                    found.append(Unit(weight.name, (weight,), (layers[0], layers[-1])))
        if own:
            for index in range(first, stop):
                used[index].append(len(found))
            found.append(Unit(model.layers[first].name, tuple(own), (first, stop - 1)))
    return tuple(found), [tuple(entry) for entry in used]


def split(total: Span, size: int) -> tuple[Span, ...]:
    """Cut a span into microbatches of ``size`` samples; the last one may be smaller."""
    low, high = total
    return tuple((start, min(start + size, high)) for start in range(low, high, size))
