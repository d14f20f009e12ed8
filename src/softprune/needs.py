"""Packages that only some of the library needs, each part of an extra."""

from __future__ import annotations

import importlib
from typing import Any

from softprune.errors import UserError


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
