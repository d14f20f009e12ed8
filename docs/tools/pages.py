"""Pages that are made from the code when the site is built: the settings of the command, and its recipes."""

import sys
from collections.abc import Iterable
from itertools import groupby
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

sys.path.insert(0, str(Path(__file__).parents[2] / "src"))

from softprune.recipes import RECIPES, Recipe
from softprune.recipes.config import Config
from softprune.training.settings import CHOICES, meanings

MEANINGS = meanings(Config())  # every setting, written ``name=default`` -> what it means


def on_files(files: Files, config: Any) -> Files:
    for name, content in {"settings": settings(), "recipes": recipes()}.items():
        files.append(File.generated(config, f"reference/{name}.md", content=content))
    return files


def settings() -> str:
    rows = []
    for setting, meaning in MEANINGS.items():
        name, _, default = setting.partition("=")
        rows.append((f"`{name}`", f"`{default}`" if default else "", meaning))
    return f"""# Settings of the command

Write any of these after a recipe: `softprune train digits/slats lr=0.2 final=0.5`. A recipe sets some of them; the
defaults below hold where it does not. `softprune recipes NAME` shows all settings of one recipe. A setting that the
chosen method does not read is refused.

{_table(("setting", "default", "meaning"), rows)}

{"".join(_names(setting) for setting in CHOICES)}"""


def _names(setting: str) -> str:
    rows = [(f"`{entry.name}`", entry.about) for entry in CHOICES[setting].values()]
    return f"""## {setting}

{_table(("name", "what it is"), rows)}

"""


def recipes() -> str:
    families = groupby(RECIPES.values(), key=lambda recipe: recipe.name.partition("/")[0])
    return f"""# Recipes

{len(RECIPES)} named runs. `softprune train NAME` trains one, `softprune recipes NAME` shows its settings, and
`softprune train NAME --smoke` tries it in a few steps on synthetic data. "Expect" says what was measured here (digits
and the small GPT: seed 0, one CPU thread; CIFAR-10: [findings](../results.md)) or what the paper reports (ImageNet).

{"".join(_family(name, list(members)) for name, members in families)}"""


def _family(name: str, members: list[Recipe]) -> str:
    first = members[0]
    about = first.reproduces.removesuffix(f", {first.name.partition('/')[2]}")
    rows = [(f"`{recipe.name}`", recipe.expect) for recipe in members]
    return f"""## {name}

{about[0].upper()}{about[1:]}. Cost: {first.cost}.

{_table(("recipe", "expect"), rows)}

"""


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    cells = [head, ("---",) * len(head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in cells)
