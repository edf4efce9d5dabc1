"""What a checkpoint's state dict has at its ends: tensors and plain values, each by the keys that lead to it."""

from __future__ import annotations

from typing import Any, Callable, Dict, Iterator, List, Tuple, Union

from ..._C import Tensor

Path = Tuple[Union[str, int], ...]


def is_stateful(value: Any) -> bool:
    """Whether it has a state of its own: a module, an optimizer, a scaler."""
    return not isinstance(value, Tensor) and callable(getattr(value, "state_dict", None)) and callable(getattr(value, "load_state_dict", None))


def ends_of(value: Any, path: Path = ()) -> Iterator[Tuple[Path, Any]]:
    """The ends of dicts and lists. TypeError for what JSON cannot hold, or for keys that are no text and no number."""
    if isinstance(value, dict):
        for key, each in value.items():
            if isinstance(key, bool) or not isinstance(key, (str, int)):
                raise TypeError(f"save: the keys of a checkpoint are text or whole numbers, got {key!r} at {shown(path)}")
            yield from ends_of(each, (*path, key))
    elif isinstance(value, (list, tuple)) and any(isinstance(each, (Tensor, dict)) for each in value):
        for i, each in enumerate(value):
            yield from ends_of(each, (*path, i))
    else:
        if not isinstance(value, Tensor):
            _check_plain(value, path)
        yield path, value


def _check_plain(value: Any, path: Path) -> None:
    if isinstance(value, (list, tuple)):
        for each in value:
            _check_plain(each, path)
    elif value is not None and not isinstance(value, (bool, int, float, str)):
        raise TypeError(f"save: {shown(path)} is {type(value).__name__}; a checkpoint holds tensors, numbers, text, None, and lists and dicts "
                        "of them")


def shown(path: Path) -> str:
    """The keys as a text."""
    return ".".join(map(str, path)) or "the top"


def replaced(value: Any, f: Callable[[Path, Any], Any], path: Path = ()) -> Any:
    """The same with ``f`` of every end; dicts and lists are changed in place, tuples made anew."""
    if isinstance(value, dict):
        for key in value:
            value[key] = replaced(value[key], f, (*path, key))
        return value
    if isinstance(value, (list, tuple)) and any(isinstance(each, (Tensor, dict)) for each in value):
        new: List[Any] = [replaced(each, f, (*path, i)) for i, each in enumerate(value)]
        if isinstance(value, list):
            value[:] = new
            return value
        return tuple(new)
    return f(path, value)


def with_states(state_dict: Dict[str, Any]) -> Dict[str, Any]:
    """The state dict with the states of what has one."""
    return {key: value.state_dict() if is_stateful(value) else value for key, value in state_dict.items()}
