"""Losses of (y_true, y_pred), the mean over the batch, in float32. Source of names: keras.losses. Of probabilities that the model's own last
softmax or sigmoid has made, the model gives the logits instead, so nothing is lost in a logarithm."""

from __future__ import annotations

from typing import Any, Callable, Dict, Optional, Union

from .. import nn
from .._C import Tensor
from ._lookup import named

F = nn.functional
EPSILON = 1e-7  # probabilities stay so far from 0 and 1


class Loss:
    """Base of losses: ``call(y_true, y_pred)`` gives a mean. ``of``: the activation that its logits belong to."""

    of: Optional[str] = None

    def __init__(self, from_logits: bool = False) -> None:
        self.from_logits = bool(from_logits)

    def call(self, y_true: Tensor, y_pred: Tensor, logits: bool) -> Tensor:
        """The mean."""
        raise NotImplementedError

    def __call__(self, y_true: Tensor, y_pred: Tensor, logits: Optional[bool] = None) -> Tensor:
        return self.call(y_true, y_pred.float(), self.from_logits if logits is None else logits)


def _log(p: Tensor) -> Tensor:
    return p.clamp(EPSILON, 1 - EPSILON).log()


class SparseCategoricalCrossentropy(Loss):
    """Labels are numbers of classes."""

    of = "softmax"

    def call(self, y_true: Tensor, y_pred: Tensor, logits: bool) -> Tensor:
        y, p = y_true.long().reshape(-1), y_pred.reshape(-1, y_pred.shape[-1])
        return F.cross_entropy(p, y) if logits else F.nll_loss(_log(p), y)


class CategoricalCrossentropy(Loss):
    """Labels are probabilities, one-hot for one."""

    of = "softmax"

    def call(self, y_true: Tensor, y_pred: Tensor, logits: bool) -> Tensor:
        return -(y_true.float() * (F.log_softmax(y_pred, -1) if logits else _log(y_pred))).sum(-1).mean()


class BinaryCrossentropy(Loss):
    """Labels are 0 and 1."""

    of = "sigmoid"

    def call(self, y_true: Tensor, y_pred: Tensor, logits: bool) -> Tensor:
        y = y_true.float().reshape(y_pred.shape)
        return F.binary_cross_entropy_with_logits(y_pred, y) if logits else -(y * _log(y_pred) + (1 - y) * _log(1 - y_pred)).mean()


class MeanSquaredError(Loss):
    """mean((y_true - y_pred)^2)"""

    def call(self, y_true: Tensor, y_pred: Tensor, logits: bool) -> Tensor:
        return F.mse_loss(y_pred, y_true.float().reshape(y_pred.shape))


class MeanAbsoluteError(Loss):
    """mean(|y_true - y_pred|)"""

    def call(self, y_true: Tensor, y_pred: Tensor, logits: bool) -> Tensor:
        return F.l1_loss(y_pred, y_true.float().reshape(y_pred.shape))


LOSSES: Dict[str, Any] = {"sparse_categorical_crossentropy": SparseCategoricalCrossentropy, "categorical_crossentropy": CategoricalCrossentropy,
                          "binary_crossentropy": BinaryCrossentropy, "mean_squared_error": MeanSquaredError, "mse": MeanSquaredError,
                          "mean_absolute_error": MeanAbsoluteError, "mae": MeanAbsoluteError}


def loss_of(given: Union[str, Any]) -> Callable[..., Tensor]:
    """By name; functions of (y_true, y_pred) are themselves."""
    found = named(given, LOSSES, "loss", "mse")
    return found() if isinstance(found, type) and issubclass(found, Loss) else found


def accuracy(y_true: Tensor, y_pred: Tensor) -> Tensor:
    """The share of right answers: of classes by the largest, of one value by 0.5; labels as numbers or one-hot."""
    if y_pred.ndim > 1 and y_pred.shape[-1] > 1:
        truth = y_true.argmax(-1) if y_true.shape == y_pred.shape else y_true.reshape(y_pred.shape[:-1])
        return (y_pred.argmax(-1) == truth.long()).float().mean()
    return ((y_pred > 0.5) == (y_true.reshape(y_pred.shape) > 0.5)).float().mean()


METRICS: Dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "accuracy": accuracy, "acc": accuracy, "mse": MeanSquaredError(), "mean_squared_error": MeanSquaredError(), "mae": MeanAbsoluteError(),
    "mean_absolute_error": MeanAbsoluteError()}
