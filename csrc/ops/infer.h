// clang-format off
/* Shape and dtype rules, one for each family of operators. They also check the operands. */
#ifndef AC_OPS_INFER_H
#define AC_OPS_INFER_H

#include "ops/op.h"

#define INFER_RULES(RULE)                                                                          \
    RULE(pointwise) RULE(same) RULE(cast) RULE(full) RULE(full_like_attrs) RULE(arange)            \
    RULE(randperm) RULE(scatter) RULE(reduce_sum) RULE(reduce_float) RULE(reduce_float_dim)        \
    RULE(reduce_var) RULE(reduce_same) RULE(reduce_pair) RULE(reduce_index) RULE(reduce_bool)      \
    RULE(reduce_norm) RULE(softmax) RULE(softmax_backward) RULE(loss_pair) RULE(nll_loss) RULE(nll_loss_backward)         \
    RULE(mm) RULE(bmm) RULE(linear) RULE(cat) RULE(gather) RULE(index_select) RULE(index)          \
    RULE(index_put) RULE(nonzero) RULE(embedding) RULE(embedding_backward) RULE(topk) RULE(sort)   \
    RULE(layer_norm) RULE(layer_norm_backward) RULE(batch_norm) RULE(batch_norm_backward) RULE(group_norm) RULE(group_norm_backward) \
    RULE(convolution) RULE(convolution_weight) RULE(im2col) RULE(col2im) RULE(max_pool) RULE(resample) \
    RULE(fused_attention) RULE(fused_attention_backward) RULE(recurrence) RULE(recurrence_backward) RULE(solve) RULE(slogdet) RULE(square) RULE(qr) RULE(eigh) RULE(svd) \
    RULE(scan) RULE(scan_real) RULE(linear_scan) RULE(scan_pair) RULE(flip)

#define RULE(name) int ac_infer_##name(ac_infer *i) AC_CHECKED;
INFER_RULES(RULE)
#undef RULE

/* Shared by rules in several files. */
int ac_need_floating(const ac_infer *i, int input) AC_CHECKED;
int ac_need_integer(const ac_infer *i, int input) AC_CHECKED;
int ac_need_ndim(const ac_infer *i, int input, int ndim) AC_CHECKED;
int ac_need_same_dtype(const ac_infer *i, int a, int b) AC_CHECKED;
int ac_need_shape(const ac_infer *i, int input, const ac_dims *shape) AC_CHECKED;
/* The name of tensor parameter `input` in the signature. */
const char *ac_input_name(const ac_infer *i, int input);

#endif
