"""Several iterations of a schedule laid end to end, with a barrier between them."""

from __future__ import annotations

from dataclasses import replace

from hwmodels.errors import InvalidInput
from workloads.no_gc import no_gc
from workloads.schedule import NEW, Op, Place, Schedule, Tensor


def repeat(schedule: Schedule, iterations: int) -> Schedule:
    """Lay iterations of a synchronous schedule end to end.

    Every iteration starts when the one before has ended on all devices (the flush that
    synchronous training has anyway). The barrier then puts the next input batch in host memory.

    Parameters
    ----------
    schedule : Schedule
        One iteration.
    iterations : int
        How many, at least 1.

    Raises
    ------
    InvalidInput
        If ``iterations`` is less than 1 or the schedule already has several.
    """
    if iterations < 1 or schedule.iterations > 1:
        raise InvalidInput(
            f"cannot lay {iterations} iterations of a schedule of {schedule.iterations}; take one "
            "iteration and repeat it at least once"
        )
    inputs = [place for place in schedule.initial if place not in set(schedule.final)]
    tensors = list(schedule.tensors)
    ops = list(schedule.ops)
    heads = _heads(schedule)
    tails = _tails(schedule)
    touching = _touching(schedule, {tensor for tensor, _ in inputs})
    rows = [(op.id, op[1:3], op.after, op[4:]) for op in schedule.ops]
    with no_gc():
        for _ in range(1, iterations):
            offset = len(ops) + 1
            after = tuple(sorted(tail + offset - len(schedule.ops) - 1 for tail in tails))
            renamed = _own_inputs(inputs, tensors)
            ops.append(_barrier(offset - 1, after, inputs, renamed))
            ops += [
                NEW(Op, (i + offset, *what, tuple([b + offset for b in waits]), *rest))
                for i, what, waits, rest in rows
            ]
            for i in heads:
                ops[i + offset] = ops[i + offset]._replace(
                    after=(offset - 1, *ops[i + offset].after)
                )
            for i in touching:
                ops[i + offset] = _with_inputs(ops[i + offset], renamed)
    return replace(schedule, ops=tuple(ops), tensors=tuple(tensors), iterations=iterations)


def _heads(schedule: Schedule) -> set[int]:
    """First op of each stream, and frees that wait for nothing."""
    first: dict[str, int] = {}
    heads: set[int] = set()
    for op in schedule.ops:
        if op.stream:
            first.setdefault(op.stream, op.id)
        elif not op.after:
            heads.add(op.id)
    return heads | set(first.values())


def _tails(schedule: Schedule) -> list[int]:
    """Last op of each stream."""
    return list({op.stream: op.id for op in schedule.ops if op.stream}.values())


def _barrier(
    place: int, after: tuple[int, ...], inputs: list[Place], renamed: dict[int, int]
) -> Op:
    """Wait for everything before; the next input batch takes its room in host memory here."""
    allocs = tuple((renamed[tensor], device) for tensor, device in inputs)
    return Op(place, "free", "", after, inputs[0][1] if inputs else "", "barrier", allocs=allocs)


def _own_inputs(inputs: list[Place], tensors: list[Tensor]) -> dict[int, int]:
    """Add the inputs of one more iteration; returns old id to new id."""
    renamed: dict[int, int] = {}
    for tensor, _ in inputs:
        renamed[tensor] = len(tensors)
        tensors.append(tensors[tensor]._replace(id=len(tensors)))
    return renamed


def _touching(schedule: Schedule, inputs: set[int]) -> set[int]:
    """Ops that name an input batch."""
    return {
        op.id
        for op in schedule.ops
        if not inputs.isdisjoint(op.reads)
        or any(tensor in inputs for tensor, _ in (*op.allocs, *op.frees))
    }


def _with_inputs(op: Op, renamed: dict[int, int]) -> Op:
    return op._replace(
        reads=tuple(renamed.get(tensor, tensor) for tensor in op.reads),
        allocs=tuple((renamed.get(tensor, tensor), device) for tensor, device in op.allocs),
        frees=tuple((renamed.get(tensor, tensor), device) for tensor, device in op.frees),
    )
