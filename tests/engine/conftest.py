"""A library that was built otherwise may stand in for a variant: test_build runs the kernels' tests with sanitizers."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from softprune.engine import native


@pytest.fixture(autouse=True, scope="session")
def other_library() -> Iterator[None]:
    said = os.environ.get("SOFTPRUNE_TEST_LIBRARY")
    if not said:
        yield
        return
    name, _, path = said.partition("=")
    library = native.Library(path)
    patch = pytest.MonkeyPatch()
    patch.setattr(native, "load", lambda wanted=None: library)
    assert library.name == name
    yield
    patch.undo()
