import pytest
import torch


@pytest.fixture(autouse=True, scope="session")
def _one_thread():
    """The models are tiny: a second thread only waits."""
    torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)
