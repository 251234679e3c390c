"""Workloads: models as chains of layers, and schedules that train them on a server.

Examples
--------
>>> import hwmodels as hw, workloads as wl
>>> box = hw.server("pcie-4u-4x1080ti")
>>> plan = wl.schedule("harmony-pp", wl.model("gpt2-xl"), box, minibatch=64, microbatch=4)
>>> plan.name
'harmony-pp'
"""

from __future__ import annotations

from workloads import repeat as _repeat
from workloads.model import Layer, Model, Optimizer, Precision, Weight
from workloads.models import named
from workloads.models.huggingface import from_config
from workloads.models.profile import from_profile
from workloads.models.torch_module import from_torch
from workloads.schedule import Schedule
from workloads.schedules import catalog

# Bound last: importing model.py, models/, schedule.py, schedules/ and repeat.py binds their names
# to the modules.
model = named.model
models = named.models
repeat = _repeat.repeat
schedule = catalog.schedule
schedule_info = catalog.schedule_info
schedule_infos = catalog.schedule_infos


def schedules() -> tuple[str, ...]:
    """Names that `schedule` takes."""
    return tuple(info.name for info in catalog.schedule_infos())


__all__ = [
    "Layer",
    "Model",
    "Optimizer",
    "Precision",
    "Schedule",
    "Weight",
    "from_config",
    "from_profile",
    "from_torch",
    "model",
    "models",
    "repeat",
    "schedule",
    "schedule_info",
    "schedule_infos",
    "schedules",
]
