"""Models measured from a torch module, without data and without a GPU.

The module runs forward and backward on fake tensors: tensors that have shapes and no values.
Everything is measured at three batch sizes, so that what grows with the batch is told from what
does not (masks, statistics over the batch). A schedule counts bytes per sample; what does not grow
counts in full for each, so that memory is never understated.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from importlib import import_module
from itertools import pairwise
from math import ceil
from typing import TYPE_CHECKING, NamedTuple, cast

from hwmodels.errors import InvalidInput
from workloads.model import Layer, Model, Optimizer, Precision, Weight
from workloads.model import optimizer as optimizer_named
from workloads.model import precision as precision_named
from workloads.models.torch_blocks import (
    Holding,
    holdings,
    parameter_blocks,
    parameter_places,
    weights,
)

if TYPE_CHECKING:
    from torch import Tensor, dtype, nn

    from workloads.models.torch_run import Figures

__all__ = ["from_torch", "parameter_blocks", "parameter_places"]

_TIMES = (2, 3, 4)
"""Batches measured, in example batches. Not 1: with one sample a copy may turn into a view, and
batch norm refuses it. Three, to see what is no straight line."""


def from_torch(
    module: nn.Module | Sequence[nn.Module],
    example: Tensor | tuple[Tensor, Tensor],
    *,
    name: str | None = None,
    precision: str | Precision = "fp32",
    optimizer: str | Optimizer = "adam",
    tokens: int | None = None,
) -> Model:
    """Model from a torch module, measured without a GPU.

    An ``nn.Sequential``, an ``nn.ModuleList`` or a plain list is the chain of its children, each
    called with the output of the one before. Any other module is cut where it calls the children
    of its largest ModuleList or Sequential; what runs before and after are the layers ``input``
    and ``output``. A module without such a list is one layer.

    Saved bytes are those of the tensors that autograd saves, without parameters, buffers and the
    layer's input, with its output and a target; views as `torch_saved.saved_bytes` counts them.
    Workspace is the most that the backward makes and drops again (gradients of parameters and of
    the input excluded, an allocator's and a kernel's own scratch unknown). FLOPs are those of
    products, by the formulas of ``torch.utils.flop_counter``; attention counts in full. Traffic is
    what each operation reads and writes, parameters and their gradients excluded. The operations
    are those of torch's CPU backend without oneDNN, which keeps scaled-dot-product attention fused.

    Parameters
    ----------
    module : Module or sequence of Module
        Left as it is. Dropout must be off.
    example : Tensor or (Tensor, Tensor)
        Input with a first dimension of samples; with a target, that the last layer (or the module)
        takes as its second argument to return the mean loss. Only shapes and types matter.
    name : str, optional
        Name of the model; by default the class of the module.
    precision : str or Precision
        Bytes of each component. The module runs in its own number format if that has the size of
        the precision's activations, else it is measured converted.
    optimizer : str or Optimizer
    tokens : int, optional
        Tokens per sample; by default the length of a sample of whole numbers, else 1.

    Returns
    -------
    Model

    Raises
    ------
    InvalidInput
        If torch is missing, or the module is no chain of layers that can be measured.

    Examples
    --------
    >>> import torch
    >>> net = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))
    >>> model = from_torch(net, torch.zeros(1, 8), name="small")
    >>> [(layer.name, layer.params, layer.stash_bytes) for layer in model.layers]
    [('linear.0', 144, 0), ('relu.1', 0, 64), ('linear.2', 68, 0)]
    """
    _need_torch()
    chosen = precision_named(precision)
    inputs = _inputs(example)
    called = name or ("chain" if isinstance(module, Sequence) else type(module).__name__)
    sizes = [times * len(inputs[0]) for times in _TIMES]
    found = _measure(module, inputs, chosen, sizes)
    rows = [
        _at_one(layer, sizes, rows) for layer, *rows in zip(found.names, *found.rows, strict=True)
    ]
    return Model(
        name=called,
        layers=tuple(map(_layer, found.kinds, found.held, weights(found.held), rows)),
        input_bytes=found.input_bytes,
        tokens=_tokens(inputs[0], tokens),
        precision=chosen,
        optimizer=optimizer_named(optimizer),
        notes=tuple(_notes(found, sizes)),
    )


def _need_torch() -> None:
    try:
        import_module("torch")
    except ImportError as error:
        raise InvalidInput(
            "from_torch needs PyTorch, which is not installed; run pip install "
            "'commodious[validate]'."
        ) from error


class _Found(NamedTuple):
    """What the runs of a chain found: ``rows`` by run and layer, the rest by layer."""

    names: Sequence[str]
    kinds: Sequence[str]
    held: Sequence[Holding]
    rows: Sequence[Sequence[Figures]]
    input_bytes: int
    unread: Sequence[str]
    uncounted: Sequence[str]


def _measure(
    module: nn.Module | Sequence[nn.Module],
    inputs: tuple[Tensor, ...],
    precision: Precision,
    sizes: Sequence[int],
) -> _Found:
    """Copy the module with fake parameters and run it on each number of samples."""
    from workloads.models.torch_chain import chain_of_layers, chain_of_module, held_by
    from workloads.models.torch_run import batch, fake, fake_copy, fake_mode, measure

    layers = _layers(module)
    parts = [cast("nn.Module", module)] if layers is None else layers
    wanted = _dtype(parts, inputs, precision)
    mode = fake_mode()
    copies = fake_copy(parts, mode, wanted)
    with fake(mode):
        if layers is None:
            chain = chain_of_module(copies[0], batch(inputs, sizes[0], wanted))
        else:
            chain = chain_of_layers(copies)
        runs = [measure(chain, batch(inputs, size, wanted)) for size in sizes]
    first = runs[0]
    if layers is None:
        held, unread = held_by(chain, first.read)
    else:
        held, unread = holdings(copies), []
    return _Found(
        names=chain.names,
        kinds=chain.kinds,
        held=held,
        rows=[run.rows for run in runs],
        input_bytes=first.input_bytes // sizes[0],
        unread=unread,
        uncounted=sorted(first.uncounted),
    )


# input ---------------------------------------------------------------------------------------


def _inputs(example: object) -> tuple[Tensor, ...]:
    """Input and, if given, target."""
    from torch import Tensor

    given = example if isinstance(example, tuple | list) else (example,)
    found = [each for each in given if isinstance(each, Tensor) and each.dim() and len(each)]
    if len(found) != len(given) or len(found) not in (1, 2):
        raise InvalidInput(
            "The example must be one tensor or a pair (input, target) of tensors, each with a "
            "first dimension of samples."
        )
    if len(found[0]) != len(found[-1]):
        raise InvalidInput(
            f"The example's input has {len(found[0])} samples and its target {len(found[-1])}; "
            "both need the same first dimension."
        )
    return tuple(found)


def _layers(module: object) -> list[nn.Module] | None:
    """Layers of a chain; None for a module of another kind."""
    from torch import nn

    if isinstance(module, nn.ModuleList):
        layers: list[object] = list(module)
    elif isinstance(module, nn.Sequential) and type(module).forward is nn.Sequential.forward:
        layers = list(module)
    elif isinstance(module, nn.Module):
        return None
    else:
        layers = list(module) if isinstance(module, Sequence) else [module]
    found = [each for each in layers if isinstance(each, nn.Module)]
    if not found or len(found) < len(layers):
        wrong = next((type(each).__name__ for each in layers if each not in found), "nothing")
        raise InvalidInput(
            f"from_torch takes a torch module or a list of at least one; it got {wrong}."
        )
    return found


def _dtype(
    modules: Sequence[nn.Module], inputs: Sequence[Tensor], precision: Precision
) -> dtype | None:
    """Choose the number format to convert to; None if the module's own has the size asked for."""
    import torch

    size = precision.activation
    parameters = (each for module in modules for each in module.parameters())
    own = next((each.dtype for each in (*parameters, *inputs) if each.is_floating_point()), None)
    if own is None or own.itemsize == size:
        return None
    short = torch.bfloat16 if precision.compute == "bf16" else torch.float16
    found = {2: short, 4: torch.float32, 8: torch.float64}.get(size)
    if found is None:
        raise InvalidInput(
            f"Precision {precision.name!r} has activations of {size} bytes, which torch does not "
            "compute in; from_torch takes 2, 4 or 8."
        )
    return found


def _tokens(given: Tensor, tokens: int | None) -> int:
    if tokens is None:
        return 1 if given.is_floating_point() or given.dim() != 2 else given.shape[1]
    if tokens < 1:
        raise InvalidInput(f"tokens is {tokens}; a sample has at least 1.")
    return tokens


# figures -------------------------------------------------------------------------------------


def _line(values: Sequence[float], sizes: Sequence[int]) -> tuple[int, int] | None:
    """Part for each sample (rounded up) and constant part; None if ``values`` are no line."""
    slopes = {
        Fraction(int(b - a), n - m)
        for (a, b), (m, n) in zip(pairwise(values), pairwise(sizes), strict=True)
    }
    if len(slopes) > 1:
        return None
    slope = slopes.pop()
    return ceil(slope), ceil(values[0] - slope * sizes[0])


def _at_one(layer: str, sizes: Sequence[int], runs: Sequence[Figures]) -> Figures:
    """Figures of one sample, from those of several batches."""
    found: dict[str, int] = {}
    for field, *values in zip(runs[0]._fields, *runs, strict=True):
        line = _line(values, sizes)
        if field.endswith("_kernels"):
            found[field] = max(values)
        elif line is not None and (field != "output_bytes" or line[1] == 0):
            found[field] = line[0] + max(line[1], 0)
        elif field == "workspace_bytes":
            found[field] = values[0]  # peaks of different moments: bounded by the smallest batch
        else:
            counts = ", ".join(f"{value:,.0f}" for value in values)
            raise InvalidInput(
                f"Layer {layer!r}: {field} of {', '.join(map(str, sizes))} samples are {counts}, "
                "which do not grow in proportion to the samples; samples must not depend on each "
                "other, and come first in every tensor handed on."
            )
    return runs[0]._replace(**found)


def _layer(kind: str, held: Holding, blocks: tuple[Weight, ...], row: Figures) -> Layer:
    return Layer(
        name=held.name,
        kind=kind,
        weights=blocks,
        output_bytes=row.output_bytes,
        stash_bytes=row.stash_bytes,
        workspace_bytes=row.workspace_bytes,
        forward_flops=float(row.forward_flops),
        backward_flops=float(row.backward_flops),
        forward_bytes=float(row.forward_bytes),
        backward_bytes=float(row.backward_bytes),
        forward_kernels=row.forward_kernels,
        backward_kernels=row.backward_kernels,
    )


def _notes(found: _Found, sizes: Sequence[int]) -> list[str]:
    from torch import __version__

    notes = [
        f"Measured with torch {__version__.partition('+')[0]} on fake tensors (shapes without "
        "data) and the operations of its CPU backend; a GPU may fuse or save otherwise."
    ]
    lines = [
        _line([row.stash_bytes for row in rows], sizes) for rows in zip(*found.rows, strict=True)
    ]
    if fixed := sum(max(line[1], 0) for line in lines if line is not None):
        notes.append(f"{fixed:,} saved bytes do not grow with the batch; they count per sample.")
    if found.uncounted:
        notes.append(f"FLOPs unknown, counted as 0: {', '.join(found.uncounted)}.")
    if found.unread:
        notes.append(f"Never used, left out: {', '.join(found.unread)}.")
    return notes
