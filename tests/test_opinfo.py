"""torch's own samples (the databases of operators, modules and optimizers in torch's wheel), replayed: values, dtypes, shapes, strides of views,
gradients, methods, in-place forms, out=, strided operands and errors. What differs on purpose is a line of opinfo/known.py; what is still to be
mended is a line of opinfo/open.txt.

A run draws a tenth of the entries and some samples of each, fewer on a GPU; AMPC_EXAMPLES takes all. `python -m opinfo --only NAME` shows what differs."""

import os
import types

import pytest
from references import part

pytest.importorskip("torch")
pytest.importorskip("expecttest")

from opinfo.compare import difference  # noqa: E402
from opinfo.known import explained, still_open  # noqa: E402
from opinfo.modules import modules  # noqa: E402
from opinfo.optimizers import optimizers  # noqa: E402
from opinfo.places import values_at_places  # noqa: E402
from opinfo.running import operators  # noqa: E402

WHOLE = "AMPC_EXAMPLES" in os.environ
SAMPLES, SHARE = (20, 10) if os.environ["AMPC_TEST_DEVICE"] == "cpu" else (5, 40)
ENTRIES = {entry.name: entry for kind in (operators, modules, optimizers) for entry in kind(0 if WHOLE else SAMPLES) if entry.function is not None}


@pytest.mark.parametrize("name", part(sorted(ENTRIES), SHARE))
def test_an_entry_agrees_with_torch(name):
    entry = ENTRIES[name]
    found = [d for d in entry.check() if not explained(d)]
    assert entry.count or not entry.dtypes()
    if name not in still_open():
        assert not found, "\n".join(map(str, found[:5]))
    elif WHOLE:
        assert found, f"{name} agrees now: take it out of opinfo/open.txt"


def test_indices_of_other_values_or_named_twice_differ():
    import torch

    import ampc

    sample, x = types.SimpleNamespace(args=(), kwargs={}), [1.0, 1.0, 2.0]
    right = values_at_places("sort", sample, torch.tensor(x), torch.tensor(x).sort())
    for indices, agrees in (([0, 1, 2], True), ([1, 0, 2], True), ([0, 2, 1], False), ([0, 0, 2], False)):
        ours = values_at_places("sort", sample, ampc.tensor(x), (ampc.tensor(x), ampc.tensor(indices)))
        assert (difference(right, ours) is None) == agrees


def test_a_value_may_differ_by_as_much_as_torch_rounds_near_the_sample():
    """Of x - mean(x), what is left of 1000 has four digits in float32; and of x, all."""
    import torch

    import ampc

    x = 1000 + torch.tensor([0.125, 0.25, 0.75])
    small, whole = x - x.mean(), x
    for right, reference, factor, agrees in ((small, lambda c: c(x) - c(x).mean(), 1 + 1e-4, True), (small, lambda c: c(x) - c(x).mean(), 1 + 1e-2, False),
                                             (whole, lambda c: c(x), 1 + 1e-4, False)):
        found = difference(right, ampc.tensor((right.double() * factor).tolist(), dtype=ampc.float32), reference=reference)
        assert (found is None) == agrees


def test_what_is_open_exists():
    assert still_open() <= set(ENTRIES)
