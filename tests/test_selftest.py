"""`ampc selftest`, and that its cases enter every way through the kernels that this machine can take."""

import json
import os
import subprocess
import sys

import pytest
from machines import machine

import ampc
from ampc.cli import main
from ampc.selftest import running, selftest
from ampc.selftest.cases import CASES

pytestmark = pytest.mark.cpu
CACHES = [128 << 10, 256 << 10, 512 << 10, 1 << 20, 2 << 20, 64 << 20]
KERNELS = sorted({c.kernel for c in CASES})


def results_of(kernel):
    return [r for c in CASES if c.kernel == kernel for dtype in c.dtypes for r in running.run_case(c, dtype, 1)]


SHARED = sorted({c.kernel for c in CASES if c.threads > 1})  # by threads, in cases large enough


@pytest.mark.parametrize("kernel, threads", [*((k, n) for k in KERNELS for n in (1, 3, 8)), *((k, 64) for k in SHARED)])
def test_kernels_at_any_number_of_threads(kernel, threads):
    with machine(32 << 10, CACHES[threads % len(CACHES)], threads=threads):
        assert not [r for r in results_of(kernel) if not r.ok]


@pytest.mark.parametrize("l2", CACHES)
@pytest.mark.parametrize("kernel", KERNELS)
def test_kernels_at_any_size_of_cache(kernel, l2):
    with machine(48 << 10, l2, threads=2):
        assert not [r for r in results_of(kernel) if not r.ok]


def test_each_way_has_a_case():
    """Ways of instruction sets that this CPU lacks, too."""
    known = {w["name"] for w in ampc._C._ways()}
    assert {way for c in CASES for way in c.ways} == known


ENTERED = """
import json, ampc
from ampc.selftest import selftest
report = selftest()
print(json.dumps([sorted({w for r in report.results for w in r.ways}), [str(r) for r in report.wrong]]))
"""


def test_each_way_that_this_machine_can_take_is_entered():
    """On each instruction set that the CPU has; huge pages asked for and not."""
    entered = set()
    for level in [*ampc._C._machine()["lower_levels"], ampc._C._machine()["isa"]]:
        env = {**os.environ, "AMPC_CPU": level, "AMPC_HUGE_PAGES": str(int(level != "baseline")), "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
        done = subprocess.run([sys.executable, "-W", "ignore", "-c", ENTERED], env=env, capture_output=True, text=True, check=True)
        ways, wrong = json.loads(done.stdout.splitlines()[-1])
        assert not wrong
        entered |= set(ways)
    reachable = {w["name"] for w in ampc._C._ways() if w["reachable"]}
    assert reachable <= entered, f"not entered: {sorted(reachable - entered)}"


def test_a_wrong_kernel_is_found(monkeypatch, capsys, tmp_path):
    right = ampc.Tensor.__matmul__

    def wrong(a, b):
        y = right(a, b)
        return y + (y != y) if y.dtype != ampc.float32 else y * (1 + 2.0**-20)

    monkeypatch.setattr(ampc.Tensor, "__matmul__", wrong)
    cases = [c for c in CASES if c.kernel == "product, strided"]
    monkeypatch.setattr("ampc.selftest.report.CASES", cases)
    out = tmp_path / "report.txt"
    assert main(["selftest", "--output", str(out)]) == 1
    text = capsys.readouterr().out
    assert "WRONG: product, strided, float32" in text and "Please send this text" in text
    assert "second level" in out.read_text() and "WRONG" in out.read_text()


def test_the_command(capsys, tmp_path):
    path = tmp_path / "results.json"
    assert main(["selftest", "--seed", "3", "--json", str(path)]) == 0
    assert "Every result lies within its bound." in capsys.readouterr().out
    kept = json.loads(path.read_text())
    assert kept["seed"] == 3 and len(kept["results"]) > len(CASES) and kept["machine"]["l2_bytes"] == ampc._C._machine()["l2_bytes"]


def test_ctrl_c_ends_it_with_what_was_found(monkeypatch):
    calls = []

    def run_case(*args):
        calls.append(args)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return running.run_case(*args)

    monkeypatch.setattr("ampc.selftest.report.run_case", run_case)
    report = selftest()
    assert not report.finished and len(report.results) >= 2 and "interrupted" in str(report)
