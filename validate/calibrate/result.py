"""What a calibration gives: a server, layer times, and how well each number is known."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from hwmodels.compute import LayerProfile
from hwmodels.server import Server
from validate.calibrate.profile import save_profile

if TYPE_CHECKING:
    from rich.table import Table

Unit = Literal["B/s", "s", "FLOP/s", "params/s"]

Status = Literal["fitted", "at least", "in sum", "assumed"]

FEW = 5
"""Numbers that rest on fewer records are marked."""


@dataclass(frozen=True, slots=True)
class Fit:
    """One number of the server.

    Attributes
    ----------
    name : str
        Part and field, as in the server file; of a GPU model ``MODEL.field``.
    value : float
    unit : str
        ``B/s``, ``s``, ``FLOP/s`` or ``params/s``.
    status : str
        ``fitted``; ``at least``: no record ever reached the limit, so that the value is the most
        that any asked for; ``in sum``: records tell only its sum with other latencies;
        ``assumed``: no record tells it.
    error : float
        Relative standard error; infinite unless fitted.
    residual : float
        Median relative difference between the fit and the records that depend on the number.
    points : int
        Number of those records.
    """

    name: str
    value: float
    unit: Unit
    status: Status
    error: float
    residual: float
    points: int

    @property
    def text(self) -> str:
        """Value with its unit, to four digits."""
        scale, prefix = {
            "s": (1e-6, "u"),
            "B/s": (1e9, "G"),
            "params/s": (1e6, "M"),
            "FLOP/s": (1e12, "T"),
        }[self.unit]
        return f"{self.value / scale:.4g} {prefix}{self.unit}"


@dataclass(frozen=True)
class Calibration:
    """A server fitted to measurements.

    Attributes
    ----------
    server : Server
    profile : LayerProfile or None
        Layer times as measured; None where no layer was.
    fits : tuple of Fit
    residual : float
        Median relative difference between all records of copies and optimizer steps and the fit.
    worst : float
        The same, at the 95th percentile.
    notes : tuple of str
        What the reader must know.
    """

    server: Server
    profile: LayerProfile | None
    fits: tuple[Fit, ...]
    residual: float
    worst: float
    notes: tuple[str, ...]

    def save(self, path: str | Path) -> tuple[Path, ...]:
        """Write ``box.toml`` (for ``path`` = ``box.toml``) and, with layers, ``box.profile.json``.

        Returns
        -------
        tuple of Path
            The files written.
        """
        file = Path(path)
        file.write_text(self.server.to_toml(), encoding="utf-8")
        if self.profile is None:
            return (file,)
        beside = file.with_suffix(".profile.json")
        save_profile(self.profile, beside)
        return (file, beside)

    def rows(self) -> Iterator[tuple[str, ...]]:
        """Name, value, standard error, residual and number of records, as text."""
        for fit in self.fits:
            fitted = fit.status == "fitted"
            few = "  few" if fitted and fit.points < FEW else ""
            yield (
                fit.name,
                ("" if fitted else f"{fit.status} ") + fit.text,
                f"{fit.error:.1%}" if fitted else "",
                f"{fit.residual:.1%}" if fitted else "",
                f"{fit.points}{few}" if fitted else "",
            )

    def table(self) -> Table:
        """All numbers as a table for the terminal."""
        from rich.box import SIMPLE_HEAD
        from rich.table import Table

        table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), show_edge=False)
        for header in ("number", "value", "std. error", "residual", "records"):
            table.add_column(header, justify="left" if header == "number" else "right")
        for row in self.rows():
            table.add_row(*row)
        return table

    def to_dict(self) -> dict[str, Any]:
        """Plain facts for JSON; an error that is infinite is None."""
        fits = [asdict(fit) for fit in self.fits]
        for fit in fits:
            fit["error"] = fit["error"] if fit["status"] == "fitted" else None
        return {
            "server": self.server.name,
            "fits": fits,
            "residual": self.residual,
            "worst": self.worst,
            "rows": sorted({row for row, _ in self.profile.rows}) if self.profile else [],
            "notes": list(self.notes),
        }
