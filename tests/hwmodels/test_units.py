from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hwmodels import units
from hwmodels.errors import InvalidInput


@pytest.mark.parametrize(
    ("text", "quantity", "value"),
    [
        ("12.8 GB/s", "bandwidth", 12.8e9),
        ("11.5 GiB/s", "bandwidth", 11.5 * 2**30),
        ("8us", "time", 8e-6),
        ("0.3 µs", "time", 0.3e-6),
        ("11 GiB", "bytes", 11 * 2**30),
        ("375 GB", "bytes", 375e9),
        ("0.79e9 params/s", "params", 0.79e9),
        ("1.41 Gparams/s", "params", 1.41e9),
        ("11.3 TFLOP/s", "flops", 11.3e12),
    ],
)
def test_reads_what_people_write(text: str, quantity: units.Quantity, value: float) -> None:
    assert units.parse(text, quantity) == value


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (12.8, "12.8 is not a bandwidth; write a bandwidth with its unit"),
        (True, "True is not a bandwidth"),
        ("12.8", "'12.8' has no unit; write a bandwidth with its unit, such as \"12.8 GB/s\""),
        ("12.8 GB", "'GB' is not a unit of a bandwidth"),
        ("12.8 Gbit/s", "'Gbit/s' is not a unit"),
        ("fast", "'fast' is not a bandwidth"),
        ("-3 GB/s", "'-3 GB/s' must be finite and not negative"),
        ("1e999 GB/s", "must be finite"),
    ],
)
def test_refuses_with_one_sentence(text: object, says: str) -> None:
    with pytest.raises(InvalidInput) as error:
        units.parse(text, "bandwidth", "up.bandwidth")
    assert str(error.value).startswith("up.bandwidth: ")
    assert says in str(error.value)
    assert str(error.value).endswith(".")


@given(st.floats(min_value=0.0, max_value=1e20, allow_subnormal=False))
def test_written_rates_and_times_read_back_exactly(value: float) -> None:
    assert units.parse(units.format_bandwidth(value), "bandwidth") == value
    assert units.parse(units.format_flops(value), "flops") == value
    assert units.parse(units.format_params(value), "params") == value
    assert units.parse(units.format_time(value), "time") == value


@given(st.integers(min_value=0, max_value=2**52))
def test_written_bytes_read_back_exactly(value: int) -> None:
    assert units.parse_bytes(units.format_bytes(value)) == value


def test_written_as_people_would() -> None:
    assert units.format_bytes(11 * 2**30) == "11 GiB"
    assert units.format_bytes(375 * 10**9) == "375 GB"
    assert units.format_bandwidth(12.348e9) == "12.348 GB/s"
    assert units.format_time(8e-6) == "8 us"
