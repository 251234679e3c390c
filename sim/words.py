"""Numbers as people read them: three digits and a unit."""

from __future__ import annotations


def three(value: float) -> str:
    """Three digits without exponent; all digits before the point.

    Examples
    --------
    >>> three(1234.5), three(48.93), three(0.0123)
    ('1234', '48.9', '0.0123')
    """
    if value == 0:
        return "0"
    before = len(f"{abs(value):.0f}") if abs(value) >= 1 else 0
    return f"{value:.{max(0, 3 - before)}f}" if before else f"{value:.3g}"


def time_unit(seconds: float) -> tuple[float, str]:
    """Seconds per unit and the unit's name, so that ``seconds`` reads as 1 or more."""
    for size, unit in ((1.0, "s"), (1e-3, "ms")):
        if seconds >= size:
            return size, unit
    return 1e-6, "us"


def byte_unit(count: float) -> tuple[float, str]:
    """Bytes per unit (powers of 1000) and the unit's name."""
    for size, unit in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if count >= size:
            return size, unit
    return 1.0, "B"


def time(seconds: float) -> str:
    """Time with three digits and its unit.

    Examples
    --------
    >>> time(48.93), time(0.0123)
    ('48.9 s', '12.3 ms')
    """
    size, unit = time_unit(seconds)
    return f"{three(seconds / size)} {unit}"


def size(count: float) -> str:
    """Bytes with three digits and a unit in powers of 1000.

    Examples
    --------
    >>> size(196.4e9), size(0)
    ('196 GB', 'nothing')
    """
    factor, unit = byte_unit(count)
    return f"{three(count / factor)} {unit}" if count else "nothing"
