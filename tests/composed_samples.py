"""Samples of operators that are written with other operators: see samples.py."""

from __future__ import annotations

import numpy as np
from references import ints, linalg, mask, positive, real, solid, spread
from sample import Sample, pointwise

EDGES = np.array([1.5, np.nan, np.inf, -np.inf])

COMPOSED = {
    # -- elementwise
    "positive": pointwise(lambda x: x, real(3, 4)),
    "rsub": [Sample((real(3, 4), real(4)), {"alpha": 2}, reference=lambda x, y, alpha: y - alpha * x), Sample((real(3, 4), 1.5), reference=lambda x, y: y - x)],
    "deg2rad": pointwise(np.deg2rad, real(3, 4) * 90),
    "rad2deg": pointwise(np.rad2deg, real(3, 4)),
    "sinc": pointwise(np.sinc, real(3, 4) * 2) + pointwise(np.sinc, np.array([0.0, 1e-8]), grad=False),
    # torch's gradient is 0 where the exponent is negative
    "ldexp": [Sample((real(3, 4), ints(6, 4) - 3), reference=lambda x, n: x * 2.0**n, torch_grad=False), Sample((real(3, 4), real(4)), reference=lambda x, n: x * 2.0**n)],
    "float_power": [Sample((positive(3, 4), real(4)), reference=np.power), Sample((real(3, 4), 2), reference=lambda x, n: x**2),
                    Sample((1.5, real(3, 4)), reference=lambda x, n: 1.5**n)],
    "isposinf": pointwise(np.isposinf, EDGES, grad=False),
    "isneginf": pointwise(np.isneginf, EDGES, grad=False),
    "nan_to_num_limits": [Sample((EDGES,), grad=False, half=False), Sample((EDGES, 0.25, 9.0, -8.0), grad=False,
                          reference=lambda x, a, b, c: np.nan_to_num(x, True, a, b, c)), Sample((real(3, 4),), {"posinf": 1.0})],
    "selu": pointwise(lambda x: 1.0507009873554805 * np.where(x > 0, x, 1.6732632423543772 * np.expm1(x)), real(3, 4)),
    "celu": [Sample((real(3, 4), 1.5), reference=lambda x, a: np.where(x > 0, x, a * np.expm1(x / a)))],
    "gcd": pointwise(np.gcd, ints(60, 3, 4) - 30, ints(60, 4) - 30),
    "lcm": pointwise(np.lcm, ints(60, 3, 4) - 30, ints(60, 4) - 30),

    # -- order of dimensions
    "movedim": [Sample((real(2, 3, 4), [0, 1], [-1, 0]), reference=np.moveaxis), Sample((real(2, 3, 4), 2, 0), reference=np.moveaxis)],
    "swapaxes": [Sample((real(2, 3, 4), 0, -1), reference=np.swapaxes)],
    "adjoint": pointwise(lambda x: np.swapaxes(x, -1, -2), real(2, 3, 4)),
    "broadcast_to": [Sample((real(3, 1), [2, 3, 4]), reference=np.broadcast_to)],
    "ravel": pointwise(np.ravel, real(2, 3)),
    "unflatten": [Sample((real(2, 12), 1, [3, -1]), reference=lambda x, d, n: x.reshape(2, 3, 4), torch=lambda x, d, n: x.unflatten(d, n))],
    # -- rearranging
    "repeat": [Sample((real(2, 3), [2, 1, 3]), reference=np.tile, torch=lambda x, n: x.repeat(n)), Sample((real(2, 3), [0, 2]), reference=np.tile, torch=None)],
    "tile": [Sample((real(2, 3), [2]), reference=np.tile), Sample((real(3), [2, 1]), reference=np.tile)],
    "flipud": pointwise(np.flipud, real(3, 4)),
    "fliplr": pointwise(np.fliplr, real(3, 4)),
    "rot90": [Sample((real(2, 3), k), reference=np.rot90) for k in (-1, 0, 1, 2)] + [Sample((real(2, 3, 4), 1, [2, 0]), reference=np.rot90)],
    "roll": [Sample((real(3, 4), [1, -2], [0, 1]), reference=np.roll), Sample((real(3, 4), 5), reference=np.roll), Sample((real(3), 0, 0), reference=np.roll)],
    "at_least": [Sample((real(3), n), torch=None, reference=lambda x, n: (np.atleast_1d, np.atleast_2d, np.atleast_3d)[n - 1](x)) for n in (1, 2, 3)],
    "hstack": [Sample(([real(2, 3), real(2, 1)],), reference=np.hstack), Sample(([real(3), real(2)],), reference=np.hstack)],
    "vstack": [Sample(([real(2, 3), real(3)],), reference=np.vstack)],
    "dstack": [Sample(([real(2, 3), real(2, 3)],), reference=np.dstack), Sample(([real(3), real(3)],), reference=np.dstack)],
    "column_stack": [Sample(([real(3), real(3, 2)],), reference=np.column_stack)],
    "tril": [Sample((real(2, 3, 4), k), reference=np.tril) for k in (-1, 0, 2)],
    "triu": [Sample((real(2, 3, 4), k), reference=np.triu) for k in (-1, 0, 2)],
    "diag_embed": [Sample((real(3), 1), reference=np.diag), Sample((real(2, 3), -1, 0, 2))],
    "diagflat": [Sample((real(2, 2), -1), reference=np.diagflat)],
    "diag": [Sample((real(3), 1), reference=np.diag), Sample((real(3, 4), -1), reference=np.diag)],
    "diagonal_scatter": [Sample((real(3, 4), real(3), 1))],
    "select_scatter": [Sample((real(3, 4), real(3), 1, 2))],
    "slice_scatter": [Sample((real(3, 6), real(3, 2), 1, 1, 5, 2))],
    # torch's gradient is that of what is overwritten
    "scatter_strided": [Sample((real(3, 4), real(2, 2), [2, 2], [4, 1], 5), torch="as_strided_scatter", torch_grad=False)],
    "repeat_interleave": [Sample((real(2, 3), 2, 1), reference=np.repeat), Sample((real(2, 3), 3), {"output_size": 18}, reference=lambda x, n, output_size: np.repeat(x, n))],
    "repeat_each": [Sample((real(2, 3), np.array([1, 0, 2]), 1), reference=np.repeat), Sample((real(2, 3), np.array([2]), 0), reference=np.repeat)],
    "repeat_indices": [Sample((np.array([1, 0, 3]),), reference=lambda n: np.repeat(np.arange(3), n))],
    "block_diag": [Sample((real(2, 3), real(2), real(1, 1))), Sample((real(3), real()))],
    "cartesian_prod": [Sample((real(2), real(3), real(2)), reference=lambda *x: np.stack(np.meshgrid(*x, indexing="ij"), -1).reshape(-1, 3)), Sample((real(2), real(0)))],
    "combinations": [Sample((real(5), r, again)) for r in (1, 3) for again in (False, True)],
    # torch cannot differentiate it
    "vander": [Sample((positive(4),), reference=np.vander, torch_grad=False), Sample((positive(4), 3, True), reference=np.vander, torch_grad=False), Sample((ints(5, 4), 3), reference=np.vander)],

    # -- statistics
    "nansum": [Sample((EDGES[:2],), reference=np.nansum, grad=False), Sample((real(3, 4), 1), reference=np.nansum)],
    "nanmean": [Sample((EDGES[:2],), reference=np.nanmean, grad=False), Sample((real(3, 4), [0]), reference=lambda x, d: x.mean(0))],
    "trace": pointwise(np.trace, real(3, 4)),
    "frobenius_norm": [Sample((real(3, 4), [0, 1]), reference=lambda x, d: np.sqrt((x * x).sum()))],
    **{name: [Sample((real(3, 4), 1), {"correction": 2}, reference=lambda x, d, correction, f=f: (f(x, d, ddof=2), x.mean(d)))]
       for name, f in (("var_mean", np.var), ("std_mean", np.std))},
    **{name + "_unbiased": [Sample((real(3, 4), [1], False, True), reference=lambda x, d, u, k, f=f: (f(x, 1, keepdims=True), x.mean(1, keepdims=True)))]
       for name, f in (("var_mean", np.var), ("std_mean", np.std))},
    **{name + "_all": [Sample((real(3, 4), False), reference=lambda x, u, f=f: (f(x), x.mean()))] for name, f in (("var_mean", np.var), ("std_mean", np.std))},
    "diff": [Sample((real(3, 5), 2, 1), reference=np.diff), Sample((real(4), 1, 0, real(1), real(2)), reference=lambda x, n, d, a, b: np.diff(np.concatenate([a, x, b]))),
             Sample((mask(5),), reference=np.diff)],
    "trapezoid": [Sample((real(3, 4), spread(4)), reference=np.trapezoid), Sample((real(3, 4),), {"dx": 0.5, "dim": 0}, reference=lambda y, dx, dim: np.trapezoid(y, dx=dx, axis=dim))],
    "cumulative_trapezoid": [Sample((real(3, 4),), {"dx": 0.5}, reference=lambda y, dx: np.cumsum((y[:, 1:] + y[:, :-1]) / 4, 1)), Sample((real(3, 4), spread(3, 4)))],
    "cov": [Sample((real(3, 5),), reference=np.cov), Sample((real(3, 4),), {"fweights": ints(3, 4) + 1, "aweights": positive(4)}, reference=np.cov, frozen=("aweights",)),
            Sample((real(5),), {"correction": 0}, reference=lambda x, correction: np.cov(x, ddof=0))],
    "gradient": [Sample((real(3, 5), None, 0.5, 1, order), torch=None, reference=lambda x, where, h, d, order: np.gradient(x, h, axis=d, edge_order=order)) for order in (1, 2)] + [
                 Sample((real(5, 3), np.array([0.0, 0.3, 1.0, 1.2, 2.0]), 1.0, 0, order), torch=None, frozen=(1,),
                        reference=lambda x, where, h, d, order: np.gradient(x, where, axis=d, edge_order=order)) for order in (1, 2)],
    "corrcoef": pointwise(np.corrcoef, real(3, 5)),

    # -- by order, by index
    "argsort": [Sample((spread(3, 4), 1, True), grad=False, reference=lambda x, d, down: np.argsort(-x, d))],
    "msort": pointwise(lambda x: np.sort(x, 0), spread(3, 4)),
    "argwhere": pointwise(np.argwhere, mask(3, 4)),
    "kthvalue": [Sample((spread(3, 4), 2, 1), reference=lambda x, k, d: (np.sort(x, d)[:, k - 1], np.argsort(x, d)[:, k - 1]))],
    "median": pointwise(lambda x: np.sort(x.ravel())[5], spread(3, 4)),
    "nanmedian": pointwise(lambda x: np.sort(x.ravel())[5], spread(3, 4)) + pointwise(lambda x: np.array(2.0), np.array([3.0, np.nan, 2.0]), grad=False),
    **{name: [Sample((spread(3, 5), 1, True), reference=lambda x, d, k: (np.sort(x, d)[:, 2:3], np.argsort(x, d)[:, 2:3]), torch=name[:-4])]
       for name in ("median_dim", "nanmedian_dim")},
    **{name: [Sample((spread(3, 5), 0.3), reference=np.quantile, half=False, frozen=(1,)), Sample((spread(3, 5), np.array([0.25, 0.9]), 1), reference=np.quantile, half=False, frozen=(1,)),
              *(Sample((spread(3, 4), 0.4, 0, True), {"interpolation": how}, half=False) for how in ("lower", "higher", "nearest", "midpoint"))] for name in ("quantile", "nanquantile")},
    "searchsorted": [Sample((np.sort(spread(6)), spread(3, 4)), reference=np.searchsorted, grad=False), Sample((np.sort(ints(9, 3, 6)), ints(9, 3, 4)), {"side": "right"}),
                     Sample((np.array([3, 1, 2]), 2), {"sorter": np.array([1, 2, 0])})],
    "bucketize": [Sample((spread(3, 4), np.sort(spread(6))), reference=lambda x, edges: np.digitize(x, edges, right=True), grad=False), Sample((2, np.array([1, 2, 3])), {"right": True})],
    "multinomial": [Sample((positive(3, 5), 4, again), torch=None, grad=False) for again in (False, True)],
    "isin": [Sample((ints(9, 3, 4), ints(9, 5)), reference=np.isin), Sample((ints(9, 3, 4), ints(9, 5)), {"invert": True}, reference=np.isin), Sample((ints(9, 3, 4), 4), reference=np.isin)],
    "histc": [Sample((spread(3, 4), 5), reference=lambda x, n: np.histogram(x, n)[0], grad=False, half=False), Sample((spread(3, 4), 4, -1, 1), grad=False, half=False)],
    "histogram": [Sample((spread(9, 2), positive(9), [np.array([-2.0, 0.0, 0.5, 2.0]), np.array([-2.0, 0.0, 2.0])], density), torch=None, grad=False, half=False,
                         reference=lambda x, w, edges, density: np.histogramdd(x, edges, weights=w, density=density)[0]) for density in (True, False)],
    "unique": [Sample((ints(5, 3, 4), False, True, True), torch=None, reference=lambda x, *a: tuple(np.unique(x, return_inverse=True, return_counts=True))),
               Sample((ints(2, 6, 2), False, True, True, 0), torch=None, reference=lambda x, *a: tuple(a.ravel() if a.ndim == 1 else a for a in np.unique(x, return_inverse=True, return_counts=True, axis=0)))],
    "mode": [Sample((ints(3, 4, 9),)), Sample((spread(3, 4), 0, True), reference=lambda x, d, k: (x.min(0, keepdims=True), x.argmin(0)[None]))],
    "aminmax": [Sample((spread(3, 4),), {"dim": 1}, reference=lambda x, dim: (x.min(1), x.max(1)))],
    "count_nonzero": [Sample((mask(3, 4), 1), reference=np.count_nonzero)],
    "bincount": [Sample((ints(5, 9),), reference=np.bincount), Sample((ints(5, 9), positive(9), 7), reference=np.bincount, grad=False, half=False)],
    "nonzero_static": [Sample((mask(3, 4),), {"size": n}) for n in (2, 20)],
    "take": [Sample((real(3, 4), ints(12, 2, 2)), reference=np.take)],
    "put": [Sample((real(3, 4), np.array([1, -2]), real(2))), Sample((real(3, 4), np.array([1, 1]), real(2), True), half=False)],
    "index_copy": [Sample((real(3, 4), 1, np.array([2, 0]), real(3, 2)))],
    "index_fill": [Sample((real(3, 4), 1, np.array([-1, 0]), 2.5))],
    "index_fill_tensor": [Sample((real(3, 4), 0, np.array([2]), real()), torch="index_fill")],
    "scatter": [Sample((real(3, 4), 1, np.array([[0, 2], [3, 1], [1, 0]]), real(3, 3)), torch_grad=False), Sample((real(3, 4), 0, np.array([[2, 0, 1, 1]]), 1.5)),
                Sample((real(3, 4), 1, ints(4, 3, 6), real(3, 6)), {"reduce": "add"}, torch_grad=False),
                Sample((real(3, 4), 1, ints(4, 3, 6), positive(3, 6)), {"reduce": "multiply"}, torch_grad=False)],
    "scatter_value": [Sample((real(3, 4), 1, ints(4, 3, 2)), {"value": 2.5}, torch="scatter"), Sample((real(3, 4), 1, ints(4, 3, 2)), {"value": 2.5, "reduce": "add"}, torch_grad=False, torch="scatter")],
    "scatter_reduce": [Sample((real(3, 4), 1, ints(4, 3, 6), real(3, 6), how), {"include_self": own})
                       for how in ("sum", "prod", "mean", "amax", "amin") for own in (True, False)],
    "index_reduce": [Sample((real(3, 4), 1, ints(4, 6), real(3, 6), how), {"include_self": own}) for how in ("prod", "mean", "amax") for own in (True, False)],
    "masked_scatter": [Sample((real(3, 4), mask(4), real(12)))],
    "take_along_dim": [Sample((real(3, 4), ints(3, 1, 4), 0), reference=np.take_along_axis), Sample((real(3, 4), ints(12, 5)), reference=lambda x, i: x.ravel()[i])],
    # -- views in memory of their own
    "detach_copy": [Sample((real(3, 4),), reference=lambda x: x, grad=False)],
    "fill": [Sample((real(3, 4), 2.5), reference=np.full_like)],
    "fill_tensor": [Sample((real(3, 4), real()), torch="fill", reference=np.full_like)],
    "alias_copy": pointwise(lambda x: x, real(3, 4)),
    "as_strided_copy": [Sample((real(3, 4), [2, 2], [4, 1], 5))],
    "diagonal_copy": [Sample((real(3, 4), 1), reference=np.diagonal)],
    "expand_copy": [Sample((real(3, 1), [2, 3, 4]), reference=np.broadcast_to)],
    "narrow_copy": [Sample((real(3, 7), 1, 2, 3), reference=lambda x, d, a, n: x[:, a:a + n])],
    "permute_copy": [Sample((real(2, 3, 4), [2, 0, 1]), reference=np.transpose)],
    "select_copy": [Sample((real(3, 4), 1, 2), reference=lambda x, d, i: x[:, i])],
    "slice_copy": [Sample((real(3, 7), 1, 1, 6, 2), reference=lambda x, d, a, b, n: x[:, a:b:n])],
    "squeeze_copy": [Sample((real(2, 1, 1), 1), reference=np.squeeze)],
    "t_copy": pointwise(np.transpose, real(3, 4)),
    "transpose_copy": [Sample((real(2, 3, 4), 0, 2), reference=np.swapaxes)],
    "unfold_copy": [Sample((real(3, 7), 1, 3, 2))],
    "unsqueeze_copy": [Sample((real(3, 4), 1), reference=np.expand_dims)],

    "chain_matmul": [Sample((real(2, 5), real(5, 3), real(3, 4)), reference=lambda *m: np.linalg.multi_dot(m)), Sample((real(2, 2),), reference=lambda m: m)],
    "einsum": [*(Sample((equation, [real(2, 3, 4), real(2, 4, 5)]), torch=None, reference=lambda e, t: np.einsum(e, *t)) for equation in ("bij,bjk->bik", "...ij,...jk", "bij,bjk->ki", "bij,cjk->ck")),
               Sample(("iij,j...->...i", [real(3, 3, 4), real(4, 2)]), torch=None, half=False, reference=lambda e, t: np.einsum(e, *t)),
               Sample(("ij,jk,kl->il", [real(2, 3), real(3, 4), real(4, 2)]), torch=None, half=False, reference=lambda e, t: np.einsum(e, *t))],
    # -- linear algebra, in float32 and float64
    **{name: [Sample((*more, np.triu(real(2, 3, 3)) + 3 * np.eye(3), True), half=False, frozen=(len(more),)),
              Sample((*more, np.tril(real(3, 3)) + 3 * np.eye(3)), half=False, frozen=(len(more),))]
       for name, more in (("cholesky_inverse", ()), ("cholesky_solve", (real(2, 3, 2),)))},
    "triangular_solve": [Sample((real(2, 3, 2), real(3, 3) + 3 * np.eye(3), *how), half=False) for how in ((), (False, True), (True, True, True))],
    "slogdet_square": [Sample((real(2, 3, 3) + 3 * np.eye(3),), reference=np.linalg.slogdet, half=False)],
    "det": [Sample((real(2, 3, 3),), reference=np.linalg.det, half=False)],
    "logdet": [Sample((solid(2, 3),), reference=lambda A: np.log(np.linalg.det(A)), half=False)],
    "matrix_power": [Sample((real(2, 3, 3), n), reference=np.linalg.matrix_power, half=False, torch_grad=n != 0) for n in (0, 1, 5)]
                    + [Sample((real(3, 3) + 3 * np.eye(3), -2), reference=np.linalg.matrix_power, half=False)],
    "matrix_exp": [Sample((real(2, 3, 3),), half=False)],
    "linalg_vander": [Sample((positive(2, 4),), {"N": 3}, reference=lambda x, N: np.stack([np.vander(r, N, True) for r in x]), torch=linalg("vander"), torch_grad=False, half=False)],
    "linalg_cross": [Sample((real(2, 3), real(2, 3)), reference=np.cross, torch=linalg("cross"))],
    "kron": [Sample((real(2, 3), real(4)), reference=np.kron), Sample((real(2, 1), real(1, 2, 2)), reference=np.kron)],
}
