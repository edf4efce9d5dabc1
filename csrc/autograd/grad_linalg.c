/* Backward formulas of matrix products and normalisation.
 *
 * Products multiply in the dtype that forward computed in. They write each gradient in the operand's
 * own dtype, straight from the accumulator. So the gradient of a float32 weight is never rounded to
 * 16 bits. */
#include "autograd/formula_list.h"

/* x times y, the gradient of `input`: given to it in its dtype, or added to its .grad right away. The
 * product computes in what the forward did. */
static void give_product(ac_formula *c, ac_op op, T x, T y, int input, bool flat) {
    ac_scratch *s = &c->scratch;
    const ac_spec *own = ac_f_input(c, input);
    ac_attrs_product a = {own->dtype};
    if (!x || !y) s->failed = true;
    if (s->failed) return;
    ac_autocast_state outer = ac_f_as_forward(c);
    ac_tensor *in[2] = {x, y}, *out[AC_MAX_OUT] = {NULL};
    T sink = flat ? NULL : ac_f_sink(c, input, AC_float32);
    if (sink) s->failed |= ac_call_adding(op, in, 2, &a, sink) < 0;
    else (void)ac_c_call_many(s, op, &a, in, 2, out);
    ac_autocast_resume(&outer);
    if (!sink) ac_f_give(c, input, flat && out[0] ? ac_c_reshape(s, out[0], &own->shape) : out[0]);
}

/* The incoming gradient; under autocast the product rounds it, else it must have the operand's dtype
 * (and has, unless somebody changed it). */
static T incoming(ac_formula *c, T operand) {
    ac_scratch *s = &c->scratch;
    T g = G;
    return c->node->is_low || !operand || !g ? g : ac_c_cast(s, g, operand->dtype);
}

static int matrix_product(ac_formula *c, ac_op op) {
    ac_scratch *s = &c->scratch;
    T x = WANTS(1) ? SAVED(0) : NULL, y = WANTS(0) ? SAVED(1) : NULL, g = incoming(c, x ? x : y);
    if (WANTS(0)) give_product(c, op, g, TR(y), 0, false);
    if (WANTS(1)) give_product(c, op, TR(x), g, 1, false);
    DONE;
}

FORMULA(mm) { return matrix_product(c, AC_OP_mm); }
FORMULA(bmm) { return matrix_product(c, AC_OP_bmm); }

static T as_rows(ac_scratch *s, T x) {
    if (!x || x->ndim == 2) return x;
    ac_dims rows = {2, {1, x->shape[x->ndim - 1]}};
    for (int d = 0; d + 1 < x->ndim; d++) rows.v[0] *= x->shape[d];
    return ac_c_reshape(s, x, &rows);
}

FORMULA(linear) {
    T w = WANTS(0) ? SAVED(1) : NULL, x = WANTS(1) ? SAVED(0) : NULL;
    T rows = as_rows(s, w || x ? incoming(c, w ? w : x) : G);
    if (WANTS(0)) give_product(c, AC_OP_mm, rows, w, 0, ac_f_input(c, 0)->shape.n != 2);
    if (WANTS(1)) give_product(c, AC_OP_mm, TR(rows), as_rows(s, x), 1, false);
    if (c->node->n_in > 2 && WANTS(2)) {
        /* summed in float32 and given in the bias's dtype: no rounding on the way */
        ac_attrs_reduce over = {{1, {0}}, 0, ac_f_input(c, 2)->dtype};
        ac_f_give(c, 2, ac_c_call(s, AC_OP_sum, &over, 1, rows));
    }
    DONE;
}

/* -- normalisation ------------------------------------------------------------------------------------ */

/* In float32 for the 16-bit types, whose squares overflow and whose means lose digits, and rounded once. */
static void give_rounded(ac_formula *c, int input, T gradient) {
    if (WANTS(input)) ac_f_give(c, input, ac_c_cast(&c->scratch, gradient, ac_f_input(c, input)->dtype));
}

/* The gradient of y = xhat w + b, where xhat = (x - mean(x)) rstd over `dim`. Elementary operators
 * make it differentiable. `wshape` is the weight's shape beside x. */
static void normalized(ac_formula *c, T x, T weight, const ac_dims *dim, const ac_dims *wshape, int at_weight,
                       double eps) {
    ac_scratch *s = &c->scratch;
    x = ac_c_wide(s, x);
    T mean = ac_c_mean(s, x, dim, true), centre = SUB(x, mean);
    T rstd = UN(rsqrt, ADD(ac_c_mean(s, UN(square, centre), dim, true), NUM(eps)));
    T hat = MUL(centre, rstd), g = ac_c_wide(s, G);
    T w = weight ? ac_c_reshape(s, ac_c_wide(s, weight), wshape) : NULL, gw = w ? MUL(g, w) : g;
    T along = ADD(ac_c_mean(s, gw, dim, true), MUL(hat, ac_c_mean(s, MUL(gw, hat), dim, true)));
    give_rounded(c, 0, MUL(rstd, SUB(gw, along)));
    ac_dims others = {.n = 0}; /* what weight and bias were broadcast over */
    for (int64_t d = 0; x && d < x->ndim; d++)
        if (wshape->v[d] == 1) others.v[others.n++] = d;
    for (int k = at_weight; k <= at_weight + 1 && k < c->node->n_in; k++) {
        if (!WANTS(k)) continue;
        T full = k == at_weight ? MUL(g, hat) : g;
        T sum = others.n ? ac_c_sum_over(s, full, &others, true) : full;
        give_rounded(c, k, ac_c_reshape(s, sum, &ac_f_input(c, k)->shape));
    }
}

FORMULA(layer_norm) {
    ATTR(layer_norm);
    T x = SAVED(0), w = ac_f_has(c, 1) ? SAVED(1) : NULL;
    if (!x) return -1;
    int64_t inner = a->normalized_shape.n;
    if (c->graph) {
        ac_dims dim = {.n = inner}, wshape = ac_shape_of(x);
        for (int64_t d = 0; d < x->ndim - inner; d++) wshape.v[d] = 1;
        for (int64_t d = 0; d < inner; d++) dim.v[d] = x->ndim - inner + d;
        normalized(c, x, w, &dim, &wshape, 1, a->eps);
        DONE;
    }
    if (x->numel == 0) { /* no rows: nobody's gradient but zeros */
        ac_spec own = {x->dtype, ac_shape_of(x), ac_device_of(x)},
                parameter = {x->dtype, a->normalized_shape, own.device};
        GIVE(0, ac_c_zeros(s, &own));
        for (int k = 1; k <= 2; k++) GIVE(k, ac_c_zeros(s, &parameter));
        DONE;
    }
    ac_attrs_rows_only rows = {1};
    for (int64_t d = 0; d < x->ndim - inner; d++) rows.rows *= x->shape[d];
    ac_tensor *in[5] = {G, x, RESULT(1), RESULT(2), w ? w : ABSENT}, *out[AC_MAX_OUT];
    if (s->failed || ac_c_call_many(s, AC_OP_layer_norm_backward, &rows, in, 5, out) < 0) return -1;
    GIVE(0, out[0]);
    for (int k = 1; k <= 2; k++) GIVE(k, ac_c_reshape(s, out[k], &a->normalized_shape));
    DONE;
}

/* In elementary operators, so that it differentiates again: x as [N, groups, values of a group]. */
static void group_normalized(ac_formula *c, T x, T weight, int64_t groups, double eps) {
    ac_scratch *s = &c->scratch;
    ac_dims shape = ac_shape_of(x), column = {.n = x->ndim}, dim = {1, {2}}, others = {1, {0}};
    ac_dims sets = {3, {x->shape[0], groups, x->shape[0] ? x->numel / x->shape[0] / groups : 0}};
    for (int64_t d = 0; d < x->ndim; d++) column.v[d] = d == 1 ? x->shape[1] : 1;
    for (int64_t d = 2; d < x->ndim; d++) others.v[others.n++] = d;
    T rows = ac_c_reshape(s, ac_c_wide(s, x), &sets), g = ac_c_wide(s, G);
    T centre = SUB(rows, ac_c_mean(s, rows, &dim, true));
    T rstd = UN(rsqrt, ADD(ac_c_mean(s, UN(square, centre), &dim, true), NUM(eps))), hat = MUL(centre, rstd);
    T gw = ac_c_reshape(s, weight ? MUL(g, ac_c_reshape(s, ac_c_wide(s, weight), &column)) : g, &sets);
    T along = ADD(ac_c_mean(s, gw, &dim, true), MUL(hat, ac_c_mean(s, MUL(gw, hat), &dim, true)));
    give_rounded(c, 0, ac_c_reshape(s, MUL(rstd, SUB(gw, along)), &shape));
    if (WANTS(1)) give_rounded(c, 1, ac_c_sum_over(s, MUL(g, ac_c_reshape(s, hat, &shape)), &others, false));
    if (WANTS(2)) give_rounded(c, 2, ac_c_sum_over(s, g, &others, false));
}

FORMULA(group_norm) {
    ATTR(group_norm);
    T x = SAVED(0), w = ac_f_has(c, 1) ? SAVED(1) : NULL;
    if (!x) return -1;
    if (c->graph) {
        group_normalized(c, x, w, a->num_groups, a->eps);
        DONE;
    }
    ac_attrs_num_groups groups = {a->num_groups};
    ac_tensor *in[5] = {G, x, RESULT(1), RESULT(2), w ? w : ABSENT}, *out[AC_MAX_OUT];
    if (s->failed || ac_c_call_many(s, AC_OP_group_norm_backward, &groups, in, 5, out) < 0) return -1;
    for (int k = 0; k < 3; k++) GIVE(k, out[k]);
    DONE;
}

FORMULA(batch_norm) {
    ATTR(batch_norm);
    T x = SAVED(0), w = ac_f_has(c, 3) ? SAVED(3) : NULL;
    if (!x) return -1;
    if (c->graph) {
        ac_dims dim = {.n = 0}, wshape = {.n = x->ndim};
        for (int64_t d = 0; d < x->ndim; d++) {
            wshape.v[d] = d == 1 ? x->shape[1] : 1;
            if (d != 1) dim.v[dim.n++] = d;
        }
        if (a->training) {
            normalized(c, x, w, &dim, &wshape, 3, a->eps);
            DONE;
        }
        T mean = ac_c_reshape(s, RESULT(1), &wshape), rstd = ac_c_reshape(s, RESULT(2), &wshape), g = ac_c_wide(s, G);
        T hat = MUL(SUB(ac_c_wide(s, x), mean), rstd), gw = w ? MUL(g, ac_c_reshape(s, ac_c_wide(s, w), &wshape)) : g;
        give_rounded(c, 0, MUL(gw, rstd));
        if (WANTS(3)) give_rounded(c, 3, ac_c_sum_over(s, MUL(g, hat), &dim, false));
        if (WANTS(4)) give_rounded(c, 4, ac_c_sum_over(s, g, &dim, false));
        DONE;
    }
    ac_attrs_training mode = {a->training};
    ac_tensor *in[5] = {G, x, RESULT(1), RESULT(2), w ? w : ABSENT}, *out[AC_MAX_OUT];
    if (s->failed || ac_c_call_many(s, AC_OP_batch_norm_backward, &mode, in, 5, out) < 0) return -1;
    GIVE(0, out[0]);
    GIVE(3, out[1]);
    GIVE(4, out[2]);
    DONE;
}
