"""The networks that the command line measures and runs, sized for a core or for a GPU."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from hwmodels.errors import InvalidInput
from validate.devices import need_torch

if TYPE_CHECKING:
    from torch import Tensor, nn

NETS = ("gpt", "conv")
"""Names that `usual` takes."""


class Usual(NamedTuple):
    """Layers, and a function that makes a batch of so many samples."""

    layers: list[nn.Module]
    batch: Callable[[int], tuple[Tensor, Tensor]]


def usual(net: str, device: str) -> Usual:
    """Make a network.

    On a CPU an operation takes some milliseconds, far above the cost of starting it; weights are
    large beside activations, so that swaps show.

    Parameters
    ----------
    net : str
        ``gpt`` or ``conv``.
    device : str
        ``cpu`` or ``cuda``.

    Raises
    ------
    InvalidInput
        If there is no such network, or torch is not installed.
    """
    if net not in NETS:
        raise InvalidInput(f"there is no network {net!r}; take {' or '.join(NETS)}")
    torch = need_torch()
    from validate import nets

    torch.manual_seed(0)
    large = device == "cuda"
    if net == "conv":
        channels = (3, 256, 512, 1024) if large else (3, 64, 128, 256)
        size = 128 if large else 32
        return Usual(nets.convnet(channels), partial(nets.pictures, size=size))
    tokens, vocab = (1024, 8192) if large else (32, 1024)
    width, heads = (2048, 16) if large else (512, 8)
    layers = nets.gpt(layers=4, hidden=width, heads=heads, vocab=vocab, tokens=tokens)
    return Usual(layers, partial(nets.text, tokens=tokens, vocab=vocab))
