"""Schedules: one small file per family, all listed in ``catalog``."""
