"""What several tests share: the command line, called in this process."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable
from typing import NamedTuple

import pytest

# The workers of pytest share the cores; torch, where a test imports it, is to take one each.
os.environ.setdefault("OMP_NUM_THREADS", "1")


class Answer(NamedTuple):
    """What a command left behind."""

    code: int
    out: str
    err: str


Command = Callable[..., Answer]


@pytest.fixture
def commodious(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """Call ``commodious`` with arguments, as its console script does."""
    from validate.cli import main

    def call(*arguments: str, stdin: str = "", columns: int = 100) -> Answer:
        monkeypatch.setattr(sys, "argv", ["commodious", *arguments])
        monkeypatch.setattr(sys, "stdin", io.StringIO(stdin))
        monkeypatch.setenv("COLUMNS", str(columns))
        capsys.readouterr()
        with pytest.raises(SystemExit) as left:
            main()
        out, err = capsys.readouterr()
        return Answer(int(left.value.code or 0), out, err)

    return call
