"""``commodious bench``, ``calibrate`` and ``validate`` from end to end, on a very small network."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import partial

import pytest

import hwmodels as hw
import validate.bench.collectives as collectives_module
import validate.bench.compute as compute_module
import validate.bench.copies as copies_module
import validate.bench.updates as updates_module
import validate.plan as plan_module
from validate import nets, usual
from validate.measurements import Measurements
from validate.trials import TRIALS

SMALL = 2**16


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """Tiny networks, tiny caches and the smallest copies that count as large."""
    layers = nets.gpt(8, 16, 2, 20, 6)
    conv = nets.convnet((3, 8), 4, 4)
    made = {
        "gpt": usual.Usual(layers, partial(nets.text, tokens=6, vocab=20)),
        "conv": usual.Usual(conv, partial(nets.pictures, size=8, classes=4)),
    }
    monkeypatch.setattr(usual, "usual", lambda net, device: made[net])
    for module in (copies_module, updates_module):
        monkeypatch.setattr(module, "cache_bytes", lambda: 2**16)
    for module in (copies_module, compute_module):
        monkeypatch.setattr(module, "SHARED", SMALL)
    monkeypatch.setattr(collectives_module, "SIZES", (SMALL,))
    monkeypatch.setattr(plan_module, "LARGE", (2**24, 2**25, 3 * 2**23, 5 * 2**22))
    monkeypatch.setattr(plan_module, "MIDDLE", (2**18,))


def test_bench(commodious, tmp_path):
    file = tmp_path / "m.json"
    done = commodious("bench", "--seconds", "1", "--output", str(file))
    assert done.code == 0, done.err
    for words in ("host to GPU", "block backward", "Adam"):
        assert words in done.out
    assert Measurements.load(file).machine.gpus == ("gpu0",)


def test_calibrate_then_validate(commodious, tmp_path):
    box = tmp_path / "box.toml"
    done = commodious("calibrate", "--seconds", "1", "-o", str(box))
    assert done.code == 0, done.err
    assert "residual" in done.out
    assert hw.load(box).gpus == ("gpu0",)
    again = tmp_path / "again.toml"
    kept = str(tmp_path / "box.measurements.json")
    assert commodious("calibrate", "--from", kept, "-o", str(again)).code == 0
    assert again.read_text() == box.read_text()

    picture = tmp_path / "bars.png"
    done = commodious("validate", "--server", str(box), "--plot", str(picture))
    assert done.code == 0, done.err
    assert f"Median error of {len(TRIALS)}:" in done.out
    assert max(map(len, done.out.splitlines())) <= 100
    assert picture.stat().st_size > 5_000

    done = commodious(
        "validate", "--server", str(box), "--net", "conv", "--schedule", "harmony-dp",
        "--share", "4", "--json",
    )  # fmt: skip
    assert done.code == 0, done.err
    (trial,) = json.loads(done.out)["trials"]
    assert trial["schedule"] == "harmony-dp"
    assert trial["memory_share"] == 4
    assert all(row["predicted"] == row["measured"] for row in trial["copied_bytes"])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["calibrate", "-o", "box.json"], "must end in .toml"),
        (["calibrate", "-o", "box.toml", "--from", "nothing.json"], "nothing.json"),
        (["calibrate", "-o", "box.toml", "--device", "cuda"], "sees no GPU"),
        (["validate", "--server", "nobody"], "nobody"),
        (["validate", "--server", "dgx-1", "--schedule", "dq"], "did you mean"),
        (["validate", "--server", "dgx-1", "--net", "rnn"], "rnn"),
        (["bench", "--gpus", "0"], "--gpus"),
        (["bench", "-o", "here.txt"], "must end in .json"),
    ],
)
def test_mistakes(commodious, tmp_path, monkeypatch, arguments, words):
    monkeypatch.chdir(tmp_path)
    done = commodious(*arguments)
    assert done.code == 2
    assert words in done.err
    assert done.err.count("\n") == 1


def test_ctrl_c_keeps_the_measurements(commodious, tmp_path, monkeypatch):
    usual_copies, seen = copies_module.measure, []

    def stops(*arguments):
        seen.append(1)
        if len(seen) == 4:
            raise KeyboardInterrupt
        return usual_copies(*arguments)

    monkeypatch.setattr(copies_module, "measure", stops)
    done = commodious("calibrate", "--seconds", "1", "-o", str(tmp_path / "box.toml"))
    assert done.code == 130
    assert "box.measurements.json" in done.out
    assert len(Measurements.load(tmp_path / "box.measurements.json").copies) == 3
    assert not (tmp_path / "box.toml").exists()


WITHOUT_TORCH = """
import sys
sys.modules["torch"] = None
sys.argv = ["commodious", *{arguments}]
from validate.cli import main
main()
"""


def without_torch(*arguments):
    code = WITHOUT_TORCH.format(arguments=list(arguments))
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("command", [["bench"], ["calibrate", "-o", "x.toml"]])
def test_without_torch_these_say_what_to_install(command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = without_torch(*command)
    assert done.returncode == 2
    assert "pip install 'commodious[validate]'" in done.stderr
    assert "Traceback" not in done.stderr


def test_without_torch_all_else_works():
    done = without_torch(
        "run", "--schedule", "dp", "--model", "bert-large", "--server", "dgx-1",
        "--minibatch", "8", "--json",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["schedule"] == "dp"
    assert without_torch("--help").returncode == 0
