"""Validation: predictions beside what was measured here or published elsewhere.

`execute` runs a schedule for real; `validate.bench` measures a machine, `validate.calibrate` fits a
server to what it measured, and `Report` sets a predicted run beside a measured one.
"""

from __future__ import annotations

from validate.execute import Execution, ExecutionFailed, ExecutionInterrupted, execute
from validate.network import Network
from validate.optimizer import Settings
from validate.report import Report

__all__ = [
    "Execution",
    "ExecutionFailed",
    "ExecutionInterrupted",
    "Network",
    "Report",
    "Settings",
    "execute",
]
