/* The functions that formulas and compositions are written with. */
#include "autograd/expression.h"

#include "amp/autocast.h"

#include <math.h>
#include <stdarg.h>

T ac_c_refuse(ac_scratch *s, int failed) {
    (void)failed;
    s->failed = true;
    return NULL;
}

T ac_c_keep(ac_scratch *s, T t) {
    if (!t) return ac_c_refuse(s, -1);
    if (ac_list_push(&s->owned, t) == 0) return t;
    ac_tensor_release(t);
    return ac_c_refuse(s, -1);
}

/* Keeps all results; `in` as the operator takes it, with NULL for what is absent. */
static int run(ac_scratch *s, ac_op op, const void *attrs, T const *in, int n, T *out) {
    for (int i = 0; i < AC_MAX_OUT; i++) out[i] = NULL;
    if (s->failed || ac_call(op, in, n, attrs, out) < 0) return s->failed = true, -1;
    for (int i = 0; i < ac_ops[op].n_out; i++) out[i] = ac_c_keep(s, out[i]);
    return s->failed ? -1 : 0;
}

static T given(ac_scratch *s, T x) {
    if (!x) s->failed = true;
    return x == ABSENT ? NULL : x;
}

int ac_c_call_many(ac_scratch *s, ac_op op, const void *attrs, T const *in, int n, T *out) {
    ac_list inputs;
    if (ac_list_start(&inputs, n) < 0) s->failed = true;
    for (int i = 0; i < inputs.n; i++) inputs.at[i] = given(s, in[i]);
    int failed = run(s, op, attrs, inputs.at, n, out);
    ac_list_free(&inputs);
    return failed;
}

T ac_c_call(ac_scratch *s, ac_op op, const void *attrs, int n, ...) {
    T in[8], out[AC_MAX_OUT];
    va_list args;
    va_start(args, n);
    for (int i = 0; i < n; i++) in[i] = given(s, va_arg(args, T));
    va_end(args);
    return run(s, op, attrs, in, n, out) < 0 ? NULL : out[0];
}

/* -- words -- */

T ac_c_number(ac_scratch *s, double x) {
    bool whole = x > -0x1p53 && x < 0x1p53 && x == (double)(int64_t)x; /* an int leaves integers what they are */
    T t = ac_c_keep(s, whole ? ac_tensor_scalar_int(AC_int64, (int64_t)x) : ac_tensor_scalar(AC_float64, x));
    if (t) t->is_scalar = true;
    return t;
}

T ac_c_real(ac_scratch *s, double x) {
    T t = ac_c_keep(s, ac_tensor_scalar(AC_float64, x));
    if (t) t->is_scalar = true;
    return t;
}

double ac_c_factor(ac_scalar value, ac_dtype dtype) {
    double x = ac_scalar_double(value);
    return dtype == AC_bool ? x != 0 : ac_is_floating(dtype) ? x : trunc(x);
}

T ac_c_zeros_of(ac_scratch *s, T x) { return WHERE(BIN(ne, NUM(0), NUM(0)), x, NUM(0)); }

T ac_c_reshape(ac_scratch *s, T x, const ac_dims *shape) {
    ac_attrs_size a = {*shape};
    return ac_c_call(s, AC_OP_reshape, &a, 1, x);
}
T ac_c_expand(ac_scratch *s, T x, const ac_dims *shape) {
    ac_attrs_size a = {*shape};
    return ac_c_call(s, AC_OP_expand, &a, 1, x);
}
T ac_c_permute(ac_scratch *s, T x, const ac_dims *order) {
    ac_attrs_size a = {*order};
    return ac_c_call(s, AC_OP_permute, &a, 1, x);
}
T ac_c_transpose(ac_scratch *s, T x, int64_t dim0, int64_t dim1) {
    ac_attrs_two_dims a = {dim0, dim1};
    return ac_c_call(s, AC_OP_transpose, &a, 1, x);
}
T ac_c_unsqueeze(ac_scratch *s, T x, int64_t dim) {
    ac_attrs_one_dim a = {dim};
    return ac_c_call(s, AC_OP_unsqueeze, &a, 1, x);
}
T ac_c_squeeze(ac_scratch *s, T x, int64_t dim) {
    ac_attrs_maybe_dims a = {{1, {dim}}};
    return ac_c_call(s, AC_OP_squeeze, &a, 1, x);
}
T ac_c_select(ac_scratch *s, T x, int64_t dim, int64_t index) {
    ac_attrs_select a = {dim, index};
    return ac_c_call(s, AC_OP_select, &a, 1, x);
}
T ac_c_slice(ac_scratch *s, T x, int64_t dim, int64_t start, int64_t end) {
    ac_attrs_slice a = {dim, start, end, 1};
    return ac_c_call(s, AC_OP_slice, &a, 1, x);
}
T ac_c_cat(ac_scratch *s, T const *parts, int n, int64_t dim) {
    ac_attrs_one_dim a = {dim};
    T out[AC_MAX_OUT];
    return ac_c_call_many(s, AC_OP_cat, &a, parts, n, out) < 0 ? NULL : out[0];
}
T ac_c_cast(ac_scratch *s, T x, ac_dtype dtype) {
    ac_attrs_dtype a = {dtype};
    return !x || x->dtype == dtype ? x : ac_c_call(s, AC_OP_cast, &a, 1, x);
}
T ac_c_wide(ac_scratch *s, T x) { return x && ac_is_half(x->dtype) ? ac_c_cast(s, x, AC_float32) : x; }
T ac_c_clamp_min(ac_scratch *s, T x, double low) {
    ac_attrs_clamp a = {{.kind = AC_FLOAT, .f = low}, {.kind = AC_NONE}};
    return ac_c_call(s, AC_OP_clamp, &a, 1, x);
}
T ac_c_clamp(ac_scratch *s, T x, double low, double high) {
    ac_attrs_clamp a = {{.kind = AC_FLOAT, .f = low}, {.kind = AC_FLOAT, .f = high}};
    return ac_c_call(s, AC_OP_clamp, &a, 1, x);
}
T ac_c_sum(ac_scratch *s, T x, int64_t dim) {
    ac_attrs_reduce a = {{1, {dim}}, 0, AC_NO_DTYPE};
    return ac_c_call(s, AC_OP_sum, &a, 1, x);
}
T ac_c_sum_over(ac_scratch *s, T x, const ac_dims *dim, bool keepdim) {
    ac_attrs_reduce a = {*dim, keepdim, AC_NO_DTYPE};
    return ac_c_call(s, AC_OP_sum, &a, 1, x);
}
T ac_c_sum_all(ac_scratch *s, T x) {
    ac_attrs_reduce a = {{.n = -1}, 0, AC_NO_DTYPE};
    return ac_c_call(s, AC_OP_sum, &a, 1, x);
}
T ac_c_mean(ac_scratch *s, T x, const ac_dims *dim, bool keepdim) {
    ac_attrs_reduce a = {*dim, keepdim, AC_NO_DTYPE};
    return ac_c_call(s, AC_OP_mean, &a, 1, x);
}
T ac_c_reduced(ac_scratch *s, T x, int64_t reduction) {
    ac_attrs_reduce all = {{.n = -1}, 0, AC_NO_DTYPE};
    if (reduction == AC_REDUCE_NONE || !x) return x;
    return ac_c_call(s, reduction == AC_REDUCE_MEAN ? AC_OP_mean : AC_OP_sum, &all, 1, x);
}
T ac_c_arange(ac_scratch *s, int64_t n, ac_device device) {
    ac_attrs_arange a = {{AC_INT, {0}}, {AC_INT, {n}}, {AC_INT, {1}}, AC_int64, device};
    return ac_c_call(s, AC_OP_arange, &a, 0);
}
T ac_c_full(ac_scratch *s, const ac_dims *shape, double value, ac_dtype dtype, ac_device device) {
    ac_attrs_full a = {*shape, {.kind = AC_FLOAT, .f = value}, dtype, device};
    return ac_c_call(s, AC_OP_full, &a, 0);
}
T ac_c_zeros(ac_scratch *s, const ac_spec *like) {
    ac_attrs_full a = {like->shape, {AC_INT, {0}}, like->dtype, like->device};
    return ac_c_call(s, AC_OP_full, &a, 0);
}
T ac_c_product(ac_scratch *s, T x, T y) { return BIN(matmul, x, y); }

T ac_c_low(ac_scratch *s, T const *in, int n_in, T x) {
    ac_dtype dtype;
    if (!ac_c_has(x) || !ac_is_floating(x->dtype) || x->dtype == AC_float64) return x;
    return ac_autocast_casts(in, n_in, &dtype) ? ac_c_cast(s, x, dtype) : x;
}
