"""Errors that are the user's to mend. The command prints their message, without a traceback, and exits."""

from __future__ import annotations


class UserError(Exception):
    """A sentence that says what is wrong and what to do."""

    exit_code = 1


class ConfigError(UserError, ValueError):
    """A setting or an argument that cannot be."""

    exit_code = 2


class CheckpointError(UserError, RuntimeError):
    """A checkpoint or model file that cannot be written or read."""


class DataError(UserError, ValueError):
    """Images that are missing, damaged or inconsistent."""
