"""The architecture, checked: who may include whom, sizes of files and functions, no Python in the core."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import ampc

ROOT = Path(__file__).resolve().parent.parent
CSRC = ROOT / "csrc"
# From the ground up. A folder includes what stands before it, and itself.
ORDER = ["base", "tensor", "shared", "ops", "backend", "cpu", "cuda", "optim", "amp", "autograd", "dispatch", "python"]
RANK = {folder: rank for rank, folder in enumerate(ORDER)}
FILES = sorted(p for p in CSRC.rglob("*") if p.suffix in (".c", ".h", ".inc", ".def", ".cu", ".cuh"))


def includes(path):
    return [CSRC / name for name in re.findall(r'# *include "([^"]+)"', path.read_text())]


def folder(path):
    return path.relative_to(CSRC).parts[0]


def test_every_folder_has_a_rank():
    assert {p.name for p in CSRC.iterdir()} == set(RANK)


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(CSRC)))
def test_includes_go_down(path):
    for target in includes(path):
        assert target.exists(), target
        assert RANK[folder(target)] <= RANK[folder(path)], f"{path.name} includes {target}"


def test_includes_have_no_ring():
    graph = {p.resolve(): [t for t in includes(p) if t.suffix == ".h"] for p in FILES}
    done, open_ = set(), []

    def visit(p):
        assert p not in open_, "ring: " + " -> ".join(x.name for x in [*open_, p])
        if p in done:
            return
        open_.append(p)
        for t in graph.get(p, []):
            visit(t)
        open_.pop()
        done.add(p)

    for p in graph:
        visit(p)


def test_only_the_binding_knows_python():
    for p in FILES:
        text = p.read_text()
        if folder(p) != "python":
            assert "Python.h" not in text, p
        assert "arrayobject.h" not in text or p.name == "numpy.c", p


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(CSRC)))
def test_files_say_what_they_do(path):
    """A file begins with a comment, before any code."""
    assert re.match(r"(// clang-format off\n)?/\* \w", path.read_text()), path


def test_core_does_not_exit_or_print():
    for p in FILES:
        assert not re.search(r"\b(abort|exit|printf|fprintf|puts|assert)\s*\(", re.sub(r"/\*.*?\*/", "", p.read_text(), flags=re.S)), p


def test_no_static_python_objects():
    for p in (CSRC / "python").glob("*.c"):
        assert not re.search(r"^static PyObject \*\w+\s*(=|;)", p.read_text(), re.M), p


@pytest.mark.parametrize("path", [*FILES, *sorted((ROOT / "ampc").rglob("*.py")), *sorted((ROOT / "tests").rglob("*.py"))],
                         ids=lambda p: str(p.relative_to(ROOT)))
def test_files_are_under_600_lines(path):
    assert path.read_text().count("\n") < 600


def test_functions_are_short():
    """Few functions over 40 lines, none over 80."""
    lengths = {}
    for p in CSRC.rglob("*.c"):
        name, start = None, 0
        for i, line in enumerate(p.read_text().splitlines()):
            m = re.match(r"^[A-Za-z].*?(\w+)\(.*\)? ?.*\{$", line)
            if m and not line.startswith(("struct", "typedef", "enum", "#")) and "=" not in line.split("(")[0]:
                name, start = m.group(1), i
            elif line == "}" and name:
                lengths[f"{p.name}:{name}"] = i - start + 1
                name = None
    assert len(lengths) > 500
    long = {k: v for k, v in lengths.items() if v > 40}
    assert max(lengths.values()) <= 80, long
    assert len(long) <= len(lengths) * 0.02, long


@pytest.mark.parametrize("tool", ["make_stubs.py", "rules_index.py", "policy_table.py", "speed_table.py"])
def test_generated_files_are_up_to_date(tool):
    if not (ROOT / "ampc" / "_C.pyi").exists():
        pytest.skip("an installed package without its sources")
    env = {**os.environ, "PYTHONPATH": str(Path(ampc.__file__).parent.parent)}
    done = subprocess.run([sys.executable, str(ROOT / "tools" / tool), "--check"], capture_output=True, text=True, env=env)
    assert done.returncode == 0, done.stdout + done.stderr


def test_linters_have_one_version():
    """The Makefile's and pre-commit's; and the citation's version is the package's."""
    pins = re.compile(r"\b((?:ruff|mypy|clang-format)==[\d.]+)")
    assert set(pins.findall((ROOT / ".pre-commit-config.yaml").read_text())) == set(pins.findall((ROOT / "Makefile").read_text()))
    version = re.search(r'^version = "(.*)"$', (ROOT / "pyproject.toml").read_text(), re.M).group(1)
    assert f"version: {version}\n" in (ROOT / "CITATION.cff").read_text()


def test_every_package_is_shipped():
    import re
    listed = set(re.findall(r'"([\w.]+)"', re.search(r"packages = \[([^]]*)\]", (ROOT / "pyproject.toml").read_text()).group(1)))
    there = {".".join(p.parent.relative_to(ROOT).parts) for p in (ROOT / "ampc").rglob("__init__.py")}
    assert listed == there
