/* Products of a small result and a large depth, of operands whose lanes are runs of memory: gradients of small weights.
 * The depth is cut into parts, each a product on one thread, and the parts' results are added in order. So no thread
 * packs, or waits for, what another one reads. The parts depend on sizes alone, and are the same on one thread. */
#include "backend/backend.h"
#include "base/alloc.h"
#include "base/inline.h"
#include "base/ways.h"
#include "cpu/gemm/gemm.h"
#include "shared/tensor_iter.h"

#include <stdatomic.h>

enum {
    MOST_VALUES = 128 * 128, /* of the result: each part has as many sums */
    LEAST_DEPTH = 256,       /* of a part, */
    LEAST_WORK = 1 << 21,    /* and multiplications, where there are more than two */
    MOST_PARTS = 8
};

typedef struct {
    const ac_gemm_call *call;
    const ac_loops *loops;
    int64_t depth, parts, values;
    bool in_place; /* the first part's sums are made where the result will be */
    float *sums;   /* of the other parts, or of all: rows without gaps */
    _Atomic int failed;
} deep;

bool ac_gemm_is_deep(const ac_gemm_call *g) {
    bool plain = g->batch == 1 && !g->alone && !g->bias && g->act == AC_ACT_NONE && g->c_row == g->b.lanes;
    bool across = g->a.lane_stride == 1 && g->b.lane_stride == 1;
    return plain && across && g->a.k >= 2 * LEAST_DEPTH && g->a.lanes * g->b.lanes <= MOST_VALUES;
}

static float *sums_of(const deep *d, int64_t part) {
    if (d->in_place && part == 0) return (float *)(void *)d->call->c;
    return d->sums + (part - d->in_place) * d->values;
}

static void advance(ac_operand *o, int64_t k, int64_t depth) {
    o->data = (const char *)o->data + k * o->k_stride * ac_itemsize(o->dtype);
    o->k = depth;
}

static void some_parts(void *context, int64_t begin, int64_t end) {
    deep *d = context;
    for (int64_t i = begin; i < end; i++) {
        ac_gemm_call part = *d->call;
        int64_t k = i * d->depth, depth = ac_least(d->depth, part.a.k - k);
        advance(&part.a, k, depth);
        advance(&part.b, k, depth);
        part.c = (char *)sums_of(d, i), part.c_dtype = AC_float32;
        part.beta = 0, part.alone = true, part.panels = NULL; /* bits do not depend on what was packed before */
        if (ac_gemm_run(&part) < 0) atomic_store(&d->failed, 1);
    }
}

/* total += factor x, of n values */
static void add(const deep *d, int64_t n, float *total, const float *x, float factor) {
    ac_attrs_alpha times = {{.kind = AC_FLOAT, .f = (double)factor}};
    d->loops->point[AC_OP_add][AC_OPMATH_F32](n, (const void *[]){total, x}, total, &times);
}

/* The result's values [begin, end): the parts' sums, and beta times what was there. */
static void add_parts(void *context, int64_t begin, int64_t end) {
    const deep *d = context;
    const ac_gemm_call *g = d->call;
    float before[AC_TILE];
    for (int64_t at = begin, n; at < end; at += n) {
        n = ac_least(end - at, AC_TILE);
        char *c = g->c + at * ac_itemsize(g->c_dtype);
        float *total = sums_of(d, 0) + at;
        for (int64_t i = 1; i < d->parts; i++) add(d, n, total, sums_of(d, i) + at, 1);
        if (d->in_place) continue;
        if (g->beta != 0) {
            d->loops->load[g->c_dtype][AC_OPMATH_F32](n, c, 1, before);
            add(d, n, total, before, g->beta);
        }
        d->loops->store[AC_OPMATH_F32][g->c_dtype](n, total, c, 1);
    }
}

int ac_gemm_run_deep(const ac_gemm_call *g) {
    deep d = {.call = g, .loops = ac_cpu_loops(), .values = g->a.lanes * g->b.lanes};
    int64_t parts = ac_least(ac_most(2, d.values * g->a.k / LEAST_WORK), ac_least(MOST_PARTS, g->a.k / LEAST_DEPTH));
    d.depth = ac_ceil_div(ac_ceil_div(g->a.k, parts), 32) * 32;
    d.parts = ac_ceil_div(g->a.k, d.depth);
    d.in_place = g->c_dtype == AC_float32 && g->beta == 0;
    size_t bytes = (size_t)((d.parts - d.in_place) * d.values) * sizeof *d.sums;
    d.sums = ac_alloc(bytes);
    if (!d.sums) return -1;
    AC_WAY(product_deep);
    ac_for_range(d.parts, 1, some_parts, &d);
    if (!atomic_load(&d.failed)) ac_for_range(d.values, AC_GRAIN / d.parts, add_parts, &d);
    ac_free(d.sums, bytes);
    if (!atomic_load(&d.failed)) return 0;
    return ac_fail(AC_MEMORY, "mm: not enough memory to pack the operands"); /* perhaps another thread's failure */
}
