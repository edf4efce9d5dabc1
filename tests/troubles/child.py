"""Runs scripts, each in a process of its own, and prints one line of JSON for each: what it measured, and what ampc said of it.

    python -m troubles.child {ampc,torch} SCRIPT..."""

from __future__ import annotations

import contextlib
import io
import json
import os
import runpy
import signal
import sys
import traceback
import warnings
from typing import Any, Dict, List

SECONDS = 60


def main() -> None:
    """Forks for every script; one that takes too long, or dies, has an error."""
    library, *files = sys.argv[1:]
    __import__(library)  # once, before the processes part
    for file in files:
        inward, outward = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(inward)
            signal.alarm(SECONDS)
            with os.fdopen(outward, "w") as to:
                json.dump((_ampc if library == "ampc" else _torch)(file), to)
            os._exit(0)
        os.close(outward)
        with os.fdopen(inward) as came:
            text = came.read()
        _, status = os.waitpid(child, 0)
        print(text or json.dumps({"error": f"ended with status {status}", "findings": [], "out": None, "said": ""}), flush=True)


def _result(printed: str, errors: List[Dict[str, Any]], findings: List[Dict[str, Any]]) -> Dict[str, Any]:
    last = printed.strip().splitlines()[-1:] or [""]
    out = json.loads(last[0]) if last[0].startswith("{") else None
    error = errors[0]["text"] if errors else None if out is not None else "the script printed no result"
    return {"out": out, "error": error, "findings": findings + errors}


def _told(file: str, error: BaseException) -> Dict[str, Any]:
    lines = [f.lineno for f in traceback.extract_tb(error.__traceback__) if f.filename == file]
    return {"tool": "error", "kind": type(error).__name__, "line": lines[-1] if lines else 0, "text": f"{type(error).__name__}: {error}", "fix": str(error)}


def _torch(file: str) -> Dict[str, Any]:
    errors: List[Dict[str, Any]] = []
    with contextlib.redirect_stdout(io.StringIO()) as printed, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            runpy.run_path(file, run_name="__main__")
        except Exception as error:
            errors.append(_told(file, error))
    return _result(printed.getvalue(), errors, [])


def _ampc(file: str) -> Dict[str, Any]:
    from ampc._events import Listener, listen
    from ampc.doctor import guard
    from ampc.doctor.nonfinite import Doctor
    from ampc.run import script

    scalers: List[Any] = []
    errors: List[Dict[str, Any]] = []

    class Scalers(Listener):
        def scaler_made(self, scaler: Any) -> None:
            scalers.append(scaler)

    listen(Scalers())
    sys.excepthook = lambda kind, error, trace: errors.append(_told(file, error))
    with contextlib.redirect_stdout(io.StringIO()) as printed, contextlib.redirect_stderr(io.StringIO()), warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        with Doctor() as doctor:
            script.run(file, [])
    findings = [{"tool": "guard", "kind": r.rule, "line": r.line if r.file == file else 0, "text": r.text, "fix": r.fix} for r in guard.reports()]
    findings += [_of_doctor(file, f) for f in doctor.findings if f.cause != "scale"]
    findings += [found for scaler in scalers for found in _of_ledger(scaler)]
    findings += [{"tool": "warning", "kind": w.category.__name__, "line": w.lineno if w.filename == file else 0, "text": str(w.message), "fix": str(w.message)}
                 for w in warned if not w.category.__name__.startswith(("Misuse", "Performance", "Doctor"))]  # told above
    return _result(printed.getvalue(), errors, findings)


def _of_doctor(file: str, found: Any) -> Dict[str, Any]:
    formula = found.backward_of is not None and not found.backward_of[0][0].isupper()  # not of a Function that the script defines
    at = found.backward_of[1] if formula and found.backward_of[1] else found.location
    kind = f"backward {found.backward_of[0]}" if formula else found.op
    return {"tool": "doctor", "kind": kind, "line": at[1] if at[0] == file else 0, "text": str(found), "fix": found.advice}


def _of_ledger(scaler: Any) -> List[Dict[str, Any]]:
    """What a scaler's report says of the steps that it skipped, unless the scale was too high, which does no harm."""
    causes = dict(scaler.ledger.cause(step) for step in scaler.ledger.skipped)
    return [{"tool": "ledger", "kind": cause, "line": 0, "text": text, "fix": text} for cause, text in causes.items() if cause != "scale"]


if __name__ == "__main__":
    main()
