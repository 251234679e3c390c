"""Blocks of parameters of a chain: names and order agree with the measured model."""

from __future__ import annotations

import torch
from torch import nn
from torch_nets import Gpt, chain

import workloads as wl
from workloads.models.torch_blocks import parameter_blocks, parameter_places


def test_tied_chain() -> None:
    gpt = Gpt(20, 4, 8, 2, 2)
    layers = chain(gpt)
    blocks = parameter_blocks(layers)
    assert list(blocks) == ["embed.0", "embed.0.wte.weight", "block.1", "block.2", "head.3"]
    assert blocks["embed.0"] == ((0, "wpe.weight"),)
    assert blocks["embed.0.wte.weight"] == ((0, "wte.weight"),)
    assert blocks["head.3"] == ((3, "norm.weight"), (3, "norm.bias"))
    assert [name for _, name in blocks["block.1"]] == [
        name for name, _ in gpt.blocks[0].named_parameters()
    ]
    places = parameter_places(layers)
    assert places["embed.0.wte.weight"] == (((0, "wte.weight"), (3, "head.weight")),)


def test_names_and_sizes_are_those_of_the_model() -> None:
    layers = chain(Gpt(20, 4, 8, 2, 2))
    example = torch.zeros(1, 4, dtype=torch.long)
    model = wl.from_torch(layers, example)
    blocks = parameter_blocks(layers)
    assert list(blocks) == [weight.name for weight in model.weights]
    for weight in model.weights:
        sizes = [layers[i].get_parameter(name).numel() for i, name in blocks[weight.name]]
        assert sum(sizes) == weight.params
    # buffers: the masks of the blocks
    assert [weight.buffer_bytes for weight in model.weights] == [0, 0, 16, 16, 0]


def test_places_lead_back_to_every_parameter() -> None:
    """Every trained parameter of every layer is at exactly one place."""
    twice = nn.Linear(4, 4)
    both = nn.Sequential(twice, nn.Linear(4, 4))
    both[1].weight = twice.weight
    layers = [both, nn.ReLU(), nn.BatchNorm1d(4, affine=False), twice, nn.Linear(4, 4)]
    layers[4].bias.requires_grad_(False)
    places = parameter_places(layers)
    assert places == {
        "sequential.0": (((0, "1.bias"),),),
        "sequential.0.0.weight": (((0, "0.weight"), (0, "1.weight"), (3, "weight")),),
        "sequential.0.0.bias": (((0, "0.bias"), (3, "bias")),),
        "batchnorm1d.2": (),
        "linear.4": (((4, "weight"),),),
    }
    model = wl.from_torch(layers, torch.zeros(2, 4))
    assert [weight.name for weight in model.weights] == list(places)
    assert model.params == 4 + 16 + 4 + 16
    assert model.layers[2].weights[0].buffer_bytes == 2 * 4 * 4 + 8
    assert model.layers[4].weights[0].buffer_bytes == 4 * 4
    assert [weight.name for weight in model.layers[3].weights] == [
        "sequential.0.0.weight",
        "sequential.0.0.bias",
    ]
