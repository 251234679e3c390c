"""Calibration: measurements of a machine into a server that predicts them, and layer times.

`calibrate` looks first (which copies share a limit, which go directly), then builds a server with
first guesses, decides what is left open by which choice explains more, and fits all numbers at
once.
"""

from __future__ import annotations

from validate.calibrate.calibrate import calibrate
from validate.calibrate.profile import layer_times, load_profile, with_profile
from validate.calibrate.result import Calibration, Fit

__all__ = ["Calibration", "Fit", "calibrate", "layer_times", "load_profile", "with_profile"]
