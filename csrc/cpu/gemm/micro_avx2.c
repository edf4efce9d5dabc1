/* Micro-kernel on 256-bit vectors: 6, 6 and 4 rows by 16 columns of C in up to 12 registers. */
#include "cpu/gemm/micro.h"

#ifdef AC_HAVE_X86
#include <immintrin.h>

#pragma GCC target("avx2,fma")

#define SOME_ROWS(rows)                                                                                                \
    static inline __attribute__((always_inline)) void rows_##rows(const ac_micro_job *j, int row) {                    \
        __m256 sum[rows][2];                                                                                           \
        float *c = j->c + row * AC_LANES;                                                                              \
        _Pragma("GCC unroll 6") for (int i = 0; i < rows; i++) _Pragma("GCC unroll 2") for (int v = 0; v < 2; v++)     \
            sum[i][v] = j->add ? _mm256_loadu_ps(c + i * AC_LANES + 8 * v) : _mm256_setzero_ps();                      \
        const char *a = j->a + row * j->a_lane_stride;                                                                 \
        for (int64_t s = 0; s < j->k_steps; s++) {                                                                     \
            const char *b = ac_micro_b(j, s, AC_TILE_BYTES);                                                           \
            _Pragma("GCC unroll 4") for (int cell = 0; cell < AC_CELLS; cell++, b += j->b_cell_stride) {               \
                const char *at = a + s * j->a_k_stride + cell * 4;                                                     \
                const float *bt = (const float *)(const void *)b;                                                      \
                __m256 x = _mm256_loadu_ps(bt), y = _mm256_loadu_ps(bt + 8);                                           \
                _Pragma("GCC unroll 6") for (int i = 0; i < rows; i++) {                                               \
                    __m256 value = _mm256_broadcast_ss((const float *)(const void *)(at + i * j->a_lane_stride));      \
                    sum[i][0] = _mm256_fmadd_ps(value, x, sum[i][0]);                                                  \
                    sum[i][1] = _mm256_fmadd_ps(value, y, sum[i][1]);                                                  \
                }                                                                                                      \
            }                                                                                                          \
        }                                                                                                              \
        _Pragma("GCC unroll 6") for (int i = 0; i < rows; i++) _Pragma("GCC unroll 2") for (int v = 0; v < 2; v++)     \
            _mm256_storeu_ps(c + i * AC_LANES + 8 * v, sum[i][v]);                                                     \
    }

SOME_ROWS(6)
SOME_ROWS(4)

static void run_f32(const ac_micro_job *j) {
    rows_6(j, 0);
    rows_6(j, 6);
    rows_4(j, 12);
}

const ac_micro ac_micro_avx2 = {"avx2", AC_WAY_micro_avx2, AC_PANEL_F32, AC_ISA_AVX2, 1, 1, NULL, NULL, run_f32};
#endif
