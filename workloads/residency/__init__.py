"""Residency: who is in memory when. One planner, one small file per policy."""
