"""Writes docs/policy_table.md, what autocast makes of each operator, from the operator table.

    python tools/policy_table.py            # writes it
    python tools/policy_table.py --check    # exits with 1 where it is not what it would write
"""

from __future__ import annotations

import sys
from pathlib import Path

from ampc import _C

PAGE = Path(__file__).resolve().parent.parent / "docs" / "policy_table.md"
GROUPS = (("low", "In 16 bits", "Products: their operands are rounded to the region's dtype, sums are kept in float32, the result is 16-bit."),
          ("f32", "In float32", "Sums, losses, norms and what grows fast: 16-bit inputs are widened, and so is the result."),
          ("promote", "In the widest dtype among the inputs", "They mix tensors, and lose nothing in that."),
          ("banned", "Refused", "They raise, and say what to write instead."),
          ("keep", "In their inputs' dtype", "All others."))


def text() -> str:
    """The whole page."""
    lines = ["# Policy table", "", "What `autocast` makes of each operator, by ampc's own table, which follows torch 2.13's CUDA lists. `autocast(policy=...)` "
             "changes it for an operator or a module: see `ampc.policy`.", ""]
    for category, title, why in GROUPS:
        names = sorted({row["python"].lstrip("_") for row in _C.op_table() if row["cast"] == category and not row["name"].endswith("_backward")})
        lines += [f"## {title}", "", why, "", ", ".join(f"`{name}`" for name in names), ""]
    return "\n".join(lines)


def main() -> int:
    """Writes or compares."""
    if "--check" in sys.argv[1:]:
        return int(PAGE.read_text() != text())
    PAGE.write_text(text())
    return 0


if __name__ == "__main__":
    sys.exit(main())
