"""HRNet for classification: branches of several resolutions side by side.

Facts: arXiv 1908.07919 and its authors' classification network. The network branches, a schedule
needs a chain: one layer is one module with all its branches and their exchange, and what it hands
on are the maps of all branches together. A new branch starts in the layer of the module before
which it appears.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from workloads.model import Layer
from workloads.models.residual import bottleneck, unit
from workloads.models.tape import Map, Tape, loss

CLASSES = 1000

HRNETS = {f"hrnet-w{width}": width for width in (18, 30, 32, 40, 44, 48, 64)}
"""Channels of the finest branch by name; each coarser branch has twice as many."""

MODULES = ((2, 1), (3, 4), (4, 3))
"""Stages 2 to 4: branches and modules (arXiv 1908.07919, section 3)."""

BLOCKS = 4
"""Basic blocks of a branch in a module; also bottlenecks of stage 1."""

HEAD = (32, 64, 128, 256)
"""Inner width of the bottleneck that widens each branch before the classifier."""

FEATURES = 2048
"""Channels that the classifier reads."""


def hrnet(width: int, pixels: int, element: int) -> Iterator[Layer]:
    """Layers: stem, 4 bottlenecks, 8 modules, head, classifier, loss."""
    x = Map(3, pixels, pixels, pixels=True)
    tape = Tape(element, x)
    x = unit(tape, unit(tape, x, 64, 3, 2), 64, 3, 2)
    yield tape.layer("stem", x)
    for index in range(BLOCKS):
        tape = Tape(element, x)
        x = bottleneck(tape, x, 64)
        yield tape.layer(f"bottleneck.{index}", x)
    maps, index = (x,), 0
    for branches, modules in MODULES:
        for _ in range(modules):
            tape = Tape(element, *maps)
            maps = module(tape, maps, width, branches)
            yield tape.layer(f"module{branches}.{index}", *maps)
            index += 1
    tape = Tape(element, *maps)
    x = _head(tape, maps)
    yield tape.layer("head", x)
    tape = Tape(element, x)
    yield tape.layer("fc", tape.linear(tape.mean(x), CLASSES))
    yield loss(CLASSES, element)


def _branches(tape: Tape, maps: Sequence[Map], width: int, count: int) -> list[Map]:
    """Bring the branches to their channels, and start one from the coarsest if one is missing."""
    if len(maps) == count:
        return list(maps)
    wanted = [width * 2**i for i in range(count)]
    found = [
        x if x.channels == leave else unit(tape, x, leave, 3)
        for x, leave in zip(maps, wanted, strict=False)
    ]
    return [*found, unit(tape, maps[-1], wanted[-1], 3, 2)]


def module(tape: Tape, maps: Sequence[Map], width: int, branches: int) -> tuple[Map, ...]:
    """Run basic blocks in each branch; then every branch receives the sum of all.

    Branches that ``maps`` does not have yet start before.
    """
    inner: list[Map] = []
    for x in _branches(tape, maps, width, branches):
        for _ in range(BLOCKS):
            x = _block(tape, x)
        inner.append(x)
    return tuple(
        tape.relu(tape.add(*(_exchange(tape, x, i, j, inner[i]) for j, x in enumerate(inner))))
        for i in range(len(inner))
    )


def _block(tape: Tape, x: Map) -> Map:
    """Two 3 x 3 convolutions around a shortcut."""
    inner = unit(tape, x, x.channels, 3)
    return tape.relu(tape.add(tape.norm(tape.conv(inner, x.channels, 3)), x))


def _exchange(tape: Tape, x: Map, to: int, start: int, goal: Map) -> Map:
    """Bring a map from branch ``start`` to ``to``: enlarge it, or halve it step by step."""
    if start > to:
        return tape.enlarge(tape.norm(tape.conv(x, goal.channels, 1)), 2 ** (start - to))
    for _ in range(to - start - 1):
        x = unit(tape, x, x.channels, 3, 2)
    return x if start == to else tape.norm(tape.conv(x, goal.channels, 3, 2))


def _head(tape: Tape, maps: Sequence[Map]) -> Map:
    """Widen all branches, add them up from fine to coarse, and widen once more."""
    wide = [bottleneck(tape, x, width) for x, width in zip(maps, HEAD, strict=True)]
    x = wide[0]
    for coarser in wide[1:]:
        down = tape.conv(x, coarser.channels, 3, 2, bias=True)
        x = tape.add(coarser, tape.relu(tape.norm(down)))
    return tape.relu(tape.norm(tape.conv(x, FEATURES, 1, bias=True)))
