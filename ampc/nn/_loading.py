"""Parts of load_state_dict: its messages about keys and values that do not fit, and what it does when all do."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Iterator
from typing import Any, Callable, List, Tuple

_EXTRA_STATE_KEY_SUFFIX = "_extra_state"  # of what get_extra_state gives, in a state dict


class _IncompatibleKeys(namedtuple("IncompatibleKeys", ["missing_keys", "unexpected_keys"])):
    __slots__ = ()

    def __repr__(self) -> str:
        return "<All keys matched successfully>" if not any(self) else super().__repr__()


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


def post_hooks(module: Any) -> Iterator[Tuple[Any, Callable]]:
    """The hooks of register_load_state_dict_post_hook, each with its module: the children's first."""
    for child in module._modules.values():
        if child is not None:
            yield from post_hooks(child)
    for hook in module._load_state_dict_post_hooks.values():
        yield module, hook


def load_planned(plan: list, assign: bool) -> None:
    """Loads what Module._plan_load put down."""
    for module, kind, name, value in plan:
        module._load_one(kind, name, value, assign)
