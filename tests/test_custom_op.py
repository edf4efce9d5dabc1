"""Operators in Python (torch.library): their schemas, what calls pass and return, derivatives, and what is refused, beside torch."""

import sys
import typing

import numpy as np
import pytest

import ampc

pytestmark = pytest.mark.cpu


def made(t, name, **options):
    def scale(x: t.Tensor, n: float = 2.0) -> t.Tensor:
        return x * n

    return t.library.custom_op(name, scale, mutates_args=(), **options)


def same(ours, theirs):
    assert np.array_equal(ours.detach().numpy(), theirs.detach().numpy())


def test_custom_op(torch):
    results = []
    for t in (ampc, torch):
        f = made(t, "tests_a::scale")
        f.register_autograd(lambda ctx, g: (g * ctx.n * 7, None), setup_context=lambda ctx, inputs, output: setattr(ctx, "n", inputs[1]))
        f.register_fake(lambda x, n=2.0, t=t: t.empty_like(x))
        x = t.ones(2, requires_grad=True)
        out = t.ops.tests_a.scale.default(x, n=4.0)
        out.sum().backward()
        results.append((out, x.grad, f(x=t.ones(1)), t.ops.tests_a.scale(t.ones(1), 3.0)))
        assert repr(f) == "<CustomOpDef(tests_a::scale)>" and str(t.ops.tests_a.scale.default) == "tests_a.scale.default" and out.requires_grad
        assert not hasattr(t.ops.tests_a, "other") and not hasattr(t.ops.tests_a.scale, "Tensor")
    for ours, theirs in zip(*results):
        same(ours, theirs)


@pytest.mark.parametrize("call", ["f()", "f('x')", "f(t.ones(1), 2.0, 3)", "f(t.ones(1), q=1)", "f(t.ones(1, requires_grad=True)).sum().backward()",
                                  "t.library.custom_op('tests_b::g', lambda x: x, mutates_args=())", "t.library.custom_op('nodots', made, mutates_args=())",
                                  "t.ops.tests_b.none", "t.ops.tests_b.scale.Foo"])
def test_wrong_calls_of_custom_ops(torch, call):
    for t in (torch, ampc):
        f = made(t, "tests_b::scale")
        try:
            eval(call, {"t": t, "f": f, "made": made})
            pytest.fail(f"{t.__name__} accepts it")
        except Exception as e:
            if t is torch:
                kind = type(e)
            else:
                assert type(e) is kind and (kind is not RuntimeError or "tests_b" in str(e))


def test_custom_op_of_lists_tuples_and_keywords(torch):
    results = []
    for t in (ampc, torch):
        T = t.Tensor

        def lists(xs: typing.List[T], s: float) -> T:
            return xs[0] * s + xs[1]

        def pair(x: T, *, s: float) -> typing.Tuple[T, T]:
            return x * s, x * 3

        lists.__annotations__, pair.__annotations__ = {"xs": typing.List[T], "s": float, "return": T}, {"x": T, "s": float, "return": typing.Tuple[T, T]}
        a, b = t.library.custom_op("tests_c::lists", lists, mutates_args=()), t.library.custom_op("tests_c::pair", pair, mutates_args=())
        a.register_autograd(lambda ctx, g: ([g * ctx.s, g], None), setup_context=lambda ctx, inputs, output: setattr(ctx, "s", inputs[1]))
        b.register_autograd(lambda ctx, g, h: g * ctx.s + h * 3, setup_context=lambda ctx, inputs, keyword_only_inputs, output: setattr(ctx, "s", keyword_only_inputs["s"]))
        x, y = t.ones(2, requires_grad=True), t.ones(2, requires_grad=True)
        one, two = b(x, s=5.0)
        (a([x, y], 3.0) + one + 2 * two).sum().backward()
        results.append((x.grad, y.grad, one, two))
    for ours, theirs in zip(*results):
        same(ours, theirs)


def test_custom_op_that_writes(torch):
    for t in (ampc, torch):
        def add(x: t.Tensor, y: t.Tensor) -> None:
            x.add_(y)

        f = t.library.custom_op("tests_d::add", add, mutates_args={"x"})
        x = t.zeros(2)
        version = x._version
        assert f(x, t.ones(2)) is None and x.tolist() == [1, 1] and x._version > version
        assert t.library.infer_schema(add, mutates_args={"x"}) == "(Tensor(a0!) x, Tensor y) -> ()"
        with pytest.raises(RuntimeError, match="writes into its arguments" if t is ampc else "non-functional"):
            f.register_autograd(lambda ctx, g: g)
        with pytest.raises(RuntimeError, match="shares memory with one" if t is ampc else "must not"):
            made(t, "tests_d::scale").register_kernel("cpu", lambda x, n=2.0: x) and t.ops.tests_d.scale(x)


def test_schemas(torch):
    schemas = []
    for t in (ampc, torch):
        def f(a, b, c, d, e, g, h="q", i=3, *, j=1.0, k=None):
            pass

        f.__annotations__ = dict(a=t.Tensor, b=typing.Optional[t.Tensor], c=typing.List[t.Tensor], d=typing.Sequence[int], e=bool, g=t.device, h=str, i=int, j=float,
                                 k=typing.Optional[t.dtype], **{"return": typing.Tuple[t.Tensor, t.Tensor]})
        schemas.append(t.library.infer_schema(f, mutates_args=()))
    assert schemas[0] == schemas[1]


SIGNATURES = [
    "x", "x: T, /, n: int", "x: T, *n: int", "x: T, **n: int", "x: T, n: dict", "x: T, n: object", "x: T, n: complex", "x: T, n: Any", "x: T, n: List[str]", "x: Tuple[T, T]", "x: T, n: Union[int, float]",
    "x: T, n: Union[int, float, bool]", "x: T, n: Optional[Union[int, float, bool]] = None", "x: Optional[List[T]]", "x: List[Optional[T]]", "x: T, n: Optional[Sequence[int]] = None", "x: T, n: Sequence[int] = (1, 2)",
    "x: T, n: 'NoSuch'", "x: 'T', n: 'Optional[int]' = None", "x: T, n: t.device = t.device('cpu')", "x: T, n: t.dtype = t.float32, m: str = 'a', k: bool = True", "x: T, n: t.nn.Parameter", "x: T, n: t.Size",
    "x: T, n: int, *, y: T, z: Optional[T] = None", "x: T, n: T = None", "",
]
RESULTS = ["T", "None", "Tuple[T, T]", "Tuple[T, int, float]", "List[T]", "Sequence[T]", "int", "bool", "str", "Union[int, float, bool]", "Optional[T]", "Tuple[T, ...]", "Tuple[()]", "dict"]
WHICH = ["()", "'unknown'", "('x',)", "'x'", "('q',)", "('n',)"]


def outcome(f, *args, **kwargs):
    try:
        return f(*args, **kwargs)
    except Exception as e:
        return type(e)


def inferred(t, parameters, result="T", mutates="()"):
    names = {**vars(typing), "t": t, "T": t.Tensor}
    exec(f"def f({parameters}) -> {result}: pass", names)
    return outcome(t.library.infer_schema, names["f"], mutates_args=eval(mutates))


@pytest.mark.filterwarnings("ignore")
def test_schemas_of_annotations(torch):
    for parameters in SIGNATURES:
        for mutates in WHICH:
            assert inferred(ampc, parameters, mutates=mutates) == inferred(torch, parameters, mutates=mutates), (parameters, mutates)
    for result in RESULTS:
        assert inferred(ampc, "x: T", result) == inferred(torch, "x: T", result), result
    assert inferred(ampc, "x: int | None" if sys.version_info >= (3, 10) else "x: Optional[int]") == "(SymInt? x) -> Tensor"


VALUES = ["1", "1.5", "True", "None", "'a'", "t.float32", "t.device('cpu')", "'cpu'", "t.tensor(2)", "t.tensor([2, 3])", "[1, 2]", "(1, 2)", "[1.5]", "[t.ones(1)]", "[None]", "t.ones(2, 3)", "t.Size([1, 2])", "np.int64(2)", "np.float32(2)"]


def passed(t, word, value):
    got = []
    f = t.library.custom_op("tests_g::f", lambda x, v: got.append(v), mutates_args=(), schema=f"(Tensor x, {word} v) -> ()")
    done, held = outcome(f, t.ones(1), eval(value, {"t": t, "np": np})), got[0] if got else None
    return done, [type(h).__name__ for h in held] if isinstance(held, list) else type(held).__name__, held if isinstance(held, (int, float, str)) else ""


CASTS = {"ScalarType": ("1", "True", "np.int64(2)", "np.float32(2)", "t.tensor(2)"), "int": ("t.float32", "np.float32(2)"), "bool": ("None",), "Scalar": ("t.float32",), "Tensor?[]": ("t.tensor([2, 3])", "t.ones(2, 3)")}


@pytest.mark.parametrize("word", ["int", "float", "bool", "str", "Scalar", "ScalarType", "Device", "Tensor", "int?", "int[]", "float[]", "int[2]", "Tensor[]", "Tensor?[]", "int[]?"])
def test_values_of_a_call_of_a_custom_op(torch, word):
    """What its function gets, and what is refused."""
    for value in VALUES:
        if value not in CASTS.get(word.rstrip("?"), ()):  # what torch's core makes of values that are none of the type
            assert passed(ampc, word, value) == passed(torch, word, value), (word, value)


def test_what_a_custom_op_returns(torch):
    for schema, value in [("Tensor", "3"), ("Tensor", "None"), ("Tensor", "(t.ones(1),)"), ("Tensor", "x"), ("Tensor", "x[:1]"), ("(Tensor, Tensor)", "[t.ones(1), t.ones(1)]"), ("(Tensor, Tensor)", "(y, y)"), ("()", "t.ones(1)"),
                          ("()", "None"), ("int", "1.5"), ("int", "2"), ("float", "1"), ("Tensor[]", "(t.ones(1),)"), ("(Tensor, int)", "(t.ones(1), 2)")]:
        assert returned(ampc, schema, value) == returned(torch, schema, value), (schema, value)


def returned(t, schema, value):
    f = t.library.custom_op("tests_h::f", lambda x: eval(value, {"t": t, "x": x, "y": t.ones(1)}), mutates_args=(), schema=f"(Tensor x) -> {schema}")
    return str(outcome(f, t.zeros(2)))


def test_gradients_of_arguments_that_are_no_tensors(torch):
    for given in ("g", "(g, None)", "(g, None, None)", "(g, g)", "(None, None)", "(g[:1].reshape(1, 1, 1), None)"):
        assert gradient(ampc, given) == gradient(torch, given), given


def gradient(t, given):
    f = made(t, "tests_i::scale")
    f.register_autograd(lambda ctx, g: eval(given, {"g": g}))
    x = t.ones(2, requires_grad=True)
    return outcome(f(x).sum().backward), None if x.grad is None else x.grad.tolist()


WRONG = ["made(t, '1::f')", "made(t, 'a::b::c')", "made(t, 'a::b-c')", "made(t, '::f')", "made(t, 'tests_j::f', device_types='nodevice')", "made(t, 'tests_j::f', schema='Tensor x')", "made(t, 'tests_j::f', schema='(Tensor(a!) x, float n) -> Tensor')",
         "made(t, 'tests_j::f', schema='(Foo x, float n) -> Tensor')", "made(t, 'tests_j::ok').register_kernel('nodevice', made)", "made(t, 'tests_j::ok').register_autocast('nodevice', t.float16)", "t.library.Library('tests_j', 'FOO')",
         "t.library.Library('prim', 'DEF')", "(lib, t.library.Library('tests_k', 'DEF'))", "lib.define('g(Tensor x')", "lib.define('g(Foo x) -> Tensor')", "lib.define('other::g(Tensor x) -> Tensor')", "lib.define('(Tensor x) -> Tensor')",
         "lib.define('g(Tensor x) -> Tensor', 'FOO')", "lib.impl('f', made, 'NOKEY')", "lib.impl('f', 3, 'CPU')", "lib.impl('other::f', made, 'CPU')", "t.library.Library('tests_k', 'IMPL').define('h(Tensor x) -> Tensor')",
         "t.library.define('f', '(Tensor x) -> Tensor')", "t.library.define('tests_j::g', 'Tensor x -> Tensor')", "t.library.impl('tests_k::f', 'nodevice', made)", "t.library.register_kernel(3, 'cpu', made)", "t.library.register_fake(3, made)"]


@pytest.mark.parametrize("call", WRONG)
def test_wrong_definitions(torch, call):
    kinds = []
    for t in (torch, ampc):
        lib = t.library.Library("tests_k", "DEF")
        lib.define("f(Tensor x) -> Tensor")
        kinds.append(outcome(eval, call, {"t": t, "lib": lib, "made": made}))
        lib._destroy()
    assert kinds[0] == kinds[1] and isinstance(kinds[0], type)


def test_operators_go_with_their_library(torch):
    """So that a function which declares them can run again."""
    def declare(t):
        lib = t.library.Library("tests_l", "DEF")
        lib.define("f(Tensor x) -> Tensor")
        lib.impl("f", lambda x: x, "CPU")
        x = t.ones(1)
        assert t.ops.tests_l.f(x) is x  # such an operator may return its argument

    for t in (ampc, torch):
        declare(t)
        declare(t)
        assert not hasattr(t.ops.tests_l, "f")


def test_keys_devices_and_shapes_alone(torch):
    for t in (ampc, torch):
        t.library.define("tests_m::f", "(Tensor x) -> Tensor") if not hasattr(t.ops.tests_m, "f") else None
        t.library.impl("tests_m::f", "CompositeExplicitAutograd")(lambda x: x + 2)
        assert t.ops.tests_m.f(t.ones(1)).item() == 3
        f = made(t, "tests_m::scale")
        f.register_fake(lambda x, n=2.0: x.new_empty(7))
        assert f(t.ones(2, device="meta")).shape == (7,) and f(t.ones(2)).shape == (2,)
        assert f._name == "scale" and f._namespace == "tests_m" and f._qualname == "tests_m::scale"
        schema = t.ops.tests_m.scale.default._schema
        assert str(schema) == "tests_m::scale(Tensor x, float n=2.) -> Tensor" or t is ampc and str(schema) == "tests_m::scale(Tensor x, float n=2.0) -> Tensor"
        assert [(a.name, str(a.type), a.has_default_value(), a.kwarg_only) for a in schema.arguments] == [("x", "Tensor", False, False), ("n", "float", True, False)] and schema.name == "tests_m::scale"


def test_library_defines_and_implements(torch):
    for t in (ampc, torch):
        lib = t.library.Library("tests_e", "DEF")
        assert lib.define("f(Tensor x, int n=2) -> Tensor") == "f"
        with pytest.raises(NotImplementedError, match="tests_e::f"):
            t.ops.tests_e.f(t.ones(1))
        lib.impl("f", lambda x, n=2: x * n, "CPU")
        lib.define("g(Tensor x) -> Tensor")
        lib.impl("g", lambda x: x * 3, "CompositeImplicitAutograd")
        t.library.define("tests_e2::h", "(Tensor x) -> Tensor")
        t.library.impl("tests_e2::h", "cpu")(lambda x: x + 1)
        t.library.register_autograd("tests_e2::h", lambda ctx, g: g * 9)
        x = t.ones(1, requires_grad=True)
        (t.ops.tests_e.g(x) + t.ops.tests_e2.h(x)).sum().backward()
        assert x.grad.item() == 12 and t.ops.tests_e.f(x=t.ones(1), n=5).item() == 5
        with pytest.raises(RuntimeError, match="tests_e::f"):
            lib.define("f(Tensor x) -> Tensor")
        made(t, "tests_e3::scale")
        t.library.register_autocast("tests_e3::scale", "cpu", t.bfloat16)
        with t.autocast("cpu"):
            assert t.ops.tests_e3.scale(t.ones(1)).dtype == t.bfloat16


def test_registrations_before_an_operator_is_defined():
    """A package whose compiled library cannot be loaded registers for its operators all the same."""
    ampc.library.register_fake("tests_f::scale", lambda x, n=2.0: x)
    ampc.library.register_autograd("tests_f::scale", lambda ctx, g: (g * 5, None))
    with pytest.raises(RuntimeError, match="nothing defines it"):
        ampc.ops.tests_f.scale(ampc.ones(1))
    x = ampc.ones(1, requires_grad=True)
    made(ampc, "tests_f::scale")(x).sum().backward()
    assert x.grad.item() == 5


def test_opcheck(torch):
    calls = ["t.library.opcheck(f, (t.ones(2),))", "t.library.opcheck(t.ops.tests_n.scale, (), {'x': t.ones(2)}, test_utils='test_schema')",
             "t.library.opcheck(t.ops.aten.sin.default, (t.ones(2),))", "t.library.opcheck(f, (t.ones(2),), test_utils='other')", "t.library.opcheck(3, (t.ones(2),))", "t.library.opcheck(f, (t.ones(2),), rtol=0.1)"]
    for call in calls:
        results = []
        for t in (ampc, torch):
            f = made(t, "tests_n::scale")
            f.register_fake(lambda x, n=2.0, t=t: t.empty_like(x))
            f.register_autograd(lambda ctx, g: (g * 2, None))
            results.append(outcome(eval, call, {"t": t, "f": f}))
        assert results[0] == results[1], call
    assert set(ampc.library.opcheck(made(ampc, "tests_n::scale"), (ampc.ones(2),), raise_exception=False, test_utils="test_schema").values()) == {"SUCCESS"}


def test_opcheck_finds(torch):
    for t in (ampc, torch):
        def writes(x: t.Tensor) -> t.Tensor:
            x.add_(1)
            return x * 2

        plain, wrong, bad = made(t, "tests_o::plain"), made(t, "tests_o::wrong"), t.library.custom_op("tests_o::bad", writes, mutates_args=())
        wrong.register_fake(lambda x, n=2.0: x.new_empty(5))
        for f, args, check in ((plain, (t.ones(2),), "test_faketensor"), (wrong, (t.ones(2),), "test_faketensor"), (bad, (t.ones(2),), "test_schema"),
                               (plain, (t.ones(2, requires_grad=True),), "test_aot_dispatch_dynamic")):
            with pytest.raises(Exception, match=check) as caught:
                t.library.opcheck(f, args, test_utils=check)
            assert type(caught.value).__name__ == "OpCheckError"
            (found,) = t.library.opcheck(f, args, test_utils=check, raise_exception=False).values()
            assert isinstance(found, RuntimeError)


def test_vmap_of_a_custom_op(torch):
    results = []
    for t in (ampc, torch):
        f = made(t, "tests_p::scale")
        f.register_vmap(lambda info, in_dims, x, n=2.0: (x * n, in_dims[0]))
        t.library.register_vmap("tests_p::scale")(lambda info, in_dims, x, n=2.0: (x * n, in_dims[0])) if t is ampc else None
        results.append(t.vmap(f)(t.arange(6.0).reshape(2, 3)).tolist())
    assert results[0] == results[1]
