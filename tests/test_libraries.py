"""Real libraries train on ampc as on torch: tests/libraries says how. Where AMPC_LIBRARIES names the Python of an environment with
libraries/requirements.txt, a third of its scripts run here beside torch; elsewhere what was kept in docs/compatibility/ is held to its own rule."""

import importlib.util
import json
import os
import random
import re
from pathlib import Path

import pytest
from libraries import running
from libraries.__main__ import folder_of

ROOT = Path(__file__).resolve().parent.parent
KEPT = json.loads((ROOT / "docs" / "compatibility" / "libraries.json").read_text())
SCRIPTS = running.scripts()
KEPT_SCRIPTS = [s for s in SCRIPTS if s.label in KEPT["scripts"]]
PYTHON = os.environ.get("AMPC_LIBRARIES", "")
DRAW = int(os.environ.get("AMPC_LIBRARIES_DRAW") or random.SystemRandom().randrange(10**6))  # workers of pytest-xdist draw alone: each decides what it runs


def test_what_was_kept_is_whole():
    assert set(KEPT["scripts"]) <= {s.label for s in SCRIPTS} and {s.file for s in KEPT_SCRIPTS} == {s.file for s in SCRIPTS}
    for script in KEPT_SCRIPTS:
        kept = KEPT["scripts"][script.label]
        assert kept["version"] and re.fullmatch(r"[0-9a-f]{40}", kept["commit"]) and re.fullmatch(r"\d{4}-\d\d-\d\d", kept["date"]), script.label
        assert "failed" in kept or set(kept["seeds"]) == {str(s) for s in running.SEEDS}


@pytest.mark.parametrize("script", KEPT_SCRIPTS, ids=[s.label for s in KEPT_SCRIPTS])
def test_what_was_kept_agrees(script):
    kept = KEPT["scripts"][script.label]
    assert "failed" not in kept and kept["disagrees"] == ""
    for seed in kept["seeds"].values():
        assert seed["numbers"] > 0 and seed["of_bound"] <= 1 and seed["first"] <= seed["all"]


def test_packages_are_pinned():
    lines = (running.HERE / "requirements.txt").read_text().split()
    assert all(re.fullmatch(r"[\w.-]+==[\w.+]+", line) for line in lines)
    pinned = {line.split("==")[0].lower().replace("_", "-"): line.split("==")[1] for line in lines}
    assert "torch" not in pinned and "ampc" not in pinned
    for script in SCRIPTS:
        package = script.package.lower().replace("_", "-")
        assert package in pinned, script.label
        assert script not in KEPT_SCRIPTS or KEPT["scripts"][script.label]["version"] == pinned[package], script.label


def test_the_bound_of_a_script_is_what_rounding_did():
    runs = [[1.0, 2.0, 4.0], [1.0, 2.0002, 4.0], [1.0, 1.9999, 4.0]]
    tiny, second, third = running.bounds(runs)
    assert tiny == pytest.approx(running.FLOOR * 2**-24) and second == pytest.approx(running.TIMES * 2e-4, rel=1e-3) and third == pytest.approx(running.TIMES * 4e-4, rel=1e-3)
    assert running.beyond([1.0, 2.003, 4.0], runs) == ""
    assert "number 1 of 3 is 1.0001" in running.beyond([1.0001, 2.0, 4.0], runs)
    assert "number 2 of 3" in running.beyond([1.0, float("nan"), 4.0], runs)
    assert "2 numbers" in running.beyond([1.0, 2.0], runs)


@pytest.mark.skipif(os.name != "posix", reason="runs a shell script")
def test_a_run_leaves_no_temporary_files(tmp_path):
    """What libraries write into the temporary folder, such as logs, goes with the run."""
    python = tmp_path / "python"
    python.write_text('#!/bin/sh\n: > "$TMPDIR/log"\nls "$TMPDIR/log" > /dev/null && printf \'"%s"\' "$TMPDIR"\n')
    python.chmod(0o755)
    where = Path(running.run(SCRIPTS[0], "ampc", str(python), ""))
    assert where.is_absolute() and not where.exists()


def test_what_is_kept_of_the_losses():
    runs = [[1.0, 2.0, float("nan")], [1.0, 2.0002, float("nan")], [1.0, 1.9999, float("nan")]]
    near, far = ({"seconds": [2.0, 1.0], "seeds": {"0": {"ampc": [1.0, second, float("nan")], "torch": runs}}} for second in (2.001, 2.02))
    near["float64"] = {"0": {"ampc": [1.0, 2.0, float("nan")], "torch": [1.0, 2.0, float("nan")]}}
    kept = running.digest(near)
    assert kept["seeds"]["0"] == {"numbers": 3, "first": 0.0, "all": 5e-4, "alone": 1e-4, "of_bound": 0.25} and kept["disagrees"] == ""
    assert kept["float64"] == {"0": [0.0, 5e-4, 0.0]} and kept["seconds"] == [2.0, 1.0]
    kept = running.digest(far)
    assert kept["seeds"]["0"]["of_bound"] == 5.0 and "number 2 of 3" in kept["disagrees"] and "float64" not in kept
    assert running.digest({"failed": "why"}) == {"failed": "why"}


@pytest.mark.slow
@pytest.mark.skipif(not PYTHON, reason="AMPC_LIBRARIES does not name an environment's Python")
@pytest.mark.parametrize("script", random.Random(DRAW).sample(SCRIPTS, -(-len(SCRIPTS) // 3)) if PYTHON else [], ids=lambda s: s.label)
def test_a_script_beside_torch(script):
    if importlib.util.find_spec("torch") is None:
        pytest.skip("torch is not installed")
    result = running.compare(script, PYTHON, folder_of("torch"), folder_of("ampc"), seeds=running.SEEDS[:1])
    assert running.verdict(result) == "", f"AMPC_LIBRARIES_DRAW={DRAW}"
