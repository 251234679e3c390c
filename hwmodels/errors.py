"""Errors a user can cause, by meaning; every message is one sentence."""

from __future__ import annotations


class CommodiousError(Exception):
    """A user's input cannot be used: says what is wrong, where, and what would be right."""


class InvalidInput(CommodiousError):
    """A value, file or name that the caller gave is not usable."""


class UnknownName(CommodiousError):
    """No server, model, schedule, link or device has the given name."""


class NoPath(CommodiousError):
    """Two places of a server are not connected."""


class DoesNotFit(CommodiousError):
    """A schedule needs more memory on one device than that device has."""


class InvalidSchedule(CommodiousError):
    """A schedule breaks a rule that makes it safe to execute."""


class Deadlock(CommodiousError):
    """A run ended with operations that never became ready."""
