"""Validation: what was measured on real machines, to hold the simulator against."""
