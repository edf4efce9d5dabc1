"""The smaller parts of torch.utils, torch._utils, torch.overrides and torch.testing beside torch's; where torch is absent they skip."""

import subprocess
import sys

import numpy as np
import pytest
from where import DEVICE

import ampc
from ampc.utils import benchmark, collect_env, hooks


@pytest.fixture
def torch():
    return pytest.importorskip("torch")


# -- torch._utils ------------------------------------------------------------------------------------------------------


def test_flat_buffers(torch):
    arrays = [np.arange(n, dtype="float32").reshape(shape) for n, shape in ((6, (2, 3)), (1, ()), (0, (0, 2)), (4, (4,)))]
    found = []
    for library in (ampc, torch):
        tensors = [library.tensor(a) for a in arrays]
        flat = library._utils._flatten_dense_tensors(tensors)
        back = library._utils._unflatten_dense_tensors(flat * 2, tensors)
        found.append((flat.tolist(), [t.tolist() for t in back], [tuple(t.shape) for t in back]))
    assert found[0] == found[1]
    view = ampc._utils._unflatten_dense_tensors(flat := ampc._utils._flatten_dense_tensors([ampc.ones(2), ampc.ones(3)]), [ampc.ones(2), ampc.ones(3)])
    view[1].zero_()
    assert flat.tolist() == [1, 1, 0, 0, 0]


def test_tensors_by_size(torch):
    found = []
    for library in (ampc, torch):
        dtypes = [library.float32, library.float64, library.float32, library.int64, library.float32, library.float64]
        tensors = [library.full((n,), n, dtype=d) for n, d in zip((3, 2, 4, 1, 9, 2), dtypes)]
        for limit in (1, 30, 1000):
            lists = list(library._utils._take_tensors(tensors, limit))
            found.append((library, [[t.tolist() for t in one] for one in lists]))
            flat = [t for one in lists for t in one]
            if limit == 1000:
                assert [t.tolist() for t in library._utils._reorder_tensors_as(flat, tensors)] == [t.tolist() for t in tensors]
    assert [lists for library, lists in found if library is ampc] == [lists for library, lists in found if library is torch]


# -- hooks, dlpack -----------------------------------------------------------------------------------------------------


def test_handles(torch):
    seen = []
    x = ampc.ones(2, device=DEVICE, requires_grad=True)
    handle = x.register_hook(lambda g: seen.append(g.tolist()))
    assert isinstance(handle, hooks.RemovableHandle)
    with handle:
        (x * 2).sum().backward()
    (x * 2).sum().backward()
    assert seen == [[2.0, 2.0]]
    assert hooks.unserializable_hook(test_handles).__torch_unserializable__
    assert set(torch.utils.hooks.__all__) <= set(hooks.__all__)


def test_backward_hook(torch):
    found = []
    for library in (ampc, torch):
        seen = []

        def after(module, inputs, outputs, seen=seen):
            seen.append((inputs[0].tolist(), outputs[0].tolist()))

        def before(module, outputs, seen=seen):
            seen.append(outputs[0].tolist())

        hook = library.utils.hooks.BackwardHook(library.nn.Linear(2, 2), [after], [before])
        x = library.ones(1, 2, requires_grad=True)
        (inside,) = hook.setup_input_hook((x,))
        hook.setup_output_hook(inside * 3).sum().backward()
        found.append((seen, x.grad.tolist()))
    assert found[0] == found[1]


def test_dlpack(torch):
    from ampc.utils import dlpack

    x = ampc.arange(3.0, device="cpu")
    assert torch.utils.dlpack.from_dlpack(dlpack.to_dlpack(x)).tolist() == dlpack.from_dlpack(x).tolist() == [0.0, 1.0, 2.0]
    assert {n: int(v) for n, v in torch.utils.dlpack.DLDeviceType.__members__.items()} == {n: int(v) for n, v in dlpack.DLDeviceType.__members__.items()}


# -- measuring ---------------------------------------------------------------------------------------------------------


def test_timer():
    x = ampc.ones(4)
    timer = benchmark.Timer("y = x + z", "z = x * 2", globals={"x": x}, label="adding", sub_label="four", description="plain")
    one = timer.timeit(200)
    assert one.number_per_run == 200 and len(one.times) == 1 and 0 < one.median == one.mean and one.iqr == 0
    assert "adding: four\nplain\nsetup: z = x * 2\n" in repr(one) and "1 measurement, 200 runs , 1 thread" in repr(one)
    many = timer.blocked_autorange(min_run_time=0.02)
    assert sum(many.raw_times) >= 0.02 and many.number_per_run >= 10
    seen = []
    adaptive = timer.adaptive_autorange(0.5, max_run_time=0.2, callback=lambda n, t: seen.append(t))
    assert seen == adaptive.raw_times
    before = ampc.get_num_threads()
    benchmark.Timer("threads.append(ampc.get_num_threads())", globals={"threads": (threads := []), "ampc": ampc}, num_threads=2).timeit(3)
    assert set(threads) == {2} and ampc.get_num_threads() == before
    for call in (timer.repeat, timer.autorange, timer.collect_callgrind, lambda: benchmark.Timer("1", language="c++")):
        with pytest.raises(NotImplementedError):
            call()
    with pytest.raises(ZeroDivisionError):
        benchmark.Timer("1 / 0").timeit(1)


def measurement(library, times, number=10, **words):
    common = library.utils.benchmark.utils.common if library is not ampc else benchmark
    return common.Measurement(number, times, common.TaskSpec("x + 1", "pass", **words))


def test_measurements(torch):
    import torch.utils.benchmark

    for times in ([1.0], [1.0, 1.1, 1.2, 1.05], [1e-5, 2e-5, 5e-5, 1e-4, 1e-5], [0.3, 0.31, 0.305, 0.3, 0.3, 0.301]):
        mine, theirs = measurement(ampc, times, label="L", sub_label="S"), measurement(torch, times, label="L", sub_label="S")
        for name in ("times", "median", "mean", "iqr", "has_warnings", "title", "as_row_name", "significant_figures"):
            assert getattr(mine, name) == pytest.approx(getattr(theirs, name)) if name in ("median", "mean", "iqr", "times") else getattr(mine, name) == getattr(theirs, name), name
        assert repr(mine).split("\n")[1:4] == repr(theirs).split("\n")[1:4]
    for seconds in (3e-9, 4.2e-5, 0.07, 3.0):
        assert benchmark.select_unit(seconds) == torch.utils.benchmark.select_unit(seconds)
    assert benchmark.unit_to_english("us") == "microsecond" and benchmark.trim_sigfig(1234.5, 2) == 1200.0


def test_compare():
    results = [measurement(ampc, [t] * 3, 1, label="adding", sub_label=s, description=d, num_threads=n)
               for t, s, d, n in ((1e-6, "small", "a", 1), (2e-6, "small", "b", 1), (3e-5, "large", "a", 1), (4e-5, "large", "a", 4))]
    table = benchmark.Compare(results)
    lines = str(table).splitlines()
    assert lines[0].strip("[]-") == " adding " and lines[1].split() == ["|", "a", "|", "b"] and lines[3].split() == ["small", "|", "1.0", "|", "2.0"]
    assert [line.split(":")[0] for line in lines if "threads" in line] == ["1 threads", "4 threads"] and lines[-1] == "Times are in microseconds (us)."
    with pytest.raises(ValueError):
        table.extend_results([3])


def test_collect_env(capsys):
    info = collect_env.get_env_info()
    assert info.torch_version == ampc.__version__ and info.is_cuda_available in ("True", "False")
    collect_env.main()
    text = capsys.readouterr().out
    assert f"ampc version: {ampc.__version__}" in text and "numpy==" in text and "Python version: 3." in text


# -- refusals ----------------------------------------------------------------------------------------------------------


def test_what_cannot_be_says_so():
    from ampc.utils import _python_dispatch, cpp_extension, mobile_optimizer

    for call in (lambda: cpp_extension.load("x", ["x.cpp"]), lambda: cpp_extension.load_inline("x", ""), lambda: cpp_extension.CppExtension("x", []),
                 lambda: cpp_extension.CUDAExtension("x", []), cpp_extension.BuildExtension, cpp_extension.BuildExtension.with_options, cpp_extension.include_paths):
        with pytest.raises(NotImplementedError, match="DLPack"):
            call()
    for call in (mobile_optimizer.optimize_for_mobile, mobile_optimizer.generate_mobile_module_lints):
        with pytest.raises(NotImplementedError, match="TorchScript"):
            call(None)

    class Mode(_python_dispatch.TorchDispatchMode):
        pass

    with pytest.raises(NotImplementedError, match="cannot be intercepted"), Mode():
        pass
    assert not _python_dispatch.is_in_torch_dispatch_mode() and _python_dispatch._get_current_dispatch_mode() is None


# -- autograd ----------------------------------------------------------------------------------------------------------


def test_saved_tensors_hooks_can_be_refused(torch):
    for library in (ampc, torch):
        graph = library.autograd.graph
        with graph.disable_saved_tensors_hooks("outer"):
            with graph.disable_saved_tensors_hooks("not here"), pytest.raises(RuntimeError, match="not here"), graph.save_on_cpu():
                pass
            with pytest.raises(RuntimeError, match="outer"), graph.saved_tensors_hooks(lambda t: t, lambda t: t):
                pass
        with graph.save_on_cpu():
            pass


def test_dual_tensors_are_refused(torch):
    from ampc.autograd import forward_ad

    assert set(torch.autograd.forward_ad.__all__) <= set(forward_ad.__all__)
    x = ampc.ones(2)
    for call in (lambda: forward_ad.dual_level().__enter__(), forward_ad.enter_dual_level, forward_ad.exit_dual_level, lambda: forward_ad.make_dual(x, x)):
        with pytest.raises(NotImplementedError, match="func.jvp"):
            call()
    assert forward_ad.unpack_dual(x).primal is x and forward_ad.unpack_dual(x).tangent is None


# -- data --------------------------------------------------------------------------------------------------------------


def test_stack_dataset(torch):
    for library in (ampc, torch):
        data = library.utils.data
        one, other = data.TensorDataset(library.arange(4)), data.TensorDataset(library.arange(4) * 10)
        assert [int(part[0]) for part in data.StackDataset(one, other)[2]] == [2, 20]
        named = data.StackDataset(a=one, b=[1, 2, 3, 4])
        assert len(named) == 4 and named[1]["b"] == 2 and [sample["b"] for sample in named.__getitems__([0, 3])] == [1, 4]
        batch = next(iter(data.DataLoader(named, batch_size=2)))
        assert batch["b"].tolist() == [1, 2] and batch["a"][0].tolist() == [0, 1]
        for wrong in (lambda d=data: d.StackDataset(), lambda d=data: d.StackDataset([1], a=[1]), lambda d=data: d.StackDataset([1], [1, 2])):
            with pytest.raises(ValueError):
                wrong()


# -- torch.testing -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["float32", "float64", "bfloat16", "float16", "int64", "int8", "uint8", "bool"])
def test_make_tensor(name, torch):
    import torch.testing

    for options in ({}, {"low": -1, "high": 3}, {"exclude_zero": True}, {"noncontiguous": True}, {"low": 1e9, "high": 2e9}, {"low": 3, "high": 1}, {"low": float("nan")},
                    {"requires_grad": True}, {"noncontiguous": True, "memory_format": "contiguous_format"}):
        found = []
        for library in (ampc, torch):
            more = {k: getattr(library, v) if k == "memory_format" else v for k, v in options.items()}
            try:
                t = library.testing.make_tensor((40, 25), dtype=getattr(library, name), device="cpu", **more)
            except (ValueError, RuntimeError) as error:
                found.append(type(error) if isinstance(error, ValueError) else RuntimeError)
                continue
            values = t.detach().double().numpy()
            found.append((tuple(t.shape), t.is_contiguous(), t.requires_grad, bool((values == 0).any()) if "float" not in name else None))
            span = (values.min(), values.max())
            whole = ("int" in name or name == "bool") and options.get("low", 0) < 100
            found[-1] += span if whole else (span[0] >= options.get("low", -9) * (0.99 if options.get("low", 0) > 0 else 1.01), span[1] <= options.get("high", 9) * 1.01)
        assert found[0] == found[1], options
    assert ampc.testing.make_tensor(2, 3, dtype=ampc.float32, device=DEVICE).shape == (2, 3)
    with ampc.device("meta"):
        assert ampc.testing.make_tensor(2, 3, dtype=getattr(ampc, name), device=None, exclude_zero=True).is_meta


def test_assert_allclose():
    with pytest.warns(FutureWarning, match="assert_close"):
        ampc.testing.assert_allclose(ampc.ones(2), ampc.ones(2, dtype=ampc.float64))
    with pytest.warns(FutureWarning), pytest.raises(AssertionError):
        ampc.testing.assert_allclose(ampc.ones(2), ampc.zeros(2))


def test_nothing_of_this_is_loaded_with_ampc():
    names = [*(f"ampc.utils.{n}" for n in ampc.utils.__all__), "ampc._tensor.foreach", "ampc._utils", "ampc.overrides", "ampc.nn.utils.prune", "ampc.nn.utils.stateless", "timeit"]
    done = subprocess.run([sys.executable, "-c", f"import sys, ampc; print([n for n in {names!r} if n in sys.modules])"], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


GIVEN = [(lambda m: m, r"got Linear; pass its parameters\(\)"), (lambda m: "a", r"got str; pass model.parameters\(\)"), (lambda m: None, "got NoneType"), (lambda m: 5, "got int"),
         (lambda m: dict(m.named_parameters()), r"got a dict; pass its values\(\)"), (lambda m: m.named_parameters(), r"pairs with names, as of named_parameters\(\); pass parameters\(\)"),
         (lambda m: [m.weight, 1.0], "got a float among them"), (lambda m: [None], "got a NoneType among them"), (lambda m: ampc.optim.SGD(m.parameters(), lr=1.0), "got SGD")]


@pytest.mark.parametrize("given, words", GIVEN)
@pytest.mark.parametrize("name, more", [("clip_grad_norm_", (1.0,)), ("clip_grad_value_", (1.0,)), ("get_total_norm", ()), ("clip_grads_with_norm_", (1.0, ampc.tensor(2.0))),
                                        ("parameters_to_vector", ()), ("vector_to_parameters", ())])
def test_what_is_no_parameters_is_told_of(name, more, given, words):
    model = ampc.nn.Linear(2, 2)
    arguments = (ampc.zeros(6), given(model)) if name == "vector_to_parameters" else (given(model), *more)
    with pytest.raises(TypeError, match=f"{name}: expected a Tensor or an iterable of Tensors, .*{words}"):
        getattr(ampc.nn.utils, name)(*arguments)
