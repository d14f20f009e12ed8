"""Packages that only some data need."""

from __future__ import annotations

import importlib
from typing import Any

from softprune.errors import UserError


class MissingPackageError(UserError, ImportError):
    """A package of the extra ``train`` is not installed."""


def needs(module: str, package: str, what: str) -> Any:
    """The module, or the sentence that says how to install it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise MissingPackageError(
            f"`{what}` needs {package}, which is not installed. Write `pip install 'softprune[train]'`."
        ) from error
