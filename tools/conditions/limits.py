"""Few cores, little memory, and system calls that fail."""

from __future__ import annotations

import functools
import os
from pathlib import Path

from conditions import CONDITIONS, KEPT, PRINTED, SAME, Condition, Skipped, condition, need, passes, python, refuses, run, simple, trains


@condition("Cores", "one core of several (`taskset -c 0`)")
def one_core() -> str:
    need("taskset")
    trains(python("import ampc; assert ampc.get_num_threads() == 1\n" + PRINTED, shell="exec taskset -c 0 {}", env={"OMP_NUM_THREADS": None}))
    return "trains on one thread; the same bits"


@condition("Cores", "the affinity mask changes after the import")
def affinity_later() -> None:
    trains(python("import ampc, os; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})\n" + PRINTED))


@condition("Cores", "a quota of half a core, set by the parent of a control group (version 1)")
def quota_v1() -> str:
    top = Path("/sys/fs/cgroup/cpu")
    if os.geteuid() != 0 or not (top / "cpu.cfs_quota_us").exists():
        raise Skipped("needs root and control groups of version 1; tests/c/test_core.c tests the reading of such files")
    return in_group(top, "cpu.cfs_quota_us", "50000")


@condition("Cores", "a quota of half a core, set by the parent of a control group (version 2)")
def quota_v2() -> str:
    top = Path("/sys/fs/cgroup")
    control = top / "cgroup.subtree_control"
    if os.geteuid() != 0 or not control.exists() or "cpu" not in control.read_text().split():
        raise Skipped("needs root and control groups of version 2 with the cpu controller; tests/c/test_core.c tests the reading of such files")
    return in_group(top, "cpu.max", "50000 100000")


def in_group(top: Path, file: str, text: str) -> str:
    """Trains in a control group whose parent has `text` in `file`."""
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
        raise Skipped("needs root and control groups of version 1")
    group = top / f"ampc-{os.getpid()}"
    group.mkdir()
    try:
        (group / "memory.limit_in_bytes").write_text(str(192 << 20))
        trains(python(PRINTED, shell=f"echo $$ > {group}/cgroup.procs; exec {{}}"))
    finally:
        group.rmdir()
    return SAME


@condition("Limits", "an address space of 1.5 GiB (`ulimit -v`), and a tensor that is larger")
def address_space() -> str:
    code = PRINTED + "try:\n    ampc.empty(1 << 30)\nexcept MemoryError as e:\n    assert 'cannot allocate' in str(e)\nelse:\n    raise AssertionError\nassert train()\n"
    trains(python(code, shell=f"ulimit -v {3 << 19}; exec {{}}"))
    return "trains; the large tensor gets a MemoryError, and training goes on"


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
    return "backward works"


SHIM = r"""
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <dlfcn.h>
int refused; /* counts failed calls: a call that is never made proves nothing */
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
    """Trains while a system function fails. A library that is loaded first replaces the function."""
    need("cc")
    KEPT.mkdir(parents=True, exist_ok=True)
    (KEPT / "shim.c").write_text(SHIM)
    library = KEPT / "shim.so"
    passes(run(["cc", "-shared", "-fPIC", "-O1", "-o", str(library), str(KEPT / "shim.c"), "-ldl"]))
    code = ("import ampc, ctypes, os, sys; x = ampc.ones(8, 8, dtype=ampc.float64); assert (x @ x).sum().item() == 512\n"
            "os.environ['OPENBLAS_NUM_THREADS'] = '1'  # NumPy's own OpenBLAS raises SIGINT if it gets no threads\n" + PRINTED +
            f"sys.exit(0 if ctypes.c_int.in_dll(ctypes.CDLL({str(library)!r}), 'refused').value else 77)")
    done = python(code, env={"LD_PRELOAD": str(library), "FAILING": call, "OMP_NUM_THREADS": "2", "OPENBLAS_NUM_THREADS": None})
    if done.returncode == 77:
        raise Skipped("ampc does not make this system call on this machine")
    trains(done)


for _call, _text in (("madvise", "`madvise` fails: not implemented"), ("pthread_create", "no thread can be started (`OPENBLAS_NUM_THREADS=1` keeps NumPy from trying)"), ("sched_getaffinity", "the affinity mask cannot be read"),
                     ("arch_prctl", "the system refuses matrix tiles (`arch_prctl`)"), ("futex", "threads cannot sleep: `futex` fails")):
    CONDITIONS.append(Condition(f"without_{_call}", "System calls", _text, functools.partial(without_call, _call)))
