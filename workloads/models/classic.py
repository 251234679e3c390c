"""LeNet-5, AlexNet, VGG-16 and the Atari network DQN, each as trained: with its dropout."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from workloads.model import Layer
from workloads.models.convnet import VGG_CHANNELS, VGG_CONVS
from workloads.models.tape import Map, Tape, loss

CLASSES, PIXELS = 1000, 224

DIGITS, DIGIT_PIXELS = 10, 32

LENET_LINKS = 6 * 3 + 9 * 4 + 6
"""Pairs of maps that LeNet-5's second convolution connects: six of its maps read 3 maps, nine read
4 and one reads all 6 (LeCun et al. 1998, table I)."""

FRAMES, SCREEN = 4, 84
"""Frames that DQN sees at once, and their width and height (arXiv 1312.5602, section 4.1)."""

HIDDEN = 4096
"""Width of the two hidden linear layers of AlexNet and VGG-16."""


def lenet5(element: int) -> Iterator[Layer]:
    """LeNet-5: 60,000 trained values (LeCun et al. 1998, doi 10.1109/5.726791, section II.B).

    Each subsampling has a coefficient and a shift a channel, the second convolution reads only some
    of its input maps, and the last layer compares with fixed pictures (840 values, not trained;
    its distances count as a product).
    """
    x = Map(1, DIGIT_PIXELS, DIGIT_PIXELS, pixels=True)
    for index, (leave, links) in enumerate(((6, 6), (16, LENET_LINKS))):
        tape = Tape(element, x)
        x = tape.relu(tape.conv(x, leave, 5, pad=0, bias=True, links=links))
        x = tape.relu(tape.scale(tape.average_pool(x, 2, 2)))
        yield tape.layer(f"conv.{index}", x)
    tape = Tape(element, x)
    x = tape.relu(tape.linear(x, 120))
    yield tape.layer("fc.0", x)
    tape = Tape(element, x)
    x = tape.fixed(tape.relu(tape.linear(x, 84)), DIGITS)
    yield tape.layer("fc.1", x)
    yield loss(DIGITS, element)


def alexnet(element: int) -> Iterator[Layer]:
    """AlexNet with a single column: 61,100,840 parameters ("one weird trick", arXiv 1404.5997)."""
    x = Map(3, PIXELS, PIXELS, pixels=True)
    sizes = ((64, 11, True), (192, 5, True), (384, 3, False), (256, 3, False), (256, 3, True))
    for index, (leave, kernel, pool) in enumerate(sizes):
        tape = Tape(element, x)
        stride, pad = (4, 2) if index == 0 else (1, kernel // 2)
        x = tape.relu(tape.conv(x, leave, kernel, stride, pad, bias=True))
        x = tape.max_pool(x, 3, 2) if pool else x
        x = tape.dropout(x) if index == 4 else x
        yield tape.layer(f"conv.{index}", x)
    yield from _classifier(x, (True, False), element)


def alexnet_2012(element: int) -> Iterator[Layer]:
    """AlexNet of 2012: 60,965,224 parameters (doi 10.1145/3065386, section 3).

    Convolutions 2, 4 and 5 are split in two groups, as the network lay on two GPUs; the first two
    are followed by response normalisation. Pads 2 pixels, so that 224 pixels give 55 x 55 places.
    """
    x = Map(3, PIXELS, PIXELS, pixels=True)
    sizes = ((96, 11, 1), (256, 5, 2), (384, 3, 1), (384, 3, 2), (256, 3, 2))
    for index, (leave, kernel, groups) in enumerate(sizes):
        tape = Tape(element, x)
        stride, pad = (4, 2) if index == 0 else (1, kernel // 2)
        links = x.channels * leave // groups
        x = tape.relu(tape.conv(x, leave, kernel, stride, pad, links=links, bias=True))
        x = tape.local_norm(x) if index < 2 else x
        x = tape.max_pool(x, 3, 2) if index in (0, 1, 4) else x
        yield tape.layer(f"conv.{index}", x)
    yield from _classifier(x, (True, True), element)


def vgg16(element: int) -> Iterator[Layer]:
    """VGG-16: 138,357,544 parameters (arXiv 1409.1556, configuration D)."""
    x = Map(3, PIXELS, PIXELS, pixels=True)
    index = 0
    for leave, convs in zip(VGG_CHANNELS, VGG_CONVS, strict=True):
        for place in range(convs):
            tape = Tape(element, x)
            x = tape.relu(tape.conv(x, leave, 3, bias=True))
            x = tape.max_pool(x, 2, 2) if place == convs - 1 else x
            yield tape.layer(f"conv.{index}", x)
            index += 1
    yield from _classifier(x, (True, True), element)


def _classifier(x: Map, dropouts: Sequence[bool], element: int) -> Iterator[Layer]:
    """Two hidden linear layers, with dropout after them where asked, and one for the classes."""
    for index, dropout in enumerate(dropouts):
        tape = Tape(element, x)
        x = tape.relu(tape.linear(x, HIDDEN))
        x = tape.dropout(x) if dropout else x
        yield tape.layer(f"fc.{index}", x)
    tape = Tape(element, x)
    yield tape.layer("fc.2", tape.linear(x, CLASSES))
    yield loss(CLASSES, element)


def dqn(actions: int, element: int) -> Iterator[Layer]:
    """DQN of 2013 (arXiv 1312.5602, section 4.1): 676,144 parameters and 257 for each action.

    The loss is squared error, of one action a sample; it counts as one over all actions.
    """
    x = Map(FRAMES, SCREEN, SCREEN, pixels=True)
    for index, (leave, kernel, stride) in enumerate(((16, 8, 4), (32, 4, 2))):
        tape = Tape(element, x)
        x = tape.relu(tape.conv(x, leave, kernel, stride, pad=0, bias=True))
        yield tape.layer(f"conv.{index}", x)
    tape = Tape(element, x)
    x = tape.relu(tape.linear(x, 256))
    yield tape.layer("fc.0", x)
    tape = Tape(element, x)
    x = tape.linear(x, actions)
    yield tape.layer("fc.1", x)
    yield loss(actions, element)
