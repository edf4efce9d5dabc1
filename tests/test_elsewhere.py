"""Unusual machines, locales, limits and ways to start Python. `tools/elsewhere.py` tries those that need root or other installations."""

import errno
import os
import subprocess
import sys
import textwrap

import pytest

import ampc

pytestmark = pytest.mark.cpu


def python(code, *options, shell=None, **env):
    """A process of its own; with `shell`, started by that command, in which $PYTHON is what to run."""
    command = [sys.executable, *options, "-c", textwrap.dedent(code)]
    if shell:
        command = ["sh", "-c", shell.replace("$PYTHON", '"$@"'), "sh", *command]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, env={**os.environ, **env})


def passes(done):
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


# -- locales ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def decimal_comma(tmp_path_factory):
    """The environment and the name of a locale that writes 0,5 for 0.5: one that the system has, or one that is made."""
    code = "import locale; locale.setlocale(locale.LC_ALL, {0!r}); assert locale.localeconv()['decimal_point'] == ','"
    folder = tmp_path_factory.mktemp("locales")
    try:
        subprocess.run(["localedef", "-i", "de_DE", "-f", "UTF-8", str(folder / "de_DE.UTF-8")], capture_output=True)
    except OSError:
        pass
    for env in ({}, {"LOCPATH": str(folder)}):
        for name in ("de_DE.UTF-8", "de_DE.utf8", "fr_FR.UTF-8"):
            if python(code.format(name), **env).returncode == 0:
                return env, name
    pytest.skip("no locale with a decimal comma, and none can be made")


@pytest.mark.parametrize("when", ["before", "after"])
def test_numbers_of_the_table_have_points_in_every_locale(decimal_comma, when):
    """Defaults of operators, such as dropout's 0.5, are texts in the table that the core reads when it is imported."""
    env, name = decimal_comma
    change = f"import locale; locale.setlocale(locale.LC_ALL, {name!r})"
    first, second = (change, "import ampc") if when == "before" else ("import ampc", change)
    out = passes(python(f"""
        {first}
        {second}
        core = ampc._C._functions
        print(core["hardshrink"](ampc.tensor([0.25, 0.75])).tolist(), core["softshrink"](ampc.tensor([0.75])).tolist(), ampc.tensor([0.5]))
        mean, var = ampc.zeros(1), ampc.ones(1)
        core["batch_norm"](ampc.tensor([[2.0], [4.0]]), mean, var, training=True)
        print(mean.item() == ampc.tensor(0.1 * 3).item())
    """, **env))
    assert out.splitlines() == ["[0.0, 0.75] [0.25] tensor([0.5000])", "True"]


def test_numbers_in_errors_have_points_in_every_locale(decimal_comma):
    env, name = decimal_comma
    out = passes(python(f"""
        import locale, ampc
        locale.setlocale(locale.LC_ALL, {name!r})
        try:
            ampc.nn.functional.smooth_l1_loss(ampc.zeros(1), ampc.zeros(1), beta=-0.5)
        except (RuntimeError, ValueError) as error:
            print(error)
        print(locale.localeconv()["decimal_point"], locale.format_string("%.1f", 0.5))
    """, **env))
    assert "-0.5" in out and "-0,5" not in out and out.splitlines()[-1] == ", 0,5"


def test_defaults_of_the_table_are_what_it_says():
    """Read by the core's own reader of numbers, rounded as Python rounds them."""
    F = ampc._C._functions
    x = ampc.tensor([2.0], dtype=ampc.float64)
    assert F["hardshrink"](ampc.tensor([0.5, 0.5000001])).tolist() == [0.0, ampc.tensor(0.5000001).item()]
    assert F["leaky_relu"](-x).item() == -2 * 0.01
    assert F["batch_norm"](x.view(1, 1), ampc.zeros(1, dtype=ampc.float64), ampc.zeros(1, dtype=ampc.float64))[0].item() == pytest.approx(
        2 / 1e-5 ** 0.5, rel=2**-50)


def test_reports_where_the_output_knows_ascii_alone():
    out = passes(python("import ampc.cli; ampc.cli.main(['info']); print(ampc.tensor([0.5]), ampc.nn.Linear(2, 3))", PYTHONIOENCODING="ascii", LC_ALL="C"))
    assert "CPU features" in out and "tensor([0.5000])" in out


@pytest.mark.skipif(os.name == "nt", reason="links and a locale of POSIX")
@pytest.mark.parametrize("env", [{}, {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}], ids=["utf8", "ascii"])
def test_folders_with_any_letters(tmp_path, env):
    """Paths reach the core, and files, as the system has them, also where the locale cannot read their letters."""
    folder = tmp_path / "\u00e9t\u00e9 \u4e2d '"
    folder.mkdir()
    os.symlink(os.path.dirname(ampc.__file__), folder / "ampc")
    out = passes(python(f"""
        import os, sys
        folder = os.fsdecode({os.fsencode(folder)!r})
        sys.path.insert(0, folder)
        import ampc
        assert ampc.__file__.startswith(folder)
        path = os.path.join(folder, "file")
        ampc.save(ampc.ones(3, 3), path)
        print(ampc.load(path).sum().item())
    """, PYTHONPATH="", **env))
    assert out == "9.0\n"


# -- files ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [errno.EINVAL, errno.ENOTSUP, errno.ENOSYS])
def test_saving_where_nothing_can_be_synced(tmp_path, monkeypatch, number):
    def fails(handle):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", fails)
    ampc.save(ampc.ones(3), tmp_path / "file")
    assert ampc.load(tmp_path / "file").sum().item() == 3 and os.listdir(tmp_path) == ["file"]


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_file_that_cannot_be_saved_leaves_the_old_one(tmp_path, monkeypatch, call):
    ampc.save(ampc.ones(3), tmp_path / "file")

    def fails(*args):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, call, fails)
    with pytest.raises(OSError) as e:
        ampc.save(ampc.zeros(3), tmp_path / "file")
    assert e.value.errno == errno.EIO
    assert ampc.load(tmp_path / "file").sum().item() == 3 and os.listdir(tmp_path) == ["file"]


@pytest.mark.skipif(os.name == "nt", reason="limits of POSIX")
def test_a_disk_without_room_is_an_error_of_the_system(tmp_path):
    """safetensors has an exception of its own for it; here it is the OSError that open() would give."""
    out = passes(python(f"""
        import errno, os, resource, signal
        import ampc, ampc.serialization
        os.chdir({str(tmp_path)!r})
        ampc.save(ampc.ones(3), "file")
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, resource.RLIM_INFINITY))
        try:
            ampc.save(ampc.zeros(1 << 20), "file")
        except OSError as e:
            print(e.errno == errno.EFBIG, ampc.load("file").sum().item(), os.listdir("."))
    """))
    assert out == "True 3.0 ['file']\n"


# -- interpreters ---------------------------------------------------------------------------------------------


def test_a_python_whose_gil_is_off_is_refused():
    done = python("import sys; sys._is_gil_enabled = lambda: False; import ampc")
    assert done.returncode == 1 and "ImportError: ampc needs the GIL" in done.stderr and "PYTHON_GIL=0" in done.stderr


def test_a_subinterpreter_is_refused_and_harms_nothing():
    out = passes(python("""
        import sys
        try:
            import _interpreters as sub
        except ImportError:
            try:
                import _xxsubinterpreters as sub
            except ImportError:
                sys.exit(print("none"))
        code = '''
        try:
            import ampc
        except ImportError as e:
            assert "main interpreter" in str(e) or "subinterpreters" in str(e), e
        else:
            raise AssertionError("imported")
        '''
        import textwrap
        def attempt():
            id = sub.create("legacy") if sys.version_info >= (3, 13) else sub.create(**({"isolated": False} if sys.version_info >= (3, 9) else {}))
            trouble = sub.run_string(id, textwrap.dedent(code))
            assert trouble is None, trouble
            sub.destroy(id)
        attempt()
        import ampc
        attempt()
        print(ampc.ones(3).sum().item())
    """))
    assert out.strip() in ("3.0", "none")


@pytest.mark.parametrize("options", [["-OO"], ["-I"], ["-X", "dev"], ["-W", "error"]], ids=" ".join)
def test_options_of_python(options):
    if options == ["-I"] and "PYTHONPATH" in os.environ:
        code = f"import sys; sys.path.insert(0, {os.path.dirname(os.path.dirname(ampc.__file__))!r})\n"
    else:
        code = ""
    out = passes(python(code + "import ampc, ampc.doctor, ampc.keras, ampc.training, ampc.testing, ampc.utils.data\n"
                        "x = ampc.ones(3, requires_grad=True); (x * x).sum().backward(); print(x.grad.tolist())", *options))
    assert out == "[2.0, 2.0, 2.0]\n"


def test_a_core_that_is_missing_or_cannot_be_loaded(tmp_path):
    """The message tells the two apart."""
    import shutil

    here = os.path.dirname(ampc.__file__)
    (tmp_path / "ampc").mkdir()
    shutil.copy(os.path.join(here, "__init__.py"), tmp_path / "ampc")
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import ampc"
    missing = python(code, "-I", "-S")  # without what installations in place add to the search
    assert f"not built for {sys.implementation.name} {sys.version_info[0]}.{sys.version_info[1]}" in missing.stderr
    (tmp_path / "ampc" / os.path.basename(ampc._C.__file__)).write_bytes(b"no library")
    damaged = python(code, "-I", "-S")
    assert damaged.returncode == 1 and "not built" not in damaged.stderr and os.path.basename(ampc._C.__file__) in damaged.stderr


# -- streams --------------------------------------------------------------------------------------------------


@pytest.mark.skipif(os.name == "nt", reason="pipes end differently there")
@pytest.mark.parametrize("command", [["info"], ["--help"], ["formats"], ["check", "--help"]], ids=" ".join)
def test_the_reader_of_a_pipe_may_leave(command):
    """`ampc info | head -3`: no traceback, from the command or from Python's end."""
    read, write = os.pipe()
    os.close(read)
    env = {k: v for k, v in os.environ.items() if k != "PYTHONUNBUFFERED"}
    with os.fdopen(write, "w") as out:
        done = subprocess.run([sys.executable, "-m", "ampc", *command], stdout=out, stderr=subprocess.PIPE, text=True, timeout=120, env=env)
    assert done.stderr == "" and done.returncode == 1


@pytest.mark.skipif(os.name == "nt", reason="pipes end differently there")
@pytest.mark.parametrize("command", [["advise", "--steps", "2", "train.py"], ["bench", "mlp", "--batch", "1", "--steps", "2"]], ids=lambda c: c[0])
def test_the_reader_may_leave_where_output_is_not_kept(command, tmp_path):
    """With PYTHONUNBUFFERED the error comes where the command prints, not at its end."""
    (tmp_path / "train.py").write_text("import torch\nw = torch.ones(2, requires_grad=True)\nopt = torch.optim.SGD([w], lr=0.1)\n"
                                       "for _ in range(4):\n    w.sum().backward()\n    opt.step()\n")
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "w") as out:
        done = subprocess.run([sys.executable, "-m", "ampc", *command], stdout=out, stderr=subprocess.PIPE, text=True, timeout=120, cwd=tmp_path,
                              env={**os.environ, "PYTHONUNBUFFERED": "1"})
    stages = [line.startswith(("train.py, 2 steps: ", "mlp: ")) for line in done.stderr.splitlines()]
    assert stages and all(stages) and done.returncode == 1, done.stderr


def test_another_broken_pipe_of_a_command_is_told(monkeypatch):
    """Not every BrokenPipeError is about standard output."""
    import ampc.cli

    def breaks(argv):
        raise BrokenPipeError("a socket")

    monkeypatch.setattr(ampc.cli, "_run", breaks)
    with pytest.raises(BrokenPipeError, match="a socket"):
        ampc.cli.main(["info"])


@pytest.mark.skipif(os.name == "nt", reason="a POSIX shell")
def test_a_process_without_standard_streams(tmp_path):
    out = tmp_path / "out"
    done = python(f"""
        import sys
        assert sys.stdout is None and sys.stderr is None
        import ampc
        from ampc._messages.progress import Progress
        from ampc.cli.demo import Bar
        assert list(Progress([1, 2], "work")) == [1, 2]
        Bar(1)("float32", 1, 0.5)
        ampc.cli.main(["info"])
        open({str(out)!r}, "w").write("done")
    """.replace("import ampc\n", "import ampc, ampc.cli\n"), shell="exec $PYTHON <&- >&- 2>&-")
    assert done.returncode == 0 and out.read_text() == "done"


def test_a_bar_fits_a_narrow_terminal(monkeypatch):
    import io

    from ampc.cli.demo import Bar

    class Terminal(io.StringIO):
        def isatty(self):
            return True

    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("COLUMNS", "40")
    bar = Bar(2)
    bar("bfloat16", 1, 0.25)
    bar("bfloat16", 2, 0.125)
    lines = terminal.getvalue().split("\r")
    assert len(lines) == 3 and all(len(line.rstrip("\n")) <= 39 for line in lines) and lines[-1].endswith("\n")


# -- limits ---------------------------------------------------------------------------------------------------


WORK = """
import ampc
F = ampc.nn.functional
x, w = ampc.randn(2, 32, 24, 24, requires_grad=True), ampc.randn(48, 32, 3, 3, requires_grad=True)
q = ampc.randn(4, 200, 32, requires_grad=True)
total = F.conv2d(x, w, padding=1).sum() + F.scaled_dot_product_attention(q, q, q).sum() + ampc.nn.LSTM(32, 40)(q)[0].sum()
total = total + (q.half() @ q.half().mT).float().sum() + (q.bfloat16() @ q.bfloat16().mT).float().sum() + F.max_pool2d(x, 2).sum()
total.backward()
assert ampc.isfinite(total) and ampc.isfinite(w.grad).all()
print("done")
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="limits of Linux")
@pytest.mark.parametrize("limit", ["ulimit -S -s 128", "ulimit -n 32"])
def test_work_under_limits(limit):
    """Small stacks, which threads that ask for no size would get, and few open files."""
    assert passes(python(WORK, shell=f"{limit}; exec $PYTHON", OMP_NUM_THREADS="4")) == "done\n"


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="/proc")
def test_opening_openblas_starts_no_threads():
    """It would start one a core, which raises SIGINT where the system gives none; and the variable that stops it is put back."""
    out = passes(python("""
        import os, ampc
        os.environ["OPENBLAS_NUM_THREADS"] = "3"
        x = ampc.ones(8, 8, dtype=ampc.float64)
        print((x @ x).sum().item(), len(os.listdir("/proc/self/task")), os.popen("echo $OPENBLAS_NUM_THREADS").read())
    """, OMP_NUM_THREADS="1"))
    assert out.split() == ["512.0", "1", "3"]
