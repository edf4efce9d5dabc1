"""Right on every machine: each way through the kernels (csrc/base/ways.def) is entered by a case that claims it (ampc/selftest/cases.py), and
all cases are right whatever the caches, the threads and the instruction set."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from machines import machine
from references import part

import ampc
from ampc.selftest import CASES, selftest

pytestmark = pytest.mark.cpu

FACTS = ampc._C._machine()
OWN = FACTS["isa"]
HERE = [*FACTS["lower_levels"], OWN]
WAYS = {way["name"]: way for way in ampc._C._ways()}
KIB, MIB = 1 << 10, 1 << 20
CACHES, THREADS = (128 * KIB, 256 * KIB, 512 * KIB, MIB, 2 * MIB, 64 * MIB), (1, 2, 3, 8, 64)
# Each size and each number of threads once at least; a run draws a third of them.
MACHINES = [(128 * KIB, 1), (256 * KIB, 3), (512 * KIB, 64), (MIB, 2), (2 * MIB, 8), (64 * MIB, 3)]


BETWEEN = HERE[1:-1]
# Between the lowest and the highest instruction set a run has one whole, drawn, and of the others the kernels with a way that needs them.
WHOLE = {HERE[0], OWN, *part(BETWEEN, max(1, len(BETWEEN)))}


def kernels_of(level):
    """None for all."""
    needing = {name for name, way in WAYS.items() if way["needs"] == level}
    return None if level in WHOLE else {case.kernel for case in CASES if needing & {*case.ways}}


def on_level(level, draws=0, kernels=None, **environment):
    """The report of another process, as JSON."""
    cache = str(min(FACTS["l2_bytes"], 2 * MIB))  # beyond the borders of a larger one, operands would not fit a test
    env = {**os.environ, "PYTHONPATH": str(Path(ampc.__file__).parent.parent), "AMPC_CPU": level, "AMPC_L2_BYTES": cache, **environment}
    code = f"from ampc import selftest as s; k = {kernels}; s.CASES = tuple(c for c in s.CASES if not k or c.kernel in k); print(s.selftest(draws={draws}).to_json())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def wrong_in(report):
    return [(r["kernel"], r["dtype"], r["sizes"], r["wrong"]) for r in report["results"] if not r["ok"]]


@pytest.fixture(scope="module")
def levels():
    """Reports on each instruction set that this CPU has, one of them without huge pages."""
    return {level: on_level(level, kernels=kernels_of(level), AMPC_HUGE_PAGES="01"[level != "baseline"], OMP_NUM_THREADS="2") for level in HERE}


@pytest.fixture(scope="module")
def entered(levels):
    """(kernel, the case's ways, one of them) for each that was entered."""
    return {(r["kernel"], tuple(r["claims"]), way) for report in levels.values() for r in report["results"] for way in r["ways"]}


def test_each_way_has_a_case():
    assert {way for case in CASES for way in case.ways} == set(WAYS)


def test_each_way_says_what_it_is():
    for way in WAYS.values():
        assert way["sentence"][0].isupper() and way["sentence"].endswith(".")
        assert way["variable"] in (None, "AMPC_CPU", "AMPC_L2_BYTES", "AMPC_HUGE_PAGES", "OMP_NUM_THREADS")


@pytest.mark.parametrize("way", WAYS)
def test_each_way_is_entered(way, request):
    if not WAYS[way]["reachable"]:
        pytest.skip(f"{way} needs {WAYS[way]['needs']}; this CPU, or this compiler, has {OWN}")
    assert any(way == name for _, _, name in request.getfixturevalue("entered"))


def test_each_claim_is_true(entered):
    """No case claims a way that it enters nowhere."""
    claims = {(case.kernel, case.ways, way) for case in CASES for way in case.ways if WAYS[way]["reachable"]}
    assert not claims - entered


def test_forgetting_and_entering():
    ampc._C._reset_ways()
    assert not any(way["entered"] for way in ampc._C._ways())
    ampc.ones(3, 4) @ ampc.ones(4, 5)
    now = {way["name"] for way in ampc._C._ways() if way["entered"]}
    assert {"product_one_thread", "product_on_stack"} <= now and not any(name.startswith("direct") for name in now)


@pytest.mark.parametrize("level", HERE)
def test_right_on_each_instruction_set(levels, level):
    assert levels[level]["facts"]["isa"] == level and levels[level]["results"]
    assert not wrong_in(levels[level])


def test_instruction_sets_that_a_cpu_lacks_fall_back():
    env = {**os.environ, "PYTHONPATH": str(Path(ampc.__file__).parent.parent), "AMPC_CPU": "amx_fp16"}
    done = subprocess.run([sys.executable, "-c", "import ampc; print(ampc._C._machine()['isa'])"], capture_output=True, text=True, env=env)
    assert done.stdout.strip() == OWN, done.stderr


@pytest.mark.parametrize(("l2_bytes", "threads"), part(MACHINES, 3), ids=lambda n: f"{n // KIB}K" if n >= KIB else f"{n}")
def test_right_at_each_cache_and_number_of_threads(l2_bytes, threads):
    with machine(l2_bytes, threads):
        report = selftest(draws=10, seed=threads)
        assert ampc.get_num_threads() == threads
    assert report.ok and not report.interrupted, str(report)
    assert report.facts["l2_bytes"] == l2_bytes and report.facts["threads"] == threads


@pytest.mark.slow
@pytest.mark.skipif("AMPC_EXAMPLES" not in os.environ, reason="takes minutes: `make soak` runs it")
@pytest.mark.parametrize("level", HERE)
@pytest.mark.parametrize("threads", THREADS)
@pytest.mark.parametrize("l2_bytes", CACHES, ids=lambda n: f"{n // KIB}K")
def test_right_in_all_combinations(level, threads, l2_bytes):
    report = on_level(level, draws=100, AMPC_L2_BYTES=str(l2_bytes), OMP_NUM_THREADS=str(threads))
    assert not wrong_in(report)
