"""`ampc first-contact`: it tries everything, whatever fails, and says so in one file. On the simulator with few sizes."""

import argparse
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from where import ON_GPU, SIMULATED, simulated

import ampc
from ampc.cli import first_contact as command
from ampc.cli import main
from ampc.selftest import first_contact as contact

ROOT = Path(__file__).resolve().parent.parent


def parts_of(report):
    """How each part ended, from the file."""
    return dict(re.findall(r"^(\S.*?): (good|left out|FAILED).*\(\d+ s of \d+\)$", report.read_text(), re.M))


@simulated
@pytest.mark.parametrize("way", ["command", "script"])
def test_all_of_it_on_the_simulator(way, tmp_path):
    report = tmp_path / "report.txt"
    start = [sys.executable, "-m", "ampc", "first-contact"] if way == "command" else [str(ROOT / "tools" / "first_contact.sh")]
    done = subprocess.run([*start, "--small", "--output", str(report), "--tests", str(tmp_path)], capture_output=True, text=True, timeout=300,
                          env={**os.environ, "PYTHON": sys.executable})
    text = report.read_text()
    assert done.returncode == 0, text + done.stderr
    parts = parts_of(report)
    wanted = {"ampc info", "CUDA graphs", "speed", "NCCL, one process",
              *(f"{kind}, {name}" for kind in ("products", "convolutions") for name in contact.DTYPES)}
    assert all(parts[name] == "good" for name in wanted) and parts["tests"] == "left out"
    assert "258 products, 0 wrong" in text and "132 convolutions, 0 wrong" in text and "numbers equal" in text and "cuBLASLt      13" in text and "AMP step" in text
    assert text.rstrip().endswith("none failed") and f"the report is in {report}" in done.stdout


@pytest.mark.skipif(ON_GPU, reason="about machines without a GPU")
def test_without_a_gpu(tmp_path, capsys):
    report = tmp_path / "report.txt"
    assert main(["first-contact", "--output", str(report)]) == 2
    parts = parts_of(report)
    assert parts["ampc info"] == "good" and all(how == "left out" for name, how in parts.items() if name not in ("ampc info", "the machine"))
    assert "there is no usable GPU" in capsys.readouterr().out


def test_it_goes_on_after_each_failure(tmp_path, monkeypatch, capsys):
    python = [sys.executable, "-c"]
    monkeypatch.setattr(command, "_look", lambda: command.Found("", True))
    monkeypatch.setattr(command, "_parts", lambda tests, small: [
        command.Part("status", [*python, "print('what was wrong'); raise SystemExit(3)"], 20), command.Part("crash", [*python, "import os; os.abort()"], 20),
        command.Part("hang", [*python, "import subprocess, sys; print('begun', flush=True); subprocess.run([sys.executable, '-c', 'while True: pass'])"], 3),
        command.Part("missing", [str(tmp_path / "nothing")], 20), command.Part("long", [*python, "print('line\\n' * 1000)"], 20),
        command.Part("last", [*python, "print('done')"], 20)])
    report = tmp_path / "report.txt"
    assert main(["first-contact", "--output", str(report)]) == 1
    assert parts_of(report) == {"status": "FAILED", "crash": "FAILED", "hang": "FAILED", "missing": "FAILED", "long": "good", "last": "good"}
    text = report.read_text()
    for said in ("FAILED: exit status 3", "    what was wrong", "FAILED: signal 6", "FAILED: ended after 3 s", "    begun", "No such file", "lines before",
                 "failed: status; crash; hang; missing", "attach it to an issue"):
        assert said in text
    assert text.count("line\n") == command.LINES


@pytest.mark.parametrize("end", ["time.sleep(99)", "os.abort()"])
def test_what_hangs_or_crashes_is_named(end, tmp_path, monkeypatch, capsys):
    """The product at which a part ended; those before it fill no report."""
    code = (f"import os, time; from ampc.selftest import first_contact as c; c._check = lambda case, *_: case.n == 3 and {end} or ''; "
            "c.Numbers = lambda *_: None; c.main(['products', 'float16', '--small'])")
    monkeypatch.setattr(command, "_look", lambda: command.Found("", True))
    monkeypatch.setattr(command, "_parts", lambda tests, small: [command.Part("products", [sys.executable, "-c", code], 5)])
    report = tmp_path / "report.txt"
    assert main(["first-contact", "--output", str(report)]) == 1
    text = report.read_text()
    assert "it ended in: float16: 1 x 3 x 1, no bias, offset 0" in text and "1 x 1 x 1" not in text


@simulated
def test_a_simulated_gpu_gets_few_sizes(tmp_path, monkeypatch, capsys):
    small = []
    monkeypatch.setattr(command, "_parts", lambda tests, less: small.append(less) or [])
    assert main(["first-contact", "--output", str(tmp_path / "report.txt")]) == 0
    assert small == [True] and "the GPU is simulated" in capsys.readouterr().out


def test_a_driver_that_ends_the_process_is_told(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(command, "_run", lambda ask, limit, run=command._run: run([sys.executable, "-c", "import os; os.abort()"], limit))
    assert command._look() == command.Found("looking for it failed: signal 6")
    monkeypatch.setattr(command, "_parts", lambda tests, small: [command.Part("some", [sys.executable], 20)])
    assert main(["first-contact", "--output", str(tmp_path / "report.txt")]) == 2
    assert "there is no usable GPU: looking for it failed: signal 6" in capsys.readouterr().out and "some: left out" in (tmp_path / "report.txt").read_text()


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs a file that is always full")
def test_a_full_disk_leaves_the_terminal(monkeypatch, capsys):
    monkeypatch.setattr(command, "_look", lambda: command.Found("", True))
    monkeypatch.setattr(command, "_parts", lambda tests, small: [command.Part("some", [sys.executable, "-c", "print('said')"], 20)])
    assert main(["first-contact", "--output", "/dev/full"]) == 1
    said = capsys.readouterr().out
    assert "the report cannot be written any more" in said and "some: good" in said and "    said\n" in said and "not complete" in said


def test_a_process_that_does_not_die_is_left(tmp_path, monkeypatch):
    """As one that waits for a driver that hangs: here it has left the group that is ended."""
    monkeypatch.setattr(command, "PATIENCE", 0.2)
    code = "import subprocess, sys; print('begun', flush=True); subprocess.run([sys.executable, '-c', 'import time; time.sleep(4)'], start_new_session=True)"
    how, output = command._run([sys.executable, "-c", code], 2)
    assert how == "FAILED: ended after 2 s" and "begun" in output and "does not end" in output


def test_no_part_begins_when_the_time_is_over(tmp_path, monkeypatch):
    monkeypatch.setattr(command, "_parts", lambda tests, small: [command.Part("first", [sys.executable, "-c", ""], 20)])
    report = tmp_path / "report.txt"
    main(["first-contact", "--output", str(report), "--minutes", "0"])
    assert parts_of(report) == {"first": "left out"} and ("no time is left" in report.read_text() or not ON_GPU)


def test_the_folder_of_tests_is_found(tmp_path, monkeypatch):
    assert command._tests_near(str(ROOT / "tests")) == str(ROOT / "tests") and command._tests_near(str(tmp_path)) is None
    suites = next(part for part in command._parts(str(ROOT / "tests"), False) if part.name == "tests")
    assert all(os.path.exists(name) for name in suites.command if name.endswith(".py"))
    assert any(part.command[1:] and part.command[1].endswith("gpu.py") for part in command._parts(str(ROOT / "tests"), False))


@pytest.mark.skipif(not SIMULATED, reason="computes on the simulated GPU")
def test_wrong_products_and_failing_ones_are_told(monkeypatch, capsys):
    right, calls = contact.nn.functional.linear, []

    def wrong(x, w, bias):
        calls.append(1)
        if len(calls) == 3:
            raise RuntimeError("a library's own words")
        return right(x, w, bias) + (len(calls) == 5)

    monkeypatch.setattr(contact.nn.functional, "linear", wrong)
    assert contact.products("float32", (1, 3)) == 2
    said = capsys.readouterr().out
    assert "RuntimeError: a library's own words" in said and re.search(r"float32: 1 x 3 x 1, bias, offset 0: 3 of 3 values are wrong; at \[0, 0\]: ", said)
    assert "float32: 34 products, 2 wrong" in said


@pytest.mark.skipif(not SIMULATED, reason="computes on the simulated GPU")
def test_a_graph_that_gives_other_numbers_is_told(monkeypatch, capsys):
    real = ampc.cuda.CUDAGraph.replay
    monkeypatch.setattr(ampc.cuda.CUDAGraph, "replay", lambda self: (real(self), ampc.manual_seed(0))[0])
    assert contact.graphs(6) > 0 and "the numbers differ from step" in capsys.readouterr().out


def test_arguments():
    parser = argparse.ArgumentParser()
    command.add_first_contact(parser.add_subparsers(dest="command"))
    args = parser.parse_args(["first-contact"])
    assert args.output == "first-contact.txt" and args.minutes == 10 and not args.small and args.tests is None


def test_a_report_that_cannot_be_written(tmp_path, capsys):
    """Told before the parts run: what is in the way, and what to do."""
    for where, why in ((tmp_path / "none" / "x.txt", f"there is no folder {tmp_path / 'none'}; make it, or name another file"), (tmp_path, "it is a folder; name another file")):
        assert main(["first-contact", "--output", str(where)]) == 2
        assert f"{where} cannot be written: {why}" in capsys.readouterr().err
