/* Backward formulas of convolution, pooling, resampling and attention. A convolution, its transpose and the gradient of
 * its weight are each other's derivatives. */
#include "autograd/formula_list.h"

#include <math.h>

/* A call that computes in what the forward did. */
static T call_low(ac_formula *c, ac_op op, const void *attrs, T x, T y) {
    ac_scratch *s = &c->scratch;
    ac_autocast_state outer;
    T in[3] = {x, y, ABSENT}, out[AC_MAX_OUT];
    if (!x || !y || s->failed) return ac_c_refuse(s, -1);
    outer = ac_f_as_forward(c);
    int failed = ac_c_call_many(s, op, attrs, in, op == AC_OP_convolution ? 3 : 2, out);
    ac_autocast_resume(&outer);
    return failed ? NULL : out[0];
}

static T incoming(ac_formula *c, const ac_spec *operand) {
    ac_scratch *s = &c->scratch;
    T g = G;
    return c->node->is_low || !g ? g : ac_c_cast(s, g, operand->dtype);
}

static int64_t nth(const ac_dims *list, int64_t d, int64_t otherwise) {
    return list->n == 0 ? otherwise : list->v[list->n == 1 ? 0 : d];
}

/* What the transposed way needs to come back to `size` values: those that no window reached. */
static ac_dims left_over(const ac_dims *size, const ac_dims *positions, const ac_dims *kernel, const ac_dims *stride,
                         const ac_dims *padding, const ac_dims *dilation) {
    ac_dims more = {.n = kernel->n};
    for (int64_t d = 0; d < kernel->n; d++) {
        int64_t k = kernel->v[kernel->n == 1 ? 0 : d], back = (positions->v[d + 2] - 1) * nth(stride, d, k);
        back += nth(dilation, d, 1) * (k - 1) + 1 - 2 * nth(padding, d, 0);
        more.v[d] = size->v[d + 2] - back;
    }
    return more;
}

static ac_dims kernel_of(const ac_spec *weight) {
    ac_dims kernel = {.n = weight->shape.n - 2};
    for (int64_t d = 0; d < kernel.n; d++) kernel.v[d] = weight->shape.v[d + 2];
    return kernel;
}

/* How many positions the gradient's convolution has in dimension d beyond those of the input x. There are some if the
 * output padding is a stride or more, which a larger dilation allows. */
static int64_t places_beyond(const ac_attrs_convolution *a, int64_t d) {
    return a->transposed ? nth(&a->output_padding, d, 0) / nth(&a->stride, d, 1) : 0;
}

/* The gradient of x without those positions. */
static T without_beyond(ac_formula *c, const ac_attrs_convolution *a, T dx) {
    ac_scratch *s = &c->scratch;
    const ac_dims *size = &ac_f_input(c, 0)->shape;
    for (int64_t d = 0; d < size->n - 2; d++) {
        if (places_beyond(a, d)) dx = ac_c_slice(s, dx, d + 2, 0, size->v[d + 2]);
    }
    return dx;
}

/* x with zeros at those positions. */
static T with_beyond(ac_formula *c, const ac_attrs_convolution *a, T x) {
    ac_scratch *s = &c->scratch;
    for (int64_t d = 0; x && d < x->ndim - 2; d++) {
        ac_spec zeros = {x->dtype, ac_shape_of(x), ac_device_of(x)};
        zeros.shape.v[d + 2] = places_beyond(a, d);
        if (zeros.shape.v[d + 2]) x = ac_c_cat(s, (T[]){x, ac_c_zeros(s, &zeros)}, 2, d + 2);
    }
    return x;
}

FORMULA(convolution) {
    ATTR(convolution);
    const ac_spec *x = ac_f_input(c, 0), *w = ac_f_input(c, 1), *y = &c->node->outputs[0];
    ac_dims kernel = kernel_of(w);
    T g = incoming(c, x);
    if (WANTS(0)) {
        ac_attrs_convolution back = *a;
        back.transposed = !a->transposed, back.out_dtype = x->dtype, back.output_padding = (ac_dims){.n = 0};
        if (back.transposed)
            back.output_padding = left_over(&x->shape, &y->shape, &kernel, &a->stride, &a->padding, &a->dilation);
        ac_f_give(c, 0, without_beyond(c, a, call_low(c, AC_OP_convolution, &back, g, SAVED(1))));
    }
    if (WANTS(1)) {
        ac_attrs_convolution_weight back = {kernel, a->stride, a->padding, a->dilation, a->groups, w->dtype};
        T saved = with_beyond(c, a, SAVED(0));
        ac_f_give(c, 1,
                  call_low(c, AC_OP_convolution_weight, &back, a->transposed ? g : saved, a->transposed ? saved : g));
    }
    if (c->node->n_in > 2 && WANTS(2)) {
        ac_attrs_reduce over = {{.n = 0}, 0, ac_f_input(c, 2)->dtype};
        for (int64_t d = 0; d < y->shape.n; d++)
            if (d != 1) over.dim.v[over.dim.n++] = d;
        ac_f_give(c, 2, ac_c_call(s, AC_OP_sum, &over, 1, g));
    }
    DONE;
}

FORMULA(convolution_weight) {
    ATTR(convolution_weight);
    const ac_spec *x = ac_f_input(c, 0), *y = ac_f_input(c, 1);
    ac_attrs_convolution forward = {a->stride, a->padding, a->dilation, 0, {.n = 0}, a->groups, y->dtype},
                         back = forward;
    back.transposed = 1, back.out_dtype = x->dtype;
    back.output_padding = left_over(&x->shape, &y->shape, &a->kernel, &a->stride, &a->padding, &a->dilation);
    T g = incoming(c, x);
    if (WANTS(0)) ac_f_give(c, 0, call_low(c, AC_OP_convolution, &back, SAVED(1), g));
    if (WANTS(1)) ac_f_give(c, 1, call_low(c, AC_OP_convolution, &forward, SAVED(0), g));
    DONE;
}

FORMULA(im2col) {
    ATTR(im2col);
    const ac_dims *shape = &ac_f_input(c, 0)->shape;
    ac_attrs_col2im back = {{.n = shape->n - 2}, a->kernel, a->dilation, a->padding, a->stride};
    for (int64_t d = 0; d < back.size.n; d++) back.size.v[d] = shape->v[d + 2];
    GIVE(0, ac_c_call(s, AC_OP_col2im, &back, 1, G));
    DONE;
}

FORMULA(col2im) {
    ATTR(col2im);
    ac_attrs_im2col back = {a->kernel, a->dilation, a->padding, a->stride};
    GIVE(0, ac_c_call(s, AC_OP_im2col, &back, 1, G));
    DONE;
}

/* The gradient of max_pool in operators that differentiate again: along the last dimensions made one. */
static T scattered(ac_formula *c, int64_t nd) {
    ac_scratch *s = &c->scratch;
    const ac_dims *shape = &ac_f_input(c, 0)->shape, *pooled = &c->node->outputs[0].shape;
    ac_dims flat = *shape, positions = *pooled;
    flat.n = positions.n = shape->n - nd + 1, flat.v[flat.n - 1] = positions.v[positions.n - 1] = 1;
    for (int64_t d = shape->n - nd; d < shape->n; d++)
        flat.v[flat.n - 1] *= shape->v[d], positions.v[positions.n - 1] *= pooled->v[d];
    ac_spec zeros = {ac_f_input(c, 0)->dtype, flat, ac_f_input(c, 0)->device};
    ac_attrs_index_dim last = {-1};
    T g = ac_c_reshape(s, G, &positions), index = ac_c_reshape(s, RESULT(1), &positions);
    return ac_c_reshape(s, ac_c_call(s, AC_OP_scatter_add, &last, 3, ac_c_zeros(s, &zeros), index, g), shape);
}

FORMULA(max_pool) {
    ATTR(max_pool);
    ac_attrs_max_pool_backward how = {
        ac_f_input(c, 0)->shape, a->kernel, a->stride, a->padding, a->dilation, a->ceil_mode, a->adaptive};
    GIVE(0, c->graph ? scattered(c, a->kernel.n) : ac_c_call(s, AC_OP_max_pool_backward, &how, 2, G, RESULT(1)));
    DONE;
}

/* Means are linear, so the gradient of their gradient is means again. */
FORMULA(avg_pool) {
    ATTR(means);
    ac_attrs_means_backward back = {
        ac_f_input(c, 0)->shape, a->kernel, a->stride, a->padding, a->ceil_mode, a->adaptive,
        a->counts_padding,       a->divisor};
    GIVE(0, ac_c_call(s, AC_OP_avg_pool_backward, &back, 1, G));
    DONE;
}

FORMULA(avg_pool_backward) {
    ATTR(means_backward);
    ac_attrs_means forward = {a->kernel,   a->stride,         a->padding, a->ceil_mode,
                              a->adaptive, a->counts_padding, a->divisor};
    GIVE(0, ac_c_call(s, AC_OP_avg_pool, &forward, 1, G));
    DONE;
}

FORMULA(resample) {
    GIVE(0, ac_c_call(s, AC_OP_resample, c->node->attrs, 5, G, SAVED(3), SAVED(4), SAVED(1), SAVED(2)));
    DONE;
}

/* -- attention -- */

/* x y, in float32 where both have one 16-bit dtype: there a score of 50 would be wrong by up to 1/8. */
static T wide_product(ac_scratch *s, T x, T y) {
    if (!x || !y || !ac_is_half(x->dtype) || x->dtype != y->dtype) return BIN(matmul, x, y);
    int last = x->ndim - 1;
    int64_t rows = x->shape[last - 1], width = x->shape[last], columns = y->shape[last], items = 1;
    for (int d = 0; d + 1 < last; d++) items *= x->shape[d];
    ac_dims left = {3, {items, rows, width}}, right = {3, {items, width, columns}}, shape = ac_shape_of(x);
    ac_attrs_product wide = {AC_float32};
    shape.v[last] = columns;
    return ac_c_reshape(s, ac_c_call(s, AC_OP_bmm, &wide, 2, ac_c_reshape(s, x, &left), ac_c_reshape(s, y, &right)),
                        &shape);
}

/* The weights, in operators that differentiate again. */
static T attention_weights(ac_formula *c, const ac_attrs_flash_attention *a, T q, T k) {
    ac_scratch *s = &c->scratch;
    T scores = TIMES(wide_product(s, q, TR(k)), a->scale);
    if (!scores) return NULL;
    int last = scores->ndim - 1;
    if (a->is_causal) {
        ac_device d = ac_device_of(scores);
        T row = ac_c_unsqueeze(s, ac_c_arange(s, scores->shape[last - 1], d), 1);
        scores = WHERE(BIN(ge, row, ac_c_arange(s, scores->shape[last], d)), scores, NUM(-INFINITY));
    }
    T mask = MAYBE(3);
    bool keeps = ac_c_has(mask) && mask->dtype == AC_bool;
    if (keeps) scores = WHERE(mask, scores, NUM(-INFINITY));
    else if (scores && ac_c_has(mask)) scores = ADD(scores, ac_c_cast(s, mask, scores->dtype));
    ac_attrs_softmax along = {-1, AC_NO_DTYPE};
    return ac_c_call(s, AC_OP_safe_softmax, &along, 1, scores);
}

static T dropped(ac_scratch *s, T x, const ac_attrs_flash_attention *a) {
    return a->drop.p > 0 ? ac_c_call(s, AC_OP_dropout_mask, &a->drop, 1, x) : x;
}

static void give_by_parts(ac_formula *c, const ac_attrs_flash_attention *a) {
    ac_scratch *s = &c->scratch;
    ac_dims last = {1, {-1}};
    T q = SAVED(0), k = SAVED(1), v = SAVED(2), g = incoming(c, ac_f_input(c, 0)), p = attention_weights(c, a, q, k);
    T dp = dropped(s, wide_product(s, g, TR(v)), a);
    T slopes = MUL(p, SUB(dp, ac_c_sum_over(s, MUL(dp, p), &last, true))), ds = TIMES(slopes, a->scale);
    if (!ds) return;
    p = dropped(s, p, a);
    if (ac_is_half(q->dtype)) ds = ac_c_cast(s, ds, q->dtype), p = ac_c_cast(s, p, v->dtype);
    T given[3] = {BIN(matmul, ds, k), BIN(matmul, TR(ds), q), BIN(matmul, TR(p), g)};
    for (int i = 0; i < 3; i++) GIVE(i, ac_c_cast(s, given[i], ac_f_input(c, i)->dtype));
    if (ac_f_has(c, 3)) GIVE(3, ac_c_cast(s, slopes, ac_f_input(c, 3)->dtype));
}

FORMULA(fused_attention) {
    ATTR(fused_attention);
    ac_autocast_state outer;
    if (c->graph) {
        ac_attrs_flash_attention same = {.scale = a->scale, .is_causal = a->is_causal};
        outer = ac_f_as_forward(c);
        give_by_parts(c, &same);
        ac_autocast_resume(&outer);
        DONE;
    }
    ac_attrs_fused_attention back = *a;
    back.out_dtype = ac_f_input(c, 0)->dtype;
    T g = incoming(c, ac_f_input(c, 0)), in[5] = {g, SAVED(0), SAVED(1), SAVED(2), MAYBE(3)}, out[AC_MAX_OUT];
    bool dense_rows = g && (g->shape[g->ndim - 1] <= 1 || g->strides[g->ndim - 1] == 1);
    if (!dense_rows) in[0] = UN(contiguous, g);
    if (s->failed) return -1;
    outer = ac_f_as_forward(c);
    int failed = ac_c_call_many(s, AC_OP_fused_attention_backward, &back, in, 5, out);
    ac_autocast_resume(&outer);
    for (int i = 0; i < 3 && !failed; i++) GIVE(i, ac_c_cast(s, out[i], ac_f_input(c, i)->dtype));
    DONE;
}

FORMULA(flash_attention) {
    ATTR(flash_attention);
    if (c->graph) {
        give_by_parts(c, a);
        DONE;
    }
    bool of_mask = ac_f_has(c, 3) && WANTS(3);
    ac_attrs_flash_attention_backward back = {*a, of_mask};
    T out[AC_MAX_OUT],
        in[7] = {incoming(c, ac_f_input(c, 0)), SAVED(0), SAVED(1), SAVED(2), MAYBE(3), RESULT(0), RESULT(1)};
    if (s->failed || ac_c_call_many(s, AC_OP_flash_attention_backward, &back, in, 7, out) < 0) return -1;
    for (int i = 0; i < 3; i++) GIVE(i, out[i]);
    if (of_mask) GIVE(3, ac_c_cast(s, out[3], ac_f_input(c, 3)->dtype));
    DONE;
}
