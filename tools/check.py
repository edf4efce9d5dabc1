"""What a change touches, checked: its format, its types, and the tests of its area.

    python tools/check.py          # the files that differ from the last commit
    python tools/check.py main     # those that differ from a branch or commit

The core is built in place first; only what changed is compiled. A change of one file takes less than a minute. A change of the table of
operators compiles most of the core, which takes two. `make test` runs everything.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import List, Set

ROOT = Path(__file__).resolve().parent.parent
C_FILES = (".c", ".h", ".inc", ".cu", ".cuh", ".cpp")

# The tests of an area, by the longest prefix that fits. A changed test runs, too.
AREAS = {
    "csrc": "test_layout test_ops",
    "csrc/amp": "test_autocast test_scaler",
    "csrc/autograd": "test_autograd test_nodes test_checkpoint test_in_place",
    "csrc/cpu": "test_ops",
    "csrc/cpu/attention": "test_windows",
    "csrc/cpu/conv": "test_windows test_convolution_grid",
    "csrc/cpu/gemm": "test_machines test_shapes",
    "csrc/cpu/norm": "test_windows",
    "csrc/cpu/optim": "test_optim test_pending",
    "csrc/cpu/rnn": "test_recurrent",
    "csrc/cuda": "test_cuda",
    "csrc/dispatch": "test_ops test_autocast test_composed",
    "csrc/ops": "test_layout test_table test_ops test_composed test_policy",
    "csrc/optim": "test_optim test_pending",
    "csrc/python": "test_tensor test_autograd test_scopes",
    "csrc/tensor": "test_tensor test_aliasing",
    "ampc": "test_names test_layout",
    "ampc/_composed": "test_composed test_complete",
    "ampc/amp": "test_autocast test_scaler test_skipped_steps test_loss_scale test_guard",
    "ampc/autograd": "test_autograd test_nodes test_checkpoint test_func",
    "ampc/check": "test_check",
    "ampc/cli": "test_command",
    "ampc/distributions": "test_names test_distributions test_distributions_draws test_distributions_kl test_distributions_transforms",
    "ampc/doctor": "test_doctor test_guard test_ledger test_explain test_advise test_shadow test_capsule test_bisect",
    "ampc/keras": "test_keras",
    "ampc/nn": "test_nn test_modules test_windows",
    "ampc/optim": "test_optim test_schedules test_skipped_steps",
    "ampc/profiler": "test_library_names",
    "ampc/run": "test_run",
    "ampc/selftest": "test_selftest",
    "ampc/serialization": "test_serialization test_checkpoint test_checkpoint_formats",
    "ampc/distributed": "test_distributed test_distributed_training",
    "ampc/training": "test_trainer test_training test_distributed_training",
    "ampc/utils": "test_data test_checkpoint test_utils test_flop_counter test_pytree",
    "benchmarks": "test_layout test_benchmarks",
    "tools": "test_layout test_elsewhere test_compatibility",
    "docs": "test_docs test_compatibility",
    "README.md": "test_docs test_compatibility",
    "examples": "test_examples",
    "tests/composed_samples.py": "test_composed",
    "tests/cuda_ptx": "test_ptx",
    "tests/cuda_sim": "test_ptx",
    "tests/fuzz": "test_fuzz",
    "tests/libraries": "test_libraries test_compatibility",
    "tests/opinfo": "test_opinfo test_compatibility",
    "tests/samples.py": "test_table test_ops",
}


def changed(since: str) -> List[str]:
    """Paths that differ from a commit, new ones too, as they are now."""
    def lines(*command: str) -> List[str]:
        return subprocess.run(["git", *command], cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()

    paths = {*lines("diff", "--name-only", since), *lines("ls-files", "--others", "--exclude-standard")}
    return sorted(p for p in paths if (ROOT / p).is_file())


def tests_of(paths: List[str]) -> List[str]:
    """The test files of the areas that the paths lie in."""
    found: Set[str] = set()
    for path in paths:
        if path.startswith("tests/test_"):
            found.add(Path(path).name)
            continue
        areas = [a for a in AREAS if path == a or path.startswith(a + "/")]
        found.update(f"{name}.py" for name in (AREAS[max(areas, key=len)].split() if areas else []))
    return sorted(found)


def part(name: str, *command: str, cwd: Path = ROOT, **env: str) -> bool:
    begin = time.monotonic()
    print(f"== {name}", flush=True)
    done = subprocess.run(command, cwd=cwd, env={**os.environ, **env})
    print(f"== {name}: {time.monotonic() - begin:.0f} s", flush=True)
    return done.returncode == 0


def main() -> int:
    paths = changed(sys.argv[1] if len(sys.argv) > 1 else "HEAD")
    python = [p for p in paths if p.endswith((".py", ".pyi"))]
    c = [p for p in paths if p.endswith(C_FILES)]
    beside = Path(sys.executable).parent
    tests = tests_of(paths)
    print(f"{len(paths)} changed files: " + (", ".join(tests) or "no tests of their own"))
    well = not c or part("clang-format", str(beside / "clang-format"), "--dry-run", "--Werror", *c)
    well &= not python or part("ruff", str(beside / "ruff"), "check", "--force-exclude", *python)
    well &= not any(p.startswith("ampc/") for p in python) or part("mypy", str(beside / "mypy"))
    well &= part("build", sys.executable, "setup.py", "--quiet", "build_ext", "--inplace", AMPC_CUDA="0")
    if well and tests:
        pytest = [sys.executable, "-m", "pytest", "-c", "../pyproject.toml", "--rootdir", ".", "-q", "--no-header", "-n", "2", "--dist", "worksteal"]
        well = part("tests", *pytest, "-m", "not slow", *tests, cwd=ROOT / "tests", PYTHONPATH=str(ROOT))
    return 0 if well else 1


if __name__ == "__main__":
    sys.exit(main())
