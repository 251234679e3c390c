"""Convolutional networks and parts of them in torch, which tests measure."""

from __future__ import annotations

import torch
from torch import Tensor, nn


def conv_relu(enter: int, leave: int, kernel: int, stride: int, pad: int) -> list[nn.Module]:
    return [nn.Conv2d(enter, leave, kernel, stride, pad), nn.ReLU(inplace=True)]


def hidden(enter: int, leave: int) -> nn.Module:
    return nn.Sequential(nn.Linear(enter, leave), nn.ReLU(inplace=True))


def alexnet() -> list[nn.Module]:
    """Single column, without dropout; each layer of the chain is one module."""
    return [
        nn.Sequential(*conv_relu(3, 64, 11, 4, 2), nn.MaxPool2d(3, 2)),
        nn.Sequential(*conv_relu(64, 192, 5, 1, 2), nn.MaxPool2d(3, 2)),
        nn.Sequential(*conv_relu(192, 384, 3, 1, 1)),
        nn.Sequential(*conv_relu(384, 256, 3, 1, 1)),
        nn.Sequential(*conv_relu(256, 256, 3, 1, 1), nn.MaxPool2d(3, 2), nn.Flatten()),
        hidden(9216, 4096),
        hidden(4096, 4096),
        nn.Linear(4096, 1000),
    ]


class Scale(nn.Module):
    """Coefficient and shift of each channel."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(channels, 1, 1))
        self.bias = nn.Parameter(torch.zeros(channels, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.weight + self.bias


def lenet5() -> list[nn.Module]:
    """LeNet-5 with all maps connected, without the comparison with fixed pictures."""

    def stage(enter: int, leave: int) -> list[nn.Module]:
        conv = nn.Conv2d(enter, leave, 5)
        return [conv, nn.Tanh(), nn.AvgPool2d(2), Scale(leave), nn.Tanh()]

    return [
        nn.Sequential(*stage(1, 6)),
        nn.Sequential(*stage(6, 16), nn.Flatten()),
        nn.Sequential(nn.Linear(400, 120), nn.Tanh()),
        nn.Sequential(nn.Linear(120, 84), nn.Tanh()),
    ]


def dqn(actions: int) -> list[nn.Module]:
    """The Atari network of 2013."""
    return [
        nn.Sequential(*conv_relu(4, 16, 8, 4, 0)),
        nn.Sequential(*conv_relu(16, 32, 4, 2, 0), nn.Flatten()),
        hidden(2592, 256),
        nn.Linear(256, actions),
    ]


def unit(enter: int, leave: int, kernel: int, stride: int = 1, groups: int = 1) -> nn.Module:
    conv = nn.Conv2d(enter, leave, kernel, stride, kernel // 2, groups=groups, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(leave), nn.ReLU(inplace=True))


class Excite(nn.Module):
    """Squeeze-and-excitation."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.down = nn.Linear(channels, channels // 16)
        self.up = nn.Linear(channels // 16, channels)

    def forward(self, x: Tensor) -> Tensor:
        factor = self.up(self.down(x.mean((2, 3))).relu_()).sigmoid()
        return x * factor[:, :, None, None]


class Bottleneck(nn.Module):
    """Bottleneck with excitation if asked; ``groups`` gives that of SENet-154."""

    def __init__(
        self, enter: int, width: int, stride: int, *, excite: bool, groups: int = 1
    ) -> None:
        super().__init__()
        leave, wide = 4 * width, width if groups == 1 else 2 * width
        middle = width if groups == 1 else 4 * width
        kernel = 3 if groups > 1 and stride > 1 else 1
        self.inner = nn.Sequential(
            unit(enter, wide, 1),
            unit(wide, middle, 3, stride, groups),
            nn.Conv2d(middle, leave, 1, bias=False),
            nn.BatchNorm2d(leave),
            Excite(leave) if excite else nn.Identity(),
        )
        self.short = nn.Sequential(
            nn.Conv2d(enter, leave, kernel, stride, kernel // 2, bias=False), nn.BatchNorm2d(leave)
        )
        if enter == leave and stride == 1:
            self.short = nn.Sequential()

    def forward(self, x: Tensor) -> Tensor:
        return (self.inner(x) + self.short(x)).relu_()


class Basic(nn.Module):
    """Two 3 x 3 convolutions around a shortcut."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.inner = nn.Sequential(
            unit(channels, channels, 3),
            nn.Conv2d(channels, channels, 3, padding=1, bias=False),
            nn.BatchNorm2d(channels),
        )

    def forward(self, x: Tensor) -> Tensor:
        return (self.inner(x) + x).relu_()


class TwoBranches(nn.Module):
    """HRNet's first module: a second branch starts from the input; basic blocks; exchange.

    Hands on the maps of both branches, flat and side by side.
    """

    def __init__(self, enter: int, width: int) -> None:
        super().__init__()
        self.fine, self.coarse = unit(enter, width, 3), unit(enter, 2 * width, 3, 2)
        self.blocks = nn.ModuleList(
            nn.Sequential(*(Basic(channels) for _ in range(4))) for channels in (width, 2 * width)
        )
        self.up = nn.Sequential(
            nn.Conv2d(2 * width, width, 1, bias=False),
            nn.BatchNorm2d(width),
            nn.Upsample(scale_factor=2, mode="nearest"),
        )
        self.down = nn.Sequential(
            nn.Conv2d(width, 2 * width, 3, 2, 1, bias=False), nn.BatchNorm2d(2 * width)
        )

    def forward(self, x: Tensor) -> Tensor:
        fine, coarse = self.blocks[0](self.fine(x)), self.blocks[1](self.coarse(x))
        found = (fine + self.up(coarse)).relu_(), (self.down(fine) + coarse).relu_()
        return torch.cat([each.flatten(1) for each in found], 1)


def relu_unit(enter: int, leave: int, kernel: int | tuple[int, int], stride: int = 1) -> nn.Module:
    pad = kernel // 2 if isinstance(kernel, int) else (kernel[0] // 2, kernel[1] // 2)
    conv = nn.Conv2d(enter, leave, kernel, stride, pad, bias=False)
    return nn.Sequential(nn.ReLU(), conv, nn.BatchNorm2d(leave))


class AmoebaCell(nn.Module):
    """Cell of AmoebaNet-D whose two inputs are one map."""

    def __init__(self, enter: int, channels: int, *, reduce: bool) -> None:
        super().__init__()
        self.reduce = reduce
        self.inputs = nn.ModuleList(relu_unit(enter, channels, 1) for _ in range(2))
        narrow, step = channels // 4, 2 if reduce else 1
        ones, sevens = (1, 1) if reduce else (3, 2)
        self.one = nn.ModuleList(relu_unit(channels, channels, 1) for _ in range(ones))
        if reduce:
            self.three = nn.Sequential(
                relu_unit(channels, narrow, 1),
                relu_unit(narrow, narrow, 3, 2),
                relu_unit(narrow, channels, 1),
            )
        self.seven = nn.ModuleList(
            nn.Sequential(
                relu_unit(channels, narrow, 1),
                relu_unit(narrow, narrow, (1, 7)),
                relu_unit(narrow, narrow, (7, 1)),
                relu_unit(narrow, channels, 1),
            )
            for _ in range(sevens)
        )
        self.two_max = nn.MaxPool2d(2, 2)
        self.outer_max = nn.MaxPool2d(3, step, 1)
        self.inner_max = nn.MaxPool2d(3, 1, 1)
        self.average = nn.AvgPool2d(3, 1, 1, count_include_pad=False)

    def forward(self, x: Tensor) -> Tensor:
        states = [each(x) for each in self.inputs]
        if self.reduce:
            states.append(self.two_max(states[0]) + self.outer_max(states[0]))
            states.append(states[2] + self.three(states[1]))
            states.append(self.seven[0](states[2]) + self.inner_max(states[2]))
            states.append(states[3] + self.two_max(states[1]))
            states.append(self.average(states[2]) + self.one[0](states[3]))
            return torch.cat(states[4:], 1)
        states.append(self.one[0](states[1]) + self.outer_max(states[1]))
        states.append(states[1] + self.seven[0](states[0]))
        states.append(self.one[1](states[0]) + self.seven[1](states[0]))
        states.append(self.inner_max(states[2]) + states[2])
        states.append(self.average(states[1]) + self.one[2](states[5]))
        return torch.cat([states[i] for i in (0, 3, 4, 6)], 1)
