"""Bytes of the tensors that autograd saves for a backward pass."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import prod

from torch import Tensor


def real_bytes(tensor: Tensor) -> int:
    """Bytes of the elements that a tensor really has: a broadcast dimension counts once."""
    dims = zip(tensor.shape, tensor.stride(), strict=True)
    return prod(size if stride or not size else 1 for size, stride in dims) * tensor.element_size()


def saved_bytes(saved: Sequence[Tensor], outside: Sequence[Tensor]) -> int:
    """Bytes to keep for backward, of whole storages or of the parts that are saved.

    Of each storage the views count that cover different elements (a transposed, reshaped or
    broadcast view covers the same ones), together at most the whole storage. So three views of a
    fused product count as the product, and one row of a matrix as that row. Views that overlap in
    part count twice: the figure is an upper bound.

    Parameters
    ----------
    saved : sequence of Tensor
        What the hooks of ``torch.autograd.graph.saved_tensors_hooks`` saw.
    outside : sequence of Tensor
        What is kept anyway, with all views of it: parameters, buffers, the layer's input.

    Returns
    -------
    int
        Bytes.
    """
    apart = {id(tensor.untyped_storage()) for tensor in outside}
    whole: dict[int, int] = {}
    parts: dict[int, dict[tuple[object, ...], int]] = {}
    for tensor in saved:
        storage = tensor.untyped_storage()
        if id(storage) not in apart:
            whole[id(storage)] = storage.nbytes()
            parts.setdefault(id(storage), {})[_covered(tensor)] = real_bytes(tensor)
    return sum(min(whole[key], sum(views.values())) for key, views in parts.items())


def _covered(tensor: Tensor) -> tuple[object, ...]:
    """Which elements of its storage a tensor covers: equal for views of the same elements."""
    dims = zip(tensor.stride(), tensor.shape, strict=True)
    runs = sorted((stride, size) for stride, size in dims if size != 1 and stride)
    if runs:
        breaks = [i for i, ((a, n), (b, _)) in enumerate(pairwise(runs), 1) if a * n != b]
        edges = [0, *breaks, len(runs)]
        runs = [(runs[a][0], prod(n for _, n in runs[a:b])) for a, b in pairwise(edges)]
    return (tensor.storage_offset(), tensor.element_size(), *runs)
