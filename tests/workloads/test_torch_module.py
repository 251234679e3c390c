"""Models measured from torch modules, against closed forms, hand counts and a real run."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode
from torch_nets import Block, Gpt, chain

import hwmodels as hw
import sim
import workloads as wl
from workloads.model import Layer, Model, Precision


def ids(samples: int, tokens: int) -> Tensor:
    return torch.zeros(samples, tokens, dtype=torch.long)


@pytest.fixture(scope="module")
def gpt2() -> Model:
    """Two of the twelve blocks of GPT-2 small, with loss; no weight is ever allocated."""
    with torch.device("meta"):
        module = Gpt(50257, 1024, 768, 12, 2)
    return wl.from_torch(module, (ids(1, 1024), ids(1, 1024)), name="gpt2")


# closed forms --------------------------------------------------------------------------------


@pytest.mark.parametrize(("precision", "size"), [("fp32", 4), ("mixed-bf16", 2)])
@pytest.mark.parametrize("fused", [False, True])
def test_block_saves_what_the_closed_form_says(precision: str, size: int, fused: bool) -> None:
    """Without dropout 32 s h + 2 a s^2 bytes in 16 bit, of which 2 s h are the layer's input.

    What the formula leaves out: mean and deviation of a token in both norms; fused attention keeps
    the fp32 log-sum-exp of each head and token instead of the scores.
    """
    s, h, a = 32, 48, 4
    block = Block(h, a, s, fused=fused)
    model = wl.from_torch([block, block], torch.zeros(3, s, h), precision=precision)
    norms = 2 * 2 * s * size
    attention = 4 * a * s if fused else a * s * s * size
    for layer in model.layers:
        assert layer.stash_bytes == 15 * s * h * size + attention + norms
        assert layer.output_bytes == s * h * size


def test_block_flops_and_parameters_of_the_closed_form() -> None:
    s, h, a = 32, 48, 4
    forward = 24 * s * h * h + 4 * s * s * h
    plain, fused = (
        wl.from_torch([Block(h, a, s, fused=fused)], torch.zeros(1, s, h)).layers[0]
        for fused in (False, True)
    )
    assert plain.params == fused.params == 12 * h * h + 13 * h
    assert plain.forward_flops == fused.forward_flops == forward
    # the first layer needs no gradient of its input, but its norm's input gradient comes for free
    assert plain.backward_flops == 2 * forward
    # a fused backward computes the scores once more: one of five products
    assert fused.backward_flops == 2 * forward + 2 * s * s * h


def test_gpt2_equals_the_formulas_of_its_config(gpt2: Model) -> None:
    formula = wl.model("gpt2-small", precision="fp32", flash=False, dropout=False)
    block = formula.layers[1]
    assert gpt2.params == formula.params - 10 * block.params
    assert (gpt2.tokens, gpt2.input_bytes) == (formula.tokens, formula.input_bytes)
    assert [layer.name for layer in gpt2.layers] == ["input", "block.0", "block.1", "output"]
    statistics = 2 * 2 * 1024 * 4
    for layer in gpt2.layers[1:3]:
        assert (layer.kind, layer.params) == ("block", block.params)
        assert layer.output_bytes == block.output_bytes
        assert layer.stash_bytes == block.stash_bytes + statistics
        assert layer.forward_flops == block.forward_flops
        assert layer.backward_flops == block.backward_flops


def test_gpt2_head(gpt2: Model) -> None:
    """Saved: norm's output and statistics, fp32 log-probabilities, target, sum of its weights."""
    s, h, vocab = 1024, 768, 50257
    head = gpt2.layers[-1]
    assert head.stash_bytes == 4 * s * h + 2 * 4 * s + 4 * s * vocab + 8 * s + 4
    # gradients of log-probabilities and of logits live together
    assert head.workspace_bytes == 2 * 4 * s * vocab
    assert head.output_bytes == 0
    assert (head.forward_flops, head.backward_flops) == (2 * s * h * vocab, 4 * s * h * vocab)
    tied = next(weight for weight in gpt2.layers[0].weights if weight.name == "input.wte.weight")
    assert tied.params == vocab * h
    assert tied in head.weights
    assert gpt2.layers[0].workspace_bytes == 4 * s * h  # gradient of the sum, for the positions


# hand counts ---------------------------------------------------------------------------------


def test_convolutions_by_hand() -> None:
    """Conv 3 -> 8 and 8 -> 16 on 16 x 16, pools of 2 x 2, a classifier, mean loss."""
    net = nn.Sequential(
        nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        nn.Sequential(nn.Conv2d(8, 16, 3, padding=1), nn.ReLU(inplace=True), nn.MaxPool2d(2)),
        nn.Sequential(nn.Flatten(), nn.Linear(256, 10)),
        nn.CrossEntropyLoss(),
    )
    model = wl.from_torch(net, (torch.zeros(5, 3, 16, 16), ids(5, 1)[:, 0]))
    first, second, linear, loss = model.layers
    assert model.input_bytes == 3 * 256 * 4
    assert [layer.params for layer in model.layers] == [3 * 8 * 9 + 8, 8 * 16 * 9 + 16, 2570, 0]
    assert [layer.output_bytes for layer in model.layers] == [8 * 64 * 4, 16 * 16 * 4, 40, 0]
    # pool: 8-byte indices; convolution's output before ReLU is not kept, after it twice: once
    assert first.stash_bytes == 8 * 256 * 4 + 8 * 64 * 8
    assert second.stash_bytes == 16 * 64 * 4 + 16 * 16 * 8
    assert linear.stash_bytes == 0
    assert loss.stash_bytes == 10 * 4 + 8 + 4  # log-probabilities, target, sum of weights
    assert first.forward_flops == first.backward_flops == 2 * 27 * 8 * 256
    assert second.forward_flops == 2 * 72 * 16 * 64
    assert second.backward_flops == 2 * second.forward_flops
    # convolution: reads X, writes; ReLU: reads, writes; pool: reads, writes values and indices
    inside, out = 8 * 256 * 4, 8 * 64 * 4
    assert first.forward_bytes == 3 * 256 * 4 + 4 * inside + 3 * out
    assert (first.forward_kernels, linear.forward_kernels) == (3, 1)


def test_workspace_is_what_the_backward_makes_and_drops() -> None:
    """MLP: gradients of the hidden layer after and before the GELU, 4 h each."""
    mlp = nn.Sequential(nn.Linear(16, 64), nn.GELU(), nn.Linear(64, 16))
    model = wl.from_torch([nn.Linear(16, 16), mlp, nn.Linear(16, 16)], torch.zeros(2, 16))
    assert model.layers[1].workspace_bytes == 2 * 64 * 4
    # the last layer's gradient of its output is in no tensor of a schedule
    assert [model.layers[i].workspace_bytes for i in (0, 2)] == [0, 16 * 4]


def test_lstm_saves_and_computes_what_its_closed_form_says() -> None:
    """8 n (i + n) FLOPs a step; kept: 4 gates, cell, its tanh, output (models.md, section 3)."""

    class Recurrent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lstm = nn.LSTM(16, 32, batch_first=True)

        def forward(self, x: Tensor) -> Tensor:
            return self.lstm(x)[0]

    steps, i, n = 10, 16, 32
    layer = wl.from_torch([nn.Linear(16, 16), Recurrent()], torch.zeros(2, steps, i)).layers[1]
    assert layer.params == 4 * n * (i + n) + 8 * n
    assert layer.forward_flops == 8 * n * (i + n) * steps
    # besides: the first state and cell, and the input of the sequence turned to steps first
    assert 7 * n * steps * 4 <= layer.stash_bytes <= (7 * n * steps + 2 * n + i * steps) * 4


def test_grouped_convolution_backward_is_twice_its_forward() -> None:
    """torch's own counter multiplies the weight gradient by the groups (models.md, section 2)."""
    net = [
        nn.Conv2d(4, 8, 1),
        nn.Conv2d(8, 16, 3, groups=4),
        nn.ConvTranspose2d(16, 8, 3, groups=2),
    ]
    layers = wl.from_torch(net, torch.zeros(1, 4, 10, 10)).layers
    assert layers[1].forward_flops == 2 * (8 // 4) * 9 * 16 * 64
    assert layers[2].forward_flops == 2 * (8 // 2) * 9 * 16 * 64
    assert [layer.backward_flops / layer.forward_flops for layer in layers] == [1, 2, 2]


def test_flops_equal_torchs_counter() -> None:
    block = Block(32, 2, 16)
    layer = wl.from_torch([block], torch.zeros(1, 16, 32)).layers[0]
    with FlopCounterMode(display=False) as counter:
        block(torch.zeros(1, 16, 32)).sum().backward()
    assert layer.forward_flops + layer.backward_flops == counter.get_total_flops()


def test_what_does_not_grow_with_the_batch_counts_for_each_sample() -> None:
    """Batch norm keeps mean and deviation of each channel once a batch."""
    net = [nn.Conv2d(3, 8, 1), nn.BatchNorm2d(8)]
    model = wl.from_torch(net, torch.zeros(1, 3, 4, 4))
    norm = model.layers[1]
    assert norm.weights[0].buffer_bytes == 2 * 8 * 4 + 8
    assert norm.stash_bytes == 2 * 8 * 4
    assert "64 saved bytes do not grow with the batch; they count per sample." in model.notes


def test_views_count_their_own_elements_once() -> None:
    """Of a matrix with two columns kept: one column; all of it: once, however it is turned."""

    class Column(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            y = x.sin()
            return y[:, :1].square() + x

    class Twice(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            y = x.sin()
            return (y.square() + y.t().square().t() + y.expand(1, *y.shape).square()[0]).sum(1)

    column, twice = (
        wl.from_torch([nn.Linear(4, 4), layer], torch.zeros(2, 4)).layers[1]
        for layer in (Column(), Twice())
    )
    assert column.stash_bytes == 4
    assert twice.stash_bytes == 4 * 4


# chains --------------------------------------------------------------------------------------


def test_a_module_and_the_list_of_its_layers_measure_alike() -> None:
    gpt = Gpt(100, 8, 16, 2, 3, fused=True)
    example = (ids(2, 8), ids(2, 8))
    whole, parts = wl.from_torch(gpt, example), wl.from_torch(chain(gpt), example)
    assert whole.params == parts.params == sum(p.numel() for p in gpt.parameters())
    for one, other in zip(whole.layers, parts.layers, strict=True):
        same = dataclasses.replace(other, name=one.name, kind=one.kind, weights=one.weights)
        assert one == same
        sizes = [[(w.params, w.buffer_bytes) for w in x.weights] for x in (one, other)]
        assert sorted(sizes[0]) == sorted(sizes[1])


def test_the_module_is_left_as_it_was() -> None:
    gpt = Gpt(50, 8, 16, 2, 2)
    before = {name: (id(p), p.clone()) for name, p in gpt.named_parameters(remove_duplicate=False)}
    with torch.no_grad():
        model = wl.from_torch(gpt, (ids(1, 8), ids(1, 8)))
    assert model == wl.from_torch(gpt, (ids(1, 8), ids(1, 8)))
    for name, p in gpt.named_parameters(remove_duplicate=False):
        assert id(p) == before[name][0]
        assert torch.equal(p, before[name][1])
        assert p.grad is None
    assert not gpt.blocks[0]._forward_hooks


def test_a_module_without_a_list_is_one_layer() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(4, 2)

        def forward(self, x: Tensor, y: Tensor) -> Tensor:
            return nn.functional.mse_loss(self.linear(x), y)

    model = wl.from_torch(Net(), (torch.zeros(2, 4), torch.zeros(2, 2)))
    assert [(layer.name, layer.output_bytes) for layer in model.layers] == [("net.0", 0)]
    assert model.layers[0].stash_bytes == 2 * 4 + 2 * 4  # prediction and target


class Looped(nn.Module):
    """Calls its only block several times, after views alone; part of it is never used."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(8, 8)])
        self.spare = nn.Linear(2, 2)

    def forward(self, x: Tensor) -> Tensor:
        x = x.flatten(1)
        for _ in range(3):
            x = self.layers[0](input=x).relu()
        return x.view(-1, 2, 4)


def test_one_layer_called_several_times_shares_its_weights() -> None:
    model = wl.from_torch(Looped(), torch.zeros(1, 2, 4))
    assert [layer.name for layer in model.layers] == ["linear.0", "linear.1", "linear.2", "output"]
    assert model.params == 72
    assert [weight.name for weight in model.weights] == [
        "linear.0.layers.0.weight",
        "linear.0.layers.0.bias",
    ]
    first, second, *_ = model.layers
    # what runs between two calls belongs to the earlier one: ReLU keeps its output
    assert [layer.forward_kernels for layer in model.layers] == [2, 2, 1, 1]
    assert (first.stash_bytes, second.backward_flops) == (32, 2 * second.forward_flops)
    assert "Never used, left out: spare.weight, spare.bias." in model.notes


def test_every_precision_measures_its_own_bytes() -> None:
    net = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8))
    for precision, size in (("fp32", 4), ("mixed-fp16", 2), ("bf16", 2)):
        model = wl.from_torch(net, torch.zeros(1, 8), precision=precision)
        assert {model.input_bytes, *(layer.output_bytes for layer in model.layers)} == {8 * size}
        assert model.layers[1].stash_bytes == 8 * size
    double = Precision("fp64", "fp32", 8, 8, 0, 8, 8)
    model = wl.from_torch(net.double(), torch.zeros(1, 8).double(), precision=double)
    assert model.layers[1].stash_bytes == 8 * 8


def test_frozen_parameters_travel_as_buffers() -> None:
    net = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    net[0].requires_grad_(False)
    first, second = wl.from_torch(net, torch.zeros(1, 4)).layers
    assert (first.params, first.weights[0].buffer_bytes) == (0, 20 * 4)
    assert (first.backward_flops, second.backward_flops) == (0, 2 * second.forward_flops)


def test_products_without_a_formula_are_named() -> None:
    class Score(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = nn.Parameter(torch.zeros(4))

        def forward(self, x: Tensor) -> Tensor:
            return x @ self.w

    notes = wl.from_torch([nn.Linear(4, 4), Score()], torch.zeros(1, 4)).notes
    assert any(note.startswith("FLOPs unknown, counted as 0: aten.mv") for note in notes)
    assert torch.__version__.partition("+")[0] in notes[0]


def test_a_measured_model_simulates() -> None:
    """Flatten launches nothing and takes no time; the schedule checks and runs."""
    net = nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.Identity(), nn.ReLU(), nn.Linear(64, 8))
    model = wl.from_torch(net, torch.zeros(1, 8, 8), optimizer="sgd")
    box = hw.server("pcie-4u-4x1080ti")
    for schedule in ("harmony-pp", "harmony-dp"):
        plan = wl.schedule(schedule, model, box, minibatch=16, microbatch=4)
        assert sim.simulate(plan, box).iteration_time > 0


# a real run ----------------------------------------------------------------------------------


def saved_on_cpu(layers: list[nn.Module], x: Tensor) -> list[int]:
    """Bytes of the distinct storages saved by each layer of a real run, each cut off the others."""
    found: list[int] = []
    for index, layer in enumerate(layers):
        x = x.detach().requires_grad_(index > 0)
        saved: dict[int, int] = {}

        def keep(tensor: Tensor, saved: dict[int, int] = saved) -> Tensor:
            storage = tensor.untyped_storage()
            saved[storage.data_ptr()] = storage.nbytes()
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(keep, lambda kept: kept):
            out = layer(x)
        for outside in (x, *layer.parameters(), *layer.buffers()):
            saved.pop(outside.untyped_storage().data_ptr(), None)
        found.append(sum(saved.values()))
        x = out
    return found


WIDTHS = st.integers(2, 9)
KINDS = st.sampled_from(["linear", "relu", "gelu", "norm", "tanh", "softmax", "identity"])


@st.composite
def nets(draw: st.DrawFn) -> tuple[int, list[nn.Module]]:
    width = enter = draw(WIDTHS)
    layers: list[nn.Module] = []

    def one() -> nn.Module:
        nonlocal width
        kind = draw(KINDS)
        if kind == "linear":
            before, width = width, draw(WIDTHS)
            return nn.Linear(before, width, bias=draw(st.booleans()))
        others = {
            "relu": nn.ReLU(), "gelu": nn.GELU(), "norm": nn.LayerNorm(width),
            "tanh": nn.Tanh(), "softmax": nn.Softmax(-1), "identity": nn.Identity(),
        }  # fmt: skip
        return others[kind]

    for _ in range(draw(st.integers(1, 4))):
        layers.append(nn.Sequential(*(one() for _ in range(draw(st.integers(1, 4))))))
    return enter, layers


@settings(deadline=None, max_examples=12)
@given(nets(), st.integers(1, 3))
def test_stash_is_what_a_real_run_saves(net: tuple[int, list[nn.Module]], samples: int) -> None:
    enter, layers = net
    model = wl.from_torch(layers, torch.zeros(samples, enter))
    real = saved_on_cpu(layers, torch.zeros(5, enter))
    assert [5 * layer.stash_bytes for layer in model.layers] == real


def test_stash_of_a_block_is_what_a_real_run_saves() -> None:
    layers: list[nn.Module] = [Block(16, 2, 8), Block(16, 2, 8, fused=True), nn.Linear(16, 3)]
    model = wl.from_torch(layers, torch.zeros(1, 8, 16))
    real = saved_on_cpu(layers, torch.zeros(3, 8, 16))
    assert [3 * layer.stash_bytes for layer in model.layers] == real
    assert all(isinstance(layer, Layer) for layer in model.layers)
