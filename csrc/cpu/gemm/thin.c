/* Products of few rows by a large float32 matrix, or of a large one by few columns, as a language model makes them for
 * each token. Packing the large operand would take longer than the product: it is read once, where it lies. Threads
 * share its lanes; each sum is made by one thread, in one order. */
#include "base/alloc.h"
#include "base/inline.h"
#include "base/pool.h"
#include "base/ways.h"
#include "cpu/gemm/gemm.h"

#include <string.h>

enum {
    FEW = AC_THIN_LANES,
    LANES = 256,      /* of the large one that a thread takes at a time, at most */
    ENOUGH = 1 << 16, /* values of it that are enough where lanes are runs */
    SPAN = 6144,      /* values along k that lanes of a vector add one after the other, */
    SPAN_ACROSS = 384 /* and that one lane adds */
};

typedef struct {
    const ac_gemm_call *call;
    const ac_loops *loops;
    ac_operand few, many;
    int64_t c_few, c_many; /* strides of c */
    bool bias_few;         /* the bias belongs to lanes of `few` */
    bool along;            /* lanes of `many` are runs of memory, else its k steps are */
    int64_t chunk;         /* lanes of `many` */
} thin;

static bool is_plain(const ac_operand *o) { return o->dtype == AC_float32 && o->round == AC_float32; }

static bool is_readable(const ac_operand *o) { return o->k_stride == 1 || o->lane_stride == 1; }

static bool suits(const ac_operand *few, const ac_operand *many) {
    return few->lanes <= FEW && many->lanes >= 2 * few->lanes && is_readable(many);
}

bool ac_gemm_is_thin(const ac_gemm_call *g) {
    bool plain = is_plain(&g->a) && is_plain(&g->b) && g->c_dtype == AC_float32 && !g->panels;
    return plain && g->act == AC_ACT_NONE && g->a.k > 0 && (suits(&g->a, &g->b) || suits(&g->b, &g->a));
}

static thin thin_of(const ac_gemm_call *g) {
    bool left = suits(&g->a, &g->b);
    thin t = {.call = g, .loops = ac_cpu_loops(), .bias_few = !left};
    t.few = left ? g->a : g->b, t.many = left ? g->b : g->a;
    t.c_few = left ? g->c_row : 1, t.c_many = left ? 1 : g->c_row;
    t.along = t.many.k_stride == 1;
    t.chunk = t.along ? ac_least(LANES, ac_most(ENOUGH / t.many.k, 16) / 16 * 16) : LANES;
    return t;
}

/* c = alpha sums + bias + beta c for n lanes of `many` from `lane` on. */
static void finish(const thin *t, int64_t lane, int64_t n, const float *sums) {
    const ac_gemm_call *g = t->call;
    for (int64_t i = 0; i < t->few.lanes; i++) {
        float *c = (float *)(void *)g->c + i * t->c_few + lane * t->c_many;
        const float *bias = !g->bias ? NULL : t->bias_few ? g->bias + i : g->bias + lane;
        for (int64_t j = 0; j < n; j++) {
            float y = g->alpha * sums[i * LANES + j];
            if (bias) y += bias[t->bias_few ? 0 : j];
            c[j * t->c_many] = g->beta != 0 ? y + g->beta * c[j * t->c_many] : y;
        }
    }
}

/* A span of k from k0 on where lanes of `many` are runs: dot products. */
static void sum_along(const thin *t, int64_t lane, int64_t n, int64_t k0, int64_t k, float *sums) {
    const float *x = t->few.data, *w = t->many.data;
    t->loops->thin_along(k, t->few.lanes, x + k0, t->few.lane_stride, n, w + lane * t->many.lane_stride + k0,
                         t->many.lane_stride, sums, LANES);
}

/* The same where k steps of `many` are runs: each is added to the sums. */
static void sum_across(const thin *t, int64_t lane, int64_t n, int64_t k0, int64_t k, float *sums) {
    const float *x = t->few.data, *w = t->many.data;
    float part[FEW * LANES], steps[FEW * AC_THIN_DEPTH];
    for (int64_t i = 0; i < t->few.lanes; i++) memset(part + i * LANES, 0, (size_t)n * sizeof *part);
    for (int64_t p = k0; p < k0 + k; p += AC_THIN_DEPTH) {
        int64_t depth = ac_least(AC_THIN_DEPTH, k0 + k - p);
        for (int64_t i = 0; i < t->few.lanes; i++)
            for (int64_t q = 0; q < depth; q++)
                steps[i * AC_THIN_DEPTH + q] = x[i * t->few.lane_stride + (p + q) * t->few.k_stride];
        t->loops->thin_across(depth, t->few.lanes, steps, n, w + lane + p * t->many.k_stride, t->many.k_stride, part,
                              LANES);
    }
    for (int64_t i = 0; i < t->few.lanes; i++)
        for (int64_t j = 0; j < n; j++) sums[i * LANES + j] += part[i * LANES + j];
}

static void some_lanes(void *context, int64_t chunk, int thread) {
    const thin *t = context;
    float sums[FEW * LANES];
    int64_t lane = chunk * t->chunk, n = ac_least(t->chunk, t->many.lanes - lane);
    (void)thread;
    for (int64_t i = 0; i < t->few.lanes; i++) memset(sums + i * LANES, 0, (size_t)n * sizeof *sums);
    int64_t span = t->along ? SPAN : SPAN_ACROSS;
    for (int64_t k0 = 0; k0 < t->few.k; k0 += span) {
        int64_t k = ac_least(span, t->few.k - k0);
        if (t->along) sum_along(t, lane, n, k0, k, sums);
        else sum_across(t, lane, n, k0, k, sums);
    }
    finish(t, lane, n, sums);
}

/* The small operand with its lanes one behind the other. */
static float *packed_few(const ac_operand *o) {
    float *to = (float *)(void *)ac_alloc((size_t)(o->lanes * o->k) * sizeof *to);
    const float *from = o->data;
    for (int64_t i = 0; to && i < o->lanes; i++)
        for (int64_t p = 0; p < o->k; p++) to[i * o->k + p] = from[i * o->lane_stride + p * o->k_stride];
    return to;
}

int ac_gemm_run_thin(const ac_gemm_call *g, int threads) {
    thin t = thin_of(g);
    float *copy = NULL;
    if (t.along) AC_WAY(product_thin_along);
    else AC_WAY(product_thin_across);
    if (t.along && t.few.k_stride != 1) {
        copy = packed_few(&t.few);
        if (!copy) return -1;
        t.few.data = copy, t.few.lane_stride = t.few.k, t.few.k_stride = 1;
    }
    ac_parallel(ac_ceil_div(t.many.lanes, t.chunk), threads, some_lanes, &t);
    if (copy) ac_free(copy, (size_t)(t.few.lanes * t.few.k) * sizeof *copy);
    return 0;
}
