from pathlib import Path

import pytest
from matplotlib.figure import Figure


@pytest.fixture(autouse=True, scope="module")
def _drafts():
    """Figures are made, and not drawn: that takes longer than these networks take to train. Runs in processes of their
    own draw them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Figure, "savefig", lambda self, path, **_: Path(path).write_bytes(b"a figure"))
        yield
