"""Every Python block of the README and of docs/ runs, a page's blocks one after the other; their links lead somewhere."""

import ast
import os
import re
import shlex
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
from references import part
from where import ON_GPU

from ampc import doctor, selftest

ROOT = Path(__file__).resolve().parent.parent
ARCHITECTURE = [ROOT / "docs" / "architecture.md", *sorted((ROOT / "docs" / "architecture").glob("*.md"))]
TUTORIALS = sorted((ROOT / "docs" / "tutorials").glob("*.md"))
HOWTO = sorted((ROOT / "docs" / "howto").glob("*.md"))
PAGES = [*(ROOT / f"{name}.md" for name in ("README", "CONTRIBUTING", "SECURITY")), *sorted((ROOT / "docs").glob("*.md")),
         *sorted((ROOT / "docs" / "compatibility").glob("*.md")), *ARCHITECTURE[1:], *TUTORIALS, *HOWTO]  # those of docs/rules/ are run by test_guard and test_check


def blocks(page, language="python"):
    return [text for name, text in re.findall(r"^```(\w*)\n(.*?)^```$", page.read_text(), re.M | re.S) if name == language]


@pytest.mark.skipif(ON_GPU, reason="they say 'cpu'")
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("page", [p for p in PAGES if blocks(p) and p not in TUTORIALS + HOWTO], ids=lambda p: p.name)
def test_blocks_run(page, world, switches_back, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(selftest, "CASES", part(selftest.CASES, 8))  # test_machines.py runs all
    names = {"__name__": "page"}
    if page.name not in ("README.md", "index.md"):  # which are whole
        names.update(surroundings(world))
    doctor.reports(clear=True)
    for block in blocks(page):
        exec(compile(block, page.name, "exec"), names)
    told = {r.rule for r in doctor.reports(clear=True)}  # of the first page that a reader tries: none, but for what the page explains
    assert not told or page.name not in ("README.md", "index.md") or told == {"autocast-without-effect"} and "[autocast-without-effect]" in page.read_text()


@pytest.mark.skipif(ON_GPU, reason="they say 'cpu'")
def test_readme_quotes_what_is_printed(capsys, monkeypatch, tmp_path):
    """Its two reports, of the quick start with clipping in the wrong place and of the block above the second."""
    monkeypatch.chdir(tmp_path)
    quick_start, example, *_ = blocks(ROOT / "README.md")
    misuse, finding = blocks(ROOT / "README.md", "text")
    backward = "    scaler.scale(loss).backward()\n"
    assert quick_start.count(backward) == 1
    doctor.reports(clear=True)
    names = {"__name__": "page"}
    with pytest.warns(doctor.MisuseWarning, match="clip-scaled-gradients"):
        exec(compile(quick_start.replace(backward, backward + "    torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)\n"), "train.py", "exec"), names)
    said = next(r for r in doctor.reports(clear=True) if r.rule == "clip-scaled-gradients")
    assert misuse.split() == f"{said.file}:{said.line}: MisuseWarning: [{said.rule}] {said.text} {said.fix}".split()
    capsys.readouterr()
    with pytest.warns(doctor.DoctorWarning):
        exec(compile(example, "train.py", "exec"), names)
    assert capsys.readouterr().out == finding


def test_lines_of_imports_are_true():
    """What the table of `docs/migration.md` says to write binds the same name to something of ampc."""
    table = re.findall(r"^\| `((?:import|from) [^`]*)` \| `((?:import|from) [^`]*)` \|$", (ROOT / "docs" / "migration.md").read_text(), re.M)
    assert len(table) >= 4
    for before, after in table:
        names = {}
        exec(after, names)
        bound = re.search(r"(?:as|import) (\w+)$", before)[1]
        assert bound in names and (names[bound].__module__ if isinstance(names[bound], type) else names[bound].__name__).startswith("ampc")
    for page in ("README.md", "docs/migration.md"):
        assert "import ampc.nn as nn" in (ROOT / page).read_text()


def numbers_alike(said, quoted):
    """The same words; numbers may differ by 1 %, because weights differ in their last digits between instruction sets."""
    said, quoted = said.split(), quoted.split()
    return len(said) == len(quoted) and all(a == b or close(a.strip("[],;()%"), b.strip("[],;()%")) for a, b in zip(said, quoted))


def close(a, b):
    try:
        return float(a) == pytest.approx(float(b), rel=0.01, nan_ok=True)
    except ValueError:
        return False


def rows_of_formats(text):
    """The heading of a table, and the first words of its rows."""
    lines = [" ".join(line.split()) for line in text.splitlines()]
    return [line if line.startswith("precision") else line.split()[0] for line in lines if re.match(r"precision|float|bfloat|tf32", line)]


def layout(table):
    """How many lines a table of times has, and the words of its heading without the rules, whose lengths depend on the numbers."""
    lines = table.strip().splitlines()
    return len(lines), [[word for word in line.split() if word.strip("[]-")] for line in lines[:3]]


def run_as_quoted(page, capsys):
    """A page's Python blocks are one script, and a block of text is what the Python block before it prints. What a machine measured is
    in a block named console. Gives what is printed there, each with what the page quotes."""
    names, line, printed, measured = {"__name__": "page"}, 0, "", []
    for language, text in re.findall(r"^```(\w+)\n(.*?)^```$", page.read_text(), re.M | re.S):
        if language == "python":
            with warnings.catch_warnings(record=True) as warned:
                warnings.simplefilter("always")
                exec(compile("\n" * line + text, "train.py", "exec"), names)
            line += text.count("\n") + 1  # of the script whose blocks are separated by an empty line
            printed = capsys.readouterr().out
        elif language == "text":
            assert numbers_alike(printed, text), printed
        elif language == "warning":
            said = [f"{w.category.__name__}: {w.message}".split() for w in warned]
            assert text.split() in said, said
        elif language == "console":
            measured.append((printed, text))
    return measured


@pytest.mark.skipif(ON_GPU, reason="they say 'cpu'")
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("page", TUTORIALS, ids=lambda p: p.name)
def test_tutorials_quote_what_is_printed(page, switches_back, tmp_path, monkeypatch, capsys):
    """Where a machine measured, the same formats have a line. The last block draws the page's picture."""
    pytest.importorskip("matplotlib").use("Agg")
    monkeypatch.chdir(tmp_path)
    doctor.reports(clear=True)
    for printed, quoted in run_as_quoted(page, capsys):
        assert rows_of_formats(printed) == rows_of_formats(quoted), printed
    assert {r.rule for r in doctor.reports(clear=True)} <= {"autocast-without-effect", "scaler-not-saved"}
    picture = page.with_suffix(".png")
    assert (tmp_path / picture.name).read_bytes()[:4] == picture.read_bytes()[:4] == b"\x89PNG"
    assert picture.stat().st_size < 60_000 and f"]({picture.name})" in page.read_text()


def sentences(text):
    """Of a text, with its numbers and the names of 16-bit formats masked: the same from every measurement that ends alike."""
    masked = re.sub(r"\d+(\.\d+)?", "#", re.sub(r"b?float16", "half", text))
    return {s.strip() for s in re.split(r"(?<=\.)\s", masked) if s.strip()}


@pytest.mark.skipif(ON_GPU, reason="they compute on the CPU")
@pytest.mark.filterwarnings("ignore")
def test_the_tutorial_quotes_sentences_that_bench_says():
    """Which of them comes depends on the machine; so the quoted ones must be among those of every recommendation, and of CPUs with and without units."""
    page, names = ROOT / "docs" / "tutorials" / "is-it-worth-it.md", {}
    exec(next(b for b in blocks(page) if "def measure" in b).split("\nprint(")[0], names)
    result, every = names["measure"](width=16, layers=2, samples=4), set()
    for result.advice.precision in ("float32", "bfloat16", "float16"):
        for result.advice.without_units in ([], ["float16"], ["float16", "bfloat16"]):
            every |= sentences(f"{result.verdict} {result.why}")
    quoted = [b for b in blocks(page, "console") if b.splitlines()[1].startswith("precision")]
    assert len(quoted) == 2
    for block in quoted:
        lines = block.splitlines()
        assert lines[1].split() == str(result).splitlines()[1].split()
        said = sentences("\n".join(line for line in lines[2:] if not re.match("b?float", line)))
        assert len(said) > 3 and said <= every, said - every


@pytest.mark.skipif(ON_GPU, reason="they compute on the CPU")
@pytest.mark.parametrize("page", HOWTO, ids=lambda p: p.name)
def test_howtos_quote_what_is_printed(page, switches_back, tmp_path, monkeypatch, capsys):
    """Where a machine measured, the printed table has the heading of the quoted one, and as many rows."""
    monkeypatch.chdir(tmp_path)
    for printed, quoted in run_as_quoted(page, capsys):
        assert layout(printed) == layout(quoted), printed


@pytest.mark.skipif(ON_GPU, reason="they compute on the CPU")
def test_the_tests_of_the_diagnosis_page(tmp_path):
    """The block with a fixture is a test file: in float16 and in bfloat16 one test passes, and under the doctor the other fails."""
    page = ROOT / "docs" / "howto" / "diagnosis.md"
    (block,) = [b for b in blocks(page) if "amp_dtype" in b]
    (tmp_path / "test_net.py").write_text(block)
    folders = os.pathsep.join([str(Path(doctor.__file__).parent.parent.parent), str(ROOT)])
    for options, status, text in (([], 0, "3 passed"), (["--ampc-doctor"], 1, "1 failed, 2 passed")):
        command = [sys.executable, "-m", "pytest", "-q", "-p", "pytest_ampc", "-p", "no:cacheprovider", "-W", "ignore", *options, "test_net.py"]
        done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env={**os.environ, "PYTHONPATH": folders})
        assert done.returncode == status and text in done.stdout, done.stdout
        assert ("exp returned inf" in done.stdout) == bool(options), done.stdout


def surroundings(world):
    import ampc

    data = [(ampc.randn(16, 64), y) for _, y in world.batches]
    return {"batches": data, "loader": data, "criterion": world.criterion, "model": world.model, "optimizer": world.optimizer}


VARIABLES = [*(ROOT / "ampc").rglob("*.py"), *(ROOT / "csrc").rglob("*.[ch]"), *(ROOT / "tools").glob("*.py"), *(ROOT / "tests").rglob("*.py"),
             *(ROOT / "tests").rglob("*.[ch]"), *(ROOT / "tests").rglob("*.cpp"), ROOT / "setup.py", ROOT / "pytest_ampc.py", ROOT / "Makefile"]


def test_every_variable_is_on_its_page():
    """And no other."""
    read = {name for path in VARIABLES for name in re.findall(r"\bAMPC_[A-Z0-9_]*[A-Z0-9]\b", path.read_text())}
    read |= {name for path in VARIABLES if "ampc" in path.parts[len(ROOT.parts):] for name in re.findall(r'environ(?:\.get\(|\[)"([A-Z_]+)"', path.read_text())}
    told = set(re.findall(r"`([A-Z][A-Z0-9_]+)`", (ROOT / "docs" / "environment.md").read_text()))
    assert read <= told and {name for name in told if name.startswith("AMPC_")} <= read


def commands():
    """Lines of blocks of no language, as a person types them."""
    for page in PAGES:
        for block in blocks(page, ""):
            for line in block.splitlines():
                words = shlex.split(line.lstrip("$ "), comments=True) if line.count("'") % 2 == 0 else []
                if words and words[0] in ("ampc", "make", "pytest", "pip", ".ci/run"):
                    yield page.name, words


def test_commands_are_there():
    """What a page says to type is a subcommand with such options, or a target."""
    from ampc.cli import make_parser

    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.M))
    seen = set()
    for page, words in commands():
        seen.add(words[0])
        if words[0] == "ampc":
            assert callable(make_parser().parse_args(words[1:]).run), (page, words)
        elif words[0] == "make":
            assert set(words[1:]) <= targets, (page, words)
    assert seen >= {"ampc", "make", "pip", "pytest", ".ci/run"}


def test_pages_have_blocks():
    assert len(TUTORIALS) == 3 and len(HOWTO) == 10 and all(blocks(p) and blocks(p, "text") + blocks(p, "console") for p in TUTORIALS + HOWTO)
    assert {p.name for p in PAGES if blocks(p)} >= {"README.md", "index.md", "migration.md", "numerics.md", "performance.md", "troubleshooting.md"}


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", page.read_text()):
        assert (page.parent / target).exists(), target


def described(docstring):
    """Names of an Args block; a line may describe several."""
    block = re.search(r"^( *)Args:\n((?:\1 +\S.*\n?)+)", docstring or "", re.M)
    if not block:
        return []
    return re.split(", ", ", ".join(re.findall(rf"^{block[1]}    ([\w*]+(?:, [\w*]+)*): ", block[2], re.M)))


def parameters(node):
    args = node.args
    return {a.arg for a in [*args.posonlyargs, *args.args, *args.kwonlyargs, args.vararg, args.kwarg] if a}


def test_described_arguments_exist():
    """The site's check of this cannot read a line that describes two parameters."""
    seen = 0
    for path in (ROOT / "ampc").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, (ast.ClassDef, ast.FunctionDef)) and (names := described(ast.get_docstring(node, clean=False))):
                makers = [node] if isinstance(node, ast.FunctionDef) else [f for f in node.body if getattr(f, "name", "") in ("__init__", "__new__")]
                assert set(names) <= set().union(*map(parameters, makers)), f"{path.name}: {node.name}"
                seen += len(names)
    assert seen > 100


# -- the map ------------------------------------------------------------------------------------------

FOLDERS = tuple(f"{name}/" for name in ("csrc", "ampc", "tests", "tools", "docs", "benchmarks") if (ROOT / name).exists())


def present_names(page):
    """The text of a page, without the old names of what moved."""
    text = page.read_text()
    return re.sub(r"^\| (`[^|]*) \|", "|", text, flags=re.M) if page.name == "moved.md" else text


def named_files(page):
    """What a page names between backticks that is a path from the root."""
    return {name for name in re.findall(r"`([\w./*-]+)`", present_names(page)) if name.startswith(FOLDERS)}


@pytest.mark.parametrize("page", [*sorted((ROOT / "docs").rglob("*.md")), *sorted(ROOT.glob("*.md"))], ids=lambda p: str(p.relative_to(ROOT)))
def test_named_files_exist(page):
    for name in named_files(page):
        assert list(ROOT.glob(name)), f"{page.name} names {name}"


def test_files_named_in_comments_exist():
    """In comments and docstrings, by the path from the root; in csrc/ also by that from there."""
    endings = r"[\w./*-]*\w\.(?:c|h|inc|def|cu|cuh|py|pyi|md|txt|json)\b"
    inside = "|".join(p.name for p in (ROOT / "csrc").iterdir())
    for folder in ("csrc", "ampc", "tools", "benchmarks", "tests"):
        for p in sorted((ROOT / folder).rglob("*")):
            if p.suffix not in (".c", ".h", ".inc", ".def", ".cu", ".cuh", ".py") or p.name == "test_never_run.py":  # whose paths are made up
                continue
            notes = r'#[^\n]*|"""(?:.|\n)*?"""' if p.suffix == ".py" else r"/\*(?:.|\n)*?\*/|//[^\n]*"
            text = "\n".join(re.findall(notes, p.read_text()))
            named = re.findall(rf"(?<![\w./<-])(?:csrc|ampc|tests|tools|docs|benchmarks)/{endings}", text)
            named += [f"csrc/{name}" for name in re.findall(rf"(?<![\w./<-])(?:{inside})/{endings}", text) if folder == "csrc"]
            assert all(list(ROOT.glob(name)) for name in named), (p, named)


def test_named_functions_exist():
    """Names of the core that the pages give."""
    core = "\n".join(p.read_text() for p in (ROOT / "csrc").rglob("*") if p.is_file())
    for page in ARCHITECTURE:
        for name in re.findall(r"`(ac_\w+|AC_\w+)`", present_names(page)):
            assert re.search(rf"\b{name}\b", core), f"{page.name} names {name}"


def test_file_names_of_the_architecture_are_whole():
    """A file is named by its path from the root, so that the test above sees it."""
    for page in ARCHITECTURE:
        assert not re.findall(r"`(?!\*)([\w-]+\.(?:c|h|inc|cu|cuh|def|py))`", page.read_text()), page.name


def test_moved_files_are_gone():
    text = (ROOT / "docs" / "architecture" / "moved.md").read_text().split("## Moved files")[1]
    moved = re.findall(r"^\| `(.*)` \| `(.*)` \|$", text, re.M)
    assert len(moved) > 90
    new = {after for _, after in moved}
    for before, _ in moved:
        assert before in new or not (ROOT / before).exists(), before


def test_renamed_names_are_gone():
    """The old names of words that had several meanings are no identifiers any more."""
    text = (ROOT / "docs" / "architecture" / "moved.md").read_text().split("## Renamed words")[1].split("\n## ")[0]
    names = {name for row in re.findall(r"^\| (`[^|]*) \|", text, re.M) for name in re.findall(r"`(\w+)`", row)}
    code = [p for top in ("csrc", "ampc", "tests") for p in (ROOT / top).rglob("*") if p.suffix in (".c", ".h", ".inc", ".def", ".cu", ".cuh", ".py", ".pyi")]
    found = {(word, str(p.relative_to(ROOT))) for p in code for word in re.findall(r"\w+", p.read_text()) if word in names}
    assert names and not found, found


def test_ten_tasks_are_two_steps_away():
    """From the architecture to the page that a task names, and from that page to the file."""
    text = (ROOT / "docs" / "architecture" / "tasks.md").read_text()
    tasks = re.findall(r"^\| ([^|]+) \| `([^`]+)` \| \[[^]]+\]\(([^)]+)\) \|$", text, re.M)
    assert len(tasks) == 10
    linked = {(ARCHITECTURE[0].parent / target).resolve() for target in re.findall(r"\]\(([^)#:\s]+)", ARCHITECTURE[0].read_text())}
    for task, file, target in tasks:
        page = (ROOT / "docs" / "architecture" / target).resolve()
        assert page in linked, task
        assert file in named_files(page), task


def test_glossary_is_short():
    text = ARCHITECTURE[0].read_text().split("## Glossary")[1].split("## ")[0]
    words = re.findall(r"^\| ([^|]+?) \| [^|]+ \|$", text, re.M)[1:]
    assert 10 < len(words) <= 25 and len(set(words)) == len(words) and words == sorted(words)
