"""Simulation: replay a schedule on a model of a server, and see what it costs.

Examples
--------
>>> import hwmodels as hw, workloads as wl, sim
>>> box = hw.server("pcie-4u-4x1080ti")
>>> plan = wl.schedule("harmony-pp", wl.model("gpt2-xl"), box, minibatch=64, microbatch=4)
>>> run = sim.simulate(plan, box)  # doctest: +SKIP
"""

from __future__ import annotations

from sim.compare import Comparison, Result, compare
from sim.explain import Explanation
from sim.run import Run, simulate
from sim.study.study import Study

__all__ = ["Comparison", "Explanation", "Result", "Run", "Study", "compare", "simulate"]
