/* Matrix products: operands brought to float32 or float64 with a unit stride, split over the
 * pool, multiplied by BLAS, rounded once. Sixteen-bit operands widen exactly. */
#include "cpu.h"

#include "../base/alloc.h"

#include <string.h>

/* A matrix as a product needs it. */
typedef struct {
    const char *data;
    int64_t batch, row, col; /* strides in elements */
    size_t owned;            /* bytes to free, when a copy had to be made */
} matrix;

typedef struct {
    ac_lane lane;
    int64_t batch, m, n, k;
    matrix a, b;
    char *c;          /* row-major, lane type */
    const char *bias; /* n values of lane type, or NULL */
    int64_t parts;    /* pieces one product is cut into, */
    bool by_rows;     /* along m or n */
} product;

static int64_t round_up(int64_t x, int64_t to) { return (x + to - 1) / to * to; }

static void product_part(const product *p, int64_t batch, int64_t part) {
    int64_t size = ac_lane_bytes(p->lane), whole = p->by_rows ? p->m : p->n;
    int64_t step = round_up((whole + p->parts - 1) / p->parts, 16), at = part * step;
    int64_t count = whole - at < step ? whole - at : step;
    if (count <= 0) return;
    int64_t m = p->by_rows ? count : p->m, n = p->by_rows ? p->n : count;
    int64_t row0 = p->by_rows ? at : 0, col0 = p->by_rows ? 0 : at;
    char *c = p->c + (batch * p->m * p->n + row0 * p->n + col0) * size;
    if (p->bias)
        for (int64_t i = 0; i < m; i++) memcpy(c + i * p->n * size, p->bias + col0 * size, (size_t)(n * size));
    ac_gemm g = {.is_double = p->lane == AC_LANE_F64,
                 .m = m,
                 .n = n,
                 .k = p->k,
                 .a = p->a.data + (batch * p->a.batch + row0 * p->a.row) * size,
                 .a_row = p->a.row,
                 .a_col = p->a.col,
                 .b = p->b.data + (batch * p->b.batch + col0 * p->b.col) * size,
                 .b_row = p->b.row,
                 .b_col = p->b.col,
                 .c = c,
                 .c_row = p->n,
                 .add = p->bias != NULL};
    ac_blas_gemm(&g);
}

static void product_parts(void *context, int64_t begin, int64_t end) {
    const product *p = context;
    for (int64_t i = begin; i < end; i++) product_part(p, i / p->parts, i % p->parts);
}

/* Each piece packs the other operand again, so pieces are few and thick: two from some ten
 * microseconds of work on, of about 256 rows (or columns) beyond that. Rows, where there are enough. */
static void cut(product *p) {
    int64_t work = p->m * p->n * p->k;
    p->by_rows = p->m >= 64 || p->m >= p->n;
    int64_t length = p->by_rows ? p->m : p->n;
    p->parts = work < (1 << 19) || length < 32 ? 1 : length / 256 > 2 ? length / 256 : 2;
}

static void run_product(product *p) {
    cut(p);
    int64_t each = p->m * p->n * p->k / p->parts, grain = each > 0 ? ((int64_t)1 << 18) / each : 1024;
    ac_for_range(p->batch * p->parts, grain, product_parts, p);
}

/* -- operands ------------------------------------------------------------------------------------ */

/* t [rows, cols] (or [batch, rows, cols]) in lane type with one unit stride; copies if it must. */
static int take_matrix(matrix *out, const ac_tensor *t, ac_lane lane) {
    int last = t->ndim - 1;
    int64_t rows = t->shape[last - 1], cols = t->shape[last];
    out->batch = last > 1 ? t->strides[0] : 0;
    out->row = rows > 1 ? t->strides[last - 1] : cols, out->col = cols > 1 ? t->strides[last] : 1;
    out->owned = 0;
    out->data = ac_data(t);
    bool unit =
        (out->row == 1 && (out->col >= rows || cols == 1)) || (out->col == 1 && (out->row >= cols || rows == 1));
    if (unit && t->dtype == ac_lane_dtype(lane)) return 0;
    /* keep the order in memory: widening a transposed matrix must not turn it round */
    bool flipped = unit && out->col != 1;
    out->owned = (size_t)(t->numel * ac_lane_bytes(lane)) + 1;
    char *copy = ac_alloc(out->owned);
    if (!copy) return -1;
    ac_storage place = {.data = copy};
    ac_tensor dense = *t;
    dense.storage = &place, dense.offset = 0, dense.dtype = ac_lane_dtype(lane);
    dense.strides[last - 1] = flipped ? 1 : cols, dense.strides[last] = flipped ? rows : 1;
    if (last > 1) dense.strides[0] = rows * cols;
    ac_cpu_copy_into(&dense, t);
    out->data = copy, out->row = dense.strides[last - 1], out->col = dense.strides[last], out->batch = rows * cols;
    return 0;
}

static void drop_matrix(matrix *m) {
    if (m->owned) ac_free((void *)(uintptr_t)m->data, m->owned);
}

static void store_result(const product *p, ac_tensor *out) {
    ac_storage place = {.data = p->c};
    ac_tensor dense = *out;
    dense.storage = &place, dense.offset = 0, dense.dtype = ac_lane_dtype(p->lane);
    ac_dims shape = ac_shape_of(out), strides = ac_dims_contiguous(&shape);
    memcpy(dense.strides, strides.v, sizeof dense.strides);
    ac_cpu_copy_into(out, &dense);
}

static int multiply(product *p, const ac_tensor *a, const ac_tensor *b, ac_tensor *out) {
    if (take_matrix(&p->a, a, p->lane) < 0) return -1;
    if (take_matrix(&p->b, b, p->lane) < 0) {
        drop_matrix(&p->a);
        return -1;
    }
    bool direct = out->dtype == ac_lane_dtype(p->lane) && ac_is_contiguous(out);
    size_t bytes = (size_t)(out->numel * ac_lane_bytes(p->lane)) + 1;
    p->c = direct ? ac_data(out) : ac_alloc(bytes);
    if (p->c) run_product(p);
    if (p->c && !direct) {
        store_result(p, out);
        ac_free(p->c, bytes);
    }
    drop_matrix(&p->a);
    drop_matrix(&p->b);
    return p->c ? 0 : -1;
}

/* Integers have no BLAS; their products are rare. */
static void multiply_integers(const ac_tensor *a, const ac_tensor *b, ac_tensor *out) {
    int last = a->ndim - 1;
    int64_t batch = last > 1 ? a->shape[0] : 1, m = a->shape[last - 1], k = a->shape[last], n = b->shape[last], at = 0;
    for (int64_t q = 0; q < batch; q++)
        for (int64_t i = 0; i < m; i++)
            for (int64_t j = 0; j < n; j++, at++) {
                uint64_t sum = 0;
                int64_t left = (last > 1 ? q * a->strides[0] : 0) + i * a->strides[last - 1];
                int64_t right = (last > 1 ? q * b->strides[0] : 0) + j * b->strides[last];
                for (int64_t p = 0; p < k; p++)
                    sum += (uint64_t)ac_read_int(ac_data(a), a->dtype, left + p * a->strides[last]) *
                           (uint64_t)ac_read_int(ac_data(b), b->dtype, right + p * b->strides[last - 1]);
                ac_write_int(ac_data(out), out->dtype, at, (int64_t)sum);
            }
}

static ac_lane product_lane(const ac_run *r) {
    return r->in[0]->dtype == AC_float64 || r->out[0]->dtype == AC_float64 ? AC_LANE_F64 : AC_LANE_F32;
}

int ac_cpu_mm(const ac_run *r) {
    const ac_tensor *a = r->in[0], *b = r->in[1];
    if (!ac_is_floating(a->dtype)) {
        multiply_integers(a, b, r->out[0]);
        return 0;
    }
    product p = {.lane = product_lane(r), .batch = 1, .m = a->shape[0], .k = a->shape[1], .n = b->shape[1]};
    return multiply(&p, a, b, r->out[0]);
}

int ac_cpu_bmm(const ac_run *r) {
    const ac_tensor *a = r->in[0], *b = r->in[1];
    if (!ac_is_floating(a->dtype)) {
        multiply_integers(a, b, r->out[0]);
        return 0;
    }
    product p = {.lane = product_lane(r), .batch = a->shape[0], .m = a->shape[1], .k = a->shape[2], .n = b->shape[2]};
    return multiply(&p, a, b, r->out[0]);
}

/* -- linear ------------------------------------------------------------------------------------------ */

/* x as [rows, in], which takes a copy when its leading dimensions do not merge. */
static int flatten_rows(const ac_tensor *x, ac_tensor *flat, size_t *owned, ac_storage *place) {
    int last = x->ndim - 1;
    ac_space rows = ac_space_of(x, ~(1u << last));
    *flat = *x;
    *owned = 0;
    flat->ndim = 2;
    flat->shape[0] = rows.numel, flat->shape[1] = x->shape[last];
    flat->strides[0] = rows.stride[0], flat->strides[1] = x->strides[last];
    if (rows.n == 1) return 0;
    *owned = (size_t)(x->numel * ac_itemsize(x->dtype)) + 1;
    *place = (ac_storage){.data = ac_alloc(*owned)};
    if (!place->data) return -1;
    ac_tensor dense = *x;
    ac_dims shape = ac_shape_of(x), strides = ac_dims_contiguous(&shape);
    dense.storage = place, dense.offset = 0;
    memcpy(dense.strides, strides.v, sizeof dense.strides);
    ac_cpu_copy_into(&dense, x);
    flat->storage = place, flat->offset = 0;
    flat->strides[0] = x->shape[last], flat->strides[1] = 1;
    return 0;
}

int ac_cpu_linear(const ac_run *r) {
    const ac_tensor *w = r->in[1], *bias = r->in[2];
    ac_tensor flat, weight = *w;
    ac_storage place;
    size_t owned;
    if (!ac_is_floating(w->dtype))
        return ac_fail(AC_RUNTIME, "linear: needs floating point, got %s", ac_dtypes[w->dtype].name);
    AC_TRY(flatten_rows(r->in[0], &flat, &owned, &place));
    weight.shape[0] = w->shape[1], weight.shape[1] = w->shape[0];
    weight.strides[0] = w->strides[1], weight.strides[1] = w->strides[0];
    product p = {.lane = product_lane(r), .batch = 1, .m = flat.shape[0], .k = flat.shape[1], .n = w->shape[0]};
    size_t bias_bytes = (size_t)(p.n * ac_lane_bytes(p.lane)) + 1;
    char *wide = bias ? ac_alloc(bias_bytes) : NULL;
    int failed = bias && !wide ? -1 : 0;
    if (wide) {
        ac_cpu_loops()->load[bias->dtype][p.lane](p.n, ac_data(bias), bias->strides[0], wide);
        p.bias = wide;
    }
    if (!failed) failed = multiply(&p, &flat, &weight, r->out[0]);
    ac_free(wide, bias_bytes);
    if (owned) ac_free(place.data, owned);
    return failed;
}
