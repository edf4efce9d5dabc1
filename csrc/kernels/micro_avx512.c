/* Micro-kernels on 512-bit vectors: 8 rows by 32 columns of C in 16 registers. */
#include "micro.h"

#ifdef AC_HAVE_X86
#include <immintrin.h>

#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx2,fma")

enum { ROWS = 8 };

/* A broadcast value serves both columns of vectors; without this the compiler loads it twice. */
#define HOLD(x) __asm__("" : "+v"(x))

#define FMA_F32(a, b, c) _mm512_fmadd_ps(a, b, c)
#define DOT_BF16(a, b, c) _mm512_dpbf16_ps(c, (__m512bh)(a), (__m512bh)(b))

#define EIGHT_ROWS(name, nb, MULTIPLY)                                                                                 \
    static inline __attribute__((always_inline)) void name(const ac_micro_job *j, int row) {                           \
        __m512 sum[ROWS][nb];                                                                                          \
        _Pragma("GCC unroll 8") for (int i = 0; i < ROWS; i++) _Pragma("GCC unroll 2") for (int v = 0; v < nb; v++)    \
            sum[i][v] = j->add ? _mm512_loadu_ps(j->c + v * j->c_b + (row + i) * AC_LANES) : _mm512_setzero_ps();      \
        const float *a = (const float *)(const void *)j->a + row * AC_CELLS;                                           \
        const float *b = (const float *)(const void *)j->b, *b1 = b + j->b_next / 4;                                   \
        for (int64_t q = 0; q < j->steps * AC_CELLS; q += AC_CELLS)                                                    \
            _Pragma("GCC unroll 16") for (int cell = 0; cell < AC_CELLS; cell++) {                                     \
                const float *at = a + q * AC_LANES + cell;                                                             \
                __m512 x = _mm512_loadu_ps(b + (q + cell) * AC_LANES);                                                 \
                __m512 y = nb > 1 ? _mm512_loadu_ps(b1 + (q + cell) * AC_LANES) : x;                                   \
                _Pragma("GCC unroll 8") for (int i = 0; i < ROWS; i++) {                                               \
                    __m512 value = _mm512_set1_ps(at[i * AC_CELLS]);                                                   \
                    HOLD(value);                                                                                       \
                    sum[i][0] = MULTIPLY(value, x, sum[i][0]);                                                         \
                    if (nb > 1) sum[i][nb - 1] = MULTIPLY(value, y, sum[i][nb - 1]);                                   \
                }                                                                                                      \
            }                                                                                                          \
        _Pragma("GCC unroll 8") for (int i = 0; i < ROWS; i++) _Pragma("GCC unroll 2") for (int v = 0; v < nb; v++)    \
            _mm512_storeu_ps(j->c + v * j->c_b + (row + i) * AC_LANES, sum[i][v]);                                     \
    }

#define KERNEL(name, MULTIPLY)                                                                                         \
    EIGHT_ROWS(name##_1, 1, MULTIPLY)                                                                                  \
    EIGHT_ROWS(name##_2, 2, MULTIPLY)                                                                                  \
    static void name(const ac_micro_job *j) {                                                                          \
        for (int row = 0; row < AC_LANES; row += ROWS) {                                                               \
            if (j->nb > 1) name##_2(j, row);                                                                           \
            else name##_1(j, row);                                                                                     \
        }                                                                                                              \
    }

KERNEL(run_f32, FMA_F32)
KERNEL(run_bf16, DOT_BF16)

const ac_micro ac_micro_avx512 = {"avx512", AC_PANEL_F32, AC_ISA_AVX512, 1, 2, NULL, NULL, run_f32};
const ac_micro ac_micro_avx512_bf16 = {"avx512_bf16", AC_PANEL_BF16, AC_ISA_AVX512_BF16, 1, 2, NULL, NULL, run_bf16};
#endif
