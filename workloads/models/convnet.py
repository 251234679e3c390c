"""Convolutional networks of the Harmony paper: VGG-416 and ResNet-1026, 224 x 224 pixels.

Parameters, FLOPs (1 multiply-add = 2), saved activations and memory traffic follow from the shapes
alone. What is saved for backward (derived; matches saved-tensor counts of the usual frameworks):
a convolution saves its input, a ReLU in place its output, a batch norm its input, a max pool its
input and 8-byte indices, dropout a mask of 1 byte. Layer inputs and outputs are boundary
activations and not counted as saved. Kernels: one for each operation named here, twice as many
in backward (gradient of input and of weights).
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from workloads.model import Layer, Model, Optimizer, Precision, Weight

PIXELS = 224
CLASSES = 1000
_INDEX = 8
"""Bytes of one index of a max pool (64-bit integers)."""

_NORM_BUFFERS = (8, 8)
"""Bytes a batch norm keeps: per channel (fp32 mean and variance), and its counter of batches."""

VGG_CHANNELS = (64, 128, 256, 512, 512)
VGG_CONVS = (2, 2, 3, 3, 3)
"""Convolutions of each VGG-16 stage: configuration D of Simonyan and Zisserman, arXiv 1409.1556."""

VGG_EXTRA = 80
"""Convolutions that VGG-416 adds to each stage; 416 counts them and 3 linear layers."""

VGG_HIDDEN = 4096

RESNET_CHANNELS = (64, 128, 256, 512)
RESNET_BLOCKS = (128, 128, 128, 128)
"""Basic blocks of each stage: 2 x 512 convolutions, stem and classifier make 1026 layers."""


def _layer(
    name: str, params: int, buffers: int, macs: int, elements: tuple[int, int], saved: int,
    touched: int, kernels: int, size: int, *, first: bool = False,
) -> Layer:  # fmt: skip
    """Fill in one layer.

    ``elements`` are those of input and output; ``saved`` bytes; ``touched`` elements read or
    written by a forward; ``size`` bytes of one. Backward does twice the work of forward, except
    in the ``first`` layer, which needs no gradient of its input.
    """
    forward = 2.0 * macs
    return Layer(
        name=name,
        kind=name.split(".")[0],
        weights=(Weight(name, params, buffers),) if params else (),
        output_bytes=elements[1] * size,
        stash_bytes=saved,
        forward_flops=forward,
        backward_flops=forward * (1 if first else 2),
        forward_bytes=float(touched * size),
        backward_bytes=2.0 * touched * size,
        forward_kernels=kernels,
        backward_kernels=2 * kernels,
    )


def _conv(index: int, wide: int, deep: tuple[int, int], size: int, *, pool: bool) -> Layer:
    """3 x 3 convolution with bias, ReLU in place; after the last of a stage a 2 x 2 max pool."""
    enter, leave = deep
    area = wide * wide
    inside = leave * area
    output = inside // 4 if pool else inside
    params = 9 * enter * leave + leave
    # convolution: reads input, writes; ReLU: reads and writes; pool: reads, writes output
    touched = enter * area + 3 * inside + (inside + output if pool else 0)
    saved = inside * size + output * _INDEX if pool else 0
    return _layer(
        f"conv.{index}", params, 0, 9 * enter * leave * area, (enter * area, output), saved,
        touched, 3 if pool else 2, size, first=index == 0,
    )  # fmt: skip


def _linear(name: str, enter: int, leave: int, size: int, *, hidden: bool) -> Layer:
    """Linear layer; a hidden one is followed by ReLU in place and dropout."""
    saved = leave * (size + 1) if hidden else 0
    touched = enter + leave * (5 if hidden else 1)
    kernels = 3 if hidden else 1
    return _layer(
        name, enter * leave + leave, 0, enter * leave, (enter, leave), saved, touched, kernels, size
    )


def _loss(size: int) -> Layer:
    """Cross entropy: saves the log-probabilities."""
    return _layer("loss", 0, 0, 0, (CLASSES, 0), CLASSES * size, 3 * CLASSES, 2, size)


def _vgg(size: int) -> Iterator[Layer]:
    wide, enter, index = PIXELS, 3, 0
    for leave, convs in zip(VGG_CHANNELS, VGG_CONVS, strict=True):
        total = convs + VGG_EXTRA
        for place in range(total):
            yield _conv(index, wide, (enter, leave), size, pool=place == total - 1)
            enter, index = leave, index + 1
        wide //= 2
    widths = (enter * wide * wide, VGG_HIDDEN, VGG_HIDDEN, CLASSES)
    for place, (before, after) in enumerate(pairwise(widths)):
        yield _linear(f"fc.{place}", before, after, size, hidden=place < 2)
    yield _loss(size)


def _stem(size: int) -> Layer:
    """7 x 7 convolution with stride 2, batch norm, ReLU in place, 3 x 3 max pool with stride 2."""
    leave, wide = RESNET_CHANNELS[0], PIXELS // 2
    inside = leave * wide * wide
    output = inside // 4
    enter = 3 * PIXELS * PIXELS
    params = 49 * 3 * leave
    saved = 2 * inside * size + output * _INDEX
    # convolution, batch norm (reads twice: statistics, then values), ReLU, pool
    touched = enter + inside + 3 * inside + 2 * inside + inside + output
    return _layer(
        "stem", params + 2 * leave, _norm(leave), params * wide * wide, (enter, output),
        saved, touched, 4, size, first=True,
    )  # fmt: skip


def _norm(channels: int) -> int:
    return _NORM_BUFFERS[0] * channels + _NORM_BUFFERS[1]


def _block(index: int, wide: int, deep: tuple[int, int], size: int) -> Layer:
    """Two 3 x 3 convolutions with batch norm around a shortcut, projected where the shape changes.

    ``wide`` is the width of the output; a block that changes the shape halves the width.
    """
    enter, leave = deep
    area = wide * wide
    output = leave * area
    change = enter != leave
    before = enter * area * (4 if change else 1)
    params = 9 * enter * leave + 9 * leave * leave
    norms = 2
    # two convolutions; two batch norms (3 each), ReLU (2), sum (3), ReLU (2)
    touched = before + output + 2 * output + 6 * output + 7 * output
    kernels, inside = 7, 3
    if change:
        params += enter * leave
        norms += 1
        touched += before + output + 3 * output
        kernels, inside = 9, 4
    return _layer(
        f"block.{index}", params + norms * 2 * leave, norms * _norm(leave), params * area,
        (before, output), inside * output * size, touched, kernels, size,
    )  # fmt: skip


def _resnet(size: int) -> Iterator[Layer]:
    yield _stem(size)
    wide, enter, index = PIXELS // 4, RESNET_CHANNELS[0], 0
    for stage, (leave, blocks) in enumerate(zip(RESNET_CHANNELS, RESNET_BLOCKS, strict=True)):
        wide //= 1 if stage == 0 else 2
        for _ in range(blocks):
            yield _block(index, wide, (enter, leave), size)
            enter, index = leave, index + 1
    # average pool over all pixels, then the classifier
    pixels = enter * wide * wide
    yield _layer(
        "fc", enter * CLASSES + CLASSES, 0, enter * CLASSES, (pixels, CLASSES), enter * size,
        pixels + 2 * enter + CLASSES, 2, size,
    )  # fmt: skip
    yield _loss(size)


def _model(name: str, layers: Iterator[Layer], precision: Precision, optimizer: Optimizer) -> Model:
    pixels = 3 * PIXELS * PIXELS * precision.activation
    return Model(name, tuple(layers), pixels, 1, precision, optimizer)


def vgg416(precision: Precision, optimizer: Optimizer) -> Model:
    """VGG-16 with 80 more convolutions in each stage: 577,894,184 parameters.

    Layers: 413 convolutions (with ReLU and pool), 3 linear ones, loss.
    """
    return _model("vgg416", _vgg(precision.activation), precision, optimizer)


def resnet1026(precision: Precision, optimizer: Optimizer) -> Model:
    """ResNet with 128 basic blocks in each of its four stages: 801,800,232 parameters.

    Layers: stem, 512 blocks, classifier, loss. Batch-norm statistics are buffers.
    """
    return _model("resnet1026", _resnet(precision.activation), precision, optimizer)
