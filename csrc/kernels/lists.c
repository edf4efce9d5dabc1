/* One pass over a list of tensors: the scaler's and clipping's kernels. Pieces of every tensor go
 * to the pool together, so many small tensors cost no more than one large. */
#include "cpu.h"

#include "../base/alloc.h"

#include <math.h>

typedef struct {
    ac_tensor *const *tensors;
    int n;
    int64_t *first; /* the first piece of each tensor, and their number at [n] */
    int64_t grain;
    double factor;
    int64_t *bad;    /* one a piece */
    double *squares; /* one a piece */
} list_call;

static int list_init(list_call *c, ac_tensor *const *tensors, int n) {
    c->tensors = tensors, c->n = n;
    c->first = ac_alloc((size_t)(n + 1) * sizeof *c->first);
    if (!c->first) return -1;
    int64_t pieces = 0, elements = 0;
    for (int i = 0; i < n; i++) {
        c->first[i] = pieces;
        elements += tensors[i]->numel;
        pieces += (tensors[i]->numel + AC_PIECE - 1) / AC_PIECE;
    }
    c->first[n] = pieces;
    c->grain = ac_pieces_grain(pieces, elements);
    return 0;
}

static void list_free(list_call *c) { ac_free(c->first, (size_t)(c->n + 1) * sizeof *c->first); }

int ac_owner_of(const int64_t *first, int n, int64_t piece) {
    int lo = 0, hi = n;
    while (hi - lo > 1) {
        int mid = (lo + hi) / 2;
        if (first[mid] <= piece) lo = mid;
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
    int owner = ac_owner_of(c->first, c->n, piece);
    const ac_tensor *t = c->tensors[owner];
    const ac_loops *loops = ac_cpu_loops();
    int64_t at = (piece - c->first[owner]) * AC_PIECE, end = at + AC_PIECE < t->numel ? at + AC_PIECE : t->numel;
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
        ac_for_range(c.first[n], c.grain, unscale_pieces, &c);
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
        ac_for_range(c.first[n], c.grain, squares_pieces, &c);
        for (int i = 0; i < n; i++) {
            sums[i] = 0;
            for (int64_t p = c.first[i]; p < c.first[i + 1]; p++) sums[i] += c.squares[p];
        }
        ac_free(c.squares, bytes);
    }
    list_free(&c);
    return c.squares ? 0 : -1;
}
