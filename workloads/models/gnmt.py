"""GNMT, a translator of LSTM layers with attention (arXiv 1609.08144).

Sizes: section 3 of the paper. It leaves open what the parameters depend on; chosen here: 32,000
word pieces (its largest shared vocabulary), a table for each language and an output matrix with
bias, attention with one hidden layer and normalised weights whose result is read by all layers of
the decoder but the first. That makes 276.7 million parameters; 278 million are reported (arXiv
1701.06538). The network has two stacks, a schedule needs a chain: the decoder follows the encoder,
and its layers hand on what later ones read besides: the encoder's result, then the attention's.
"""

from __future__ import annotations

from workloads.model import Layer, Model, Optimizer, Precision, Weight
from workloads.models.costs import traffic
from workloads.models.recurrent import REREAD, Steps, embedding, head, lstm
from workloads.models.transformer import TOKEN_ID

VOCAB, HIDDEN = 32000, 1024

GNMTS = {"gnmt-8": 4, "gnmt-16": 8}
"""LSTM layers of each stack by name: PipeDream's two sizes (doi 10.1145/3341301.3359646, section
5.1), of which the larger is the paper's."""

USUAL_TOKENS = 50
"""Tokens of the longest sentences in common training recipes (chosen)."""

PLAIN = 2
"""Layers of a stack before the first that adds its input to its output (section 3.1)."""


def gnmt(
    name: str,
    precision: Precision,
    optimizer: Optimizer,
    *,
    sequence: int = USUAL_TOKENS,
    dropout: bool = True,
) -> Model:
    """Build a GNMT; both sentences have as many tokens."""
    steps = Steps(sequence, precision.activation, dropout, locked=False)
    count = GNMTS[name]
    layers = (*_encoder(count, steps), *_decoder(count, steps))
    notes = (
        f"{sequence} tokens read and {sequence} written per sample; sequence= sets both.",
        "A chain: decoder after encoder; layers of the decoder hand on what later ones read too.",
        f"Vocabulary chosen: {VOCAB:,} word pieces for each language.",
        REREAD,
    )
    ids = 2 * TOKEN_ID * sequence
    return Model(name, layers, ids, 2 * sequence, precision, optimizer, notes=notes)


def _encoder(count: int, steps: Steps) -> list[Layer]:
    """Embedding and LSTM layers, of which the first reads in both directions."""
    table = Weight("source", VOCAB * HIDDEN)
    first = lstm("encoder.lstm.0", HIDDEN, HIDDEN, steps, directions=2)
    others = [
        lstm(
            f"encoder.lstm.{index}", HIDDEN if index > 1 else 2 * HIDDEN, HIDDEN, steps,
            residual=index >= PLAIN,
        )
        for index in range(1, count)
    ]  # fmt: skip
    return [embedding("encoder.embedding", table, HIDDEN, steps), first, *others]


def _decoder(count: int, steps: Steps) -> list[Layer]:
    """Embedding, LSTM layers, attention after the first of them, output matrix.

    All later layers read the attention's result beside that of the layer before.
    """
    table = Weight("target", VOCAB * HIDDEN)
    others = [
        lstm(
            f"decoder.lstm.{index}", 2 * HIDDEN, HIDDEN, steps,
            residual=index >= PLAIN, carried=HIDDEN if index < count - 1 else 0,
        )
        for index in range(1, count)
    ]  # fmt: skip
    return [
        embedding("decoder.embedding", table, HIDDEN, steps, carried=HIDDEN),
        lstm("decoder.lstm.0", HIDDEN, HIDDEN, steps, carried=HIDDEN),
        _attention(steps),
        *others,
        head(HIDDEN, VOCAB, (Weight("output", VOCAB * HIDDEN + VOCAB),), steps),
    ]


def _attention(steps: Steps) -> Layer:
    """Attention with one hidden layer for each pair of tokens (arXiv 1409.0473, normalised).

    Query and key matrices (2 n^2), and vectors for score and bias with a scale (2 n + 1). Keeps the
    tanh of every pair (s^2 n values) and the softmax; hands on the decoder's state and its context.
    """
    s, n, e = steps.tokens, HIDDEN, steps.element
    linear, pairs = 4.0 * s * n * n, 4.0 * s * s * n
    saved = (s * s * n + s * s) * e
    forward, backward = traffic(saved, 2 * s * n * e, 2 * s * n * e)
    return Layer(
        name="attention",
        kind="attention",
        weights=(Weight("attention", 2 * n * n + 2 * n + 1),),
        output_bytes=2 * s * n * e,
        stash_bytes=saved,
        workspace_bytes=s * s * n * e,
        forward_flops=linear + pairs,
        backward_flops=2.0 * (linear + pairs),
        forward_bytes=forward,
        backward_bytes=backward,
        forward_kernels=7,
        backward_kernels=11,
        weight_share=(linear + pairs / 2) / (2.0 * (linear + pairs)),
    )
