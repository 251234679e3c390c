"""The Schedule: a plain, static list of operations on streams. One schedule, two interpreters."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from hwmodels.compute import LayerProfile, Work

Kind = Literal["compute", "copy", "collective", "host", "free"]
TensorKind = Literal[
    "weight", "gradient", "state", "activation", "stash", "activation_gradient", "workspace"
]

NEW = tuple.__new__
"""Makes a named tuple in a third of the time of its own constructor, where many are made."""

Place = tuple[int, str]
"""A tensor id and the device (GPU or host memory) where it lies."""


class Tensor(NamedTuple):
    """A named piece of memory that operations read, write, move and free.

    Attributes
    ----------
    id : int
        Position in ``Schedule.tensors``.
    kind : str
        Weight, gradient, state, activation, stash, activation_gradient or workspace.
    name : str
        Readable, unique in the schedule: ``W[h.3]@gpu0``.
    nbytes : int
        Size in bytes.
    layer : int
        Of weights, gradients and states the first layer that reads them; of an activation and its
        gradient the layer whose input it is; of a stash the first layer of its pack; -1 for
        workspace.
    span : (int, int)
        Samples of the minibatch that activations, their gradients and stashes belong to.
    weights : tuple of str
        Names of the model's blocks in weights, gradients and states.
    """

    id: int
    kind: TensorKind
    name: str
    nbytes: int
    layer: int = -1
    span: tuple[int, int] = (0, 0)
    weights: tuple[str, ...] = ()


class Op(NamedTuple):
    """One operation.

    Attributes
    ----------
    id : int
        Position in ``Schedule.ops``.
    kind : str
        ``compute`` (on a GPU), ``copy``, ``collective``, ``host`` (optimizer step on a CPU)
        or ``free`` (no time, no stream: frees when all of ``after`` have ended; with the phase
        ``barrier`` it waits for every op before it; its allocs are the next input batch).
    stream : str
        In-order queue; an op starts after the previous op of its stream. Empty for ``free``.
    after : tuple of int
        Earlier ops it must also wait for (each id is smaller than this op's id).
    device : str
        GPU or host memory where it runs; the source of a copy; the first of a group.
    phase : str
        ``forward``, ``recompute``, ``backward``, ``update``; the halves of a backward
        ``backward_input``, ``backward_weight``; ``swap_in``, ``swap_out``, ``peer``;
        ``all_reduce``, ``reduce_scatter``, ``all_gather``, ``broadcast``, ``all_to_all``; ``free``,
        ``barrier``.
    layers : (int, int)
        First and last layer, inclusive; (-1, -1) where none is meant.
    span : (int, int)
        Samples of the minibatch it is for, half open; (0, 0) where none is meant.
    work : Work or None
        What a compute op (or an update on a GPU) asks of its GPU.
    nbytes : int
        Bytes copied, bytes of the whole buffer of a collective, or parameters of a host update
        times the bytes of memory that it touches for each.
    peer : str
        Destination of a copy.
    group : tuple of str
        GPUs of a collective, in rank order.
    reads, writes : tuple of int
        Tensors read and written, on ``device``. A copy reads its tensor at the source and makes
        it valid at the destination. ``reads[i]`` and ``writes[i]`` of a collective lie on
        ``group[i]``.
    allocs, frees : tuple of Place
        Memory taken where the op starts and given back where it ends.
    """

    id: int
    kind: Kind
    stream: str
    after: tuple[int, ...]
    device: str
    phase: str
    layers: tuple[int, int] = (-1, -1)
    span: tuple[int, int] = (0, 0)
    work: Work | None = None
    nbytes: int = 0
    peer: str = ""
    group: tuple[str, ...] = ()
    reads: tuple[int, ...] = ()
    writes: tuple[int, ...] = ()
    allocs: tuple[Place, ...] = ()
    frees: tuple[Place, ...] = ()


class Grant(NamedTuple):
    """Which room an allocation was given: ``nbytes`` on ``device``.

    ``source`` is the op whose frees made the room, or -1 for memory never used before.
    """

    alloc: int
    device: str
    source: int
    nbytes: int


@dataclass(frozen=True)
class Schedule:
    """A static list of operations that any server with the same devices can replay.

    Attributes
    ----------
    name : str
        Name of the schedule, as in ``commodious schedules``.
    model : str
        Name of the model.
    ops : tuple of Op
        In an order in which they could run one by one: every edge points backwards.
    tensors : tuple of Tensor
        Indexed by id.
    capacity : mapping of str to int
        Bytes that the schedule may use on each device (GPUs first, then host memories).
    initial, final : tuple of Place
        What lies where before the first and after the last op.
    grants : tuple of Grant
        Which free made the room of which allocation, in the first iteration; ``hand_overs`` gives
        those of all iterations.
    minibatch, microbatch : int
        Samples per iteration (whole server), samples per microbatch.
    num_layers : int
        Layers of the model.
    tokens : int
        Tokens per sample.
    replicas : int
        Copies of the model that train side by side.
    iterations : int
        Iterations laid end to end.
    profile : LayerProfile or None
        Measured layer times that came with the model.
    notes : tuple of str
        Choices the reader must know.
    """

    name: str
    model: str
    ops: tuple[Op, ...]
    tensors: tuple[Tensor, ...]
    capacity: Mapping[str, int]
    initial: tuple[Place, ...]
    final: tuple[Place, ...]
    grants: tuple[Grant, ...]
    minibatch: int
    microbatch: int
    num_layers: int
    tokens: int = 1
    replicas: int = 1
    iterations: int = 1
    profile: LayerProfile | None = None
    notes: tuple[str, ...] = field(default=())

    def hand_overs(self) -> Iterator[Grant]:
        """Yield the hand-overs of all iterations.

        A later iteration repeats the first one; what was free at the start, its barrier hands
        over, from which the next input batch takes its room too.
        """
        yield from self.grants
        if self.iterations == 1:
            return
        length = (len(self.ops) + 1) // self.iterations
        for barrier in range(length - 1, len(self.ops), length):
            for tensor, device in self.ops[barrier].allocs:
                yield Grant(barrier, device, barrier, self.tensors[tensor].nbytes)
            for alloc, device, source, nbytes in self.grants:
                if alloc >= 0:
                    origin = source + barrier + 1 if source >= 0 else barrier
                    yield Grant(alloc + barrier + 1, device, origin, nbytes)

    def check(self) -> None:
        """Prove that every execution which respects the edges is safe and complete.

        Ids unique, edges acyclic, every read finds its tensor resident and valid, nothing freed
        twice or leaked, capacity respected, every sample of every layer computed once, every
        gradient summed over replicas, every weight updated once. Linear in the number of ops.

        Raises
        ------
        InvalidSchedule
            Naming the op and the broken rule.
        """
        from workloads.check import check

        check(self)
