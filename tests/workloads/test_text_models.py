"""ViT, T5, AWD-LSTM, GNMT and GShard against closed forms and the same torch modules."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
import torch_text as nets
from torch import nn

import workloads as wl
from hwmodels.errors import InvalidInput
from workloads.model import Layer, Model
from workloads.models.recurrent import Steps, lstm


def forward(model: Model) -> float:
    return sum(layer.forward_flops for layer in model.layers)


def named(model: Model, name: str) -> Layer:
    return next(layer for layer in model.layers if layer.name == name)


def after_linear(module: nn.Module, width: int, tokens: int) -> Layer:
    """Measured layer that needs the gradient of its input."""
    layers = [nn.Linear(width, width), module]
    return wl.from_torch(layers, torch.zeros(1, tokens, width)).layers[1]


# vision transformer ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "gflops"), [("vit-b-16", 35.13), ("vit-l-16", 123.11), ("vit-h-14", 334.59)]
)
def test_flops_of_vision_transformers(name: str, gflops: float) -> None:
    """Counted on the instantiated models."""
    assert round(forward(wl.model(name)) / 1e9, 2) == gflops


@pytest.mark.parametrize("fused", [True, False])
def test_vision_transformer_equals_torch(fused: bool) -> None:
    """Unfused, statistics of norms (8 bytes a token each) are neglected."""
    layers = wl.model("vit-b-16", flash=fused).layers
    ours = (*layers[:2], *layers[-3:-1])
    net = nets.vit(768, 3072, 12, 16, fused=fused)
    theirs = wl.from_torch(net, torch.zeros(1, 3, 224, 224)).layers
    statistics = (0, 0, 0, 0) if fused else (0, 2 * 8 * 197, 8 * 197, 0)
    for one, other, extra in zip(ours, theirs, statistics, strict=True):
        assert one.params == other.params
        assert one.output_bytes == other.output_bytes
        assert one.forward_flops == other.forward_flops
        assert one.backward_flops == other.backward_flops
        assert one.stash_bytes + extra == other.stash_bytes
    for one, other in ((ours[0], theirs[0]), (ours[2], theirs[2])):
        assert one.forward_bytes == pytest.approx(other.forward_bytes, rel=0.01)
        assert one.backward_bytes == pytest.approx(other.backward_bytes, rel=0.01)


def test_positions_fit_the_image() -> None:
    small, large = wl.model("vit-b-16"), wl.model("vit-b-16", pixels=384)
    assert large.params - small.params == 768 * (24**2 - 14**2)
    assert large.layers[1].output_bytes == 4 * 768 * (24**2 + 1)
    with pytest.raises(InvalidInput, match="16 pixels"):
        wl.model("vit-b-16", pixels=225)


# T5 ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sequence", [64, 512])
def test_flops_of_t5(sequence: int) -> None:
    """Encoder 8 s h a d + 4 s h f + 4 s^2 a d a block; decoder's attention twice; logits 2 s h V.

    The causal half halves the decoder's attention to itself only.
    """
    s, h, f, inner, count = sequence, 1024, 65536, 128 * 128, 24
    attention = 8 * s * h * inner + 4 * s * s * inner
    full = count * (3 * attention + 2 * 4 * s * h * f) + 2 * s * h * 32128
    assert forward(wl.model("t5-11b", sequence=s)) == full
    half = wl.model("t5-11b", sequence=s, causal="half")
    assert forward(half) == full - count * 2 * s * s * inner
    assert "half (causal)" in " ".join(half.notes)


def test_t5_equals_torch() -> None:
    """Without dropout; unfused, statistics of norms (8 bytes a token each) are neglected."""
    model = wl.model("t5-small", sequence=64, dropout=False)
    encoder = after_linear(nets.T5Block(512, 2048, 8, 64, decoder=False), 512, 64)
    assert named(model, "encoder.block1").params == encoder.params
    assert_equal(named(model, "encoder.block1"), encoder, 2 * 8 * 64)
    # in torch both tensors that the block reads are cut out of one, and copied
    decoder = after_linear(nets.T5Block(512, 2048, 8, 64, decoder=True), 512, 128)
    assert_equal(named(model, "decoder.block1"), decoder, 3 * 8 * 64 + 2 * 4 * 64 * 512)
    assert named(model, "decoder.block1").params == decoder.params


def assert_equal(ours: Layer, theirs: Layer, extra: int) -> None:
    """FLOPs, output and stash agree, apart from ``extra`` bytes that torch keeps besides."""
    assert ours.output_bytes == theirs.output_bytes
    assert ours.forward_flops == theirs.forward_flops
    assert ours.backward_flops == theirs.backward_flops
    assert ours.stash_bytes + extra == theirs.stash_bytes


def test_dropout_of_t5() -> None:
    """Three masks a sublayer's output and MLP, softmax twice besides; the MLP's input anew."""
    s, h, f, a = 64, 512, 2048, 8
    with_masks = wl.model("t5-small", sequence=s)
    without = wl.model("t5-small", sequence=s, dropout=False)
    scores = a * s * s * (1 + 4)
    mlp = s * f * (1 + 4)
    for name, attentions in (("encoder.block1", 1), ("decoder.block1", 2)):
        more = named(with_masks, name).stash_bytes - named(without, name).stash_bytes
        assert more == attentions * (scores + s * h) + mlp + s * h


def test_chain_of_t5() -> None:
    model = wl.model("t5-small", sequence=64)
    edge = 4 * 64 * 512
    handed = {layer.name: layer.output_bytes for layer in model.layers}
    assert handed["encoder.norm"] == handed["decoder.norm"] == edge
    assert handed["decoder.embedding"] == handed["decoder.block5"] == 2 * edge
    assert model.tokens == 128
    assert model.input_bytes == 8 * 128
    assert "chain" in " ".join(model.notes)


# recurrent networks ------------------------------------------------------------------------------


@pytest.mark.parametrize(("enter", "leave", "both"), [(40, 64, False), (64, 40, True)])
def test_lstm_equals_torch(enter: int, leave: int, both: bool) -> None:
    """Torch's operations also keep a copy of inputs and outputs, which lie by samples here.

    Its first step has no state before it whose gradient were needed.
    """
    tokens, ways = 5, 2 if both else 1
    ours = lstm("lstm.0", enter, leave, Steps(tokens, 4, False, True), directions=ways)
    theirs = after_linear(nets.Lstm(enter, leave, both=both), enter, tokens)
    assert ours.params == theirs.params == ways * (4 * leave * (enter + leave) + 8 * leave)
    assert ours.output_bytes == theirs.output_bytes
    assert ours.forward_flops == theirs.forward_flops == 8 * leave * (enter + leave) * tokens * ways
    assert ours.backward_flops - theirs.backward_flops == ways * 8 * leave * leave
    assert ours.stash_bytes == ways * 6 * 4 * leave * tokens
    assert theirs.stash_bytes - ours.stash_bytes == ways * 4 * tokens * (enter + leave)


def test_awd_lstm() -> None:
    """V 400 tied, V biases; FLOPs 8 n (i + n) a layer and 800 V for the output."""
    model = wl.model("awd-lstm-ptb", sequence=10)
    lstms = 8 * (1150 * 1550 + 1150 * 2300 + 400 * 1550)
    assert forward(model) == 10 * (lstms + 2 * 400 * 10000)
    shared = [weight for weight in model.layers[0].weights if weight in model.layers[-1].weights]
    assert [weight.params for weight in shared] == [10000 * 400]
    plain = wl.model("awd-lstm-ptb", sequence=10, dropout=False)
    widths: Sequence[int] = (400, 1150, 1150)
    for index, width in enumerate(widths):
        name = f"lstm.{index}"
        more = named(model, name).stash_bytes - named(plain, name).stash_bytes
        assert more == 4 * width * (10 + 1)  # a copy of each input, one mask for all tokens


def test_gnmt_is_near_the_reported_size() -> None:
    """278 million parameters are reported (arXiv 1701.06538); the vocabulary is our choice."""
    assert wl.model("gnmt-16").params == pytest.approx(278e6, rel=0.01)
    kinds = [layer.kind for layer in wl.model("gnmt-16").layers]
    assert (kinds.count("encoder.lstm"), kinds.count("decoder.lstm")) == (8, 8)


def test_attention_of_gnmt_equals_torch() -> None:
    """Torch counts no product with a vector, and keeps copies and the normalised vector."""
    tokens, n = 24, 1024
    ours = named(wl.model("gnmt-8", sequence=tokens, dropout=False), "attention")
    theirs = after_linear(nets.PairAttention(n), n, 2 * tokens)
    assert ours.params == theirs.params
    assert ours.output_bytes == theirs.output_bytes
    assert ours.forward_flops - theirs.forward_flops == 2 * tokens * tokens * n
    copies, vector = 2 * 4 * tokens * n, 2 * 4 * n + 4
    assert ours.stash_bytes + copies + vector == theirs.stash_bytes


def test_what_the_decoder_of_gnmt_hands_on() -> None:
    model = wl.model("gnmt-8")
    edge = 4 * 50 * 1024
    handed = [layer.output_bytes // edge for layer in model.layers]
    # encoder: embedding, both directions, 3 layers; decoder: two tensors up to its last layer
    assert handed == [1, 2, 1, 1, 1, 2, 2, 2, 2, 2, 1, 0]


# experts -----------------------------------------------------------------------------------------


def test_gshard_experts() -> None:
    """18 of 36 blocks with 2048 experts: 618,475,290,624 parameters, the paper's 600 billion."""
    model = wl.model("gshard-600b")
    experts = [layer for layer in model.layers if layer.kind == "expert-block"]
    plain = [layer for layer in model.layers if layer.kind == "block"]
    assert (len(experts), len(plain)) == (18, 18)
    # without biases; a router of 2048 outputs
    one = 2 * 1024 * 8192
    assert experts[0].params - plain[0].params == 2047 * one + 2048 * 1024
    assert 18 * 2048 * one == 618_475_290_624
    assert experts[0].forward_flops - plain[0].forward_flops == 2.0 * 1024 * (one + 1024 * 2048)
    assert model.layers[1].kind == "block"
    assert "2048 experts of which 2 run" in model.notes[0]
