"""Layers of recurrent networks: LSTM, embedding, output matrix with loss.

An LSTM layer of width n reads i values a token. It does 8 n (i + n) FLOPs a token, twice that in
backward, and keeps the four gates, the cell and its tanh (6 n values) besides its output, which is
the boundary.
"""

from __future__ import annotations

from typing import NamedTuple

from workloads.model import Layer, Weight
from workloads.models.costs import traffic
from workloads.models.transformer import LOGIT

GATES = 4

REREAD = (
    "Recurrent weights count as read once a call; a GPU whose cache does not hold them reads them "
    "at every token."
)
"""What the reader must know of recurrent networks."""


class Steps(NamedTuple):
    """How a recurrent network is trained.

    Attributes
    ----------
    tokens : int
        Tokens of a sample.
    element : int
        Bytes of an activation.
    dropout : bool
        Inputs of layers are dropped out, so that a layer keeps a copy of its input and the mask.
    locked : bool
        One mask for all tokens, of the activations' format; else 1 byte for every value.
    """

    tokens: int
    element: int
    dropout: bool
    locked: bool

    def dropped(self, width: int) -> int:
        """Bytes that dropout of an input of a width keeps: the copy that is read, and the mask."""
        if not self.dropout:
            return 0
        mask = width * self.element if self.locked else width * self.tokens
        return width * self.tokens * self.element + mask


def lstm_params(enter: int, leave: int) -> int:
    """Parameters of one LSTM layer with two bias vectors: 4 n (i + n) + 8 n."""
    return GATES * leave * (enter + leave) + 2 * GATES * leave


def lstm(
    name: str, enter: int, leave: int, steps: Steps, *,
    directions: int = 1, residual: bool = False, carried: int = 0,
) -> Layer:  # fmt: skip
    """LSTM layer over all tokens, in one direction or both.

    Kernels (derived): one product of the inputs of all tokens; a token a product and the gates.
    In backward a token the gates and a product; then one product each for the gradients of input
    and both matrices, and the biases' sum. Backward's scratch is the gradient of the gates.

    Parameters
    ----------
    name : str
        Its kind is the part up to the last dot.
    enter, leave : int
        Widths of input and output (of each direction).
    steps : Steps
    directions : int
        1 or 2.
    residual : bool
        The input is added to the output.
    carried : int
        Values a token that the layer hands on unchanged besides its output.
    """
    s, e = steps.tokens, steps.element
    wide = directions * leave
    saved = directions * 6 * leave * s * e + steps.dropped(enter)
    flops = directions * 8.0 * leave * (enter + leave) * s
    forward, backward = traffic(saved, enter * s * e, wide * s * e)
    extra = (1 if steps.dropout else 0) + (1 if residual else 0)
    return Layer(
        name=name,
        kind=name.rpartition(".")[0],
        weights=(Weight(name, directions * lstm_params(enter, leave)),),
        output_bytes=(wide + carried) * s * e,
        stash_bytes=saved,
        workspace_bytes=directions * (GATES * s + 2) * leave * e,
        forward_flops=flops,
        backward_flops=2.0 * flops,
        forward_bytes=forward,
        backward_bytes=backward,
        forward_kernels=directions * (1 + 2 * s) + extra,
        backward_kernels=directions * (4 + 2 * s) + extra,
    )


def embedding(name: str, table: Weight, width: int, steps: Steps, *, carried: int = 0) -> Layer:
    """Rows of a table, one a token."""
    made = width * steps.tokens * steps.element
    return Layer(
        name=name,
        kind="embedding",
        weights=(table,),
        output_bytes=made + carried * steps.tokens * steps.element,
        workspace_bytes=made,
        forward_bytes=2.0 * made,
        backward_bytes=2.0 * made,
    )


def head(width: int, vocab: int, weights: tuple[Weight, ...], steps: Steps) -> Layer:
    """Output matrix with bias, and loss; keeps fp32 log-probabilities as a transformer's head."""
    s, e = steps.tokens, steps.element
    flops = 2.0 * s * width * vocab
    saved = LOGIT * s * vocab
    forward, backward = traffic(saved, width * s * e, 0)
    return Layer(
        name="head",
        kind="head",
        weights=weights,
        output_bytes=0,
        stash_bytes=saved,
        workspace_bytes=(LOGIT + (e if e < LOGIT else 0)) * s * vocab,
        forward_flops=flops,
        backward_flops=2.0 * flops,
        forward_bytes=forward,
        backward_bytes=backward,
        forward_kernels=3,
        backward_kernels=4,
    )
