/* The product driver against float64, on every micro-kernel that this CPU has and the emulated tile unit: transposes,
 * strides, odd sizes, k = 0, alpha and beta, bias and activations, packed operands, unaligned and shared memory, and
 * values that are infinite, nan or subnormal. Bounds follow from float32 accumulation and the result's dtype. */
#include "base/alloc.h"
#include "base/half.h"
#include "base/pool.h"
#include "cpu/gemm/gemm.h"
#include "ops/op.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"

static uint64_t state = 1;
static int64_t below(int64_t n) { /* [0, n) */
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (int64_t)((state >> 33) % (uint64_t)n);
}
static double uniform(void) { return (double)below(1 << 20) / (1 << 19) - 1; }

static double rounded(double x, ac_dtype t) {
    if (t == AC_float16) return (double)ac_f16_to_f32(ac_f32_to_f16((float)x));
    if (t == AC_bfloat16) return (double)ac_bf16_to_f32(ac_f32_to_bf16((float)x));
    return (double)(float)x;
}

/* -- one product and its reference ------------------------------------------------------------------ */

enum { LEAD = 3 }; /* elements before the first, so that nothing is aligned */

/* A matrix in a block of exactly its own size: address sanitizer sees what is read beyond it. */
typedef struct {
    char *block;
    ac_operand o;
} matrix;

static matrix new_matrix(int64_t lanes, int64_t k, ac_dtype dtype, ac_dtype round, int layout) {
    int64_t gap = below(3); /* between rows */
    matrix m = {.o = {.dtype = dtype, .lanes = lanes, .k = k, .round = round}};
    m.o.lane_stride = layout == 0 ? k + gap : layout == 1 ? 1 : 2;
    m.o.k_stride = layout == 0 ? 1 : layout == 1 ? lanes + gap : 2 * lanes + gap;
    int64_t span = lanes && k ? (lanes - 1) * m.o.lane_stride + (k - 1) * m.o.k_stride + 1 : 0;
    m.block = malloc((size_t)((span + LEAD) * ac_itemsize(dtype)));
    m.o.data = m.block + LEAD * ac_itemsize(dtype);
    for (int64_t i = 0; i < span; i++) ac_write_double(m.block, dtype, LEAD + i, uniform());
    return m;
}

static int64_t offset_of(const ac_operand *o, int64_t lane, int64_t k) {
    return lane * o->lane_stride + k * o->k_stride;
}
static double value(const ac_operand *o, int64_t lane, int64_t k) {
    return rounded(ac_read_double(o->data, o->dtype, offset_of(o, lane, k)), o->round);
}
static void put(const matrix *m, int64_t lane, int64_t k, double x) {
    ac_write_double(m->block, m->o.dtype, LEAD + offset_of(&m->o, lane, k), x);
}

static double activated(double x, ac_activation act) {
    switch (act) {
    case AC_ACT_RELU: return x < 0 ? 0 : x;
    case AC_ACT_GELU: return 0.5 * x * (1 + erf(x * 0.70710678118654752440));
    case AC_ACT_SILU: return x / (1 + exp(-x));
    default: return x;
    }
}

static double result_eps(ac_dtype t) { return t == AC_float16 ? 0x1p-11 : t == AC_bfloat16 ? 0x1p-8 : 0x1p-24; }

/* Element (i, j): what it should be, and how far off it may be. */
static double expected(const ac_gemm_call *g, int64_t i, int64_t j, double old, double *bound) {
    double sum = 0, size = 0;
    for (int64_t p = 0; p < g->a.k; p++) {
        double term = value(&g->a, i, p) * value(&g->b, j, p);
        sum += term, size += fabs(term);
    }
    double bias = g->bias ? (double)g->bias[j] : 0, x = (double)g->alpha * sum + bias;
    double y = activated(x, g->act) + (double)g->beta * old;
    double roundings = (double)g->a.k + 8; /* each of at most half an ulp of float32 */
    double inner = roundings * 0x1p-24 * (fabs((double)g->alpha) * size + fabs(bias) + fabs((double)g->beta * old));
    *bound = 1.2 * inner + 8 * 0x1p-24 * fabs(x) + result_eps(g->c_dtype) * fabs(y) +
             (g->c_dtype == AC_float16 ? 0x1p-25 : 1e-38);
    return y;
}

static bool agrees(double got, double want, double bound, ac_dtype t) {
    if (isnan(want)) return isnan(got);
    if (isinf(rounded(want, t))) return got == want || fabs(got) >= (t == AC_float16 ? 65504 : 3.3e38);
    return fabs(got - want) <= bound;
}

/* Runs g into fresh memory with guards between its rows and counts what is wrong. */
static int64_t wrong_in(ac_gemm_call g, const ac_micro *micro, int64_t gap) {
    int64_t m = g.a.lanes, n = g.b.lanes, row = n + gap, size = m * row, item = ac_itemsize(g.c_dtype), wrong = 0;
    char *c = malloc((size_t)((size + LEAD) * item)), *old = malloc((size_t)((size + LEAD) * item));
    for (int64_t i = 0; i < size + LEAD; i++) ac_write_double(old, g.c_dtype, i, g.beta != 0 ? uniform() : NAN);
    memcpy(c, old, (size_t)((size + LEAD) * item));
    g.c = c + LEAD * item, g.c_row = row;
    bool finite;
    CHECK(ac_gemm_run_on(&g, micro, &finite) == 0);
    for (int64_t at = 0; at < size && finite; at++) {
        int64_t i = at / row, j = at % row;
        if (j >= n) wrong += memcmp(c + (LEAD + at) * item, old + (LEAD + at) * item, (size_t)item) != 0;
        else {
            double bound, before = g.beta != 0 ? ac_read_double(old, g.c_dtype, LEAD + at) : 0;
            double want = expected(&g, i, j, before, &bound);
            wrong += !agrees(ac_read_double(c, g.c_dtype, LEAD + at), want, bound, g.c_dtype);
        }
    }
    wrong += memcmp(c, old, LEAD * (size_t)item) != 0;
    if (!finite) wrong += memcmp(c, old, (size_t)((size + LEAD) * item)) != 0;
    free(c);
    free(old);
    return wrong;
}

/* -- random products -------------------------------------------------------------------------------- */

static const ac_dtype lows[] = {AC_float32, AC_float16, AC_bfloat16};

/* What a kernel's panels can round to. */
static ac_dtype round_for(ac_panel_kind kind) {
    if (kind == AC_PANEL_BF16) return AC_bfloat16;
    return kind == AC_PANEL_F32 ? lows[below(3)] : AC_float16;
}

static int64_t some_size(void) {
    static const int64_t sizes[] = {1, 2, 3, 7, 15, 16, 17, 31, 32, 33, 48, 49, 64, 65, 100, 130};
    return sizes[below(16)];
}
static int64_t some_depth(void) {
    static const int64_t sizes[] = {0,  1,   2,   15,  16,  31,  32,  33,  63,  64,
                                    96, 127, 128, 129, 255, 256, 257, 300, 513, 700};
    return sizes[below(20)];
}

static void test_random(const ac_micro *micro, int times) {
    int64_t wrong = 0;
    for (int t = 0; t < times; t++) {
        ac_dtype round = round_for(micro->kind);
        int64_t m = some_size(), n = some_size(), k = some_depth();
        matrix a = new_matrix(m, k, below(2) ? round : lows[below(3)], round, (int)below(3));
        matrix b = new_matrix(n, k, below(2) ? round : lows[below(3)], round, (int)below(3));
        ac_gemm_call g = {.a = a.o, .b = b.o, .c_dtype = lows[below(3)], .alpha = 1, .batch = 1};
        if (below(3) == 0) g.alpha = (float)uniform();
        if (below(3) == 0) g.beta = below(2) ? 1 : (float)uniform();
        g.act = (ac_activation)(below(2) ? 0 : below(4));
        float *bias = malloc((size_t)n * sizeof *bias);
        for (int64_t j = 0; j < n; j++) bias[j] = (float)uniform();
        if (below(2)) g.bias = bias;
        char *panels = NULL;
        if (below(2) && ac_micro_for(round, true) == micro) {
            panels = ac_alloc((size_t)ac_gemm_panels_bytes(&b.o) + 1);
            CHECK(ac_gemm_pack(&b.o, panels));
            g.panels = panels;
        }
        int64_t bad = wrong_in(g, micro, below(3));
        if (bad && wrong == 0)
            fprintf(stderr, "%s: %ldx%ldx%ld alpha %g beta %g act %d: %ld wrong\n", micro->name, (long)m, (long)n,
                    (long)k, (double)g.alpha, (double)g.beta, (int)g.act, (long)bad);
        wrong += bad;
        if (panels) ac_free(panels, (size_t)ac_gemm_panels_bytes(&b.o) + 1);
        free(bias);
        free(a.block);
        free(b.block);
    }
    CHECK(wrong == 0);
}

/* Rows that tile kernels read where they lie, whole tiles in the panels' dtype, and columns that vector kernels do. */
static void test_direct(const ac_micro *micro) {
    ac_dtype round = round_for(micro->kind);
    for (int layout = 0; layout < 2; layout++) {
        matrix a = new_matrix(64, 96, round, round, layout), b = new_matrix(40, 96, round, round, 1);
        ac_gemm_call g = {.a = a.o, .b = b.o, .c_dtype = AC_float32, .alpha = 1, .batch = 1};
        CHECK(wrong_in(g, micro, 0) == 0);
        free(a.block);
        free(b.block);
    }
}

/* -- rows -------------------------------------------------------------------------------------------- */

/* Two values along k, or one float, of a cell of four bytes. */
static double cell_value(ac_panel_kind kind, const char *cell, int i) {
    float f;
    uint16_t half[2];
    memcpy(&f, cell, sizeof f);
    memcpy(half, cell, sizeof half);
    if (kind == AC_PANEL_F32) return i ? 0 : (double)f;
    return (double)(kind == AC_PANEL_BF16 ? ac_bf16_to_f32(half[i]) : ac_f16_to_f32(half[i]));
}

static void fill_cells(ac_panel_kind kind, char *to, int64_t cells) {
    for (int64_t i = 0; i < cells; i++, to += 4) {
        float x[2] = {(float)uniform(), (float)uniform()};
        uint16_t half[2];
        for (int j = 0; j < 2; j++) half[j] = kind == AC_PANEL_BF16 ? ac_f32_to_bf16(x[j]) : ac_f32_to_f16(x[j]);
        if (kind == AC_PANEL_F32) memcpy(to, x, 4);
        else memcpy(to, half, 4);
    }
}

/* The last cells of every lane in some tiles of A are zeros. */
static void empty_cells(char *tiles, int64_t n, int empty) {
    for (int64_t lane = 1; lane <= n * 16; lane++) memset(tiles + lane * 64 - empty * 4, 0, (size_t)empty * 4);
}

/* B as it lies in rows, with panels so many cells apart and k steps at any offset: what convolutions multiply. Some k
 * steps end in cells that hold zeros. */
static void test_strided_panels(const ac_micro *micro) {
    enum { STRIDE = 211, STEPS = 5, MOST = 3 };
    if (micro->kind == AC_PANEL_SPLIT) return; /* convolutions take its parts one by one */
    int64_t wrong = 0, room = STRIDE * 16 * STEPS;
    for (int t = 0; t < 20; t++) {
        int na = 1 + (int)below(micro->a), nb = 1 + (int)below(micro->b), empty = t % 2 ? (int)below(16) : 0;
        char *a = ac_alloc((size_t)(na * STEPS) * AC_TILE_BYTES), *b = ac_alloc((size_t)room * 4);
        float *c = ac_alloc((size_t)(na * nb) * AC_TILE_BYTES);
        int64_t at[STEPS], next = (1 + below(30)) * 4;
        for (int s = 0; s < STEPS; s++) at[s] = (s * 16 * STRIDE + below(STRIDE - 16 - MOST * 30)) * 4;
        fill_cells(micro->kind, a, na * STEPS * AC_TILE_FLOATS);
        empty_cells(a, na * STEPS, empty);
        fill_cells(micro->kind, b, room);
        ac_micro_job job = {.k_steps = STEPS,
                            .a = a,
                            .b = b,
                            .a_next = STEPS * AC_TILE_BYTES,
                            .b_next = next,
                            .a_k_stride = AC_TILE_BYTES,
                            .a_lane_stride = 64,
                            .a_cell_stride = 4,
                            .b_cell_stride = STRIDE * 4,
                            .b_at = at,
                            .na = na,
                            .nb = nb,
                            .empty = empty,
                            .c = c,
                            .c_a = nb * AC_TILE_FLOATS,
                            .c_b = AC_TILE_FLOATS,
                            .soon_a = a,
                            .soon_b = b};
        if (micro->begin) micro->begin();
        micro->run(&job);
        if (micro->end) micro->end();
        for (int64_t i = 0; i < na * nb * AC_TILE_FLOATS; i++) {
            int64_t pa = i / AC_TILE_FLOATS / nb, pb = i / AC_TILE_FLOATS % nb, row = i / 16 % 16, lane = i % 16;
            double want = 0;
            for (int64_t k = 0; k < STEPS * 16; k++)
                for (int half = 0; half < 2; half++)
                    want += cell_value(micro->kind,
                                       a + pa * job.a_next + k / 16 * AC_TILE_BYTES + row * 64 + k % 16 * 4, half) *
                            cell_value(micro->kind, b + pb * next + at[k / 16] + (k % 16 * STRIDE + lane) * 4, half);
            wrong += fabs((double)c[i] - want) > 2 * STEPS * 32 * 0x1p-24 * STEPS * 32;
        }
        ac_free(a, (size_t)(na * STEPS) * AC_TILE_BYTES);
        ac_free(b, (size_t)room * 4);
        ac_free(c, (size_t)(na * nb) * AC_TILE_BYTES);
    }
    CHECK(wrong == 0);
}

/* -- special values and memory ---------------------------------------------------------------------- */

static void test_special(const ac_micro *micro) {
    static const double specials[] = {INFINITY, -INFINITY, NAN};
    for (int s = 0; s < 3; s++)
        for (int layout = 0; layout < 2; layout++) {
            ac_dtype round = round_for(micro->kind);
            matrix a = new_matrix(19, 70, round, round, layout), b = new_matrix(21, 70, round, round, layout);
            put(&a, 5, 33, specials[s]);
            put(&b, 7, 12, specials[s]);
            put(&b, 9, 33, 0); /* inf times zero */
            ac_gemm_call g = {.a = a.o, .b = b.o, .c_dtype = AC_float32, .alpha = 1, .batch = 1};
            CHECK(wrong_in(g, micro, 1) == 0);
            bool finite;
            float c[19 * 21];
            g.c = (char *)c, g.c_row = 21;
            CHECK(ac_gemm_run_on(&g, micro, &finite) == 0 && finite == (micro->kind != AC_PANEL_SPLIT));
            free(a.block);
            free(b.block);
        }
}

/* Subnormal operands: float16's are exact everywhere; bfloat16's are exact or, on the units that work
 * so (AMX, vdpbf16ps), zero. */
static void test_subnormal(const ac_micro *micro) {
    ac_dtype round = round_for(micro->kind);
    double tiny = round == AC_float16 ? 0x1p-24 : 0x1p-133, scale = round == AC_float16 ? 1 : 0x1p100;
    matrix a = new_matrix(16, 32, round, round, 0), b = new_matrix(16, 32, round, round, 0);
    for (int64_t i = 0; i < 16; i++)
        for (int64_t k = 0; k < 32; k++) put(&a, i, k, k ? 0 : 5 * tiny), put(&b, i, k, scale);
    float c[256];
    ac_gemm_call g = {.a = a.o, .b = b.o, .c = (char *)c, .c_dtype = AC_float32, .c_row = 16, .alpha = 1, .batch = 1};
    bool finite, flushes = micro->kind == AC_PANEL_BF16;
    CHECK(ac_gemm_run_on(&g, micro, &finite) == 0);
    CHECK((double)c[17] == 5 * rounded(tiny, round) * scale || (flushes && c[17] == 0));
    free(a.block);
    free(b.block);
}

/* x times its own transpose: both operands are one memory; and operands that overlap shifted. */
static void test_shared(const ac_micro *micro) {
    ac_dtype round = round_for(micro->kind);
    matrix x = new_matrix(50, 90, round, round, 0);
    ac_gemm_call g = {.a = x.o, .b = x.o, .c_dtype = AC_bfloat16, .alpha = 1, .batch = 1};
    CHECK(wrong_in(g, micro, 0) == 0);
    g.a.lanes = 30, g.b.lanes = 40;
    g.b.data = (const char *)x.o.data + offset_of(&x.o, 10, 0) * ac_itemsize(x.o.dtype);
    CHECK(wrong_in(g, micro, 2) == 0);
    free(x.block);
}

static void test_nothing(const ac_micro *micro) {
    ac_gemm_call g = {.a = {.dtype = AC_float32, .round = AC_float32}, .c_dtype = AC_float32, .alpha = 1, .batch = 1};
    bool finite;
    g.b = g.a;
    CHECK(ac_gemm_run_on(&g, micro, &finite) == 0 && finite);
    g.a.k = g.b.k = 5, g.b.lanes = 4;
    CHECK(ac_gemm_run_on(&g, micro, &finite) == 0 && finite);
}

/* Small products live on the stack. */
static void test_small_allocates_nothing(const ac_micro *micro) {
    ac_dtype round = round_for(micro->kind);
    matrix a = new_matrix(64, 64, AC_float32, round, 0), b = new_matrix(64, 64, AC_float32, round, 1);
    float c[64 * 64];
    ac_gemm_call g = {.a = a.o, .b = b.o, .c = (char *)c, .c_dtype = AC_float32, .c_row = 64, .alpha = 1, .batch = 1};
    bool finite;
    ac_alloc_fail_at(0, 0);
    CHECK(ac_gemm_run_on(&g, micro, &finite) == 0 && finite && ac_alloc_calls() == 0);
    free(a.block);
    free(b.block);
}

/* -- rounding, bit for bit ---------------------------------------------------------------------------- */

/* Any float32: half of them have an exponent at the end of its range, or lie half-way between two of 16 bits. */
static float any_float(void) {
    uint32_t bits = (uint32_t)below((int64_t)1 << 31) << 1 | (uint32_t)below(2);
    switch (below(6)) {
    case 0: return ac_from_bits(bits | 0x7F800000u);          /* infinite or nan */
    case 1: return ac_from_bits(bits & 0x807FFFFFu);          /* subnormal */
    case 2: return ac_from_bits((bits & ~0xFFFFu) | 0x8000u); /* half-way in bfloat16 */
    default: return ac_from_bits(bits);
    }
}

/* Sums of 0 plus a bias show how a kernel rounds results. */
static void test_rounded_results(const ac_micro *micro) {
    enum { ROWS = 32, MOST = 80 };
    ac_dtype round = round_for(micro->kind);
    for (int64_t cols = 1; cols <= MOST; cols++) {
        matrix a = new_matrix(ROWS, 32, round, round, 0), b = new_matrix(cols, 32, round, round, 0);
        for (int64_t j = 0; j < cols; j++)
            for (int64_t k = 0; k < 32; k++) put(&b, j, k, 0);
        ac_dtype dtype = below(2) ? AC_bfloat16 : AC_float16;
        float bias[MOST];
        uint16_t c[ROWS * MOST];
        for (int j = 0; j < MOST; j++) bias[j] = any_float();
        ac_gemm_call g = {
            .a = a.o, .b = b.o, .c = (char *)c, .c_dtype = dtype, .c_row = cols, .alpha = 1, .bias = bias, .batch = 1};
        bool finite;
        CHECK(ac_gemm_run_on(&g, micro, &finite) == 0 && finite);
        int wrong = 0;
        for (int64_t i = 0; i < ROWS * cols; i++) {
            float sum = 0.0f + bias[i % cols];
            wrong += c[i] != (dtype == AC_bfloat16 ? ac_f32_to_bf16(sum) : ac_f32_to_f16(sum));
        }
        CHECK(wrong == 0);
        free(a.block);
        free(b.block);
    }
}

/* Fills m with any values of its dtype, or only with numbers. */
static void put_any(const matrix *m, bool numbers) {
    for (int64_t i = 0; i < m->o.lanes; i++)
        for (int64_t j = 0; j < m->o.k; j++) {
            float x = any_float();
            while (numbers && isnan(x)) x = any_float();
            if (m->o.dtype == AC_float32) ((float *)m->block)[LEAD + offset_of(&m->o, i, j)] = x;
            else put(m, i, j, (double)x);
        }
}

/* One k step packed by plain C and by vectors gives the same bits. */
static void same_bits(const matrix *m, ac_panel_kind kind, bool columns, ac_pack_k_step vectors) {
    int64_t bytes = kind == AC_PANEL_SPLIT ? 2 * AC_TILE_BYTES : AC_TILE_BYTES;
    _Alignas(64) char want[2 * AC_TILE_BYTES], got[2 * AC_TILE_BYTES];
    bool fits = ac_pack_k_step_portable(&m->o, kind, columns, 0, 0, want);
    CHECK(vectors(&m->o, kind, columns, 0, 0, got) == fits);
    CHECK(!fits || memcmp(got, want, (size_t)bytes) == 0);
}

/* The packing of each instruction set rounds as plain C does, at edges and in whole tiles, with nans and without. */
static void test_packed_bits(void) {
    const ac_panel_kind kinds[] = {AC_PANEL_F32, AC_PANEL_BF16, AC_PANEL_F16, AC_PANEL_SPLIT};
    const ac_dtype dtypes[] = {AC_float32, AC_bfloat16, AC_float16};
    for (int t = 0; t < 3000; t++) {
        ac_panel_kind kind = kinds[below(4)];
        ac_dtype round = kind == AC_PANEL_F32 ? dtypes[below(3)] : kind == AC_PANEL_BF16 ? AC_bfloat16 : AC_float16;
        int64_t lanes = below(2) ? 16 + below(4) : 1 + below(15), k = below(2) ? 32 + below(8) : 1 + below(31);
        matrix m = new_matrix(lanes, k, dtypes[below(3)], round, (int)below(2));
        if (kind != AC_PANEL_SPLIT || below(2)) put_any(&m, below(2)); /* what is split is finite */
        m.o.stream = below(4) == 0;
#ifdef AC_HAVE_X86
        bool columns = below(2);
        if (ac_cpu_isa() >= AC_ISA_AVX512) same_bits(&m, kind, columns, ac_pack_k_step_avx512);
        if (ac_cpu_isa() >= AC_ISA_AVX2 && kind == AC_PANEL_F32) same_bits(&m, kind, columns, ac_pack_k_step_avx2);
#endif
        free(m.block);
    }
}

/* -- packing in parts ------------------------------------------------------------------------------- */

static void test_parts(void) {
    for (int t = 0; t < 60; t++) {
        ac_dtype round = below(2) ? AC_bfloat16 : AC_float16;
        int64_t lanes = 1 + below(150), k = 1 + below(700), lane_part = AC_PART * (1 + below(3)),
                k_part = AC_PART * (1 + below(9));
        matrix b = new_matrix(lanes, k, below(2) ? AC_float32 : round, round, (int)below(3));
        size_t bytes = (size_t)ac_gemm_panels_bytes(&b.o);
        char *whole = ac_calloc(bytes), *parts = ac_calloc(bytes);
        CHECK(ac_gemm_pack(&b.o, whole));
        for (int64_t l = 0; l < lanes; l += lane_part)
            for (int64_t p = 0; p < k; p += k_part) {
                int64_t nl = lanes - l < lane_part ? lanes - l : lane_part, nk = k - p < k_part ? k - p : k_part;
                CHECK(ac_gemm_pack_part(&b.o, l, nl, p, nk, parts));
            }
        CHECK(memcmp(whole, parts, bytes) == 0);
        ac_free(whole, bytes);
        ac_free(parts, bytes);
        free(b.block);
    }
}

/* The CPU's micro-kernels, and the tile unit's, emulated (tiles.c) where there are vectors that it wants beside it. */
static const ac_micro *micro_at(int i) {
    int n = 0;
    while (ac_micro_at(n)) n++;
    if (i < n) return ac_micro_at(i);
#ifdef AC_HAVE_X86
    extern const ac_micro tests_tiles_bf16, tests_tiles_split;
    static const ac_micro *const emulated[] = {&tests_tiles_bf16, &tests_tiles_split};
    if (ac_cpu_isa() >= AC_ISA_AVX512 && i - n < 2) return emulated[i - n];
#endif
    return NULL;
}

int main(int argc, char **argv) {
    int times = argc > 1 ? atoi(argv[1]) : 150;
    for (int i = 0; micro_at(i); i++) {
        const ac_micro *micro = micro_at(i);
        for (int threads = 1; threads <= 3; threads += 2) {
            ac_set_num_threads(threads);
            test_random(micro, times);
            test_direct(micro);
        }
        test_strided_panels(micro);
        test_special(micro);
        test_subnormal(micro);
        test_shared(micro);
        test_nothing(micro);
        test_rounded_results(micro);
        test_small_allocates_nothing(micro);
        printf("%s: %d passed, %d failed\n", micro->name, passed, failed);
    }
    test_packed_bits();
    test_parts();
    ac_memory_trim();
    printf("products: %d passed, %d failed\n", passed, failed);
    return failed != 0;
}
