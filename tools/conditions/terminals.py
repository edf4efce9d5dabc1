"""Locales, output streams, and processes that start others."""

from __future__ import annotations

import os
import shlex
import sys
import tempfile

from conditions import (
    CONDITIONS,
    KEPT,
    LOADER,
    PRINTED,
    ROOT,
    WORK,
    Condition,
    Skipped,
    as_script,
    condition,
    need,
    passes,
    python,
    run,
    simple,
    trains,
)

simple("Locales", "c_locale", "`LC_ALL=C`, no UTF-8", env={"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"})
simple("Locales", "posix_locale", "`LC_ALL=POSIX`", env={"LC_ALL": "POSIX"})


def with_comma(code: str) -> None:
    """Trains in a locale that writes 0,5 for 0.5, which localedef makes."""
    need("localedef")
    folder = KEPT / "locales"
    folder.mkdir(parents=True, exist_ok=True)
    run(["localedef", "-i", "de_DE", "-f", "UTF-8", str(folder / "de_DE.UTF-8")])
    env = {"LOCPATH": str(folder), "LC_ALL": "de_DE.UTF-8"}
    if python("import locale; locale.setlocale(locale.LC_ALL, ''); assert locale.localeconv()['decimal_point'] == ','", env=env).returncode:
        raise Skipped("localedef cannot make a locale with a decimal comma")
    more = r"""
import os, tempfile
with tempfile.TemporaryDirectory() as folder:
    ampc.save({"lr": 0.125, "x": ampc.tensor([0.5])}, os.path.join(folder, "f"))
    assert ampc.load(os.path.join(folder, "f")) == {"lr": 0.125, "x": ampc.tensor([0.5])} or ampc.load(os.path.join(folder, "f"))["lr"] == 0.125
assert ampc._C._functions["hardshrink"](ampc.tensor([0.25, 0.75])).tolist() == [0.0, 0.75]
"""
    trains(python(code + PRINTED + more, env=env))


@condition("Locales", "a locale with decimal comma, chosen before the import")
def comma_before() -> None:
    with_comma("import locale; locale.setlocale(locale.LC_ALL, '')\n")


@condition("Locales", "a locale with decimal comma, chosen after the import")
def comma_after() -> None:
    with_comma("import ampc, locale; locale.setlocale(locale.LC_ALL, '')\n")


COMMANDS = WORK + r"""
import ampc.cli
for words in (["info"], ["formats"], ["demo", "--epochs", "1"]):
    assert ampc.cli.main(words) in (0, None), words
"""


def commands(name: str, text: str, **how: object) -> None:
    """Registers a condition for commands that print tables, reports and progress bars."""
    def attempt() -> str:
        with tempfile.TemporaryDirectory() as folder:
            passes(python(COMMANDS, cwd=folder, **how))  # type: ignore[arg-type]
        return "commands print their whole output"
    CONDITIONS.append(Condition(name, "Terminals", text, attempt))


commands("ascii_output", "the output's encoding is ASCII", env={"PYTHONIOENCODING": "ascii", "LC_ALL": "C"})
commands("no_term", "`TERM` is not set", env={"TERM": None})
commands("narrow_terminal", "a terminal of 40 columns (`COLUMNS=40`)", env={"COLUMNS": "40"})


@condition("Terminals", "standard input, output and error are closed")
def no_streams() -> str:
    with tempfile.TemporaryDirectory() as folder:
        passes(python(COMMANDS + "open('done', 'w').close()\n", shell="exec {} <&- >&- 2>&-", cwd=folder))
        assert os.path.exists(os.path.join(folder, "done"))
    return "works, and prints nothing"


@condition("Terminals", "`ampc info | head -1`")
def reader_leaves() -> str:
    done = run(["sh", "-c", f"{shlex.quote(sys.executable)} -m ampc info | head -1"], env={**os.environ, "PYTHONPATH": str(ROOT)})
    assert done.stderr == "" and done.stdout.count("\n") == 1, done
    return "ends without an error message"


FORKS = WORK + r"""
import os
first = train() if {before} else None
child = os.fork()
if child == 0:
    os._exit(0 if first in (None, train()) else 1)
assert os.waitpid(child, 0)[1] == 0
print('trained', train(), ampc.tensor([0.5]))
"""


@condition("Processes", "a fork before the first operation")
def fork_before() -> None:
    trains(python(FORKS.replace("{before}", "False"), env={"OMP_NUM_THREADS": "3"}))


@condition("Processes", "a fork after threads have computed")
def fork_after() -> None:
    trains(python(FORKS.replace("{before}", "True"), env={"OMP_NUM_THREADS": "3"}))


@condition("Processes", "workers load data, started by fork, spawn and forkserver")
def workers() -> None:
    with tempfile.TemporaryDirectory() as folder:
        trains(python(as_script(LOADER, folder)))
