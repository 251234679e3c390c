from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

import hwmodels as hw
from hwmodels import compute
from hwmodels.compute import Curve, LayerProfile, LayerWork, Work
from hwmodels.errors import InvalidInput

GPU = replace(
    hw.gpu("gtx-1080-ti"),
    flops={"fp32": 10e12},
    bandwidth=500e9,
    launch_overhead=5e-6,
    compute_efficiency=0.5,
    memory_efficiency=0.8,
)
PROFILE = LayerProfile(
    "gtx-1080-ti",
    {
        ("block", "forward"): Curve((1, 2, 4), (1.0, 1.5, 2.0)),
        ("block", "backward"): Curve((1, 2, 4), (2.0, 3.0, 4.5)),
        ("block", "update"): Curve((1,), (0.25,)),
        ("head", "forward"): Curve((2,), (3.0,)),
    },
)


def work(flops: float, nbytes: float, **changes: object) -> Work:
    part = LayerWork("block", "forward", 2, flops, nbytes, "fp32", 2)
    return Work((replace(part, **changes),))  # type: ignore[arg-type]


def test_roofline_takes_the_larger_of_arithmetic_and_memory() -> None:
    # 10e12 FLOP at half of 10 TFLOP/s takes 2 s; 400e9 bytes at 0.8 of 500 GB/s take 1 s.
    assert compute.seconds(GPU, work(10e12, 400e9)) == pytest.approx(2.0 + 10e-6, rel=1e-12)
    assert compute.seconds(GPU, work(1e12, 400e9)) == pytest.approx(1.0 + 10e-6, rel=1e-12)


def test_nothing_to_launch_takes_no_time() -> None:
    assert compute.seconds(GPU, work(0.0, 0.0, kernels=0)) == 0.0
    with pytest.raises(InvalidInput, match="no FLOPs and no bytes"):
        compute.seconds(GPU, work(0.0, 0.0, kernels=1))


def test_layers_of_one_operation_add_up() -> None:
    both = Work(work(10e12, 0.0).parts + work(0.0, 400e9).parts)
    assert compute.seconds(GPU, both) == pytest.approx(3.0 + 20e-6, rel=1e-12)


def test_tf32_runs_as_fp32_where_a_gpu_lacks_it() -> None:
    tf32, fp32 = work(1e12, 0.0, dtype="tf32"), work(1e12, 0.0)
    assert compute.seconds(GPU, tf32) == compute.seconds(GPU, fp32)


def test_missing_number_format_is_an_error() -> None:
    with pytest.raises(InvalidInput, match="gtx-1080-ti has no bf16 arithmetic; it has fp32"):
        compute.seconds(GPU, work(1e12, 0.0, dtype="bf16"))


def test_profile_counts_only_on_the_gpu_it_was_measured_on() -> None:
    assert compute.seconds(GPU, work(10e12, 0.0), PROFILE) == 1.5
    other = replace(GPU, name="rtx-4090")
    assert compute.seconds(other, work(10e12, 0.0), PROFILE) == pytest.approx(2.0 + 10e-6)


def test_profile_is_linear_between_sizes_and_exact_at_them() -> None:
    assert [PROFILE.seconds("block", "forward", u) for u in (1, 2, 3, 4)] == [1.0, 1.5, 1.75, 2.0]


def test_profile_beyond_its_sizes_continues_the_line() -> None:
    # Slope of the last pair is 0.25 a sample.
    assert PROFILE.seconds("block", "forward", 8) == 3.0
    assert PROFILE.seconds("head", "forward", 6) == 9.0
    assert PROFILE.extrapolates("block", "forward", 8)
    assert not PROFILE.extrapolates("block", "forward", 3)


@given(st.integers(1, 1000))
def test_extrapolation_stays_between_constant_and_proportional(samples: int) -> None:
    found = PROFILE.seconds("block", "backward", samples)
    if samples > 4:
        assert 4.5 <= found <= 4.5 * samples / 4


def test_recompute_is_a_forward_unless_measured() -> None:
    assert PROFILE.seconds("block", "recompute", 2) == 1.5


def test_update_of_a_profile_is_the_cpus_and_does_not_depend_on_size() -> None:
    assert PROFILE.seconds("block", "update", 7) == 0.25
    assert not PROFILE.extrapolates("block", "update", 7)
    on_gpu = work(0.0, 400e9, phase="update")
    assert compute.seconds(GPU, on_gpu, PROFILE) == pytest.approx(1.0 + 10e-6)


def test_unknown_row_names_the_nearest() -> None:
    with pytest.raises(InvalidInput, match="no row 'blok'; did you mean 'block'"):
        PROFILE.seconds("blok", "forward", 1)
    with pytest.raises(InvalidInput, match="no 'backward' times of row 'head'"):
        PROFILE.seconds("head", "backward", 1)


def test_work_known_only_by_measurement_needs_that_gpu() -> None:
    other = replace(GPU, name="rtx-4090")
    with pytest.raises(InvalidInput, match="known only by times measured on gtx-1080-ti"):
        compute.seconds(other, work(0.0, 0.0), PROFILE)
    with pytest.raises(InvalidInput, match="no FLOPs and no bytes in its forward"):
        compute.seconds(GPU, work(0.0, 0.0))


def test_update_of_a_layer_without_weights_takes_no_time() -> None:
    assert compute.seconds(GPU, work(0.0, 0.0, phase="update"), PROFILE) == 0.0


@pytest.mark.parametrize(
    ("curve", "says"),
    [
        (Curve((1, 2), (1.0,)), "2 microbatch sizes and 1 times"),
        (Curve((2, 2), (1.0, 1.0)), "must be positive and increase"),
        (Curve((1,), (-1.0,)), "must be finite and not negative"),
    ],
)
def test_broken_profiles_are_refused(curve: Curve, says: str) -> None:
    with pytest.raises(InvalidInput, match=says):
        LayerProfile("gtx-1080-ti", {("block", "forward"): curve})


def test_notes_say_each_extrapolation_once() -> None:
    works = [work(1.0, 1.0, samples=u) for u in (2, 8, 8, 16)]
    said = compute.notes(GPU, works, PROFILE)
    assert len(said) == 2
    assert "forward of block at 8 samples" in said[0]


def test_notes_say_where_times_are_a_roofline() -> None:
    (said,) = compute.notes(GPU, [])
    assert said.startswith(f"Compute times on {GPU.name} are estimated, not measured: a roofline")
    (said,) = compute.notes(replace(GPU, name="rtx-4090"), [], PROFILE)
    assert said.endswith("of the arithmetic peak; the profile was measured on gtx-1080-ti.")
    (said,) = compute.notes(replace(GPU, unverified=("compute_efficiency",)), [])
    assert "peak (unverified)." in said
