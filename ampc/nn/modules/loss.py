"""Losses. ``reduction``: 'none', 'mean' or 'sum'."""

from __future__ import annotations

import math
from typing import Any, Callable, ClassVar, Optional, Tuple

from ..._C import Tensor
from ..._messages import checks as _checks
from .. import functional as F
from ._function_module import FunctionModule
from .distance import PairwiseDistance
from .linear import Linear

__all__ = [
    "BCELoss", "BCEWithLogitsLoss", "CTCLoss", "CosineEmbeddingLoss", "CrossEntropyLoss", "GaussianNLLLoss", "HingeEmbeddingLoss", "HuberLoss",
    "KLDivLoss", "L1Loss", "LinearCrossEntropyLoss", "MSELoss", "MarginRankingLoss", "MultiLabelMarginLoss", "MultiLabelSoftMarginLoss",
    "MultiMarginLoss", "NLLLoss", "NLLLoss2d", "PoissonNLLLoss", "SmoothL1Loss", "SoftMarginLoss", "TripletMarginLoss",
    "TripletMarginWithDistanceLoss",
]

_OLD_WORDS = frozenset(("size_average", "reduce"))


class _Loss(FunctionModule, function=""):
    """Base of all losses, whose function takes its options by their names. ``size_average`` and ``reduce`` are old words for ``reduction``."""

    _reductions: ClassVar[Tuple[str, ...]] = ("none", "mean", "sum")
    _shown: ClassVar[Any] = ()

    def __init__(self, size_average: Any = None, reduce: Any = None, reduction: str = "mean") -> None:
        self._begin({"size_average": size_average, "reduce": reduce, "reduction": reduction}, (), {})

    def __post_init__(self) -> None:
        options, given = self.__dict__, self.__dict__["reduction"]
        options["reduction"] = _checks.reduction_word(options.pop("size_average", None), options.pop("reduce", None), given)
        if options["reduction"] not in self._reductions:
            raise ValueError(f"{type(self).__name__}: `reduction` must be 'none', 'mean' or 'sum', got '{given}'")
        for name in ("weight", "pos_weight"):
            if name in options:
                self.register_buffer(name, options.pop(name))

    def _call(self, *inputs: Any) -> Any:
        options = {name: getattr(self, name) for name in self._options if name not in _OLD_WORDS}
        return getattr(F, self._function)(*inputs, **options)

    def forward(self, input: Tensor, target: Tensor) -> Tensor:  # type: ignore[override]
        return self._call(input, target)


class _PlainLoss(_Loss, function=""):
    """Base of losses with the options that all have, and no weights."""

    size_average: Any = None
    reduce: Any = None
    reduction: str = "mean"


class _WeightedLoss(_Loss, function=""):
    """Base of all losses whose classes have weights."""

    def __init__(self, weight: Optional[Tensor] = None, size_average: Any = None, reduce: Any = None, reduction: str = "mean") -> None:
        self._begin({"weight": weight, "size_average": size_average, "reduce": reduce, "reduction": reduction}, (), {})


class _PlainWeightedLoss(_WeightedLoss, function=""):
    """Base of losses with weights and the options that all have."""

    weight: Optional[Tensor] = None
    size_average: Any = None
    reduce: Any = None
    reduction: str = "mean"


class MSELoss(_PlainLoss, function="mse_loss"):
    """(x - target) ** 2"""


class L1Loss(_PlainLoss, function="l1_loss"):
    """|x - target|"""


class _ClassLoss(_WeightedLoss, function=""):
    """Base of losses of class indices, of which one may be ignored."""

    weight: Optional[Tensor] = None
    size_average: Any = None
    ignore_index: int = -100
    reduce: Any = None
    reduction: str = "mean"


class NLLLoss(_ClassLoss, function="nll_loss"):
    """-x[target] of log-probabilities."""


class NLLLoss2d(NLLLoss):
    """NLLLoss, by its older name."""


class CrossEntropyLoss(_ClassLoss, function="cross_entropy"):
    """Cross entropy between logits and class indices or probabilities."""

    label_smoothing: float = 0.0


class BCEWithLogitsLoss(_PlainWeightedLoss, function="binary_cross_entropy_with_logits"):
    """Binary cross entropy of sigmoid(x), from the logits."""

    pos_weight: Optional[Tensor] = None


class BCELoss(_PlainWeightedLoss, function="binary_cross_entropy"):
    """Binary cross entropy of probabilities; refused under autocast."""


class SmoothL1Loss(_PlainLoss, function="smooth_l1_loss"):
    """Squares below ``beta``, magnitudes above (Girshick 2015)."""

    beta: float = 1.0


class HuberLoss(_Loss, function="huber_loss"):
    """Squares below ``delta``, delta times magnitudes above (Huber 1964)."""

    reduction: str = "mean"
    delta: float = 1.0


class KLDivLoss(_PlainLoss, function="kl_div"):
    """Kullback and Leibler's divergence of log-probabilities ``input`` from ``target``; 'batchmean' divides by the batch."""

    log_target: bool = False
    _reductions: ClassVar[Tuple[str, ...]] = ("none", "mean", "sum", "batchmean")


class CTCLoss(_Loss, function="ctc_loss"):
    """Connectionist temporal classification (Graves et al. 2006), see `functional.ctc_loss`."""

    blank: int = 0
    reduction: str = "mean"
    zero_infinity: bool = False

    def forward(self, log_probs: Tensor, targets: Tensor, input_lengths: Any, target_lengths: Any) -> Tensor:  # type: ignore[override]
        return self._call(log_probs, targets, input_lengths, target_lengths)


class LinearCrossEntropyLoss(_WeightedLoss):
    """Cross entropy of what a Linear of its own, ``linear``, makes of the input; see `functional.linear_cross_entropy`.

    ``out_features``: sizes of the target's dimensions after the first."""

    def __init__(self, in_features: int, num_classes: int, *, out_features: Tuple[int, ...] = (), bias: bool = False, device: Any = None,
                 dtype: Any = None, reduction: str = "mean", weight: Optional[Tensor] = None, ignore_index: Optional[int] = None,
                 label_smoothing: float = 0.0, options: Any = None) -> None:
        super().__init__(weight, reduction=reduction)
        if weight is not None and tuple(weight.shape) != (num_classes,):
            raise RuntimeError(f"LinearCrossEntropyLoss: `weight` must be {[num_classes]}, got {list(weight.shape)}")
        if not 0 <= label_smoothing <= 1:
            raise RuntimeError(f"LinearCrossEntropyLoss: `label_smoothing` must be between 0 and 1, got {label_smoothing}")
        self.num_classes, self.out_features = num_classes, tuple(out_features)
        self.ignore_index, self.label_smoothing, self.options = ignore_index, label_smoothing, options
        self.linear = Linear(in_features, math.prod(self.out_features, start=num_classes), bias=bias, device=device, dtype=dtype)

    def forward(self, input: Tensor, target: Tensor) -> Tensor:  # type: ignore[override]
        shape = self.num_classes, *self.out_features
        bias = None if self.linear.bias is None else self.linear.bias.reshape(shape)
        return F.linear_cross_entropy(input, self.linear.weight.reshape(*shape, -1), target, linear_bias=bias, weight=self.weight,
                                      reduction=self.reduction, ignore_index=self.ignore_index, label_smoothing=self.label_smoothing,
                                      options=self.options)


class PoissonNLLLoss(_Loss, function="poisson_nll_loss"):
    """Negative log likelihood of Poisson counts, whose rate is ``input`` or (``log_input``) its exponential."""

    log_input: bool = True
    full: bool = False
    size_average: Any = None
    eps: float = 1e-8
    reduce: Any = None
    reduction: str = "mean"


class GaussianNLLLoss(_Loss, function="gaussian_nll_loss"):
    """Negative log likelihood of normal numbers with mean ``input`` and variance ``var``."""

    full: bool = False
    eps: float = 1e-6
    reduction: str = "mean"

    def __init__(self, *, full: bool = False, eps: float = 1e-6, reduction: str = "mean") -> None:
        self._begin(self._options, (full, eps, reduction), {})

    def forward(self, input: Tensor, target: Tensor, var: Any) -> Tensor:  # type: ignore[override]
        return self._call(input, target, var)


class SoftMarginLoss(_PlainLoss, function="soft_margin_loss"):
    """log(1 + exp(-target x)), target 1 or -1."""


class MultiLabelMarginLoss(_PlainLoss, function="multilabel_margin_loss"):
    """Margins between the classes that ``target`` lists, up to -1, and the others."""


class MultiLabelSoftMarginLoss(_PlainWeightedLoss, function="multilabel_soft_margin_loss"):
    """Binary cross entropy of sigmoid(x), averaged over classes."""


class MultiMarginLoss(_WeightedLoss, function="multi_margin_loss"):
    """Margins between the class that ``target`` names and the others."""

    p: int = 1
    margin: float = 1.0
    weight: Optional[Tensor] = None
    size_average: Any = None
    reduce: Any = None
    reduction: str = "mean"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.p not in (1, 2):
            raise ValueError(f"MultiMarginLoss: `p` must be 1 or 2, got {self.p}")
        if self.weight is not None and self.weight.ndim != 1:
            raise ValueError(f"MultiMarginLoss: `weight` must be one number for each class, got shape {list(self.weight.shape)}")


class HingeEmbeddingLoss(_Loss, function="hinge_embedding_loss"):
    """x where target is 1, max(0, margin - x) where it is -1."""

    margin: float = 1.0
    size_average: Any = None
    reduce: Any = None
    reduction: str = "mean"


class _PairLoss(_Loss, function=""):
    """Base of losses of pairs."""

    margin: float = 0.0
    size_average: Any = None
    reduce: Any = None
    reduction: str = "mean"

    def forward(self, input1: Tensor, input2: Tensor, target: Tensor) -> Tensor:  # type: ignore[override]
        return self._call(input1, input2, target)


class CosineEmbeddingLoss(_PairLoss, function="cosine_embedding_loss"):
    """1 - cos where target is 1, max(0, cos - margin) where it is -1."""


class MarginRankingLoss(_PairLoss, function="margin_ranking_loss"):
    """max(0, -target (x1 - x2) + margin)"""


def _check_margin(loss: Any) -> None:
    if loss.margin <= 0:
        raise ValueError(f"{type(loss).__name__}: `margin` must be above 0, got {loss.margin}")


class TripletMarginLoss(_Loss, function="triplet_margin_loss"):
    """max(0, distance to the positive - distance to the negative + margin)."""

    margin: float = 1.0
    p: float = 2.0
    eps: float = 1e-6
    swap: bool = False
    size_average: Any = None
    reduce: Any = None
    reduction: str = "mean"

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_margin(self)

    def forward(self, anchor: Tensor, positive: Tensor, negative: Tensor) -> Tensor:  # type: ignore[override]
        return self._call(anchor, positive, negative)


class TripletMarginWithDistanceLoss(_Loss):
    """The same with a distance of one's own."""

    def __init__(self, *, distance_function: Optional[Callable[[Tensor, Tensor], Tensor]] = None, margin: float = 1.0, swap: bool = False,
                 reduction: str = "mean") -> None:
        super().__init__(reduction=reduction)
        self.distance_function = PairwiseDistance() if distance_function is None else distance_function
        self.margin, self.swap = margin, swap
        _check_margin(self)

    def forward(self, anchor: Tensor, positive: Tensor, negative: Tensor) -> Tensor:  # type: ignore[override]
        return F.triplet_margin_with_distance_loss(anchor, positive, negative, distance_function=self.distance_function, margin=self.margin,
                                                   swap=self.swap, reduction=self.reduction)
