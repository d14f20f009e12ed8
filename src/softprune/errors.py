"""Sentences for users: error classes, checks of arguments, packages that an extra brings.

The message of a ``UserError`` says what is wrong and what to do; the command prints it without a traceback. Every
exception of another class is a defect of this library. Imports the standard library alone; anybody may import it.
"""

from __future__ import annotations

import difflib
import importlib
import math
import numbers
from collections.abc import Callable, Iterable
from typing import Any


class UserError(Exception):
    """A sentence that says what is wrong and what to do."""

    exit_code = 1


class ArgumentError(UserError, ValueError):
    """An invalid argument."""

    exit_code = 2


class ArgumentTypeError(ArgumentError, TypeError):
    """An argument of the wrong kind, or one that cannot be used with another."""


class UsageError(UserError, RuntimeError):
    """A call at the wrong time."""


class ConfigError(ArgumentError):
    """An invalid setting of the command."""


class CheckpointError(UserError, RuntimeError):
    """A checkpoint or model file that cannot be written or read."""


class DivergedError(UserError, RuntimeError):
    """Training diverged."""


class DataError(UserError, ValueError):
    """Images that are missing, damaged or inconsistent."""


class MissingPackageError(UserError, ImportError):
    """A package of an extra is not installed."""


def needs(module: str, package: str, what: str, extra: str = "train") -> Any:
    """The module, or the sentence that says how to install it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise MissingPackageError(
            f"`{what}` needs {package}, which is not installed. Write `pip install 'softprune[{extra}]'`."
        ) from error


def require(owner: str, name: str, value: Any, words: str, holds: Callable[[Any], bool]) -> None:
    """Refuse an argument that is no number, or one that does not hold.

    >>> require("SLATS", "final", -1.0, ">= 0", lambda x: x >= 0)
    Traceback (most recent call last):
    softprune.errors.ArgumentError: `SLATS(final=...)` must be >= 0. Got -1.0.
    """
    number = isinstance(value, numbers.Real) and not isinstance(value, bool)
    if not (number and holds(value)):
        raise ArgumentError(f"`{owner}({name}=...)` must be {words}. Got {value if number else repr(value)}.")


def require_nonnegative(owner: str, name: str, value: float) -> None:
    require(owner, name, value, ">= 0 and finite", lambda x: 0 <= x < math.inf)


def require_whole(owner: str, name: str, value: int, least: int = 0) -> None:
    whole = f"a whole number >= {least}"
    require(owner, name, value, whole, lambda x: isinstance(x, numbers.Integral) and int(x) >= least)


def require_range(owner: str, steps: int, start: int) -> None:
    """A run of ``steps`` steps, of which ``start`` pass before pruning begins."""
    require_whole(owner, "steps", steps, least=1)
    require_whole(owner, "start", start)
    if start >= steps:
        raise ArgumentError(f"`{owner}(start=...)` must be < steps = {steps}. Got {start}.")


def did_you_mean(name: str, choices: Iterable[str]) -> str:
    """For the middle of a message: the closest choice, or nothing if none is close.

    >>> did_you_mean("slat", ["slats", "sine"])
    " Did you mean 'slats'?"
    """
    near = difflib.get_close_matches(name, list(choices), n=1)
    return f" Did you mean {near[0]!r}?" if near else ""


def listing(names: Iterable[str], most: int) -> str:
    """For the middle of a message: the first few names, and how many more there are.

    >>> listing("abcd", most=2)
    'a, b and 2 more'
    """
    names = list(names)
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")
