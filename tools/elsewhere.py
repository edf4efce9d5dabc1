"""Tries ampc under conditions that a developer's machine does not have, and says how it behaves: docs/machines.md.

    python tools/elsewhere.py                       # tries all of them; exits with 1 where one fails
    python tools/elsewhere.py --only NAME [NAME]    # those whose names contain one of these
    python tools/elsewhere.py --list                # their names
    python tools/elsewhere.py --save                # writes docs/machines.md, too

It needs Linux. Some conditions need root (mounts, control groups, another user), a compiler or a package index: where these are missing
the condition is skipped, with the reason, and never counts as passed. The package that is tried is the one in this folder, built in place.

Each condition runs the same small training in a process of its own: convolutions, norms, autocast, a loss scaler, a checkpoint. Under
every condition its parameters must be the same bits as in a process without any.
"""

from __future__ import annotations

import argparse
import ast
import functools
import glob
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Callable, Dict, List, NamedTuple, Optional, Sequence

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "machines.md"
KEPT = ROOT / "build" / "elsewhere"  # environments of other Pythons and NumPys, a locale, a library that fails calls
VERSIONS = ("3.9", "3.10", "3.11", "3.12", "3.13", "3.14")

WORK = r"""
import hashlib, io, sys
import ampc
from ampc import nn

def train():
    ampc.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 24, 3, stride=2), nn.GELU(), nn.Flatten(),
                        nn.Linear(24 * 81, 48), nn.LayerNorm(48), nn.Dropout(), nn.Linear(48, 10))
    opt, scaler = ampc.optim.AdamW(net.parameters(), lr=0.01), ampc.amp.GradScaler("cpu")
    for _ in range(3):
        opt.zero_grad()
        with ampc.autocast("cpu", dtype=ampc.float16):
            loss = nn.functional.cross_entropy(net(ampc.randn(16, 3, 20, 20)), ampc.randint(0, 10, (16,)))
        scaler.scale(loss).backward()
        scaler.unscale_(opt)
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        scaler.step(opt)
        scaler.update()
    assert ampc.ones(1 << 21).sum().item() == 1 << 21  # a block that asks for huge pages
    file = io.BytesIO()
    ampc.save(net.state_dict(), file)
    file.seek(0)
    state = ampc.load(file)
    digest = hashlib.sha256()
    for name in sorted(state):
        digest.update(ampc._C._tensor_bytes(state[name]))
    return digest.hexdigest()
"""
PRINTED = WORK + "print('trained', train(), ampc.tensor([0.5]))\n"


class Skipped(Exception):
    """The condition cannot be made here."""


class Condition(NamedTuple):
    """How to try one, and what it is called in the table."""

    name: str
    group: str
    text: str
    attempt: Callable[[], Optional[str]]  # how ampc behaves; None: trains, with the same bits


CONDITIONS: List[Condition] = []
SAME = "trains; the same bits"


def condition(group: str, text: str) -> Callable[[Callable[[], Optional[str]]], Callable[[], Optional[str]]]:
    """Registers a function under its own name."""
    def add(f: Callable[[], Optional[str]]) -> Callable[[], Optional[str]]:
        CONDITIONS.append(Condition(f.__name__, group, text, f))
        return f
    return add


def simple(group: str, name: str, text: str, **how: object) -> None:
    """A condition that is no more than a way to start the training; see `python`."""
    CONDITIONS.append(Condition(name, group, text, lambda: trains(python(PRINTED, **how))))  # type: ignore[arg-type]


# -- running --------------------------------------------------------------------------------------------------


def run(command: Sequence[str], timeout: int = 300, **options: object) -> subprocess.CompletedProcess:
    """With its output as text."""
    options.setdefault("stdin", subprocess.DEVNULL)
    return subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=timeout, **options)  # type: ignore[call-overload]


def python(code: str, options: Sequence[str] = (), env: Optional[Dict[str, Optional[str]]] = None, shell: str = "exec {}",
           interpreter: str = sys.executable, path: str = str(ROOT), **more: object) -> subprocess.CompletedProcess:
    """A Python with ampc of `path` on its way, started by a shell's line in which {} is the command. A variable that is None is not set."""
    variables = {**os.environ, "PYTHONPATH": path, "PYTHONUNBUFFERED": None, "PYTHONDONTWRITEBYTECODE": "1", "AMPC_GUARD": "off", **(env or {})}
    line = " ".join(shlex.quote(word) for word in (interpreter, *options, "-c", code))
    return run(["sh", "-c", shell.replace("{}", line)], env={k: v for k, v in variables.items() if v is not None}, **more)


def in_mounts(code: str, lines: str, **how: object) -> subprocess.CompletedProcess:
    """`code` in a mount namespace of its own, after `lines`."""
    need_root()
    inner = shlex.quote(f'set -e; mount --make-rprivate /; {lines}; exec "$@"')
    return python(code, shell=f"exec unshare -m sh -c {inner} sh {{}}", **how)  # type: ignore[arg-type]


def need_root() -> None:
    if os.geteuid() != 0:
        raise Skipped("needs root")
    if run(["unshare", "-m", "true"]).returncode != 0:
        raise Skipped("no mount namespaces here")


def need(*tools: str) -> None:
    for tool in tools:
        if not shutil.which(tool):
            raise Skipped(f"needs {tool}")


def passes(done: subprocess.CompletedProcess) -> str:
    """What it printed; AssertionError where it failed."""
    assert done.returncode == 0, f"exit status {done.returncode}: {(done.stdout + done.stderr).strip()[-1500:]}"
    return done.stdout


@functools.cache
def plain() -> str:
    """What the training prints without any condition."""
    return passes(python(PRINTED))


def trains(done: subprocess.CompletedProcess) -> None:
    """It printed what the plain run printed, and nothing else."""
    out = passes(done)
    assert out == plain(), f"expected {plain()!r}, got {out!r}"
    assert "Traceback" not in done.stderr, done.stderr[-1500:]


def refuses(done: subprocess.CompletedProcess, *words: str) -> str:
    """It ended with an exception whose last line has the words; that line."""
    assert done.returncode == 1, f"exit status {done.returncode}: {done.stdout}{done.stderr[-1500:]}"
    last = done.stderr.strip().splitlines()[-1]
    assert all(word in last for word in words), done.stderr[-1500:]
    return f"refused: `{last}`"


# -- Python -----------------------------------------------------------------------------------------------------


def interpreter_of(version: str) -> str:
    """A Python of this version, on the path or among pyenv's."""
    found = [shutil.which(f"python{version}") or "", *sorted(glob.glob(os.path.expanduser(f"~/.pyenv/versions/{version}.*/bin/python{version}")))]
    for path in found:
        if path and run([path, "-c", "import venv, ensurepip"]).returncode == 0:
            return path
    raise Skipped(f"no Python {version} on this machine")


def environment(name: str, base: str, *packages: str) -> str:
    """The Python of a virtual environment with these packages."""
    folder = KEPT / name
    path = str(folder / "bin" / "python")
    if not (folder / "complete").exists():
        shutil.rmtree(folder, ignore_errors=True)
        done = run([base, "-m", "venv", str(folder)])
        done = done if done.returncode else run([path, "-m", "pip", "install", "-q", *packages], timeout=500)
        if done.returncode:
            raise Skipped(f"cannot be installed: {(done.stderr.strip() or done.stdout.strip()).splitlines()[-1]}")
        (folder / "complete").touch()
    return path


def another_python(version: str) -> None:
    """Built by that Python's compiler options and headers, beside the others in this folder."""
    path = environment(f"python{version}", interpreter_of(version), "setuptools", "wheel", "numpy>=1.26", "safetensors", "scipy-openblas32")
    passes(run([path, "setup.py", "build_ext", "--inplace"], timeout=3000, cwd=ROOT, env={**os.environ, "AMPC_CUDA": "0"}))
    trains(python(PRINTED, ["-W", "error"], interpreter=path))


for _version in VERSIONS:
    CONDITIONS.append(Condition(f"python_{_version}", "Python", f"Python {_version}, built from source", functools.partial(another_python, _version)))


@condition("Python", "grammar of Python 3.9 in every file")
def oldest_grammar() -> str:
    files = [*ROOT.glob("ampc/**/*.py"), ROOT / "setup.py", ROOT / "ampc_command.py", ROOT / "pytest_ampc.py"]
    for path in files:
        ast.parse(path.read_text(encoding="utf-8"), str(path), feature_version=(3, 9))
    return f"{len(files)} files read"


@condition("Python", "a free-threaded Python with the GIL on")
def free_threaded() -> None:
    raise Skipped("no free-threaded Python on this machine; the module does not declare Py_mod_gil, so such a Python turns the GIL on")


@condition("Python", "a Python whose GIL is off (as its sys module says)")
def gil_off() -> str:
    return refuses(python("import sys; sys._is_gil_enabled = lambda: False; import ampc"), "needs the GIL")


@condition("Python", "a subinterpreter, before and after an import in the main one")
def subinterpreter() -> str:
    code = r"""
import sys
try:
    import _interpreters as sub
except ImportError:
    import _xxsubinterpreters as sub
def attempt():
    id = sub.create("legacy") if sys.version_info >= (3, 13) else sub.create(isolated=False)
    trouble = sub.run_string(id, "try:\n    import ampc\nexcept ImportError as e:\n    assert 'main interpreter' in str(e)\nelse:\n    raise AssertionError('imported')")
    assert trouble is None, trouble
    sub.destroy(id)
attempt()
""" + WORK + "attempt()\nprint('trained', train(), ampc.tensor([0.5]))\n"
    trains(python(code))
    return "ImportError there, and the main interpreter trains"


simple("Python", "optimised", "`python -O`", options=["-O"])
simple("Python", "without_docstrings", "`python -OO`", options=["-OO"])
simple("Python", "development_mode", "`python -X dev -W error`", options=["-X", "dev", "-W", "error"])
simple("Python", "bytecode_written", "`PYTHONDONTWRITEBYTECODE` not set", env={"PYTHONDONTWRITEBYTECODE": None})
simple("Python", "hash_seed_0", "`PYTHONHASHSEED=0`", env={"PYTHONHASHSEED": "0"})
simple("Python", "hash_seed_1", "`PYTHONHASHSEED=1`", env={"PYTHONHASHSEED": "1"})


@condition("Python", "`python -I -S`: no site packages, no variables")
def isolated() -> None:
    import numpy

    where = [str(ROOT), str(Path(numpy.__file__).parent.parent)]
    trains(python(f"import sys; sys.path[:0] = {where!r}\n" + PRINTED, ["-I", "-S"]))


# -- packages ---------------------------------------------------------------------------------------------------


USES = PRINTED + r"""
import ampc.doctor, ampc.keras, ampc.training, ampc.data, ampc.utils.data, ampc.cli
import numpy as np
x = ampc.randn(4, 3)
assert (ampc.from_numpy(x.numpy()) == x).all() and ampc.tensor(np.float64(0.5)).item() == 0.5 and np.asarray(x).dtype == np.float32
assert (ampc.tensor(np.arange(6).reshape(2, 3)) + ampc.tensor(1)).sum().item() == 21 and x[np.int64(1)].shape == (3,)
assert len(ampc.from_numpy(np.ones((2, 3), np.float16)).tolist()) == 2
loader = ampc.utils.data.DataLoader(ampc.utils.data.TensorDataset(x), batch_size=2, num_workers=1)
assert len(list(loader)) == 2
"""


def with_numpy(version: str) -> None:
    trains(python(USES, interpreter=environment(f"numpy{version}", sys.executable, f"numpy=={version}.*", "safetensors")))


for _version in ("1.26", "2.0", "2.2"):
    CONDITIONS.append(Condition(f"numpy_{_version}", "Packages", f"NumPy {_version}, and no optional package at all (no ml_dtypes, tqdm, matplotlib, IPython)",
                                functools.partial(with_numpy, _version)))


@condition("Packages", "none of the optional packages can be imported")
def no_optional_packages() -> None:
    absent = ("ml_dtypes", "matplotlib", "tqdm", "IPython", "tensorboard", "hypothesis", "torch", "PIL", "einops")
    trains(python(f"import sys\nfor name in {absent}: sys.modules[name] = None\n" + USES
                  + "try:\n    ampc.ones(2).bfloat16().numpy()\nexcept TypeError as e:\n    assert 'ml_dtypes' in str(e) or 'float' in str(e), e\n"))


# -- folders ----------------------------------------------------------------------------------------------------


LOADER = WORK + r"""
class Numbers(ampc.utils.data.Dataset):
    def __len__(self): return 8
    def __getitem__(self, i): return ampc.full((3,), float(i))
if __name__ == "__main__":
    for start in (None, "fork", "spawn", "forkserver"):
        loader = ampc.utils.data.DataLoader(Numbers(), batch_size=4, num_workers=2, multiprocessing_context=start)
        assert [b.sum().item() for b in loader] == [18.0, 66.0], start
    print('trained', train(), ampc.tensor([0.5]))
"""


def as_script(code: str, folder: str) -> str:
    """Code that runs `code` from a file, which spawned processes can import."""
    path = Path(folder) / "script.py"
    path.write_text(code)
    path.chmod(0o644)
    return f"import runpy, sys; sys.argv[:] = [{str(path)!r}]; runpy.run_path({str(path)!r}, run_name='__main__')"


@condition("Folders", "no `/proc`")
def no_proc() -> None:
    trains(in_mounts(PRINTED, "mount -t tmpfs none /proc"))


@condition("Folders", "no `/sys`")
def no_sys() -> None:
    trains(in_mounts(PRINTED, "mount -t tmpfs none /sys"))


@condition("Folders", "`/dev/shm` cannot be written, with workers that load data")
def no_dev_shm() -> Optional[str]:
    with tempfile.TemporaryDirectory() as folder:
        trains(in_mounts(LOADER_FORK, "mount -t tmpfs -o ro none /dev/shm", cwd=folder))
    return None


LOADER_FORK = LOADER.replace('(None, "fork", "spawn", "forkserver")', '(None, "fork")')
SAVES = PRINTED + r"""
import os
if not os.path.exists("net.pt"): ampc.save({"x": ampc.ones(3)}, "net.pt")
old = open("net.pt", "rb").read()
{change}
try:
    ampc.save({"x": ampc.zeros({size})}, "net.pt")
except OSError as e:
    saved = None
    assert {expected!r} in str(e) or {expected!r} == "", repr(e)
else:
    saved = {size}
{undo}
if saved is None: assert open("net.pt", "rb").read() == old
else: assert ampc.load("net.pt")["x"].numel() == saved
assert os.listdir(".") == ["net.pt"], os.listdir(".")
assert (saved is not None) == {works}, saved
"""


def saves(change: str = "", undo: str = "", size: int = 3, works: bool = False, expected: str = "") -> str:
    """The training, then a file that is saved over another one after `change`: it is the new one or stays the old one, with nothing left beside."""
    values = {"change": change, "undo": undo, "size": str(size), "works": str(works), "expected!r": repr(expected)}
    return functools.reduce(lambda text, key: text.replace("{" + key + "}", values[key]), values, SAVES)


@condition("Folders", "`TMPDIR` cannot be written")
def tmp_read_only() -> None:
    with tempfile.TemporaryDirectory() as folder:
        trains(in_mounts(LOADER_FORK, f"mount -t tmpfs -o ro none {folder}", env={"TMPDIR": folder}, cwd="/"))


@condition("Folders", "the package's folder cannot be written, no bytecode is there")
def package_read_only() -> None:
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(ROOT / "ampc", Path(folder) / "ampc", ignore=shutil.ignore_patterns("__pycache__"))
        trains(in_mounts(PRINTED, f"mount --bind {folder} {folder}; mount -o remount,ro,bind {folder}", path=folder, env={"PYTHONDONTWRITEBYTECODE": None}))


@condition("Folders", "a folder whose name has spaces and letters that are not ASCII, in the C locale too")
def strange_path() -> None:
    with tempfile.TemporaryDirectory(prefix="été 中 ' ") as folder:
        shutil.copytree(ROOT / "ampc", Path(folder) / "ampc", ignore=shutil.ignore_patterns("__pycache__"))
        trains(python(saves(works=True), path=folder, cwd=tempfile.mkdtemp(dir=folder)))
        trains(python(saves(works=True), path=folder, cwd=tempfile.mkdtemp(dir=folder), env={"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}))


@condition("Folders", "the package in a zip file")
def zipped() -> str:
    with tempfile.TemporaryDirectory() as folder:
        archive = shutil.make_archive(os.path.join(folder, "ampc"), "zip", ROOT, "ampc/__init__.py")
        refuses(python("import sys\nsys.path.insert(0, " + repr(archive) + ")\nimport ampc", ["-I", "-S"]), "ImportError", "not built for")
    return "refused: ImportError, the core is not built in there"


@condition("Folders", "the working folder is deleted")
def no_working_folder() -> None:
    with tempfile.TemporaryDirectory() as folder:
        trains(python(PRINTED, shell="mkdir gone && cd gone && rmdir ../gone && exec {}", cwd=folder))


@condition("Folders", "another user, without a name, a home or a right to write anywhere")
def nameless_user() -> None:
    need("setpriv")
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        shutil.copytree(ROOT / "ampc", Path(folder) / "ampc", ignore=shutil.ignore_patterns("__pycache__"))
        base = sys.base_prefix
        open_up = f"mkdir {folder}/base; mount --bind {base} {folder}/base; "
        top = "/" + base.split("/")[1]
        if not os.stat(top).st_mode & 0o001:  # such as /root: its place, with nothing but Python in it
            open_up += f"mount -t tmpfs -o mode=755 none {top}; mkdir -p {base}; mount --bind {folder}/base {base}; "
        inner = shlex.quote(f'set -e; mount --make-rprivate /; {open_up} exec setpriv --reuid 54321 --regid 54321 --clear-groups env -u HOME "$@"')
        need_root()
        loader = as_script(LOADER_FORK, folder)
        trains(python("import os; assert os.getuid() == 54321\n" + loader, shell=f"exec unshare -m sh -c {inner} sh {{}}", path=folder, cwd="/",
                      env={"PYTHONDONTWRITEBYTECODE": None}))


# -- files ------------------------------------------------------------------------------------------------------


def file_systems(name: str, text: str, behaviour: str, **how: object) -> None:
    """A condition about saving, in a folder of its own."""
    def attempt() -> str:
        with tempfile.TemporaryDirectory() as folder:
            trains(python(saves(**how), cwd=folder))  # type: ignore[arg-type]
        return behaviour
    CONDITIONS.append(Condition(name, "Files", text, attempt))


_FAILING = "real = os.{0}\ndef fails(*args, **more): raise OSError({1}, os.strerror({1}))\nos.{0} = fails"
for _number, _word in ((22, "EINVAL"), (95, "ENOTSUP")):
    file_systems(f"no_fsync_{_word}", f"a file system without `fsync` ({_word})", "saves", change=_FAILING.format("fsync", _number), undo="os.fsync = real", works=True)
file_systems("fsync_fails", "`fsync` fails: the disk is broken (EIO)", "OSError; the old file stays", change=_FAILING.format("fsync", 5), undo="os.fsync = real",
             works=False, expected="Input/output error")
for _number, _word in ((18, "EXDEV"), (1, "EPERM")):
    file_systems(f"no_rename_{_word}", f"a rename that fails ({_word})", "OSError; the old file stays", change=_FAILING.format("replace", _number),
                 undo="os.replace = real", works=False)


@condition("Files", "a full disk while a file is saved")
def full_disk() -> str:
    with tempfile.TemporaryDirectory() as folder:
        lines = f"mount -t tmpfs -o size=1m none {folder}; cd {folder}"
        trains(in_mounts(saves(size=10**6, works=False, expected="No space left"), lines))
    return "OSError, `No space left on device`; the old file stays"


@condition("Files", "a limit on the size of files (`ulimit -f`)")
def file_limit() -> str:
    with tempfile.TemporaryDirectory() as folder:
        trains(python(saves(size=10**6, works=False, expected="File too large"), shell="ulimit -f 512; exec {}", cwd=folder))
    return "OSError, `File too large`; the old file stays"


# -- cores and limits ------------------------------------------------------------------------------------------


@condition("Cores", "one core of several (`taskset -c 0`)")
def one_core() -> str:
    need("taskset")
    trains(python("import ampc; assert ampc.get_num_threads() == 1\n" + PRINTED, shell="exec taskset -c 0 {}", env={"OMP_NUM_THREADS": None}))
    return "trains on one thread; the same bits"


@condition("Cores", "the affinity mask changes after the import")
def affinity_later() -> None:
    trains(python("import ampc, os; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})\n" + PRINTED))


@condition("Cores", "a quota of half a core in a control group of version 1, deep below the root")
def quota_v1() -> str:
    top = Path("/sys/fs/cgroup/cpu")
    if os.geteuid() != 0 or not (top / "cpu.cfs_quota_us").exists():
        raise Skipped("needs root and version 1 of control groups; tests/c/test_core.c reads such files")
    return in_group(top, "cpu.cfs_quota_us", "50000")


@condition("Cores", "a quota of half a core in a control group of version 2")
def quota_v2() -> str:
    top = Path("/sys/fs/cgroup")
    control = top / "cgroup.subtree_control"
    if os.geteuid() != 0 or not control.exists() or "cpu" not in control.read_text().split():
        raise Skipped("needs root and version 2 of control groups with the controller cpu; tests/c/test_core.c reads such files")
    return in_group(top, "cpu.max", "50000 100000")


def in_group(top: Path, file: str, text: str) -> str:
    """In a group below one that has the quota."""
    outer = top / f"ampc-{os.getpid()}"
    inner = outer / "inner"
    inner.mkdir(parents=True)
    try:
        (outer / file).write_text(text)
        trains(python("import ampc; assert ampc.get_num_threads() == 1, ampc.get_num_threads()\n" + PRINTED,
                      shell=f"echo $$ > {inner}/cgroup.procs; exec {{}}", env={"OMP_NUM_THREADS": None}))
    finally:
        inner.rmdir()
        outer.rmdir()
    return "trains on one thread; the same bits"


@condition("Limits", "a memory limit of 192 MiB in a control group")
def memory_group() -> str:
    top = Path("/sys/fs/cgroup/memory")
    if os.geteuid() != 0 or not (top / "memory.limit_in_bytes").exists():
        raise Skipped("needs root and version 1 of control groups")
    group = top / f"ampc-{os.getpid()}"
    group.mkdir()
    try:
        (group / "memory.limit_in_bytes").write_text(str(192 << 20))
        trains(python(PRINTED, shell=f"echo $$ > {group}/cgroup.procs; exec {{}}"))
    finally:
        group.rmdir()
    return SAME


@condition("Limits", "an address space of 1.5 GiB (`ulimit -v`), and a tensor that does not fit")
def address_space() -> str:
    code = PRINTED + "try:\n    ampc.empty(1 << 30)\nexcept MemoryError as e:\n    assert 'cannot allocate' in str(e)\nelse:\n    raise AssertionError\nassert train()\n"
    trains(python(code, shell=f"ulimit -v {3 << 19}; exec {{}}"))
    return "trains; MemoryError for what does not fit, and trains on"


@condition("Limits", "an address space of 256 MiB")
def small_address_space() -> str:
    done = python(PRINTED, shell=f"ulimit -v {1 << 18}; exec {{}}")
    if done.returncode == 0:
        trains(done)
        return SAME
    return refuses(done, "Error")


simple("Limits", "small_stacks", "stacks of 256 KiB (`ulimit -s`), four threads", shell="ulimit -S -s 256; exec {}", env={"OMP_NUM_THREADS": "4"})
simple("Limits", "few_files", "16 open files (`ulimit -n`)", shell="ulimit -n 16; exec {}")
simple("Limits", "no_huge_pages", "no huge pages (`AMPC_HUGE_PAGES=0`)", env={"AMPC_HUGE_PAGES": "0"})


@condition("Limits", "a chain of 200 000 operations under stacks of 256 KiB")
def deep_graph() -> str:
    code = "import ampc\nx = ampc.ones(1, requires_grad=True); y = x\nfor _ in range(200000): y = y + x\ny.backward(); print(x.grad.item())"
    assert passes(python(code, shell="ulimit -S -s 256; exec {}")) == "200001.0\n"
    return "differentiates"


SHIM = r"""
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <dlfcn.h>
int refused; /* calls, so that one that is never made does not pass for one that was */
static int fails(const char *name) {
    const char *which = getenv("FAILING");
    int does = which && __builtin_strcmp(which, name) == 0;
    refused += does;
    return does;
}
int madvise(void *p, size_t n, int advice) {
    int (*next)(void *, size_t, int) = dlsym(RTLD_NEXT, "madvise");
    return fails("madvise") ? (errno = ENOSYS, -1) : next(p, n, advice);
}
int pthread_create(pthread_t *id, const pthread_attr_t *a, void *(*f)(void *), void *x) {
    int (*next)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *) = dlsym(RTLD_NEXT, "pthread_create");
    return fails("pthread_create") ? EAGAIN : next(id, a, f, x);
}
int sched_getaffinity(pid_t pid, size_t n, cpu_set_t *set) {
    int (*next)(pid_t, size_t, cpu_set_t *) = dlsym(RTLD_NEXT, "sched_getaffinity");
    return fails("sched_getaffinity") ? (errno = EPERM, -1) : next(pid, n, set);
}
long syscall(long number, ...) {
    long (*next)(long, ...) = dlsym(RTLD_NEXT, "syscall"), a[6];
    va_list list;
    va_start(list, number);
    for (int i = 0; i < 6; i++) a[i] = va_arg(list, long);
    va_end(list);
    if ((number == SYS_arch_prctl && fails("arch_prctl")) || (number == SYS_futex && fails("futex"))) return errno = EPERM, -1;
    return next(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}
"""


def without_call(call: str) -> None:
    """The training where a function of the system fails, by a library loaded before others."""
    need("cc")
    KEPT.mkdir(parents=True, exist_ok=True)
    (KEPT / "shim.c").write_text(SHIM)
    library = KEPT / "shim.so"
    passes(run(["cc", "-shared", "-fPIC", "-O1", "-o", str(library), str(KEPT / "shim.c"), "-ldl"]))
    code = ("import ampc, ctypes, os, sys; x = ampc.ones(8, 8, dtype=ampc.float64); assert (x @ x).sum().item() == 512\n"
            "os.environ['OPENBLAS_NUM_THREADS'] = '1'  # for NumPy's own OpenBLAS, which raises SIGINT where it gets no threads\n" + PRINTED +
            f"sys.exit(0 if ctypes.c_int.in_dll(ctypes.CDLL({str(library)!r}), 'refused').value else 77)")
    done = python(code, env={"LD_PRELOAD": str(library), "FAILING": call, "OMP_NUM_THREADS": "2", "OPENBLAS_NUM_THREADS": None})
    if done.returncode == 77:
        raise Skipped("ampc does not make this call on this machine")
    trains(done)


for _call, _text in (("madvise", "`madvise` is not there"), ("pthread_create", "no thread can be started (NumPy's OpenBLAS told so by `OPENBLAS_NUM_THREADS=1`)"), ("sched_getaffinity", "no affinity mask can be read"),
                     ("arch_prctl", "no permission for tiles (`arch_prctl`)"), ("futex", "threads cannot sleep (`futex` fails)")):
    CONDITIONS.append(Condition(f"without_{_call}", "System calls", _text, functools.partial(without_call, _call)))


# -- locales and terminals ----------------------------------------------------------------------------------------


simple("Locales", "c_locale", "`LC_ALL=C`, no UTF-8", env={"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"})
simple("Locales", "posix_locale", "`LC_ALL=POSIX`", env={"LC_ALL": "POSIX"})


def with_comma(code: str) -> None:
    """In a locale that writes 0,5, which is made where localedef has the source."""
    need("localedef")
    folder = KEPT / "locales"
    folder.mkdir(parents=True, exist_ok=True)
    run(["localedef", "-i", "de_DE", "-f", "UTF-8", str(folder / "de_DE.UTF-8")])
    env = {"LOCPATH": str(folder), "LC_ALL": "de_DE.UTF-8"}
    if python("import locale; locale.setlocale(locale.LC_ALL, ''); assert locale.localeconv()['decimal_point'] == ','", env=env).returncode:
        raise Skipped("no locale with a decimal comma, and localedef cannot make one")
    more = r"""
import os, tempfile
with tempfile.TemporaryDirectory() as folder:
    ampc.save({"lr": 0.125, "x": ampc.tensor([0.5])}, os.path.join(folder, "f"))
    assert ampc.load(os.path.join(folder, "f")) == {"lr": 0.125, "x": ampc.tensor([0.5])} or ampc.load(os.path.join(folder, "f"))["lr"] == 0.125
assert ampc._C._functions["hardshrink"](ampc.tensor([0.25, 0.75])).tolist() == [0.0, 0.75]
"""
    trains(python(code + PRINTED + more, env=env))


@condition("Locales", "decimal comma, chosen before the import")
def comma_before() -> None:
    with_comma("import locale; locale.setlocale(locale.LC_ALL, '')\n")


@condition("Locales", "decimal comma, chosen after the import")
def comma_after() -> None:
    with_comma("import ampc, locale; locale.setlocale(locale.LC_ALL, '')\n")


COMMANDS = WORK + r"""
import ampc.cli
for words in (["info"], ["formats"], ["demo", "--epochs", "1"]):
    assert ampc.cli.main(words) in (0, None), words
"""


def commands(name: str, text: str, **how: object) -> None:
    """A condition for the commands that print tables, reports and bars."""
    def attempt() -> str:
        with tempfile.TemporaryDirectory() as folder:
            passes(python(COMMANDS, cwd=folder, **how))  # type: ignore[arg-type]
        return "commands print all they have to"
    CONDITIONS.append(Condition(name, "Terminals", text, attempt))


commands("ascii_output", "output that knows ASCII alone", env={"PYTHONIOENCODING": "ascii", "LC_ALL": "C"})
commands("no_term", "`TERM` not set", env={"TERM": None})
commands("narrow_terminal", "a width of 40 columns (`COLUMNS=40`)", env={"COLUMNS": "40"})


@condition("Terminals", "standard input, output and errors closed")
def no_streams() -> str:
    with tempfile.TemporaryDirectory() as folder:
        passes(python(COMMANDS + "open('done', 'w').close()\n", shell="exec {} <&- >&- 2>&-", cwd=folder))
        assert os.path.exists(os.path.join(folder, "done"))
    return "works, without a word"


@condition("Terminals", "`ampc info | head -1`")
def reader_leaves() -> str:
    done = run(["sh", "-c", f"{shlex.quote(sys.executable)} -m ampc info | head -1"], env={**os.environ, "PYTHONPATH": str(ROOT)})
    assert done.stderr == "" and done.stdout.count("\n") == 1, done
    return "ends quietly"


# -- processes ----------------------------------------------------------------------------------------------------


FORKS = WORK + r"""
import os
first = train() if {before} else None
child = os.fork()
if child == 0:
    os._exit(0 if first in (None, train()) else 1)
assert os.waitpid(child, 0)[1] == 0
print('trained', train(), ampc.tensor([0.5]))
"""


@condition("Processes", "a fork before any work")
def fork_before() -> None:
    trains(python(FORKS.replace("{before}", "False"), env={"OMP_NUM_THREADS": "3"}))


@condition("Processes", "a fork after work on threads")
def fork_after() -> None:
    trains(python(FORKS.replace("{before}", "True"), env={"OMP_NUM_THREADS": "3"}))


@condition("Processes", "workers that load data, by fork, spawn and forkserver")
def workers() -> None:
    with tempfile.TemporaryDirectory() as folder:
        trains(python(as_script(LOADER, folder)))


# -- the table ----------------------------------------------------------------------------------------------------


class Result(NamedTuple):
    """What came of a condition."""

    condition: Condition
    state: str  # passed, failed or skipped
    text: str


def attempt(c: Condition) -> Result:
    """Tries it."""
    try:
        return Result(c, "passed", c.attempt() or SAME)
    except Skipped as reason:
        return Result(c, "skipped", str(reason))
    except (AssertionError, subprocess.TimeoutExpired) as error:
        return Result(c, "failed", str(error))


def page(results: List[Result]) -> str:
    """docs/machines.md."""
    lines = ["# Other machines", "", "`ampc selftest` says whether a machine's numbers are right. What `python tools/elsewhere.py --save` tried, and how ampc behaved. Under each condition a small training runs in a process "
             "of its own: convolutions, norms, autocast, a loss scaler, a checkpoint. \"The same bits\" are those of its parameters, compared with "
             "a process without the condition. A condition that could not be made where the table was written is skipped, with the reason.", ""]
    for group in dict.fromkeys(r.condition.group for r in results):
        lines += [f"## {group}", "", "| Condition | Result | How ampc behaves |", "|---|---|---|"]
        cells = [(r.condition.text, r.state, " ".join(r.text.split())) for r in results if r.condition.group == group]
        lines += ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in cells] + [""]
    return "\n".join(lines)


def main() -> int:
    """Tries what is asked for, prints how far it is and the table's essence."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", nargs="+", metavar="NAME", help="those whose names contain one of these")
    parser.add_argument("--list", action="store_true", help="print the names")
    parser.add_argument("--save", action="store_true", help="write docs/machines.md; needs all conditions")
    args = parser.parse_args()
    if args.save and args.only:
        parser.error("--save is for all conditions; leave --only out")
    chosen = [c for c in CONDITIONS if not args.only or any(word in c.name for word in args.only)]
    if args.list or not chosen:
        print("\n".join(f"{c.name:<24} {c.text}" for c in CONDITIONS))
        return 0 if args.list else 2
    results = []
    for i, c in enumerate(chosen, 1):
        print(f"[{i:2}/{len(chosen)}] {c.name:<24} ", end="", flush=True)
        begin = time.monotonic()
        results.append(attempt(c))
        print(f"{results[-1].state:<8} {time.monotonic() - begin:5.1f} s  {results[-1].text}", flush=True)
    count = {state: sum(r.state == state for r in results) for state in ("passed", "failed", "skipped")}
    print(", ".join(f"{n} {state}" for state, n in count.items()))
    if args.save:
        PAGE.write_text(page(results), encoding="utf-8")
    return int(count["failed"] > 0)


if __name__ == "__main__":
    sys.exit(main())
