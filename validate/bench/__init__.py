"""Micro-benchmarks of one machine: copies, collectives, layers, optimizer steps.

>>> from validate.bench import bench, show
>>> found = bench("cpu", gpus=2, budget_seconds=30)  # doctest: +SKIP
>>> found.save("machine.json")  # doctest: +SKIP
"""

from __future__ import annotations

from validate.bench.bench import Chain, bench, layer_records
from validate.bench.table import show

__all__ = ["Chain", "bench", "layer_records", "show"]
