/* Composite linear algebra: determinants, powers, exponentials and norms of matrices, and what sees tensors as
 * matrices. */
#include "dispatch/compose_linalg.h"

#include <math.h>

static int need_square(T A, const char *what) {
    char shape[AC_SHAPE_TEXT];
    if (A->ndim >= 2 && A->shape[A->ndim - 1] == A->shape[A->ndim - 2]) return 0;
    return ac_fail(AC_RUNTIME, "%s: needs square matrices [..., n, n], got shape %s", what, ac_shape_text(A, shape));
}

static T eye_like(ac_scratch *s, T A) { return ac_c_eye(s, A, ac_rows_of(A), ac_cols_of(A)); }

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
    if (a->n == 0) eye = eye_like(s, square);
    if (a->n == 0) return WHERE(BIN(eq, eye, eye), eye, square); /* its gradient is 0 */
    if (a->n < 0) square = ac_c_inverse(s, square, true, NULL, "linalg.matrix_power");
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
    if (ac_rows_of(A) == 1) return UN(clone, UN(exp, A)); /* exp saves its result, which may be written */
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

/* -- norms ------------------------------------------------------------------------------------------ */

/* What a norm of matrices is: a word, or a number. */
typedef enum { FRO, NUC, NUMBER } norm_kind;
typedef struct {
    norm_kind kind;
    double ord; /* of NUMBER */
    ac_dims dim;
    bool keepdim;
    int64_t dtype;
    const char *what;
} norm_of;

static bool is_spectral(const norm_of *n) { return n->kind == NUC || (n->kind == NUMBER && fabs(n->ord) == 2); }

static int check_norm(T A, norm_of *n) {
    bool known = n->kind != NUMBER || fabs(n->ord) == 1 || fabs(n->ord) == 2 || isinf(n->ord);
    if (A->ndim < 2)
        return ac_fail(AC_RUNTIME, "%s: a norm of matrices needs at least 2 dimensions, got %d", n->what, A->ndim);
    if (!known)
        return ac_fail(AC_RUNTIME, "%s: `ord` must be 'fro', 'nuc', 1, -1, 2, -2, inf or -inf, got %g", n->what,
                       n->ord);
    if (n->dim.n < 0) n->dim = (ac_dims){2, {-2, -1}};
    if (n->dim.n != 2) return ac_fail(AC_RUNTIME, "%s: `dim` must be two dimensions, got %" PRId64, n->what, n->dim.n);
    for (int i = 0; i < 2; i++) AC_TRY(ac_dim_wrap(&n->dim.v[i], A->ndim, n->what));
    if (n->dim.v[0] == n->dim.v[1])
        return ac_fail(AC_RUNTIME, "%s: both dimensions are %" PRId64, n->what, n->dim.v[0]);
    if (!ac_is_floating(A->dtype))
        return ac_fail(AC_RUNTIME, "%s: needs floating point, got %s", n->what, ac_dtypes[A->dtype].name);
    if (n->dtype == AC_NO_DTYPE) return 0;
    ac_dtype dtype = (ac_dtype)n->dtype;
    if (ac_is_floating(dtype) && ac_promote(A->dtype, dtype) == dtype) return 0;
    return ac_fail(AC_RUNTIME, "%s: `dtype` must be floating point that holds all of %s, got %s", n->what,
                   ac_dtypes[A->dtype].name, ac_dtypes[dtype].name);
}

/* The largest or smallest value along dim; of none the largest is 0. */
static T extreme(ac_scratch *s, T x, int64_t dim, bool largest, bool keepdim) {
    ac_attrs_reduce_dim over = {{1, {dim}}, keepdim};
    if (!x) return NULL;
    if (largest && x->shape[dim] == 0) return ac_c_sum_over(s, x, &over.dim, keepdim);
    return ac_c_call(s, largest ? AC_OP_amax : AC_OP_amin, &over, 1, x);
}

static T spectral_norm(ac_scratch *s, T x, const norm_of *n) {
    ac_attrs_movedim last = {n->dim, {2, {-2, -1}}};
    T S = ac_c_singular_values(s, ac_c_call(s, AC_OP_movedim, &last, 1, x));
    if (!S) return NULL;
    T y = n->kind == NUC ? ac_c_sum(s, S, -1) : extreme(s, S, S->ndim - 1, n->ord > 0, false);
    int64_t first = n->dim.v[0] < n->dim.v[1] ? 0 : 1;
    return n->keepdim ? ac_c_unsqueeze(s, ac_c_unsqueeze(s, y, n->dim.v[first]), n->dim.v[1 - first]) : y;
}

static T matrix_norm(ac_scratch *s, T A, norm_of n) {
    if (!A || s->failed) return NULL;
    NEED(check_norm(A, &n));
    ac_attrs_norm two = {{AC_INT, {2}}, n.dim, n.keepdim, n.dtype};
    if (n.kind == FRO) return ac_c_call(s, AC_OP_norm, &two, 1, A);
    T x = n.dtype == AC_NO_DTYPE ? A : ac_c_cast(s, A, (ac_dtype)n.dtype);
    if (is_spectral(&n)) return spectral_norm(s, x, &n);
    int lines = fabs(n.ord) == 1 ? 0 : 1;
    ac_dims along = {1, {n.dim.v[lines]}};
    ac_attrs_maybe_dims both = {n.dim};
    T y = extreme(s, ac_c_sum_over(s, UN(abs, ac_c_wide(s, x)), &along, true), n.dim.v[1 - lines], n.ord > 0, true);
    if (!n.keepdim) y = ac_c_call(s, AC_OP_squeeze, &both, 1, y);
    return x ? ac_c_cast(s, y, x->dtype) : NULL;
}

COMPOSE(linalg_matrix_norm_number) {
    ATTRS(norm);
    return matrix_norm(s, in[0],
                       (norm_of){NUMBER, ac_scalar_double(a->p), a->dim, a->keepdim, a->dtype, "linalg.matrix_norm"});
}
COMPOSE(linalg_matrix_norm) {
    ATTRS(norm_word);
    return matrix_norm(s, in[0], (norm_of){(norm_kind)a->ord, 0, a->dim, a->keepdim, a->dtype, "linalg.matrix_norm"});
}

/* A norm of vectors, or of matrices where two dimensions, or a matrix and `ord`, are given. */
COMPOSE(linalg_norm) {
    ATTRS(norm);
    T A = in[0];
    bool given = a->p.kind != AC_NONE;
    ac_attrs_norm vector = *a;
    if (a->dim.n == 0 || a->dim.n > 2)
        REFUSE(AC_RUNTIME, "linalg.norm: `dim` must name 1 or 2 dimensions, got %d", (int)a->dim.n);
    if (!given) vector.p = (ac_scalar){AC_INT, {2}};
    if (given && a->dim.n < 0 && A->ndim != 1 && A->ndim != 2)
        REFUSE(AC_RUNTIME, "linalg.norm: without `dim`, an `ord` goes with 1 or 2 dimensions, got %d", A->ndim);
    if (!given || a->dim.n == 1 || (a->dim.n < 0 && A->ndim == 1)) return ac_c_call(s, AC_OP_norm, &vector, 1, A);
    return matrix_norm(s, A, (norm_of){NUMBER, ac_scalar_double(a->p), a->dim, a->keepdim, a->dtype, "linalg.norm"});
}
COMPOSE(linalg_norm_word) {
    ATTRS(norm_word);
    if (a->dim.n < 0 && in[0]->ndim > 2)
        REFUSE(AC_RUNTIME, "linalg.norm: without `dim`, an `ord` goes with 1 or 2 dimensions, got %d", in[0]->ndim);
    return matrix_norm(s, in[0], (norm_of){(norm_kind)a->ord, 0, a->dim, a->keepdim, a->dtype, "linalg.norm"});
}

/* The norm of A times that of its inverse; infinite where there is none. */
static T condition(ac_scratch *s, T A, norm_kind kind, double ord) {
    norm_of n = {kind, ord, {.n = -1}, false, AC_NO_DTYPE, "linalg.cond"};
    T info = NULL;
    NEED(check_norm(A, &n));
    T inverse = ac_c_inverse(s, A, false, &info, "linalg.cond");
    T finite = WHERE(UN(isnan, inverse), NUM(0), inverse);
    return WHERE(BIN(eq, info, NUM(0)), MUL(matrix_norm(s, A, n), matrix_norm(s, finite, n)), REAL(INFINITY));
}

COMPOSE(linalg_cond_word) {
    ATTRS(norm_word_only);
    return condition(s, in[0], (norm_kind)a->p, 0);
}

COMPOSE(linalg_cond) {
    ATTRS(p);
    double p = a->p.kind == AC_NONE ? 2 : ac_scalar_double(a->p);
    if (fabs(p) != 2) return condition(s, in[0], NUMBER, p);
    T S = ac_c_singular_values(s, in[0]);
    if (!S) return NULL;
    int64_t n = ac_cols_of(S), large = p > 0 ? 0 : n - 1;
    return n ? DIV(ac_c_select(s, S, -1, large), ac_c_select(s, S, -1, n - 1 - large)) : ac_c_sum(s, S, -1);
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

COMPOSE(linalg_diagonal) { return ac_c_call(s, AC_OP_diagonal, attrs, 1, in[0]); }

/* The product of the sizes from dimension `from` to `to`. */
static int64_t product_of(const ac_dims *shape, int64_t from, int64_t to) {
    int64_t n = 1;
    for (int64_t d = from; d < to; d++) n *= shape->v[d];
    return n;
}

COMPOSE(linalg_tensorinv) {
    ATTRS(ind);
    T A = in[0];
    ac_dims shape = ac_shape_of(A), turned = {.n = shape.n};
    char text[AC_SHAPE_TEXT];
    if (a->ind < 1) REFUSE(AC_RUNTIME, "linalg.tensorinv: `ind` must be above 0, got %" PRId64, a->ind);
    int64_t ind = a->ind < shape.n ? a->ind : shape.n, n = product_of(&shape, 0, ind);
    if (product_of(&shape, ind, shape.n) != n)
        REFUSE(AC_RUNTIME, "linalg.tensorinv: %s is no square matrix of its first %" PRId64 " dimensions",
               ac_shape_text(A, text), a->ind);
    for (int64_t d = 0; d < shape.n; d++) turned.v[d] = shape.v[(d + ind) % shape.n];
    T inverse = ac_c_inverse(s, ac_c_reshape(s, A, &(ac_dims){2, {n, n}}), true, NULL, "linalg.tensorinv");
    return inverse ? ac_c_reshape(s, inverse, &turned) : NULL;
}

COMPOSE(linalg_tensorsolve) {
    ATTRS(maybe_dims);
    T A = in[0], B = in[1];
    char text[AC_SHAPE_TEXT], other[AC_SHAPE_TEXT];
    ac_attrs_movedim last = {a->dim, {.n = a->dim.n}};
    for (int64_t i = 0; i < a->dim.n; i++) last.destination.v[i] = A->ndim - a->dim.n + i;
    if (a->dim.n > 0) A = ac_c_call(s, AC_OP_movedim, &last, 1, A);
    if (!A) return NULL;
    ac_dims shape = ac_shape_of(A), rest = {.n = 0};
    for (int64_t d = B->ndim; d < shape.n; d++) rest.v[rest.n++] = shape.v[d];
    int64_t n = product_of(&rest, 0, rest.n);
    if (n != B->numel || A->numel != n * n)
        REFUSE(AC_RUNTIME, "linalg.tensorsolve: A %s and B %s are no square system of equations",
               ac_shape_text(A, text), ac_shape_text(B, other));
    T x = ac_c_solve(s, ac_c_reshape(s, A, &(ac_dims){2, {n, n}}), ac_c_flat(s, B), true, true, NULL);
    return x ? ac_c_reshape(s, x, &rest) : NULL;
}
