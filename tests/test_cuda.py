"""CUDA's own: devices, moving between them, and the same numbers as on the CPU. Runs with ``--device sim`` on the
simulator of tests/cuda_sim and with ``--device cuda`` on a GPU."""

import ctypes
import os
import re
import shutil
import subprocess
import sys

import numpy as np
import pytest
from samples import CASES, CPU_ONLY, IDS, OPERATORS, SAMPLES, WIDE_ONLY, function, outputs, to_ampc
from where import ON_GPU, SIMULATED, settled, simulated, simulator

import ampc

pytestmark = pytest.mark.skipif(not ON_GPU, reason="needs --device sim or cuda")
two_gpus = pytest.mark.skipif(not ON_GPU or ampc.cuda.device_count() < 2, reason="needs two GPUs")


# -- devices ------------------------------------------------------------------------------------------------------


def test_devices():
    assert ampc.cuda.is_available() and ampc.cuda.device_count() >= 1 and ampc.cuda.current_device() == 0
    p = ampc.cuda.get_device_properties(0)
    assert p.name == ampc.cuda.get_device_name() and (p.major, p.minor) == ampc.cuda.get_device_capability("cuda:0")
    assert p.total_memory > 0 and p.multi_processor_count > 0 and p.name in repr(p) and p == ampc.cuda.get_device_properties()
    assert ampc.cuda.is_bf16_supported()
    x = ampc.ones(2, device="cuda:0")
    assert x.is_cuda and not x.is_cpu and x.get_device() == 0 and x.device == ampc.device("cuda", 0) and x.type() == "torch.cuda.FloatTensor"
    for bad in ("cuda:99", 99):
        with pytest.raises(RuntimeError, match="99"):
            ampc.ones(2, device=bad)
    with pytest.raises(RuntimeError, match="computes on"):
        ampc.ones(2, device="mps")


def test_storages():
    t = ampc.arange(6.0, device="cuda").view(2, 3)
    s = t.untyped_storage()
    assert s is t[1].untyped_storage() and s.device == t.device and s.is_cuda and s.is_shared() and s.nbytes() == 24 and s.get_device() == 0
    assert s.tolist() == ampc.arange(6.0).untyped_storage().tolist() and s[7] == 63 and t.storage()[4] == 4
    s[7] = 64
    assert t[0, 1].item() == 4
    t.storage()[5] = -1
    ampc.empty(0, device="cuda").set_(s, 2, (2,)).fill_(9)
    assert s.cpu().tolist() == s.clone().tolist() and ampc.empty(0, device="cpu").set_(s.cpu()).tolist() == [0, 4, 9, 9, 4, -1]
    part = ampc.asarray(s[8:16], dtype=ampc.float32)
    assert part.tolist() == [9, 9] and part.is_cuda
    assert isinstance(t.storage(), t.storage_type()) and t.storage().type() == "torch.cuda.FloatStorage" and s.share_memory_() is s
    for size in (99, 0):
        with pytest.raises(RuntimeError, match="its memory is shared"):  # with the storage of s[8:16]
            s.resize_(size)
    assert ampc.UntypedStorage(5, device="cuda").fill_(3).tolist() == [3] * 5


def test_checkpoints_for_torch(tmp_path):
    t = ampc.arange(6.0, device="cuda")
    ampc.save({"a": t, "view": t[2:].half(), "part": t[1:3]}, tmp_path / "f", format="torch")
    back = ampc.load(tmp_path / "f")
    assert back["a"].is_cuda and back["part"].tolist() == [1, 2] and back["a"].untyped_storage() is back["part"].untyped_storage()
    assert ampc.load(tmp_path / "f", map_location="cpu")["view"].tolist() == [2, 3, 4, 5]


def test_a_device_without_values():
    t = ampc.arange(6.0, device="cuda").to("meta")
    assert t.is_meta and not t.is_cuda and ampc.empty_like(t, device="cuda").is_cuda
    for call in (t.cuda, lambda: ampc.zeros(6, device="cuda").copy_(t), lambda: t + ampc.zeros(6, device="cuda")):
        with pytest.raises(RuntimeError, match="meta"):
            call()


@two_gpus
def test_two_gpus():
    a = ampc.arange(5.0, device="cuda:0")
    b = a.to("cuda:1")
    assert b.device.index == 1 and b.tolist() == a.tolist() and b.to("cuda:0").tolist() == a.tolist()
    with pytest.raises(RuntimeError, match=r"`x` is on cuda:0 and `other` on cuda:1"):
        a + b
    with ampc.cuda.device(1):
        assert ampc.ones(1, device="cuda").device.index == 1 and ampc.cuda.current_device() == 1
    with ampc.device("cuda:1"):
        assert ampc.ones(1).device.index == 1
    assert ampc.ones(1).device.index == 0
    w = ampc.ones(3, requires_grad=True)
    (w.to("cuda:1") * 2).sum().backward()
    assert w.grad.device.index == 0 and w.grad.tolist() == [2, 2, 2]


@pytest.mark.parametrize("width", [1, 3, 8])
@pytest.mark.parametrize("dtype", [ampc.float32, ampc.float16, ampc.int64], ids=str)
def test_of_values_written_at_one_index_the_last_stands(dtype, width):
    """So that bits do not depend on which block of the GPU is first."""
    n, rows = 20000, 700
    index, values = ampc.randint(0, rows, (n,), device="cpu"), (ampc.arange(n * width, device="cpu") % 2039).to(dtype).reshape(n, width)
    x = ampc.zeros(rows, width, dtype=dtype, device="cpu")
    want = x.numpy().copy()
    want[index.numpy()] = values.numpy()
    writes = {
        "setitem": lambda x, i, v: x.__setitem__(i, v), "negative": lambda x, i, v: x.__setitem__(i - rows, v), "index_copy": lambda x, i, v: x.index_copy_(0, i, v),
        "scatter": lambda x, i, v: x.scatter_(0, i[:, None].expand(n, width), v),
        "put": lambda x, i, v: x.put_(i[:, None] * width + ampc.arange(width, device=i.device), v)}
    for name, write in writes.items():
        y = x.cuda()
        write(y, index.cuda(), values.cuda())
        assert np.array_equal(y.numpy(force=True), want), name


@two_gpus
def test_cuda_without_a_number_is_the_current_gpu_whenever_a_tensor_is_made(switches_back):
    ampc.set_default_device("cuda")
    with ampc.cuda.device(1):
        assert ampc.get_default_device().index == ampc.ones(1).device.index == ampc.as_tensor(ampc.ones(1, device="cuda:0")).device.index == 1
    with ampc.device("cuda"):
        assert ampc.ones(1).device.index == 0
        with ampc.cuda.device(1):
            assert ampc.ones(1).device.index == 1
    ampc.set_default_device("cuda:1")
    assert ampc.ones(1).device.index == 1


def test_the_older_types_are_on_the_device_of_the_default_type(switches_back):
    ampc.set_default_tensor_type("torch.cuda.FloatTensor")
    try:
        made = [ampc.Tensor(2, 3), ampc.Tensor([1.0]), ampc.Tensor(), ampc.Tensor(2, device="cuda"), ampc.ones(1)]
        assert all(t.is_cuda for t in made)
        with pytest.raises(RuntimeError, match="'cuda' only"):
            ampc.Tensor(2, device="cpu")
    finally:
        ampc.set_default_tensor_type("torch.FloatTensor")
    with ampc.device("cuda"):
        assert ampc.Tensor(2).is_cpu and ampc.ones(2).is_cuda


def test_moving():
    x = ampc.randn(3, 4, device="cpu")
    y = x.cuda()
    assert y.cpu().equal(x) and y.cuda() is y and x.cpu() is x and x.to("cuda", ampc.float64).dtype is ampc.float64
    assert x.t().cuda().cpu().equal(x.t()) and y.t().cpu().equal(x.t()) and y[1:, ::2].cpu().equal(x[1:, ::2])
    w = ampc.ones(3, device="cpu", requires_grad=True)
    (w.cuda() * ampc.arange(3.0)).sum().backward()
    assert w.grad.is_cpu and w.grad.tolist() == [0, 1, 2]
    with pytest.raises(TypeError, match="cuda:0"):
        y.numpy()
    assert np.array_equal(y.numpy(force=True), x.numpy())
    net = ampc.nn.Linear(3, 2, device="cpu").to("cuda")
    assert all(p.is_cuda for p in net.parameters()) and all(p.is_cpu for p in net.cpu().parameters())
    assert ampc.zeros_like(y).is_cuda and y.new_ones(2).is_cuda and x.new_ones(2).is_cpu
    z = ampc.zeros(3, 4)
    z.copy_(x)
    assert z.cpu().equal(x)
    z[1] = 5
    z[z > 4] = -1
    assert z[1].tolist() == [-1] * 4 and z[0, ampc.tensor([1], device="cpu")].cpu().equal(x[0, [1]])


NEW = {"rand": (3,), "randn": (3,), "zeros": (3,), "ones": (3,), "empty": (3,), "full": ((3,), 2.0), "arange": (3,), "linspace": (0, 1, 3), "logspace": (0, 1, 3),
       "eye": (3,), "normal": (0.0, 1.0, (3,)), "randint": (9, (3,)), "randperm": (3,)}


@pytest.mark.parametrize("name", list(NEW))
def test_what_is_made_for_out_is_made_on_its_device(name):
    """As in torch: without a device it is out's, whatever the default; another is refused."""
    make, kind = getattr(ampc, name), ampc.int64 if name in ("randint", "randperm") else ampc.float32
    for where, other in (("cuda", "cpu"), ("cpu", "cuda")):
        ampc.manual_seed(1)
        with ampc.device(other):
            expected = make(*NEW[name], dtype=kind, device=where)
            out = ampc.empty(expected.shape, dtype=kind, device=where)
            ampc.manual_seed(1)
            assert make(*NEW[name], out=out) is out and out.device.type == where
        assert name == "empty" or out.tolist() == expected.tolist()
        with pytest.raises(RuntimeError, match="bring them together"):
            make(*NEW[name], out=out, device=other)


@pytest.mark.parametrize("device", ["cpu", "cpu:0", "meta", ampc.device("cpu")], ids=str)
def test_cuda_moves_to_a_gpu_alone(device):
    for x in (ampc.ones(2), ampc.nn.Linear(2, 2)):
        with pytest.raises(RuntimeError, match="cuda: expected a GPU, got '(cpu|meta)"):
            x.cuda(device)
    assert ampc.ones(2, device="cpu").cuda(0).device == ampc.nn.Linear(2, 2, device="cpu").cuda("cuda:0").weight.device == ampc.device("cuda:0")


def test_types_by_name():
    x = ampc.cuda.HalfTensor([1, 2])
    assert x.type() == "torch.cuda.HalfTensor" and x.is_cuda and x.dtype is ampc.float16 and x.tolist() == [1, 2]
    assert isinstance(x, ampc.cuda.HalfTensor) and not isinstance(x, (ampc.HalfTensor, ampc.cuda.FloatTensor)) and not isinstance(x.cpu(), ampc.cuda.HalfTensor)
    assert ampc.cuda.LongTensor(2, 3).shape == (2, 3) and x.type(ampc.cuda.FloatTensor).dtype is ampc.float32


@simulated
def test_a_tensor_of_a_gpu_is_printed_with_its_device_as_in_torch():
    assert repr(ampc.ones(2, device="cuda")) == "tensor([1., 1.], device='cuda:0')"
    assert repr(ampc.ones(2, 0, device="cuda:1", dtype=ampc.float16)) == "tensor([], device='cuda:1', size=(2, 0), dtype=ampc.float16)"
    assert repr(ampc.ones(1, device="cuda", requires_grad=True) * 2) == "tensor([2.], device='cuda:0', grad_fn=<MulBackward0>)"
    assert repr(ampc.ones(2, device="cpu")) == "tensor([1., 1.])"


@simulated
@pytest.mark.parametrize("driver, packages", [(13000, ["nvidia-cublas", "nvidia-nccl-cu13", "nvidia-cudnn-cu13"]),
                                              (12040, ["nvidia-cublas-cu12", "nvidia-nccl-cu12", "nvidia-cudnn-cu12"])])
def test_info_says_which_packages_bring_the_libraries_that_are_missing(tmp_path, driver, packages):
    shutil.copy(os.path.join(os.environ["AMPC_CUDA_LIBS"], "libcuda.so.1"), tmp_path)
    told = subprocess.run([sys.executable, "-m", "ampc", "info"], capture_output=True, text=True, check=True,
                          env={**os.environ, "AMPC_CUDA_LIBS": str(tmp_path), "AMPC_SIM_DRIVER": str(driver)}).stdout
    assert re.findall(r"^\w+ +not found \(.*\); `pip install (\S+)` brings it$", told, re.M) == packages


def test_an_optimizers_state_that_stayed_on_the_cpu_is_told_what_brings_it_along():
    model = ampc.nn.Linear(2, 2, device="cpu")
    optimizer = ampc.optim.Adam(model.parameters())
    model(ampc.ones(1, 2, device="cpu")).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    model.cuda()(ampc.ones(1, 2)).sum().backward()
    with pytest.raises(RuntimeError, match="parameter 0 is on cuda:0 and its state on cpu; move the model before the first step"):
        optimizer.step()
    optimizer.load_state_dict(optimizer.state_dict())
    optimizer.step()
    assert all(t.is_cuda for t in (state["exp_avg"] for state in optimizer.state.values()))


def test_mixtures():
    x = ampc.ones(2)
    assert (x + ampc.tensor(2.0, device="cpu")).tolist() == [3, 3] and (ampc.tensor(2.0, device="cpu") * x).is_cuda
    with pytest.raises(RuntimeError, match="matmul: `x` is on cuda:0 and `other` on cpu"):
        ampc.ones(2, 2) @ ampc.ones(2, 2, device="cpu")
    with pytest.raises(RuntimeError, match="`x` is on cpu and `other` on cuda:0"):
        ampc.ones(2, device="cpu").add_(x)
    F, q, there = ampc.nn.functional, ampc.ones(1, 4, 8), ampc.ones(1, 4, 8, device="cpu")
    with pytest.raises(RuntimeError, match=r"scaled_dot_product_attention: `query` is on cuda:0 and `key` on cpu; bring them"):
        F.scaled_dot_product_attention(q, there, q)
    with pytest.raises(RuntimeError, match="scaled_dot_product_attention: `query` is on cuda:0 and `attn_mask` on cpu"):
        F.scaled_dot_product_attention(q, q, q, attn_mask=ampc.ones(4, 4, dtype=ampc.bool, device="cpu"))
    with pytest.raises(RuntimeError, match="binary_cross_entropy_with_logits: `input` is on cuda:0 and `target` on cpu"):
        F.binary_cross_entropy_with_logits(q, there)
    with pytest.raises(RuntimeError, match=r"stack: `tensors\[0\]` is on cuda:0 and `tensors\[2\]` on cpu"):
        ampc.stack([q, q, there])
    import copy
    import pickle

    assert copy.deepcopy(x).is_cuda and pickle.loads(pickle.dumps(x)).device == x.device


@simulated
def test_indices_on_the_cpu_name_places_on_a_gpu():
    """As in torch: where x is written or read, indices and one number may lie on the CPU; values may not."""
    rows, on_gpu = ampc.tensor([0, 2], device="cpu"), ampc.tensor([0, 2], device="cuda")
    for index in (rows, ampc.tensor([True, False, True], device="cpu"), on_gpu):
        x = ampc.zeros(3, 2, device="cuda")
        x.index_put_((index,), ampc.tensor(2.0, device="cpu"))
        x.index_put_((index,), ampc.ones(2, 2, device="cuda"), accumulate=True)
        assert x.is_cuda and x.tolist() == [[3, 3], [0, 0], [3, 3]] and x[index].tolist() == [[3, 3]] * 2
        assert ampc.index_put(x, (index,), ampc.tensor(5.0, device="cpu")).tolist() == [[5, 5], [0, 0], [5, 5]]
    x.index_put_((rows, on_gpu // 2), ampc.tensor(7.0, device="cpu"))
    assert x.tolist() == [[7, 3], [0, 0], [3, 7]]
    with pytest.raises(RuntimeError, match=r"bring them together with .to\(device\)"):
        x.index_put_((rows,), ampc.ones(2, device="cpu"))
    with pytest.raises(RuntimeError, match=r"bring them together with .to\(device\)"):
        ampc.zeros(3, device="cpu").index_put_((on_gpu,), ampc.tensor(2.0, device="cpu"))


def test_convolutions_use_cudnn_where_it_takes_them():
    count = ctypes.CDLL(os.path.join(os.environ["AMPC_CUDA_LIBS"], "libcudnn.so.9")).ampc_simulated_convolutions
    F, cudnn = ampc.nn.functional, ampc.backends.cudnn
    assert cudnn.is_available() and cudnn.version() == 91000 and cudnn.enabled and "9.10.0" in ampc._C._cuda_note("cudnn")
    takes = {name: cudnn.is_acceptable(ampc.ones(2, dtype=getattr(ampc, name))) for name in ("float16", "float32", "int64")}
    assert takes == {"float16": True, "float32": True, "int64": False} and not cudnn.is_acceptable(ampc.ones(2, device="cpu"))
    with cudnn.flags(enabled=False):
        assert not cudnn.is_acceptable(ampc.ones(2))

    def calls(f):
        before = count()
        y = settled(f())
        return count() - before, y

    x, w, b = ampc.randn(2, 4, 7, 6), ampc.randn(6, 2, 3, 3), ampc.randn(6)
    one, y = calls(lambda: F.conv2d(x, w, b, padding=1, groups=2))
    with ampc.autocast("cuda"):
        low, z = calls(lambda: F.conv2d(x, w, b, padding=1, groups=2))
    back, _ = calls(lambda: F.conv_transpose2d(y, w, groups=2))
    last, v = calls(lambda: F.conv2d(x.to(memory_format=ampc.channels_last), w, b, padding=1, groups=2))
    assert (one, low, back, last) == (1, 1, 1, 1) and v.equal(y) and z.dtype is ampc.float16 and (z - y).abs().max().item() < 0.05
    # what it does not take: float64, what the library refuses, a biased transposed one (it would round twice)
    refused, u = calls(lambda: F.conv2d(x.to(memory_format=ampc.channels_last), w, dilation=2, padding=2, groups=2))
    assert refused == 0 and (u - F.conv2d(x, w, dilation=2, padding=2, groups=2)).abs().max().item() < 1e-5
    assert calls(lambda: F.conv2d(x.double(), w.double(), groups=2))[0] == 0 and calls(lambda: F.conv_transpose2d(y, w, ampc.randn(4), groups=2))[0] == 0
    try:
        cudnn.enabled = False
        none, t = calls(lambda: F.conv2d(x, w, b, padding=1, groups=2))
    finally:
        cudnn.enabled = True
    assert none == 0 and (t - y).abs().max().item() < 1e-5
    assert cudnn.deterministic and not cudnn.benchmark and not cudnn.allow_tf32
    for name in ("enabled", "allow_tf32", "deterministic", "benchmark"):
        with pytest.raises(TypeError, match=name):
            setattr(cudnn, name, 1)


@pytest.mark.parametrize("layout", [ampc.contiguous_format, ampc.channels_last], ids=str)
@pytest.mark.parametrize("dtype", [ampc.float16, ampc.bfloat16], ids=str)
def test_half_convolutions_make_no_columns(dtype, layout):
    """The implicit product makes no columns: a weight's gradient takes at most a copy of each operand, with the channels side by side. It gives the
    same bits in any order of threads."""
    F, orders = ampc.nn.functional, (0, 1, 2, 5) if SIMULATED else (0,)
    x, w, b = (t.to(dtype).requires_grad_() for t in (ampc.randn(3, 64, 12, 10).to(memory_format=layout), ampc.randn(32, 32, 3, 3), ampc.randn(32)))
    g = ampc.randn(3, 32, 6, 10).to(dtype)

    def run():
        y = F.conv2d(x, w, b, stride=(2, 1), padding=1, groups=2)
        return y.detach(), *ampc.autograd.grad(y, (x, w, b), g)

    ampc.backends.cudnn.enabled = False
    try:
        runs = []
        for order in orders:
            if SIMULATED:
                simulator("order", order)
            ampc.cuda.synchronize()
            before = ampc.cuda.memory_allocated()
            ampc.cuda.reset_peak_memory_stats()
            out = run()
            ampc.cuda.synchronize()
            room = ampc.cuda.max_memory_allocated() - before
            runs.append([t.numpy(force=True).tobytes() for t in out])
    finally:
        ampc.backends.cudnn.enabled = True
        if SIMULATED:
            simulator("order", 0)
    assert all(r == runs[0] for r in runs)
    assert room < sum(t.nbytes for t in (*out, x, g)) + 4096  # columns would have 100 KB more than results


# -- the same numbers ------------------------------------------------------------------------------------------------


def test_random_numbers_are_those_of_the_cpu():
    for make in (lambda d: ampc.rand(1001, device=d), lambda d: ampc.rand(1001, dtype=ampc.float64, device=d),
                 lambda d: ampc.randint(0, 100, (1001,), device=d), lambda d: ampc.randperm(1001, device=d)):
        ampc.manual_seed(5)
        there = make("cuda").cpu()
        ampc.manual_seed(5)
        assert there.equal(make("cpu"))
    for dtype in (ampc.float32, ampc.float16, ampc.float64):
        ampc.manual_seed(5)
        there = ampc.randn(1001, dtype=dtype, device="cuda").cpu()
        ampc.manual_seed(5)
        assert (there - ampc.randn(1001, dtype=dtype, device="cpu")).abs().max().item() <= 16 * ampc.finfo(dtype).eps


@pytest.mark.parametrize("name", ["Gamma", "Dirichlet", "Poisson", "Binomial", "VonMises"])
def test_draws_are_those_of_the_cpu(name):
    """And their gradients: both sides compute in float64; a mathematical function that differs by a rounding hardly ever turns a draw."""
    from ampc import distributions as D

    make = {"Gamma": lambda a: D.Gamma(a, a.new_ones(())), "Dirichlet": lambda a: D.Dirichlet(a), "Poisson": lambda a: D.Poisson(9 * a),
            "Binomial": lambda a: D.Binomial(50, a / 41), "VonMises": lambda a: D.VonMises(a.new_zeros(()), a)}[name]
    drawn, slopes = [], []
    for device in ("cpu", "cuda"):
        a = ampc.linspace(0.01, 40, 300, device=device).reshape(3, 100).requires_grad_()
        ampc.manual_seed(8)
        d = make(a)
        x = d.rsample() if d.has_rsample else d.sample()
        if d.has_rsample:
            (x * ampc.linspace(0, 1, 100, device=device)).sum().backward()
            slopes.append(a.grad.cpu())
        drawn.append(x.detach().cpu())
    same = (drawn[0] - drawn[1]).abs() <= 1e-5 * (1e-3 + drawn[0].abs())
    assert int((~same).sum()) <= 1
    if slopes and bool(same.all()):
        assert np.allclose(slopes[0].numpy(), slopes[1].numpy(), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("n", [1, 1000, 4096, 100003])
def test_dropout_is_that_of_the_cpu(n):
    x = ampc.rand(n, device="cpu") + 1
    results = []
    for device in ("cpu", "cuda"):
        ampc.manual_seed(9)
        results.append(ampc.nn.functional.dropout(x.to(device), 0.3).cpu())
    assert results[0].equal(results[1])


@pytest.mark.parametrize("shape", [(1,), (7,), (8,), (9,), (1000,), (4099,), (33, 64), (5, 8, 24), (3, 7, 5)])
@pytest.mark.parametrize("dtype", [ampc.float32, ampc.float16, ampc.bfloat16, ampc.float64, ampc.int32], ids=str)
def test_elementwise_of_all_shapes(shape, dtype):
    """In runs and by single elements: contiguous, broadcast from every side, strided, off a boundary, truth values."""
    x = (ampc.rand(*shape, device="cpu") * 20 - 10).to(dtype)
    row, column = x[..., :1].contiguous(), x.reshape(-1)[:shape[-1]].contiguous()
    wide = (ampc.rand(*shape[:-1], 2 * shape[-1] + 1, device="cpu") * 20 - 10).to(dtype)
    cases = [lambda a, r, c, w: a + c, lambda a, r, c, w: a * r, lambda a, r, c, w: a > 0, lambda a, r, c, w: a.masked_fill(a > 3, 1),
             lambda a, r, c, w: ampc.where(c > 0, a, r), lambda a, r, c, w: a + w[..., 1::2], lambda a, r, c, w: a - w[..., 1:shape[-1] + 1],
             lambda a, r, c, w: (a > 0) & (c < 2), lambda a, r, c, w: a.t() + 1 if a.ndim == 2 else a + 1, lambda a, r, c, w: a.to(ampc.float16),
             lambda a, r, c, w: a.bool(), lambda a, r, c, w: w[..., 1::2].clone(), lambda a, r, c, w: a.addcmul(a, c, value=2),
             lambda a, r, c, w: a.reshape(-1)[1:] * 3]
    for f in cases:
        here, there = f(x, row, column, wide), f(x.cuda(), row.cuda(), column.cuda(), wide.cuda())
        assert there.dtype is here.dtype and there.shape == here.shape
        eps = ampc.finfo(here.dtype).eps if here.is_floating_point() else 0  # one may multiply and add in one rounding
        scale = x.double().abs().max().item() ** 2
        assert here.numel() == 0 or (there.cpu().double() - here.double()).abs().max().item() <= 2 * eps * scale


@pytest.mark.parametrize("shape", [(5,), (70000,), (3, 5000), (5000, 3), (2, 300, 40)])
@pytest.mark.parametrize("dtype", [ampc.float32, ampc.bfloat16, ampc.int64])
def test_reductions_of_all_sizes(shape, dtype):
    """Every walk: rows, columns, in parts."""
    x = (ampc.rand(*shape, device="cpu") * 8 - 4).to(dtype)
    y, wide = x.cuda(), x.double()
    for dim in (None, 0, -1):
        want = wide.sum() if dim is None else wide.sum(dim)
        n = x.numel() // want.numel()
        got = (y.sum(dtype=ampc.float32 if dtype.is_floating_point else None) if dim is None else
               y.sum(dim, dtype=ampc.float32 if dtype.is_floating_point else None)).double().cpu()
        assert (got - want).abs().max().item() <= (4 * n**0.5 * 4 * 2**-24 if dtype.is_floating_point else 0)
        if dim is not None:
            assert y.max(dim).indices.cpu().equal(x.max(dim).indices) and y.amin(dim).cpu().equal(x.amin(dim))


@pytest.mark.parametrize("n", [1, 31, 64, 700, 800, 1000, 1024, 4096, 5000, 13000])
def test_rows_of_all_lengths(n):
    x = ampc.randn(5, n, device="cpu") * 3
    g = ampc.randn(5, n, device="cpu")
    def check(dtype):
        def run(device):
            a = x.detach().to(device, dtype).requires_grad_()
            w = ampc.linspace(0.5, 1.5, n, device=device, dtype=dtype).requires_grad_()
            out = [a.softmax(1), a.log_softmax(1), a.logsumexp(1), ampc.nn.functional.layer_norm(a, (n,), w)]
            sum((o * g.to(device, dtype)[:, :o.shape[-1]].reshape(o.shape) if o.ndim == 2 else o).float().sum() for o in out).backward()
            return [t.detach().double().cpu() for t in (*out, a.grad, w.grad)]

        for here, there in zip(run("cpu"), run("cuda")):
            assert (here - there).abs().max().item() <= 64 * ampc.finfo(dtype).eps * max(1, here.abs().max().item())

    check(ampc.float32)
    check(ampc.float16)


@pytest.mark.parametrize("shape", [(7,), (3000,), (4, 700), (700, 4)])
@pytest.mark.parametrize("descending", [False, True])
def test_sort_of_all_sizes(shape, descending):
    x = ampc.randint(-50, 50, shape, device="cpu").float()
    x.view(-1)[::7] = float("nan")
    for t in (x, x.half(), x.nan_to_num() if hasattr(x, "nan_to_num") else ampc.where(x.isnan(), 0.0, x)):
        here, there = t.sort(-1, descending), t.cuda().sort(-1, descending)
        assert there.indices.cpu().equal(here.indices)
        assert np.array_equal(there.values.numpy(force=True), here.values.numpy(force=True), equal_nan=True)


@pytest.mark.parametrize("width", [1, 3, 8, 16, 40])
@pytest.mark.parametrize("dtype", [ampc.float32, ampc.float16, ampc.int64, ampc.bool], ids=str)
def test_picked_blocks_of_all_widths(width, dtype):
    """By 16 bytes where both sides allow it, by single elements elsewhere; the CPU's results, bit for bit."""
    x = (ampc.rand(9, 4, width, device="cpu") * 9).to(dtype)
    rows = ampc.tensor([3, 0, -1, 3, 8], device="cpu")
    cases = [lambda a, i: a[i], lambda a, i: a.index_select(1, i % 4), lambda a, i: a[:, i % 4], lambda a, i: a.transpose(0, 1)[i % 4],
             lambda a, i: a[i, i % 4], lambda a, i: a[1:][i % 4], lambda a, i: a[..., 1:][i], lambda a, i: a.view(36, width)[i]]
    for f in cases:
        assert f(x.cuda(), rows.cuda()).cpu().equal(f(x, rows))
    put = rows[[0, 1, 2]]  # of values that meet, any one may stand
    assert x.cuda().index_put((put.cuda(),), x[:3].cuda()).cpu().equal(x.index_put((put,), x[:3]))
    if dtype.is_floating_point:
        table = x.view(36, width)
        assert ampc.nn.functional.embedding(rows.abs().cuda(), table.cuda()).cpu().equal(ampc.nn.functional.embedding(rows.abs(), table))


def test_additions_that_meet():
    """Many items at one place: summed in their order, the same every time."""
    index = ampc.randint(0, 13, (5000,), device="cpu")
    values = ampc.randn(5000, 3, device="cpu")
    want = np.zeros((13, 3))
    np.add.at(want, index.numpy(), values.double().numpy())
    runs = [ampc.zeros(13, 3).index_add(0, index.cuda(), values.cuda()) for _ in range(3)]
    assert abs(runs[0].double().numpy(force=True) - want).max() <= 5000**0.5 * 4 * 2**-24 * 10
    assert runs[0].equal(runs[1]) and runs[0].equal(runs[2])
    table = ampc.randn(13, 3).requires_grad_()
    ampc.nn.functional.embedding(index.cuda(), table).backward(values.cuda())
    assert abs(table.grad.double().numpy(force=True) - want).max() <= 5000**0.5 * 4 * 2**-24 * 10


@pytest.mark.parametrize("dtype", [ampc.float32, ampc.float16, ampc.bfloat16, ampc.float64])
@pytest.mark.parametrize("mkn", [(1, 1, 1), (17, 33, 9), (64, 48, 80), (5, 0, 3)])
def test_products(mkn, dtype):
    m, k, n = mkn
    a, b, bias = ampc.randn(m, k, device="cpu").to(dtype), ampc.randn(k, n, device="cpu").to(dtype), ampc.randn(n, device="cpu").to(dtype)
    want = a.double() @ b.double()
    bound = 8 * ampc.finfo(dtype).eps * max(1, k**0.5) * 4
    for x, y in ((a, b), (a.t().contiguous().t(), b), (a, b.t().contiguous().t())):
        assert ((x.cuda() @ y.cuda()).double().cpu() - want).abs().max().item() <= bound
    got = ampc.nn.functional.linear(a.cuda(), b.t().contiguous().cuda(), bias.cuda()).double().cpu()
    assert (got - (want + bias.double())).abs().max().item() <= bound
    three = ampc.stack([a, a * 2]).cuda() @ b.cuda()
    assert (three.double().cpu() - ampc.stack([want, want * 2])).abs().max().item() <= 2 * bound


def test_tf32_is_off_until_allowed():
    a, b = ampc.rand(32, 64) + 1, ampc.rand(64, 32) + 1
    want = a.double() @ b.double()
    exact = (a @ b - want).abs().max().item()
    assert not ampc.backends.cuda.matmul.allow_tf32
    ampc.backends.cuda.matmul.allow_tf32 = True
    try:
        rounded = (a @ b - want).abs().max().item()
    finally:
        ampc.backends.cuda.matmul.allow_tf32 = False
    assert exact < 1e-4 and (not SIMULATED or rounded > 1e-4)


def test_weight_gradients_accumulate_in_float32():
    """Contributions that float16 cannot add are not lost in .grad."""
    w = ampc.ones(1, 64, requires_grad=True)
    big, small = ampc.full((1, 64), 2048.0), ampc.full((1, 64), 0.25)
    for x in (big, small, small):
        with ampc.autocast("cuda", dtype=ampc.float16):
            y = ampc.nn.functional.linear(x, w)
        y.backward(ampc.ones_like(y))
    assert w.grad.dtype is ampc.float32 and w.grad[0, 0].item() == 2048.5


# -- thread order --------------------------------------------------------------------------------------------------------


@simulated
@pytest.mark.parametrize("dtype", [ampc.float64, ampc.float32, ampc.float16, ampc.bfloat16], ids=str)
@pytest.mark.parametrize(("name", "i"), CASES, ids=IDS)
def test_results_do_not_depend_on_the_order_of_threads(name, i, dtype):
    """Forward, backward and at random: a missing barrier would show."""
    def run(order):
        simulator("order", order)
        try:
            ampc.manual_seed(1)
            args, kwargs = to_ampc(SAMPLES[name][i], dtype, OPERATORS[name]["differentiable"] and SAMPLES[name][i].grad)
            out = outputs(function(name)(*args, **kwargs))
            leaves = [a for a in args if isinstance(a, ampc.Tensor) and a.requires_grad]
            if leaves and out[0].requires_grad:
                out[0].backward(ampc.ones_like(out[0]))
            return [t.numpy(force=True).tobytes() for t in (*out, *[a.grad for a in leaves if a.grad is not None])]
        finally:
            simulator("order", 0)

    if name in CPU_ONLY or (name in WIDE_ONLY and dtype.itemsize == 2):
        pytest.skip("no such call on a GPU")
    if name == "index_put" and not SAMPLES[name][i].kwargs and len(SAMPLES[name][i].args) < 4:
        pytest.skip("of values that meet, any one may stand")
    want = run(0)
    assert all(run(order) == want for order in (1, 2, 5))


@pytest.mark.parametrize("kind", ["RNN", "LSTM", "GRU"])
def test_recurrent_layers(kind):
    """Padded and packed, the same numbers as the CPU's kernel."""
    ampc.manual_seed(3)
    here = getattr(ampc.nn, kind)(4, 5, 2, bidirectional=True).double()
    there = getattr(ampc.nn, kind)(4, 5, 2, bidirectional=True).double().cuda()
    there.load_state_dict(here.state_dict())
    x = ampc.randn(4, 3, 4, dtype=ampc.float64)
    for packed in (False, True):
        results = []
        for m, given in ((here, x), (there, x.cuda())):
            if packed:
                given = ampc.nn.utils.rnn.pack_padded_sequence(given, [2, 4, 1], enforce_sorted=False)
            y, last = m(given)
            if packed:
                y, _ = ampc.nn.utils.rnn.pad_packed_sequence(y)
            m.zero_grad()
            (y.square().sum() + sum(s.sum() for s in (last if kind == "LSTM" else [last]))).backward()
            results.append([y, *[p.grad for p in m.parameters()]])
        for a, b in zip(*results):
            assert b.is_cuda and np.allclose(a.numpy(force=True), b.cpu().numpy(force=True), rtol=1e-10, atol=1e-13)


@two_gpus
def test_a_packed_sequence_stays_on_its_gpu():
    packed = ampc.nn.utils.rnn.pack_sequence([ampc.ones(3, device="cpu")])
    there = packed.cuda("cuda:1")
    assert there.cuda() is there and there.cuda(0).data.device.index == 0 and packed.cuda().data.is_cuda
    with pytest.raises(ValueError, match="on the CPU"):
        type(packed)(packed.data, packed.batch_sizes.cuda())
