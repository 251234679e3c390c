"""Every schedule by name."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from contextlib import suppress
from functools import partial

from hwmodels.errors import DoesNotFit, InvalidInput, UnknownName
from hwmodels.server import Server
from workloads.model import Model
from workloads.no_gc import no_gc
from workloads.residency import pager
from workloads.residency.resident import RESIDENT
from workloads.schedule import Schedule
from workloads.schedules import data_parallel, harmony, pipeline
from workloads.schedules.info import Job, Knob, KnobValue, ScheduleInfo
from workloads.schedules.pipeline_orders import ORDERS

_MICROBATCHES = (4, 2, 1)
"""Microbatch sizes tried, largest first, where the caller does not say (our choice)."""

_PER_STAGE = 8
"""Microbatches per stage that a pipeline should have, so that its bubble, (p - 1) / M of the ideal
time, stays below an eighth; used where the caller does not say the size (our choice)."""

_MOST_OPS = 5_000_000
"""Layers times microbatches above which a schedule is refused: it would need many gigabytes."""

_HOST_COPY = Knob(
    "exclusive", "exclusive: a swap-in destroys the host copy; keep: clean tensors are dropped",
    str, ("exclusive", "keep"),
)  # fmt: skip

_CHUNKS = Knob(2, "stages on each GPU", int)

_HARMONY: dict[str, Knob] = {
    "pack": Knob(None, "layers per pack; unset: fewest balanced packs that fit", int),
    "packs_forward": Knob(None, "forward packs such as 0-5,6-12", str),
    "packs_backward": Knob(None, "backward packs such as 0-5,6-12,13-15", str),
    "microbatch_backward": Knob(None, "backward microbatch; unset: as forward", int),
    "grouping": Knob(True, "run all microbatches of a pack in one visit", bool),
    "jit_update": Knob(True, "update a pack right after its backward", bool),
    "packing": Knob(True, "several layers a pack; off: one", bool),
    "update": Knob("gpu", "where the optimizer runs", str, ("gpu", "cpu")),
}

_WHOLE = frozenset({"dp", "gpipe", "1f1b"})
_RECOMPUTED = frozenset({"interleaved-1f1b-recompute", "zb-h1-recompute", "zb-v-recompute"})
"""Compared unasked: these families with all variants, of the newer pipelines these (our choice)."""

_PAPER = "HotOS'21, doi 10.1145/3458336.3465289"


def _data_parallel(job: Job, *, recompute: bool) -> Schedule:
    return data_parallel.build(job, RESIDENT, recompute=recompute)


def _data_parallel_pager(job: Job, *, recompute: bool, host_copy: str) -> Schedule:
    return data_parallel.build(job, pager.BY_HOST_COPY[host_copy], recompute=recompute)


def _pipeline(job: Job, *, order: str, recompute: bool, chunks: int = 2) -> Schedule:
    return pipeline.build(job, RESIDENT, order, recompute=recompute, chunks=chunks)


def _pipeline_pager(
    job: Job, *, order: str, recompute: bool, host_copy: str, chunks: int = 2
) -> Schedule:
    policy = pager.BY_HOST_COPY[host_copy]
    return pipeline.build(job, policy, order, recompute=recompute, chunks=chunks)


def _pipelines() -> list[ScheduleInfo]:
    found: list[ScheduleInfo] = []
    for name, entry in ORDERS.items():
        knobs = {"chunks": _CHUNKS} if entry.stages == "many" else {}
        found += _family(
            name, entry.summary, entry.source, f"baseline of {_PAPER}; {entry.source}",
            replicated=False, knobs=knobs,
        )  # fmt: skip
    return found


def _family(
    name: str, summary: str, source: str, paged: str, *, replicated: bool,
    knobs: Mapping[str, Knob],
) -> list[ScheduleInfo]:  # fmt: skip
    """Resident and paged, each with and without recompute."""
    found: list[ScheduleInfo] = []
    for pages in (False, True):
        for recompute in (False, True):
            if name == "dp":
                build = _data_parallel_pager if pages else _data_parallel
            else:
                build = partial(_pipeline_pager if pages else _pipeline, order=name)
            full = name + ("-pager" if pages else "") + ("-recompute" if recompute else "")
            text = f"{summary}, {'per-GPU pager' if pages else 'everything resident'}"
            text += ", with recompute" if recompute else ""
            found.append(
                ScheduleInfo(
                    full, text, paged if pages else source, replicated, not replicated,
                    partial(build, recompute=recompute),
                    {**knobs, **({"host_copy": _HOST_COPY} if pages else {})},
                    name in _WHOLE or full in _RECOMPUTED,
                )
            )  # fmt: skip
    return found


_ALL: tuple[ScheduleInfo, ...] = (
    *_family(
        "dp", "data parallel", "PyTorch DDP, doi 10.14778/3415478.3415530",
        f"baseline of {_PAPER}; IBM PyTorch-LMS", replicated=True, knobs={},
    ),
    *_pipelines(),
    ScheduleInfo(
        "harmony-dp", "Harmony, every GPU runs all packs on its share", _PAPER, True, False,
        partial(harmony.build, mode="dp"), _HARMONY,
    ),
    ScheduleInfo(
        "harmony-pp", "Harmony, packs round-robin over the GPUs", _PAPER, False, False,
        partial(harmony.build, mode="pp"),
        {**_HARMONY, "peer": Knob(True, "hand activations from GPU to GPU directly", bool)},
    ),
)  # fmt: skip

_BY_NAME: Mapping[str, ScheduleInfo] = {info.name: info for info in _ALL}


def schedule_infos() -> tuple[ScheduleInfo, ...]:
    """Name, summary, source and knobs of every schedule."""
    return _ALL


def schedule_info(name: str) -> ScheduleInfo:
    """Entry of one schedule.

    Raises
    ------
    UnknownName
        With the nearest known names.
    """
    found = _BY_NAME.get(name)
    if found is None:
        near = difflib.get_close_matches(name, _BY_NAME, n=3, cutoff=0.4) or list(_BY_NAME)
        raise UnknownName(f"no schedule is called {name!r}; did you mean {' or '.join(near)}?")
    return found


def schedule(
    name: str,
    model: Model,
    server: Server,
    *,
    minibatch: int,
    microbatch: int | None = None,
    **knobs: KnobValue,
) -> Schedule:
    """Build a schedule by name.

    Parameters
    ----------
    name : str
        As listed by ``schedule_infos``.
    model : Model
    server : Server
    minibatch : int
        Samples per iteration on the whole server (D).
    microbatch : int or None
        Samples per microbatch (u). None takes the largest of 4, 2 and 1 that divides and fits, and
        that gives a pipeline at least eight microbatches for each stage.
    **knobs
        Settings of this schedule.

    Raises
    ------
    UnknownName
        If there is no such schedule or knob.
    InvalidInput
        If a value is not usable or sizes do not divide.
    DoesNotFit
        If one GPU or the host has too little memory.

    Examples
    --------
    >>> import hwmodels, workloads
    >>> box = hwmodels.server("pcie-4u-4x1080ti")
    >>> plan = workloads.schedule("harmony-pp", workloads.model("gpt2-xl"), box, minibatch=64)
    >>> plan.name
    'harmony-pp'
    """
    _check_arguments(model, server, minibatch, microbatch)
    info = schedule_info(name)
    share = _share(info, server, minibatch)
    chosen = {key: knob.default for key, knob in info.knobs.items()}
    chosen |= {key: _knob(info, key, value) for key, value in knobs.items()}
    if microbatch is not None:
        _divides(microbatch, share, info)
        sizes = [microbatch]
    else:
        sizes = _sizes(info, server, share)
    _check_length(model, minibatch, sizes[-1])
    with no_gc():
        for size in sizes[:-1]:
            with suppress(DoesNotFit):
                return info.build(Job(name, model, server, minibatch, size), **chosen)
        return info.build(Job(name, model, server, minibatch, sizes[-1]), **chosen)


def _check_arguments(model: object, server: object, minibatch: object, microbatch: object) -> None:
    """Say what to pass where the caller passed something else."""
    if not isinstance(model, Model):
        raise InvalidInput(f"model is {model!r}; pass a Model, such as workloads.model('gpt2-xl')")
    if server is None or isinstance(server, str):
        raise InvalidInput(f"server is {server!r}; pass a Server, such as hwmodels.server('dgx-1')")
    for what, value in (("minibatch", minibatch), ("microbatch", microbatch)):
        if type(value) is not int and not (value is None and what == "microbatch"):
            raise InvalidInput(f"{what} is {value!r}; it must be a whole number of samples")


def _sizes(info: ScheduleInfo, server: Server, share: int) -> list[int]:
    """Microbatch sizes to try, best first."""
    sizes = [size for size in _MICROBATCHES if share % size == 0]
    if info.pipeline:
        enough = [size for size in sizes if share // size >= _PER_STAGE * len(server.gpus)]
        sizes = enough or sizes[-1:]
    return sizes


def _check_length(model: Model, minibatch: int, microbatch: int) -> None:
    count = len(model.layers) * (minibatch // microbatch)
    if count > _MOST_OPS:
        raise InvalidInput(
            f"minibatch {minibatch} in microbatches of {microbatch} makes {count:,} layer steps of "
            f"{model.name}; take at most {_MOST_OPS:,}, with larger microbatches or a smaller "
            "minibatch"
        )


def _share(info: ScheduleInfo, server: Server, minibatch: int) -> int:
    """Count the samples that a microbatch must divide: one replica's, or the whole minibatch."""
    if minibatch < 1:
        raise InvalidInput(f"minibatch is {minibatch}; it must be at least 1")
    if not info.replicated:
        return minibatch
    gpus = len(server.gpus)
    if minibatch % gpus:
        raise InvalidInput(
            f"{info.name}: minibatch {minibatch} does not divide over the {gpus} GPUs of "
            f"{server.name}; take a multiple of {gpus}"
        )
    return minibatch // gpus


def _divides(microbatch: int, share: int, info: ScheduleInfo) -> None:
    if microbatch < 1:
        raise InvalidInput(f"microbatch is {microbatch}; it must be at least 1")
    if share % microbatch:
        whose = "one GPU's share of" if info.replicated else "the minibatch of"
        raise InvalidInput(
            f"{info.name}: microbatch {microbatch} does not divide {whose} {share} samples"
        )


def _knob(info: ScheduleInfo, key: str, value: KnobValue) -> KnobValue:
    """Check one knob; text from a command line is turned into the knob's type."""
    knob = info.knobs.get(key)
    if knob is None:
        near = difflib.get_close_matches(key, info.knobs, n=1, cutoff=0.4)
        hint = near[0] if near else ", ".join(info.knobs) or "none"
        raise UnknownName(f"schedule {info.name} has no knob {key!r}; it has {hint}")
    words: dict[str, KnobValue] = {"true": True, "on": True, "false": False, "off": False}
    if isinstance(value, str) and knob.kind is bool:
        value = words.get(value.lower(), value)
    if isinstance(value, str) and knob.kind is int and value.lstrip("-").isdigit():
        value = int(value)
    if value is None and knob.default is None:
        return None
    if type(value) is not knob.kind:
        kind = {bool: "true or false", int: "a whole number", str: "text"}[knob.kind]
        raise InvalidInput(f"knob {key} of {info.name} is {value!r}; it must be {kind}")
    if knob.choices and value not in knob.choices:
        raise InvalidInput(
            f"knob {key} of {info.name} is {value!r}; it must be {' or '.join(knob.choices)}"
        )
    if knob.kind is int and isinstance(value, int) and value < 1:
        raise InvalidInput(f"knob {key} of {info.name} is {value}; it must be at least 1")
    return value
