"""What a command line says, turned into servers, models, knobs and paths."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hwmodels.errors import InvalidInput

if TYPE_CHECKING:
    from hwmodels.server import Server
    from workloads.model import Model

PICTURES = (".png", ".pdf", ".svg")
"""Suffixes of the picture files that can be written."""


def is_file_name(text: str, suffix: str, known: Sequence[str]) -> bool:
    """Tell a file from a name: by its suffix, or because it exists and is no known name."""
    return text.endswith(suffix) or (text not in known and Path(text).exists())


def read_text(path: str) -> str:
    """Read a text file, or standard input for ``-``.

    Raises
    ------
    InvalidInput
        If the file is missing, a directory, unreadable or not text.
    """
    if path != "-":
        from hwmodels.read import read_text

        return read_text(path)
    try:
        return sys.stdin.read()
    except UnicodeDecodeError:
        raise InvalidInput("Cannot read standard input: it is not text in UTF-8.") from None


def read_server(text: str) -> Server:
    """Take a server from the catalog by name, or read its TOML file."""
    import hwmodels

    if is_file_name(text, ".toml", hwmodels.servers()):
        return hwmodels.load(text)
    return hwmodels.server(text)


def read_model(
    text: str, precision: str | None, sequence: int | None, optimizer: str | None
) -> Model:
    """Take a model by name, from a ``config.json`` or from a layer profile.

    A JSON file with the key ``model_type`` is a ``config.json``, one with ``format`` (ours) or
    ``layer_groups`` (tables of the Harmony project) is a profile.

    Raises
    ------
    InvalidInput
        If the file is not usable, or an option does not apply to a profile.
    UnknownName
        If there is no such model, precision or optimizer.
    """
    import workloads

    options: dict[str, Any] = {"precision": precision, "sequence": sequence, "optimizer": optimizer}
    given = {name: value for name, value in options.items() if value is not None}
    if not is_file_name(text, ".json", workloads.models()):
        return workloads.model(text, **given)
    if _is_profile(read_text(text), text):
        if given:
            fixed = next(iter(given))
            raise InvalidInput(
                f"{text}: a measured profile fixes its {fixed}, so leave out --{fixed}."
            )
        return workloads.from_profile(text)
    return workloads.from_config(text, **given)


def _is_profile(text: str, path: str) -> bool:
    """Whether a JSON file is a layer profile; the reader of configs tells what else is wrong.

    Raises
    ------
    InvalidInput
        If it has the mark of neither.
    """
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return False
    if not isinstance(found, dict) or "model_type" in found:
        return False
    if "format" in found or "layer_groups" in found:
        return True
    raise InvalidInput(
        f"{path} is neither a config.json, which has a 'model_type', nor a layer profile, which "
        "has a 'format'."
    )


def read_knobs(settings: Sequence[str]) -> dict[str, str]:
    """Split ``name=value`` settings; the schedule checks the names and values.

    Raises
    ------
    InvalidInput
        If a setting has no ``=`` or a knob is set twice.
    """
    found: dict[str, str] = {}
    for setting in settings:
        name, equals, value = setting.partition("=")
        if not (name and equals and value):
            raise InvalidInput(f"--set {setting}: write it as name=value, such as update=cpu.")
        if name in found:
            raise InvalidInput(f"--set {setting}: {name} is already set to {found[name]}.")
        found[name] = value
    return found


def check_output(path: str | None, suffixes: Sequence[str]) -> None:
    """Refuse a path that could not be written, before any work is done for it.

    Raises
    ------
    InvalidInput
        If the suffix is not one of ``suffixes``, or the path cannot be written.
    """
    if path is None:
        return
    target = Path(path)
    if not path.endswith(tuple(suffixes)):
        raise InvalidInput(f"{path}: the name must end in {' or '.join(suffixes)}.")
    if target.is_dir():
        raise InvalidInput(f"{path}: is a directory; name a file.")
    if not target.parent.is_dir():
        raise InvalidInput(f"{path}: there is no directory {target.parent}; create it first.")
    if not os.access(target if target.exists() else target.parent, os.W_OK):
        raise InvalidInput(f"{path}: cannot be written (permission denied).")
