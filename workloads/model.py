"""Models as chains of layers: weights, activations, FLOPs; precision and optimizer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from hwmodels.compute import Dtype, LayerProfile
from hwmodels.names import unknown


@dataclass(frozen=True, slots=True)
class Precision:
    """Bytes of every component of the training state, each explicit.

    Attributes
    ----------
    name : str
        Name used in tables.
    compute : str
        Number format of the arithmetic.
    weight, gradient, master, state, activation : int
        Bytes per element: weights as used in compute, gradients, master weights
        (0 = none), one optimizer state, activations.
    """

    name: str
    compute: Dtype
    weight: int
    gradient: int
    master: int
    state: int
    activation: int


@dataclass(frozen=True, slots=True)
class Optimizer:
    """An optimizer by what it stores and touches.

    Attributes
    ----------
    name : str
        ``sgd``, ``momentum`` or ``adam``.
    states : int
        State values kept per parameter (SGD 0, momentum 1, Adam 2).
    flops : int
        Operations per parameter of one step.
    """

    name: str
    states: int
    flops: int


PRECISIONS: Mapping[str, Precision] = {
    found.name: found
    for found in (
        Precision("fp32", "fp32", 4, 4, 0, 4, 4),
        Precision("tf32", "tf32", 4, 4, 0, 4, 4),
        Precision("mixed-fp16", "fp16", 2, 2, 4, 4, 2),
        Precision("mixed-bf16", "bf16", 2, 2, 4, 4, 2),
        Precision("mixed-bf16-fp32-gradients", "bf16", 2, 4, 4, 4, 2),
        Precision("bf16", "bf16", 2, 2, 0, 2, 2),
    )
}
"""Named precisions; with Adam their model states take 16, 16, 16, 16, 18 and 8 bytes a parameter.

``mixed-*`` is the recipe of ZeRO (arXiv 1910.02054, section 3.1): 16-bit weights and gradients,
fp32 master weights and states. ``mixed-bf16-fp32-gradients`` is Megatron-LM's bf16 training, which
accumulates gradients in fp32. ``bf16`` keeps everything in bf16.
"""

OPTIMIZERS: Mapping[str, Optimizer] = {
    found.name: found
    for found in (Optimizer("sgd", 0, 2), Optimizer("momentum", 1, 4), Optimizer("adam", 2, 12))
}
"""Named optimizers. Operations per parameter are derived from the update rule.

SGD scales and subtracts (2); momentum adds a scaled sum (2 more); Adam (arXiv 1412.6980, bias
correction folded into the step size) takes 3 for m, 4 for v, and 5 for the step: square root, add,
divide, scale, subtract.
"""


def precision(name: str | Precision) -> Precision:
    """Precision by name; one that is made already is handed back.

    Raises
    ------
    UnknownName
        If there is none; names the nearest.
    """
    if isinstance(name, Precision):
        return name
    found = PRECISIONS.get(name)
    if found is None:
        raise unknown("Precision", name, PRECISIONS)
    return found


def optimizer(name: str | Optimizer) -> Optimizer:
    """Optimizer by name; one that is made already is handed back.

    Raises
    ------
    UnknownName
        If there is none; names the nearest.
    """
    if isinstance(name, Optimizer):
        return name
    found = OPTIMIZERS.get(name)
    if found is None:
        raise unknown("Optimizer", name, OPTIMIZERS)
    return found


@dataclass(frozen=True, slots=True)
class Weight:
    """A named block of parameters; layers that share it name the same block.

    Attributes
    ----------
    name : str
        Unique in the model.
    params : int
        Trained values.
    buffer_bytes : int
        Untrained state that travels with the weights (masks, running statistics).
    """

    name: str
    params: int
    buffer_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Layer:
    """The unit of compute and swap. Sizes and FLOPs are per sample.

    Attributes
    ----------
    name : str
        Unique in the model.
    kind : str
        Layers of one kind are alike (``block``, ``embedding``, ``head`` ...).
    weights : tuple of Weight
        Parameters read by this layer (a tied matrix appears in two layers).
    output_bytes : int
        Boundary activation handed to the next layer.
    stash_bytes : int
        Saved inside the layer for backward, without its input.
    workspace_bytes : int
        Scratch memory of the backward, alive only while it runs.
    forward_flops, backward_flops : float
        Backward without recompute.
    forward_bytes, backward_bytes : float
        GPU memory traffic of activations; weights' traffic is added once a call.
    forward_kernels, backward_kernels : int
        Kernel launches a call (not per sample).
    profile_row : str
        Row of the model's measured profile; empty without one.
    weight_share : float
        Part of the backward (time, FLOPs, traffic) that makes the gradients of weights, where a
        schedule runs it apart from the part that makes the gradient of the input. A half for
        products of matrices and convolutions: both parts are one product of the forward's size.
    """

    name: str
    kind: str
    weights: tuple[Weight, ...]
    output_bytes: int
    stash_bytes: int = 0
    workspace_bytes: int = 0
    forward_flops: float = 0.0
    backward_flops: float = 0.0
    forward_bytes: float = 0.0
    backward_bytes: float = 0.0
    forward_kernels: int = 1
    backward_kernels: int = 1
    profile_row: str = ""
    weight_share: float = 0.5

    @property
    def params(self) -> int:
        """Parameters this layer reads, shared ones included."""
        return sum(weight.params for weight in self.weights)


@dataclass(frozen=True)
class Model:
    """A chain of layers with the bytes of its training state.

    Attributes
    ----------
    name : str
        Name used in tables.
    layers : tuple of Layer
        In forward order; the last one includes the loss.
    input_bytes : int
        Bytes of one sample's input to the first layer (token ids, pixels).
    tokens : int
        Tokens per sample (1 for images), for throughput in tokens per second.
    precision : Precision
        Bytes per element of each component.
    optimizer : Optimizer
        What the update step stores and touches.
    profile : LayerProfile or None
        Measured layer times, where the model was loaded from a profile.
    notes : tuple of str
        Choices the reader must know (attention counted in full, sizes assumed ...).
    """

    name: str
    layers: tuple[Layer, ...]
    input_bytes: int
    tokens: int
    precision: Precision
    optimizer: Optimizer
    profile: LayerProfile | None = None
    notes: tuple[str, ...] = ()

    @cached_property
    def weights(self) -> tuple[Weight, ...]:
        """Every block of parameters once, in order of first use."""
        seen: dict[str, Weight] = {}
        for layer in self.layers:
            for weight in layer.weights:
                seen.setdefault(weight.name, weight)
        return tuple(seen.values())

    @cached_property
    def params(self) -> int:
        """Trained values, shared ones counted once."""
        return sum(weight.params for weight in self.weights)

    def weight_bytes(self, weight: Weight) -> int:
        """Bytes of one block as stored for compute, buffers included."""
        return weight.params * self.precision.weight + weight.buffer_bytes

    def gradient_bytes(self, weight: Weight) -> int:
        """Bytes of the gradient of one block."""
        return weight.params * self.precision.gradient

    def state_bytes(self, weight: Weight) -> int:
        """Bytes of optimizer states and master weights of one block."""
        each = self.precision.master + self.optimizer.states * self.precision.state
        return weight.params * each

    def layer_input_bytes(self, index: int) -> int:
        """Bytes of one sample's input to layer ``index``."""
        return self.layers[index - 1].output_bytes if index else self.input_bytes
