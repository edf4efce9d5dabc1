"""Makes the files beside it, which tests/fuzz_load.py damages: ``python tests/corpus/make.py``, with torch and safetensors installed."""

import collections
import os

import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))


def structures(lib):
    """Small ones that between them have all that a file can hold. ``lib`` is ampc or torch."""
    base = lib.arange(12.0)
    bools, none = lib.tensor([True, False, True]), lib.zeros(0, 3)
    model = lib.nn.Sequential(lib.nn.Linear(2, 3), lib.nn.BatchNorm1d(3))
    optimizer = lib.optim.AdamW(model.parameters(), lr=1e-3)
    model(lib.ones(4, 2)).sum().backward()
    optimizer.step()
    return {
        "views": [base, base[2:8:2], base.view(3, 4).t(), base.half(), bools, none, lib.tensor(-5, dtype=lib.int8), lib.ones(1).expand(5)],
        "plain": {"n": [1, -1, 300, 70000, 2**70, -(2**40), 0.5, float("inf"), True, None, "ü", b"\x00\xff", 2 + 3j], 5: (1, (2,), (3, 4, 5, 6)), (1, 2): {3, 4},
                  "kinds": [lib.Size([2, 3]), lib.device("cpu"), lib.float16, frozenset({1}) if lib.__name__ == "ampc" else 0],
                  "default": collections.defaultdict(list, {1: [2]}), "count": collections.Counter("aab"), "ordered": collections.OrderedDict(b=1)},
        "parameters": {"parameter": lib.nn.Parameter(lib.ones(2)), "leaf": lib.ones(2, requires_grad=True), "low": lib.ones(3, dtype=lib.bfloat16)},
        "training": {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": 7},
    }


def main():
    import torch
    from safetensors.numpy import save_file

    import ampc

    for lib in (ampc, torch):
        lib.manual_seed(0)
        for name, value in structures(lib).items():
            lib.save(value, os.path.join(HERE, f"{lib.__name__}_{name}.pt"))
    ampc.save([np.float32(0.1), np.arange(6, dtype=np.int16).reshape(2, 3), np.bool_(True)], os.path.join(HERE, "ampc_numpy.pt"))
    save_file({"x": np.arange(6, dtype=np.float16).reshape(2, 3), "y": np.array([True, False])}, os.path.join(HERE, "plain.safetensors"))


if __name__ == "__main__":
    main()
