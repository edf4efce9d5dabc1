"""The base class of distributions."""

from __future__ import annotations

from typing import Any, Callable, Dict, Optional, Tuple

from .. import _creation as make
from .._C import Tensor
from .._callers import warn
from .._composed.shape_ops import broadcast_tensors
from .._device import Size
from .._finfo import finfo
from ..autograd import no_grad


class Distribution:
    """A batch of distributions: ``batch_shape`` of them, each over values of ``event_shape``. ``sample(shape)`` draws
    [*shape, *batch_shape, *event_shape]. ValueError for parameters or values outside their domain, unless ``validate_args=False``."""

    has_rsample = False
    has_enumerate_support = False
    _validate_args = True
    arg_names: Tuple[str, ...] = ()

    @staticmethod
    def set_default_validate_args(value: bool) -> None:
        """Whether parameters and values are checked."""
        Distribution._validate_args = bool(value)

    def __init__(self, batch_shape: Any = (), event_shape: Any = (), validate_args: Optional[bool] = None) -> None:
        self._batch_shape, self._event_shape = Size(batch_shape), Size(event_shape)
        if validate_args is not None:
            self._validate_args = validate_args

    @property
    def batch_shape(self) -> Size:
        return self._batch_shape

    @property
    def event_shape(self) -> Size:
        return self._event_shape

    @property
    def mean(self) -> Tensor:
        raise NotImplementedError(f"{type(self).__name__} has no mean")

    @property
    def variance(self) -> Tensor:
        raise NotImplementedError(f"{type(self).__name__} has no variance")

    @property
    def stddev(self) -> Tensor:
        return self.variance.sqrt()

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        """Draws, differentiable with respect to the parameters. NotImplementedError where there is no such way."""
        raise NotImplementedError(f"{type(self).__name__} has no rsample; sample() draws without gradients")

    def sample(self, sample_shape: Any = ()) -> Tensor:
        """Draws, without gradients."""
        with no_grad():
            return self.rsample(sample_shape)

    def sample_n(self, n: int) -> Tensor:
        """sample((n,)), as older scripts say it."""
        warn("sample_n(n) is the older name of sample((n,))", UserWarning)
        return self.sample((n,))

    def _fits(self, value: Any) -> None:
        """ValueError unless ``value`` is a Tensor that broadcasts with the parameters."""
        if not isinstance(value, Tensor):
            raise ValueError(f"{type(self).__name__}: the value must be a Tensor, got {type(value).__name__}")
        pairs = zip(reversed(tuple(value.shape)), reversed(tuple(self._batch_shape)))
        if any(1 not in (a, b) and a != b for a, b in pairs):
            raise ValueError(f"{type(self).__name__}: a value of shape {list(value.shape)} does not broadcast with parameters of "
                             f"{list(self._batch_shape)}")

    def log_prob(self, value: Tensor) -> Tensor:
        """Logarithm of the density or probability at ``value``."""
        raise NotImplementedError(f"{type(self).__name__} has no log_prob")

    def entropy(self) -> Tensor:
        raise NotImplementedError(f"{type(self).__name__} has no entropy")

    def perplexity(self) -> Tensor:
        return self.entropy().exp()

    def _extended_shape(self, sample_shape: Any = ()) -> Tuple[int, ...]:
        return (*sample_shape, *self._batch_shape, *self._event_shape)

    def _check(self, good: Callable[[], Tensor], name: str, what: str, value: Tensor) -> None:
        if self._validate_args and not bool(good().all()):
            raise ValueError(f"{type(self).__name__}: `{name}` must be {what}, got {value.detach()}")

    def _copy_to(self, new: Any, batch_shape: Any, **parameters: Tensor) -> Any:
        """``new`` filled as this one, with other parameters, unchecked."""
        for name, value in parameters.items():
            setattr(new, name, value)
        Distribution.__init__(new, batch_shape, self._event_shape, validate_args=False)
        new._validate_args = self._validate_args
        return new

    def __repr__(self) -> str:
        def text(t: Any) -> str:
            return str(t) if t.numel() == 1 else str(tuple(t.shape))

        names: Dict[str, Any] = {n: self.__dict__[n] for n in self.arg_names if n in self.__dict__}
        return f"{type(self).__name__}({', '.join(f'{n}: {text(t)}' for n, t in names.items())})"


def broadcast(*values: Any) -> Tuple[Tensor, ...]:
    """Numbers and tensors as tensors of one shape and dtype."""
    like = next((v for v in values if isinstance(v, Tensor)), None)
    dtype, device = (None, None) if like is None else (like.dtype, like.device)
    for v in values:
        if not isinstance(v, (Tensor, int, float)):
            raise ValueError(f"expected numbers or Tensors, got {type(v).__name__}")
    tensors = [v if isinstance(v, Tensor) else make.tensor(float(v), dtype=dtype, device=device) for v in values]
    return tuple(broadcast_tensors(*tensors))


def inside(probs: Tensor) -> Tensor:
    """Away from 0 and 1, where logarithms end."""
    eps = float(finfo(probs.dtype).eps)
    return probs.clamp(eps, 1 - eps)
