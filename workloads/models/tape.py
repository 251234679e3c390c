"""Tape of the operations of one layer of a convolutional network; costs follow from the shapes.

A network is written as its forward on feature maps without values. Of each operation the tape
notes parameters, FLOPs (1 multiply-add = 2; products only), memory traffic, kernels, and what
autograd keeps for backward: a convolution, a linear layer and a batch norm their input, a ReLU, a
sigmoid and a tanh their output, a max pool its input and 8-byte indices, an average pool its input,
a product of two maps both, dropout a mask of 1 byte and its output only if something else keeps it.
A map that several keep counts once; a layer's inputs and outputs are boundary activations and not
counted. Statistics that do not grow with the batch (two values a channel of a batch norm) are
neglected. Tests hold all of this against torch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from workloads.model import Layer, Weight

INDEX = 8
"""Bytes of one index (64-bit integers, as PyTorch's max pool keeps them)."""

STATISTICS = (8, 8)
"""Bytes a batch norm keeps: per channel (fp32 mean and variance), and its counter of batches."""


@dataclass(frozen=True, eq=False, slots=True)
class Map:
    """Feature map of one sample; a vector has height and width 1.

    Attributes
    ----------
    channels, high, wide : int
        Sizes.
    pixels : bool
        Input of the network, which needs no gradient.
    """

    channels: int
    high: int = 1
    wide: int = 1
    pixels: bool = False

    @property
    def elements(self) -> int:
        """Number of values."""
        return self.channels * self.high * self.wide


class Tape:
    """Operations of one layer in the order of its forward.

    Parameters
    ----------
    element : int
        Bytes of an activation.
    given : Map
        What the layers before hand over.
    """

    def __init__(self, element: int, *given: Map) -> None:
        self._element, self._given = element, given
        self._params = self._buffers = 0
        self._flops = self._input_flops = self._weight_flops = 0
        self._touched = self._extra = self._kernels = 0
        self._kept: set[Map] = set()
        self._steps: list[tuple[tuple[Map, ...], Map]] = []

    def _step(
        self, inputs: Sequence[Map], made: Map, *, keeps: Sequence[Map] = (), reads: int = 1
    ) -> Map:
        """Note one kernel: it reads its inputs ``reads`` times and writes a map."""
        self._kept.update(keeps)
        self._steps.append((tuple(inputs), made))
        self._touched += reads * sum(each.elements for each in inputs) + made.elements
        self._kernels += 1
        return made

    def _product(self, x: Map, made: Map, weights: int, bias: int, uses: int) -> Map:
        """Product with ``weights`` values, each used ``uses`` times for a sample."""
        self._params += weights + bias
        self._flops += 2 * weights * uses
        self._weight_flops += 2 * weights * uses
        self._input_flops += 0 if x.pixels else 2 * weights * uses
        return self._step([x], made, keeps=[x])

    def conv(
        self, x: Map, leave: int, kernel: int | tuple[int, int], stride: int = 1,
        pad: int | None = None, *, links: int = 0, bias: bool = False,
    ) -> Map:  # fmt: skip
        """Convolution to ``leave`` channels; pads half the kernel unless told otherwise.

        ``links`` counts the pairs of channels that are connected, where not all are.
        """
        high, wide = (kernel, kernel) if isinstance(kernel, int) else kernel
        down, across = (high // 2, wide // 2) if pad is None else (pad, pad)
        made = Map(leave, _size(x.high, high, stride, down), _size(x.wide, wide, stride, across))
        weights = high * wide * (links or x.channels * leave)
        return self._product(x, made, weights, leave if bias else 0, made.high * made.wide)

    def linear(self, x: Map, leave: int) -> Map:
        """Linear layer with bias on all values of a map."""
        return self._product(x, Map(leave), x.elements * leave, leave, 1)

    def fixed(self, x: Map, leave: int) -> Map:
        """Product with fp32 values that are not trained: backward makes one product only."""
        weights = x.elements * leave
        self._buffers += 4 * weights
        self._flops += 2 * weights
        self._input_flops += 2 * weights
        return self._step([x], Map(leave))

    def norm(self, x: Map) -> Map:
        """Batch norm; it reads twice, for the statistics and for the values."""
        self._params += 2 * x.channels
        self._buffers += STATISTICS[0] * x.channels + STATISTICS[1]
        return self._step([x], _like(x), keeps=[x], reads=2)

    def relu(self, x: Map) -> Map:
        """ReLU; also a sigmoid or a tanh, which keep their outputs too."""
        made = _like(x)
        return self._step([x], made, keeps=[made])

    def max_pool(self, x: Map, kernel: int, stride: int, pad: int = 0) -> Map:
        """Max pool."""
        made = _pooled(x, kernel, stride, pad)
        self._extra += INDEX * made.elements
        return self._step([x], made, keeps=[x])

    def average_pool(self, x: Map, kernel: int, stride: int, pad: int = 0) -> Map:
        """Average pool."""
        return self._step([x], _pooled(x, kernel, stride, pad), keeps=[x])

    def scale(self, x: Map) -> Map:
        """Coefficient and shift of each channel, both trained."""
        self._params += 2 * x.channels
        return self._step([x], _like(x), keeps=[x])

    def mean(self, x: Map) -> Map:
        """Mean over all places of a channel."""
        return self._step([x], Map(x.channels))

    def gate(self, x: Map, factor: Map) -> Map:
        """Product with one factor a channel."""
        return self._step([x, factor], _like(x), keeps=[x, factor])

    def local_norm(self, x: Map) -> Map:
        """Response norm across channels; keeps its input and the scale of each value."""
        scale = _like(x)
        return self._step([x], _like(x), keeps=[x, scale])

    def dropout(self, x: Map) -> Map:
        """Dropout."""
        self._extra += x.elements
        return self._step([x], _like(x))

    def add(self, *maps: Map) -> Map:
        """Sum of maps of one shape."""
        made = _like(maps[0])
        for left in maps[1:]:
            made = self._step([maps[0], left], made)
        return made

    def concat(self, *maps: Map) -> Map:
        """Lay maps of one size side by side."""
        made = Map(sum(each.channels for each in maps), maps[0].high, maps[0].wide)
        return self._step(maps, made)

    def shift(self, x: Map) -> Map:
        """Copy moved by one place."""
        return self._step([x], _like(x))

    def enlarge(self, x: Map, times: int) -> Map:
        """Repeat every value in both directions."""
        return self._step([x], Map(x.channels, x.high * times, x.wide * times))

    def layer(self, name: str, *made: Map) -> Layer:
        """Finish the layer that hands over ``made``; its kind is the name up to the dot.

        Backward launches twice the kernels and moves twice the bytes of forward (derived: of the
        gradients of input and output besides what forward touched).
        """
        outside = {*self._given, *made}
        kept = sum(each.elements for each in self._kept - outside)
        backward = self._input_flops + self._weight_flops
        return Layer(
            name=name,
            kind=name.split(".")[0],
            weights=(Weight(name, self._params, self._buffers),) if self._params else (),
            output_bytes=self._element * sum(each.elements for each in made),
            stash_bytes=self._element * kept + self._extra,
            workspace_bytes=self._element * self._workspace(outside),
            forward_flops=float(self._flops),
            backward_flops=float(backward),
            forward_bytes=float(self._element * self._touched),
            backward_bytes=2.0 * self._element * self._touched,
            forward_kernels=self._kernels,
            backward_kernels=2 * self._kernels,
            weight_share=self._weight_flops / backward if backward else 0.5,
        )

    def _workspace(self, outside: set[Map]) -> int:
        """Most values of inner gradients alive at once, walking the operations backward.

        The gradient of a map lives from the backward of its last reader to that of its maker.
        """
        alive: set[Map] = set()
        most = 0
        for inputs, made in reversed(self._steps):
            alive.update(each for each in inputs if not each.pixels)
            most = max(most, sum(each.elements for each in alive - outside))
            alive.discard(made)
        return most


def loss(classes: int, element: int) -> Layer:
    """Cross entropy: keeps the log-probabilities, in the number format of the activations."""
    return Layer(
        name="loss",
        kind="loss",
        weights=(),
        output_bytes=0,
        stash_bytes=classes * element,
        forward_bytes=float(3 * classes * element),
        backward_bytes=float(6 * classes * element),
        forward_kernels=2,
        backward_kernels=4,
    )


def _like(x: Map) -> Map:
    return Map(x.channels, x.high, x.wide, x.pixels)


def _pooled(x: Map, kernel: int, stride: int, pad: int) -> Map:
    return Map(x.channels, _size(x.high, kernel, stride, pad), _size(x.wide, kernel, stride, pad))


def _size(before: int, kernel: int, stride: int, pad: int) -> int:
    return (before + 2 * pad - kernel) // stride + 1
