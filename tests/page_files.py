"""Reads back what a page of a run holds, as the page's own script does."""

from __future__ import annotations

import gzip
import json
import re
from base64 import b64decode
from typing import Any

import numpy as np


def packed(page: str) -> str:
    """Data of the page, still packed."""
    (found,) = re.findall(r'<script id="data" type="text/plain">([A-Za-z0-9+/=]+)</script>', page)
    return found


def unpack(text: str) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Facts and columns of packed data."""
    data = gzip.decompress(b64decode(text))
    line, _, body = data.partition(b"\n")
    assert (len(line) + 1) % 8 == 0
    facts = json.loads(line)
    columns: dict[str, np.ndarray] = {}
    for name, (kind, at, length) in facts.pop("columns").items():
        assert at % 8 == 0  # typed arrays of a browser must be aligned
        columns[name] = np.frombuffer(body, "<" + kind, length, at)
    return facts, columns
