"""Adaptive softmax (Grave et al. 2017): rare classes in clusters, whose layers are small and are asked for their own rows alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ... import _ops
from ..._C import Tensor
from .container import ModuleList, Sequential
from .linear import Linear
from .module import Module

__all__ = ["AdaptiveLogSoftmaxWithLoss"]


class _ASMoutput(NamedTuple):
    output: Tensor
    loss: Tensor


class AdaptiveLogSoftmaxWithLoss(Module):
    """Log-probabilities of the targets, and their negative mean, of classes that are ordered by how frequent they are.

    Args:
        cutoffs: where clusters begin, rising: classes below the first are told by the head, which also tells the clusters.
        div_value: a cluster's layer has ``in_features / div_value ** number`` units.
        head_bias: whether the head has a bias.

    ValueError for cutoffs that do not rise from 1 to below ``n_classes``."""

    def __init__(self, in_features: int, n_classes: int, cutoffs: Sequence[int], div_value: float = 4.0, head_bias: bool = False, device: Any = None,
                 dtype: Any = None) -> None:
        super().__init__()
        ends = list(cutoffs)
        if not ends:
            raise ValueError("AdaptiveLogSoftmaxWithLoss: `cutoffs` must have at least one entry")
        if any(int(c) != c for c in ends) or ends != sorted(set(ends)) or ends[0] < 1 or ends[-1] >= n_classes:
            raise ValueError(f"AdaptiveLogSoftmaxWithLoss: `cutoffs` must be integers that rise from 1 to {n_classes - 1} at most, got {ends}")
        self.in_features, self.n_classes, self.cutoffs = in_features, n_classes, [*ends, n_classes]
        self.div_value, self.head_bias = div_value, head_bias
        self.shortlist_size, self.n_clusters = ends[0], len(ends)
        self.head_size = self.shortlist_size + self.n_clusters
        self.head = Linear(in_features, self.head_size, head_bias, device, dtype)
        self.tail = ModuleList()
        for i, (begin, end) in enumerate(zip(ends, self.cutoffs[1:]), 1):
            width = int(in_features // div_value ** i)
            self.tail.append(Sequential(Linear(in_features, width, False, device, dtype), Linear(width, end - begin, False, device, dtype)))

    def reset_parameters(self) -> None:
        """Draws the parameters again."""
        for layer in (self.head, *(layer for cluster in self.tail for layer in cluster)):
            layer.reset_parameters()

    def forward(self, input: Tensor, target: Tensor) -> _ASMoutput:
        """Of input [N, in] and classes [N], or [in] and []. RuntimeError for shapes and classes that do not fit."""
        if target.ndim > 1 or input.ndim != target.ndim + 1 or target.ndim and input.shape[0] != target.shape[0]:
            raise RuntimeError(f"AdaptiveLogSoftmaxWithLoss: input and target must be [N, in] and [N], or [in] and [], got {list(input.shape)} and "
                               f"{list(target.shape)}")
        x, classes = (input, target) if target.ndim else (input.unsqueeze(0), target.unsqueeze(0))
        low, high = (int(classes.min()), int(classes.max())) if classes.numel() else (0, 0)
        if low < 0 or high >= self.n_classes:
            raise RuntimeError(f"AdaptiveLogSoftmaxWithLoss: classes must lie between 0 and {self.n_classes - 1}, got {low} to {high}")
        first = classes
        inner = []
        for i, (begin, end) in enumerate(zip(self.cutoffs, self.cutoffs[1:])):
            rows = ((classes >= begin) & (classes < end)).nonzero().squeeze(1)
            if rows.numel():
                first = first.index_fill(0, rows, self.shortlist_size + i)
                within = self.tail[i](x.index_select(0, rows)).log_softmax(1)
                inner.append((rows, within.gather(1, (classes.index_select(0, rows) - begin).unsqueeze(1)).squeeze(1)))
        output = self.head(x).log_softmax(1).gather(1, first.unsqueeze(1)).squeeze(1)
        for rows, within in inner:
            output = output.index_add(0, rows, within.to(output.dtype))
        loss = -output.mean()
        return _ASMoutput(output if target.ndim else output.squeeze(0), loss)

    def log_prob(self, input: Tensor) -> Tensor:
        """Log-probabilities of all classes, [N, n_classes]."""
        head, short = self.head(input).log_softmax(1), self.shortlist_size
        clusters = [cluster(input).log_softmax(1) + head[:, short + i:short + i + 1] for i, cluster in enumerate(self.tail)]
        return _ops.cat([head[:, :short], *clusters], 1)

    def predict(self, input: Tensor) -> Tensor:
        """The most probable class of each row; a cluster's layer is asked only for rows whose head names the cluster."""
        head = self.head(input)
        found = head.argmax(1)
        rows = (found >= self.shortlist_size).nonzero().squeeze(1)
        if rows.numel() == 0:
            return found
        best = self.log_prob(input.index_select(0, rows)).argmax(1)
        return found.index_copy(0, rows, best)
