"""Speed of studies: one process against several, and showing again what is kept.

Two studies: ``small``, 2,000 points of milliseconds (starting processes and writing rows weigh
most), and ``large``, 180 points of GPT-2 XL and BERT-Large. Each is run in one process, then in
``--processes``, each time into a new study file, in turn and ``--repeat`` times; the table has the
medians in seconds. ``again`` is the time to run the study on a file that has all its points,
measured in a fresh process from its start, imports included. The last columns are the time in one
process over the time in several, and points a second in several.

    python benchmarks/study.py [--processes 2] [--repeat 3] [--json]
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import hwmodels
import sim
from workloads.model import Layer, Model, Weight, optimizer, precision

BOX = "pcie-4u-4x1080ti"


def small() -> sim.Study:
    """2,000 points of two layers on one GPU."""
    layers = tuple(
        Layer(f"l{i}", "block", (Weight(f"w{i}", 1000),), 4096, 8192, 0, 1e9, 2e9, 1e6, 2e6)
        for i in range(2)
    )
    model = Model("tiny", layers, 64, 1, precision("fp32"), optimizer("adam"))
    return sim.Study.grid(
        model=model, server=hwmodels.server(BOX).with_gpus(1), schedule=["dp", "1f1b"],
        degraded=[("uplink0", at / 250) for at in range(1, 251)], minibatch=[1, 2, 3, 4],
        microbatch=1,
    )  # fmt: skip


def large() -> sim.Study:
    """180 points of models that people train."""
    return sim.Study.grid(
        model=["gpt2-xl", "bert-large"], server=BOX, sequence=512,
        schedule=["harmony-pp", "harmony-dp", "dp-pager"], minibatch=[16, 32],
        with_link=[("uplink0", f"{rate} GB/s") for rate in range(6, 36, 2)],
    )  # fmt: skip


STUDIES = {"small": small, "large": large}


def once(name: str, path: Path, processes: int) -> float:
    """Seconds of one run in this process."""
    study = STUDIES[name]()
    start = time.perf_counter()
    study.run(path, processes=processes, progress=lambda done, total, label: None)
    return time.perf_counter() - start


def again(name: str, path: Path) -> float:
    """Seconds of a fresh process that runs the study once more."""
    start = time.perf_counter()
    subprocess.run([sys.executable, __file__, "--again", name, str(path)], check=True)
    return time.perf_counter() - start


def measure(name: str, processes: int, repeat: int) -> dict[str, Any]:
    """Run one study in turn in one and in several processes."""
    one: list[float] = []
    several: list[float] = []
    shown: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        for at in range(repeat):
            one.append(once(name, Path(folder) / f"one{at}.study", 1))
            path = Path(folder) / f"several{at}.study"
            several.append(once(name, path, processes))
            shown.append(again(name, path))
    points, first, then = len(STUDIES[name]()), statistics.median(one), statistics.median(several)
    return {
        "study": name,
        "points": points,
        "one": first,
        "several": then,
        "again": statistics.median(shown),
        "one/several": first / then,
        "points/s": points / then,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--again", nargs=2, metavar=("STUDY", "FILE"), help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.again:
        once(asked.again[0], Path(asked.again[1]), 1)
        return
    rows = [measure(name, asked.processes, asked.repeat) for name in STUDIES]
    if asked.json:
        print(json.dumps(rows, indent=2))
        return
    print(f"{asked.processes} processes, median of {asked.repeat}")
    print(f"{'study':8}" + "".join(f"{head:>13}" for head in list(rows[0])[1:]))
    for row in rows:
        cells = (f"{x:13d}" if isinstance(x, int) else f"{x:13.2f}" for x in list(row.values())[1:])
        print(f"{row['study']:8}" + "".join(cells))


if __name__ == "__main__":
    main()
