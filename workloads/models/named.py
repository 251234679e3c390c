"""Models by name."""

from __future__ import annotations

from typing import Any

from hwmodels.errors import InvalidInput
from hwmodels.names import unknown
from workloads.model import Model, Optimizer, Precision
from workloads.model import optimizer as optimizer_of
from workloads.model import precision as precision_of
from workloads.models import convnet, huggingface, profile
from workloads.models.published import CONFIGS
from workloads.models.transformer import Causal

_CONVNETS = {"vgg416": convnet.vgg416, "resnet1026": convnet.resnet1026}


def models() -> tuple[str, ...]:
    """Names that `model` takes; ``harmony/*`` come with measured layer times."""
    return (*CONFIGS, *_CONVNETS, *profile.harmony_names())


def model(
    name: str,
    *,
    precision: str | Precision | None = None,
    optimizer: str | Optimizer | None = None,
    sequence: int | None = None,
    causal: Causal | None = None,
    flash: bool | None = None,
    dropout: bool | None = None,
) -> Model:
    """Model by name.

    Parameters
    ----------
    name : str
        One of `models`, such as ``gpt2-xl``.
    precision : str or Precision, optional
        Default: fp32 for gpt2, bert and convolutional networks, else ``mixed-bf16``.
    optimizer : str or Optimizer, optional
        Default: Adam; momentum for convolutional networks.
    sequence : int, optional
        Tokens per sample. Default: the longest that the model takes, at most 4096.
    causal : {"full", "half"}, optional
        Count attention FLOPs for all pairs of tokens (default), or only for the half that a causal
        mask leaves.
    flash : bool, optional
        Fused attention, which stores no scores. Default: not for gpt2 and bert.
    dropout : bool, optional
        Default: for gpt2 and bert.

    Raises
    ------
    UnknownName
        If there is no such model, precision or optimizer; names the nearest.
    InvalidInput
        If an option does not apply to this model.

    Examples
    --------
    >>> import workloads
    >>> workloads.model("gpt2-xl").params
    1557611200
    """
    tokens = {"sequence": sequence, "causal": causal, "flash": flash, "dropout": dropout}
    state = {"precision": precision, "optimizer": optimizer}
    if name in CONFIGS:
        return huggingface.build(
            name,
            CONFIGS[name],
            name,
            precision=precision,
            optimizer=optimizer,
            sequence=sequence,
            causal="full" if causal is None else causal,
            flash=flash,
            dropout=dropout,
        )
    if name in _CONVNETS:
        _refuse(name, tokens, "reads images, not text")
        chosen = precision_of("fp32" if precision is None else precision)
        return _CONVNETS[name](chosen, optimizer_of("momentum" if optimizer is None else optimizer))
    if name in profile.harmony_names():
        _refuse(name, tokens | state, "is a measured profile")
        return profile.harmony(name)
    raise unknown("Model", name, models())


def _refuse(name: str, options: dict[str, Any], why: str) -> None:
    """Refuse options that mean nothing for a model."""
    for option, value in options.items():
        if value is not None:
            raise InvalidInput(f"{name} {why}, so leave out its {option}.")
