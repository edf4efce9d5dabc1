"""Attributes and methods of Tensor that torch has for other kinds of tensors, or from older times."""

import warnings

import pytest

import ampc

torch = pytest.importorskip("torch")


def test_kinds_of_tensors_that_are_not_here():
    x = ampc.ones(2)
    for name in ("is_ipu", "is_maia", "is_mkldnn", "is_mps", "is_mtia", "is_nested", "is_quantized", "is_sparse_csr", "is_vulkan", "is_xla", "is_xpu"):
        assert getattr(x, name) is getattr(torch.ones(2), name) is False
    assert x.name is None and x.volatile is False and not x.is_distributed() and not ampc.is_distributed(x)
    with pytest.warns(UserWarning, match="no_grad"):
        x.volatile = True
    assert x.layout is ampc.strided and isinstance(x.layout, ampc.layout) and repr(ampc.strided) == "ampc.strided"
    assert x.const_data_ptr() == x.data_ptr()


def test_layouts_of_new_tensors():
    x = ampc.ones(2)
    makers = [lambda **k: ampc.zeros(2, **k), lambda **k: ampc.ones(2, **k), lambda **k: ampc.empty(2, **k), lambda **k: ampc.full((2,), 1.0, **k), lambda **k: ampc.rand(2, **k),
              lambda **k: ampc.randn(2, **k), lambda **k: ampc.randint(3, (2,), **k), lambda **k: ampc.arange(3, **k), lambda **k: ampc.eye(2, **k),
              lambda **k: ampc.linspace(0, 1, 3, **k), lambda **k: ampc.randperm(3, **k), lambda **k: ampc.zeros_like(x, **k), lambda **k: ampc.rand_like(x, **k),
              lambda **k: x.new_zeros(2, **k), lambda **k: x.new_full((2,), 1.0, **k), lambda **k: ampc.empty_strided((2,), (1,), **k), lambda **k: ampc.full_like(x, 2, **k)]
    for make in makers:
        assert make(layout=ampc.strided).layout is ampc.strided
        with pytest.raises(RuntimeError, match="strided"):
            make(layout=torch.sparse_coo)


def test_dtype_of_gradients():
    x = ampc.ones(2, dtype=ampc.float64, requires_grad=True)
    assert x.grad_dtype is ampc.float64
    with pytest.raises(RuntimeError, match="leaves"):
        (x * 2).grad_dtype  # noqa: B018


def test_as_another_class():
    class Marked(ampc.Tensor):
        pass

    x = ampc.ones(3, requires_grad=True)
    y = (x * 2).as_subclass(Marked)
    assert type(y) is Marked and y.tolist() == [2, 2, 2]
    (y * 3).sum().backward()
    assert x.grad.tolist() == [6, 6, 6]
    plain = ampc.zeros(2)
    plain.as_subclass(Marked)[0] = 5
    assert plain.tolist() == [5, 0]
    with pytest.raises(TypeError):
        x.as_subclass(int)


SHAPES = [lambda lib: lib.zeros(2, 3, 4, 5), lambda lib: lib.zeros(2, 3, 4, 5).permute(1, 0, 3, 2), lambda lib: lib.zeros(2, 3, 4, 5).to(memory_format=lib.channels_last),
          lambda lib: lib.zeros(1, 3, 4, 5), lambda lib: lib.zeros(2, 1, 4, 5), lambda lib: lib.zeros(()), lambda lib: lib.zeros(1, 1), lambda lib: lib.zeros(3, 1).expand(3, 4),
          lambda lib: lib.zeros(2, 0, 3), lambda lib: lib.zeros(5)]


@pytest.mark.parametrize("make", SHAPES)
def test_order_of_dimensions(make):
    def run(lib, check):
        try:
            return make(lib).dim_order(ambiguity_check=check(lib))
        except RuntimeError:
            return RuntimeError

    for check in (lambda lib: False, lambda lib: True, lambda lib: [lib.contiguous_format, lib.channels_last]):
        assert run(ampc, check) == run(torch, check)


def test_a_function_of_three():
    both = []
    for lib in (torch, ampc):
        x = lib.tensor([[1.0, 2.0], [3.0, 4.0]])
        assert x.map2_(lib.tensor([[10.0, 20.0], [30.0, 40.0]]), x + 1, lambda a, b, c: a + b * c) is x
        both.append(x.tolist())
    assert both[0] == both[1]


def test_loading_into_a_tensor():
    x, y = ampc.zeros(3, requires_grad=True), ampc.ones(3)
    assert x.module_load(y).tolist() == x.tolist() == [1, 1, 1] and x.module_load(y, assign=True).data_ptr() == y.data_ptr()


def test_resize_is_reshape():
    x = ampc.arange(6.0).requires_grad_()
    with pytest.warns(UserWarning, match="reshape"):
        assert x.resize(2, 3).shape == (2, 3) and x.resize((3, 2)).requires_grad
    with pytest.warns(UserWarning, match="reshape"):
        assert x.resize_as(ampc.zeros(1, 6)).shape == (1, 6)
    with warnings.catch_warnings(), pytest.raises(RuntimeError):
        warnings.simplefilter("ignore")
        x.resize(4)


@pytest.mark.parametrize(("name", "instead"), [("eig", "linalg.eig"), ("symeig", "linalg.eigh"), ("lstsq", "linalg.lstsq"), ("solve", "linalg.solve"), ("reinforce", "log_prob")])
def test_what_was_removed_says_what_to_write(name, instead):
    for x in (torch.eye(2), ampc.eye(2)):
        with pytest.raises(RuntimeError) as error:
            getattr(x, name)(x)
    assert instead in str(error.value)


def test_variable_is_what_it_was_in_torch():
    from ampc.autograd import Variable
    w = ampc.ones(3, requires_grad=True)
    y = w * 2
    assert isinstance(w, Variable) and isinstance(y, Variable) and not isinstance(3, Variable)
    assert Variable(y).grad_fn is None and not Variable(y).requires_grad
    assert Variable(y.detach(), requires_grad=True).requires_grad
    assert Variable(ampc.tensor([1, 2])).dtype == ampc.int64  # any dtype
    assert Variable(w).data_ptr() == w.data_ptr() and type(Variable(ampc.nn.Parameter(w))) is ampc.Tensor
    assert Variable().numel() == 0 and Variable(data=y).shape == (3,)
    with pytest.raises(TypeError, match="must be a tensor, got list"):
        Variable([1.0])
    with pytest.raises(RuntimeError):
        Variable(ampc.tensor([1]), requires_grad=True)
    with pytest.raises(ValueError, match="exclude each other"):
        Variable(y, True, True)
    with pytest.warns(UserWarning, match="no_grad"):
        Variable(y, volatile=True)


def test_the_number_of_a_tensor(torch):
    for lib in (torch, ampc):
        module = lib.nn.Linear(1, 1)
        assert isinstance(module.weight._cdata, int) and module.weight._cdata == next(module.parameters())._cdata
        assert len({module.weight._cdata, module.bias._cdata, module.weight.data._cdata}) == 3


def test_tensor_of_a_tensor_is_a_view_of_any_dtype():
    w = ampc.ones(3, requires_grad=True)
    y = w * 2
    ampc.Tensor(y).sum().backward()
    assert w.grad.tolist() == [2, 2, 2]
    assert ampc.Tensor(ampc.tensor([1, 2])).tolist() == [1, 2]


@pytest.mark.parametrize("value", [2, 2.5, True, -0.0, float("inf")])
def test_a_number_in_an_f_string(torch, value):
    assert f"{ampc.tensor(value)}" == f"{torch.tensor(value)}" == str(value)
    assert f"{ampc.tensor(2.5, requires_grad=True)}" == "2.5" and f"{ampc.tensor([1])}" == "tensor([1])"
