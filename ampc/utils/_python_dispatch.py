"""torch.utils._python_dispatch's names. Code can name and subclass the modes; entering one is refused."""

from __future__ import annotations

from typing import Any, List, NoReturn, Optional

from .._C import Tensor

__all__ = ["TorchDispatchMode", "is_traceable_wrapper_subclass"]


class TorchDispatchMode:
    """A base class for modes that intercept every operator. The core calls no Python between operators, so that small ones stay fast: to enter
    one is a NotImplementedError."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Optional[dict] = None) -> Any:
        """What a subclass defines; never called."""
        raise NotImplementedError("__torch_dispatch__ is not called in ampc")

    def __enter__(self) -> NoReturn:
        raise NotImplementedError(f"{type(self).__name__}: ampc's operators cannot be intercepted from Python. utils.flop_counter.FlopCounterMode "
                                  "counts them, ampc.doctor watches them, and hooks of modules and tensors can change what passes")

    def __exit__(self, *exc: object) -> None:
        """Never reached."""


def _get_current_dispatch_mode() -> Optional[TorchDispatchMode]:
    """None: no mode can be entered."""
    return None


def _get_current_dispatch_mode_stack() -> List[TorchDispatchMode]:
    """Empty: no mode can be entered."""
    return []


def is_in_torch_dispatch_mode(include_infra_modes: bool = True) -> bool:
    """False: no mode can be entered."""
    return False


def is_traceable_wrapper_subclass(t: object) -> bool:
    """Whether it is a tensor that is made of others, by ``__tensor_flatten__`` and ``__tensor_unflatten__``."""
    return isinstance(t, Tensor) and type(t) is not Tensor and hasattr(t, "__tensor_flatten__") and hasattr(t, "__tensor_unflatten__")
