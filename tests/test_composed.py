"""Functions put together from the table's operators, against torch: values, dtypes, gradients; where torch is absent they skip.

A case is a path below the module (``nn.functional.pad``, ``Tensor.tile``), arguments, and what is not differentiated."""

import inspect
import math

import numpy as np
import pytest
from references import R
from where import DEVICE

import ampc

F = "nn.functional."


def real(*shape):
    return R.standard_normal(shape)


def apart(*shape):
    n = math.prod(shape)
    return (R.permutation(n) * 0.37 - 0.1 * n).reshape(shape)


def ints(high, *shape):
    return R.integers(0, high, shape)


def mask(*shape):
    return R.random(shape) < 0.5


def case(path, *args, fixed=False, **kwargs):
    return pytest.param(path, args, kwargs, not fixed, id=path)


WINDOWS = [
    case(F + "conv1d", real(2, 4, 9), real(6, 2, 3), real(6), stride=2, padding=1, groups=2),
    case(F + "conv1d", real(4, 9), real(6, 4, 3)),
    case(F + "conv1d", real(2, 4, 9), real(6, 4, 4), padding="same", dilation=2),
    case(F + "conv2d", real(2, 3, 6, 7), real(4, 3, 3, 2), real(4), padding="same"),
    case(F + "conv2d", real(2, 3, 6, 7), real(6, 1, 3, 3), groups=3, padding=(1, 2), dilation=(2, 1)),
    case(F + "conv2d", real(1, 3, 8, 8), real(4, 3, 3, 3), stride=3, padding="valid"),
    case(F + "conv3d", real(1, 2, 4, 5, 4), real(3, 2, 2, 2, 3), real(3), padding=1),
    case(F + "conv_transpose1d", real(2, 4, 5), real(4, 3, 3), real(3), stride=2, padding=1, output_padding=1),
    case(F + "conv_transpose2d", real(2, 4, 5, 4), real(4, 3, 3, 2), groups=2, stride=(2, 1), dilation=(1, 2)),
    case(F + "conv_transpose3d", real(1, 2, 3, 3, 3), real(2, 2, 2, 2, 2), stride=2),
    case("conv_tbc", real(7, 2, 3), real(3, 3, 4), real(4), 1),
    case(F + "unfold", real(2, 3, 6, 5), (2, 3), dilation=2, padding=1, stride=2),
    case(F + "fold", real(2, 12, 12), (5, 4), 2),
    *[case(f"{F}max_pool{d}d", apart(2, 2, *[7, 6, 5][:d]), 3, stride=2, padding=1, ceil_mode=c) for d in (1, 2, 3) for c in (False, True)],
    case(F + "max_pool2d", apart(2, 7, 6), (2, 3), return_indices=True),
    case(F + "max_unpool2d", apart(1, 2, 2, 2), np.array([[[[0, 3], [8, 11]], [[5, 2], [13, 10]]]]), 2),
    *[case(f"{F}avg_pool{d}d", real(2, 2, *[7, 6, 5][:d]), 3, stride=2, padding=1, ceil_mode=c, count_include_pad=p)
      for d in (1, 2, 3) for c in (False, True) for p in (False, True)],
    case(F + "avg_pool2d", real(2, 2, 6, 6), (2, 3), divisor_override=5),
    case(F + "adaptive_avg_pool1d", real(2, 2, 7), 3),
    case(F + "adaptive_avg_pool2d", real(2, 2, 7, 5), (3, None)),
    case(F + "adaptive_avg_pool3d", real(2, 4, 7, 5), 2),
    case(F + "adaptive_max_pool1d", apart(2, 2, 7), 3),
    case(F + "adaptive_max_pool2d", apart(2, 2, 7, 5), (3, 2)),
    case(F + "adaptive_max_pool3d", apart(2, 4, 7, 5), 2),
    case(F + "lp_pool1d", np.abs(real(2, 2, 8)) + 0.1, 3.0, 2),
    case(F + "lp_pool1d", real(2, 2, 8), 1.0, 2),
    case(F + "lp_pool1d", real(2, 2, 8), float("inf"), 2),
    case(F + "lp_pool2d", real(2, 2, 6, 6), 1, 3, 2),
    case(F + "lp_pool2d", real(2, 2, 6, 6), 2.0, 2),
    case(F + "lp_pool2d", real(2, 2, 6, 6), float("-inf"), 3, 2, True),
    case(F + "lp_pool2d", np.abs(real(2, 2, 6, 6)) + 0.1, 2.0, 3, 2),
    *[case(F + "interpolate", real(1, 2, *[5, 4, 3][:d]), size=[7, 6, 5][:d], mode="nearest") for d in (1, 2, 3)],
    case(F + "interpolate", real(1, 2, 5, 4), scale_factor=1.7, mode="nearest-exact"),
    case(F + "interpolate", real(1, 2, 5, 4), scale_factor=0.6, mode="nearest"),
    *[case(F + "interpolate", real(1, 2, *[5, 4, 3][:d]), size=[7, 3, 5][:d], mode=m, align_corners=c)
      for d, m in ((1, "linear"), (2, "bilinear"), (3, "trilinear"), (2, "bicubic")) for c in (False, True)],
    case(F + "interpolate", real(1, 2, 5, 4), scale_factor=(1.5, 2.0), mode="bilinear"),
    case(F + "interpolate", real(1, 2, 5, 4), scale_factor=(1.5, 2.3), mode="bilinear", recompute_scale_factor=True),
    case(F + "interpolate", real(1, 2, 9, 8), size=(4, 3), mode="bilinear", antialias=True),
    case(F + "interpolate", real(1, 2, 9, 8), size=(4, 11), mode="bicubic", antialias=True),
    case(F + "interpolate", real(1, 2, 9, 8), size=(4, 3), mode="area"),
    case(F + "pad", real(2, 3, 4), (1, 2, 0, -1), value=2.5),
    case(F + "pad", real(2, 3, 4), (-1, 0)),
    *[case(F + "pad", real(2, 3, 4, 5), (2, 1, 1, 0), mode=m) for m in ("reflect", "replicate", "circular")],
    case(F + "pad", real(2, 3, 5), (2, 1), mode="circular"),
    case(F + "pad", real(1, 2, 3, 4, 5), (1, 1, 2, 1, 0, 1), mode="reflect"),
    *[case(F + "grid_sample", real(2, 3, 5, 4), R.uniform(-1.2, 1.2, (2, 3, 6, 2)), mode=m, padding_mode=p, align_corners=c, fixed=m == "nearest")
      for m in ("bilinear", "nearest", "bicubic") for p in ("zeros", "border", "reflection") for c in (False, True)],
    case(F + "grid_sample", real(1, 2, 3, 5, 4), R.uniform(-1.2, 1.2, (1, 2, 3, 4, 3)), align_corners=False),
    case(F + "affine_grid", real(2, 2, 3), (2, 3, 4, 5), align_corners=False),
    case(F + "affine_grid", real(2, 3, 4), (2, 3, 2, 4, 5), align_corners=True),
    case(F + "pixel_shuffle", real(2, 8, 3, 2), 2),
    case(F + "pixel_unshuffle", real(2, 2, 6, 4), 2),
    case("channel_shuffle", real(2, 6, 3, 2), 3),
    case(F + "group_norm", real(2, 6, 4, 3), 3, real(6), real(6)),
    case(F + "instance_norm", real(2, 3, 5), None, None, real(3), real(3)),
    case(F + "rms_norm", real(2, 3, 5), [3, 5], real(3, 5), 1e-6),
    case(F + "local_response_norm", real(2, 5, 4), 3, alpha=0.5),
    *[case(F + "embedding_bag", ints(6, 7), real(6, 3), np.array([0, 2, 2, 5]), mode=m) for m in ("sum", "mean", "max")],
    case(F + "embedding_bag", ints(6, 3, 4), real(6, 3), mode="sum", per_sample_weights=real(3, 4)),
    *[case(F + "embedding_bag", ints(3, 3, 4), real(6, 3), mode=m, padding_idx=1) for m in ("mean", "max")],
]

ACTIVATIONS = [
    case(F + "elu", real(3, 4), 1.3), case(F + "selu", real(3, 4)), case(F + "celu", real(3, 4), 0.5), case(F + "leaky_relu", real(3, 4), 0.2),
    case(F + "rrelu", real(3, 4)), case(F + "hardtanh", real(3, 4), -0.4, 0.5), case(F + "relu6", real(3, 4) * 5), case(F + "mish", real(3, 4)),
    case(F + "hardswish", real(3, 4) * 3), case(F + "threshold", real(3, 4), 0.2, 3.0), case(F + "softmin", real(3, 4), 1), case("selu", real(3)),
    case(F + "mse_loss", real(3, 4), real(3, 4), weight=np.abs(real(3, 4))), case(F + "pairwise_distance", real(3, 4), real(3, 4), 1.0, keepdim=True),
    case(F + "triplet_margin_with_distance_loss", real(3, 4), real(3, 4), real(3, 4), swap=True, margin=2.0),
    case(F + "gaussian_nll_loss", real(3, 4), real(3, 4), np.abs(real(3, 4)) + 0.1, full=True),
]

ARRANGE = [
    case("roll", real(3, 4, 5), (1, -2), (0, 2)), case("roll", real(3, 4), 5), case("rot90", real(3, 4, 2), 1, (0, 1)),
    case("rot90", real(3, 4), -1), case("rot90", real(3, 4), 2), case("flipud", real(3, 4)), case("fliplr", real(3, 4)),
    case("repeat_interleave", real(3, 4), 2, 1), case("repeat_interleave", real(3, 4), np.array([2, 0, 3]), 0), case("repeat_interleave", np.array([2, 0, 3])),
    case("tile", real(3, 4), (2, 1, 2)), case("broadcast_to", real(3, 1), (2, 3, 4)), case("hstack", [real(3, 2), real(3, 4)]), case("hstack", [real(2), real(4)]),
    case("vstack", [real(4), real(2, 4)]), case("dstack", [real(3, 2), real(3, 2)]), case("column_stack", [real(3), real(3, 2)]),
    case("meshgrid", real(3), real(4), indexing="xy"), case("meshgrid", real(2), real(3), real(4), indexing="ij"), case("block_diag", real(2, 3), real(2), real(1, 1)),
    case("tensor_split", real(7, 2), 3), case("tensor_split", real(7, 2), (2, 5)), case("hsplit", real(3, 4), 2), case("vsplit", real(4, 2), (1, 3)),
    case("dsplit", real(2, 2, 4), 2), case("cartesian_prod", real(3), real(2)), case("combinations", real(4), 2), case("combinations", real(3), 3, True),
    case("tril", real(3, 5), 1), case("triu", real(2, 4, 3), -1), case("tril", mask(3, 3)), case("tril_indices", 3, 5, 1), case("triu_indices", 4, 3, -1),
    case("diagonal", real(3, 4, 5), 1, 0, 2), case("diagonal", real(3, 4), -1), case("diag", real(3), 1), case("diag", real(3, 4), -1), case("diagflat", real(2, 2), -1),
    case("diag_embed", real(2, 3), 1, 0, 2), case("diagonal_scatter", real(3, 3), real(2), 1), case("select_scatter", real(3, 4), real(3), 1, 2),
    case("slice_scatter", real(5, 4), real(2, 4), 0, 1, 5, 2), case("vander", real(4), 3, fixed=True), case("unravel_index", ints(24, 5), (2, 3, 4)),
    case("atleast_3d", real(4)), case("unflatten", real(3, 8), 1, (2, 4)), case("moveaxis", real(2, 3, 4), 0, 2), case("ravel", real(2, 3)),
]

ORDER = [
    case("argsort", apart(3, 5), 0, True), case("msort", apart(4, 3)), case("kthvalue", apart(3, 6), 2), case("kthvalue", apart(3, 6), 4, 0 - 1, True),
    case("median", apart(3, 6)), case("median", apart(3, 6), 1), case("median", np.array([[1.0, np.nan, 3.0], [5.0, 4.0, 6.0]]), 1, True),
    case("nanmedian", np.array([[1.0, np.nan, 3.0], [5.0, 4.0, np.nan]]), 1, fixed=True), case("nanmedian", apart(3, 4)),
    case("mode", np.array([[3, 1, 3, 2], [4, 4, 1, 1]]), 1, fixed=True), case("quantile", apart(3, 6), 0.3, 1), case("quantile", apart(3, 6), np.array([0.1, 0.5, 1.0]), 0, True),
    *[case("quantile", apart(7), 0.37, interpolation=i) for i in ("linear", "lower", "higher", "nearest", "midpoint")],
    case("nanquantile", np.array([[1.0, np.nan, 3.0], [5.0, 4.0, 7.0]]), 0.4, 1, fixed=True), case("aminmax", apart(3, 4), dim=1), case("count_nonzero", mask(3, 4), 1),
    case("searchsorted", np.array([1.0, 3.0, 3.0, 7.0]), np.array([[0.0, 3.0], [7.0, 9.0]])), case("searchsorted", np.sort(real(2, 5)), real(2, 3), right=True),
    case("searchsorted", np.array([1.0, 3.0, 3.0]), 3.0, side="right", out_int32=True), case("bucketize", real(3, 2), np.array([-0.5, 0.0, 0.6])),
    case("bincount", ints(6, 20), minlength=8), case("bincount", ints(4, 9), real(9), fixed=True), case("histc", real(50), 7), case("histc", real(50), 5, -1.0, 1.5),
    case("histc", np.array([1.0, 2.0, 1.0]), 4, 5.0, 5.0), case("histc", np.zeros(4), 4, 1.0, 1.0),
    case("unique", ints(5, 3, 4), return_inverse=True, return_counts=True), case("unique", ints(2, 6, 2), return_inverse=True, return_counts=True, dim=0),
    case("unique", ints(2, 2, 6), dim=1), case("unique_consecutive", np.array([1, 1, 2, 2, 2, 1]), return_inverse=True, return_counts=True),
    case("argwhere", mask(3, 4)), case("isin", ints(5, 3, 4), np.array([1, 3])), case("isin", ints(5, 6), np.array([2]), invert=True),
]

REDUCE = [
    case("nansum", np.array([[1.0, np.nan], [2.0, 3.0]]), 1), case("nanmean", np.array([[1.0, np.nan], [2.0, 3.0]]), 1), case("var_mean", real(3, 4), 1),
    case("std_mean", real(3, 4), [0, 1], correction=0), case("trace", real(3, 4)), case("diff", real(3, 5), 2), case("diff", real(3, 5), dim=0, prepend=real(1, 5)),
    case("trapezoid", real(3, 5)), case("trapezoid", real(3, 5), np.sort(real(5))), case("cumulative_trapezoid", real(3, 5), dx=0.5, dim=0),
    case("cov", real(3, 6)), case("cov", real(3, 6), correction=0, aweights=np.abs(real(6)) + 0.1), case("cov", real(3, 6), fweights=ints(3, 6) + 1), case("corrcoef", real(3, 6)),
    case("deg2rad", real(3)), case("rad2deg", real(3)), case("sinc", np.append(real(3), 0.0)), case("ldexp", real(3), ints(4, 3)), case("float_power", np.abs(real(3)), 2.5),
    case("nan_to_num", np.array([np.nan, np.inf, -np.inf, 1.0]), 5.0), case("isposinf", np.array([np.inf, -np.inf, 1.0])), case("rsub", real(3), real(3), alpha=2),
]

SCATTER = [
    case("scatter", real(3, 5), 1, np.array([[0, 2], [1, 4], [3, 0]]), real(3, 2)), case("scatter", real(3, 5), 0, np.array([[0, 2, 1, 1, 0]]), 2.5),
    *[case("scatter_reduce", apart(3, 5), 1, ints(5, 3, 6), apart(3, 6) + 0.13, r, include_self=s) for r in ("sum", "prod", "mean", "amax", "amin") for s in (True, False)],
    case("scatter_reduce", ints(9, 4), 0, ints(4, 7), ints(9, 7), "amax"),
    *[case("scatter_reduce", ints(9, 4), 0, ints(4, 7), ints(9, 7), r, include_self=False) for r in ("max", "min")],
    case("index_copy", real(3, 5), 1, np.array([4, 0]), real(3, 2)), case("index_fill", real(3, 5), 0, np.array([2, 0]), 1.5),
    *[case("index_reduce", apart(3, 5), 0, np.array([2, 0, 2]), apart(3, 5) + 0.13, r, fixed=True) for r in ("prod", "mean", "amax", "amin")],
    case("masked_scatter", real(3, 4), mask(3, 4), real(12)), case("take", real(3, 4), ints(12, 5)), case("take_along_dim", real(3, 4), ints(4, 3, 2), 1),
    case("Tensor.put", real(3, 4), np.array([1, 5]), real(2), fixed=True),
]

PRODUCTS = [
    case("einsum", "bij,bjk->bik", real(2, 3, 4), real(2, 4, 5)), case("einsum", "ij,jk,kl->il", real(2, 3), real(3, 4), real(4, 2)), case("einsum", "ii->i", real(3, 3)),
    case("einsum", "ii", real(3, 3)), case("einsum", "...ij,...jk", real(2, 3, 4), real(4, 5)), case("einsum", "i,j", real(3), real(4)), case("einsum", "bhqd,bhkd->bhqk", real(2, 2, 3, 4), real(2, 2, 5, 4)),
    case("einsum", "ij->", real(3, 4)), case("einsum", "ij->ji", real(3, 4)), case("einsum", "bn,anm,bm->ba", real(2, 3), real(4, 3, 5), real(2, 5)), case("einsum", "b...,b->b...", real(2, 3, 4), real(2)),
    case("tensordot", real(3, 4, 5), real(4, 5, 2)), case("tensordot", real(3, 4, 5), real(5, 3, 2), ([0, 2], [1, 0])), case("tensordot", real(3), real(2), 0),
    case("kron", real(2, 3), real(3, 2)), case("ger", real(3), real(4)), case("chain_matmul", real(2, 5), real(5, 3), real(3, 4)),
]

def solid(*shape):
    return R.uniform(-0.5, 0.5, (*shape, shape[-1])) + 2 * np.eye(shape[-1])


def spd(*shape):
    x = solid(*shape)
    return x @ np.swapaxes(x, -1, -2)


L = "linalg."
LINALG = [
    case(L + "solve", solid(2, 3), real(2, 3, 2)), case(L + "solve", solid(3), real(3)), case(L + "solve", solid(2, 3), real(2, 3)), case(L + "solve", solid(2, 3), real(4, 3), left=False),
    case(L + "inv", solid(2, 3)), case("inverse", solid(3)), case(L + "det", solid(2, 3)), case("det", -solid(3)), case(L + "slogdet", -solid(3)), case("logdet", solid(2, 3)),
    case(L + "cholesky", spd(2, 3)), case(L + "cholesky", spd(3), upper=True), case(L + "solve_triangular", solid(3), real(3, 2), upper=True),
    case(L + "solve_triangular", solid(3), real(3, 2), upper=False, unitriangular=True), case(L + "qr", real(4, 3)), case(L + "qr", real(4, 3), "r", fixed=True), case(L + "qr", real(2, 3, 4), fixed=True),
    case(L + "eigvalsh", spd(2, 3)), case(L + "svdvals", real(4, 3)), case(L + "svdvals", real(2, 3, 4)), case(L + "pinv", real(4, 3)), case(L + "pinv", real(2, 3, 4)),
    case(L + "matrix_rank", np.outer(real(4), real(3))), case(L + "cond", solid(3)), case(L + "cond", solid(3), 1, fixed=True), case(L + "matrix_power", solid(3), 5), case(L + "matrix_power", solid(3), -2),
    case(L + "matrix_power", solid(3), 0, fixed=True), case(L + "matrix_exp", solid(2, 3)), case(L + "multi_dot", [real(2, 5), real(5, 3), real(3, 4)]), case(L + "cross", real(4, 3), real(4, 3)),
    *[case(L + "matrix_norm", real(2, 3, 4), o, keepdim=k) for o in ("fro", "nuc", 1, -1, 2, -2, math.inf, -math.inf) for k in (False, True)], case(L + "matrix_norm", real(3, 2, 4), "nuc", (0, 2)),
    case(L + "norm", real(3, 4)), case(L + "norm", real(3, 4), 1), case(L + "norm", real(5), 3), case(L + "norm", real(2, 3, 4), "nuc", (0, 1)), case(L + "vector_norm", real(3, 4), 3, 1),
    case("norm", real(3, 4)), case("norm", real(3, 4), "nuc"), case("norm", real(3, 4), 1, 0, True), case("frobenius_norm", real(2, 3, 4), [1, 2]), case("nuclear_norm", real(3, 4)),
    case(L + "vander", real(4), N=3, fixed=True), case(L + "tensorinv", real(4, 6, 8, 3)), case(L + "tensorsolve", real(2, 3, 6), real(2, 3)), case(L + "diagonal", real(2, 3, 4), offset=1),
    case(L + "lstsq", real(5, 3), real(5, 2), fixed=True, driver="gelsd"),
]

CASES = LINALG + WINDOWS + ACTIVATIONS + ARRANGE + ORDER + REDUCE + SCATTER + PRODUCTS


def find(module, path):
    for name in path.split("."):
        module = getattr(module, name)
    return module


def convert(value, tensor):
    if isinstance(value, np.ndarray):
        return tensor(value)
    return [convert(v, tensor) for v in value] if isinstance(value, list) and value and isinstance(value[0], np.ndarray) else value


def given(args, kwargs, tensor):
    return [convert(a, tensor) for a in args], {k: convert(v, tensor) for k, v in kwargs.items()}


def leaves(value):
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        return [t for v in value for t in leaves(v)]
    return [value] if getattr(value, "requires_grad", False) else []


def outputs(value):
    return list(value) if isinstance(value, (tuple, list)) else [value]


def mine(a):
    t = ampc.tensor(a)
    return t.requires_grad_() if t.is_floating_point() else t


@pytest.mark.parametrize(("path", "args", "kwargs"), [(p, a, k) for p, a, k, _ in (c.values for c in CASES)
                                                         if "out" in getattr(inspect.signature(find(ampc, p)), "parameters", ())],
                         ids=lambda v: v if isinstance(v, str) else "")
def test_writes_into_out(path, args, kwargs):
    """An `out` of another shape takes the result's, with a warning where it had elements; one of that shape is written where it lies."""
    f = find(ampc, path)
    args, kwargs = given(args, kwargs, ampc.tensor)
    want = outputs(f(*args, **kwargs))
    for room in ([w.new_empty(0) for w in want], [ampc.zeros_like(w).contiguous() for w in want]):
        got = f(*args, **kwargs, out=room[0] if len(room) == 1 else tuple(room))
        assert all(g is r and g.allclose(w, equal_nan=True) for g, r, w in zip(outputs(got), room, want))
    other = [w.new_empty([*w.shape, 2]) for w in want]
    with pytest.warns(UserWarning, match="resized"):
        got = f(*args, **kwargs, out=other[0] if len(other) == 1 else tuple(other))
    assert all(g is o and g.shape == w.shape and g.allclose(w, equal_nan=True) for g, o, w in zip(outputs(got), other, want))
    if len(want) > 1:
        with pytest.raises(TypeError, match=f"tuple of {len(want)}"):
            f(*args, **kwargs, out=want[0])


@pytest.mark.parametrize(("path", "args", "kwargs", "differentiates"), CASES)
def test_equals_torch(torch, path, args, kwargs, differentiates):
    def theirs(a):
        t = torch.tensor(a)
        return t.requires_grad_() if t.is_floating_point() else t

    ours, their = given(args, kwargs, mine), given(args, kwargs, theirs)
    got, want = find(ampc, path)(*ours[0], **ours[1]), find(torch, path)(*their[0], **their[1])
    assert len(outputs(got)) == len(outputs(want))
    total, expected = 0, 0
    for g, w in zip(outputs(got), outputs(want)):
        assert str(g.dtype).split(".")[1] == str(w.dtype).split(".")[1] and tuple(g.shape) == tuple(w.shape)
        if not w.numel():
            continue
        if not w.is_floating_point():
            assert np.array_equal(g.numpy(force=True), w.numpy(force=True))
            continue
        tol = 1e-12 if w.dtype == torch.float64 else 1e-5
        np.testing.assert_allclose(g.numpy(force=True), w.numpy(force=True), rtol=tol, atol=tol * max(1.0, float(w.detach().abs().nan_to_num().max())))
        if w.requires_grad:
            weight = np.linspace(0.5, 1.5, w.numel()).reshape(tuple(w.shape))
            total = total + (g * ampc.tensor(weight)).sum()
            expected = expected + (w * torch.tensor(weight)).sum()
    if not differentiates or isinstance(total, int) or not math.isfinite(float(expected)):
        return
    total.backward()
    expected.backward()
    for a, b in zip(leaves(ours), leaves(their)):
        there = torch.zeros_like(b) if b.grad is None else b.grad
        here = np.zeros(tuple(a.shape)) if a.grad is None else a.grad.numpy(force=True)
        np.testing.assert_allclose(here, there.numpy(force=True), rtol=1e-9, atol=1e-9 * max(1.0, float(there.abs().max()) if there.numel() else 1.0))


LOW, WIDE = "low", "float32"
NOT_CONTRACTED = ("ii->i", "ii", "i,j", "ij->", "ij->ji", "b...,b->b...")  # test_corners.py has these
POLICY = [(case, LOW) for case in WINDOWS if "conv" in case.id] + [
    (case, LOW) for case in PRODUCTS if case.id == "chain_matmul" or (case.id == "einsum" and case.values[1][0] not in NOT_CONTRACTED)]
POLICY += [(case, WIDE) for case in WINDOWS if case.id.split(".")[-1] in ("interpolate", "group_norm", "rms_norm")]


@pytest.mark.parametrize("dtype", [ampc.float16, ampc.bfloat16], ids=str)
@pytest.mark.parametrize(("case", "policy"), POLICY, ids=[c.id for c, _ in POLICY])
def test_autocast(case, policy, dtype):
    """From float32 and from 16 bits alike."""
    _, args, kwargs, _ = case.values
    for start in (ampc.float32, dtype):
        ours = given(args, kwargs, lambda a, start=start: ampc.tensor(a).to(start) if a.dtype.kind == "f" else ampc.tensor(a))
        with ampc.autocast(DEVICE, dtype=dtype):
            got = find(ampc, case.values[0])(*ours[0], **ours[1])
        assert got.dtype == (dtype if policy == LOW else ampc.float32)


def test_factors_multiply_back():
    for shape in ((5, 3), (3, 5), (2, 4, 4)):
        A = ampc.tensor(real(*shape))
        for full in (False, True):
            U, S, Vh = ampc.linalg.svd(A, full)
            k = S.shape[-1]
            assert ((U[..., :k] * S.unsqueeze(-2)) @ Vh[..., :k, :] - A).abs().max().item() < 1e-12
            for Q in (U, Vh.transpose(-2, -1)):
                assert (Q.transpose(-2, -1) @ Q - ampc.eye(Q.shape[-1], dtype=Q.dtype)).abs().max().item() < 1e-12
        for mode in ("reduced", "complete"):
            Q, Rr = ampc.linalg.qr(A, mode)
            assert (Q @ Rr - A).abs().max().item() < 1e-12
    w, V = ampc.linalg.eigh(ampc.tensor(spd(2, 4)))
    assert (w[..., 1:] >= w[..., :-1]).all()


def test_matrices_that_have_not_what_is_asked():
    error = ampc.linalg.LinAlgError
    for call in (lambda: ampc.linalg.inv(ampc.ones(3, 3)), lambda: ampc.linalg.cholesky(-ampc.eye(3)), lambda: ampc.linalg.eigh(ampc.full((2, 2), math.nan))):
        with pytest.raises(error):
            call()
    assert issubclass(error, RuntimeError) and ampc.linalg.slogdet(ampc.ones(3, 3))[1].item() == -math.inf
    with pytest.raises(RuntimeError, match="square"):
        ampc.linalg.inv(ampc.ones(2, 3))
    with pytest.raises(RuntimeError, match="float32 or float64"):
        ampc.linalg.inv(ampc.ones(2, 2, dtype=ampc.float16))


def test_one_matrix_of_a_batch_that_cannot_be_factorised(torch):
    """The others have their results and gradients; info says which, and how far LAPACK came."""
    A = solid(2, 3, 3)
    A[0, 1] = [[2, 0, 1], [0, 0, 0], [1, 0, 2]]
    B, P = real(2, 3, 3, 2), spd(2, 3, 3)
    P[1, 0] = [[1, 2, 3], [2, 1, 6], [3, 6, 1]]
    calls = ((lambda lib, a: lib.linalg.inv_ex(a), A), (lambda lib, a: lib.linalg.solve_ex(a, lib.tensor(B)), A),
             (lambda lib, a: lib.linalg.solve_ex(a, lib.tensor(B.swapaxes(-2, -1).copy()), left=False), A),
             (lambda lib, a: lib.linalg.cholesky_ex(a), P), (lambda lib, a: lib.linalg.cholesky_ex(a, upper=True), P))
    for call, matrices in calls:
        x, y = ampc.tensor(matrices, requires_grad=True), torch.tensor(matrices, requires_grad=True)
        (mine, info), (theirs, codes) = call(ampc, x), call(torch, y)
        assert info.dtype is ampc.int32 and info.numpy(force=True).tolist() == codes.tolist() and (info != 0).sum() == 1
        good = codes.numpy(force=True) == 0
        np.testing.assert_allclose(mine.detach().numpy(force=True)[good], theirs.detach().numpy(force=True)[good], atol=1e-12)
        assert np.isnan(mine.detach().numpy(force=True)[~good]).any()
        mine.nansum().backward()
        theirs.nansum().backward()
        np.testing.assert_allclose(x.grad.numpy(force=True)[good], y.grad.numpy(force=True)[good], atol=1e-12)
    for call in (lambda: ampc.linalg.inv_ex(ampc.tensor(A), check_errors=True), lambda: ampc.linalg.solve(ampc.tensor(A), ampc.tensor(B)),
                 lambda: ampc.linalg.cholesky_ex(ampc.tensor(P), check_errors=True), lambda: ampc.linalg.cholesky(ampc.full((2, 2), math.nan))):
        with pytest.raises(ampc.linalg.LinAlgError, match="matrix [013]"):
            call()
    assert ampc.linalg.solve_ex(ampc.zeros(2, 2), ampc.ones(4, 2, 1)).info.tolist() == torch.linalg.solve_ex(torch.zeros(2, 2), torch.ones(4, 2, 1)).info.tolist()


def test_matrices_whose_working_memory_lapack_cannot_count_are_refused():
    """It counts in 32 bits; nothing of the operand's size is touched before."""
    with pytest.raises(RuntimeError, match="more working memory than LAPACK can count"):
        ampc.linalg.eigh(ampc.zeros(1, 1, device="cpu").expand(32768, 32768))


def test_random_choices():
    ampc.manual_seed(3)
    p = ampc.tensor([0.1, 0.0, 0.6, 0.3])
    drawn = ampc.multinomial(p, 4000, True)
    share = ampc.bincount(drawn, minlength=4).double() / 4000
    assert share[1] == 0 and (share - p.double()).abs().max().item() < 0.04
    assert sorted(ampc.multinomial(p, 3).tolist()) == [0, 2, 3]
    few = ampc.multinomial(p.expand(2000, 4), 1).reshape(-1)
    assert abs((few == 2).double().mean().item() - 0.6) < 0.05
    assert abs(ampc.bernoulli(ampc.full((4000,), 0.3)).mean().item() - 0.3) < 0.04
    x = ampc.normal(ampc.tensor([0.0, 10.0]).expand(2000, 2), ampc.tensor([1.0, 2.0]))
    assert abs(x[:, 1].mean().item() - 10) < 0.3 and abs(x[:, 0].std().item() - 1) < 0.1
    assert abs(ampc.empty(4000).exponential_(2.0).mean().item() - 0.5) < 0.05
    for bad in (lambda: ampc.multinomial(ampc.tensor([0.0, 0.0]), 1), lambda: ampc.multinomial(p, 5), lambda: ampc.bernoulli(ampc.tensor([1.5], device="cpu"))):
        with pytest.raises(RuntimeError):
            bad()


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
def test_multinomial_takes_and_refuses_what_torch_does(dtype):
    torch = pytest.importorskip("torch")
    rows = ([0.0, 0.0], [1.0, -1.0], [math.nan, 1.0], [math.inf, 1.0], [1.0, 0.0], [[1.0, 2.0], [0.0, 0.0]], [[1.0, 2.0], [3.0, 0.0]])
    for weights in rows:
        for times, again in ((1, False), (1, True), (2, False), (3, True), (3, False), (0, False)):
            told = []
            for lib in (torch, ampc):
                try:
                    told.append(tuple(lib.multinomial(lib.tensor(weights, dtype=getattr(lib, dtype)), times, again).shape))
                except Exception as e:
                    told.append(type(e).__name__)
            assert told[0] == told[1], (weights, times, again, told)


def test_one_draw_of_many_values_follows_the_weights():
    """As many draws as there are rows, at any number of threads the same; values that weigh nothing are never drawn."""
    weights, found, before = ampc.arange(1000).remainder(4).float(), [], ampc.get_num_threads()
    try:
        for threads in (1, 2):
            ampc.set_num_threads(threads)
            ampc.manual_seed(5)
            found.append(ampc.multinomial(weights.expand(6000, 1000), 1).reshape(-1))
    finally:
        ampc.set_num_threads(before)
    assert found[0].tolist() == found[1].tolist()
    share = ampc.bincount(found[0].remainder(4), minlength=4).double() / 6000
    assert share[0] == 0 and (share * 6 - ampc.arange(4)).abs().max().item() < 0.3
    assert abs(found[0].double().mean().item() - 500) < 20


def test_half_results_round_once():
    """Two units of the float32-computed result, for what is put together of several operators too."""
    for dtype in (ampc.float16, ampc.bfloat16):
        for f, shape in [(lambda x: ampc.nn.functional.group_norm(x, 2), (2, 4, 5)), (lambda x: ampc.nn.functional.rms_norm(x, [5], eps=1e-5), (2, 4, 5)),
                         (lambda x: ampc.nn.functional.interpolate(x, scale_factor=1.5, mode="bilinear"), (1, 2, 4, 5)),
                         (lambda x: ampc.nn.functional.normalize(x), (4, 5)), (lambda x: ampc.nn.functional.smooth_l1_loss(x, x * 0.5), (4, 5)),
                         (lambda x: ampc.nn.functional.avg_pool2d(x, 2), (2, 4, 6))]:
            x = ampc.tensor(real(*shape)).to(dtype)
            got, want = f(x), f(x.float())
            assert got.dtype == dtype
            assert (got.float() - want).abs().max().item() <= 2 * ampc.finfo(dtype).eps * max(1.0, want.abs().max().item())


@pytest.mark.parametrize(("call", "error", "text"), [
    (lambda F: F.conv2d(ampc.ones(1, 3, 4, 4), ampc.ones(2, 2, 3, 3)), RuntimeError, "weight"),
    (lambda F: F.conv2d(ampc.ones(1, 3, 2, 2), ampc.ones(2, 3, 3, 3)), RuntimeError, "larger than"),
    (lambda F: F.conv2d(ampc.ones(1, 3, 4, 4), ampc.ones(2, 3, 3, 3), stride=0), RuntimeError, "stride"),
    (lambda F: F.conv2d(ampc.ones(1, 3, 4, 4), ampc.ones(2, 3, 3, 3), stride=2, padding="same"), RuntimeError, "stride 1"),
    (lambda F: F.max_pool2d(ampc.ones(1, 4, 4), 2, padding=2), RuntimeError, "half"),
    (lambda F: F.avg_pool1d(ampc.ones(1, 2, 4), 5), RuntimeError, "larger than"),
    (lambda F: F.interpolate(ampc.ones(1, 2, 4), mode="bilinear", size=3), NotImplementedError, "dimensions"),
    (lambda F: F.interpolate(ampc.ones(1, 2, 4)), ValueError, "size"),
    (lambda F: F.pad(ampc.ones(1, 2, 3), (4, 0), mode="reflect"), RuntimeError, "reflect"),
    (lambda F: ampc.einsum("ij,jk", ampc.ones(2, 3), ampc.ones(4, 2)), RuntimeError, "label 'j'"),
    (lambda F: ampc.einsum("ij->k", ampc.ones(2, 3)), RuntimeError, "labels"),
    (lambda F: ampc.scatter(ampc.ones(3), 0, ampc.tensor([0]), ampc.ones(1, dtype=ampc.float64)), RuntimeError, "src"),
    (lambda F: ampc.quantile(ampc.ones(3), 1.5), RuntimeError, "0, 1"),
    (lambda F: F.group_norm(ampc.ones(1, 5, 2), 2), RuntimeError, "groups"),
])
def test_bad_input(call, error, text):
    with pytest.raises(error, match=text):
        call(ampc.nn.functional)


@pytest.mark.parametrize("reduce, includes", [(r, s) for r in ("prod", "amax", "amin") for s in (True, False)])
def test_many_may_meet_in_one_place(reduce, includes):
    """Each place's own loop says what scatter_reduce makes of it; those that tie share the gradient."""
    rng = np.random.default_rng(0)
    own, values, at = rng.integers(-2, 3, 6).astype(float), rng.integers(-2, 3, 40).astype(float), rng.choice([0, 1, 1, 1, 3, 5], 40)
    x, v = ampc.tensor(own, requires_grad=True), ampc.tensor(values, requires_grad=True)
    y = x.scatter_reduce(0, ampc.tensor(at), v, reduce, include_self=includes)
    y.sum().backward()
    for place in range(6):
        there = np.flatnonzero(at == place)
        every = np.concatenate([own[place:place + 1] if includes or not len(there) else [], values[there]])
        want = {"prod": np.prod, "amax": np.max, "amin": np.min}[reduce](every)
        assert y[place].item() == want
        share = np.array([np.prod(np.delete(every, i)) for i in range(len(every))]) if reduce == "prod" else (every == want) / (every == want).sum()
        got = [g.item() for g in ([x.grad[place]] if includes or not len(there) else []) + [v.grad[int(i)] for i in there]]
        assert np.allclose(got, share, rtol=1e-12, atol=0)
    assert includes or all(x.grad[int(i)] == 0 for i in set(at))


def test_a_crowded_place_takes_no_room_for_the_others():
    x, at = ampc.zeros(50_000), ampc.zeros(200_000, dtype=ampc.int64)
    values = ampc.randn(200_000)
    assert x.scatter_reduce(0, at, values, "amax")[0] == values.max()
    with pytest.raises(IndexError, match="0 to 49999"):
        x.scatter_reduce(0, at - 1, values, "amax")


def test_membership_and_repeats_of_many():
    x = ampc.arange(300_000)
    assert ampc.isin(x, x[::3]).sum() == 100_000
    assert x.repeat_interleave((x % 3 == 0).long()).equal(x[::3])
    assert not ampc.isin(ampc.tensor([math.nan, 1.0]), ampc.tensor([math.nan])).any()
    assert ampc.tril_indices(2000, 2000).shape == (2, 2000 * 2001 // 2)


@pytest.mark.parametrize("sides", [(-1, 2), (3, -2), (-3, -3), (6, 6), (-2, 4, 1, -1)], ids=str)
def test_circular_padding_that_cuts_repeats_what_is_left(torch, sides):
    shape = (1, 2, 6) if len(sides) == 2 else (1, 2, 3, 6)
    x = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    want = torch.nn.functional.pad(torch.from_numpy(x), sides, mode="circular").numpy()
    assert np.array_equal(ampc.nn.functional.pad(ampc.tensor(x), sides, mode="circular").numpy(force=True), want)


def test_circular_padding_repeats_no_more_than_is_left():
    with pytest.raises(RuntimeError, match="circular padding of 6 is more than the 5 values that it repeats"):
        ampc.nn.functional.pad(ampc.zeros(1, 1, 6), (-1, 6), mode="circular")


@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16", "float16"])
def test_rms_norm_adds_the_spacing_of_the_dtype_it_computes_in(torch, dtype):
    got, want = (m.nn.functional.rms_norm(m.full((2, 8), 0.05, dtype=getattr(m, dtype)), (8,)) for m in (ampc, torch))
    assert got.double().tolist() == want.double().tolist()


@pytest.mark.parametrize("name", ["max", "min"])
@pytest.mark.parametrize("other", [0, 1, 7])
def test_an_integer_tensor_without_dimensions_is_another_operand(torch, name, other):
    x = [[1, 5], [3, 2]]
    want = getattr(torch, name)(torch.tensor(x), torch.tensor(other)).tolist()
    assert getattr(ampc, name)(ampc.tensor(x), ampc.tensor(other)).tolist() == want
    assert getattr(ampc.tensor(x), name)(ampc.tensor(other)).tolist() == want


def test_index_fill_of_a_number_by_nothing():
    assert ampc.tensor(3.0).index_fill(0, ampc.tensor([], dtype=ampc.int64), 1.0).item() == 3
