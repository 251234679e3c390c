"""What cannot be measured is refused in one sentence that says what would be right."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812
from torch_nets import Gpt

import workloads as wl
from hwmodels.errors import InvalidInput, UnknownName
from workloads.model import Precision

X = torch.zeros(2, 4)


class Does(nn.Module):
    """A layer that applies a function."""

    def __init__(self, function: Callable[..., object]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: Tensor) -> object:
        return self.function(*args)


class Unet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        first = self.layers[0](x).relu()
        return self.layers[1](first) + first


class Pairs(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        pairs = (nn.ModuleList([nn.Linear(4, 4), nn.ReLU()]) for _ in range(2))
        self.layers = nn.ModuleList(pairs)

    def forward(self, x: Tensor) -> Tensor:
        for linear, act in self.layers:
            x = act(linear(x))
        return x


class Tuples(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([Does(lambda x: (x, x))])

    def forward(self, x: Tensor) -> Tensor:
        return self.layers[0](x)[0]


class Nameless(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([Does(lambda x: x[0])])

    def forward(self, x: Tensor) -> Tensor:
        return self.layers[0]([x])


def decides(x: Tensor) -> Tensor:
    return x if x.sum() > 0 else -x


def uncopied() -> nn.Module:
    module = nn.Linear(4, 4)
    module.rest = (each for each in ())
    return module


LINEAR = nn.Linear(4, 4)

CASES = {
    "dropout": ([LINEAR, nn.Dropout(0.1)], X, ("'dropout.1' draws random", "eval()")),
    "attention dropout": (
        [LINEAR, Does(lambda x: F.scaled_dot_product_attention(*[x[:, None]] * 3, dropout_p=0.5))],
        X,
        ("'does.1' draws random", "dropout"),
    ),
    "values": ([LINEAR, Does(decides)], X, ("'does.1' decides by the values", "without data")),
    "shapes": ([LINEAR, Does(lambda x: x[x > 0])], X, ("'does.1' decides by the values",)),
    "tuple": ([Does(lambda x: (x, x)), LINEAR], X, ("'does.0' returns a tuple", "one tensor")),
    "last tuple": ([LINEAR, Does(lambda x: (x, x))], X, ("'does.1' returns a tuple",)),
    "no tensor": ([LINEAR, Does(lambda x: None)], X, ("'does.1' returns a NoneType",)),
    "child's tuple": (Tuples(), X, ("'does.0' returns a tuple",)),
    "no input": (Nameless(), X, ("Layer Does is called without a tensor",)),
    "in place": ([LINEAR, nn.ReLU(inplace=True)], X, ("'relu.1' changes its input", "inplace=")),
    "skip": (Unet(), X, ("'output' uses a result of layer 'linear.0'", "one layer of all")),
    "list not called": (Pairs(), X, ("Pairs never calls the children of 'layers'", "a list of")),
    "wrong shape": ([nn.Linear(5, 4)], X, ("'linear.0' fails on a batch of 4", "4, 4] X [5, 4")),
    "fixed batch": ([Does(lambda x: x.view(2, 4))], X, ("fails on a batch of 4", "any number")),
    "loss per sample": (
        [LINEAR, nn.CrossEntropyLoss(reduction="none")],
        (X, torch.zeros(2, dtype=torch.long)),
        ("'crossentropyloss.1' takes the target", "mean loss"),
    ),
    "samples mixed": (
        [LINEAR, Does(lambda x: (x @ x.t()).softmax(-1) @ x)],
        X,
        ("'does.1': forward_flops of 4, 6, 8 samples are 256, 576, 1,024", "proportion"),
    ),
    "no batch": ([LINEAR, Does(lambda x: x.sum(0)), nn.ReLU()], X, ("'does.1': output_bytes",)),
    "not copied": ([uncopied()], X, ("cannot be copied", "copy.deepcopy")),
    "no module": ([LINEAR, 3], X, ("it got int",)),
    "nothing": ([], X, ("it got nothing",)),
    "class": (nn.Linear, X, ("it got type",)),
    "example text": ([LINEAR], "text", ("The example must be",)),
    "three": ([LINEAR], (X, X, X), ("The example must be",)),
    "scalar": ([LINEAR], torch.tensor(1.0), ("The example must be", "first dimension")),
    "samples differ": ([LINEAR], (X, torch.zeros(3)), ("2 samples and its target 3",)),
}


@pytest.mark.parametrize("case", CASES)
def test_refused_in_one_sentence(case: str) -> None:
    module, example, parts = CASES[case]
    with pytest.raises(InvalidInput) as error:
        wl.from_torch(module, example)
    text = str(error.value)
    assert all(part in text for part in parts), text
    assert "\n" not in text
    assert text.endswith(".")


def test_options_are_checked() -> None:
    with pytest.raises(InvalidInput, match="tokens is 0"):
        wl.from_torch([LINEAR], X, tokens=0)
    odd = Precision("fp8", "fp8", 1, 1, 4, 4, 1)
    with pytest.raises(InvalidInput, match="'fp8' has activations of 1 bytes"):
        wl.from_torch([LINEAR], X, precision=odd)
    with pytest.raises(UnknownName, match="fp33"):
        wl.from_torch([LINEAR], X, precision="fp33")


def test_dropout_that_is_off_is_fine() -> None:
    net = nn.Sequential(LINEAR, nn.Dropout(0.0), nn.Dropout(0.5).eval())
    assert wl.from_torch(net, X).layers[1].stash_bytes == 0


def test_a_loss_that_a_module_returns_with_its_logits_is_refused() -> None:
    class Both(Gpt):
        def forward(self, ids: Tensor, target: Tensor | None = None) -> Tensor:
            return super().forward(ids), super().forward(ids, target)  # type: ignore[return-value]

    ids = torch.zeros(1, 4, dtype=torch.long)
    with pytest.raises(InvalidInput, match="the last one must return its output or the loss"):
        wl.from_torch(Both(10, 4, 8, 2, 1), (ids, ids))


def test_without_torch_everything_else_works() -> None:
    code = """
import sys
sys.modules["torch"] = None
import sim, workloads as wl
from hwmodels.errors import InvalidInput, UnknownName
assert wl.model("gpt2-xl").params
try:
    wl.from_torch([], None)
except InvalidInput as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout == (
        "from_torch needs PyTorch, which is not installed; run pip install "
        "'commodious[validate]'.\n"
    )
