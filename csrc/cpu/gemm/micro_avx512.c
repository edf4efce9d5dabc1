/* Micro-kernels on 512-bit vectors: 8 rows by up to 48 columns of C in 24 registers. */
#include "cpu/gemm/micro.h"

#ifdef AC_HAVE_X86
#include <immintrin.h>
#include <string.h>

#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx2,fma")
#include "cpu/elementwise/half_simd.h"

enum { ROWS = 8 };

/* A broadcast value serves every column; without this the compiler loads it for each. */
#define HOLD(x) __asm__("" : "+v"(x))
#define EACH_ROW _Pragma("GCC unroll 8") for (int i = 0; i < ROWS; i++)
#define EACH_COLUMN(nb) _Pragma("GCC unroll 3") for (int v = 0; v < nb; v++)

#define FMA_F32(a, b, c) _mm512_fmadd_ps(a, b, c)
#define DOT_BF16(a, b, c) _mm512_dpbf16_ps(c, (__m512bh)(a), (__m512bh)(b))

/* One cell, which may lie at any address where A is read directly. */
static inline __attribute__((always_inline)) __m512 every_lane(const char *cell) {
    float x;
    memcpy(&x, cell, sizeof x);
    return _mm512_set1_ps(x);
}

/* A row of up to three tiles, rounded to bfloat16, from registers. */
static inline __attribute__((always_inline)) void write_bf16(int nb, const __m512 *sums, uint16_t *to) {
    if (nb > 1) _mm512_storeu_si512(to, ac_narrow32_bf16(sums[0], sums[1]));
    if (nb != 2) _mm256_storeu_si256((__m256i *)(void *)(to + (nb - 1) * AC_LANES), ac_narrow16_bf16(sums[nb - 1]));
}

/* A's lanes are `lane` bytes apart and its cells `cell`, one of them a constant: instructions that read memory then
 * need no arithmetic. */
#define EIGHT_ROWS(name, nb, MULTIPLY, LANE, CELL, AHEAD)                                                              \
    static void name(const ac_micro_job *j, int row) {                                                                 \
        __m512 sum[ROWS][nb];                                                                                          \
        const float *before = j->c + row * AC_LANES;                                                                   \
        EACH_ROW EACH_COLUMN(nb) sum[i][v] = _mm512_setzero_ps();                                                      \
        if (j->add) EACH_ROW EACH_COLUMN(nb) _mm_prefetch(before + v * j->c_b + i * AC_LANES, _MM_HINT_T0);            \
        const int64_t lane = LANE, cell = CELL, next = j->b_next, k_step = j->b_cell_stride;                           \
        const char *a = j->a + row * lane;                                                                             \
        int cells = ac_micro_cells(j);                                                                                 \
        const char *soon_a = j->soon_a + (row ? j->k_steps * 128 : 0),                                                 \
                   *soon_b = j->soon_b + (row ? j->k_steps * 64 : 0);                                                  \
        for (int64_t s = 0; s < j->k_steps; s++, a += j->a_k_stride) {                                                 \
            const char *b = ac_micro_b(j, s, AC_TILE_BYTES);                                                           \
            _mm_prefetch(soon_a + 128 * s, _MM_HINT_T1);                                                               \
            _mm_prefetch(soon_a + 128 * s + 64, _MM_HINT_T1);                                                          \
            _mm_prefetch(soon_b + 64 * s, _MM_HINT_T1);                                                                \
            EACH_ROW _mm_prefetch(a + j->a_next + AHEAD, _MM_HINT_T0);                                                 \
            for (int four = 0; four < cells; four += 4)                                                                \
                _Pragma("GCC unroll 4") for (int at = four; at < four + 4; at++, b += k_step) {                        \
                    __m512 x[nb];                                                                                      \
                    EACH_COLUMN(nb) x[v] = _mm512_loadu_ps(b + v * next);                                              \
                    EACH_ROW {                                                                                         \
                        __m512 value = every_lane(a + i * lane + at * cell);                                           \
                        HOLD(value);                                                                                   \
                        EACH_COLUMN(nb) sum[i][v] = MULTIPLY(value, x[v], sum[i][v]);                                  \
                    }                                                                                                  \
                }                                                                                                      \
        }                                                                                                              \
        if (j->add)                                                                                                    \
            EACH_ROW EACH_COLUMN(nb) sum[i][v] =                                                                       \
                _mm512_add_ps(_mm512_loadu_ps(before + v * j->c_b + i * AC_LANES), sum[i][v]);                         \
        float *c = j->c + row * AC_LANES;                                                                              \
        int64_t c_row = AC_LANES, c_b = j->c_b;                                                                        \
        if (j->out && j->bias)                                                                                         \
            EACH_ROW EACH_COLUMN(nb) sum[i][v] = _mm512_add_ps(sum[i][v], _mm512_loadu_ps(j->bias + v * AC_LANES));    \
        if (j->out && j->out_dtype == AC_bfloat16) {                                                                   \
            EACH_ROW write_bf16(nb, sum[i], (uint16_t *)j->out + (row + i) * j->out_row);                              \
            return;                                                                                                    \
        }                                                                                                              \
        if (j->out && j->out_dtype == AC_float32)                                                                      \
            c = (float *)j->out + row * j->out_row, c_row = j->out_row, c_b = AC_LANES;                                \
        EACH_ROW EACH_COLUMN(nb) _mm512_storeu_ps(c + v * c_b + i * c_row, sum[i][v]);                                 \
    }

/* The sums in tiles of C, rounded once to float16, to the result. */
static __attribute__((noinline)) void write_f16(const ac_micro_job *j) {
    for (int v = 0; v < j->nb; v++) {
        const float *sums = j->c + v * j->c_b;
        uint16_t *to = (uint16_t *)j->out + v * AC_LANES;
        for (int i = 0; i < AC_LANES; i++) ac_narrow_f16(AC_LANES, sums + i * AC_LANES, to + i * j->out_row);
    }
}

#define WIDTHS(name, MULTIPLY, ...)                                                                                    \
    EIGHT_ROWS(name##_1, 1, MULTIPLY, __VA_ARGS__)                                                                     \
    EIGHT_ROWS(name##_2, 2, MULTIPLY, __VA_ARGS__)                                                                     \
    EIGHT_ROWS(name##_3, 3, MULTIPLY, __VA_ARGS__)                                                                     \
    static void name(const ac_micro_job *j, int row) {                                                                 \
        if (j->nb == 3) name##_3(j, row);                                                                              \
        else if (j->nb == 2) name##_2(j, row);                                                                         \
        else name##_1(j, row);                                                                                         \
    }

#define KERNEL(name, MULTIPLY)                                                                                         \
    WIDTHS(name##_rows, MULTIPLY, j->a_lane_stride, 4, i *lane)                                                        \
    WIDTHS(name##_columns, MULTIPLY, 4, j->a_cell_stride, (row + i) * cell)                                            \
    static void name(const ac_micro_job *j) {                                                                          \
        bool columns = j->a_lane_stride == 4 && j->a_cell_stride != 4;                                                 \
        for (int row = 0; row < AC_LANES; row += ROWS) {                                                               \
            if (columns) name##_columns(j, row);                                                                       \
            else name##_rows(j, row);                                                                                  \
        }                                                                                                              \
        if (j->out && j->out_dtype == AC_float16) write_f16(j);                                                        \
    }

KERNEL(run_f32, FMA_F32)
KERNEL(run_bf16, DOT_BF16)

const ac_micro ac_micro_avx512 = {.name = "avx512",
                                  .way = AC_WAY_micro_avx512,
                                  .kind = AC_PANEL_F32,
                                  .isa = AC_ISA_AVX512,
                                  .a = 1,
                                  .b = 3,
                                  .writes_results = true,
                                  .a_like_b = true,
                                  .rounds_results = true,
                                  .run = run_f32};
const ac_micro ac_micro_avx512_bf16 = {.name = "avx512_bf16",
                                       .way = AC_WAY_micro_avx512_bf16,
                                       .kind = AC_PANEL_BF16,
                                       .isa = AC_ISA_AVX512_BF16,
                                       .a = 1,
                                       .b = 3,
                                       .writes_results = true,
                                       .a_like_b = true,
                                       .rounds_results = true,
                                       .run = run_bf16};
#endif
