from __future__ import annotations

import pytest

from hwmodels import link
from hwmodels.errors import InvalidInput
from hwmodels.link import Width


@pytest.mark.parametrize(("generation", "nominal"), [(3, 15.754), (4, 31.508), (5, 63.015)])
def test_nominal_rates_of_x16(generation: int, nominal: float) -> None:
    assert link.pcie_nominal(Width(generation, 16)) / 1e9 == pytest.approx(nominal, abs=1e-3)


# Measured with one GPU: NVIDIA nvbandwidth README (Gen4), ikawrakow/ik_llama.cpp#1022 (Gen5).
@pytest.mark.parametrize(("generation", "measured"), [(4, 26.0), (5, 57.0)])
def test_effective_rates_agree_with_measured_ones(generation: int, measured: float) -> None:
    assert link.pcie_effective(Width(generation, 16)) / 1e9 == pytest.approx(measured, rel=0.025)


def test_nvlinks_add_up() -> None:
    assert link.nvlink_nominal(Width(3, 12)) == 300e9
    assert link.nvlink_effective(Width(4, 18)) == pytest.approx(376e9)


def test_width_is_written_as_it_is_read() -> None:
    assert str(link.parse_width("gen3 x16", link.PCIE_LANE, "up")) == "gen3 x16"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("3.0 x16", "is not a generation and width"),
        ("gen9 x16", "generation 9 does not exist; it is one of 1, 2, 3, 4, 5, 6"),
        ("gen3 x64", "width x64 is impossible"),
    ],
)
def test_impossible_widths(text: str, says: str) -> None:
    with pytest.raises(InvalidInput, match=says):
        link.parse_width(text, link.PCIE_LANE, "up")
