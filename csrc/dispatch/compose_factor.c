/* Composite linear algebra: equations and factorisations of matrices, and what is made of singular values. */
#include "dispatch/compose_linalg.h"

#include <float.h>

static const char *text_of(const ac_tensor *A, char *room) { return ac_shape_text(A, room); }

int ac_need_matrices(const ac_tensor *A, const char *what) {
    char shape[AC_SHAPE_TEXT];
    if (A->ndim < 2)
        return ac_fail(AC_RUNTIME, "%s: needs matrices [..., rows, columns], got shape %s", what, text_of(A, shape));
    if (A->dtype == AC_float32 || A->dtype == AC_float64) return 0;
    return ac_fail(AC_RUNTIME, "%s: needs float32 or float64, got %s", what, ac_dtypes[A->dtype].name);
}

int ac_need_square(const ac_tensor *A, const char *what) {
    char shape[AC_SHAPE_TEXT];
    if (A->ndim < 2 || ac_rows_of(A) != ac_cols_of(A))
        return ac_fail(AC_RUNTIME, "%s: needs square matrices [..., n, n], got shape %s", what, text_of(A, shape));
    return ac_need_matrices(A, what);
}

static int same_dtype(const ac_tensor *A, const ac_tensor *B, const char *what) {
    if (A->dtype == B->dtype) return 0;
    return ac_fail(AC_RUNTIME, "%s: both operands must have the same dtype, got %s and %s", what,
                   ac_dtypes[A->dtype].name, ac_dtypes[B->dtype].name);
}

int ac_c_same_batch(ac_scratch *s, T *A, T *B, const char *what) {
    if (!*A || !*B) return -1;
    ac_dims a = ac_shape_of(*A), b = ac_shape_of(*B), lead = {.n = a.n - 2}, other = {.n = b.n - 2};
    for (int64_t d = 0; d < lead.n; d++) lead.v[d] = a.v[d];
    for (int64_t d = 0; d < other.n; d++) other.v[d] = b.v[d];
    AC_TRY(ac_dims_broadcast(&lead, &other, what));
    T *both[2] = {A, B};
    for (int i = 0; i < 2; i++) {
        ac_dims shape = lead;
        shape.v[shape.n++] = ac_rows_of(*both[i]), shape.v[shape.n++] = ac_cols_of(*both[i]);
        *both[i] = ac_c_expand(s, *both[i], &shape);
        if (!*both[i]) return -1;
    }
    return 0;
}

/* -- matrices ------------------------------------------------------------------------------------------ */

T ac_c_eye(ac_scratch *s, T A, int64_t rows, int64_t cols) {
    if (!A) return NULL;
    ac_dims shape = ac_shape_of(A);
    ac_device device = ac_device_of(A);
    shape.v[shape.n - 2] = rows, shape.v[shape.n - 1] = cols;
    T column = ac_c_unsqueeze(s, ac_c_arange(s, rows, device), 1);
    T eye = ac_c_cast(s, BIN(eq, column, ac_c_arange(s, cols, device)), A->dtype);
    return eye ? ac_c_expand(s, eye, &shape) : NULL;
}

T ac_c_lower(ac_scratch *s, T A, int64_t diagonal) {
    ac_attrs_offset from = {diagonal};
    return ac_c_call(s, AC_OP_tril, &from, 1, A);
}
T ac_c_upper(ac_scratch *s, T A, int64_t diagonal) {
    ac_attrs_offset from = {diagonal};
    return ac_c_call(s, AC_OP_triu, &from, 1, A);
}
T ac_c_scale_columns(ac_scratch *s, T A, T row) { return MUL(A, ac_c_unsqueeze(s, row, -2)); }

T ac_c_triangular(ac_scratch *s, T A, T B, bool upper, bool unit) {
    ac_attrs_triangle which = {upper, unit};
    return ac_c_call(s, AC_OP_solve_triangle, &which, 2, A, B);
}

T ac_c_empty(ac_scratch *s, T like) {
    ac_spec spec = {like->dtype, {1, {0}}, ac_device_of(like)};
    return ac_c_zeros(s, &spec);
}

/* -- equations ------------------------------------------------------------------------------------------ */

static bool is_vectors(const ac_tensor *A, const ac_tensor *B) {
    bool same = B->ndim == A->ndim - 1;
    for (int d = 0; same && d < B->ndim; d++) same = B->shape[d] == A->shape[d];
    return B->ndim == 1 || same;
}

static int misfit(const ac_tensor *A, const ac_tensor *B, const char *what) {
    char a[AC_SHAPE_TEXT], b[AC_SHAPE_TEXT];
    return ac_fail(AC_RUNTIME, "%s: A %s and B %s do not fit", what, text_of(A, a), text_of(B, b));
}

/* One number for each matrix of A, whose batch was repeated to that of info. */
static T info_of(ac_scratch *s, T info, const ac_tensor *A) {
    ac_dims batch = ac_shape_of(A);
    batch.n -= 2;
    if (!info) return NULL;
    if (info->numel == 0) return ac_c_full(s, &batch, 0, AC_int32, ac_device_of(A));
    while (info && info->ndim > batch.n) info = ac_c_select(s, info, 0, 0);
    for (int64_t d = 0; d < batch.n; d++) info = ac_c_slice(s, info, d, 0, batch.v[d]);
    return info ? UN(clone, info) : NULL;
}

T ac_c_solve(ac_scratch *s, T A, T B, bool left, bool check, T *info) {
    static const char what[] = "linalg.solve";
    ac_attrs_check how = {check};
    T out[AC_MAX_OUT] = {NULL};
    if (s->failed || !A || !B) return NULL;
    NEED(ac_need_square(A, what));
    bool vector = is_vectors(A, B);
    if (vector && !left) REFUSE(AC_RUNTIME, "%s: left=False goes with matrices B, not with vectors", what);
    T right = vector ? ac_c_unsqueeze(s, B, -1) : left ? B : TR(B), matrix = left ? A : TR(A);
    if (!right || !matrix) return NULL;
    if (ac_rows_of(right) != ac_rows_of(A)) NEED(misfit(A, B, what));
    NEED(same_dtype(A, B, what));
    NEED(ac_c_same_batch(s, &matrix, &right, what));
    T in[2] = {matrix, right};
    if (ac_c_call_many(s, AC_OP_solve, &how, in, 2, out) < 0) return NULL;
    if (info) *info = info_of(s, out[1], A);
    return vector ? ac_c_squeeze(s, out[0], -1) : left ? out[0] : TR(out[0]);
}

T ac_c_inverse(ac_scratch *s, T A, bool check, T *info, const char *what) {
    ac_attrs_check how = {check};
    T out[AC_MAX_OUT] = {NULL};
    if (!A) return NULL;
    NEED(ac_need_square(A, what));
    T in[2] = {ac_c_detach(s, A), ac_c_eye(s, A, ac_rows_of(A), ac_cols_of(A))};
    if (ac_c_call_many(s, AC_OP_solve, &how, in, 2, out) < 0) return NULL;
    if (info) *info = out[1];
    return BIN(inverse_of, out[0], A);
}

COMPOSE(linalg_solve) {
    ATTRS(left);
    return ac_c_solve(s, in[0], in[1], a->left, true, NULL);
}
COMPOSE(linalg_solve_ex) {
    ATTRS(left_check);
    return ac_c_solve(s, in[0], in[1], a->left, a->check_errors, &s->also[1]);
}
COMPOSE(inverse) { return ac_c_inverse(s, in[0], true, NULL, "linalg.inv"); }
COMPOSE(linalg_inv_ex) {
    ATTRS(check);
    return ac_c_inverse(s, in[0], a->check, &s->also[1], "linalg.inv_ex");
}

COMPOSE(linalg_solve_triangular) {
    ATTRS(triangular);
    static const char what[] = "linalg.solve_triangular";
    T A = in[0], B = in[1];
    NEED(ac_need_square(A, what));
    NEED(ac_need_matrices(B, what));
    if (!a->left) A = TR(A), B = TR(B);
    if (!A || !B) return NULL;
    if (ac_rows_of(B) != ac_rows_of(A)) NEED(misfit(in[0], in[1], what));
    B = ac_c_cast(s, B, A->dtype);
    if (!B) return NULL;
    NEED(ac_c_same_batch(s, &A, &B, what));
    T X = ac_c_triangular(s, A, B, a->upper == a->left, a->unitriangular);
    return a->left ? X : TR(X);
}

/* -- factorisations -------------------------------------------------------------------------------------- */

static T cholesky_factor(ac_scratch *s, T A, bool upper, bool check, T *info, const char *what) {
    ac_attrs_check how = {check};
    T out[AC_MAX_OUT] = {NULL};
    NEED(ac_need_square(A, what));
    T lower = upper ? TR(A) : A;
    if (ac_c_call_many(s, AC_OP_cholesky, &how, &lower, 1, out) < 0) return NULL;
    if (info) *info = out[1];
    return upper ? TR(out[0]) : out[0];
}

COMPOSE(linalg_cholesky) {
    ATTRS(upper);
    return cholesky_factor(s, in[0], a->upper, true, NULL, "linalg.cholesky");
}
COMPOSE(cholesky_old) {
    ATTRS(upper);
    return cholesky_factor(s, in[0], a->upper, true, NULL, "cholesky");
}
COMPOSE(linalg_cholesky_ex) {
    ATTRS(upper_check);
    return cholesky_factor(s, in[0], a->upper, a->check_errors, &s->also[1], "linalg.cholesky_ex");
}

enum { REDUCED, COMPLETE, R_ALONE };

/* A tall matrix with the columns of a unit matrix beside it has a square Q. */
static T with_unit_columns(ac_scratch *s, T A) {
    int64_t m = ac_rows_of(A), n = ac_cols_of(A);
    T parts[2] = {A, ac_c_slice(s, ac_c_eye(s, A, m, m), -1, n, m)};
    return ac_c_cat(s, parts, 2, -1);
}

static T q_and_r(ac_scratch *s, T A, int64_t mode, const char *what) {
    T out[AC_MAX_OUT] = {NULL};
    NEED(ac_need_matrices(A, what));
    int64_t n = ac_cols_of(A);
    bool taller = mode == COMPLETE && ac_rows_of(A) > n;
    T given = taller ? with_unit_columns(s, A) : A;
    if (ac_c_call_many(s, AC_OP_qr, NULL, &given, 1, out) < 0) return NULL;
    s->also[1] = taller ? ac_c_slice(s, out[1], -1, 0, n) : out[1];
    return mode == R_ALONE ? ac_c_empty(s, A) : out[0];
}

COMPOSE(linalg_qr) {
    ATTRS(qr_mode);
    return q_and_r(s, in[0], a->mode, "linalg.qr");
}
COMPOSE(qr_old) {
    ATTRS(some);
    return q_and_r(s, in[0], a->some ? REDUCED : COMPLETE, "qr");
}

/* The triangle of L or U, of which the kernel reads the lower one. */
static int eigen(ac_scratch *s, T A, int64_t uplo, T *out) {
    if (ac_need_square(A, "linalg.eigh") < 0) return s->failed = true, -1;
    T lower = uplo % 2 ? TR(A) : A;
    return ac_c_call_many(s, AC_OP_eigh, NULL, &lower, 1, out);
}

COMPOSE(linalg_eigh) {
    ATTRS(uplo);
    T out[AC_MAX_OUT] = {NULL};
    if (eigen(s, in[0], a->uplo, out) < 0) return NULL;
    s->also[1] = out[1];
    return out[0];
}
COMPOSE(linalg_eigvalsh) {
    ATTRS(uplo);
    T out[AC_MAX_OUT] = {NULL};
    return eigen(s, in[0], a->uplo, out) < 0 ? NULL : out[0];
}

/* There is one way, LAPACK's gesdd. torch has a choice on a GPU alone, and refuses one elsewhere. */
static int singular(ac_scratch *s, T A, bool full, int64_t driver, T *out) {
    ac_attrs_full_matrices how = {full};
    if (driver && ac_device_of(A) == AC_CPU)
        return s->failed = true, ac_fail(AC_RUNTIME, "linalg.svd: `driver` is for a GPU's matrices");
    if (ac_need_matrices(A, "linalg.svd") < 0) return s->failed = true, -1;
    return ac_c_call_many(s, AC_OP_svd, &how, &A, 1, out);
}

T ac_c_singular_values(ac_scratch *s, T A) {
    T out[AC_MAX_OUT] = {NULL};
    return A && !s->failed && singular(s, A, false, 0, out) == 0 ? out[1] : NULL;
}

COMPOSE(linalg_svd) {
    ATTRS(svd);
    T out[AC_MAX_OUT] = {NULL};
    if (singular(s, in[0], a->full_matrices, a->driver, out) < 0) return NULL;
    s->also[1] = out[1], s->also[2] = out[2];
    return out[0];
}
COMPOSE(linalg_svdvals) {
    ATTRS(driver);
    T out[AC_MAX_OUT] = {NULL};
    return singular(s, in[0], false, a->driver, out) < 0 ? NULL : out[1];
}

static T zeros_square(ac_scratch *s, T A, int64_t n) {
    ac_spec spec = {A->dtype, ac_shape_of(A), ac_device_of(A)};
    spec.shape.v[spec.shape.n - 2] = spec.shape.v[spec.shape.n - 1] = n;
    return ac_c_zeros(s, &spec);
}

/* V is not transposed; without compute_uv there are zeros in place of U and V. */
COMPOSE(svd_old) {
    ATTRS(svd_old);
    T A = in[0], out[AC_MAX_OUT] = {NULL};
    if (singular(s, A, !a->some && a->compute_uv, 0, out) < 0) return NULL;
    s->also[1] = out[1];
    s->also[2] = a->compute_uv ? TR(out[2]) : zeros_square(s, A, ac_cols_of(A));
    return a->compute_uv ? out[0] : zeros_square(s, A, ac_rows_of(A));
}

/* -- what singular values tell ------------------------------------------------------------------------------ */

static double own_room(const ac_tensor *A) {
    int64_t larger = ac_rows_of(A) > ac_cols_of(A) ? ac_rows_of(A) : ac_cols_of(A);
    return (A->dtype == AC_float64 ? DBL_EPSILON : (double)FLT_EPSILON) * (double)larger;
}

/* A number, or one for each matrix, beside its singular values. */
static T beside(ac_scratch *s, T room) { return !room || room->is_scalar ? room : ac_c_unsqueeze(s, room, -1); }

/* What singular values must exceed to count: max(atol, rtol * the largest). Without both, rtol is the dtype's eps times
 * the larger size; so it is too beside an atol of 0. Each is a number, a tensor with one for each matrix, or NULL. */
static T cut(ac_scratch *s, T A, T S, T atol, T rtol) {
    ac_attrs_reduce_dim last = {{1, {-1}}, 1};
    if (!S) return NULL;
    if (!rtol) {
        rtol = ac_c_full(s, &(ac_dims){0}, own_room(A), S->dtype, ac_device_of(A));
        if (atol) rtol = WHERE(BIN(gt, atol, NUM(0)), NUM(0), rtol);
        if (!rtol) return NULL;
    }
    T largest = ac_cols_of(S) ? ac_c_call(s, AC_OP_amax, &last, 1, S) : S;
    T least = MUL(largest, rtol->is_scalar ? rtol : beside(s, rtol));
    return atol ? BIN(maximum, least, beside(s, atol)) : least;
}

/* Without a history, as its gradient needs no differences of singular values, which may be equal, or 0. */
static T pseudo_inverse(ac_scratch *s, T A, bool hermitian, T atol, T rtol) {
    T out[AC_MAX_OUT] = {NULL}, U, S, V;
    if (!A) return NULL;
    if (hermitian) {
        if (eigen(s, A, 0, out) < 0) return NULL;
        U = V = out[1], S = out[0];
    } else {
        if (singular(s, A, false, 0, out) < 0) return NULL;
        U = out[0], S = out[1], V = TR(out[2]);
    }
    T sizes = hermitian ? UN(abs, S) : S, some = BIN(lt, cut(s, A, sizes, atol, rtol), sizes);
    T inverse = WHERE(some, UN(reciprocal, WHERE(some, S, NUM(1))), NUM(0));
    return ac_c_product(s, ac_c_scale_columns(s, V, inverse), TR(U));
}

static T pinv(ac_scratch *s, T A, bool hermitian, T atol, T rtol) {
    NEED(ac_need_matrices(A, "linalg.pinv"));
    if (hermitian) NEED(ac_need_square(A, "linalg.pinv"));
    T P = pseudo_inverse(s, ac_c_detach(s, A), hermitian, atol, rtol);
    return P ? BIN(pinv_of, P, A) : NULL;
}

COMPOSE(linalg_pinv) {
    ATTRS(hermitian);
    return pinv(s, in[0], a->hermitian, in[2], in[3] ? in[3] : in[1]);
}
COMPOSE(pinverse) {
    ATTRS(rcond);
    return pinv(s, in[0], false, NULL, REAL(a->rcond));
}

COMPOSE(linalg_matrix_rank) {
    ATTRS(hermitian);
    T A = in[0], tol = in[1], out[AC_MAX_OUT] = {NULL};
    NEED(ac_need_matrices(A, "linalg.matrix_rank"));
    if (a->hermitian && eigen(s, A, 0, out) < 0) return NULL;
    T S = a->hermitian ? UN(abs, out[0]) : ac_c_singular_values(s, A);
    T least = tol ? cut(s, A, S, tol, NUM(0)) : cut(s, A, S, in[2], in[3]);
    return ac_c_sum(s, BIN(lt, least, S), -1);
}

enum { GELSY, GELS, GELSD, GELSS };

static int check_least_squares(const ac_tensor *A, const ac_tensor *B) {
    static const char what[] = "linalg.lstsq";
    char a[AC_SHAPE_TEXT], b[AC_SHAPE_TEXT];
    if (A->ndim < 2 || B->ndim < 1)
        return ac_fail(AC_RUNTIME, "%s: needs matrices A and matrices or vectors B, got shapes %s and %s", what,
                       text_of(A, a), text_of(B, b));
    AC_TRY(ac_need_matrices(A, what));
    AC_TRY(same_dtype(A, B, what));
    bool vector = B->ndim == A->ndim - 1;
    if (vector ? B->shape[B->ndim - 1] == ac_rows_of(A) : B->ndim >= 2 && ac_rows_of(B) == ac_rows_of(A)) return 0;
    return misfit(A, B, what);
}

/* Residuals where A has full rank and more rows than columns. */
COMPOSE(linalg_lstsq) {
    ATTRS(lstsq);
    T A = in[0], B = in[1];
    NEED(check_least_squares(A, B));
    bool vector = B->ndim == A->ndim - 1;
    double room = a->rcond.kind == AC_NONE ? own_room(A) : ac_scalar_double(a->rcond);
    T right = vector ? ac_c_unsqueeze(s, B, -1) : B, X = ac_c_product(s, pinv(s, A, false, NULL, REAL(room)), right);
    T values = ac_c_singular_values(s, ac_c_detach(s, A)), least = cut(s, A, values, NULL, REAL(room));
    T rank = ac_c_sum(s, BIN(lt, least, values), -1);
    if (!rank || !X) return NULL;
    int64_t m = ac_rows_of(A), n = ac_cols_of(A);
    bool full = m > n && !ac_c_any(s, BIN(ne, rank, NUM((double)n)));
    T off = full ? SUB(ac_c_product(s, A, X), right) : NULL;
    s->also[1] = full ? ac_c_sum(s, UN(square, off), -2) : ac_c_slice(s, ac_c_flat(s, X), 0, 0, 0);
    s->also[2] = a->driver == GELS ? ac_c_empty(s, rank) : rank;
    s->also[3] = a->driver == GELSD || a->driver == GELSS ? values : ac_c_empty(s, A);
    return s->failed ? NULL : vector ? ac_c_squeeze(s, X, -1) : X;
}

/* -- few singular values ------------------------------------------------------------------------------------ */

static T orthonormal(ac_scratch *s, T A) { return UN(qr, A); }

/* q orthonormal columns whose span nearly holds what A makes of any vector (Halko, Martinsson and Tropp 2011, algorithm
 * 4.4). */
static T near_range(ac_scratch *s, T A, int64_t q, int64_t times) {
    ac_attrs_random drawn = {{2, {ac_cols_of(A), q}}, 0, 1, A->dtype, ac_device_of(A)};
    T Q = orthonormal(s, ac_c_product(s, A, ac_c_call(s, AC_OP_normal, &drawn, 0)));
    for (int64_t i = 0; i < times; i++)
        Q = orthonormal(s, ac_c_product(s, A, orthonormal(s, ac_c_product(s, TR(A), Q))));
    return Q;
}

/* About the q largest singular values of A: those of A seen from q random directions, which `times` products with A
 * and its transpose turn towards the largest. */
static T low_rank(ac_scratch *s, T A, int64_t q, int64_t times) {
    T out[AC_MAX_OUT] = {NULL};
    if (s->failed || !A) return NULL;
    NEED(ac_need_matrices(A, "svd_lowrank"));
    bool wide = ac_rows_of(A) < ac_cols_of(A);
    T tall = wide ? TR(A) : A, Q = tall ? near_range(s, tall, q, times) : NULL;
    T seen = ac_c_product(s, TR(Q), tall);
    if (!seen || singular(s, seen, false, 0, out) < 0) return NULL;
    T U = ac_c_product(s, Q, out[0]), V = TR(out[2]);
    s->also[1] = out[1], s->also[2] = wide ? U : V;
    return wide ? V : U;
}

COMPOSE(svd_lowrank) {
    ATTRS(lowrank);
    return low_rank(s, in[1] ? SUB(in[0], in[1]) : in[0], a->q == AC_ABSENT ? 6 : a->q,
                    a->niter == AC_ABSENT ? 2 : a->niter);
}

COMPOSE(pca_lowrank) {
    ATTRS(pca);
    T A = in[0];
    char shape[AC_SHAPE_TEXT];
    ac_dims rows = {1, {-2}};
    NEED(ac_need_matrices(A, "pca_lowrank"));
    int64_t most = ac_smaller_size(A), q = a->q != AC_ABSENT ? a->q : most < 6 ? most : 6;
    if (q < 0 || q > most)
        REFUSE(AC_VALUE, "pca_lowrank: `q` must be between 0 and the smaller size of %s, got %" PRId64,
               text_of(A, shape), q);
    if (a->niter < 0) REFUSE(AC_VALUE, "pca_lowrank: `niter` must be 0 or more, got %" PRId64, a->niter);
    return low_rank(s, a->center ? SUB(A, ac_c_mean(s, A, &rows, true)) : A, q, a->niter);
}
