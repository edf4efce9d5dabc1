"""The base classes of distributions."""

from __future__ import annotations

from typing import Any, Dict, Optional, Tuple

from .._C import Tensor, is_grad_enabled
from .._messages.callers import warn
from .._tensor.device import Size
from ..autograd import enable_grad, grad, no_grad
from .constraints import Constraint, is_dependent
from .utils import lazy_property, sum_rightmost


class Distribution:
    """A batch of distributions: ``batch_shape`` of them, each over values of ``event_shape``. Parameters are numbers or floating point Tensors
    that broadcast; draws, densities and moments have their dtype and device (of numbers alone: the default dtype). ``sample(shape)`` draws
    [*shape, *batch_shape, *event_shape]. ValueError for parameters or values outside their domain, unless ``validate_args=False``; None, the
    default, means what set_default_validate_args says, at first True (False under ``python -O``). NotImplementedError for what
    a distribution does not have.

    A subclass names its parameters in ``arg_constraints``, and keeps them as attributes that begin with the batch's dimensions, so that
    ``expand`` works on all of them. It defines ``support``, ``_log_density`` (or log_prob), and what else it has."""

    has_rsample: Any = False
    has_enumerate_support: Any = False
    _validate_args = __debug__
    arg_constraints: Any = {}
    _unbatched: Tuple[str, ...] = ()  # attributes that do not begin with the batch's dimensions

    @staticmethod
    def set_default_validate_args(value: bool) -> None:
        """Whether parameters and values are checked where ``validate_args`` is None. ValueError unless True or False."""
        if value not in (True, False):
            raise ValueError(f"set_default_validate_args: expected True or False, got {value!r}")
        Distribution._validate_args = value

    def __init__(self, batch_shape: Any = (), event_shape: Any = (), validate_args: Optional[bool] = None) -> None:
        self._batch_shape, self._event_shape = Size(batch_shape), Size(event_shape)
        if validate_args is not None:
            self._validate_args = validate_args
        if self._validate_args:
            if type(self).arg_constraints is Distribution.arg_constraints:
                self._warn_of("arg_constraints", "its parameters are not checked; set it to {} if there are none")
            for name, constraint in self.arg_constraints.items():
                computed = name not in self.__dict__ and isinstance(getattr(type(self), name, None), lazy_property)
                if not computed and not is_dependent(constraint):
                    self._check(constraint, name, getattr(self, name))

    def _warn_of(self, name: str, so: str) -> None:
        warn(f"{type(self).__name__} does not define {name}, so {so}, or pass validate_args=False")

    def _check(self, constraint: Constraint, name: str, value: Tensor) -> None:
        if not bool(constraint.check(value).all()):
            raise ValueError(f"{type(self).__name__}: `{name}` must be {constraint.describe()}, got {value.detach()}")

    @property
    def support(self) -> Any:
        """The values that it has, a Constraint. NotImplementedError where a subclass does not define it: values are not checked then."""
        raise NotImplementedError(f"{type(self).__name__} does not define support")

    batch_shape = property(lambda self: self._batch_shape, doc="The shape of the distributions, a Size.")
    event_shape = property(lambda self: self._event_shape, doc="The shape of one value, a Size; () for numbers.")

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        """The same for the shape ``batch_shape``, to which this one's broadcasts; it shares the memory. RuntimeError where it does not fit."""
        return self._wider(batch_shape, _instance)

    def _wider(self, batch_shape: Any, instance: Any = None) -> Any:
        """``instance``, or a new one, with all that this one has, expanded: tensors and distributions alike."""
        new, wide, skip = type(self).__new__(type(self)) if instance is None else instance, Size(batch_shape), len(self._batch_shape)
        for name, value in self.__dict__.items():
            if name in self._unbatched:
                pass
            elif isinstance(value, Tensor):
                value = value.expand(*wide, *value.shape[skip:])
            elif isinstance(value, Distribution):
                value = value.expand((*wide, *value.batch_shape[skip:]))
            new.__dict__[name] = value
        new._batch_shape = wide
        return new

    def _get_checked_instance(self, cls: type, _instance: Any = None) -> Any:
        """A blank instance for a subclass's own ``expand``. NotImplementedError where it has another __init__, but no ``expand``."""
        if _instance is None and _init_of(type(self)) is not _init_of(cls):
            raise NotImplementedError(f"{type(self).__name__} has an __init__ of its own, and needs an `expand` of its own")
        return type(self).__new__(type(self)) if _instance is None else _instance

    @property
    def mean(self) -> Tensor:
        """[*batch_shape, *event_shape]; nan or inf where it does not exist."""
        raise NotImplementedError(f"{type(self).__name__} has no mean")

    @property
    def mode(self) -> Tensor:
        """The value of the highest density: [*batch_shape, *event_shape]."""
        raise NotImplementedError(f"{type(self).__name__} has no mode")

    @property
    def variance(self) -> Tensor:
        """Of each element of a value: [*batch_shape, *event_shape]; nan or inf where it does not exist."""
        raise NotImplementedError(f"{type(self).__name__} has no variance")

    @property
    def stddev(self) -> Tensor:
        """The square root of the variance."""
        return self.variance.sqrt()

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        """Draws [*sample_shape, *batch_shape, *event_shape], differentiable with respect to the parameters. NotImplementedError where
        ``has_rsample`` is False."""
        raise NotImplementedError(f"{type(self).__name__} has no rsample; sample() draws without gradients")

    def sample(self, sample_shape: Any = ()) -> Tensor:
        """Draws [*sample_shape, *batch_shape, *event_shape], without gradients."""
        with no_grad():
            return self.rsample(sample_shape)

    def sample_n(self, n: int) -> Tensor:
        """sample((n,)), as older scripts say it."""
        warn("sample_n(n) is the older name of sample((n,))", FutureWarning)
        return self.sample((n,))

    def log_prob(self, value: Tensor) -> Tensor:
        """Logarithm of the density or probability at ``value``: [..., *batch_shape]. ValueError for a value outside the support."""
        return self._log_density(self._checked(value))

    def _log_density(self, value: Tensor) -> Tensor:
        raise NotImplementedError(f"{type(self).__name__} has no log_prob")

    def cdf(self, value: Tensor) -> Tensor:
        """The probability of ``value`` or less, of the shape to which value and batch broadcast. ValueError for a value outside the support."""
        return self._cdf(self._checked(value))

    def _cdf(self, value: Tensor) -> Tensor:
        raise NotImplementedError(f"{type(self).__name__} has no cdf")

    def icdf(self, value: Tensor) -> Tensor:
        """The inverse of cdf: the number below which values lie with the probability ``value``, in [0, 1]."""
        raise NotImplementedError(f"{type(self).__name__} has no icdf")

    def entropy(self) -> Tensor:
        """The mean of -log_prob, in nats: [*batch_shape]."""
        raise NotImplementedError(f"{type(self).__name__} has no entropy")

    def perplexity(self) -> Tensor:
        """exp(entropy): [*batch_shape]."""
        return self.entropy().exp()

    def enumerate_support(self, expand: bool = True) -> Tensor:
        """All values of a discrete distribution: [count, *batch_shape, *event_shape], with ones for the batch's dimensions where ``expand`` is
        False. NotImplementedError where ``has_enumerate_support`` is False."""
        raise NotImplementedError(f"{type(self).__name__} does not enumerate its support")

    def _enumerated(self, values: Tensor, expand: bool) -> Tensor:
        """``values`` [count, *event_shape] with dimensions for the batch."""
        values = values.reshape(values.shape[0], *([1] * len(self._batch_shape)), *self._event_shape)
        return values.expand(-1, *self._batch_shape, *self._event_shape) if expand else values

    def _extended_shape(self, sample_shape: Any = ()) -> Size:
        return Size((*sample_shape, *self._batch_shape, *self._event_shape))

    def _checked(self, value: Any) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        return value

    def _validate_sample(self, value: Any) -> None:
        """ValueError unless ``value`` is a Tensor that fits the shapes and lies in the support."""
        if not isinstance(value, Tensor):
            raise ValueError(f"{type(self).__name__}: the value must be a Tensor, got {type(value).__name__}")
        shape, event = tuple(value.shape), tuple(self._event_shape)
        if event and shape[max(len(shape) - len(event), 0):] != event:
            raise ValueError(f"{type(self).__name__}: a value of shape {list(shape)} does not end with the event's shape {list(event)}")
        pairs = zip(reversed(shape), reversed((*self._batch_shape, *event)))
        if any(1 not in (a, b) and a != b for a, b in pairs):
            raise ValueError(f"{type(self).__name__}: a value of shape {list(shape)} does not broadcast with parameters of {list(self._batch_shape)}")
        try:
            support = self.support
        except NotImplementedError:
            self._warn_of("support", "values are not checked")
        else:
            self._check(support, "value", value)

    def __repr__(self) -> str:
        known: Dict[str, Any] = {n: self.__dict__[n] for n in self.arg_constraints if n in self.__dict__}
        return f"{type(self).__name__}({', '.join(f'{n}: {t if t.numel() == 1 else t.shape}' for n, t in known.items())})"


def _init_of(cls: Any) -> Any:
    return cls.__init__


class ExponentialFamily(Distribution):
    """Densities exp(natural parameters * statistics - log normalizer + carrier). A subclass gives ``_natural_params`` and ``_log_normalizer``,
    and the mean of the carrier where it is not 0; entropy and the divergence within the family follow (Nielsen and Nock 2010)."""

    _mean_carrier_measure: Any = 0

    @property
    def _natural_params(self) -> Tuple[Tensor, ...]:
        raise NotImplementedError(f"{type(self).__name__} has no natural parameters")

    def _no_normalizer(self, *natural_params: Tensor) -> Tensor:
        raise NotImplementedError(f"{type(self).__name__} has no log normalizer")

    _log_normalizer: Any = _no_normalizer

    def _with_slopes(self) -> Tuple[Tuple[Tensor, ...], Tensor, Tuple[Tensor, ...]]:
        """The natural parameters, the log normalizer and its derivatives by them, which are the means of the statistics."""
        given = self._natural_params
        differentiable = is_grad_enabled() and any(p.requires_grad for p in given)
        with enable_grad():
            params = tuple(p if p.requires_grad else p.detach().requires_grad_() for p in given)
            normalizer = self._log_normalizer(*params)
            slopes = tuple(grad(normalizer.sum(), params, create_graph=differentiable))
        return (params, normalizer, slopes) if differentiable else (given, normalizer.detach(), slopes)

    def entropy(self) -> Tensor:
        params, result, slopes = self._with_slopes()
        for p, slope in zip(params, slopes):
            result = result - sum_rightmost(p * slope, p.dim() - len(self._batch_shape))
        return result - self._mean_carrier_measure
