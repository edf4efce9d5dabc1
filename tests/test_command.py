"""The command `ampc`: what it cannot do it says in one line, with an exit status that tells it from what it was asked."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import ampc

ROOT = Path(ampc.__file__).parent.parent
COMMANDS = [["info"], ["demo"], ["run", "x.py"], ["check", "x.py"], ["advise", "x.py"], ["replay", "x", "--script", "x.py"], ["formats"], ["bench"], ["selftest"], ["first-contact"]]


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


@pytest.mark.parametrize("args", [["bench", "--json"], ["first-contact", "--output"]], ids=" ".join)
def test_a_missing_folder_is_named(args, tmp_path):
    done = command(*args, str(tmp_path / "there" / "x"))
    assert done.returncode in (1, 2) and f"there is no folder {tmp_path / 'there'}; make it" in done.stderr and done.stderr.count("\n") == 1


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


@pytest.mark.parametrize("name", ["run", "advise"])
def test_a_program_is_wanted_and_its_arguments_are_not(name):
    assert "arguments are required: " in command(name).stderr and ", args" not in command(name).stderr


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


# -- ampc info ----------------------------------------------------------------------------------------------------------


def row(name, **environment):
    done = command("info", **environment)
    assert done.returncode == 0
    return next(line[14:] for line in done.stdout.splitlines() if line.startswith(f"{name} ")), done.stderr


FACTS = ampc._C._machine()
LEVELS = ["baseline", "avx2", "avx512", "avx512_bf16", "amx_bf16", "amx_fp16"]


@pytest.mark.cpu
@pytest.mark.skipif(FACTS["asked"] != FACTS["isa"] or FACTS["cpu"] != FACTS["isa"], reason="AMPC_CPU is set")
@pytest.mark.parametrize("level", LEVELS)
def test_info_tells_the_cpu_from_what_was_asked(level):
    said = row("CPU features", AMPC_CPU=level)[0]
    own, here = LEVELS.index(FACTS["cpu"]), LEVELS.index(level)
    assert said == (f"{level} (set by AMPC_CPU; this CPU has {FACTS['cpu']})" if here < own else f"{level} (set by AMPC_CPU)" if here == own
                    else f"{FACTS['cpu']} (AMPC_CPU asks for {level}, which this CPU lacks)")


@pytest.mark.parametrize("asked, got, warns", [("3", "3", ""), ("4,2", "4", ""), (" 2 ", "2", ""), ("257", "256", "256 threads, the most"), ("abc", None, "no number of threads"),
                                               ("0", None, "no number"), ("-3", None, "no number"), ("2x", None, "no number"), ("99999999999999999999", "256", "most")])
def test_numbers_of_threads(asked, got, warns):
    said, stderr = row("threads", OMP_NUM_THREADS=asked)
    assert said == f"{got} (set by OMP_NUM_THREADS)" if got else said.endswith("can set it)")
    assert (f"RuntimeWarning: OMP_NUM_THREADS is {asked}" in stderr and warns in stderr) if warns else stderr == ""


def test_threads_that_a_call_sets():
    from ampc._process.installation import info

    before = ampc.get_num_threads()
    try:
        ampc.set_num_threads(before + 1)
        assert f"{before + 1} (set by ampc.set_num_threads)" in info()
        with pytest.warns(RuntimeWarning, match="256 threads are the most there can be, got 1000"):
            ampc.set_num_threads(1000)
        assert ampc.get_num_threads() == 256
    finally:
        ampc.set_num_threads(before)
    assert "set by ampc.set_num_threads" not in info()


def test_caches_of_odd_sizes():
    assert row("cache", AMPC_L2_BYTES="1000000001")[0] == "1000000001 bytes of second level (set by AMPC_L2_BYTES)"
    assert row("cache", AMPC_L2_BYTES="1310720")[0] == "1280 KiB of second level (set by AMPC_L2_BYTES)"


def test_the_version_and_what_the_bare_command_says():
    for arguments, said in (["--version"], f"ampc {ampc.__version__}\n"), ([], "ampc run train.py"), (["--help"], "ampc run train.py"):
        got = subprocess.run([sys.executable, "-m", "ampc", *arguments], capture_output=True, text=True)
        assert (got.returncode, got.stderr) == (0, "") and said in got.stdout


@pytest.mark.parametrize("units", [(), ("bfloat16",), ("bfloat16", "float16")], ids=str)
def test_the_demo_says_whether_16_bits_pay_here(units, monkeypatch):
    from ampc.cli import _step_times

    class Core:
        bfloat16, float16 = "bfloat16", "float16"

        @staticmethod
        def _has_units(dtype):
            return dtype in units

    monkeypatch.setattr(ampc, "_C", Core)
    said = _step_times.in_words({"float32": 0.02, "bfloat16": 0.01, "float16": 0.015})
    assert {(): "no units for 16-bit products", ("bfloat16",): "a step takes 0.50 of float32's time. It has no units for float16",
            ("bfloat16", "float16"): "units for bfloat16 and float16: a step takes 0.50 and 0.75 of float32's"}[units] in said


def test_the_steps_of_the_demo_are_timed(monkeypatch):
    from ampc.cli import _step_times

    monkeypatch.setattr(_step_times, "WIDTH", 16)
    seconds = _step_times.measure(("float32", "bfloat16", "float16"))
    assert all(s > 0 for s in seconds.values()) and _step_times.table(seconds).count("\n") == 3


@pytest.mark.parametrize("name", ["", *(args[0] for args in COMMANDS)])
def test_the_examples_in_help_are_commands(name):
    """Every subcommand's help ends with examples, each on a line of its own, which the command line reads."""
    import shlex

    from ampc.cli import make_parser

    parser = make_parser()
    commands = parser._subparsers._group_actions[0].choices
    assert set(commands) == {args[0] for args in COMMANDS}
    text = (commands[name] if name else parser).format_help()
    rows = [line.strip() for line in text.split("\nexamples:\n")[1].split("\n\n")[0].splitlines()]
    assert max(map(len, rows)) <= 118 and text.count("\n\n\n") == 0
    for row in rows:
        words = [w for w in shlex.split(row.split("  ")[0]) if not w.startswith("AMPC_")]
        assert words[0] == "ampc" and words[1] == (name or words[1])
        assert parser.parse_args(words[1:]).command == words[1]


ALL_OF_IT = "; `AMPC_CUDA=1 pip install .` in the source folder"
LATER = ", once the CUDA toolkit with nvcc is installed"


@pytest.mark.parametrize("note, core, nvcc, said", [
    ("75 80 90 100 120", "built", False, "built for sm_75, sm_80, sm_90, sm_100, sm_120, and as PTX for what is newer"),
    ("90", "built", True, f"built for sm_90, and as PTX for what is newer{ALL_OF_IT} adds sm_75, sm_80, sm_100, sm_120"),
    ("90", "built", False, f"built for sm_90, and as PTX for what is newer{ALL_OF_IT} adds sm_75, sm_80, sm_100, sm_120{LATER}"),
    ("left out", "not built", True, f"none: GPU code was left out when this was built (AMPC_CUDA=0){ALL_OF_IT} builds it"),
    ("left out", "not built", False, f"none: GPU code was left out when this was built (AMPC_CUDA=0){ALL_OF_IT} builds it{LATER}"),
    ("no nvcc", "not built", False, f"none: nvcc was not found when this was built{ALL_OF_IT} builds it{LATER}"),
    ("nvcc failed", "not built", True, f"none: nvcc failed when this was built; the build's output says why{ALL_OF_IT} builds it"),
    ("no lzma", "not built", True, f"none: GPU code needs a Python with the module lzma, and the one that built this lacks it{ALL_OF_IT} builds it"),
    ("75 80", "not built", True, "not built"), (None, "built", True, "built")], ids=str)
def test_info_tells_a_build_without_gpu_code_from_a_missing_nvcc(note, core, nvcc, said, monkeypatch, tmp_path):
    from ampc._process import installation as _installation

    (tmp_path / "_libs").mkdir()
    if note is not None:
        (tmp_path / "_libs" / "gpu_code.txt").write_text(note + "\n")
    monkeypatch.setattr(_installation, "__file__", str(tmp_path / "_process" / "installation.py"))
    monkeypatch.setattr(_installation.shutil, "which", lambda name: name if nvcc else None)
    assert _installation._gpu_code(core) == said


def test_get_arch_list(monkeypatch):
    from ampc._process.installation import _built_for

    monkeypatch.setattr(ampc.cuda, "is_available", lambda: False)
    assert ampc.cuda.get_arch_list() == []  # as torch
    monkeypatch.setattr(ampc.cuda, "is_available", lambda: True)
    assert ampc.cuda.get_arch_list() == [f"sm_{n}" for n in _built_for() if n.isdigit()]


def test_info_says_which_gpu_code_this_build_has():
    from ampc._process.installation import _built_for

    said, built = row("GPU kernels")[0], ampc._C._cuda_note("kernels").startswith("built")
    assert _built_for() != ("unknown",) and said.startswith("built for sm_" if built else "none: ")
