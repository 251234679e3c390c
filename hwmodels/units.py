"""Quantities with units: what people write ("12.8 GB/s") and what the code uses (SI numbers)."""

from __future__ import annotations

import re
from typing import Literal

from hwmodels.errors import InvalidInput

Quantity = Literal["bytes", "bandwidth", "time", "flops", "params"]

_DECIMAL = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}
_BINARY = {"Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40}
_BYTES = {f"{prefix}B": factor for prefix, factor in {**_DECIMAL, **_BINARY}.items()} | {"KB": 1e3}

_UNITS: dict[Quantity, dict[str, float]] = {
    "bytes": _BYTES,
    "bandwidth": {f"{unit}/s": factor for unit, factor in _BYTES.items()},
    "time": {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0},
    "flops": {
        f"{prefix}{name}": factor
        for prefix, factor in _DECIMAL.items()
        for name in ("FLOP/s", "FLOPS")
    },
    "params": {f"{prefix}params/s": factor for prefix, factor in _DECIMAL.items()},
}
_EXAMPLES: dict[Quantity, str] = {
    "bytes": "11 GiB",
    "bandwidth": "12.8 GB/s",
    "time": "8 us",
    "flops": "11.3 TFLOP/s",
    "params": "0.79e9 params/s",
}
_WORDS: dict[Quantity, str] = {
    "bytes": "an amount of memory",
    "bandwidth": "a bandwidth",
    "time": "a time",
    "flops": "an arithmetic rate",
    "params": "a rate of parameters",
}
_NUMBER = re.compile(r"\s*([+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?)\s*(\S*)\s*")


def parse(text: object, quantity: Quantity, where: str = "") -> float:
    """Read a quantity that a person wrote.

    Parameters
    ----------
    text : object
        A string with a unit, such as ``"12.8 GB/s"``; 1 GB is 1e9 bytes, 1 GiB is 2**30.
    quantity : str
        ``bytes``, ``bandwidth``, ``time``, ``flops`` or ``params`` (parameters per second).
    where : str
        Name of the field, for the error.

    Returns
    -------
    float
        Bytes, bytes/s, seconds, FLOP/s or parameters/s.

    Raises
    ------
    InvalidInput
        If the unit is missing or of another quantity, or the number is negative or not finite.

    Examples
    --------
    >>> parse("12.8 GB/s", "bandwidth")
    12800000000.0
    """
    place = f"{where}: " if where else ""
    want = f'write {_WORDS[quantity]} with its unit, such as "{_EXAMPLES[quantity]}"'
    found = _NUMBER.fullmatch(text) if isinstance(text, str) else None
    if found is None:
        raise InvalidInput(f"{place}{text!r} is not {_WORDS[quantity]}; {want}.")
    number, unit = found.groups()
    units = _UNITS[quantity]
    if not unit:
        raise InvalidInput(f"{place}{text!r} has no unit; {want}.")
    if unit not in units:
        raise InvalidInput(f"{place}{unit!r} is not a unit of {_WORDS[quantity]}; {want}.")
    value = float(number) * units[unit]
    if not 0.0 <= value < float("inf"):
        raise InvalidInput(f"{place}{text!r} must be finite and not negative; {want}.")
    return value


def parse_bytes(text: object, where: str = "") -> int:
    """Read an amount of memory as whole bytes, rounded; errors as in `parse`."""
    return round(parse(text, "bytes", where))


def _scaled(value: float, unit: str, steps: dict[str, float]) -> str:
    """``value`` in the largest step that keeps it at least 1, exact when read back."""
    prefix, factor = "", 1.0
    for name, size in steps.items():
        if value >= size:
            prefix, factor = name, size
    for candidate, size in ((prefix, factor), ("", 1.0)):
        number = value / size
        text = f"{number:.12g}"
        exact = text if float(text) * size == value else repr(number)
        if float(exact) * size == value:
            return f"{exact} {candidate}{unit}"
    return f"{value!r} {unit}"


def format_bytes(value: int) -> str:
    """Bytes as text that `parse_bytes` reads back exactly: GiB where it is whole in MiB, else SI.

    Examples
    --------
    >>> format_bytes(11811160064)
    '11 GiB'
    """
    if value and value % 2**20 == 0:
        return _scaled(float(value), "B", {"Mi": 2.0**20, "Gi": 2.0**30})
    return _scaled(float(value), "B", {"k": 1e3, "M": 1e6, "G": 1e9})


def format_bandwidth(value: float) -> str:
    """Bytes/s as text that `parse` reads back exactly.

    Examples
    --------
    >>> format_bandwidth(12.8e9)
    '12.8 GB/s'
    """
    return _scaled(value, "B/s", {"k": 1e3, "M": 1e6, "G": 1e9})


def format_flops(value: float) -> str:
    """FLOP/s as text that `parse` reads back exactly."""
    return _scaled(value, "FLOP/s", {"G": 1e9, "T": 1e12})


def format_params(value: float) -> str:
    """Parameters/s as text that `parse` reads back exactly."""
    return _scaled(value, "params/s", {"M": 1e6, "G": 1e9})


def format_time(value: float) -> str:
    """Seconds as text that `parse` reads back exactly.

    Examples
    --------
    >>> format_time(8e-6)
    '8 us'
    """
    for unit, factor in (("ns", 1e-9), ("us", 1e-6), ("ms", 1e-3)):
        if 1.0 <= round(value / factor, 9) < 1000.0:
            text = f"{value / factor:.12g}"
            if float(text) * factor == value:
                return f"{text} {unit}"
    return f"{value!r} s"
