// clang-format off
/* The list of all backward formulas, each declared once. */
#ifndef AC_AUTOGRAD_FORMULA_LIST_H
#define AC_AUTOGRAD_FORMULA_LIST_H

#include "autograd/formula.h"

#define FORMULAS(ROW)                                                                              \
    ROW(zero) ROW(neg) ROW(abs) ROW(square) ROW(exp) ROW(log) ROW(sqrt) ROW(rsqrt) ROW(reciprocal) \
    ROW(sin) ROW(cos) ROW(erf) ROW(tanh) ROW(sigmoid) ROW(relu) ROW(silu) ROW(softplus) ROW(gelu) \
    ROW(clamp) ROW(add) ROW(sub) ROW(mul) ROW(div) ROW(remainder) ROW(pow) ROW(maximum)            \
    ROW(minimum) ROW(masked_fill) ROW(where) ROW(addcmul) ROW(addcdiv) ROW(lerp) ROW(cast)         \
    ROW(clone) ROW(as_strided_scatter) ROW(sum) ROW(mean) ROW(prod) ROW(var) ROW(std)              \
    ROW(extremum) ROW(pick_dim) ROW(norm) ROW(logsumexp) ROW(softmax) ROW(log_softmax)             \
    ROW(mse_loss) ROW(nll_loss) ROW(nll_loss_backward) ROW(mm) ROW(bmm) ROW(linear) ROW(cat)       \
    ROW(gather) ROW(scatter_add) ROW(index_select) ROW(index_add) ROW(index) ROW(index_put)        \
    ROW(embedding) ROW(embedding_backward) ROW(pick_many) ROW(layer_norm) ROW(batch_norm) ROW(group_norm)          \
    ROW(dropout_mask) ROW(alias) ROW(view) ROW(expand) ROW(permute) ROW(transpose) ROW(select)     \
    ROW(slice) ROW(split) ROW(as_strided) ROW(to_device)                                                      \
    ROW(tan) ROW(asin) ROW(acos) ROW(atan) ROW(sinh) ROW(cosh) ROW(asinh) ROW(acosh) ROW(atanh)    \
    ROW(exp2) ROW(expm1) ROW(log1p) ROW(log2) ROW(log10) ROW(erfc) ROW(erfinv) ROW(mish)           \
    ROW(softsign) ROW(hardswish) ROW(hardsigmoid) ROW(logsigmoid) ROW(elu) ROW(leaky_relu)         \
    ROW(hardtanh) ROW(hardshrink) ROW(threshold) ROW(nan_to_num) ROW(fmax) ROW(fmin) ROW(fmod)     \
    ROW(atan2) ROW(hypot) ROW(copysign) ROW(logaddexp) ROW(logaddexp2) ROW(xlogy)   \
    ROW(cumsum) ROW(cumprod) ROW(logcumsumexp) ROW(linear_scan) ROW(flip)   \
    ROW(convolution) ROW(convolution_weight) ROW(im2col) ROW(col2im) ROW(max_pool) ROW(resample) \
    ROW(diagonal) ROW(unfold) ROW(fused_attention) ROW(recurrence) \
    ROW(solve) ROW(slogdet) ROW(cholesky) ROW(qr) ROW(eigh) ROW(svd)

#define ROW(name) FORMULA(name);
FORMULAS(ROW)
#undef ROW

#endif
