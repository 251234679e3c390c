"""Residual networks with bottlenecks: ResNet, SE-ResNet and SENet-154."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from workloads.model import Layer
from workloads.models.tape import Map, Tape, loss

CLASSES = 1000

REDUCTION = 16
"""Width of a squeeze-and-excitation over its channels, inverse (arXiv 1709.01507, section 6.4)."""

WIDTHS = (64, 128, 256, 512)
"""Inner width of the bottlenecks of each stage (arXiv 1512.03385, table 1)."""

EXPANSION = 4
"""Channels that a bottleneck hands on over its inner width."""


@dataclass(frozen=True, slots=True)
class Residual:
    """A residual network of four stages.

    Attributes
    ----------
    blocks : tuple of int
        Bottlenecks of each stage.
    excite : bool
        Squeeze-and-excitation in every bottleneck.
    grouped : bool
        SENet-154's changes to ResNet-152 (arXiv 1709.01507, appendix): grouped 3 x 3 convolutions
        twice as wide, three 3 x 3 convolutions as stem, 3 x 3 projections, dropout at the end.
    """

    blocks: tuple[int, int, int, int]
    excite: bool = False
    grouped: bool = False


RESIDUALS = {
    "resnet50": Residual((3, 4, 6, 3)),
    "resnet152": Residual((3, 8, 36, 3)),
    "se-resnet50": Residual((3, 4, 6, 3), excite=True),
    "senet154": Residual((3, 8, 36, 3), excite=True, grouped=True),
}
"""Networks by name (arXiv 1512.03385, table 1; arXiv 1709.01507)."""

GROUPS = 64
"""Groups of SENet-154's convolutions, as in ResNeXt-152 (64 x 4d)."""


def residual(net: Residual, pixels: int, element: int) -> Iterator[Layer]:
    """Layers: stem, a layer for each bottleneck, classifier, loss."""
    x = Map(3, pixels, pixels, pixels=True)
    tape = Tape(element, x)
    x = _stem(tape, x, grouped=net.grouped)
    yield tape.layer("stem", x)
    index = 0
    for stage, (width, blocks) in enumerate(zip(WIDTHS, net.blocks, strict=True)):
        for place in range(blocks):
            tape = Tape(element, x)
            stride = 2 if stage and place == 0 else 1
            block = wide_bottleneck if net.grouped else bottleneck
            x = block(tape, x, width, stride, excite=net.excite)
            yield tape.layer(f"block.{index}", x)
            index += 1
    tape = Tape(element, x)
    x = tape.mean(x)
    x = tape.dropout(x) if net.grouped else x
    yield tape.layer("fc", tape.linear(x, CLASSES))
    yield loss(CLASSES, element)


def _stem(tape: Tape, x: Map, *, grouped: bool) -> Map:
    if grouped:
        for leave, stride in ((64, 2), (64, 1), (128, 1)):
            x = unit(tape, x, leave, 3, stride)
    else:
        x = unit(tape, x, 64, 7, 2)
    return tape.max_pool(x, 3, 2, 1)


def unit(tape: Tape, x: Map, leave: int, kernel: int, stride: int = 1) -> Map:
    """Convolution, batch norm, ReLU."""
    return tape.relu(tape.norm(tape.conv(x, leave, kernel, stride)))


def bottleneck(tape: Tape, x: Map, width: int, stride: int = 1, *, excite: bool = False) -> Map:
    """1 x 1, 3 x 3 and 1 x 1 convolution around a shortcut, projected where the shape changes.

    The 3 x 3 convolution has the stride, as in today's libraries; the paper gives it to the first.
    """
    inner = unit(tape, unit(tape, x, width, 1), width, 3, stride)
    return _close(tape, x, inner, width, stride, 1, excite=excite)


def wide_bottleneck(tape: Tape, x: Map, width: int, stride: int, *, excite: bool) -> Map:
    """SENet-154's bottleneck: grouped 3 x 3 convolution twice as wide, 3 x 3 projection."""
    inner = unit(tape, x, 2 * width, 1)
    links = inner.channels * 4 * width // GROUPS
    inner = tape.relu(tape.norm(tape.conv(inner, 4 * width, 3, stride, links=links)))
    return _close(tape, x, inner, width, stride, 3 if stride > 1 else 1, excite=excite)


def _close(
    tape: Tape, x: Map, inner: Map, width: int, stride: int, kernel: int, *, excite: bool
) -> Map:
    """Last convolution, excitation, and the sum with the shortcut."""
    leave = EXPANSION * width
    inner = tape.norm(tape.conv(inner, leave, 1))
    inner = _excite(tape, inner) if excite else inner
    if stride > 1 or x.channels != leave:
        x = tape.norm(tape.conv(x, leave, kernel, stride))
    return tape.relu(tape.add(inner, x))


def _excite(tape: Tape, x: Map) -> Map:
    """Scale each channel by a factor computed from the means of all (2 c^2 / r + c / r + c)."""
    squeezed = tape.relu(tape.linear(tape.mean(x), x.channels // REDUCTION))
    return tape.gate(x, tape.relu(tape.linear(squeezed, x.channels)))
