"""Keys: equal for equal questions, in any process; different for anything that is asked."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from study_runs import BOX, small, tiny

import hwmodels
import workloads
from sim.study import point
from sim.study.point import keys
from sim.study.study import Study

ROOT = Path(__file__).parents[3]
ASKED: dict[str, Any] = {
    "model": "gpt2-small", "server": BOX, "schedule": "harmony-pp", "minibatch": 8,
}  # fmt: skip


def key(**changes: Any) -> str:
    """Key of one point."""
    return keys(Study([ASKED | changes]).points)[0]


@pytest.mark.parametrize("seed", ["0", "1", "random"])
def test_key_is_the_same_in_any_process(seed: str) -> None:
    code = (
        "from sim.study.study import Study; from sim.study.point import keys\n"
        f"print(keys(Study([{ASKED!r} | dict(update='cpu')]).points)[0])"
    )
    env = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=env
    )
    assert done.stdout.strip() == key(update="cpu")


def test_everything_asked_is_in_the_key() -> None:
    box = hwmodels.server(BOX)
    other_gpu = replace(box.parts.gpus[0].gpu, compute_efficiency=0.5)
    slots = tuple(replace(slot, gpu=other_gpu) for slot in box.parts.gpus)
    different = [
        {}, {"minibatch": 16}, {"microbatch": 1}, {"schedule": "harmony-dp"}, {"pack": 2},
        {"pack": 3}, {"update": "cpu"}, {"collectives": "tree"}, {"sequence": 128},
        {"precision": "bf16"}, {"optimizer": "sgd"}, {"model": "bert-large"}, {"server": "dgx-1"},
        {"with_gpus": 2}, {"with_pcie": (3, 8)}, {"with_memory": {"host": "64 GiB"}},
        {"degraded": ("uplink0", 0.5)}, {"degraded": ("uplink0", 0.25)},
        {"with_link": ("uplink0", "25 GB/s")}, {"with_gpus": 9}, {"with_gpus": 10},
        # the name of the GPU is that of the catalog, but not what it can do
        {"server": type(box)(replace(box.parts, gpus=slots))},
    ]  # fmt: skip
    found = [key(**changes) for changes in different]
    assert len(set(found)) == len(different)


def test_how_things_are_named_and_made_is_not_in_the_key(tmp_path: Path) -> None:
    box = hwmodels.server(BOX)
    path = tmp_path / "box.toml"
    path.write_text(box.to_toml())
    edited = box.with_link("uplink0", bandwidth="25 GB/s")
    same = [
        {"server": box}, {"server": str(path)}, {"model": workloads.model("gpt2-small")},
        {"microbatch": None}, {"with_gpus": None}, {"with_gpus": 4}, {"degraded": ("uplink0", 1)},
    ]  # fmt: skip
    assert {key(**changes) for changes in same} == {key()}
    assert key(server=edited) == key(with_link=("uplink0", "25 GB/s"))
    labelled = Study.grid(**(ASKED | {"model": {"mine": "gpt2-small"}, "server": {"old": box}}))
    assert keys(labelled.points) == [key()]
    turned = Study([dict(reversed(ASKED.items()))])
    assert keys(turned.points) == [key()]


def test_another_version_or_schema_is_another_key(monkeypatch: pytest.MonkeyPatch) -> None:
    old = key()
    monkeypatch.setattr(point, "version", lambda: "9.9.9")
    newer = key()
    monkeypatch.setattr(point, "SCHEMA", 99)
    assert len({old, newer, key()}) == 3


def test_measured_times_are_in_the_key() -> None:
    model = workloads.model("harmony/gpt2-medium")
    assert model.profile is not None
    row, curve = next(iter(model.profile.rows.items()))
    slower = curve._replace(seconds=tuple(2 * x for x in curve.seconds))
    profile = replace(model.profile, rows={**model.profile.rows, row: slower})
    assert key(model=model) != key(model=replace(model, profile=profile))


def test_equal_content_of_different_objects_has_one_key() -> None:
    one, two = tiny(), tiny()
    assert one is not two
    found = [keys(Study([ASKED | {"model": m, "server": small()}]).points) for m in (one, two)]
    assert found[0] == found[1]
