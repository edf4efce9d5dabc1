"""Writes docs/rules/README.md, the rules' index, from ampc/doctor/rules.py.

    python tools/rules_index.py            # writes the page
    python tools/rules_index.py --check    # exits with 1 if the page is out of date
"""

from __future__ import annotations

import sys
from pathlib import Path

from generated import write_or_check

from ampc.doctor.rules import RUN, SOURCE

INDEX = Path(__file__).resolve().parent.parent / "docs" / "rules" / "README.md"


def text() -> str:
    """The whole file."""
    lines = ["# Rules", "", "The misuse guard reports these while a script runs. `ampc check` finds some of them in the source. Each page has wrong and right code.", "",
             "| Rule | What is wrong | While it runs | In the source |", "|---|---|---|---|"]
    for rule, what in {**RUN, **SOURCE}.items():
        lines.append(f"| [{rule}]({rule}.md) | {what} | {'yes' if rule in RUN else ''} | {'yes' if rule in SOURCE else ''} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(write_or_check({INDEX: text()}))
