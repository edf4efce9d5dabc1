"""Folders that are missing, read-only or strangely named, and files that cannot be saved."""

from __future__ import annotations

import functools
import os
import shlex
import shutil
import sys
import tempfile
from pathlib import Path

from conditions import CONDITIONS, LOADER, PRINTED, ROOT, Condition, as_script, condition, in_mounts, need, need_root, python, refuses, trains

LOADER_FORK = LOADER.replace('(None, "fork", "spawn", "forkserver")', '(None, "fork")')


@condition("Folders", "no `/proc`")
def no_proc() -> None:
    trains(in_mounts(PRINTED, "mount -t tmpfs none /proc"))


@condition("Folders", "no `/sys`")
def no_sys() -> None:
    trains(in_mounts(PRINTED, "mount -t tmpfs none /sys"))


@condition("Folders", "`/dev/shm` is read-only, and workers load data")
def no_dev_shm() -> None:
    with tempfile.TemporaryDirectory() as folder:
        trains(in_mounts(LOADER_FORK, "mount -t tmpfs -o ro none /dev/shm", cwd=folder))


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
    """Returns code that trains, runs `change` and saves over an existing file.

    It checks that the file is the new one (`works`) or still the old one, and that no other file is left behind.
    """
    values = {"change": change, "undo": undo, "size": str(size), "works": str(works), "expected!r": repr(expected)}
    return functools.reduce(lambda text, key: text.replace("{" + key + "}", values[key]), values, SAVES)


@condition("Folders", "`TMPDIR` is read-only")
def tmp_read_only() -> None:
    with tempfile.TemporaryDirectory() as folder:
        trains(in_mounts(LOADER_FORK, f"mount -t tmpfs -o ro none {folder}", env={"TMPDIR": folder}, cwd="/"))


@condition("Folders", "the package's folder is read-only and holds no bytecode")
def package_read_only() -> None:
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(ROOT / "ampc", Path(folder) / "ampc", ignore=shutil.ignore_patterns("__pycache__"))
        trains(in_mounts(PRINTED, f"mount --bind {folder} {folder}; mount -o remount,ro,bind {folder}", path=folder, env={"PYTHONDONTWRITEBYTECODE": None}))


@condition("Folders", "the package's path has spaces and non-ASCII letters, also in the C locale")
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
    return "refused: ImportError, because the archive holds no core"


@condition("Folders", "the working folder is deleted")
def no_working_folder() -> None:
    with tempfile.TemporaryDirectory() as folder:
        trains(python(PRINTED, shell="mkdir gone && cd gone && rmdir ../gone && exec {}", cwd=folder))


@condition("Folders", "a user without a name, a home or any writable folder")
def nameless_user() -> None:
    need("setpriv")
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        shutil.copytree(ROOT / "ampc", Path(folder) / "ampc", ignore=shutil.ignore_patterns("__pycache__"))
        base = sys.base_prefix
        open_up = f"mkdir {folder}/base; mount --bind {base} {folder}/base; "
        top = "/" + base.split("/")[1]
        if not os.stat(top).st_mode & 0o001:  # such as /root: an empty folder replaces it, with Python alone inside
            open_up += f"mount -t tmpfs -o mode=755 none {top}; mkdir -p {base}; mount --bind {folder}/base {base}; "
        inner = shlex.quote(f'set -e; mount --make-rprivate /; {open_up} exec setpriv --reuid 54321 --regid 54321 --clear-groups env -u HOME "$@"')
        need_root()
        loader = as_script(LOADER_FORK, folder)
        trains(python("import os; assert os.getuid() == 54321\n" + loader, shell=f"exec unshare -m sh -c {inner} sh {{}}", path=folder, cwd="/",
                      env={"PYTHONDONTWRITEBYTECODE": None}))


def file_systems(name: str, text: str, behaviour: str, **how: object) -> None:
    """Registers a condition under which a file is saved in a new folder."""
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
    file_systems(f"no_rename_{_word}", f"a rename fails ({_word})", "OSError; the old file stays", change=_FAILING.format("replace", _number),
                 undo="os.replace = real", works=False)


@condition("Files", "the disk is full while a file is saved")
def full_disk() -> str:
    with tempfile.TemporaryDirectory() as folder:
        lines = f"mount -t tmpfs -o size=1m none {folder}; cd {folder}"
        trains(in_mounts(saves(size=10**6, works=False, expected="No space left"), lines))
    return "OSError, `No space left on device`; the old file stays"


@condition("Files", "files are limited in size (`ulimit -f`)")
def file_limit() -> str:
    with tempfile.TemporaryDirectory() as folder:
        trains(python(saves(size=10**6, works=False, expected="File too large"), shell="ulimit -f 512; exec {}", cwd=folder))
    return "OSError, `File too large`; the old file stays"
