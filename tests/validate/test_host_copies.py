"""Published copies on whole servers, against link and root capacities alone."""

from __future__ import annotations

import itertools
import math
import tomllib
from pathlib import Path
from typing import Any

import pytest

import hwmodels as hw
from hwmodels.units import parse
from sim.fabric import max_min

TABLE = Path(__file__).parents[2] / "validate" / "published" / "host_copies.toml"
ROWS: list[dict[str, Any]] = tomllib.loads(TABLE.read_text(encoding="utf-8"))["row"]


def copies(server: hw.Server, pattern: str, gpus: list[str]) -> list[hw.Route]:
    """Routes of all copies of a pattern."""
    if pattern == "to-gpu":
        return [server.route(server.host_of(g), g) for g in gpus]
    if pattern == "to-host":
        return [server.route(g, server.host_of(g)) for g in gpus]
    pairs = {
        "pair": [(gpus[0], gpus[1])],
        "both-ways": [(gpus[0], gpus[1]), (gpus[1], gpus[0])],
        "all-to-all": list(itertools.permutations(gpus, 2)),
    }[pattern]
    return [server.route(a, b) for a, b in pairs]


def rates(server: hw.Server, routes: list[hw.Route]) -> list[float]:
    return max_min([r.usage for r in routes], [r.cap for r in routes], server.resources)


def aggregate(server: hw.Server, routes: list[hw.Route]) -> float:
    """Bytes of equal copies over the time until the last one ends, in B/s."""
    left = dict.fromkeys(range(len(routes)), 1.0)
    clock = 0.0
    while left:
        speed = rates(server, [routes[i] for i in left])
        step = min(todo / v for todo, v in zip(left.values(), speed, strict=True))
        clock += step
        left = {
            i: todo - v * step
            for (i, todo), v in zip(left.items(), speed, strict=True)
            if todo - v * step > 1e-9
        }
    return len(routes) / clock


@pytest.mark.parametrize(
    "row", ROWS, ids=[f"{r['server']}-{r['pattern']}-{len(r['gpus'])}" for r in ROWS]
)
def test_model_beside_measurement(row: dict[str, Any]) -> None:
    server = hw.server(row["server"])
    found = aggregate(server, copies(server, row["pattern"], row["gpus"]))
    measured = parse(row["measured"], "bandwidth")
    # The table of the file is what the model says now.
    assert found == pytest.approx(parse(row["model"], "bandwidth"), rel=1e-3)
    if "within" in row:
        assert found == pytest.approx(measured, rel=row["within"])
    else:  # fluid links are an upper bound of what is measured
        assert found >= measured


def test_eight_copies_from_one_root_share_it_equally() -> None:
    server = hw.server("8xrtxpro6000-one-root")
    each = rates(server, copies(server, "to-gpu", list(server.gpus)))
    assert each == pytest.approx([73.1e9 / 8] * 8, rel=1e-9)


def test_copies_between_gpus_do_not_use_the_capacity_of_the_root() -> None:
    server = hw.server("8xrtxpro6000-one-root")
    routes = copies(server, "pair", ["gpu0", "gpu4"]) + copies(server, "to-gpu", list(server.gpus))
    # Half of what the root gives goes down the uplink that the copy also takes; it gets the rest.
    assert rates(server, routes)[0] == pytest.approx(57.05e9 - 73.1e9 / 2, rel=1e-9)


def test_staged_copies_are_slower_inside_a_switch_than_across() -> None:
    server = hw.server("8x3090-gen3")
    inside = aggregate(server, copies(server, "both-ways", ["gpu0", "gpu1"]))
    across = aggregate(server, copies(server, "both-ways", ["gpu0", "gpu4"]))
    uplink = server.resources["sw0>root0"]
    assert inside == pytest.approx(uplink)
    assert across == pytest.approx(2 * uplink)
    assert inside < across


def test_four_swaps_of_the_harmony_box_share_its_uplink() -> None:
    server = hw.server("pcie-4u-4x1080ti")
    each = rates(server, copies(server, "to-gpu", list(server.gpus)))
    assert each == pytest.approx([11.5 * 2**30 / 4] * 4, rel=1e-9)
    assert math.fsum(each) == pytest.approx(12.348e9, rel=1e-4)
