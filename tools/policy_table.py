"""Writes docs/policy_table.md: the dtype in which autocast runs each operator.

    python tools/policy_table.py            # writes the page
    python tools/policy_table.py --check    # exits with 1 if the page is out of date
"""

from __future__ import annotations

import sys
from pathlib import Path

from generated import write_or_check

from ampc import _C

PAGE = Path(__file__).resolve().parent.parent / "docs" / "policy_table.md"
GROUPS = (("low", "In 16 bits", "Products. Their operands are rounded to the region's dtype. They add in float32 and round the result to 16 bits."),
          ("f32", "In float32", "Sums, losses, norms, and functions whose results grow fast. 16-bit inputs are converted to float32, and the result is float32."),
          ("promote", "In the widest dtype among the inputs", "Operators with several inputs, which need one dtype. No input loses digits."),
          ("unsafe", "In float32 on the CPU, refused on a GPU", "On a GPU they raise an error that says what to write instead."),
          ("keep", "In their inputs' dtype", "All other operators."))


def text() -> str:
    """The whole page."""
    lines = ["# Policy table", "", "The dtype in which `autocast` runs each operator. The lists follow those of torch 2.13 for CUDA. `autocast(policy=...)` changes "
             "the dtype for an operator or a module: see `ampc.policy`.", ""]
    for category, title, why in GROUPS:
        names = sorted({op["python"].lstrip("_") for op in _C.op_table() if op["cast"] == category and not op["name"].endswith("_backward")})
        lines += [f"## {title}", "", why, "", ", ".join(f"`{name}`" for name in names), ""]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(write_or_check({PAGE: text()}))
