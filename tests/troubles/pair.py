"""Reads the corpus. A file of ``pairs`` holds two scripts: lines that end with ``# broken`` belong to the first only, ``# mended`` to the
second only, all others to both. ``# here`` marks the lines that a diagnosis may name. Both scripts keep the file's line numbers."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

HOME = Path(__file__).resolve().parent
KEYS = {"area", "cause", "operator", "fix", "shows", "source"}  # of every label; besides: `also`, causes that may be stated, too; `torch: no`, where torch refuses both; `ampc: runs`, where it has no trouble with either; `advise`, words of its verdict
SHOWS = {"nan loss", "all steps skipped", "weights do not move", "other result", "error", "nothing"}
MARK = re.compile(r"\s*# (broken here|broken|mended|here)$")


class Pair(NamedTuple):
    """Two scripts, of the same lines, and their label."""

    name: str
    label: Dict[str, str]
    broken: str
    mended: str
    here: Tuple[int, ...]  # lines, from 1

    def words(self, key: str) -> List[str]:
        """The alternatives of a key, which ` | ` separates; [] where there is none."""
        return [w.strip() for w in self.label.get(key, "-").split("|") if w.strip() not in ("", "-")]


def read(path: Path) -> Pair:
    """ValueError where the label or a script is no good."""
    text = path.read_text()
    tree = ast.parse(text)
    documented = ast.get_docstring(tree)
    if documented is None:
        raise ValueError(f"{path}: a label is missing")
    label = dict(re.findall(r"^(\w+): (.*)$", documented, re.M))
    if not set(label) >= KEYS or label["shows"] not in SHOWS:
        raise ValueError(f"{path}: the label needs {', '.join(sorted(KEYS - set(label)))}; and shows is one of {', '.join(sorted(SHOWS))}")
    lines = text.splitlines()
    lines[:tree.body[0].end_lineno] = [""] * (tree.body[0].end_lineno or 0)
    marks = [(m.group(1) if (m := MARK.search(line)) else "") for line in lines]
    here = tuple(i for i, mark in enumerate(marks, 1) if mark.endswith("here"))
    return Pair(path.stem, label, _without(lines, marks, "mended"), _without(lines, marks, "broken"), here)


def _without(lines: List[str], marks: List[str], kind: str) -> str:
    return "\n".join("" if mark.startswith(kind) else MARK.sub("", line) for line, mark in zip(lines, marks)) + "\n"


def pairs(held_out: bool = False) -> List[Path]:
    """The files of all pairs; of those that no rule was mended on, which are held out."""
    return sorted((_home(held_out) / "pairs").glob("*.py"))


def valid(held_out: bool = False) -> List[Path]:
    """The scripts that look suspicious and are right."""
    return sorted((_home(held_out) / "valid").glob("*.py"))


def _home(held_out: bool) -> Path:
    return HOME / "held_out" if held_out else HOME


def troubled(shows: str, out: Optional[Dict[str, Any]], error: Optional[str]) -> bool:
    """Whether a script that printed ``out`` as its last line, or ended with an error, shows this symptom."""
    if shows == "error" or out is None:
        return error is not None
    if shows == "nan loss":
        return not abs(out["loss"]) < float("inf")
    if shows == "all steps skipped":
        return bool(out["skipped"] == out["steps"])
    if shows == "weights do not move":  # a share of the way that they would go in float32
        return bool(out["moved"] < 0.05)
    return bool(shows == "other result" and not out["error"] < 0.1)  # against float32, or against what is right
