from pathlib import Path

import pytest
from matplotlib.figure import Figure

DRAW = Figure.savefig


@pytest.fixture(autouse=True, scope="module")
def _drafts():
    """Figures are made, and not drawn: that takes longer than these networks take to train. Runs in processes of their
    own draw them, and tests that ask for ``drawn``."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Figure, "savefig", lambda self, path, **_: Path(path).write_bytes(b"a figure"))
        yield


@pytest.fixture
def drawn(monkeypatch):
    monkeypatch.setattr(Figure, "savefig", DRAW)
