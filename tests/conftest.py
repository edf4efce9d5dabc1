import os
import sys

import pytest

sys.path.insert(0, os.path.dirname(__file__))


@pytest.fixture
def torch():
    return pytest.importorskip("torch")


@pytest.fixture(autouse=True)
def seeded():
    """Every test starts from one random stream, with gradients on and autocast off."""
    import ampc

    ampc.manual_seed(0)
    yield
    assert ampc.is_grad_enabled() and not ampc.is_autocast_enabled(), "a test left its mode behind"
