"""Blocks of parameters of a chain of torch modules: which layer reads which, under which name.

`from_torch` names the weights of a model by these rules; whoever lays real parameters into flat
buffers asks the same functions, so that names and order agree.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from workloads.model import Weight

if TYPE_CHECKING:
    from torch import Tensor, nn

Place = tuple[int, str]
"""Index of a layer, and the qualified name that a parameter has inside it."""


class Holding(NamedTuple):
    """What one layer reads besides activations.

    Attributes
    ----------
    name : str
        Name of the layer.
    parameters : tuple of (str, Parameter)
        Trained ones, with their names; one parameter may have several names.
    fixed : tuple of Tensor
        Buffers and frozen parameters.
    """

    name: str
    parameters: tuple[tuple[str, nn.Parameter], ...]
    fixed: tuple[Tensor, ...]


def layer_names(layers: Sequence[nn.Module]) -> tuple[str, ...]:
    """Names of the layers of a chain: class in lower case and index (``linear.0``)."""
    return tuple(f"{type(layer).__name__.lower()}.{i}" for i, layer in enumerate(layers))


def holdings(layers: Sequence[nn.Module]) -> list[Holding]:
    """List what every layer of a chain reads, in the order of ``named_parameters()``."""
    found: list[Holding] = []
    for name, layer in zip(layer_names(layers), layers, strict=True):
        named = list(layer.named_parameters(remove_duplicate=False))
        frozen = (parameter for parameter in layer.parameters() if not parameter.requires_grad)
        trained = tuple((key, each) for key, each in named if each.requires_grad)
        found.append(Holding(name, trained, (*layer.buffers(), *frozen)))
    return found


def places(held: Sequence[Holding]) -> dict[str, tuple[tuple[Place, ...], ...]]:
    """Blocks of parameters, and all the places of each parameter in a block.

    See Also
    --------
    parameter_places : The rules.
    """
    found: dict[int, list[Place]] = {}
    for index, holding in enumerate(held):
        for name, parameter in holding.parameters:
            found.setdefault(id(parameter), []).append((index, name))
    blocks: dict[str, list[tuple[Place, ...]]] = {}
    for index, holding in enumerate(held):
        first = [tuple(each) for each in found.values() if each[0][0] == index]
        own = [each for each in first if each[-1][0] == index]
        if own or holding.fixed:
            blocks[holding.name] = own
        for each in first:
            if each[-1][0] != index:
                blocks[f"{holding.name}.{each[0][1]}"] = [each]
    return {name: tuple(each) for name, each in blocks.items()}


def parameter_places(layers: Sequence[nn.Module]) -> dict[str, tuple[tuple[Place, ...], ...]]:
    """Every block of parameters with all the places of each of its parameters.

    A layer has one block of its own, named as the layer, for the parameters that no other layer
    reads (empty where it only has buffers). A parameter that several layers read is a block of its
    own, named after its first place (``embedding.0.weight``). Frozen parameters count as buffers
    and are in no block.

    Parameters
    ----------
    layers : sequence of Module

    Returns
    -------
    dict
        Block name to its parameters, in the order of ``named_parameters()``; each is the tuple of
        all (layer index, qualified name) that it has, first use first.
    """
    return places(holdings(layers))


def parameter_blocks(layers: Sequence[nn.Module]) -> dict[str, tuple[Place, ...]]:
    """Every block of parameters with the first place of each of its parameters.

    Names and order are those of ``Model.weights`` from `workloads.from_torch`; `parameter_places`
    has the other places of shared parameters.

    Parameters
    ----------
    layers : sequence of Module

    Returns
    -------
    dict
        Block name to (layer index, qualified name) of its parameters, in the order of
        ``named_parameters()``.
    """
    return {
        block: tuple(each[0] for each in parameters)
        for block, parameters in parameter_places(layers).items()
    }


def weights(held: Sequence[Holding]) -> list[tuple[Weight, ...]]:
    """Blocks of parameters that each layer reads.

    Buffers and frozen parameters travel with the layer's own block; what several layers share
    counts in each of them.
    """
    found: list[list[Weight]] = [[] for _ in held]
    named = [dict(holding.parameters) for holding in held]
    fixed = {holding.name: _bytes(holding.fixed) for holding in held}
    owner = {holding.name: index for index, holding in enumerate(held)}
    for block, parameters in places(held).items():
        params = sum(named[index][name].numel() for (index, name), *_ in parameters)
        weight = Weight(block, params, fixed.get(block, 0))
        readers = {index for each in parameters for index, _ in each} or {owner[block]}
        for index in sorted(readers):
            found[index].append(weight)
    return [tuple(each) for each in found]


def _bytes(tensors: Sequence[Tensor]) -> int:
    distinct = {id(tensor): tensor for tensor in tensors}.values()
    return sum(tensor.numel() * tensor.element_size() for tensor in distinct)
