"""The list of schedules: defaults, knobs, and what is refused."""

from __future__ import annotations

import pytest
from toys import BIG, Box, chain

from hwmodels.errors import InvalidInput, UnknownName
from workloads.schedules.catalog import schedule, schedule_info, schedule_infos

MODEL = chain(8, 5, 1, 1, 1, 1)


def test_a_pipeline_takes_eight_microbatches_a_stage_where_it_can():
    for name in ("gpipe", "1f1b", "1f1b-pager"):
        assert schedule(name, MODEL, Box(2, BIG), minibatch=64).microbatch == 4  # 16 = 8 x 2
        assert schedule(name, MODEL, Box(4, BIG), minibatch=64).microbatch == 2
        assert schedule(name, MODEL, Box(4, BIG), minibatch=16).microbatch == 1  # as many as can be


def test_others_take_the_largest_that_divides_and_fits():
    assert schedule("dp", MODEL, Box(2, BIG), minibatch=64).microbatch == 4
    assert schedule("dp", MODEL, Box(2, BIG), minibatch=12).microbatch == 2  # of 6 samples a GPU
    wide = chain(8, 1, 1, 1, 1, 100)
    assert schedule("dp-recompute", wide, Box(1, 350), minibatch=8).microbatch == 2


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"minibatch": 64.0}, "minibatch is 64.0; it must be a whole number"),
        ({"minibatch": "64"}, "minibatch is '64'"),
        ({"minibatch": True}, "minibatch is True"),
        ({"minibatch": None}, "minibatch is None"),
        ({"minibatch": 8, "microbatch": 2.5}, "microbatch is 2.5"),
        ({"minibatch": 0}, "it must be at least 1"),
        ({"minibatch": 10**9, "microbatch": 1}, "layer steps"),
        ({"minibatch": 9, "microbatch": 2}, "does not divide"),
    ],
)
def test_sizes_that_cannot_be(arguments, words):
    with pytest.raises(InvalidInput, match=words):
        schedule("gpipe", MODEL, Box(1, BIG), **arguments)


def test_names_instead_of_objects():
    with pytest.raises(InvalidInput, match="pass a Model"):
        schedule("dp", "gpt2-xl", Box(1, BIG), minibatch=1)
    with pytest.raises(InvalidInput, match="pass a Server"):
        schedule("dp", MODEL, "dgx-1", minibatch=1)


@pytest.mark.parametrize(
    ("knobs", "error", "words"),
    [
        ({"grouping": "perhaps"}, InvalidInput, "it must be true or false"),
        ({"pack": "two"}, InvalidInput, "a whole number"),
        ({"pack": 0}, InvalidInput, "at least 1"),
        ({"update": "tpu"}, InvalidInput, "gpu or cpu"),
        ({"packing": 1}, InvalidInput, "true or false"),
        ({"groupin": True}, UnknownName, "grouping"),
        ({"packs_backward": "0-3,5-7"}, InvalidInput, "does not follow"),
        ({"packs_backward": "0-3"}, InvalidInput, "must cover all layers"),
        ({"packs_backward": "0-3,x"}, InvalidInput, "not a pack"),
        ({"packs_backward": "0-3,4-9"}, InvalidInput, "past the end"),
        (
            {"packs_forward": "0-1", "packs_backward": "0-3,4-7"},
            InvalidInput,
            "must end at layer 3",
        ),
        ({"grouping": False, "microbatch_backward": 2}, InvalidInput, "without grouping"),
    ],
)
def test_knobs_that_cannot_be(knobs, error, words):
    with pytest.raises(error, match=words):
        schedule("harmony-pp", MODEL, Box(2, BIG), minibatch=4, microbatch=1, **knobs)


def test_text_knobs_mean_what_they_say():
    plain = schedule("harmony-pp", MODEL, Box(2, BIG), minibatch=4, microbatch=1, grouping=False)
    text = schedule("harmony-pp", MODEL, Box(2, BIG), minibatch=4, microbatch=1, grouping="off")
    assert plain.ops == text.ops


def test_every_schedule_says_what_it_is():
    names = [info.name for info in schedule_infos()]
    assert len(names) == len(set(names)) == 46
    for info in schedule_infos():
        assert schedule_info(info.name) is info
        assert info.summary
        assert info.source
    with pytest.raises(UnknownName, match="harmony-pp"):
        schedule_info("harmony-p")
