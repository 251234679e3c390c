"""Convolutional networks: FLOPs against counted totals, layers against the same torch modules."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch_convnets as nets
from torch import nn

import workloads as wl
from hwmodels.errors import InvalidInput
from workloads.model import Layer
from workloads.models.amoebanet import cell
from workloads.models.hrnet import module
from workloads.models.residual import bottleneck, wide_bottleneck
from workloads.models.tape import Map, Tape

GFLOPS = {
    "resnet50": 8.178,
    "resnet152": 23.027,
    "vgg16": 30.941,
    "alexnet": 1.428,
    "se-resnet50": 8.183,
    "senet154": 41.377,
    "hrnet-w48": 34.556,
}
"""Forward FLOPs of one image, counted on the instantiated models."""


@pytest.mark.parametrize("name", GFLOPS)
def test_flops(name: str) -> None:
    model = wl.model(name)
    forward = sum(layer.forward_flops for layer in model.layers)
    assert round(forward / 1e9, 3) == GFLOPS[name]
    # all but the first convolution (of several in a layer) have a gradient of their input
    missing = 2 * forward - sum(layer.backward_flops for layer in model.layers)
    assert 0 < missing <= model.layers[0].forward_flops


def test_closed_forms_of_lenet_and_dqn() -> None:
    lenet = wl.model("lenet5")
    # C1, S2, C3, S4, C5, F6 (LeCun et al. 1998, section II.B); 84 x 10 fixed values
    assert [layer.params for layer in lenet.layers] == [156 + 12, 1516 + 32, 48_120, 10_164, 0]
    assert sum(weight.buffer_bytes for weight in lenet.weights) == 4 * 840
    dqn = wl.model("dqn-18")
    assert [layer.params for layer in dqn.layers] == [4_112, 8_224, 663_808, 257 * 18, 0]


def test_chains() -> None:
    for name in ("lenet5", "alexnet-2012", "senet154", "hrnet-w18", "amoebanet-d-18-208"):
        layers = wl.model(name).layers
        assert len({layer.name for layer in layers}) == len(layers)
        assert all(layer.output_bytes for layer in layers[:-1])
        assert layers[-1].output_bytes == 0
    # 18 normal cells, four that reduce, stem, classifier, loss
    assert len(wl.model("amoebanet-d-18-208").layers) == 18 + 4 + 3


def test_what_layers_hand_on() -> None:
    hrnet = {layer.name: layer for layer in wl.model("hrnet-w18").layers}
    # four branches of 56, 28, 14 and 7 places and 18 to 144 channels
    maps = sum(18 * 2**i * (56 // 2**i) ** 2 for i in range(4))
    assert hrnet["module4.7"].output_bytes == 4 * maps
    amoeba = {layer.name: layer for layer in wl.model("amoebanet-d-18-208").layers}
    # a normal cell joins four maps of 208 channels; the reducing one before joins three
    assert amoeba["cell.2"].output_bytes == 4 * 28 * 28 * 208 * (4 + 3)


def test_image_sizes() -> None:
    small, large = wl.model("resnet50"), wl.model("resnet50", pixels=448)
    assert large.params == small.params
    assert large.input_bytes == 4 * small.input_bytes
    for one, other in zip(small.layers[:-2], large.layers[:-2], strict=True):
        assert other.forward_flops == 4 * one.forward_flops
        assert other.stash_bytes == 4 * one.stash_bytes
    for name, pixels in (("resnet50", 100), ("hrnet-w18", 0), ("alexnet", 224)):
        with pytest.raises(InvalidInput, match="pixels"):
            wl.model(name, pixels=pixels)


# against torch -----------------------------------------------------------------------------------


def ends_kept(layer: nn.Module) -> bool:
    """Whether a chain's layer ends with an operation that keeps its output."""
    last = [each for each in layer.modules() if not list(each.children())]
    last = [each for each in last if not isinstance(each, nn.Flatten)]
    return isinstance(last[-1], nn.ReLU | nn.Tanh)


@pytest.mark.parametrize(
    ("name", "layers", "example", "dropped"),
    [
        ("alexnet", nets.alexnet(), (3, 224, 224), {4: 9216, 5: 4096}),
        ("dqn-4", nets.dqn(4), (4, 84, 84), {}),
        ("lenet5", nets.lenet5()[:3], (1, 32, 32), {}),
    ],
)
def test_classic_layers_equal_torch(
    name: str, layers: list[nn.Module], example: tuple[int, ...], dropped: dict[int, int]
) -> None:
    """Stash without a kept output, which is a boundary here, and with masks of dropout.

    Where the module in torch has dropout off, the ReLU's output is the boundary; with it on, it is
    kept besides.
    """
    theirs = wl.from_torch(layers, torch.zeros(1, *example)).layers
    ours = wl.model(name).layers[: len(theirs)]
    for index, (one, other) in enumerate(zip(ours, theirs, strict=True)):
        kept = other.output_bytes if ends_kept(layers[index]) and index not in dropped else 0
        assert one.stash_bytes == other.stash_bytes - kept + dropped.get(index, 0)
        assert one.output_bytes == other.output_bytes
        if name != "lenet5" or index != 1:  # whose maps are all connected in torch
            assert one.params == other.params
            assert one.forward_flops == other.forward_flops
            assert one.backward_flops == other.backward_flops
        if index not in dropped and index < len(theirs) - 1:
            assert one.workspace_bytes == other.workspace_bytes
            assert one.forward_bytes == pytest.approx(other.forward_bytes, rel=0.1)


def one_layer(shape: tuple[int, int, int], run: Callable[[Tape, Map], Any]) -> Layer:
    """Layer of a function of a tape and a map."""
    x = Map(*shape)
    tape = Tape(4, x)
    made = run(tape, x)
    return tape.layer("layer", *(made if isinstance(made, tuple) else (made,)))


def second_of(module: nn.Module, shape: tuple[int, int, int]) -> Layer:
    """Measured layer that needs the gradient of its input; 2 values a norm's channel removed."""
    first = nn.Conv2d(shape[0], shape[0], 1)
    layer = wl.from_torch([first, module], torch.zeros(1, *shape)).layers[1]
    norms = (each for each in module.modules() if isinstance(each, nn.BatchNorm2d))
    extra = sum(2 * 4 * each.num_features for each in norms)
    return replace(layer, stash_bytes=layer.stash_bytes - extra)


@pytest.mark.parametrize(
    ("stride", "excite", "groups"), [(1, False, 1), (2, False, 1), (1, True, 1), (2, True, 64)]
)
def test_bottlenecks_equal_torch(stride: int, excite: bool, groups: int) -> None:
    shape = (256, 14, 14)
    block = bottleneck if groups == 1 else wide_bottleneck
    ours = one_layer(shape, lambda tape, x: block(tape, x, 64, stride, excite=excite))
    theirs = second_of(nets.Bottleneck(256, 64, stride, excite=excite, groups=groups), shape)
    assert_equal(ours, theirs, kept=theirs.output_bytes)
    assert ours.forward_bytes == pytest.approx(theirs.forward_bytes, rel=0.15)
    if groups == 1:  # torch counts the backward of grouped convolutions wrongly
        assert ours.backward_flops == theirs.backward_flops


def test_branches_equal_torch() -> None:
    shape = (64, 16, 16)

    def run(tape: Tape, x: Map) -> tuple[Map, ...]:
        return module(tape, (x,), 18, 2)

    theirs = second_of(nets.TwoBranches(64, 18), shape)
    assert_equal(one_layer(shape, run), theirs, kept=theirs.output_bytes)


@pytest.mark.parametrize("reduce", [False, True])
def test_cells_equal_torch(reduce: bool) -> None:
    shape = (96, 16, 16)

    def run(tape: Tape, x: Map) -> Map:
        return cell(tape, (x, x), 32, reduce=reduce, after=False)

    theirs = second_of(nets.AmoebaCell(96, 32, reduce=reduce), shape)
    assert_equal(one_layer(shape, run), theirs, kept=0)


def assert_equal(ours: Layer, theirs: Layer, *, kept: int) -> None:
    """FLOPs, output and stash agree, apart from an output that torch counts as ``kept``."""
    assert ours.params == theirs.params
    assert ours.output_bytes == theirs.output_bytes
    assert ours.forward_flops == theirs.forward_flops
    assert ours.stash_bytes + kept == theirs.stash_bytes
