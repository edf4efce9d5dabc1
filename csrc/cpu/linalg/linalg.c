/* Linear algebra by LAPACK, in float64, one matrix at a time. LAPACK stores matrices by columns. */
#include "cpu/kernels.h"

#include "base/alloc.h"

#include <limits.h>
#include <math.h>
#include <string.h>

typedef struct linalg linalg;
typedef int one_fn(const linalg *c, int64_t item); /* computes one matrix of the batch */

/* A call: its operands' matrices as columns in memory of its own. */
struct linalg {
    const ac_run *r;
    int m, n, k; /* rows and columns of the first input; the smaller of them, or the second's columns */
    int64_t batch;
    double *a, *b, *c, *work;
    int *pivots;
    int lwork;
    void *routine[2];
    one_fn *one;
};

#define CALL(c, i, type, ...)                                                                                          \
    do {                                                                                                               \
        type f;                                                                                                        \
        memcpy(&f, &(c)->routine[i], sizeof f); /* ISO C has no cast from data to function */                          \
        ac_blas_enter();                                                                                               \
        f(__VA_ARGS__);                                                                                                \
        ac_blas_leave();                                                                                               \
    } while (0)

static const char *said(const linalg *c) { return ac_ops[c->r->op].shown; }

/* Matrix `item` of t [..., rows, cols], between memory by rows and columns. */
static void fetch(const ac_tensor *t, int64_t item, int rows, int cols, double *to) {
    ac_space lead = ac_space_of(t, (1u << (t->ndim - 2)) - 1);
    int64_t at = ac_space_offset(&lead, item), row = t->strides[t->ndim - 2], col = t->strides[t->ndim - 1];
    for (int j = 0; j < cols; j++)
        ac_cpu_loops()->load[t->dtype][AC_OPMATH_F64](rows, (char *)ac_data(t) + (at + j * col) * ac_itemsize(t->dtype),
                                                      row, to + (int64_t)j * rows);
}
static void put(ac_tensor *t, int64_t item, int rows, int cols, const double *from, int from_rows) {
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < cols; j++)
            ac_write_double(ac_data(t), t->dtype, (item * rows + i) * cols + j, from[i + (int64_t)j * from_rows]);
}

static bool is_finite(const double *x, int64_t n) {
    bool good = true;
    for (int64_t i = 0; i < n; i++) good = good && isfinite(x[i]);
    return good;
}

/* Memory for a, b, c of these sizes and `work` doubles, then every matrix of the batch. */
static int run_linalg(linalg *c, int64_t a, int64_t b, int64_t cc, int64_t work, int64_t pivots) {
    size_t bytes = (size_t)(a + b + cc + work + 4) * sizeof(double) + (size_t)(pivots + 1) * sizeof(int);
    for (int i = 0; i < 2; i++)
        if (!c->routine[i]) return ac_fail(AC_RUNTIME, "%s: needs OpenBLAS's LAPACK, which was not found", said(c));
    if (work > INT_MAX) /* LAPACK would be told a negative number */
        return ac_fail(AC_RUNTIME,
                       "%s: matrices of %d rows and %d columns need more working memory than LAPACK can count", said(c),
                       c->m, c->n);
    double *room = ac_alloc(bytes);
    int failed = 0;
    if (!room) return -1;
    c->a = room, c->b = c->a + a, c->c = c->b + b, c->work = c->c + cc, c->pivots = (int *)(void *)(c->work + work + 1);
    c->lwork = (int)work;
    for (int64_t i = 0; i < c->batch && !failed && !ac_poll(); i++) failed = c->one(c, i);
    ac_free(room, bytes);
    return failed;
}

/* `first` and `second` name the LAPACK routines that `one` calls. */
static int open_linalg(linalg *c, const ac_run *r, one_fn *one, const char *first, const char *second) {
    const ac_tensor *x = r->in[0];
    int64_t m = x->shape[x->ndim - 2], n = x->shape[x->ndim - 1];
    *c = (linalg){.r = r, .m = (int)m, .n = (int)n, .k = (int)(m < n ? m : n), .batch = 1, .one = one};
    for (int d = 0; d + 2 < x->ndim; d++) c->batch *= x->shape[d];
    c->routine[0] = ac_lapack(first), c->routine[1] = ac_lapack(second);
    if (m < (1 << 24) && n < (1 << 24)) return 0;
    return ac_fail(AC_RUNTIME, "%s: matrices of more than 2^24 rows or columns", said(c));
}

/* -- solving ------------------------------------------------------------------------------------------- */

typedef void (*getrf_fn)(const int *, const int *, double *, const int *, int *, int *);
typedef void (*getrs_fn)(const char *, const int *, const int *, const double *, const int *, const int *, double *,
                         const int *, int *, size_t);

/* LAPACK's elimination may lose a nan: OpenBLAS takes 0 times nan as 0. */
static bool has_nan(const double *x, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        if (x[i] != x[i]) return true;
    return false;
}
static void become_nan(double *x, int64_t n) {
    for (int64_t i = 0; i < n; i++) x[i] = NAN;
}

/* Whether a matrix that LAPACK finds wrong is an error. Else its info says so, and its result is nan. */
static bool is_checked(const linalg *c) {
    const ac_attrs_check *a = c->r->attrs;
    return a->check;
}
static void note_info(const linalg *c, int64_t item, int info, double *result, int64_t n) {
    ac_write_int(ac_data(c->r->out[1]), AC_int32, item, info);
    if (info > 0) become_nan(result, n);
}

static int solve_one(const linalg *c, int64_t item) {
    int info = 0, n = c->n, none = 0;
    fetch(c->r->in[0], item, n, n, c->a);
    fetch(c->r->in[1], item, n, c->k, c->b);
    bool unknown = has_nan(c->a, (int64_t)n * n);
    if (unknown) become_nan(c->b, (int64_t)n * c->k);
    else if (n > 0) CALL(c, 0, getrf_fn, &n, &n, c->a, &n, c->pivots, &info);
    if (info > 0 && is_checked(c))
        return ac_fail(AC_LINALG, "%s: matrix %lld is singular (pivot %d is 0), so it has no inverse", said(c),
                       (long long)item, info);
    if (n > 0 && c->k > 0 && info == 0 && !unknown)
        CALL(c, 1, getrs_fn, "N", &n, &c->k, c->a, &n, c->pivots, c->b, &n, &none, 1);
    note_info(c, item, info, c->b, (int64_t)n * c->k);
    put(c->r->out[0], item, n, c->k, c->b, n);
    return 0;
}

int ac_cpu_solve(const ac_run *r) {
    linalg c;
    AC_TRY(open_linalg(&c, r, solve_one, "dgetrf", "dgetrs"));
    c.k = (int)r->in[1]->shape[r->in[1]->ndim - 1];
    return run_linalg(&c, (int64_t)c.n * c.n, (int64_t)c.n * c.k, 0, 0, c.n);
}

typedef void (*trsm_fn)(const char *, const char *, const char *, const char *, const int *, const int *,
                        const double *, const double *, const int *, double *, const int *, size_t, size_t, size_t,
                        size_t);

static int triangle_one(const linalg *c, int64_t item) {
    const ac_attrs_triangle *a = c->r->attrs;
    const char *uplo = a->upper ? "U" : "L", *diagonal = a->unit ? "U" : "N";
    int n = c->n;
    double one = 1;
    fetch(c->r->in[0], item, n, n, c->a);
    fetch(c->r->in[1], item, n, c->k, c->b);
    if (n > 0 && c->k > 0)
        CALL(c, 0, trsm_fn, "L", uplo, "N", diagonal, &n, &c->k, &one, c->a, &n, c->b, &n, 1, 1, 1, 1);
    put(c->r->out[0], item, n, c->k, c->b, n);
    return 0;
}

int ac_cpu_solve_triangle(const ac_run *r) {
    linalg c;
    AC_TRY(open_linalg(&c, r, triangle_one, "dtrsm", "dtrsm"));
    c.k = (int)r->in[1]->shape[r->in[1]->ndim - 1];
    return run_linalg(&c, (int64_t)c.n * c.n, (int64_t)c.n * c.k, 0, 0, 0);
}

/* A call whose `one` needs Gauss's elimination alone, in place of the matrix. */
static int run_elimination(const ac_run *r, one_fn *one) {
    linalg c;
    AC_TRY(open_linalg(&c, r, one, "dgetrf", "dgetrf"));
    return run_linalg(&c, (int64_t)c.m * c.n, 0, 0, 0, c.k);
}

/* Leaves the pivots of Gauss's elimination on the diagonal of c->a. */
static void eliminate(const linalg *c, int64_t item) {
    int info = 0, n = c->n;
    fetch(c->r->in[0], item, n, n, c->a);
    bool unknown = has_nan(c->a, (int64_t)n * n);
    if (n > 0) CALL(c, 0, getrf_fn, &n, &n, c->a, &n, c->pivots, &info);
    if (unknown) become_nan(c->a, (int64_t)n * n);
}

static int det_one(const linalg *c, int64_t item) {
    double product = 1;
    eliminate(c, item);
    for (int i = 0; i < c->n; i++) {
        double d = c->a[i + (int64_t)i * c->n];
        product *= c->pivots[i] != i + 1 ? -d : d;
    }
    ac_write_double(ac_data(c->r->out[0]), c->r->out[0]->dtype, item, product);
    return 0;
}

int ac_cpu_det(const ac_run *r) { return run_elimination(r, det_one); }

static int slogdet_one(const linalg *c, int64_t item) {
    int n = c->n;
    double sign = 1, size = 0;
    eliminate(c, item);
    for (int i = 0; i < n; i++) {
        double d = c->a[i + (int64_t)i * n];
        sign = d == 0 ? 0 : (d < 0) != (c->pivots[i] != i + 1) ? -sign : sign;
        if (d != d) sign = d;
        size += log(fabs(d));
    }
    ac_write_double(ac_data(c->r->out[0]), c->r->out[0]->dtype, item, sign);
    ac_write_double(ac_data(c->r->out[1]), c->r->out[1]->dtype, item, size);
    return 0;
}

int ac_cpu_slogdet(const ac_run *r) { return run_elimination(r, slogdet_one); }

/* -- triangles and exchanges of rows ----------------------------------------------------------------------- */

/* The exchanges of one matrix of k rows, and its info. */
static void put_pivots(const linalg *c, int64_t item, int k, int info) {
    for (int i = 0; i < k; i++) ac_write_int(ac_data(c->r->out[1]), AC_int32, item * k + i, c->pivots[i]);
    ac_write_int(ac_data(c->r->out[2]), AC_int32, item, info);
}

static int lu_one(const linalg *c, int64_t item) {
    int info = 0, m = c->m, n = c->n;
    fetch(c->r->in[0], item, m, n, c->a);
    if (c->k > 0) CALL(c, 0, getrf_fn, &m, &n, c->a, &m, c->pivots, &info);
    if (info > 0 && is_checked(c))
        return ac_fail(AC_LINALG,
                       "%s: matrix %lld: U[%d, %d] is 0, so lu_solve would divide by it. linalg.lu and "
                       "linalg.lu_factor_ex take such a matrix",
                       said(c), (long long)item, info, info);
    put(c->r->out[0], item, m, n, c->a, m);
    put_pivots(c, item, c->k, info);
    return 0;
}

int ac_cpu_lu_factor(const ac_run *r) { return run_elimination(r, lu_one); }

int ac_cpu_row_order(const ac_run *r) {
    const ac_tensor *pivots = r->in[0];
    int64_t k = pivots->shape[pivots->ndim - 1], rows = r->out[0]->shape[pivots->ndim - 1];
    const int32_t *from = ac_data(pivots);
    int64_t *order = ac_data(r->out[0]), batch = rows ? r->out[0]->numel / rows : 0;
    for (int64_t b = 0; b < batch; b++, from += k, order += rows) {
        for (int64_t i = 0; i < rows; i++) order[i] = i;
        for (int64_t i = 0; i < k; i++) {
            if (from[i] < 1 || from[i] > rows)
                return ac_fail(AC_RUNTIME, "lu: pivot %d is not from 1 to %lld, the rows; it must be from lu_factor",
                               (int)from[i], (long long)rows);
            int64_t other = order[from[i] - 1];
            order[from[i] - 1] = order[i], order[i] = other;
        }
    }
    return 0;
}

typedef void (*sytrf_fn)(const char *, const int *, double *, const int *, int *, double *, const int *, int *, size_t);
typedef void (*sytrs_fn)(const char *, const int *, const int *, const double *, const int *, const int *, double *,
                         const int *, int *, size_t);

static int ldl_one(const linalg *c, int64_t item) {
    int info = 0, n = c->n;
    fetch(c->r->in[0], item, n, n, c->a);
    if (n > 0) CALL(c, 0, sytrf_fn, "L", &n, c->a, &n, c->pivots, c->work, &c->lwork, &info, 1);
    if (info > 0 && is_checked(c))
        return ac_fail(AC_LINALG, "%s: matrix %lld is singular: block %d of D is 0", said(c), (long long)item, info);
    for (int j = 0; j < n; j++)
        for (int i = 0; i < j; i++) c->a[i + (int64_t)j * n] = 0;
    put(c->r->out[0], item, n, n, c->a, n);
    put_pivots(c, item, n, info);
    return 0;
}

int ac_cpu_ldl_factor(const ac_run *r) {
    linalg c;
    AC_TRY(open_linalg(&c, r, ldl_one, "dsytrf", "dsytrf"));
    return run_linalg(&c, (int64_t)c.n * c.n, 0, 0, (int64_t)64 * (c.n + 1), c.n);
}

/* Whether LAPACK stays inside the matrix: blocks of two rows, whose pivots are negative, are whole. */
static bool are_blocks(const int *pivots, int n) {
    for (int i = 0; i < n; i++) {
        if (pivots[i] == 0 || pivots[i] > n || pivots[i] < -n) return false;
        if (pivots[i] < 0 && (++i == n || pivots[i] != pivots[i - 1])) return false;
    }
    return true;
}

static int ldl_solve_one(const linalg *c, int64_t item) {
    int info = 0, n = c->n;
    const int32_t *from = (const int32_t *)ac_data(c->r->in[1]) + item * n;
    for (int i = 0; i < n; i++) c->pivots[i] = from[i];
    if (!are_blocks(c->pivots, n))
        return ac_fail(AC_RUNTIME, "%s: the pivots of matrix %lld are not those of ldl_factor", said(c),
                       (long long)item);
    fetch(c->r->in[0], item, n, n, c->a);
    fetch(c->r->in[2], item, n, c->k, c->b);
    if (n > 0 && c->k > 0) CALL(c, 0, sytrs_fn, "L", &n, &c->k, c->a, &n, c->pivots, c->b, &n, &info, 1);
    put(c->r->out[0], item, n, c->k, c->b, n);
    return 0;
}

int ac_cpu_ldl_solve(const ac_run *r) {
    linalg c;
    AC_TRY(open_linalg(&c, r, ldl_solve_one, "dsytrs", "dsytrs"));
    c.k = (int)r->in[2]->shape[r->in[2]->ndim - 1];
    return run_linalg(&c, (int64_t)c.n * c.n, (int64_t)c.n * c.k, 0, 0, c.n);
}

/* -- factorisations -------------------------------------------------------------------------------------- */

typedef void (*potrf_fn)(const char *, const int *, double *, const int *, int *, size_t);

static int cholesky_one(const linalg *c, int64_t item) {
    int info = 0, n = c->n;
    fetch(c->r->in[0], item, n, n, c->a);
    if (n > 0) CALL(c, 0, potrf_fn, "L", &n, c->a, &n, &info, 1);
    for (int i = 0; i < n && info == 0; i++) /* OpenBLAS goes on over nan */
        if (!(c->a[i + (int64_t)i * n] > 0)) info = i + 1;
    if (info > 0 && is_checked(c))
        return ac_fail(AC_LINALG, "%s: matrix %lld is not positive definite (its leading minor of order %d is not)",
                       said(c), (long long)item, info);
    note_info(c, item, info, c->a, (int64_t)n * n);
    for (int j = 0; j < n; j++)
        for (int i = 0; i < j; i++) c->a[i + (int64_t)j * n] = 0;
    put(c->r->out[0], item, n, n, c->a, n);
    return 0;
}

int ac_cpu_cholesky(const ac_run *r) {
    linalg c;
    AC_TRY(open_linalg(&c, r, cholesky_one, "dpotrf", "dpotrf"));
    return run_linalg(&c, (int64_t)c.n * c.n, 0, 0, 0, 0);
}

typedef void (*geqrf_fn)(const int *, const int *, double *, const int *, double *, double *, const int *, int *);
typedef void (*orgqr_fn)(const int *, const int *, const int *, double *, const int *, const double *, double *,
                         const int *, int *);

static int qr_one(const linalg *c, int64_t item) {
    int info = 0, m = c->m, n = c->n, k = c->k;
    if (k == 0) return 0;
    fetch(c->r->in[0], item, m, n, c->a);
    CALL(c, 0, geqrf_fn, &m, &n, c->a, &m, c->b, c->work, &c->lwork, &info);
    for (int j = 0; j < n; j++)
        for (int i = 0; i < k; i++) c->c[i + (int64_t)j * k] = i <= j ? c->a[i + (int64_t)j * m] : 0;
    put(c->r->out[1], item, k, n, c->c, k);
    CALL(c, 1, orgqr_fn, &m, &k, &k, c->a, &m, c->b, c->work, &c->lwork, &info);
    put(c->r->out[0], item, m, k, c->a, m);
    return 0;
}

int ac_cpu_qr(const ac_run *r) {
    linalg c;
    AC_TRY(open_linalg(&c, r, qr_one, "dgeqrf", "dorgqr"));
    return run_linalg(&c, (int64_t)c.m * c.n, c.k, (int64_t)c.k * c.n, (int64_t)64 * (c.m + c.n + 1), 0);
}

static int reflections_one(const linalg *c, int64_t item) {
    int info = 0, m = c->m, n = c->n;
    if (c->k == 0) return 0;
    fetch(c->r->in[0], item, m, n, c->a);
    CALL(c, 0, geqrf_fn, &m, &n, c->a, &m, c->b, c->work, &c->lwork, &info);
    put(c->r->out[0], item, m, n, c->a, m);
    put(c->r->out[1], item, c->k, 1, c->b, c->k);
    return 0;
}

int ac_cpu_reflections(const ac_run *r) {
    linalg c;
    AC_TRY(open_linalg(&c, r, reflections_one, "dgeqrf", "dgeqrf"));
    return run_linalg(&c, (int64_t)c.m * c.n, c.k, 0, (int64_t)64 * (c.n + 1), 0);
}

typedef void (*syevd_fn)(const char *, const char *, const int *, double *, const int *, double *, double *,
                         const int *, int *, const int *, int *, size_t, size_t);

static int eigh_one(const linalg *c, int64_t item) {
    int info = 0, n = c->n, few = 5 * n + 3;
    if (n == 0) return 0;
    fetch(c->r->in[0], item, n, n, c->a);
    for (int j = 0; j < n; j++) /* the upper triangle does not count: whether it is finite neither */
        for (int i = 0; i < j; i++) c->a[i + (int64_t)j * n] = c->a[j + (int64_t)i * n];
    if (!is_finite(c->a, (int64_t)n * n))
        return ac_fail(AC_LINALG, "%s: matrix %lld holds inf or nan", said(c), (long long)item);
    CALL(c, 0, syevd_fn, "V", "L", &n, c->a, &n, c->b, c->work, &c->lwork, c->pivots, &few, &info, 1, 1);
    if (info > 0)
        return ac_fail(AC_LINALG, "%s: matrix %lld: the iteration did not converge", said(c), (long long)item);
    put(c->r->out[0], item, n, 1, c->b, n);
    put(c->r->out[1], item, n, n, c->a, n);
    return 0;
}

int ac_cpu_eigh(const ac_run *r) {
    linalg c;
    AC_TRY(open_linalg(&c, r, eigh_one, "dsyevd", "dsyevd"));
    return run_linalg(&c, (int64_t)c.n * c.n, c.n, 0, 1 + (int64_t)c.n * (6 + 2 * (int64_t)c.n + 64),
                      5 * (int64_t)c.n + 3);
}

typedef void (*gesdd_fn)(const char *, const int *, const int *, double *, const int *, double *, double *, const int *,
                         double *, const int *, double *, const int *, int *, int *, size_t);

/* Vectors of no singular value: any orthonormal columns complete an empty U or Vh. */
static void put_unit(ac_tensor *t, int64_t item, int64_t n) {
    for (int64_t i = 0; i < n * n; i++)
        ac_write_double(ac_data(t), t->dtype, item * n * n + i, i % (n + 1) == 0 ? 1 : 0);
}

static int svd_one(const linalg *c, int64_t item) {
    const ac_attrs_full_matrices *a = c->r->attrs;
    int info = 0, m = c->m, n = c->n, k = c->k, left_cols = a->full ? m : k, right_rows = a->full ? n : k;
    double *values = c->b, *left = c->b + k, *right = c->c;
    if (k == 0) {
        if (a->full) put_unit(c->r->out[0], item, m), put_unit(c->r->out[2], item, n);
        return 0;
    }
    fetch(c->r->in[0], item, m, n, c->a);
    if (!is_finite(c->a, (int64_t)m * n))
        return ac_fail(AC_LINALG, "%s: matrix %lld holds inf or nan", said(c), (long long)item);
    CALL(c, 0, gesdd_fn, a->full ? "A" : "S", &m, &n, c->a, &m, values, left, &m, right, &right_rows, c->work,
         &c->lwork, c->pivots, &info, 1);
    if (info > 0)
        return ac_fail(AC_LINALG, "%s: matrix %lld: the iteration did not converge", said(c), (long long)item);
    put(c->r->out[0], item, m, left_cols, left, m);
    put(c->r->out[1], item, k, 1, values, k);
    put(c->r->out[2], item, right_rows, n, right, right_rows);
    return 0;
}

int ac_cpu_svd(const ac_run *r) {
    const ac_attrs_full_matrices *a = r->attrs;
    linalg c;
    AC_TRY(open_linalg(&c, r, svd_one, "dgesdd", "dgesdd"));
    int64_t k = c.k, wide = c.m > c.n ? c.m : c.n, cols = a->full ? c.m : k, rows = a->full ? c.n : k;
    return run_linalg(&c, (int64_t)c.m * c.n, k + c.m * cols, rows * c.n, 4 * k * k + 7 * k + wide * 66 + 64 * (k + 1),
                      8 * k);
}
