"""The tool that compares the lines which no test runs with `never_run.txt`, on sources made up for it; and the list itself."""

import re
import sys
from collections import Counter
from pathlib import Path

import pytest

pytestmark = pytest.mark.cpu
ROOT = Path(__file__).resolve().parent.parent

C = """\
/* A file. */
#include "base/error.h"

static __attribute__((noinline)) int half(int n,
                                          int m) {
    if (n < 0) return -1;
    if (m < 0) return -1;
    return n / 2;
}

FORMULA(bent, if (usable(2)) OK) { DONE; }

FORMULA(straight) {
    T x = SAVED(0);
    DONE;
}
"""
PYTHON = """\
import os


class Thing:
    size = 1

    def grow(self):
        self.size += 1


def use():
    def inner():
        return 2
    return inner()
"""
SOURCES = {"csrc/x/a.c": C, "ampc/b.py": PYTHON}


@pytest.fixture
def tool(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    import never_run

    yield never_run
    for name in ("never_run", "counters"):
        sys.modules.pop(name)


def found(tool, *ran):
    """All lines of the sources that can run, of which these ran."""
    numbers = {"csrc/x/a.c": (6, 7, 8, 11, 14, 15), "ampc/b.py": (1, 4, 5, 7, 8, 11, 12, 13, 14)}
    lines = {(file, n): {"count": int((file, n) in ran)} for file, all_of_it in numbers.items() for n in all_of_it}
    return tool.measured(lines, SOURCES)


RAN = tuple(("ampc/b.py", n) for n in (1, 4, 5, 7, 11, 12, 14)) + (("csrc/x/a.c", 6), ("csrc/x/a.c", 8))
LIST = """\
ampc/b.py
    Thing.grow: *
    use.inner: *
csrc/x/a.c
    half: if (m < 0) return -1;
    FORMULA(bent): *
    FORMULA(straight): *
"""


def test_functions_of_c(tool):
    names = tool.functions_of_c(C)
    assert [names[n - 1] for n in (6, 8, 11, 14, 15)] == ["half", "half", "FORMULA(bent)", "FORMULA(straight)", "FORMULA(straight)"]


def test_functions_of_python(tool):
    names = tool.functions_of_python(PYTHON)
    assert [names[n - 1] for n in (1, 5, 7, 8, 11, 12, 13, 14)] == ["", "Thing", "Thing", "Thing.grow", "", "use", "use.inner", "use"]


def test_the_list_is_written_and_read(tool):
    run = found(tool, *RAN)
    assert tool.written(run.never, run.total) == LIST
    assert tool.read("# a remark\n\n" + LIST, run.total) == run.never
    assert not tool.outdated(run.never, run)


def test_a_listed_line_that_ran_is_found_in_a_part(tool):
    """Fewer lines than in the whole run say nothing; one that is listed and ran does, and one that is gone does not."""
    listed = tool.read(LIST + "csrc/x/gone.c\n    f: return 1;\n", found(tool).total)
    assert not tool.outdated(listed, found(tool))
    assert not tool.outdated(listed, found(tool, *RAN[:3]))
    assert tool.outdated(listed, found(tool, ("csrc/x/a.c", 15))) == Counter({tool.Line("csrc/x/a.c", "FORMULA(straight)", "DONE;"): 1})


def test_equal_lines_are_counted(tool):
    total, never = Counter({("f.c", "g", "return;"): 3}), Counter({("f.c", "g", "return;"): 2})
    listed = Counter({tool.Line("f.c", "g", "return;"): 2})
    assert not tool.outdated(listed, tool.Measured(total, never))
    assert tool.outdated(listed, tool.Measured(total, Counter({("f.c", "g", "return;"): 1})))


PART = ["test_a.py"]


@pytest.fixture
def judge(tool, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(tool, "LIST", tmp_path / "never_run.txt")

    def judged(*ran, part=(), update=False):
        status = tool.judge(found(tool, *ran), "avx2", list(part), update)
        return status, capsys.readouterr().out

    judged.list = tool.LIST
    return judged


def test_judgement(judge):
    assert judge(*RAN, update=True)[0] == 0
    assert judge(*RAN) == (0, "")
    status, out = judge(*RAN[:-1])  # line 8 did not run
    assert status == 1 and "half: return n / 2;" in out and "does not list them" in out
    assert judge(*RAN[:-1], part=PART) == (0, "")
    status, out = judge(("csrc/x/a.c", 14), part=PART)
    assert status == 0 and "FORMULA(straight): T x = SAVED(0);" in out and "they did" in out
    status, out = judge(("csrc/x/a.c", 14), *RAN)
    assert status == 1 and "they did" in out
    assert judge(("csrc/x/a.c", 14), part=PART, update=True)[0] == 0
    assert "FORMULA(straight): T" not in judge.list.read_text() and "FORMULA(bent): *" in judge.list.read_text()


def test_files_that_the_list_has_not_seen_leave_its_head_as_they_run(tool, judge):
    judge(*RAN, update=True)
    judge.list.write_text(judge.list.read_text().replace("avx2\n", "avx2\n# not run yet: test_a.py test_b.py\n"))
    assert tool.waiting(judge.list.read_text()) == ["test_a.py", "test_b.py"]
    judge(("csrc/x/a.c", 14), part=PART, update=True)
    assert tool.waiting(judge.list.read_text()) == ["test_b.py"]
    judge(*RAN, update=True)
    assert tool.waiting(judge.list.read_text()) == []


def test_another_instruction_set_leaves_kernels_out(tool, tmp_path, monkeypatch, capsys):
    line = tool.Line("csrc/cpu/a.c", "f", "x = 1;")
    ran, never = (tool.Measured(Counter([line]), Counter(lines)) for lines in ((), (line,)))
    monkeypatch.setattr(tool, "LIST", tmp_path / "never_run.txt")
    assert tool.judge(never, "avx2", None, update=True) == 0
    assert [tool.judge(ran, isa, part=None, update=False) for isa in ("avx2", "avx512")] == [1, 0]
    tool.judge(ran, "avx512", part=PART, update=True)
    assert "instruction set: avx2\n" in tool.LIST.read_text() and "f: *" in tool.LIST.read_text()


def test_a_pragma_leaves_a_file_out(tool):
    amx = '#pragma GCC target("amx-tile,avx512f")\n'
    assert tool.left_out("csrc/cpu/x.c", amx, ["avx512f"]) and not tool.left_out("csrc/cpu/x.c", amx, ["avx512f", "amx_tile"])
    assert tool.left_out("csrc/cuda/load.c", "", []) and not tool.left_out("csrc/cpu/x.c", "", [])


def test_the_list_names_files_that_exist():
    """An entry of a file that was moved is out of date; its lines are compared by `make coverage`."""
    files = re.findall(r"^(?!#)\S.*$", (ROOT / "tests" / "never_run.txt").read_text(), re.M)
    assert files and [file for file in files if not (ROOT / file).exists()] == []
    assert files == sorted(set(files))


def test_pieces_go_on_until_the_sources_change(tool, tmp_path, monkeypatch):
    """Three files in two pieces. One that was interrupted runs again; changed sources begin anew, with counters at zero."""
    (tmp_path / "csrc").mkdir()
    (tmp_path / "setup.py").write_text("")
    source, calls, took = tmp_path / "csrc" / "a.c", [], {"test_b.py": float(tool.LONGEST)}
    source.write_text("int a;")
    clock = [0.0]

    def test_file(name, most):
        clock[0] += took.get(name, 40.0)
        calls.append(name)
        return "1 passed"

    monkeypatch.setattr(tool, "ROOT", tmp_path)
    monkeypatch.setattr(tool.os, "cpu_count", lambda: 1)
    monkeypatch.setattr(tool.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(tool.counters, "BUILD", tmp_path)
    monkeypatch.setattr(tool.counters, "test_file", test_file)
    monkeypatch.setattr(tool.counters, "test_in_c", lambda: calls.append("C"))
    monkeypatch.setattr(tool.counters, "build", lambda keep=False: calls.append("go on" if keep else "anew"))
    files = ["test_a.py", "test_b.py", "test_c.py"]
    assert tool.run_piece(files, 60) == ["test_b.py", "test_c.py"] and calls == ["anew", "C", "test_a.py", "test_b.py"]
    took.clear()
    del calls[:]
    assert tool.run_piece(files, 60) == [] and calls == ["go on", "test_b.py", "test_c.py"]
    del calls[:]
    assert tool.run_piece(files, 1) == ["test_b.py", "test_c.py"] and calls == ["anew", "C", "test_a.py"]  # the work was done, so it begins again
    source.write_text("int b;")
    del calls[:]
    assert tool.run_piece(files, 200) == [] and calls == ["anew", "C", *files]
