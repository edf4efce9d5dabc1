/* The innermost loops compiled for AVX2. System headers come first: their inline functions must not be compiled for
 * instructions that the machine may lack. */
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#pragma GCC target("avx2,fma,f16c")
#define ISA avx2
#define STREAM(to, from, bytes)                                                                                        \
    do {                                                                                                               \
        if ((bytes) == 32) _mm256_stream_ps((float *)(to), _mm256_loadu_ps((const float *)(from)));                    \
        else _mm_stream_si128((__m128i *)(to), _mm_loadu_si128((const __m128i *)(from)));                              \
    } while (0)
#include "cpu/loops.inc"
#endif
