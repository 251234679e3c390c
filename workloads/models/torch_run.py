"""Runs of a torch module with fake tensors, cut into a chain of layers."""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensorMode,
)

from hwmodels.errors import InvalidInput
from workloads.models.torch_record import Recorder, Segment
from workloads.models.torch_saved import saved_bytes

Enter = Callable[[Tensor], Tensor]
"""Begins the next layer with its input; hands back the input to use."""

Inputs = tuple[Tensor, ...]
"""Input and, where the last layer computes the loss, target."""


class Chain(NamedTuple):
    """A module as a chain of layers.

    Attributes
    ----------
    names, kinds : tuple of str
        Of the layers.
    run : callable
        Runs all layers on inputs; calls ``enter`` where each begins, hands back the last output.
    parts : sequence of (Module or None)
        The module that is the layer; None for what runs before and after a list.
    modules : sequence of Module
        Everything with parameters or buffers.
    shared : set of int
        Identity of the parameters that several layers read.
    """

    names: tuple[str, ...]
    kinds: tuple[str, ...]
    run: Callable[[Inputs, Enter], object]
    parts: Sequence[nn.Module | None]
    modules: Sequence[nn.Module]
    shared: frozenset[int] = frozenset()


class Figures(NamedTuple):
    """What one layer does with one batch: FLOPs, bytes of traffic, kernels, bytes of memory."""

    forward_flops: float
    backward_flops: float
    forward_bytes: int
    backward_bytes: int
    forward_kernels: int
    backward_kernels: int
    stash_bytes: int
    workspace_bytes: int
    output_bytes: int


class Measured(NamedTuple):
    """One run.

    Attributes
    ----------
    rows : list of Figures
        One for each layer.
    input_bytes : int
        Of the first layer's input.
    read : list of set of int
        Identity of the parameters and buffers that each layer reads.
    uncounted : frozenset of str
        Operations whose FLOPs no formula counts.
    """

    rows: list[Figures]
    input_bytes: int
    read: list[set[int]]
    uncounted: frozenset[str]


def fake_mode() -> FakeTensorMode:
    """Mode in which tensors have shapes and no data (constants of a module may be real)."""
    return FakeTensorMode(allow_non_fake_inputs=True)


@contextmanager
def fake(mode: FakeTensorMode) -> Generator[None]:
    """Make fake tensors on the CPU that autograd follows, whatever the caller's settings.

    What torch would log of an operation that fails is told as an error instead. Without oneDNN
    recurrent layers run step by step, which keeps what a GPU keeps and has countable products.
    """
    onednn: Any = torch.backends.mkldnn
    log = logging.getLogger("torch._subclasses.fake_tensor")
    before, log.disabled = (log.disabled, onednn.enabled), True
    onednn.enabled = False
    try:
        with mode, torch.enable_grad(), torch.device("cpu"):
            yield
    finally:
        log.disabled, onednn.enabled = before


def fake_copy(
    modules: Sequence[nn.Module], mode: FakeTensorMode, dtype: torch.dtype | None
) -> list[nn.Module]:
    """Copy modules with all parameters and buffers fake; ``dtype`` replaces floating ones."""
    memo: dict[int, Any] = {}
    with fake(mode):
        for module in modules:
            for parameter in module.parameters():
                made = nn.Parameter(_like(parameter, dtype), parameter.requires_grad)
                memo.setdefault(id(parameter), made)
            for buffer in module.buffers():
                memo.setdefault(id(buffer), _like(buffer, dtype))
    try:
        return copy.deepcopy(list(modules), memo)
    except Exception as error:
        raise InvalidInput(
            f"The module cannot be copied, which from_torch needs: {_first_line(error)}; "
            "hand in one that copy.deepcopy can copy."
        ) from error


def _like(tensor: Tensor, dtype: torch.dtype | None) -> Tensor:
    wanted = dtype if dtype is not None and tensor.is_floating_point() else tensor.dtype
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=wanted, device="cpu")


def batch(inputs: Inputs, samples: int, dtype: torch.dtype | None) -> Inputs:
    """Fake inputs as the given ones with another number of samples; call in `fake`."""
    found: list[Tensor] = []
    for tensor in inputs:
        wanted = dtype if dtype is not None and tensor.is_floating_point() else tensor.dtype
        found.append(torch.empty((samples, *tensor.shape[1:]), dtype=wanted, device="cpu"))
    return tuple(found)


@contextmanager
def explained(name: Callable[[], str], samples: int) -> Generator[None]:
    """Tell what torch raises as an error of the layer ``name()``."""
    try:
        yield
    except InvalidInput:
        raise
    except (DataDependentOutputException, DynamicOutputShapeException) as error:
        raise InvalidInput(
            f"{name()!r} decides by the values of tensors ({error.func}), but layers are measured "
            "without data; its operations and shapes must not depend on values."
        ) from error
    except Exception as error:
        raise InvalidInput(
            f"{name()!r} fails on a batch of {samples} samples: {_first_line(error)}; it must run "
            "on fake CPU tensors with any number of samples in their first dimension."
        ) from error


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0].rstrip(".") if lines else type(error).__name__


def not_a_tensor(name: str, value: object) -> InvalidInput:
    """Error that a layer hands on something else than one tensor."""
    return InvalidInput(
        f"Layer {name!r} returns a {type(value).__name__}; each layer must hand one tensor to the "
        "next, and the last one must return its output or the loss alone."
    )


class Recorded(NamedTuple):
    """A forward under a recorder: its output, and all that got a gradient of its own."""

    recorder: Recorder
    out: Tensor
    leaves: list[nn.Parameter]


def record(chain: Chain, inputs: Inputs) -> Recorded:
    """Run a chain forward under a recorder."""
    recorder = Recorder(chain.names)
    leaves = [parameter for module in chain.modules for parameter in module.parameters()]
    slots = _slots(chain)
    fresh = [_leaves(slots) for _ in chain.names]
    leaves += [leaf for each in fresh for leaf in dict.fromkeys(each)]
    turns = iter(fresh)

    def enter(given: Tensor) -> Tensor:
        for (owner, name, _), leaf in zip(slots, next(turns), strict=True):
            setattr(owner, name, leaf)
        return recorder.enter(given)

    hooks = torch.autograd.graph.saved_tensors_hooks(recorder.pack, lambda kept: kept)
    try:
        with explained(lambda: recorder.name, len(inputs[0])), recorder, hooks:
            out = chain.run(inputs, enter)
    finally:
        for owner, name, parameter in slots:
            setattr(owner, name, parameter)
    if not isinstance(out, Tensor):
        raise not_a_tensor(chain.names[-1], out)
    if len(inputs) == 2 and out.dim():
        raise InvalidInput(
            f"Layer {chain.names[-1]!r} takes the target and returns a tensor of shape "
            f"{tuple(out.shape)[1:]} per sample; it must return the mean loss, one number."
        )
    return Recorded(recorder, out, leaves)


def _slots(chain: Chain) -> list[tuple[nn.Module, str, nn.Parameter]]:
    """Find where the modules of a chain hold parameters that several layers read."""
    return [
        (owner, name, parameter)
        for module in chain.modules
        for owner in module.modules()
        for name, parameter in owner.named_parameters(recurse=False, remove_duplicate=False)
        if id(parameter) in chain.shared
    ]


def _leaves(slots: Sequence[tuple[nn.Module, str, nn.Parameter]]) -> list[nn.Parameter]:
    """Shared parameters anew, for a layer to have its own gradients: new leaves, same storages.

    Layers may run apart, each adding to one gradient; a common leaf would keep the share of the
    later layer aside and add it up in the earlier one.
    """
    distinct = {id(parameter): parameter for _, _, parameter in slots}
    fresh = {key: nn.Parameter(p.detach(), p.requires_grad) for key, p in distinct.items()}
    return [fresh[id(parameter)] for _, _, parameter in slots]


def measure(chain: Chain, inputs: Inputs) -> Measured:
    """Run a chain forward and backward on one batch; call in `fake`."""
    recorder, out, leaves = record(chain, inputs)
    _backward(recorder, out, len(inputs[0]))
    kept = [*leaves, *(buffer for module in chain.modules for buffer in module.buffers())]
    grads = [leaf.grad for leaf in leaves if leaf.grad is not None]
    apart = {recorder.number(each) for each in (*kept, *grads)}
    segments = recorder.segments
    last = _dense_bytes(out) if out.dim() else 0
    ends = [*(_dense_bytes(segment.given) for segment in segments[1:]), last]
    rows = [_figures(each, kept, apart, end) for each, end in zip(segments, ends, strict=True)]
    # no tensor of a schedule holds the gradient of the last output
    rows[-1] = rows[-1]._replace(workspace_bytes=rows[-1].workspace_bytes + last)
    for leaf in leaves:
        leaf.grad = None
    return Measured(
        rows=rows,
        input_bytes=_dense_bytes(segments[0].given),
        read=[read_by(recorder, each, kept) for each in segments],
        uncounted=frozenset(recorder.uncounted),
    )


def _backward(recorder: Recorder, out: Tensor, samples: int) -> None:
    """Backward of all layers, from a gradient of the last output that is there already."""
    if out.requires_grad:
        gradient = torch.empty_like(out)
        recorder.turn(len(recorder.segments) - 1)
        with explained(lambda: recorder.name, samples), recorder:
            torch.autograd.backward([out], [gradient])
        recorder.turn(0)


def _figures(
    segment: Segment, kept: Sequence[Tensor], apart: set[int], output_bytes: int
) -> Figures:
    """Sum up a layer; ``kept`` stays in memory anyway, ``apart`` is traffic counted once a call."""
    forward, backward = segment.forward, segment.backward
    return Figures(
        forward.flops,
        backward.flops,
        sum(size for number, size in forward.traffic if number not in apart),
        sum(size for number, size in backward.traffic if number not in apart),
        forward.kernels,
        backward.kernels,
        saved_bytes(segment.saved, [*kept, segment.given]),
        segment.workspace,
        output_bytes,
    )


def read_by(recorder: Recorder, segment: Segment, kept: Sequence[Tensor]) -> set[int]:
    """Identity of the tensors whose storage a layer read."""
    return {id(tensor) for tensor in kept if recorder.number(tensor) in segment.read}


def _dense_bytes(tensor: Tensor) -> int:
    return tensor.numel() * tensor.element_size()
