import pytest
import torch


def pytest_runtest_setup(item):
    """Some slow tests need a device, too."""
    if item.get_closest_marker("gpu") and not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")


@pytest.fixture(autouse=True, scope="session")
def _one_thread():
    """The models are tiny: a second thread only waits."""
    torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)
