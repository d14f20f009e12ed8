"""Tables in pages: what stands between `<!-- NAME -->` and `<!-- end -->` is replaced by the table of that name."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

DOCS = Path(__file__).parent.parent / "docs"
IMAGES = DOCS / "images"
RESULTS, README = DOCS / "results.md", DOCS.parent / "README.md"


def fill(pages: Iterable[Path], tables: Mapping[str, str]) -> None:
    """Print the tables, and put them where pages have a place for them."""
    for name, made in tables.items():
        print(f"\n{name}\n\n{made}")
    for page in pages:
        text = page.read_text(encoding="utf-8")
        for name, made in tables.items():
            place = re.compile(rf"(<!-- {name} -->\n).*?(<!-- end -->)", re.DOTALL)
            text = place.sub(lambda match, made=made: f"{match[1]}{made}\n{match[2]}", text)
        page.write_text(text, encoding="utf-8")
