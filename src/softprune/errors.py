"""Errors that are the user's to mend. The command prints their message, without a traceback, and exits."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class UserError(Exception):
    """A sentence that says what is wrong and what to do."""

    exit_code = 1


class ConfigError(UserError, ValueError):
    """A setting or an argument that cannot be."""

    exit_code = 2


class CheckpointError(UserError, RuntimeError):
    """A checkpoint or model file that cannot be written or read."""


class DivergedError(UserError, RuntimeError):
    """Training that led nowhere."""


class DataError(UserError, ValueError):
    """Images that are missing, damaged or inconsistent."""


def did_you_mean(name: str, choices: Iterable[str]) -> str:
    """For the middle of a message: the choice that is most like ``name``, or nothing if none is.

    >>> did_you_mean("slat", ["slats", "sine"])
    " Did you mean 'slats'?"
    """
    near = difflib.get_close_matches(name, list(choices), n=1)
    return f" Did you mean {near[0]!r}?" if near else ""


def listing(names: Iterable[str], most: int) -> str:
    """For the middle of a message: the first few, and how many more there are.

    >>> listing("abcd", most=2)
    'a, b and 2 more'
    """
    names = list(names)
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")
