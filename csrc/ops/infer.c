/* Shape functions of elementwise operators, creation, reductions and products. */
#include "ops/infer.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define ATTRS(name) const ac_attrs_##name *a = i->attrs

const char *ac_input_name(const ac_infer *i, int input) { return ac_input_param(i->info, input); }

int ac_need_floating(const ac_infer *i, int input) {
    if (ac_is_floating(i->in[input]->dtype)) return 0;
    return ac_fail(AC_NOT_IMPLEMENTED, "%s: `%s` must be floating point, got %s; convert it with .float()",
                   i->info->shown, ac_input_name(i, input), ac_dtypes[i->in[input]->dtype].name);
}

int ac_need_integer(const ac_infer *i, int input) {
    ac_dtype t = i->in[input]->dtype;
    if (t == AC_int64 || t == AC_int32) return 0;
    return ac_fail(i->info == &ac_ops[AC_OP_index_put] ? AC_INDEX : AC_RUNTIME,
                   "%s: `%s` holds indices and must be int64 or int32, got %s; convert it with .long()", i->info->shown,
                   ac_input_name(i, input), ac_dtypes[t].name);
}

int ac_need_ndim(const ac_infer *i, int input, int ndim) {
    if (i->in[input]->ndim == ndim) return 0;
    char text[AC_SHAPE_TEXT];
    return ac_fail(AC_RUNTIME, "%s: `%s` must have %d dimensions, got shape %s", i->info->shown,
                   ac_input_name(i, input), ndim, ac_shape_text(i->in[input], text));
}

int ac_need_same_dtype(const ac_infer *i, int a, int b) {
    if (i->in[a]->dtype == i->in[b]->dtype) return 0;
    return ac_fail(AC_RUNTIME,
                   "%s: `%s` and `%s` must have the same dtype, got %s and %s; cast one of them with .to(), or open an "
                   "autocast region",
                   i->info->shown, ac_input_name(i, a), ac_input_name(i, b), ac_dtypes[i->in[a]->dtype].name,
                   ac_dtypes[i->in[b]->dtype].name);
}

int ac_need_shape(const ac_infer *i, int input, const ac_dims *shape) {
    ac_dims got = ac_shape_of(i->in[input]);
    if (ac_dims_equal(&got, shape)) return 0;
    char want_text[AC_SHAPE_TEXT], got_text[AC_SHAPE_TEXT];
    return ac_fail(AC_RUNTIME, "%s: `%s` must have shape %s, got %s", i->info->shown, ac_input_name(i, input),
                   ac_dims_text(shape, want_text), ac_dims_text(&got, got_text));
}

/* -- elementwise ------------------------------------------------------------------------------- */

/* Promotion by rank: a dimensioned tensor of the highest category present decides alone. */
static ac_dtype promoted(ac_tensor *const *in, int n) {
    int best[3] = {-1, -1, -1}; /* dimensioned, 0-d, number */
    for (int k = 0; k < n; k++) {
        if (!in[k]) continue;
        int rank = in[k]->is_scalar ? 2 : in[k]->ndim == 0 ? 1 : 0;
        ac_dtype t = in[k]->dtype;
        best[rank] = best[rank] < 0 ? (int)t : (int)ac_promote((ac_dtype)best[rank], t);
    }
    int result = best[0];
    for (int rank = 1; rank < 3; rank++) {
        if (best[rank] < 0) continue;
        if (result < 0) result = best[rank];
        else if (ac_dtypes[best[rank]].category > ac_dtypes[result].category)
            result = rank == 2 && ac_is_floating((ac_dtype)best[rank]) ? (int)ac_default_dtype() : best[rank];
    }
    return (ac_dtype)result;
}

ac_dtype ac_result_type(ac_tensor *const *in, int n) {
    bool alike = true; /* the usual case: tensors of one dtype, none a number */
    for (int k = 0; k < n && alike; k++) alike = in[k] && in[k]->dtype == in[0]->dtype;
    return alike && n ? in[0]->dtype : promoted(in, n);
}

/* Whole numbers of unsigned types may be negative, and wrap. */
static double lowest(ac_dtype t, bool fraction) {
    if (t == AC_uint8) return fraction ? 0 : -255;
    return -ldexp(1, (int)(8 * ac_itemsize(t)) - 1);
}
static double highest(ac_dtype t) { /* of int64 one too many, which doubles do not tell */
    return t == AC_uint8 ? 255 : ldexp(1, (int)(8 * ac_itemsize(t)) - 1) - (t != AC_int64);
}

int ac_scalar_fits(ac_scalar s, ac_dtype dtype, const char *what) {
    if (dtype == AC_bool || ac_is_floating(dtype)) return 0;
    double value = ac_scalar_double(s);
    bool below = s.kind == AC_FLOAT && dtype == AC_int64 ? value < highest(dtype) : value <= highest(dtype);
    if (value >= lowest(dtype, s.kind == AC_FLOAT) && below) return 0;
    return ac_fail(AC_RUNTIME, "%s: %s cannot hold the number %g", what, ac_dtypes[dtype].name, value);
}

int ac_scalar_held(ac_scalar s, ac_dtype dtype, const char *what) {
    double value = ac_scalar_double(s);
    if (!ac_is_floating(dtype)) return ac_scalar_fits(s, dtype, what);
    if (fabs(value) <= ac_dtype_largest(dtype) || !isfinite(value)) return 0;
    return ac_fail(AC_RUNTIME,
                   "%s: %s cannot hold the number %g, its largest is %g; use finfo(dtype).min or max, or an infinity",
                   what, ac_dtypes[dtype].name, value, ac_dtype_largest(dtype));
}

int ac_number_held(const ac_tensor *t, ac_dtype dtype, const char *what) {
    if (ac_device_of(t) != AC_CPU || t->numel != 1) return 0;
    bool real = ac_is_floating(t->dtype);
    ac_scalar number = {.kind = real ? AC_FLOAT : AC_INT};
    if (real) number.f = ac_read_double(ac_data(t), t->dtype, 0);
    else number.i = ac_read_int(ac_data(t), t->dtype, 0);
    return ac_scalar_held(number, dtype, what);
}

/* Of integers a threshold is its whole part; which they must hold, as the value in its place. */
static int whole_threshold(const ac_infer *i) {
    ATTRS(threshold);
    double numbers[2] = {a->threshold, a->value};
    for (int n = 0; n < 2 && !ac_is_floating(i->compute); n++) {
        bool whole = numbers[n] == floor(numbers[n]) && fabs(numbers[n]) < 9e18;
        ac_scalar s =
            whole ? (ac_scalar){AC_INT, {(int64_t)numbers[n]}} : (ac_scalar){.kind = AC_FLOAT, .f = numbers[n]};
        AC_TRY(ac_scalar_fits(s, i->compute, "threshold"));
    }
    return 0;
}

/* What torch refuses of integers: results would be numbers that nobody meant. */
static int whole_alpha(const ac_infer *i) {
    ATTRS(alpha);
    if (a->alpha.kind == AC_BOOL && i->compute != AC_bool)
        return ac_fail(AC_RUNTIME,
                       "%s: `alpha` may be a bool for a result of bool alone, which is of %s here; give a number",
                       i->info->shown, ac_dtypes[i->compute].name);
    if (a->alpha.kind != AC_FLOAT || ac_is_floating(i->compute)) return 0;
    return ac_fail(AC_RUNTIME, "%s: `alpha` must be an integer for %s, got %g", i->info->shown,
                   ac_dtypes[i->compute].name, a->alpha.f);
}

/* Whether the quotient should be whole, too, does not show. */
static int refuse_whole_quotient(const ac_infer *i) {
    if (ac_is_floating(i->in[1]->dtype) || ac_is_floating(i->in[2]->dtype)) return 0;
    return ac_fail(AC_RUNTIME,
                   "addcdiv: one of `tensor1` and `tensor2` must be floating point, got %s and %s; write "
                   "x + value * torch.true_divide(tensor1, tensor2)",
                   ac_dtypes[i->in[1]->dtype].name, ac_dtypes[i->in[2]->dtype].name);
}

static int whole_power(const ac_infer *i) {
    const ac_tensor *by = i->in[1];
    bool whole = by->is_scalar && ac_dtypes[i->compute].category == AC_INTEGER;
    if (!whole || ac_read_int(ac_data(by), by->dtype, 0) >= 0) return 0;
    return ac_fail(AC_RUNTIME, "pow: integers have no negative powers; convert with .float()");
}

static int clamp_dtype(ac_infer *i) {
    ATTRS(clamp);
    if (a->min.kind == AC_NONE && a->max.kind == AC_NONE)
        return ac_fail(AC_RUNTIME, "clamp: give `min`, `max` or both");
    bool fraction = a->min.kind == AC_FLOAT || a->max.kind == AC_FLOAT;
    if (fraction && !ac_is_floating(i->compute)) i->compute = ac_default_dtype();
    if (i->compute == AC_bool) i->compute = AC_int64;
    i->out[0].dtype = i->compute;
    /* bounds that all values are within need not be held */
    if (a->min.kind != AC_NONE && ac_scalar_double(a->min) > 0) AC_TRY(ac_scalar_fits(a->min, i->compute, "clamp"));
    if (a->max.kind != AC_NONE && ac_scalar_double(a->max) < 0) AC_TRY(ac_scalar_fits(a->max, i->compute, "clamp"));
    if (a->max.kind != AC_NONE && ac_scalar_double(a->max) < 0 && i->compute == AC_uint8)
        return ac_fail(AC_RUNTIME, "clamp: uint8 has no numbers up to the `max` of %g", ac_scalar_double(a->max));
    return 0;
}

/* masked_fill computes in x's dtype. A fraction makes truth values true, which whole numbers cannot show. */
static ac_dtype filled_dtype(const ac_infer *i) {
    ATTRS(value);
    return i->in[0]->dtype == AC_bool && a->value.kind == AC_FLOAT ? AC_float32 : i->in[0]->dtype;
}

static int pointwise_dtype(ac_infer *i) {
    bool where = i->info == &ac_ops[AC_OP_where] || i->info == &ac_ops[AC_OP_masked_fill];
    ac_tensor *const *in = i->in;
    if (i->info == &ac_ops[AC_OP_masked_fill]) i->compute = filled_dtype(i);
    else i->compute = where ? ac_result_type(in + 1, i->n_in - 1) : ac_result_type(in, i->n_in);
    if (where && in[i->info == &ac_ops[AC_OP_where] ? 0 : 1]->dtype != AC_bool)
        return ac_fail(AC_RUNTIME, "%s: the condition must be a bool tensor, got %s; convert it with .bool()",
                       i->info->shown, ac_dtypes[in[i->info == &ac_ops[AC_OP_where] ? 0 : 1]->dtype].name);
    if (i->info == &ac_ops[AC_OP_square] && i->compute == AC_bool) i->compute = AC_int64;
    if (i->info->result == AC_RESULT_FLOAT && !ac_is_floating(i->compute)) i->compute = ac_default_dtype();
    if (i->info->result == AC_RESULT_INT && ac_is_floating(i->compute))
        return ac_fail(AC_NOT_IMPLEMENTED, "%s: needs integers or bool, got %s", i->info->shown,
                       ac_dtypes[i->compute].name);
    return 0;
}

/* What has no meaning for truth values, and what is meant. */
static int refuse_bool(const ac_infer *i, bool sub) {
    if (i->in[0]->dtype != AC_bool && !(sub && i->in[1]->dtype == AC_bool)) return 0;
    return ac_fail(AC_RUNTIME, "%s: bool tensors have no %s; use %s", i->info->shown, sub ? "difference" : "negative",
                   sub ? "^ or logical_xor" : "~ or logical_not");
}

/* Activations with a curve are of floating point alone. */
static const bool needs_floating[AC_N_OPS] = {
    [AC_OP_gelu] = true,       [AC_OP_silu] = true,      [AC_OP_softplus] = true,    [AC_OP_elu] = true,
    [AC_OP_leaky_relu] = true, [AC_OP_hardswish] = true, [AC_OP_hardsigmoid] = true, [AC_OP_mish] = true,
    [AC_OP_hardshrink] = true, [AC_OP_softshrink] = true};
static int refuse_inputs(const ac_infer *i, ac_op op) {
    const ac_attrs_lambd *shrink = i->attrs;
    const ac_attrs_bounds *tanh = i->attrs;
    if (op == AC_OP_softshrink && !(shrink->lambd >= 0))
        return ac_fail(AC_RUNTIME, "softshrink: `lambd` must be 0 or more, got %g", shrink->lambd);
    if (op == AC_OP_hardtanh && tanh->low > tanh->high)
        return ac_fail(AC_VALUE, "hardtanh: `min_val` %g is above `max_val` %g", tanh->low, tanh->high);
    return needs_floating[op] ? ac_need_floating(i, 0) : 0;
}

/* What an operator refuses of the dtype that it computes in. */
static int refuse_dtype(const ac_infer *i, ac_op op) {
    switch (op) {
    case AC_OP_add: return whole_alpha(i);
    case AC_OP_sub: AC_TRY(refuse_bool(i, true)); return whole_alpha(i);
    case AC_OP_neg: return refuse_bool(i, false);
    case AC_OP_addcdiv: return refuse_whole_quotient(i);
    case AC_OP_pow: return whole_power(i);
    case AC_OP_threshold: return whole_threshold(i);
    case AC_OP_masked_fill: return ac_scalar_held(((const ac_attrs_value *)i->attrs)->value, i->compute, "masked_fill");
    case AC_OP_heaviside: return i->in[0]->is_scalar || i->in[1]->is_scalar ? 0 : ac_need_same_dtype(i, 0, 1);
    case AC_OP_lerp:
        if (!i->in[1]->is_scalar) AC_TRY(ac_need_same_dtype(i, 0, 1));
        return i->in[2]->ndim == 0 ? 0 : ac_need_same_dtype(i, 0, 2); /* one weight is a number, as in torch */
    default: return 0;
    }
}

/* The gradient of x is rounded to its dtype right away, unless it is to be summed over what x was broadcast to. */
static void mse_backward_dtype(ac_infer *i) {
    ac_dims x = ac_shape_of(i->in[1]);
    if (ac_is_floating(i->in[1]->dtype) && ac_dims_equal(&x, &i->out[0].shape)) i->out[0].dtype = i->in[1]->dtype;
}

int ac_infer_pointwise(ac_infer *i) {
    ac_op op = (ac_op)(i->info - ac_ops);
    AC_TRY(refuse_inputs(i, op));
    AC_TRY(pointwise_dtype(i));
    AC_TRY(refuse_dtype(i, op));
    ac_spec *out = &i->out[0];
    out->dtype = i->info->result == AC_RESULT_BOOL ? AC_bool : op == AC_OP_masked_fill ? i->in[0]->dtype : i->compute;
    out->shape.n = i->in[0]->ndim;
    for (int d = 0; d < i->in[0]->ndim; d++) out->shape.v[d] = i->in[0]->shape[d];
    for (int k = 1; k < i->n_in; k++) {
        if (ac_same_shape(i->in[k], i->in[0])) continue;
        ac_dims shape = ac_shape_of(i->in[k]);
        AC_TRY(ac_dims_broadcast(&out->shape, &shape, i->info->shown));
    }
    if (op == AC_OP_mse_backward) mse_backward_dtype(i);
    return op == AC_OP_clamp ? clamp_dtype(i) : 0;
}

int ac_infer_same(ac_infer *i) {
    i->out[0] = (ac_spec){i->in[0]->dtype, ac_shape_of(i->in[0]), AC_CPU};
    return 0;
}

int ac_infer_cast(ac_infer *i) {
    ATTRS(dtype);
    i->out[0] = (ac_spec){(ac_dtype)a->dtype, ac_shape_of(i->in[0]), AC_CPU};
    return 0;
}

/* -- creation ------------------------------------------------------------------------------------ */

int ac_infer_full(ac_infer *i) {
    ATTRS(full);
    AC_TRY(ac_scalar_held(a->value, (ac_dtype)a->dtype, "full"));
    i->out[0] = (ac_spec){(ac_dtype)a->dtype, a->size, AC_CPU};
    return 0;
}

int ac_infer_full_like_attrs(ac_infer *i) {
    ATTRS(random);
    if (!ac_is_floating((ac_dtype)a->dtype))
        return ac_fail(AC_NOT_IMPLEMENTED, "%s: needs a floating point dtype, got %s", i->info->shown,
                       ac_dtypes[a->dtype].name);
    if (i->info == &ac_ops[AC_OP_normal] && a->b < 0)
        return ac_fail(AC_RUNTIME, "normal: `std` must be 0 or more, got %g", a->b);
    i->out[0] = (ac_spec){(ac_dtype)a->dtype, a->size, AC_CPU};
    return 0;
}

/* Both ends of [low, high) must stand in the dtype, and negative ones do not wrap. */
int ac_infer_randint(ac_infer *i) {
    ATTRS(randint);
    ac_dtype dtype = (ac_dtype)a->dtype;
    if (a->low >= a->high)
        return ac_fail(AC_RUNTIME, "randint: `low` (%" PRId64 ") must be below `high` (%" PRId64 ")", a->low, a->high);
    bool outside = dtype == AC_bool ? a->low < 0 || a->high > 2 : dtype == AC_uint8 && a->low < 0;
    if (outside)
        return ac_fail(AC_RUNTIME, "randint: %s cannot hold the numbers from %" PRId64 " to %" PRId64,
                       ac_dtypes[dtype].name, a->low, a->high - 1);
    AC_TRY(ac_scalar_held((ac_scalar){AC_INT, {a->low}}, dtype, "randint"));
    AC_TRY(ac_scalar_held((ac_scalar){AC_INT, {a->high - 1}}, dtype, "randint"));
    i->out[0] = (ac_spec){dtype, a->size, AC_CPU};
    return 0;
}

/* How many whole numbers arange has, which float64 could not tell beyond 2^53; -1 for a step in the wrong direction. */
static int64_t whole_steps(int64_t start, int64_t end, int64_t step) {
    if (step == 0 || (start != end && (step > 0) != (end > start))) return -1;
    uint64_t way = step > 0 ? (uint64_t)end - (uint64_t)start : (uint64_t)start - (uint64_t)end;
    uint64_t size = step > 0 ? (uint64_t)step : 0 - (uint64_t)step, n = way / size + (way % size != 0);
    return n < (uint64_t)1 << 52 ? (int64_t)n : INT64_MAX;
}

int ac_infer_arange(ac_infer *i) {
    ATTRS(arange);
    bool whole = a->start.kind != AC_FLOAT && a->end.kind != AC_FLOAT && a->step.kind != AC_FLOAT;
    if (whole && a->dtype == AC_int64) {
        int64_t n = whole_steps(a->start.i, a->end.i, a->step.i);
        if (n < 0)
            return ac_fail(AC_RUNTIME, "arange: a step of %" PRId64 " does not lead from %" PRId64 " to %" PRId64,
                           a->step.i, a->start.i, a->end.i);
        if (n == INT64_MAX)
            return ac_fail(AC_RUNTIME, "arange: from %" PRId64 " to %" PRId64 " are too many numbers", a->start.i,
                           a->end.i);
        i->out[0] = (ac_spec){AC_int64, {1, {n}}, AC_CPU};
        return 0;
    }
    double start = ac_scalar_double(a->start), end = ac_scalar_double(a->end), step = ac_scalar_double(a->step);
    if (!(step != 0) || (end - start) / step < 0)
        return ac_fail(AC_RUNTIME, "arange: a step of %g does not lead from %g to %g", step, start, end);
    if (a->dtype == AC_int64) { /* counts by its whole bounds, as torch's does; narrower integers by what was given */
        if (trunc(step) == 0) return ac_fail(AC_VALUE, "arange: a step of %g is 0 as an integer", step);
        start = trunc(start), end = trunc(end), step = trunc(step);
    }
    double n = (end - start) / step;
    if (!(n < 0x1p52)) return ac_fail(AC_RUNTIME, "arange: from %g to %g is not finite", start, end);
    int64_t count = (int64_t)n + ((double)(int64_t)n < n);
    i->out[0] = (ac_spec){(ac_dtype)a->dtype, {1, {count}}, AC_CPU};
    return 0;
}

int ac_infer_randperm(ac_infer *i) {
    ATTRS(count);
    if (a->n < 0) return ac_fail(AC_RUNTIME, "randperm: `n` must be 0 or more, got %" PRId64, a->n);
    i->out[0] = (ac_spec){AC_int64, {1, {a->n}}, AC_CPU};
    return 0;
}

/* -- reductions ----------------------------------------------------------------------------------- */

static int reduced_shape(ac_infer *i, const ac_dims *dim, int64_t keepdim, ac_dims *out) {
    uint32_t mask;
    AC_TRY(ac_dims_mask(dim, i->in[0]->ndim, i->info->shown, &mask));
    out->n = 0;
    for (int d = 0; d < i->in[0]->ndim; d++) {
        if (!(mask & (1u << d))) out->v[out->n++] = i->in[0]->shape[d];
        else if (keepdim) out->v[out->n++] = 1;
    }
    return 0;
}

static int reduce_as(ac_infer *i, const ac_dims *dim, int64_t keepdim, ac_dtype dtype) {
    i->out[0].dtype = dtype;
    return reduced_shape(i, dim, keepdim, &i->out[0].shape);
}

int ac_infer_reduce_sum(ac_infer *i) {
    ATTRS(reduce);
    ac_dtype t = a->dtype != AC_NO_DTYPE           ? (ac_dtype)a->dtype
                 : ac_is_floating(i->in[0]->dtype) ? i->in[0]->dtype
                                                   : AC_int64;
    return reduce_as(i, &a->dim, a->keepdim, t);
}

int ac_infer_reduce_float(ac_infer *i) {
    ATTRS(reduce);
    ac_dtype t = a->dtype != AC_NO_DTYPE ? (ac_dtype)a->dtype : i->in[0]->dtype;
    if (!ac_is_floating(t))
        return ac_fail(AC_NOT_IMPLEMENTED, "%s: needs floating point, got %s; convert with .float() or give `dtype`",
                       i->info->shown, ac_dtypes[t].name);
    return reduce_as(i, &a->dim, a->keepdim, t);
}

int ac_infer_reduce_float_dim(ac_infer *i) {
    ATTRS(reduce_dim);
    ac_dtype t = i->in[0]->dtype;
    return reduce_as(i, &a->dim, a->keepdim, ac_is_floating(t) ? t : ac_default_dtype());
}

/* In torch's words, by which scripts filter it. */
static int warn_of_too_few(const ac_infer *i, double correction) {
    char text[320];
    int64_t results = ac_dims_numel(&i->out[0].shape), values = results ? i->in[0]->numel / results : 0;
    if (!ac_warn || !results || (double)values > correction || ac_device_of(i->in[0]) == AC_META) return 0;
    snprintf(text, sizeof text,
             "%s(): degrees of freedom is <= 0. Of %" PRId64 " value%s with a correction of %g the result is nan; give "
             "correction=0 (unbiased=False) for the variance of these values themselves",
             (ac_whole ? ac_whole : i->info)->shown, values, values == 1 ? "" : "s", correction);
    return ac_warn(text);
}

int ac_infer_reduce_var(ac_infer *i) {
    ATTRS(var);
    AC_TRY(ac_need_floating(i, 0));
    AC_TRY(reduce_as(i, &a->dim, a->keepdim, i->in[0]->dtype));
    return warn_of_too_few(i, ac_correction(a));
}

/* Largest and smallest have no value over nothing. */
static int need_elements(const ac_infer *i, uint32_t mask) {
    for (int d = 0; d < i->in[0]->ndim; d++)
        if ((mask & (1u << d)) && i->in[0]->shape[d] == 0)
            return ac_fail(AC_INDEX, "%s: dimension %d has no elements to choose from", i->info->shown, d);
    return 0;
}

int ac_infer_reduce_same(ac_infer *i) {
    ATTRS(reduce_dim);
    uint32_t mask;
    AC_TRY(ac_dims_mask(&a->dim, i->in[0]->ndim, i->info->shown, &mask));
    if (a->dim.n <= 0 && i->in[0]->numel == 0)
        return ac_fail(AC_RUNTIME, "%s: there are no elements to choose from; give a dimension that has some",
                       i->info->shown);
    AC_TRY(need_elements(i, mask));
    return reduce_as(i, &a->dim, a->keepdim, i->in[0]->dtype);
}

int ac_infer_reduce_pair(ac_infer *i) {
    ATTRS(dim);
    ac_dims dim = {1, {a->dim}};
    uint32_t mask;
    AC_TRY(ac_dims_mask(&dim, i->in[0]->ndim, i->info->shown, &mask));
    AC_TRY(need_elements(i, mask));
    AC_TRY(reduce_as(i, &dim, a->keepdim, i->in[0]->dtype));
    i->out[1] = (ac_spec){AC_int64, i->out[0].shape, AC_CPU};
    return 0;
}

int ac_infer_reduce_index(ac_infer *i) {
    ATTRS(maybe_dim);
    ac_dims dim = {a->dim == AC_ABSENT ? -1 : 1, {a->dim}};
    uint32_t mask;
    AC_TRY(ac_dims_mask(&dim, i->in[0]->ndim, i->info->shown, &mask));
    AC_TRY(need_elements(i, mask));
    return reduce_as(i, &dim, a->keepdim, AC_int64);
}

int ac_infer_reduce_bool(ac_infer *i) {
    ATTRS(reduce_dim);
    ac_dtype x = i->in[0]->dtype;
    if (a->dim.n == 0) { /* torch's `all` and `any` over no dimension keep every value; its sums are over all */
        AC_TRY(ac_infer_same(i));
        i->out[0].dtype = x == AC_uint8 ? x : AC_bool;
        return 0;
    }
    return reduce_as(i, &a->dim, a->keepdim, x == AC_uint8 ? x : AC_bool); /* as torch's: its truth values once */
}

int ac_infer_reduce_norm(ac_infer *i) {
    ATTRS(norm);
    ac_dtype t = a->dtype != AC_NO_DTYPE ? (ac_dtype)a->dtype : i->in[0]->dtype;
    if (!ac_is_floating(t)) AC_TRY(ac_need_floating(i, 0));
    double p = ac_scalar_double(a->p);
    uint32_t mask;
    AC_TRY(ac_dims_mask(&a->dim, i->in[0]->ndim, i->info->shown, &mask));
    for (int d = 0; d < i->in[0]->ndim && (p < 0 || isinf(p)); d++)
        if ((mask & (1u << d)) && i->in[0]->shape[d] == 0)
            return ac_fail(AC_RUNTIME, "norm: dimension %d has no elements, which have no norm of order %g", d, p);
    return reduce_as(i, &a->dim, a->keepdim, t);
}

/* -- running totals ---------------------------------------------------------------------------------- */

static int scanned(ac_infer *i, int64_t dim, ac_dtype dtype) {
    AC_TRY(ac_dim_wrap(&dim, i->in[0]->ndim, i->info->shown));
    i->out[0] = (ac_spec){dtype, ac_shape_of(i->in[0]), AC_CPU};
    return 0;
}

int ac_infer_scan(ac_infer *i) {
    ATTRS(cumulative);
    ac_dtype own = i->in[0]->dtype, t = ac_is_floating(own) ? own : AC_int64;
    return scanned(i, a->dim, a->dtype != AC_NO_DTYPE ? (ac_dtype)a->dtype : t);
}

int ac_infer_scan_real(ac_infer *i) {
    ATTRS(one_dim);
    AC_TRY(ac_need_floating(i, 0));
    return scanned(i, a->dim, i->in[0]->dtype);
}

int ac_infer_linear_scan(ac_infer *i) {
    ATTRS(linear_scan);
    ac_dims shape = ac_shape_of(i->in[0]);
    AC_TRY(ac_need_floating(i, 0));
    AC_TRY(ac_need_same_dtype(i, 0, 1));
    AC_TRY(ac_need_shape(i, 1, &shape));
    return scanned(i, a->dim, i->in[0]->dtype);
}

int ac_infer_scan_pair(ac_infer *i) {
    ATTRS(one_dim);
    AC_TRY(scanned(i, a->dim, i->in[0]->dtype));
    i->out[1] = (ac_spec){AC_int64, i->out[0].shape, AC_CPU};
    return 0;
}

int ac_infer_flip(ac_infer *i) {
    ATTRS(dims);
    uint32_t mask;
    AC_TRY(ac_dims_mask(&a->dims, i->in[0]->ndim, "flip", &mask));
    return ac_infer_same(i);
}

int ac_infer_softmax(ac_infer *i) {
    ATTRS(softmax);
    int64_t dim = a->dim;
    AC_TRY(ac_dim_wrap(&dim, i->in[0]->ndim, i->info->shown));
    ac_dtype t = a->dtype != AC_NO_DTYPE ? (ac_dtype)a->dtype : i->in[0]->dtype;
    if (!ac_is_floating(t)) AC_TRY(ac_need_floating(i, 0));
    i->out[0] = (ac_spec){t, ac_shape_of(i->in[0]), AC_CPU};
    return 0;
}

/* -- products --------------------------------------------------------------------------------------- */

static int product_dtype(ac_infer *i, int64_t out_dtype) {
    if (i->low == AC_NO_DTYPE) AC_TRY(ac_need_same_dtype(i, 0, 1));
    i->compute = i->low == AC_NO_DTYPE ? i->in[0]->dtype : (ac_dtype)i->low;
    i->out[0].dtype = out_dtype != AC_NO_DTYPE ? (ac_dtype)out_dtype : i->compute;
    return 0;
}

static int inner_sizes(const ac_infer *i, int64_t left, int64_t right) {
    if (left == right) return 0;
    char x[AC_SHAPE_TEXT], y[AC_SHAPE_TEXT];
    return ac_fail(AC_RUNTIME,
                   "%s: shapes %s and %s cannot be multiplied: the inner sizes %" PRId64 " and %" PRId64 " differ",
                   i->info->shown, ac_shape_text(i->in[0], x), ac_shape_text(i->in[1], y), left, right);
}

int ac_infer_mm(ac_infer *i) {
    ATTRS(product);
    AC_TRY(ac_need_ndim(i, 0, 2));
    AC_TRY(ac_need_ndim(i, 1, 2));
    AC_TRY(inner_sizes(i, i->in[0]->shape[1], i->in[1]->shape[0]));
    i->out[0].shape = (ac_dims){2, {i->in[0]->shape[0], i->in[1]->shape[1]}};
    return product_dtype(i, a->out_dtype);
}

int ac_infer_bmm(ac_infer *i) {
    ATTRS(product);
    AC_TRY(ac_need_ndim(i, 0, 3));
    AC_TRY(ac_need_ndim(i, 1, 3));
    if (i->in[0]->shape[0] != i->in[1]->shape[0])
        return ac_fail(AC_RUNTIME, "bmm: batches of %" PRId64 " and %" PRId64 " matrices differ", i->in[0]->shape[0],
                       i->in[1]->shape[0]);
    AC_TRY(inner_sizes(i, i->in[0]->shape[2], i->in[1]->shape[1]));
    i->out[0].shape = (ac_dims){3, {i->in[0]->shape[0], i->in[0]->shape[1], i->in[1]->shape[2]}};
    return product_dtype(i, a->out_dtype);
}

int ac_infer_linear(ac_infer *i) {
    const ac_tensor *x = i->in[0], *w = i->in[1], *bias = i->in[2];
    AC_TRY(ac_need_ndim(i, 1, 2));
    if (x->ndim == 0) return ac_fail(AC_RUNTIME, "linear: `x` must have at least 1 dimension");
    if (x->shape[x->ndim - 1] != w->shape[1]) {
        char xt[AC_SHAPE_TEXT], wt[AC_SHAPE_TEXT];
        return ac_fail(AC_RUNTIME,
                       "linear: `x` %s has %" PRId64 " features and `weight` %s [out, in] "
                       "takes %" PRId64,
                       ac_shape_text(x, xt), x->shape[x->ndim - 1], ac_shape_text(w, wt), w->shape[1]);
    }
    if (bias) {
        ac_dims want = {1, {w->shape[0]}};
        AC_TRY(ac_need_shape(i, 2, &want));
        if (i->low == AC_NO_DTYPE) AC_TRY(ac_need_same_dtype(i, 1, 2));
    }
    i->out[0].shape = ac_shape_of(x);
    i->out[0].shape.v[x->ndim - 1] = w->shape[0];
    return product_dtype(i, AC_NO_DTYPE);
}
