/* Operators written in other operators. Their temporaries live in a formula-like scratch: each
 * helper takes NULL for "failed before" and passes it on. */
#include "dispatch.h"

#include "../amp/autocast.h"
#include "../base/rng.h"
#include "../ops/views.h"

#include <inttypes.h>
#include <stdarg.h>

#define COMPOSE(name) static int compose_##name(ac_tensor *const *in, int n_in, const void *attrs, ac_tensor **out)
#define ATTRS(name) const ac_attrs_##name *a = attrs
#define UNUSED (void)in, (void)n_in, (void)attrs, (void)out

enum { MAX_TEMPORARIES = 24 };

typedef struct {
    ac_tensor *owned[MAX_TEMPORARIES];
    int n;
    bool failed;
} scratch;

typedef ac_tensor *T;

static T keep(scratch *s, ac_tensor *t) {
    if (!t) s->failed = true;
    else s->owned[s->n++] = t;
    return t;
}

static T call(scratch *s, ac_op op, const void *attrs, int n, ...) {
    ac_tensor *in[4], *out[AC_MAX_OUT] = {NULL};
    va_list args;
    va_start(args, n);
    for (int i = 0; i < n; i++) in[i] = va_arg(args, ac_tensor *);
    va_end(args);
    for (int i = 0; i < n; i++)
        if (!in[i] && s->failed) return NULL;
    if (s->failed || ac_call(op, in, n, attrs, out) < 0) {
        s->failed = true;
        return NULL;
    }
    for (int i = 1; i < ac_ops[op].n_out; i++) ac_tensor_clear(&out[i]);
    return keep(s, out[0]);
}

/* Ends a composition: `result` (borrowed from the scratch or an input) becomes the output. */
static int done(scratch *s, T result, ac_tensor **out) {
    if (!result) s->failed = true;
    if (!s->failed) out[0] = ac_tensor_retain(result);
    for (int i = 0; i < s->n; i++) ac_tensor_release(s->owned[i]);
    return s->failed ? -1 : 0;
}

static const ac_attrs_alpha one = {{AC_INT, {1}}};

static T number(scratch *s, double x) {
    T t = keep(s, ac_tensor_scalar(AC_float64, x));
    if (t) t->is_scalar = true;
    return t;
}

static T reshape(scratch *s, T x, const ac_dims *shape) {
    ac_attrs_size a = {*shape};
    return call(s, AC_OP_reshape, &a, 1, x);
}

static T reduced(scratch *s, T x, int64_t reduction) {
    ac_attrs_reduce all = {{.n = -1}, 0, AC_NO_DTYPE};
    if (reduction == AC_REDUCE_NONE || !x) return x;
    return call(s, reduction == AC_REDUCE_MEAN ? AC_OP_mean : AC_OP_sum, &all, 1, x);
}

/* -- reductions ------------------------------------------------------------------------------------- */

static int extremum(ac_op op, ac_tensor *x, ac_tensor **out) {
    ac_attrs_reduce_dim all = {{.n = -1}, 0};
    if (x->numel == 0)
        return ac_fail(AC_RUNTIME, "%s: a tensor without elements has none; give `dim`",
                       op == AC_OP_amax ? "max" : "min");
    return ac_call(op, &x, 1, &all, out);
}

COMPOSE(max) { return UNUSED, extremum(AC_OP_amax, in[0], out); }
COMPOSE(min) { return UNUSED, extremum(AC_OP_amin, in[0], out); }
COMPOSE(max_other) { return UNUSED, ac_call(AC_OP_maximum, in, 2, NULL, out); }
COMPOSE(min_other) { return UNUSED, ac_call(AC_OP_minimum, in, 2, NULL, out); }

/* -- views and copies ------------------------------------------------------------------------------- */

COMPOSE(reshape) {
    UNUSED;
    ac_attrs_size a = *(const ac_attrs_size *)attrs;
    ac_dims strides;
    AC_TRY(ac_dims_infer(&a.size, in[0]->numel, "reshape"));
    if (ac_view_strides(in[0], &a.size, &strides)) return ac_call(AC_OP_view, in, 1, &a, out);
    scratch s = {.n = 0};
    T copy = call(&s, AC_OP_clone, NULL, 1, in[0]);
    return done(&s, call(&s, AC_OP_view, &a, 1, copy), out);
}

COMPOSE(flatten) {
    UNUSED;
    ATTRS(flatten);
    const ac_tensor *x = in[0];
    int64_t first = a->start_dim, last = a->end_dim;
    AC_TRY(ac_dim_wrap(&first, x->ndim, "flatten"));
    AC_TRY(ac_dim_wrap(&last, x->ndim, "flatten"));
    if (first > last)
        return ac_fail(AC_RUNTIME, "flatten: start_dim %" PRId64 " is behind end_dim %" PRId64, a->start_dim,
                       a->end_dim);
    ac_attrs_size size = {{.n = 0}};
    int64_t joined = 1;
    for (int64_t d = 0; d < x->ndim; d++) {
        if (d < first || d > last) size.size.v[size.size.n++] = x->shape[d];
        else joined *= x->shape[d];
        if (d == last) size.size.v[size.size.n++] = joined;
    }
    if (x->ndim == 0) size.size = (ac_dims){1, {1}};
    return ac_call(AC_OP_reshape, in, 1, &size, out);
}

COMPOSE(contiguous) {
    UNUSED;
    if (!ac_is_contiguous(in[0])) return ac_call(AC_OP_clone, in, 1, NULL, out);
    out[0] = ac_tensor_retain(in[0]);
    return 0;
}

COMPOSE(t) {
    UNUSED;
    ac_attrs_two_dims swap = {0, in[0]->ndim > 1 ? 1 : 0};
    if (in[0]->ndim > 2)
        return ac_fail(AC_RUNTIME, "t: needs a tensor of at most 2 dimensions, got %d; use transpose", in[0]->ndim);
    return ac_call(AC_OP_transpose, in, 1, &swap, out);
}

COMPOSE(narrow) {
    UNUSED;
    ATTRS(narrow);
    int64_t dim = a->dim, start = a->start;
    AC_TRY(ac_dim_wrap(&dim, in[0]->ndim, "narrow"));
    int64_t size = in[0]->ndim ? in[0]->shape[dim] : 0;
    if (start < 0) start += size;
    if (start < 0 || a->length < 0 || start > size || a->length > size - start)
        return ac_fail(AC_RUNTIME,
                       "narrow: start %" PRId64 " and length %" PRId64 " do not fit dimension %" PRId64
                       " of size %" PRId64,
                       a->start, a->length, dim, size);
    ac_attrs_slice part = {dim, start, start + a->length, 1};
    return ac_call(AC_OP_slice, in, 1, &part, out);
}

COMPOSE(stack) {
    ATTRS(one_dim);
    ac_tensor *wide[AC_MAX_LIST];
    ac_attrs_one_dim at = *a;
    int made = 0, failed = 0;
    if (n_in == 0) return ac_fail(AC_RUNTIME, "stack: needs at least one tensor, got an empty list");
    AC_TRY(ac_dim_wrap(&at.dim, in[0]->ndim + 1, "stack"));
    for (int i = 1; i < n_in; i++)
        if (!ac_same_shape(in[i], in[0])) {
            char first[AC_SHAPE_TEXT], other[AC_SHAPE_TEXT];
            return ac_fail(AC_RUNTIME, "stack: all tensors must have one shape, got %s and %s (tensor %d)",
                           ac_shape_text(in[0], first), ac_shape_text(in[i], other), i);
        }
    for (; made < n_in && !failed; made++) failed = ac_call(AC_OP_unsqueeze, &in[made], 1, &at, &wide[made]);
    if (failed) made--;
    if (!failed) failed = ac_call(AC_OP_cat, wide, n_in, &at, out);
    for (int i = 0; i < made; i++) ac_tensor_release(wide[i]);
    return failed;
}

/* -- products --------------------------------------------------------------------------------------- */

static const ac_attrs_product plain = {AC_NO_DTYPE};

COMPOSE(mv) {
    UNUSED;
    if (in[0]->ndim != 2 || in[1]->ndim != 1)
        return ac_fail(AC_RUNTIME, "mv: needs a matrix and a vector, got %d and %d dimensions", in[0]->ndim,
                       in[1]->ndim);
    scratch s = {.n = 0};
    ac_attrs_one_dim last = {1};
    ac_attrs_maybe_dims drop = {{1, {1}}};
    T product = call(&s, AC_OP_mm, &plain, 2, in[0], call(&s, AC_OP_unsqueeze, &last, 1, in[1]));
    return done(&s, call(&s, AC_OP_squeeze, &drop, 1, product), out);
}

COMPOSE(dot) {
    UNUSED;
    if (in[0]->ndim != 1 || in[1]->ndim != 1 || in[0]->numel != in[1]->numel || in[0]->dtype != in[1]->dtype)
        return ac_fail(AC_RUNTIME,
                       "dot: needs two vectors of one length and dtype, got %d and %d dimensions, %" PRId64
                       " and %" PRId64 " elements, %s and %s",
                       in[0]->ndim, in[1]->ndim, in[0]->numel, in[1]->numel, ac_dtypes[in[0]->dtype].name,
                       ac_dtypes[in[1]->dtype].name);
    scratch s = {.n = 0};
    ac_attrs_reduce all = {{.n = -1}, 0, in[0]->dtype};
    return done(&s, call(&s, AC_OP_sum, &all, 1, call(&s, AC_OP_mul, NULL, 2, in[0], in[1])), out);
}

COMPOSE(addmm) {
    UNUSED;
    ATTRS(addmm);
    scratch s = {.n = 0};
    double alpha = ac_scalar_double(a->alpha), beta = ac_scalar_double(a->beta);
    T product = call(&s, AC_OP_mm, &plain, 2, in[1], in[2]);
    if (product && alpha != 1) product = call(&s, AC_OP_mul, NULL, 2, product, number(&s, alpha));
    if (beta == 0) return done(&s, product, out); /* torch: x is ignored, nan or not */
    ac_attrs_dtype as = {product ? product->dtype : AC_float32};
    T x = product && in[0]->dtype != product->dtype && ac_autocast.active ? call(&s, AC_OP_cast, &as, 1, in[0]) : in[0];
    if (beta != 1) x = call(&s, AC_OP_mul, NULL, 2, x, number(&s, beta));
    return done(&s, call(&s, AC_OP_add, &one, 2, product, x), out);
}

/* Leading dimensions broadcast to `batch`, flattened to one, the last two kept. */
static T as_batch(scratch *s, T x, const ac_dims *batch, int64_t numel) {
    if (!x) return NULL;
    ac_attrs_size wide = {*batch};
    int64_t rows = x->shape[x->ndim - 2], cols = x->shape[x->ndim - 1];
    wide.size.v[wide.size.n++] = rows, wide.size.v[wide.size.n++] = cols;
    ac_dims flat = {3, {numel, rows, cols}};
    return reshape(s, call(s, AC_OP_expand, &wide, 1, x), &flat);
}

static T batched_product(scratch *s, T x, T y) {
    ac_dims batch = ac_shape_of(x), other = ac_shape_of(y);
    batch.n -= 2, other.n -= 2;
    if (ac_dims_broadcast(&batch, &other, "matmul") < 0 || batch.n + 2 > AC_MAX_DIMS) {
        s->failed = true;
        return NULL;
    }
    int64_t numel = ac_dims_numel(&batch);
    T product = call(s, AC_OP_bmm, &plain, 2, as_batch(s, x, &batch, numel), as_batch(s, y, &batch, numel));
    if (!product) return NULL;
    ac_dims shape = batch;
    shape.v[shape.n++] = product->shape[1], shape.v[shape.n++] = product->shape[2];
    return reshape(s, product, &shape);
}

/* Rows of x [..., n, k] against one matrix are one tall product. */
static T folded_product(scratch *s, T x, T y) {
    int last = x->ndim - 1;
    int64_t width = x->shape[last];
    ac_dims rows = {2, {width ? x->numel / width : 0, width}}, shape = ac_shape_of(x);
    if (!width)
        for (int64_t d = rows.v[0] = 1; d <= last; d++) rows.v[0] *= x->shape[d - 1];
    shape.v[last] = y->shape[1];
    T product = call(s, AC_OP_mm, &plain, 2, reshape(s, x, &rows), y);
    return product ? reshape(s, product, &shape) : NULL;
}

COMPOSE(matmul) {
    UNUSED;
    scratch s = {.n = 0};
    T x = in[0], y = in[1];
    if (x->ndim == 0 || y->ndim == 0) return ac_fail(AC_RUNTIME, "matmul: 0-d operands cannot be multiplied; use *");
    ac_attrs_one_dim front = {0}, back = {1};
    bool vector_x = x->ndim == 1, vector_y = y->ndim == 1;
    if (vector_x) x = call(&s, AC_OP_unsqueeze, &front, 1, x);
    if (vector_y) y = call(&s, AC_OP_unsqueeze, &back, 1, y);
    if (!x || !y) return done(&s, NULL, out);
    T product = x->ndim == 2 && y->ndim == 2 ? call(&s, AC_OP_mm, &plain, 2, x, y)
                : y->ndim == 2               ? folded_product(&s, x, y)
                                             : batched_product(&s, x, y);
    ac_attrs_maybe_dims drop = {{.n = 0}};
    if (vector_x) drop.dim.v[drop.dim.n++] = -2;
    if (vector_y) drop.dim.v[drop.dim.n++] = -1;
    if (product && drop.dim.n) product = call(&s, AC_OP_squeeze, &drop, 1, product);
    return done(&s, product, out);
}

/* -- losses ----------------------------------------------------------------------------------------- */

COMPOSE(l1_loss) {
    UNUSED;
    ATTRS(reduction);
    scratch s = {.n = 0};
    T difference = call(&s, AC_OP_abs, NULL, 1, call(&s, AC_OP_sub, &one, 2, in[0], in[1]));
    return done(&s, reduced(&s, difference, a->reduction), out);
}

/* The mean of -log p over all classes, which label smoothing mixes in; weighted by class. */
static T smooth_part(scratch *s, T log_p, T target, T weight, const ac_attrs_cross_entropy *a) {
    int64_t channel = log_p->ndim > 1, classes = log_p->shape[channel];
    ac_dims column = {.n = log_p->ndim}, dim = {1, {channel}};
    for (int64_t d = 0; d < column.n; d++) column.v[d] = d == channel ? classes : 1;
    T weighted = weight ? call(s, AC_OP_mul, NULL, 2, log_p, reshape(s, weight, &column)) : log_p;
    ac_attrs_reduce over = {dim, 0, AC_NO_DTYPE}, all = {{.n = -1}, 0, AC_NO_DTYPE};
    T sum = call(s, AC_OP_neg, NULL, 1, call(s, AC_OP_sum, &over, 1, weighted));
    T ignored = call(s, AC_OP_eq, NULL, 2, target, number(s, (double)a->ignore_index));
    ac_attrs_value zero = {{AC_INT, {0}}};
    T kept = call(s, AC_OP_masked_fill, &zero, 2, sum, ignored);
    if (a->reduction == AC_REDUCE_NONE) return kept;
    T total = call(s, AC_OP_sum, &all, 1, kept);
    if (a->reduction == AC_REDUCE_SUM || !total) return total;
    ac_attrs_dtype as = {log_p->dtype};
    T counted = call(s, AC_OP_cast, &as, 1, call(s, AC_OP_logical_not, NULL, 1, ignored));
    if (weight) { /* each sample counts as much as its class weighs */
        ac_attrs_value first = {{AC_INT, {0}}};
        ac_attrs_index_dim rows = {0};
        T safe = call(s, AC_OP_masked_fill, &first, 2, target, ignored);
        ac_dims flat = {1, {target->numel}}, shape = ac_shape_of(target);
        T each = call(s, AC_OP_index_select, &rows, 2, weight, safe ? reshape(s, safe, &flat) : NULL);
        counted = call(s, AC_OP_mul, NULL, 2, counted, each ? reshape(s, each, &shape) : NULL);
    }
    return call(s, AC_OP_div, NULL, 2, total, call(s, AC_OP_sum, &all, 1, counted));
}

static T class_entropy(scratch *s, T log_p, T target, T weight, const ac_attrs_cross_entropy *a) {
    ac_attrs_nll nll = {a->ignore_index, a->reduction};
    double mix = a->label_smoothing;
    T loss = call(s, AC_OP_nll_loss, &nll, 3, log_p, target, weight);
    if (mix == 0 || !loss) return loss;
    int64_t classes = log_p->shape[log_p->ndim > 1];
    T smooth = smooth_part(s, log_p, target, weight, a);
    T left = call(s, AC_OP_mul, NULL, 2, loss, number(s, 1 - mix));
    return call(s, AC_OP_add, &one, 2, left, call(s, AC_OP_mul, NULL, 2, smooth, number(s, mix / (double)classes)));
}

/* Targets as probabilities of x's own shape. */
static T soft_entropy(scratch *s, T log_p, T target, T weight, const ac_attrs_cross_entropy *a) {
    int64_t channel = log_p->ndim > 1, classes = log_p->shape[channel];
    ac_dims dim = {1, {channel}}, column = {.n = log_p->ndim};
    double mix = a->label_smoothing;
    if (mix > 0) {
        T kept = call(s, AC_OP_mul, NULL, 2, target, number(s, 1 - mix));
        target = call(s, AC_OP_add, &one, 2, kept, number(s, mix / (double)classes));
    }
    T each = call(s, AC_OP_mul, NULL, 2, log_p, target);
    for (int64_t d = 0; d < column.n; d++) column.v[d] = d == channel ? classes : 1;
    if (weight) each = call(s, AC_OP_mul, NULL, 2, each, reshape(s, weight, &column));
    ac_attrs_reduce over = {dim, 0, AC_NO_DTYPE}, all = {{.n = -1}, 0, AC_NO_DTYPE};
    T loss = call(s, AC_OP_neg, NULL, 1, call(s, AC_OP_sum, &over, 1, each));
    if (a->reduction == AC_REDUCE_NONE || !loss) return loss;
    T total = call(s, AC_OP_sum, &all, 1, loss);
    double samples = (double)(log_p->numel / (classes ? classes : 1));
    return a->reduction == AC_REDUCE_SUM ? total : call(s, AC_OP_div, NULL, 2, total, number(s, samples));
}

COMPOSE(cross_entropy) {
    UNUSED;
    ATTRS(cross_entropy);
    T x = in[0], target = in[1];
    if (x->ndim == 0) return ac_fail(AC_RUNTIME, "cross_entropy: `x` must have a dimension of classes");
    if (!(a->label_smoothing >= 0 && a->label_smoothing <= 1))
        return ac_fail(AC_RUNTIME, "cross_entropy: `label_smoothing` must be between 0 and 1, got %g",
                       a->label_smoothing);
    scratch s = {.n = 0};
    ac_attrs_softmax along = {x->ndim > 1, AC_NO_DTYPE};
    T log_p = call(&s, AC_OP_log_softmax, &along, 1, x);
    if (!log_p) return done(&s, NULL, out);
    bool soft = ac_same_shape(x, target) && ac_is_floating(target->dtype);
    T loss = soft ? soft_entropy(&s, log_p, target, in[2], a) : class_entropy(&s, log_p, target, in[2], a);
    return done(&s, loss, out);
}

static int same_shapes(const char *what, const ac_tensor *x, const ac_tensor *target) {
    if (ac_same_shape(x, target)) return 0;
    char left[AC_SHAPE_TEXT], right[AC_SHAPE_TEXT];
    return ac_fail(AC_VALUE, "%s: `target` %s must have the shape of `x` %s", what, ac_shape_text(target, right),
                   ac_shape_text(x, left));
}

/* (1 - t) x + l (log(1 + exp(-|x|)) + max(-x, 0)), l = 1 + (pos_weight - 1) t */
COMPOSE(bce_with_logits) {
    UNUSED;
    ATTRS(reduction_only);
    T x = in[0], target = in[1], weight = in[2], positive = in[3];
    AC_TRY(same_shapes("binary_cross_entropy_with_logits", x, target));
    scratch s = {.n = 0};
    T rest = call(&s, AC_OP_mul, NULL, 2, call(&s, AC_OP_sub, &one, 2, number(&s, 1), target), x);
    T tail = call(&s, AC_OP_softplus_, NULL, 1, call(&s, AC_OP_neg, NULL, 1, x));
    if (positive) {
        T more = call(&s, AC_OP_mul, NULL, 2, call(&s, AC_OP_sub, &one, 2, positive, number(&s, 1)), target);
        tail = call(&s, AC_OP_mul, NULL, 2, tail, call(&s, AC_OP_add, &one, 2, more, number(&s, 1)));
    }
    T loss = call(&s, AC_OP_add, &one, 2, rest, tail);
    if (weight) loss = call(&s, AC_OP_mul, NULL, 2, loss, weight);
    return done(&s, reduced(&s, loss, a->reduction), out);
}

/* -(t log p + (1 - t) log(1 - p)), logarithms cut at -100 */
COMPOSE(bce) {
    UNUSED;
    ATTRS(reduction_only);
    T p = in[0], target = in[1], weight = in[2];
    AC_TRY(same_shapes("binary_cross_entropy", p, target));
    scratch s = {.n = 0};
    ac_attrs_clamp cut = {{AC_INT, {-100}}, {AC_NONE, {0}}};
    T log_p = call(&s, AC_OP_clamp, &cut, 1, call(&s, AC_OP_log, NULL, 1, p));
    T log_q =
        call(&s, AC_OP_clamp, &cut, 1, call(&s, AC_OP_log, NULL, 1, call(&s, AC_OP_sub, &one, 2, number(&s, 1), p)));
    T yes = call(&s, AC_OP_mul, NULL, 2, target, log_p);
    T no = call(&s, AC_OP_mul, NULL, 2, call(&s, AC_OP_sub, &one, 2, number(&s, 1), target), log_q);
    T loss = call(&s, AC_OP_neg, NULL, 1, call(&s, AC_OP_add, &one, 2, yes, no));
    if (weight) loss = call(&s, AC_OP_mul, NULL, 2, loss, weight);
    return done(&s, reduced(&s, loss, a->reduction), out);
}

/* -- dropout ---------------------------------------------------------------------------------------- */

/* The mask is a place in the random stream, so backward draws it again and none is kept. */
COMPOSE(dropout) {
    UNUSED;
    ATTRS(dropout);
    if (!(a->p >= 0 && a->p <= 1)) return ac_fail(AC_VALUE, "dropout: `p` must be between 0 and 1, got %g", a->p);
    if (!a->training || a->p == 0) {
        out[0] = ac_tensor_retain(in[0]);
        return 0;
    }
    ac_generator *g = ac_default_generator();
    ac_attrs_dropout_mask mask = {a->p, (int64_t)g->seed, (int64_t)ac_generator_take(g, in[0]->numel)};
    return ac_call(AC_OP_dropout_mask, in, 1, &mask, out);
}

const ac_compose_fn ac_compositions[AC_N_OPS] = {
#define COMPOSITE(name, ...) [AC_OP_##name] = compose_##name,
#include "../ops/ops.def"
};
