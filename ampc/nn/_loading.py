"""Messages of load_state_dict about keys and values that do not fit."""

from __future__ import annotations

from typing import Any, List


def kind_of(value: Any) -> str:
    """What a value is that should have been one of our tensors, and how it becomes one."""
    kind = f"{type(value).__module__}.{type(value).__name__}"
    return kind + {"torch.Tensor": " (use ampc.from_dlpack, or save it and load the file with ampc.load)",
                   "numpy.ndarray": " (use ampc.from_numpy)"}.get(kind, "")


def hint(missing: List[str], unexpected: List[str]) -> str:
    """What keys that do not fit come from, where that can be told."""
    stems = {u[:-len(m)] for u, m in zip(unexpected, missing) if u.endswith("." + m)}
    if len(unexpected) == len(missing) and len(stems) == 1:
        stem = stems.pop()
        return f"\n  (every key begins with {stem!r}, as a wrapper such as DataParallel saves it: {{k[{len(stem)}:]: v for k, v in state.items()}})"
    if {"state_dict", "model", "model_state_dict", "optimizer"} & set(unexpected):
        return "\n  (this is a checkpoint with several parts; pass the part that is the model's)"
    return ""
