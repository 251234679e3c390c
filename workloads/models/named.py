"""Models by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from hwmodels.errors import InvalidInput
from hwmodels.names import unknown
from workloads.model import Model, Optimizer, Precision
from workloads.model import optimizer as optimizer_of
from workloads.model import precision as precision_of
from workloads.models import convnet, huggingface, profile
from workloads.models.awd_lstm import VOCABS, awd_lstm
from workloads.models.gnmt import GNMTS, gnmt
from workloads.models.gshard import GSHARDS, gshard
from workloads.models.images import NAMES, images
from workloads.models.published import CONFIGS
from workloads.models.t5 import T5S, t5
from workloads.models.transformer import Causal
from workloads.models.vision_transformer import VITS, vit


class _Kind(NamedTuple):
    """How models of a kind are built.

    ``build`` takes the name, a precision, an optimizer and the options in ``takes``; ``why`` says
    why it takes no others.
    """

    build: Callable[..., Model]
    takes: tuple[str, ...]
    why: str
    precision: str = "fp32"
    optimizer: str = "momentum"


def _vgg416(_: str, precision: Precision, optimizer: Optimizer) -> Model:
    return convnet.vgg416(precision, optimizer)


def _resnet1026(_: str, precision: Precision, optimizer: Optimizer) -> Model:
    return convnet.resnet1026(precision, optimizer)


_TEXT = ("sequence", "causal", "flash", "dropout")
_IMAGES = "reads images, not text"
_T5 = _Kind(t5, _TEXT, "reads text, not images", "fp32", "adam")
_GSHARD = _Kind(gshard, _TEXT, "reads text, not images", "mixed-bf16", "adam")
_VIT = _Kind(vit, ("pixels", "flash", "dropout"), _IMAGES, "fp32", "adam")
_AWD = _Kind(awd_lstm, ("sequence", "dropout"), "is a recurrent network of text", "fp32", "sgd")
_GNMT = _Kind(gnmt, ("sequence", "dropout"), "is a recurrent network of text", "fp32", "adam")

_KINDS: Mapping[str, _Kind] = {
    **dict.fromkeys(T5S, _T5),
    **dict.fromkeys(GSHARDS, _GSHARD),
    **dict.fromkeys(VOCABS, _AWD),
    **dict.fromkeys(GNMTS, _GNMT),
    **dict.fromkeys(VITS, _VIT),
    "vgg416": _Kind(_vgg416, (), _IMAGES + ", of one size"),
    "resnet1026": _Kind(_resnet1026, (), _IMAGES + ", of one size"),
    **dict.fromkeys(NAMES, _Kind(images, ("pixels",), _IMAGES)),
}
"""Kinds by name of the model, of those without a ``config.json``."""


def models() -> tuple[str, ...]:
    """Names that `model` takes; ``harmony/*`` come with measured layer times."""
    return (*CONFIGS, *_KINDS, *profile.harmony_names())


def model(
    name: str,
    *,
    precision: str | Precision | None = None,
    optimizer: str | Optimizer | None = None,
    sequence: int | None = None,
    causal: Causal | None = None,
    flash: bool | None = None,
    dropout: bool | None = None,
    pixels: int | None = None,
) -> Model:
    """Model by name.

    Parameters
    ----------
    name : str
        One of `models`, such as ``gpt2-xl``.
    precision : str or Precision, optional
        Default: ``mixed-fp16`` for gpt3, megatron and other large GPTs, ``mixed-bf16`` for llama
        and later families and gshard, else fp32.
    optimizer : str or Optimizer, optional
        Default: Adam; momentum for convolutional networks, SGD for AWD-LSTM.
    sequence : int, optional
        Tokens per sample; of a translator, tokens read and as many written. Default: the longest
        that the model takes, at most 4096; without a longest, as in its paper's training.
    causal : {"full", "half"}, optional
        Count attention FLOPs for all pairs of tokens (default), or only for the half that a causal
        mask leaves.
    flash : bool, optional
        Fused attention, which stores no scores. Default: not for gpt2, bert and t5.
    dropout : bool, optional
        Default: as the model was trained, where it is an option.
    pixels : int, optional
        Width and height of an image. Default: 224, or the one size that the network reads.

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
    options = {
        "sequence": sequence, "causal": causal, "flash": flash, "dropout": dropout,
        "pixels": pixels,
    }  # fmt: skip
    state = {"precision": precision, "optimizer": optimizer}
    if name in CONFIGS:
        _refuse(name, {"pixels": pixels}, "reads text, not images")
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
    if name in _KINDS:
        return _build(name, _KINDS[name], precision, optimizer, options)
    if name in profile.harmony_names():
        _refuse(name, options | state, "is a measured profile")
        return profile.harmony(name)
    raise unknown("Model", name, models())


def _build(
    name: str,
    kind: _Kind,
    precision: str | Precision | None,
    optimizer: str | Optimizer | None,
    options: Mapping[str, Any],
) -> Model:
    asked = {option: value for option, value in options.items() if value is not None}
    _refuse(name, {each: asked[each] for each in asked if each not in kind.takes}, kind.why)
    if asked.get("sequence", 1) < 1:
        raise InvalidInput(
            f"sequence is {asked['sequence']}; {name} takes at least 1 token per sample."
        )
    return kind.build(
        name,
        precision_of(kind.precision if precision is None else precision),
        optimizer_of(kind.optimizer if optimizer is None else optimizer),
        **asked,
    )


def _refuse(name: str, options: Mapping[str, Any], why: str) -> None:
    """Refuse options that mean nothing for a model."""
    for option, value in options.items():
        if value is not None:
            raise InvalidInput(f"{name} {why}, so leave out its {option}.")
