"""Small real data that comes with the package (see README.md there for its source and licence)."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any, Tuple


def load_digits() -> Tuple[Any, Any]:
    """(images, labels) of 1,797 handwritten digits, as NumPy arrays: float32 [1797, 64] in [0, 1], int64 [1797].

    E. Alpaydin and C. Kaynak, Optical Recognition of Handwritten Digits, UCI Machine Learning Repository
    1998, CC BY 4.0.
    """
    import numpy as np

    with np.load(os.path.join(os.path.dirname(__file__), "digits.npz"), allow_pickle=False) as f:
        return f["images"].astype(np.float32) / 16.0, f["labels"].astype(np.int64)


def stratified_folds(labels: Any, folds: int = 5, seed: int = 0) -> Iterator[Tuple[Any, Any]]:
    """(train, test) index arrays: every class is shuffled and dealt out evenly over the folds."""
    import numpy as np

    rng = np.random.default_rng(seed)
    fold_of = np.empty(len(labels), dtype=np.int64)
    for c in np.unique(labels):
        members = rng.permutation(np.flatnonzero(labels == c))
        fold_of[members] = np.arange(len(members)) % folds
    for k in range(folds):
        yield np.flatnonzero(fold_of != k), np.flatnonzero(fold_of == k)
