"""Study files in TOML: what they can say, and what is wrong with them in one sentence."""

from __future__ import annotations

import shutil
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

import hwmodels
from hwmodels.errors import CommodiousError
from sim.study import file
from sim.study.study import Study

BOX = "pcie-4u-4x1080ti"
GOOD = f"""
model = "gpt2-small"
server = "{BOX}"
schedule = "harmony-pp"
minibatch = 8
"""


def written(folder: Path, text: str) -> Path:
    path = folder / "swap.toml"
    path.write_text(text, encoding="utf-8")
    return path


def points(folder: Path, text: str) -> list[dict[str, Any]]:
    return [dict(point.settings) for point in Study.load(written(folder, text)).points]


def test_one_of_each_is_one_point(tmp_path: Path) -> None:
    (row,) = points(tmp_path, GOOD)
    wanted = {"model": "gpt2-small", "server": BOX, "schedule": "harmony-pp", "minibatch": 8}
    assert row == wanted


def test_a_file_says_what_a_grid_says(tmp_path: Path) -> None:
    text = f"""
        schedule = ["harmony-pp", "harmony-dp"]
        minibatch = [8, 16]
        microbatch = 1
        precision = "fp32"
        sequence = [64, 128]
        optimizer = "adam"
        collectives = ["ring", "tree"]
        with_gpus = [2, 4]
        with_pcie = ["gen3 x8", "gen3 x16"]
        with_memory = {{ host = "256 GiB" }}
        with_link = [{{ name = "uplink0", bandwidth = "25 GB/s", latency = "1 us" }}]
        degraded = [{{ name = "sockets", factor = 0.5 }}]
        [model]
        mine = "gpt2-small"
        [server]
        stock = "{BOX}"
        [knobs]
        pack = [1, 2]
        update = "cpu"
        jit_update = true
    """
    grid = Study.grid(
        model={"mine": "gpt2-small"}, server={"stock": BOX},
        schedule=["harmony-pp", "harmony-dp"], minibatch=[8, 16], microbatch=1,
        precision="fp32", sequence=[64, 128], optimizer="adam", collectives=["ring", "tree"],
        with_gpus=[2, 4], with_pcie=[(3, 8), (3, 16)], with_memory={"host": "256 GiB"},
        with_link={"name": "uplink0", "bandwidth": "25 GB/s", "latency": "1 us"},
        degraded=("sockets", 0.5), pack=[1, 2], update="cpu", jit_update=True,
    )  # fmt: skip
    study = Study.load(written(tmp_path, text))
    assert study.points == grid.points
    assert len(study) == 128
    assert not any(point.fault for point in study.points)


def test_points_are_the_grid_with_changes_one_after_another(tmp_path: Path) -> None:
    text = GOOD + '[[point]]\nminibatch = [16, 32]\n[[point]]\nschedule = "dp"\nwith_gpus = 2\n'
    rows = points(tmp_path, text)
    cells = [(row["schedule"], row["minibatch"], row.get("with_gpus")) for row in rows]
    assert cells == [("harmony-pp", 16, None), ("harmony-pp", 32, None), ("dp", 8, 2)]


def test_files_lie_beside_the_study_file(tmp_path: Path) -> None:
    box = hwmodels.server(BOX).with_gpus(2)
    (tmp_path / "box.toml").write_text(box.to_toml())
    config = resources.files("workloads") / "models" / "configs" / "gpt2-xl.json"
    shutil.copy(str(config), tmp_path / "own.json")
    text = GOOD.replace(f'"{BOX}"', '["box.toml", "dgx-1"]').replace("gpt2-small", "own.json")
    study = Study.load(written(tmp_path, text))
    assert [point.server for point in study.points] == [box, hwmodels.server("dgx-1")]
    assert study.points[0].model is not None
    assert study.points[0].model.params == 1_557_611_200
    assert study.points[0].settings["model"] == "own"


def test_example_in_the_docs_can_be_read(tmp_path: Path) -> None:
    lines = (file.__doc__ or "").split("::", 1)[1].splitlines()
    text = "\n".join(line.removeprefix("    ") for line in lines if line.startswith("    "))
    (tmp_path / "box.toml").write_text(hwmodels.server("dgx-1").to_toml())
    study = Study.load(written(tmp_path, text))
    assert {point.settings["server"] for point in study.points} == {"stock", "mine"}
    assert {point.settings["minibatch"] for point in study.points} == {128}


BAD: dict[str, tuple[str, tuple[str, ...]]] = {
    "broken toml": ("minibatch = 8 9", ("TOML", "line 1")),
    "unknown field": (GOOD + "minibach = 8", ("minibach", "minibatch")),
    "missing field": (GOOD.replace("minibatch = 8", ""), ("no minibatch",)),
    "number as text": (GOOD.replace("= 8", '= "8"'), ("'minibatch'", "integer", "'8'")),
    "zero": (GOOD.replace("minibatch = 8", "minibatch = [8, 0]"), ("'minibatch'", "equal to 1")),
    "half a sample": (GOOD.replace("= 8", "= 7.5"), ("'minibatch'", "integer", "7.5")),
    "empty list": (GOOD.replace("= 8", "= []"), ("minibatch", "no value")),
    "unknown model": (GOOD.replace("gpt2-small", "gpt2-smal"), ("gpt2-small",)),
    "unknown server": (GOOD.replace(BOX, BOX[:-1]), (BOX,)),
    "unknown schedule": (GOOD.replace("harmony-pp", "harmony-p"), ("harmony-pp",)),
    "missing server file": (GOOD.replace(BOX, "none.toml"), ("none.toml", "no such file")),
    "unknown knob": (GOOD + "[knobs]\npacks = 3", ("packs", "pack")),
    "knob of no kind": (GOOD + "[knobs]\npack = 1.5", ("'knobs.pack'", "1.5")),
    "link without unit": (
        GOOD + 'with_link = { name = "uplink0", bandwidth = "25" }',
        ("'bandwidth' in with_link", "unit", "GB/s"),
    ),
    "wrong unit": (
        GOOD + 'with_link = { name = "uplink0", latency = "25 GB/s" }',
        ("'latency' in with_link", "time"),
    ),
    "link without name": (GOOD + 'with_link = { bandwidth = "25 GB/s" }', ("'name' is missing",)),
    "unknown field of a link": (
        GOOD + 'with_link = { name = "uplink0", bandwith = "25 GB/s" }',
        ("'bandwith' in with_link", "did you mean 'bandwidth'"),
    ),
    "memory without unit": (GOOD + 'with_memory = [{ host = "64" }]', ("with_memory", "GiB")),
    "impossible pcie": (GOOD + 'with_pcie = ["gen4 x16", "gen9 x16"]', ("generation 9",)),
    "pcie as number": (GOOD + "with_pcie = 4", ("gen3 x16",)),
    "factor above one": (
        GOOD + 'degraded = [{ name = "a", factor = 0.5 }, { name = "b", factor = 2.0 }]',
        ("'factor' in degraded number 2", "1"),
    ),
    "wrong in a point": (
        GOOD + '[[point]]\nminibatch = 8\n[[point]]\nminibatch = "x"', ("point number 2", "'x'"),
    ),
    "unknown in a point": (GOOD + "[[point]]\nminibach = 8", ("point number 1", "minibatch")),
    "server of no kind": (GOOD.replace(f'"{BOX}"', "[4]"), ("'server'", "string", "4")),
    "model without name": (GOOD.replace('"gpt2-small"', "{ mine = 7 }"), ("'model.mine'", "7")),
    "empty": ("", ("no",)),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_bad_files_are_said_in_one_sentence(tmp_path: Path, name: str) -> None:
    text, words = BAD[name]
    with pytest.raises(CommodiousError) as said:
        Study.load(written(tmp_path, text))
    sentence = str(said.value)
    assert [word for word in words if word not in sentence] == [], sentence
    assert "\n" not in sentence


def test_a_file_that_is_missing_or_no_text(tmp_path: Path) -> None:
    with pytest.raises(CommodiousError, match="no such file"):
        Study.load(tmp_path / "none.toml")
    (tmp_path / "swap.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(CommodiousError, match="UTF-8"):
        Study.load(tmp_path / "swap.toml")
