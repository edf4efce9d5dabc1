"""Versions and options of Python, versions of NumPy, and absent packages."""

from __future__ import annotations

import ast
import functools
import glob
import os
import shutil
import sys
from pathlib import Path

from conditions import CONDITIONS, KEPT, PRINTED, ROOT, WORK, Condition, Skipped, condition, passes, python, refuses, run, simple, trains

VERSIONS = ("3.9", "3.10", "3.11", "3.12", "3.13", "3.14")


def interpreter_of(version: str) -> str:
    """Finds a Python of this version on the path or in pyenv."""
    found = [shutil.which(f"python{version}") or "", *sorted(glob.glob(os.path.expanduser(f"~/.pyenv/versions/{version}.*/bin/python{version}")))]
    for path in found:
        if path and run([path, "-c", "import venv, ensurepip"]).returncode == 0:
            return path
    raise Skipped(f"this machine has no Python {version}")


def environment(name: str, base: str, *packages: str) -> str:
    """Makes a virtual environment with these packages, and returns its Python."""
    folder = KEPT / name
    path = str(folder / "bin" / "python")
    if not (folder / "complete").exists():
        shutil.rmtree(folder, ignore_errors=True)
        done = run([base, "-m", "venv", str(folder)])
        done = done if done.returncode else run([path, "-m", "pip", "install", "-q", *packages], timeout=500)
        if done.returncode:
            raise Skipped(f"the packages could not be installed: {(done.stderr.strip() or done.stdout.strip()).splitlines()[-1]}")
        (folder / "complete").touch()
    return path


def another_python(version: str) -> None:
    """Builds the core for this Python version, in place."""
    path = environment(f"python{version}", interpreter_of(version), "setuptools", "wheel", "numpy>=1.26", "safetensors", "scipy-openblas32")
    passes(run([path, "setup.py", "build_ext", "--inplace"], timeout=3000, cwd=ROOT, env={**os.environ, "AMPC_CUDA": "0"}))
    trains(python(PRINTED, ["-W", "error"], interpreter=path))


for _version in VERSIONS:
    CONDITIONS.append(Condition(f"python_{_version}", "Python", f"Python {_version}, built from source", functools.partial(another_python, _version)))


@condition("Python", "every file uses the grammar of Python 3.9")
def oldest_grammar() -> str:
    files = [*ROOT.glob("ampc/**/*.py"), ROOT / "setup.py", ROOT / "ampc_command.py", ROOT / "pytest_ampc.py"]
    for path in files:
        ast.parse(path.read_text(encoding="utf-8"), str(path), feature_version=(3, 9))
    return "every file parses"


@condition("Python", "a free-threaded Python with the GIL on")
def free_threaded() -> None:
    raise Skipped("this machine has no free-threaded Python; one would turn the GIL on, because the module does not declare Py_mod_gil")


@condition("Python", "a Python that reports its GIL as off")
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
    return "the subinterpreter gets an ImportError; the main one trains"


simple("Python", "optimised", "`python -O`", options=["-O"])
simple("Python", "without_docstrings", "`python -OO`", options=["-OO"])
simple("Python", "development_mode", "`python -X dev -W error`", options=["-X", "dev", "-W", "error"])
simple("Python", "bytecode_written", "`PYTHONDONTWRITEBYTECODE` not set", env={"PYTHONDONTWRITEBYTECODE": None})
simple("Python", "hash_seed_0", "`PYTHONHASHSEED=0`", env={"PYTHONHASHSEED": "0"})
simple("Python", "hash_seed_1", "`PYTHONHASHSEED=1`", env={"PYTHONHASHSEED": "1"})


@condition("Python", "`python -I -S`: no site packages, no environment variables")
def isolated() -> None:
    import numpy

    where = [str(ROOT), str(Path(numpy.__file__).parent.parent)]
    trains(python(f"import sys; sys.path[:0] = {where!r}\n" + PRINTED, ["-I", "-S"]))


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
    CONDITIONS.append(Condition(f"numpy_{_version}", "Packages", f"NumPy {_version} without any optional package (ml_dtypes, tqdm, matplotlib, IPython)",
                                functools.partial(with_numpy, _version)))


@condition("Packages", "no optional package can be imported")
def no_optional_packages() -> None:
    absent = ("ml_dtypes", "matplotlib", "tqdm", "IPython", "tensorboard", "hypothesis", "torch", "PIL", "einops")
    trains(python(f"import sys\nfor name in {absent}: sys.modules[name] = None\n" + USES
                  + "try:\n    ampc.ones(2).bfloat16().numpy()\nexcept TypeError as e:\n    assert 'ml_dtypes' in str(e) or 'float' in str(e), e\n"))
