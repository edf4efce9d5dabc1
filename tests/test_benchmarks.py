"""benchmarks/: classes of CPUs, goals, and what the tables say. No speed is asserted here."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import ampc

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "benchmarks"))

import cases  # noqa: E402
import classes  # noqa: E402
import compare  # noqa: E402
import report  # noqa: E402

pytestmark = pytest.mark.cpu
OWN = classes.own_class()
HERE = classes.lower_or_same(OWN) if OWN else []
ENV = {**os.environ, "PYTHONPATH": str(Path(ampc.__file__).parent.parent)}


def run(name, threads=2, own=None, **rounds):
    """Kept rounds of a class, with pairs of seconds of ampc and torch."""
    return {"class": name, "own_class": own or name, "machine": "a CPU", "threads": threads, "torch": "2", "commit": "c" * 40, "date": "2000-01-01 00:00",
            "limits": {"f32_gflop_s": 200.0, "add_gb_s": 10.0, **({"bf16_gflop_s": 800.0} if classes.CLASSES[name].units else {})},
            "limits_of_one": {"f32_gflop_s": 100.0}, "blas": "", "load_before": 0, "load_after": 0,
            "rounds": {case: [{"ampc": a, "torch": b} for a, b in pairs] for case, pairs in rounds.items()}}


def goals(result, name):
    return {goal.text: goal.met for goal in report.goals(result, cases.BY_NAME[name])}


@pytest.mark.parametrize("name", HERE)
def test_ampc_is_held_to_a_class(name):
    cpu = classes.CLASSES[name]
    code = "import ampc; print(ampc._C._machine()['isa'])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env={**ENV, **cpu.environment}, check=True)
    assert done.stdout.strip() == cpu.ampc


@pytest.mark.slow
@pytest.mark.parametrize("name", HERE)
def test_both_libraries_say_that_they_are_held(name, monkeypatch):
    pytest.importorskip("torch")
    monkeypatch.setenv("PYTHONPATH", ENV["PYTHONPATH"])
    said = classes.held_to(classes.CLASSES[name])
    assert said["ATen"] == ("AVX2" if name == "avx2" else "AVX512") and set(said) == {"ampc", "ATen", "oneDNN", "MKL"}


def test_a_library_that_is_not_held_is_noticed(monkeypatch):
    said = {classes._ASK_AMPC: "avx2\n", classes._ASK_TORCH: "onednn_verbose,v1,info,cpu,isa:Intel AVX-512 with Intel DL Boost\naten: AVX2\n"}
    monkeypatch.setattr(classes, "_ask", lambda code, environment: said[code])
    with pytest.raises(RuntimeError, match="not held to avx2: oneDNN says 'Intel AVX-512 with Intel DL Boost'"):
        classes.held_to(classes.CLASSES["avx2"])


@pytest.mark.skipif(not shutil.which("gcc") or not HERE, reason="it needs gcc and AVX2")
def test_limits_of_a_class(tmp_path):
    program = str(tmp_path / "limits")
    subprocess.run(["gcc", "-O1", "-Wall", "-Werror", "-pthread", str(ROOT / "benchmarks" / "limits.c"), "-o", program], check=True)
    for name, cpu in classes.CLASSES.items():
        done = subprocess.run([program, "1", name], capture_output=True, text=True)
        assert (done.returncode == 0) == (name in HERE), done.stderr
        if name in HERE:
            found = json.loads(done.stdout)
            assert found["threads"] == 1 and found["f32_gflop_s"] > 0 and ("bf16_gflop_s" in found) == (cpu.units is not None)
    assert subprocess.run([program, "1", "sse"], capture_output=True).returncode == 2


@pytest.mark.skipif(OWN is None or list(classes.CLASSES) == HERE, reason="this CPU has all classes, or none")
def test_a_class_that_the_cpu_lacks_is_refused():
    lacking = list(classes.CLASSES)[len(HERE)]
    done = subprocess.run([sys.executable, str(ROOT / "benchmarks" / "compare.py"), "--cpu", lacking], capture_output=True, text=True, env=ENV)
    assert done.returncode == 2 and f"this CPU has {OWN.title}; it can be measured as" in done.stderr and "Traceback" not in done.stderr


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", [c.name for c in cases.CASES if c.build and c.amount < 2e9 and not c.name.startswith("phase")])
def test_a_case_runs(name):
    before = ampc.get_num_threads()
    try:
        f = cases.BY_NAME[name].build(ampc)
        f()
        f()
    finally:
        ampc.set_num_threads(before)


def test_names_of_cases():
    assert len(cases.BY_NAME) == len(cases.CASES) + len(cases.MORE)
    for case in cases.BY_NAME.values():
        assert case.in_float32 is None or case.in_float32 in cases.BY_NAME
        assert case.on_one is None or cases.BY_NAME[case.on_one].amount == case.amount
    assert [c for c in report.cases_of(classes.CLASSES["avx2"]) if c.needs_units] == []


def test_old_rounds_have_the_class_of_their_machine():
    results = report.read_rounds()
    old = [r for r in results if "class" not in r]
    assert len(old) >= 18 and {classes.class_of(r).name for r in old} == {"amx", "avx512bf16"}
    assert all(("bf16_gflop_s" in r["limits"]) <= (classes.class_of(r).name == "amx") for r in old)
    for r in results:
        assert r["date"] in "\n".join(report.heading(r)) and report.table(r).count("\n") > 1


def test_goals():
    product, twin = "product-512x64x64-dx", "product-512x64x64-dx-on2"
    slow, fast = 512 * 64 * 64 * 2 / 60e9, 512 * 64 * 64 * 2 / 80e9  # 60 and 80 % of the peak of one thread
    found = run("avx2", **{product: [(slow, slow)], twin: [(slow / 1.7, slow)]})
    assert goals(found, product) == {"at most 0.95": False, "at least 70 % of the limit": False}
    assert goals(found, twin) == {"at most 0.95": True, "at least 1.8 times as fast as on one thread: 1.70": False}
    assert goals(run("avx2", **{product: [(fast, 2 * fast)]}), product) == {"at most 0.95": True, "at least 70 % of the limit": True}
    found["limits"]["f32_gflop_s"] = 150.0  # the machine does not give twice as much
    assert goals(found, twin) == {"at most 0.95": True}


def test_without_units_16_bits_are_compared_with_float32():
    rounds = {"gpt": [(1.0, 1.0)], "gpt-bf16": [(1.1, 9.0)]}
    assert goals(run("avx2", **rounds), "gpt-bf16") == {"at most 1.05 of float32's time: 1.10": False}
    assert goals(run("avx512bf16", **rounds), "gpt-bf16") == {"at most 0.6": True}
    case = cases.BY_NAME["gpt-bf16"]
    assert report.limit_of(run("avx2"), case) == 200 and report.limit_of(run("amx"), case) == 800


def test_torch_that_is_stopped_or_raises():
    found = run("avx2", **{"gpt-bf16": [(1.0, 6.0)], "lstm-bf16": [(1.0, None)], "lstm": [(1.0, 1.0)]})
    found["rounds"]["gpt-bf16"][0]["stopped"] = "torch"
    text = report.table(found)
    assert "| over 6 s | under 0.167 |" in text and "| 1 s | an error |  |  | at most 1.05 of float32's time: 1.00 |" in text
    assert "torch: an error" in report.ratio_table(report.side_by_side([found]))


class Library:
    """Stands in for a server."""

    def __init__(self, answer):
        self.answer, self.calls = answer, 0

    def time(self, name):
        self.calls += 1
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def test_a_library_that_is_lost_is_not_asked_again(monkeypatch):
    monkeypatch.setattr(compare, "SETTLE", 0)
    case, bar = cases.BY_NAME["gpt"], compare.Bar(9)
    ours, theirs = Library(1.0), Library(compare.Stopped())
    assert compare.run_case({"ampc": ours, "torch": theirs}, case, 3, bar) == [{"ampc": 1.0, "torch": compare.PATIENCE, "stopped": "torch"}] * 3
    assert (ours.calls, theirs.calls) == (3, 1)
    theirs = Library(RuntimeError("no primitive"))
    assert compare.run_case({"ampc": ours, "torch": theirs}, case, 2, bar) == [{"ampc": 1.0, "torch": None, "error": "no primitive"}] * 2


@pytest.mark.filterwarnings("ignore")
def test_a_server_answers_and_is_stopped(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", ENV["PYTHONPATH"])
    server = compare.Server("ampc", 1, OWN or classes.CLASSES["avx2"])
    try:
        assert 0 < server.time("add16") < 1 and 0 < server.time("add16") < 1 and 0 < server.time("product-32x64x64-dw") < 1
        monkeypatch.setattr(compare, "PATIENCE", 0.0)
        assert 0 < server.time("mlp64-bf16") < 1  # ampc is waited for
        server.patient = False
        with pytest.raises(compare.Stopped):
            server.time("mlp1024-bf16")
        monkeypatch.undo()
        assert 0 < server.time("add16") < 1  # in a new process
    finally:
        server.close()


def test_classes_side_by_side():
    old, new = run("amx", add16=[(1.0, 2.0)], mlp64=[(1.0, 4.0)]), run("amx", add16=[(3.0, 2.0)])
    lower = run("avx2", own="amx", add16=[(1.0, 10.0)])
    found = report.side_by_side([new, lower, old, run("amx", threads=1, gpt=[(1.0, 1.0)])])
    assert [c.cpu.name for c in found] == ["avx2", "amx"] and found[1].run_of(cases.BY_NAME["gpt"]) is None
    table = report.ratio_table(found)
    assert "| work | AVX2 | AMX |" in table and "| 0.10 | **1.50** |" in table and "|  | 0.25 |" in table
    assert report.on_which_cpu(lower) == "a CPU, which has AMX and was held to AVX2"
    assert report.on_which_cpu(run("avx2")) == "a CPU, which has no more than AVX2"


def test_the_picture_is_drawn(tmp_path):
    pytest.importorskip("matplotlib")
    found = run("avx2", **{"gpt": [(1.0, 1.0), (2.0, 1.0)], "gpt-bf16": [(1.0, 6.0)], "lstm": [(1.0, None)], "add16": [(1.0, 500.0)]})
    path = tmp_path / "results.png"
    assert report.draw(report.side_by_side([found, run("amx", mlp64=[(1.0, 2.0)])]), path) and path.read_bytes()[:4] == b"\x89PNG"
    assert not report.draw(report.side_by_side([run("amx")]), path)
