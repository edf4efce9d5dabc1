"""Numbers for each dimension, as torch's layers and those derived from them ask for."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import repeat
from typing import Any, Callable, Dict, List, Sequence, Tuple


def _ntuple(n: int, name: str = "parse") -> Callable[[Any], Tuple[Any, ...]]:
    """A function that repeats one value ``n`` times, and makes a tuple of several."""

    def parse(x: Any) -> Tuple[Any, ...]:
        return tuple(x) if isinstance(x, Iterable) else tuple(repeat(x, n))

    parse.__name__ = name
    return parse


_single, _pair, _triple, _quadruple = (_ntuple(n, name) for n, name in enumerate(("_single", "_pair", "_triple", "_quadruple"), 1))


def _reverse_repeat_tuple(t: Sequence[Any], n: int) -> Tuple[Any, ...]:
    """From the last to the first, each ``n`` times: how ``pad`` takes padding."""
    return tuple(x for x in reversed(t) for _ in range(n))


def _list_with_default(out_size: Any, defaults: List[int]) -> Any:
    """``out_size`` with the last of ``defaults`` where it has None. ValueError where there are not more defaults than sizes."""
    if isinstance(out_size, int):
        return out_size
    if len(defaults) <= len(out_size):
        raise ValueError(f"Input dimension should be at least {len(out_size) + 1}")
    return [v if v is not None else d for v, d in zip(out_size, defaults[-len(out_size):])]


def consume_prefix_in_state_dict_if_present(state_dict: Dict[str, Any], prefix: str) -> None:
    """Takes ``prefix`` off the names of a state dict, and of its metadata, in place; such as ``module.`` of a wrapped module."""
    for key in [k for k in state_dict if k.startswith(prefix)]:
        state_dict[key[len(prefix):]] = state_dict.pop(key)
    metadata = getattr(state_dict, "_metadata", None)
    if metadata is not None:
        for key in list(metadata):
            if key and (key == prefix.rstrip(".") or key.startswith(prefix)):
                metadata[key[len(prefix):]] = metadata.pop(key)
