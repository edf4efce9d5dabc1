/* The matrix-product kernels. float32 and the 16-bit types run on our own driver (gemm.h). float64 runs on BLAS,
 * split over the thread pool; integers have a plain loop. */
#include "cpu/kernels.h"

#include "base/alloc.h"
#include "base/ways.h"
#include "cpu/gemm/gemm.h"

#include <string.h>

/* -- float32, float16, bfloat16 -------------------------------------------------------------------- */

/* Matrix t as an operand whose lanes are dimension `lanes`, counted from the end, as is k's `along`. */
static ac_operand operand(const ac_tensor *t, int lanes, int along, ac_dtype round) {
    int l = t->ndim - lanes, k = t->ndim - along;
    return (ac_operand){.data = ac_data(t),
                        .dtype = t->dtype,
                        .lanes = t->shape[l],
                        .k = t->shape[k],
                        .lane_stride = t->shape[l] > 1 ? t->strides[l] : t->shape[k],
                        .k_stride = t->shape[k] > 1 ? t->strides[k] : 1,
                        .round = round};
}

static ac_gemm_call product(const ac_run *r, ac_operand a, ac_operand b) {
    const ac_tensor *out = r->out[0];
    return (ac_gemm_call){.a = a,
                          .b = b,
                          .panels = r->panels ? ac_data(r->panels) : NULL,
                          .c = ac_data(out),
                          .c_dtype = out->dtype,
                          .c_row = b.lanes,
                          .alpha = 1,
                          .beta = r->add ? 1 : 0,
                          .batch = 1};
}

static bool is_real(const ac_run *r) { return ac_is_floating(r->in[0]->dtype); }
static bool is_double(const ac_run *r) { return r->in[0]->dtype == AC_float64 || r->out[0]->dtype == AC_float64; }

/* -- float64, by BLAS -------------------------------------------------------------------------------- */

/* A matrix with one unit stride. */
typedef struct {
    const double *data;
    int64_t batch, row, col; /* strides */
    size_t owned;            /* bytes to free, when a copy had to be made */
} matrix;

typedef struct {
    int64_t batch, m, n, k;
    matrix a, b;
    double *c;          /* row-major */
    const double *bias; /* n values, or NULL */
    bool add;           /* to what c holds */
    int64_t rows, cols; /* of the pieces that one product is cut into */
} wide_product;

static int64_t pieces_across(const wide_product *p) { return (p->n + p->cols - 1) / p->cols; }
static int64_t pieces_of(const wide_product *p) { return (p->m + p->rows - 1) / p->rows * pieces_across(p); }

static void product_part(const wide_product *p, int64_t batch, int64_t part) {
    int64_t row0 = part / pieces_across(p) * p->rows, col0 = part % pieces_across(p) * p->cols;
    int64_t m = p->m - row0 < p->rows ? p->m - row0 : p->rows, n = p->n - col0 < p->cols ? p->n - col0 : p->cols;
    double *c = p->c + batch * p->m * p->n + row0 * p->n + col0;
    for (int64_t i = 0; p->bias && i < m; i++) memcpy(c + i * p->n, p->bias + col0, (size_t)n * sizeof *c);
    ac_dgemm g = {.m = m,
                  .n = n,
                  .k = p->k,
                  .a = p->a.data + batch * p->a.batch + row0 * p->a.row,
                  .a_row = p->a.row,
                  .a_col = p->a.col,
                  .b = p->b.data + batch * p->b.batch + col0 * p->b.col,
                  .b_row = p->b.row,
                  .b_col = p->b.col,
                  .c = c,
                  .c_row = p->n,
                  .add = p->add || p->bias};
    ac_blas_dgemm(&g);
}

static void product_parts(void *context, int64_t begin, int64_t end) {
    const wide_product *p = context;
    for (int64_t i = begin; i < end; i++) product_part(p, i / pieces_of(p), i % pieces_of(p));
}

/* Each piece packs its operands again, so pieces are few and thick; but short enough (some 50 ms) to be
 * interrupted between. */
static void run_wide(wide_product *p) {
    int64_t work = p->m * p->n * p->k;
    int64_t *side = p->m >= 64 || p->m >= p->n ? &p->rows : &p->cols;
    p->rows = p->m > 0 ? p->m : 1, p->cols = p->n > 0 ? p->n : 1;
    if (work >= 1 << 19 && *side >= 32) {
        int64_t parts = *side / 256 > 2 ? *side / 256 : 2;
        *side = ((*side + parts - 1) / parts + 15) / 16 * 16;
    }
    while (p->rows * p->cols * p->k > (int64_t)1 << 30 && p->rows * p->cols > 64 * 64) {
        side = p->rows > p->cols ? &p->rows : &p->cols;
        *side = (*side / 2 + 15) / 16 * 16;
    }
    if (pieces_of(p) > 1) AC_WAY(product_float64_pieces);
    else AC_WAY(product_float64_whole);
    int64_t each = p->rows * p->cols * p->k, grain = each > 0 ? ((int64_t)1 << 18) / each : 1024;
    ac_for_range(p->batch * pieces_of(p), grain, product_parts, p);
}

/* t [rows, cols] (or [batch, rows, cols]) as float64 with one unit stride; copies if it must. */
static int take_matrix(matrix *out, const ac_tensor *t) {
    int last = t->ndim - 1;
    int64_t rows = t->shape[last - 1], cols = t->shape[last];
    out->batch = last > 1 ? t->strides[0] : 0;
    out->row = rows > 1 ? t->strides[last - 1] : cols, out->col = cols > 1 ? t->strides[last] : 1;
    out->owned = 0;
    out->data = ac_data(t);
    bool unit =
        (out->row == 1 && (out->col >= rows || cols == 1)) || (out->col == 1 && (out->row >= cols || rows == 1));
    if (unit && t->dtype == AC_float64) return 0;
    AC_WAY(product_float64_copied);
    out->owned = (size_t)t->numel * sizeof(double) + 1;
    char *copy = ac_alloc(out->owned);
    if (!copy) return -1;
    ac_storage memory = {.data = copy};
    ac_tensor dense = *t;
    ac_dims shape = ac_shape_of(t), strides = ac_dims_contiguous(&shape);
    dense.storage = &memory, dense.offset = 0, dense.dtype = AC_float64;
    memcpy(dense.strides, strides.v, sizeof dense.strides);
    ac_cpu_copy_into(&dense, t);
    out->data = (double *)(void *)copy, out->row = cols, out->col = 1, out->batch = rows * cols;
    return 0;
}

static void drop_matrix(matrix *m) {
    if (m->owned) ac_free((void *)(uintptr_t)m->data, m->owned);
}

static int multiply_wide(wide_product *p, const ac_tensor *a, const ac_tensor *b, const ac_run *r) {
    AC_TRY(take_matrix(&p->a, a));
    if (take_matrix(&p->b, b) < 0) {
        drop_matrix(&p->a);
        return -1;
    }
    ac_tensor *out = r->out[0];
    ac_storage memory = {.data = ac_data(out)};
    ac_tensor dense = *out;
    dense.storage = &memory, dense.offset = 0, dense.dtype = AC_float64;
    size_t bytes = out->dtype == AC_float64 ? 0 : (size_t)out->numel * sizeof(double) + 1;
    if (bytes) memory.data = ac_alloc(bytes); /* a narrower result: rounded at the end */
    if (memory.data) {
        p->c = (double *)(void *)memory.data;
        p->add = r->add;
        if (bytes && r->add) ac_cpu_copy_into(&dense, out);
        run_wide(p);
        if (bytes) ac_cpu_copy_into(out, &dense);
    }
    if (bytes) ac_free(memory.data, bytes);
    drop_matrix(&p->a);
    drop_matrix(&p->b);
    return memory.data ? 0 : -1;
}

/* -- integers ------------------------------------------------------------------------------------------ */

static void multiply_integers(const ac_tensor *a, const ac_tensor *b, ac_tensor *out) {
    AC_WAY(product_integers);
    int last = a->ndim - 1;
    int64_t batch = last > 1 ? a->shape[0] : 1, m = a->shape[last - 1], k = a->shape[last], n = b->shape[last], at = 0;
    for (int64_t q = 0; q < batch; q++)
        for (int64_t i = 0; i < m; i++)
            for (int64_t j = 0; j < n && !ac_poll(); j++, at++) {
                uint64_t sum = 0;
                int64_t left = (last > 1 ? q * a->strides[0] : 0) + i * a->strides[last - 1];
                int64_t right = (last > 1 ? q * b->strides[0] : 0) + j * b->strides[last];
                for (int64_t p = 0; p < k; p++)
                    sum += (uint64_t)ac_read_int(ac_data(a), a->dtype, left + p * a->strides[last]) *
                           (uint64_t)ac_read_int(ac_data(b), b->dtype, right + p * b->strides[last - 1]);
                ac_write_int(ac_data(out), out->dtype, at, (int64_t)sum);
            }
}

/* -- the rows ------------------------------------------------------------------------------------------- */

int ac_cpu_mm(const ac_run *r) {
    const ac_tensor *a = r->in[0], *b = r->in[1];
    if (!is_real(r)) {
        multiply_integers(a, b, r->out[0]);
        return 0;
    }
    if (is_double(r)) {
        wide_product p = {.batch = 1, .m = a->shape[0], .k = a->shape[1], .n = b->shape[1]};
        return multiply_wide(&p, a, b, r);
    }
    ac_gemm_call g = product(r, operand(a, 2, 1, r->compute), operand(b, 1, 2, r->compute));
    return ac_gemm_run(&g);
}

int ac_cpu_bmm(const ac_run *r) {
    const ac_tensor *a = r->in[0], *b = r->in[1];
    if (!is_real(r)) {
        multiply_integers(a, b, r->out[0]);
        return 0;
    }
    if (is_double(r)) {
        wide_product p = {.batch = a->shape[0], .m = a->shape[1], .k = a->shape[2], .n = b->shape[2]};
        return multiply_wide(&p, a, b, r);
    }
    ac_gemm_call g = product(r, operand(a, 2, 1, r->compute), operand(b, 1, 2, r->compute));
    g.batch = a->shape[0], g.a_batch_stride = a->strides[0], g.b_batch_stride = b->strides[0],
    g.c_batch_stride = g.a.lanes * g.b.lanes;
    return ac_gemm_run(&g);
}

/* -- linear ------------------------------------------------------------------------------------------ */

/* x of one dimension, or of more than two, as [rows, in]; it takes a copy when its leading dimensions do not merge. */
static int flatten_rows(const ac_tensor *x, ac_tensor *flat, size_t *owned, ac_storage *memory) {
    int last = x->ndim - 1;
    ac_space rows = ac_space_of(x, ~(1u << last));
    *flat = *x;
    *owned = 0;
    flat->ndim = 2;
    flat->shape[0] = rows.numel, flat->shape[1] = x->shape[last];
    flat->strides[0] = rows.stride[0], flat->strides[1] = x->strides[last];
    if (rows.n == 1) return 0;
    AC_WAY(linear_rows_copied);
    *owned = (size_t)(x->numel * ac_itemsize(x->dtype)) + 1;
    *memory = (ac_storage){.data = ac_alloc(*owned)};
    if (!memory->data) return -1;
    ac_tensor dense = *x;
    ac_dims shape = ac_shape_of(x), strides = ac_dims_contiguous(&shape);
    dense.storage = memory, dense.offset = 0;
    memcpy(dense.strides, strides.v, sizeof dense.strides);
    ac_cpu_copy_into(&dense, x);
    flat->storage = memory, flat->offset = 0;
    flat->strides[0] = x->shape[last], flat->strides[1] = 1;
    return 0;
}

/* The bias as the accumulators' type: itself, or widened into `room` values on the stack or `owned` bytes. */
enum { FEW = 1024 };

static const void *take_bias(const ac_tensor *bias, ac_opmath opmath, double *few, size_t *owned) {
    *owned = 0;
    if (bias->dtype == ac_opmath_dtype(opmath) && (bias->strides[0] == 1 || bias->numel <= 1)) return ac_data(bias);
    void *wide = few;
    if (bias->numel > FEW) wide = ac_alloc(*owned = (size_t)(bias->numel * ac_opmath_bytes(opmath)));
    if (wide) ac_cpu_loops()->load[bias->dtype][opmath](bias->numel, ac_data(bias), bias->strides[0], wide);
    return wide;
}

/* [out, in] as [in, out] */
static ac_tensor turned(const ac_tensor *w) {
    ac_tensor t = *w;
    t.shape[0] = w->shape[1], t.shape[1] = w->shape[0];
    t.strides[0] = w->strides[1], t.strides[1] = w->strides[0];
    return t;
}

static void linear_of_integers(const ac_run *r, const ac_tensor *x) {
    const ac_tensor *bias = r->in[2];
    ac_tensor weight = turned(r->in[1]), *out = r->out[0];
    multiply_integers(x, &weight, out);
    int64_t n = weight.shape[1];
    for (int64_t i = 0; bias && i < out->numel; i++) {
        int64_t own = ac_read_int(ac_data(bias), bias->dtype, i % n * bias->strides[0]);
        uint64_t sum = (uint64_t)ac_read_int(ac_data(out), out->dtype, i) + (uint64_t)own;
        ac_write_int(ac_data(out), out->dtype, i, (int64_t)sum);
    }
}

static int linear(const ac_run *r, const ac_tensor *x, const void *bias) {
    const ac_tensor *w = r->in[1];
    if (!is_double(r)) {
        ac_gemm_call g = product(r, operand(x, 2, 1, r->compute), operand(w, 2, 1, r->compute));
        g.bias = bias;
        return ac_gemm_run(&g);
    }
    ac_tensor weight = turned(w);
    wide_product p = {.batch = 1, .m = x->shape[0], .k = x->shape[1], .n = w->shape[0], .bias = bias};
    return multiply_wide(&p, x, &weight, r);
}

int ac_cpu_linear(const ac_run *r) {
    const ac_tensor *b = r->in[2];
    const ac_tensor *x = r->in[0];
    ac_tensor flat;
    ac_storage memory;
    size_t owned = 0, bias_bytes = 0;
    double few[FEW];
    bool real = is_real(r);
    if (x->ndim != 2) {
        AC_TRY(flatten_rows(x, &flat, &owned, &memory));
        x = &flat;
    }
    if (!real) linear_of_integers(r, x);
    const void *bias = real && b ? take_bias(b, is_double(r) ? AC_OPMATH_F64 : AC_OPMATH_F32, few, &bias_bytes) : NULL;
    int failed = !real ? 0 : b && !bias ? -1 : linear(r, x, bias);
    if (bias_bytes) ac_free((void *)(uintptr_t)bias, bias_bytes);
    if (owned) ac_free(memory.data, owned);
    return failed;
}

/* -- weights packed once --------------------------------------------------------------------------------- */

static ac_operand weight_operand(const ac_tensor *w, ac_dtype round, bool out_first) {
    return out_first ? operand(w, 2, 1, round) : operand(w, 1, 2, round);
}

int64_t ac_cpu_panels_bytes(const ac_tensor *w, ac_dtype round, bool out_first) {
    ac_operand b = weight_operand(w, round, out_first);
    return ac_gemm_panels_bytes(&b);
}

bool ac_cpu_pack(const ac_tensor *w, ac_dtype round, bool out_first, ac_tensor *panels) {
    ac_operand b = weight_operand(w, round, out_first);
    return ac_gemm_pack(&b, ac_data(panels));
}

bool ac_cpu_pack_part(const ac_tensor *w, ac_dtype round, bool out_first, const ac_part *part, void *panels) {
    ac_operand b = weight_operand(w, round, out_first);
    if (out_first) return ac_gemm_pack_part(&b, part->row, part->rows, part->col, part->cols, panels);
    return ac_gemm_pack_part(&b, part->col, part->cols, part->row, part->rows, panels);
}
