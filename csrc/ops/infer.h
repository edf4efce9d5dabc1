// clang-format off
/* Shape functions, one for each family of operators. They determine dtypes too, and check the operands. */
#ifndef AC_OPS_INFER_H
#define AC_OPS_INFER_H

#include "ops/op.h"

#define SHAPE_FUNCTIONS(SHAPE)                                                                     \
    SHAPE(pointwise) SHAPE(same) SHAPE(cast) SHAPE(full) SHAPE(full_like_attrs) SHAPE(randint) SHAPE(arange)            \
    SHAPE(randperm) SHAPE(scatter) SHAPE(reduce_sum) SHAPE(reduce_float) SHAPE(reduce_float_dim)        \
    SHAPE(reduce_var) SHAPE(reduce_same) SHAPE(reduce_pair) SHAPE(reduce_index) SHAPE(reduce_bool)      \
    SHAPE(reduce_norm) SHAPE(softmax) SHAPE(softmax_backward) SHAPE(loss_pair) SHAPE(nll_loss) SHAPE(nll_loss_backward)         \
    SHAPE(class_entropy) SHAPE(class_entropy_backward) SHAPE(soft_entropy) SHAPE(soft_entropy_backward) \
    SHAPE(mm) SHAPE(bmm) SHAPE(linear) SHAPE(cat) SHAPE(gather) SHAPE(index_select) SHAPE(index)          \
    SHAPE(index_put) SHAPE(nonzero) SHAPE(embedding) SHAPE(embedding_backward) SHAPE(topk) SHAPE(sort)   \
    SHAPE(layer_norm) SHAPE(layer_norm_backward) SHAPE(batch_norm) SHAPE(batch_norm_backward) SHAPE(group_norm) SHAPE(group_norm_backward) \
    SHAPE(convolution) SHAPE(convolution_weight) SHAPE(im2col) SHAPE(col2im) SHAPE(max_pool) SHAPE(max_pool_backward) SHAPE(resample) \
    SHAPE(avg_pool) SHAPE(avg_pool_backward) \
    SHAPE(fused_attention) SHAPE(fused_attention_backward) SHAPE(flash_attention) SHAPE(flash_attention_backward) SHAPE(recurrence) SHAPE(recurrence_backward) SHAPE(solve) SHAPE(det) SHAPE(slogdet) SHAPE(cholesky) SHAPE(qr) SHAPE(eigh) SHAPE(svd) \
    SHAPE(solve_triangle) SHAPE(lu_factor) SHAPE(row_order) SHAPE(ldl_factor) SHAPE(ldl_solve) SHAPE(reflections) \
    SHAPE(scan) SHAPE(scan_real) SHAPE(linear_scan) SHAPE(scan_pair) SHAPE(flip)

#define SHAPE(name) int ac_infer_##name(ac_infer *i) AC_CHECKED;
SHAPE_FUNCTIONS(SHAPE)
#undef SHAPE

/* Shared by shape functions in several files. */
int ac_need_floating(const ac_infer *i, int input) AC_CHECKED;
int ac_need_integer(const ac_infer *i, int input) AC_CHECKED;
int ac_need_ndim(const ac_infer *i, int input, int ndim) AC_CHECKED;
int ac_need_same_dtype(const ac_infer *i, int a, int b) AC_CHECKED;
int ac_need_shape(const ac_infer *i, int input, const ac_dims *shape) AC_CHECKED;
/* The name of tensor parameter `input` in the signature. */
const char *ac_input_name(const ac_infer *i, int input);

#endif
