"""The matrix that ``nvidia-smi topo -m`` prints, read in all its layouts."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from hwmodels.errors import InvalidInput

_HEADINGS = ("CPU Affinity", "NUMA Affinity", "GPU NUMA ID")
_CLASSES = frozenset({"X", "PIX", "PXB", "PHB", "NODE", "SYS", "SOC"})
_NO_PEER = frozenset({"CNS", "GNS", "TNS", "NS"})
_GPU = re.compile(r"GPU\d+")
_NVLINK = re.compile(r"NV[1-9]\d*")
_ESCAPE = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_WHERE = "Topology matrix"


@dataclass(frozen=True)
class Matrix:
    """What the matrix says.

    Attributes
    ----------
    gpus : tuple of str
        GPUs by the names of the matrix, ``GPU0`` ..., in order.
    others : tuple of str
        Network cards; they tell which GPUs share a switch.
    classes : mapping of (str, str) to str
        How two devices are connected: ``PIX``, ``PXB``, ``PHB``, ``NODE``, ``SYS`` or ``NV#``.
    affinity : mapping of str to str
        CPU ids near each GPU, as printed; may lack GPUs.
    numa : mapping of str to int
        NUMA node of each GPU; may lack GPUs.
    peer : bool
        False if a peer-to-peer matrix stands beside it and says that no pair can.
    """

    gpus: tuple[str, ...]
    others: tuple[str, ...]
    classes: Mapping[tuple[str, str], str]
    affinity: Mapping[str, str]
    numa: Mapping[str, int]
    peer: bool


def _words(line: str) -> list[str]:
    for heading in _HEADINGS:
        line = line.replace(heading, heading.replace(" ", "_"))
    return line.split()


def _header(lines: Sequence[list[str]]) -> int:
    for at, words in enumerate(lines):
        if not words or not _GPU.fullmatch(words[0]):
            continue
        if len(words) == 1 or not (words[1] in _CLASSES or _NVLINK.fullmatch(words[1])):
            return at
    raise InvalidInput(
        f"{_WHERE} not found: no line starts the columns GPU0, GPU1, ...; give the whole output of "
        "nvidia-smi topo -m."
    )


def _entry(row: str, column: str, text: str) -> str:
    if text in _CLASSES or _NVLINK.fullmatch(text):
        return "SYS" if text == "SOC" else text
    raise InvalidInput(
        f"{_WHERE}: row {row}, column {column} says {text!r}; it must be X, PIX, PXB, PHB, NODE, "
        "SYS or NV and a number."
    )


def _no_peer(lines: Iterable[list[str]]) -> bool:
    """Whether the rows of a peer-to-peer matrix deny every pair."""
    entries = [
        word
        for words in lines
        if words and _GPU.fullmatch(words[0]) and len(words) > 1 and "X" in words
        for word in words[1:]
        if word != "X"
    ]
    return bool(entries) and all(word in _NO_PEER for word in entries)


def read_matrix(text: str) -> Matrix:
    """Read the output of ``nvidia-smi topo -m``.

    Tabs or spaces, indentation, colours, NUMA columns, network cards and legends may be there or
    not.

    Raises
    ------
    InvalidInput
        If no matrix is found, a row is missing or short, an entry is unknown, or two entries of
        one pair differ.
    """
    lines = [_words(_ESCAPE.sub("", line)) for line in text.splitlines()]
    start = _header(lines)
    heading = lines[start]
    columns = [word for word in heading if word not in {h.replace(" ", "_") for h in _HEADINGS}]
    extras = heading[len(columns) :]
    rows: dict[str, list[str]] = {}
    end = start
    for end in range(start + 1, len(lines)):
        words = lines[end]
        if words and words[0] in columns and words[0] not in rows:
            rows[words[0]] = words[1:]
        elif words:
            break
    classes: dict[tuple[str, str], str] = {}
    for row in columns:
        if row not in rows:
            raise InvalidInput(f"{_WHERE} has a column {row} but no such row; give all of it.")
        if len(rows[row]) < len(columns):
            raise InvalidInput(
                f"{_WHERE}: row {row} has {len(rows[row])} entries for {len(columns)} columns."
            )
        for column, entry in zip(columns, rows[row], strict=False):
            classes[(row, column)] = _entry(row, column, entry)
    for (a, b), found in classes.items():
        if (a == b) != (found == "X"):
            raise InvalidInput(
                f"{_WHERE}: row {a}, column {b} says {found!r}; X marks the same device."
            )
        if classes[(b, a)] != found:
            raise InvalidInput(
                f"{_WHERE}: {a} to {b} is {found} but {b} to {a} is {classes[(b, a)]}."
            )
    affinity: dict[str, str] = {}
    numa: dict[str, int] = {}
    gpus = tuple(name for name in columns if _GPU.fullmatch(name))
    for name in gpus:
        more = dict(zip(extras, rows[name][len(columns) :], strict=False))
        if re.fullmatch(r"\d+(-\d+)?(,\d+(-\d+)?)*", more.get("CPU_Affinity", "")):
            affinity[name] = more["CPU_Affinity"]
        if more.get("NUMA_Affinity", "").isdigit():
            numa[name] = int(more["NUMA_Affinity"])
    others = tuple(name for name in columns if name not in gpus)
    return Matrix(gpus, others, classes, affinity, numa, not _no_peer(lines[end:]))


def cores(affinity: str) -> int:
    """Physical cores of a list of CPU ids such as ``0-35,72-107``.

    Two ranges of one length are the two threads of each core.
    """
    sizes: list[int] = []
    for part in affinity.split(","):
        low, _, high = part.partition("-")
        sizes.append(int(high or low) - int(low) + 1)
    return sizes[0] if len(sizes) == 2 and sizes[0] == sizes[1] else sum(sizes)
