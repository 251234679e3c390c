"""The page of a run in a real browser: zoom, hover, search and what is drawn."""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import subprocess
from base64 import b64decode
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import numpy as np
import pytest
import run_cases

import workloads
from sim import Run, simulate
from sim.colours import PHASES

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
PROBE = (Path(__file__).parents[1] / "page_probe.js").read_text(encoding="utf-8")
HOSTILE = "<img src=x onerror='window.hacked=1'></script><script>window.hacked=1</script>"

HOVERS = {  # device, stream, seconds: what must be said there
    ("gpu0", "compute", 7): "forward 0|op|2 on gpu0|time|2 s, from 6.00 s|layer|0|samples|0–1|work|"
    "2 TFLOP at 1 TFLOP/s|waited for|op 0, swap in W[a] on host0 → gpu0|critical path|compute 2 s",
    ("gpu0", "to gpu1", 8.5): "peer X[a]|op|3 on gpu0 → gpu1|time|1 s, from 8.00 s|bytes|"
    "3 GB at 3 GB/s|waited for|op 2, forward 0 on gpu0|critical path|sw0>gpu1 1 s",
    ("gpu1", "swap in", 1): "swap in W[b]|op|1 on host0 → gpu1|time|6 s, from 0.00 s|bytes|"
    "12 GB at 2 GB/s|waited for|nothing",
    ("host0", "for gpu1", 17): "update 1|op|7 on host0|time|2 s, from 16.00 s|layer|1|bytes|"
    "28 GB at 14 GB/s|waited for|op 5, swap out dW[b] on gpu1 → host0|critical path|"
    "host process 2 s",
    ("gpu1", "memory", 10): "gpu1: 27 GB of 64 GB|activations X|3 GB|gradients dW|12 GB|weights W|"
    "12 GB|at|10.0000 s",
    ("gpu0", "compute", 3): "",
}
PIXELS = {  # device, stream, seconds: the phase drawn there, and whether the path crosses it
    ("gpu0", "compute", 7): ("forward", True),
    ("gpu1", "compute", 10): ("backward", True),
    ("gpu1", "swap in", 3): ("swap_in", False),
    ("gpu0", "to gpu1", 8.5): ("peer", True),
}
SEARCHES = (
    ["op 4"], ["layer 1"], ["layer 1", False], ["layer 1", False, False], ["layer 1", True],
    ["6"], ["nonsense"],
)  # fmt: skip


def open_page(page: str, folder: Path, **questions: Any) -> dict[str, Any]:
    """What the probe saw in a page; leaves ``page.png`` in the folder."""
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        pytest.skip(f"none of {', '.join(BROWSERS)} is on the PATH, so no browser opens the page")
    asked = {"hovers": [], "pixels": [], "searches": [], **questions}
    file = folder / "page.html"
    file.write_text(f"{page}<script>const QUESTIONS = {json.dumps(asked)};\n{PROBE}</script>")
    command = [
        browser, "--headless", "--disable-gpu", "--hide-scrollbars", "--window-size=1200,800",
        f"--user-data-dir={folder / 'profile'}", "--virtual-time-budget=60000",
        f"--screenshot={folder / 'page.png'}", "--dump-dom", file.as_uri(),
    ]  # fmt: skip
    if os.geteuid() == 0:  # its sandbox refuses to work for root
        command.insert(1, "--no-sandbox")
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    found = re.search(r'<pre id="seen" hidden="">(.*?)</pre>', done.stdout)
    assert found, done.stderr
    seen = json.loads(unquote(b64decode(found[1]).decode()))
    assert "error" not in seen, seen["error"]
    return seen


@pytest.fixture(scope="module")
def run() -> Run:
    return simulate(run_cases.plan(), run_cases.box())


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("page")


@pytest.fixture(scope="module")
def seen(run, folder) -> dict[str, Any]:
    return open_page(
        run.to_html(), folder, hovers=list(HOVERS), pixels=list(PIXELS), searches=SEARCHES
    )


def test_lanes_are_streams_and_memory_by_device(seen):
    assert seen["names"] == [
        ["", "critical path"], ["gpu0", "compute"], ["", "swap in"], ["", "to gpu1"],
        ["gpu1", "compute"], ["", "swap in"], ["", "swap out"], ["host0", "for gpu1"],
        ["gpu0", "memory"], ["gpu1", "memory"], ["host0", "memory"],
    ]  # fmt: skip


def test_hover_says_what_an_operation_did_and_waited_for(seen):
    said = ["|".join(filter(None, text.splitlines())) for text in seen["hovers"]]
    assert said == list(HOVERS.values())


def test_bars_have_the_colour_of_their_phase(seen):
    colours = [PHASES[phase][0] for phase, _ in PIXELS.values()]
    assert ["#" + bytes(pixel).hex().upper() for pixel in seen["pixels"]] == colours


def test_critical_path_fades_everything_else(seen):
    changed = [a != b for a, b in zip(*seen["critical"].values(), strict=True)]
    assert changed == [not on for _, on in PIXELS.values()]


def test_wheel_zooms_at_the_pointer_to_the_deepest_and_double_click_resets(seen, run):
    zoom = seen["zoom"]
    near = zoom["near"]
    assert abs(near["moved"]) < 1e-6
    assert near["to"] - near["from"] == pytest.approx(run.duration * math.exp(-1.4))
    deepest = zoom["deepest"]["to"] - zoom["deepest"]["from"]
    assert deepest == pytest.approx(1e-8 * run.duration, rel=1e-3)
    assert zoom["reset"] == {"from": 0, "to": run.duration}


def test_drag_pans_by_what_the_pointer_moves(seen):
    near, dragged = seen["zoom"]["near"], seen["zoom"]["dragged"]
    assert dragged["from"] - near["from"] == pytest.approx(dragged["seconds"])
    assert dragged["to"] - near["to"] == pytest.approx(dragged["seconds"])


def test_keys_zoom_pan_and_reset(seen, run):
    keys, whole = seen["keys"], run.duration
    middle = {"from": whole / 6, "to": whole * 5 / 6}
    assert keys["plus"] == pytest.approx(middle)
    assert keys["right"] == pytest.approx({"from": whole * 0.3, "to": whole * (2 / 3 + 0.3)})
    assert keys["left"] == pytest.approx(middle)
    assert keys["minus"] == pytest.approx({"from": 0, "to": whole})
    assert keys["zero"] == {"from": 0, "to": whole}


def test_search_finds_operations_and_layers_in_order_of_time(seen):
    answers = [(answer["chosen"], answer["found"]) for answer in seen["searches"]]
    assert answers == [
        (4, "1 of 1"), (4, "1 of 2"), (7, "2 of 2"), (4, "1 of 2"), (7, "2 of 2"),
        (-1, "none"), (-1, "none"),
    ]  # fmt: skip
    view = seen["searches"][0]["view"]
    assert view["from"] <= 9 < 12 <= view["to"]
    assert (seen["cleared"]["chosen"], seen["cleared"]["found"]) == (-1, "")


def test_bars_thinner_than_a_pixel_are_merged(seen):
    """Half of each pixel is covered, most of that by the first phase."""
    thin = seen["thin"]
    assert (thin["labels"], thin["colours"]) == (0, [0x0000FF])
    assert (thin["weakest"], thin["strongest"]) == pytest.approx((128, 128), abs=2)


def test_legend_names_what_is_drawn_and_nothing_else(seen):
    words = seen["legend"].split("\n")
    assert set(words) >= {"forward", "backward", "update", "swap in", "swap out", "peer copy"}
    assert set(words) >= {"weights W", "gradients dW", "activations X", "capacity"}
    assert not set(words) & {"recompute", "collective", "stash", "workspace"}


def test_screenshot_shows_the_bars(seen, folder):
    from matplotlib.image import imread

    picture = np.rint(imread(folder / "page.png")[..., :3] * 255).astype(np.uint8)
    for phase in ("forward", "backward", "swap_in", "swap_out"):
        wanted = np.frombuffer(bytes.fromhex(PHASES[phase][0][1:]), np.uint8)
        assert (picture == wanted).all(-1).sum() > 100


def test_hostile_names_are_text(tmp_path):
    plan = run_cases.plan()
    tensors = tuple(tensor._replace(name=HOSTILE + tensor.name) for tensor in plan.tensors)
    run = simulate(replace(plan, tensors=tensors, name=HOSTILE), run_cases.box())
    seen = open_page(run.to_html(), tmp_path, hovers=[("gpu0", "swap in", 3)])
    assert (seen["images"], seen["hacked"]) == (0, False)
    assert seen["hovers"][0].startswith(f"swap in {HOSTILE}W[a]")


def test_many_operations(tmp_path):
    """20 000 operations are drawn, found and pointed at as few are."""
    many = 2500
    plan = workloads.repeat(run_cases.plan(), many)
    run = simulate(plan, run_cases.box())
    last = 9 * (many - 1) + 4  # a barrier stands between iterations
    seen = open_page(run.to_html(), tmp_path, searches=[[f"op {last}"], ["layer 1"]])
    assert [answer["found"] for answer in seen["searches"]] == ["1 of 1", f"1 of {2 * many}"]
    assert seen["zoom"]["reset"]["to"] == run.duration
