"""Pause Python's cyclic garbage collector while many records are made."""

from __future__ import annotations

import gc
from collections.abc import Generator
from contextlib import contextmanager


@contextmanager
def no_gc() -> Generator[None]:
    """Keep the collector off, and restore it after.

    Schedules and runs make millions of small records and no cycles that matter; scanning them
    again and again would take a third of the time.
    """
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()
