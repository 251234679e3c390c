"""FLOPs of one operation of torch, by the formulas of ``torch.utils.flop_counter``.

One multiply-add counts 2; attention counts in full, causal or not. Two corrections: the backward of
a grouped convolution (torch multiplies its weight gradient by the number of groups), and the fused
attention of the CPU, which torch's table lacks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from math import prod
from typing import Any

from torch import Tensor, ops
from torch.utils.flop_counter import flop_registry

_PRODUCTS = """
    _cudnn_rnn _fft_c2c _fft_c2r _fft_r2c _grouped_mm _int_mm _miopen_rnn _trilinear addbmm addmv
    addr dot linalg_solve_triangular mkldnn_rnn_layer mkldnn_rnn_layer_backward mv vdot
"""
UNCOUNTED = frozenset(f"aten::{name}" for name in _PRODUCTS.split())
"""Products of matrices and vectors, recurrent layers, transforms: no formula counts them."""


def _conv_backward(*args: Any, out_val: Any = None, **_: Any) -> int:
    """Each gradient of a convolution (input, weight) takes as many FLOPs as its forward.

    For each sample and output pixel (input pixel if transposed) one product with all weights.
    """
    grad, given, weight, transposed, wanted = *args[:3], args[7], args[10]
    pixels: Tensor = given if transposed else grad
    once = 2 * pixels.shape[0] * prod(pixels.shape[2:]) * weight.numel()
    return once * sum(bool(each) for each in wanted[:2])


@cache
def _formulas() -> Mapping[Any, Callable[..., int]]:
    aten: Any = ops.aten
    found: dict[Any, Callable[..., int]] = {**flop_registry}
    found[aten.convolution_backward] = _conv_backward
    fused = "_scaled_dot_product_flash_attention"
    for end in ("", "_backward"):
        found[getattr(aten, f"{fused}_for_cpu{end}")] = found[getattr(aten, f"{fused}{end}")]
    return found


def operation_flops(op: Any, args: Any, kwargs: Any, out: Any) -> float | None:
    """FLOPs of one operation.

    Parameters
    ----------
    op : OpOverload
        As ``TorchDispatchMode`` sees it.
    args, kwargs, out : object
        Its arguments and result.

    Returns
    -------
    float or None
        0 for work that goes element by element; None where products go uncounted.
    """
    formula = _formulas().get(op.overloadpacket)
    if formula is not None:
        return float(formula(*args, **kwargs, out_val=out))
    known = op.namespace in ("aten", "prim", "prims")
    return None if not known or op.overloadpacket._qualified_op_name in UNCOUNTED else 0.0
