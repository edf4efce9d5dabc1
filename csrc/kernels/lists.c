/* One pass over a list of tensors: the scaler's and clipping's kernels. Pieces of every tensor go
 * to the pool together, so many small tensors cost no more than one large. */
#include "cpu.h"

#include "../base/alloc.h"

#include <math.h>

typedef struct {
    ac_tensor *const *tensors;
    int n;
    int64_t *first; /* the first piece of each tensor, and their number at [n] */
    double factor;
    int64_t *bad;    /* one a piece */
    double *squares; /* one a piece */
} list_call;

enum { PIECE = 32768 };

static int list_init(list_call *c, ac_tensor *const *tensors, int n) {
    c->tensors = tensors, c->n = n;
    c->first = ac_alloc((size_t)(n + 1) * sizeof *c->first);
    if (!c->first) return -1;
    int64_t pieces = 0;
    for (int i = 0; i < n; i++) {
        c->first[i] = pieces;
        pieces += (tensors[i]->numel + PIECE - 1) / PIECE;
    }
    c->first[n] = pieces;
    return 0;
}

static void list_free(list_call *c) { ac_free(c->first, (size_t)(c->n + 1) * sizeof *c->first); }

static int owner_of(const list_call *c, int64_t piece) {
    int lo = 0, hi = c->n;
    while (hi - lo > 1) {
        int mid = (lo + hi) / 2;
        if (c->first[mid] <= piece) lo = mid;
        else hi = mid;
    }
    return lo;
}

/* Values of the lane beside the memory: unscale a tile, count what is not finite. */
static int64_t unscale_tile(const ac_loops *loops, char *data, ac_dtype dtype, int64_t n, int64_t stride,
                            double factor) {
    float tile[AC_TILE];
    double wide[AC_TILE];
    if (dtype == AC_float32 && stride == 1) return loops->unscale(n, (float *)(void *)data, (float)factor);
    if (dtype != AC_float64) {
        loops->load[dtype][AC_LANE_F32](n, data, stride, tile);
        (void)loops->unscale(n, tile, (float)factor);
        loops->store[AC_LANE_F32][dtype](n, tile, data, stride);
        int64_t bad = 0;
        loops->load[dtype][AC_LANE_F32](n, data, stride, tile); /* what was stored is what counts */
        for (int64_t i = 0; i < n; i++) bad += tile[i] - tile[i] != 0;
        return bad;
    }
    int64_t bad = 0;
    loops->load[dtype][AC_LANE_F64](n, data, stride, wide);
    for (int64_t i = 0; i < n; i++) {
        wide[i] *= factor;
        bad += wide[i] - wide[i] != 0;
    }
    loops->store[AC_LANE_F64][dtype](n, wide, data, stride);
    return bad;
}

/* Calls tile-wise over elements [at, at + n) of t, whatever its strides. */
typedef void (*tile_fn)(list_call *c, int64_t piece, const ac_loops *loops, char *data, ac_dtype t, int64_t n,
                        int64_t stride);

static void each_tile(list_call *c, int64_t piece, tile_fn fn) {
    int owner = owner_of(c, piece);
    const ac_tensor *t = c->tensors[owner];
    const ac_loops *loops = ac_cpu_loops();
    int64_t at = (piece - c->first[owner]) * PIECE, end = at + PIECE < t->numel ? at + PIECE : t->numel;
    ac_space all = ac_space_of(t, UINT32_MAX);
    int64_t line = all.size[all.n - 1], stride = all.stride[all.n - 1];
    while (at < end) {
        int64_t run = line - at % line;
        if (run > end - at) run = end - at;
        if (run > AC_TILE) run = AC_TILE;
        char *data = (char *)ac_data(t) + ac_space_offset(&all, at) * ac_itemsize(t->dtype);
        fn(c, piece, loops, data, t->dtype, run, stride);
        at += run;
    }
}

static void unscale_one(list_call *c, int64_t piece, const ac_loops *loops, char *data, ac_dtype t, int64_t n,
                        int64_t stride) {
    c->bad[piece] += unscale_tile(loops, data, t, n, stride, c->factor);
}

static void unscale_pieces(void *context, int64_t begin, int64_t end) {
    list_call *c = context;
    for (int64_t i = begin; i < end; i++) each_tile(c, i, unscale_one);
}

int ac_cpu_unscale(ac_tensor *const *grads, int n, double factor, int64_t *bad) {
    list_call c;
    AC_TRY(list_init(&c, grads, n));
    size_t bytes = (size_t)(c.first[n] + 1) * sizeof *c.bad;
    c.factor = factor;
    c.bad = ac_calloc(bytes);
    if (c.bad) {
        ac_for_range(c.first[n], 1, unscale_pieces, &c);
        for (int i = 0; i < n; i++) {
            bad[i] = 0;
            for (int64_t p = c.first[i]; p < c.first[i + 1]; p++) bad[i] += c.bad[p];
        }
        ac_free(c.bad, bytes);
    }
    list_free(&c);
    return c.bad ? 0 : -1;
}

static void squares_one(list_call *c, int64_t piece, const ac_loops *loops, char *data, ac_dtype t, int64_t n,
                        int64_t stride) {
    double wide[AC_TILE];
    ac_total total = {0, 0};
    loops->load[t][AC_LANE_F64](n, data, stride, wide); /* float64: squares of 1e20 must not overflow */
    loops->fold[AC_FOLD_SUM_SQUARES][AC_LANE_F64](n, wide, 0, &total);
    c->squares[piece] += total.f;
}

static void squares_pieces(void *context, int64_t begin, int64_t end) {
    list_call *c = context;
    for (int64_t i = begin; i < end; i++) each_tile(c, i, squares_one);
}

int ac_cpu_squares(ac_tensor *const *tensors, int n, double *sums) {
    list_call c;
    AC_TRY(list_init(&c, tensors, n));
    size_t bytes = (size_t)(c.first[n] + 1) * sizeof *c.squares;
    c.squares = ac_calloc(bytes);
    if (c.squares) {
        ac_for_range(c.first[n], 1, squares_pieces, &c);
        for (int i = 0; i < n; i++) {
            sums[i] = 0;
            for (int64_t p = c.first[i]; p < c.first[i + 1]; p++) sums[i] += c.squares[p];
        }
        ac_free(c.squares, bytes);
    }
    list_free(&c);
    return c.squares ? 0 : -1;
}

/* -- optimizer steps ------------------------------------------------------------------------------ */

typedef struct {
    list_call list; /* of the parameters */
    const ac_update *updates;
    const ac_step *constants;
    ac_rule rule;
} step_call;

/* Elements [at, at + n) of t in row-major order, in lane type: the memory itself, or `buffer`. */
static void *read_at(const ac_loops *loops, ac_lane lane, const ac_tensor *t, int64_t at, int64_t n, double *buffer) {
    int64_t item = ac_itemsize(t->dtype);
    if (ac_is_contiguous(t)) {
        char *from = (char *)ac_data(t) + at * item;
        if (t->dtype == ac_lane_dtype(lane)) return from;
        loops->load[t->dtype][lane](n, from, 1, buffer);
        return buffer;
    }
    ac_space all = ac_space_of(t, UINT32_MAX);
    for (int64_t i = 0; i < n; i++) {
        const char *from = (char *)ac_data(t) + ac_space_offset(&all, at + i) * item;
        loops->load[t->dtype][lane](1, from, 1, (char *)buffer + i * ac_lane_bytes(lane));
    }
    return buffer;
}

static void write_at(const ac_loops *loops, ac_lane lane, const ac_tensor *t, int64_t at, int64_t n,
                     const void *values) {
    int64_t item = ac_itemsize(t->dtype);
    if (ac_is_contiguous(t)) {
        if (values != (char *)ac_data(t) + at * item)
            loops->store[lane][t->dtype](n, values, (char *)ac_data(t) + at * item, 1);
        return;
    }
    ac_space all = ac_space_of(t, UINT32_MAX);
    for (int64_t i = 0; i < n; i++)
        loops->store[lane][t->dtype](1, (const char *)values + i * ac_lane_bytes(lane),
                                     (char *)ac_data(t) + ac_space_offset(&all, at + i) * item, 1);
}

static void step_tile(const step_call *c, const ac_update *u, int64_t at, int64_t n) {
    const ac_loops *loops = ac_cpu_loops();
    ac_lane lane = ac_lane_of(u->param->dtype);
    double g[AC_TILE], p[AC_TILE], s[AC_MAX_STATE][AC_TILE];
    ac_step constants = *c->constants;
    if (c->rule == AC_RULE_ADAM) {
        constants.bias1 = 1 - pow(constants.beta1, u->step);
        constants.bias2_sqrt = sqrt(1 - pow(constants.beta2, u->step));
    } else constants.first = u->step == 1;
    const void *grad = read_at(loops, lane, u->grad, at, n, g);
    void *param = read_at(loops, lane, u->param, at, n, p), *state[AC_MAX_STATE];
    for (int k = 0; k < AC_MAX_STATE; k++)
        state[k] = u->state[k] ? read_at(loops, lane, u->state[k], at, n, s[k]) : NULL;
    (c->rule == AC_RULE_ADAM ? loops->adam : loops->sgd)[lane](n, &constants, grad, param, state);
    write_at(loops, lane, u->param, at, n, param);
    for (int k = 0; k < AC_MAX_STATE; k++)
        if (u->state[k]) write_at(loops, lane, u->state[k], at, n, state[k]);
}

static void step_pieces(void *context, int64_t begin, int64_t end) {
    const step_call *c = context;
    for (int64_t piece = begin; piece < end; piece++) {
        int owner = owner_of(&c->list, piece);
        int64_t numel = c->list.tensors[owner]->numel, at = (piece - c->list.first[owner]) * PIECE;
        int64_t last = at + PIECE < numel ? at + PIECE : numel;
        for (; at < last; at += AC_TILE)
            step_tile(c, &c->updates[owner], at, last - at < AC_TILE ? last - at : AC_TILE);
    }
}

int ac_cpu_step(ac_rule rule, const ac_update *updates, int n, const ac_step *constants) {
    size_t bytes = (size_t)(n + 1) * sizeof(ac_tensor *);
    ac_tensor **params = ac_alloc(bytes);
    if (!params) return -1;
    step_call c = {.updates = updates, .constants = constants, .rule = rule};
    for (int i = 0; i < n; i++) params[i] = updates[i].param;
    int failed = list_init(&c.list, params, n);
    if (!failed) {
        ac_for_range(c.list.first[n], 1, step_pieces, &c);
        list_free(&c.list);
    }
    ac_free(params, bytes);
    return failed;
}
