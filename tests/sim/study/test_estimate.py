"""The time that is left: right for points that are alike, a range for those that are not."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st
from study_runs import small, tiny

from sim.study.estimate import Done, left, size
from sim.study.study import Study


def test_nothing_is_said_of_few_points() -> None:
    assert left([Done(1.0, 1.0)] * 4, 4.0, 100.0) == "time left not known yet"
    assert left([Done(1.0, 1.0)] * 5, 5.0, 100.0) == "about 100 s left"


def test_time_goes_with_size() -> None:
    done = [Done(x, 0.5 * x) for x in (1.0, 2.0, 4.0, 8.0, 16.0)]
    assert left(done, sum(x.seconds for x in done), 7200.0) == "about 60 min left"
    assert left(done, sum(x.seconds for x in done) / 2, 7200.0) == "about 30 min left"  # in two


def test_unequal_points_give_a_range_that_narrows() -> None:
    draw = random.Random(3)
    done = [Done(10.0, draw.choice((1.0, 9.0))) for _ in range(1000)]
    few, some = (left(done[:n], float(n), 36000.0) for n in (8, 100))
    assert few.endswith(" min left")
    low, high = (int(x) for x in few.split(" min")[0].split(" to "))
    assert low < 60 < high
    closer = [int(x) for x in some.split(" min")[0].split(" to ")]
    assert low < closer[0] <= closer[1] < high
    assert left(done, 1000.0, 36000.0) == "about 60 min left"


@given(
    st.lists(st.builds(Done, st.floats(1, 1e6), st.floats(0, 1e4)), max_size=50),
    st.floats(0, 1e6),
    st.floats(0, 1e9),
)
def test_something_is_said_of_anything(done: list[Done], elapsed: float, rest: float) -> None:
    assert "left" in left(done, elapsed, rest)


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
