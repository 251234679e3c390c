"""Convolutional networks by name: which images they read, and how they are built."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import NamedTuple

from hwmodels.errors import InvalidInput
from workloads.model import Layer, Model, Optimizer, Precision
from workloads.models.amoebanet import AMOEBANETS, amoebanet
from workloads.models.classic import alexnet, alexnet_2012, dqn, lenet5, vgg16
from workloads.models.hrnet import HRNETS, hrnet
from workloads.models.residual import RESIDUALS, residual

PIXELS = 224

STEP = 32
"""Networks of any image size halve it five times; other sizes would leave a border unread."""

ACTIONS = (4, 18)
"""Actions of the games with fewest and with most of them (arXiv 1312.5602, section 4.1)."""


class _Fixed(NamedTuple):
    """A network that reads images of one size: values of an image, and its layers by element."""

    values: int
    layers: Callable[[int], Iterator[Layer]]


_FIXED: Mapping[str, _Fixed] = {
    "lenet5": _Fixed(32 * 32, lenet5),
    "alexnet": _Fixed(3 * PIXELS**2, alexnet),
    "alexnet-2012": _Fixed(3 * PIXELS**2, alexnet_2012),
    "vgg16": _Fixed(3 * PIXELS**2, vgg16),
    **{f"dqn-{actions}": _Fixed(4 * 84**2, partial(dqn, actions)) for actions in ACTIONS},
}

_ANY: Mapping[str, Callable[[int, int], Iterator[Layer]]] = {
    **{name: partial(residual, net) for name, net in RESIDUALS.items()},
    **{name: partial(hrnet, width) for name, width in HRNETS.items()},
    **{name: partial(amoebanet, *sizes) for name, sizes in AMOEBANETS.items()},
}
"""Layers by pixels and element."""

NAMES: tuple[str, ...] = (*_FIXED, *_ANY)
"""Names that `images` takes."""

_NOTES = {
    "lenet5": "Maps, biases and coefficients of 1998; distances to 10 fixed pictures at the end.",
    "dqn": "Its optimizer RMSProp keeps one value a parameter, as momentum does.",
    "hrnet": "A chain: one layer is a module with all its branches, whose maps it hands on.",
    "amoebanet": "A chain: a cell also hands on its own input, which the next cell reads too.",
}
"""What the reader must know, by the start of the name."""


def images(
    name: str, precision: Precision, optimizer: Optimizer, *, pixels: int | None = None
) -> Model:
    """Build a convolutional network.

    Parameters
    ----------
    name : str
        One of `NAMES`.
    precision : Precision
    optimizer : Optimizer
    pixels : int, optional
        Width and height of an image; by default 224, or the one size that the network reads.

    Raises
    ------
    InvalidInput
        If the network does not read such images.
    """
    element = precision.activation
    notes = [text for start, text in _NOTES.items() if name.startswith(start)]
    if name in _FIXED:
        if pixels is not None:
            raise InvalidInput(f"{name} reads images of one size, so leave out its pixels.")
        values, layers = _FIXED[name].values, _FIXED[name].layers(element)
    else:
        wide = PIXELS if pixels is None else pixels
        if wide < STEP or wide % STEP:
            raise InvalidInput(f"pixels is {wide}; {name} takes a multiple of {STEP}.")
        values, layers = 3 * wide**2, _ANY[name](wide, element)
        notes.append(f"{wide} x {wide} pixels; pixels= sets it.")
    return Model(name, tuple(layers), values * element, 1, precision, optimizer, notes=tuple(notes))
