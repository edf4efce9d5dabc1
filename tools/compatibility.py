"""What of torch is here: docs/compatibility.md, from the ampc that is installed.

    python tools/compatibility.py                # writes the document from what is kept in docs/compatibility/
    python tools/compatibility.py --check        # says whether it is up to date
    python tools/compatibility.py --names        # keeps torch's public names; needs torch
    python tools/compatibility.py --programs     # runs tests/programs on both, three seeds each, and keeps what came of it; needs torch and
                                                 # the packages (pip install --no-deps, names in tests/programs/programs.py)
"""

from __future__ import annotations

import argparse
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
    "lazy modules": r"^Lazy|Uninitialized",
    "special functions of gamma and Bessel": r"gamma|bessel|airy|zeta|i0|i1|hermite|laguerre|legendre|chebyshev|erfcx|multigammaln",
}
DIFFERENT = {
    "torch.compile": "hands the model back: there is nothing to compile", "torch.jit": "decorators hand functions and modules back; no TorchScript files",
    "torch.vmap": "torch.func.vmap is a loop", "torch.func.vmap": "a loop over the dimension", "torch.func.jacfwd": "made as jacrev",
    "torch.save": "writes safetensors with the structure as JSON, not a zip of pickles; whole storages, as torch; atomic", "torch.load": "reads those and torch's state dicts, within bounds; unpickles on request alone",
    "torch.manual_seed": "another stream of random numbers than torch's, the same at any number of threads", "torch.use_deterministic_algorithms": "everything is deterministic as it is",
    "torch.set_float32_matmul_precision": "acts on a GPU (TF32); products of the CPU stay float32", "torch.utils.checkpoint.checkpoint": "use_reentrant is False when not given",
    "torch.nn.DataParallel": "one device: runs the module it wraps", "torch.nn.SyncBatchNorm": "one process: batch norm", "torch.from_dlpack": "no complex types",
    "torch.Tensor.is_pinned": "page-locked memory where there is a GPU", "torch.nn.functional.scaled_dot_product_attention": "a query that may look at nothing gives 0, not nan",
    **{f"torch.{n}": "a name for tables and comparisons; there are no tensors of it" for n in (
        "complex64", "complex128", "cfloat", "cdouble", "uint16", "uint32", "uint64", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz")},
    "torch.nn.utils.rnn.PackedSequence": "tensors alone", "torch.autograd.grad": "no is_grads_batched",
}


def find(path: str) -> object:
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
    """Public names: those of __all__, or what is defined there."""
    import torch

    kept = {}
    for space in NAMESPACES:
        place = find(space)
        names = getattr(place, "__all__", None)
        if names is None or space in ("torch.nn.functional", "torch.autograd", "torch.nn.init", "torch.linalg"):
            names = dir(place)
        kept[space] = sorted(n for n in set(names) if not n.startswith("_") and hasattr(place, n) and not isinstance(getattr(place, n), ModuleType)
                             and getattr(getattr(place, n), "__module__", "torch") not in ("typing", "functools", "collections", "collections.abc", "contextlib", "enum", "math",
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
    """name: (what, package), read off the programs' own table."""
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


def difference(a: list, b: list, places: slice) -> float:
    """The largest relative difference of two lists of losses."""
    return max(abs(x - y) / max(abs(y), 1e-3) for x, y in list(zip(a, b))[places])


# -- the document ----------------------------------------------------------------------------------------------------


def programs_table() -> str:
    kept = json.loads((KEPT / "programs.json").read_text())
    rows = ["| program | package | version | steps | first step differs by | over all steps by | last losses, ampc and torch |", "|---|---|---|---|---|---|---|"]
    for p in kept["programs"]:
        pairs = [(s["ampc"], s["torch"]) for s in p["seeds"]]
        first, every = max(difference(a, b, slice(0, 1)) for a, b in pairs), max(difference(a, b, slice(None)) for a, b in pairs)
        last = "; ".join(f"{a[-1]:.4g}, {b[-1]:.4g}" for a, b in pairs)
        rows.append(f"| {p['what']} | {p['package']} | {p['version']} | {len(pairs[0][0])} | {first:.1e} | {every:.1e} | {last} |")
    return (f"Run on {kept['date']} at commit {kept['commit'][:12]}, beside torch {kept['torch']}, seeds {', '.join(map(str, SEEDS))}; the largest relative "
            "difference of losses over the seeds.\n\n" + "\n".join(rows))


def drift_table() -> str:
    """How far losses in float32 are from those in float64."""
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


def document() -> str:
    return f"""# Compatibility with torch

Generated by `python tools/compatibility.py`.

## Public programs

Packages from PyPI as they are, each driven for some training steps by `tests/programs/programs.py`, once under torch and once by
`ampc run`. Both begin with the same parameters and data, which NumPy draws; then only the order of additions differs, and what that
grows to over the steps. `torchvision` is a stand-in that serves 8 x 8 digits in MNIST's and CIFAR10's form.

{programs_table()}

### Where losses drift

Three programs in float32 come apart by more than 1e-4. The same programs in float64, from the same first values (the largest relative difference of losses
over the steps, a number for each seed):

{drift_table()}

- In float64 the two libraries agree to ten digits and more, so they compute the same functions.
- In float32 the first step's gradients are as far from float64 in either library: in parts of themselves 1e-5 in ResNet-18, 1e-6 in U-Net, 3e-6
  in the GAN. Then training multiplies the difference, in ResNet-18 by some ten thousand in six steps: what was 1e-15 in float64 becomes
  1e-11, what was 1e-6 in float32 becomes a tenth. torch's ResNet-18 in float64, begun from parameters changed by 6e-8 of themselves, which is what rounding to
  float32 does, ends 11, 16 and 13 % away from itself.
- Two things multiply most. Adam divides a gradient by its own size, so a weight whose gradient is nearly nothing moves as far as any other, in the direction
  that its rounding says. And ReLU has a kink: in the GAN's third seed one of 131,072 values before a leaky ReLU is -8.5e-7 in float64 and 2.8e-7 in
  ampc's float32, which changes gradients in the fourth digit.

Neither library is the nearer one in every program and seed. To compare such a program between libraries, run it in float64 or look at its first step. The
trainer with autocast computes its products in 16 bits, and differs from the first step on by what that rounds.

## Areas that are absent

{", ".join(ABSENT_AREAS)}; several processes. `torch.func.vmap` is a loop.

## Names

{names_tables()}"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for option in ("check", "names", "programs"):
        parser.add_argument(f"--{option}", action="store_true")
    args = parser.parse_args()
    KEPT.mkdir(exist_ok=True)
    if args.names:
        keep_names()
    if args.programs:
        keep_programs()
    text = document().rstrip("\n") + "\n"
    if args.check:
        current = DOCUMENT.exists() and DOCUMENT.read_text() == text
        print("docs/compatibility.md is up to date" if current else "docs/compatibility.md is out of date: run python tools/compatibility.py")
        return 0 if current else 1
    DOCUMENT.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
