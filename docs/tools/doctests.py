"""Examples in docstrings as code blocks: Markdown takes lines that begin with ``>>>`` for quotations."""

import re
from typing import Any

import griffe

_EXAMPLE = re.compile(r"^>>> .*(?:\n(?=\S).*)*", re.MULTILINE)  # up to an empty line


class Doctests(griffe.Extension):
    """Puts a fence around each example."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring:
            obj.docstring.value = _EXAMPLE.sub(lambda found: f"```pycon\n{found[0]}\n```", obj.docstring.value)
