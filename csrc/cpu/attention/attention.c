/* Attention computed by blocks of queries. The scores of a block against all keys stay in the second-level cache,
 * through the first product, mask, softmax and the product with the values. Backward computes the scores again. */
#include "cpu/kernels.h"

#include "base/alloc.h"
#include "cpu/gemm/gemm.h"

#include <math.h>
#include <stdatomic.h>
#include <string.h>

enum { QUERIES = 128 }; /* in a block */

/* Values of one matrix, `row` apart from a row to the next, `col` from a column. */
typedef struct {
    const char *data;
    ac_dtype dtype;
    int64_t rows, cols, row, col;
} matrix;

static matrix turned(matrix m) { return (matrix){m.data, m.dtype, m.cols, m.rows, m.col, m.row}; }
static matrix rows_from(matrix m, int64_t first, int64_t rows) {
    return (matrix){m.data + first * m.row * ac_itemsize(m.dtype), m.dtype, rows, m.cols, m.row, m.col};
}

typedef struct {
    const ac_run *r;
    const ac_tensor *g, *q, *k, *v, *mask;
    ac_space lead[5]; /* of g, q, k, v, mask over the leading dimensions */
    double scale;
    bool causal, alone;
    ac_opmath opmath;
    ac_dtype compute, sums; /* what products round to; what they are added up in */
    int64_t queries, keys, width, value_width;
    _Atomic int failed;
} attention;

static matrix matrix_of(const ac_tensor *t, const ac_space *lead, int64_t item) {
    int last = t->ndim - 1;
    int64_t rows = t->shape[last - 1], cols = t->shape[last];
    return (matrix){.data = (const char *)ac_data(t) + ac_space_offset(lead, item) * ac_itemsize(t->dtype),
                    .dtype = t->dtype,
                    .rows = rows,
                    .cols = cols,
                    .row = rows > 1 ? t->strides[last - 1] : cols,
                    .col = 1};
}

static ac_operand as_b(const attention *c, const matrix *m) {
    return (ac_operand){.data = m->data,
                        .dtype = m->dtype,
                        .lanes = m->cols,
                        .k = m->rows,
                        .lane_stride = m->col,
                        .k_stride = m->row,
                        .round = c->compute};
}

/* out [m, n] (+)= a [m, k] b [k, n], contiguous, in `dtype` */
static int multiply(attention *c, matrix a, matrix b, const void *panels, char *out, ac_dtype dtype, bool add) {
    if (a.rows == 0 || b.cols == 0) return 0;
    ac_gemm_call g = {.a = {.data = a.data,
                            .dtype = a.dtype,
                            .lanes = a.rows,
                            .k = a.cols,
                            .lane_stride = a.row,
                            .k_stride = a.col,
                            .round = c->compute},
                      .b = as_b(c, &b),
                      .panels = panels,
                      .c = out,
                      .c_dtype = dtype,
                      .c_row = b.cols,
                      .alpha = 1,
                      .beta = add ? 1 : 0,
                      .alone = c->alone,
                      .batch = 1};
    return ac_gemm_run_any(&g);
}

/* b packed for several products, or NULL */
static const void *packed(const attention *c, matrix b, char *room) {
    ac_operand o = as_b(c, &b);
    if (c->opmath == AC_OPMATH_F32 && c->queries > QUERIES && !c->causal && ac_gemm_pack(&o, room)) {
        AC_WAY(attention_packed);
        return room;
    }
    AC_WAY(attention_unpacked);
    return NULL;
}
/* Bytes up to the next cache line: panels begin at one. */
static int64_t round_up(int64_t bytes) { return (bytes + AC_ALIGNMENT - 1) / AC_ALIGNMENT * AC_ALIGNMENT; }
static int64_t packed_bytes(const attention *c, int64_t rows, int64_t cols) {
    ac_operand o = {.lanes = cols, .k = rows, .round = c->compute};
    return c->opmath == AC_OPMATH_F32 ? round_up(ac_gemm_panels_bytes(&o)) : 0;
}

/* -- scores ------------------------------------------------------------------------------------------------- */

#define PREPARE(R, name)                                                                                               \
    /* scaled and masked */                                                                                            \
    static void prepare_##name(const attention *c, R *row, int64_t n, int64_t query, const R *mask) {                  \
        R scale = (R)c->scale;                                                                                         \
        for (int64_t j = 0; j < n; j++) row[j] *= scale;                                                               \
        for (int64_t j = query + 1; c->causal && j < n; j++) row[j] = -INFINITY;                                       \
        if (mask && c->mask->dtype == AC_bool)                                                                         \
            for (int64_t j = 0; j < n; j++) row[j] = mask[j] != 0 ? row[j] : -INFINITY;                                \
        else if (mask)                                                                                                 \
            for (int64_t j = 0; j < n; j++) row[j] += mask[j];                                                         \
    }
PREPARE(float, f32)
PREPARE(double, f64)
#undef PREPARE

/* Keys that a query's softmax has to read, in steps of 16; the weights of those that follow are 0. */
static int64_t keys_to_read(const attention *c, int64_t query, int64_t keys) {
    return c->causal ? ac_least(keys, (query / 16 + 1) * 16) : keys;
}

/* The rest of a row whose first values were computed: zeros, but nan where these are. */
static void fill_rest(const attention *c, char *row, int64_t from, int64_t keys) {
    if (c->opmath == AC_OPMATH_F64) {
        double *x = (double *)(void *)row, rest = x[0] == x[0] ? 0 : x[0];
        for (int64_t j = from; j < keys; j++) x[j] = rest;
    } else {
        float *x = (float *)(void *)row, rest = x[0] == x[0] ? 0 : x[0];
        for (int64_t j = from; j < keys; j++) x[j] = rest;
    }
}

/* Scores [rows, keys] to weights, in place; a query that may look at nothing gets zeros. */
static void weigh(const attention *c, char *scores, int64_t item, int64_t first, int64_t rows, int64_t keys,
                  char *room) {
    const ac_loops *loops = ac_cpu_loops();
    int64_t bytes = keys * ac_opmath_bytes(c->opmath);
    for (int64_t i = 0; i < rows; i++, scores += bytes) {
        const void *mask = NULL;
        int64_t some_keys = keys_to_read(c, first + i, keys);
        if (c->mask) {
            int last = c->mask->ndim - 1;
            int64_t at = ac_space_offset(&c->lead[4], item) + (first + i) * c->mask->strides[last - 1];
            mask = ac_read_run(loops, c->opmath, c->mask->dtype, some_keys,
                               (const char *)ac_data(c->mask) + at * ac_itemsize(c->mask->dtype),
                               c->mask->strides[last], room);
        }
        if (c->opmath == AC_OPMATH_F64) prepare_f64(c, (double *)(void *)scores, some_keys, first + i, mask);
        else prepare_f32(c, (float *)(void *)scores, some_keys, first + i, mask);
        loops->safe_softmax[c->opmath](some_keys, scores, scores);
        fill_rest(c, scores, some_keys, keys);
    }
}

static int64_t keys_of(const attention *c, int64_t first, int64_t rows) { /* that a block of queries looks at */
    return c->causal && first + rows < c->keys ? first + rows : c->keys;
}

static matrix whole(const attention *c, const char *data, int64_t rows, int64_t cols) {
    return (matrix){data, c->sums, rows, cols, cols, 1};
}

/* -- forward -------------------------------------------------------------------------------------------------- */

static int64_t score_bytes(const attention *c) { return round_up(QUERIES * c->keys * ac_opmath_bytes(c->opmath)); }
static int64_t row_bytes(const attention *c) { return round_up(c->keys * ac_opmath_bytes(c->opmath)); }

static int attend(attention *c, int64_t item, char *scratch) {
    matrix q = matrix_of(c->q, &c->lead[1], item), k = matrix_of(c->k, &c->lead[2], item),
           v = matrix_of(c->v, &c->lead[3], item);
    char *mask_room = scratch + score_bytes(c), *k_room = mask_room + row_bytes(c);
    ac_tensor *out = c->r->out[0];
    const void *k_panels = packed(c, turned(k), k_room),
               *v_panels = packed(c, v, k_room + packed_bytes(c, c->width, c->keys));
    int64_t to_item = ac_itemsize(out->dtype) * c->value_width;
    for (int64_t first = 0; first < c->queries; first += QUERIES) {
        int64_t rows = c->queries - first < QUERIES ? c->queries - first : QUERIES, keys = keys_of(c, first, rows);
        char *to = (char *)ac_data(out) + (item * c->queries + first) * to_item;
        AC_TRY(
            multiply(c, rows_from(q, first, rows), turned(rows_from(k, 0, keys)), k_panels, scratch, c->sums, false));
        weigh(c, scratch, item, first, rows, keys, mask_room);
        AC_TRY(multiply(c, whole(c, scratch, rows, keys), rows_from(v, 0, keys), v_panels, to, out->dtype, false));
    }
    return 0;
}

static void attend_items(void *context, int64_t begin, int64_t end, char *scratch) {
    attention *c = context;
    for (int64_t i = begin; i < end && !ac_poll(); i++)
        if (attend(c, i, scratch) < 0) atomic_store(&c->failed, 1);
}

static int open_attention(attention *c, const ac_run *r, int at) {
    ATTRS(fused_attention);
    ac_tensor *const *in = r->in + at;
    *c = (attention){.r = r,
                     .g = at ? r->in[0] : NULL,
                     .q = in[0],
                     .k = in[1],
                     .v = in[2],
                     .mask = in[3],
                     .scale = a->scale,
                     .causal = a->is_causal != 0};
    const ac_tensor *all[5] = {c->g, c->q, c->k, c->v, c->mask};
    int last = c->q->ndim - 1;
    for (int i = 0; i < 5; i++)
        if (all[i]) c->lead[i] = ac_space_of(all[i], (1u << (last - 1)) - 1);
    bool wide = c->q->dtype == AC_float64 || r->out[0]->dtype == AC_float64;
    c->opmath = wide ? AC_OPMATH_F64 : AC_OPMATH_F32, c->sums = ac_opmath_dtype(c->opmath), c->compute = r->compute;
    c->queries = c->q->shape[last - 1], c->keys = c->k->shape[last - 1];
    c->width = c->q->shape[last], c->value_width = c->v->shape[last];
    c->alone = c->lead[1].numel > 1;
    if (c->alone) AC_WAY(attention_items);
    else AC_WAY(attention_one_item);
    for (int i = at ? 0 : 1; wide && i < 4; i++)
        if (all[i]->dtype != AC_float64 || r->out[0]->dtype != AC_float64)
            return ac_fail(AC_RUNTIME, "attention: float64 does not mix with other dtypes");
    return 0;
}

static int finish_attention(const attention *c) {
    if (!atomic_load(&c->failed)) return 0;
    return ac_fail(AC_MEMORY, "scaled_dot_product_attention: not enough memory to pack the operands");
}

int ac_cpu_fused_attention(const ac_run *r) {
    attention c;
    AC_TRY(open_attention(&c, r, 0));
    int64_t bytes =
        score_bytes(&c) + row_bytes(&c) + packed_bytes(&c, c.width, c.keys) + packed_bytes(&c, c.keys, c.value_width);
    AC_TRY(ac_for_range_with(c.lead[1].numel, 1, (size_t)bytes, attend_items, &c));
    return finish_attention(&c);
}

/* -- backward ------------------------------------------------------------------------------------------------- */

/* Memory of one thread: weights and their gradients of a block, a row, the sums of two gradients, packed operands. */
typedef struct {
    char *weights, *slopes, *row, *dk, *dv, *k_turned, *k_panels, *v_turned;
} room;

static int64_t sum_bytes(const attention *c, int64_t width) {
    return round_up(c->keys * width * ac_opmath_bytes(c->opmath));
}

static room rooms(const attention *c, char *at, int64_t *bytes) {
    room m;
    char *start = at;
    m.weights = at, at += score_bytes(c);
    m.slopes = at, at += score_bytes(c);
    m.row = at, at += row_bytes(c);
    m.dk = at, at += sum_bytes(c, c->width);
    m.dv = at, at += sum_bytes(c, c->value_width);
    m.k_turned = at, at += packed_bytes(c, c->width, c->keys);
    m.k_panels = at, at += packed_bytes(c, c->keys, c->width);
    m.v_turned = at, at += packed_bytes(c, c->value_width, c->keys);
    *bytes = at - start;
    return m;
}

/* slopes = scale * weights * (slopes - their mean by weights), in place */
static void softmax_back(const attention *c, char *slopes, const char *weights, int64_t first, int64_t rows,
                         int64_t keys) {
    const ac_loops *loops = ac_cpu_loops();
    for (int64_t i = 0, bytes = keys * ac_opmath_bytes(c->opmath); i < rows; i++) {
        char *row = slopes + i * bytes;
        int64_t some_keys = keys_to_read(c, first + i, keys);
        loops->softmax_backward[c->opmath](some_keys, row, weights + i * bytes, row);
        if (c->opmath == AC_OPMATH_F64)
            for (int64_t j = 0; j < some_keys; j++) ((double *)(void *)row)[j] *= c->scale;
        else
            for (int64_t j = 0; j < some_keys; j++) ((float *)(void *)row)[j] *= (float)c->scale;
        fill_rest(c, row, some_keys, keys);
    }
}

static int go_back(attention *c, int64_t item, char *scratch) {
    int64_t bytes;
    room m = rooms(c, scratch, &bytes);
    matrix g = matrix_of(c->g, &c->lead[0], item), q = matrix_of(c->q, &c->lead[1], item),
           k = matrix_of(c->k, &c->lead[2], item), v = matrix_of(c->v, &c->lead[3], item);
    const void *k_turned = packed(c, turned(k), m.k_turned), *k_panels = packed(c, k, m.k_panels),
               *v_turned = packed(c, turned(v), m.v_turned);
    ac_tensor *dq = c->r->out[0], *dk = c->r->out[1], *dv = c->r->out[2];
    memset(m.dk, 0, (size_t)(sum_bytes(c, c->width) + sum_bytes(c, c->value_width)));
    for (int64_t first = 0; first < c->queries; first += QUERIES) {
        int64_t rows = c->queries - first < QUERIES ? c->queries - first : QUERIES, keys = keys_of(c, first, rows);
        matrix qs = rows_from(q, first, rows), gs = rows_from(g, first, rows), ks = rows_from(k, 0, keys);
        matrix weights = whole(c, m.weights, rows, keys), slopes = whole(c, m.slopes, rows, keys);
        char *to = (char *)ac_data(dq) + (item * c->queries + first) * c->width * ac_itemsize(dq->dtype);
        AC_TRY(multiply(c, qs, turned(ks), k_turned, m.weights, c->sums, false));
        weigh(c, m.weights, item, first, rows, keys, m.row);
        AC_TRY(multiply(c, gs, turned(rows_from(v, 0, keys)), v_turned, m.slopes, c->sums, false));
        softmax_back(c, m.slopes, m.weights, first, rows, keys);
        AC_TRY(multiply(c, turned(weights), gs, NULL, m.dv, c->sums, true));
        AC_TRY(multiply(c, turned(slopes), qs, NULL, m.dk, c->sums, true));
        AC_TRY(multiply(c, slopes, ks, k_panels, to, dq->dtype, false));
    }
    const ac_loops *loops = ac_cpu_loops();
    int64_t n = c->keys * c->width, nv = c->keys * c->value_width;
    loops->store[c->opmath][dk->dtype](n, m.dk, (char *)ac_data(dk) + item * n * ac_itemsize(dk->dtype), 1);
    loops->store[c->opmath][dv->dtype](nv, m.dv, (char *)ac_data(dv) + item * nv * ac_itemsize(dv->dtype), 1);
    return 0;
}

static void go_back_items(void *context, int64_t begin, int64_t end, char *scratch) {
    attention *c = context;
    for (int64_t i = begin; i < end && !ac_poll(); i++)
        if (go_back(c, i, scratch) < 0) atomic_store(&c->failed, 1);
}

int ac_cpu_fused_attention_backward(const ac_run *r) {
    attention c;
    int64_t bytes;
    AC_TRY(open_attention(&c, r, 1));
    (void)rooms(&c, NULL, &bytes);
    AC_TRY(ac_for_range_with(c.lead[1].numel, 1, (size_t)bytes, go_back_items, &c));
    return finish_attention(&c);
}

/* -- rows of the GPU; nobody calls them here but by hand -- */

static int of_the_gpu(void) {
    return ac_fail(AC_RUNTIME, "this row is the GPU's; scaled_dot_product_attention takes another one on the CPU");
}
int ac_cpu_flash_attention(const ac_run *r) {
    (void)r;
    return of_the_gpu();
}
int ac_cpu_flash_attention_backward(const ac_run *r) {
    (void)r;
    return of_the_gpu();
}
