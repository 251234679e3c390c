"""Studies of points that take milliseconds, for tests that run them in other processes too."""

from __future__ import annotations

import os
import signal
import sys
from dataclasses import dataclass, fields
from multiprocessing import parent_process
from pathlib import Path
from typing import Any

import hwmodels
from hwmodels.server import Server
from sim.study.study import Study
from workloads.model import Layer, Model, Weight, optimizer, precision

BOX = "pcie-4u-4x1080ti"


def tiny(layers: int = 2, name: str = "tiny") -> Model:
    """A chain of layers with a thousand weights each."""
    chain = tuple(
        Layer(f"l{i}", "block", (Weight(f"w{i}", 1000),), 4096, 8192, 0, 1e9, 2e9, 1e6, 2e6)
        for i in range(layers)
    )
    return Model(name, chain, 64, 1, precision("fp32"), optimizer("adam"))


def small() -> Server:
    """One GPU."""
    return hwmodels.server(BOX).with_gpus(1)


def many(points: int = 2000) -> Study:
    """Study of 8 points for each of many bandwidths of the uplink; some are invalid."""
    factors = [(8 + at) / (8 + points) for at in range(points // 8)]
    return Study.grid(
        model=tiny(), server=small(), degraded=[("uplink0", x) for x in factors],
        schedule=["dp", "1f1b"], minibatch=[1, 2], microbatch=[1, 2],
    )  # fmt: skip


@dataclass(frozen=True)
class Bomb(Model):
    """A model that kills the worker process which looks at it, the first ``times`` times."""

    counter: str = ""
    times: int = 0

    def __getattribute__(self, name: str) -> Any:
        if name == "precision" and parent_process() is not None:
            path = Path(self.counter)
            seen = len(path.read_text()) if path.exists() else 0
            if seen < self.times:
                path.write_text("x" * (seen + 1))
                os.kill(os.getpid(), signal.SIGKILL)
        return super().__getattribute__(name)


def bomb(counter: Path, times: int) -> Bomb:
    """Like `tiny`, but deadly ``times`` times; ``counter`` is where it counts."""
    facts = {field.name: getattr(tiny(), field.name) for field in fields(Model)}
    return Bomb(**facts, counter=str(counter), times=times)


if __name__ == "__main__":
    many(int(sys.argv[2])).run(sys.argv[1], processes=2)
