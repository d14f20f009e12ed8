"""README and site: the example runs as pasted, and what pages refer to exists."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path
from posixpath import normpath

import pytest

import softprune as sp

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
README = ROOT / "README.md"
PAGES = [README, ROOT / "CONTRIBUTING.md", *sorted(DOCS.rglob("*.md"))]
GENERATED = {"docs/reference/settings.md", "docs/reference/recipes.md"}  # when the site is built

of_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))


def text(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def prose(page: Path) -> str:
    """A page without its code blocks."""
    return re.sub(r"^```.*?^```$", "", text(page), flags=re.DOTALL | re.MULTILINE)


def anchors(page: Path) -> set[str]:
    """As GitHub and the site both make them."""
    heads = re.findall(r"^#+ (.*?)(?: \{: #([\w-]+) \})?$", prose(page), re.MULTILINE)
    return {own or re.sub(r"[^\w\- ]", "", head.lower()).strip().replace(" ", "-") for head, own in heads}


def test_the_example_of_the_readme_runs_as_pasted_and_ends_at_95_percent(tmp_path):
    program = tmp_path / "pasted.py"
    program.write_text(text(README).partition("```python\n")[2].partition("```")[0], encoding="utf-8")
    run = [sys.executable, "-W", "error", str(program)]
    done = subprocess.run(run, capture_output=True, encoding="utf-8", cwd=tmp_path, timeout=120)
    assert done.returncode == 0, done.stderr
    (total,) = re.findall(r"^total .* ([\d.]+%)$", done.stdout, re.MULTILINE)
    assert total == "95.00%"


def test_the_readme_fits_on_a_screen():
    assert len(text(README).splitlines()) <= 70


def test_every_public_name_has_an_entry_in_the_reference():
    entries = re.findall(
        r"^::: softprune\.(\w+)$", "".join(text(p) for p in (DOCS / "reference").glob("*.md")), re.MULTILINE
    )
    assert sorted(entries) == sorted(sp.__all__)


@of_page
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        path, _, anchor = target.partition("#")
        if ":" in path:
            continue
        found = (page.parent / path) if path else page
        place = normpath(found.relative_to(ROOT).as_posix())
        assert found.exists() or place in GENERATED, f"{target} in {page.name}"
        if anchor:
            assert anchor in anchors(found), f"{target} in {page.name}"


def test_tests_that_pages_name_exist():
    """Pages cite tests as `pytest -k` finds them, by a part of the name: it lives longer than the file."""
    named = {name for page in PAGES for name in re.findall(r"`(test_\w+)`", prose(page))}
    tests = re.findall(r"def (test_\w+)\(", "".join(text(path) for path in (ROOT / "tests").rglob("test_*.py")))
    assert len(named) > 20
    assert {name for name in named if not any(name in test for test in tests)} == set()


@of_page
def test_files_that_pages_name_exist(page):
    for path in re.findall(r"`((?:benchmarks|docs|examples|src|tests)/[\w/.-]+)`", prose(page)):
        assert (ROOT / path).exists(), path


def test_the_architecture_shows_every_room():
    contracts = tomllib.loads(text(ROOT / "pyproject.toml"))["tool"]["importlinter"]["contracts"]
    (layers,) = (contract["layers"] for contract in contracts if contract["type"] == "layers")
    rooms = {room.strip(" ()") for layer in layers for room in layer.split("|")}
    page = text(DOCS / "architecture.md")
    assert rooms == {room for room in rooms if f"`{room}`" in page}
    picture = text(DOCS / "images" / "rooms.svg")
    assert rooms - {"__main__"} == set(re.findall(r'class="room(?: mid)?">(\w+)<', picture))


def test_files_of_the_walk_through_a_step_exist():
    walk = text(DOCS / "architecture.md")
    for path in re.findall(r"`(\w+/\w+\.py)`", walk):
        assert (ROOT / "src" / "softprune" / path).exists(), path
