"""The architecture, checked: who may include whom, sizes of files and functions, no Python in the core."""

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import ampc
import ampc.doctor
import ampc.utils

ROOT = Path(__file__).resolve().parent.parent
CSRC = ROOT / "csrc"
# From the ground up. A folder includes what stands before it, and itself.
ORDER = ["base", "tensor", "shared", "ops", "backend", "cpu", "cuda", "optim", "amp", "autograd", "dispatch", "python"]
RANK = {folder: rank for rank, folder in enumerate(ORDER)}
FILES = sorted(p for p in CSRC.rglob("*") if p.suffix in (".c", ".h", ".inc", ".def", ".cu", ".cuh"))

MODULES = {".".join(p.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): p for p in sorted((ROOT / "ampc").rglob("*.py"))}
# The packages and modules of ampc/, from the ground up: each imports what stands before it, and itself, inside functions too. ``cuda.amp``
# has a rank of its own: torch's older way to reach autocast and GradScaler stands above them, and ``cuda`` below.
PYTHON_ORDER = re.findall(r"[\w.]+", """
    _names _process _messages _tensor _operators
    _names.table _names.table_distributed _names.modules _names.missing _names.place _process.cuda_folders _process.launcher _process.stand_in _process.start_mpiexec _process.owners version torch_version _tensor.unsupported_dtypes _ops _messages.table _messages.progress _messages.callers _messages.once _events _tensor.gradients _messages.model_names
    _messages.checks errors _tensor.device types _tensor.dims _tensor.out _tensor.layout _tensor.printing _tensor.functions _process.settings amp._global_autocast
    _tensor.creation _library_functions _tensor.buffers _tensor.shared_memory _tensor.storage storage _tensor.typed random multiprocessing backends cuda accelerator _tensor.interop formats
    _tensor.finfo testing _tensor.foreach overrides autograd futures distributed linalg _composed _tensor.array_api _tensor.methods _tensor.other_kinds
    policy amp cuda.amp cpu
    nn compiler _dynamo special fft signal jit optim distributed.tensor distributed.fsdp distributed.optim serialization distributed.checkpoint hub
    _utils utils cuda.graphed func distributions data keras
    doctor training bench check return_types profiler ops _operators.schemas _operators.opcheck library
    ampc
    _process.installation run selftest cli __main__
""")
PYTHON_RANK = {name: rank for rank, name in enumerate(PYTHON_ORDER)}
# Packages that import by computed names, and which; in ``ampc.run`` the names are those that a script asks of torch.
COMPUTED = {"ampc": ampc._LATER | set(ampc._FROM.values()), "ampc.doctor": ampc.doctor._LATER, "ampc.nn.modules": set(ampc.nn.modules.LATER.values()), "ampc.utils": ampc.utils.__all__,
            "ampc.nn": {"attention", "utils"}, "ampc.nn.utils": {"prune", "stateless"},
            "ampc._names.modules": set()}  # modules without a file


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


def test_no_stage_of_a_call_asks_for_one_operator():
    """What a few operators need of the generic code is a flag of the table (ops.def)."""
    for p in FILES:
        if folder(p) in ("amp", "dispatch", "optim") and not p.name.startswith("compose_"):
            code = re.sub(r"/\*.*?\*/", "", p.read_text(), flags=re.S)
            assert not re.findall(r"[=!]=\s*AC_OP_\w+|AC_OP_\w+\s*[=!]=|case AC_OP_\w+|(?:infer|kernel)\s*[=!]=\s*ac_\w+", code), p


def test_autocast_is_switched_off_by_its_helper_alone():
    for p in FILES:
        assert folder(p) == "amp" or not re.search(r"ac_autocast\.active\s*=[^=]", p.read_text()), p


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


@pytest.mark.parametrize("path", [*FILES, *(p for folder in ("ampc", "tests", "tools", "benchmarks") for p in sorted((ROOT / folder).rglob("*.py")))],
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


# Bodies that the preprocessor writes out for several counts of registers, or for two types: a function would not be unrolled.
WRITTEN_OUT = {"EIGHT_ROWS", "SPLIT_STEPS", "FOLD_CHANNEL", "HALVES_RUNS"}


def test_macros_are_short():
    """None over 15 lines, but lists of entries and what has to be written out: a debugger does not step through a macro."""
    long = set()
    for p in FILES:
        for name, rest in re.findall(r"^#define (\w+)((?:.*\\\n)+.*)", p.read_text(), re.M):
            if rest.count("\n") >= 15 and not rest.startswith("(ENTRY)"):
                long.add(name)
    assert long == WRITTEN_OUT


@pytest.mark.parametrize("tool", ["make_stubs.py", "rules_index.py", "policy_table.py", "speed_table.py", "scaling_model.py"])
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


def _is_type_checking(node):
    return isinstance(node, ast.If) and ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING")


def _nodes(tree):
    """All nodes that run: not what stands under TYPE_CHECKING."""
    for node in ast.iter_child_nodes(tree):
        if _is_type_checking(node):
            for other in node.orelse:
                yield other
                yield from _nodes(other)
        else:
            yield node
            yield from _nodes(node)


def _from_names(module, node):
    """What ``from base import a, b`` may import: each name a module, or else the base."""
    package = module if MODULES[module].name == "__init__.py" else module.rpartition(".")[0]
    parts = package.split(".")
    base = ".".join([*parts[:len(parts) - node.level + 1], *([node.module] if node.module else [])]) if node.level else node.module
    for alias in node.names:
        name = f"{base}.{alias.name}"
        if name != "ampc._C":
            yield name if name in MODULES else base


def _called_name(node):
    """The argument of import_module(...), None for other calls."""
    named = isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] in ("import_module", "__import__")
    return node.args[0] if named else None


def imports(module):
    """The modules of ampc/ that a module imports, anywhere in it, by syntax."""
    found = {f"{module}.{name}" for name in COMPUTED.get(module, ())}
    for node in _nodes(ast.parse(MODULES[module].read_text())):
        argument = _called_name(node)
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found |= set(_from_names(module, node))
        elif isinstance(argument, ast.Constant):
            found.add(argument.value)
        elif argument is not None:
            assert module in COMPUTED or module.startswith("ampc.run."), f"{module} imports by a computed name, line {node.lineno}"
    return {name for name in found if name in MODULES and name != module}


@pytest.fixture(scope="module")
def python_imports():
    return {module: imports(module) for module in MODULES}


def rank_of(module):
    """That of ``ampc.a.b`` where it has one, else of ``ampc.a``; of the package itself that of ``ampc``."""
    parts = module.split(".")[1:] or ["ampc"]
    return PYTHON_RANK.get(".".join(parts[:2]), PYTHON_RANK.get(parts[0]))


def test_every_python_module_has_a_rank():
    assert all(rank_of(module) is not None for module in MODULES), [m for m in MODULES if rank_of(m) is None]
    assert len(PYTHON_RANK) == len(PYTHON_ORDER) and {rank_of(module) for module in MODULES} == set(PYTHON_RANK.values())


def test_python_imports_go_down(python_imports):
    upward = {(module, target) for module, targets in python_imports.items() for target in targets if rank_of(target) > rank_of(module)}
    assert upward == set()


def _packages_around(target, module):
    """To import ``a.b.c`` runs ``a.b`` first; of the packages that a module lies in itself that is not counted."""
    parts = target.split(".")
    packages = {".".join(parts[:i]) for i in range(2, len(parts))}
    return {package for package in packages if package != module and not module.startswith(package + ".")}


def _rings(graph):
    """What is left of a graph when modules are taken away that import none, or that none imports, until there is no such."""
    before = 0
    while before != len(graph):
        before = len(graph)
        imported = set().union(*graph.values())
        graph = {module: targets & graph.keys() for module, targets in graph.items() if targets & graph.keys() and module in imported}
    return graph


def test_python_imports_have_no_ring(python_imports):
    """Imports inside functions and those of packages around a module counted."""
    graph = {module: targets.union(*(_packages_around(t, module) for t in targets)) for module, targets in python_imports.items()}
    assert _rings(graph) == {}


def test_rings_are_found():
    assert _rings({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": {"a"}}) == {"b": {"c"}, "c": {"b"}}
    assert _rings({"a": {"b"}, "b": {"c"}, "c": set()}) == {}


# Parameters of public functions that are accepted and not read, each with the reason; `function.parameter` where it is one function's.
UNREAD = {
    "collate_fn_map": "what the functions of default_collate_fn_map are called with; what holds no other samples has no use for it",
    "foreach": "a hint how torch's optimizers and norms run, with the same numbers",
    "chunk_size": "a hint how much memory is used, with the same numbers",
    "ShardedGradScaler.process_group": "the processes that share a parameter agree",
    "stable": "sorting is always stable", "unique.sorted": "the values are always in order",
    "is_conj.input": "no tensor is complex", "set_flush_denormal.mode": "returns False: it was not set", "get_rng_state.device": "one random stream for all",
    "set_rng_state.device": "one random stream for all", "fork_rng.devices": "one random stream for all", "fork_rng.device_type": "the same",
    "pin_memory.device": "there is one kind of device to pin for", "is_pinned.device": "the same", "save_on_cpu.device_type": "the same",
    "current_accelerator.check_available": "only what can be used is there at all",
    "DistributedDataParallel.check_reduction": "torch ignores it, too",
    "DistributedDataParallel.skip_all_reduce_unused_params": "a hint how much travels, with the same numbers",
    "DistributedDataParallel.batched_grad_copy": "a hint how gradients are copied, with the same numbers",
    "adapt.found_inf": "one signature for scales of a CPU and of a GPU", "adapt.culprit": "the same",
    "find_spec.path": "Python's protocol", "find_spec.target": "Python's protocol", "call.logits": "one signature for all losses",
    "args": "modules and switches that take anything, as torch's", "kwargs": "the same",
    "options": "compile and jit run what they get as it is", "disable.recursive": "the same", "disable.reason": "the same",
    "trace.example_inputs": "the same", "trace_module.inputs": "the same", "annotate.the_type": "the same",
    "load.mmap": "a hint for large files", "assert_close.check_layout": "all tensors are strided", "checkpoint.debug": "errors are always whole",
    "log_abs_det_jacobian.y": "a transform reads what it needs of its two ends",
    "scalar.collections": "torch ignores it, too", "pr_curve_raw.num_thresholds": "the counts say how many", "pr_curve_raw.weights": "the counts are weighed",
    "add_graph.input_to_model": "the model as text: nothing is traced",
    "is_in_torch_dispatch_mode.include_infra_modes": "no mode can be entered",
    "compute_mask.t": "of masks that no value decides",
    "tags": "what torch's tracing wants to know of an operator", "lib": "what is registered stays as long as the operator",
    "allow_override": "the last one that is registered is called", "with_keyset": "kernels get no dispatch keys", "with_modules": "for TorchScript alone",
    "set_device_states.devices": "one random stream for all", "set_device_states.device_type": "the same", "flags.benchmark": "one algorithm is used",
    "flags.benchmark_limit": "the same", "flags.deterministic": "convolutions always are", "flags.fp32_precision": "allow_tf32 says it",
    "cudnn_enabled": "a hint for speed", "kernel_options": "how torch's kernel runs", "create_block_mask.options": "how blocks are stored, which are not",
    "lies_in_rows.args": "options of torch's", "lies_in_rows.kwargs": "the same",
    "noop_mask.batch": "a mask's signature", "noop_mask.head": "the same", "noop_mask.token_kv": "the same", "always.step": "a schedule's signature",
    "table.max_src_column_width": "no column of the script's lines", "table.more": "torch's options of columns", "group_by_overload_name": "an operator's overloads are one function",
    "check_undefined_grad": "a gradient is never undefined to a formula", "check_grad_dtypes": "a gradient always has its tensor's dtype",
    "device_ids": "which GPU is a barrier's matter for NCCL alone", "pg_options": "options of NCCL's", "device_id": "a group connects at its first operation",
    "here.ranks": "nothing is known of other processes' hosts without MPI", "saves.file": "the same",
    "init_process_group.group_name": "groups have numbers", "broadcast_object_list.device": "objects travel through the host's memory",
    "send_object_list.device": "the same", "recv_object_list.device": "the same", "use_batch": "a hint how two GPUs connect",
    "TCPStore.use_libuv": "how torch's server waits",
    "masked": "no layout is sparse", "gen_non_contig_grad_outputs": "`grad_outputs` says which",
    "add_graph.verbose": "the same", "add_graph.use_strict_trace": "the same",
}


def _unread(path):
    """(function or class, parameter) of public functions that do something, and do not read a parameter."""
    found = []

    def visit(node, owner):
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.ClassDef) and not child.name.startswith("_"):
                visit(child, child.name)
            elif isinstance(child, ast.FunctionDef):
                found.extend(_unread_of(child, owner))
            elif isinstance(child, (ast.If, ast.Try)):
                visit(child, owner)

    visit(ast.parse(path.read_text()), None)
    return found


def _unread_of(f, owner):
    body = [s for s in f.body if not isinstance(s, (ast.Pass, ast.Raise)) and not (isinstance(s, ast.Expr) and isinstance(s.value, ast.Constant))]
    if not body or f.name.startswith("_") and f.name != "__init__":
        return []
    a, others = f.args, {"self", "cls", "ctx"}
    names = [p.arg for p in (*a.posonlyargs, *a.args, *a.kwonlyargs, a.vararg, a.kwarg) if p is not None]
    read = {n.id for s in f.body for n in ast.walk(s) if isinstance(n, ast.Name)}
    return [(owner if f.name == "__init__" else f.name, n) for n in names if n not in read and n not in others and not n.startswith("_")]


def test_no_argument_is_accepted_and_ignored():
    paths = [p for p in MODULES.values() if not {"selftest", "doctor"} & set(p.parts)]  # whose functions have the shapes of their callers
    found = [(path.name, function, parameter) for path in paths for function, parameter in _unread(path)]
    unexplained = [f for f in found if f[2] not in UNREAD and f"{f[1]}.{f[2]}" not in UNREAD]
    assert not unexplained, "honour, check or refuse these; or say in UNREAD why they may be ignored"
    stale = set(UNREAD) - {f[2] for f in found} - {f"{f[1]}.{f[2]}" for f in found}
    assert not stale, "these are read, or gone"


# -- operators have one home ------------------------------------------------------------------------------------------

# Commands and reports, whose functions no script calls.
PROGRAMS = {"cli", "selftest", "run", "doctor", "check", "training"}
# Files whose names are those of another interface than torch's.
OTHER_INTERFACES = {"ampc._tensor.array_api": "the array API standard, whose functions of torch's names take other arguments",
                    "ampc.utils.tensorboard.summary": "what is written for TensorBoard"}
# Of the other names that two files define, why: in torch, too, they are different functions.
TWO_FUNCTIONS = {
    "agrees board part": "of groups that MPI has started, and of those that variables have",
    "backward": "Tensor.backward takes the gradient of one tensor, autograd.backward of many",
    "ctc_loss": "the function outside nn.functional has positions, and numbers in place of words",
    "current_device device_count get_rng_state is_available is_initialized manual_seed set_rng_state synchronize": "of each kind of device",
    "functional_call": "func's, and nn.utils.stateless's older one, which warns",
    "grad hessian jvp vjp": "autograd's of tensors, func's of functions",
    "main": "the program of a module that can be run",
    "load save": "of files by serialization, of compiled modules by jit, of policies",
    "norm": "torch.norm, and linalg.norm, whose `ord` of a matrix is a matrix norm",
    "normal_ uniform_": "a method, and the initialisation of nn.init, which records nothing",
    "read": "one reader for each format of files",
    "spectral_norm weight_norm": "the parametrization, and its older form with hooks",
    "split": "of a function torch names the argument split_size_or_sections, of the method split_size",
    "trace": "linalg's of matrices, jit's of functions",
    "where": "the method's first argument is what is taken, the function's the condition",
}


def _module_functions(path):
    """The functions that a module defines at its top, those under ``if`` and ``try`` included."""
    bodies = [ast.parse(path.read_text()).body]
    while bodies:
        for node in bodies.pop():
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                yield node.name
            elif isinstance(node, (ast.If, ast.Try)):
                bodies += [node.body, node.orelse]


def test_names_have_one_home():
    """No public function is defined in two files: one imports it from the other, or it is a row of the table or a line of its aliases."""
    homes = {}
    for module, path in MODULES.items():
        package = [*module.split(".")[1:], ""][0]
        if package not in PROGRAMS and module not in OTHER_INTERFACES:
            for name in _module_functions(path):
                homes.setdefault(name, set()).add(module)
    twice = {name: where for name, where in homes.items() if len(where) > 1 and not name.startswith("_")}
    allowed = {name for names in TWO_FUNCTIONS for name in names.split()}
    assert {name: where for name, where in twice.items() if name not in allowed} == {}
    assert allowed <= set(twice), "exceptions that are none any more"


def test_names_of_rows_are_not_defined_again():
    """A function of the top-level namespace is a row of the table, or Python, never both."""
    rows = {op["python"] for op in ampc._C.op_table() if op["home"] & 1} | set(ampc._ops.ALIASES)
    shown = {name for name in rows if getattr(ampc, name) is not getattr(ampc._ops, name)}
    assert shown == set(TAKES_MORE)


# Rows that the top level shows with more than the row takes.
TAKES_MORE = {"where": "of a condition alone its indices"}

# The places that build a namespace from the table, by name.
FROM_THE_TABLE = {"ampc._ops": "functions", "ampc._tensor.methods": "methods", "ampc._tensor.array_api": "the standard's names", "ampc.ops": "the names of torch.ops.aten"}


def _looks_up_by_name(node):
    """_C._functions[...], getattr(_C, name), globals()[...], vars(_ops)[...] and the like, with a name that is computed or a string."""
    if isinstance(node, ast.Attribute):
        return node.attr == "_functions" and ast.unparse(node.value).endswith("_C")
    if isinstance(node, ast.Subscript):
        return isinstance(node.ctx, ast.Load) and ast.unparse(node.value) in ("globals()", "vars(_ops)", "vars(_C)", "_ops.__dict__", "_C.__dict__")
    return isinstance(node, ast.Call) and ast.unparse(node.func) == "getattr" and ast.unparse(node.args[0]) in ("_ops", "Tensor", "make")


def test_operators_are_not_looked_up_by_name():
    """They are attributes of ``_ops``, whose types the stub has."""
    found = {f"{module}:{node.lineno} {ast.unparse(node)}" for module, path in MODULES.items() if module not in FROM_THE_TABLE
             for node in ast.walk(ast.parse(path.read_text())) if _looks_up_by_name(node)}
    assert found == set()
