"""Names that people get nearly right."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from hwmodels.errors import UnknownName


def suggestion(name: str, known: Iterable[str]) -> str:
    """End of a sentence about an unknown name: the nearest known one, or all of them."""
    names = list(known)
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    if near:
        return f"; did you mean {near[0]!r}?"
    if not names:
        return "; there is none."
    shown = ", ".join(names[:20]) + (", ..." if len(names) > 20 else "")
    return f"; known: {shown}."


def unknown(what: str, name: str, known: Iterable[str]) -> UnknownName:
    """Error that says that ``what`` has no ``name``, and what was probably meant."""
    return UnknownName(f"{what} {name!r} does not exist{suggestion(name, known)}")
