"""Writes docs/compatibility.md: which names of torch the installed ampc has, and how public programs train on both.

    python tools/compatibility.py                # writes the page from the data in docs/compatibility/
    python tools/compatibility.py --check        # exits with 1 if the page is out of date
    python tools/compatibility.py --names        # first saves torch's public names; needs torch
    python tools/compatibility.py --programs     # first runs tests/programs on both libraries with three seeds each, and saves the losses

--programs needs torch and the packages that tests/programs/programs.py names. Install them with pip install --no-deps.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import importlib.metadata
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType

from generated import write_or_check

ROOT = Path(__file__).resolve().parent.parent
KEPT, DOCUMENT = ROOT / "docs" / "compatibility", ROOT / "docs" / "compatibility.md"
PROGRAMS = ROOT / "tests" / "programs"
SEEDS = (0, 1, 2)
DRIFTING = ("resnet", "unet", "gan")  # programs whose rounding grows; they run in float64 as well

NAMESPACES = ["torch", "torch.Tensor", "torch.nn", "torch.nn.functional", "torch.nn.init", "torch.nn.utils", "torch.nn.utils.rnn", "torch.nn.utils.parametrize",
              "torch.nn.utils.parametrizations", "torch.optim", "torch.optim.lr_scheduler", "torch.amp", "torch.autograd", "torch.autograd.functional", "torch.cuda",
              "torch.utils.data", "torch.utils.checkpoint", "torch.linalg", "torch.special", "torch.func", "torch.distributions", "torch.accelerator", "torch.random"]

ABSENT_AREAS = {
    "complex numbers": r"complex|cfloat|cdouble|chalf|\bpolar$|view_as_real|real$|imag$|angle$|conj|is_neg|resolve_neg",
    "Fourier transforms": r"fft|stft|_window$",
    "sparse and nested tensors": r"sparse|coo|csr|csc|bsr|bsc|coalesce|crow|ccol|row_indices|col_indices|smm$|spmm|sspaddmm|hspmm|hsmm|dsmm|saddmm|nested|to_padded|dense_dim",
    "quantised and packed types": r"quant|qint|quint|qscheme|q_scale|q_zero|q_per|int_repr|fbgemm|fake_quant|float8|float4|bits|\bu?int[1-7]$|uint(16|32|64)$|choose_qparams|fused_moving",
    "TorchScript, graphs and symbolic shapes": r"Type$|Sym|sym_|Script|Graph|jit|parse_|import_ir|Stub|export$|cond$|Code$|CompilationUnit|Block$|FunctionSchema|Future|fork$|wait$|merge_type|unify_type",
    "other devices and libraries": r"mkldnn|cudnn_|miopen|mps|xla|ipu|xpu|mtia|maia|vulkan|hpu|nccl|cudart|MTIA|nnpack",
    "storages": r"[sS]torage",
    "orthogonal polynomials, Airy and spherical Bessel functions": r"bessel|airy|hermite|laguerre|legendre|chebyshev",
}
DIFFERENT = {
    "torch.compile": "returns the model unchanged", "torch.jit": "decorators return functions and modules unchanged; no TorchScript files",
    "torch.vmap": "a loop over the dimension", "torch.func.vmap": "a loop over the dimension", "torch.func.jacfwd": "computed by jacrev",
    "torch.save": "writes safetensors with the structure as JSON, not a zip of pickles; saves whole storages, like torch; replaces a file atomically", "torch.load": "reads ampc's files and torch's state dicts, with limits on size; unpickles only if asked to",
    "torch.manual_seed": "random numbers differ from torch's, and do not depend on the number of threads", "torch.use_deterministic_algorithms": "no effect: every operator is deterministic",
    "torch.set_float32_matmul_precision": "affects GPUs only (TF32); the CPU computes products in float32", "torch.utils.checkpoint.checkpoint": "use_reentrant is False by default",
    "torch.nn.DataParallel": "uses one device: runs the wrapped module", "torch.nn.utils.skip_init": "the parameters have first values",
    "torch.nn.SyncBatchNorm": "uses one process: the same as batch norm", "torch.from_dlpack": "no complex types",
    "torch.Tensor.is_pinned": "memory is page-locked only if there is a GPU", "torch.nn.functional.scaled_dot_product_attention": "a query whose keys are all masked gives 0, not nan",
    **{f"torch.{n}": "only a name, for tables and comparisons; tensors cannot have it" for n in (
        "complex64", "complex128", "cfloat", "cdouble", "uint16", "uint32", "uint64", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz")},
    "torch.nn.utils.rnn.PackedSequence": "holds tensors only", "torch.autograd.grad": "no is_grads_batched",
}


def find(path: str) -> object:
    """The object with a dotted name, or None."""
    found = importlib.import_module(path.split(".")[0])
    for part in path.split(".")[1:]:
        if not hasattr(found, part):
            try:
                importlib.import_module(f"{found.__name__}.{part}")
            except ImportError:
                return None
        found = getattr(found, part)
    return found


# -- torch's names ---------------------------------------------------------------------------------------------------


def keep_names() -> None:
    """Saves torch's public names: those of __all__, or else of what the module defines."""
    import torch

    kept = {}
    for space in NAMESPACES:
        module = find(space)
        names = getattr(module, "__all__", None)
        if names is None or space in ("torch.nn.functional", "torch.autograd", "torch.nn.init", "torch.linalg"):
            names = dir(module)
        kept[space] = sorted(n for n in set(names) if not n.startswith("_") and hasattr(module, n) and not isinstance(getattr(module, n), ModuleType)
                             and getattr(getattr(module, n), "__module__", "torch") not in ("typing", "functools", "collections", "collections.abc", "contextlib", "enum", "math",
                                                                                          "itertools", "bisect", "weakref", "warnings", "typing_extensions", "types", "copy"))
    (KEPT / "names.json").write_text(json.dumps({"torch": torch.__version__.split("+")[0], "names": kept}, indent=0))


def state_of(space: str, name: str) -> str:
    full = f"{space}.{name}"
    here = find("ampc" + space[len("torch"):])
    if here is None or not hasattr(here, name):
        return "absent"
    return "different" if full in DIFFERENT else "present"


def area_of(name: str) -> str:
    return next((area for area, pattern in ABSENT_AREAS.items() if re.search(pattern, name)), "")


# -- programs --------------------------------------------------------------------------------------------------------


def run_program(name: str, seed: int, library: str, *more: str) -> list:
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(PROGRAMS / "stand_ins"), *filter(None, [os.environ.get("PYTHONPATH")])]), "DIGITS": str(ROOT / "ampc" / "data" / "digits.npz")}
    command = [sys.executable, *(["-m", "ampc", "run"] if library == "ampc" else []), str(PROGRAMS / "programs.py"), name, str(seed), *more]
    done = subprocess.run(command, capture_output=True, text=True, env=env, cwd=PROGRAMS)
    if done.returncode:
        raise RuntimeError(f"{name} with seed {seed} on {library}: {done.stderr.strip().splitlines()[-1]}")
    return json.loads(done.stdout.strip().splitlines()[-1])


def listed() -> dict:
    """{name: (what it is, package)}, read from the table in programs.py."""
    text = (PROGRAMS / "programs.py").read_text()
    return {n: (what, package) for n, what, package in re.findall(r'"(\w+)": \(\w+, "([^"]+)", "([^"]+)"\)', text)}


def keep_programs() -> None:
    rows = []
    for name, (what, package) in listed().items():
        seeds = []
        for seed in SEEDS:
            sys.stderr.write(f"\r{name:<14} seed {seed} ")
            ours, theirs = (run_program(name, seed, library) for library in ("ampc", "torch"))
            seeds.append({"seed": seed, "ampc": ours, "torch": theirs})
            if name in DRIFTING:
                seeds[-1]["float64"] = {library: run_program(name, seed, library, "float64") for library in ("ampc", "torch")}
        rows.append({"name": name, "what": what, "package": package, "version": importlib.metadata.version(package), "seeds": seeds})
    sys.stderr.write("\n")
    commit = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, cwd=ROOT).stdout.strip()
    kept = {"date": time.strftime("%Y-%m-%d", time.gmtime()), "commit": commit, "torch": importlib.metadata.version("torch").split("+")[0], "programs": rows}
    (KEPT / "programs.json").write_text(json.dumps(kept, indent=0))


def difference(a: list, b: list, steps: slice) -> float:
    """The largest relative difference of two lists of losses."""
    return max(abs(x - y) / max(abs(y), 1e-3) for x, y in list(zip(a, b))[steps])


# -- the document ----------------------------------------------------------------------------------------------------


def programs_table() -> str:
    kept = json.loads((KEPT / "programs.json").read_text())
    rows = ["| program | package | version | steps | difference of the first loss | of all losses | last losses, ampc and torch |", "|---|---|---|---|---|---|---|"]
    for p in kept["programs"]:
        pairs = [(s["ampc"], s["torch"]) for s in p["seeds"]]
        first, every = max(difference(a, b, slice(0, 1)) for a, b in pairs), max(difference(a, b, slice(None)) for a, b in pairs)
        last = "; ".join(f"{a[-1]:.4g}, {b[-1]:.4g}" for a, b in pairs)
        rows.append(f"| {p['what']} | {p['package']} | {p['version']} | {len(pairs[0][0])} | {first:.1e} | {every:.1e} | {last} |")
    return (f"Run on {kept['date']} at commit {kept['commit'][:12]} with torch {kept['torch']}. Differences are relative, and the largest of the seeds "
            f"{', '.join(map(str, SEEDS))}.\n\n" + "\n".join(rows))


def drift_table() -> str:
    """Compares losses in float32 with those in float64."""
    rows = ["| program | ampc and torch differ, both in float64 | ampc in float32 from float64 | torch in float32 from float64 |", "|---|---|---|---|"]
    for p in json.loads((KEPT / "programs.json").read_text())["programs"]:
        exact = [s["float64"]["torch"] for s in p["seeds"] if "float64" in s]
        if not exact:
            continue
        runs = [[s["float64"]["ampc"] for s in p["seeds"]], *([s[library] for s in p["seeds"]] for library in ("ampc", "torch"))]
        cells = [", ".join(f"{difference(a, b, slice(None)):.1e}" for a, b in zip(run, exact)) for run in runs]
        rows.append(f"| {p['what']} | {' | '.join(cells)} |")
    return "\n".join(rows)


def names_tables() -> str:
    kept = json.loads((KEPT / "names.json").read_text())
    summary = ["| namespace | names | present | different | absent |", "|---|---|---|---|---|"]
    details = []
    for space, names in kept["names"].items():
        states = {n: state_of(space, n) for n in names}
        count = {s: sum(v == s for v in states.values()) for s in ("present", "different", "absent")}
        summary.append(f"| `{space}` | {len(names)} | {count['present']} | {count['different']} | {count['absent']} |")
        by_area: dict = {}
        for n, s in states.items():
            if s == "absent":
                by_area.setdefault(area_of(n) or "other", []).append(n)
        different = [f"- `{n}`: {DIFFERENT[f'{space}.{n}']}" for n, s in states.items() if s == "different"]
        details.append(f"### `{space}`\n")
        if different:
            details.append("Different:\n\n" + "\n".join(different) + "\n")
        for area, absent in sorted(by_area.items(), key=lambda item: (item[0] == "other", item[0])):
            details.append(f"Absent ({area}): " + ", ".join(f"`{n}`" for n in absent) + "\n")
        details.append("Present: " + ", ".join(f"`{n}`" for n, s in states.items() if s == "present") + "\n")
    return f"Names of torch {kept['torch']}.\n\n" + "\n".join(summary) + "\n\n" + "\n".join(details)


def reasons() -> str:
    """The reasons in tests/opinfo/known.py, read by syntax, because that module imports torch."""
    tree = ast.parse((ROOT / "tests" / "opinfo" / "known.py").read_text())
    made = [n.args[0] for n in ast.walk(tree) if isinstance(n, ast.Call) and getattr(n.func, "id", "") == "Known"]
    return "\n".join(f"- {reason}." for reason in sorted((ast.literal_eval(a) for a in made), key=str.lower))


def document() -> str:
    return f"""# Compatibility with torch

Generated by `python tools/compatibility.py`.

## Public programs

`tests/programs/programs.py` trains models of unmodified packages from PyPI for a few steps, once with torch and once with `ampc run`.
Both begin with the same parameters and data, which NumPy draws. The two libraries add numbers in a different order, and training makes
these differences larger. Instead of `torchvision` there is a stand-in that serves 8 x 8 digits in the form of MNIST and CIFAR10.

{programs_table()}

### Where losses drift

In float32 the losses of three programs differ by more than 1e-4. This table has the same programs in float64, from the same first
values. A number is the largest relative difference of losses over the steps; each seed has one.

{drift_table()}

- In float64 the two libraries agree to ten digits and more, so they compute the same functions.
- In float32 both libraries have the same relative error in the first step's gradients: 1e-5 in ResNet-18, 1e-6 in U-Net, 3e-6 in the GAN.
- Training then multiplies the difference, in ResNet-18 by about ten thousand in six steps. A difference of 1e-15 in float64 becomes 1e-11, and
  one of 1e-6 in float32 becomes a tenth.
- torch alone shows the same. Its ResNet-18 in float64 ends 11, 16 and 13 % away if the first parameters change by 6e-8, the rounding of float32.
- Adam multiplies differences most, because it divides a gradient by its own size. A weight with a tiny gradient moves as far as any
  other, in a direction that rounding decides.
- ReLU multiplies them too, because its slope jumps at 0. In the GAN's third seed, one of 131,072 values before a leaky ReLU is -8.5e-7 in
  float64 and 2.8e-7 in ampc's float32. That changes gradients in the fourth digit.

Neither library is always nearer to float64. To compare such a program between libraries, run it in float64 or compare its first step. The
trainer with autocast computes its products in 16 bits. Its first step already differs by that rounding.

## Results that differ on purpose

torch's wheel has samples of each operator, module and optimizer. `tests/opinfo` runs them with both libraries. It compares values, dtypes, shapes,
strides of views, gradients, exceptions, methods, in-place forms and `out=`. These are the differences that stay:

{reasons()}

Samples hold ordinary numbers. At the ends of dtypes these differ, too:

- A number beside an integer tensor is compared as it is, and so is a 0-d tensor. torch first wraps it into the tensor's dtype, so that a `uint8`
  of 0 is less than -1 there, and 44 equals 300.
- `clamp` takes bounds beyond the dtype that no value reaches, such as `min=-1` of `uint8`, which torch wraps, and `max=300` of `int8`, where it
  raises. A `max` below all numbers of `uint8` is an error. In torch it wraps, too.
- Integers beside 16-bit tensors are computed with as they are, and the result is rounded. torch rounds them first: the largest `int32` is
  infinite in `float16`, and minus infinity gives nan.
- `gcd` of the smallest integer is positive where it fits. torch's is negative.
- The gradient of `ldexp` is 2^n. torch computes it with integers, so it is 0 for a negative n.
- An operator on a subclass of `Tensor` gives a `Tensor`. In torch it gives the subclass.
- `copy.deepcopy` and `pickle` keep strides where the values lie without gaps. Else the copy lies row by row. torch copies the whole memory.

`tests/opinfo/open.txt` names the entries that still differ in another way.

## Areas that are absent

{", ".join(ABSENT_AREAS)}; training with several processes.

## Names

{names_tables()}"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--check", action="store_true", help="exit with 1 if the page is out of date")
    parser.add_argument("--names", action="store_true", help="first save torch's public names")
    parser.add_argument("--programs", action="store_true", help="first run the programs on both libraries, and save the losses")
    args = parser.parse_args()
    KEPT.mkdir(exist_ok=True)
    if args.names:
        keep_names()
    if args.programs:
        keep_programs()
    return write_or_check({DOCUMENT: document().rstrip("\n") + "\n"})


if __name__ == "__main__":
    sys.exit(main())
