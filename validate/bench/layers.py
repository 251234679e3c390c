"""The distinct layers of a chain with real inputs, on the device that measures them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from copy import deepcopy
from typing import TYPE_CHECKING, NamedTuple

from hwmodels.compute import Dtype
from hwmodels.errors import InvalidInput

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

    from validate.devices import Devices


class Case(NamedTuple):
    """One layer for one microbatch.

    Attributes
    ----------
    gpu : str
        Where it is measured.
    row : str
        Name that all layers like it share.
    layer : Module
        A copy of the layer on the device.
    inputs : tuple of Tensor
        What it is called with: the output of the layer before, in the last layer the target too.
    samples : int
        Microbatch size.
    first : bool
        Whether it is the first of the chain, which needs no gradient of its input.
    """

    gpu: str
    row: str
    layer: nn.Module
    inputs: tuple[Tensor, ...]
    samples: int
    first: bool


def cases(
    layers: Sequence[nn.Module], example: Sequence[Tensor], samples: int, devices: Devices, gpu: str
) -> list[Case]:
    """Run a chain once without gradients, and keep the first of all layers that are alike.

    Alike are layers of one class and description with equal shapes of parameters and inputs; what
    the first gives stands for the output of all. Rows are named after the class, with the layer's
    index where several kinds of a class differ.

    Parameters
    ----------
    layers : sequence of Module
        Called as ``x = layer(x)``; the last as ``layer(x, target)`` if the example has a target.
    example : sequence of Tensor
        Input of the first layer, and perhaps target; samples are taken from it in turn.
    samples : int
        Microbatch size.
    devices : Devices
    gpu : str
        Where to measure.
    """
    import torch

    place = devices.place(gpu)

    turn = torch.arange(samples) % len(example[0])
    x, *target = (part[turn].to(place) for part in example)
    found: dict[object, tuple[int, nn.Module, tuple[Tensor, ...]]] = {}
    outputs: dict[object, Tensor] = {}
    for index, layer in enumerate(layers):
        inputs = (x, *target) if index == len(layers) - 1 else (x,)
        key = _alike(layer, inputs, first=index == 0)
        if key not in found:
            here = deepcopy(layer).to(place)
            found[key] = (index, here, inputs)
            with torch.no_grad():
                outputs[key] = here(*inputs)
        x = outputs[key]
    kinds = Counter(type(layer).__name__.lower() for _, layer, _ in found.values())
    return [
        Case(gpu, _row(layer, index, kinds), layer, inputs, samples, index == 0)
        for index, layer, inputs in found.values()
    ]


def _alike(layer: nn.Module, inputs: Sequence[Tensor], *, first: bool) -> object:
    """Equal for layers that take the same time."""
    shapes = tuple((x.shape, x.dtype) for x in (*layer.parameters(), *inputs))
    return type(layer), repr(layer), shapes, first


def _row(layer: nn.Module, index: int, kinds: Counter[str]) -> str:
    kind = type(layer).__name__.lower()
    return kind if kinds[kind] == 1 else f"{kind}.{index}"


def number_format(case: Case) -> Dtype:
    """Format of a layer's arithmetic: that of its parameters, or else of its input.

    Raises
    ------
    InvalidInput
        If the cost model has no such format.
    """
    import torch

    parameter = next(case.layer.parameters(), case.inputs[0])
    names: dict[torch.dtype, Dtype] = {
        torch.float32: "tf32" if _tf32(parameter) else "fp32",
        torch.float16: "fp16",
        torch.bfloat16: "bf16",
    }
    if parameter.dtype not in names:
        raise InvalidInput(
            f"Layer {case.row!r} computes in {parameter.dtype}; "
            "layers in float32, float16 or bfloat16 can be measured."
        )
    return names[parameter.dtype]


def _tf32(parameter: Tensor) -> bool:
    import torch

    return parameter.is_cuda and torch.get_float32_matmul_precision() != "highest"
