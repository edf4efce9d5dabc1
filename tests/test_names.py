"""What scripts ask of torch around training: distributions, switches, accelerators, decorators that pass through, TensorBoard."""

import math
import subprocess
import sys

import numpy as np
import pytest
from references import R
from where import ON_GPU

import ampc
from ampc import distributions as D

LOC, SCALE, LOGITS = R.standard_normal((3, 2)), np.exp(R.standard_normal((3, 2))), R.standard_normal((3, 4))
PROBS = np.exp(LOGITS) / np.exp(LOGITS).sum(-1, keepdims=True)
MAKE = {
    "normal": (lambda d, a, b: d.Normal(a, b), [LOC, SCALE]), "normal of numbers": (lambda d, a: d.Normal(0.5, a), [SCALE]),
    "bernoulli": (lambda d, a: d.Bernoulli(a), [PROBS]), "bernoulli of logits": (lambda d, a: d.Bernoulli(logits=a), [LOGITS]),
    "categorical": (lambda d, a: d.Categorical(a), [3 * PROBS]), "categorical of logits": (lambda d, a: d.Categorical(logits=a), [LOGITS]),
}


def both(torch, name):
    """ampc's and torch's, each with the leaves that it was made of."""
    make, arrays = MAKE[name]
    made = []
    for T in (ampc, torch):
        leaves = [T.tensor(a, requires_grad=True) for a in arrays]
        made.append((make(T.distributions, *leaves), leaves))
    return made


def same(a, b, rtol=1e-9):
    assert tuple(a.shape) == tuple(b.shape)
    assert np.allclose(a.numpy(force=True), b.detach().numpy(), rtol=rtol, atol=1e-12, equal_nan=True)


@pytest.mark.parametrize("name", MAKE)
def test_distributions(torch, name):
    (mine, leaves), (theirs, others) = both(torch, name)
    assert tuple(mine.batch_shape) == tuple(theirs.batch_shape) and tuple(mine.event_shape) == tuple(theirs.event_shape)
    for what in ("mean", "variance", "stddev", "mode"):
        same(getattr(mine, what), getattr(theirs, what))
    draws = mine.sample((5,))
    assert tuple(draws.shape) == tuple(theirs.sample((5,)).shape) and not draws.requires_grad
    value = draws.numpy(force=True)
    same(mine.log_prob(ampc.tensor(value)), theirs.log_prob(torch.tensor(value)))
    same(mine.entropy(), theirs.entropy())
    for d, T, given in ((mine, ampc, leaves), (theirs, torch, others)):
        (d.log_prob(T.tensor(value)).sum() + d.entropy().sin().sum()).backward()
        assert all(g.grad is not None for g in given)
    for g, w in zip(leaves, others):
        same(g.grad, w.grad)
    wide, wide_theirs = mine.expand((2, *mine.batch_shape)), theirs.expand((2, *theirs.batch_shape))
    same(wide.mean, wide_theirs.mean)
    assert tuple(wide.sample((3,)).shape) == tuple(wide_theirs.sample((3,)).shape)
    if mine.has_enumerate_support:
        same(mine.enumerate_support(), theirs.enumerate_support())


@pytest.mark.parametrize("name", MAKE)
def test_samples_are_distributed_so(torch, name):
    ampc.manual_seed(1)
    (mine, _), _ = both(torch, name)
    draws = mine.sample((40_000,)).double().numpy(force=True)
    if name.startswith("categorical"):
        for k in range(4):
            p = mine.probs[..., k].numpy(force=True)
            assert np.abs((draws == k).mean(0) - p).max() < 5 * math.sqrt(0.25 / 40_000)
        return
    mean, std = mine.mean.numpy(force=True), mine.stddev.numpy(force=True)
    assert (np.abs(draws.mean(0) - mean) < 5 * std / 200).all()
    assert np.allclose(draws.std(0), std, rtol=0.05)


def test_divergences(torch):
    for a, b in (("normal", "normal of numbers"), ("bernoulli", "bernoulli of logits"), ("categorical", "categorical of logits")):
        (p, _), (pt, _) = both(torch, a)
        (q, _), (qt, _) = both(torch, b)
        same(D.kl_divergence(p, q), torch.distributions.kl_divergence(pt, qt))
    certain = [T.distributions.Categorical(T.tensor([0.0, 0.5, 0.5])) for T in (ampc, torch)]
    other = [T.distributions.Categorical(T.tensor([0.5, 0.5, 0.0])) for T in (ampc, torch)]
    same(D.kl_divergence(certain[0], other[0]), torch.distributions.kl_divergence(certain[1], other[1]))
    with pytest.raises(NotImplementedError, match="Normal and Categorical"):
        D.kl_divergence(both(torch, "normal")[0][0], certain[0])

    class Special(D.Normal):
        pass

    @D.register_kl(Special, D.Normal)
    def special(p, q):
        return p.loc * 0 + 7

    n = D.Normal(0.0, 1.0)
    assert float(D.kl_divergence(Special(0.0, 1.0), n)) == 7 and float(D.kl_divergence(n, n)) == 0


def test_gradients_pass_through_draws(torch):
    (mine, leaves), _ = both(torch, "normal")
    ampc.manual_seed(2)
    x = mine.rsample((6,))
    x.sum().backward()
    noise = (x.detach() - leaves[0].detach()) / leaves[1].detach()
    assert np.allclose(leaves[0].grad.numpy(force=True), 6) and np.allclose(leaves[1].grad.numpy(force=True), noise.sum(0).numpy(force=True))


def test_normal_probabilities(torch):
    (mine, _), (theirs, _) = both(torch, "normal")
    x = R.standard_normal((3, 2))
    same(mine.cdf(ampc.tensor(x)), theirs.cdf(torch.tensor(x)))
    p = R.random((3, 2))
    same(mine.icdf(ampc.tensor(p)), theirs.icdf(torch.tensor(p)), 1e-7)


@pytest.mark.parametrize(("call", "text"), [
    (lambda: D.Normal(0.0, -1.0), "`scale` must be greater than 0"), (lambda: D.Normal(float("nan"), 1.0), "`loc`"), (lambda: D.Bernoulli(1.5), r"in \[0, 1\]"),
    (lambda: D.Bernoulli(), "one of them"), (lambda: D.Categorical(ampc.tensor([-1.0, 2.0])), "positive sum"), (lambda: D.Categorical(ampc.ones(3), ampc.ones(3)), "one of them"),
    (lambda: D.Categorical(ampc.tensor(1.0)), "dimension of classes"), (lambda: D.Categorical(ampc.ones(3)).log_prob(ampc.tensor(3)), "whole number"),
    (lambda: D.Bernoulli(0.5).log_prob(ampc.tensor(0.5)), "0 or 1"),
])
def test_distributions_check(call, text):
    with pytest.raises(ValueError, match=text):
        call()
    assert math.isnan(float(D.Normal(0.0, float("nan"), validate_args=False).scale))


# -- switches -----------------------------------------------------------------------------------------------------


def test_switches():
    assert ampc.get_float32_matmul_precision() == "highest"
    ampc.set_float32_matmul_precision("high")
    assert ampc.backends.cuda.matmul.allow_tf32 and ampc.get_float32_matmul_precision() == "high"
    ampc.set_float32_matmul_precision("highest")
    assert not ampc.backends.cuda.matmul.allow_tf32
    with pytest.raises(ValueError, match="'highest', 'high' or 'medium'"):
        ampc.set_float32_matmul_precision("low")
    ampc.use_deterministic_algorithms(True, warn_only=True)
    assert ampc.are_deterministic_algorithms_enabled() and ampc.is_deterministic_algorithms_warn_only_enabled()
    ampc.use_deterministic_algorithms(True)
    ampc.use_deterministic_algorithms(False)
    assert not ampc.are_deterministic_algorithms_enabled()
    with ampc.backends.mkldnn.flags(enabled=False), ampc.backends.cuda.sdp_kernel(enable_flash=False):
        ampc.backends.cudnn.benchmark = False
    q = ampc.ones(1, 2, 3)
    params = ampc.backends.cuda.SDPAParams(q, q, q, None, 0.1, True, False)
    assert params.query is q and params.attn_mask is None and params.dropout == 0.1 and params.is_causal and not params.enable_gqa
    assert not ampc.backends.cuda.can_use_flash_attention(params, False) and not ampc.backends.cuda.can_use_efficient_attention(params)
    with pytest.raises(TypeError, match="enable_gqa"):
        ampc.backends.cuda.SDPAParams(q, q, q, None, 0.1, True)
    assert not ampc.backends.mps.is_available() and not ampc.backends.mkldnn.is_available() and ampc.backends.cpu.get_cpu_capability() in ("DEFAULT", "AVX2", "AVX512")
    import ampc.backends.mkl as mkl

    from ampc.backends import mps, opt_einsum  # noqa: F401
    assert not mkl.is_available()
    ampc.set_default_device("cpu")
    assert ampc.ones(1).device.type == "cpu"
    ampc.set_default_tensor_type(ampc.DoubleTensor)
    try:
        assert ampc.ones(1).dtype is ampc.float64
    finally:
        ampc.set_default_tensor_type("torch.FloatTensor")
    assert ampc.ones(1).dtype is ampc.float32
    with pytest.raises(TypeError, match="floating point"):
        ampc.set_default_tensor_type("torch.LongTensor")
    with pytest.warns(UserWarning, match="one after another"):
        ampc.set_num_interop_threads(4)


def test_accelerator():
    a = ampc.accelerator
    assert a.is_available() == ampc.cuda.is_available() == (a.current_accelerator() is not None) and a.device_count() == ampc.cuda.device_count()
    device = ampc.accelerator.current_accelerator().type if a.is_available() else "cpu"
    assert ampc.ones(2, device=device).sum().item() == 2
    a.synchronize()
    with a.device_index(None):
        a.empty_cache()


def test_nothing_to_compile():
    model = ampc.nn.Linear(2, 2)
    compiled = ampc.compile(model, mode="max-autotune", fullgraph=True)
    assert compiled._orig_mod is model and ampc.compile(compiled) is compiled

    @ampc.compile
    def f(x):
        return x + 1

    @ampc.compile(dynamic=True)
    def g(x):
        return x + 2

    @ampc.jit.script
    def h(x):
        return x + 3

    @ampc.jit.ignore
    def i(x):
        return x + 4

    assert [k(ampc.zeros(1)).item() for k in (f, g, h, i)] == [1, 2, 3, 4]
    assert ampc.jit.trace(model, ampc.ones(1, 2)) is model and not ampc.jit.is_scripting() and not ampc.compiler.is_compiling()
    with pytest.raises(TypeError, match="module or a function"):
        ampc.compile(5)
    with pytest.raises(NotImplementedError, match="state_dict"):
        ampc.jit.save(model, "x")


def test_typed_names(torch):
    for name in ("HalfTensor", "FloatTensor", "DoubleTensor", "ByteTensor", "CharTensor", "ShortTensor", "IntTensor", "LongTensor", "BoolTensor", "BFloat16Tensor"):
        mine, theirs = getattr(ampc, name), getattr(torch, name)
        a, b = mine([1, 0, 1]), theirs([1, 0, 1])
        assert a.dtype.name == str(b.dtype)[6:] and a.tolist() == b.tolist() and mine(2, 3).shape == (2, 3) and isinstance(a, mine)
        assert not isinstance(a, ampc.FloatTensor) or name == "FloatTensor"
    with pytest.raises(AttributeError, match="FuzzyTensor"):
        ampc.FuzzyTensor  # noqa: B018


def test_random_is_forked():
    ampc.manual_seed(5)
    with ampc.random.fork_rng():
        inside = ampc.rand(2)
    assert ampc.equal(inside, ampc.rand(2))


def test_one_process():
    assert not ampc.distributed.is_initialized()
    for f in (ampc.distributed.get_rank, ampc.distributed.get_world_size, ampc.distributed.get_backend):
        with pytest.raises(ValueError, match="the default process group has not been initialized"):
            f()
    model = ampc.nn.DataParallel(ampc.nn.Linear(2, 3))
    assert set(model.state_dict()) == {"module.weight", "module.bias"} and model(ampc.ones(1, 2)).shape == (1, 3)
    with pytest.raises(RuntimeError, match="ampc run --nproc"):
        ampc.nn.DataParallel(model, [0, 1])
    with pytest.raises(ValueError, match="call init_process_group"):
        ampc.nn.parallel.DistributedDataParallel(model)


def test_multiprocessing():
    code = "import ampc\nimport ampc.multiprocessing as mp\ndef f(i, q):\n    q.put(ampc.full((2,), float(i)).tolist())\n"
    code += "if __name__ == '__main__':\n    q = mp.get_context('fork').SimpleQueue()\n    mp.start_processes(f, (q,), 2, start_method='fork')\n    print(sorted([q.get(), q.get()]))\n"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split("\n")[0] == "[[0.0, 0.0], [1.0, 1.0]]"


def test_dtypes_by_name_alone(torch):
    """Libraries mention them in tables; tensors of them there are none."""
    names = ["complex64", "complex128", "uint16", "uint32", "uint64", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz"]
    for name in names:
        mine, theirs = getattr(ampc, name), getattr(torch, name)
        assert mine.itemsize == theirs.itemsize and mine.is_complex == theirs.is_complex and mine.is_floating_point == theirs.is_floating_point
        assert mine.is_signed == theirs.is_signed and mine != ampc.float32 and {mine: 1}[mine] == 1
        with pytest.raises(TypeError, match="dtype"):
            ampc.ones(2, dtype=mine)
    for name in ["float16", "bfloat16", "float32", "float64", *names[5:]]:
        mine, theirs = ampc.finfo(getattr(ampc, name)), torch.finfo(getattr(torch, name))
        assert [getattr(mine, k) for k in ("bits", "max", "min", "tiny", "smallest_normal", "resolution")] == [getattr(theirs, k) for k in ("bits", "max", "min", "tiny", "smallest_normal", "resolution")]
        assert mine.eps == theirs.eps or name == "float8_e5m2fnuz"  # two bits after the point: a quarter, where torch says an eighth


def test_translators_that_are_not_there():
    import ampc._dynamo as dynamo

    dynamo.config.suppress_errors = True
    dynamo.reset()
    assert dynamo.disable(len) is len and not dynamo.is_compiling()


@pytest.mark.skipif(ON_GPU, reason="about machines without a GPU; test_cuda_graphs.py has the others")
def test_cuda_graphs_without_a_gpu():
    assert not ampc.cuda.is_current_stream_capturing()
    for call in (ampc.cuda.CUDAGraph, lambda: ampc.cuda.make_graphed_callables(len, ())):
        with pytest.raises(RuntimeError, match="CUDA cannot be used"):
            call()
    for call in (lambda: ampc.cuda.Event().record(), lambda: ampc.cuda.Event().wait(), ampc.cuda.Stream):
        with pytest.raises(RuntimeError, match=r"CUDA cannot be used: .*; test cuda.is_available\(\) first$"):
            call()
    with pytest.raises(TypeError, match="Event.record: `stream` must be a cuda.Stream or None, got int"):
        ampc.cuda.Event().record(3)
    model = ampc.nn.Linear(2, 2)
    optimizer = ampc.optim.SGD(model.parameters(), lr=0.1)
    for given, said in (((None, len, optimizer), "`model` must be a Module, got NoneType; call graph_step"), ((model, None, optimizer), "`loss_fn` must be a function.*got NoneType"),
                        ((model, len, None), "`optimizer` must be an optimizer of ampc.optim, got NoneType")):
        with pytest.raises(TypeError, match=f"graph_step: {said}"):
            ampc.cuda.graph_step(*given)
    with pytest.raises(RuntimeError, match="graph_step: CUDA graphs need the whole model on one GPU, and its parameters are on cpu; write the step as a loop"):
        ampc.cuda.graph_step(model, ampc.nn.functional.mse_loss, ampc.optim.SGD(model.parameters(), lr=0.1))


def test_pytrees(torch):
    from collections import OrderedDict, namedtuple

    mine, theirs = ampc.utils._pytree, torch.utils._pytree
    Pair = namedtuple("Pair", "a b")
    tree = {"x": [1, (2, 3)], "y": Pair(4, {"z": None}), "o": OrderedDict(k=5)}
    leaves, spec = mine.tree_flatten(tree)
    assert leaves == theirs.tree_flatten(tree)[0] == [1, 2, 3, 4, None, 5] and spec.num_leaves == 6
    assert mine.tree_unflatten(leaves, spec) == tree and type(mine.tree_unflatten(leaves, spec)["y"]) is Pair
    assert mine.tree_map(lambda a, b: (a, b), [1, {"k": 2}], [3, {"k": 4}]) == [(1, 3), {"k": (2, 4)}]
    assert mine.tree_map_only(int, lambda x: -x, [1, "a", (2,)]) == [-1, "a", (-2,)]
    assert mine.tree_any(lambda x: x == 3, tree) and not mine.tree_all(lambda x: x == 3, tree)
    with pytest.raises(ValueError, match="expected 6 leaves, got 1"):
        mine.tree_unflatten([1], spec)

    class Box:
        def __init__(self, inside):
            self.inside = inside

    mine.register_pytree_node(Box, lambda b: ([b.inside], None), lambda values, _: Box(values[0]))
    assert mine.tree_map(lambda x: x + 1, [Box(1)])[0].inside == 2


def test_functions_of_functions(torch):
    f = lambda x, y: (x**3 * y).sum()  # noqa: E731
    x, y = R.standard_normal(4), R.standard_normal(4)
    a, b = [ampc.tensor(v) for v in (x, y)], [torch.tensor(v) for v in (x, y)]
    for how in (lambda T: T.func.grad(f), lambda T: T.func.grad(f, argnums=1), lambda T: T.func.hessian(f), lambda T: T.func.jacrev(lambda u, v: u**2 * v),
                lambda T: T.func.vmap(lambda u, v: u * v + 1), lambda T: T.func.vmap(lambda u, v: u * v, in_dims=(0, None))):
        same(how(ampc)(*a), how(torch)(*b))
    (g, h), value = ampc.func.grad_and_value(f, argnums=(0, 1))(*a)
    (gt, ht), value_t = torch.func.grad_and_value(f, argnums=(0, 1))(*b)
    same(g, gt), same(h, ht), same(value, value_t)
    assert not g.requires_grad
    out, back = ampc.func.vjp(lambda u: u.sin(), a[0])
    same(back(ampc.ones(4, dtype=ampc.float64))[0], torch.func.vjp(lambda u: u.sin(), b[0])[1](torch.ones(4, dtype=torch.float64))[0])
    seconds = ampc.func.grad(lambda u: ampc.func.grad(lambda v: (v**4).sum())(u).sum())(a[0])
    assert np.allclose(seconds.numpy(force=True), 12 * x**2)
    model = ampc.nn.Linear(3, 2)
    before = model.weight.clone()
    zeros = {n: ampc.zeros_like(p) for n, p in model.named_parameters()}
    assert not ampc.func.functional_call(model, zeros, ampc.ones(1, 3)).any() and ampc.equal(model.weight, before)
    assert ampc.func.functional_call(model, {"wait": before, **zeros}, ampc.ones(1, 3)).tolist() == [[0, 0]]
    with pytest.raises(RuntimeError, match="no .'wait'"):
        ampc.func.functional_call(model, {"wait": before, **zeros}, ampc.ones(1, 3), strict=True)
    with pytest.raises(RuntimeError, match="nothing is given for .'bias'"):
        ampc.func.functional_call(model, {"weight": before}, ampc.ones(1, 3), strict=True)
    with pytest.raises(ValueError, match="one size"):
        ampc.func.vmap(lambda u, v: u)(ampc.ones(2), ampc.ones(3))


def test_special_functions(torch):
    x, p = R.standard_normal(6), R.random(6)
    for name, value in (("entr", np.array([0.0, 1.0, 0.3, -1.0])), ("expit", x), ("ndtr", x), ("ndtri", p), ("logit", p), ("sinc", x), ("erfc", x)):
        same(getattr(ampc.special, name)(ampc.tensor(value)), getattr(torch.special, name)(torch.tensor(value)), 1e-7)
    same(ampc.special.xlog1py(ampc.tensor([0.0, 2.0]), ampc.tensor([-1.0, 3.0])), torch.special.xlog1py(torch.tensor([0.0, 2.0]), torch.tensor([-1.0, 3.0])), 1e-6)


def test_initial_values(torch):
    init = ampc.nn.init
    for shape in ((5, 3), (3, 5), (4, 2, 3)):
        w = init.orthogonal_(ampc.empty(*shape), gain=2.0).reshape(shape[0], -1).double()
        small = w @ w.T if shape[0] <= w.shape[1] else w.T @ w
        assert np.allclose(small.numpy(force=True), 4 * np.eye(len(small)), atol=1e-5)
    for shape, groups in (((4, 4, 3), 1), ((6, 2, 3, 3), 3), ((2, 3, 2, 2, 2), 1)):
        assert np.array_equal(init.dirac_(ampc.empty(*shape), groups).numpy(force=True), torch.nn.init.dirac_(torch.empty(*shape), groups).numpy())
    assert ((init.sparse_(ampc.empty(10, 4), 0.3) == 0).sum(0) == 3).all()
    with pytest.warns(FutureWarning, match="older name"):
        init.xavier_uniform(ampc.empty(2, 2))
    for call in (lambda: init.orthogonal_(ampc.empty(3)), lambda: init.dirac_(ampc.empty(3, 3)), lambda: init.sparse_(ampc.empty(3), 0.1)):
        with pytest.raises(ValueError):
            call()


def test_files_from_the_network(tmp_path):
    state = ampc.nn.Linear(2, 2).state_dict()
    ampc.save(state, tmp_path / "weights-00.pt")
    found = ampc.hub.load_state_dict_from_url((tmp_path / "weights-00.pt").as_uri(), str(tmp_path / "cache"))
    assert ampc.equal(found["weight"], state["weight"]) and (tmp_path / "cache" / "weights-00.pt").exists()
    with pytest.raises(RuntimeError, match="SHA-256"):
        ampc.hub.download_url_to_file((tmp_path / "weights-00.pt").as_uri(), str(tmp_path / "other"), "0" * 8)
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize("make", [lambda t, dtype: t.zeros(2, dtype=dtype), lambda t, dtype: t.tensor([1], dtype=dtype), lambda t, dtype: t.ones(2).to(dtype),
                                  lambda t, dtype: t.arange(3, dtype=dtype), lambda t, dtype: t.tensor(np.ones(2), dtype=dtype)])
def test_dtypes_that_tensors_lack_are_named(make):
    with pytest.raises(TypeError, match="ampc.uint16") as e:
        make(ampc, ampc.uint16)
    assert "AbsentDtype" not in str(e.value) and not str(e.value).startswith("_")


def test_absent_areas_say_why():
    for name in ("stft", "polar"):
        with pytest.raises(AttributeError, match="no complex tensors"):
            getattr(ampc, name)
    with pytest.raises(NotImplementedError, match="no complex tensors"):
        ampc.fft.rfft(ampc.ones(2))


def test_lists_of_parameters_show_what_they_hold(torch):
    """As torch's, but for the name of the package and the device."""
    for holder in (lambda t: t.nn.ParameterList([t.ones(2), t.ones(2, 3).half()]), lambda t: t.nn.ParameterDict({"a": t.ones(2), "b": t.ones(2, 3).half()}),
                   lambda t: t.nn.ParameterList(), lambda t: t.nn.ParameterDict()):
        assert repr(holder(ampc)).replace("ampc.", "torch.").replace("torch.cuda.", "torch.").replace(" (cuda:0)", "") == repr(holder(torch))
