"""The time that is left: right for points that are alike, a range for those that are not."""

from __future__ import annotations

import math
import random

from hypothesis import given
from hypothesis import strategies as st
from study_runs import small, tiny

from sim.study import estimate
from sim.study.estimate import Done, left, size
from sim.study.study import Study


def done(*points: tuple[float, float]) -> Done:
    """Sums over (size, seconds)."""
    found = Done()
    for each in points:
        found = found.plus(*each)
    return found


def test_nothing_is_said_of_few_points() -> None:
    assert left(done(*[(1.0, 1.0)] * 4), 4.0, 100.0) == "time left not known yet"
    assert left(done(*[(1.0, 1.0)] * 5), 5.0, 100.0) == "about 100 s left"


def test_time_goes_with_size() -> None:
    found = done(*((x, 0.5 * x) for x in (1.0, 2.0, 4.0, 8.0, 16.0)))
    assert found.seconds == 15.5
    assert left(found, 15.5, 7200.0) == "about 60 min left"
    assert left(found, 7.75, 7200.0) == "about 30 min left"  # in two processes


def test_unequal_points_give_a_range_that_narrows() -> None:
    draw = random.Random(3)
    points = [(10.0, draw.choice((1.0, 9.0))) for _ in range(2000)]
    few, some = (left(done(*points[:n]), 5.0 * n, 7200.0) for n in (8, 100))
    assert few.endswith(" min left")
    low, high = (int(x) for x in few.split(" min")[0].split(" to "))
    assert low < 60 < high
    closer = [int(x) for x in some.split(" min")[0].split(" to ")]
    assert low < closer[0] < 60 < closer[1] < high
    assert left(done(*points), 10000.0, 7200.0) == "about 60 min left"


@given(st.lists(st.tuples(st.floats(1, 1e6), st.floats(1e-6, 1e4)), min_size=5, max_size=40))
def test_uncertainty_is_that_of_a_ratio(points: list[tuple[float, float]]) -> None:
    found = done(*points)
    ratio = found.seconds / found.size
    rest = [seconds - ratio * size for size, seconds in points]
    wanted = math.sqrt(sum(x * x for x in rest) * len(rest) / (len(rest) - 1)) / found.seconds
    assert math.isclose(estimate._relative_error(found), wanted, rel_tol=1e-3, abs_tol=1e-6)


@given(
    st.lists(st.tuples(st.floats(1, 1e6), st.floats(0, 1e4)), max_size=50),
    st.floats(0, 1e6),
    st.floats(0, 1e9),
)
def test_something_is_said_of_anything(
    points: list[tuple[float, float]], elapsed: float, rest: float
) -> None:
    assert "left" in left(done(*points), elapsed, rest)


def test_size_grows_with_the_work() -> None:
    study = Study.grid(
        model=[tiny(2), tiny(20)], server=small(), schedule="dp", minibatch=[8, 64],
        microbatch=[1, 4],
    )  # fmt: skip
    found = [size(point) for point in study.points]
    assert found == [10 + 2 * 8, 10 + 2 * 2, 10 + 2 * 64, 10 + 2 * 16,
                     10 + 20 * 8, 10 + 20 * 2, 10 + 20 * 64, 10 + 20 * 16]  # fmt: skip
    (open_,) = Study.grid(model=tiny(2), server=small(), schedule="dp", minibatch=8).points
    assert size(open_) == 10 + 2 * 2
    (fault,) = Study.grid(
        model=tiny(), server=small(), schedule="dp", minibatch=8, with_gpus=2
    ).points
    assert size(fault) == 1
