"""The repository's own files in the pages.

- ``--8<-- "src/softprune/schedules/stds.py:Linear"`` includes one class or function of a file, found by its name;
  ``--8<-- "README.md:example"`` the README's Python. (Snippets by line would show other lines after the next edit.)
- A link to a file that is not a page, such as ../examples/lasso.py, shows its path.
"""

import ast
import re
from pathlib import Path, PurePosixPath
from posixpath import normpath
from typing import Any

ROOT = Path(__file__).parents[2]
_INCLUDE = re.compile(r'^--8<-- "([\w/.]+):(\w+)"$', re.MULTILINE)
_LINK = re.compile(r"(?<!!)\[[^\]]*\]\(((?:\.\./)+[^)#\s]+)\)")


def on_page_markdown(markdown: str, page: Any, **_: object) -> str:
    folder = PurePosixPath("docs", page.file.src_uri).parent

    def shown(found: re.Match[str]) -> str:
        path = normpath(folder / found[1])
        return found[0] if path.startswith("docs/") else f"`{path}`"

    return _LINK.sub(shown, _INCLUDE.sub(lambda found: f"```python\n{included(*found.groups())}\n```", markdown))


def included(path: str, name: str) -> str:
    """The source of a class or function, with its decorators; of a Markdown file, its first Python."""
    text = (ROOT / path).read_text(encoding="utf-8")
    if path.endswith(".md"):
        return text.partition("```python\n")[2].partition("\n```")[0]
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name == name:
            first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
            return "\n".join(text.splitlines()[first - 1 : node.end_lineno])
    raise ValueError(f"There is no class or function {name} in {path}.")
