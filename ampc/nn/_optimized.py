"""What torch.compile gives for a module."""

from __future__ import annotations

from typing import Any, List, Tuple

from ._module_hooks import SELDOM_USED
from .modules.module import Module


class OptimizedModule(Module):
    """A module that calls another, its ``_orig_mod``, and has that one's attributes. So parameters' names begin with ``_orig_mod.``, as in
    torch's checkpoints of compiled models. It is not of the other's class."""

    def __init__(self, mod: Module) -> None:
        super().__init__()
        del self.__dict__["training"]  # the other's is asked
        self._modules["_orig_mod"] = mod

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self._modules["_orig_mod"](*args, **kwargs)

    @property
    def training(self) -> bool:
        """The other module's."""
        return self._orig_mod.training

    @training.setter
    def training(self, value: bool) -> None:
        self._orig_mod.training = value

    def __getattr__(self, name: str) -> Any:
        if name == "_orig_mod" or name in SELDOM_USED:
            return super().__getattr__(name)
        return getattr(self._modules["_orig_mod"], name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "_orig_mod" or name in SELDOM_USED or hasattr(type(self), name):
            super().__setattr__(name, value)
        else:
            setattr(self._orig_mod, name, value)

    def __delattr__(self, name: str) -> None:
        if name == "_orig_mod" or hasattr(type(self), name):
            super().__delattr__(name)
        else:
            delattr(self._orig_mod, name)

    def __len__(self) -> int:
        return len(self._orig_mod)  # TypeError where it has no length

    def __dir__(self) -> List[str]:
        return sorted({*super().__dir__(), *dir(self._orig_mod)})

    def __reduce__(self) -> Tuple[Any, ...]:
        return OptimizedModule, (self._orig_mod,)
