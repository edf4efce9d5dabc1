// clang-format off
/* Every formula, declared once. */
#ifndef AC_AUTOGRAD_FORMULA_LIST_H
#define AC_AUTOGRAD_FORMULA_LIST_H

#include "formula.h"

#define FORMULAS(ROW)                                                                              \
    ROW(zero) ROW(neg) ROW(abs) ROW(square) ROW(exp) ROW(log) ROW(sqrt) ROW(rsqrt) ROW(reciprocal) \
    ROW(sin) ROW(cos) ROW(erf) ROW(tanh) ROW(sigmoid) ROW(relu) ROW(silu) ROW(softplus_) ROW(gelu) \
    ROW(clamp) ROW(add) ROW(sub) ROW(mul) ROW(div) ROW(remainder) ROW(pow) ROW(maximum)            \
    ROW(minimum) ROW(masked_fill) ROW(where) ROW(addcmul) ROW(addcdiv) ROW(lerp) ROW(cast)         \
    ROW(clone) ROW(as_strided_scatter) ROW(sum) ROW(mean) ROW(prod) ROW(var) ROW(std)              \
    ROW(extremum) ROW(pick_dim) ROW(norm) ROW(logsumexp) ROW(softmax) ROW(log_softmax)             \
    ROW(mse_loss) ROW(nll_loss) ROW(nll_loss_backward) ROW(mm) ROW(bmm) ROW(linear) ROW(cat)       \
    ROW(gather) ROW(scatter_add) ROW(index_select) ROW(index_add) ROW(index) ROW(index_put)        \
    ROW(embedding) ROW(embedding_backward) ROW(pick_many) ROW(layer_norm) ROW(batch_norm)          \
    ROW(dropout_mask) ROW(alias) ROW(view) ROW(expand) ROW(permute) ROW(transpose) ROW(select)     \
    ROW(slice) ROW(as_strided) ROW(to_device)

#define ROW(name) FORMULA(name);
FORMULAS(ROW)
#undef ROW

#endif
