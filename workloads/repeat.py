"""Several iterations of a schedule laid end to end, with a barrier between them."""

from __future__ import annotations

from dataclasses import replace

from hwmodels.errors import DoesNotFit, InvalidInput
from workloads.schedule import Grant, Op, Place, Schedule, Tensor


def repeat(schedule: Schedule, iterations: int) -> Schedule:
    """Lay iterations of a synchronous schedule end to end.

    Every iteration starts when the one before has ended on all devices (the flush that
    synchronous training has anyway). Each has its own input batch, which waits in host memory.

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
    DoesNotFit
        If host memory has no room for all input batches.
    """
    if iterations < 1 or schedule.iterations > 1:
        raise InvalidInput(
            f"cannot lay {iterations} iterations of a schedule of {schedule.iterations}; take one "
            "iteration and repeat it at least once"
        )
    inputs = [place for place in schedule.initial if place not in set(schedule.final)]
    tensors = list(schedule.tensors)
    initial = list(schedule.initial)
    grants = list(schedule.grants)
    ops = list(schedule.ops)
    heads = _heads(schedule)
    tails = _tails(schedule)
    for _ in range(1, iterations):
        offset = len(ops) + 1
        ops.append(_barrier(len(ops), ops, tails, offset - len(schedule.ops) - 1))
        renamed = _own_inputs(inputs, tensors, initial, grants)
        for op in schedule.ops:
            moved = _moved(op, offset, renamed)
            if op.id in heads:
                moved = moved._replace(after=(offset - 1, *moved.after))
            ops.append(moved)
        for grant in schedule.grants:
            if grant.alloc >= 0:
                source = grant.source + offset if grant.source >= 0 else offset - 1
                grants.append(Grant(grant.alloc + offset, grant.device, source, grant.nbytes))
    found = replace(
        schedule,
        ops=tuple(ops),
        tensors=tuple(tensors),
        initial=tuple(initial),
        grants=tuple(grants),
        iterations=iterations,
    )
    _check_hosts(found)
    return found


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


def _barrier(place: int, ops: list[Op], tails: list[int], offset: int) -> Op:
    after = tuple(sorted(tail + offset for tail in tails))
    return Op(place, "free", "", after, ops[-1].device, "barrier")


def _own_inputs(
    inputs: list[Place], tensors: list[Tensor], initial: list[Place], grants: list[Grant]
) -> dict[int, int]:
    """Add the inputs of one more iteration; returns old id to new id."""
    renamed: dict[int, int] = {}
    for tensor, device in inputs:
        fresh = tensors[tensor]._replace(id=len(tensors))
        renamed[tensor] = fresh.id
        tensors.append(fresh)
        initial.append((fresh.id, device))
        grants.append(Grant(-1, device, -1, fresh.nbytes))
    return renamed


def _moved(op: Op, offset: int, renamed: dict[int, int]) -> Op:
    """Shift ids; change tensors only in the few ops that touch inputs."""
    after = tuple(before + offset for before in op.after)
    if renamed.keys().isdisjoint(op.reads) and not any(t in renamed for t, _ in op.frees):
        return op._replace(id=op.id + offset, after=after)
    return op._replace(
        id=op.id + offset,
        after=after,
        reads=tuple(renamed.get(tensor, tensor) for tensor in op.reads),
        allocs=tuple((renamed.get(tensor, tensor), device) for tensor, device in op.allocs),
        frees=tuple((renamed.get(tensor, tensor), device) for tensor, device in op.frees),
    )


def _check_hosts(schedule: Schedule) -> None:
    taken: dict[str, int] = {}
    for grant in schedule.grants:
        if grant.source == -1:
            taken[grant.device] = taken.get(grant.device, 0) + grant.nbytes
    for device, nbytes in taken.items():
        if nbytes > schedule.capacity[device]:
            raise DoesNotFit(
                f"does not fit: {device} has {schedule.capacity[device] / 1e9:.2f} GB usable but "
                f"{schedule.iterations} input batches need {nbytes / 1e9:.2f} GB there"
            )
