"""What the doctor tells of an origin of inf or nan."""

from __future__ import annotations

import html
import math
from typing import List, NamedTuple, Optional, Tuple

from .._messages.callers import location_text
from .._messages.table import html_table, html_text
from .remedies import PRODUCTS, SUMS, Trouble, lost_epsilon, replacement

Location = Tuple[str, int]
LARGE = {"add", "sub", "mul", "square", "pow", "cast", "cumprod", *PRODUCTS, *SUMS}  # their infinities are numbers too large for the dtype
# What to do about an origin that no operator is.
CAME = {"data": "check how the batch is made; it contains inf or nan before the model uses it",
        "parameter": "check the checkpoint that was loaded, and the steps before the doctor was started",
        "buffer": "check the checkpoint that was loaded, and the batches before the doctor was started: statistics of a layer keep a nan that "
                  "one batch gave them, also of a step that the scaler left out; load_state_dict or reset_running_stats() makes them new"}


class Range(NamedTuple):
    """The range of one input of a finding's operator."""

    dtype: str
    shape: Tuple[int, ...]
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.dtype}, shape {list(self.shape)}, values from {self.low:.4g} to {self.high:.4g}"


class Finding:
    """An operator that returned inf or nan, with its inputs, its dtype and what to write instead."""

    def __init__(self, op: str, location: Location, what: str, index: Tuple[int, ...], count: int, numel: int, dtype: str, chosen: str,
                 inputs: List[Range], before: List[str], backward_of: Optional[Tuple[str, Optional[Location]]], scale: float, from_inf: bool) -> None:
        self.op, self.location, self.what, self.index, self.count, self.numel, self.dtype = op, location, what, index, count, numel, dtype
        self.chosen, self.inputs, self.before, self.backward_of, self.scale, self.from_inf = chosen, inputs, before, backward_of, scale, from_inf
        self.chain: List[Tuple[str, Location]] = []
        self.ended = False  # the chain, at the loss
        self.grown = ""  # how the training diverged before, in words
        self.lost = 0.0  # an epsilon that is 0 in the dtype
        self.served = ""  # which samples of a data set it is about
        self.exponent = 1.0  # of a power

    @property
    def cause(self) -> str:
        """'data', 'buffer' or 'parameter' (it already contained inf or nan), 'scale' (too high, and a GradScaler lowers it), 'divergence' (the
        loss or the parameters had grown before) or 'model'."""
        if self.op in CAME:
            return "divergence" if self.grown else self.op
        scaled = self.backward_of and self.scale != 1 and self.dtype in ("float16", "bfloat16")
        return "scale" if scaled else "divergence" if self.grown else "model"

    @property
    def too_large(self) -> bool:
        """Whether the infinities stand for numbers that the dtype cannot hold, and not for a limit, such as that of 1 / x at 0."""
        return self.op in LARGE and self.what == "inf" and not self.from_inf and self.exponent >= 0 and self.backward_of is None

    @property
    def advice(self) -> str:
        """What to write instead."""
        if self.cause == "divergence":
            return f"{self.grown}, so the training diverges: lower the learning rate, warm it up, or clip the gradients"
        if self.op in CAME:
            return CAME[self.op]
        if self.lost:
            return lost_epsilon(self.lost, self.dtype)
        own = self.backward_of is not None and self.backward_of[0][:1].isupper()  # a Function of the script
        ranges = [(r.low, r.high) for r in self.inputs]
        return replacement(Trouble(self.op if own or self.backward_of is None else self.backward_of[0], self.dtype, limit_of(self.dtype), self.before,
                                   [o for o, _ in self.chain], self.backward_of is not None, own, ranges, self.what, self.from_inf, self.exponent))

    def __str__(self) -> str:
        inputs = [f"input {i}: {r}" for i, r in enumerate(self.inputs)]
        return "\n  ".join([self.heading(), *self._forward(), *inputs, *self._told(), f"fix: {self.advice}"])

    def _repr_html_(self) -> str:
        rows = [["input", "dtype", "shape", "lowest", "highest"]]
        rows += [[str(i), r.dtype, str(list(r.shape)), f"{r.low:.4g}", f"{r.high:.4g}"] for i, r in enumerate(self.inputs)]
        table = html_table(rows, {1, 2}) if self.inputs else ""
        return (f"<p><b>{html.escape(self.heading())}</b></p>{html_text(*self._forward())}{table}{html_text(*self._told())}"
                f"<p><b>fix:</b> {html.escape(self.advice)}</p>")

    def heading(self) -> str:
        """In one line: where, which operator, and what it returned."""
        where = f"{self.count} of {self.numel} values, the first at index {list(self.index)}"
        if self.op in CAME:
            return f"{location_text(self.location)}: {self.chosen} already contains {self.what}: {where}{self.served}"
        inputs = "because an input contains inf" if self.from_inf else "although its inputs are finite"
        return f"{location_text(self.location)}: {self._subject()} returned {self.what} {inputs}: {where}"

    def _forward(self) -> List[str]:
        """Of what ran backward: where it ran forward."""
        return [f"the forward call is at {location_text(self.backward_of[1])}"] if self.backward_of and self.backward_of[1] else []

    def _told(self) -> List[str]:
        """Why the result could not be held, and what became of it."""
        if self.op in CAME:
            return []
        limit = limit_of(self.dtype)
        beyond = [i for i, r in enumerate(self.inputs) if limit < max(-r.low, r.high) < math.inf]
        lines = [f"input {i} has values that are too large for {self.dtype}" for i in beyond]
        lines.append(f"the result is {self.dtype}, whose largest value is {limit:.5g}: {self.chosen}")
        if self.cause == "scale":
            lines.append(f"the loss scale of {self.scale:g} is too high: the scaler skips the step and lowers it, and no weight is changed")
        if self.chain:
            lines.append(f"{self.what} then spread through: " + " -> ".join(f"{op} (line {at[1]})" for op, at in self.chain))
        return lines

    def _subject(self) -> str:
        """The operator, and whether it ran forward or backward."""
        if self.op == "cast":
            return f"casting {'a gradient ' if self.backward_of else ''}to {self.dtype}"
        return f"{self.op}, in the backward pass of {self.backward_of[0]}," if self.backward_of else self.op


def limit_of(dtype: str) -> float:
    return {"float16": 65504.0, "bfloat16": 3.3895313892515355e38, "float32": 3.4028234663852886e38}.get(dtype, 1.7976931348623157e308)
