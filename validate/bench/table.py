"""Measurements as one table for the terminal."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from statistics import median
from typing import NamedTuple

from sim.cli_tables import print_table, print_text
from sim.words import size, three, time
from validate.measurements import Compute, Copies, Measurements

HEADERS = ("group", "what", ">size", ">median", ">rate", ">spread")

_SHORT = {"copies": "copies", "collective": "coll."}


class Row(NamedTuple):
    """One line: of alike records, the median time, the range of rates and the largest spread."""

    group: str
    what: str
    size: str
    median: str
    rate: str
    spread: str


class _Point(NamedTuple):
    group: str
    what: str
    size: str
    seconds: float
    rate: float
    unit: str
    spread: float


def rows(found: Measurements) -> list[Row]:
    """Lines of the table; alike records (any GPU, any pair) share one.

    Copies and collectives are shown at their smallest and largest size, layers at their largest
    microbatch u; "+ copies" is what runs meanwhile, and "1.5 x" how many times longer it takes.
    """
    lines: dict[tuple[str, str, str], list[_Point]] = defaultdict(list)
    for point in (*_copies(found), *_collectives(found), *_compute(found), *_updates(found)):
        lines[point.group, point.what, point.size].append(point)
    made = [_row(points) for points in lines.values()]
    if found.launch:
        seconds = median(found.launch.values())
        made.append(Row("launch", "empty kernel", "", time(seconds), "", ""))
    return made


def show(found: Measurements) -> None:
    """Print the table, and what was left out."""
    print_table(HEADERS, rows(found))
    if found.left_out:
        print_text(f"Left out: {'; '.join(found.left_out)}.")


def _row(points: list[_Point]) -> Row:
    rates, most = [point.rate for point in points], max(point.spread for point in points)
    low, high = three(min(rates)), three(max(rates))
    rate = low if low == high else f"{low}-{high}"
    return Row(
        points[0].group,
        points[0].what,
        points[0].size,
        time(median(point.seconds for point in points)),
        f"{rate} {points[0].unit}",
        f"{most:.1%}" if most < 0.095 else f"{most:.0%}",
    )


def _what(copies: Copies, *, pinned: bool) -> str:
    """Kind of a pattern: which way its flows go, and how many GPUs take part.

    With ``pinned``, copies of host memory that is not page-locked are marked.
    """
    ways = {_way(flow) for flow in copies.flows}
    gpus = {end for flow in copies.flows for end in flow if end.startswith("gpu")}
    if ways == {"peer"}:
        name = "peer" if len(copies.flows) == 1 else "peers, both ways"
    else:
        way = "host, both ways" if len(ways) > 1 else ways.pop()
        name = way if len(gpus) == 1 else f"{way}, {len(gpus)} GPUs"
    return name if copies.pinned or not pinned or "peer" in name else f"{name}, pageable"


def _way(flow: tuple[str, str]) -> str:
    source, destination = (end.startswith("gpu") for end in flow)
    if source and destination:
        return "peer"
    return "GPU to host" if source else "host to GPU"


def _copies(found: Measurements) -> Iterator[_Point]:
    pinned = any(copies.pinned for copies in found.copies)
    kinds: dict[str, list[Copies]] = defaultdict(list)
    for copies in found.copies:
        kinds[_what(copies, pinned=pinned)].append(copies)
    for what, alike in kinds.items():
        ends = _ends(copies.nbytes for copies in alike)
        for copies in (copies for copies in alike if copies.nbytes in ends):
            for seconds in copies.seconds:
                yield _bytes("copy", what, copies.nbytes, seconds, copies.spread)


def _collectives(found: Measurements) -> Iterator[_Point]:
    ends = _ends(record.nbytes for record in found.collectives)
    for record in found.collectives:
        if record.nbytes in ends:
            what = f"{record.kind.replace('_', '-')}, {len(record.group)} GPUs"
            yield _bytes("coll.", what, record.nbytes, record.seconds, record.spread)


def _bytes(group: str, what: str, nbytes: int, seconds: float, spread: float) -> _Point:
    return _Point(group, what, size(nbytes), seconds, nbytes / seconds / 1e9, "GB/s", spread)


def _ends(sizes: Iterable[int]) -> set[int]:
    known = set(sizes)
    return {min(known), max(known)} if known else set()


def _compute(found: Measurements) -> Iterator[_Point]:
    alone: dict[tuple[str, str, str, int], float] = {}
    largest: dict[str, int] = defaultdict(int)
    for record in found.compute:
        largest[record.layer] = max(largest[record.layer], record.samples)
        if not record.beside:
            alone[_key(record)] = record.seconds
    for record in found.compute:
        if record.phase != "update" and record.samples < largest[record.layer]:
            continue
        what = f"{record.layer} {record.phase}" + (
            f" + {_SHORT[record.beside]}" if record.beside else ""
        )
        count = "" if record.phase == "update" else f"u = {record.samples}"
        rate, unit = _rate(record, alone.get(_key(record), 0.0))
        yield _Point("layer", what, count, record.seconds, rate, unit, record.spread)


def _rate(record: Compute, alone: float) -> tuple[float, str]:
    """FLOP/s, or B/s of a layer without FLOPs; beside something, the time over that alone."""
    if record.beside and alone:
        return record.seconds / alone, "x"
    if record.flops:
        return record.flops / record.seconds / 1e9, "GFLOP/s"
    return record.bytes / record.seconds / 1e9, "GB/s"


def _key(record: Compute) -> tuple[str, str, str, int]:
    return record.gpu, record.layer, record.phase, record.samples


def _updates(found: Measurements) -> Iterator[_Point]:
    for record in found.updates:
        many = len(record.hosts)
        what = f"Adam, {many} at once" if many > 1 else "Adam"
        what += f" + {record.beside}" if record.beside else ""
        rate = many * record.params / record.seconds / 1e6
        count = f"{three(record.params / 1e6)} M"
        yield _Point("host", what, count, record.seconds, rate, "Mparam/s", record.spread)
