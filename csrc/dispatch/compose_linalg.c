/* Composite linear algebra: determinants, powers and exponentials of matrices, and what sees tensors as matrices. */
#include "dispatch/compose_read.h"

#include <math.h>

static int need_square(T A, const char *what) {
    char shape[AC_SHAPE_TEXT];
    if (A->ndim >= 2 && A->shape[A->ndim - 1] == A->shape[A->ndim - 2]) return 0;
    return ac_fail(AC_RUNTIME, "%s: needs square matrices [..., n, n], got shape %s", what, ac_shape_text(A, shape));
}

/* The unit matrix in the shape of A. */
static T eye_like(ac_scratch *s, T A) {
    ac_dims shape = ac_shape_of(A);
    T index = ac_c_arange(s, A->shape[A->ndim - 1], ac_device_of(A));
    T eye = ac_c_cast(s, BIN(eq, ac_c_unsqueeze(s, index, 1), index), A->dtype);
    return eye ? ac_c_expand(s, eye, &shape) : NULL;
}

/* -- determinants ----------------------------------------------------------------------------------- */

/* Its sign, and the logarithm of its size. */
static int determinant(ac_scratch *s, T A, T *out, const char *what) {
    if (need_square(A, what) < 0) return s->failed = true, -1;
    return ac_c_call_many(s, AC_OP_slogdet, NULL, &A, 1, out);
}

COMPOSE(slogdet_square) {
    T out[AC_MAX_OUT] = {NULL};
    if (determinant(s, in[0], out, "slogdet") < 0) return NULL;
    s->also[1] = out[1];
    return out[0];
}

COMPOSE(det) {
    T out[AC_MAX_OUT] = {NULL};
    return determinant(s, in[0], out, "det") < 0 ? NULL : MUL(out[0], UN(exp, out[1]));
}

COMPOSE(logdet) {
    T out[AC_MAX_OUT] = {NULL};
    if (determinant(s, in[0], out, "logdet") < 0) return NULL;
    return WHERE(BIN(lt, out[0], NUM(0)), ac_c_real(s, NAN), out[1]);
}

/* -- powers ----------------------------------------------------------------------------------------- */

COMPOSE(matrix_power) {
    ATTRS(order);
    T square = in[0], power = NULL, eye = NULL;
    uint64_t n = a->n < 0 ? (uint64_t)0 - (uint64_t)a->n : (uint64_t)a->n;
    NEED(need_square(square, "matrix_power"));
    if (a->n <= 0) eye = eye_like(s, square);
    if (a->n == 0) return WHERE(BIN(eq, eye, eye), eye, square); /* its gradient is 0 */
    static const ac_attrs_check checked = {true};
    if (a->n < 0) square = ac_c_call(s, AC_OP_solve, &checked, 2, square, eye);
    for (; n; n >>= 1) {
        if (n & 1) power = power ? ac_c_product(s, power, square) : square;
        if (n > 1) square = ac_c_product(s, square, square);
    }
    return power;
}

/* Taylor's series to order 18 of A / 2^times, squared `times` times. */
COMPOSE(matrix_exp) {
    T A = in[0];
    NEED(need_square(A, "matrix_exp"));
    if (A->numel == 0) return A;
    ac_attrs_reduce columns = {{1, {-2}}, 0, AC_NO_DTYPE};
    ac_attrs_reduce_dim all = {{.n = -1}, 0};
    T wide = ac_c_wide(s, A); /* rounded once, at the end */
    T sizes = ac_c_call(s, AC_OP_sum, &columns, 1, UN(abs, wide));
    sizes = sizes ? WHERE(UN(isfinite, sizes), sizes, NUM(0)) : NULL; /* the others' results are nan anyway */
    double size = ac_c_read(s, ac_c_call(s, AC_OP_amax, &all, 1, sizes));
    int times = size > 0.5 ? (int)ceil(log2(size)) + 1 : 0;
    if (s->failed) return NULL;
    T X = MUL(wide, ac_c_real(s, exp2(-(times > 0 ? times : 0)))), term = eye_like(s, wide), total = term;
    for (int k = 1; k < 19; k++) {
        term = DIV(ac_c_product(s, term, X), NUM(k));
        total = ADD(total, term);
    }
    for (int i = 0; i < times; i++) total = ac_c_product(s, total, total);
    return ac_c_cast(s, total, A->dtype);
}

COMPOSE(linalg_vander) {
    ATTRS(order);
    ac_dims one = {1, {1}};
    T x = in[0]->ndim ? in[0] : ac_c_reshape(s, in[0], &one);
    if (!x) return NULL;
    int64_t n = a->n == AC_ABSENT ? x->shape[x->ndim - 1] : a->n;
    if (n <= 1) REFUSE(AC_RUNTIME, "linalg.vander: `N` must be above 1, got %" PRId64, n);
    if (!ac_is_floating(x->dtype)) x = ac_c_cast(s, x, AC_int64);
    T powers = ac_c_arange(s, n, ac_device_of(in[0]));
    return x ? BIN(pow, ac_c_unsqueeze(s, x, -1), ac_c_cast(s, powers, x->dtype)) : NULL;
}

/* -- tensors as matrices ---------------------------------------------------------------------------- */

COMPOSE(kron) {
    T x = in[0], y = in[1];
    int n = x->ndim > y->ndim ? x->ndim : y->ndim;
    ac_dims left = {.n = 2 * n}, right = {.n = 2 * n}, shape = {.n = n};
    if (2 * n > AC_MAX_DIMS) REFUSE(AC_RUNTIME, "kron: more than %d dimensions", AC_MAX_DIMS / 2);
    for (int d = 0; d < n; d++) {
        int i = d - (n - x->ndim), j = d - (n - y->ndim);
        left.v[2 * d] = i < 0 ? 1 : x->shape[i], left.v[2 * d + 1] = 1;
        right.v[2 * d] = 1, right.v[2 * d + 1] = j < 0 ? 1 : y->shape[j];
        shape.v[d] = left.v[2 * d] * right.v[2 * d + 1];
    }
    return ac_c_reshape(s, MUL(ac_c_reshape(s, x, &left), ac_c_reshape(s, y, &right)), &shape);
}

COMPOSE(linalg_cross) {
    ATTRS(one_dim);
    T x = in[0], y = in[1];
    ac_attrs_maybe_one_dim along = {a->dim};
    if (x->ndim != y->ndim)
        REFUSE(AC_RUNTIME, "linalg.cross: needs equally many dimensions, got %d and %d", x->ndim, y->ndim);
    NEED(ac_dim_wrap(&along.dim, x->ndim, "linalg.cross"));
    if (x->ndim && (x->shape[along.dim] != 3 || y->shape[along.dim] != 3))
        REFUSE(AC_RUNTIME, "linalg.cross: dimension %" PRId64 " must have size 3, got %" PRId64 " and %" PRId64, a->dim,
               x->shape[along.dim], y->shape[along.dim]);
    return ac_c_call(s, AC_OP_cross, &along, 2, x, y);
}
