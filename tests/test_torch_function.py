"""__torch_function__: classes and modes that answer functions, beside torch."""

import contextlib
import threading

import numpy as np
import pytest

import ampc

torch = pytest.importorskip("torch")
BOTH = pytest.mark.parametrize("lib", [ampc, torch], ids=["ampc", "torch"])


def name_of(func):
    return getattr(func, "__name__", str(func))


class Answering:
    """No tensor, but given to functions of tensors."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return name_of(func), [t.__name__ for t in types], len(args)


F = {
    "clone": lambda t, a, x: t.clone(a), "add": lambda t, a, x: t.add(x, a), "x + a": lambda t, a, x: x + a, "x - a": lambda t, a, x: x - a,
    "x * a": lambda t, a, x: x * a, "x @ a": lambda t, a, x: x @ a, "matmul": lambda t, a, x: t.matmul(a, x), "cat": lambda t, a, x: t.cat([x, a]),
    "stack": lambda t, a, x: t.stack((a, x)), "sum": lambda t, a, x: t.sum(a), "where": lambda t, a, x: t.where(x > 0, a, x),
    "method": lambda t, a, x: x.matmul(a), "in place": lambda t, a, x: x.add_(a), "copy_": lambda t, a, x: x.copy_(a), "x == a": lambda t, a, x: x == a,
    "x < a": lambda t, a, x: x < a, "linear": lambda t, a, x: t.nn.functional.linear(x, a), "eigh": lambda t, a, x: t.linalg.eigh(a),
    "solve": lambda t, a, x: t.linalg.solve(a, x), "squeeze": lambda t, a, x: t.squeeze(a), "zeros_like": lambda t, a, x: t.zeros_like(a),
    "numel": lambda t, a, x: t.numel(a), "equal": lambda t, a, x: t.equal(x, a), "div": lambda t, a, x: t.div(a, 2), "isclose": lambda t, a, x: t.isclose(a, x),
}


@pytest.mark.parametrize("call", list(F))
def test_an_object_that_is_no_tensor_answers(call):
    found = [F[call](lib, Answering(), lib.ones(2)) for lib in (ampc, torch)]
    assert found[0] == found[1]


@BOTH
def test_an_object_that_is_assigned_answers(lib):
    x, seen = lib.ones(2), []

    class Assigned:
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            seen.append((name_of(func), args[1]))

    x[0] = Assigned()
    assert seen == [("__setitem__", 0)] and x.tolist() == [1, 1]


@BOTH
def test_the_function_is_the_one_that_was_called(lib):
    """Libraries look it up in tables of their own."""
    asked = []

    class Table:
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            asked.append(func)

    lib.clone(Table()), lib.ones(2).add(Table()), lib.ones(2) + Table(), lib.linalg.cholesky(Table()), lib.nn.functional.pad(Table(), (1, 1))
    assert asked == [lib.clone, lib.Tensor.add, lib.Tensor.add, lib.linalg.cholesky, lib.nn.functional.pad]


@BOTH
def test_a_class_that_cannot_answer_leaves_it_to_the_next(lib):
    class Shy:
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            return NotImplemented

    class Shyer(Shy):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            return [t.__name__ for t in types]

    assert lib.add(Shy(), Shyer()) == ["Shyer", "Shy"]  # a subclass before its base
    with pytest.raises(TypeError):
        lib.add(Shy(), lib.ones(2))
    with pytest.raises(TypeError):
        lib.add(lib.ones(2), object())


# -- subclasses of Tensor ----------------------------------------------------------------------------------------------

KEPT = {
    "x + 1": lambda t, x: x + 1, "1 - x": lambda t, x: 1 - x, "T": lambda t, x: x.T, "data": lambda t, x: x.data, "detach": lambda t, x: x.detach(),
    "clone": lambda t, x: x.clone(), "to": lambda t, x: x.to(t.float64), "half": lambda t, x: x.half(), "max": lambda t, x: x.max(0)[0],
    "split": lambda t, x: x.split(1)[0], "index": lambda t, x: x[0], "iterate": lambda t, x: next(iter(x)), "cat": lambda t, x: t.cat([x, x]), "sum": lambda t, x: x.sum(),
    "mm": lambda t, x: x @ x.T, "zeros_like": lambda t, x: t.zeros_like(x), "rand_like": lambda t, x: t.rand_like(x), "new_zeros": lambda t, x: x.new_zeros(2),
    "softmax": lambda t, x: t.nn.functional.softmax(x, -1), "cross_entropy": lambda t, x: t.nn.functional.cross_entropy(x, t.tensor([0, 1])),
    "where": lambda t, x: t.where(x > 0, x, 0.0), "x > 1": lambda t, x: x > 1, "view": lambda t, x: x.view(3, 2), "unbind": lambda t, x: x.unbind()[1],
    "topk": lambda t, x: x.topk(1).values, "x ** 2": lambda t, x: x**2, "-x": lambda t, x: -x, "einsum": lambda t, x: t.einsum("ij->ji", x),
    "Linear": lambda t, x: t.nn.Linear(3, 2)(x), "in place": lambda t, x: x.add_(1), "x += 1": lambda t, x: x.__iadd__(1), "grad": lambda t, x: gradient_of(x),
}


def gradient_of(x):
    leaf = x.clone().detach().requires_grad_()
    (leaf * 2).sum().backward()
    return leaf.grad


@pytest.mark.parametrize("call", list(KEPT))
def test_results_have_the_class_of_a_subclass(call):
    found = []
    for lib in (ampc, torch):
        class Sub(lib.Tensor):
            pass

        result = KEPT[call](lib, lib.arange(6.0).reshape(2, 3).as_subclass(Sub))
        found.append((type(result).__name__, result.detach().double().numpy()))
    assert found[0][0] == found[1][0]
    if call not in ("rand_like", "Linear"):
        np.testing.assert_allclose(found[0][1], found[1][1], rtol=1e-3)


@BOTH
def test_a_subclass_that_records_calls_its_base(lib):
    class Recording(lib.Tensor):
        seen = []

        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            cls.seen.append((name_of(func), sorted(kwargs or {})))
            return super().__torch_function__(func, types, args, kwargs or {})

    x = lib.ones(2, 2).as_subclass(Recording)
    Recording.seen.clear()
    y = (x + 1).mean(dim=0)
    lib.nn.functional.linear(x, lib.ones(3, 2))
    x.to(lib.float64), lib.cat([x, x]), x[0], x.clone()
    assert isinstance(y, Recording)
    assert Recording.seen == [("add", []), ("mean", ["dim"]), ("linear", []), ("to", []), ("cat", []), ("__getitem__", []), ("clone", [])]


@BOTH
def test_classes_that_are_treated_as_plain_tensors(lib):
    class Plain(lib.Tensor):
        __torch_function__ = lib._C._disabled_torch_function_impl

    x = lib.ones(2).as_subclass(Plain)
    assert type(x + 1) is lib.Tensor and type(lib.nn.Parameter(lib.ones(2)) + 1) is lib.Tensor

    class Kept(lib.Tensor):
        pass

    y = lib.ones(2).as_subclass(Kept)
    with lib._C.DisableTorchFunctionSubclass():
        assert type(y + 1) is lib.Tensor
    assert type(y + 1) is Kept


@BOTH
def test_gradients_pass_through_subclasses(lib):
    class Sub(lib.Tensor):
        pass

    leaf = lib.arange(3.0, requires_grad=True)
    (leaf.as_subclass(Sub) ** 2).sum().backward()
    assert leaf.grad.tolist() == [0, 2, 4]


# -- modes ---------------------------------------------------------------------------------------------------------------


def recorder(lib, seen, word=""):
    class Mode(lib.overrides.TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            seen.append(word + name_of(func))
            return func(*args, **(kwargs or {}))

    return Mode()


@BOTH
def test_a_mode_sees_every_function_on_its_thread(lib):
    seen, elsewhere = [], []
    with recorder(lib, seen):
        a = lib.ones(2)
        (a + a).sum()
        lib.nn.functional.linear(a, lib.ones(3, 2))
        thread = threading.Thread(target=lambda: elsewhere.append(lib.zeros(1)))
        thread.start(), thread.join()
    lib.ones(2)
    assert seen == ["ones", "add", "sum", "ones", "linear"] and len(elsewhere) == 1


@BOTH
def test_modes_answer_from_the_innermost_out(lib):
    seen = []
    with recorder(lib, seen, "outer "), recorder(lib, seen, "inner "):
        lib.add(lib.ones(1), 1)
    assert seen == ["inner ones", "outer ones", "inner add", "outer add"]


@BOTH
def test_a_mode_may_change_results_and_ends_with_an_error(lib):
    class Zeros(lib.overrides.TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            if func is lib.ones:
                return lib.zeros(*args)
            if func is lib.exp:
                raise ValueError("no exp")
            return func(*args, **(kwargs or {}))

    with pytest.raises(ValueError, match="no exp"), Zeros():
        assert lib.ones(2).tolist() == [0, 0]
        lib.exp(lib.ones(1))
    assert lib.exp(lib.zeros(1)).tolist() == [1] and lib.ones(1).tolist() == [1]


# -- functions of other packages -----------------------------------------------------------------------------------------


@BOTH
def test_functions_that_ask(lib):
    has, handle = lib.overrides.has_torch_function, lib.overrides.handle_torch_function

    def doubled(x):
        return handle(doubled, (x,), x) if has((x,)) else x * 2

    assert doubled(lib.ones(1)).tolist() == [2] and doubled(Answering()) == ("doubled", ["Answering"], 1)
    assert not has((lib.nn.Parameter(lib.ones(1)),)) and lib.overrides.is_tensor_like(Answering()) and not lib.overrides.is_tensor_like(3)

    @lib.overrides.wrap_torch_function(lambda x: (x,))
    def tripled(x):
        return x * 3

    assert tripled(lib.ones(1)).tolist() == [3] and tripled(Answering())[0] == "tripled"


@BOTH
def test_functions_that_can_be_answered(lib):
    found = lib.overrides.get_overridable_functions()
    assert lib.matmul in found[lib] and lib.Tensor.add in found[lib.Tensor] and lib.nn.functional.linear in found[lib.nn.functional]
    assert lib.is_grad_enabled not in found[lib] and lib.is_grad_enabled in lib.overrides.get_ignored_functions()
    for f, name in ((lib.randn, "torch.randn"), (lib.mean, "torch.mean"), (lib.linalg.norm, "torch.linalg.norm")):
        assert lib.overrides.resolve_name(f) == name
    assert lib.overrides.resolve_name(lib.Tensor.add_) == "torch.Tensor.add_" and lib.overrides.is_tensor_method_or_property(lib.Tensor.add_)


def test_values_that_are_no_numbers_are_named():
    x = ampc.ones(2)
    for write, argument in ((x.copy_, "src"), (x.fill_, "value")):
        for wrong in ("s", None, object(), [1]):
            with pytest.raises(TypeError, match=f"argument `{argument}` must be a Tensor or a number, got {type(wrong).__name__}"):
                write(wrong)
    with pytest.raises(TypeError, match="argument `alpha` must be a number, got object"):
        x.add(1, alpha=object())


def test_what_is_given_to_the_disabled_function_is_checked():
    disabled = ampc._C._disabled_torch_function_impl
    for kwargs in ([1], 3):
        with pytest.raises(TypeError, match="must be a dict"):
            disabled(ampc.add, (), (ampc.ones(2), 1), kwargs)
    assert disabled(ampc.add, (), (ampc.ones(2), 1), None).tolist() == disabled(ampc.add, (), (ampc.ones(2), 1), {"alpha": 1}).tolist() == [2, 2]


THERE = {"relu": lambda t: ampc.relu(t), "add": lambda t: ampc.add(ampc.ones(2), t), "ones + t": lambda t: ampc.ones(2) + t, "cat": lambda t: ampc.cat([ampc.ones(2), t]),
         "gelu": lambda t: ampc.nn.functional.gelu(t), "Linear": lambda t: ampc.nn.Linear(2, 1)(t), "method": lambda t: ampc.ones(2).add(t)}


@pytest.mark.parametrize("mode", [False, True], ids=["alone", "in a mode"])
@pytest.mark.parametrize("call", list(THERE))
def test_torchs_own_tensors_do_not_answer_for_ampc(call, mode):
    """Whose __torch_function__ would call the same function again."""
    class Mine(torch.Tensor):
        pass

    for t in (torch.ones(2), torch.ones(2).as_subclass(Mine), torch.nn.Parameter(torch.ones(2))):
        with ampc.overrides.BaseTorchFunctionMode() if mode else contextlib.nullcontext():
            with pytest.raises(TypeError, match="must be a Tensor|expected a Tensor|must hold Tensors"):
                THERE[call](t)
            assert ampc.asarray(t.detach()).tolist() == ampc.tensor(t.detach()).tolist() == ampc.as_tensor(t.detach()).tolist() == [1.0, 1.0]
