"""Where ampc differs from torch on purpose, by torch's own samples; and what is still open."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Callable, List, NamedTuple, Optional, Set

from .running import Difference


class Known(NamedTuple):
    reason: str
    holds: Callable[[Difference], bool]


def told(pattern: str) -> Callable[[Difference], bool]:
    """ampc's message fits."""
    return lambda d: re.search(pattern, d.ampc) is not None


def apart_by(most: float) -> Callable[[Difference], bool]:
    """The values that are furthest apart differ by less."""
    def holds(d: Difference) -> bool:
        t, a = (float(x.split("] ")[-1]) for x in (d.torch, d.ampc))
        return abs(t - a) < most
    return lambda d: d.kind == "value" and holds(d)


NORMS = {f"nn.functional.{name}" for name in ("layer_norm", "batch_norm", "group_norm", "instance_norm", "normalize", "cosine_similarity")}
ROUNDING = {"float32": 1e-6, "float64": 1e-13}

KNOWN: List[Known] = [
    Known("a norm's gradient is what is left of larger terms; both round them",
          lambda d: d.operator in NORMS and "gradient" in d.way and d.dtype in ROUNDING and apart_by(ROUNDING[d.dtype])(d)),
    Known("attention in float64: both round its sums",
          lambda d: d.operator == "nn.functional.scaled_dot_product_attention" and d.dtype == "float64" and apart_by(1e-12)(d)),
    Known("torch's hardsigmoid has the slope 1 / 6 in float32, for float64, too",
          lambda d: d.operator == "nn.functional.hardsigmoid" and "gradient" in d.way and d.dtype == "float64" and apart_by(1e-6)(d)),
    Known("torch writes past the strides of `out`",
          lambda d: d.operator in ("nn.functional.gelu", "nn.functional.avg_pool3d") and d.way == "out=, strided" and d.kind == "value"),
    Known("`out` keeps its strides; torch gives it others", lambda d: d.operator == "nn.functional.linear" and d.way == "out=, strided" and d.kind == "strides"),
    Known("convolution and what is made of it takes floating point only; torch takes int64, without a gradient",
          lambda d: re.fullmatch(r"nn\.functional\.(conv(_transpose)?[123]d|local_response_norm)", d.operator) is not None and d.dtype == "int64"
          and "must be floating point, got int64" in d.ampc),
    Known("an empty tensor of one dimension has no channels", lambda d: d.operator == "nn.functional.batch_norm" and "got shape [0]" in d.ampc),
    Known("a word that is not among those allowed is a ValueError", lambda d: d.operator == "nn.functional.gelu" and "must be one of" in d.ampc),
    Known("normalisation and attention in float64: both round their sums",
          lambda d: d.operator in ("GroupNorm", "TransformerEncoderLayer", "TransformerDecoderLayer", "Transformer") and d.dtype == "float64" and apart_by(1e-12)(d)),
    Known("L-BFGS in float32 enlarges what both round; in float64 they agree",
          lambda d: d.operator == "LBFGS" and d.way.startswith("step") and d.dtype == "float32" and apart_by(1e-2)(d)),
    Known("torch keeps NAdam's product of momenta in float32, for float64, too",
          lambda d: d.operator == "NAdam" and d.way.startswith("step") and d.dtype == "float64" and apart_by(1e-8)(d)),
    Known("L-BFGS keeps no room between steps, and no loss that only a search along the line reads",
          lambda d: d.operator == "LBFGS" and d.way == "state" and set(re.findall(r"'(\w+)'", d.torch)) - set(re.findall(r"'(\w+)'", d.ampc)) <= {"al", "prev_loss"}),
    Known("a rate may be a Tensor in the one way that there is", lambda d: d.way == "error" and "lr as a Tensor is not supported" in d.torch and d.ampc == "no exception"),
    Known("has a derivative where torch has none", lambda d: "gradient" in d.way and re.search("derivative for .* is not implemented", d.torch) is not None and d.ampc == "no exception"),
]


def explained(d: Difference) -> Optional[str]:
    return next((k.reason for k in KNOWN if k.holds(d)), None)


def still_open() -> Set[str]:
    """Entries of the database that differ without a reason: to be mended. Each line of open.txt is one."""
    return set((Path(__file__).parent / "open.txt").read_text().split("\n")) - {""}
