"""What may stand for an int, a float or a size: NumPy's numbers, tensors of no dimensions, keywords; the same as in torch, and nothing else."""

import pickle
import warnings

import numpy as np
import pytest
from test_corners import same

import ampc

torch = pytest.importorskip("torch")

CALLS = ["x.chunk(np.int64(2))[1]", "x.chunk(T.tensor(2), 1)[0]", "x.split(T.tensor(2))[1]", "x.tensor_split(np.int64(2))[1]", "x.repeat_interleave(np.int64(2), np.int64(1))",
         "x.repeat_interleave(True)", "x.permute(T.tensor(1), T.tensor(0))", "x.permute([T.tensor(1), T.tensor(0)])", "x.sum(T.tensor(1))", "x.sum(dim=T.tensor(1))",
         "x.mean(T.tensor(1))", "x.var(T.tensor(1))", "x.squeeze(T.tensor(1))", "x.roll(T.tensor(1), T.tensor(0))", "x.reshape(T.tensor(2), 6)", "x.view(T.tensor(2), T.tensor(6))",
         "x.expand(T.tensor(2), 3, 4)", "x.repeat(T.tensor(2), 2)", "x.sum(T.tensor(1.0))", "x.sum(T.tensor(True))", "x.sum(T.tensor([1]))", "x.view(T.tensor(2.0), 6)",
         "x.max(T.tensor(1))", "F.leaky_relu(-x, T.tensor(0.5))", "F.leaky_relu(-x, T.tensor([0.5]))", "F.leaky_relu(-x, np.float32(0.5))",
         "T.zeros(True)", "T.zeros(True, 2)", "T.zeros((True,))", "T.zeros((2, True))", "T.ones(True)", "x.reshape(True, 12)", "x.view((True, 12))", "x.new_zeros(True)",
         "T.full((True,), 1.0)", "x.permute(True, False)", "x.repeat(True, 2)", "T.empty(True)",
         "T.ones(size=(2,))", "T.zeros(3, size=(2,))", "T.ones(3, size=(2,))", "T.rand(size=(2,)) * 0", "(T.randn(size=[2, 3], dtype=T.float64) * 0).abs()", "T.randint(3, size=(2,)) * 0",
         "T.randint(low=0, high=3, size=(2,)) * 0", "x.new_ones(size=(2,))", "x.new_full(size=(2,), fill_value=3)", "x.new_zeros(2, out=x)", "x.new_zeros((2,), what=1)",
         "nn.Conv2d(2, 2, np.int64(1), stride=np.int64(1)).weight.abs() * 0", "nn.ConvTranspose2d(2, 2, np.int64(1)).weight.abs() * 0", "nn.LayerNorm(np.int64(4))(x).abs() * 0",
         "nn.RMSNorm(np.int64(4))(x).abs() * 0", "nn.ZeroPad2d(np.int64(1))(x[None])", "nn.AvgPool1d(np.int64(2))(x)",
         "F.interpolate(x[None, None], scale_factor=np.float32(2))", "F.interpolate(x[None, None], size=np.int64(3))", "F.adaptive_avg_pool1d(x, 0)",
         "F.adaptive_avg_pool2d(x[None], (0, 1))", "F.adaptive_avg_pool1d(x, -1)",
         "nn.Hardtanh(min_value=-2.0)(-x)", "nn.Hardtanh(max_value=2.0)(x)", "nn.Embedding(2, 3, _freeze=True).weight.requires_grad",
         "nn.Embedding(2, 3, _weight=T.ones(2, 3)).weight.requires_grad", "nn.Embedding(2, 3, _weight=T.ones(2, 2))",
         "T.Size([T.tensor(1)])", "T.Size([np.int64(2)])", "T.Size(T.tensor([2, 3]))", "T.Size([1.0])", "T.Size([T.tensor(1.0)])", "T.Size(['a'])", "T.Size(3)",
         "T.Size([2]) + (3,)", "(3,) + T.Size([2])", "T.Size([2, 3]) * 2", "T.Size([2]) + [3]", "type(T.Size([2]) + (3,)).__name__ == 'Size'", "2 * T.Size([2])"]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("call", CALLS)
def test_arguments(call):
    same(lambda lib: eval(call, {"T": lib, "np": np, "F": lib.nn.functional, "nn": lib.nn, "x": lib.arange(12.0).reshape(3, 4)}))


def test_sizes_are_plain_ints():
    assert [type(size) for size in ampc.Size([np.int64(2), ampc.tensor(3), True])] == [int] * 3
    assert repr(ampc.Size([ampc.tensor(2)])) == "ampc.Size([2])"


def test_threads():
    threads = ampc.get_num_threads()
    ampc.set_num_threads(np.int64(threads))
    assert ampc.get_num_threads() == threads
    for wrong in (True, 1.0, "1"):
        with pytest.raises(RuntimeError, match="expected an int"):
            ampc.set_num_threads(wrong)


def test_old_names_are_told_of():
    with pytest.warns(FutureWarning, match="min_value"):
        ampc.nn.Hardtanh(min_value=-2.0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert "max_val=2.0" in repr(ampc.nn.Hardtanh(max_val=2.0))


def test_no_positions_keep_the_graph():
    x = ampc.ones(1, 2, 4, requires_grad=True)
    ampc.nn.functional.adaptive_avg_pool1d(x, 0).sum().backward()
    assert x.grad.tolist() == [[[0] * 4] * 2]


@pytest.mark.parametrize("call, name", [(lambda: ampc.ones(2).add("x"), "NoTensor"), (lambda: ampc.add(ampc.ones(2), 1.5, out=ampc.zeros(2, dtype=ampc.int64)), "WrongOut"),
                                        (lambda: ampc.tensor([object()]), "NoNumber"), (lambda: ampc.nn.functional.pad(ampc.ones(2), (1, 1), mode=1), "NoWord")])
def test_exceptions_of_several_types_are_public(call, name):
    with pytest.raises(TypeError) as raised:
        call()
    kind = type(raised.value)
    assert kind is getattr(ampc.errors, name) and f"{kind.__module__}.{kind.__qualname__}" == f"ampc.errors.{name}"
    assert type(pickle.loads(pickle.dumps(raised.value))) is kind


REFUSED = """T.zeros_like(None) | T.ones_like('x') | T.empty_like([1.0]) | T.full_like(1.5, 2) | T.chunk(None, 2) | T.chunk('x', 2) | T.chunk(x, 2.5) | T.unbind([x]) | T.linspace('0', 1, 5)
T.logspace(0, '1', 5) | T.tensor_split(x, [1, 'x']) | T.tensor_split(x, T.tensor([0.5])) | T.tensor_split(x, T.tensor([[1]])) | T.tensor_split(x, 'x') | x[None].H | x[0].H | x[0].mH | x[0].mT | T.nn.functional.interpolate(x[None], scale_factor='2')
T.nn.functional.soft_margin_loss(x[0], x) | T.nn.functional.soft_margin_loss(x, x[0]) | T.take_along_dim(x, T.zeros(1, 2, dtype=T.int64), 1) | T.take_along_dim(x, T.zeros(3, 2, dtype=T.int64), 1)
T.take_along_dim(x, x > 0, 1) | T.cdist(x, x, float('nan')) | T.pdist(x, -1.0) | T.pdist(x, float('nan')) | T.cross(x[0, :3], x[:, :3], dim=1) | T.optim.Adam([T.nn.Parameter(x)], betas='xy') | T.diagonal(x[0]) | T.linalg.diagonal(x[0]) | T.index_select(x, 1, T.zeros(1, 1, dtype=T.int64)) | T.index_add(x, 1, T.zeros(1, 1, dtype=T.int64), x[:, :1])
T.autograd.grad(x.clone().requires_grad_().sum(), x.clone().requires_grad_(), allow_unused='x')"""


@pytest.mark.parametrize("call", REFUSED.replace("\n", " | ").split(" | "))
def test_an_argument_that_torch_refuses_is_refused_by_its_type(call):
    said = []
    for lib in (ampc, torch):
        try:
            eval(call, {"T": lib, "x": lib.arange(8.0).reshape(2, 4)})
            said.append(None)
        except Exception as error:  # noqa: BLE001
            said.append(error)
    assert (said[0] is None) == (said[1] is None) and (said[1] is None or isinstance(said[0], type(said[1]))), said
