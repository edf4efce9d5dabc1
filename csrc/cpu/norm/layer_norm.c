/* Layer norm and its gradient. Statistics are float32 (float64 for float64), from two passes over each row: the mean,
 * then the squares around it. */
#include "cpu/kernels.h"

#include "base/alloc.h"
#include "base/ways.h"

#include <math.h>
#include <string.h>

/* Rows of `n` neighbouring values share statistics. */
typedef struct {
    const ac_loops *loops;
    const ac_run *r;
    ac_opmath opmath;
    int64_t rows, n;
    const char *x, *g, *weight, *bias; /* contiguous; opmath type, */
    ac_dtype x_dtype, g_dtype;         /* but these two */
    char *dweight, *dbias;             /* sums of each block of rows, in opmath type */
    double eps;
} norm_call;

static double total_of(const norm_call *c, ac_fold fold, const void *x, int64_t n, double p) {
    ac_total t = {0, 0};
    for (int64_t at = 0; at < n; at += AC_TILE) {
        int64_t run = n - at < AC_TILE ? n - at : AC_TILE;
        c->loops->fold[fold][c->opmath](run, (const char *)x + at * ac_opmath_bytes(c->opmath), p, &t);
    }
    return t.f;
}

/* t as contiguous values of the opmath type: its own data, or a copy to be freed. */
static const char *dense(const ac_tensor *t, ac_opmath opmath, size_t *owned) {
    *owned = 0;
    if (t->dtype == ac_opmath_dtype(opmath) && ac_is_contiguous(t)) return ac_data(t);
    *owned = (size_t)(t->numel * ac_opmath_bytes(opmath)) + 1;
    char *copy = ac_alloc(*owned);
    if (!copy) return NULL;
    ac_storage memory = {.data = copy};
    ac_tensor flat = *t;
    ac_dims shape = ac_shape_of(t), strides = ac_dims_contiguous(&shape);
    flat.storage = &memory, flat.offset = 0, flat.dtype = ac_opmath_dtype(opmath);
    memcpy(flat.strides, strides.v, sizeof flat.strides);
    ac_cpu_copy_into(&flat, t);
    return copy;
}

enum { MAX_DENSE = 8 };
typedef struct {
    const char *data[MAX_DENSE];
    size_t owned[MAX_DENSE];
    int n;
} dense_set;

/* Adds t (NULL gives NULL) to the set; false when memory is out. */
static bool take(dense_set *s, const ac_tensor *t, ac_opmath opmath, const char **out) {
    *out = NULL;
    if (!t) return true;
    *out = s->data[s->n] = dense(t, opmath, &s->owned[s->n]);
    if (!*out) s->owned[s->n] = 0;
    s->n++;
    return *out != NULL;
}

/* The same, with contiguous memory of any dtype as it is. */
static bool take_rows(dense_set *s, const ac_tensor *t, ac_opmath opmath, const char **out, ac_dtype *dtype) {
    if (ac_is_contiguous(t)) {
        AC_WAY(layer_norm_in_place);
        *dtype = t->dtype, *out = ac_data(t);
        return true;
    }
    AC_WAY(layer_norm_copied);
    *dtype = ac_opmath_dtype(opmath);
    return take(s, t, opmath, out);
}

static void drop(dense_set *s) {
    for (int i = 0; i < s->n; i++)
        if (s->owned[i]) ac_free((void *)(uintptr_t)s->data[i], s->owned[i]);
}

static double stat(const ac_tensor *t, int64_t i) { return ac_read_double(ac_data(t), t->dtype, i); }

/* -- layer norm ------------------------------------------------------------------------------------ */

/* Row i of memory in any dtype, in opmath type. */
static const void *row_of(const norm_call *c, const char *base, ac_dtype dtype, int64_t i, void *buffer) {
    return ac_read_run(c->loops, c->opmath, dtype, c->n, base + i * c->n * ac_itemsize(dtype), 1, buffer);
}

/* Where row i of a result is made, and how it gets there when that is a buffer. */
static void *result_row(const norm_call *c, const ac_tensor *y, int64_t i, void *buffer) {
    bool direct = y->dtype == ac_opmath_dtype(c->opmath);
    return direct ? (char *)ac_data(y) + i * c->n * ac_itemsize(y->dtype) : buffer;
}
static void keep_row(const norm_call *c, const ac_tensor *y, int64_t i, const void *row) {
    if (y->dtype == ac_opmath_dtype(c->opmath)) return;
    c->loops->store[c->opmath][y->dtype](c->n, row, (char *)ac_data(y) + i * c->n * ac_itemsize(y->dtype), 1);
}

static size_t row_bytes(const norm_call *c) { return (size_t)(c->n * ac_opmath_bytes(c->opmath)) + AC_ALIGNMENT; }

static void layer_rows(void *context, int64_t begin, int64_t end, char *buffers) {
    const norm_call *c = context;
    ac_tensor *const *out = c->r->out;
    size_t bytes = row_bytes(c);
    for (int64_t i = begin; i < end; i++) {
        const void *x = row_of(c, c->x, c->x_dtype, i, buffers);
        double mean = total_of(c, AC_FOLD_SUM, x, c->n, 0) / (double)c->n;
        double var = total_of(c, AC_FOLD_SUM_SQUARES, x, c->n, mean) / (double)c->n, rstd = 1 / sqrt(var + c->eps);
        ac_write_double(ac_data(out[1]), out[1]->dtype, i, mean);
        ac_write_double(ac_data(out[2]), out[2]->dtype, i, rstd);
        void *y = result_row(c, out[0], i, buffers + bytes);
        c->loops->normalize[c->opmath](c->n, x, mean, rstd, c->weight, c->bias, y);
        keep_row(c, out[0], i, y);
    }
}

int ac_cpu_layer_norm(const ac_run *r) {
    ATTRS(layer_norm);
    ac_tensor *y = r->out[0];
    dense_set set = {.n = 0};
    norm_call c = {.loops = ac_cpu_loops(), .r = r, .opmath = ac_opmath_of(y->dtype), .n = 1, .eps = a->eps};
    for (int64_t d = 0; d < a->normalized_shape.n; d++) c.n *= a->normalized_shape.v[d];
    c.rows = c.n ? y->numel / c.n : 0;
    bool ok = take_rows(&set, r->in[0], c.opmath, &c.x, &c.x_dtype);
    ok = ok && take(&set, r->in[1], c.opmath, &c.weight) && take(&set, r->in[2], c.opmath, &c.bias);
    int failed = ok ? ac_for_range_with(c.rows, AC_GRAIN_SLOW / (c.n + 1), 2 * row_bytes(&c), layer_rows, &c) : -1;
    drop(&set);
    return failed;
}

enum { BLOCK_ROWS = 64 }; /* rows whose weight gradients one chunk sums */

static void layer_backward_block(void *context, int64_t begin, int64_t end, char *buffers) {
    const norm_call *c = context;
    const ac_tensor *mean = c->r->in[2], *rstd = c->r->in[3], *out = c->r->out[0];
    size_t bytes = row_bytes(c), sums = (size_t)(c->n * ac_opmath_bytes(c->opmath));
    for (int64_t block = begin; block < end; block++) {
        char *dw = c->dweight + (size_t)block * sums, *db = c->dbias + (size_t)block * sums;
        int64_t last = (block + 1) * BLOCK_ROWS < c->rows ? (block + 1) * BLOCK_ROWS : c->rows;
        memset(dw, 0, sums);
        memset(db, 0, sums);
        for (int64_t i = block * BLOCK_ROWS; i < last; i++) {
            const void *g = row_of(c, c->g, c->g_dtype, i, buffers);
            const void *x = row_of(c, c->x, c->x_dtype, i, buffers + bytes);
            void *dx = result_row(c, out, i, buffers + 2 * bytes);
            c->loops->normalize_backward[c->opmath](c->n, g, x, stat(mean, i), stat(rstd, i), c->weight, dw, db, dx);
            keep_row(c, out, i, dx);
        }
    }
}

/* The blocks' sums, joined in order. */
static void join_blocks(const norm_call *c, const char *sums, int64_t blocks, ac_tensor *out) {
    ac_dtype t = ac_opmath_dtype(c->opmath);
    for (int64_t j = 0; j < c->n; j++) {
        double total = 0;
        for (int64_t k = 0; k < blocks; k++) total += ac_read_double(sums, t, k * c->n + j);
        ac_write_double(ac_data(out), out->dtype, j, total);
    }
}

int ac_cpu_layer_norm_backward(const ac_run *r) {
    ATTRS(rows_only);
    const ac_tensor *x = r->in[1];
    ac_tensor *dw = r->out[1], *db = r->out[2];
    dense_set set = {.n = 0};
    norm_call c = {.loops = ac_cpu_loops(), .r = r, .opmath = ac_opmath_of(x->dtype), .rows = a->rows, .n = dw->numel};
    int64_t blocks = (c.rows + BLOCK_ROWS - 1) / BLOCK_ROWS, each = blocks * c.n * ac_opmath_bytes(c.opmath);
    size_t bytes = (size_t)(2 * each) + 1;
    if (blocks > 1) AC_WAY(layer_norm_blocks);
    bool ok = take_rows(&set, r->in[0], c.opmath, &c.g, &c.g_dtype) && take_rows(&set, x, c.opmath, &c.x, &c.x_dtype) &&
              take(&set, r->in[4], c.opmath, &c.weight);
    int failed = -1;
    c.dweight = ok ? ac_alloc(bytes) : NULL;
    if (c.dweight) {
        int64_t grain = AC_GRAIN_SLOW / (BLOCK_ROWS * c.n + 1);
        c.dbias = c.dweight + each;
        failed = ac_for_range_with(blocks, grain, 3 * row_bytes(&c), layer_backward_block, &c);
        join_blocks(&c, c.dweight, blocks, dw);
        join_blocks(&c, c.dbias, blocks, db);
        ac_free(c.dweight, bytes);
    }
    drop(&set);
    return failed;
}
