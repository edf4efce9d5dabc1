/* Composite linear algebra: matrices in the compact forms of LAPACK, which are triangles and pivots, or reflections. */
#include "dispatch/compose_linalg.h"

/* -- A = P L U -------------------------------------------------------------------------------------------- */

static int factored(ac_scratch *s, T A, bool pivot, bool check, T *out, const char *what) {
    ac_attrs_check how = {check};
    int failed = ac_need_matrices(A, what);
    if (!failed && !pivot) failed = ac_fail(AC_RUNTIME, "%s: LU without pivoting is not implemented on the CPU", what);
    if (failed) return s->failed = true, -1;
    return ac_c_call_many(s, AC_OP_lu_factor, &how, &A, 1, out);
}

static T with_pivots(ac_scratch *s, T A, bool pivot, bool check, const char *what) {
    T out[AC_MAX_OUT] = {NULL};
    if (factored(s, A, pivot, check, out, what) < 0) return NULL;
    s->also[1] = out[1];
    return out[0];
}

COMPOSE(linalg_lu_factor) {
    ATTRS(pivot);
    return with_pivots(s, in[0], a->pivot, true, "linalg.lu_factor");
}
COMPOSE(lu_old) {
    ATTRS(pivot);
    return with_pivots(s, in[0], a->pivot, false, "lu");
}
COMPOSE(linalg_lu_factor_ex) {
    ATTRS(pivot_check);
    T out[AC_MAX_OUT] = {NULL};
    if (factored(s, in[0], a->pivot, a->check_errors, out, "linalg.lu_factor_ex") < 0) return NULL;
    s->also[1] = out[1], s->also[2] = out[2];
    return out[0];
}

/* As many as the smaller size, or fewer where the others stand for no exchange. */
static int need_pivots(const ac_tensor *LU, const ac_tensor *pivots, bool fewer, const char *what) {
    char lu[AC_SHAPE_TEXT], p[AC_SHAPE_TEXT];
    if (pivots->dtype != AC_int32)
        return ac_fail(AC_RUNTIME, "%s: the pivots must be int32, as the factorisation gives them, got %s", what,
                       ac_dtypes[pivots->dtype].name);
    bool fits = pivots->ndim == LU->ndim - 1;
    for (int d = 0; fits && d + 2 < LU->ndim; d++) fits = pivots->shape[d] == LU->shape[d];
    if (fits && pivots->shape[LU->ndim - 2] == ac_smaller_size(LU)) return 0;
    if (fits && fewer && pivots->shape[LU->ndim - 2] < ac_smaller_size(LU)) return 0;
    return ac_fail(AC_RUNTIME, "%s: the pivots %s do not fit the factors %s", what, ac_shape_text(pivots, p),
                   ac_shape_text(LU, lu));
}

/* A matrix that puts rows in order: rows times it. */
static T permutation(ac_scratch *s, T pivots, int64_t rows, ac_dtype dtype) {
    ac_attrs_row_count of = {rows};
    T order = ac_c_call(s, AC_OP_row_order, &of, 1, UN(contiguous, pivots));
    T row = order ? ac_c_unsqueeze(s, ac_c_arange(s, rows, ac_device_of(order)), 1) : NULL;
    return ac_c_cast(s, BIN(eq, row, ac_c_unsqueeze(s, order, -2)), dtype);
}

static T unit_lower(ac_scratch *s, T LU) {
    int64_t k = ac_smaller_size(LU);
    return ADD(ac_c_lower(s, ac_c_slice(s, LU, -1, 0, k), -1), ac_c_eye(s, LU, ac_rows_of(LU), k));
}
static T upper_rows(ac_scratch *s, T LU) { return ac_c_upper(s, ac_c_slice(s, LU, -2, 0, ac_smaller_size(LU)), 0); }

COMPOSE(linalg_lu) {
    ATTRS(pivot);
    T out[AC_MAX_OUT] = {NULL};
    if (factored(s, in[0], a->pivot, false, out, "linalg.lu") < 0) return NULL;
    s->also[1] = unit_lower(s, out[0]), s->also[2] = upper_rows(s, out[0]);
    return s->failed ? NULL : permutation(s, out[1], ac_rows_of(in[0]), in[0]->dtype);
}

COMPOSE(lu_unpack) {
    ATTRS(unpack);
    T LU = in[0];
    char shape[AC_SHAPE_TEXT];
    if (LU->ndim < 2)
        REFUSE(AC_RUNTIME, "lu_unpack: needs matrices [..., rows, columns], got shape %s", ac_shape_text(LU, shape));
    if (a->unpack_pivots) NEED(need_pivots(LU, in[1], true, "lu_unpack"));
    s->also[1] = a->unpack_data ? unit_lower(s, LU) : ac_c_empty(s, LU);
    s->also[2] = a->unpack_data ? upper_rows(s, LU) : ac_c_empty(s, LU);
    if (s->failed) return NULL;
    return a->unpack_pivots ? permutation(s, in[1], ac_rows_of(LU), LU->dtype) : ac_c_empty(s, LU);
}

/* X with P L U X = B, or with the transpose of that. */
static T solved(ac_scratch *s, T LU, T pivots, T B, bool turned) {
    T P = permutation(s, pivots, ac_rows_of(LU), LU->dtype);
    if (!P) return NULL;
    if (ac_c_same_batch(s, &P, &B, "linalg.lu_solve") < 0) return ac_c_refuse(s, -1);
    if (ac_c_same_batch(s, &LU, &B, "linalg.lu_solve") < 0) return ac_c_refuse(s, -1);
    if (!turned)
        return ac_c_triangular(s, LU, ac_c_triangular(s, LU, ac_c_product(s, TR(P), B), false, true), true, false);
    T half = ac_c_triangular(s, TR(LU), B, false, false);
    return ac_c_product(s, P, ac_c_triangular(s, TR(LU), half, true, true));
}

static T lu_solve(ac_scratch *s, T LU, T pivots, T B, bool left, bool turned) {
    static const char what[] = "linalg.lu_solve";
    char lu[AC_SHAPE_TEXT], b[AC_SHAPE_TEXT];
    NEED(ac_need_square(LU, what));
    NEED(ac_need_matrices(B, what));
    NEED(need_pivots(LU, pivots, false, what));
    if (LU->dtype != B->dtype)
        REFUSE(AC_RUNTIME, "%s: LU and B must have the same dtype, got %s and %s", what, ac_dtypes[LU->dtype].name,
               ac_dtypes[B->dtype].name);
    if ((left ? ac_rows_of(B) : ac_cols_of(B)) != ac_rows_of(LU))
        REFUSE(AC_RUNTIME, "%s: LU %s and B %s do not fit", what, ac_shape_text(LU, lu), ac_shape_text(B, b));
    return left ? solved(s, LU, pivots, B, turned) : TR(solved(s, LU, pivots, TR(B), !turned));
}

COMPOSE(linalg_lu_solve) {
    ATTRS(left_adjoint);
    return lu_solve(s, in[0], in[1], in[2], a->left, a->adjoint);
}
COMPOSE(lu_solve) { return lu_solve(s, in[1], in[2], in[0], true, false); }

/* -- A = L D L^T, D of blocks of one row or two ------------------------------------------------------------ */

COMPOSE(linalg_ldl_factor_ex) {
    ATTRS(hermitian_check);
    ac_attrs_check how = {a->check_errors};
    T out[AC_MAX_OUT] = {NULL};
    NEED(ac_need_square(in[0], "linalg.ldl_factor_ex"));
    if (ac_c_call_many(s, AC_OP_ldl_factor, &how, in, 1, out) < 0) return NULL;
    s->also[1] = out[1], s->also[2] = out[2];
    return out[0];
}
COMPOSE(linalg_ldl_factor) {
    ac_attrs_check how = {true};
    T out[AC_MAX_OUT] = {NULL};
    NEED(ac_need_square(in[0], "linalg.ldl_factor"));
    if (ac_c_call_many(s, AC_OP_ldl_factor, &how, in, 1, out) < 0) return NULL;
    s->also[1] = out[1];
    return out[0];
}

COMPOSE(linalg_ldl_solve) {
    static const char what[] = "linalg.ldl_solve";
    T LD = in[0], pivots = in[1], B = in[2];
    NEED(ac_need_square(LD, what));
    NEED(need_pivots(LD, pivots, false, what));
    NEED(ac_need_matrices(B, what));
    if (ac_rows_of(B) != ac_rows_of(LD) || B->dtype != LD->dtype) {
        char ld[AC_SHAPE_TEXT], b[AC_SHAPE_TEXT];
        REFUSE(AC_RUNTIME, "%s: LD %s of %s and B %s of %s do not fit", what, ac_shape_text(LD, ld),
               ac_dtypes[LD->dtype].name, ac_shape_text(B, b), ac_dtypes[B->dtype].name);
    }
    T row = ac_c_unsqueeze(s, pivots, -2);
    NEED(ac_c_same_batch(s, &LD, &B, what));
    NEED(ac_c_same_batch(s, &row, &B, what));
    return ac_c_call(s, AC_OP_ldl_solve, NULL, 3, LD, UN(contiguous, ac_c_squeeze(s, row, -2)), B);
}

/* -- products of reflections -------------------------------------------------------------------------------- */

COMPOSE(geqrf) {
    T out[AC_MAX_OUT] = {NULL};
    NEED(ac_need_matrices(in[0], "geqrf"));
    if (ac_c_call_many(s, AC_OP_reflections, NULL, in, 1, out) < 0) return NULL;
    s->also[1] = out[1];
    return out[0];
}

static int need_reflections(const ac_tensor *A, const ac_tensor *tau, const char *what) {
    char a[AC_SHAPE_TEXT], t[AC_SHAPE_TEXT];
    AC_TRY(ac_need_matrices(A, what));
    if (tau->dtype != A->dtype)
        return ac_fail(AC_RUNTIME, "%s: `tau` must be %s, as the matrices, got %s", what, ac_dtypes[A->dtype].name,
                       ac_dtypes[tau->dtype].name);
    bool fits = tau->ndim == A->ndim - 1;
    for (int d = 0; fits && d + 2 < A->ndim; d++) fits = tau->shape[d] == A->shape[d];
    fits = fits && tau->shape[tau->ndim - 1] <= ac_smaller_size(A);
    if (fits) return 0;
    return ac_fail(AC_RUNTIME, "%s: `tau` %s does not fit the reflections %s", what, ac_shape_text(tau, t),
                   ac_shape_text(A, a));
}

/* The vectors of the reflections, below a diagonal of ones. */
static T vectors_of(ac_scratch *s, T A, int64_t k) {
    if (!A) return NULL;
    return ADD(ac_c_lower(s, ac_c_slice(s, A, -1, 0, k), -1), ac_c_eye(s, A, ac_rows_of(A), k));
}

/* T x, or T^T x: I - V T V^T is the product of all reflections I - tau v v^T, and the inverse of T has tau's inverses
 * on the diagonal, and V^T V above it (Joffrain et al. 2006). */
static T compact(ac_scratch *s, T V, T tau, T x, bool turned) {
    T above = ac_c_upper(s, ac_c_product(s, TR(V), V), 1), column = ac_c_unsqueeze(s, tau, -1);
    T inverse = MUL(column, above);
    return turned ? MUL(column, ac_c_triangular(s, TR(inverse), x, false, true))
                  : ac_c_triangular(s, inverse, MUL(column, x), true, true);
}

/* In float64, as LAPACK's kernels here. */
COMPOSE(orgqr) {
    static const char what[] = "linalg.householder_product";
    T A = in[0];
    NEED(need_reflections(A, in[1], what));
    int64_t m = ac_rows_of(A), n = ac_cols_of(A);
    if (m < n)
        REFUSE(AC_RUNTIME, "%s: needs at least as many rows as columns, got %" PRId64 " and %" PRId64, what, m, n);
    T tau = ac_c_cast(s, in[1], AC_float64), wide = ac_c_cast(s, A, AC_float64);
    T V = tau && wide ? vectors_of(s, wide, ac_cols_of(tau)) : NULL;
    T first = compact(s, V, tau, TR(ac_c_slice(s, V, -2, 0, n)), false);
    return first ? ac_c_cast(s, SUB(ac_c_eye(s, wide, m, n), ac_c_product(s, V, first)), A->dtype) : NULL;
}

COMPOSE(ormqr) {
    ATTRS(left_transpose);
    static const char what[] = "ormqr";
    T A = in[0], C = in[2];
    char shape[AC_SHAPE_TEXT], other[AC_SHAPE_TEXT];
    NEED(need_reflections(A, in[1], what));
    NEED(ac_need_matrices(C, what));
    bool fits =
        C->ndim == A->ndim && C->dtype == A->dtype && (a->left ? ac_rows_of(C) : ac_cols_of(C)) == ac_rows_of(A);
    for (int d = 0; fits && d + 2 < A->ndim; d++) fits = C->shape[d] == A->shape[d];
    int64_t k = ac_cols_of(in[1]);
    if (!fits || k != ac_smaller_size(A))
        REFUSE(AC_RUNTIME, "%s: %" PRId64 " reflections %s of %s do not fit `other` %s of %s", what, k,
               ac_shape_text(A, shape), ac_dtypes[A->dtype].name, ac_shape_text(C, other), ac_dtypes[C->dtype].name);
    T V = vectors_of(s, ac_c_cast(s, A, AC_float64), k), tau = ac_c_cast(s, in[1], AC_float64);
    T wide = ac_c_cast(s, C, AC_float64), turned = a->left ? wide : TR(wide);
    T inner = compact(s, V, tau, ac_c_product(s, TR(V), turned), a->left == a->transpose);
    T y = SUB(turned, ac_c_product(s, V, inner));
    return y ? ac_c_cast(s, a->left ? y : TR(y), A->dtype) : NULL;
}
