"""Runs the corpus: every script under ampc with its guard and doctor, its text through ``ampc check``; or under torch, to see its symptom."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Tuple

from . import judge
from .pair import HOME, Pair, pairs, read, troubled, valid

OPEN = HOME / "open.txt"


class Script(NamedTuple):
    """One script of the corpus."""

    name: str  # as in open.txt: `vision_exp`, `vision_exp mended`, `masked_mean valid`
    text: str
    pair: Optional[Pair]
    kind: str  # broken, mended, valid
    held_out: bool = False  # no rule was mended on it


def scripts(only: str = "", held_out: Optional[bool] = None) -> List[Script]:
    """All whose name contains ``only``; of those held out or of the others alone, where that is said."""
    found = []
    for held in (False, True):
        for path in pairs(held):
            pair = read(path)
            found += [Script(pair.name, pair.broken, pair, "broken", held), Script(f"{pair.name} mended", pair.mended, pair, "mended", held)]
        found += [Script(f"{path.stem} valid", path.read_text(), None, "valid", held) for path in valid(held)]
    return [s for s in found if only in s.name and held_out in (None, s.held_out)]


def run(library: str, chosen: List[Script], folder: Path) -> Iterator[Tuple[Script, Dict[str, Any]]]:
    """Each script with what came of it, as they end. ``folder`` is where they lie and work."""
    files = []
    for s in chosen:
        files.append(folder / (s.name.replace(" ", "_") + ".py"))
        files[-1].write_text(s.text)
    command = [sys.executable, "-m", "troubles.child", library, *map(str, files)]
    path = os.pathsep.join(p for p in (str(HOME.parent), os.environ.get("PYTHONPATH", "")) if p)
    with subprocess.Popen(command, cwd=folder, text=True, stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}) as process:
        for s, file in zip(chosen, files):
            line = process.stdout.readline() if process.stdout else ""
            result = json.loads(line) if line else {"out": None, "error": "the process ended", "findings": []}
            if library == "ampc":
                result["findings"] += _checked(s, str(file))
            yield s, result


def _checked(s: Script, file: str) -> List[Dict[str, Any]]:
    from ampc.check import check_source

    return [{"tool": "check", "kind": f.rule, "line": f.line, "text": f.message, "fix": f.fix} for f in check_source(s.text, file)]


def is_wrong(s: Script, result: Dict[str, Any]) -> List[str]:
    """What is wrong about ampc's diagnosis: what was said, or should have been; [] where it is right."""
    if s.pair is None or s.kind == "mended" or s.pair.label.get("ampc") == "runs":
        return [f"false alarm, {a}" for a in judge.alarms(result["findings"])]
    said = result["findings"]
    found = judge.verdict(s.pair, said)
    if found.right:
        return []
    label = s.pair.label
    lacks = [word for word in ("found", "cause", "operator", "line", "fix") if not getattr(found, word)] if found.found else ["found"]
    wanted = f"{label['cause']}, line {' or '.join(map(str, s.pair.here))}, fix {label['fix']}"
    return [f"{'beside' if not lacks else 'no right ' + lacks[0] if lacks != ['found'] else 'not found'}: wanted {wanted}",
            *(f"said {judge.text(f)}" for f in said if judge.name(f) not in judge.ASIDE)]


def symptom(s: Script, result: Dict[str, Any]) -> str:
    """What is wrong about the symptom that a script shows; '' where it is as its label says."""
    if s.pair is None:
        return f"a valid script fails: {result['error']}" if result["error"] else ""
    shown = troubled(s.pair.label["shows"], result["out"], result["error"])
    if s.kind == "mended":
        return f"the mended script shows it: {result['out']} {result['error'] or ''}" if shown or result["error"] else ""
    return "" if shown or s.pair.label["shows"] == "nothing" else f"the broken script does not show {s.pair.label['shows']}: {result['out']}"


def still_open() -> Dict[str, str]:
    """The scripts that are diagnosed wrongly so far, with the reason."""
    lines = OPEN.read_text().splitlines() if OPEN.exists() else []
    return {name.strip(): reason.strip() for name, _, reason in (line.partition(":") for line in lines if line and not line.startswith("#"))}


def renew_open(ran: List[Tuple[str, List[str]]]) -> None:
    """Strikes those of these scripts that are diagnosed rightly from the list, and adds the others."""
    known = still_open()
    for name, said in ran:
        if not said:
            known.pop(name, None)
        elif name not in known:
            known[name] = "; ".join(said)[:200]
    head = "# Scripts of the corpus that ampc diagnoses wrongly so far: name, and what is wrong. python -m troubles --open renews the list.\n"
    OPEN.write_text(head + "".join(f"{name}: {reason}\n" for name, reason in sorted(known.items())))
