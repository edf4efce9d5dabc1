"""torch.autograd.forward_ad's names. Forward differentiation with dual tensors is not in ampc: the functions refuse, and name what there is."""

from __future__ import annotations

from typing import Any, NamedTuple, NoReturn, Optional

from .._C import Tensor

__all__ = ["UnpackedDualTensor", "dual_level", "enter_dual_level", "exit_dual_level", "make_dual", "unpack_dual"]

_REASON = "dual tensors are not in ampc; func.jvp and autograd.functional.jvp give the product of a function's Jacobian with a vector"


class UnpackedDualTensor(NamedTuple):
    """A tensor and its tangent, None where it has none."""

    primal: Tensor
    tangent: Optional[Tensor]


class dual_level:
    """NotImplementedError when it is entered, with what to do instead."""

    def __enter__(self) -> NoReturn:
        raise NotImplementedError(f"dual_level: {_REASON}")

    def __exit__(self, *exc: object) -> None:
        """Never reached."""


def enter_dual_level() -> NoReturn:
    """NotImplementedError, with what to do instead."""
    raise NotImplementedError(f"enter_dual_level: {_REASON}")


def exit_dual_level(*, level: Any = None) -> NoReturn:
    """NotImplementedError, with what to do instead."""
    raise NotImplementedError(f"exit_dual_level: {_REASON}")


def make_dual(tensor: Tensor, tangent: Tensor, *, level: Any = None) -> NoReturn:
    """NotImplementedError, with what to do instead."""
    raise NotImplementedError(f"make_dual: {_REASON}")


def unpack_dual(tensor: Tensor, *, level: Any = None) -> UnpackedDualTensor:
    """The tensor, and None: no tensor has a tangent."""
    if level is not None:
        raise NotImplementedError(f"unpack_dual: {_REASON}")
    return UnpackedDualTensor(tensor, None)
