"""Ordinary training on one device: what every schedule must agree with."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from validate.network import Network
from validate.optimizer import Settings

if TYPE_CHECKING:
    from torch import Tensor, optim


def train(
    network: Network,
    batches: Sequence[tuple[Tensor, Tensor]],
    microbatch: int,
    settings: Settings | None = None,
) -> tuple[Mapping[str, Tensor], tuple[float, ...]]:
    """Train as a torch loop does: gradients accumulate over microbatches, then one step.

    Parameters
    ----------
    network : Network
        Stays as it is.
    batches : sequence of (Tensor, Tensor)
        Input and target of each iteration.
    microbatch : int
        Samples that go through the layers together.
    settings : Settings, optional
        Of the optimizer.

    Returns
    -------
    weights : mapping of str to Tensor
        Flat values of each block at the end.
    losses : tuple of float
        Mean loss of each iteration.
    """
    layers, own = copy.deepcopy((network.layers, dict(network.parameters)))
    flat = {block: _join(group) for block, group in own.items() if group}
    parameters = [parameter for group in own.values() for parameter in group]
    optimizer = _optimizer(network.model.optimizer.name, parameters, settings or Settings())
    losses: list[float] = []
    for data, target in batches:
        optimizer.zero_grad()
        total = 0.0
        for low in range(0, len(data), microbatch):
            part = data[low : low + microbatch]
            for layer in layers[:-1]:
                part = layer(part)
            loss = layers[-1](part, target[low : low + microbatch])
            share = min(microbatch, len(data) - low) / len(data)
            (loss * share).backward()
            total += float(loss.detach()) * share
        optimizer.step()
        losses.append(total)
    return flat, tuple(losses)


def _join(group: Sequence[Tensor]) -> Tensor:
    """Lay parameters into one flat buffer, as schedules do.

    Products of matrices may round in another way where the alignment of their operands differs.
    """
    import torch

    flat = torch.cat([parameter.detach().reshape(-1) for parameter in group])
    low = 0
    for parameter in group:
        parameter.data = flat[low : low + parameter.numel()].view_as(parameter)
        low += parameter.numel()
    return flat


def _optimizer(kind: str, parameters: Sequence[Tensor], settings: Settings) -> optim.Optimizer:
    from torch import optim

    if kind == "adam":
        return optim.Adam(
            parameters, settings.rate, settings.betas, settings.epsilon, foreach=False
        )
    decay = settings.decay if kind == "momentum" else 0.0
    return optim.SGD(parameters, settings.rate, decay, foreach=False)
