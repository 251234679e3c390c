"""A model that can run: torch layers beside the `workloads.Model` that describes them."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from hwmodels.errors import InvalidInput
from workloads.model import Model, Precision

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn


class Slot(NamedTuple):
    """Where a layer finds one of its parameters: ``size`` values from ``offset`` of a block."""

    name: str
    block: str
    offset: int
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        """Values."""
        found = 1
        for length in self.shape:
            found *= length
        return found


class Fixed(NamedTuple):
    """A buffer or frozen parameter: its layer, its name there, and its values."""

    layer: int
    name: str
    values: Tensor


@dataclass(frozen=True, eq=False)
class Network:
    """Layers that run in a chain, and their description.

    Attributes
    ----------
    layers : tuple of nn.Module
        Each is called with the output of the one before; the last one with the target too, and
        returns the mean loss of its samples.
    model : Model
        As `workloads.from_torch` describes these layers.
    slots : tuple of tuple of Slot
        Parameters of each layer.
    parameters : mapping of str to tuple of Tensor
        Parameters of each block, in the order in which they lie in its flat buffer.
    fixed : mapping of str to tuple of Fixed
        Buffers and frozen parameters that travel with each block.
    """

    layers: tuple[nn.Module, ...]
    model: Model
    slots: tuple[tuple[Slot, ...], ...]
    parameters: Mapping[str, tuple[Tensor, ...]]
    fixed: Mapping[str, tuple[Fixed, ...]]

    @staticmethod
    def bind(layers: Sequence[nn.Module], model: Model) -> Network:
        """Join layers to a model that `workloads.from_torch` made of them.

        Raises
        ------
        InvalidInput
            If the model describes other layers, or a layer is random (dropout).
        """
        return _bind(tuple(layers), model)

    def empty_layers(self) -> list[nn.Module]:
        """Copy the layers without values; parameters and buffers are passed to each call."""
        return [copy.deepcopy(layer).to("meta") for layer in self.layers]


def _bind(layers: tuple[nn.Module, ...], model: Model) -> Network:
    from workloads.models.torch_module import parameter_blocks

    if len(layers) != len(model.layers):
        raise InvalidInput(
            f"{model.name} describes {len(model.layers)} layers and {len(layers)} were passed; "
            "make the model of these layers with workloads.from_torch"
        )
    blocks = parameter_blocks(layers)
    parameters = {
        block: tuple(layers[layer].get_parameter(name) for layer, name in places)
        for block, places in blocks.items()
    }
    for weight in model.weights:
        count = sum(found.numel() for found in parameters.get(weight.name, ()))
        if count != weight.params:
            raise InvalidInput(
                f"{model.name} counts {weight.params} parameters in {weight.name} and the layers "
                f"have {count}; make the model of these layers with workloads.from_torch"
            )
    for index, layer in enumerate(layers):
        _deterministic(index, layer)
    where = {
        id(found): (block, sum(other.numel() for other in group[:position]))
        for block, group in parameters.items()
        for position, found in enumerate(group)
    }
    slots = tuple(
        tuple(
            Slot(name, *where[id(found)], tuple(found.shape))
            for name, found in layer.named_parameters(remove_duplicate=False)
            if found.requires_grad
        )
        for layer in layers
    )
    return Network(layers, model, slots, parameters, _fixed(layers, model))


def _deterministic(index: int, layer: nn.Module) -> None:
    for name, part in layer.named_modules():
        if part.training and getattr(part, "p", 0) and "Dropout" in type(part).__name__:
            raise InvalidInput(
                f"layer {index} ({type(layer).__name__}) drops values at random in {name!r}, so "
                "that computing it again gives other numbers; set its p to 0 or call .eval() on it"
            )


def _fixed(layers: tuple[nn.Module, ...], model: Model) -> Mapping[str, tuple[Fixed, ...]]:
    """Buffers and frozen parameters of each layer, by the layer's own block that carries them."""
    found: dict[str, tuple[Fixed, ...]] = {}
    for index, (layer, described) in enumerate(zip(layers, model.layers, strict=True)):
        frozen = [(name, held) for name, held in layer.named_parameters() if not held.requires_grad]
        carried = tuple(Fixed(index, *each) for each in [*layer.named_buffers(), *frozen])
        if carried:
            found[next(weight.name for weight in described.weights if weight.buffer_bytes)] = (
                carried
            )
    return found


class Formats(NamedTuple):
    """Number formats of what a schedule stores."""

    weight: torch.dtype
    gradient: torch.dtype
    master: torch.dtype | None
    state: torch.dtype


def formats(precision: Precision) -> Formats:
    """Torch's number formats for the bytes of a precision.

    Raises
    ------
    InvalidInput
        If there is no format of that many bytes.
    """
    import torch

    short = torch.float16 if precision.compute == "fp16" else torch.bfloat16
    known = {2: short, 4: torch.float32, 8: torch.float64}

    def of(nbytes: int) -> torch.dtype:
        found = known.get(nbytes)
        if found is None:
            raise InvalidInput(
                f"precision {precision.name} stores {nbytes} bytes a value; torch runs 2, 4 and 8"
            )
        return found

    return Formats(
        of(precision.weight),
        of(precision.gradient),
        of(precision.master) if precision.master else None,
        of(precision.state),
    )
