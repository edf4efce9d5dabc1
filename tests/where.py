"""Where this run's tensors are: the CPU, or (pytest --device) a simulated or real GPU."""

import os

DEVICE = os.environ.get("AMPC_TEST_DEVICE", "cpu")
ON_GPU = DEVICE == "cuda"


def settled(value=None):
    """``value``, once the GPU has done its work: that is when it tells of bad indices."""
    import ampc

    ampc.cuda.synchronize()
    return value
