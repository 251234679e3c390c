"""Fields of a JSON file that a user hands in: read by name, wrong ones told in one sentence."""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from hwmodels.errors import InvalidInput


def read_object(path: str | Path) -> dict[str, Any]:
    """Object of a JSON file.

    Raises
    ------
    InvalidInput
        If the file cannot be read, is not JSON, or holds no object.
    """
    from hwmodels.read import read_text  # loads pydantic

    try:
        found: object = json.loads(read_text(path))
    except json.JSONDecodeError as error:
        raise InvalidInput(
            f"{path} is not valid JSON: {error.msg.lower()} at line {error.lineno}, column "
            f"{error.colno}."
        ) from None
    except (RecursionError, ValueError):
        raise InvalidInput(
            f"{path} is not valid JSON: it nests too deep or a number is too long."
        ) from None
    if not isinstance(found, dict):
        raise InvalidInput(f"{path} must hold one JSON object, as a config.json does.")
    return cast("dict[str, Any]", found)


@dataclass(frozen=True)
class Fields:
    """Fields of one file; ``where`` names it in errors. A null counts as missing."""

    data: Mapping[str, Any]
    where: str

    def get(self, *keys: str) -> tuple[str, Any]:
        """First key that has a value, with it; the first key and None where none has."""
        for key in keys:
            if self.data.get(key) is not None:
                return key, self.data[key]
        return keys[0], None

    def integer(self, *keys: str, default: int | None = None) -> int:
        """Value of the first key that is there, a whole number above zero."""
        key, value = self.get(*keys)
        if value is None:
            if default is None:
                raise self.missing(key)
            return default
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise InvalidInput(
                f"{self.where}: {key!r} is {json.dumps(value)}; it must be a whole number of at "
                "least 1."
            )
        return value

    def flag(self, key: str, *, default: bool) -> bool:
        """Value of a key, true or false."""
        value = self.get(key)[1]
        if value is None:
            return default
        if not isinstance(value, bool):
            raise InvalidInput(
                f"{self.where}: {key!r} is {json.dumps(value)}; it must be true or false."
            )
        return value

    def number(self, key: str, *, default: float) -> float:
        """Value of a key, a probability."""
        value = self.get(key)[1]
        if value is None:
            return default
        if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value < 1:
            raise InvalidInput(
                f"{self.where}: {key!r} is {json.dumps(value)}; it must be a number from 0 to "
                "less than 1."
            )
        return float(value)

    def missing(self, key: str) -> InvalidInput:
        """Error that a key is missing; names one that looks like it."""
        near = difflib.get_close_matches(key, [str(each) for each in self.data], n=1, cutoff=0.8)
        hint = f"did you mean it by {near[0]!r}?" if near else "without it sizes are unknown."
        return InvalidInput(f"{self.where}: {key!r} is missing; {hint}")
