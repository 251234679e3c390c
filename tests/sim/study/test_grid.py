"""From settings to points: order, labels, edits, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest
from study_runs import BOX, tiny

import hwmodels
import workloads
from hwmodels.errors import CommodiousError, InvalidInput, UnknownName
from sim.study.study import Study

GOOD: dict[str, Any] = {
    "model": "gpt2-small", "server": BOX, "schedule": "harmony-pp", "minibatch": 8,
}  # fmt: skip


def settings(study: Study) -> list[dict[str, Any]]:
    return [dict(point.settings) for point in study.points]


def test_last_axis_changes_fastest() -> None:
    study = Study.grid(**GOOD | {"minibatch": [8, 16]}, pack=[1, 2, None])
    cells = [(row["minibatch"], row["pack"]) for row in settings(study)]
    assert cells == [(8, 1), (8, 2), (8, None), (16, 1), (16, 2), (16, None)]
    assert repr(study) == "Study of 6 points: 2 minibatch x 3 pack"
    assert len(study) == 6
    assert repr(Study([GOOD])) == "Study of 1 point"


def test_values_may_be_lists_tuples_or_ranges() -> None:
    for values in ([8, 16], (8, 16), range(8, 17, 8)):
        study = Study.grid(**GOOD | {"minibatch": values})
        assert [row["minibatch"] for row in settings(study)] == [8, 16]


def test_second_server_of_a_name_is_told_apart() -> None:
    box = hwmodels.server(BOX)
    faster = box.with_link("uplink0", bandwidth="25 GB/s")
    study = Study.grid(**GOOD | {"server": [box, faster, "dgx-1", BOX]})
    labels = [row["server"] for row in settings(study)]
    assert labels == [BOX, f"{BOX} #2", "dgx-1", BOX]
    named = Study.grid(**GOOD | {"server": {"stock": box, "fast": faster}})
    assert [row["server"] for row in settings(named)] == ["stock", "fast"]
    assert [point.server for point in named.points] == [box, faster]


def test_models_by_name_take_options_and_are_made_once() -> None:
    study = Study.grid(**GOOD, sequence=[128, 256], precision=["fp32", "bf16"])
    assert study.points[1].model == workloads.model("gpt2-small", sequence=128, precision="bf16")
    assert settings(study)[1]["model"] == "gpt2-small"
    twice = Study.grid(**GOOD | {"minibatch": [8, 16]})
    assert twice.points[0].model is twice.points[1].model
    assert twice.points[0].server is twice.points[1].server


def test_edits_are_made_in_the_order_given() -> None:
    box = hwmodels.server(BOX)
    edits: dict[str, Any] = {
        "with_gpus": 2, "with_pcie": "gen3 x8", "degraded": ("uplink0", 0.5),
        "with_memory": {"host": "64 GiB"},
    }  # fmt: skip
    (point,) = Study.grid(**GOOD, **edits).points
    wanted = box.with_gpus(2).with_pcie(3, 8).degraded("uplink0", 0.5).with_memory("64 GiB")
    assert point.server == wanted
    shown = {name: point.settings[name] for name in edits}
    assert shown == {
        "with_gpus": 2, "with_pcie": "gen3 x8", "degraded": "uplink0 0.5", "with_memory": "64 GiB",
    }  # fmt: skip
    tree = Study.grid(**GOOD, with_pcie=[(3, 8)]).points[0]
    assert tree.settings["with_pcie"] == "gen3 x8"


def test_what_does_not_suit_one_point_is_its_fault_only() -> None:
    study = Study.grid(**GOOD | {"server": [BOX, "dgx-1"]}, with_gpus=[4, 8])
    faults = [point.fault for point in study.points]
    assert [bool(fault) for fault in faults] == [False, True, False, False]
    assert "has 4 GPUs" in faults[1]
    study = Study.grid(**GOOD | {"model": ["vgg416", "gpt2-small"]}, sequence=[None, 128])
    assert [bool(point.fault) for point in study.points] == [False, True, False, False]
    study = Study.grid(**GOOD, with_link=[{"nam": "uplink0"}])
    assert "with_link cannot take" in study.points[0].fault


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        ({"minibach": 8}, UnknownName, ("minibach", "minibatch")),
        ({"host_copy": "keep"}, UnknownName, ("host_copy",)),  # a knob, but of other schedules
        ({"model": "gpt2-xxl"}, UnknownName, ("gpt2-xxl", "gpt2-xl")),
        ({"model": 7}, InvalidInput, ("model", "7")),
        ({"model": {"mine": "gpt2-xxl"}}, UnknownName, ("gpt2-xl",)),
        ({"server": "dgx-l"}, UnknownName, ("dgx-l", "dgx-")),
        ({"server": 7}, InvalidInput, ("server", "7")),
        ({"schedule": "harmony"}, UnknownName, ("harmony-pp",)),
        ({"schedule": 7}, InvalidInput, ("schedule", "7")),
        ({"schedule": None}, InvalidInput, ("schedule",)),
        ({"minibatch": "8"}, InvalidInput, ("minibatch", "whole number")),
        ({"minibatch": 8.0}, InvalidInput, ("whole number",)),
        ({"minibatch": True}, InvalidInput, ("whole number",)),
        ({"minibatch": 0}, InvalidInput, ("at least 1",)),
        ({"minibatch": []}, InvalidInput, ("minibatch", "no value")),
        ({"microbatch": -1}, InvalidInput, ("microbatch", "at least 1")),
        ({"precision": "fp33"}, UnknownName, ("fp32",)),
        ({"optimizer": "adamm"}, UnknownName, ("adam",)),
        ({"collectives": "rings"}, UnknownName, ("ring",)),
        ({"model": tiny(), "sequence": 128}, InvalidInput, ("tiny", "sequence")),
    ],
)  # fmt: skip
def test_what_suits_no_point_is_refused(
    changes: dict[str, Any], error: type[CommodiousError], words: tuple[str, ...]
) -> None:
    with pytest.raises(error) as said:
        Study.grid(**GOOD | changes)
    assert all(word in str(said.value) for word in words)


def test_a_point_needs_the_four_settings() -> None:
    for name in GOOD:
        left = {key: value for key, value in GOOD.items() if key != name}
        with pytest.raises(InvalidInput, match=f"no {name}"):
            Study([left])
    with pytest.raises(InvalidInput, match="no point"):
        Study([])
