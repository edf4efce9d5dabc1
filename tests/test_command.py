"""The command `ampc`: what it cannot do it says in one line, with an exit status that tells it from what it was asked."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import ampc

ROOT = Path(ampc.__file__).parent.parent
COMMANDS = [["info"], ["demo"], ["run", "x.py"], ["check", "x.py"], ["advise", "x.py"], ["replay", "x", "--script", "x.py"], ["formats"], ["bench"], ["selftest"]]


def command(*args, stdout=subprocess.PIPE, **environment):
    env = {**os.environ, "PYTHONPATH": str(ROOT), **environment}
    return subprocess.run([sys.executable, "-m", "ampc_command", *args], stdout=stdout, stderr=subprocess.PIPE, text=True, env=env, timeout=300)


@pytest.mark.parametrize("name, value", [("AMPC_L2_BYTES", "abc"), ("AMPC_CPU", "foo"), ("AMPC_CORES", "0"), ("AMPC_HUGE_PAGES", "2"), ("AMPC_GUARD", "foo"),
                                         ("AMPC_DOCTOR", "foo")])
@pytest.mark.parametrize("args", [["info"], ["selftest"]], ids=" ".join)
def test_wrong_settings(args, name, value):
    done = command(*args, **{name: value})
    assert done.returncode == 2 and done.stdout == "" and done.stderr.count("\n") == 1
    assert done.stderr.startswith(f"ampc: {name} is {value}; expected ")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no such device here")
@pytest.mark.parametrize("args", [["info"], ["formats"], ["selftest"]], ids=" ".join)
def test_output_that_cannot_be_written(args):
    with open("/dev/full", "w") as full:
        done = command(*args, stdout=full)
    assert done.returncode == 2 and "No space left on device" in done.stderr and done.stderr.count("\n") == 1


@pytest.mark.parametrize("args", [["selftest", "--output"], ["selftest", "--json"], ["bench", "--json"], ["bench", "--picture"], ["advise", "x.py", "--policy"],
                                  ["demo", "--out"]], ids=" ".join)
def test_files_that_cannot_be_written_are_told_first(args, tmp_path):
    (tmp_path / "file").write_text("")
    done = command(*args[:1], *args[-1:], str(tmp_path / "file" / "x"), *args[1:-1])
    assert done.returncode in (1, 2) and "Not a directory" in done.stderr and done.stderr.count("\n") == 1 and done.stdout == ""


def test_a_look_at_a_file_leaves_no_trace(tmp_path):
    from ampc.cli._common import must_be_writable

    kept = tmp_path / "kept"
    kept.write_text("old")
    must_be_writable(str(kept), str(tmp_path / "new"), None, os.devnull)
    assert kept.read_text() == "old" and sorted(p.name for p in tmp_path.iterdir()) == ["kept"]


@pytest.mark.parametrize("args", COMMANDS, ids=lambda args: args[0])
def test_unknown_options_tell_the_subcommands_usage(args):
    if args[0] in ("run", "advise"):
        args = args[:1]  # what follows the script is the script's
    done = command(args[0], "--nonsense", *args[1:])
    assert done.returncode == 2 and done.stderr.startswith(f"usage: ampc {args[0]} ")


@pytest.mark.parametrize("args, says", [(["demo", "--epochs", "0"], "1 or more"), (["demo", "--device", "tpu"], "'tpu' is not a device")], ids=" ".join)
def test_demo_says_what_it_cannot_do(args, says):
    done = command(*args)
    assert done.returncode == 2 and says in done.stderr and done.stderr.count("\n") == 1


def test_ctrl_c(monkeypatch, capsys):
    import ampc.cli

    def stops():
        raise KeyboardInterrupt

    monkeypatch.setattr(ampc.cli, "info", stops)
    assert ampc.cli.main(["info"]) == 130 and "stopped by hand" in capsys.readouterr().err
