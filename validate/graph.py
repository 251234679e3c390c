"""Layers run so that what backward needs lies in the schedule's own tensors.

Autograd would keep weights, inputs and saved activations alive by itself, wherever they were. Here
every saved tensor is replaced by a note of which tensor of the schedule holds it, and found again
when backward runs: a swap moves it for real, and a tensor that was dropped is missing for real.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from hwmodels.errors import InvalidSchedule

if TYPE_CHECKING:
    import torch
    from torch import Tensor
    from torch.autograd.graph import GradientEdge

Key = tuple[str, int, int]
"""Weight (its tensor, part of its content), ``input`` or ``stash`` (part of its content)."""

Find = Callable[[Key], "Tensor"]
"""Finds on the device of the backward what a key names."""


@dataclass(slots=True)
class _Saved:
    """A view that backward will ask for."""

    key: Key
    dtype: torch.dtype
    offset: int
    size: tuple[int, ...]
    stride: tuple[int, ...]


class Tape:
    """Notes what autograd saves while the layers of one operation run.

    Parameters
    ----------
    known : mapping of int to Key
        Weights and input by the address of their storage.
    """

    def __init__(self, known: Mapping[int, Key]) -> None:
        self._known = dict(known)
        self._views: list[tuple[_Saved, Tensor]] = []
        self._find: Find | None = None

    def watch(self) -> AbstractContextManager[Any]:
        """Context in which autograd saves through this tape."""
        from torch.autograd.graph import saved_tensors_hooks

        return saved_tensors_hooks(self._note, self._restore)

    def _note(self, tensor: Tensor) -> _Saved | Tensor:
        if tensor.dim() == 0:  # a count or a scale of a few bytes stays with the graph
            return tensor
        key = self._known.get(tensor.untyped_storage().data_ptr(), ("stash", -1, -1))
        saved = _Saved(
            key, tensor.dtype, int(tensor.storage_offset()), tuple(tensor.shape), tensor.stride()
        )
        if key[0] == "stash":
            self._views.append((saved, tensor))
        return saved

    def stash(self, copied: Sequence[Tensor] = ()) -> list[Tensor]:
        """Take over what was saved besides weights and input, as flat bytes.

        A storage of which only a part was saved, or which lies in ``copied``, is copied.
        """
        import torch

        apart = {tensor.untyped_storage().data_ptr() for tensor in copied}
        groups: dict[int, list[tuple[_Saved, Tensor]]] = {}
        for saved, tensor in self._views:
            groups.setdefault(tensor.untyped_storage().data_ptr(), []).append((saved, tensor))
        self._views = []
        found: list[Tensor] = []
        for address, views in groups.items():
            whole = torch.empty(0, dtype=torch.uint8, device=views[0][1].device)
            whole.set_(views[0][1].untyped_storage())
            reach = [_reach(saved) for saved, _ in views]
            low, high = min(first for first, _ in reach), max(last for _, last in reach)
            low -= low % max(saved.dtype.itemsize for saved, _ in views)
            part = whole[low:high]
            if address in apart or part.nbytes < whole.nbytes:
                part = part.clone()
            for saved, _ in views:
                saved.key = ("stash", -1, len(found))
                saved.offset -= low // saved.dtype.itemsize
            found.append(part)
        return found

    def resolve(self, find: Find | None) -> None:
        """Say where backward finds what was saved."""
        self._find = find

    def _restore(self, saved: _Saved | Tensor) -> Tensor:
        if not isinstance(saved, _Saved):
            return saved
        if self._find is None:
            raise InvalidSchedule("a backward asks for what was saved before it runs")
        held = self._find(saved.key)
        return held.view(saved.dtype).as_strided(saved.size, saved.stride, saved.offset)


def _reach(saved: _Saved) -> tuple[int, int]:
    """First and last byte of its storage that a view covers; views never run backwards."""
    if 0 in saved.size:
        return 0, 0
    last = saved.offset + sum(
        (length - 1) * step for length, step in zip(saved.size, saved.stride, strict=True)
    )
    return saved.offset * saved.dtype.itemsize, (last + 1) * saved.dtype.itemsize


def enter(data: Tensor) -> tuple[Tensor, GradientEdge]:
    """Bring data into a graph without the graph holding it; the edge receives its gradient."""
    import torch
    from torch.autograd.graph import get_gradient_edge

    found: Tensor = _enter()(torch.empty(0, requires_grad=True), data)
    return found, get_gradient_edge(found)


@cache
def _enter() -> Any:
    """Make a function of torch whose result aliases its second argument, with a gradient."""
    import torch

    class Enter(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, anchor: Tensor, data: Tensor) -> Tensor:
            return data.view_as(data)

        @staticmethod
        def backward(ctx: Any, *gradients: Tensor) -> tuple[None, None]:
            return None, None

    return Enter.apply


@dataclass(slots=True)
class Graph:
    """One pack's forward of one microbatch, waiting for its backward.

    Attributes
    ----------
    tape : Tape
    root : GradientEdge or None
        The output; None where nothing of it needs a gradient.
    input : GradientEdge or None
        The input, where it needs a gradient.
    weights : mapping of str to GradientEdge
        Parameters by block and offset.
    """

    tape: Tape
    root: GradientEdge | None
    input: GradientEdge | None
    weights: Mapping[tuple[str, int], GradientEdge]
