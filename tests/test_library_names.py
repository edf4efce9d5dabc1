"""Names of torch that libraries touch on import: each one of the table in ``ampc._names.table`` imports, says what it is, and refuses with the
reason; what works (profiler, library, ops, flex_attention) does as torch does."""

import copy
import gzip
import importlib
import inspect
import json
import pickle
import subprocess
import sys
import types
import typing
import warnings

import numpy as np
import pytest

import ampc
from ampc._names import modules as table

pytestmark = pytest.mark.cpu
ENTRIES = [(module, entry) for module, sections in table.by_module().items() for section in sections for entry in section.entries.values()]
OWN = [(module, entry) for module, entry in ENTRIES if module == entry.section.modules[0]]


def here(module):
    return importlib.import_module("ampc" + module[len("torch"):])


def ids(entries):
    return [f"{module}.{entry.name}" for module, entry in entries]


def test_every_name_imports_from_every_module():
    assert len(OWN) > 900
    for module, entry in ENTRIES:
        found = getattr(here(module), entry.name)
        first = getattr(here(entry.section.modules[0]), entry.name)
        assert found is first or entry.kind in ("value", "works") or isinstance(found, types.ModuleType) or isinstance(first, types.ModuleType), f"{module}.{entry.name}"


def test_each_name_stands_in_one_line():
    seen = [f"{module}.{entry.name}" for module, entry in ENTRIES]
    assert sorted(seen) == sorted(set(seen)), [name for name in set(seen) if seen.count(name) > 1]


def test_kinds_are_explained():
    assert {entry.kind for _, entry in OWN} <= set(table.KINDS)


@pytest.mark.parametrize("kind", ["refused", "class", "module", "gives", "itself", "decorates", "nothing", "around", "error", "warning", "enum"])
def test_what_is_made_has_a_docstring_types_and_a_name(kind):
    entries = [(module, entry) for module, entry in OWN if entry.kind == kind]
    assert entries
    for module, entry in entries:
        made = getattr(here(module), entry.name)
        if isinstance(made, types.ModuleType):
            continue  # and a function of the same name
        assert made.__doc__ and made.__name__ == entry.name and made.__module__ == here(module).__name__, entry.path
        if inspect.isfunction(made):
            hints = typing.get_type_hints(inspect.unwrap(made))
            assert "return" in hints, entry.path


def test_what_has_code_of_its_own_has_a_docstring():
    for module, entry in OWN:
        if entry.kind in ("is", "works"):
            found = getattr(here(module), entry.name)
            assert not callable(found) or found.__doc__ or found in (typing.Final, ampc.Tensor, type), entry.path


def test_refusals_name_themselves_and_the_reason():
    for module, entry in OWN:
        if entry.kind in ("refused", "class", "module"):
            found = getattr(here(module), entry.name)
            with pytest.raises(NotImplementedError) as e:
                found(1, two=2)
            assert str(e.value) == f"{entry.path}: {entry.section.reason}"
            assert not entry.section.reason.startswith("training in several processes")  # which is there
            if isinstance(found, types.ModuleType):
                continue
            assert found.__doc__.startswith("NotImplementedError: ") and entry.section.reason.partition(";")[0] in found.__doc__


def test_refused_classes_can_be_asked_about_and_subclassed():
    from ampc.fx import GraphModule, Tracer

    class Mine(Tracer):
        def __init__(self):
            self.made = True

    assert not isinstance(ampc.nn.Linear(1, 1), GraphModule) and issubclass(Mine, Tracer)
    assert issubclass(GraphModule, ampc.nn.Module) and issubclass(ampc.jit.RecursiveScriptModule, ampc.nn.Module)
    with pytest.raises(NotImplementedError, match="torch.fx.Tracer: torch.fx tracing is not in ampc; .*register_forward_hook"):
        Mine()
    with pytest.raises(NotImplementedError, match="torch.distributed.fsdp.FullyShardedDataParallel.summon_full_params: FSDP1 and its options are not in ampc"):
        ampc.distributed.fsdp.FullyShardedDataParallel.summon_full_params(1)


def test_questions_of_libraries_have_an_answer():
    assert ampc.xpu.is_available() is False and ampc.mps.device_count() == 0 and ampc.onnx.is_in_onnx_export() is False
    assert ampc.distributed.is_nccl_available() is False and ampc.distributed.group.WORLD is None and ampc._C._get_tracing_state() is None
    assert ampc.compiler.is_exporting() is False and not ampc.compiler.list_backends() and ampc.version.xpu is None

    @ampc.fx.wrap
    def f(x):
        return x

    @ampc.compiler.allow_in_graph
    def g(x):
        return x

    @ampc.onnx.symbolic_helper.parse_args("v", "f")
    def h(x):
        return x

    @ampc.compiler.substitute_in_graph(f)
    def k(x):
        return x + 1

    assert f(3) == g(3) == h(3) == 3 and k(3) == 4 and ampc.fx.wrap("len") == "len"
    with ampc._C.DisableTorchFunctionSubclass(), ampc.jit.strict_fusion():
        pass
    with pytest.raises(NotImplementedError, match="torch.export.Dim: torch.export is not in ampc; save the state_dict"):
        ampc.export.Dim("batch")
    assert ampc.distributed.fsdp.ShardingStrategy.FULL_SHARD.name == "FULL_SHARD"
    Op = ampc.distributed.ReduceOp
    assert Op.SUM == 0 and isinstance(Op.MAX, Op) and isinstance(Op.MAX, Op.RedOpType)
    assert Op(Op.MIN) == copy.deepcopy(Op.MIN) == pickle.loads(pickle.dumps(Op.MIN)) == Op.MIN != Op.MAX
    assert ampc.ones(2).layout != ampc.sparse_coo and str(ampc.sparse_csr) == "ampc.sparse_csr" and isinstance(ampc.sparse_coo, ampc.layout)
    ampc._inductor.config.max_autotune = True  # an option, which nothing reads


def test_names_that_are_in_no_table_stay_absent():
    for name in ("npu", "hpu", "nothing", "__wrapped__"):
        assert not hasattr(ampc, name)
    with pytest.raises(AttributeError, match="docs/compatibility/names.md"):
        ampc.fx.nothing
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("ampc.fx.nothing")
    assert "Proxy" in dir(ampc.fx) and "Proxy" in ampc.fx.__all__ and ampc.fx.__doc__


def test_nothing_of_it_is_loaded_by_import_ampc():
    code = "import ampc, sys; print([m for m in sys.modules if 'ampc._library' in m or m in ('ampc.profiler', 'ampc.ops', 'ampc.library', 'ampc.fx')])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "[]\n"


SCRIPT = """
import torch
import torch.fx, torch.distributed.fsdp.fully_sharded_data_parallel, torch._dynamo.eval_frame, torch._C._nn, torch.utils._triton
from torch.fx.experimental.symbolic_shapes import guard_or_false
from torch.distributed._tensor import DTensor
from torch.jit._script import RecursiveScriptModule
from torch.nn.attention.flex_attention import BlockMask
import torch.backends.nnpack, torch.nn.parallel.distributed, torch.utils.data._utils.collate
assert torch.distributed._tensor.DTensor is torch.distributed.tensor.DTensor is DTensor and torch.fx.__name__ == "ampc.fx"
assert torch.__config__.show().startswith("ampc built with") and torch.torch.Tensor is torch.Tensor and torch.cond(True, abs, abs, (-1,)) == 1
assert not isinstance(torch.nn.Linear(1, 1), (torch.jit.ScriptModule, RecursiveScriptModule, torch.fx.GraphModule, DTensor))
model = torch.compile(torch.nn.Linear(2, 2))
again = torch.compile(torch.nn.Linear(2, 2))
script = torch.jit.script(model)
model.compile()
assert script is model
try:
    torch.fx.symbolic_trace(model)
except NotImplementedError as e:
    print(e)
"""


def test_a_script_imports_them_and_is_told_once_of_compile(tmp_path):
    (tmp_path / "script.py").write_text(SCRIPT)
    got = subprocess.run([sys.executable, "-m", "ampc", "run", "script.py"], capture_output=True, text=True, cwd=tmp_path)
    assert got.returncode == 0, got.stderr
    assert got.stdout.startswith("torch.fx.symbolic_trace: torch.fx tracing is not in ampc; ")
    said = [row for row in got.stderr.split("\n") if "Warning" in row]
    assert [row.partition(": UserWarning: ")[0] for row in said] == ["script.py:12", "script.py:14"]
    assert "compile: the model runs as it is" in said[0] and "jit.script: the model is handed back as it is" in said[1]


# -- small functions, beside torch ---------------------------------------------------------------------------------------

CALLS = [
    *(f"distributed.tensor.{call}" for call in ("Shard(1)", "Shard(1).__repr__()", "Partial().__repr__()", "placement_types._StridedShard(0, split_factor=2)", "Shard(-1) == torch.distributed.tensor.Shard(-1)", "Replicate()", "Partial()", "Partial('max').reduce_op",
      "Shard(0).is_shard()", "Shard(0).is_shard(1)", "Replicate().is_replicate()", "Partial().is_partial()", "Partial('max').is_partial('sum')",
      "Replicate() == torch.distributed.tensor.Partial()", "Shard()")),
    "_check(True)", "_check(False)", "_check(False, lambda: 'm')", "_check(1)", "_check(False, 'text')", "_check_index(False)", "_check_value(False)",
    "_check_type(False)", "_check_not_implemented(False)", "_check_with(KeyError, False, lambda: 'k')", "_check_tensor_all(torch.tensor([True, False]))",
    "_check_tensor_all(torch.tensor([True]))", "_check_tensor_all(torch.ones(1))", "_assert(False, 'q')", "_assert(True, '')", "_assert_async(torch.tensor(0))",
    "_assert_async(torch.tensor(0), 'msg')", "sym_int(-2.7)", "sym_float(3)", "sym_max(1, 2)", "sym_min(1, 2)", "sym_not(0)", "sym_ite(True, 1, 2)",
    "sym_sum([1, 2])", "_shape_as_tensor(torch.ones(2, 3))", "cond(torch.tensor(True), lambda x: x + 1, lambda x: x - 1, (torch.ones(1),))",
    "while_loop(lambda i: i < 3, lambda i: (i + 1,), (torch.tensor(0),))", "_C._get_default_device()", "_C._nn._parse_to('cpu', torch.float16, True)",
    "_C._nn._parse_to(torch.ones(2))", "_C._nn._parse_to(dtype=torch.int64)", "get_device_module('cpu').__name__.split('.')[1]",
    "jit.isinstance([1, 2], List[int])", "jit.isinstance([1, 'a'], List[int])", "jit.isinstance({'a': 1}, Dict[str, int])", "jit.isinstance((1, 'a'), Tuple[int, str])",
    "jit.isinstance(None, Optional[int])", "jit.isinstance(torch.ones(1), torch.Tensor)", "jit.isinstance(3, (str, int))",
    "overrides.is_tensor_like(torch.ones(1))",
    "_prims_common.is_contiguous_or_false(torch.ones(2, 3).t())", "_C._get_privateuse1_backend_name()",
]


def result(module, call):
    names = {"torch": module, **vars(typing)}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return str(eval(f"torch.{call}", names)).replace("torch.", "").replace("ampc.", "")
    except Exception as e:
        return type(e).__name__, str(e) if len(str(e)) <= 3 else ""  # a message that the call gives


@pytest.mark.parametrize("call", CALLS)
def test_small_functions(torch, call):
    import torch.distributed.tensor  # noqa: F401
    import torch.overrides  # noqa: F401

    ours, theirs = result(ampc, call), result(torch, call)
    assert ours == theirs


def test_contexts_put_back_what_they_change():
    x, cudnn = ampc.tensor([1 / 3]), ampc.backends.cudnn
    before = str(x), cudnn.enabled, cudnn.allow_tf32
    with ampc._tensor_str.printoptions(precision=2), cudnn.flags(enabled=False):
        assert str(x) == "tensor([0.33])" and not cudnn.enabled and cudnn.allow_tf32
    with cudnn.flags(enabled=None, benchmark=None, deterministic=None, allow_tf32=False):  # None leaves a switch alone
        assert cudnn.enabled == before[1] and not cudnn.allow_tf32
    assert (str(x), cudnn.enabled, cudnn.allow_tf32) == before
    assert ampc.utils.checkpoint.get_device_states(x, 3) == ([], [])


def test_types_of_results(torch):
    """They are found by name, which pickle needs."""
    import pickle

    x = ampc.tensor([[1.0, 3.0], [2.0, 5.0]])
    for name in ampc.return_types.__all__:
        kind = getattr(ampc.return_types, name)
        assert issubclass(kind, tuple) and hasattr(torch.return_types, name) and kind.__module__ == "ampc.return_types"
        assert kind.__name__ == name or name == "linalg_slogdet"
    for found in (x.max(0), x.topk(1), ampc.linalg.svd(x), x.sort()):
        again = pickle.loads(pickle.dumps(found))
        assert type(again) is type(found) and all(ampc.equal(a, b) for a, b in zip(again, found))
        assert repr(found) == str(found) and repr(found).startswith(f"ampc.return_types.{type(found).__name__}(\n")
    for look in ("x.max(0)", "x.sort()", "lib.linalg.qr(x.double())", "lib.frexp(x)"):
        ours, theirs = (repr(eval(look, {"lib": lib, "x": lib.tensor(x.tolist())})) for lib in (ampc, torch))
        assert ours.replace("ampc.", "torch.") == theirs
    assert type(x.max(0)) is ampc.return_types.max and len(ampc.return_types.all_return_types) > 25 and not hasattr(ampc.return_types, "nothing")


# -- library and ops -----------------------------------------------------------------------------------------------------


ATEN = [("add.Tensor", "ones(2), ones(2)"), ("add.Scalar", "ones(2), 2"), ("mm.default", "ones(2, 2), ones(2, 2)"), ("sum.dim_IntList", "ones(2, 3), [1]"),
        ("view.default", "ones(4), [2, 2]"), ("relu.default", "tensor([-1., 1])"), ("softmax.int", "zeros(2), 0"), ("index.Tensor", "ones(3), [tensor([0])]"),
        ("_to_copy.default", "ones(1), dtype=float64"), ("slice.Tensor", "arange(8).view(2, 4), 1, 1, 3"), ("cat.default", "[ones(1), ones(1)]"), ("t.default", "ones(2, 3)"),
        ("_softmax.default", "zeros(2), 0, False"), ("linear.default", "ones(1, 2), ones(3, 2)"), ("item.default", "ones(1)"), ("add_.Tensor", "ones(1), 1"),
        ("linalg_vector_norm.default", "ones(4)"), ("arange.start_step", "0, 4, 2"), ("full.default", "[2], 3."), ("size.int", "ones(2, 3), 1"), ("unsqueeze.default", "ones(2), 0"),
        ("where.self", "tensor([True]), ones(1), zeros(1)"), ("embedding.default", "arange(6.).view(3, 2), tensor([1])"), ("pow.Tensor_Scalar", "ones(2) * 2, 2"),
        ("batch_norm.default", "ones(2, 3), ones(3), ones(3), zeros(3), ones(3), False, 0.1, 1e-5, False"), ("select.int", "ones(2, 3), 0, 1"), ("sym_size.int", "ones(2), 0"),
        ("convolution.default", "ones(1, 1, 3, 3), ones(1, 1, 2, 2), None, [1, 1], [0, 0], [1, 1], False, [0, 0], 1"), ("mul.out", "ones(2), ones(2), out=empty(2)"),
        ("_foreach_nope.default", "[ones(2)]"), ("add.Foo", "1"), ("nope.default", "1"), ("mul.out", "ones(2), ones(2)"), ("mse_loss.default", "ones(2), ones(2), 1")]


@pytest.mark.parametrize("call", ["_foreach_add.List([x], [x])", "_foreach_maximum.Scalar([x], 1)", "_foreach_div.ScalarList([x], [2.0])", "_foreach_sqrt([x])"])
def test_aten_of_lists_of_tensors(torch, call):
    ours, theirs = (eval("list(t.ops.aten." + call + ")", {"t": t, "x": t.ones(2)}) for t in (ampc, torch))
    assert [x.tolist() for x in ours] == [x.tolist() for x in theirs]


@pytest.mark.parametrize(("op", "args"), ATEN, ids=[op for op, _ in ATEN])
def test_aten(torch, op, args):
    """ops.aten calls the operator of the table; what is not there, or takes its arguments in another order, is an AttributeError."""
    ours, theirs = (result(t, f"ops.aten.{op}({args})".replace("ones(", "torch.ones(").replace("zeros(", "torch.zeros(").replace("tensor(", "torch.tensor(")
                           .replace("arange(8", "torch.arange(8").replace("arange(6", "torch.arange(6").replace("empty(", "torch.empty(").replace("float64", "torch.float64"))
                    for t in (ampc, torch))
    if op == "mse_loss.default":
        assert ours[0] == "AttributeError"
    else:
        assert ours == theirs or isinstance(ours, tuple) and ours[0] == theirs[0]


def test_names_of_operators():
    add = ampc.ops.aten.add
    assert add.Tensor is ampc.ops.aten.add.Tensor and add.Tensor.name() == "aten::add.Tensor" and add.default.name() == "aten::add" and add.Tensor.overloadpacket is add
    assert isinstance(add.Tensor, ampc._ops.OpOverload) and repr(add) == "<OpOverloadPacket(op='aten.add')>" and {add.Tensor: 1}[ampc.ops.aten.add.Tensor] == 1
    with pytest.raises(RuntimeError, match="does not exist"):
        ampc.classes.pyg.CPUHashMap
    with pytest.raises(OSError, match="cannot be loaded"):
        ampc.ops.load_library("x.so")


# -- the profiler ----------------------------------------------------------------------------------------------------------


def profiled(t, **options):
    model, x = t.nn.Linear(8, 8), t.ones(4, 8)
    optimizer, ready = t.optim.SGD(model.parameters(), lr=0.1), []
    with t.profiler.profile(activities=[t.profiler.ProfilerActivity.CPU], on_trace_ready=lambda p: ready.append(p.step_num), **options) as p:
        for _ in range(6):
            with t.profiler.record_function("forward"):
                loss = model(x).sum()
            loss.backward()
            optimizer.step()
            p.step()
    return p, ready


def test_a_profile_beside_torchs(torch):
    found = []
    for t in (ampc, torch):
        p, ready = profiled(t, schedule=t.profiler.schedule(wait=1, warmup=1, active=2, repeat=1), record_shapes=True, with_flops=True)
        counts = {e.key: e.count for e in p.key_averages()}
        found.append((ready, {k: counts.get(k) for k in ("forward", "aten::linear", "ProfilerStep*", "Optimizer.step#SGD.step")},
                      sum(e.flops for e in p.key_averages() if e.key in ("aten::linear", "aten::addmm"))))
        steps = [e for e in p.events() if e.name == "ProfilerStep*"]
        assert len(steps) == 2
        for e in p.events():
            assert e.time_range.start <= e.time_range.end and all(e.time_range.start <= c.time_range.start and c.time_range.end <= e.time_range.end for c in e.cpu_children)
            if e.name == "forward":
                assert e.cpu_parent in steps and "aten::linear" in [c.name for c in e.cpu_children] and e.cpu_time_total >= e.self_cpu_time_total
        linear = next(e for e in p.events() if e.name == "aten::linear")
        assert linear.input_shapes == [[4, 8], [8, 8], [8]]
    assert found[0] == found[1]


def test_backward_formulas_have_their_range():
    p, _ = profiled(ampc)
    formula = next(e for e in p.events() if e.name == "LinearBackward0")
    assert {c.name for c in formula.cpu_children} >= {"aten::mm"} and all(c.cpu_parent is formula for c in formula.cpu_children)
    assert {e.count for e in p.key_averages() if e.key == "LinearBackward0"} == {6}


def test_times_are_those_of_the_operators():
    x = ampc.ones(512, 512)
    with ampc.profiler.profile(profile_memory=True) as p:
        for _ in range(3):
            x @ x
        y = x + 1
        y.mul_(2)
    sums = {e.key: e for e in p.key_averages()}
    assert sums["aten::mm"].count == 3 and sums["aten::mm"].cpu_time > 10 and sums["aten::mm"].self_cpu_memory_usage == 3 * 2**20
    assert sums["aten::mul"].self_cpu_memory_usage == 0 and sums["aten::mul"].cpu_time > 1  # in place: it took its time, and no memory
    assert "CPU Mem" in p.key_averages().table(sort_by="self_cpu_time_total", row_limit=2) and "..." not in str(p.key_averages())
    assert p.key_averages().total_average().count == 5 and not ampc.profiler.is_recording()


def test_a_trace_for_chrome(torch, tmp_path):
    for t in (ampc, torch):
        p, _ = profiled(t, record_shapes=True)
        p.export_chrome_trace(str(tmp_path / "trace.json"))
        trace = json.loads((tmp_path / "trace.json").read_text())
        lines = {e["name"]: e for e in trace["traceEvents"] if e["ph"] == "X"}
        assert lines["forward"]["cat"] == "user_annotation" and lines["aten::linear"]["cat"] == "cpu_op" and lines["aten::linear"]["dur"] >= 0
        assert lines["aten::linear"]["args"]["Input Dims"] == [[4, 8], [8, 8], [8]] and trace["displayTimeUnit"] == "ms"
    p, _ = profiled(ampc, with_stack=True)
    p.export_chrome_trace(str(tmp_path / "trace.json.gz"))
    assert b"test_library_names.py" in gzip.decompress((tmp_path / "trace.json.gz").read_bytes())
    p.export_stacks(str(tmp_path / "stacks"))
    assert "test_library_names.py" in (tmp_path / "stacks").read_text()
    ampc.profiler.tensorboard_trace_handler(str(tmp_path / "runs"), "me")(p)
    assert next((tmp_path / "runs").iterdir()).name.startswith("me.")


SCHEDULES = [{"wait": 1, "warmup": 1, "active": 2, "repeat": 2, "skip_first": 1}, {"wait": 0, "warmup": 1, "active": 1}, {"wait": 2, "warmup": 0, "active": 3, "repeat": 1},
             {"wait": 3, "warmup": 1, "active": 1, "skip_first": 2, "skip_first_wait": 1}]


@pytest.mark.parametrize("options", SCHEDULES)
def test_schedules(torch, options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ours, theirs = ([t.profiler.schedule(**options)(i).name for i in range(20)] for t in (ampc, torch))
    assert ours == theirs


def test_calls_out_of_order(torch):
    for t in (ampc, torch):
        p = t.profiler.profile()
        for call in (p.key_averages, p.events, lambda p=p: p.export_chrome_trace("x"), p.stop, lambda t=t: t.profiler.schedule(wait=-1, warmup=0, active=1)):
            with pytest.raises(AssertionError):
                call()


def test_the_older_profile_and_its_names(torch):
    for t in (ampc, torch):
        with t.autograd.profiler.profile() as p, t.autograd.profiler.record_function("here"):
            t.ones(2, 2) @ t.ones(2, 2)
        assert "aten::mm" in {e.name for e in p.function_events} and p.self_cpu_time_total > 0 and "here" in str(p)
        assert t.autograd.profiler.format_time(1500.0) == "1.500ms" if t is ampc else True
        with t.autograd.profiler.profile(enabled=False) as p:
            t.ones(2)

        @t.profiler.record_function("decorated")
        def f():
            return 3

        with t.profiler.profile() as p:
            f()
        assert "decorated" in {e.key for e in p.key_averages()} and f() == 3
    assert isinstance(p.key_averages(), torch.autograd.profiler.EventList) and isinstance(ampc.profiler.EventList(), ampc.autograd.profiler.EventList)


def test_profiles_nest_and_survive_errors():
    with ampc.profiler.profile() as outer:
        ampc.ones(2).exp()
        with pytest.raises(ValueError), ampc.profiler.profile() as inner:
            ampc.ones(2).sin()
            raise ValueError
        ampc.ones(2).cos()
    assert {e.name for e in inner.events()} >= {"aten::sin"} and {"aten::exp", "aten::cos"} <= {e.name for e in outer.events()}
    assert "aten::sin" not in {e.name for e in outer.events()} and ampc._C._watcher() is None


# -- flex_attention ----------------------------------------------------------------------------------------------------------

FLEX = {
    "plain": {}, "scale": {"scale": 0.3}, "causal": {"mask": lambda b, h, q, k: q >= k}, "alibi": {"score": lambda s, b, h, q, k: s + (h + 1) * (k - q)},
    "both": {"score": lambda s, b, h, q, k: s * 2, "mask": lambda b, h, q, k: (q - k).abs() < 3}, "no keys": {"mask": lambda b, h, q, k: (q > 4) & (k < 3)},
    "groups": {"groups": True}, "lse": {"return_lse": True, "mask": lambda b, h, q, k: (q > 4) & (k < 3)},
}


@pytest.mark.parametrize("name", FLEX)
def test_flex_attention(torch, name):
    import torch.nn.attention.flex_attention as theirs

    import ampc.nn.attention.flex_attention as ours
    options = dict(FLEX[name])
    mask, score, groups = options.pop("mask", None), options.pop("score", None), options.pop("groups", False)
    random = np.random.default_rng(0)
    arrays = [random.standard_normal((2, 4 if not groups or i == 0 else 2, 9, 8)).astype("f") for i in range(3)]
    results = []
    for t, flex in ((ampc, ours), (torch, theirs)):
        made = None if mask is None else flex.create_block_mask(mask, None, None, 9, 9, device="cpu")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            out = flex.flex_attention(*map(t.tensor, arrays), score_mod=score, block_mask=made, enable_gqa=groups, **options)
        results.append([x.numpy() for x in (out if isinstance(out, tuple) else (out,))])
    for a, b in zip(*results):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def test_further_results_of_flex_attention():
    """torch gives the largest score on a GPU alone."""
    flex = ampc.nn.attention.flex_attention
    q, k = np.random.default_rng(0).standard_normal((2, 2, 3, 5, 4))
    scores = q @ k.swapaxes(-1, -2) / 2
    y, found = flex.flex_attention(*map(ampc.tensor, (q, k, k)), return_aux=flex.AuxRequest(lse=True, max_scores=True))
    np.testing.assert_allclose(found.max_scores.numpy(), scores.max(-1), rtol=1e-12)
    np.testing.assert_allclose(found.lse.numpy(), np.log(np.exp(scores).sum(-1)), rtol=1e-12)
    again, nothing = flex.flex_attention(*map(ampc.tensor, (q, k, k)), return_aux=flex.AuxRequest())
    assert again.equal(y) and nothing == (None, None)


def test_flex_attention_has_derivatives():
    q, k, v = (ampc.randn(1, 2, 4, 3, dtype=ampc.float64, requires_grad=True) for _ in range(3))
    flex = ampc.nn.attention.flex_attention
    mask = flex.create_block_mask(flex.and_masks(lambda b, h, q, k: q >= k, flex.noop_mask), None, None, 4, 4)
    assert ampc.autograd.gradcheck(lambda *x: flex.flex_attention(*x, score_mod=lambda s, b, h, q, k: s * (h + 1), block_mask=mask), (q, k, v))


def test_block_masks(torch):
    import torch.nn.attention.flex_attention as theirs

    import ampc.nn.attention.flex_attention as ours
    a, b = (flex.create_block_mask(lambda b, h, q, k: q >= k, 1, 2, 300, 400, device="cpu") for flex in (ours, theirs))
    assert a.to_dense().tolist() == b.to_dense().tolist() and a.shape == b.shape and a.numel() == b.numel() and abs(a.sparsity() - b.sparsity()) < 1e-9
    assert ours.create_mask(a.mask_mod, 1, 1, 3, 4).tolist() == theirs.create_mask(b.mask_mod, 1, 1, 3, 4, device="cpu").tolist()
    with pytest.raises(NotImplementedError, match="create_block_mask"):
        ours.BlockMask.from_kv_blocks(1, 2)
    with pytest.raises(ValueError, match="enable_gqa"):
        ours.flex_attention(ampc.ones(1, 4, 2, 2), ampc.ones(1, 2, 2, 2), ampc.ones(1, 2, 2, 2))


@pytest.mark.parametrize("n", [0, 1, 4, 5])
def test_what_fft_has_that_is_real(n):
    fft = importlib.import_module("ampc.fft")
    for f, truth in ((fft.fftfreq, np.fft.fftfreq), (fft.rfftfreq, np.fft.rfftfreq)):
        got = f(n, 0.25, dtype=ampc.float64)
        assert np.array_equal(got.numpy(), truth(n, 0.25) if n else np.full(got.shape, np.nan), equal_nan=True)
    assert fft.fftfreq(n).dtype == ampc.get_default_dtype() and fft.fftfreq(n, requires_grad=True).requires_grad
    x = np.arange(3.0 * n).reshape(3, n)
    for dim in (None, 0, (0, 1), [-1]):
        assert np.array_equal(fft.fftshift(ampc.tensor(x), dim).numpy(), np.fft.fftshift(x, dim))
        assert np.array_equal(fft.ifftshift(ampc.tensor(x), dim).numpy(), np.fft.ifftshift(x, dim))
    with pytest.raises(RuntimeError, match="0 or more"):
        fft.rfftfreq(-1)
    with pytest.raises(TypeError, match="must be an int, got str"):
        fft.fftfreq("a")
    with pytest.raises(TypeError, match="must be a Tensor, got list"):
        fft.ifftshift([1, 2])
    with pytest.raises(IndexError):
        fft.fftshift(ampc.zeros(2, 2), 5)
    with pytest.raises(NotImplementedError, match="complex"):
        fft.fft(ampc.zeros(4))


def test_the_scaler_of_sharded_modules(torch):
    import inspect

    from ampc.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler as ours
    from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler as theirs

    words = [{n: p.default for n, p in inspect.signature(kind).parameters.items() if n != "process_group"} for kind in (ours, theirs)]
    assert words[0] == words[1] and list(words[0]) == list(words[1]) and issubclass(ours, ampc.amp.GradScaler)
    scaler = ours("cpu", 8.0, 0.25, 4.0, 1)
    p = ampc.ones(2, requires_grad=True)
    opt = ampc.optim.SGD([p], lr=0.5)
    for factor, scale in ((1.0, 32.0), (3e38, 8.0)):
        p.grad = None
        scaler.scale((p * factor).sum()).backward()
        scaler.step(opt)
        scaler.update()
        assert scaler.get_scale() == scale and p.tolist() == [0.5, 0.5]


def test_operators_by_name_are_copied_and_pickled_as_themselves():
    import copy
    import pickle

    for each in (ampc.ops.aten, ampc.ops.aten.add, ampc.ops.aten.add.Tensor, ampc.ops.other):
        for again in (copy.copy(each), copy.deepcopy([each])[0], pickle.loads(pickle.dumps(each))):
            assert again is each


def test_names_that_packages_import_from_torchs_files():
    """Each is a line of some public package: nnU-Net, TorchIO, pytorch-forecasting, nequip, SpeechBrain, SpikingJelly, OpenCLIP, DeepSpeed."""
    from ampc.distributions.kl import _KL_REGISTRY
    from ampc.distributions.transforms import _clipped_sigmoid
    from ampc.nn.common_types import _ratio_any_t, _size_2_t
    from ampc.nn.parameter import UninitializedTensorMixin
    from ampc.optim.lr_scheduler import LRScheduler, _enable_get_lr_call
    from ampc.optim.swa_utils import _group_tensors_by_device_and_dtype

    assert _size_2_t == typing.Union[int, typing.Tuple[int, int]] and _ratio_any_t == typing.Union[float, typing.Tuple[float, ...]]
    assert (ampc.distributions.Normal, ampc.distributions.Normal) in _KL_REGISTRY or len(_KL_REGISTRY) > 10
    y = _clipped_sigmoid(ampc.tensor([-1e4, 0.0, 1e4]))
    assert 0 < y[0] < 1e-30 and y[1] == 0.5 and 1 - 1e-6 < y[2] < 1
    assert isinstance(ampc.nn.LazyLinear(3).weight, UninitializedTensorMixin)

    class Warned(LRScheduler):
        def get_lr(self):
            assert self._get_lr_called_within_step
            return [0.5]

    scheduler = Warned(ampc.optim.SGD([ampc.nn.Parameter(ampc.ones(2))], lr=1.0))
    assert not scheduler._get_lr_called_within_step
    with _enable_get_lr_call(scheduler):
        assert scheduler.get_lr() == [0.5]
    assert len(_group_tensors_by_device_and_dtype([[ampc.ones(1), ampc.ones(1, dtype=ampc.float64)]])) == 2
    pin_memory = here("torch.utils.data._utils.pin_memory").pin_memory
    batch = {"x": ampc.ones(2), "name": "a"}
    if ampc.cuda.is_available():
        assert pin_memory(batch)["x"].is_pinned()
    else:
        assert pin_memory({"name": "a"}) == {"name": "a"}
    assert here("torch.distributed.distributed_c10d")._rank_not_in_group(ampc.distributed.GroupMember.NON_GROUP_MEMBER)
    assert not here("torch.__future__").get_overwrite_module_params_on_conversion()
    assert ampc.cuda.memory_cached is ampc.cuda.memory_reserved
    here("torch.hub").tqdm([], disable=True).close()
