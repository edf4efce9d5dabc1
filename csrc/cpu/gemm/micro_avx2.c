/* Micro-kernel on 256-bit vectors: 6, 6 and 4 rows by 16 columns of C in up to 12 registers. */
#include "cpu/gemm/micro.h"

#ifdef AC_HAVE_X86
#include <immintrin.h>

#pragma GCC target("avx2,fma")

#define INLINE static inline __attribute__((always_inline))
#define EACH_ROW _Pragma("GCC unroll 6") for (int i = 0; i < rows; i++)
#define EACH_VECTOR _Pragma("GCC unroll 2") for (int v = 0; v < 2; v++)

/* `rows` rows of C from `row` on, a constant number; `lane` is A's lane stride. The lines of A that these rows read
 * soon are fetched: two k steps ahead for the first-level cache, and those of the next panel, which mostly follows in
 * memory, for the second. */
INLINE void some_rows(const ac_micro_job *j, int rows, int row, int64_t lane) {
    __m256 sum[6][2];
    float *c = j->c + row * AC_LANES;
    EACH_ROW EACH_VECTOR sum[i][v] = j->add ? _mm256_loadu_ps(c + i * AC_LANES + 8 * v) : _mm256_setzero_ps();
    const char *a = j->a + row * lane;
    for (int64_t s = 0; s < j->k_steps; s++, a += j->a_k_stride) {
        const char *b = ac_micro_b(j, s, AC_TILE_BYTES);
        EACH_ROW _mm_prefetch(a + 2 * j->a_k_stride + i * lane, _MM_HINT_T0);
        EACH_ROW _mm_prefetch(a + j->a_next + i * lane, _MM_HINT_T1);
        _Pragma("GCC unroll 4") for (int cell = 0; cell < AC_CELLS; cell++, b += j->b_cell_stride) {
            const float *bt = (const float *)(const void *)b;
            __m256 x = _mm256_loadu_ps(bt), y = _mm256_loadu_ps(bt + 8);
            EACH_ROW {
                __m256 value = _mm256_broadcast_ss((const float *)(const void *)(a + i * lane + cell * 4));
                sum[i][0] = _mm256_fmadd_ps(value, x, sum[i][0]);
                sum[i][1] = _mm256_fmadd_ps(value, y, sum[i][1]);
            }
        }
    }
    int64_t c_row = AC_LANES;
    if (j->out) {
        c = j->out + row * j->out_row, c_row = j->out_row;
        if (j->bias) EACH_ROW EACH_VECTOR sum[i][v] = _mm256_add_ps(sum[i][v], _mm256_loadu_ps(j->bias + 8 * v));
    }
    EACH_ROW EACH_VECTOR _mm256_storeu_ps(c + i * c_row + 8 * v, sum[i][v]);
}

INLINE void all_rows(const ac_micro_job *j, int64_t lane) {
    some_rows(j, 6, 0, lane);
    some_rows(j, 6, 6, lane);
    some_rows(j, 4, 12, lane);
}

/* The lanes of packed panels lie at constant places: instructions that read them need no arithmetic. */
static void run_f32(const ac_micro_job *j) {
    if (j->a_lane_stride == AC_CELLS * 4) all_rows(j, AC_CELLS * 4);
    else all_rows(j, j->a_lane_stride);
}

const ac_micro ac_micro_avx2 = {"avx2", AC_WAY_micro_avx2, AC_PANEL_F32, AC_ISA_AVX2, 1, 1, true, NULL, NULL, run_f32};
#endif
