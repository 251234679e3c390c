"""AmoebaNet-D, the evolved network that GPipe trains (arXiv 1802.01548; arXiv 1811.06965).

Cells and their wiring are those of the reference implementation in TensorFlow, as torchgpipe
(github.com/kakaobrain/torchgpipe, Apache 2.0) rebuilt it; only that wiring gives the parameters of
GPipe's table 1. A cell reads the two cells before it, a schedule needs a chain: a cell also hands
on its own input.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

from workloads.model import Layer
from workloads.models.tape import Map, Tape, loss

CLASSES = 1000

AMOEBANETS = {
    f"amoebanet-d-{layers}-{filters}": (layers, filters)
    for layers, filters in ((18, 208), (18, 256), (18, 416), (18, 544), (36, 544), (72, 512))
}
"""Normal cells L and filters D by name (arXiv 1811.06965, table 1; 18 and 256 in its section 3)."""

Operation = Literal["none", "conv1", "conv3", "conv7", "max2", "max3", "average3"]

Wiring = tuple[tuple[int, Operation], ...]
"""Two entries for each sum: which state is read, counted from the cell's inputs, and how."""

NORMAL: Wiring = (
    (1, "conv1"), (1, "max3"),
    (1, "none"), (0, "conv7"),
    (0, "conv1"), (0, "conv7"),
    (2, "max3"), (2, "none"),
    (1, "average3"), (5, "conv1"),
)  # fmt: skip
NORMAL_JOINED = (0, 3, 4, 6)

REDUCTION: Wiring = (
    (0, "max2"), (0, "max3"),
    (2, "none"), (1, "conv3"),
    (2, "conv7"), (2, "max3"),
    (3, "none"), (1, "max2"),
    (2, "average3"), (3, "conv1"),
)  # fmt: skip
REDUCTION_JOINED = (4, 5, 6)
"""States that a cell hands on, side by side."""


def amoebanet(cells: int, filters: int, pixels: int, element: int) -> Iterator[Layer]:
    """Stem, two reducing cells, three groups of normal ones, classifier, loss.

    Between two groups is a reducing cell.
    """
    x = Map(3, pixels, pixels, pixels=True)
    channels = filters // 4
    tape = Tape(element, x)
    x = tape.norm(tape.conv(tape.relu(x), channels, 3, 2))
    yield tape.layer("stem", x)
    maps = (x, x)
    group = (False,) * (cells // 3)
    order = (True, True, *group, True, *group, True, *group)
    for index, (reduce, after) in enumerate(zip(order, (False, *order), strict=False)):
        channels *= 2 if reduce else 1
        tape = Tape(element, *maps)
        maps = cell(tape, maps, channels, reduce=reduce, after=after), maps[0]
        yield tape.layer(f"{'reduction' if reduce else 'cell'}.{index}", *maps)
    tape = Tape(element, *maps)
    yield tape.layer("fc", tape.linear(tape.mean(maps[0]), CLASSES))
    yield loss(CLASSES, element)


def cell(tape: Tape, maps: Sequence[Map], channels: int, *, reduce: bool, after: bool) -> Map:
    """One cell; ``after`` says that the cell before it halved width and height."""
    before, earlier = maps
    if after:
        second = _halve(tape, earlier, channels)
    elif earlier.channels != channels:
        second = _unit(tape, earlier, channels, 1)
    else:
        second = earlier
    states = [_unit(tape, before, channels, 1), second]
    wiring, joined = (REDUCTION, REDUCTION_JOINED) if reduce else (NORMAL, NORMAL_JOINED)
    for left, right in zip(wiring[::2], wiring[1::2], strict=True):
        sides = [
            _operate(tape, states[at], how, 2 if reduce and at < 2 else 1)
            for at, how in (left, right)
        ]
        states.append(tape.add(*sides))
    return tape.concat(*(states[at] for at in joined))


def _unit(tape: Tape, x: Map, leave: int, kernel: int | tuple[int, int], stride: int = 1) -> Map:
    """ReLU, convolution, batch norm."""
    return tape.norm(tape.conv(tape.relu(x), leave, kernel, stride))


def _halve(tape: Tape, x: Map, leave: int) -> Map:
    """Halve width and height: two 1 x 1 convolutions on places shifted by one, side by side."""
    x = tape.relu(x)
    shifted = tape.shift(x)
    halves = [tape.conv(each, leave // 2, 1, 2) for each in (x, shifted)]
    return tape.norm(tape.concat(*halves))


def _operate(tape: Tape, x: Map, how: Operation, stride: int) -> Map:
    """One operation of a cell."""
    narrow = x.channels // 4
    match how:
        case "none":
            return x if stride == 1 else _halve(tape, x, x.channels)
        case "conv1":
            return _unit(tape, x, x.channels, 1, stride)
        case "conv3":
            inner = _unit(tape, _unit(tape, x, narrow, 1), narrow, 3, stride)
            return _unit(tape, inner, x.channels, 1)
        case "conv7":
            inner = _unit(tape, _unit(tape, x, narrow, 1), narrow, (1, 7))
            return _unit(tape, _unit(tape, inner, narrow, (7, 1)), x.channels, 1)
        case "max2":
            return tape.max_pool(x, 2, stride)
        case "max3":
            return tape.max_pool(x, 3, stride, 1)
        case "average3":
            return tape.average_pool(x, 3, stride, 1)
