/* Backward formulas of reductions, softmax and losses. */
#include "autograd/formula_list.h"

#include <math.h>

FORMULA(sum) {
    ATTR(reduce);
    const ac_dims *shape = &ac_f_input(c, 0)->shape;
    GIVE(0, ac_c_expand(s, ac_f_unreduce(c, G, &a->dim, a->keepdim, shape), shape));
    DONE;
}

/* How many elements each result came from. */
static double reduced_count(const ac_formula *c) {
    int64_t in = ac_dims_numel(&c->node->inputs[0].shape), out = ac_dims_numel(&c->node->outputs[0].shape);
    return out > 0 ? (double)(in / out) : 1;
}

FORMULA(mean) {
    ATTR(reduce);
    const ac_dims *shape = &ac_f_input(c, 0)->shape;
    T g = TIMES(G, 1 / reduced_count(c));
    GIVE(0, ac_c_expand(s, ac_f_unreduce(c, g, &a->dim, a->keepdim, shape), shape));
    DONE;
}

/* The product of all other elements, right at zeros too, and differentiable. The reduced dimensions
 * become one of n elements; row i of an n x n table holds all factors except number i. */
static T product_of_others(ac_scratch *s, T x, uint32_t mask) {
    ac_dims shape = ac_shape_of(x), order = {.n = shape.n}, rows, back = {.n = shape.n};
    int64_t n = 1, kept = 1, at = 0;
    for (int64_t d = 0; d < shape.n; d++)
        if (!(mask & (1u << d))) order.v[at++] = d, kept *= shape.v[d];
    for (int64_t d = 0; d < shape.n; d++)
        if (mask & (1u << d)) order.v[at++] = d, n *= shape.v[d];
    T moved = ac_c_permute(s, x, &order);
    if (!moved) return NULL;
    ac_dims moved_shape = ac_shape_of(moved), table = {3, {kept, n, n}};
    rows = (ac_dims){3, {kept, 1, n}};
    T factors = ac_c_expand(s, ac_c_reshape(s, moved, &rows), &table);
    T index = ac_c_arange(s, n, ac_device_of(x)), self = BIN(eq, index, ac_c_unsqueeze(s, index, 1));
    ac_attrs_reduce over = {{1, {-1}}, 0, AC_NO_DTYPE};
    T others = ac_c_call(s, AC_OP_prod, &over, 1, WHERE(self, NUM(1), factors));
    for (int64_t d = 0; d < order.n; d++) back.v[order.v[d]] = d;
    return ac_c_permute(s, ac_c_reshape(s, others, &moved_shape), &back);
}

FORMULA(prod) {
    ATTR(reduce);
    T x = ac_c_cast(s, SAVED(0), c->node->outputs[0].dtype);
    const ac_dims *shape = &ac_f_input(c, 0)->shape;
    uint32_t mask;
    if (!x || ac_dims_mask(&a->dim, shape->n, "prod", &mask) < 0) return -1;
    T g = ac_f_unreduce(c, G, &a->dim, a->keepdim, shape);
    bool simple = !c->graph && !ac_f_any_zero(s, x);
    if (simple) GIVE(0, MUL(g, DIV(ac_f_unreduce(c, RESULT(0), &a->dim, a->keepdim, shape), x)));
    else GIVE(0, MUL(g, product_of_others(s, x, mask)));
    DONE;
}

/* g 2 (x - mean) / (n - correction), rounded once: of many values, what is divided by n is too small for 16 bits. */
static T spread_back(ac_formula *c, const ac_attrs_var *a, T g) {
    ac_scratch *s = &c->scratch;
    T x = SAVED(0), wide = ac_c_wide(s, x);
    if (!x || !g) return NULL;
    double n = reduced_count(c) - ac_correction(a);
    g = ac_f_unreduce(c, ac_c_wide(s, g), &a->dim, a->keepdim, &ac_f_input(c, 0)->shape);
    return ac_c_cast(s, MUL(TIMES(g, 2 / n), SUB(wide, ac_c_mean(s, wide, &a->dim, true))), x->dtype);
}

FORMULA(var) {
    ATTR(var);
    GIVE(0, spread_back(c, a, G));
    DONE;
}

FORMULA(std) {
    ATTR(var);
    T r = ac_c_wide(s, RESULT(0));
    T safe = WHERE(BIN(eq, r, NUM(0)), NUM(0), DIV(ac_c_wide(s, G), TIMES(r, 2)));
    GIVE(0, spread_back(c, a, safe));
    DONE;
}

FORMULA(extremum) { /* equal extrema share the gradient */
    ATTR(reduce_dim);
    const ac_dims *shape = &ac_f_input(c, 0)->shape;
    T x = SAVED(0), top = ac_f_unreduce(c, RESULT(0), &a->dim, a->keepdim, shape);
    T g = ac_f_unreduce(c, G, &a->dim, a->keepdim, shape);
    T found = BIN(logical_or, BIN(eq, x, top), UN(isnan, x)); /* where one is nan, the extremum is */
    T here = ac_c_cast(s, found, c->node->outputs[0].dtype);
    if (!here) return -1;
    GIVE(0,
         WHERE(found, DIV(g, ac_c_sum_over(s, here, &a->dim, true)), NUM(0))); /* 0 for the others, if g is nan, too */
    DONE;
}

/* Values taken at saved indices go back to where they came from. */
static T scatter_back(ac_formula *c, T g, T index, int64_t dim) {
    ac_scratch *s = &c->scratch;
    ac_attrs_index_dim at = {dim};
    return ac_c_call(s, AC_OP_scatter_add, &at, 3, ac_c_zeros(s, &c->node->inputs[0]), index, g);
}

FORMULA(pick_dim) {
    ATTR(dim);
    const ac_dims *shape = &ac_f_input(c, 0)->shape;
    ac_dims dim = {1, {a->dim}};
    T g = ac_f_unreduce(c, G, &dim, a->keepdim, shape), index = ac_f_unreduce(c, RESULT(1), &dim, a->keepdim, shape);
    GIVE(0, scatter_back(c, g, index, a->dim));
    DONE;
}

FORMULA(pick_many) { /* topk, sort, cummax, cummin */
    int64_t dim = c->node->op == AC_OP_topk ? ((const ac_attrs_topk *)c->node->attrs)->dim
                                            : ((const ac_attrs_one_dim *)c->node->attrs)->dim; /* it is their first */
    GIVE(0, scatter_back(c, G, RESULT(1), dim));
    DONE;
}

FORMULA(norm) {
    ATTR(norm);
    const ac_dims *shape = &ac_f_input(c, 0)->shape;
    double p = ac_scalar_double(a->p);
    T x = ac_c_cast(s, SAVED(0), c->node->outputs[0].dtype),
      r = ac_f_unreduce(c, RESULT(0), &a->dim, a->keepdim, shape);
    T g = ac_f_unreduce(c, G, &a->dim, a->keepdim, shape);
    if (!x || !r) return -1;
    T at_zero = BIN(eq, r, NUM(0));
    if (p == 0) GIVE(0, ac_c_zeros(s, ac_f_input(c, 0)));
    else if (p == 1) GIVE(0, MUL(g, UN(sign, x)));
    else if (p == 2) GIVE(0, MUL(g, DIV(x, WHERE(at_zero, NUM(INFINITY), r)))); /* |x / r| <= 1; g / r may overflow */
    else if (isinf(p)) {
        T here = ac_c_cast(s, BIN(eq, UN(abs, x), r), x->dtype);
        if (here) GIVE(0, MUL(MUL(g, UN(sign, x)), DIV(here, ac_c_sum_over(s, here, &a->dim, true))));
    } else { /* g sign(x) (|x| / r)^(p - 1), rounded once: 16 bits do not hold small ratios, nor their powers */
        T ratio = POW(DIV(ac_c_wide(s, UN(abs, x)), WHERE(at_zero, NUM(INFINITY), r)), NUM(p - 1));
        T slope = WHERE(BIN(eq, x, NUM(0)), NUM(0), ratio);
        GIVE(0, ac_c_cast(s, MUL(MUL(g, UN(sign, x)), slope), x->dtype));
    }
    DONE;
}

FORMULA(logsumexp) {
    ATTR(reduce_dim);
    const ac_dims *shape = &ac_f_input(c, 0)->shape;
    T r = ac_f_unreduce(c, RESULT(0), &a->dim, a->keepdim, shape);
    T g = ac_f_unreduce(c, G, &a->dim, a->keepdim, shape);
    GIVE(0, MUL(g, UN(exp, SUB(SAVED(0), r))));
    DONE;
}

/* -- softmax ------------------------------------------------------------------------------------------ */

FORMULA(softmax) {
    ATTR(softmax);
    ac_dims dim = {1, {a->dim}};
    T y = RESULT(0), g = G;
    if (c->graph) GIVE(0, MUL(y, SUB(g, ac_c_sum_over(s, MUL(g, y), &dim, true))));
    else {
        ac_attrs_softmax_backward along = {a->dim};
        GIVE(0, ac_c_call(s, AC_OP_softmax_backward, &along, 2, g, y));
    }
    DONE;
}

FORMULA(log_softmax) {
    ATTR(softmax);
    ac_dims dim = {1, {a->dim}};
    T y = RESULT(0), g = G;
    if (c->graph) GIVE(0, SUB(g, MUL(UN(exp, y), ac_c_sum_over(s, g, &dim, true))));
    else {
        ac_attrs_softmax_backward along = {a->dim};
        GIVE(0, ac_c_call(s, AC_OP_log_softmax_backward, &along, 2, g, y));
    }
    DONE;
}

/* -- losses --------------------------------------------------------------------------------------------- */

/* The gradient of x where the loss is `scale` times the sum of (x - y) ** 2, in x's dtype. */
static T mse_slope(ac_formula *c, T x, T y, double scale) {
    ac_scratch *s = &c->scratch;
    ac_attrs_value factor = {.value = {.kind = AC_FLOAT, .f = 2 * scale}};
    if (!c->graph) return ac_c_call(s, AC_OP_mse_backward, &factor, 3, G, x, y);
    if (x->dtype == AC_bool) x = ac_c_cast(s, x, y->dtype);
    if (y->dtype == AC_bool) y = ac_c_cast(s, y, x->dtype);
    return MUL(TIMES(G, 2 * scale), SUB(ac_c_wide(s, x), y));
}

FORMULA(mse_loss) {
    ATTR(reduction);
    T x = SAVED(0), target = SAVED(1);
    if (!x || !target) return -1;
    ac_dims shape = ac_shape_of(x), other = ac_shape_of(target);
    if (ac_dims_broadcast(&shape, &other, "mse_loss") < 0) return -1;
    double scale = a->reduction == AC_REDUCE_MEAN ? 1 / (double)ac_dims_numel(&shape) : 1;
    GIVE(0, mse_slope(c, x, target, scale));
    GIVE(1, mse_slope(c, target, x, scale));
    DONE;
}

FORMULA(nll_loss) {
    ATTR(nll);
    ac_attrs_nll_backward back = {ac_f_input(c, 0)->shape, a->ignore_index, a->reduction};
    ac_tensor *in[3] = {G, SAVED(1), MAYBE(2)}, *out[AC_MAX_OUT];
    if (ac_c_call_many(s, AC_OP_nll_loss_backward, &back, in, 3, out) == 0) GIVE(0, out[0]);
    DONE;
}

/* nll_loss is linear in its input, so the gradient of its gradient is nll_loss again. */
FORMULA(nll_loss_backward) {
    ATTR(nll_backward);
    ac_attrs_nll forward = {a->ignore_index, a->reduction};
    ac_tensor *in[3] = {G, SAVED(1), MAYBE(2)}, *out[AC_MAX_OUT];
    if (ac_c_call_many(s, AC_OP_nll_loss, &forward, in, 3, out) == 0) GIVE(0, out[0]);
    DONE;
}

/* The shape of the samples, of which the second result has two numbers each. */
static ac_dims samples_of(const ac_formula *c) {
    ac_dims shape = c->node->outputs[1].shape;
    shape.n--;
    return shape;
}

static T target_of(ac_formula *c) {
    ac_dims samples = samples_of(c);
    return ac_c_reshape(&c->scratch, SAVED(1), &samples);
}

/* The weights times the target's distribution over the classes of x, of samples that are not ignored. */
static T weighted_target(ac_formula *c, const ac_attrs_cross_entropy *a, T x) {
    ac_scratch *s = &c->scratch;
    ac_dims samples = samples_of(c), column = {.n = x ? x->ndim : 0};
    T target = target_of(c), weight = MAYBE(2);
    if (!x || !target || !weight) return NULL;
    int64_t channel = x->ndim > 1;
    for (int64_t d = 0; d < column.n; d++) column.v[d] = d == channel ? x->shape[d] : 1;
    ac_attrs_nll_backward one = {ac_shape_of(x), a->ignore_index, AC_REDUCE_NONE};
    T minus = ac_c_full(s, &samples, -1, x->dtype, ac_device_of(x));
    T hard = ac_c_call(s, AC_OP_nll_loss_backward, &one, 3, minus, target, weight);
    if (a->label_smoothing == 0) return hard;
    T even = ac_c_has(weight) ? ac_c_reshape(s, ac_c_cast(s, weight, x->dtype), &column)
                              : ac_c_full(s, &column, 1, x->dtype, ac_device_of(x));
    return ADD(TIMES(hard, 1 - a->label_smoothing), TIMES(even, a->label_smoothing / (double)x->shape[channel]));
}

/* The gradient of cross entropy in operators that differentiate again, of 16 bits in float32. */
static T entropy_slope(ac_formula *c, const ac_attrs_cross_entropy *a) {
    ac_scratch *s = &c->scratch;
    T given = SAVED(0), g = ac_c_wide(s, G);
    if (!given || !g) return NULL;
    T x = ac_c_cast(s, given, g->dtype), q = weighted_target(c, a, x);
    ac_dims along = {1, {given->ndim > 1}};
    ac_attrs_softmax over = {along.v[0], AC_NO_DTYPE};
    T slope = SUB(MUL(ac_c_call(s, AC_OP_softmax, &over, 1, x), ac_c_sum_over(s, q, &along, true)), q);
    if (a->reduction == AC_REDUCE_MEAN) {
        T total = ac_c_cast(s, ac_c_select(s, RESULT(2), 0, 0), g->dtype);
        g = DIV(g, WHERE(BIN(eq, total, NUM(0)), NUM(NAN), total)); /* as the loss is */
    }
    T counts = BIN(ne, target_of(c), NUM((double)a->ignore_index));
    g = WHERE(counts, g, NUM(0)); /* also where the mean divides by a total of 0 */
    return ac_c_cast(s, MUL(slope, ac_c_unsqueeze(s, g, along.v[0])), given->dtype);
}

FORMULA(class_entropy) {
    ATTR(cross_entropy);
    if (c->graph) GIVE(0, entropy_slope(c, a));
    else {
        T in[6] = {G, SAVED(1), MAYBE(2), SAVED(0), RESULT(1), RESULT(2)}, out[AC_MAX_OUT];
        if (ac_c_call_many(s, AC_OP_class_entropy_backward, a, in, 6, out) == 0) GIVE(0, out[0]);
    }
    DONE;
}

/* What log p of each class counts in the loss, negated: w ((1 - s) t + s / classes). */
static T soft_shares(ac_scratch *s, const ac_attrs_soft_entropy *a, T target, T weight, double classes) {
    if (a->label_smoothing > 0) target = PLUS(TIMES(target, 1 - a->label_smoothing), a->label_smoothing / classes);
    return ac_c_has(weight) ? MUL(target, weight) : target;
}

/* The gradients of cross entropy with probabilities in operators, of 16 bits in float32: of the logits where a graph is
 * wanted, which differentiates again, and always those of the target and of the weight. */
static void soft_entropy_slopes(ac_formula *c, const ac_attrs_soft_entropy *a) {
    ac_scratch *s = &c->scratch;
    T given = SAVED(0), t = SAVED(1), w = MAYBE(2), g = ac_c_wide(s, G);
    if (!given || !t || !w || !g) return;
    int64_t channel = given->ndim > 1, classes = given->shape[channel];
    ac_dims along = {1, {channel}}, column = {.n = given->ndim}, others = {.n = 0};
    for (int64_t d = 0; d < column.n; d++) {
        column.v[d] = d == channel ? classes : 1;
        if (d != channel) others.v[others.n++] = d;
    }
    ac_attrs_softmax over = {channel, AC_NO_DTYPE};
    T x = ac_c_cast(s, given, g->dtype), target = ac_c_cast(s, t, g->dtype);
    T weight = ac_c_has(w) ? ac_c_reshape(s, ac_c_cast(s, w, g->dtype), &column) : ABSENT;
    if (a->reduction == AC_REDUCE_MEAN) g = DIV(g, NUM((double)(given->numel / (classes ? classes : 1))));
    if (a->reduction == AC_REDUCE_NONE) g = ac_c_unsqueeze(s, g, channel);
    T q = soft_shares(s, a, target, weight, (double)classes);
    if (c->graph && WANTS(0)) {
        T slope = SUB(MUL(ac_c_call(s, AC_OP_softmax, &over, 1, x), ac_c_sum_over(s, q, &along, true)), q);
        GIVE(0, ac_c_cast(s, MUL(slope, g), given->dtype));
    }
    if (!WANTS(1) && !WANTS(2)) return;
    T each = MUL(UN(neg, ac_c_call(s, AC_OP_log_softmax, &over, 1, x)), g); /* of q */
    T of_target = ac_c_has(weight) ? MUL(each, weight) : each;
    GIVE(1, ac_c_cast(s, TIMES(of_target, 1 - a->label_smoothing), t->dtype));
    if (!WANTS(2)) return;
    T of_weight = MUL(each, soft_shares(s, a, target, ABSENT, (double)classes));
    GIVE(2, ac_c_cast(s, others.n ? ac_c_sum_over(s, of_weight, &others, false) : of_weight, w->dtype));
}

FORMULA(soft_entropy) {
    ATTR(soft_entropy);
    if (!c->graph && WANTS(0)) {
        T in[5] = {G, SAVED(1), MAYBE(2), SAVED(0), RESULT(1)}, out[AC_MAX_OUT];
        if (ac_c_call_many(s, AC_OP_soft_entropy_backward, a, in, 5, out) == 0) GIVE(0, out[0]);
    }
    if (c->graph || WANTS(1) || WANTS(2)) soft_entropy_slopes(c, a);
    DONE;
}

/* -- running totals ----------------------------------------------------------------------------------------- */

/* y[i] = decay[i + 1] y[i + 1] + g[i], the adjoint of a running total along dim */
static T scan_back(ac_scratch *s, T g, T decay, int64_t dim) {
    ac_attrs_linear_scan back = {dim, 1};
    return ac_c_call(s, AC_OP_linear_scan, &back, 2, g, decay);
}

static T totals_back(ac_scratch *s, T g, int64_t dim) {
    if (!g) return NULL;
    ac_dims shape = ac_shape_of(g);
    ac_attrs_full ones = {{.n = 0}, {AC_INT, {1}}, g->dtype, ac_device_of(g)};
    return scan_back(s, g, ac_c_expand(s, ac_c_call(s, AC_OP_full, &ones, 0), &shape), dim);
}

/* x moved on by one along dim, `first` in front */
static T moved_on(ac_scratch *s, T x, int64_t dim, double first) {
    if (!x || x->ndim == 0 || ac_dim_wrap(&dim, x->ndim, "scan") < 0) return x ? TIMES(x, 0) : NULL;
    ac_dims shape = ac_shape_of(x);
    if (shape.v[dim] == 0) return x;
    T rest = ac_c_slice(s, x, dim, 0, shape.v[dim] - 1);
    shape.v[dim] = 1;
    return ac_c_cat(s, (T[]){ac_c_full(s, &shape, first, x->dtype, ac_device_of(x)), rest}, 2, dim);
}

FORMULA(cumsum) {
    ATTR(cumulative);
    GIVE(0, totals_back(s, G, a->dim));
    DONE;
}

/* The product before each, times the totals of what comes after: no division, so zeros are fine. */
FORMULA(cumprod) {
    ATTR(cumulative);
    T g = G, x = ac_c_cast(s, SAVED(0), c->node->outputs[0].dtype);
    if (!x || x->ndim == 0) {
        GIVE(0, g);
        DONE;
    }
    GIVE(0, MUL(moved_on(s, RESULT(0), a->dim, 1), scan_back(s, g, x, a->dim)));
    DONE;
}

/* exp(x - y), which is 1 for equal infinities. */
static T exp_of_difference(ac_scratch *s, T x, T y) { return WHERE(BIN(eq, x, y), NUM(1), UN(exp, SUB(x, y))); }

/* What comes back at an element goes on to those before it, smaller as their totals are: no power is above 1. */
FORMULA(logcumsumexp) {
    ATTR(one_dim);
    T x = SAVED(0), y = RESULT(0), g = G;
    if (x && ac_is_half(x->dtype)) { /* 16 bits hold too little of y for exp(x - y): it is computed again */
        x = ac_c_cast(s, x, AC_float32), g = ac_c_cast(s, g, AC_float32);
        y = ac_c_call(s, AC_OP_logcumsumexp, a, 1, x);
    }
    if (x && x->ndim > 0) g = scan_back(s, g, exp_of_difference(s, moved_on(s, y, a->dim, -INFINITY), y), a->dim);
    GIVE(0, ac_c_cast(s, MUL(exp_of_difference(s, x, y), g), ac_f_input(c, 0)->dtype));
    DONE;
}

FORMULA(linear_scan) {
    ATTR(linear_scan);
    ac_attrs_linear_scan other_way = {a->dim, !a->reverse};
    T decay = SAVED(1), back = ac_c_call(s, AC_OP_linear_scan, &other_way, 2, G, decay);
    GIVE(0, back);
    if (!WANTS(1)) DONE;
    T y = RESULT(0);
    ac_f_give(c, 1, a->reverse ? MUL(moved_on(s, back, a->dim, 0), y) : MUL(back, moved_on(s, y, a->dim, 0)));
    DONE;
}
