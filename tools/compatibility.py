"""Writes docs/compatibility.md and the pages beside its data: which names of torch the installed ampc has, and how public packages train on both.

    python tools/compatibility.py                # writes the pages from the data in docs/compatibility/
    python tools/compatibility.py --check        # exits with 1 if a page is out of date
    python tools/compatibility.py --names        # first saves torch's public names; needs torch
    python tools/compatibility.py --libraries ENVIRONMENT/bin/python   # first runs tests/libraries on both, three seeds each, and saves how far the losses lie apart

--libraries needs torch beside ampc, and an environment with the packages of tests/libraries/requirements.txt, from pip install --no-deps.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import importlib.metadata
import json
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

from generated import write_or_check

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))
from libraries import running  # noqa: E402

KEPT, DOCUMENT = ROOT / "docs" / "compatibility", ROOT / "docs" / "compatibility.md"

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
    "torch.compile": "compiles nothing, and says so once: functions are returned, and modules within a module, as in torch", "torch.jit": "decorators return functions and modules unchanged; no TorchScript files",
    "torch.vmap": "a loop over the dimension", "torch.func.vmap": "a loop over the dimension", "torch.func.jacfwd": "computed by jacrev",
    "torch.func.functionalize": "calls the function, whose writes in place stay",
    "torch.save": "writes safetensors with the structure as JSON, and torch's zip of pickles with format=\"torch\"; saves whole storages, like torch; replaces a file atomically", "torch.load": "reads ampc's files and torch's state dicts, with limits on size; unpickles only if asked to",
    "torch.manual_seed": "random numbers differ from torch's, and do not depend on the number of threads", "torch.use_deterministic_algorithms": "no effect: every operator is deterministic",
    "torch.set_float32_matmul_precision": "affects GPUs only (TF32); the CPU computes products in float32", "torch.utils.checkpoint.checkpoint": "use_reentrant is False by default",
    "torch.nn.DataParallel": "uses one device: runs the wrapped module", "torch.nn.utils.skip_init": "the parameters have first values",
    "torch.from_dlpack": "no complex types",
    "torch.Tensor.is_pinned": "memory is page-locked only if there is a GPU", "torch.nn.functional.scaled_dot_product_attention": "a query whose keys are all masked gives 0, not nan",
    **{f"torch.{n}": "only a name, for tables and comparisons; tensors cannot have it" for n in (
        "complex32", "complex64", "complex128", "cfloat", "cdouble", "uint16", "uint32", "uint64", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz")},
    **{f"torch.{n}": "only a name, for comparisons; no tensor has this layout" for n in ("sparse_coo", "sparse_csr", "sparse_csc", "sparse_bsr", "sparse_bsc", "jagged")},
    "torch.nn.utils.rnn.PackedSequence": "holds tensors only",
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


def torch_names() -> dict:
    """torch's version, and its names by namespace, as they were saved."""
    return json.loads((KEPT / "names.json").read_text())


def state_of(space: str, name: str) -> str:
    full = f"{space}.{name}"
    entry = library_names().entry_of(full)
    if entry is not None and entry.kind in ("class", "module", "refused"):
        return "refused"
    here = find("ampc" + space[len("torch"):])
    if here is None or not hasattr(here, name):
        return "absent"
    return "different" if full in DIFFERENT else "present"


def area_of(name: str) -> str:
    return next((area for area, pattern in ABSENT_AREAS.items() if re.search(pattern, name)), "")


# -- the document ----------------------------------------------------------------------------------------------------


def kept_scripts() -> list:
    """The scripts that stand in tests/libraries, as they were run."""
    rows = json.loads((KEPT / "libraries.json").read_text())["scripts"]
    return [rows[s.label] for s in running.scripts() if s.label in rows]


def libraries_table() -> str:
    rows = ["| package | version | script | numbers | difference of the first | of all | by rounding in torch alone | agrees |", "|---|---|---|---|---|---|---|---|"]
    stopped = []
    for r in kept_scripts():
        if "failed" in r:
            stopped.append(f"- {r['package']} {r['version']}, {r['what']}: {r['failed']}")
            continue
        seeds = r["seeds"].values()
        first, every, alone = (max(s[name] for s in seeds) for name in ("first", "all", "alone"))
        rows.append(f"| {r['package']} | {r['version']} | {r['what']} | {max(s['numbers'] for s in seeds)} | {first:.1e} | {every:.1e} | {alone:.1e} | "
                    f"{'no' if r['disagrees'] else 'yes'} |")
    return "\n".join(rows) + ("\n\nThese stop:\n\n" + "\n".join(stopped) if stopped else "")


def when() -> str:
    kept = json.loads((KEPT / "libraries.json").read_text())
    runs = sorted({(r["date"], r["commit"][:12]) for r in kept_scripts()})
    return f"Run on {runs[-1][0]} at commit {runs[-1][1]} with torch {kept['torch']}, over the seeds {', '.join(map(str, running.SEEDS))}."


def programs_table() -> str:
    """Of ``tools/public_programs.py``'s last run."""
    kept = json.loads((KEPT / "public_programs.json").read_text())
    rows = ["| repository | at commit | program | command | seconds |", "|---|---|---|---|---|"]
    rows += [f"| {r['repository']} | {r['commit']} | {r['program']} | `{r['command']}` | {r['seconds']} |" for r in kept["programs"] if r["passed"]]
    stopped = [f"- {r['repository']}, {r['program']}: {r['says']}" for r in kept["programs"] if not r["passed"]]
    said = f"{len(kept['programs']) - len(stopped)} of {len(kept['programs'])} programs run. Run on {kept['date']} at commit {kept['ampc']}."
    return "\n".join([said, "", *rows]) + ("\n\nThese stop:\n\n" + "\n".join(stopped) if stopped else "")


def drift_table() -> str:
    """Compares losses in float32 with those in float64."""
    rows = ["| script | ampc and torch differ, both in float64 | ampc in float32 from float64 | torch in float32 from float64 |", "|---|---|---|---|"]
    for r in kept_scripts():
        if "float64" not in r:
            continue
        cells = [", ".join(f"{r['float64'][seed][i]:.1e}" for seed in sorted(r["float64"])) for i in range(3)]
        rows.append(f"| {r['package']}, {r['what']} | {' | '.join(cells)} |")
    return "\n".join(rows)


def names_tables() -> str:
    kept = torch_names()
    summary = ["| namespace | names | present | different | refused | absent |", "|---|---|---|---|---|---|"]
    details = []
    for space, names in kept["names"].items():
        states = {n: state_of(space, n) for n in names}
        count = {s: sum(v == s for v in states.values()) for s in ("present", "different", "refused", "absent")}
        summary.append(f"| `{space}` | {len(names)} | {count['present']} | {count['different']} | {count['refused']} | {count['absent']} |")
        by_area: dict = {}
        for n, s in states.items():
            if s == "absent":
                by_area.setdefault(area_of(n) or "other", []).append(n)
        different = [f"- `{n}`: {DIFFERENT[f'{space}.{n}']}" for n, s in states.items() if s == "different"]
        details.append(f"### `{space}`\n")
        if different:
            details.append("Different:\n\n" + "\n".join(different) + "\n")
        refused = [n for n, s in states.items() if s == "refused"]
        if refused:
            details.append("Refused: " + ", ".join(f"`{n}`" for n in refused) + "\n")
        for area, absent in sorted(by_area.items(), key=lambda item: (item[0] == "other", item[0])):
            details.append(f"Absent ({area}): " + ", ".join(f"`{n}`" for n in absent) + "\n")
        details.append("Present: " + ", ".join(f"`{n}`" for n, s in states.items() if s == "present") + "\n")
    return f"Names of torch {kept['torch']}.\n\n" + "\n".join(summary) + "\n\n" + "\n".join(details)


def library_names() -> ModuleType:
    """The table of names that libraries touch, read."""
    return importlib.import_module("ampc._names.modules")


def library_tables() -> str:
    """That table: for each module what its names do."""
    table, parts = library_names(), []
    for section in table.sections():
        first, *others = section.modules
        short = ", ".join(f"`{m[len(first):] if m.startswith(first + '.') else m}`" for m in others)
        lines = [f"### `{first}`" + (f"\n\nThe same names are in {short}." if others else ""), f"{sentence(section.reason)}."]
        kinds: dict = {}
        for entry in section.entries.values():
            own = entry.kind == "is" and entry.detail.startswith("_library_functions.")
            kinds.setdefault(f"gives {entry.detail}" if entry.kind == "gives" else "works" if own else entry.kind, []).append(described(entry))
        if kinds:
            lines.append("\n".join(f"- {kind}: {', '.join(names)}" for kind, names in sorted(kinds.items())))
        parts.append("\n\n".join(lines))
    return "\n\n".join(parts)


def sentence(text: str) -> str:
    """With a capital letter, but for the names of libraries."""
    return text if text.startswith(("ampc", "torch.")) else text[0].upper() + text[1:]


def described(entry) -> str:
    """A name, with its members or its other name."""
    if entry.kind in ("enum", "class", "module") and entry.detail:
        return f"`{entry.name}` ({', '.join(f'`{m}`' for m in entry.detail.split())})"
    other = f"{'ampc' if entry.detail == '.' else entry.detail}" if entry.kind == "is" else ""
    shown = other and not other.startswith("_") and other.rpartition(".")[2] != entry.name
    return f"`{entry.name}`" + (f" (`{other}`)" if shown else "")


def kinds_table() -> str:
    return "\n".join(f"- *{kind}*: {text}." for kind, text in library_names().KINDS.items())


def reasons() -> str:
    """The reasons in tests/opinfo/known.py, read by syntax, because that module imports torch."""
    tree = ast.parse((ROOT / "tests" / "opinfo" / "known.py").read_text())
    made = [n.args[0] for n in ast.walk(tree) if isinstance(n, ast.Call) and getattr(n.func, "id", "") == "Known"]
    return "\n".join(f"- {reason}." for reason in sorted((ast.literal_eval(a) for a in made), key=str.lower))


GENERATED = "Generated by `python tools/compatibility.py`."


def absent_by_area() -> str:
    """Each area with the number of its absent names."""
    areas = [area_of(n) for space, names in torch_names()["names"].items() for n in names if state_of(space, n) == "absent"]
    return "; ".join(f"{area} ({areas.count(area)})" for area in ABSENT_AREAS if area in areas) + f"; others, mostly torch's internals ({areas.count('')})"


def counts() -> dict:
    """The numbers of the summary."""
    scripts, programs = kept_scripts(), json.loads((KEPT / "public_programs.json").read_text())["programs"]
    states = [state_of(space, n) for space, names in torch_names()["names"].items() for n in names]
    return {"scripts": len(scripts), "agree": sum("failed" not in r and not r["disagrees"] for r in scripts), "packages": len({r["package"] for r in scripts}),
            "programs": len(programs), "run": sum(r["passed"] for r in programs), "repositories": len({r["repository"] for r in programs}),
            "names": len(states), **{s: states.count(s) for s in ("present", "different", "refused", "absent")}}


def summary_page() -> str:
    n = counts()
    return f"""# Compatibility with torch

{GENERATED} The yardstick is torch {torch_names()['torch']} on the CPU.

**What runs.**

- {n['agree']} of {n['scripts']} training scripts of {n['packages']} unmodified packages from PyPI, such as transformers, lightning, timm and diffusers, have
  the same losses as with torch, within rounding. {n['run']} of {n['programs']} programs of {n['repositories']} public repositories, such as nanoGPT, run as they are:
  [packages and programs](compatibility/packages.md).
- Of {n['names']} public names of torch, ampc has {n['present'] + n['different']}, of which {n['different']} do something else than torch's on purpose: [names](compatibility/names.md).
- Names that only libraries use, such as those of `torch._dynamo` or `torch.distributed`, can be imported. What cannot work here raises
  NotImplementedError with the reason when it is called: [names of libraries](compatibility/library_names.md).

**What does not.**

- One process with a model on several GPUs. Of several processes each takes a GPU, and [`fully_shard`](distributed.md) spreads parameters over them; NCCL has run on a simulator alone.
- {n['absent']} names are absent: {absent_by_area()}.
- {n['refused']} names can be imported and refuse to be called.
- `torch.compile` compiles nothing: the model runs as it is, as the `_orig_mod` of another module, as in torch. `torch.jit` returns it unchanged.
- The same seed gives other random numbers than in torch.

**For your script.** `ampc run --api train.py` lists the names of torch that it, and the packages which it imports, would miss. It does not run the script.
[Moving here](migration.md) has the differences that a script notices. The rest of this page is about values that differ.

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
- Convolutions, pooling, norms, dropout and `cat` give row-major results of channels-last operands, which they read in place. Elementwise operators and
  copies keep channels-last, and any other order, as in torch.
- `pickle` keeps strides where the values lie without gaps. Else what is loaded lies row by row. torch writes the whole memory.

`tests/opinfo/open.txt` names the entries that still differ in another way."""


def packages_page() -> str:
    return f"""# Packages and programs

{GENERATED}

## Public packages

`tests/libraries` trains models of unmodified packages from PyPI for some steps, once with torch and once with `ampc run`. Both begin with
the same parameters and data, which NumPy draws. The versions are those of `tests/libraries/requirements.txt`. The numbers that are compared
are losses, and at the end of some scripts metrics, generated tokens and samples.

The two libraries add numbers in a different order, and training makes these differences larger. How much is measured for each script with
torch alone: it runs {running.NUDGES} times more with each first parameter moved up or down by one rounding of the dtype that the script
computes in (float16 or bfloat16 under autocast). At each step ampc may differ by {running.TIMES} times what the nudges have changed so far. They are one
rounding of each parameter, and another order of additions is one in each operator of each step.

torchvision's wheel from PyPI is compiled for CUDA. Its operators (`nms`, `roi_align`) load neither beside torch for CPUs nor into ampc; its models
and transforms do not need them.

{when()} Differences are relative, and the largest of the seeds.

{libraries_table()}

### Where losses drift

In float32 the losses of some scripts differ by more than 1e-4. This table has such scripts in float64, from the same first
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

## Public programs

`tools/public_programs.py` runs programs of public repositories as they are, with `ampc run`. It takes a folder of clones. A program passes if it ends
well, or prints what it is stopped at where it would train for hours. Where it would download MNIST it finds ampc's digits, enlarged; other data
are drawn. The numbers that it prints depend on random numbers, so they are not compared. The seconds are of a machine with other work.

{programs_table()}"""


def library_names_page() -> str:
    return f"""# Names that libraries touch

{GENERATED}

Libraries import these names, and programs hardly call them. Each one is in the table of `ampc/_names/table.py`, from which the modules make
themselves when somebody asks for them. What can be right is right. A refusal is a NotImplementedError that says why, and what to do instead. What a
name does is one of these words:

{kinds_table()}

{library_tables()}"""


def names_page() -> str:
    return f"""# Names of torch

{GENERATED} *Present*: the name is there. *Different*: it is there and does something else, which is said below. *Refused*: it can be
imported, and raises NotImplementedError with the reason. *Absent*: asking for it raises AttributeError.

{names_tables()}"""


def pages() -> dict:
    """Each page's path and text."""
    made = {DOCUMENT: summary_page(), KEPT / "packages.md": packages_page(), KEPT / "names.md": names_page(), KEPT / "library_names.md": library_names_page()}
    return {path: text.rstrip("\n") + "\n" for path, text in made.items()}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--check", action="store_true", help="exit with 1 if a page is out of date")
    parser.add_argument("--names", action="store_true", help="first save torch's public names")
    parser.add_argument("--libraries", metavar="PYTHON", help="first run tests/libraries with this environment's Python on both libraries, and save how far the losses lie apart")
    args = parser.parse_args()
    KEPT.mkdir(exist_ok=True)
    if args.names:
        keep_names()
    if args.libraries:
        command = [sys.executable, "-m", "libraries", "--python", args.libraries, "--all", "--save", str(KEPT / "libraries.json")]
        subprocess.run(command, cwd=ROOT / "tests", check=False)
    return write_or_check(pages())


if __name__ == "__main__":
    sys.exit(main())
