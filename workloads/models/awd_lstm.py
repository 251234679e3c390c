"""AWD-LSTM, a language model of three LSTM layers (arXiv 1708.02182)."""

from __future__ import annotations

from itertools import pairwise

from workloads.model import Model, Optimizer, Precision, Weight
from workloads.models.recurrent import REREAD, Steps, embedding, head, lstm
from workloads.models.transformer import TOKEN_ID

WIDTHS = (400, 1150, 1150, 400)
"""Width of the embedding and of the LSTM layers (section 5)."""

VOCABS = {"awd-lstm-ptb": 10000, "awd-lstm-wikitext-2": 33278}
"""Words of the Penn Treebank and of WikiText-2 by name of the model."""

USUAL_TOKENS = 70
"""Tokens of most samples in training (section 5)."""


def awd_lstm(
    name: str,
    precision: Precision,
    optimizer: Optimizer,
    *,
    sequence: int = USUAL_TOKENS,
    dropout: bool = True,
) -> Model:
    """Build an AWD-LSTM; the output matrix is the embedding, with a bias.

    With dropout, each layer after the embedding keeps a copy of its input and one mask for all
    tokens.
    """
    vocab = VOCABS[name]
    steps = Steps(sequence, precision.activation, dropout, locked=True)
    table = Weight("words", vocab * WIDTHS[0])
    layers = (
        embedding("embedding", table, WIDTHS[0], steps),
        *(
            lstm(f"lstm.{index}", enter, leave, steps)
            for index, (enter, leave) in enumerate(pairwise(WIDTHS))
        ),
        head(WIDTHS[-1], vocab, (table, Weight("output", vocab)), steps),
    )
    notes = [f"{sequence} tokens per sample; sequence= sets it.", REREAD]
    if dropout:
        recurrent = sum(4 * width**2 for width in WIDTHS[1:])
        notes.append(
            "Not counted: the copies with dropped values of recurrent matrices "
            f"({recurrent:,} values) and of the embedding, of which there is one for all samples, "
            "and the average of the weights that the paper's optimizer keeps in the end."
        )
    ids = TOKEN_ID * sequence
    return Model(name, layers, ids, sequence, precision, optimizer, notes=tuple(notes))
