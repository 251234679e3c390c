"""Named GPUs and servers: facts with their sources, in the TOML files beside this one."""

from __future__ import annotations

from functools import cache
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

from hwmodels.errors import InvalidInput
from hwmodels.names import unknown

if TYPE_CHECKING:
    from hwmodels.gpu import GPU
    from hwmodels.server import Server


@cache
def _gpu_tables() -> dict[str, GPU]:
    from hwmodels.read import gpu_from_table, parse_toml
    from hwmodels.schema import GPUTable, validated

    text = (resources.files(__name__) / "gpus.toml").read_text(encoding="utf-8")
    tables = parse_toml(text, "gpus.toml")
    return {
        name: gpu_from_table(name, validated(GPUTable, table, f"gpus.toml: {name}"), "gpus.toml")
        for name, table in tables.items()
    }


def gpus() -> tuple[str, ...]:
    """Names of the GPUs in the catalog."""
    return tuple(_gpu_tables())


def gpu(name: str) -> GPU:
    """GPU of the catalog by name, such as ``rtx-4090``.

    Raises
    ------
    UnknownName
        If there is none; suggests the nearest name.
    """
    found = _gpu_tables().get(name)
    if found is None:
        raise unknown("GPU", name, gpus())
    return found


@cache
def servers() -> tuple[str, ...]:
    """Names of the servers in the catalog, sorted."""
    folder = resources.files(__name__) / "servers"
    files = (entry.name for entry in folder.iterdir())
    return tuple(sorted(name.removesuffix(".toml") for name in files if name.endswith(".toml")))


@cache
def _server(name: str) -> Server:
    from hwmodels.read import parts_from_text
    from hwmodels.server import Server

    text = (resources.files(__name__) / "servers" / f"{name}.toml").read_text(encoding="utf-8")
    return Server(parts_from_text(text, f"{name}.toml", gpu))


def server(name: str) -> Server:
    """Server of the catalog by name, such as ``dgx-1``.

    Raises
    ------
    UnknownName
        If there is none; suggests the nearest name.
    """
    if name not in servers():
        raise unknown("Server", name, servers())
    return _server(name)


def load(path: str | Path) -> Server:
    """Server from a TOML file.

    Parameters
    ----------
    path : str or Path
        File as written by ``Server.to_toml`` or by hand.

    Raises
    ------
    InvalidInput
        If the file cannot be read or does not describe a server; one sentence says why.
    UnknownName
        If it names a GPU that neither the file nor the catalog knows.
    """
    from hwmodels.read import parts_from_text, read_text
    from hwmodels.server import Server

    if Path(path).is_dir():
        raise InvalidInput(f"Cannot read {str(path)!r}: it is a folder, not a file.")
    return Server(parts_from_text(read_text(path), str(path), gpu))
