/* Micro-kernel on 256-bit vectors: 6, 6 and 4 rows by 16 columns of C in up to 12 registers. */
#include "cpu/gemm/micro.h"

#ifdef AC_HAVE_X86
#include <immintrin.h>

#pragma GCC target("avx2,fma,f16c")
#include "cpu/elementwise/half_simd.h"

#define INLINE static inline __attribute__((always_inline))
#define EACH_ROW _Pragma("GCC unroll 6") for (int i = 0; i < rows; i++)
#define EACH_VECTOR _Pragma("GCC unroll 2") for (int v = 0; v < 2; v++)

/* Bytes from a lane of A to the next, and from a cell to the next in A and in B. */
typedef struct {
    int64_t a_lane, a_cell, b_cell;
} strides;

/* One k step of `rows` rows. */
INLINE void add_k_step(int rows, const char *a, const char *b, strides by, __m256 sum[6][2]) {
    _Pragma("GCC unroll 4") for (int cell = 0; cell < AC_CELLS; cell++, a += by.a_cell, b += by.b_cell) {
        const float *columns = (const float *)(const void *)b;
        __m256 x = _mm256_loadu_ps(columns), y = _mm256_loadu_ps(columns + 8);
        EACH_ROW {
            __m256 value = _mm256_broadcast_ss((const float *)(const void *)(a + i * by.a_lane));
            sum[i][0] = _mm256_fmadd_ps(value, x, sum[i][0]);
            sum[i][1] = _mm256_fmadd_ps(value, y, sum[i][1]);
        }
    }
}

/* What a k step fetches of the panels that are wanted later. The panels at hand are read in the order that the CPU
 * foresees: more instructions for them would only take the place of others. */
INLINE void fetch_ahead(const ac_micro_job *j, int64_t s) {
    enum { LINE = 64 };
    for (int i = 0; i < AC_FETCH_A; i += LINE) _mm_prefetch(j->soon_a + s * AC_FETCH_A + i, _MM_HINT_T1);
    for (int i = 0; i < AC_FETCH_B; i += LINE) _mm_prefetch(j->soon_b + s * AC_FETCH_B + i, _MM_HINT_T1);
}

/* Rows of accumulators, or of the result, that are wanted soon. */
INLINE void fetch_rows(const float *c, int64_t row, int rows) {
    for (int i = 0; i < rows; i++) _mm_prefetch(c + i * row, _MM_HINT_T0);
}

/* Rows [row, end) of sums at c, rounded once to 16 bits, to the result. A function of its own, whose constants stay in
 * registers. */
static __attribute__((noinline)) void write_halves(const ac_micro_job *j, int row, int end) {
    const float *sums = j->c + row * AC_LANES, *last = j->c + end * AC_LANES;
    uint16_t *to = (uint16_t *)j->out + row * j->out_row;
    int64_t next = j->out_row;
    if (j->out_dtype == AC_bfloat16)
        for (; sums < last; sums += AC_LANES, to += next) ac_narrow_bf16(AC_LANES, sums, to);
    else
        for (; sums < last; sums += AC_LANES, to += next) ac_narrow_f16(AC_LANES, sums, to);
}

/* `rows` rows of C from `row` on, a constant number; B's k steps are at `b_at` or follow each other. */
INLINE void some_rows(const ac_micro_job *j, int rows, int row, strides by, bool follow) {
    __m256 sum[6][2];
    float *c = j->c + row * AC_LANES;
    EACH_ROW EACH_VECTOR sum[i][v] = _mm256_setzero_ps();
    const char *a = j->a + row * by.a_lane, *b = j->b;
    for (int64_t s = 0; s < j->k_steps; s++, a += j->a_k_stride, b += AC_TILE_BYTES) {
        if (row == 12) fetch_ahead(j, s);
        add_k_step(rows, a, follow ? b : ac_micro_b(j, s, AC_TILE_BYTES), by, sum);
    }
    if (j->add) EACH_ROW EACH_VECTOR sum[i][v] = _mm256_add_ps(_mm256_loadu_ps(c + i * AC_LANES + 8 * v), sum[i][v]);
    int64_t c_row = AC_LANES;
    if (j->out && j->bias) EACH_ROW EACH_VECTOR sum[i][v] = _mm256_add_ps(sum[i][v], _mm256_loadu_ps(j->bias + 8 * v));
    if (j->out && j->out_dtype == AC_float32) c = (float *)j->out + row * j->out_row, c_row = j->out_row;
    if (j->stream) EACH_ROW EACH_VECTOR _mm256_stream_ps(c + i * c_row + 8 * v, sum[i][v]);
    else EACH_ROW EACH_VECTOR _mm256_storeu_ps(c + i * c_row + 8 * v, sum[i][v]);
}

/* Rows are rounded to 16 bits while the multiplications of the next ones run. */
INLINE void all_rows(const ac_micro_job *j, strides by, bool follow) {
    if (j->out && !j->stream && j->out_dtype == AC_float32) fetch_rows(j->out, j->out_row, AC_LANES);
    if (j->add) fetch_rows(j->c + 6 * AC_LANES, AC_LANES, 10);
    bool halves = j->out && j->out_dtype != AC_float32;
    some_rows(j, 6, 0, by, follow);
    some_rows(j, 6, 6, by, follow);
    if (halves) write_halves(j, 0, 6);
    if (j->add) fetch_rows(j->c + j->c_a, AC_LANES, 6);
    some_rows(j, 4, 12, by, follow);
    if (halves) write_halves(j, 6, AC_LANES);
}

/* Where strides are constants, instructions that read memory need no arithmetic. */
static void run_f32(const ac_micro_job *j) {
    enum { VALUE = 4, LINE = AC_LANES * VALUE };
    bool follow = !j->b_at && j->b_cell_stride == LINE;
    if (follow && j->a_lane_stride == VALUE) {
        if (j->a_cell_stride == LINE) all_rows(j, (strides){VALUE, LINE, LINE}, true);
        else all_rows(j, (strides){VALUE, j->a_cell_stride, LINE}, true);
    } else if (follow) all_rows(j, (strides){j->a_lane_stride, VALUE, LINE}, true);
    else if (j->a_lane_stride == AC_CELLS * VALUE)
        all_rows(j, (strides){AC_CELLS * VALUE, VALUE, j->b_cell_stride}, false);
    else all_rows(j, (strides){j->a_lane_stride, VALUE, j->b_cell_stride}, false);
}

const ac_micro ac_micro_avx2 = {.name = "avx2",
                                .way = AC_WAY_micro_avx2,
                                .kind = AC_PANEL_F32,
                                .isa = AC_ISA_AVX2,
                                .a = 1,
                                .b = 1,
                                .writes_results = true,
                                .a_like_b = true,
                                .turns_rows = true,
                                .streams_results = true,
                                .rounds_results = true,
                                .run = run_f32};
#endif
