"""Linear algebra beside torch: what factorisations give for matrices of every shape, what autocast and `out` do, and which calls are refused."""

import math
import warnings

import numpy as np
import pytest
from references import R

import ampc


def drawn(*shape):
    return R.standard_normal(shape)


def both(torch, call, *arrays):
    """The results of both libraries as lists of arrays, or the types of their exceptions."""
    found = []
    for lib in (torch, ampc):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                y = call(lib, *(lib.tensor(a) for a in arrays))
            except Exception as error:  # noqa: BLE001
                found.append(type(error))
                continue
        found.append([(str(t.dtype).split(".")[-1], np.asarray(t.double().tolist()).reshape(tuple(t.shape))) for t in (y if isinstance(y, tuple) else (y,))])
    return found


def same(torch, call, *arrays):
    theirs, ours = both(torch, call, *arrays)
    if isinstance(theirs, type):
        assert isinstance(ours, type) and issubclass(ours, RuntimeError if issubclass(theirs, RuntimeError) else theirs)
        return
    assert len(theirs) == len(ours)
    for (dtype, x), (own, y) in zip(theirs, ours):
        assert dtype == own and x.shape == y.shape
        np.testing.assert_allclose(y, x, rtol=1e-10, atol=1e-10)


SHAPES = [(3, 3), (4, 2), (2, 4), (2, 3, 3), (0, 0), (0, 3), (3, 0), (0, 2, 2), (2, 0, 3), (1, 1)]
FORMS = {
    "lu": lambda lib, A: lib.linalg.lu(A), "lu_factor": lambda lib, A: lib.linalg.lu_factor(A), "lu_factor_ex": lambda lib, A: lib.linalg.lu_factor_ex(A),
    "Tensor.lu": lambda lib, A: A.lu(), "torch.lu": lambda lib, A: lib.lu(A, get_infos=True), "geqrf": lambda lib, A: lib.geqrf(A),
    "lu_unpack": lambda lib, A: lib.lu_unpack(*lib.linalg.lu_factor(A)), "data": lambda lib, A: lib.lu_unpack(*A.lu(), unpack_pivots=False),
    "pivots": lambda lib, A: lib.lu_unpack(*A.lu(), unpack_data=False),
    "square": lambda lib, A: lib.linalg.ldl_factor(A), "with info": lambda lib, A: lib.linalg.ldl_factor_ex(A),
    "reflections": lambda lib, A: lib.linalg.householder_product(*A.geqrf()), "Tensor.orgqr": lambda lib, A: A.geqrf()[0].orgqr(A.geqrf()[1]),
    "Tensor.ormqr": lambda lib, A: A.geqrf()[0].ormqr(A.geqrf()[1], A), "from the right": lambda lib, A: lib.ormqr(*A.geqrf(), A.transpose(-2, -1), left=False, transpose=True),
    "qr": lambda lib, A: lib.qr(A @ A.transpose(-2, -1))[1].abs(), "pinverse": lambda lib, A: A.pinverse(), "svd": lambda lib, A: A.svd()[1], "cond": lambda lib, A: lib.linalg.cond(A),
    "values": lambda lib, A: lib.svd(A, compute_uv=False), **{f"norm {n}": lambda lib, A, n=n: lib.linalg.matrix_norm(A, n) for n in ("fro", "nuc", 1, -1, 2, -2, math.inf, -math.inf)},
}


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("form", FORMS)
def test_matrices_of_every_shape(torch, form, shape):
    same(torch, FORMS[form], drawn(*shape))


@pytest.mark.parametrize("left", [True, False])
@pytest.mark.parametrize("adjoint", [True, False])
@pytest.mark.parametrize(("matrices", "right"), [((3, 3), (3, 2)), ((2, 3, 3), (3, 3)), ((2, 3, 3), (4, 1, 3, 3)), ((0, 0), (0, 2)), ((3, 3), (3, 0)), ((2, 3, 3), (2, 2, 3))])
def test_equations_of_factors(torch, matrices, right, adjoint, left):
    same(torch, lambda lib, A, B: lib.linalg.lu_solve(*lib.linalg.lu_factor(A), B, left=left, adjoint=adjoint), drawn(*matrices), drawn(*right))
    same(torch, lambda lib, A, B: B.lu_solve(*lib.lu(A)), drawn(*matrices), drawn(*right))


def test_equations_of_symmetric_factors(torch):
    for matrices, right in (((3, 3), (3, 2)), ((2, 3, 3), (2, 3, 2)), ((0, 0), (0, 2))):
        same(torch, lambda lib, A, B: lib.linalg.ldl_solve(*lib.linalg.ldl_factor(A + A.transpose(-2, -1)), B), drawn(*matrices), drawn(*right))
    A, B = ampc.tensor(drawn(2, 3, 3)), ampc.tensor(drawn(4, 1, 3, 2))  # torch crashes here
    A = A + A.mT
    assert (A @ ampc.linalg.ldl_solve(*ampc.linalg.ldl_factor(A), B) - B).abs().max() < 1e-10


@pytest.mark.parametrize("call", [
    lambda lib, A: lib.linalg.lu(A, pivot=False), lambda lib, A: lib.linalg.lu_factor_ex(A, pivot=False), lambda lib, A: A.lu(pivot=False), lambda lib, A: lib.linalg.lu_factor(A * 0), lambda lib, A: lib.linalg.lu_factor_ex(A * 0), lambda lib, A: lib.linalg.lu_factor_ex(A * 0, check_errors=True),
    lambda lib, A: (A * 0).lu(), lambda lib, A: lib.linalg.lu(A * 0), lambda lib, A: lib.linalg.lu_factor(A[0]), lambda lib, A: lib.linalg.ldl_factor_ex(A * 0), lambda lib, A: lib.linalg.ldl_factor(A * 0),
    lambda lib, A: lib.linalg.lu_solve(A, lib.tensor([1, 2, 3]), A), lambda lib, A: lib.linalg.lu_solve(A, lib.tensor([1, 2], dtype=lib.int32), A),
    lambda lib, A: lib.linalg.lu_solve(A, lib.tensor([1, 2, 3], dtype=lib.int32), A.float()), lambda lib, A: lib.lu_unpack(A, lib.tensor([1, 2, 9], dtype=lib.int32)),
    lambda lib, A: lib.lu_unpack(A, lib.tensor([1, 2, 3])), lambda lib, A: lib.linalg.householder_product(A, A), lambda lib, A: lib.linalg.householder_product(A[:2], A[0]),
    lambda lib, A: lib.ormqr(A, A[0], A[:2]), lambda lib, A: lib.ormqr(A, A[0], A.float()), lambda lib, A: lib.geqrf(A[0]), lambda lib, A: lib.linalg.qr(A, "all"), lambda lib, A: lib.linalg.eigh(A, "X"),
    lambda lib, A: lib.linalg.lstsq(A, A, driver="best"), lambda lib, A: lib.linalg.matrix_norm(A, "two"), lambda lib, A: lib.linalg.cond(A, 3), lambda lib, A: lib.linalg.norm(A, 3),
    lambda lib, A: lib.linalg.norm(A, 2, (0, 1, 1)), lambda lib, A: lib.linalg.matrix_norm(A, 2, (1, -1)), lambda lib, A: lib.linalg.matrix_norm(A, dtype=lib.float32), lambda lib, A: lib.linalg.tensorinv(A, 0),
    lambda lib, A: lib.linalg.tensorsolve(A, A[0, :2]), lambda lib, A: lib.linalg.solve_triangular(A * 0, A, upper=True), lambda lib, A: lib.linalg.cond(A * 0, 1), lambda lib, A: lib.linalg.inv(A.long())])
def test_singular_and_wrong_matrices(torch, call):
    same(torch, call, drawn(3, 3))


def cofactors(A):
    n = len(A)
    return np.array([[(-1) ** (i + j) * np.linalg.det(np.delete(np.delete(A, i, 0), j, 1)) for j in range(n)] for i in range(n)])


@pytest.mark.parametrize("rank", [4, 3, 2, 0])
@pytest.mark.parametrize("graph", [False, True])
def test_the_gradient_of_the_determinant_is_the_cofactors_of_singular_matrices_too(rank, graph):
    whole, some = drawn(4, 4), drawn(4, 4)
    some[rank:] = some[:1] * 0 if rank == 0 else some[:1]
    A = ampc.tensor(np.stack([whole, some, -whole]), requires_grad=True)
    g, = ampc.autograd.grad((ampc.linalg.det(A) * ampc.tensor([1.0, 2.0, 3.0], dtype=ampc.float64)).sum(), A, create_graph=graph)
    np.testing.assert_allclose(g.numpy(force=True), np.stack([cofactors(whole), 2 * cofactors(some), 3 * cofactors(-whole)]), rtol=1e-9, atol=1e-12)
    assert ampc.det(A)[1].item() == pytest.approx(np.linalg.det(some), abs=1e-15)


def test_determinants_that_rounding_leaves():
    """Singular matrices, whose determinant or pivots rounding keeps from 0."""
    for seed in range(40):
        A = np.random.default_rng(seed).standard_normal((3, 3))
        A[2] = A[0] + A[1]
        x = ampc.tensor(A, requires_grad=True)
        ampc.linalg.det(x).backward()
        np.testing.assert_allclose(x.grad.numpy(force=True), cofactors(A), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("beside", [[0], [1], [0, 1]])
def test_the_gradient_of_a_determinant_beside_one_that_is_not_finite(beside):
    matrices = np.array([[[1.0, 2.0], [3.0, 4.0]], [[1.0, 2.0], [2.0, 4.0]]])[beside]
    cofactors = np.array([[[m[1, 1], -m[1, 0]], [-m[0, 1], m[0, 0]]] for m in matrices])
    for broken in ([[np.inf, 1.0], [0.0, 1.0]], [[np.nan, 1.0], [0.0, 1.0]], [[-np.inf, np.inf], [1.0, 1.0]]):
        a = ampc.tensor(np.concatenate([matrices, [broken]]), dtype=ampc.float64, requires_grad=True)
        ampc.linalg.det(a).sum().backward()
        grad = a.grad.numpy(force=True)
        assert np.allclose(grad[:-1], cofactors, rtol=1e-12, atol=1e-12) and not np.isfinite(grad[-1]).all()


def test_the_second_gradient_of_the_determinant_of_a_singular_matrix():
    A = drawn(3, 3)
    A[2] = A[0] + A[1]
    assert ampc.autograd.gradgradcheck(ampc.linalg.det, ampc.tensor(A, requires_grad=True))


def test_pivots_that_no_factorisation_gives_are_refused():
    """LAPACK would read beside the matrix."""
    LD, B = ampc.eye(2), ampc.ones(2, 1)
    for pivots in ([5, 1], [1, -2], [-2, 1], [-1, -2], [0, 1]):
        with pytest.raises(RuntimeError, match="not those of ldl_factor"):
            ampc.linalg.ldl_solve(LD, ampc.tensor(pivots, dtype=ampc.int32), B)


CASTS = {
    "inv": lambda lib, A, B: lib.linalg.inv(A), "Tensor.inverse": lambda lib, A, B: A.inverse(), "inv_ex": lambda lib, A, B: lib.linalg.inv_ex(A), "solve": lambda lib, A, B: lib.linalg.solve(A, B),
    "lstsq": lambda lib, A, B: lib.linalg.lstsq(A, B)[0], "cond": lambda lib, A, B: lib.linalg.cond(A), "pinverse": lambda lib, A, B: lib.pinverse(A),
    "matrix_rank": lambda lib, A, B: lib.linalg.matrix_rank(A), "qr": lambda lib, A, B: lib.linalg.qr(A), "torch.qr": lambda lib, A, B: lib.qr(A), "svd": lambda lib, A, B: lib.linalg.svd(A)[1],
    "torch.svd": lambda lib, A, B: lib.svd(A)[1], "svdvals": lambda lib, A, B: lib.linalg.svdvals(A), "eigh": lambda lib, A, B: lib.linalg.eigh(A)[0], "eigvalsh": lambda lib, A, B: lib.linalg.eigvalsh(A),
    "tensorinv": lambda lib, A, B: lib.linalg.tensorinv(A, 1), "tensorsolve": lambda lib, A, B: lib.linalg.tensorsolve(A, B[:, 0]), "cholesky_ex": lambda lib, A, B: lib.linalg.cholesky_ex(A),
    "lu": lambda lib, A, B: A.lu(), "lu_solve": lambda lib, A, B: lib.lu_solve(B, A, lib.tensor([1, 2, 3], dtype=lib.int32)), "householder_product": lambda lib, A, B: lib.linalg.householder_product(A, A[0]),
    "orgqr": lambda lib, A, B: lib.orgqr(A, A[0]), "ormqr": lambda lib, A, B: lib.ormqr(A, A[0], B), "geqrf": lambda lib, A, B: lib.geqrf(A),
}


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("name", CASTS)
def test_autocast_takes_16_bit_matrices_to_float32(torch, name, dtype):
    """As torch on the CPU; outside autocast both libraries refuse them."""
    def call(lib, A, B):
        low = getattr(lib, dtype)
        with lib.autocast(A.device.type, dtype=low):
            return CASTS[name](lib, A.to(low), B.to(low))

    theirs, ours = both(torch, call, drawn(3, 3) / 8 + np.eye(3), drawn(3, 2))
    for (dt, x), (own, y) in zip(theirs, ours):
        assert dt == own and x.shape == y.shape
        np.testing.assert_allclose(y, x, rtol=1e-4, atol=1e-4)
    with pytest.raises(RuntimeError, match="float32 or float64"):
        CASTS[name](ampc, ampc.eye(3).to(getattr(ampc, dtype)), ampc.ones(3, 2).to(getattr(ampc, dtype)))


def test_gradients_pass_the_cast():
    A = (ampc.randn(3, 3) / 8 + ampc.eye(3)).half().requires_grad_()
    with ampc.autocast(A.device.type, dtype=ampc.float16):
        ampc.linalg.inv(A).sum().backward()
    assert A.grad.dtype == ampc.float16 and A.grad.abs().sum() > 0


def test_the_norm_of_one_value_is_its_size():
    """Its square would overflow, or vanish."""
    for value in (1e155, -1e300, 1e-170, 5e-324):
        x = ampc.tensor([[value]], dtype=ampc.float64, requires_grad=True)
        for y in (x.norm(), ampc.linalg.vector_norm(x), ampc.linalg.vector_norm(x, 3, 1), ampc.linalg.norm(x), ampc.dist(x, x * 0), ampc.cdist(x, x * 0)):
            assert y.item() == abs(value)
        (slope,) = ampc.autograd.grad(ampc.linalg.vector_norm(x), x)
        assert slope.item() == np.sign(value)
    assert ampc.linalg.vector_norm(ampc.tensor([0.0]), 0).item() == 0 and ampc.linalg.vector_norm(ampc.tensor([-3.0]), 0).item() == 1


def test_results_are_written_into_out():
    A, B = ampc.tensor(drawn(3, 3)), ampc.tensor(drawn(3, 2))
    P, L, U = (A.new_empty(0) for _ in range(3))
    assert ampc.linalg.lu(A, out=(P, L, U)).L is L and (P @ L @ U - A).abs().max() < 1e-12
    LU, pivots = A.new_empty(0), A.new_empty(0, dtype=ampc.int32)
    assert ampc.lu(A, out=(LU, pivots))[0] is LU
    X = ampc.zeros(3, 2, dtype=ampc.float64)
    assert ampc.lu_solve(B, LU, pivots, out=X) is X and (A @ X - B).abs().max() < 1e-10
    with pytest.raises(TypeError, match="tuple of 2"):
        ampc.linalg.lu_factor(A, out=LU)


def test_a_tall_svd_has_square_factors_whose_gradient_is_of_the_values():
    x = ampc.tensor(drawn(5, 2), requires_grad=True)
    U, S, Vh = ampc.linalg.svd(x)
    assert U.shape == (5, 5) and (U.T @ U - ampc.eye(5, dtype=U.dtype)).abs().max() < 1e-12
    (g,) = ampc.autograd.grad(S.sum() + (U[:, :2] ** 2).sum() + (Vh ** 3).sum(), x)
    reduced = ampc.linalg.svd(x, full_matrices=False)
    (h,) = ampc.autograd.grad(reduced.S.sum() + (reduced.U ** 2).sum() + (reduced.Vh ** 3).sum(), x)
    assert (g - h).abs().max() < 1e-9
    assert [t.shape for t in ampc.linalg.svd(ampc.ones(2, 0, 3))] == [(2, 0, 0), (2, 0), (2, 3, 3)]


@pytest.mark.parametrize("logarithm", ["logdet", "slogdet"])
def test_a_singular_matrix_of_a_batch_does_not_stop_backward(logarithm):
    """Its logarithm is -inf and its gradient not finite, as in torch, which a GradScaler sees; the others have theirs."""
    a = ampc.tensor([[[1.0, 2.0], [2.0, 4.0]], [[2.0, 0.0], [0.0, 4.0]], [[0.0, 0.0], [0.0, 0.0]]], requires_grad=True)
    value = ampc.logdet(a) if logarithm == "logdet" else ampc.linalg.slogdet(a)[1]
    value.sum().backward()
    assert value[0] == value[2] == -float("inf") and a.grad[1].tolist() == [[0.5, 0], [0, 0.25]]
    assert not a.grad[0].isfinite().any() and not a.grad[2].isfinite().any()


@pytest.mark.parametrize("rows", [[[1.0, 2, 3], [0, 0, 1]], [[0.0, 0], [0, 0]], [[1.0, 0], [0, 0], [0, 0]]])
def test_the_gradient_of_qr_is_nan_where_it_has_none(torch, rows):
    """The first columns depend on each other: torch divides by 0 there, and a GradScaler sees it."""
    ours, theirs = (T.tensor(rows, dtype=T.float64, requires_grad=True) for T in (ampc, torch))
    for T, x in ((ampc, ours), (torch, theirs)):
        q, r = T.linalg.qr(x)
        (q.sum() + r.sum()).backward()
    assert np.array_equal(ours.grad.isfinite().cpu().numpy(), theirs.grad.isfinite().numpy())


@pytest.mark.parametrize("order", [-1, -2, -0.5, -3, 0.5, 3])
def test_norms_of_both_zeros(torch, order):
    """The powers of -0 below 0 are inf, as those of 0."""
    for values in ([0.0, -0.0, 1.0], [-0.0, -0.0], [-0.0, 2.0], [-0.0]):
        for dtype in ("float32", "float64", "bfloat16"):
            x, y = (T.tensor(values, dtype=getattr(T, dtype)) for T in (ampc, torch))
            assert ampc.linalg.vector_norm(x, order).item() == pytest.approx(torch.linalg.vector_norm(y, order).item(), rel=1e-2)
    assert str(ampc.linalg.vector_norm(ampc.tensor([-0.0, -0.0]), float("inf")).item()) == "0.0"


@pytest.mark.parametrize("asked", ["float16", "bfloat16", "float32", "float64", "int64"])
@pytest.mark.parametrize("own", ["float16", "bfloat16", "float32", "float64"])
def test_the_dtype_of_a_norm_holds_that_of_its_input(torch, own, asked):
    def outcome(T, f):
        try:
            return str(f(T)(T.ones(2, dtype=getattr(T, own)), 2, dtype=getattr(T, asked)).dtype).split(".")[1]
        except RuntimeError:
            return "error"

    for f in (lambda T: T.linalg.vector_norm, lambda T: T.norm, lambda T: T.linalg.norm, lambda T: lambda x, p, dtype: T._foreach_norm([x], p, dtype=dtype)[0]):
        assert outcome(ampc, f) == outcome(torch, f)


@pytest.mark.parametrize("matrix, right", [("float32", "float64"), ("float64", "float32")])
def test_a_triangular_solution_has_the_dtype_of_the_matrix(torch, matrix, right):
    seen = []
    for lib in (ampc, torch):
        A = lib.tensor([[2.0, 0.0], [1.0, 4.0]], dtype=getattr(lib, matrix))
        B = lib.tensor([[4, 2], [8, 5]]).to(getattr(lib, right))
        X = lib.linalg.solve_triangular(A, B, upper=False), lib.linalg.solve_triangular(A, B, upper=False, left=False)
        assert all(x.dtype == A.dtype for x in X)
        seen.append([x.tolist() for x in X])
    assert np.allclose(seen[0], seen[1], rtol=1e-6)


def test_a_normal_distribution_takes_values_of_another_dtype(torch):
    seen = []
    for lib in (ampc, torch):
        d = lib.distributions.MultivariateNormal(lib.tensor([0.3, 0.6]), lib.tensor([[2.0, 1.0], [1.0, 4.0]]))
        x = lib.tensor([1.0, -1.0], dtype=lib.float64, requires_grad=True)
        d.log_prob(x).backward()
        seen.append((float(d.log_prob(x.detach())), *x.grad.tolist()))
    assert np.allclose(seen[0], seen[1], rtol=1e-6)


@pytest.mark.parametrize("dim", [[], (0, 1, 2)])
@pytest.mark.parametrize("order", [None, 2, "fro"])
def test_a_norm_is_over_1_or_2_dimensions(torch, order, dim):
    for lib in (ampc, torch):
        with pytest.raises(RuntimeError):
            lib.linalg.norm(lib.ones(2, 3, 4), order, dim=dim)


@pytest.mark.parametrize("shapes", [((2, 0), (3, 0)), ((2, 3, 0), (4, 0)), ((2, 0), (0,)), ((0, 2), (3, 2)), ((4, 2), (0, 2)), ((0,), (2, 5, 0))], ids=str)
def test_inner_products_over_nothing_are_0(torch, shapes):
    got, want = (lib.inner(*(lib.ones(shape) for shape in shapes)) for lib in (ampc, torch))
    assert tuple(got.shape) == tuple(want.shape) and got.tolist() == want.tolist()
