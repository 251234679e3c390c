"""VGG-416 and ResNet-1026: sizes, FLOPs and saved bytes from closed forms and measured tables."""

from __future__ import annotations

import pytest

from workloads.model import Model, optimizer, precision
from workloads.models.convnet import resnet1026, vgg416
from workloads.models.profile import harmony

FP32 = precision("fp32")
MOMENTUM = optimizer("momentum")


@pytest.fixture(scope="module")
def vgg() -> Model:
    return vgg416(FP32, MOMENTUM)


@pytest.fixture(scope="module")
def resnet() -> Model:
    return resnet1026(FP32, MOMENTUM)


def test_parameters(vgg: Model, resnet: Model) -> None:
    assert vgg.params == 577_894_184
    assert resnet.params == 801_800_232
    assert sum(vgg.weight_bytes(w) for w in vgg.weights) == 2_311_576_736
    assert sum(w.buffer_bytes for w in resnet.weights) == 1_981_984


def test_vgg_is_vgg16_and_80_convolutions_a_stage(vgg: Model) -> None:
    stages = ((224, 64), (112, 128), (56, 256), (28, 512), (14, 512))
    assert vgg.params == 138_357_544 + 80 * sum(9 * c * c + c for _, c in stages)
    # VGG-16 at 224 x 224: 15,470,264,320 multiply-adds
    extra = 80 * sum(9 * c * c * wide * wide for wide, c in stages)
    assert sum(layer.forward_flops for layer in vgg.layers) == 2 * (15_470_264_320 + extra)
    assert [layer.kind for layer in vgg.layers].count("conv") == 413


def test_resnet_closed_form(resnet: Model) -> None:
    """Stage: first block 9 c_in c + 9 c^2 + 4 c (+ c_in c + 2 c), others 18 c^2 + 4 c."""
    total, enter = 9_408 + 128, 64
    for c in (64, 128, 256, 512):
        projection = enter * c + 2 * c if enter != c else 0
        total += 9 * enter * c + 9 * c * c + 4 * c + projection + 127 * (18 * c * c + 4 * c)
        enter = c
    assert resnet.params == total + 512 * 1000 + 1000
    block = resnet.layers[2]
    assert block.forward_flops == 2 * 18 * 64 * 64 * 56 * 56
    assert block.stash_bytes == 3 * 64 * 56 * 56 * 4


def test_backward_is_twice_forward_but_for_the_first_layer(vgg: Model, resnet: Model) -> None:
    for model in (vgg, resnet):
        first, *others = model.layers
        assert first.backward_flops == first.forward_flops
        assert all(layer.backward_flops == 2 * layer.forward_flops for layer in others)


@pytest.mark.parametrize("name", ["vgg416", "resnet1026"])
def test_layers_equal_the_measured_ones(name: str, vgg: Model, resnet: Model) -> None:
    model = vgg if name == "vgg416" else resnet
    measured = harmony(f"harmony/{name}")
    assert model.input_bytes == measured.input_bytes == 3 * 224 * 224 * 4
    assert len(model.layers) == len(measured.layers)
    for ours, theirs in zip(model.layers, measured.layers, strict=True):
        assert ours.name == theirs.name
        assert ours.weights == theirs.weights
        assert ours.output_bytes == theirs.output_bytes
        assert ours.forward_flops == theirs.forward_flops
        assert ours.backward_flops == theirs.backward_flops
        assert ours.forward_bytes == theirs.forward_bytes


def test_precision_sets_activation_bytes(vgg: Model) -> None:
    half = vgg416(precision("mixed-bf16"), MOMENTUM)
    assert half.input_bytes * 2 == vgg.input_bytes
    for small, large in zip(half.layers, vgg.layers, strict=True):
        assert small.output_bytes * 2 == large.output_bytes
        assert small.params == large.params
    # a pooled convolution saves its ReLU output, and 8-byte indices in any precision
    pooled = next(layer for layer in half.layers if layer.stash_bytes)
    assert pooled.name == "conv.81"
    assert pooled.stash_bytes == 64 * 224 * 224 * 2 + 64 * 112 * 112 * 8
