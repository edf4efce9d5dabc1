// clang-format off
/* The list of all backward formulas, each declared once. */
#ifndef AC_AUTOGRAD_FORMULA_LIST_H
#define AC_AUTOGRAD_FORMULA_LIST_H

#include "autograd/formula.h"

#define FORMULAS(ENTRY)                                                                              \
    ENTRY(zero) ENTRY(neg) ENTRY(abs) ENTRY(square) ENTRY(exp) ENTRY(log) ENTRY(sqrt) ENTRY(rsqrt) ENTRY(reciprocal) \
    ENTRY(sin) ENTRY(cos) ENTRY(erf) ENTRY(tanh) ENTRY(sigmoid) ENTRY(relu) ENTRY(silu) ENTRY(softplus) ENTRY(gelu) \
    ENTRY(clamp) ENTRY(add) ENTRY(sub) ENTRY(mul) ENTRY(div) ENTRY(remainder) ENTRY(pow) ENTRY(maximum)            \
    ENTRY(minimum) ENTRY(masked_fill) ENTRY(where) ENTRY(addcmul) ENTRY(addcdiv) ENTRY(lerp) ENTRY(cast)         \
    ENTRY(clone) ENTRY(stands_for) ENTRY(as_strided_scatter) ENTRY(sum) ENTRY(mean) ENTRY(prod) ENTRY(var) ENTRY(std)              \
    ENTRY(extremum) ENTRY(pick_dim) ENTRY(norm) ENTRY(logsumexp) ENTRY(softmax) ENTRY(log_softmax)             \
    ENTRY(mse_loss) ENTRY(nll_loss) ENTRY(nll_loss_backward) ENTRY(class_entropy) ENTRY(soft_entropy) ENTRY(mm) ENTRY(bmm) ENTRY(linear) ENTRY(cat)       \
    ENTRY(gather) ENTRY(scatter_add) ENTRY(index_select) ENTRY(index_add) ENTRY(index) ENTRY(index_put)        \
    ENTRY(embedding) ENTRY(embedding_backward) ENTRY(pick_many) ENTRY(layer_norm) ENTRY(batch_norm) ENTRY(group_norm)          \
    ENTRY(dropout_mask) ENTRY(alias) ENTRY(view) ENTRY(expand) ENTRY(permute) ENTRY(transpose) ENTRY(select)     \
    ENTRY(slice) ENTRY(split) ENTRY(as_strided) ENTRY(to_device)                                                      \
    ENTRY(tan) ENTRY(asin) ENTRY(acos) ENTRY(atan) ENTRY(sinh) ENTRY(cosh) ENTRY(asinh) ENTRY(acosh) ENTRY(atanh)    \
    ENTRY(exp2) ENTRY(expm1) ENTRY(log1p) ENTRY(log2) ENTRY(log10) ENTRY(erfc) ENTRY(erfinv) ENTRY(mish)           \
    ENTRY(softsign) ENTRY(hardswish) ENTRY(hardsigmoid) ENTRY(logsigmoid) ENTRY(elu) ENTRY(leaky_relu)         \
    ENTRY(hardtanh) ENTRY(hardshrink) ENTRY(threshold) ENTRY(nan_to_num) ENTRY(fmax) ENTRY(fmin) ENTRY(fmod)     \
    ENTRY(atan2) ENTRY(hypot) ENTRY(copysign) ENTRY(logaddexp) ENTRY(logaddexp2) ENTRY(xlogy)   \
    ENTRY(cumsum) ENTRY(cumprod) ENTRY(logcumsumexp) ENTRY(linear_scan) ENTRY(flip)   \
    ENTRY(convolution) ENTRY(convolution_weight) ENTRY(im2col) ENTRY(col2im) ENTRY(max_pool) ENTRY(resample) \
    ENTRY(avg_pool) ENTRY(avg_pool_backward) \
    ENTRY(diagonal) ENTRY(unfold) ENTRY(fused_attention) ENTRY(flash_attention) ENTRY(recurrence) \
    ENTRY(lgamma) ENTRY(digamma) ENTRY(polygamma) ENTRY(i0) ENTRY(i1) ENTRY(i0e) ENTRY(i1e) ENTRY(bessel_k0) ENTRY(bessel_k1) \
    ENTRY(scaled_k0) ENTRY(scaled_k1) ENTRY(bessel_j0) ENTRY(bessel_j1) ENTRY(bessel_y0) ENTRY(bessel_y1) ENTRY(spherical_bessel_j0) \
    ENTRY(erfcx) ENTRY(ndtr) ENTRY(log_ndtr) ENTRY(ndtri) ENTRY(entr) ENTRY(xlog1py) ENTRY(zeta) ENTRY(igamma) ENTRY(igammac) ENTRY(slope) ENTRY(gamma_of) ENTRY(dirichlet_of) \
    ENTRY(frexp_mantissa) ENTRY(nextafter) \
    ENTRY(solve) ENTRY(det) ENTRY(slogdet) ENTRY(cholesky) ENTRY(qr) ENTRY(eigh) ENTRY(svd) ENTRY(solve_triangle) ENTRY(lu_factor) ENTRY(pinv_of) ENTRY(inverse_of)

#define ENTRY(name) FORMULA(name);
FORMULAS(ENTRY)
#undef ENTRY

#endif
