"""Recorder of a run with fake tensors: work, traffic and memory of every layer and phase."""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from hwmodels.errors import InvalidInput
from workloads.models.torch_flops import operation_flops
from workloads.models.torch_saved import real_bytes

Phase = Literal["forward", "backward"]

_ALLOCATIONS = frozenset(
    f"aten::{name}"
    for name in ("empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided")
)
"""Operations that only make room."""


@dataclass
class Tally:
    """What one phase of one layer did.

    Attributes
    ----------
    flops : float
        FLOPs of the products.
    kernels : int
        Operations that are no view and no mere allocation.
    traffic : list of (int, int)
        Storage and bytes of everything read and written.
    """

    flops: float = 0.0
    kernels: int = 0
    traffic: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])


@dataclass
class Segment:
    """What a run saw of one layer.

    Attributes
    ----------
    given : Tensor
        Its input.
    forward, backward : Tally
    saved : list of Tensor
        What autograd saved.
    read : set of int
        Storages that its forward read.
    workspace : int
        Most bytes of the backward that live at a time and do not outlive it.
    """

    given: Tensor
    forward: Tally = field(default_factory=Tally)
    backward: Tally = field(default_factory=Tally)
    saved: list[Tensor] = field(default_factory=list[Tensor])
    read: set[int] = field(default_factory=set[int])
    workspace: int = 0


class Recorder(TorchDispatchMode):
    """Sees every operation of a run and books it on the layer and phase that runs.

    Operations are known below autograd, as they would go to the device. A layer begins with
    `enter`; its backward begins where the gradient of its output is complete.

    Parameters
    ----------
    names : sequence of str
        Names of the layers, for errors.
    """

    def __init__(self, names: Sequence[str]) -> None:
        super().__init__()
        self.names = names
        self.segments: list[Segment] = []
        self.uncounted: set[str] = set()
        self._at = 0
        self._phase: Phase = "forward"
        self._numbers: dict[int, tuple[int, weakref.ref[Any]]] = {}
        self._count = 0
        self._maker: dict[int, int] = {}
        self._born: dict[int, int] = {}
        self._events: list[tuple[int, int]] = []

    # layers ----------------------------------------------------------------------------------

    def enter(self, given: Tensor) -> Tensor:
        """Begin the next layer; hands back its input, which needs a gradient if it can have one."""
        index = len(self.segments)
        if index and given.is_floating_point():
            if any(given is segment.given for segment in self.segments):
                given = given.view_as(given)
            if not given.requires_grad:
                given.requires_grad_()

            def begin_before(_: Tensor) -> None:
                self.turn(index - 1)

            given.register_hook(begin_before)
        self.segments.append(Segment(given))
        self._at = index
        return given

    def turn(self, index: int) -> None:
        """End the backward that runs, if one does, and begin the one of layer ``index``."""
        if self._phase == "backward":
            self.segments[self._at].workspace = self._peak()
        self._phase, self._at = "backward", index
        self._born, self._events = {}, []

    def _peak(self) -> int:
        """Most bytes alive at a time of what was made in this backward and is gone by now."""
        gone = {number for number, change in self._events if change < 0}
        most = now = 0
        for number, change in self._events:
            now += change if number in gone else 0
            most = max(most, now)
        return most

    @property
    def name(self) -> str:
        """Layer that runs, for errors."""
        return self.names[self._at]

    def pack(self, tensor: Tensor) -> Tensor:
        """Book a tensor that autograd saves (a pack hook)."""
        self.segments[self._at].saved.append(tensor)
        return tensor

    # storages --------------------------------------------------------------------------------

    def number(self, tensor: Tensor) -> int:
        """Give a tensor's storage its number; no two storages of a run have the same number."""
        storage = tensor.untyped_storage()
        key = id(storage)
        if key not in self._numbers:
            number = self._count = self._count + 1

            def forget(_: object) -> None:
                del self._numbers[key]
                if number in self._born:
                    self._events.append((number, -self._born[number]))

            self._numbers[key] = (number, weakref.ref(storage, forget))
        return self._numbers[key][0]

    def _make(self, tensor: Tensor) -> None:
        """Book a storage that the running operation made."""
        number = self.number(tensor)
        self._maker[number] = self._at
        if self._phase == "backward":
            size = self._born[number] = tensor.untyped_storage().nbytes()
            self._events.append((number, size))

    # operations ------------------------------------------------------------------------------

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> object:
        kwargs = kwargs or {}
        if not self.segments:  # a view of the input before the first layer
            return func(*args, **kwargs)
        given = list(_tensors((args, kwargs)))
        self._refuse(func, args, kwargs, given)
        before = {self.number(tensor) for tensor in given}
        out = func(*args, **kwargs)
        made = list(_tensors(out))
        fresh = [tensor for tensor in made if self.number(tensor) not in before]
        for tensor in fresh:
            self._make(tensor)
        if not made or (not fresh and not func._schema.is_mutable):
            return out  # a question or a view
        if func.overloadpacket._qualified_op_name in _ALLOCATIONS:
            return out
        segment = self.segments[self._at]
        tally = segment.forward if self._phase == "forward" else segment.backward
        tally.kernels += 1
        tally.traffic += [(self.number(each), real_bytes(each)) for each in (*given, *made)]
        flops = operation_flops(func, args, kwargs, out)
        if flops is None:
            self.uncounted.add(str(func.overloadpacket))
        tally.flops += flops or 0.0
        return out

    def _refuse(self, func: Any, args: Any, kwargs: Any, given: Sequence[Tensor]) -> None:
        """Refuse what a chain whose forward may be repeated cannot do."""
        if self._phase == "backward":
            return
        where = f"Layer {self.name!r}"
        if _draws(func, args, kwargs):
            raise InvalidInput(
                f"{where} draws random numbers ({func.overloadpacket}), so a repeated forward "
                "would differ; set its dropout to 0 or call eval() on it."
            )
        segment = self.segments[self._at]
        own = self.number(segment.given)
        for tensor in _written(func, args, kwargs):
            if self.number(tensor) == own:
                raise InvalidInput(
                    f"{where} changes its input in place ({func.overloadpacket}), which others "
                    "may still need; use inplace=False, or make it one layer with the one before."
                )
        for tensor in given:
            number = self.number(tensor)
            segment.read.add(number)
            maker = self._maker.get(number, self._at)
            if maker != self._at and number != own and tensor.requires_grad:
                raise InvalidInput(
                    f"{where} uses a result of layer {self.names[maker]!r} besides its own input; "
                    "only chains of layers are supported, so make one layer of all that it spans."
                )


def _tensors(value: object) -> Iterator[Tensor]:
    """Tensors in the arguments or the result of an operation."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _tensors(each)
    elif isinstance(value, dict):
        yield from _tensors(tuple(value.values()))


def _bound(func: Any, args: Any, kwargs: Any) -> Iterator[tuple[Any, Any]]:
    """Arguments of an operation with what its schema says of each."""
    for index, argument in enumerate(func._schema.arguments):
        default = kwargs.get(argument.name, argument.default_value)
        yield argument, args[index] if index < len(args) else default


def _written(func: Any, args: Any, kwargs: Any) -> Iterator[Tensor]:
    """Tensors that an operation changes in place."""
    if func._schema.is_mutable:
        for argument, value in _bound(func, args, kwargs):
            if argument.alias_info is not None and argument.alias_info.is_write:
                yield from _tensors(value)


def _draws(func: Any, args: Any, kwargs: Any) -> bool:
    """Whether an operation draws random numbers; fused attention only does for its dropout."""
    if torch.Tag.nondeterministic_seeded not in func.tags:
        return False
    rates = [value for each, value in _bound(func, args, kwargs) if each.name == "dropout_p"]
    return rates != [0.0]
