"""ampc.distributions.transforms and constraints beside torch's, and beside autograd's jacobians."""

import math

import numpy as np
import pytest
from distribution_cases import CASES, made, numbers_of_float64, same  # noqa: F401
from references import R

import ampc
from ampc import distributions as D
from ampc.distributions import constraints

X = R.standard_normal
TRANSFORMS = {  # and a value of its domain
    "Exp": (lambda d: d.ExpTransform(), X((2, 3))), "Sigmoid": (lambda d: d.SigmoidTransform(), X((2, 3))), "Softplus": (lambda d: d.SoftplusTransform(), X((2, 3))),
    "Tanh": (lambda d: d.TanhTransform(), X((2, 3))), "Power": (lambda d: d.PowerTransform(2.5), np.exp(X((2, 3)))), "Power, negative": (lambda d: d.PowerTransform(-1.0), np.exp(X((2, 3)))),
    "Affine": (lambda d: d.AffineTransform(1.5, -2.0), X((2, 3))), "Affine of vectors": (lambda d: d.AffineTransform(1.5, 2.0, event_dim=1), X((2, 3))),
    "Cumulative": (lambda d: d.CumulativeDistributionTransform(d.Normal(0.3, 1.5)), X((2, 3))),
    "StickBreaking": (lambda d: d.StickBreakingTransform(), X((2, 3))), "CorrCholesky": (lambda d: d.CorrCholeskyTransform(), X((2, 6))), "CorrCholesky of 2": (lambda d: d.CorrCholeskyTransform(), X((2, 1))),
    "CorrCholesky of 3": (lambda d: d.CorrCholeskyTransform(), X((2, 3))),
    "Reshape": (lambda d: d.ReshapeTransform((2, 3), (6,)), X((4, 2, 3))), "Independent": (lambda d: d.IndependentTransform(d.ExpTransform(), 1), X((2, 3))),
    "Compose": (lambda d: d.ComposeTransform([d.AffineTransform(1.0, 2.0), d.SigmoidTransform(), d.AffineTransform(-1.0, 2.0)]), X((2, 3))),
    "Compose vectors": (lambda d: d.ComposeTransform([d.ExpTransform(), d.AffineTransform(0.5, 2.0, event_dim=1), d.ReshapeTransform((3,), (3, 1))]), X((2, 3))),
    "Compose simplex": (lambda d: d.ComposeTransform([d.TanhTransform(), d.StickBreakingTransform()]), X((2, 3))),
    "Identity": (lambda d: d.identity_transform, X((2, 3))), "Inverse": (lambda d: d.ExpTransform().inv, np.exp(X((2, 3)))),
    "Cat": (lambda d: d.CatTransform([d.ExpTransform(), d.AffineTransform(1.0, 2.0)], dim=-1, lengths=[1, 2]), X((2, 3))),
    "Cat, dim 0": (lambda d: d.CatTransform([d.ExpTransform(), d.TanhTransform()], dim=0), X((2, 3))),
    "Stack": (lambda d: d.StackTransform([d.ExpTransform(), d.AffineTransform(1.0, 2.0), d.TanhTransform()], dim=1), X((2, 3))),
    "Softmax": (lambda d: d.SoftmaxTransform(), X((2, 3))), "Abs": (lambda d: d.AbsTransform(), np.abs(X((2, 3)))), "LowerCholesky": (lambda d: d.LowerCholeskyTransform(), np.tril(X((2, 3, 3)))),
    "PositiveDefinite": (lambda d: d.PositiveDefiniteTransform(), np.tril(X((2, 3, 3)))),
}


def facts(t):
    def asked(name):
        try:
            v = getattr(t, name)
            return float(v) if hasattr(v, "item") else v
        except (NotImplementedError, ValueError):
            return None
    return [asked(n) for n in ("bijective", "sign", "event_dim")] + [t.domain.event_dim, t.codomain.event_dim, t.domain.is_discrete]


@pytest.mark.parametrize("name", TRANSFORMS)
def test_as_torch(torch, name):
    make, array = TRANSFORMS[name]
    mine, theirs = make(D), make(torch.distributions)
    assert facts(mine) == facts(theirs)
    x, xt = ampc.tensor(array), torch.tensor(array)
    y, yt = mine(x), theirs(xt)
    same(y, yt)
    assert bool(mine.domain.check(x).all()) == bool(theirs.domain.check(xt).all())
    assert np.array_equal(mine.codomain.check(y).numpy(force=True), theirs.codomain.check(yt).numpy(force=True))
    same(mine.inv(y), theirs.inv(yt), 1e-7)
    try:
        want = theirs.log_abs_det_jacobian(xt, yt)
    except NotImplementedError:
        with pytest.raises(NotImplementedError):
            mine.log_abs_det_jacobian(x, y)
    else:
        same(mine.log_abs_det_jacobian(x, y), want, 1e-7)
        same(mine.inv.log_abs_det_jacobian(y, x), theirs.inv.log_abs_det_jacobian(yt, xt), 1e-7)
    assert tuple(mine.forward_shape(tuple(x.shape))) == tuple(y.shape) == tuple(theirs.forward_shape(xt.shape))
    assert tuple(mine.inverse_shape(tuple(y.shape))) == tuple(theirs.inverse_shape(yt.shape))
    assert mine.inv.inv is mine or mine.inv.inv == mine
    assert repr(mine).split("(")[0] == repr(theirs).split("(")[0]


@pytest.mark.parametrize("name", [n for n in TRANSFORMS if n not in ("Softmax", "Abs", "LowerCholesky", "PositiveDefinite")])
def test_log_det_is_that_of_the_jacobian(name):
    make, array = TRANSFORMS[name]
    t, x = make(D), ampc.tensor(array)
    free = {"StickBreaking": lambda y: y[..., :-1], "Compose simplex": lambda y: y[..., :-1]}.get(name, lambda y: y)
    if name.startswith("CorrCholesky"):
        free = lambda y: ampc.distributions.utils.tril_matrix_to_vec(y, -1)  # noqa: E731
    jacobian = ampc.autograd.functional.jacobian(lambda v: free(t(v)).reshape(-1), x).reshape(-1, x.numel()).numpy(force=True)
    assert jacobian.shape[0] == jacobian.shape[1]
    total = float(t.log_abs_det_jacobian(x, t(x)).sum())
    assert abs(total - np.linalg.slogdet(jacobian)[1]) < 1e-8


@pytest.mark.parametrize("name", TRANSFORMS)
def test_caching(name):
    make, array = TRANSFORMS[name]
    t, x = make(D).with_cache(), ampc.tensor(array)
    assert t._cache_size == 1 and t.with_cache() is t and t.with_cache(0)._cache_size == 0
    y = t(x)
    if name not in ("Identity", "Compose vectors") and "Compose" not in name:
        assert t.inv(y) is x and t(x) is y
        assert t(ampc.tensor(array)) is not y
    assert np.allclose(t.inv(y).numpy(force=True), array, atol=1e-8) or name == "Softmax"
    with pytest.raises(ValueError, match="cache_size"):
        D.ExpTransform(cache_size=-1)


def test_transforms_are_equal_by_what_they_do(torch):
    for d in (D, torch.distributions):
        assert d.ExpTransform() == d.ExpTransform() != d.TanhTransform()
        assert d.AffineTransform(1.0, 2.0) == d.AffineTransform(1.0, 2.0) != d.AffineTransform(1.0, 3.0)
        assert d.PowerTransform(2.0) == d.PowerTransform(2.0) != d.PowerTransform(3.0)
        assert d.ComposeTransform([d.ExpTransform()]) == d.ComposeTransform([d.ExpTransform()]) and d.ExpTransform().inv == d.ExpTransform().inv
        assert d.ExpTransform().inv != d.ExpTransform()
        with pytest.raises(NotImplementedError):
            d.Transform()(1)
        with pytest.raises(ValueError):
            d.CatTransform([d.ExpTransform()], lengths=[1, 2]) if d is D else d.ReshapeTransform((2,), (3,))
        with pytest.raises(ValueError):
            d.CorrCholeskyTransform().forward_shape((2,))


CONSTRAINTS = {  # and values, of which some are inside
    "real": [1.0, math.nan], "boolean": [0.0, 0.5, 1.0], "positive": [0.0, 1.0], "nonnegative": [0.0, -1.0], "unit_interval": [0.0, 1.0, 1.5], "nonnegative_integer": [0.0, 1.5, -1.0, 3.0],
    "positive_integer": [0.0, 1.0, 1.5], "simplex": [[0.5, 0.5], [0.5, 0.6], [1.5, -0.5]], "one_hot": [[1.0, 0.0], [1.0, 1.0], [0.5, 0.5]], "real_vector": [[1.0, math.nan], [1.0, 2.0]],
    "square": [[[1.0, 2.0], [3.0, 4.0]]], "symmetric": [[[1.0, 2.0], [2.0, 4.0]], [[1.0, 2.0], [3.0, 4.0]]], "lower_triangular": [[[1.0, 0.0], [2.0, 4.0]], [[1.0, 2.0], [3.0, 4.0]]],
    "lower_cholesky": [[[1.0, 0.0], [2.0, 4.0]], [[1.0, 0.0], [3.0, -4.0]]], "corr_cholesky": [[[1.0, 0.0], [0.6, 0.8]], [[1.0, 0.0], [0.6, 0.9]]],
    "positive_definite": [[[2.0, 1.0], [1.0, 2.0]], [[1.0, 2.0], [2.0, 1.0]]], "positive_semidefinite": [[[1.0, 1.0], [1.0, 1.0]], [[1.0, 2.0], [2.0, 1.0]]],
}
MADE = {
    "greater_than": (lambda c: c.greater_than(2.0), [1.0, 2.0, 3.0]), "greater_than_eq": (lambda c: c.greater_than_eq(2.0), [1.0, 2.0, 3.0]), "less_than": (lambda c: c.less_than(2.0), [1.0, 2.0, 3.0]),
    "interval": (lambda c: c.interval(1.0, 2.0), [1.0, 2.0, 3.0]), "half_open_interval": (lambda c: c.half_open_interval(1.0, 2.0), [1.0, 2.0, 3.0]),
    "integer_interval": (lambda c: c.integer_interval(1, 2), [1.0, 1.5, 3.0]), "multinomial": (lambda c: c.multinomial(3), [[1.0, 2.0], [3.0, 1.0]]),
    "independent": (lambda c: c.independent(c.positive, 1), [[1.0, 2.0], [1.0, -1.0]]), "cat": (lambda c: c.cat([c.positive, c.real], dim=-1, lengths=[1, 2]), [[1.0, 2.0, -3.0], [-1.0, 2.0, 3.0]]),
    "stack": (lambda c: c.stack([c.positive, c.real], dim=0), [[1.0, -2.0], [1.0, -1.0]]),
}


def test_constraints(torch):
    theirs = torch.distributions.constraints
    cases = [(getattr(constraints, n), getattr(theirs, n), v) for n, v in CONSTRAINTS.items()] + [(make(constraints), make(theirs), v) for make, v in MADE.values()]
    for mine, other, values in cases:
        if "emidefinite" not in repr(other):
            assert np.array_equal(mine.check(ampc.tensor(values)).numpy(force=True), other.check(torch.tensor(values)).numpy(force=True)), other
        assert mine.is_discrete == other.is_discrete and mine.event_dim == other.event_dim and mine.describe()
    assert constraints.is_dependent(constraints.dependent) and not constraints.is_dependent(constraints.real) and set(constraints.__all__) == set(theirs.__all__)
    for c in (constraints, theirs):
        known = c.dependent(is_discrete=True, event_dim=1)
        assert known.is_discrete and known.event_dim == 1
        with pytest.raises(NotImplementedError):
            c.dependent.event_dim


@pytest.mark.parametrize("name", ["real", "positive", "nonnegative", "unit_interval", "simplex", "corr_cholesky", "lower_cholesky", "positive_definite", "positive_semidefinite", "real_vector",
                                  *MADE, "boolean", "symmetric"])
def test_registries(torch, name):
    """Unconstrained numbers go into the constraint, as torch's do; a bijection comes back."""
    for registry in ("biject_to", "transform_to"):
        mine, theirs = ((MADE[name][0](c) if name in MADE else getattr(c, name)) for c in (constraints, torch.distributions.constraints))
        try:
            want = getattr(torch.distributions, registry)(theirs)
        except NotImplementedError:
            with pytest.raises(NotImplementedError, match="no transform"):
                getattr(D, registry)(mine)
            continue
        t = getattr(D, registry)(mine)
        x = X((2, 3, 3)) if "definite" in name or name == "lower_cholesky" else X((2, 3))
        y = t(ampc.tensor(x))
        same(y, want(torch.tensor(x)))
        assert bool(mine.check(y).all()) and t.bijective == want.bijective
        if t.bijective:
            same(t.inv(y), torch.tensor(x), 1e-6)


def test_registering():
    class Even(constraints.Constraint):
        pass

    @D.transform_to.register(Even)
    def to_even(c):
        return D.AffineTransform(0.0, 2.0)

    assert D.transform_to(Even())(ampc.ones(1)).item() == 2
    with pytest.raises(TypeError, match="constraint"):
        D.biject_to.register(int, to_even)


def test_every_file_of_torch_is_there(torch):
    import importlib
    import pkgutil

    for module in pkgutil.iter_modules(torch.distributions.__path__):
        theirs, mine = importlib.import_module(f"torch.distributions.{module.name}"), importlib.import_module(f"ampc.distributions.{module.name}")
        assert {n for n in getattr(theirs, "__all__", ()) if not hasattr(mine, n)} == set(), module.name


def test_triangles(torch):
    from ampc.distributions import utils
    theirs = torch.distributions.utils
    for diag, count in ((0, 6), (-1, 6), (-2, 3), (1, 8)):
        v = X((2, count))
        same(utils.vec_to_tril_matrix(ampc.tensor(v), diag), theirs.vec_to_tril_matrix(torch.tensor(v), diag))
        m = X((2, 4, 4))
        same(utils.tril_matrix_to_vec(ampc.tensor(m), diag), theirs.tril_matrix_to_vec(torch.tensor(m), diag))
    for call in (lambda: utils.vec_to_tril_matrix(ampc.ones(4)), lambda: utils.tril_matrix_to_vec(ampc.ones(2, 2), 3)):
        with pytest.raises(ValueError):
            call()


@pytest.mark.parametrize("make", [lambda d: d.SoftmaxTransform(), lambda d: d.StickBreakingTransform(), lambda d: d.CorrCholeskyTransform(), lambda d: d.ReshapeTransform((3,), (3, 1)),
                                  lambda d: d.ExpTransform(), lambda d: d.AffineTransform(0.0, 2.0), lambda d: d.ComposeTransform([d.ExpTransform(), d.StickBreakingTransform()])])
def test_shapes_of_too_few_dimensions(torch, make):
    """ValueError; else the type of shapes, of whatever sequence is given."""
    mine, theirs = make(D), make(torch.distributions)
    for what in ("forward_shape", "inverse_shape"):
        for shape in ((), (3,), (2, 3), (4, 3, 3), (5, 3, 1)):
            try:
                want = getattr(theirs, what)(torch.Size(shape))
            except ValueError:
                with pytest.raises(ValueError):
                    getattr(mine, what)(shape)
                continue
            for given in (shape, list(shape), ampc.Size(shape)):
                assert getattr(mine, what)(given) == tuple(want) and isinstance(getattr(mine, what)(given), ampc.Size)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_short_pieces_of_a_stick(torch, dtype):
    """A piece may be as short as the dtype's smallest normal number: its length, and the gradient, are not cut off at the rounding of 1."""
    found = []
    for lib in (torch, ampc):
        x = lib.tensor([-30.0, -60.0, 3.0, -20.0], dtype=getattr(lib, dtype), requires_grad=True)
        y = lib.distributions.StickBreakingTransform()(x)
        y.log().sum().backward()
        found += [(y, x.grad)]
    for want, got in zip(*found):
        same(got, want, 1e-5)


def test_shapes_that_do_not_fit(torch):
    for d, T in ((D, ampc), (torch.distributions, torch)):
        for call in (lambda: d.CorrCholeskyTransform().inverse_shape((2, 3)), lambda: d.ReshapeTransform((2, 3), (6,)).forward_shape((4, 5)),  # noqa: B023
                     lambda: d.IndependentTransform(d.ExpTransform(), 2)(T.ones(3)), lambda: d.constraints.independent(d.constraints.real, 2).check(T.ones(3))):  # noqa: B023
            with pytest.raises(ValueError):
                call()
        with pytest.raises((ValueError, AssertionError)):
            d.StackTransform([d.ExpTransform(), d.ExpTransform()], dim=0)(T.ones(3))
        for make in (lambda: d.ReshapeTransform((2, 3), (6,)), lambda: d.IndependentTransform(d.ExpTransform(), 1)):  # noqa: B023
            assert make() == make() or d is torch.distributions
        normal = d.Normal(0.0, 1.0)
        assert d.CumulativeDistributionTransform(normal).inv.inv.distribution is normal
    assert D.StackTransform([D.ExpTransform()], 0) == D.StackTransform([D.ExpTransform()], 0) != D.StackTransform([D.ExpTransform()], 1)
    assert D.CumulativeDistributionTransform(normal) != D.CumulativeDistributionTransform(D.Normal(0.0, 1.0))


@pytest.mark.parametrize("name", TRANSFORMS)
def test_copies(name):
    import copy
    import pickle

    make, array = TRANSFORMS[name]
    t, x = make(D), ampc.tensor(array)
    assert t.inv is not None
    for other in (copy.deepcopy(t), pickle.loads(pickle.dumps(t))):
        assert ampc.equal(other(x), t(x)) and ampc.equal(other.inv(other(x)), t.inv(t(x)))


def test_inverses_have_a_class_and_are_copied():
    import copy
    import pickle

    transforms = ampc.distributions.transforms
    inverse = transforms.AffineTransform(1.0, 2.0).inv
    assert isinstance(inverse, transforms._InverseTransform) and not isinstance(inverse.inv, transforms._InverseTransform)
    for other in (copy.deepcopy(inverse), pickle.loads(pickle.dumps(inverse))):
        assert other(ampc.tensor(5.0)).item() == 2 and other.inv(ampc.tensor(2.0)).item() == 5


def test_classes_of_constraints_have_torchs_names(torch):
    for name in sorted(vars(torch.distributions.constraints)):
        theirs, mine = getattr(torch.distributions.constraints, name), getattr(ampc.distributions.constraints, name, None)
        if isinstance(theirs, torch.distributions.constraints.Constraint) and name not in ("dependent", "MixtureSameFamilyConstraint"):
            assert isinstance(mine, getattr(ampc.distributions.constraints, type(theirs).__name__)), name


def test_distributions_are_copied():
    import copy
    import pickle

    for name in CASES:
        d = made(ampc, name)[0]
        x = d.sample()
        for other in (copy.deepcopy(d), pickle.loads(pickle.dumps(d))):
            assert ampc.equal(other.log_prob(x), d.log_prob(x)), name


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_ends_of_a_sigmoid(torch, dtype):
    found = []
    for lib in (torch, ampc):
        y = lib.tensor([1e-300, 1e-30, 1e-20, 0.5, 1.0], dtype=getattr(lib, dtype))
        sigmoid = lib.distributions.SigmoidTransform()
        found.append([sigmoid.inv(y).tolist(), sigmoid(lib.tensor([-800.0, -80.0, 30.0], dtype=getattr(lib, dtype))).tolist()])
    for mine, theirs in zip(found[1], found[0]):
        assert mine == pytest.approx(theirs, rel=1e-5)
