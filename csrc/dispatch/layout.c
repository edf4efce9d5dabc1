/* The order of a result's dimensions in memory, as torch's TensorIterator has it. */
#include "dispatch/layout.h"

#include <string.h>

/* How far neighbours along dimension d of the result lie apart in t; 0 where t is broadcast along it. */
static int64_t step_of(const ac_tensor *t, const ac_tensor *out, int d) {
    int own = d - (out->ndim - t->ndim);
    return own < 0 || (t->shape[own] == 1 && out->shape[d] != 1) ? 0 : t->strides[own];
}

/* Whether dimension `inner` should lie outside `outer`: 1 yes, -1 no, as the first operand that differs has it; else 0.
 */
static int changes_places(const ac_op_call *c, const ac_tensor *out, int inner, int outer) {
    for (int k = 0; k < c->n_in; k++) {
        const ac_tensor *t = c->operands[k];
        int64_t near = t ? step_of(t, out, inner) : 0, far = t ? step_of(t, out, outer) : 0;
        if (near == 0 || far == 0) continue;
        if (near != far) return near < far ? -1 : 1;
        if (out->shape[inner] > out->shape[outer]) return 1;
    }
    return 0;
}

/* order[0] becomes the innermost dimension. */
static void sort_dims(const ac_op_call *c, const ac_tensor *out, int *order) {
    for (int i = 0; i < out->ndim; i++) {
        int at = i, moves = 0;
        order[i] = out->ndim - 1 - i;
        for (int j = i - 1; j >= 0 && moves >= 0; j--) {
            moves = changes_places(c, out, order[j], order[at]);
            if (moves <= 0) continue;
            int outer = order[at];
            order[at] = order[j], order[j] = outer, at = j;
        }
    }
}

/* All operands in rows: so is the result. */
static bool are_in_rows(const ac_op_call *c) {
    for (int k = 0; k < c->n_in; k++)
        if (c->operands[k] && !ac_is_contiguous(c->operands[k])) return false;
    return true;
}

/* All operands alike, without gaps: so is the result, in the strides of dimensions of size 1, too. */
static bool are_alike(const ac_op_call *c, const ac_tensor *out) {
    const ac_tensor *first = c->operands[0];
    for (int k = 0; k < c->n_in; k++) {
        const ac_tensor *t = c->operands[k];
        if (!t || !ac_same_shape(t, out)) return false;
        if (memcmp(t->strides, first->strides, (size_t)t->ndim * sizeof *t->strides)) return false;
    }
    return ac_is_dense(first);
}

/* Elementwise operators whose result is row-major all the same, as torch's is. */
static bool is_for_rows(const ac_op_call *c) {
    return c->info == &ac_ops[AC_OP_masked_fill] || c->info == &ac_ops[AC_OP_logsigmoid];
}

void ac_call_lay_out(const ac_op_call *c, ac_tensor *out) {
    bool keeps = c->info->kind == AC_KIND_POINTWISE ? !is_for_rows(c) : c->info->flags & AC_FLAG_KEEPS_ORDER;
    int order[AC_MAX_DIMS];
    int64_t stride = 1;
    if (!keeps || are_in_rows(c)) return;
    if (are_alike(c, out)) {
        memcpy(out->strides, c->operands[0]->strides, sizeof out->strides);
        return;
    }
    sort_dims(c, out, order);
    for (int i = 0; i < out->ndim; i++) {
        out->strides[order[i]] = stride;
        stride *= out->shape[order[i]];
    }
}
