"""The two small networks: chains that end in a loss, with the parameters of the closed forms."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from validate.bench.layers import cases
from validate.bench.work import count
from validate.devices import devices
from validate.nets import convnet, gpt, pictures, text


def params(layers: list[nn.Module]) -> int:
    return sum({id(p): p.numel() for layer in layers for p in layer.parameters()}.values())


def test_gpt_parameters() -> None:
    """12 h^2 + 13 h a block, h (V + s) embedded, 2 h for the last norm; untied h V more."""
    h, vocab, tokens = 64, 100, 16
    sizes = {"layers": 3, "hidden": h, "heads": 4, "vocab": vocab, "tokens": tokens}
    wanted = 3 * (12 * h * h + 13 * h) + h * (vocab + tokens) + 2 * h
    tied, untied = gpt(**sizes), gpt(**sizes, tied=False)
    assert params(tied) == wanted
    assert params(untied) == wanted + h * vocab
    assert tied[-1].get_parameter("output.weight") is tied[0].get_parameter("tokens.weight")


def test_gpt_flops() -> None:
    """24 b s h^2 + 4 b s^2 h a block (PTD-P, arXiv 2104.04473, section 3.5); 2 b s h V the head."""
    b, s, h, vocab = 3, 16, 64, 100
    layers = gpt(1, h, 4, vocab, s)
    _, block, head = cases(layers, text(b, s, vocab), b, devices("cpu"), "gpu0")
    assert count(lambda: block.layer(*block.inputs)).flops == 24 * b * s * h * h + 4 * b * s * s * h
    assert count(lambda: head.layer(*head.inputs)).flops == 2 * b * s * h * vocab


def test_gpt_is_causal() -> None:
    """What a token gives does not depend on those behind it."""
    first, block, _ = gpt(1, 32, 2, 50, 8)
    ids, _ = text(2, 8, 50)
    other = ids.clone()
    other[:, 5:] = (other[:, 5:] + 1) % 50
    with torch.no_grad():
        before, after = block(first(ids)), block(first(other))
    torch.testing.assert_close(before[:, :5], after[:, :5])
    assert not torch.equal(before[:, 5:], after[:, 5:])


@pytest.mark.parametrize("net", ["gpt", "convnet"])
def test_chains_learn(net: str) -> None:
    """A few steps down the gradient lower the loss, which starts near the uniform one."""
    torch.manual_seed(0)
    if net == "gpt":
        layers, (x, target) = gpt(1, 32, 2, 50, 8), text(4, 8, 50)
    else:
        layers, (x, target) = convnet((3, 8, 16)), pictures(4)
    weights = list({id(p): p for layer in layers for p in layer.parameters()}.values())
    losses: list[float] = []
    for _ in range(5):
        y = x
        for layer in layers[:-1]:
            y = layer(y)
        loss = layers[-1](y, target)
        gradients = torch.autograd.grad(loss, weights)
        with torch.no_grad():
            for weight, gradient in zip(weights, gradients, strict=True):
                weight -= 0.05 * gradient
        losses.append(loss.item())
    assert losses[-1] < losses[0]


def test_data_repeat_and_are_not_constant() -> None:
    for make in (text, pictures):
        assert all(torch.equal(a, b) for a, b in zip(make(2), make(2), strict=True))
        assert len(make(2)[0].unique()) > 2
